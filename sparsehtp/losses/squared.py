"""The squared loss."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .base import AbstractQuadraticConjugateLoss


class Squared(AbstractQuadraticConjugateLoss):
    """l(eta, y) = (eta - y)^2 / 2; conjugate a^2/2 + y a on the whole line."""

    location = True
    quadratic = True
    width = 1.0

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return 0.5 * (eta - y) ** 2

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return eta - y

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.ones_like(eta)

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return a
