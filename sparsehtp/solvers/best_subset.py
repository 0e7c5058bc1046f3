"""Best subsets: forward growth, exact best swaps until none improves, and perturbed starts."""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._results import RESULTS
from .._termination import SwapOptimal
from .._tolerances import tolerance
from .._types import Support, is_concrete
from ..linalg import any_lane, top_k
from ..linalg.tableau import Tableau, empty_tableau, removal_losses, remove, resize, swap_gains
from ..objectives import AbstractRestrictable, GramEquations, gather
from ..objectives.base import DENSE_HESSIAN_LIMIT
from ..thresholds import Sparsity
from .base import AbstractPathSolver, Trail, report, where
from .subset_pool import (
    Point,
    Pool,
    best_fitted,
    fitted,
    gradient_pool,
    kept_point,
    support_of,
    swap_pool,
    tableau_of,
    with_rows,
)
from .subset_search import STRONGEST, best_swap, descend, grow, perturbed, swap_noise, working_set


class Effort(NamedTuple):
    """Perturbed starts per step, steps without improvement after which it stops, limit of steps, and the number of
    features that perturbed starts choose from (twice the support where that is more)."""

    starts: int
    patience: int
    max_steps: int
    width: int


EFFORTS = {
    "fast": Effort(0, 0, 50, 0),
    "default": Effort(8, 1, 100, 128),
    "thorough": Effort(64, 4, 400, 2048),
}
TABLEAU_BYTES = 2**28  # a tableau over all features larger than this gives way to a working set
WORKING_SET = 512  # features, or four times the support where that is more
SINGLES = 8  # swaps of a local model that are tried one by one, beside its descent
ROUNDS = 5  # descents per size of a path whose objective is not quadratic


class BestSubsetState(NamedTuple):
    """The best point so far with its gradient, and how the search for a better one stands."""

    x: Array
    support: Support
    value: Array
    grad: Array
    step_size: Array
    fault: Array
    gain: Array  # of the best remaining swap, in units of F
    local: Array  # no descent from here improves
    failures: Array  # steps of perturbed starts since the last improvement
    optimal: Array
    tableau: Tableau | None  # kept for a quadratic over all features
    stale: Array  # the tableau is not that of the support
    key: Array


