"""Losses of several responses per sample: the interface, and the sum of a scalar loss over the responses."""

import abc
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import AnyArray, ArrayLike, DType, HostArray
from ..linalg import dot
from .base import AbstractLoss, AbstractRowLoss


class AbstractVectorLoss(AbstractRowLoss):
    """A per-sample loss l(eta, y), convex in the predictions eta of c responses; methods act on all samples at once.

    `value` is (n,), `derivative` and `majorant` are (n, c); `smoothness` is that of the gradient.
    """

    shift_invariant: ClassVar[bool] = False  # l(eta + t 1, y) = l(eta, y)

    @abc.abstractmethod
    def n_responses(self, y: AnyArray) -> int:
        """c, from the targets."""

    @abc.abstractmethod
    def targets(self, y: ArrayLike, n: int, dtype: DType) -> Array:
        """Targets of n samples as an array, or ValueError."""

    @abc.abstractmethod
    def curvature(self, eta: Float[Array, "n c"], y: Array) -> tuple[Float[Array, "n c"], Float[Array, "n c"] | None]:
        """(d, q) with the Hessian of l in eta diag(d_i) - q_i q_i' for sample i; q None: zero."""


class PerResponse(AbstractVectorLoss):
    """The sum of a scalar loss over the responses."""

    loss: AbstractLoss

    @property
    def twice_differentiable(self) -> bool:  # type: ignore[override]  # elsewhere it is one of the class
        return self.loss.twice_differentiable

    @property
    def kinked(self) -> bool:  # type: ignore[override]  # elsewhere it is one of the class
        return self.loss.kinked

    @property
    def location(self) -> bool:  # type: ignore[override]  # elsewhere it is one of the class
        return self.loss.location

    @property
    def quadratic(self) -> bool:  # type: ignore[override]
        return self.loss.quadratic

    @property
    def smoothness(self) -> Float[Array, ""] | float:
        return self.loss.smoothness

    def n_responses(self, y: AnyArray) -> int:
        return y.shape[1]

    def targets(self, y: ArrayLike, n: int, dtype: DType) -> Array:
        y = jnp.asarray(y, dtype)
        if y.ndim != 2 or y.shape[0] != n or y.shape[1] == 0:
            raise ValueError(f"Y: needs shape ({n}, responses), one row per row of X, got {y.shape}.")
        return y

    def value(self, eta: Float[Array, "n c"], y: Array) -> Float[Array, "n"]:
        return dot(self.loss.value(eta, y), jnp.ones_like(eta, shape=eta.shape[1]))  # a sum of maxima may drop NaN

    def derivative(self, eta: Float[Array, "n c"], y: Array) -> Float[Array, "n c"]:
        return self.loss.derivative(eta, y)

    def mean(self, eta: Float[Array, "n c"]) -> Float[Array, "n c"]:
        return self.loss.mean(eta)

    def curvature(self, eta: Float[Array, "n c"], y: Array) -> tuple[Float[Array, "n c"], Float[Array, "n c"] | None]:
        return self.loss.second_derivative(eta, y), None

    def majorant(self, eta: Float[Array, "n c"], y: Array) -> Float[Array, "n c"]:
        return self.loss.majorant(eta, y)

    def check_targets(self, y: HostArray) -> None:
        self.loss.check_targets(y)

    def draw_targets(self, eta: Float[HostArray, "n c"], rng: np.random.Generator) -> HostArray:
        return self.loss.draw_targets(eta, rng)
