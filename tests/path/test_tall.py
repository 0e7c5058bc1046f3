"""Folds of many rows, fitted in a quadratic model each, against exact fits."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import sparsehtp as sht
from sparsehtp.grids import grid, tall

N, P = 3000, 6


class Binomial(sht.losses.AbstractLoss):
    """Successes in a number of trials, one for all rows or one for each."""

    trials: Any

    def value(self, eta, y):
        return self.trials * jax.nn.softplus(eta) - y * eta

    def derivative(self, eta, y):
        return self.trials * jax.nn.sigmoid(eta) - y

    def second_derivative(self, eta, y):
        return self.trials * jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta)

    @property
    def smoothness(self):
        return self.trials / 4


pytestmark = pytest.mark.usefixtures("x64")
LOSSES = {"logistic": sht.losses.Logistic(), "poisson": sht.losses.Poisson()}


@pytest.fixture(autouse=True)
def many(monkeypatch):
    monkeypatch.setattr(tall, "LEAST", N * P)


def drawn(loss, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((N, P)) + 0.7 * rng.standard_normal((N, 1))) * np.linspace(0.5, 3, P) + 2
    eta = 0.5 * (X[:, 0] - 2) / 0.5 + 0.3 * (X[:, 3] - 2) / 2
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-eta)), 1.0, -1.0)
    return X, y if loss == "logistic" else rng.poisson(np.exp(eta / 2)).astype(float)


def both(X, y, options, loss="logistic", **grids):
    """Folds as they are made by default, and by exact fits."""
    model = sht.LinearModel(X, y, LOSSES[loss], fit_intercept=True, **options)
    return [sht.cross_validate(model, solver=each, **grids) for each in (None, sht.solvers.FoBa())]


def members(cv):
    return np.sort(np.where(cv.support.mask, cv.support.idx, P), -1)


@pytest.mark.parametrize(("loss", "standardize"), [("logistic", True), ("poisson", False)])
def test_fits_are_exact_and_their_supports_as_good(loss, standardize, monkeypatch):
    rng, fits, ended = np.random.default_rng(1), tall.tall_fits, []
    monkeypatch.setattr(tall, "tall_fits", lambda *grid: (ended.append(fits(*grid)), ended[-1])[1])
    offset = None if standardize else rng.uniform(-0.5, 0.5, N)
    options = {"standardize": standardize, "sample_weight": rng.uniform(0.5, 2, N), "offset": offset}
    found, exact = both(*drawn(loss), options, loss, ks=[0, 1, 2, 3, P], l2s=[1e-3, 0.1], refit=0.1)
    assert len(ended) == 1 and ended[0] is not None, "found in the quadratic models"
    assert (found.best, found.best_1se, found.strong_ridge) == (exact.best, exact.best_1se, exact.strong_ridge)
    same = (members(found) == members(exact)).all(-1)  # FoBa may stop at another support
    assert same.mean() >= 0.8
    np.testing.assert_allclose(found.scores[same], exact.scores[same], rtol=1e-5)
    np.testing.assert_array_less(found.path.value, exact.path.value * (1 + 1e-6) + 1e-3)
    here = [i for i in range(len(exact.path)) if np.array_equal(*(cv.path.at(i).x != 0 for cv in (found, exact)))]
    assert len(here) >= 8
    for i in here:
        np.testing.assert_allclose(found.path.at(i).x, exact.path.at(i).x, atol=2e-4 * np.abs(exact.path.at(i).x).max())
        np.testing.assert_allclose(found.path.value[i], exact.path.value[i], rtol=1e-8)
    assert (found.n_rows, found.times) == (exact.n_rows, exact.times)
    assert np.all(found.results == sht.results.RESULTS.converged)


@pytest.mark.parametrize(
    ("sizes", "steep"), [([1e-8, 1, 1e8, 1, 1, 1], 1), ([1, 1, 1, 1, 1, 1], 30)], ids=["scale", "steep"]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_of_any_size_and_labels_that_are_nearly_separated(sizes, steep, dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P))
    eta = steep * (X[:, 0] - X[:, 1] + 0.3 * X[:, 2])
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-eta)), 1.0, -1.0)
    l2, train = 1e-4, np.arange(N) % 3 > 0
    size = np.asarray(sizes)
    model = sht.LinearModel(
        (X * size).astype(dtype), y.astype(dtype), LOSSES["logistic"], l2 * size**2, fit_intercept=True
    )
    assert tall.suits(grid.prepare(model, [1], None, None, None, None, search="folds"))
    found = sht.cross_validate(model, ks=[2, 3, P], folds=[(train, ~train)])
    for row, S in enumerate(([0, 1], [0, 1, 2], range(P))):
        reference = LogisticRegression(C=1 / (l2 * train.sum()), tol=1e-9, max_iter=10_000).fit(
            X[train][:, S], y[train]
        )
        eta = reference.decision_function(X[~train][:, S])
        np.testing.assert_allclose(
            found.scores[0, row], np.mean(np.logaddexp(0, -y[~train] * eta)), rtol=1e-5 if dtype == np.float64 else 3e-4
        )


def newton(A, y, weights, offset, ridge):
    """Coefficients of a logistic fit."""
    w = np.zeros(A.shape[1])
    for _ in range(30):
        odds = expit(-y * (A @ w + offset))
        H = (A.T * (weights * odds * (1 - odds))) @ A + np.diag(ridge)
        w -= np.linalg.solve(H, ridge * w - A.T @ (weights * y * odds))
    return w


def test_no_fit_depends_on_the_targets_it_is_scored_on():
    """It is that of the other rows at a part of l2, under weights and with offsets; the path's is at l2 itself."""
    X, y = drawn("logistic")
    train, seen, rng = np.arange(N) % 3 > 0, [], np.random.default_rng(3)
    weights, offset = rng.uniform(0.5, 2, N), rng.uniform(-0.5, 0.5, N)

    def predictors(y, eta, weights):
        seen.append(eta)
        return 0.0

    for targets in (np.where(train, y, -y), y):
        model = sht.LinearModel(
            X, targets, LOSSES["logistic"], 0.1, weights, fit_intercept=True, standardize=True, offset=offset
        )
        found = sht.cross_validate(model, ks=[1, 2], folds=[(train, ~train)], scoring=predictors, refit=0.5)
    first, second = seen[:2], seen[-2:]
    np.testing.assert_array_equal(first, second)
    for row in range(2):
        S = np.sort(found.support.idx[0, row][found.support.mask[0, row]])
        for s, chosen, l2 in ((weights * train, S, 0.05), (weights, np.flatnonzero(found.path.x[row]), 0.1)):
            s = s / s.sum()
            A = np.column_stack([X[:, chosen], np.ones(N)])
            ridge = l2 * np.append(s @ (X[:, chosen] - s @ X[:, chosen]) ** 2, 0)
            w = newton(A, y, s, offset, ridge)
            if l2 == 0.05:
                np.testing.assert_allclose(second[row], (A @ w + offset)[~train], rtol=1e-4, atol=1e-4)
            else:
                np.testing.assert_allclose([*found.path.x[row, chosen], found.path.intercept[row]], w, rtol=1e-4)
                eta = A @ w + offset
                np.testing.assert_allclose(found.path.loss[row], s @ np.logaddexp(0, -y * eta), rtol=1e-6)


