"""Losses of several responses per sample: the interface, and the sum of a scalar loss over the responses."""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import AnyArray, ArrayLike, DType, HostArray, is_concrete
from ..linalg import dot
from .base import AbstractLoss


class AbstractVectorLoss(eqx.Module):
    """A per-sample loss l(eta, y), convex in the predictions eta of c responses; methods act on all samples at once."""

    classification: ClassVar[bool] = False  # y is one class per sample
    twice_differentiable: ClassVar[bool] = True
    kinked: ClassVar[bool] = False
    location: ClassVar[bool] = False  # l depends on eta - y only
    quadratic: ClassVar[bool] = False  # l(eta, y) = |eta - y|^2 / 2
    shift_invariant: ClassVar[bool] = False  # l(eta + t 1, y) = l(eta, y)

    @abc.abstractmethod
    def n_responses(self, y: AnyArray) -> int:
        """c, from the targets."""

    @abc.abstractmethod
    def targets(self, y: ArrayLike, n: int, dtype: DType) -> Array:
        """Targets of n samples as an array, or ValueError."""

    @abc.abstractmethod
    def check_targets(self, y: HostArray) -> None:
        """Raise ValueError if concrete targets are not in the loss's domain."""

    @abc.abstractmethod
    def draw_targets(self, eta: Float[HostArray, "n c"], rng: np.random.Generator) -> HostArray:
        """Random targets near the predictions eta, for `sparsehtp.testing`."""

    @abc.abstractmethod
    def value(self, eta: Float[Array, "n c"], y: Array) -> Float[Array, "n"]:
        """l(eta, y)."""

    @abc.abstractmethod
    def derivative(self, eta: Float[Array, "n c"], y: Array) -> Float[Array, "n c"]:
        """Gradient of l in eta."""

    def mean(self, eta: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """The inverse link: what is predicted at the predictions eta; eta itself unless overridden."""
        return eta

    @abc.abstractmethod
    def curvature(self, eta: Float[Array, "n c"], y: Array) -> tuple[Float[Array, "n c"], Float[Array, "n c"] | None]:
        """(d, q) with the Hessian of l in eta diag(d_i) - q_i q_i' for sample i; q None: zero."""

    def majorant(self, eta: Float[Array, "n c"], y: Array) -> Float[Array, "n c"]:
        """Curvatures that do not vanish where the slopes do not; refits add a part of them where l is flat."""
        return jnp.abs(self.derivative(eta, y))

    @property
    @abc.abstractmethod
    def smoothness(self) -> Float[Array, ""] | float:
        """Lipschitz constant of the gradient; infinity if there is none."""

    @property
    def smooth(self) -> bool:
        """False if there is known to be no Lipschitz constant; traced parameters are not looked at."""
        return not is_concrete(self.smoothness) or bool(np.all(np.isfinite(self.smoothness)))


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
