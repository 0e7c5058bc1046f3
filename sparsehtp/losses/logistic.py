"""The logistic loss."""

import jax
import jax.numpy as jnp
from jax.scipy.special import xlog1py, xlogy
from jaxtyping import Array, Float

from .._types import Scalar
from .base import AbstractConjugateLoss, outside_to_infinity, positive


class Logistic(AbstractConjugateLoss):
    """l(eta, y) = log(1 + exp(-c y eta)) for labels y in {-1, +1}.

    The conjugate, with u = -a y / c in [0, 1], is u log u + (1 - u) log(1 - u). Its derivative is infinite at the ends
    of the range and is clipped there; the value is not.

    Args:
        margin_scale: c; 1 in [DIHT], [Tight] and [HSG], 2 in [GraHTP].

    Raises:
        ValueError: if margin_scale is not positive.
    """

    margin_scale: Scalar = 1.0
    classification = True

    def __check_init__(self) -> None:
        positive("margin_scale", self.margin_scale)

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jax.nn.softplus(-self.margin_scale * y * eta)

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        c = self.margin_scale
        return -c * y * jax.nn.sigmoid(-c * y * eta)

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        c = self.margin_scale
        m = c * eta
        return c**2 * jax.nn.sigmoid(m) * jax.nn.sigmoid(-m)

    @property
    def smoothness(self) -> Float[Array, ""] | float:
        return self.margin_scale**2 / 4.0

    def mean(self, eta: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The probability of the label +1."""
        return jax.nn.sigmoid(self.margin_scale * eta)

    def conjugate(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        u = -a * y / self.margin_scale
        inside = jnp.clip(u, 0, 1)
        # Rounding may put a projected point an ulp outside; that still counts as feasible.
        feasible = jnp.abs(u - inside) <= 4 * jnp.finfo(u.dtype).eps
        return outside_to_infinity(feasible, xlogy(inside, inside) + xlog1py(1 - inside, -inside))

    def conjugate_derivative(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        c = self.margin_scale
        u = -a * y / c
        tiny = jnp.finfo(u.dtype).tiny
        rest = jnp.where(u < 1, jnp.log1p(-jnp.where(u < 1, u, 0)), jnp.log(tiny))
        return (y / c) * (rest - jnp.log(jnp.maximum(u, tiny)))

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        c = self.margin_scale
        return -c * y * jnp.clip(-a * y / c, 0, 1)
