"""Huber's loss."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Scalar
from .base import AbstractQuadraticConjugateLoss, positive


class Huber(AbstractQuadraticConjugateLoss):
    """l = r^2/2 if |r| <= delta, else delta |r| - delta^2/2, with r = eta - y; conjugate a^2/2 + y a for |a| <= delta.

    Args:
        delta: residual at which the loss turns linear, in units of y; positive.

    Raises:
        ValueError: if delta is not positive.
    """

    delta: Scalar = 1.0
    kinked = True
    location = True
    width = 1.0

    def __check_init__(self) -> None:
        positive("delta", self.delta)

    @property
    def pieces(self) -> tuple[Scalar, Scalar, Scalar]:
        return self.delta, self.delta, 1.0

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        r = eta - y
        inside = jnp.clip(r, -self.delta, self.delta)
        return inside * (r - 0.5 * inside)

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.clip(eta - y, -self.delta, self.delta)

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return (jnp.abs(eta - y) < self.delta).astype(eta.dtype)

    def majorant(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return self.delta / jnp.maximum(jnp.abs(eta - y), self.delta)

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.clip(a, -self.delta, self.delta)
