"""Estimators on sparse matrices: the fits of the dense ones."""

import numpy as np
import pytest
from scipy import sparse

import sparsehtp as sht

RNG = np.random.default_rng(0)
X = np.where(RNG.random((60, 12)) < 0.4, RNG.standard_normal((60, 12)) + 1, 0)
ETA = 2 * X[:, 2] - 3 * X[:, 7] + 1.5 * X[:, 9]
Y = ETA + 0.2 * RNG.standard_normal(60)
LABELS = np.where(ETA + RNG.logistic(size=60) > np.median(ETA), "yes", "no")


@pytest.mark.slow
def test_regressor_chooses_k_as_on_dense_data():
    weights = np.arange(60) % 4
    settings = {"cv": 3, "solver": "htp", "l2": 0.01}
    dense, thin = (sht.SparseRegressor(**settings).fit(make(X), Y, weights) for make in (np.asarray, sparse.csr_matrix))
    assert thin.k_ == dense.k_ and thin.l2_ == dense.l2_
    np.testing.assert_array_equal(thin.support_, dense.support_)
    np.testing.assert_allclose(thin.coef_, dense.coef_, atol=1e-8)
    np.testing.assert_allclose(thin.cv_results_["scores"], dense.cv_results_["scores"], rtol=1e-7)
    np.testing.assert_allclose(thin.predict(sparse.csc_array(X)), dense.predict(X), atol=1e-7)
    assert thin.certificate_.statement == dense.certificate_.statement


@pytest.mark.slow
def test_defaults_choose_the_same_on_sparse_data():
    for kind, y in ((sht.SparseRegressor, Y), (sht.SparseClassifier, LABELS)):
        dense, thin = (kind(cv=3).fit(make(X), y) for make in (np.asarray, sparse.csr_array))
        assert thin.k_ == dense.k_ and thin.l2_ == dense.l2_
        np.testing.assert_allclose(thin.coef_, dense.coef_, atol=1e-6)


def test_classifier():
    dense = sht.SparseClassifier(k=3, solver="iht").fit(X, LABELS)
    thin = sht.SparseClassifier(k=3, solver="iht").fit(sparse.csc_array(X), LABELS)
    np.testing.assert_allclose(thin.coef_, dense.coef_, atol=1e-6)
    np.testing.assert_allclose(thin.predict_proba(sparse.coo_matrix(X)), dense.predict_proba(X), atol=1e-6)
    assert thin.score(sparse.csr_array(X), LABELS) == dense.score(X, LABELS)
    assert sparse.issparse(thin.transform(sparse.csr_array(X)))
