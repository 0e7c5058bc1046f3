"""At most k groups of features."""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._types import AnyArray, ArrayLike, Support, check_finite, is_concrete, replace
from ..linalg import top_k
from .base import Bindable, check_count
from .bounded import AbstractBoundedUnits, norms


class GroupSparsity(AbstractBoundedUnits):
    """At most k groups with nonzero coefficients: {w : #{g : w_g != 0} <= k}.

    Called on z it keeps the k groups with the largest Euclidean norm (of their `within` largest entries, if given; with
    bounds, those whose keeping lowers the distance to z most): the projection onto the set. With several responses a
    group holds all coefficients of its features.

    Args:
        groups: (p,) group label of every feature, concrete; labels are numbered in sorted order.
        k: number of groups, an integer or a traced integer.
        k_max: static upper limit of k. Default: the next power of two.
        keep: numbers (or a boolean mask) of groups that are always kept and not counted in k.
        within: at most this many nonzero coefficients in each chosen group; None: no limit.
        lower: lower bounds of the coefficients, <= 0, a scalar or (p,), in original units.
        upper: upper bounds, >= 0.

    Raises:
        ValueError: if groups is not one concrete label per feature, or k is negative, not an integer or too large,
            or a bound excludes zero.
    """

    table: Int[AnyArray, "groups size"]  # features of each group, padded
    filled: Bool[AnyArray, "groups size"]
    n_features: int = eqx.field(static=True)
    within: int | None = eqx.field(static=True)

    kind = "groups"
    noun = "group"
    least_k_max = 1  # groups may be large

    def __init__(
        self,
        groups: ArrayLike,
        k: ArrayLike,
        k_max: int | None = None,
        keep: ArrayLike | None = None,
        within: int | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ):
        if not is_concrete(groups) or np.ndim(groups) != 1 or np.size(groups) == 0:
            raise ValueError("groups: needs a concrete one-dimensional array with one label per feature.")
        check_finite("groups", np.asarray(groups), remedy="give every feature a label")
        self._fill(k, k_max, keep, lower, upper)
        if within is not None and (int(check_count("within", within)) < 1):
            raise ValueError("within: must be at least 1; use k=0 for no coefficients at all.")
        self.within = within
        _, number = np.unique(np.asarray(groups), return_inverse=True)
        counts = np.bincount(number)
        table = np.zeros((counts.size, counts.max()), np.int32)
        filled = np.arange(counts.max()) < counts[:, None]
        table[filled] = np.argsort(number, kind="stable")
        self.table, self.filled = table, filled
        self.n_features = number.size

    def bind(self, objective: Bindable) -> Self:
        p, n_features = objective.external_shape[0], objective.n_coefficients
        if self.n_features not in (p, n_features):
            raise ValueError(f"groups: needs one label per feature ({p}), got {self.n_features}.")
        each = n_features // self.n_features  # coefficients of a feature: the responses
        table = (self.table[:, :, None] * each + np.arange(each, dtype=np.int32)).reshape(len(self.table), -1)
        sizes = {"table": table, "filled": np.repeat(self.filled, each, axis=1), "n_features": n_features}
        return replace(self._bound_to(objective, self.table.shape[0], "groups"), **sizes)

    @property
    def exchangeable(self) -> bool:
        return self.within is None

    @property
    def entries_per_unit(self) -> int:
        return self.table.shape[1]

    def scores(self, z: Float[Array, "d"]) -> Float[Array, "units"]:
        values = jnp.where(self.filled, self.gains(z)[self.table], 0)
        if self.within is not None and self.within < values.shape[1]:
            values = jnp.sort(values)[:, values.shape[1] - self.within :]
        return norms(values)

    def clip(self, z: Float[Array, "d"]) -> Float[Array, "d"]:
        within, clipped = self.within, super().clip(z)
        if within is None or within >= self.table.shape[1]:
            return clipped
        values = jnp.where(self.filled, self.gains(z)[self.table], -1)
        best = jax.vmap(lambda row: top_k(row, within))(values)
        rows = jnp.arange(values.shape[0])[:, None]
        chosen = jnp.zeros(values.shape, bool).at[rows, best].set(True) & self.filled
        keep = jnp.zeros(z.shape[0], jnp.int32).at[self.table].add(chosen.astype(jnp.int32)) > 0
        free = jnp.arange(z.shape[0]) >= z.shape[0] - self.n_free
        return jnp.where(keep | free, clipped, 0)

    def entries(self, x: Float[Array, "d"], support: Support) -> Support:
        size = self.table.shape[1]
        p = self.n_features
        free = jnp.zeros((self.n_free, size), jnp.int32).at[:, 0].set(p + jnp.arange(self.n_free, dtype=jnp.int32))
        table = jnp.concatenate([self.table, free])
        filled = jnp.concatenate([self.filled, jnp.zeros((self.n_free, size), bool).at[:, 0].set(True)])
        idx = table[support.idx].ravel()
        mask = (filled[support.idx] & support.mask[:, None]).ravel()
        if self.within is not None:
            mask &= (x[idx] != 0) | (idx >= p)
        return Support(idx, mask)
