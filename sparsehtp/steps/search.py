"""Step sizes found by a search."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Scalar
from ..columns import gather, scatter
from ..objectives import AbstractObjective
from .base import AbstractStep, At


class NormalisedStep(AbstractStep):
    """||g_T||^2 / (g_T' H g_T): the exact minimiser along the gradient on the coordinates T, shrunk until accepted.

    With the squared loss and an unchanged support this is exact and always accepted; when the support changes the
    size is halved until the step is safe. It needs no constant of the data and adapts to the curvature that the step
    meets.

    Args:
        shrink: factor on the size when a step is refused, in (0, 1).

    Source: Blumensath and Davies (2010), normalised iterative hard thresholding.
    """

    shrink: Scalar = 0.5
    searches = True

    def init(self, objective: AbstractObjective) -> Float[Array, ""]:
        return jnp.ones((), objective.dtype)

    def propose(self, objective: AbstractObjective, at: At) -> Float[Array, ""]:
        along = at.grad
        if at.entries is not None:
            along = scatter(gather(along, at.entries), at.entries, along.shape[0])
        curvature = objective.curvature_at(at.forward, along, at.entries)
        size = jnp.sum(along**2) / jnp.where(curvature > 0, curvature, 1)
        return jnp.where((curvature > 0) & (size > 0) & jnp.isfinite(size), size, at.size)


class BacktrackingStep(AbstractStep):
    """The last accepted size, enlarged by `grow`, shrunk until accepted.

    Args:
        initial: size tried at the first step, positive.
        shrink: factor on the size when a step is refused, in (0, 1).
        grow: factor between steps, at least 1.
    """

    initial: Scalar = 1.0
    shrink: Scalar = 0.5
    grow: Scalar = 2.0
    searches = True
    grows = True

    def init(self, objective: AbstractObjective) -> Float[Array, ""]:
        return jnp.asarray(self.initial, objective.dtype)

    def propose(self, objective: AbstractObjective, at: At) -> Float[Array, ""]:
        return jnp.where(at.t == 0, at.size, at.size * self.grow)
