"""scikit-learn's own battery of checks, with no expected failure."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import sparsehtp as sht


@parametrize_with_checks([sht.SparseRegressor(k=1, solver="htp"), sht.SparseClassifier(k=1, solver="htp")])
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([sht.SparseRegressor(), sht.SparseClassifier(), sht.SparseRegressor(k=1, solver="iht")])
def test_check_estimator_slowly(estimator, check):
    check(estimator)
