"""Best subsets: forward growth, exact best swaps until none improves, and perturbed starts."""

from typing import NamedTuple, TypeAlias, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._tolerances import tolerance
from .._types import AnyArray, Info, Support, all_finite, is_concrete
from ..columns import gather
from ..iteration.results import RESULTS
from ..iteration.termination import SwapOptimal
from ..linalg import any_lane, either, top_k
from ..linalg.tableau import Equations, Tableau, empty_tableau, swap_gains
from ..objectives import AbstractObjective, AbstractRefittable, AbstractRestrictable, GramEquations
from ..objectives.base import DENSE_HESSIAN_LIMIT, in_columns
from ..thresholds import AbstractThreshold, AbstractUnitThreshold
from ..thresholds.base import members
from . import unit_search
from .base import AbstractSolver, Trail, report
from .pivot_search import KEPT, Goal, Move, Roam, Settled, no_move, settle_entries, swap_noise
from .search import DESCEND, PERTURB, SINGLE, SWAPS, Point, SearchState, affordable, best_of, first_state, renewed
from .starts import from_starts, parts, seed_of
from .working_set import WorkingSet, all_features, alone, gram_equations, narrowed_to, promises, support_of


class Effort(NamedTuple):
    """Perturbed starts per step at most, steps without improvement after which it stops, limit of steps, and the number
    of features of a working set (twice the support where that is more)."""

    starts: int
    patience: int
    max_steps: int
    width: int


EFFORTS = {
    "fast": Effort(0, 0, 50, 512),
    "default": Effort(20, 2, 100, 512),
    "thorough": Effort(40, 4, 400, 2048),
}
TABLEAU_BYTES = 2**28  # a tableau over all features larger than this gives way to a working set
WORKING_SET = 512  # features, or four times the support where that is more
STAGES = (16, 64, 256, 1024)  # sizes at which a path renews its working set
BOUNDED_LIMIT = 256  # coefficients within bounds: every move factorises anew
UNIT_STARTS = 8  # perturbed starts of a step where units are not plain entries
ROUNDS = 5  # per size of a path whose objective is not quadratic


class EntryModel(NamedTuple):
    """The working set that a search is made in: the normal equations of its features, the tableau of the support, and
    the gain of the best swap of all features, in units of the tableau's value."""

    features: Array
    equations: GramEquations
    tableau: Tableau
    best: Array


Standing: TypeAlias = tuple[Tableau, Move, Array]  # with the levels


class Walk(NamedTuple):
    """A walk from size to size: where it stands, which way it goes (0: it has ended), the last point, and what was
    found of every size."""

    k: Array
    direction: Array
    stage: Array
    tries: Array
    x: Array
    trail: Trail


