"""The Poisson loss."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from .._types import HostArray
from .base import AbstractConjugateLoss, outside_to_infinity


class Poisson(AbstractConjugateLoss):
    """l(eta, y) = exp(eta) - y eta for counts y >= 0: the log-linear model, up to a constant.

    The conjugate is (a + y) log(a + y) - (a + y) for a + y >= 0. The derivative is not Lipschitz, so a constant step
    size has no guarantee; the line searches (`Backtracking`, `Normalised`) are used instead.
    """

    smoothness = float("inf")

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.exp(eta) - y * eta

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.exp(eta) - y

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.exp(eta)

    def mean(self, eta: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.exp(eta)

    def conjugate(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        m = a + y
        inside = jnp.maximum(m, 0)
        return outside_to_infinity(m >= 0, xlogy(inside, inside) - inside)

    def conjugate_derivative(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.log(jnp.maximum(a + y, jnp.finfo(a.dtype).tiny))

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.maximum(a, -y)

    def draw_targets(self, eta: Float[HostArray, "*n"], rng: np.random.Generator) -> Float[HostArray, "*n"]:
        return rng.poisson(np.exp(np.clip(eta, -3, 2))).astype(float)

    def check_targets(self, y: HostArray) -> None:
        if np.any(np.asarray(y) < 0):
            raise ValueError("y: Poisson needs counts >= 0, got negative ones; use the squared loss for real targets.")
