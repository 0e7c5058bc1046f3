"""The hinge loss, its smoothed form, and its square."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._types import Scalar
from .base import AbstractConjugateLoss, outside_to_infinity, positive


def _project(a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
    return y * jnp.clip(y * a, -1, 0)


def _feasible(a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Bool[Array, "*n"]:
    return (y * a >= -1) & (y * a <= 0)


class Hinge(AbstractConjugateLoss):
    """l(eta, y) = max(0, 1 - y eta) for labels y in {-1, +1}; conjugate y a for y a in [-1, 0].

    Not smooth: solvers that debias on the support do not take it; use `IHT`, the dual solvers, or `SmoothedHinge`.
    """

    classification = True
    twice_differentiable = False
    smoothness = float("inf")

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.maximum(0, 1 - y * eta)

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.where(y * eta < 1, -y, 0)

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.zeros_like(eta)

    def smoothed(self, width: Float[Array, ""]) -> AbstractConjugateLoss:
        return SmoothedHinge(width)

    def conjugate(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return outside_to_infinity(_feasible(a, y), y * a)

    def conjugate_derivative(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return y

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return _project(a, y)


class SmoothedHinge(AbstractConjugateLoss):
    """The hinge loss with a quadratic piece of width gamma, for labels y in {-1, +1}.

    With m = y eta: 0 if m >= 1; 1 - m - gamma/2 if m < 1 - gamma; (1 - m)^2 / (2 gamma) between. The conjugate is
    y a + gamma a^2 / 2 for y a in [-1, 0].

    Args:
        gamma: width of the quadratic piece, positive ([DIHT] uses 0.25).

    Raises:
        ValueError: if gamma is not positive.
    """

    gamma: Scalar = 0.25
    classification = True
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
    def smoothness(self) -> Float[Array, ""] | float:
        return 1 / self.gamma

    def conjugate(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return outside_to_infinity(_feasible(a, y), y * a + self.gamma * a**2 / 2)

    def conjugate_derivative(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return y + self.gamma * a

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return _project(a, y)


class SquaredHinge(AbstractConjugateLoss):
    """l(eta, y) = max(0, 1 - y eta)^2 / 2 for labels y in {-1, +1}; conjugate y a + a^2 / 2 for y a <= 0.

    Half of what scikit-learn's `LinearSVC` and L0Learn call so: their C is 1 / (2 n l2).
    """

    classification = True
    kinked = True
    smoothness = 1.0

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.maximum(0, 1 - y * eta) ** 2 / 2

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return -y * jnp.maximum(0, 1 - y * eta)

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return (y * eta < 1).astype(eta.dtype)

    def majorant(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.ones_like(eta)

    def conjugate(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return outside_to_infinity(y * a <= 0, y * a + a**2 / 2)

    def conjugate_derivative(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return y + a

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return y * jnp.minimum(y * a, 0)
