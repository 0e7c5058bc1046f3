"""The Tweedie loss."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import HostArray, Scalar, is_concrete
from .base import AbstractLoss

SERIES = 3e-4  # below it four terms of the exponential series are exact in float64


class Tweedie(AbstractLoss):
    """Half the Tweedie deviance with a log link, for targets y >= 0 with many zeros and variance mean^power.

        l(eta, y) = (exp((2 - q) eta) - 1) / (2 - q) - y (exp((1 - q) eta) - 1) / (1 - q)

    for power q in [1, 2], up to a function of y: in between the model of a sum of a Poisson number of gamma variables
    (claims, rainfall). At q = 1 it is `Poisson` less 1, and at q = 2, for y > 0, `Gamma` less y, without their
    conjugates; outside of [1, 2] it is not convex. The derivative is not Lipschitz, so a constant step size has no
    guarantee; the line searches (`Backtracking`, `Normalised`) are used instead. There is no conjugate in closed form,
    so that certificates have no lower bound.

    Args:
        power: q, at least 1 and at most 2.

    Raises:
        ValueError: if power is not in [1, 2].
    """

    power: Scalar = 1.5
    smoothness = float("inf")
    free_dispersion = True

    def __check_init__(self) -> None:
        power = self.power
        if is_concrete(power) and not (np.ndim(power) == 0 and 1 <= power <= 2):
            raise ValueError(f"power: must be a number from 1 to 2, where the loss is convex, got {power}.")

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return _integral(2 - self.power, eta) - y * _integral(1 - self.power, eta, y)

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.exp((2 - self.power) * eta) - y * jnp.exp(_finite((1 - self.power) * eta, y))

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        up, down = 2 - self.power, self.power - 1
        return up * jnp.exp(up * eta) + down * (y * jnp.exp(_finite(-down * eta, y)))

    def mean(self, eta: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.exp(eta)

    def draw_targets(self, eta: Float[HostArray, "*n"], rng: np.random.Generator) -> Float[HostArray, "*n"]:
        q, mean, dispersion = float(self.power), np.exp(np.clip(eta, -3, 3)), 0.5
        if q == 1:
            return rng.poisson(mean).astype(float)
        if q == 2:
            return rng.gamma(2, mean / 2)
        number = rng.poisson(mean ** (2 - q) / ((2 - q) * dispersion))
        return rng.gamma(number * (2 - q) / (q - 1), dispersion * (q - 1) * mean ** (q - 1))

    def check_targets(self, y: HostArray) -> None:
        positive = is_concrete(self.power) and self.power == 2
        if np.any(y < 0) or (positive and np.any(y == 0)):
            least = "> 0 for power 2" if positive else ">= 0"
            raise ValueError(f"y: Tweedie needs targets {least}; use the squared loss for real ones.")


def _finite(x: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """x, but where its exponential, over a rate, is multiplied by a target y = 0 small enough for that to be finite:
    the product is zero then, with a derivative in y."""
    return jnp.where(y == 0, jnp.minimum(x, 0.3 * jnp.finfo(x.dtype).maxexp), x)


def _integral(
    rate: Float[Array, ""] | float, eta: Float[Array, "*n"], y: Float[Array, "*n"] | None = None
) -> Float[Array, "*n"]:
    """(exp(rate eta) - 1) / rate, and eta for rate 0, with derivatives in both."""
    x = rate * eta
    small = jnp.abs(x) < SERIES
    series = eta * (1 + x / 2 * (1 + x / 3 * (1 + x / 4)))
    return jnp.where(small, series, jnp.expm1(x if y is None else _finite(x, y)) / jnp.where(small, 1, rate))
