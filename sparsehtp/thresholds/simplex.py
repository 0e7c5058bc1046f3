"""At most k entries with a given sum: portfolios, mixtures and contrasts."""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import AnyArray, ArrayLike, DType, Support, is_concrete, replace
from ..linalg import Box, Plane, SignedPlane
from .base import Bindable
from .bounded import floats
from .sparsity import AbstractSparsity


class Simplex(AbstractSparsity):
    """At most k positive coefficients with a given sum: {w : w >= 0, a'w = total, ||w||_0 <= k}; or of any sign.

    Called on z it keeps the k largest entries, by value and not by magnitude, and projects them onto the simplex; for
    coefficients of any sign the largest and smallest ones that leave z nearest. That is the Euclidean projection onto
    the set where a is one. A refit minimises F over the simplex of the support's coefficients. Since w = 0
    is not in the set, `IHT`, `HTP` and the like start from the projection of x0, equal weights on the first k features
    where there is none; the default solver adds features one by one.

    The sum is that of coefficients in original units, an intercept apart. With `LinearModel(standardize=True)` the
    ranking is that of standardised coefficients, as for `Sparsity`; the projection is then onto the plane of these k,
    as it is for other weights than one, which need not be the nearest ones.

    Args:
        k: number of nonzero coefficients at most, 1 <= k <= p - len(keep) (0 with `keep`); an integer or a traced
            integer.
        total: the sum, > 0, or any number if not `positive`: with 0 there may be no coefficients at all.
        k_max: static upper limit of k; one compiled program serves every k up to it. Default: the next power
            of two, at least 16.
        keep: indices (or a boolean mask) of features that are always in the support and not counted in k.
        positive: False for coefficients of any sign.
        weights: (p,) the a_j of the sum, > 0 if `positive`, else not 0 unless the total is. None: ones.

    Raises:
        ValueError: if k leaves no coefficient, is negative, not an integer or too large, or for a total or weights out
            of range.

    Source: Kyrillidis, Becker, Cevher and Koch (2013).
    """

    total: Float[AnyArray, ""]
    weights: Float[AnyArray, "p"] | None
    normal: Float[Array, "p"] | None  # of the sum, in the solver's units; None: ones
    positive: bool = eqx.field(static=True)
    empty: bool = eqx.field(static=True)  # no coefficients have that sum, too

    summed = True
    bounded = True

    def __init__(
        self,
        k: ArrayLike,
        total: ArrayLike = 1.0,
        k_max: int | None = None,
        keep: ArrayLike | None = None,
        *,
        positive: bool = True,
        weights: ArrayLike | None = None,
    ):
        self._fill(k, k_max, keep, 0.0 if positive else None)
        self.total = floats("total", total)
        self.weights = None if weights is None else floats("weights", weights)
        self.normal, self.positive = None, positive
        if self.total.shape != ():
            raise ValueError(f"total: needs a number, got shape {self.total.shape}.")
        known = is_concrete(self.total)
        if known and not np.isfinite(self.total):
            raise ValueError(f"total: needs a finite number, got {self.total}.")
        if known and positive and self.total <= 0:
            raise ValueError(f"total: needs a number > 0, got {self.total}; flip the signs of the data for negatives.")
        self.empty = bool(known and self.total == 0)
        if self.weights is not None:
            self._check_weights(self.weights)
        if is_concrete(self.k) and np.min(self.k) < self.fewest:
            raise ValueError(f"k: a sum of {self.total} needs at least one coefficient, got k = 0; raise k.")

    def _check_weights(self, weights: AnyArray) -> None:
        if weights.ndim != 1:
            raise ValueError(f"weights: needs one number per feature, got shape {weights.shape}.")
        if not is_concrete(weights):
            return
        if not np.isfinite(weights).all() or (self.positive and np.min(weights) <= 0):
            raise ValueError(f"weights: needs {'numbers > 0' if self.positive else 'finite numbers'}, got {weights}.")
        if not self.empty and not np.all(weights):
            raise ValueError("weights: a weight of 0 needs total=0, since features without weight have no sum.")

    @property
    def fewest(self) -> int:
        return 0 if self.keep.shape[0] or self.empty else 1

    def bind(self, objective: Bindable) -> Self:
        bound, scale, normal = super().bind(objective), objective.internal_scale(), self.weights
        if normal is not None and normal.shape != (objective.n_coefficients,):
            raise ValueError(f"weights: needs one number per feature ({objective.n_coefficients}), got {normal.shape}.")
        if scale is not None:
            xp = np if is_concrete(scale, normal) else jnp
            normal = xp.where(scale > 0, (1 if normal is None else normal) / xp.where(scale > 0, scale, 1), 0)
        normal = None if normal is None else normal.astype(objective.dtype)
        return replace(bound, total=self.total.astype(objective.dtype), normal=normal)

    def scores(self, z: Float[Array, "d"]) -> Float[Array, "units"]:
        z = z[: z.shape[0] - self.n_free]
        if self.positive:
            return z - jnp.nanmin(z)  # a NaN stays alone
        return jnp.abs(z) if self.weights is not None else self._extremes(z)

    def _extremes(self, z: Float[Array, "p"]) -> Float[Array, "p"]:
        """Scores by which the k entries rank first that leave z nearest, the i largest and k - i smallest ones.

        The squared distance of a support S is that of the entries outside, and (sum_S z - total)^2 / |S|. It is concave
        in the value of each entry of S, so that the least is at extremes.
        """
        p, keep, finite = z.shape[0], jnp.asarray(self.keep, jnp.int32), jnp.isfinite(z)
        # A common part changes no comparison: without it, and in units of the largest, squares lose nothing.
        u = jnp.where(finite, z - jnp.mean(z, where=finite), 0)
        largest = jnp.maximum(jnp.max(jnp.abs(u)), jnp.abs(self.total))
        unit = jnp.where(largest > 0, largest, 1)
        u, total = u / unit, self.total / unit
        open_, held = jnp.ones(p, bool).at[keep].set(False), u[keep]
        m, k = p - keep.shape[0], jnp.asarray(self.k)
        order = jnp.argsort(jnp.where(open_, -u, jnp.inf))[:m]
        down = u[order]
        sums, squares = (jnp.append(0, jnp.cumsum(a)) for a in (down, down**2))
        i = jnp.arange(m + 1)
        last = jnp.minimum(m - k + i, m)  # of the entries left outside
        sums, squares = (jnp.sum(a) + b + b[m] - b[last] for a, b in ((held, sums), (held**2, squares)))
        kept = squares - (sums - total) ** 2 / jnp.maximum(k + keep.shape[0], 1)
        most = jnp.argmax(jnp.where(i <= k, kept, -jnp.inf))
        high, low = down[jnp.minimum(most, m - 1)], down[jnp.maximum(last[most] - 1, 0)]
        distance, half = jnp.abs(u - (high + low) / 2), jnp.abs(high - low) / 2
        place = jnp.zeros(p, jnp.int32).at[order].set(jnp.arange(m, dtype=jnp.int32))
        chosen = open_ & ((place < most) | (place >= last[most]))
        first = jnp.maximum(distance, half) * (1 + 4 * jnp.finfo(z.dtype).eps) + jnp.finfo(z.dtype).tiny
        return jnp.where(finite, jnp.where(chosen, first, jnp.minimum(distance, half)) * unit, jnp.abs(z))

    def select(self, scores: Float[Array, "units"], factor: int = 1) -> Support:
        # A column without a scale (a constant one beside an intercept) has no part in the sum.
        if self.normal is None:
            return super().select(scores, factor)
        part = self.normal != 0
        if self.weights is not None:
            part |= self.weights == 0
        return super().select(jnp.where(part, scores, -1), factor)

    def placed(self, z: Float[Array, "d"], support: Support) -> Float[Array, "d"]:
        part = jnp.where(support.mask, z[support.idx], 0)
        part = self._plane(support, z.dtype).nearest(part)
        return self.clip(jnp.zeros_like(z).at[support.idx].add(jnp.where(support.mask, part, 0)))

    def box(self, entries: Support) -> Box:
        return super().box(entries)._replace(plane=self._plane(entries, self.total.dtype))

    def _plane(self, entries: Support, dtype: DType) -> Plane:
        normal = 1 if self.normal is None else jnp.asarray(self.normal)[jnp.minimum(entries.idx, self.normal.size - 1)]
        return self._of(jnp.where(self._held(entries), normal, 0).astype(dtype), self.total.astype(dtype))

    @property
    def _of(self) -> type[Plane]:
        return Plane if self.positive else SignedPlane

    def free_gradient(self, x: Float[Array, "d"], grad: Float[Array, "d"]) -> Float[Array, "d"]:
        p = x.shape[0] - self.n_free
        normal = jnp.ones(p, x.dtype) if self.normal is None else self.normal
        plane = self._of(normal, self.total)
        return super().free_gradient(x, grad.at[:p].add(-plane.multiplier(x[:p], grad[:p]) * normal))
