"""Points of a search over subsets (a support with its refit), and the working sets that they are sought in."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from .._types import Support
from ..linalg import dot, masked_factor, top_k
from ..linalg.tableau import Tableau, tableau_at
from .htp import refit
from .subset_search import best_swap

GRAM_BYTES = 2**30  # of the Gram columns of a support, up to which a sparse design scores all swaps at once
BLOCK = 4096  # features that are scored at a time


class Point(NamedTuple):
    """A refit on the first `size` features of idx."""

    idx: Int[Array, "m"]
    size: Array
    x: Array
    value: Array
    fault: Array


class Pool(NamedTuple):
    """The objective over a working set of features (None: over all), whose positions stand for indices."""

    objective: Any
    features: Array | None

    def inward(self, point: Point, p: int) -> Point:
        """A point on the full objective as one of the working set."""
        if self.features is None:
            return point
        where = jnp.zeros(p, jnp.int32).at[self.features].set(jnp.arange(self.features.shape[0], dtype=jnp.int32))
        return point._replace(idx=where[point.idx], x=jnp.concatenate([point.x[self.features], point.x[p:]]))

    def outward(self, point: Point, p: int) -> Point:
        """A point of the working set as one on the full objective."""
        if self.features is None:
            return point
        width = self.features.shape[0]
        x = jnp.zeros(p, point.x.dtype).at[self.features].set(point.x[:width])
        return point._replace(idx=self.features[point.idx], x=jnp.concatenate([x, point.x[width:]]))


def kept_point(objective: Any, threshold: Any, rows: int) -> Point:
    """The refit on the free and the kept features."""
    locked = threshold.keep.shape[0]
    idx = jnp.zeros(rows, jnp.int32).at[:locked].set(threshold.keep)
    zero = jnp.zeros(objective.n_coefficients + objective.n_free, objective.dtype)
    return fitted(objective, threshold, idx, jnp.int32(locked), zero)


def support_of(objective: Any, point: Point) -> Support:
    """The support of a point, the free entries first."""
    p, free = objective.n_coefficients, objective.n_free
    idx = jnp.concatenate([p + jnp.arange(free, dtype=jnp.int32), point.idx])
    return Support(idx, jnp.arange(idx.shape[0]) < free + point.size)


def fitted(objective: Any, threshold: Any, idx: Int[Array, "m"], size: Array, start: Array) -> Point:
    """The refit of the first `size` features of idx."""
    point = Point(idx, size, start, jnp.zeros((), start.dtype), jnp.int32(0))
    support = support_of(objective, point)
    x, fault = refit(objective, threshold, support, start)
    return point._replace(x=x, value=objective.value(x, support), fault=fault)


def best_fitted(
    objective: Any, threshold: Any, candidates: Int[Array, "candidates m"], size: Array, start: Array
) -> Point:
    """The best of several refits."""
    points = jax.vmap(lambda idx: fitted(objective, threshold, idx, size, start))(candidates)
    i = jnp.argmin(jnp.where(jnp.isfinite(points.value), points.value, jnp.inf))
    return jax.tree.map(lambda a: a[i], points)


def with_rows(point: Point, rows: int) -> Point:
    """A point with another number of rows, all beyond its size being padding."""
    idx = point.idx[:rows]
    return point._replace(idx=jnp.pad(idx, (0, rows - idx.shape[0])))


def tableau_of(equations: Any, point: Point) -> Tableau:
    """The tableau at a point, from the data."""
    return tableau_at(equations, point.idx, point.size)


def gradient_pool(objective: Any, point: Point, width: int | None) -> Pool:
    """The chosen features and those with the largest decrease of F in their own coefficient, at the point."""
    if width is None:
        return Pool(objective, None)
    p = objective.n_coefficients
    equations = objective.normal_equations(point.x)
    _, grad = objective.value_and_grad(point.x, support_of(objective, point))
    scores = grad[:p] ** 2 / jnp.where(equations.diagonal > 0, equations.diagonal, jnp.inf)
    active = jnp.arange(point.idx.shape[0]) < point.size
    features = top_k(scores.at[point.idx].max(jnp.where(active, jnp.inf, 0)), width)
    return Pool(objective.subset(features), features)


def swap_pool(objective: Any, threshold: Any, point: Point, width: int) -> Pool:
    """The chosen features and those of the best swaps, found in a scan over blocks of features."""
    p, rows = objective.n_coefficients, point.idx.shape[0]
    active = jnp.arange(rows) < point.size
    chosen = jnp.zeros(p, bool).at[point.idx].max(active)
    if objective.sparse and rows * p * jnp.dtype(objective.dtype).itemsize <= GRAM_BYTES:
        scores = _swap_scores(objective, threshold, point, chosen)
        features = top_k(jnp.where(chosen, jnp.inf, scores), width)
        return Pool(objective.subset(features), features)
    block = max(width - rows, 1)

    def gains(first):
        others = jnp.minimum(first + jnp.arange(block, dtype=jnp.int32), p - 1)
        both = objective.subset(jnp.concatenate([point.idx, others]))
        here = point._replace(
            idx=jnp.arange(rows, dtype=jnp.int32),
            x=jnp.concatenate([jnp.where(active, point.x[point.idx], 0), jnp.zeros(block, point.x.dtype), point.x[p:]]),
        )
        t = tableau_of(both.normal_equations(here.x), here)
        return others, best_swap(t, threshold.keep.shape[0])[3][rows:]

    others, best = lax.map(gains, jnp.arange(0, p, block, dtype=jnp.int32))
    scores = jnp.full(p, -jnp.inf, best.dtype).at[others.ravel()].max(best.ravel())
    features = top_k(jnp.where(chosen, jnp.inf, scores), width)
    return Pool(objective.subset(features), features)


def _swap_scores(objective, threshold, point, chosen):
    """The gain of the best swap of every feature, from one block of Gram columns."""
    equations = objective.normal_equations(point.x)
    p, rows = objective.n_coefficients, point.idx.shape[0]
    active = jnp.arange(rows) < point.size
    K = jnp.where(active[:, None], equations.columns(point.idx), 0)
    G = jnp.where(active, K[:, point.idx], 0)
    inverse = masked_factor((G + G.T) / 2, active).inverse(K.dtype)
    c = dot(inverse, jnp.where(active, equations.rhs[point.idx], 0))
    block = min(BLOCK, p)

    eps, tiny = jnp.finfo(K.dtype).eps, jnp.finfo(K.dtype).tiny

    def gains(first):
        first = jnp.minimum(first, p - block)  # the last block overlaps the one before
        features = first + jnp.arange(block, dtype=jnp.int32)
        part = lax.dynamic_slice_in_dim(K, first, block, axis=1)
        H, diagonal = dot(inverse, part), equations.diagonal[features]
        t = Tableau(
            idx=point.idx,
            size=point.size,
            inverse=inverse,
            H=H,
            c=c,
            g=equations.rhs[features] - dot(c, part),
            q=diagonal - jnp.sum(part * H, axis=0),
            value=equations.constant,
            chosen=chosen[features],
            floor=jnp.maximum(100 * eps * diagonal, tiny),
            block=features,
            columns=part,
        )
        return features, best_swap(t, threshold.keep.shape[0])[3]

    features, best = lax.map(gains, jnp.arange(0, p, block, dtype=jnp.int32))
    return jnp.full(p, -jnp.inf, best.dtype).at[features.ravel()].max(best.ravel())
