"""Shrinking a step size until it is accepted."""

from collections.abc import Callable
from typing import TypeVar

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

Tried = TypeVar("Tried")


def shrink_until(
    accepted: Callable[[Array, Tried], Bool[Array, ""]],
    trial: Callable[[Array], Tried],
    size: Float[Array, ""],
    placeholder: Tried,
    shrink: Float[Array, ""] | float,
    max_tries: int,
) -> tuple[Float[Array, ""], Tried, Int[Array, ""]]:
    """The first of size, shrink size, shrink^2 size, ... whose trial is accepted, at most so many: that size, what was
    tried, and the number of tries.

    `placeholder` has the structure of a trial; it makes the loop trace the trial once.
    """

    def refused(carry: tuple[Array, Tried, Array]) -> Array:
        size, tried, tries = carry
        return (tries == 0) | (~accepted(size, tried) & (tries < max_tries))

    def attempt(carry: tuple[Array, Tried, Array]) -> tuple[Array, Tried, Array]:
        size, _, tries = carry
        size = jnp.where(tries == 0, size, size * shrink)
        return size, trial(size), tries + 1

    return lax.while_loop(refused, attempt, (size, placeholder, jnp.int32(0)))
