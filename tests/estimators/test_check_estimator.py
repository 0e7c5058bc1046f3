"""scikit-learn's own battery of checks, with no expected failure."""

from sklearn.utils.estimator_checks import parametrize_with_checks

import sparsehtp as sht


@parametrize_with_checks([sht.SparseRegressor(), sht.SparseClassifier(), sht.SparseRegressor(solver="iht")])
def test_check_estimator(estimator, check):
    check(estimator)
