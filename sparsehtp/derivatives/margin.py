"""How near a solution is to a change of its support."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._programs import program
from .._types import Support
from ..objectives import AbstractObjective
from ..thresholds import AbstractThreshold, AbstractUnitThreshold
from ..thresholds.base import members


@program
def support_margin(
    objective: AbstractObjective, threshold: AbstractThreshold, x: Float[Array, "d"], support: Support
) -> Float[Array, ""]:
    """The threshold's margin at x - eta grad F(x), with eta = 1/F''_jj for j the steepest coordinate outside.

    Costs a gradient. Infinity where the threshold does not choose units.
    """
    if not isinstance(threshold, AbstractUnitThreshold):
        return jnp.asarray(jnp.inf, objective.dtype)
    entries = threshold.entries(x, support)
    forward = objective.forward(x, entries)
    grad = objective.grad_at(forward, x)
    outside = jnp.where(members(entries, x.shape[0]), 0, jnp.abs(grad))
    j = jnp.argmax(outside).astype(jnp.int32)
    alone = Support(j[None], jnp.ones(1, bool))
    curvature = objective.curvature_at(forward, jnp.zeros_like(x).at[j].set(1), alone)
    size = jnp.where(curvature > 0, 1 / jnp.where(curvature > 0, curvature, 1), 1)
    return threshold.margin(x - size * grad, support)