class BestSubset(AbstractPathSolver):
    """The best k features found by forward growth, exact best swaps, and perturbed starts.

        min F(w) subject to ||w||_0 <= k,    kept features and the intercept apart

    Growth adds features one by one, each with the largest decrease of F. Then the best of all k (p - k) swaps, all
    coefficients optimised again, is made until none improves. Further steps perturb the best support in a batch of
    random ways within a working set, descend again, and keep what is better. For a loss that is not squared, gains
    are those of the local quadratic model, and every move is confirmed by a refit of F itself. Refits and gradients
    come from the data, so rounding in the updates never decides which support is returned.

    Args:
        effort: "fast" (no perturbed starts), "default" or "thorough".
        working_set: search among this many features at a time, renewed from the gradient as the support grows; a path
            is then swap-optimal within the working sets only, which suits cross-validation folds. None: all features,
            as long as the tableau of k p numbers fits in 256 MiB.

    Guarantee: if it says converged with a quadratic F, no single swap lowers F by more than the table's `swap`
    tolerance times |F|; for other losses, none of the best swaps of the local model does. Neither proves a global
    optimum. `path` gives the best support found for every k by a forward chain of growth and descents, and, unless the
    effort is "fast", a backward chain of removals and descents (quadratic F).

    Raises:
        ValueError: if effort is not one of the three, or for more than 2048 features.
        TypeError: for bounds, or a loss without a second derivative.

    Source: exact swaps as in full-swap inescapability, Hazimeh and Mazumder (2020), on updated normal equations.
    """

    effort: str = eqx.field(static=True)
    working_set: int | None = eqx.field(static=True)

    requires = AbstractRestrictable
    supports = (Sparsity,)
    needs_curvature = True

    def __init__(self, effort: str = "default", working_set: int | None = None):
        self.effort = effort
        self.working_set = working_set

    def __check_init__(self):
        if self.effort not in EFFORTS:
            raise ValueError(f"effort: must be one of {', '.join(EFFORTS)}, got {self.effort!r}.")
        if self.working_set is not None and self.working_set < 1:
            raise ValueError(f"working_set: must be at least 1, got {self.working_set}.")

    def check(self, objective, threshold):
        super().check(objective, threshold)
        if threshold.lower is not None or threshold.upper is not None:
            raise TypeError("threshold: BestSubset takes no bounds; use HTP for bounded coefficients.")
        if not self.holds(threshold):
            raise ValueError(
                f"k: BestSubset factorises dense Hessians, so that k_max and the kept features together are limited to "
                f"{DENSE_HESSIAN_LIMIT}; use HTP or GraSP for more, or lower k_max."
            )

    @staticmethod
    def holds(threshold: Sparsity) -> bool:
        """True unless the threshold chooses more features than a dense Hessian can hold."""
        if threshold.k_max is not None:
            k_max = threshold.k_max
        else:
            k_max = int(np.max(threshold.k)) if is_concrete(threshold.k) else 0
        return k_max + threshold.keep.shape[0] <= DENSE_HESSIAN_LIMIT

    @property
    def default_termination(self):
        return SwapOptimal()

    @property
    def default_max_steps(self):
        return EFFORTS[self.effort].max_steps

    # --- one k -------------------------------------------------------------------------------------------------------
    def init(self, objective, threshold, x0, key):
        p, locked = objective.n_coefficients, threshold.keep.shape[0]
        width = self._width(objective, threshold)
        rows = locked + threshold.k_max
        target = locked + threshold.k
        start = (x0[:p] != 0).astype(jnp.int32)
        tableau = None
        if objective.quadratic and width is None:
            equations = objective.normal_equations()
            tableau = empty_tableau(equations, locked)
            level = start.at[threshold.keep].set(2)
            for _, high in _segments(threshold.k_max):
                tableau = resize(tableau, locked + high)
                tableau = grow(equations, tableau, jnp.minimum(target, locked + high), level)
            # The first step refits; until then the value is infinite.
            point = Point(tableau.idx, tableau.size, jnp.zeros_like(x0), jnp.asarray(jnp.inf, x0.dtype), jnp.int32(0))
            grad = jnp.zeros_like(x0)
        else:  # the model, or the working set, is renewed whenever the support has doubled

            def stage(carry):
                point, _ = carry
                pool = gradient_pool(objective, point, width)
                inner = pool.inward(point, p)
                equations = pool.objective.normal_equations(inner.x)
                level = start if pool.features is None else start[pool.features]
                goal = jnp.minimum(target, jnp.maximum(2 * point.size, locked + 4))
                t = grow(equations, tableau_of(equations, inner), goal, level)
                new = pool.outward(fitted(pool.objective, threshold, t.idx, t.size, inner.x), p)
                return new, new.size > point.size

            first = kept_point(objective, threshold, rows), jnp.ones((), bool)
            point, _ = lax.while_loop(lambda c: any_lane((c[0].size < target) & c[1]), stage, first)
            _, grad = objective.value_and_grad(point.x, support_of(objective, point))
        no, one = jnp.zeros((), bool), jnp.ones((), x0.dtype)
        return BestSubsetState(
            x=point.x,
            support=support_of(objective, point),
            value=point.value,
            grad=grad,
            step_size=one,
            fault=point.fault,
            gain=one * jnp.inf,
            local=no,
            failures=jnp.int32(0),
            optimal=no,
            tableau=tableau,
            stale=no,
            key=key,
        )

    def step(self, objective, threshold, state, t):
        starts, patience, _, width = EFFORTS[self.effort]
        p, free, locked = objective.n_coefficients, objective.n_free, threshold.keep.shape[0]
        key, draw = jax.random.split(state.key)
        size = jnp.sum(state.support.mask, dtype=jnp.int32) - free
        point = Point(state.support.idx[free:], size, state.x, state.value, state.fault)
        pool_width = self._width(objective, threshold)
        if pool_width is None:
            pool = Pool(objective, None)
        else:
            pool = swap_pool(objective, threshold, point, pool_width)
        inner = pool.inward(point, p)
        equations = pool.objective.normal_equations(inner.x)

        def rebuilt():  # forms its own normal equations, so that their passes over the data are made only here
            return tableau_of(pool.objective.normal_equations(inner.x), inner)

        if state.tableau is None:
            t0 = rebuilt()
        elif not starts:  # nothing but descents, which end with their own tableau
            t0 = state.tableau
        else:
            t0 = lax.cond(any_lane(state.stale), rebuilt, lambda: state.tableau)

        def descent():
            new, end = _descent(pool.objective, threshold, equations, t0, inner)
            return pool.outward(new, p), end

        def perturbation():
            few = working_set(t0, locked, min(max(width, 2 * point.idx.shape[0]), t0.g.shape[0]))
            small = Pool(pool.objective.subset(few), few)
            start = small.inward(inner, t0.g.shape[0])
            strength = jnp.clip(size - locked, 1, STRONGEST)
            found = perturbed(_gram(small.objective, start.x), t0, few, locked, starts, strength, draw)
            new = best_fitted(small.objective, threshold, found, size, start.x)
            return pool.outward(small.outward(new, t0.g.shape[0]), p), t0

        if starts:
            unmoved = (point, t0)
            far = lax.cond(any_lane(state.local), perturbation, lambda: unmoved)
            near = lax.cond(any_lane(~state.local), descent, lambda: unmoved)
            found, end = where(state.local, far, near)
        else:
            found, end = descent()

        tol = tolerance("swap", state.value.dtype)
        least = jnp.where(jnp.isfinite(state.value), tol * jnp.abs(state.value), 0)
        better, improved = found.value < state.value, found.value < state.value - least
        found = where(better, found, point)
        support = support_of(objective, found)
        value, grad = objective.value_and_grad(found.x, support)
        gain, left, tableau = state.gain, jnp.zeros((), bool), None
        if state.tableau is not None:
            moved = better & ~state.local
            tableau = where(moved, _refreshed(end, found, value, grad), t0)
            gain = jnp.where(state.local, gain, best_swap(tableau, locked)[0] / 2)
            left = gain > tol * jnp.abs(value) + swap_noise(equations) / 2
        else:
            gain = jnp.where(state.local, gain, jnp.maximum(state.value - value, 0))
        # After a better perturbed start, however little better, no descent has been made.
        local = jnp.where(state.local, ~better, ~improved | ((state.tableau is not None) & ~left))
        failures = jnp.where(improved, 0, state.failures + state.local)
        new = BestSubsetState(
            x=found.x,
            support=support,
            value=value,
            grad=grad,
            step_size=state.step_size,
            fault=found.fault,
            gain=gain,
            local=local,
            failures=failures,
            optimal=local & ~left & (failures >= patience),
            tableau=tableau,
            stale=state.local & better,
            key=key,
        )
        return new, report(objective, threshold, state, new, value=value, grad=grad, entries=support, fault=found.fault)

    def _width(self, objective, threshold):
        """Features of a working set; None: all of them at once."""
        p, rows = objective.n_coefficients, threshold.keep.shape[0] + threshold.k_max
        if self.working_set is not None:
            width = max(self.working_set, rows + 1)
        elif rows * p * jnp.dtype(objective.dtype).itemsize > TABLEAU_BYTES:
            width = max(WORKING_SET, 4 * rows)
        else:
            return None
        return width if width < p else None

    # --- every k -----------------------------------------------------------------------------------------------------
    def path(self, objective, threshold, key):
        p, locked, k_max = objective.n_coefficients, threshold.keep.shape[0], threshold.k_max
        width = self._width(objective, threshold)
        rows = locked + k_max
        backward = objective.quadratic and self.effort != "fast"
        point = kept_point(objective, threshold, rows)
        best = Point(
            jnp.zeros((k_max + 1, rows), jnp.int32).at[0].set(point.idx),
            jnp.full(k_max + 1, point.size),
            (),
            jnp.full(k_max + 1, jnp.inf, objective.dtype).at[0].set(point.value),
            (),
        )
        t, parts = None, []
        for low, high in _segments(k_max):
            pool = gradient_pool(objective, point, width)
            inner = with_rows(pool.inward(point, p), locked + high)
            equations = _equations(pool, inner.x)
            if t is None or pool.features is not None or not objective.quadratic:
                t = tableau_of(equations, inner)
            else:
                t = resize(t, locked + high)
            t, inner, best = _forward(pool, threshold, equations, t, inner, best, low, high)
            point = pool.outward(with_rows(inner, rows), p)
            if pool.features is not None and not backward:  # refits within a working set read less
                parts.append(_refits(pool, objective, threshold, best, low, high))
        if backward:
            for low, high in reversed(_segments(k_max)):
                t = resize(t, locked + high)
                t, best = _backward(pool, threshold, t, best, low)
        if not parts:
            return _refits(Pool(objective, None), objective, threshold, best, 0, k_max)
        trail = jax.tree.map(lambda *a: jnp.concatenate(a), *parts)
        return jax.tree.map(lambda a: a[jnp.minimum(jnp.arange(k_max + 1), threshold.k)], trail)


