"""Best subsets: forward growth, exact best swaps until none improves, and perturbed starts."""

import math
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
from ..linalg import START, any_lane, one_by_one, top_k
from ..linalg.tableau import Tableau, empty_tableau, subtableau, swap_gains
from ..objectives import AbstractRestrictable, gather
from ..objectives.base import DENSE_HESSIAN_LIMIT
from ..thresholds import Sparsity
from .base import AbstractPathSolver, Trail, report, where
from .pivot_search import KEPT, Goal, no_move, settle, swap_noise
from .working_set import Point, alone, chosen_pool, gram_equations, promises, support_of, whole_pool


class Effort(NamedTuple):
    """Perturbed starts per step, steps without improvement after which it stops, limit of steps, and the number of
    features that perturbed starts choose from (twice the support where that is more)."""

    starts: int
    patience: int
    max_steps: int
    width: int


EFFORTS = {
    "fast": Effort(0, 0, 50, 0),
    "default": Effort(20, 2, 100, 128),
    "thorough": Effort(64, 4, 400, 2048),
}
TABLEAU_BYTES = 2**28  # a tableau over all features larger than this gives way to a working set
WORKING_SET = 512  # features, or four times the support where that is more
STAGES = (16, 64, 256, 1024)  # sizes at which a path renews its working set
SINGLES = 8  # swaps of a local model that are tried one by one
ROUNDS = 5  # per size of a path whose objective is not quadratic


class BestSubsetState(NamedTuple):
    """The best point so far with its gradient, and how the search for a better one stands."""

    x: Array
    support: Support
    value: Array
    grad: Array
    step_size: Array
    fault: Array
    gain: Array  # of the best remaining swap, in units of F
    stage: Array  # one of DESCEND, SINGLE and PERTURB
    failures: Array  # steps of perturbed starts since the last improvement
    optimal: Array
    tableau: Tableau | None  # kept for a quadratic over all features
    level: Array | None  # what the tableau is still to take in
    key: Array


class Walk(NamedTuple):
    """A walk from size to size: where it stands, which way it goes (0: it has ended), the last point, and what was
    found of every size."""

    k: Array
    direction: Array
    stage: Array
    tries: Array
    x: Array
    trail: Trail


# What the next step of a search does where the last one failed; for a quadratic, its descents are never wrong.
DESCEND, SINGLE, PERTURB = 0, 1, 2


