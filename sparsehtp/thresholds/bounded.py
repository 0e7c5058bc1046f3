"""Bounds on the coefficients of the units that are kept."""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._types import AnyArray, ArrayLike, Support, is_concrete, replace
from ..linalg import Box
from .base import (
    AbstractSupportThreshold,
    AbstractUnitThreshold,
    Bindable,
    check_count,
    check_keep,
    check_keep_range,
    check_units,
)


class AbstractBounded(AbstractSupportThreshold):
    """A threshold of kept coefficients within bounds."""

    lower: Float[AnyArray, "..."] | None
    upper: Float[AnyArray, "..."] | None

    @property
    def bounded(self) -> bool:
        return self.lower is not None or self.upper is not None

    def _bind_bounds(self, objective: Bindable) -> dict[str, Array | None]:
        """Both bounds in the solver's units: scalars, or one value per coefficient."""
        if self.lower is None and self.upper is None:
            return {"lower": None, "upper": None}
        scale = objective.internal_scale()
        shape, p = tuple(objective.external_shape), objective.n_coefficients
        rows = len(shape) == 2 and shape[0] * shape[1] == p  # a matrix of coefficients

        def convert(name: str) -> Array | None:
            bound = getattr(self, name)
            if bound is None:
                return None
            xp = np if is_concrete(bound, scale) else jnp
            if rows and bound.shape in ((shape[0],), shape):
                bound = xp.broadcast_to(bound.reshape(shape[0], -1), shape).ravel()
            if bound.shape not in ((), (p,)):
                raise ValueError(f"{name}: needs a scalar or one value per feature ({shape[0]}), got {bound.shape}.")
            # 0 * inf is NaN: a constant column (scale zero) keeps its bound, its coefficient is zero anyway. Inwards by
            # the roundings of the way back, so that a coefficient in original units is within its bounds as well.
            if scale is not None:
                factor, eps = xp.where(scale > 0, scale, 1), 2 * jnp.finfo(objective.dtype).eps
                away = bound > 0 if name == "lower" else bound < 0
                bound = bound * factor * xp.where(factor == 1, 1, xp.where(away, 1 + eps, 1 - eps))
            return bound.astype(objective.dtype)

        return {name: convert(name) for name in ("lower", "upper")}

    def clip(self, z: Float[Array, "d"]) -> Float[Array, "d"]:
        """z moved into the bounds."""
        if self.lower is None and self.upper is None:
            return z
        p = z.shape[0] - self.n_free
        return jnp.concatenate([self._into_bounds(z[:p]), z[p:]])

    def _into_bounds(self, z: Float[Array, "p"]) -> Float[Array, "p"]:
        # Cast: the bounds of a threshold that is not bound to an objective are NumPy float64.
        lower, upper = (None if bound is None else bound.astype(z.dtype) for bound in (self.lower, self.upper))
        return jnp.clip(z, lower, upper)

    def gains(self, z: Float[Array, "d"]) -> Float[Array, "p"]:
        """For every coefficient the root of twice the decrease in squared distance to z from keeping it."""
        z = z[: z.shape[0] - self.n_free]
        if self.lower is None and self.upper is None:
            return jnp.abs(z)
        # z^2 - (z - c)^2 = c (2 z - c) is the gain of keeping; roots apart, so that small values do not underflow.
        c = self._into_bounds(z)
        size = jnp.sqrt(jnp.abs(c)) * jnp.sqrt(jnp.abs(2 * z - c))
        size = jnp.where((c > 0) == (2 * z > c), size, -size)
        return size - jnp.minimum(jnp.nanmin(size), 0)  # a cost, where bounds leave out zero, is the least of gains

    def box(self, entries: Support) -> Box:
        held = self._held(entries)

        def at(bound: AnyArray | None, infinite: float) -> Float[Array, "m"] | None:
            if bound is None:
                return None
            if bound.ndim:
                bound = jnp.asarray(bound)[jnp.minimum(entries.idx, bound.shape[0] - 1)]
            return jnp.where(held, bound, infinite)

        return Box(at(self.lower, -jnp.inf), at(self.upper, jnp.inf))

    def _held(self, entries: Support) -> Bool[Array, "m"]:
        """The entries that are neither padding nor free: these lead a support and have the highest indices of x."""
        return entries.mask & (entries.idx < entries.idx[0]) if self.n_free else entries.mask

    def free_gradient(self, x: Float[Array, "d"], grad: Float[Array, "d"]) -> Float[Array, "d"]:
        p = x.shape[0] - self.n_free
        outwards = jnp.zeros(p, bool)
        if self.lower is not None:
            outwards |= (x[:p] <= self.lower) & (grad[:p] > 0)
        if self.upper is not None:
            outwards |= (x[:p] >= self.upper) & (grad[:p] < 0)
        return grad.at[:p].set(jnp.where(outwards, 0, grad[:p]))


