"""The k largest of many scores as a mask, for a traced k without a static limit."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int


def largest(scores: Float[Array, "p"], k: Int[Array, ""] | int) -> Bool[Array, "p"]:
    """True for the k largest of nonnegative scores; ties take the lower index.

    Bits of nonnegative floats are ordered as the floats are, so that the k-th largest is found by bisection over bits:
    one comparison of all scores per bit, whatever k is.
    """
    bits = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[scores.dtype.itemsize]
    values = lax.bitcast_convert_type(jnp.abs(scores), bits)
    k = jnp.clip(jnp.asarray(k, jnp.int32), 0, scores.shape[0])

    def refine(i: Int[Array, ""], floor: Array) -> Array:
        trial = floor | (jnp.asarray(1, bits) << (8 * scores.dtype.itemsize - 1 - i).astype(bits))
        return jnp.where(jnp.sum(values >= trial, dtype=jnp.int32) >= k, trial, floor)

    floor = lax.fori_loop(1, 8 * scores.dtype.itemsize, refine, jnp.zeros((), bits))  # bit 0 is the sign
    above = values > floor
    ties = values == floor
    room = k - jnp.sum(above, dtype=jnp.int32)
    return above | (ties & (jnp.cumsum(ties, dtype=jnp.int32) <= room))
