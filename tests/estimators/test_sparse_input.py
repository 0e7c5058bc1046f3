"""Estimators on sparse matrices: the fits of the dense ones."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import sparsehtp as sht

RNG = np.random.default_rng(0)
X = np.where(RNG.random((60, 12)) < 0.4, RNG.standard_normal((60, 12)) + 1, 0)
ETA = 2 * X[:, 2] - 3 * X[:, 7] + 1.5 * X[:, 9]
Y = ETA + 0.2 * RNG.standard_normal(60)
LABELS = np.where(ETA + RNG.logistic(size=60) > np.median(ETA), "yes", "no")


CASES = {
    "regressor": (sht.SparseRegressor(cv=3, solver="htp", l2=0.01), Y, np.arange(60) % 4),
    "defaults": (sht.SparseRegressor(cv=3), Y, None),
    "defaults of classes": (sht.SparseClassifier(cv=3), LABELS, None),
    "classifier": (sht.SparseClassifier(k=3, solver="iht"), LABELS, None),
}


@pytest.mark.parametrize(
    "name", [name if name == "classifier" else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_fits_are_those_of_dense_data(name):
    model, y, weights = CASES[name]
    dense, thin = (clone(model).fit(make(X), y, weights) for make in (np.asarray, sparse.csr_matrix))
    assert thin.k_ == dense.k_ and thin.l2_ == dense.l2_
    np.testing.assert_array_equal(thin.support_, dense.support_)
    tol, room = (1e-8, 1e-7) if name == "regressor" else (1e-6, 1e-6)
    np.testing.assert_allclose(thin.coef_, dense.coef_, atol=tol)
    predict = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    for form in (sparse.csc_array, sparse.coo_matrix):
        np.testing.assert_allclose(getattr(thin, predict)(form(X)), getattr(dense, predict)(X), atol=room)
    assert thin.score(sparse.csr_array(X), y) == pytest.approx(dense.score(X, y), rel=1e-9)
    assert sparse.issparse(thin.transform(sparse.csr_array(X)))
    if name == "regressor":
        np.testing.assert_allclose(thin.cv_results_["scores"], dense.cv_results_["scores"], rtol=1e-7)
        assert thin.certificate_.statement == dense.certificate_.statement
