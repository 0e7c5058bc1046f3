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
    k = jnp.asarray(k, jnp.int32)
    last = 8 * scores.dtype.itemsize - 1

    def refine(i: Int[Array, ""], floor: Array) -> Array:
        trial = floor | (jnp.asarray(1, bits) << (last - i).astype(bits))
        return jnp.where(jnp.sum(values >= trial, dtype=jnp.int32) >= k, trial, floor)

    def choose(_: Int[Array, ""], chosen: Bool[Array, "p"]) -> Bool[Array, "p"]:
        above, ties = values > floor, values == floor
        room = k - jnp.sum(above, dtype=jnp.int32)
        return above | (ties & (jnp.cumsum(ties, dtype=jnp.int32) <= room))

    floor = lax.fori_loop(1, last + 1, refine, jnp.zeros((), bits))  # bit 0 is the sign
    # Scores that the compiler computes anew where they are compared may be rounded otherwise there. A loop reads those
    # of the other loop; that it has one round, since the sign of a magnitude is zero, the compiler does not know.
    rounds = 1 + (floor >> jnp.asarray(last, bits)).astype(jnp.int32)
    return lax.fori_loop(0, rounds, choose, jnp.zeros(scores.shape, bool))
