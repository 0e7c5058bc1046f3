"""The negative binomial loss."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlog1py, xlogy
from jaxtyping import Array, Float
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.special import xlogy as host_xlogy

from .._types import HostArray, Scalar
from .base import AbstractConjugateLoss, outside_to_infinity, positive

DISPERSIONS = (1e-6, 1e6)  # where an estimate is looked for


class NegativeBinomial(AbstractConjugateLoss):
    """Counts with more variance than Poisson's: mean m = exp(eta) and variance m + dispersion m^2.

        l(eta, y) = (y + 1/d) log(1 + d exp(eta)) - y (eta + log d),    d = dispersion

    for y >= 0: the negative log-likelihood up to a function of y ("NB2"). With s = (a + y) / (y + 1/d) in [0, 1] the
    conjugate is (y + 1/d) (s log s + (1 - s) log(1 - s)) - a log d. The derivative has no Lipschitz constant for all y,
    so a constant step size has no guarantee; the line searches (`Backtracking`, `Normalised`) are used instead.

    The dispersion is given. Where it is not known, `SparseRegressor(loss="negative_binomial")` estimates it, by fits
    and `estimate` in turn. The fit depends on it weakly: as d goes to zero the loss becomes Poisson's.

    Args:
        dispersion: d, positive; R's `theta` and scikit-learn-like `n` are 1/d, statsmodels' `alpha` is d.

    Raises:
        ValueError: if dispersion is not positive.
    """

    dispersion: Scalar = 1.0
    smoothness = float("inf")

    def __check_init__(self) -> None:
        positive("dispersion", self.dispersion)

    @staticmethod
    def estimate(
        y: Float[HostArray, "*n"], eta: Float[HostArray, "*n"], sample_weight: Float[HostArray, "*n"]
    ) -> float:
        """The dispersion of the largest likelihood at given predictors eta, from 1e-6 to 1e6."""
        counts, mean = np.asarray(y, float), np.exp(np.minimum(np.asarray(eta, float), 700))

        def negative_log_likelihood(log_d: float) -> float:
            size = np.exp(-log_d)
            gammas = gammaln(counts + size) - gammaln(size) - counts * np.log(size)
            each = gammas + host_xlogy(counts, mean) - (counts + size) * np.log1p(mean / size)
            return -float(np.sum(sample_weight * each))

        span = np.log(DISPERSIONS)
        return float(np.exp(minimize_scalar(negative_log_likelihood, bounds=span, method="bounded").x))

    def _logit(self, eta: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return eta + jnp.log(self.dispersion)

    def value(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        t = self._logit(eta)
        return y * jax.nn.softplus(-t) + jax.nn.softplus(t) / self.dispersion

    def derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        t = self._logit(eta)
        return jax.nn.sigmoid(t) / self.dispersion - y * jax.nn.sigmoid(-t)

    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        t = self._logit(eta)
        return (y + 1 / self.dispersion) * jax.nn.sigmoid(t) * jax.nn.sigmoid(-t)

    def mean(self, eta: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.exp(eta)

    def conjugate(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        size, s = self._share(a, y)
        inside = jnp.clip(s, 0, 1)
        # Rounding may put a projected point an ulp outside; that still counts as feasible.
        feasible = jnp.abs(s - inside) <= 4 * jnp.finfo(s.dtype).eps
        entropy = xlogy(inside, inside) + xlog1py(1 - inside, -inside)
        return outside_to_infinity(feasible, size * entropy - a * jnp.log(self.dispersion))

    def conjugate_derivative(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        _, s = self._share(a, y)
        tiny = jnp.finfo(s.dtype).tiny
        rest = jnp.where(s < 1, jnp.log1p(-jnp.where(s < 1, s, 0)), jnp.log(tiny))
        return jnp.log(jnp.maximum(s, tiny)) - rest - jnp.log(self.dispersion)

    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.clip(a, -y, 1 / self.dispersion)

    def _share(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
        """y + 1/d, and s."""
        size = y + 1 / self.dispersion
        return size, (a + y) / size

    def draw_targets(self, eta: Float[HostArray, "*n"], rng: np.random.Generator) -> Float[HostArray, "*n"]:
        d = float(self.dispersion)
        return rng.poisson(rng.gamma(1 / d, d * np.exp(np.clip(eta, -3, 12)))).astype(float)

    def check_targets(self, y: HostArray) -> None:
        if np.any(y < 0):
            raise ValueError(
                "y: NegativeBinomial needs counts >= 0, got negative values; use the squared loss for others."
            )
