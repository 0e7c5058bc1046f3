"""Design matrices: where the data are."""

from .base import AbstractDesign as AbstractDesign
from .dense import DenseDesign as DenseDesign
from .sparse import SparseDesign as SparseDesign
from .sparse import as_design as as_design
from .sparse import is_sparse as is_sparse
