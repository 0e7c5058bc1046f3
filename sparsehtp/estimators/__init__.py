"""Estimators with the scikit-learn interface; the only place that validates user data."""

from .classifier import SparseClassifier as SparseClassifier
from .regressor import SparseRegressor as SparseRegressor
