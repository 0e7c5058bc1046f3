"""Least squares, or the local quadratic model of another objective, through its normal equations."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, Int


class AbstractNormalEquations(eqx.Module):
    """2 F(x) = constant - 2 rhs'x + x'A x, with the free entries minimised out.

    For an objective that is not quadratic this holds to second order around a point, up to a constant.
    """

    rhs: eqx.AbstractVar[Float[Array, "p"]]
    diagonal: eqx.AbstractVar[Float[Array, "p"]]  # of A
    constant: eqx.AbstractVar[Float[Array, ""]]

    @abc.abstractmethod
    def rows(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        """Rows of A."""


class GramEquations(AbstractNormalEquations):
    """Normal equations whose matrix is at hand."""

    A: Float[Array, "p p"]
    rhs: Float[Array, "p"]
    diagonal: Float[Array, "p"]
    constant: Float[Array, ""]

    def rows(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        return self.A[idx]
