"""Products with a sparse matrix, by rows.

A row is cut into chunks of a few entries, the last one padded with zeros; a product with one vector is then a gather,
sums of chunks, and one sorted segment sum over chunks instead of entries. The same arrays, read flat, are a valid CSR
matrix, which on a CPU the block product of `jax.experimental.sparse` takes (it is slow for a single vector).

Under `vmap` over vectors one block product serves the whole batch. Derivatives are those of the gather form.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.experimental.sparse import BCSR
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PyTree

from .._types import HostArray

CHUNKS = (8, 4, 2)  # entries per chunk that are tried, largest first; powers of two
PADDING = 1.35  # times the entries that chunks may take
BLOCK = 8  # vectors: the block product is slow for other than multiples of these
SCATTER = 4096  # chunks that are scattered at a time
DENSE_BYTES = 2**32  # of a dense block of columns


class Chunks(NamedTuple):
    """The rows of a sparse matrix A.

    Attributes:
        data: (chunks, width) entries; zeros are padding.
        indices: (chunks, width) int32 columns of the entries, 0 for padding.
        owner: (chunks,) int32 row of every chunk, ascending.
        start: (rows + 1,) int32 first chunk of every row.
    """

    data: Float[Array, "chunks width"]
    indices: Int[Array, "chunks width"]
    owner: Int[Array, "chunks"]
    start: Int[Array, "rows+1"]


def chunked(indptr: HostArray, indices: HostArray, data: HostArray) -> Chunks:
    """Rows from the arrays of a CSR matrix without duplicates."""
    counts = np.diff(indptr)
    width = 1
    for candidate in CHUNKS:
        if candidate * np.sum(-(-counts // candidate)) <= PADDING * data.size:
            width = candidate
            break
    chunks = -(-counts // width)
    start = np.concatenate([[0], np.cumsum(chunks)])
    total = max(int(start[-1]), 1)  # never empty: gathers from an empty array are undefined
    # Few and narrow temporaries: they are what bounds the memory of a large design.
    wide = np.int32 if total * width <= np.iinfo(np.int32).max else np.int64
    place: HostArray = np.arange(data.size, dtype=wide)
    place += np.repeat((start[:-1] * width - indptr[:-1]).astype(wide), counts)
    padded = np.zeros(total * width, data.dtype), np.zeros(total * width, np.int32)
    padded[0][place], padded[1][place] = data, indices
    owner = np.zeros(total, np.int32)
    owner[: start[-1]] = np.repeat(np.arange(counts.size), chunks)
    entries, columns = (jnp.asarray(a.reshape(total, width)) for a in padded)
    return Chunks(entries, columns, jnp.asarray(owner), jnp.asarray(start.astype(np.int32)))


def reduce_rows(A: Chunks, entries: Float[Array, "chunks width"]) -> Float[Array, "rows"]:
    """Sums over the rows of entries that stand in the places of A's."""
    # Halving sums are vectorised on a CPU; fused with a gather they would not be, and take twice as long.
    entries = lax.optimization_barrier(entries)
    while entries.shape[1] > 1:
        half = entries.shape[1] // 2
        entries = entries[:, :half] + entries[:, half:]
    return jax.ops.segment_sum(entries[:, 0], A.owner, A.start.shape[0] - 1, indices_are_sorted=True)


def largest_magnitudes(A: Chunks) -> Float[Array, "rows"]:
    """max_j |A_ij| of every row, 0 for an empty one."""
    largest = jnp.abs(A.data).max(1)
    return jnp.maximum(jax.ops.segment_max(largest, A.owner, A.start.shape[0] - 1, indices_are_sorted=True), 0)


@jax.custom_jvp
def product(A: Chunks, w: Float[Array, "columns"]) -> Float[Array, "rows"]:
    """A w."""
    return _product(A, w)


def _product_jvp(primals: tuple[Chunks, Array], tangents: tuple[Chunks, Array | SymbolicZero]) -> tuple[Array, Array]:
    A, w = primals
    A_dot, w_dot = tangents
    out = product(A, w)
    out_dot = jnp.zeros_like(out)
    if not isinstance(A_dot.data, SymbolicZero):
        out_dot += _gather_product(A._replace(data=A_dot.data), w)
    if not isinstance(w_dot, SymbolicZero):
        out_dot += _gather_product(A, w_dot)
    return out, out_dot


product.defjvp(_product_jvp, symbolic_zeros=True)


@jax.custom_batching.custom_vmap
def _product(A: Chunks, w: Float[Array, "columns"]) -> Float[Array, "rows"]:
    return _gather_product(A, w)


@_product.def_vmap
def _(size: int, batched: tuple[Chunks, bool], A: Chunks, w: Float[Array, "*lanes columns"]) -> tuple[Array, bool]:
    A_batched, _ = batched
    if any(jax.tree.leaves(A_batched)):
        return jax.vmap(_gather_product, _axes(batched))(A, w), True
    if size < BLOCK // 2:
        return jnp.stack([_product(A, each) for each in w]), True
    return _block_product(A, w.T).T, True


@jax.custom_batching.custom_vmap
def _block_product(A: Chunks, W: Float[Array, "columns b"]) -> Float[Array, "rows b"]:
    """A W for a matrix W of a few columns."""
    return lax.platform_dependent(A, W, cpu=_csr_product, default=jax.vmap(_gather_product, (None, 1), 1))


