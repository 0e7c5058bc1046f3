"""Objectives of one linear predictor whose loss is no sum over the rows, or has parameters of its own."""

import abc
from typing import TYPE_CHECKING, Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._types import ArrayLike, Support, replace
from .base import AbstractRestrictable
from .linear_model import LinearModel


class AbstractOfPredictor(AbstractRestrictable):
    """An objective of the linear predictor of a `LinearModel` whose intercept is held at zero.

    Design, units, weights, offset and l2 are those of `shared_model`, whose targets and loss play no part.
    """

    if TYPE_CHECKING:  # to mypy an AbstractVar is an argument of every subclass

        @property
        def shared_model(self) -> LinearModel: ...
    else:
        shared_model: eqx.AbstractVar[LinearModel]

    @abc.abstractmethod
    def _of(self, shared_model: LinearModel, weighted: bool) -> Self:
        """The same objective with another `shared_model`, of other weights where `weighted`."""

    def reweighted(self, sample_weight: ArrayLike | None = None, l2: ArrayLike | None = None) -> Self:
        return self._of(self.shared_model.reweighted(sample_weight, l2), sample_weight is not None)

    def scorer(self, sample_weight: Float[Array, "n"] | None = None) -> Self:
        return self._of(self.shared_model.scorer(sample_weight), sample_weight is not None)

    def exactly(self) -> Self:
        """The same model, its standardisation and the parts of its weights computed in their present dtype."""
        return self._of(self.shared_model.exactly(), True)

    def subset(self, idx: Int[Array, "m"]) -> Self:
        return replace(self, shared_model=self.shared_model.subset(idx))

    # --- shape and units ---------------------------------------------------------------------------------------------
    @property
    def n_coefficients(self) -> int:
        return self.shared_model.n_coefficients

    @property
    def dtype(self) -> Any:
        return self.shared_model.dtype

    @property
    def ifo_per_gradient(self) -> int:
        return self.shared_model.ifo_per_gradient

    @property
    def sparse(self) -> bool:
        return self.shared_model.sparse

    @property
    def l2(self) -> Array:
        """Ridge strength."""
        return self.shared_model.l2

    @property
    def sample_weight(self) -> Array:
        """(n,) weights."""
        return self.shared_model.sample_weight

    def internal_scale(self) -> Float[Array | np.ndarray, "p"] | None:
        return self.shared_model.internal_scale()

    # --- the predictor: a function of the coefficients, which come first in x -----------------------------------------
    def _alone(self, x: Float[Array, "d"]) -> Float[Array, "q"]:
        return jnp.append(x[: self.n_coefficients], jnp.zeros((), x.dtype))

    def _own(self, support: Support | None) -> Support | None:
        """The coefficients of a support, which may hold free entries."""
        return None if support is None else Support(support.idx, support.mask & (support.idx < self.n_coefficients))

    def _predictor(self, x: Float[Array, "d"], support: Support | None = None) -> Float[Array, "n"]:
        """(n,) linear predictors, the offset included; a support is that of `forward`."""
        return self.shared_model.forward(self._alone(x), self._own(support))

    def _product(self, x: Float[Array, "d"], support: Support | None = None) -> Float[Array, "n"]:
        """The (standardised) design times the coefficients; a support is that of `forward`."""
        return self.shared_model.product(self._alone(x), self._own(support))

    def _pulled(self, rows: Float[Array, "n"]) -> Float[Array, "p"]:
        """The transpose of the (standardised) design times what belongs to the rows."""
        return self.shared_model.transpose_product(rows)[: self.n_coefficients]

    def ridge(self) -> Float[Array, "p"]:
        """l2 per coefficient of x."""
        return self.shared_model.ridge()[: self.n_coefficients]

    def _ridge_product(self, x: Float[Array, "d"]) -> Float[Array, "p"]:
        return self.shared_model.ridge_product(self._alone(x))[: self.n_coefficients]
