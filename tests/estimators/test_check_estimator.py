"""scikit-learn's own battery of checks, with no expected failure."""

import itertools

import jax
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import sparsehtp as sht

DONE = itertools.count(1)


@pytest.fixture(autouse=True)
def few_programs_per_check():
    """Drop compiled programs now and then: hardly two checks use data of one shape."""
    yield
    if next(DONE) % 20 == 0:
        jax.clear_caches()


@parametrize_with_checks([sht.SparseRegressor(k=1, solver="htp")])
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([sht.SparseRegressor(), sht.SparseClassifier(), sht.SparseClassifier(k=1, solver="htp")])
def test_check_estimator_slowly(estimator, check):
    check(estimator)
