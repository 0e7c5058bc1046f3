"""Optimal subsets of real data, found by enumeration elsewhere."""

import json

import numpy as np
import pytest

import sparsehtp as sht


def reference(folder, name):
    with np.load(folder / f"{name}.npz") as data:
        X, y = data["X"].astype(float), data["y"].astype(float)
    return X, y, json.loads((folder / "reference_solutions.json").read_text())


@pytest.mark.parametrize(
    "name",
    ["diabetes", *(pytest.param(n, marks=pytest.mark.slow) for n in ("prostate_esl", "hitters", "riboflavin"))],
)
def test_least_squares(x64, data_folder, name):
    X, y, references = reference(data_folder, name)
    model = sht.LinearModel(np.asfortranarray(X), y, fit_intercept=True, standardize=True)
    best = references[name]["best"]
    k_max = max(case["k"] for case in best)
    for case in best:
        solution = sht.solve(model, sht.Sparsity(case["k"], k_max=k_max), sht.BestSubset("thorough"), throw=False)
        rss = np.sum((y - X @ solution.x - solution.intercept) ** 2)
        np.testing.assert_allclose(rss, case["rss"], rtol=1e-7)
        assert set(np.asarray(solution.support.idx)[np.asarray(solution.support.mask)]) == set(case["support"])


@pytest.mark.slow
def test_logistic(x64, data_folder):
    X, y, references = reference(data_folder, "heart_scale")
    model = sht.LinearModel(X, np.where(y > 0, 1.0, -1.0), sht.Logistic(), fit_intercept=True, standardize=True)
    for case in references["heart_scale_l0logistic"]["best"]:
        solution = sht.solve(model, sht.Sparsity(case["k"], k_max=13), sht.BestSubset("thorough"))
        np.testing.assert_allclose(len(y) * solution.value, case["nll"], rtol=1e-8)
