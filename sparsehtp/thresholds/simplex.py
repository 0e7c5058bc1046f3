"""At most k positive entries with a given sum: portfolios and mixtures."""

from typing import Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import AnyArray, ArrayLike, DType, Support, is_concrete, replace
from ..linalg import Box, Plane
from .base import Bindable
from .sparsity import AbstractSparsity


class Simplex(AbstractSparsity):
    """At most k positive coefficients with a given sum: {w : w >= 0, sum_j w_j = total, ||w||_0 <= k}.

    Called on z it keeps the k largest entries, by value and not by magnitude, and projects them onto the simplex: the
    Euclidean projection onto the set. A refit minimises F over the simplex of the support's coefficients. Since w = 0
    is not in the set, `IHT`, `HTP` and the like start from the projection of x0, equal weights on the first k features
    where there is none; the default solver adds features one by one.

    The sum is that of coefficients in original units, an intercept apart. With `LinearModel(standardize=True)` the
    ranking is that of standardised coefficients, as for `Sparsity`; the projection is then onto the simplex of the k
    largest, which need not be the nearest ones.

    Args:
        k: number of positive coefficients at most, 1 <= k <= p - len(keep) (0 with `keep`); an integer or a traced
            integer.
        total: the sum, > 0.
        k_max: static upper limit of k; one compiled program serves every k up to it. Default: the next power
            of two, at least 16.
        keep: indices (or a boolean mask) of features that are always in the support and not counted in k.

    Raises:
        ValueError: if k leaves no coefficient, is negative, not an integer or too large, or if total is not positive.

    Source: Kyrillidis, Becker, Cevher and Koch (2013).
    """

    total: Float[AnyArray, ""]
    normal: Float[Array, "p"] | None  # of the sum, in the solver's units; None: ones

    summed = True
    bounded = True

    def __init__(self, k: ArrayLike, total: ArrayLike = 1.0, k_max: int | None = None, keep: ArrayLike | None = None):
        self._fill(k, k_max, keep, 0.0, None)
        self.total = np.asarray(total, float) if is_concrete(total) else jnp.asarray(total, float)
        self.normal = None
        if self.total.shape != ():
            raise ValueError(f"total: needs a number, got shape {self.total.shape}.")
        if is_concrete(self.total) and not (np.isfinite(self.total) and self.total > 0):
            raise ValueError(f"total: needs a number > 0, got {self.total}; flip the signs of the data for negatives.")
        if is_concrete(self.k) and np.min(self.k) < self.fewest:
            raise ValueError(f"k: a sum of {self.total} needs at least one coefficient, got k = 0; raise k.")

    @property
    def fewest(self) -> int:
        return 0 if self.keep.shape[0] else 1

    def bind(self, objective: Bindable) -> Self:
        bound, scale = super().bind(objective), objective.internal_scale()
        if scale is not None:
            xp = np if is_concrete(scale) else jnp
            scale = xp.where(scale > 0, 1 / xp.where(scale > 0, scale, 1), 0).astype(objective.dtype)
        return replace(bound, total=self.total.astype(objective.dtype), normal=scale)

    def scores(self, z: Float[Array, "d"]) -> Float[Array, "units"]:
        z = z[: z.shape[0] - self.n_free]
        return z - jnp.nanmin(z)  # a NaN stays alone

    def select(self, scores: Float[Array, "units"], factor: int = 1) -> Support:
        # A column without a scale (a constant one beside an intercept) has no part in the sum.
        return super().select(scores if self.normal is None else jnp.where(self.normal > 0, scores, -1), factor)

    def placed(self, z: Float[Array, "d"], support: Support) -> Float[Array, "d"]:
        part = jnp.where(support.mask, z[support.idx], 0)
        part = self._plane(support, z.dtype).nearest(part)
        return self.clip(jnp.zeros_like(z).at[support.idx].add(jnp.where(support.mask, part, 0)))

    def box(self, entries: Support) -> Box:
        return super().box(entries)._replace(plane=self._plane(entries, self.total.dtype))

    def _plane(self, entries: Support, dtype: DType) -> Plane:
        held = entries.mask & (entries.idx < self._first_free(entries))
        normal = 1 if self.normal is None else jnp.asarray(self.normal)[jnp.minimum(entries.idx, self.normal.size - 1)]
        return Plane(jnp.where(held, normal, 0).astype(dtype), self.total.astype(dtype))

    def free_gradient(self, x: Float[Array, "d"], grad: Float[Array, "d"]) -> Float[Array, "d"]:
        p = x.shape[0] - self.n_free
        normal = jnp.ones(p, x.dtype) if self.normal is None else self.normal
        plane = Plane(normal, self.total)
        return super().free_gradient(x, grad.at[:p].add(-plane.multiplier(x[:p], grad[:p]) * normal))