class AbstractBoundedUnits(AbstractBounded, AbstractUnitThreshold):
    """At most k units of coefficients within bounds, beside the kept ones."""

    k: Int[AnyArray, ""]
    keep: Int[AnyArray, "n_keep"]
    k_max: int | None = eqx.field(static=True)
    n_free: int = eqx.field(static=True)

    def _fill(
        self,
        k: ArrayLike,
        k_max: int | None,
        keep: ArrayLike | None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        gaps: bool = False,
    ) -> None:
        """Check and keep the arguments; with `gaps` bounds may leave out zero."""
        self.k = check_count("k", k)
        self.k_max = k_max if k_max is None else int(check_count("k_max", k_max))
        self.keep = check_keep(keep)
        self.lower, self.upper = check_bounds(lower, upper, gaps)
        self.n_free = 0

    def _bound_to(self, objective: Bindable, units: int, what: str) -> Self:
        """This threshold for an objective with so many units."""
        check_keep_range(self.keep, units, what)
        k_max = check_units("k", self.k, self.k_max, self.keep.shape[0], units, what, self.least_k_max)
        return replace(self, k_max=k_max, n_free=objective.n_free, **self._bind_bounds(objective))


def check_bounds(
    lower: ArrayLike | None, upper: ArrayLike | None, gaps: bool = False
) -> tuple[AnyArray | None, AnyArray | None]:
    """The bounds as arrays, or ValueError; with `gaps` they may leave out zero."""
    bounds: list[AnyArray | None] = [
        None if bound is None else floats(name, bound) for name, bound in (("lower", lower), ("upper", upper))
    ]
    for name, bound, sign in zip(("lower", "upper"), bounds, (1, -1), strict=True):
        if bound is None or not is_concrete(bound):
            continue
        if gaps and not np.all(sign * np.asarray(bound) < np.inf):
            raise ValueError(f"{name}: needs numbers, neither NaN nor {sign * np.inf}, got {bound}.")
        if not gaps and not np.all(sign * np.asarray(bound) <= 0):
            raise ValueError(f"{name}: needs lower <= 0 <= upper, since every coefficient may be zero; got {bound}.")
    low, high = bounds
    if (
        low is not None
        and high is not None
        and is_concrete(low, high)
        and (low.shape == high.shape or not (low.ndim and high.ndim))
    ):
        if not np.all(np.asarray(low) <= np.asarray(high)):
            raise ValueError(f"lower: needs lower <= upper, got {low} and {high}.")
    if all(bound is not None and is_concrete(bound) and not np.any(bound) for bound in bounds):
        raise ValueError("bounds: lower and upper are both 0, which leaves no model; widen one of them.")
    return bounds[0], bounds[1]


def floats(name: str, values: ArrayLike) -> AnyArray:
    """An array of floats, or ValueError; NumPy keeps concrete ones concrete inside jit."""
    try:
        return np.asarray(values, float) if is_concrete(values) else jnp.asarray(values, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: needs numbers, got {values!r}.") from None


def norms(values: Float[Array, "units size"]) -> Float[Array, "units"]:
    """Euclidean norms of rows of values >= 0, scaled so that squares neither overflow nor underflow."""
    largest = jnp.max(values, axis=1)
    safe = jnp.where(largest > 0, largest, 1)
    return largest * jnp.sqrt(jnp.sum((values / safe[:, None]) ** 2, axis=1))
