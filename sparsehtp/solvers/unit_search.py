"""Best swaps of units (entries with bounds, groups, rows, leaves) in the local quadratic model of any refittable F.

The model is that of `unit_model`. Its moves are exact for a quadratic F without bounds. Else they propose: only a refit
of F itself decides which support is kept.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._tolerances import tolerance
from .._types import Support, replace
from ..columns import gather
from ..iteration.results import RESULTS
from ..linalg import Plane, any_lane, dot, either, top_k
from ..objectives import AbstractRefittable, AbstractScored
from ..thresholds import AbstractUnitThreshold
from .base import Trail
from .refit import refit
from .search import PERTURB, SINGLE, SWAPS, Point, SearchState, affordable, best_of, first_state, renewed
from .starts import from_starts, parts, seed_of
from .unit_model import Blocks, UnitModel, blocks_at, boxed_blocks, chosen_in, gains_of, pivot_units

MAX_MOVES = 12  # per slot and settling
BOUNDED_SWAPS = 16  # in place of SWAPS, since a local model knows less of bounds
PER_SLOT = 4  # of them for every unit that may leave
DAMPING = 1e-3  # of the model of a loss whose curvature can vanish


def unit_entries(objective: AbstractRefittable, threshold: AbstractUnitThreshold, units: Int[Array, "w"]) -> Support:
    """The entries of some units, `size` places each."""
    x = jnp.zeros(objective.n_coefficients + objective.n_free, objective.dtype)
    return threshold.entries(x, Support(units, jnp.ones(units.shape, bool)))


def local_model(
    objective: AbstractRefittable,
    threshold: AbstractUnitThreshold,
    x: Float[Array, "d"],
    chosen: Bool[Array, "units"],
    width: int,
) -> UnitModel:
    """The quadratic model of F around x over the units that promise most."""
    n_units = threshold.n_units(objective)
    units = jnp.arange(n_units, dtype=jnp.int32)
    if width < n_units:
        units = promising(objective, threshold, x, objective.value_and_grad(x, None)[1], chosen, width)
    free = objective.n_coefficients + jnp.arange(objective.n_free, dtype=jnp.int32)
    own = unit_entries(objective, threshold, units)
    mask = jnp.concatenate([jnp.ones(free.shape, bool), own.mask])
    entries = Support(jnp.concatenate([free, own.idx]), mask)
    problem = objective.restrict(entries)
    z = gather(x, entries)
    A = problem.hess(z, 0.0 if objective.quadratic else DAMPING)
    A = jnp.where(mask[:, None] & mask, (A + A.T) / 2, 0)
    grad = problem.grad(z)
    r = dot(A, z) - grad
    region, c0 = threshold.box(entries), problem.value(z) - dot(grad, z) + 0.5 * dot(z, dot(A, z))
    lower = jnp.full_like(z, -jnp.inf) if region.lower is None else region.lower
    upper = jnp.full_like(z, jnp.inf) if region.upper is None else region.upper
    box = None if region.whole else (lower, upper)
    if region.plane is not None:
        A, r, c0 = with_spring(A, r, c0, z, grad, region.plane)
    n_free, size, t = objective.n_free, own.idx.shape[0] // units.shape[0], objective.alike
    if box is None and t == size > 1 and n_free in (0, t):  # one response's matrix, with a column of r for each
        entries = Support(entries.idx[::t], entries.mask[::t])
        A, r, z, n_free, size = A[::t, ::t], r.reshape(-1, t), z[::t], n_free // t, 1
    return UnitModel(
        units=units,
        pools=threshold.pools(n_units)[0][units],
        kept=threshold.locked(n_units)[units],
        entries=entries,
        A=A,
        r=r,
        c0=c0,
        z0=z,
        box=box,
        n_free=n_free,
        size=size,
    )


def with_spring(
    A: Float[Array, "d d"],
    r: Float[Array, "d"],
    c0: Float[Array, ""],
    z: Float[Array, "d"],
    grad: Float[Array, "d"],
    plane: Plane,
) -> tuple[Array, Array, Array]:
    """The quadratic with a spring that holds it near a plane: all moves are then those of bounded entries.

    A multiplier takes the common part of the gradient at z, so that the spring yields to the others alone. It is as
    stiff as lets pivots of nearly collinear columns count.
    """
    normal, total = plane
    held = normal != 0
    size = jnp.where(held, normal, 1)
    multiplier = plane.multiplier(z, grad)
    curvature = jnp.max(jnp.where(held, jnp.diagonal(A) / size**2, 0))
    slope = jnp.max(jnp.where(held, jnp.abs(grad / size - multiplier), 0))
    reach = 0.0 if plane.signed else slope / total  # where F is flat, a sum of positive parts still holds them
    stiffness = (curvature + reach) * jnp.finfo(A.dtype).eps ** -0.25
    c0 = c0 + (multiplier + 0.5 * stiffness * total) * total
    return A + stiffness * normal[:, None] * normal, r + (multiplier + stiffness * total) * normal, c0


class UnitGoal(NamedTuple):
    """Where a settling ends: at so many units of every pool beside the kept ones and, with `descend`, where no swap
    gains more than `least`. Units that are not `open` come in only when there is no other, and then all may."""

    counts: Int[Array, "pools"]
    descend: Bool[Array, ""]
    least: Float[Array, ""]


class Search(NamedTuple):
    """Where a settling ended: the tableau, the chosen units there, and what every swap would gain."""

    t: Blocks
    chosen: Bool[Array, "w"]
    swap: Float[Array, "m w"]


class _Move(NamedTuple):
    i: Int[Array, ""]
    j: Int[Array, ""]
    out: Bool[Array, ""]
    into: Bool[Array, ""]


# The blocks, what is held at a bound, the units that are open, the next move, what swaps gain, and moves made.
_Carry: TypeAlias = tuple[Blocks, Array | None, Array, _Move, Array, Array]


def settle_units(
    model: UnitModel, chosen: Bool[Array, "w"], open_: Bool[Array, "w"], goal: UnitGoal, room: int
) -> Search:
    """Add, remove and swap units in the model until the goal is met."""
    limit, kept = MAX_MOVES * (room + 1), model.kept

    def next_move(t: Blocks, held: Array | None, open_: Array) -> tuple[_Move, Array, Array]:
        gains = gains_of(model, t, held)
        others = (chosen_in(model, t) & ~kept).astype(jnp.int32)
        numbers = jnp.zeros(goal.counts.shape, jnp.int32).at[model.pools].add(others)
        add = jnp.where((numbers < goal.counts)[model.pools] | kept, gains.add, -jnp.inf)
        add = jnp.where(jnp.any(~t.filled), add, -jnp.inf)
        opened = jnp.where(open_ | kept, add, -jnp.inf)
        add = jnp.where(jnp.any(opened > -jnp.inf), opened, add)
        remove = jnp.where((numbers > goal.counts)[model.pools[t.slots]], gains.remove, jnp.inf)
        grows, shrinks = jnp.any(add > -jnp.inf), jnp.any(remove < jnp.inf)
        swaps = ~grows & ~shrinks & goal.descend & (jnp.max(gains.swap) > goal.least)
        i, j = jnp.unravel_index(jnp.argmax(gains.swap), gains.swap.shape)
        i = jnp.where(shrinks, jnp.argmin(remove), jnp.where(grows, jnp.argmin(t.filled), i))
        j = jnp.where(grows & ~shrinks, jnp.argmax(add), j)
        i, j = i.astype(jnp.int32), j.astype(jnp.int32)
        return _Move(i, j, swaps | shrinks, swaps | (grows & ~shrinks)), open_ | ~grows, gains.swap

    def body(carry: _Carry) -> _Carry:
        t, held, open_, move, _, count = carry
        if model.box is None:
            t = pivot_units(model, t, *move)
        else:
            new = chosen_in(model, t)
            i = t.slots[move.i]
            new = new.at[i].set(new[i] & ~move.out)
            t, held = boxed_blocks(model, new.at[move.j].max(move.into), room)
        move, open_, swap = next_move(t, held, open_)
        return t, held, open_, move, swap, count + 1

    def going(carry: _Carry) -> Array:
        *_, move, _, count = carry
        return any_lane((count == 0) | move.out | move.into) & (count < limit)

    first, held = (
        (blocks_at(model, chosen, None, room), None) if model.box is None else boxed_blocks(model, chosen, room)
    )
    zero, no = jnp.int32(0), jnp.zeros((), bool)
    nothing = jnp.full((first.slots.shape[0], model.units.shape[0]), -jnp.inf, model.r.dtype)
    carry = (first, held, open_, _Move(zero, zero, no, no), nothing, zero)
    t, _, _, _, swap, _ = lax.while_loop(going, body, carry)
    return Search(t, chosen_in(model, t), swap)


def neighbours(model: UnitModel, end: Search) -> Bool[Array, "number w"]:
    """The supports of the most promising swaps, at most `PER_SLOT` for each unit that may leave; the chosen one itself
    where there are fewer."""
    m, w = end.swap.shape
    number = SWAPS if model.box is None else BOUNDED_SWAPS
    each = min(PER_SLOT, w)
    units = jax.vmap(lambda row: top_k(row, each))(end.swap)
    worth = jnp.take_along_axis(end.swap, units, axis=1).ravel()
    best = top_k(worth, min(number, m * each))

    def swapped(pair: Int[Array, ""]) -> Bool[Array, "w"]:
        new = end.chosen.at[end.t.slots[pair // each]].set(False).at[units.ravel()[pair]].set(True)
        return jnp.where(worth[pair] > -jnp.inf, new, end.chosen)

    return jax.vmap(swapped)(best)


def best_fitted(
    objective: AbstractRefittable,
    threshold: AbstractUnitThreshold,
    model: UnitModel,
    candidates: Bool[Array, "b w"],
    start: Float[Array, "d"],
) -> Point:
    """The best of the refits on several choices of a model's units."""

    def fitted(chosen: Bool[Array, "units"]) -> Point:
        entries = threshold.entries(start, threshold.select(chosen.astype(start.dtype)))
        x, fault = refit(objective, threshold, entries, start)
        return Point(chosen, x, objective.value(x, entries), fault)

    everywhere = jnp.zeros((candidates.shape[0], threshold.n_units(objective)), bool)
    return best_of(fitted, everywhere.at[:, model.units].set(candidates))