def _equations(pool, x):
    """The normal equations around x, with their matrix where they last for a whole segment of few features."""
    if pool.features is None or not pool.objective.quadratic:
        return pool.objective.normal_equations(x)
    return _gram(pool.objective, x)


def _refits(pool, objective, threshold, best, low, high):
    """The rows of a trail for k = low + 1 .. high, and for k = 0 if low is 0, by refits within a pool."""
    p, locked, rows = objective.n_coefficients, threshold.keep.shape[0], best.idx.shape[1]
    zero = jnp.zeros(p + objective.n_free, objective.dtype)

    def refitted(k):
        outer = Point(best.idx[k], best.size[k], zero, best.value[k], jnp.int32(0))
        inner = with_rows(pool.inward(outer, p), locked + high)
        fit = fitted(pool.objective, threshold, inner.idx, inner.size, inner.x)
        fit = with_rows(pool.outward(fit, p), rows)
        support = support_of(objective, fit)
        return support, gather(fit.x, support), fit.value, fit.fault

    ks = jnp.minimum(jnp.arange(low + (low > 0), high + 1), threshold.k)
    support, z, value, fault = lax.map(refitted, ks)
    return Trail(support, z, value, jnp.where(fault == 0, RESULTS.converged, fault))


def _segments(k_max):
    """Ranges of k over which a path uses one number of rows: padded rows cost as much as full ones."""
    ends = [0, *(k for k in (16, 64, 256, 1024) if 1.25 * k < k_max), k_max]
    return list(itertools.pairwise(ends)) if k_max else [(0, 0)]


