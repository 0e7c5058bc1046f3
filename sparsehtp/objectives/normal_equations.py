"""Least squares through its normal equations, a block of Gram columns at a time."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, Int


class AbstractNormalEquations(eqx.Module):
    """2 F(x) = constant - 2 rhs'x + x'A x, with the free entries minimised out."""

    rhs: eqx.AbstractVar[Float[Array, "p"]]
    diagonal: eqx.AbstractVar[Float[Array, "p"]]  # of A
    constant: eqx.AbstractVar[Float[Array, ""]]

    @abc.abstractmethod
    def columns(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        """Columns of A, as rows."""

    @abc.abstractmethod
    def complete(self, x: Float[Array, "p"]) -> Float[Array, "d"]:
        """x with the optimal free entries appended."""
