"""Leading sparse eigenvectors of A'A: the truncated power method from many starts, then swaps in the support."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .largest import largest
from .products import dot
from .top_k import top_k

POWER_STEPS = 40
MAX_SWAPS = 10_000
SWAPPED = 3  # starts that go on to swaps
LEAST_GAIN = 1e-10  # of a swap, relative


class SparseEigenvector(NamedTuple):
    """A unit vector of at most k entries and its quadratic form."""

    vector: Float[Array, "p"]
    value: Float[Array, ""]
    support: Bool[Array, "p"]


class _Swapping(NamedTuple):
    idx: Int[Array, "k_max"]
    rows: Float[Array, "k_max p"]  # of A'A
    value: Float[Array, ""]
    slot: Int[Array, ""]
    unchanged: Int[Array, ""]  # slots in a row whose exchange does not pay
    swaps: Int[Array, ""]


def sparse_eigenvector(
    A: Float[Array, "m p"], k: Int[Array, ""], k_max: int, starts: Float[Array, "starts p"]
) -> SparseEigenvector:
    """The best local maximum found of v'A'Av over ||v|| = 1, ||v||_0 <= k.

    Every start runs the truncated power method (Yuan and Zhang 2013), all as one batch; then in the best few supports
    one feature at a time is exchanged for one outside that raises the largest eigenvalue of the k x k block, until no
    exchange of a single feature does (by more than `LEAST_GAIN`). A'A is never formed: a support needs its k rows.

    Args:
        A: (m, p) matrix.
        k: nonzeros, 1 <= k <= k_max.
        k_max: static upper limit of k, <= p; one compiled program serves every k up to it.
        starts: (starts, p) starting vectors.
    """
    diagonal = jnp.sum(A**2, axis=0)

    def power(start: Float[Array, "p"]) -> Float[Array, "p"]:
        def step(_: Int[Array, ""], v: Float[Array, "p"]) -> Float[Array, "p"]:
            z = dot(dot(A, v), A)
            z = jnp.where(largest(jnp.abs(z), k), z, 0)
            size = jnp.linalg.norm(z)
            return jnp.where(size > 0, z / jnp.where(size > 0, size, 1), v)

        return lax.fori_loop(0, POWER_STEPS, step, start)

    found = jax.vmap(power)(starts)
    reached = top_k(jnp.sum(dot(found, A.T) ** 2, axis=1), min(SWAPPED, starts.shape[0]))
    idx = lax.map(lambda v: _swap(A, diagonal, top_k(jnp.abs(v), k_max), k), found[reached])
    vectors, values = jax.vmap(lambda idx: _leading(A, idx, k))(idx)
    best = jnp.argmax(values)
    support = jnp.zeros(A.shape[1], bool).at[idx[best]].max(jnp.arange(k_max) < k)
    vector = jnp.zeros_like(diagonal).at[idx[best]].add(vectors[best])
    return SparseEigenvector(vector, values[best], support)


def _leading(A: Float[Array, "m p"], idx: Int[Array, "k_max"], k: Int[Array, ""]) -> tuple[Array, Array]:
    """The leading eigenvector and eigenvalue of the block of the first k indices."""
    columns = jnp.where(jnp.arange(idx.shape[0]) < k, A[:, idx], 0)
    values, vectors = jnp.linalg.eigh(dot(columns.T, columns))
    return jnp.where(jnp.arange(idx.shape[0]) < k, vectors[:, -1], 0), values[-1]


def _swap(
    A: Float[Array, "m p"], diagonal: Float[Array, "p"], idx: Int[Array, "k_max"], k: Int[Array, ""]
) -> Int[Array, "k_max"]:
    """Exchange the indices of a support, slot by slot, until no exchange raises the largest eigenvalue."""
    k_max, p = idx.shape[0], A.shape[1]
    slots = jnp.arange(k_max)

    def exchange(c: _Swapping) -> _Swapping:
        stay = (slots < k) & (slots != c.slot)
        block = jnp.where(stay[:, None] & stay, c.rows[:, c.idx], 0)
        values, vectors = jnp.linalg.eigh(block)
        squares = dot(vectors.T, jnp.where(stay[:, None], c.rows, 0)) ** 2
        # With feature j the largest eigenvalue is the root of excess beyond the block's: above x where excess(x) > 0.
        target = c.value * (1 + LEAST_GAIN)
        gap = jnp.maximum(target - values, jnp.finfo(values.dtype).tiny)[:, None]
        excess = diagonal - target + jnp.sum(squares / gap, axis=0)
        excess = jnp.where(jnp.zeros(p, bool).at[c.idx].max(slots < k), -jnp.inf, excess)
        j = jnp.argmax(excess).astype(c.idx.dtype)
        swapped, row = c.idx.at[c.slot].set(j), dot(A[:, j], A)
        value = _leading(A, swapped, k)[1]
        pays = (excess[j] > 0) & (value > target)
        return _Swapping(
            jnp.where(pays, swapped, c.idx),
            c.rows.at[c.slot].set(jnp.where(pays, row, c.rows[c.slot])),
            jnp.where(pays, value, c.value),
            jnp.where(c.slot + 1 < k, c.slot + 1, 0),
            jnp.where(pays, 0, c.unchanged + 1),
            c.swaps + pays,
        )

    rows = dot(A[:, idx].T, A)
    start = _Swapping(idx, rows, _leading(A, idx, k)[1], jnp.int32(0), jnp.int32(0), jnp.int32(0))
    return lax.while_loop(lambda c: (c.unchanged < k) & (c.swaps < MAX_SWAPS) & (k < p), exchange, start).idx