def _forward(pool, threshold, equations, t, point, best, low, high):
    """Grow and descend for k = low + 1 .. high."""
    locked = threshold.keep.shape[0]
    objective = pool.objective
    quadratic = objective.quadratic

    def quadratic_step(k, carry):
        t, point, best = carry
        t = descend(equations, grow(equations, t, locked + k), locked)
        return t, point, _recorded(pool, best, k, t.idx, t.size, t.value)

    def step(k, carry):
        t, point, best = carry
        model = objective.normal_equations(point.x)
        t = grow(model, tableau_of(model, point), locked + k)
        point = fitted(objective, threshold, t.idx, t.size, point.x)

        def improve(carry):
            point, _, count = carry
            model = objective.normal_equations(point.x)
            new, _ = _descent(objective, threshold, model, tableau_of(model, point), point)
            improved = new.value < point.value - tolerance("swap", point.value.dtype) * jnp.abs(point.value)
            return where(improved, new, point), improved, count + 1

        yes = jnp.ones((), bool)
        point, _, _ = lax.while_loop(lambda c: any_lane(c[1]) & (c[2] < ROUNDS), improve, (point, yes, jnp.int32(0)))
        return t, point, _recorded(pool, best, k, *point[:2], point.value)

    def body(carry):
        k, rest = carry
        return k + 1, (quadratic_step if quadratic else step)(k, rest)

    _, (t, point, best) = lax.while_loop(
        lambda c: (c[0] <= high) & any_lane(c[0] <= threshold.k), body, (jnp.int32(low + 1), (t, point, best))
    )
    if quadratic and (pool.features is not None or high < best.size.shape[0] - 1):
        point = fitted(objective, threshold, t.idx, t.size, point.x)
    return t, point, best


