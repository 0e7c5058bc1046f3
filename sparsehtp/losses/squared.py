"""The squared loss."""

import jax.numpy as jnp

from .base import AbstractConjugateLoss


class Squared(AbstractConjugateLoss):
    """l(eta, y) = (eta - y)^2 / 2; conjugate a^2/2 + y a on the whole line."""

    location = True
    quadratic = True

    def value(self, eta, y):
        return 0.5 * (eta - y) ** 2

    def derivative(self, eta, y):
        return eta - y

    def second_derivative(self, eta, y):
        return jnp.ones_like(eta)

    @property
    def smoothness(self):
        return 1.0

    def conjugate(self, a, y):
        return 0.5 * a**2 + y * a

    def conjugate_derivative(self, a, y):
        return a + y

    def project_dual(self, a, y):
        return a