class BestSubset(AbstractSolver):
    """The best k features found by forward growth, exact best swaps, and perturbed starts.

        min F(w) subject to ||w||_0 <= k,    kept features and the intercept apart

    Growth adds features one by one, each with the largest decrease of F within a working set. Then the best swap, all
    coefficients optimised again, is made until none of all k (p - k) improves. Further steps perturb the best support
    in a batch of random ways within a working set, walk on from there, and keep what is better: a walk makes the best
    swap even where it gains nothing, and holds for some swaps what went out or came in. For a loss that is not
    squared, gains are those of the local quadratic model; where it has no better swap, the best ones are refitted under
    F itself, and only a refit decides which support is kept. Refits and gradients come from the data, so rounding in
    the updates never decides which support is returned.

    Units other than plain entries (entries with bounds or a given sum, groups, rows, leaves), and objectives that are
    not a model in columns (`MultiResponse`, `Custom`, `CustomSum`), are searched in the local quadratic model over
    their entries: the gains of all swaps of one unit, all coefficients optimised again, from one factorisation. They
    are exact for a quadratic F without bounds; else the best ones are refitted under F itself.

    Args:
        effort: "fast" (no perturbed starts), "default" or "thorough".
        working_set: search among this many features at a time (entries, of other units), or twice the support where
            that is more. For one k they are those of the best swaps with the present support (of the steepest gradient,
            of other units), chosen anew until no swap of all features improves it; None: 512 at most (2048 for
            "thorough"). A path of entries renews them from the gradient as the support grows and is then swap-optimal
            within them only, which suits cross-validation folds; None: all features, as long as the tableau of k p
            numbers fits in 256 MiB.

    Guarantee: if it says converged with a quadratic F without bounds, no single swap within the last working set lowers
    F by more than 1e-5 |F| in float32, 1e-10 |F| in float64, and for plain entries none at all; for other losses and
    with bounds, none of the best swaps of the local model does. Neither proves a global optimum. `path` gives the best
    support found for every k by a forward chain of growth and descents, and, for plain entries and a quadratic F unless
    the effort is "fast", a backward chain of removals and descents.

    Raises:
        ValueError: if effort is not one of the three, or for more than 2048 coefficients (256 with bounds).
        TypeError: for pairs, parts of groups, ranks and penalties, or a loss without a second derivative.

    Source: exact swaps as in full-swap inescapability, Hazimeh and Mazumder (2020), on updated normal equations; groups
    by splicing, Zhang, Zhu, Zhu and Wang (2023); walks as in tabu search, Glover (1989).
    """

    effort: str = eqx.field(static=True, default="default")
    working_set: int | None = eqx.field(static=True, default=None)

    requires = AbstractRefittable
    needs_curvature = True
    by_path = True
    lanes_in_turn = True  # their pivots differ in number, and each fills the cores by itself
    default_termination = SwapOptimal()

    @classmethod
    def takes(cls, threshold: AbstractThreshold) -> TypeGuard[AbstractUnitThreshold]:
        return threshold.exchangeable

    def __check_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise ValueError(f"effort: must be one of {', '.join(EFFORTS)}, got {self.effort!r}.")
        if self.working_set is not None and self.working_set < 1:
            raise ValueError(f"working_set: must be at least 1, got {self.working_set}.")

    def check(self, objective: AbstractRefittable, threshold: AbstractUnitThreshold) -> None:
        super().check(objective, threshold)
        if not self.holds(objective, threshold):
            raise ValueError(
                "k: BestSubset factorises dense Hessians, so that the coefficients of k_max units and of the kept ones "
                f"together are limited to {self._most(threshold)}; use HTP or GraSP for more, or lower k_max."
            )

    @staticmethod
    def _most(threshold: AbstractUnitThreshold) -> int:
        return BOUNDED_LIMIT if threshold.bounded else DENSE_HESSIAN_LIMIT

    @classmethod
    def holds(cls, objective: AbstractRefittable, threshold: AbstractUnitThreshold) -> bool:
        """True unless the threshold chooses more coefficients than a dense Hessian can hold, or can be found in time
        within bounds."""
        if threshold.k_max is None and not is_concrete(threshold.k):
            return True
        bound = threshold.bind(objective)
        return bool(bound.room * bound.entries_per_unit <= cls._most(threshold))

    @property
    def default_max_steps(self) -> int:
        return EFFORTS[self.effort].max_steps

    def _unit_width(self, objective: AbstractRefittable, threshold: AbstractUnitThreshold) -> int:
        most = EFFORTS[self.effort].width if self.working_set is None else self.working_set
        return unit_search.width_of(objective, threshold, most)

    # --- one k -------------------------------------------------------------------------------------------------------
    def init(
        self, objective: AbstractRefittable, threshold: AbstractUnitThreshold, x0: Array, key: Array
    ) -> SearchState:
        if in_columns(objective, threshold):
            return self._on_tableau(objective, threshold, x0, key)
        return unit_search.init(objective, threshold, x0, key, self._unit_width(objective, threshold))

    def _on_tableau(
        self, objective: AbstractRestrictable, threshold: AbstractUnitThreshold, x0: Array, key: Array
    ) -> SearchState:
        dtype, width = objective.dtype, self._model_width(objective, threshold)
        inf, vector = jnp.asarray(jnp.inf, dtype), jnp.zeros(width, dtype)
        equations = GramEquations(jnp.zeros((width, width), dtype), vector, vector, jnp.zeros((), dtype))
        tableau = empty_tableau(equations, threshold.room)
        model = EntryModel(jnp.arange(width, dtype=jnp.int32), equations, tableau, inf)
        chosen = (x0[: objective.n_coefficients] != 0).at[threshold.keep].set(True)
        support = support_of(objective, _keep_first(threshold), jnp.int32(threshold.keep.shape[0]))
        return first_state(objective, x0, support, chosen, model, key)

    def step(
        self, objective: AbstractRefittable, threshold: AbstractUnitThreshold, state: SearchState, t: Array
    ) -> tuple[SearchState, Info]:
        if in_columns(objective, threshold):
            return self._pivoted(objective, threshold, state, t)
        starts, patience, *_ = EFFORTS[self.effort]
        after = unit_search.step(objective, threshold, state, t, UNIT_STARTS if starts else 0, patience)
        return after, report(objective, threshold, state, after, fault=after.fault)

    def _pivoted(
        self, objective: AbstractRestrictable, threshold: AbstractUnitThreshold, state: SearchState, t: Array
    ) -> tuple[SearchState, Info]:
        starts, patience, *_ = EFFORTS[self.effort]
        p, locked = objective.n_coefficients, threshold.keep.shape[0]
        quadratic, tol = objective.quadratic, tolerance("swap", state.value.dtype)
        started, far = jnp.isfinite(state.value), (state.stage == PERTURB) & (starts > 0)
        size = jnp.sum(state.chosen, dtype=jnp.int32) - locked
        target = jnp.minimum(threshold.k, self._next_size(objective, threshold, size, started))

        growing = ~started | (target > size)
        model = renewed(state.stale, lambda: self._model(objective, threshold, state, growing), state.model)
        whole = model.features.shape[0] == p
        within = all_features(objective, threshold) if whole else narrowed_to(objective, threshold, model.features)
        inside, start = state.chosen[model.features], within.inward(state.x, p)
        level = jnp.where(within.kept, KEPT, inside.astype(jnp.int32))
        descend = (state.stage != SINGLE) & (started | quadratic)
        goal = Goal(within.kept, target, descend, _scale(objective, state.value))
        may_leave = inside & ~within.kept

        def search(i: Array) -> Settled:
            # Levels that swap a random part of the chosen features for the best of a random part of the others.
            seed = seed_of(state.key, t, i)
            stay, open_ = parts(seed, model.features, may_leave)
            start = jnp.where(i == 0, level, jnp.where(may_leave, stay, open_).astype(jnp.int32))
            own = goal._replace(roam=Roam(i > 0, seed)) if starts else goal
            return settle_entries(model.equations, model.tableau, no_move(model.tableau), start, own)

        def gram_of(idx: Array) -> Array | None:
            return model.equations.A[idx][:, idx] if quadratic else None

        count = start_count(starts, threshold.k)
        (tableau, move, left, _), (ends, values) = from_starts(search, _end, starts, far, count)
        moved = ~started | jnp.any((tableau.chosen != inside) & ~within.kept)
        supports = _near(objective, tableau, move, within.kept)
        if starts:
            values = jnp.where(jnp.arange(starts) < count, values, jnp.inf)
            best = jnp.argsort(values)[jnp.arange(supports.shape[0]) % starts]
            supports = jnp.where(far, ends[best], supports)
        found = within.outward(best_of(lambda idx: within.fitted(threshold, idx, start, gram_of(idx)), supports), p)

        least = jnp.where(started, tol * jnp.abs(state.value) + swap_noise(model.equations) / 2, 0)
        idx, length = found.where
        grown = jnp.isfinite(found.value) & (length > size + locked)
        better = (found.value < state.value) | grown
        improved = (found.value < state.value - least) | grown
        here = support_of(objective, idx, length)
        new = here, members(here, p), found.x, found.fault
        support, chosen, x, fault = either(better, new, (state.support, state.chosen, state.x, state.fault))
        value, grad = objective.value_and_grad(x, support)
        if quadratic:
            # What the refit says is more accurate than what the pivots left; of other features they know nothing.
            known = (tableau.idx >= 0) & (fault == 0)
            fresh = tableau._replace(
                c=jnp.where(known, x[model.features[tableau.idx]], tableau.c), g=-grad[model.features], value=2 * value
            )
            tableau = either(better & ~far, fresh, tableau)
            gain = jnp.where(moved | whole, move.gain, model.best) / 2
            sure = ~jnp.any(left) & (gain <= tol * jnp.abs(value) + swap_noise(model.equations) / 2)
            sure &= all_finite(tableau.g, tableau.q, tableau.c, tableau.H)  # a NaN among the gains may be dropped
        else:
            sure = jnp.ones((), bool)
        after = state._replace(
            x=x,
            support=support,
            value=value,
            grad=grad,
            fault=fault,
            chosen=chosen,
            model=model._replace(tableau=either(moved & ~better, model.tableau, tableau)),
            stale=better & ~jnp.asarray(whole and quadratic),
        ).progressed(improved, moved, far, sure, patience)
        return after, report(objective, threshold, state, after, fault=after.fault)

    def _next_size(
        self, objective: AbstractRestrictable, threshold: AbstractUnitThreshold, size: Array, started: Array
    ) -> AnyArray:
        """How far to grow at once: a model or a working set suits what is chosen, and not much more."""
        if not objective.quadratic:
            return jnp.where(started, jnp.maximum(2 * size, 4), size)
        whole = self._model_width(objective, threshold) == objective.n_coefficients
        return threshold.k if whole else jnp.maximum(4 * size, 16)

    def _model(
        self, objective: AbstractRestrictable, threshold: AbstractUnitThreshold, state: SearchState, growing: Array
    ) -> EntryModel:
        """The normal equations around x of the features that promise most, before any is taken in."""
        width, best, chosen = self._model_width(objective, threshold), jnp.asarray(jnp.inf, state.x.dtype), state.chosen
        within, features = all_features(objective, threshold), state.model.features
        if width < chosen.shape[0]:
            scores = promises(objective, threshold, state, growing)
            best = jnp.max(scores)
            features = top_k(jnp.where(chosen, jnp.inf, scores), width)
            within = narrowed_to(objective, threshold, features)
        equations = gram_equations(within.objective.normal_equations(within.inward(state.x, chosen.shape[0])))
        return EntryModel(features, equations, empty_tableau(equations, state.model.tableau.idx.shape[0]), best)

    def _model_width(self, objective: AbstractRestrictable, threshold: AbstractUnitThreshold) -> int:
        """Features of the working set of a single k."""
        width = self.working_set
        if width is None:
            width = affordable(EFFORTS[self.effort].width, objective.ifo_per_gradient)
        return min(max(width, 2 * threshold.room), objective.n_coefficients)

    def _path_width(self, objective: AbstractRestrictable, threshold: AbstractUnitThreshold) -> int | None:
        """Features of a working set of a path; None: all of them at once."""
        p, rows = objective.n_coefficients, threshold.room
        if self.working_set is not None:
            width = max(self.working_set, rows + 1)
        elif rows * p * jnp.dtype(objective.dtype).itemsize > TABLEAU_BYTES:
            width = max(WORKING_SET, 4 * rows)
        else:
            return None
        return width if width < p else None

    # --- every k -----------------------------------------------------------------------------------------------------
    def path(self, objective: AbstractRefittable, threshold: AbstractUnitThreshold, key: Array) -> Trail:
        if in_columns(objective, threshold):
            return self._trail(objective, threshold)
        rounds = 1 if self.effort == "fast" else ROUNDS
        return unit_search.path_of_units(objective, threshold, self._unit_width(objective, threshold), rounds)

    def _trail(self, objective: AbstractRestrictable, threshold: AbstractUnitThreshold) -> Trail:
        p, locked, k_max = objective.n_coefficients, threshold.keep.shape[0], threshold.most
        width, origin = self._path_width(objective, threshold), objective.origin()
        nothing = support_of(objective, _keep_first(threshold), jnp.int32(locked))
        row = Trail(nothing, gather(origin, nothing), jnp.asarray(jnp.inf, origin.dtype), jnp.int32(0))
        trail = jax.tree.map(lambda a: jnp.broadcast_to(a, (k_max + 1, *a.shape)), row)
        walk = Walk(jnp.int32(0), jnp.int32(1), jnp.int32(DESCEND), jnp.int32(0), origin, trail)
        if width is None:
            walk = self._walk(all_features(objective, threshold), objective, threshold, walk, jnp.int32(k_max))
        else:
            ends = jnp.asarray([*(k for k in STAGES if 1.25 * k < k_max), k_max], jnp.int32)

            def stage(walk: Walk) -> Walk:
                chosen, support = _chosen_before(objective, walk)
                equations = objective.normal_equations(walk.x)
                _, grad = objective.value_and_grad(walk.x, support)
                grad = jnp.where(walk.k > 0, grad[:p], equations.rhs)
                scores = jnp.where(chosen, jnp.inf, alone(equations, grad))
                within = narrowed_to(objective, threshold, top_k(scores, width))
                return self._walk(within, objective, threshold, walk, jnp.min(jnp.where(ends < walk.k, k_max, ends)))

            walk = lax.while_loop(lambda walk: any_lane(walk.direction != 0), stage, walk)
        trail = walk.trail
        trail = trail._replace(result=jnp.where(trail.result == 0, jnp.int32(RESULTS.converged), trail.result))
        return jax.tree.map(lambda a: a[jnp.minimum(jnp.arange(k_max + 1), threshold.k)], trail)

    def _walk(
        self,
        within: WorkingSet,
        objective: AbstractRestrictable,
        threshold: AbstractUnitThreshold,
        walk: Walk,
        end: Array,
    ) -> Walk:
        """Walk from size to size in a working set: up to `end` and, after the last size, back."""
        p, rows = objective.n_coefficients, threshold.room
        quadratic, tol = objective.quadratic, tolerance("swap", walk.x.dtype)
        backward = quadratic and self.effort != "fast"

        def begin(walk: Walk) -> tuple[Equations, Array, Standing]:
            """A model around the last point, and the empty tableau that is to take in its support."""
            equations = within.objective.normal_equations(within.inward(walk.x, p))
            chosen, _ = _chosen_before(objective, walk)
            chosen = chosen if within.features is None else chosen[within.features]
            t = empty_tableau(equations, rows)
            return equations, chosen, (t, no_move(t), jnp.where(within.kept, KEPT, chosen.astype(jnp.int32)))

        def active(walk: Walk) -> Array:
            return (walk.direction < 0) | ((walk.direction > 0) & (walk.k <= end))

        equations, _, first = begin(walk)
        if quadratic and within.features is not None:  # it lasts for many sizes
            equations = gram_equations(equations)

        def body(carry: tuple[Walk, Standing]) -> tuple[Walk, Standing]:
            walk, search = carry
            k, value, last = walk.k, walk.trail.value[walk.k], walk.k >= threshold.k
            model = equations
            chosen, turn = None, 1 - 2 * ((walk.direction < 0) | last).astype(jnp.int32) if quadratic else 0
            if not quadratic:
                model, chosen, search = begin(walk)
            goal = Goal(within.kept, k, walk.stage == DESCEND, _scale(objective, value), turn)
            t, move, level = search
            t, move, level, _ = settle_entries(model, t, move, level, goal)
            search = t, move, level
            x = within.inward(walk.x, p)
            nothing = Point((jnp.zeros(rows, jnp.int32), k), x, jnp.asarray(jnp.inf, x.dtype), jnp.int32(0))
            # On the way back few sizes gain anything.
            worth = active(walk) & (~jnp.isfinite(value) | (not quadratic) | (t.value / 2 < value - tol * value))
            found = lax.cond(
                any_lane(worth),
                lambda: best_of(
                    lambda idx: within.fitted(threshold, idx, x, t.gram if quadratic else None),
                    _near(objective, t, move, within.kept),
                ),
                lambda: nothing,
            )
            found = within.outward(found, p)
            better = worth & (found.value < value)
            here = support_of(objective, *found.where)
            row = Trail(here, gather(found.x, here), found.value, found.fault)
            trail = jax.tree.map(lambda a, b: a.at[k].set(jnp.where(better, b, a[k])), walk.trail, row)
            settled, stage = jnp.ones((), bool), walk.stage
            if not quadratic:
                new = ~jnp.isfinite(value)
                improved = better & (new | (found.value < value - tol * jnp.abs(value)))
                moved = new | jnp.any((t.chosen != chosen) & ~within.kept)
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
            return either(active(walk), after, walk), search

        return lax.while_loop(lambda carry: any_lane(active(carry[0])), body, (walk, first))[0]


