"""Bisection of a number."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

HALVINGS = {32: 30, 64: 60}  # by bits of the dtype: somewhat more than its digits


def bisect(
    below: Callable[[Float[Array, ""]], Bool[Array, ""]], low: Float[Array, ""], high: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The bracket of a number between low and high, halved until it is as narrow as the dtype can tell.

    `below(b)` says whether b is below the number that is looked for.
    """

    def halve(_: Int[Array, ""], bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        less = below(middle)
        return jnp.where(less, middle, low), jnp.where(less, high, middle)

    return lax.fori_loop(0, HALVINGS[jnp.finfo(low.dtype).bits], halve, (low, high))