def promising(
    objective: AbstractRefittable,
    threshold: AbstractUnitThreshold,
    x: Float[Array, "d"],
    grad: Float[Array, "d"],
    chosen: Bool[Array, "units"],
    w: int,
) -> Int[Array, "w"]:
    """The chosen units and those whose gradient promises most."""
    p, steepest = objective.n_coefficients, -threshold.free_gradient(x, grad)
    if isinstance(objective, AbstractScored):
        curvature = objective.curvatures(x)
        steepest = steepest.at[:p].multiply(jnp.where(curvature > 0, lax.rsqrt(jnp.maximum(curvature, 1e-30)), 0))
    return top_k(jnp.where(chosen, jnp.inf, threshold.scores(steepest)), w)


def least_gain(value: Array, c0: Array) -> Array:
    """A gain that is worth a swap: more than a part of the value, and than the rounding of the model."""
    return tolerance("swap", value.dtype) * jnp.abs(value) + 5 * jnp.finfo(value.dtype).eps * jnp.abs(c0)


def width_of(objective: AbstractRefittable, threshold: AbstractUnitThreshold, most: int) -> int:
    """Units of a working set of about `most` entries."""
    units, size = threshold.n_units(objective), threshold.entries_per_unit
    return min(units, max(affordable(most, objective.n_samples) // size, 2 * threshold.room))


def init(
    objective: AbstractRefittable, threshold: AbstractUnitThreshold, x0: Array, key: Array, width: int
) -> SearchState:
    """The state before the first step, which finds the units."""
    n_units = threshold.n_units(objective)
    chosen = threshold.occupied(x0) | threshold.locked(n_units)
    shapes = jax.eval_shape(lambda: local_model(objective, threshold, x0, chosen, width))
    model = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    return first_state(objective, x0, threshold.select(jnp.zeros(n_units, objective.dtype)), chosen, model, key)


def step(
    objective: AbstractRefittable,
    threshold: AbstractUnitThreshold,
    state: SearchState,
    t: Array,
    starts: int,
    patience: int,
) -> SearchState:
    """Settle in the model from the present support or, where that has settled, from perturbed ones, and keep the best
    refit of what is found."""
    width, n_units = state.model.units.shape[0], state.chosen.shape[0]
    started = jnp.isfinite(state.value)
    far = (state.stage == PERTURB) & (starts > 0)

    model = renewed(state.stale, lambda: local_model(objective, threshold, state.x, state.chosen, width), state.model)
    inside = state.chosen[model.units]
    exact = objective.quadratic and model.box is None
    _, counts = threshold.pools(n_units)
    least = least_gain(jnp.where(started, state.value, model.c0), model.c0)
    goal = UnitGoal(counts, (state.stage != SINGLE) & (started | exact), least)

    def search(i: Array) -> Search:
        begin, open_ = perturbed(state.key, t, model, inside, i)
        begin, open_ = jnp.where(i == 0, inside, begin), (i == 0) | open_
        return settle_units(model, begin, open_, goal, threshold.room)

    end, (ends, values) = from_starts(search, lambda end: (end.chosen, end.t.value), starts, far)
    moved = ~started | jnp.any(end.chosen != inside)
    if exact:
        candidates = end.chosen[None] if not starts else jnp.where(far, ends[jnp.argmin(values)], end.chosen)[None]
    else:
        near = neighbours(model, end)
        if starts:
            order = jnp.argsort(values)[jnp.arange(near.shape[0]) % starts]
            near = jnp.where(far, ends[order], near)
        candidates = jnp.concatenate([end.chosen[None], near])
    found = best_fitted(objective, threshold, model, candidates, state.x)

    better = found.value < state.value
    improved = found.value < state.value - jnp.where(started, least, 0)
    chosen, x, fault = either(better, (found.where, found.x, found.fault), (state.chosen, state.x, state.fault))
    support = threshold.select(chosen.astype(x.dtype))
    value, grad = objective.value_and_grad(x, threshold.entries(x, support))
    sure = jnp.all(end.swap <= least) if exact else jnp.ones((), bool)  # not where one is NaN
    stale = better & ~jnp.asarray(exact and width == n_units)
    new = state._replace(
        x=x, support=support, value=value, grad=grad, fault=fault, chosen=chosen, model=model, stale=stale
    )
    return new.progressed(improved, moved, far, sure, patience)


def perturbed(key: Array, t: Array, model: UnitModel, chosen: Bool[Array, "w"], i: Array) -> tuple[Array, Array]:
    """The support without a random part of its units (one at least), and the others that may come in, a random part."""
    stay, open_ = parts(seed_of(key, t, i), model.units, chosen & ~model.kept)
    return chosen & (stay | model.kept), ~chosen & open_


Round: TypeAlias = tuple[Point, Array, Array]  # the best point, whether to go on, rounds made


def path_of_units(objective: AbstractRefittable, threshold: AbstractUnitThreshold, width: int, rounds: int) -> Trail:
    """The best support found for every k, each from that of the size before, in at most so many rounds."""
    n_units, k_max = threshold.n_units(objective), threshold.most
    exact = objective.quadratic and not threshold.bounded
    start = threshold.locked(n_units), objective.origin()
    lasting = local_model(objective, threshold, start[1], start[0], width) if exact and width == n_units else None

    def size(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Trail]:
        limited = replace(threshold, k=jnp.minimum(k, threshold.k))
        _, counts = limited.pools(n_units)

        def better(carry: Round) -> Round:
            (chosen, x, value, fault), _, tries = carry
            model = local_model(objective, threshold, x, chosen, width) if lasting is None else lasting
            inside = chosen[model.units]
            new = ~jnp.isfinite(value)
            least = least_gain(jnp.where(new, model.c0, value), model.c0)
            # A descent by the model alone may end higher: later rounds try its best swaps one by one.
            goal = UnitGoal(counts, jnp.asarray(exact) | (tries == 0), least)
            end = settle_units(model, inside, jnp.ones(inside.shape, bool), goal, threshold.room)
            candidates = end.chosen[None]
            if not exact and rounds > 1:
                candidates = jnp.concatenate([candidates, neighbours(model, end)])
            found = best_fitted(objective, limited, model, candidates, x)
            improved = new | (found.value < value - tolerance("swap", value.dtype) * jnp.abs(value))
            moved = new | jnp.any(end.chosen != inside)
            point = either(new | (found.value < value), found, Point(chosen, x, value, fault))
            return point, improved | moved, tries + 1

        chosen, x = carry
        first = Point(chosen, x, jnp.asarray(jnp.inf, x.dtype), jnp.int32(0)), jnp.ones((), bool), jnp.int32(0)
        (chosen, x, value, fault), _, _ = lax.while_loop(lambda c: any_lane(c[1] & (c[2] < rounds)), better, first)
        support = limited.select(chosen.astype(x.dtype))
        result = jnp.where(fault != 0, fault, jnp.int32(RESULTS.converged))
        row = Trail(support, gather(x, limited.entries(x, support)), value, result)
        return (chosen, x), row

    _, rows = lax.scan(size, start, jnp.arange(k_max + 1, dtype=jnp.int32))
    return rows
