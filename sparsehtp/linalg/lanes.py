"""Branches that all lanes of a batch take together."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

LANE = "lane"


def any_lane(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """True if `flag` holds in any lane of the driver's batch; the flag itself outside the driver.

    A predicate that is the same for all lanes keeps `lax.cond` a branch; a per-lane one would become a select that
    pays for both sides at every step.
    """
    try:
        return lax.pmax(flag.astype(jnp.int32), LANE) > 0
    except NameError:  # the axis is not bound: not inside the driver
        return flag
