"""scikit-learn's own battery of checks; those fail as expected that draw targets outside of a loss's domain."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import sparsehtp as sht


@parametrize_with_checks([sht.SparseRegressor(k=1, solver="htp"), sht.SparsePCA(1, k=1), sht.RobustPCA()])
def test_check_estimator(estimator, check):
    check(estimator)


ZEROS = ("data_not_an_array", "general", "n_iter", "preserve_dtypes")


def of_another_domain(estimator):
    """Checks that look at no tag of positive targets, or take zero for one."""
    checks = ["check_regressor_multioutput"] * (
        getattr(estimator, "loss", "") in ("gamma", "tweedie", "negative_binomial")
    )
    if getattr(estimator, "loss", "") == "gamma":
        checks += [f"check_transformer_{name}" for name in ZEROS]
    return dict.fromkeys(checks, "its targets are outside of the loss's domain")


@pytest.mark.slow
@parametrize_with_checks(
    [
        sht.SparseRegressor(),
        sht.SparseClassifier(),
        sht.SparseClassifier(k=1, solver="htp"),
        sht.SparseOrdinal(k=1, solver="htp"),
        sht.LowRankRegressor(r=1),
        sht.LowRankRegressor(),
        sht.LowRankRegressor(r=1, solver="iht"),
        sht.SparseLDA(k=1),
        sht.SparsePrecision(k=1),
        sht.SparseClassifier(k=1, solver="htp", loss="squared_hinge"),
        *(
            sht.SparseRegressor(k=1, solver="htp", loss=loss)
            for loss in ("gamma", "tweedie", "negative_binomial", "quantile")
        ),
    ],
    expected_failed_checks=of_another_domain,
)
def test_check_estimator_slowly(estimator, check):
    check(estimator)