class BestSubset(AbstractPathSolver):
    """The best k features found by forward growth, exact best swaps, and perturbed starts.

        min F(w) subject to ||w||_0 <= k,    kept features and the intercept apart

    Growth adds features one by one, each with the largest decrease of F. Then the best of all k (p - k) swaps, all
    coefficients optimised again, is made until none improves. Further steps perturb the best support in a batch of
    random ways within a working set, descend again, and keep what is better. For a loss that is not squared, gains
    are those of the local quadratic model; where it has no better swap, the best ones are refitted under F itself, and
    only a refit decides which support is kept. Refits and gradients come from the data, so rounding in the updates
    never decides which support is returned.

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
    lanes_in_turn = True  # their pivots differ in number, and each fills the cores by itself

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
        p, rows = objective.n_coefficients, threshold.keep.shape[0] + threshold.k_max
        zero, no = jnp.zeros((), objective.dtype), jnp.zeros((), bool)
        origin = objective.origin()
        tableau = level = None
        if self._persistent(objective, threshold):
            level = (x0[:p] != 0).astype(jnp.int32).at[threshold.keep].set(KEPT)
            tableau = empty_tableau(objective.normal_equations(), rows)
        return BestSubsetState(
            x=origin,
            support=support_of(objective, _keep_first(threshold), jnp.int32(threshold.keep.shape[0])),
            value=zero + jnp.inf,  # until the first step has refitted
            grad=jnp.zeros_like(origin),
            step_size=zero + 1,
            fault=jnp.int32(0),
            gain=zero + jnp.inf,
            stage=jnp.int32(DESCEND),
            failures=jnp.int32(0),
            optimal=no,
            tableau=tableau,
            level=level,
            key=key,
        )

    def step(self, objective, threshold, state, t):
        starts, patience, _, width = EFFORTS[self.effort]
        p, free, locked = objective.n_coefficients, objective.n_free, threshold.keep.shape[0]
        dtype = state.value.dtype
        key, draw = jax.random.split(state.key)
        chosen = jnp.zeros(p, bool).at[state.support.idx[free:]].max(state.support.mask[free:])
        size = jnp.sum(state.support.mask, dtype=jnp.int32) - free - locked
        started = jnp.isfinite(state.value)

        persistent = state.tableau is not None
        pool, target, level = whole_pool(objective, threshold), threshold.k, state.level
        if not persistent:  # grow in stages, so that the model or the working set suits what is chosen
            target = jnp.where(started, jnp.minimum(threshold.k, jnp.maximum(2 * size, 4)), 0)
            pool_width = self._width(objective, threshold)
            if pool_width is not None:
                scores = promises(objective, threshold, state, chosen, target > size)
                pool = chosen_pool(objective, threshold, chosen, scores, pool_width)
        x = pool.inward(state.x, p)
        inside = chosen if pool.features is None else chosen[pool.features]
        equations = pool.objective.normal_equations(x)
        t0 = state.tableau
        if not persistent:
            t0 = empty_tableau(equations, locked + threshold.k_max)
            level = jnp.where(pool.kept, KEPT, inside.astype(jnp.int32))
        goal = Goal(pool.kept, target, state.stage == DESCEND, _scale(objective, state.value))
        t1, move, left = settle(equations, t0, no_move(t0), level, goal)

        moved = ~started | jnp.any((t1.chosen != inside) & ~pool.kept)
        far = jnp.asarray(starts > 0) & ~moved & (objective.quadratic | (state.stage == PERTURB))
        supports = _near(objective, t1, move, pool.kept)
        if starts:

            def perturbed():
                few = min(max(width, 2 * t1.idx.shape[0]), t1.g.shape[0])
                found = _perturbed(pool, x, t1, move, few, goal, starts, draw, supports.shape[0])
                return jnp.where(far, found, supports)

            supports = lax.cond(any_lane(far), perturbed, lambda: supports)
        found = pool.outward(_best_fitted(pool, threshold, supports, x), p)

        tol = tolerance("swap", dtype)
        least = jnp.where(started, tol * jnp.abs(state.value), 0)
        grown = jnp.isfinite(found.value) & (found.size > size + locked)
        better = (found.value < state.value) | grown
        improved = (found.value < state.value - least) | grown
        here = support_of(objective, found.idx, found.size)
        support, x, fault = where(better, (here, found.x, found.fault), (state.support, state.x, state.fault))
        value, grad = objective.value_and_grad(x, support)
        tableau, exact = None, jnp.ones((), bool)
        if persistent:
            # A tableau of the support that is left takes over what the refit says of it.
            known = jnp.where(better, moved, ~moved)
            fresh = t1._replace(
                c=jnp.where((t1.idx >= 0) & (fault == 0), x[t1.idx], t1.c), g=-grad[:p], value=2 * value
            )
            tableau = where(known, fresh, where(moved, t0, t1))
            exact = ~jnp.any(level)
            wanted = jnp.zeros(p, jnp.int32).at[found.idx].max(jnp.arange(found.idx.shape[0]) < found.size)
            level = jnp.where(better & far, wanted, jnp.where(moved & ~better, level, left))
            level = jnp.where(pool.kept, KEPT, 1) * level
            gain = move.gain / 2
            optimal = gain <= tol * jnp.abs(value) + swap_noise(equations) / 2
        else:
            gain = jnp.maximum(state.value - value, 0)
            optimal = (target >= threshold.k) | (size < target)
        failures = jnp.where(improved, 0, state.failures + far)
        new = BestSubsetState(
            x=x,
            support=support,
            value=value,
            grad=grad,
            step_size=state.step_size,
            fault=fault,
            gain=gain,
            stage=jnp.where(improved, DESCEND, jnp.where(moved, SINGLE, PERTURB)).astype(jnp.int32),
            failures=failures,
            optimal=optimal & exact & ~moved & ~improved & (failures >= patience),
            tableau=tableau,
            level=level if persistent else None,
            key=key,
        )
        return new, report(objective, threshold, state, new, value=value, grad=grad, entries=support, fault=fault)

    def _persistent(self, objective, threshold):
        """True if one tableau over all features serves the whole search."""
        return objective.quadratic and self._width(objective, threshold) is None

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
        width, origin = self._width(objective, threshold), objective.origin()
        nothing = support_of(objective, _keep_first(threshold), jnp.int32(locked))
        row = Trail(nothing, gather(origin, nothing), jnp.asarray(jnp.inf, origin.dtype), jnp.int32(0))
        trail = jax.tree.map(lambda a: jnp.broadcast_to(a, (k_max + 1, *a.shape)), row)
        walk = Walk(jnp.int32(0), jnp.int32(1), jnp.int32(DESCEND), jnp.int32(0), origin, trail)
        if width is None:
            walk = self._walk(whole_pool(objective, threshold), objective, threshold, walk, jnp.int32(k_max))
        else:
            ends = jnp.asarray([*(k for k in STAGES if 1.25 * k < k_max), k_max], jnp.int32)

            def stage(walk):
                chosen, support = _chosen_before(objective, walk)
                equations = objective.normal_equations(walk.x)
                _, grad = objective.value_and_grad(walk.x, support)
                grad = jnp.where(walk.k > 0, grad[:p], equations.rhs)
                pool = chosen_pool(objective, threshold, chosen, alone(equations, grad), width)
                return self._walk(pool, objective, threshold, walk, jnp.min(jnp.where(ends < walk.k, k_max, ends)))

            walk = lax.while_loop(lambda walk: any_lane(walk.direction != 0), stage, walk)
        trail = walk.trail
        trail = trail._replace(result=jnp.where(trail.result == 0, jnp.int32(RESULTS.converged), trail.result))
        return jax.tree.map(lambda a: a[jnp.minimum(jnp.arange(k_max + 1), threshold.k)], trail)

    def _walk(self, pool, objective, threshold, walk, end):
        """Walk from size to size in a working set: up to `end` and, after the last size, back."""
        p, rows = objective.n_coefficients, threshold.keep.shape[0] + threshold.k_max
        quadratic, tol = objective.quadratic, tolerance("swap", walk.x.dtype)
        backward = quadratic and self.effort != "fast"

        def begin(walk):
            """A model around the last point, and the empty tableau that is to take in its support."""
            equations = pool.objective.normal_equations(pool.inward(walk.x, p))
            chosen, _ = _chosen_before(objective, walk)
            chosen = chosen if pool.features is None else chosen[pool.features]
            t = empty_tableau(equations, rows)
            return equations, chosen, (t, no_move(t), jnp.where(pool.kept, KEPT, chosen.astype(jnp.int32)))

        def active(walk):
            return (walk.direction < 0) | ((walk.direction > 0) & (walk.k <= end))

        equations, _, first = begin(walk)
        if quadratic and pool.features is not None:  # it lasts for many sizes
            equations = gram_equations(equations)

        def body(carry):
            walk, search = carry
            k, value, last = walk.k, walk.trail.value[walk.k], walk.k >= threshold.k
            model, chosen, turn = equations, None, 1 - 2 * ((walk.direction < 0) | last).astype(jnp.int32)
            if not quadratic:
                (model, chosen, search), turn = begin(walk), 0
            goal = Goal(pool.kept, k, walk.stage == DESCEND, _scale(objective, value), turn)
            search = settle(model, *search, goal)
            t, move, _ = search
            x = pool.inward(walk.x, p)
            nothing = Point(jnp.zeros(rows, jnp.int32), k, x, jnp.asarray(jnp.inf, x.dtype), jnp.int32(0))
            # On the way back few sizes gain anything.
            worth = active(walk) & (~jnp.isfinite(value) | (not quadratic) | (t.value / 2 < value - tol * value))
            found = lax.cond(
                any_lane(worth),
                lambda: _best_fitted(pool, threshold, _near(objective, t, move, pool.kept), x),
                lambda: nothing,
            )
            found = pool.outward(found, p)
            better = worth & (found.value < value)
            here = support_of(objective, found.idx, found.size)
            row = Trail(here, gather(found.x, here), found.value, found.fault)
            trail = jax.tree.map(lambda a, b: a.at[k].set(jnp.where(better, b, a[k])), walk.trail, row)
            settled, stage = jnp.ones((), bool), walk.stage
            if not quadratic:
                new = ~jnp.isfinite(value)
                improved = better & (new | (found.value < value - tol * jnp.abs(value)))
                moved = new | jnp.any((t.chosen != chosen) & ~pool.kept)
                settled = ~improved & ~moved | (walk.tries + 1 >= ROUNDS)
                stage = jnp.where(settled | improved, DESCEND, SINGLE).astype(jnp.int32)
            direction = jnp.where(last & settled, -1 if backward else 0, walk.direction)
            onward = k + jnp.where(settled, direction, 0)
            after = Walk(
                k=onward,
                direction=jnp.where(settled & (direction < 0) & (onward < 1), 0, direction),
                stage=stage,
                tries=jnp.where(settled, 0, walk.tries + 1),
                x=jnp.where(better, found.x, walk.x),
                trail=trail,
            )
            return where(active(walk), after, walk), search

        return lax.while_loop(lambda carry: any_lane(active(carry[0])), body, (walk, first))[0]


def _keep_first(threshold):
    """The kept features, and room for the others."""
    keep = jnp.asarray(threshold.keep, jnp.int32)
    return jnp.concatenate([keep, jnp.zeros(threshold.k_max, jnp.int32)])


def _chosen_before(objective, walk):
    """The support to go on from: that of the size if there is one, else of the size before; also as a mask."""
    k = jnp.where(jnp.isfinite(walk.trail.value[walk.k]), walk.k, jnp.maximum(walk.k - 1, 0))
    support = jax.tree.map(lambda a: a[k], walk.trail.support)
    return jnp.zeros(objective.n_coefficients, bool).at[support.idx].max(support.mask, mode="drop"), support


def _scale(objective, value):
    """What gains of swaps are compared with; None: the tableau's value."""
    return None if objective.quadratic else 2 * jnp.abs(value)


