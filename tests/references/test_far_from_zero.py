"""Columns far from zero: what a fit and its certificate say holds for the numbers that are returned.

Means from one to 10^7 standard deviations, against F and its minima in extended precision.
"""

import itertools
import warnings

import cases
import jax
import numpy as np
import pytest
from exact import Loss, Problem

import sparsehtp as sht
from sparsehtp._tolerances import tolerance

N, P, K = 48, 5, 2
L2 = 2.0**-10  # a number in single precision too
PARAMETERS = dict.fromkeys(("squared", "logistic", "poisson", "gamma", "squared_hinge"), 1.0)
PARAMETERS |= {"huber": 0.5, "tweedie": 1.5, "negative_binomial": 0.5, "quantile": 0.25, "smoothed_hinge": 0.5}
LOSSES = {name: cases.BY_NAME[name](parameter) for name, parameter in PARAMETERS.items()}
MORE = ("cox", "softmax", "several")
QUICK = ("squared", "poisson", "logistic")
KINDS = [
    pytest.param(name, dtype, marks=[] if name in QUICK and dtype is np.float32 else pytest.mark.slow)
    for name, dtype in itertools.product(LOSSES, (np.float32, np.float64))
]


def draw(name, dtype, seed):
    """X, y and weights as the model is given them."""
    rng = np.random.default_rng([seed, len(name)])
    Z = rng.standard_normal((N, P)) + 0.5 * rng.standard_normal((N, 1))
    Z[:, -1] += rng.standard_t(1.5, N) * rng.integers(0, 2)  # outliers, which a shift may round
    scale = 10.0 ** rng.uniform(-3, 3, P)
    far = 10.0 ** rng.uniform(0, 7, P) * rng.choice([0, 1, 1, -1], P)
    X = (scale * (Z + far)).astype(dtype)
    noise = 10.0 ** rng.uniform(-4, 0)
    eta = 0.7 * Z[:, 0] - 0.5 * Z[:, 1] + 0.3 * noise * rng.standard_normal(N)
    y = LOSSES[name].draw_targets(eta, rng) if name not in ("squared", "huber", "quantile") else eta
    if name in ("squared", "huber", "quantile"):
        y = y + 10.0 ** rng.uniform(0, 4) * rng.integers(0, 2)
    y = y.astype(dtype if seed % 2 or abs(y).max() < 100 else float)  # far from zero it may have more digits than X
    return X, y, np.where(rng.uniform(size=N) < 0.1, 0, rng.uniform(0.5, 2, N)).astype(dtype)


def problem(name, X, y, weights):
    loss = Loss(name, np.longdouble(PARAMETERS[name]))
    return Problem(X, y, loss, L2, weights / weights.max(), intercept=True, standardize=True)


def rounded(name, y, dtype):
    """What rounding y, or a level of 0.3, once to the dtype may change."""
    return 1e-11 if y.dtype == dtype and (name != "quantile" or dtype is np.float64) else 1e-7


def usable(exact, dtype):
    """Columns that do not count as constant."""
    return exact.deviation > tolerance("constant", dtype) * np.sqrt(exact.deviation**2 + exact.mean**2)


@pytest.mark.parametrize(("name", "dtype"), KINDS)
def test_what_a_fit_says_holds_for_what_it_returns(name, dtype):
    loss = LOSSES[name]
    kind = sht.SparseClassifier if loss.classification else sht.SparseRegressor
    for seed in range(6):
        X, y, weights = draw(name, dtype, seed)
        exact = problem(name, X, y, weights)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(K, l2=L2, loss=loss, solver="htp").fit(X, y, weights)
        w, b = model.coef_.ravel(), np.ravel(model.intercept_)[0]
        assert w.dtype == dtype and np.asarray(b).dtype == np.float64
        F, F0 = exact.value(w, b), exact.null()[1]
        size = abs(F) + abs(F0)
        stationary = tolerance("stationary", dtype)
        assert abs(model.objective_value_ - F) <= stationary * size, seed
        eta = model.decision_function(X) if loss.classification else model._predictor(X)
        live = weights > 0
        own = exact.omega[live] @ exact.loss.value(np.longdouble(eta[live]), exact.y[live])
        assert abs(own + np.sum(exact.ridge * np.longdouble(w) ** 2) / 2 - F) <= 1e-8 * size, seed

        c = model.certificate_
        assert abs(c.upper_bound - F) <= rounded(name, y, dtype) * size, seed
        masks, minima, _ = exact.minima()
        masks_usable = ~masks[:, ~usable(exact, dtype)].any(1)
        support = model.support_
        best = minima[(masks == support).all(1)][0]
        if c.stationary:
            assert F - best <= 1.01 * stationary * size, seed
        away = (masks & ~support).sum(1) <= 1
        near = minima[away & masks_usable & (masks.sum(1) <= K)].min()
        enough = max(tolerance("swap", dtype) * abs(F), np.finfo(dtype).eps * abs(F0))
        if c.swap_gain == 0:
            assert F - near <= 1.01 * enough, seed
        elif c.swap_gain is not None:
            assert c.swap_gain <= F - near + 1e-9 * size, seed
        if dtype == np.float64 or name != "quantile":
            assert c.stationary, (seed, c.statement)


@pytest.mark.parametrize(("name", "dtype"), KINDS)
def test_a_solution_says_what_rounding_of_its_intercept_costs(name, dtype):
    loss = LOSSES[name]
    told = 0
    for seed in range(8):
        X, y, weights = draw(name, dtype, seed)
        exact = problem(name, X, y, weights)
        with jax.enable_x64(dtype is np.float64), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = sht.LinearModel(X, y, loss, L2, weights / weights.max(), fit_intercept=True, standardize=True)
            solution = sht.solve(model, sht.Sparsity(K), sht.solvers.HTP())
        F, F0 = exact.value(solution.x, solution.intercept), exact.null()[1]
        cost = float(solution.intercept_rounding)
        size = abs(F) + abs(F0)
        assert F <= float(solution.value) + cost + tolerance("stationary", dtype) * size, seed
        warned = any("cannot hold an intercept" in str(each.message) for each in caught)
        told += warned
        if F > float(solution.value) + 2 * tolerance("swap", dtype) * size:
            assert warned, seed
    assert told or dtype is np.float64


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
def test_other_models_are_of_what_they_return(kind, tmp_path):
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
        again = sht.load(sht.save(model, tmp_path / "model.npz"))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert total(kind, again, X, y) == total(kind, model, X, y)
