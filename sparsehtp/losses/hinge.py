"""The hinge loss, its smoothed form, and its square."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Scalar
from .base import AbstractQuadraticConjugateLoss, positive


class _Margin(AbstractQuadraticConjugateLoss):
    """A loss of the margin y eta, whose slope in it is from -1 to 0."""

    classification = True

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return y * jnp.clip(y * a, -1, 0)


class Hinge(_Margin):
    """l(eta, y) = max(0, 1 - y eta) for labels y in {-1, +1}; conjugate y a for y a in [-1, 0].

    Not smooth: solvers that debias on the support do not take it; use `IHT`, the dual solvers, or `SmoothedHinge`.
    """

    twice_differentiable = False
    width = 0.0
    smoothness = float("inf")

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.maximum(0, 1 - y * eta)

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.where(y * eta < 1, -y, 0)

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.zeros_like(eta)

    def smoothed(self, width: Float[Array, ""]) -> "SmoothedHinge":
        return SmoothedHinge(width)


class SmoothedHinge(_Margin):
    """The hinge loss with a quadratic piece of width gamma, for labels y in {-1, +1}.

    With m = y eta: 0 if m >= 1; 1 - m - gamma/2 if m < 1 - gamma; (1 - m)^2 / (2 gamma) between. The conjugate is
    y a + gamma a^2 / 2 for y a in [-1, 0].

    Args:
        gamma: width of the quadratic piece, positive ([DIHT] uses 0.25).

    Raises:
        ValueError: if gamma is not positive.
    """

    gamma: Scalar = 0.25
    kinked = True

    def __check_init__(self) -> None:
        positive("gamma", self.gamma)

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        slack = jnp.maximum(0, 1 - y * eta)
        return jnp.where(slack > self.gamma, slack - self.gamma / 2, slack**2 / (2 * self.gamma))

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return -y * jnp.clip((1 - y * eta) / self.gamma, 0, 1)

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        slack = 1 - y * eta
        return jnp.where((slack > 0) & (slack < self.gamma), 1 / self.gamma, 0).astype(eta.dtype)

    def majorant(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return 1 / jnp.maximum(jnp.abs(1 - y * eta), self.gamma)

    @property
    def width(self) -> Scalar:
        return self.gamma


class SquaredHinge(AbstractQuadraticConjugateLoss):
    """l(eta, y) = max(0, 1 - y eta)^2 / 2 for labels y in {-1, +1}; conjugate y a + a^2 / 2 for y a <= 0.

    Half of what scikit-learn's `LinearSVC` and L0Learn call so: their C is 1 / (2 n l2).
    """

    classification = True
    kinked = True
    width = 1.0

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.maximum(0, 1 - y * eta) ** 2 / 2

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return -y * jnp.maximum(0, 1 - y * eta)

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return (y * eta < 1).astype(eta.dtype)

    def majorant(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.ones_like(eta)

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return y * jnp.minimum(y * a, 0)
