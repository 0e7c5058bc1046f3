"""A sparse design in both orientations, from SciPy or BCOO."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO
from jaxtyping import Array, Float, Int
from scipy import sparse

from .._types import DType, TableLike, is_concrete, replace
from ..linalg.sparse import Chunks, chunked, dense_rows, largest_magnitudes, product, reduce_rows
from .base import AbstractDesign
from .dense import DenseDesign


class SparseDesign(AbstractDesign):
    """A sparse matrix X of shape (n, p), stored by rows and by columns.

    A product with one vector is a gather, one with a batch of vectors (under `vmap`) a block product: on a CPU that of
    compressed rows. Both cost the nonzeros only, whatever the support of the vector. Centring and scaling are left to
    the objective, as rank-one corrections; only the columns of a support that is refitted become dense. Duplicate
    entries are summed, and explicit zeros are dropped. Memory: about 2.5 times that of the CSR matrix.

    Args:
        X: (n, p) scipy.sparse matrix or array of any format, or `jax.experimental.sparse.BCOO` without batch or dense
            dimensions, concrete, float32 or float64 (float64 needs `jax.enable_x64`); integers and booleans become the
            default floating dtype. It is not changed.

    Raises:
        TypeError: for another kind of matrix, or traced entries.
        ValueError: if X is not two-dimensional, has no rows or columns, is not real, has indices out of range, or is
            larger than int32 indices can address. Later, where a dense block of columns would take more than 4 GiB.
    """

    by_row: Chunks
    by_column: Chunks
    size: tuple[int, int] = eqx.field(static=True)

    sparse = True

    def __init__(self, X: TableLike) -> None:
        X = _canonical(X)
        self.size = (int(X.shape[0]), int(X.shape[1]))
        self.by_row = chunked(X.indptr, X.indices, X.data)
        X = X.tocsc()
        self.by_column = chunked(X.indptr, X.indices, X.data)

    @property
    def shape(self) -> tuple[int, int]:
        return self.size

    @property
    def dtype(self) -> DType:
        return self.by_row.data.dtype

    def mv(self, w: Float[Array, "p"]) -> Float[Array, "n"]:
        return product(self.by_row, jnp.asarray(w))

    def rmv(self, r: Float[Array, "n"]) -> Float[Array, "p"]:
        return product(self.by_column, jnp.asarray(r))

    def columns(self, idx: Int[Array, "m"]) -> Float[Array, "n m"]:
        return dense_rows(self.by_column, jnp.asarray(idx), self.size[0])

    def subset(self, idx: Int[Array, "m"]) -> DenseDesign:
        return DenseDesign(self.columns(idx))

    def narrowed(self, p: int) -> "SparseDesign":
        # Rows keep the zeros of the other columns, to which no product with the first p leads.
        owner, start = np.minimum(self.by_column.owner, p - 1), np.asarray(self.by_column.start)[: p + 1]
        by_column = self.by_column._replace(owner=jnp.asarray(owner), start=jnp.asarray(start))
        return replace(self, by_column=by_column, size=(self.size[0], p))

    def rows(self, i: Int[Array, "b"]) -> Float[Array, "b p"]:
        return dense_rows(self.by_row, jnp.asarray(i), self.size[1]).T

    def column_norms(self, weights: Float[Array, "n"], scale: Float[Array, "p"] | None = None) -> Float[Array, "p"]:
        X = self._live(weights)  # squares of what has no weight may overflow
        data = X.data if scale is None else X.data * scale[X.owner][:, None]
        return jnp.sqrt(product(X._replace(data=data**2), jnp.asarray(weights)))

    def moments(self, weights: Float[Array, "n"]) -> tuple[Float[Array, "p"], Float[Array, "p"]]:
        # Scaled by the largest magnitude, so that squares neither overflow nor underflow.
        X, weights = self._live(weights), jnp.asarray(weights)
        largest = largest_magnitudes(X)
        largest = jnp.where(largest > 0, largest, 1)
        entries = X.data / largest[X.owner][:, None]
        weight = jnp.where(X.data != 0, weights[X.indices], 0)
        mean = reduce_rows(X, weight * entries)
        around = reduce_rows(X, weight * (entries - mean[X.owner][:, None]) ** 2)
        # Zeros lie -mean away. A column without any must get no share from rounding: counts are exact.
        positive = (weights > 0).astype(weights.dtype)
        full = reduce_rows(X, jnp.where(X.data != 0, positive[X.indices], 0)) >= jnp.sum(positive)
        zeros = jnp.where(full, 0, jnp.maximum(jnp.sum(weights) - reduce_rows(X, weight), 0))
        return largest * mean, largest * jnp.sqrt(around + zeros * mean**2)

    def magnitudes(self, weights: Float[Array, "n"] | None = None) -> Float[Array, "p"]:
        return largest_magnitudes(self.by_column if weights is None else self._live(weights))

    def _live(self, weights: Float[Array, "n"]) -> Chunks:
        """The columns, with zeros in rows without weight."""
        X = self.by_column
        return X._replace(data=jnp.where(jnp.asarray(weights)[X.indices] > 0, X.data, 0))


def as_design(X: TableLike) -> AbstractDesign:
    """A design from what a caller may pass as X."""
    if isinstance(X, AbstractDesign):
        return X
    return SparseDesign(X) if is_sparse(X) else DenseDesign(X)


def is_sparse(X: TableLike) -> bool:
    """True for the matrices that `SparseDesign` takes."""
    return sparse.issparse(X) or isinstance(X, BCOO)


def _canonical(X: TableLike) -> TableLike:
    """A CSR matrix with sorted, distinct int32 indices and no explicit zeros, sharing nothing that is changed."""
    if isinstance(X, BCOO):
        X = _from_bcoo(X)
    elif not sparse.issparse(X):
        raise TypeError(f"X: needs a scipy.sparse matrix or a BCOO, got a {type(X).__name__}; use DenseDesign.")
    if X.ndim != 2:
        raise ValueError(f"X: needs two dimensions (samples, features), got shape {X.shape}.")
    if 0 in X.shape:
        raise ValueError(f"X: is empty, got shape {X.shape}; pass at least one sample and feature.")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X: needs real numbers, got dtype {X.dtype}; encode other columns as numbers first.")
    if max(*X.shape, 2 * X.nnz) > np.iinfo(np.int32).max:
        raise ValueError(
            f"X: shape {X.shape} with {X.nnz} entries is more than 32-bit indices address; drop rows or features."
        )
    if hasattr(X, "check_format"):  # conversions trust the indices
        _checked(X)
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(float)
    X = sparse.csr_array(X, dtype=dtype, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def _checked(X: TableLike) -> None:
    try:
        X.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"X: is not a valid sparse matrix ({str(error).rstrip('.')}); build it again.") from error


def _from_bcoo(X: BCOO) -> TableLike:
    if not is_concrete(X):
        raise TypeError("X: a traced BCOO cannot become a design; make the SparseDesign outside of jit and vmap.")
    if X.n_batch or X.n_dense or X.ndim != 2:
        raise ValueError(f"X: needs a BCOO matrix without batch or dense dimensions, got shape {X.shape}.")
    data, indices = np.asarray(X.data), np.asarray(X.indices)
    inside = (indices < X.shape).all(axis=1)  # a BCOO is padded with indices past the end
    return sparse.coo_array((data[inside], tuple(indices[inside].T)), shape=X.shape)