def _near(objective, t, move, kept):
    """Supports to refit: that of the tableau and, for a local model, those of its best swaps."""
    if objective.quadratic:
        return t.idx[None]
    features = top_k(move.scores, min(SINGLES, move.scores.shape[0]))
    gains = swap_gains(t, (t.idx >= 0) & ~kept[t.idx], features)
    out, there = jnp.argmax(gains, axis=0), jnp.max(gains, axis=0) > -jnp.inf
    singles = jax.vmap(lambda i, j, there: t.idx.at[i].set(jnp.where(there, j, t.idx[i])))(out, features, there)
    return jnp.vstack([t.idx, singles])


def _best_fitted(pool, threshold, supports, start):
    """The best of the refits on several supports."""
    if supports.shape[0] == 1:
        return pool.fitted(threshold, supports[0], start)
    points = jax.vmap(lambda idx: pool.fitted(threshold, idx, start))(supports)
    i = jnp.argmin(jnp.where(jnp.isfinite(points.value), points.value, jnp.inf))
    return jax.tree.map(lambda a: a[i], points)


def _perturbed(pool, x, t, move, width, goal, starts, key, count):
    """The best `count` supports found by descents from randomly perturbed copies of t, within a working set.

    A perturbation swaps a random part of the features for the best of a random part of the others, between a half and
    a few of them.
    """
    features = top_k(jnp.where(t.chosen | pool.kept, jnp.inf, move.scores), width)
    small, kept = subtableau(t, features), pool.kept[features]
    objective = pool.objective.subset(features)
    equations = gram_equations(objective.normal_equations(jnp.concatenate([x[features], x[pool.kept.shape[0] :]])))
    goal = goal._replace(kept=kept, descend=jnp.ones((), bool))

    def start(draws):
        leave, part = draws[0], 0.5 ** (1 + draws[1] * max(math.log2(width) - 2, 0))
        draws = draws[2:]
        first = draws == jnp.min(jnp.where(small.chosen & ~kept, draws, 1))  # one at least
        level = jnp.where(small.chosen, ~((draws < leave) | first), draws < part)
        end, _, _ = settle(equations, small, no_move(small), level.astype(jnp.int32) * jnp.where(kept, 0, 1), goal)
        return end.idx, end.value

    draws = jax.random.uniform(key, (starts, 2 + width), t.g.dtype)
    found, values = lax.map(start, draws) if one_by_one() else jax.vmap(start, axis_name=START)(draws)
    best = jnp.argsort(values)[jnp.arange(count) % starts]
    found = found[best]
    return jnp.where(found < 0, -1, features[found])
