"""The interface of a design matrix."""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._types import DType


class AbstractDesign(eqx.Module):
    """A matrix X of shape (n, p), rows are samples, known through its products."""

    sparse: ClassVar[bool] = False  # a product with all columns costs less than a dense copy of a few

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """(n, p)."""

    @property
    @abc.abstractmethod
    def dtype(self) -> DType:
        """The floating dtype of all products."""

    @abc.abstractmethod
    def mv(self, w: Float[Array, "p"]) -> Float[Array, "n"]:
        """X w."""

    @abc.abstractmethod
    def rmv(self, r: Float[Array, "n"]) -> Float[Array, "p"]:
        """X' r."""

    @abc.abstractmethod
    def columns(self, idx: Int[Array, "m"]) -> Float[Array, "n m"]:
        """The columns X[:, idx], dense."""

    @abc.abstractmethod
    def subset(self, idx: Int[Array, "m"]) -> "AbstractDesign":
        """The design of the columns X[:, idx]."""

    def narrowed(self, p: int) -> "AbstractDesign":
        """The first p columns; where it can, on the host, so that no program is compiled."""
        return self.subset(jnp.arange(p))

    @abc.abstractmethod
    def rows(self, i: Int[Array, "b"]) -> Float[Array, "b p"]:
        """The rows X[i], dense: a mini-batch."""

    @abc.abstractmethod
    def column_norms(self, weights: Float[Array, "n"], scale: Float[Array, "p"] | None = None) -> Float[Array, "p"]:
        """sqrt(sum_i weights_i (X_ij scale_j)^2) of every column; None: no scale."""

    @abc.abstractmethod
    def moments(self, weights: Float[Array, "n"]) -> tuple[Float[Array, "p"], Float[Array, "p"]]:
        """Weighted mean and (population) standard deviation of every column; the weights sum to one."""

    @abc.abstractmethod
    def magnitudes(self, weights: Float[Array, "n"] | None = None) -> Float[Array, "p"]:
        """Largest magnitude of every column, over the rows with a weight. Data are finite."""

    def centred(
        self, shift: Float[Array, "p"], grain: Float[Array, "p"], constant: Bool[Array, "p"], weights: Float[Array, "n"]
    ) -> "tuple[AbstractDesign, Float[Array, 'p']]":
        """X less its means where no entry of a row with a weight is rounded by that, constant columns exactly zero, and
        what was subtracted from each column; never asked of a sparse design.

        Args:
            shift: the means, zero where nothing is to be subtracted. Where rounding left one that is large beside the
                column's deviation, it is corrected.
            grain: the last digit of each column's largest entry: multiples of it take no digit from large entries.
            constant: which columns are.
            weights: of the rows.
        """
        raise TypeError(f"X: a {type(self).__name__} cannot be centred; pass an array, or make it sparse = True.")