@_block_product.def_vmap
def _(size: int, batched: tuple[Chunks, bool], A: Chunks, W: Float[Array, "*lanes columns b"]) -> tuple[Array, bool]:
    A_batched, _ = batched
    if any(jax.tree.leaves(A_batched)):
        columns = jax.vmap(_gather_product, (None, 1), 1)
        return jax.vmap(columns, _axes(batched))(A, W), True
    flat = jnp.moveaxis(W, 0, 1).reshape(W.shape[1], -1)
    return jnp.moveaxis(_block_product(A, flat).reshape(-1, size, W.shape[2]), 1, 0), True


def _axes(batched: tuple[Chunks, bool]) -> PyTree[int | None]:
    return jax.tree.map(lambda flag: 0 if flag else None, batched)


def _gather_product(A: Chunks, w: Float[Array, "columns"]) -> Float[Array, "rows"]:
    return reduce_rows(A, A.data * jnp.asarray(w).at[A.indices].get(mode="promise_in_bounds"))


def _csr_product(A: Chunks, W: Float[Array, "columns b"]) -> Float[Array, "rows b"]:
    width = A.data.shape[1]
    shape = (A.start.shape[0] - 1, W.shape[0])
    W, vectors = jnp.pad(W, ((0, 0), (0, -W.shape[1] % BLOCK))), W.shape[1]
    # A matrix without entries still has one chunk of padding, which its row pointers leave out.
    return (BCSR((A.data.ravel(), A.indices.ravel(), A.start * width), shape=shape) @ W)[:, :vectors]


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def dense_rows(A: Chunks, idx: Int[Array, "m"], columns: int) -> Float[Array, "columns m"]:
    """The rows A[idx] of a matrix with that many columns as the columns of a dense matrix."""
    return _scattering(columns)(A, idx)


def _dense_rows_jvp(
    columns: int, primals: tuple[Chunks, Array], tangents: tuple[Chunks, SymbolicZero]
) -> tuple[Array, Array]:
    A, idx = primals
    A_dot, _ = tangents
    out = dense_rows(A, idx, columns)
    if isinstance(A_dot.data, SymbolicZero):
        return out, jnp.zeros_like(out)
    # Loop-free, so that it can be transposed: all entries, those of other rows into a column that is left out.
    m = idx.shape[0]
    position = jnp.full(A.start.shape[0] - 1, m, jnp.int32).at[idx].set(jnp.arange(m, dtype=jnp.int32))
    place = A.indices, position[A.owner][:, None]
    return out, jnp.zeros((columns, m + 1), out.dtype).at[place].add(A_dot.data)[:, position[idx]]


dense_rows.defjvp(_dense_rows_jvp, symbolic_zeros=True)


@functools.cache
def _scattering(columns: int) -> Callable[[Chunks, Array], Array]:
    """`dense_rows` for a number of columns: a batch of index lists is one long list."""

    def scatter(A: Chunks, idx: Int[Array, "m"]) -> Float[Array, "columns m"]:
        idx = jnp.asarray(idx)
        counts = A.start[idx + 1] - A.start[idx]
        ends = jnp.cumsum(counts)

        def block(number: Int[Array, ""], out: Float[Array, "columns m"]) -> Float[Array, "columns m"]:
            t = number * SCATTER + jnp.arange(SCATTER, dtype=jnp.int32)
            column = jnp.minimum(jnp.searchsorted(ends, t, side="right"), idx.shape[0] - 1)
            chunk = jnp.minimum(A.start[idx[column]] + t - (ends - counts)[column], A.owner.shape[0] - 1)
            entries = jnp.where((t < ends[-1])[:, None], A.data[chunk], 0)
            return out.at[A.indices[chunk], column[:, None]].add(entries, mode="promise_in_bounds")

        blocks = (ends[-1] + SCATTER - 1) // SCATTER
        return lax.fori_loop(0, blocks, block, jnp.zeros((columns, idx.shape[0]), A.data.dtype))

    @jax.custom_batching.custom_vmap
    def call(A: Chunks, idx: Int[Array, "m"]) -> Float[Array, "columns m"]:
        check_dense(columns, idx.shape[0], A.data.dtype)
        return scatter(A, idx)

    @call.def_vmap
    def rule(size: int, batched: tuple[Chunks, bool], A: Chunks, idx: Int[Array, "lanes m"]) -> tuple[Array, bool]:
        A_batched, _ = batched
        if any(jax.tree.leaves(A_batched)):
            return jax.vmap(scatter, _axes(batched))(A, idx), True
        flat = call(A, idx.ravel())
        return jnp.moveaxis(flat.reshape(columns, size, -1), 1, 0), True

    return call


def check_dense(rows: int, columns: int, dtype: DTypeLike) -> None:
    """ValueError for a dense matrix that would not fit."""
    size = rows * columns * jnp.dtype(dtype).itemsize
    if size > DENSE_BYTES:
        raise ValueError(
            f"X: {columns} dense columns of {rows} rows would take {size / 2**30:.1f} GiB, more than the limit of "
            f"{DENSE_BYTES / 2**30:.0f} GiB; lower k or k_max, use float32, or a solver without dense columns, for "
            "example IHT."
        )
