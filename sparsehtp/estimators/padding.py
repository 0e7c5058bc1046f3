"""Shapes in buckets, so that folds, resamples and data sets of nearly the same size share compiled programs.

Rows are added with weight zero, and columns of zeros behind all others. Such a column is never chosen: its score is
zero, ties take the lower index, and without l2 of its own it has no curvature.
"""

import dataclasses
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import issparse

from .._types import Support, replace
from ..designs import SparseDesign
from ..grids.path import Path
from ..iteration.results import Solution
from ..linalg.sparse import Chunks
from ..objectives import AbstractModel
from ..thresholds import L0L1L2, GroupSparsity, RowSparsity, Sparsity
from ..thresholds.base import Unscaled

Structure: TypeAlias = Sparsity | GroupSparsity | RowSparsity | L0L1L2
M = TypeVar("M", bound=AbstractModel)
LARGE = 2**18  # entries of a matrix from which its work, not its compilation, is what a fit costs


def bucket(n: int, sizes: int = 8) -> int:
    """The least of `sizes` sizes an octave that is at least n: `sizes`, sizes + 1, ... times a power of two.

    All up to 2 `sizes` are among them. `sizes` is itself a power of two.
    """
    step = 1 << max(n.bit_length() - sizes.bit_length(), 0)
    return -(-n // step) * step


class Start(NamedTuple):
    """Where a solve starts, in original units."""

    x: np.ndarray
    intercept: np.ndarray


@dataclasses.dataclass(frozen=True)
class Padding:
    """Data of shape (n, p) within arrays of shape `size`, and results in the shape of the data again.

    Attributes:
        n, p: rows and columns of the data.
        active: False: the arrays have the shape of the data.
        l2_per_feature: the user's l2 has one value per feature.
    """

    n: int
    p: int
    active: bool
    l2_per_feature: bool

    @property
    def large(self) -> bool:
        """True if work counts for more than compiling."""
        return self.n * self.p > LARGE

    @property
    def size(self) -> tuple[int, int]:
        """Shape of the padded design."""
        if not self.active:
            return self.n, self.p
        sizes = 16 if self.large else 8  # a large matrix grows by an eighth at most
        return bucket(self.n, sizes), bucket(self.p, sizes)

    # --- in ----------------------------------------------------------------------------------------------------------
    def design(self, X: Any) -> Any:
        """The padded matrix, or its design."""
        if not self.active:
            return X
        if issparse(X):
            X = X.copy()
            X.resize(self.size)
            design = SparseDesign(X)
            return replace(design, by_row=_bucketed(design.by_row), by_column=_bucketed(design.by_column))
        if X.shape == self.size:
            return X
        wide = np.empty(self.size[::-1], X.dtype)
        wide[: self.p, : self.n] = X.T
        wide[: self.p, self.n :] = X[:1].T  # as large as other rows, so that their squares are finite too
        wide[self.p :] = 0
        return wide.T

    def targets(self, y: np.ndarray) -> np.ndarray:
        """One value (or row of values) for every row, in the loss's domain."""
        return np.concatenate([y, np.repeat(y[:1], self.size[0] - self.n, axis=0)])

    def of_rows(self, a: Any) -> np.ndarray:
        """A weight or an offset (or a row of offsets) for every row, 0 for the added ones."""
        return _with_zeros(a, self.size[0] - self.n)

    def of_columns(self, a: Any) -> np.ndarray:
        """A coefficient or a bound (or a row of them) for every column, 0 for the added ones."""
        return _with_zeros(a, self.size[1] - self.p)

    def l2(self, l2: np.ndarray) -> np.ndarray:
        """l2 for every column, 0 for the added ones."""
        if l2.shape not in ((), (self.p,)):
            raise ValueError(f"l2: needs a scalar or one value per feature ({self.p}), got shape {l2.shape}.")
        if not self.active:
            return l2
        return self.of_columns(np.broadcast_to(l2, self.p))

    def l2s(self, l2s: np.ndarray) -> np.ndarray:
        """l2 for every column, in every row of a grid."""
        return np.stack([self.l2(each) for each in l2s])

    def threshold(self, threshold: Structure, responses: int | None = None) -> Structure:
        """The threshold for the padded columns, checked against those of the data."""
        threshold.bind(Unscaled((self.p,) if responses is None else (self.p, responses)))
        fields: dict[str, Any] = {
            name: self.of_columns(bound)
            for name, bound in (("lower", threshold.lower), ("upper", threshold.upper))
            if bound is not None and bound.ndim
        }
        if isinstance(threshold, GroupSparsity):  # the added columns belong to no group
            fields["n_features"] = self.size[1]
        return replace(threshold, **fields)

    # --- out ---------------------------------------------------------------------------------------------------------
    def solution(self, solution: Solution) -> Solution:
        """A solution on the host, of the data's columns; gradients of single samples are counted for its rows."""
        history = solution.history
        assert history is not None  # an estimator records its steps
        return solution._replace(
            x=solution.x[: self.p],
            support=self._support(solution.support),
            history=history._replace(ifo=history.ifo / self.size[0] * self.n),
        )

    def path(self, path: Path) -> Path:
        """A path over the data's columns."""
        return dataclasses.replace(
            path,
            l2s=self.user_l2(path.l2s),
            support=self._support(path.support),
            features=self._support(path.features),
            n_features=self.p * (path.n_responses or 1),
        )

    def user_l2(self, l2: np.ndarray) -> Any:
        """l2, or a grid of it, as the user gave it."""
        if not self.active:
            return l2
        return l2[..., : self.p] if self.l2_per_feature else l2[..., 0]

    @staticmethod
    def _support(support: Support) -> Support:
        # What the mask leaves out may be any column.
        idx: Any = np.where(support.mask, support.idx, 0)
        return Support(idx, support.mask)

    def model(self, model: M) -> M:
        """The model of the data's columns alone, without a new program; a certificate counts columns."""
        if not self.active:
            return model
        with jax.enable_x64(True):
            l2 = jnp.asarray(self.user_l2(np.asarray(model.l2)))
            return replace(model, columns=replace(model.columns.narrowed(self.p), l2=l2))


def _with_zeros(a: Any, more: int) -> np.ndarray:
    """An array with more rows of zeros."""
    return np.pad(a, ((0, more), *[(0, 0)] * (a.ndim - 1)))


def _bucketed(rows: Chunks) -> Chunks:
    """Rows with zeros as further chunks of the last one."""
    more = bucket(rows.owner.shape[0]) - rows.owner.shape[0]
    return rows._replace(
        data=jnp.asarray(np.pad(rows.data, ((0, more), (0, 0)))),
        indices=jnp.asarray(np.pad(rows.indices, ((0, more), (0, 0)))),
        owner=jnp.asarray(np.pad(rows.owner, (0, more), constant_values=rows.start.shape[0] - 2)),
    )
