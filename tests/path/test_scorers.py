"""A scorer sees the user's targets and predictions, whatever the model has centred inside."""

import numpy as np
import pytest

import sparsehtp as sht

N, P = 60, 3
RNG = np.random.default_rng(11)
X = RNG.standard_normal((N, P))
ETA = X @ [1.0, -0.5, 0.3]
X[:, 1] += 300
NOISE = RNG.standard_normal(N)
FOLDS = [(np.arange(20, N), np.arange(20)), (np.arange(40), np.arange(40, N))]  # of 40 rows each to train on
WEIGHTS = np.where(np.arange(N) % 5 == 0, 0.0, 1.0 + np.arange(N) % 2)
OFFSETS = {"none": None, "far": 100 + NOISE, "near": np.sin(np.arange(N)), "constant": np.full(N, -40.0)}
LOSSES = {
    "squared": (sht.losses.Squared(), lambda level: level + 5 + ETA + 0.5 * NOISE),
    "huber": (sht.losses.Huber(), lambda level: level + 5 + ETA + 0.5 * NOISE),
    "poisson": (sht.losses.Poisson(), lambda level: np.floor(np.exp(1 + 0.3 * ETA)) + np.arange(N) % 2),
    "logistic": (sht.losses.Logistic(), lambda level: np.where(ETA + 2 * NOISE > 0, 1.0, -1.0)),
}


def drawn(loss):
    """Targets and offsets of every kind; those of counts are small, or their exponentials are no numbers."""
    for name, offset in OFFSETS.items():
        level = 0 if offset is None else offset.mean()
        for far in (0.0, 1000.0) if name in ("none", "far") and loss in ("squared", "huber") else (0.0,):
            yield LOSSES[loss][1](level + far), offset


def some(offset, rows):
    return None if offset is None else offset[rows]


