"""At most k nonzero entries, with kept entries, bounds and signs."""

from __future__ import annotations

from typing import Self

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from .._types import AnyArray, ArrayLike, Support, replace
from .base import AbstractUnitThreshold, Bindable, check_count, check_keep, check_keep_range, check_units
from .bounded import AbstractBounded, check_bounds


class AbstractSparsity(AbstractBounded, AbstractUnitThreshold):
    """Shared form of `Sparsity`, `OffDiagonal` and `Simplex`."""

    k: Int[AnyArray, ""]
    keep: Int[AnyArray, "n_keep"]
    lower: Float[AnyArray, "..."] | None
    upper: Float[AnyArray, "..."] | None
    k_max: int | None = eqx.field(static=True)
    n_free: int = eqx.field(static=True)

    kind = "entries"

    def _fill(
        self, k: ArrayLike, k_max: int | None, keep: ArrayLike | None, lower: ArrayLike | None, upper: ArrayLike | None
    ) -> None:
        self.k = check_count("k", k)
        self.k_max = k_max if k_max is None else int(check_count("k_max", k_max))
        self.keep = check_keep(keep)
        self.lower, self.upper = check_bounds(lower, upper, gaps=True)
        self.n_free = 0

    def bind(self, objective: Bindable) -> Self:
        p = objective.n_coefficients
        check_keep_range(self.keep, p, "features")
        k_max = check_units("k", self.k, self.k_max, self.keep.shape[0], p, "features")
        return replace(self, k_max=k_max, n_free=objective.n_free, **self._bind_bounds(objective))

    def scores(self, z: Float[Array, "d"]) -> Float[Array, "units"]:
        return self.gains(z)

    def occupied(self, x: Float[Array, "d"]) -> Bool[Array, "units"]:
        return x[: x.shape[0] - self.n_free] != 0

    def entries(self, x: Float[Array, "d"], support: Support) -> Support:
        return support


class Sparsity(AbstractSparsity):
    """At most k nonzero coefficients: {w : ||w||_0 <= k, lower <= w <= upper}, with kept coordinates beside k.

    Called on z, it keeps the k coordinates whose keeping lowers the distance to z most, clipped to the bounds: the
    Euclidean projection onto the set (the k largest magnitudes where there are no bounds).

    Bounds may leave out zero: then exactly k coefficients are within them, and the others zero.

    Args:
        k: number of coefficients, 0 <= k <= p - len(keep); an integer or a traced integer.
        k_max: static upper limit of k; one compiled program serves every k up to it. Default: the next power
            of two, at least 16.
        keep: indices (or a boolean mask) of features that are always in the support and not counted in k.
        lower: lower bounds, a scalar or (p,), in original units; 0 for coefficients that are not negative.
        upper: upper bounds, >= lower.

    Raises:
        ValueError: if k is negative, not an integer or too large, or a lower bound is above its upper one.

    Guarantee: the squared distance to a K-sparse target, K <= k, grows by a factor of at most
    1 + (rho + sqrt((4 + rho) rho)) / 2 with rho = K / k, which is 2.62 for k = K and tends to 1 as k grows ([Tight]
    Theorem 1; without bounds).
    """

    def __init__(
        self,
        k: ArrayLike,
        k_max: int | None = None,
        keep: ArrayLike | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ):
        self._fill(k, k_max, keep, lower, upper)
