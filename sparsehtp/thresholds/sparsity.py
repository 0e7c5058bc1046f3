"""At most k nonzero entries, with kept entries, bounds and signs."""

from __future__ import annotations

from typing import Self

from jaxtyping import Array, Bool, Float

from .._types import ArrayLike, Support
from .base import Bindable
from .bounded import AbstractBoundedUnits


class AbstractSparsity(AbstractBoundedUnits):
    """Shared form of `Sparsity`, `OffDiagonal` and `Simplex`."""

    kind = "entries"

    def bind(self, objective: Bindable) -> Self:
        return self._bound_to(objective, objective.n_coefficients, "features")

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
        self._fill(k, k_max, keep, lower, upper, gaps=True)
