"""Columns far from zero: what a fit and its certificate say holds for the numbers that are returned.

Of models whose losses `statements.py` does not draw, against F in extended precision.
"""

import warnings

import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp._tolerances import tolerance

N, P, K = 48, 5, 2
L2 = 2.0**-10  # a number in single precision too
MORE = ("cox", "softmax", "several")


@pytest.mark.parametrize("far", [False, True])
def test_a_solution_warns_of_what_rounding_of_its_intercept_costs(far):
    rng = np.random.default_rng(0)
    X, y = (rng.standard_normal(shape) + 1e5 * far for shape in ((N, P), N))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = sht.solve(sht.LinearModel(X, y, l2=L2, fit_intercept=True), sht.Sparsity(K), sht.solvers.HTP())
    assert (solution.intercept_rounding > tolerance("swap", np.float32) * solution.value) == far
    assert any("cannot hold an intercept" in str(each.message) for each in caught) == far


def log_sum_exp(a):
    return a.max() + np.log(np.sum(np.exp(a - a.max())))


def total(kind, model, X, y):
    """F without its ridge penalty of a fitted estimator, in extended precision."""
    eta = np.longdouble(X) @ np.longdouble(np.atleast_2d(model.coef_).T)
    if kind == "cox":
        events = [i for i in range(N) if y[i, 1]]
        return -sum(eta[i, 0] - log_sum_exp(eta[y[:, 0] >= y[i, 0], 0]) for i in events) / len(events)
    if kind == "ordinal":
        ends = np.concatenate([[-np.inf], np.longdouble(model.thresholds_), [np.inf]])
        return -np.mean(np.log(1 / (1 + np.exp(eta[:, 0] - ends[y + 1])) - 1 / (1 + np.exp(eta[:, 0] - ends[y]))))
    eta = eta + np.longdouble(model.intercept_)
    if kind == "softmax":
        return np.mean([log_sum_exp(row) - row[c] for row, c in zip(eta, y, strict=True)])
    return np.sum((eta - y) ** 2) / (2 * N)


@pytest.mark.parametrize("kind", ["ordinal", *(pytest.param(a, marks=pytest.mark.slow) for a in MORE)])
def test_other_models_are_of_what_they_return(kind):
    for seed in range(4):
        rng = np.random.default_rng([seed, 5])
        Z = rng.standard_normal((N, P))
        X = (Z + 10.0 ** rng.uniform(0, 6, P) * rng.choice([0, 1, -1], P)).astype(np.float32)
        eta = Z[:, 0] - Z[:, 1] + 0.1 * rng.standard_normal(N)
        model, y = {
            "cox": (sht.SparseCox(K, l2=L2, solver="htp"), np.column_stack([np.exp(eta), np.arange(N) % 4 > 0])),
            "ordinal": (sht.SparseOrdinal(K, l2=L2, solver="htp"), np.digitize(eta, [-1, 1])),
            "softmax": (sht.SparseClassifier(K, l2=L2, loss="softmax", solver="htp"), np.digitize(eta, [-1, 1])),
            "several": (sht.SparseRegressor(K, l2=L2, solver="htp"), np.column_stack([eta, 3e4 - eta + Z[:, 0]])),
        }[kind]
        model.fit(X, y)
        w = np.atleast_2d(model.coef_).astype(np.longdouble)
        F = total(kind, model, X, y) + L2 / 2 * np.sum((w * np.longdouble(X).std(0)) ** 2)
        size = abs(F) + (np.var(y, 0).sum() / 2 if kind == "several" else 1)
        assert abs(model.objective_value_ - F) <= tolerance("stationary", np.float32) * size, seed
        assert model.certificate_.stationary, (seed, model.certificate_.statement)
        assert abs(model.certificate_.upper_bound - F) <= 1e-9 * size, seed
