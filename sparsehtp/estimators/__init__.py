"""Estimators with the scikit-learn interface; the only place that validates user data."""

from .classifier import SparseClassifier as SparseClassifier
from .low_rank import LowRankRegressor as LowRankRegressor
from .regressor import SparseRegressor as SparseRegressor
