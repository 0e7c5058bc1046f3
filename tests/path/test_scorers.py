"""A scorer sees the user's targets and predictions, whatever the model has centred inside."""

import jax
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


def heard(call, *args, **options):
    """What a scorer is called with."""
    seen = []
    call(*args, scoring=lambda *given: (seen.append(given), 0.0)[1], **options)
    return seen


def linear_model(loss, y, offset, rows=slice(None)):
    settings = {"l2": 0.1, "fit_intercept": True, "offset": some(offset, rows), "sample_weight": WEIGHTS[rows]}
    return sht.LinearModel(X[rows], y[rows], LOSSES[loss][0], **settings)


@pytest.mark.parametrize(
    "loss", [pytest.param(each, marks=[pytest.mark.slow] * (each != "squared")) for each in LOSSES]
)
def test_functions_see_the_users_units(x64, loss):
    grid = {"ks": [P], "l2s": [0.1], "solver": sht.solvers.HTP()}
    seeing = [(train, test, lambda objective: objective) for train, test in FOLDS]
    for y, offset in drawn(loss):

        def predictors(train, rows, y=y, offset=offset):
            best = sht.solve(linear_model(loss, y, offset, train), sht.Sparsity(P), sht.solvers.HTP())
            return X[rows] @ np.asarray(best.x) + float(best.intercept) + (0 if offset is None else offset[rows])

        model = linear_model(loss, y, offset)
        check(heard(sht.cross_validate, model, folds=FOLDS, **grid), y, predictors)
        check(heard(sht.choose, model, folds=FOLDS, rule="best", **grid), y, predictors)
        views = heard(sht.cross_validate, model, folds=seeing, **grid)
        check([views[0], views[3]], y, predictors)  # every view is scored on all folds, and its own counts


@pytest.mark.slow
def test_in_single_precision_they_are_theirs_to_its_digits():
    def seen(model):
        settings = {"ks": [P], "l2s": [0.1], "solver": sht.solvers.HTP(), "folds": FOLDS}
        return heard(sht.cross_validate, model, **settings)

    for y, offset in drawn("squared"):
        with jax.enable_x64(True):
            expected = seen(linear_model("squared", y, offset))
        given = [None if a is None else a.astype(np.float32) for a in (X, y, offset, WEIGHTS)]
        found = seen(sht.LinearModel(*given[:2], None, 0.1, given[3], True, offset=given[2]))
        for one, other in zip(found, expected, strict=True):
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


def test_functions_see_the_users_units_over_prices_and_for_several_responses(x64):
    prices = {"folds": FOLDS, "l0s": [1e-9], "threshold": sht.L0L1L2(0.0)}  # at that price all features pay
    rows = {"folds": FOLDS, "ks": [P], "l2s": [0.1], "threshold": sht.RowSparsity(0), "solver": sht.solvers.HTP()}
    for y, offset in drawn("squared"):
        Y, both = np.stack([y, 3 * y - 7], 1), None if offset is None else np.stack([offset, 3 * offset], 1)
        several = sht.MultiResponse(X, Y, l2=0.1, offset=both, sample_weight=WEIGHTS, fit_intercept=True)
        one = linear_model("squared", y, offset)
        for model, options, *known in ((one, prices, y, offset), (several, rows, Y, both)):
            seen = heard(sht.cross_validate, model, **options)
            check(seen, known[0], lambda *parts, known=known: ridge(*parts, *known))


def estimators_see_the_users_units(kind, settings, y, offset):
    outputs = "decision_function" if kind is sht.SparseClassifier else "predict"

    def predictors(train, rows):
        fit = kind(k=P, **settings).fit(X[train], y[train], WEIGHTS[train], offset=some(offset, train))
        return getattr(fit, outputs)(X[rows], some(offset, rows))

    def fit(scoring):
        def scorer(estimator, X, y, sample_weight):
            return scoring(y, getattr(estimator, outputs)(X), sample_weight)

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
