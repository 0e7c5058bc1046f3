"""Folds of many rows, fitted in a quadratic model each, against exact fits."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import sparsehtp as sht
from sparsehtp.grids import grid, tall

N, P = 3000, 6
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


def both(loss, **options):
    X, y = drawn(loss)
    objective = sht.LinearModel(X, y, LOSSES[loss], fit_intercept=True, **options)
    grids = {"ks": [0, 1, 2, 3, P], "l2s": [1e-3, 0.1], "refit": 0.1}
    return sht.cross_validate(objective, **grids), sht.cross_validate(objective, solver=sht.solvers.FoBa(), **grids)


@pytest.mark.parametrize(("loss", "standardize"), [("logistic", True), ("poisson", False)])
def test_near_the_best_row_scores_are_those_of_exact_fits(loss, standardize):
    weights = np.random.default_rng(1).uniform(0.5, 2, N)
    found, exact = both(loss, standardize=standardize, sample_weight=weights)
    assert (found.best, found.best_1se, found.strong_ridge) == (exact.best, exact.best_1se, exact.strong_ridge)
    near = exact.mean - exact.mean[exact.best] < 1e-2
    assert near.sum() >= 6
    members = [np.sort(np.where(cv.support.mask, cv.support.idx, P), -1) for cv in (found, exact)]
    same = near & (members[0] == members[1]).all(-1)  # FoBa may stop at another support
    assert same.sum() >= 0.9 * near.sum() * len(same)
    np.testing.assert_allclose(found.scores[same], exact.scores[same], rtol=2e-4)
    assert np.all(found.mean >= exact.mean - 1e-3)  # far from it they may be above, where the model is far from F
    assert (found.n_rows, found.times) == (exact.n_rows, exact.times)


def test_with_all_features_the_model_is_the_fit():
    X, y = drawn("logistic")
    train = np.arange(N) % 3 > 0
    model = sht.LinearModel(X, y, LOSSES["logistic"], l2=1e-2, fit_intercept=True)
    found = sht.cross_validate(model, ks=[P], folds=[(train, ~train)])
    reference = LogisticRegression(C=1 / (1e-2 * train.sum()), tol=1e-10, max_iter=1000).fit(X[train], y[train])
    eta = reference.decision_function(X[~train])
    np.testing.assert_allclose(found.scores, np.mean(np.logaddexp(0, -y[~train] * eta)), rtol=1e-7)
    np.testing.assert_allclose(
        found.path.at(0).x, LogisticRegression(C=1 / (1e-2 * N), tol=1e-10).fit(X, y).coef_[0], rtol=1e-4
    )


def test_no_fit_depends_on_the_targets_it_is_scored_on():
    X, y = drawn("logistic")
    train = np.arange(N) % 3 > 0
    seen = []

    def predictors(y, eta, weights):
        seen.append(eta)
        return 0.0

    for targets in (y, np.where(train, y, -y)):
        model = sht.LinearModel(X, targets, LOSSES["logistic"], l2=1e-2, fit_intercept=True, standardize=True)
        sht.cross_validate(model, ks=[1, 2], folds=[(train, ~train)], scoring=predictors)
    first, second = seen[:2], seen[-2:]
    np.testing.assert_array_equal(first, second)


def test_labels_and_kept_features_are_those_of_exact_fits():
    X, y = drawn("logistic")
    model = sht.LinearModel(X, y, LOSSES["logistic"], fit_intercept=True, standardize=True)
    options = {"ks": [0, 1, 2], "scoring": "error", "threshold": sht.Sparsity(0, keep=[4])}
    found, exact = (sht.cross_validate(model, solver=each, **options) for each in (None, sht.solvers.FoBa()))
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
    model = sht.LinearModel(X, y, LOSSES["logistic"], fit_intercept=True)
    found, exact = (sht.cross_validate(model, ks=[1, 2], solver=each) for each in (None, sht.solvers.FoBa()))
    np.testing.assert_array_equal(found.scores, exact.scores)
