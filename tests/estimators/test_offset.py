"""Offsets of the estimators: exposures, references, folds, proofs, and scikit-learn's routing of metadata."""

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import d2_tweedie_score
from sklearn.model_selection import cross_val_score

import sparsehtp as sht

K = [1, 3, 4]


def rates(seed=0, n=150, p=6):
    """(X, counts, exposures) of a Poisson model with three features."""
    rng = np.random.default_rng(seed)
    X, exposure = rng.standard_normal((n, p)), rng.uniform(0.2, 5, n)
    return X, rng.poisson(exposure * np.exp(0.3 + X[:, K] @ [0.7, -0.6, 0.5])).astype(float), exposure


def test_an_exposure_is_a_rate_weighted_by_it():
    """y ~ Poisson(e exp(eta)) has the likelihood of y / e with weights e; their sums differ, hence the ridge."""
    X, y, exposure = rates()
    model = sht.SparseRegressor(k=3, l2=0.02, loss="poisson", standardize=False, solver="htp")
    model.fit(X, y, offset=np.log(exposure))
    np.testing.assert_array_equal(np.flatnonzero(model.support_), K)
    reference = PoissonRegressor(alpha=0.02 * len(y) / exposure.sum(), tol=1e-12, solver="newton-cholesky")
    reference.fit(X[:, K], y / exposure, sample_weight=exposure)
    np.testing.assert_allclose(model.coef_[K], reference.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=1e-6)
    np.testing.assert_allclose(model.predict(X), reference.predict(X[:, K]), rtol=1e-5)
    np.testing.assert_allclose(model.predict(X, np.log(exposure)), exposure * model.predict(X), rtol=1e-9)
    expected = d2_tweedie_score(y, exposure * model.predict(X), power=1)
    np.testing.assert_allclose(model.score(X, y, offset=np.log(exposure)), expected, rtol=1e-9)


@pytest.mark.parametrize("loss", ["squared", pytest.param("logistic", marks=pytest.mark.slow)])
def test_an_offset_that_the_intercept_can_take_is_taken(loss):
    X, y, _ = rates(1)
    kind, y = (sht.SparseRegressor, y) if loss == "squared" else (sht.SparseClassifier, y > 1)
    settings = dict(k=2, l2=0.05, loss=loss, solver="htp")
    plain, moved = kind(**settings).fit(X, y), kind(**settings).fit(X, y, offset=np.full(len(y), 2.5))
    np.testing.assert_allclose(moved.coef_, plain.coef_, atol=1e-7)
    np.testing.assert_allclose(moved.intercept_, plain.intercept_ - 2.5, atol=1e-6)
    offset = np.full(len(y), 2.5)
    assert moved.score(X, y, offset=offset) == pytest.approx(plain.score(X, y), abs=1e-9)
    if loss == "logistic":
        np.testing.assert_allclose(moved.predict_proba(X, offset), plain.predict_proba(X), atol=1e-6)


@pytest.mark.slow
def test_a_squared_loss_takes_an_offset_from_its_targets():
    X, y, exposure = rates(2)
    settings = dict(k="cv", l2=0.05, solver="htp", cv=3)
    model = sht.SparseRegressor(**settings).fit(X, y, offset=exposure)
    reference = sht.SparseRegressor(**settings).fit(X, y - exposure)
    assert model.k_ == reference.k_
    np.testing.assert_allclose(model.cv_results_["mean_loss"], reference.cv_results_["mean_loss"], rtol=1e-7)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-9)
    ours, theirs = model.prove(20), reference.prove(20)
    assert ours.proved and theirs.proved
    np.testing.assert_allclose([ours.upper, ours.lower], [theirs.upper, theirs.lower], rtol=1e-6)
    bounds = [each.certificate_.lower_bound for each in (model, reference)]
    np.testing.assert_allclose(*bounds, rtol=1e-6)


def test_folds_and_weights_take_their_rows_of_it():
    """Rows without weight do not count, and an integer weight is that many rows."""
    X, y, exposure = rates(3, n=60)
    weights = np.random.default_rng(0).integers(0, 3, 60)
    rows, offset = np.repeat(np.arange(60), weights), np.where(weights > 0, np.log(exposure), 1e12)
    settings = dict(k=2, l2=0.05, loss="poisson", solver="htp")
    ours = sht.SparseRegressor(**settings).fit(X, y, weights, offset=offset)
    theirs = sht.SparseRegressor(**settings).fit(X[rows], y[rows], offset=offset[rows])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8)


def test_scikit_learn_routes_it_to_folds():
    X, y, exposure = rates(4)
    offset = np.log(exposure)
    with sklearn.config_context(enable_metadata_routing=True):
        model = sht.SparseRegressor(k=3, l2=0.02, loss="poisson", solver="htp")
        model = model.set_fit_request(offset=True).set_score_request(offset=True)
        scores = cross_val_score(model, X, y, cv=3, params={"offset": offset})
    for score, test in zip(scores, np.array_split(np.arange(len(y)), 3), strict=True):
        train = np.setdiff1d(np.arange(len(y)), test)
        model.fit(X[train], y[train], offset=offset[train])
        np.testing.assert_allclose(score, model.score(X[test], y[test], offset=offset[test]), rtol=1e-6)


@pytest.mark.parametrize("loss", [pytest.param("squared", marks=pytest.mark.slow), "poisson"])
def test_scorers_see_predictions_with_it(loss):
    """An offset that is far from zero, by a scorer that a shift of the targets would change."""
    X, y, _ = rates(6)
    offset = np.where(np.arange(len(y)) % 2, 3.0, 3.1)
    folds = [(np.arange(50, 150), np.arange(50)), (np.arange(100), np.arange(100, 150))]
    y = y + 1
    settings = dict(l2=0.05, loss=loss, solver="htp")
    model = sht.SparseRegressor(k=[1, 2], cv=folds, scoring="neg_mean_absolute_percentage_error", **settings)
    found = model.fit(X, y, offset=offset).cv_results_["scores"]
    for row, (train, test) in zip(found, folds, strict=True):
        for k, score in zip((1, 2), row, strict=True):
            fit = sht.SparseRegressor(k=k, **settings).fit(X[train], y[train], offset=offset[train])
            expected = np.mean(np.abs(fit.predict(X[test], offset[test]) / y[test] - 1))
            np.testing.assert_allclose(score, expected, rtol=1e-5)


def test_bad_offsets_are_named():
    X, y, exposure = rates(5)
    model = sht.SparseRegressor(k=1, loss="poisson", solver="htp")
    with pytest.raises(ValueError, match="offset"):
        model.fit(X, y, offset=exposure[:-1])
    with pytest.raises(ValueError, match="offset"):
        model.fit(X, y, offset=np.where(y > 1, np.nan, exposure))
    with pytest.raises(ValueError, match=r"offset: needs shape \(150,\).*or \(150, 2\).*got \(150, 3\)"):
        sht.SparseRegressor(k=1).fit(X, np.column_stack([y, y]), offset=np.ones((150, 3)))
    with pytest.raises(ValueError, match=r"^offset: needs shape \(150,\).*got \(150, 2\)"):
        model.fit(X, y, offset=np.ones((150, 2)))
    with pytest.raises(ValueError, match="offset: is for two classes, but y has 3"):
        sht.SparseClassifier(k=1).fit(X, np.minimum(y, 2), offset=exposure)
    with pytest.raises(ValueError, match="offset"):
        model.fit(X, y, offset=exposure).predict(X, exposure[:-1])
