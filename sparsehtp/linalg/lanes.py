"""Branches that all lanes of a batch take together."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

LANE = "lane"  # the driver's batch
START = "start"  # the perturbed starts of one problem


def any_lane(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """True if `flag` holds in any lane of the driver's batch (and any start); the flag itself outside of both.

    A predicate that is the same for all lanes keeps `lax.cond` a branch; a per-lane one would become a select that
    pays for both sides at every step.
    """
    for axis in (LANE, START):
        try:
            flag = lax.pmax(flag.astype(jnp.int32), axis) > 0
        except NameError:  # the axis is not bound
            continue
    return flag


def max_lane(number: Int[Array, ""]) -> Int[Array, ""]:
    """The largest of a number over the driver's lanes, the same for all of them; the number itself outside."""
    for axis in (LANE, START):
        try:
            number = lax.pmax(number, axis)
        except NameError:  # the axis is not bound
            continue
    return number
