"""The gamma loss."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from .._types import HostArray
from .base import AbstractConjugateLoss, outside_to_infinity


class Gamma(AbstractConjugateLoss):
    """l(eta, y) = y exp(-eta) + eta for y > 0: the gamma model with a log link, up to a function of y.

    Its best prediction is eta = log y; twice what is lost beyond that is the gamma deviance. The conjugate, with
    u = 1 - a, is u log(u / y) - u for u >= 0. The derivative is not Lipschitz, so a constant step size has no
    guarantee; the line searches (`Backtracking`, `Normalised`) are used instead.
    """

    smoothness = float("inf")
    free_dispersion = True

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return y * jnp.exp(-eta) + eta

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return 1 - y * jnp.exp(-eta)

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return y * jnp.exp(-eta)

    def mean(self, eta: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.exp(eta)

    def conjugate(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        u = jnp.maximum(1 - a, 0)
        return outside_to_infinity(a <= 1, xlogy(u, u) - u * jnp.log(y) - u)

    def conjugate_derivative(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.log(y) - jnp.log(jnp.maximum(1 - a, jnp.finfo(a.dtype).tiny))

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.minimum(a, 1)

    def draw_targets(self, eta: Float[HostArray, "*n"], rng: np.random.Generator) -> Float[HostArray, "*n"]:
        return rng.gamma(2, np.exp(np.clip(eta, -3, 3)) / 2)

    def check_targets(self, y: HostArray) -> None:
        if np.any(np.asarray(y) <= 0):
            raise ValueError(
                "y: Gamma needs targets > 0; use the Tweedie loss where some are 0, the Poisson loss for counts, the "
                "squared loss for others."
            )
