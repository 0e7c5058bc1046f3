"""Thresholds: which structure a solution has."""

from .base import AbstractThreshold as AbstractThreshold
from .base import AbstractUnitThreshold as AbstractUnitThreshold
from .base import union as union
from .group import GroupSparsity as GroupSparsity
from .l0l1l2 import L0L1L2 as L0L1L2
from .leaves import LeafSparsity as LeafSparsity
from .offdiagonal import OffDiagonal as OffDiagonal
from .offdiagonal import pair_index as pair_index
from .offdiagonal import pairs_of as pairs_of
from .rank import Rank as Rank
from .rows import RowSparsity as RowSparsity
from .simplex import Simplex as Simplex
from .sparsity import Sparsity as Sparsity
