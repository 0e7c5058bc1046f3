"""Objectives whose gradient is a mean over samples."""

import abc
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Int

from ..linalg import POWER_STEPS
from .base import AbstractObjective


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


class Smoothness(NamedTuple):
    """The largest smoothness L_i of a sample, and about that of the whole, L_F."""

    largest: Float[Array, ""]
    whole: Float[Array, ""]


class AbstractFiniteSum(AbstractObjective):
    """F(x) = (1/n) sum_i f_i(x) + R(x) with a penalty R that needs no data."""

    @abc.abstractmethod
    def samples(self) -> AbstractSamples:
        """The terms f_i, and R."""

    @abc.abstractmethod
    def sample_smoothness(self) -> Float[Array, ""]:
        """max_i L_i, the largest Lipschitz constant of the gradient of one f_i + R: one pass over the data."""

    def smoothness(self) -> Smoothness:
        """The two constants that a step with mini-batches needs."""
        return Smoothness(self.sample_smoothness(), self.lipschitz())

    @property
    def smoothness_ifo(self) -> int:
        """Gradients of single samples that `smoothness` costs."""
        return (1 + POWER_STEPS) * self.n_samples

    def sample_grad(self, x: Float[Array, "d"], i: Int[Array, "b"]) -> Float[Array, "d"]:
        """Mean over the samples i of the gradient of f_i + R at x."""
        return self.samples().grad(x, i)
