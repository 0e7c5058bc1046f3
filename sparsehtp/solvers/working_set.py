"""Working sets of features that a search over subsets is made in, refits in them, and what picks them."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from .._types import Support
from ..linalg import any_lane, dot, masked_factor
from ..linalg.tableau import Equations, Tableau, swap_gains
from ..objectives import AbstractRestrictable, GramEquations
from ..thresholds import AbstractUnitThreshold
from .refit import refit
from .search import Point, SearchState

BLOCK = 4096  # features whose swaps are scored at a time


class WorkingSet(NamedTuple):
    """The objective over a working set of features (None: over all), whose positions stand for indices, and which of
    them are kept."""

    objective: AbstractRestrictable
    features: Array | None
    keep: Array
    kept: Bool[Array, "w"]

    def inward(self, x: Array, p: int) -> Array:
        """Coefficients on the full objective as those of the working set."""
        return x if self.features is None else jnp.concatenate([x[self.features], x[p:]])

    def outward(self, point: Point, p: int) -> Point:
        """A point of the working set as one on the full objective; both are on the first `size` features of idx."""
        if self.features is None:
            return point
        width = self.features.shape[0]
        x = jnp.zeros(p, point.x.dtype).at[self.features].set(point.x[:width])
        idx, size = point.where
        return point._replace(where=(self.features[idx], size), x=jnp.concatenate([x, point.x[width:]]))

    def fitted(
        self, threshold: AbstractUnitThreshold, idx: Int[Array, "m"], start: Array, gram: Array | None = None
    ) -> Point:
        """The refit on the features of a tableau's rows, in the working set; of a quadratic F with their matrix."""
        rows = (idx >= 0) & ~self.kept[idx]
        locked, m = self.keep.shape[0], idx.shape[0]
        place = jnp.where(rows, locked - 1 + jnp.cumsum(rows, dtype=jnp.int32), m)
        size = locked + jnp.sum(rows, dtype=jnp.int32)
        if locked:  # a kept feature that depends on others is in no row: the data tell
            gram = None
        if gram is not None:
            source = jnp.zeros(m, jnp.int32).at[place].set(jnp.arange(m, dtype=jnp.int32), mode="drop")
            gram = gram[source][:, source]
        idx = jnp.zeros(m, jnp.int32).at[:locked].set(self.keep).at[place].set(idx, mode="drop")
        support = support_of(self.objective, idx, size)
        x, fault = refit(self.objective, threshold, support, start, gram=gram)
        return Point((idx, size), x, self.objective.value(x, support), fault)


def support_of(objective: AbstractRestrictable, idx: Int[Array, "m"], size: Array) -> Support:
    """The support of the first `size` features of idx, the free entries first."""
    p, free = objective.n_coefficients, objective.n_free
    idx = jnp.concatenate([p + jnp.arange(free, dtype=jnp.int32), idx])
    return Support(idx, jnp.arange(idx.shape[0]) < free + size)


def all_features(objective: AbstractRestrictable, threshold: AbstractUnitThreshold) -> WorkingSet:
    """All features."""
    keep = jnp.asarray(threshold.keep, jnp.int32)
    return WorkingSet(objective, None, keep, jnp.zeros(objective.n_coefficients, bool).at[keep].set(True))


def narrowed_to(
    objective: AbstractRestrictable, threshold: AbstractUnitThreshold, features: Int[Array, "w"]
) -> WorkingSet:
    """The given features, all kept ones among them."""
    whole = all_features(objective, threshold)
    position = jnp.zeros(objective.n_coefficients, jnp.int32)
    position = position.at[features].set(jnp.arange(features.shape[0], dtype=jnp.int32))
    return WorkingSet(objective.subset(features), features, position[whole.keep], whole.kept[features])


def gram_equations(equations: Equations) -> GramEquations:
    """Normal equations with their matrix."""
    A = equations.rows(jnp.arange(equations.rhs.shape[0], dtype=jnp.int32))
    return GramEquations(A, equations.rhs, equations.diagonal, equations.constant)


def alone(equations: Equations, grad: Array) -> Array:
    """Twice the decrease of F from moving each coefficient alone."""
    return grad**2 / jnp.where(equations.diagonal > 0, equations.diagonal, jnp.inf)


def promises(
    objective: AbstractRestrictable, threshold: AbstractUnitThreshold, state: SearchState, growing: Array
) -> Array:
    """How much every feature promises: alone where the support is to grow, else in its best swap."""
    equations = objective.normal_equations(state.x)
    single = alone(
        equations, jnp.where(jnp.isfinite(state.value), state.grad[: objective.n_coefficients], equations.rhs)
    )

    def swaps() -> Array:
        free = objective.n_free
        idx, mask = state.support.idx[free:], state.support.mask[free:]
        return swap_scores(equations, all_features(objective, threshold).kept, idx, mask)

    return jnp.where(growing, single, lax.cond(any_lane(~growing), swaps, lambda: single))


def swap_scores(equations: Equations, kept: Array, idx: Array, mask: Array) -> Array:
    """The gain of the best swap of every feature, from one block of Gram columns."""
    K = jnp.where(mask[:, None], equations.rows(idx), 0)
    p, dtype = K.shape[1], K.dtype
    G = K[:, idx]
    G = (G + G.T) / 2
    inverse = masked_factor(G, mask).inverse(dtype)
    c = dot(inverse, jnp.where(mask, equations.rhs[idx], 0))
    chosen = jnp.zeros(p, bool).at[idx].max(mask)
    block = min(BLOCK, p)

    def gains(first: Array) -> tuple[Array, Array]:
        first = jnp.minimum(first, p - block)  # the last block overlaps the one before
        features = first + jnp.arange(block, dtype=jnp.int32)
        part = lax.dynamic_slice_in_dim(K, first, block, axis=1)
        diagonal = equations.diagonal[features]
        t = Tableau(
            idx=jnp.where(mask, idx, -1),
            gram=G,
            inverse=inverse,
            H=dot(inverse, part),
            c=c,
            g=equations.rhs[features] - dot(c, part),
            q=diagonal,
            value=equations.constant,
            chosen=chosen[features],
            floor=jnp.maximum(100 * jnp.finfo(dtype).eps * diagonal, jnp.finfo(dtype).tiny),
            block=features,
            columns=part,
        )
        t = t._replace(q=diagonal - jnp.sum(part * t.H, axis=0))
        return features, jnp.max(swap_gains(t, mask & ~kept[idx]), axis=0)

    features, best = lax.map(gains, jnp.arange(0, p, block, dtype=jnp.int32))
    return jnp.full(p, -jnp.inf, dtype).at[features.ravel()].max(best.ravel())
