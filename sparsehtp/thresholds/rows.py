"""At most k nonzero rows."""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._types import AnyArray, ArrayLike, Support, replace
from .base import AbstractUnitThreshold, Bindable, check_count, check_keep, check_keep_range, check_units
from .bounded import AbstractBounded, check_bounds, norms


class RowSparsity(AbstractBounded, AbstractUnitThreshold):
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

    k: Int[AnyArray, ""]
    keep: Int[AnyArray, "n_keep"]
    lower: Float[AnyArray, "..."] | None
    upper: Float[AnyArray, "..."] | None
    k_max: int | None = eqx.field(static=True)
    n_free: int = eqx.field(static=True)
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
        self.k = check_count("k", k)
        self.k_max = None if k_max is None else int(check_count("k_max", k_max))
        self.keep = check_keep(keep)
        self.lower, self.upper = check_bounds(lower, upper)
        self.n_free, self.shape = 0, ()

    @property
    def entries_per_unit(self) -> int:
        return int(self.shape[1]) if self.shape else 1

    def bind(self, objective: Bindable) -> Self:
        shape = objective.external_shape
        if len(shape) != 2 or shape[0] * shape[1] != objective.n_coefficients:
            raise TypeError(
                f"threshold: RowSparsity needs an objective over matrices such as sht.MultiResponse(X, Y), got a "
                f"{type(objective).__name__}."
            )
        check_keep_range(self.keep, shape[0], "features")
        k_max = check_units("k", self.k, self.k_max, self.keep.shape[0], shape[0], "features")
        return replace(self, k_max=k_max, n_free=objective.n_free, shape=shape, **self._bind_bounds(objective))

    def scores(self, z: Float[Array, "d"]) -> Float[Array, "units"]:
        return norms(self.gains(z).reshape(self.shape))

    def entries(self, x: Float[Array, "d"], support: Support) -> Support:
        p, c = self.shape
        free = (support.idx >= p)[:, None]
        place = jnp.arange(c, dtype=jnp.int32)
        idx = jnp.where(free, p * c + support.idx[:, None] - p, support.idx[:, None] * c + place)
        mask = support.mask[:, None] & (~free | (place == 0))
        return Support(idx.ravel(), mask.ravel())