def test_labels_and_kept_features_are_those_of_exact_fits():
    grids = {"ks": [0, 1, 2], "scoring": "error", "threshold": sht.Sparsity(0, keep=[4])}
    found, exact = both(*drawn("logistic"), {"standardize": True}, **grids)
    np.testing.assert_allclose(found.scores[:, 1:], exact.scores[:, 1:], atol=2e-3)  # one label of five hundred
    assert np.all(found.support.idx[:, :, 0] == 4) and found.support.mask[:, :, 0].all()


@pytest.mark.parametrize(
    "change",
    [
        {"loss": sht.losses.Squared()},
        {"loss": sht.losses.Huber(1.0)},
        {"threshold": sht.Sparsity(0, lower=0.0)},
        {"n": 200},
    ],
    ids=str,
)
def test_what_a_quadratic_model_does_not_stand_for_is_fitted_exactly(change):
    X, y = drawn("logistic")
    n = change.get("n", N)
    model = sht.LinearModel(X[:n], y[:n], change.get("loss", LOSSES["logistic"]), fit_intercept=True)

    def suits(model, threshold):
        return tall.suits(grid.prepare(model, [1], None, threshold, None, None, search="folds"))

    assert not suits(model, change.get("threshold"))
    assert suits(sht.LinearModel(X, y, LOSSES["logistic"]), None)