def _keep_first(threshold: AbstractUnitThreshold) -> Array:
    """The kept features, and room for the others."""
    keep = jnp.asarray(threshold.keep, jnp.int32)
    return jnp.concatenate([keep, jnp.zeros(threshold.most, jnp.int32)])


def _chosen_before(objective: AbstractObjective, walk: Walk) -> tuple[Array, Support]:
    """The support to go on from: that of the size if there is one, else of the size before; also as a mask."""
    k = jnp.where(jnp.isfinite(walk.trail.value[walk.k]), walk.k, jnp.maximum(walk.k - 1, 0))
    support = jax.tree.map(lambda a: a[k], walk.trail.support)
    return members(support, objective.n_coefficients), support


def _scale(objective: AbstractObjective, value: Array) -> Array | None:
    """The scale that gains of swaps are compared with; None: the tableau's value."""
    return None if objective.quadratic else 2 * jnp.abs(value)


def start_count(starts: int, k: AnyArray) -> Array:
    """How many starts a step makes: walks from small supports are short, and more of them are worth their time."""
    return jnp.minimum(starts, jnp.maximum(2 * starts // 5, 2 * starts // jnp.maximum(k, 1))).astype(jnp.int32)


def _end(search: Settled) -> tuple[Array, Array]:
    """The support that a start found, and the tableau's value there."""
    tableau, _, _, lowest = search
    found = tableau if lowest is None else lowest
    return found.idx, found.value


def _near(objective: AbstractObjective, t: Tableau, move: Move, kept: Array) -> Array:
    """Supports to refit: that of the tableau and, for a local model, those of its best swaps."""
    if objective.quadratic:
        return t.idx[None]
    features = top_k(move.scores, min(SWAPS, move.scores.shape[0]))
    gains = swap_gains(t, (t.idx >= 0) & ~kept[t.idx], features)
    out, there = jnp.argmax(gains, axis=0), jnp.max(gains, axis=0) > -jnp.inf
    singles = jax.vmap(lambda i, j, there: t.idx.at[i].set(jnp.where(there, j, t.idx[i])))(out, features, there)
    return jnp.vstack([t.idx, singles])
