"""Objectives whose gradient is a mean over samples."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .base import AbstractObjective

FEW, SHARE = 512, 40  # at least so many samples, or this part of all, stand for the whole
ALL_STEPS, LEAST_STEPS = 100, 10


class AbstractSamples(eqx.Module):
    """The terms f_i of a finite sum, with what does not depend on x computed once.

    f_i sees x through the product of x with its row alone, so that its gradient is a score (the derivative of f_i in
    that product; one per response) times the row: a solver that remembers gradients remembers scores.
    """

    @abc.abstractmethod
    def scores(self, x: Float[Array, "d"], i: Int[Array, "b"]) -> Float[Array, "b ..."]:
        """Scores of the samples i at x."""

    @abc.abstractmethod
    def scores_at(self, forward: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Scores of all samples, given the objective's forward product."""

    @abc.abstractmethod
    def mean_gradient(self, scores: Float[Array, "b ..."], i: Int[Array, "b"] | None = None) -> Float[Array, "d"]:
        """Mean over the samples i of score times row; None: over all samples, by one product with the data."""

    @abc.abstractmethod
    def penalty_grad(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        """Gradient of R."""

    def grad(self, x: Float[Array, "d"], i: Int[Array, "b"]) -> Float[Array, "d"]:
        """Unbiased estimate of the gradient of F: the mean over the samples i, and R exactly."""
        return self.mean_gradient(self.scores(x, i), i) + self.penalty_grad(x)


def some(n: int) -> tuple[int, int]:
    """How many of n samples stand for all, and the power steps on them that cost half a pass."""
    m = min(n, max(FEW, n // SHARE))
    return m, ALL_STEPS if m == n else max(n // (2 * m), LEAST_STEPS)


def drawn(weights: Float[Array, "n"], m: int) -> Int[Array, "m"]:
    """m samples by weight: one from each of m parts of equal weight."""
    ends = jnp.cumsum(weights) / jnp.sum(weights)
    places = (jnp.arange(m) + jax.random.uniform(jax.random.key(0), (m,), ends.dtype)) / m
    return jnp.minimum(jnp.searchsorted(ends, places), weights.shape[0] - 1).astype(jnp.int32)


class AbstractFiniteSum(AbstractObjective):
    """F(x) = (1/n) sum_i f_i(x) + R(x) with a penalty R that needs no data."""

    @property
    def n_samples(self) -> int:
        """n."""
        return self.ifo_per_gradient

    @abc.abstractmethod
    def samples(self) -> AbstractSamples:
        """The terms f_i, and R."""

    @abc.abstractmethod
    def sample_smoothness(self) -> Float[Array, ""]:
        """max_i L_i, the largest Lipschitz constant of the gradient of one f_i + R: one pass over the data."""

    @abc.abstractmethod
    def rough_lipschitz(self) -> Float[Array, ""]:
        """`lipschitz`, of many samples from some of them: half a pass over the data."""

    def sample_grad(self, x: Float[Array, "d"], i: Int[Array, "b"]) -> Float[Array, "d"]:
        """Mean over the samples i of the gradient of f_i + R at x."""
        return self.samples().grad(x, i)
