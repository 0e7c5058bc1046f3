"""Offsets of the estimators: exposures, references, folds, proofs, and scikit-learn's routing of metadata."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import d2_tweedie_score
from sklearn.model_selection import GroupKFold, cross_validate

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


def test_scikit_learn_routes_it_to_folds_with_weights_and_groups():
    X, y, exposure = rates(4)
    more = {"offset": np.log(exposure), "sample_weight": 1.0 + np.arange(len(y)) % 2}
    groups, folds = np.arange(len(y)) // 13, GroupKFold(3)
    model = sht.SparseRegressor(k=[1, 3], l2=0.02, loss="poisson", solver="htp", cv=folds)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(model).set_fit_request(offset=True, sample_weight=True, groups=True)
        routed.set_score_request(offset=True, sample_weight=True)
        params = more | {"groups": groups}
        scores = cross_validate(routed, X, y, cv=folds, params=params, error_score="raise")["test_score"]
    for score, (train, test) in zip(scores, folds.split(X, y, groups), strict=True):
        fitted, held = ({name: each[rows] for name, each in more.items()} for rows in (train, test))
        model.fit(X[train], y[train], groups=groups[train], **fitted)
        np.testing.assert_allclose(score, model.score(X[test], y[test], **held), rtol=1e-6)


def test_a_bad_offset_of_a_prediction_is_named():
    X, y, exposure = rates(5)
    model = sht.SparseRegressor(k=1, loss="poisson", solver="htp").fit(X, y, offset=exposure)
    with pytest.raises(ValueError, match="offset"):
        model.predict(X, exposure[:-1])
    with pytest.raises(ValueError, match="y: Poisson needs counts"):
        model.score(X, -1 - y)
    np.testing.assert_array_equal(model.predict(X, exposure[:, None]), model.predict(X, exposure))
