"""How near a solution is to a change of its support."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ._types import Support
from .steps import NormalisedStep
from .thresholds import AbstractUnitThreshold


def support_margin(objective: Any, threshold: Any, x: Float[Array, "d"], support: Support) -> Float[Array, ""]:
    """The threshold's margin at x - eta grad F(x), eta minimising F along the steepest coordinates; costs a gradient.

    Infinity where the threshold does not choose units.
    """
    if not isinstance(threshold, AbstractUnitThreshold):
        return jnp.asarray(jnp.inf, objective.dtype)
    entries = threshold.entries(x, support)
    forward = objective.forward(x, entries)
    grad = objective.grad_at(forward, x)
    _, steepest = threshold(-grad)
    along = threshold.entries(-grad, steepest)
    size = NormalisedStep().propose(objective, forward, grad, along, jnp.ones((), x.dtype), 0)
    return threshold.margin(x - size * grad, support)
