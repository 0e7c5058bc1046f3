"""Optimal subsets of real data, found by enumeration elsewhere."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import sparsehtp as sht

# Residuals of the best 1, 2, ... of 65 columns: ten of breast cancer's, standardised, with all squares and products.
# `test_expanded_by_proof` proves them.
EXPANDED = {
    10: "90.230123 67.722998 65.804177 63.017895 61.510007 59.506005 58.560637 57.548548 56.374128 55.259535",
    20: "49.248201 41.204812 36.878637 33.250944 31.176270 29.988707 28.952472 27.871326 27.248313 26.354799 25.782660 "
    "25.518832 25.064062",
}


def reference(folder, name):
    with np.load(folder / f"{name}.npz") as data:
        X, y = data["X"].astype(float), data["y"].astype(float)
    return X, y, json.loads((folder / "reference_solutions.json").read_text())


@pytest.mark.parametrize(
    "name", ["diabetes", *(pytest.param(n, marks=pytest.mark.slow) for n in ("prostate_esl", "hitters", "riboflavin"))]
)
def test_least_squares(x64, data_folder, name):
    X, y, references = reference(data_folder, name)
    model = sht.LinearModel(np.asfortranarray(X), y, fit_intercept=True, standardize=True)
    best = references[name]["best"]
    k_max = max(case["k"] for case in best)
    for case in best:
        solution = sht.solve(
            model, sht.Sparsity(case["k"], k_max=k_max), sht.solvers.BestSubset("thorough"), throw=False
        )
        rss = np.sum((y - X @ solution.x - solution.intercept) ** 2)
        np.testing.assert_allclose(rss, case["rss"], rtol=1e-7)
        assert set(np.asarray(solution.support.idx)[np.asarray(solution.support.mask)]) == set(case["support"])


@pytest.mark.slow
def test_logistic(x64, data_folder):
    X, y, references = reference(data_folder, "heart_scale")
    model = sht.LinearModel(X, np.where(y > 0, 1.0, -1.0), sht.losses.Logistic(), fit_intercept=True, standardize=True)
    for case in references["heart_scale_l0logistic"]["best"]:
        solution = sht.solve(model, sht.Sparsity(case["k"], k_max=13), sht.solvers.BestSubset("thorough"))
        np.testing.assert_allclose(len(y) * solution.value, case["nll"], rtol=1e-8)


def expanded(first):
    """Ten columns with all their squares and products, all standardised, and centred labels."""
    X, y = load_breast_cancer(return_X_y=True)
    Z = X[:, first : first + 10]
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    i, j = np.triu_indices(10)
    Z = np.hstack([Z, Z[:, i] * Z[:, j]])
    return sht.LinearModel((Z - Z.mean(axis=0)) / Z.std(axis=0), y - y.mean())


@pytest.mark.parametrize("first", EXPANDED)
def test_expanded(x64, first):
    model, best = expanded(first), np.array(EXPANDED[first].split(), float)
    values = [sht.solve(model, sht.Sparsity(k, k_max=len(best))).value for k in range(1, len(best) + 1)]
    np.testing.assert_allclose(2 * model.n_samples * np.array(values), best, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("first", EXPANDED)
def test_expanded_by_proof(x64, first):
    model = expanded(first)
    for k, residual in enumerate(map(float, EXPANDED[first].split()), 1):
        proof = sht.prove(model, sht.Sparsity(k), time_limit=300, gap=1e-6)
        assert proof.proved
        np.testing.assert_allclose(2 * model.n_samples * np.array([proof.upper, proof.lower]), residual, rtol=2e-6)
