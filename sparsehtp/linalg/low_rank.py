"""Leading singular triplets of a matrix with one small side, in batches.

In float32 the Gram matrix of the small side is formed in float64: it squares the condition number, but what is lost is
then below the data's own rounding. In float64 a QR decomposition keeps the condition number. Only matrices whose two
sides are both large are treated iteratively.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from .lanes import one_by_one
from .products import dot

SMALL_SIDE = 1024  # beyond this many rows and columns, subspace iteration
OVERSAMPLING = 10
POWER_STEPS = 12


class Triplets(NamedTuple):
    """Singular triplets, largest value first; a triplet whose value is rounding is zero."""

    left: Float[Array, "p r"]
    values: Float[Array, "r"]
    right: Float[Array, "c r"]


def leading_triplets(A: Float[Array, "p c"], r: int) -> Triplets:
    """The r leading singular triplets of A, so that `left * values @ right.T` is the best approximation of rank r.

    Under `vmap` a batch is decomposed matrix by matrix on a CPU and as one on other devices. With both sides above
    `SMALL_SIDE` the triplets come from a randomised subspace iteration with a fixed seed; they are then approximate
    where singular values lie close together around the r-th.

    A matrix with an infinite or NaN entry has values of NaN: a run that diverged must not go on from zeros.
    """
    # By a power of two, so that no product or norm of finite entries overflows.
    largest, finite = jnp.max(jnp.abs(lax.stop_gradient(A)), initial=0.0), jnp.isfinite(A).all()
    exponent = jnp.where(finite, jnp.frexp(largest)[1], 0)
    A = jnp.ldexp(A, -exponent)
    wide = A.shape[0] < A.shape[1]
    tall = A.T if wide else A
    right = _batched(r)(tall)
    product = dot(tall, right)
    values = jnp.linalg.norm(product, axis=0)
    values = jnp.where(finite, values, jnp.nan)
    # Written so that NaN stays NaN.
    real = ~(values <= 4 * jnp.finfo(A.dtype).eps * jnp.max(values, initial=0.0) * tall.shape[1])
    left = jnp.where(real, product / jnp.where(real, values, 1), 0)
    values = jnp.where(real, jnp.ldexp(values, exponent), 0)
    right = jnp.where(real, right, 0)
    return Triplets(right, values, left) if wide else Triplets(left, values, right)


@functools.cache
def _batched(r: int) -> Callable[[Array], Array]:
    @jax.custom_batching.custom_vmap
    def right_vectors(A: Array) -> Array:
        return _right_vectors(A, r)

    # Traced anew for a batch: the batching rule of a product would forget float64.
    @right_vectors.def_vmap
    def rule(size: int, batched: list[bool], A: Array) -> tuple[Array, bool]:
        return (lax.map(right_vectors, A) if one_by_one() else right_vectors(A)), True

    return right_vectors


def _right_vectors(A: Float[Array, "*lanes p c"], r: int) -> Float[Array, "*lanes c r"]:
    """(..., c, r) leading right singular vectors of (..., p, c) matrices, p >= c."""
    c = A.shape[-1]
    if c > SMALL_SIDE:
        return _subspace(A, r)
    if A.dtype == jnp.float64:
        triangle = jnp.linalg.qr(A, mode="r")
        return jnp.swapaxes(jnp.linalg.svd(triangle)[2], -1, -2)[..., :r]
    with jax.enable_x64(True):
        wide = A.astype(jnp.float64)
        vectors = jnp.linalg.eigh(dot(jnp.swapaxes(wide, -1, -2), wide))[1]
        return vectors[..., ::-1][..., :r].astype(A.dtype)


def _subspace(A: Float[Array, "*lanes p c"], r: int) -> Float[Array, "*lanes c r"]:
    width = min(r + OVERSAMPLING, A.shape[-1])
    start = jax.random.normal(jax.random.key(0), (A.shape[-1], width), A.dtype)
    start = jnp.broadcast_to(start, (*A.shape[:-2], *start.shape))

    def iterate(_: Int[Array, ""], Q: Array) -> Array:
        return jnp.linalg.qr(dot(jnp.swapaxes(A, -1, -2), dot(A, Q)))[0]

    Q = lax.fori_loop(0, POWER_STEPS, iterate, jnp.linalg.qr(start)[0])
    rotation = jnp.swapaxes(jnp.linalg.svd(dot(A, Q), full_matrices=False)[2], -1, -2)
    return dot(Q, rotation)[..., :r]