def test_without_a_fit_of_all_features_folds_are_exact():
    X, y = drawn("logistic")
    X[:, 5] = X[:, 4]  # their Hessian is singular without l2
    found, exact = both(X, y, {}, ks=[1, 2])
    np.testing.assert_array_equal(found.scores, exact.scores)


@pytest.mark.parametrize("l2", [0, 1e-9, 1e-6])
@pytest.mark.parametrize("steep", [pytest.param(2, marks=pytest.mark.later), 10, 60, np.inf])
@pytest.mark.parametrize("dtype", [pytest.param(np.float64, marks=pytest.mark.later), np.float32])
def test_however_nearly_labels_are_separated_no_size_is_worse_than_exact(steep, l2, dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)).astype(dtype)
    noise = 0 if steep == np.inf else rng.logistic(size=N) / steep
    y = np.where(X @ np.array([1, 0.8, 0, -0.5, 0, 0]) + noise > 0, 1.0, -1.0).astype(dtype)
    train = np.arange(N) % 3 > 0
    found, exact = both(X, y, {"l2": l2}, ks=[0, 1, 2, 3], folds=[(train, ~train)])
    np.testing.assert_array_less(found.path.value, exact.path.value * 1.01 + 1e-5)
    np.testing.assert_array_less(found.scores[:, :3], exact.scores[:, :3] * 1.01 + 1e-5)


def test_single_precision_sums_the_losses_of_many_rows():
    n, rng = 100_000, np.random.default_rng(0)
    X = rng.standard_normal((n, 2)).astype(np.float32)
    y = np.where(0.03 * X[:, 0] + rng.logistic(size=n) > 0, 1, -1).astype(np.float32)
    train = np.arange(n) % 2 > 0
    found = sht.cross_validate(
        sht.LinearModel(X, y, LOSSES["logistic"], fit_intercept=True), ks=[0, 1, 2], folds=[(train, ~train)]
    )
    for row, S in enumerate(np.where(found.support.mask, found.support.idx, -1)[0]):
        S = S[S >= 0]
        A = np.column_stack([X[:, S], np.ones(n)])
        reference = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-9).fit(A[train], y[train])
        loss = np.mean(np.logaddexp(0, -y[~train] * reference.decision_function(A[~train])))
        np.testing.assert_allclose(found.scores[0, row], loss, rtol=1e-6)


def test_a_loss_may_have_a_number_for_every_row():
    X, _ = drawn("logistic")
    y = np.random.default_rng(0).binomial(8, 1 / (1 + np.exp(X[:, 1] - 2))).astype(float)
    one, each = (
        sht.cross_validate(sht.LinearModel(X, y, Binomial(trials), fit_intercept=True), ks=[1, 2])
        for trials in (8.0, np.full(N, 8.0))
    )
    np.testing.assert_allclose(each.scores[:, 0], one.scores[:, 0], rtol=1e-5)
    np.testing.assert_allclose(each.path.value, one.path.value, rtol=1e-5)
