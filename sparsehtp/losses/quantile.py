"""The smoothed quantile loss."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import Scalar, is_concrete
from .base import AbstractQuadraticConjugateLoss, positive


class Quantile(AbstractQuadraticConjugateLoss):
    """The pinball loss of a quantile with a quadratic piece of width gamma.

        l(eta, y) = max over a in [-q, 1 - q] of a r - gamma a^2 / 2,    r = eta - y,    q = level

    With gamma = 0 it is q |r| below the target and (1 - q) |r| above it, which the conditional quantile minimises; the
    conjugate is y a + gamma a^2 / 2 for a in [-q, 1 - q]. Smoothing lowers the loss by at most
    B = gamma max(q, 1 - q)^2 / 2, so that the mean pinball loss of the best smoothed fit is at most B above the least
    there is. On average clip(r / gamma, -q, 1 - q) is zero at the fit: the share of targets below it is off its level
    by at most the share of those within gamma of it. For level 1/2 it is `Huber(gamma / 2)` over gamma.

    Args:
        level: q, between 0 and 1; 0.5 is the median.
        gamma: width of the quadratic piece, in units of y; positive. About a tenth of the residuals' spread.

    Raises:
        ValueError: if level is not between 0 and 1, or gamma is not positive.
    """

    level: Scalar = 0.5
    gamma: Scalar = 0.1
    kinked = True
    location = True

    def __check_init__(self) -> None:
        level = self.level
        if is_concrete(level) and not (np.ndim(level) == 0 and 0 < level < 1):
            raise ValueError(f"level: must be a number between 0 and 1, got {level}.")
        positive("gamma", self.gamma)

    @property
    def pieces(self) -> tuple[Scalar, Scalar, Scalar]:
        return self.level, 1 - self.level, self.gamma

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        a = self.derivative(eta, y)
        return a * (eta - y - self.gamma / 2 * a)

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return self.project_dual((eta - y) / self.gamma, y)

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        a = (eta - y) / self.gamma
        return jnp.where((a > -self.level) & (a < 1 - self.level), 1 / self.gamma, 0).astype(eta.dtype)

    def majorant(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        from_middle = jnp.abs(eta - y - self.gamma * (0.5 - self.level))
        return 1 / jnp.maximum(2 * from_middle, self.gamma)

    @property
    def width(self) -> Scalar:
        return self.gamma

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.clip(a, -self.level, 1 - self.level)
