"""At most k nonzero entries, with kept entries, bounds and signs."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._types import ArrayLike, Support, is_concrete, replace
from ..linalg import Box
from .base import AbstractUnitThreshold, check_count, check_keep, check_keep_range, check_units


class AbstractSparsity(AbstractUnitThreshold):
    """Shared form of `Sparsity` and `NonNegativeSparsity`."""

    k: Int[Array, ""] | int
    keep: Int[ArrayLike, "n_keep"]
    lower: Float[Array, ""] | Float[Array, "p"] | None
    upper: Float[Array, ""] | Float[Array, "p"] | None
    k_max: int | None = eqx.field(static=True)
    n_free: int = eqx.field(static=True)

    unit = "entries"

    @property
    def structure(self) -> str:
        return "entries" if self.lower is None and self.upper is None else "bounded entries"

    def _fill(
        self, k: ArrayLike, k_max: int | None, keep: Any, lower: ArrayLike | None, upper: ArrayLike | None
    ) -> None:
        self.k = check_count("k", k)
        self.k_max = k_max if k_max is None else int(check_count("k_max", k_max))
        self.keep = check_keep(keep)
        self.lower = None if lower is None else _floating(lower)
        self.upper = None if upper is None else _floating(upper)
        self.n_free = 0
        for name, bound, sign in (("lower", self.lower, 1), ("upper", self.upper, -1)):
            if bound is not None and is_concrete(bound) and not np.all(sign * np.asarray(bound) <= 0):
                raise ValueError(
                    f"{name}: needs lower <= 0 <= upper, since every coefficient may be zero; got {bound}."
                )

        if self.lower is not None and self.upper is not None and is_concrete(self.lower, self.upper):
            if not np.any(self.lower) and not np.any(self.upper):
                raise ValueError("bounds: lower and upper are both 0, which leaves no model; widen one of them.")

    def bind(self, objective: Any) -> Self:
        p = objective.n_coefficients
        check_keep_range(self.keep, p, "features")
        k_max = check_units("k", self.k, self.k_max, self.keep.shape[0], p, "features")
        scale = objective.internal_scale()

        def convert(name: str) -> Array | None:
            bound = getattr(self, name)
            if bound is None:
                return None
            if bound.shape not in ((), (p,)):
                raise ValueError(f"{name}: needs a scalar or one value per feature ({p}), got shape {bound.shape}.")
            bound = bound.astype(objective.dtype)
            # 0 * inf is NaN: a constant column (scale zero) keeps its bound, its coefficient is zero anyway.
            return bound if scale is None else jnp.where(scale > 0, bound * jnp.where(scale > 0, scale, 1), bound)

        fields = {"k_max": k_max, "n_free": objective.n_free, "lower": convert("lower"), "upper": convert("upper")}
        return replace(self, **fields)

    def scores(self, z: Float[Array, "d"]) -> Float[Array, "units"]:
        z = z[: z.shape[0] - self.n_free]
        if self.lower is None and self.upper is None:
            return jnp.abs(z)
        # z^2 - (z - c)^2 = c (2 z - c) is the gain of keeping; roots apart, so that small values do not underflow.
        c = self._into_bounds(z)
        return jnp.sqrt(jnp.abs(c)) * jnp.sqrt(jnp.abs(2 * z - c))

    def entries(self, x: Float[Array, "d"], support: Support) -> Support:
        return support

    def clip(self, z: Float[Array, "d"]) -> Float[Array, "d"]:
        if self.lower is None and self.upper is None:
            return z
        p = z.shape[0] - self.n_free
        return jnp.concatenate([self._into_bounds(z[:p]), z[p:]])

    def _into_bounds(self, z: Float[Array, "p"]) -> Float[Array, "p"]:
        # Cast: the bounds of a threshold that is not bound to an objective are NumPy float64.
        lower, upper = (None if bound is None else bound.astype(z.dtype) for bound in (self.lower, self.upper))
        return jnp.clip(z, lower, upper)

    def box(self, entries: Support) -> Box:
        return Box(self._bound(self.lower, -jnp.inf, entries), self._bound(self.upper, jnp.inf, entries))

    def _bound(self, bound: Array | None, infinite: float, entries: Support) -> Float[Array, "m"] | None:
        if bound is None:
            return None
        first = entries.idx < self._first_free(entries)
        if bound.ndim:
            bound = bound[jnp.minimum(entries.idx, bound.shape[0] - 1)]
        return jnp.where(first, bound, infinite)

    def _first_free(self, entries: Support) -> Int[Array, ""] | int:
        # The free entries lead a support and have the highest indices of x.
        return entries.idx[0] if self.n_free else jnp.iinfo(jnp.int32).max

    def free_gradient(self, x: Float[Array, "d"], grad: Float[Array, "d"]) -> Float[Array, "d"]:
        p = x.shape[0] - self.n_free
        outwards = jnp.zeros(p, bool)
        if self.lower is not None:
            outwards |= (x[:p] <= self.lower) & (grad[:p] > 0)
        if self.upper is not None:
            outwards |= (x[:p] >= self.upper) & (grad[:p] < 0)
        return grad.at[:p].set(jnp.where(outwards, 0, grad[:p]))


class Sparsity(AbstractSparsity):
    """At most k nonzero coefficients: {w : ||w||_0 <= k, lower <= w <= upper}, with kept coordinates beside k.

    Called on z, it keeps the k coordinates whose keeping lowers the distance to z most, clipped to the bounds: the
    Euclidean projection onto the set (the k largest magnitudes where there are no bounds).

    Args:
        k: number of coefficients, 0 <= k <= p - len(keep); an integer or a traced integer.
        k_max: static upper limit of k; one compiled program serves every k up to it. Default: the next power
            of two, at least 16.
        keep: indices (or a boolean mask) of features that are always in the support and not counted in k.
        lower: lower bounds, <= 0, a scalar or (p,), in original units.
        upper: upper bounds, >= 0.

    Raises:
        ValueError: if k is negative, not an integer or too large, or a bound excludes zero.

    Guarantee: with hard thresholding parameter k and a K-sparse target, the distance to the target grows by at most
    `hard_threshold_bound(k, K, p)` squared ([Tight] Theorem 1).
    """

    def __init__(
        self,
        k: ArrayLike,
        k_max: int | None = None,
        keep: Any = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ):
        self._fill(k, k_max, keep, lower, upper)


class NonNegativeSparsity(AbstractSparsity):
    """At most k nonzero coefficients, all >= 0: {w : ||w||_0 <= k, 0 <= w <= upper}.

    Arguments and errors are those of `Sparsity`.
    """

    def __init__(
        self,
        k: ArrayLike,
        k_max: int | None = None,
        keep: Any = None,
        upper: ArrayLike | None = None,
    ):
        self._fill(k, k_max, keep, 0.0, upper)


def _floating(bound: ArrayLike) -> Any:
    # NumPy keeps concrete bounds concrete inside jit.
    return np.asarray(bound, float) if is_concrete(bound) else jnp.asarray(bound, float)


def hard_threshold_bound(k: int, K: int, p: int, r: int | None = None) -> float:
    """The tight expansion factor nu of hard thresholding: ||H_k(b) - x||^2 <= nu ||b - x||^2 for every K-sparse x.

        nu = 1 + (rho + sqrt((4 + rho) rho)) / 2,    rho = min(K, p - k) / (k - K + min(K, p - k))

    The bound is attained (Remark 5); its largest value is 2.618 at rho = 1, and it tends to 1 as k grows.

    Args:
        k: entries that are kept, K <= k <= p.
        K: sparsity of the target x.
        p: dimension.
        r: sparsity of b if it is known; then min(K, max(r - k, 0)) stands for min(K, p - k).

    Raises:
        ValueError: unless 0 < K <= k <= p.

    Source: [Tight] Theorem 1.
    """
    if not 0 < K <= k <= p:
        raise ValueError(f"k, K, p: need 0 < K <= k <= p, got k={k}, K={K}, p={p}.")
    m = min(K, p - k) if r is None else min(K, max(r - k, 0))
    if m == 0:
        return 1.0
    rho = m / (k - K + m)
    return 1 + (rho + np.sqrt((4 + rho) * rho)) / 2
