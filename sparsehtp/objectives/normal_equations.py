"""Least squares, or the local quadratic model of another objective, through its normal equations."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._types import Support


class AbstractNormalEquations(eqx.Module):
    """2 F(x) = constant - 2 rhs'x + x'A x, with the free entries minimised out.

    For an objective that is not quadratic this holds to second order around a point, up to a constant.
    """

    rhs: eqx.AbstractVar[Float[Array, "p"]]
    diagonal: eqx.AbstractVar[Float[Array, "p"]]  # of A
    constant: eqx.AbstractVar[Float[Array, ""]]

    @abc.abstractmethod
    def columns(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        """Columns of A, as rows."""


class GramEquations(AbstractNormalEquations):
    """Normal equations whose matrix is at hand."""

    A: Float[Array, "p p"]
    rhs: Float[Array, "p"]
    diagonal: Float[Array, "p"]
    constant: Float[Array, ""]

    def columns(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        return self.A[idx]


class LinearNormalEquations(AbstractNormalEquations):
    """Normal equations of a weighted least-squares problem on the columns of a `LinearModel`."""

    model: Any  # a LinearModel
    weights: Float[Array, "n"]
    mean: Float[Array, "p"] | None  # of the columns, where the model does not centre them itself
    rhs: Float[Array, "p"]
    diagonal: Float[Array, "p"]
    constant: Float[Array, ""]

    def columns(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        model = self.model
        A = model.columns(Support(idx, jnp.ones(idx.shape, bool)))
        if self.mean is not None:
            A = A - self.mean[idx]
        # The weighted columns sum to zero, so the transposed product need not be centred.
        gram = jax.vmap(model.transpose_product)((self.weights[:, None] * A).T)[:, : self.rhs.shape[0]]
        return gram.at[jnp.arange(idx.shape[0]), idx].add(model.ridge()[idx])