def check(seen, targets, predictors):
    """Two calls, one for each fold, with the targets and the predictors of its rows that have a weight."""
    assert len(seen) == len(FOLDS)
    for (y, eta, weights), (train, test) in zip(seen, FOLDS, strict=True):
        rows = test[WEIGHTS[test] > 0]
        np.testing.assert_allclose(y, targets[rows], rtol=1e-14, atol=1e-13)
        np.testing.assert_allclose(eta, predictors(train, rows), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(weights / weights.max(), WEIGHTS[rows] / 2)


def heard(call, result=0.0):
    """What a scorer is called with."""
    seen = []

    def own(*seen_by_it):
        seen.append(seen_by_it)
        return result

    call(own)
    return seen


def linear_model(loss, y, offset, rows=slice(None)):
    settings = {"l2": 0.1, "fit_intercept": True, "offset": some(offset, rows), "sample_weight": WEIGHTS[rows]}
    return sht.LinearModel(X[rows], y[rows], LOSSES[loss][0], **settings)


def functions_see_the_users_units(loss, y, offset):
    def predictors(train, rows):
        best = sht.solve(linear_model(loss, y, offset, train), sht.Sparsity(P), sht.solvers.HTP())
        eta = X[rows] @ np.asarray(best.x) + float(best.intercept)
        return eta if offset is None else eta + offset[rows]

    model, settings = linear_model(loss, y, offset), {"solver": sht.solvers.HTP(), "folds": FOLDS}
    check(heard(lambda own: sht.cross_validate(model, ks=[P], l2s=[0.1], scoring=own, **settings)), y, predictors)
    check(
        heard(lambda own: sht.choose(model, None, ks=[P], l2s=[0.1], rule="best", scoring=own, **settings)),
        y,
        predictors,
    )
    settings["folds"] = [(train, test, lambda objective: objective) for train, test in FOLDS]
    views = heard(lambda own: sht.cross_validate(model, ks=[P], l2s=[0.1], scoring=own, **settings))
    check([views[0], views[3]], y, predictors)  # every view is scored on all folds, and its own counts


@pytest.mark.parametrize(
    "loss", [pytest.param(each, marks=[pytest.mark.slow] * (each != "squared")) for each in LOSSES]
)
def test_functions_see_the_users_units(x64, loss):
    for y, offset in drawn(loss):
        functions_see_the_users_units(loss, y, offset)


@pytest.mark.slow
def test_in_single_precision_they_are_theirs_to_its_digits():
    settings = {"ks": [P], "l2s": [0.1], "solver": sht.solvers.HTP(), "folds": FOLDS}
    for y, offset in drawn("squared"):
        alike = linear_model("squared", y, offset)
        given = [None if a is None else a.astype(np.float32) for a in (X, y, offset)]
        model = sht.LinearModel(*given[:2], None, 0.1, WEIGHTS.astype(np.float32), True, offset=given[2])
        seen, expected = (heard(lambda f, m=m: sht.cross_validate(m, scoring=f, **settings)) for m in (model, alike))
        for one, other in zip(seen, expected, strict=True):
            np.testing.assert_allclose(one[0], other[0], rtol=1e-5)
            np.testing.assert_allclose(one[1], other[1], atol=1e-3)


def ridge(train, rows, y, offset):
    """Predictors of one or several responses, by the normal equations."""
    s = WEIGHTS[train] / WEIGHTS[train].sum()
    known = np.zeros(y.shape) if offset is None else offset
    mean, target = s @ X[train], y[train] - known[train]
    A = X[train] - mean
    w = np.linalg.solve(A.T @ (s[:, None] * A) + 0.1 * np.eye(P), A.T @ (target.T * s).T)
    return (X[rows] - mean) @ w + s @ target + known[rows]


def prices_and_responses(y, offset):
    model, threshold = linear_model("squared", y, offset), sht.L0L1L2(0.0)
    prices = heard(
        lambda own: sht.cross_validate(model, l0s=[1e-9], folds=FOLDS, threshold=threshold, scoring=own)
    )  # at that price all features pay
    check(prices, y, lambda train, rows: ridge(train, rows, y, offset))
    Y = np.stack([y, 3 * y - 7], 1)
    both = None if offset is None else np.stack([offset, 3 * offset], 1)
    several = sht.MultiResponse(X, Y, l2=0.1, offset=both, sample_weight=WEIGHTS, fit_intercept=True)
    settings = {"folds": FOLDS, "threshold": sht.RowSparsity(0), "solver": sht.solvers.HTP()}
    responses = heard(lambda own: sht.cross_validate(several, ks=[P], l2s=[0.1], scoring=own, **settings))
    check(responses, Y, lambda train, rows: ridge(train, rows, Y, both))


def test_functions_see_the_users_units_over_prices_and_for_several_responses(x64):
    for y, offset in drawn("squared"):
        prices_and_responses(y, offset)


def estimators_see_the_users_units(kind, settings, y, offset):
    outputs = "decision_function" if kind is sht.SparseClassifier else "predict"

    def predictors(train, rows):
        fit = kind(k=P, **settings).fit(X[train], y[train], WEIGHTS[train], offset=some(offset, train))
        return getattr(fit, outputs)(X[rows], some(offset, rows))

    def fit(own):
        def scorer(estimator, X, y, sample_weight):
            return own(y, getattr(estimator, outputs)(X), sample_weight)

        kind(k=[P], cv=FOLDS, scoring=scorer, rule="best", **settings).fit(X, y, WEIGHTS, offset=offset)

    check(heard(fit), y, predictors)


@pytest.mark.parametrize(
    "loss", ["squared", *(pytest.param(each, marks=pytest.mark.slow) for each in ("poisson", "logistic", "several"))]
)
def test_scorers_of_estimators_see_the_users_units(loss):
    settings = {"l2": 0.1, "solver": "htp"}
    for y, offset in drawn("squared" if loss == "several" else loss):
        if loss == "logistic":
            estimators_see_the_users_units(sht.SparseClassifier, settings, y > 0, offset)
        elif loss == "several":
            both = None if offset is None else np.stack([offset, 3 * offset], 1)
            estimators_see_the_users_units(sht.SparseRegressor, settings, np.stack([y, 3 * y], 1), both)
        else:
            estimators_see_the_users_units(sht.SparseRegressor, settings | {"loss": loss}, y, offset)
