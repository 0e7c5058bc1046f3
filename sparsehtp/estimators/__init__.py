"""Estimators with the scikit-learn interface; the only place that validates user data."""

from .classifier import SparseClassifier as SparseClassifier
from .cox import SparseCox as SparseCox
from .lda import SparseLDA as SparseLDA
from .low_rank import LowRankRegressor as LowRankRegressor
from .ordinal import SparseOrdinal as SparseOrdinal
from .precision import SparsePrecision as SparsePrecision
from .regressor import SparseRegressor as SparseRegressor
from .robust_pca import RobustPCA as RobustPCA
from .sparse_pca import SparsePCA as SparsePCA
from .tables import TablePreprocessor as TablePreprocessor
