"""At most k nonzero rows."""

from __future__ import annotations

import math
from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import ArrayLike, Support, replace
from .base import Bindable
from .bounded import AbstractBoundedUnits, norms


class RowSparsity(AbstractBoundedUnits):
    """At most k nonzero rows: {W of shape (p, c) : #{j : W_j. != 0} <= k}: k features that all responses share.

    Called on the x of an objective it keeps the k rows with the largest Euclidean norm (with bounds, those whose
    keeping lowers the distance to x most): the projection onto the set. The intercept row is free. (`Sparsity` on a
    matrix keeps k entries.)

    Args:
        k: number of rows, 0 <= k <= p - len(keep); an integer or a traced integer.
        k_max: static upper limit of k; one compiled program serves every k up to it. Default: the next power
            of two, at least 16.
        keep: indices (or a boolean mask) of rows that are always in the support and not counted in k.
        lower: lower bounds, <= 0, a scalar, one for every row (p,), or (p, c), in original units.
        upper: upper bounds, >= 0.

    Raises:
        ValueError: if k is negative, not an integer or too large, or a bound excludes zero.
        TypeError: for an objective whose coefficients are no matrix.
    """

    shape: tuple[int, ...] = eqx.field(static=True)  # (p, c), once bound

    kind = "rows"

    def __init__(
        self,
        k: ArrayLike,
        k_max: int | None = None,
        keep: ArrayLike | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ):
        self._fill(k, k_max, keep, lower, upper)
        self.shape = ()

    @property
    def entries_per_unit(self) -> int:
        return math.prod(self.shape[1:])

    def bind(self, objective: Bindable) -> Self:
        shape = objective.external_shape
        if len(shape) != 2 or shape[0] * shape[1] != objective.n_coefficients:
            raise TypeError(
                f"threshold: RowSparsity needs an objective over matrices such as sht.MultiResponse(X, Y), got a "
                f"{type(objective).__name__}."
            )
        return replace(self._bound_to(objective, shape[0], "features"), shape=shape)

    def scores(self, z: Float[Array, "d"]) -> Float[Array, "units"]:
        return norms(self.gains(z).reshape(self.shape))

    def entries(self, x: Float[Array, "d"], support: Support) -> Support:
        p, c = self.shape
        free = (support.idx >= p)[:, None]
        place = jnp.arange(c, dtype=jnp.int32)
        idx = jnp.where(free, p * c + support.idx[:, None] - p, support.idx[:, None] * c + place)
        mask = support.mask[:, None] & (~free | (place == 0))
        return Support(idx.ravel(), mask.ravel())
