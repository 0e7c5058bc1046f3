"""A constant step size, and one from a schedule."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._types import Scalar
from ..losses.base import positive
from ..objectives import AbstractObjective
from .base import AbstractStep, At


class ConstantStep(AbstractStep):
    """One step size at every step: `size`, or `scale / L` with the Lipschitz constant L of the gradient.

    IHT decreases the objective for sizes up to 1/L; [GraHTP] Theorem 8 takes 1/(2M) with the restricted constant M.
    L is estimated by power iteration when `size` is None, which costs about 200 products with the data at the start.

    Args:
        size: step size, positive; None: `scale / L`.
        scale: multiple of 1/L.
    """

    size: Scalar | None = None
    scale: Scalar = 1.0
    searches = False

    def __check_init__(self) -> None:
        if self.size is not None:
            positive("size", self.size)
        positive("scale", self.scale)

    def init(self, objective: AbstractObjective) -> Float[Array, ""]:
        size = self.scale / objective.lipschitz() if self.size is None else self.size
        return jnp.asarray(size, objective.dtype)


class ScheduleStep(AbstractStep):
    """The step size `schedule(t)` at step t = 0, 1, ...; any optax schedule, or a function of t.

    Args:
        schedule: a JAX function from the step number to a positive size; static, so define it once at module level.
    """

    schedule: Callable[[Array | int], Array | float] = eqx.field(static=True)
    searches = False
    descends = False

    def init(self, objective: AbstractObjective) -> Float[Array, ""]:
        return jnp.asarray(self.schedule(0), objective.dtype)

    def propose(self, objective: AbstractObjective, at: At) -> Float[Array, ""]:
        return jnp.asarray(self.schedule(at.t), at.size.dtype)


def inverse_sqrt(t: Int[Array, ""] | int) -> Float[Array, ""]:
    """1 / sqrt(t + 1): the schedule for non-smooth losses."""
    return (t + 1.0) ** -0.5