def _backward(pool, threshold, t, best, low):
    """Remove the least feature and descend, down to k = low, keeping what is better than before."""
    locked = threshold.keep.shape[0]
    equations = pool.objective.normal_equations()

    def body(carry):
        t, best = carry
        t = remove(t, jnp.argmin(removal_losses(t, locked)).astype(jnp.int32), t.size > locked + low)
        t = descend(equations, t, locked)
        return t, _recorded(pool, best, t.size - locked, t.idx, t.size, t.value)

    return lax.while_loop(lambda c: any_lane(c[0].size > locked + low), body, (t, best))


def _recorded(pool, best, k, idx, size, value):
    """The best supports of every k, with one more candidate for k."""
    idx = idx if pool.features is None else pool.features[idx]
    row = jnp.zeros(best.idx.shape[1], jnp.int32).at[: idx.shape[0]].set(idx)
    better = value < best.value[k]
    return best._replace(
        idx=best.idx.at[k].set(jnp.where(better, row, best.idx[k])),
        size=best.size.at[k].set(jnp.where(better, size, best.size[k])),
        value=best.value.at[k].min(value),
    )


def _descent(objective, threshold, equations, t0, point):
    """The best point found by swaps on a tableau, and the tableau at the end of its descent."""
    locked = threshold.keep.shape[0]
    if objective.quadratic:
        end = descend(equations, t0, locked)
        return fitted(objective, threshold, end.idx, end.size, point.x), end
    end = descend(equations, t0, locked, 2 * jnp.abs(point.value))
    gains = swap_gains(t0, locked)
    best = jnp.max(gains, axis=0)
    features = top_k(best, min(SINGLES, best.shape[0]))
    rows = jnp.argmax(gains[:, features], axis=0)
    singles = jax.vmap(lambda i, j: t0.idx.at[i].set(jnp.where(best[j] > -jnp.inf, j, t0.idx[i])))(rows, features)
    return best_fitted(objective, threshold, jnp.vstack([end.idx, singles]), t0.size, point.x), end


def _refreshed(t, point, value, grad):
    """A tableau with coefficients, value and gradient from the data."""
    p = t.g.shape[0]
    c = jnp.where(jnp.arange(t.idx.shape[0]) < t.size, point.x[t.idx], 0)
    return t._replace(c=c, g=-grad[:p], value=2 * value)


def _gram(objective, x):
    """The normal equations of a small objective with their matrix."""
    equations = objective.normal_equations(x)
    A = equations.columns(jnp.arange(objective.n_coefficients, dtype=jnp.int32))
    return GramEquations(A, equations.rhs, equations.diagonal, equations.constant)
