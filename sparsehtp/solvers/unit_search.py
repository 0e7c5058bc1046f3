"""Best swaps of units (entries with bounds, groups, rows, leaves) in the local quadratic model of any refittable F.

Around a point z0 the model is c0 - r'z + z'Az / 2 over the entries of a working set of units. With E the entries of the
chosen units and the free ones, those at an active bound held where they are,

    P = A_EE^-1,    H = P A_E,    c = P r_E,    g = r - A_E' c,    Q_J = A_JJ - A_JE P A_EJ,

adding unit J lowers the model by g_J' Q_J^-1 g_J / 2, and swapping unit i out and J in by

    (g_J + H_iJ' v)' (Q_J + H_iJ' D^-1 H_iJ)^-1 (g_J + H_iJ' v) / 2 - c_i'v / 2,    D = P_ii,  v = D^-1 c_i,

with all coefficients of E optimised again. Both are exact for a quadratic F without bounds. Else they propose: only a
refit of F itself decides which support is kept.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._tolerances import tolerance
from .._types import Support, replace
from ..iteration.results import RESULTS
from ..linalg import START, any_lane, dot, masked_factor, mixed, one_by_one, top_k, uniform
from ..objectives import AbstractScored, gather
from .base import Trail, where
from .refit import refit

MAX_MOVES = 12  # per slot and settling
SINGLES, BOUNDED_SINGLES = 8, 16  # swaps of a local model that are refitted in a step; it knows less of bounds
PER_SLOT = 4  # of them for every unit that may leave
DAMPING = 1e-3  # of the model of a loss whose curvature can vanish
GRAM_PRODUCTS = 2**33  # at most, for the matrix of a model, unless it has FEWEST entries
FEWEST = 128
RAREST = 5  # a perturbed start offers 2^-1 to 2^-(1 + RAREST) of the units

# What the next step does where the last one failed.
DESCEND, SINGLE, PERTURB = 0, 1, 2


class Model(eqx.Module):
    """A working set of units and the quadratic over its entries: the free ones first, then `size` places a unit."""

    units: Int[Array, "w"]
    pools: Int[Array, "w"]  # the units of one pool share a count
    kept: Bool[Array, "w"]
    entries: Support
    A: Float[Array, "d d"]
    r: Float[Array, "d"]
    c0: Float[Array, ""]
    z0: Float[Array, "d"]
    box: tuple[Array, Array] | None
    n_free: int = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def by_unit(self, a: Array) -> Array:
        """What belongs to the units' places, (..., w, size)."""
        return a[..., self.n_free :].reshape(*a.shape[:-1], self.units.shape[0], self.size)


class Gains(NamedTuple):
    """How the model's value falls with one more unit, with every swap (slot out, unit in), and rises with one less;
    -inf (inf) where there is none. `slots` are places of the chosen units in the working set."""

    slots: Int[Array, "m"]
    add: Float[Array, "w"]
    swap: Float[Array, "m w"]
    remove: Float[Array, "m"]
    value: Float[Array, ""]


def unit_count(objective: Any, threshold: Any) -> int:
    """Number of units that there are."""
    x = jax.ShapeDtypeStruct((objective.n_coefficients + objective.n_free,), objective.dtype)
    return int(jax.eval_shape(threshold.scores, x).shape[0])


def unit_entries(objective: Any, threshold: Any, units: Int[Array, "w"]) -> Support:
    """The entries of some units, `size` places each."""
    x = jnp.zeros(objective.n_coefficients + objective.n_free, objective.dtype)
    return threshold.entries(x, Support(units, jnp.ones(units.shape, bool)))


def local_model(objective: Any, threshold: Any, x: Float[Array, "d"], units: Int[Array, "w"]) -> Model:
    """The quadratic model of F around x over some units."""
    free = objective.n_coefficients + jnp.arange(objective.n_free, dtype=jnp.int32)
    own = unit_entries(objective, threshold, units)
    mask = jnp.concatenate([jnp.ones(free.shape, bool), own.mask])
    entries = Support(jnp.concatenate([free, own.idx]), mask)
    problem = objective.restrict(entries)
    z = gather(x, entries)
    A = problem.hess(z, 0.0 if objective.quadratic else DAMPING)
    A = jnp.where(mask[:, None] & mask, (A + A.T) / 2, 0)
    grad = jnp.where(mask, problem.grad(z), 0)
    r = dot(A, z) - grad
    lower, upper = threshold.box(entries)
    lower = None if lower is None and upper is None else jnp.full_like(z, -jnp.inf) if lower is None else lower
    box = None if lower is None else (lower, jnp.full_like(z, jnp.inf) if upper is None else upper)
    n_units = unit_count(objective, threshold)
    return Model(
        units=units,
        pools=threshold.pools(n_units)[0][units],
        kept=threshold.locked(n_units)[units],
        entries=entries,
        A=A,
        r=r,
        c0=problem.value(z) - jnp.vdot(grad, z) + 0.5 * jnp.vdot(z, dot(A, z)),
        z0=z,
        box=box,
        n_free=objective.n_free,
        size=own.idx.shape[0] // units.shape[0],
    )


def local_gains(model: Model, chosen: Bool[Array, "w"], held: Bool[Array, "d"] | None, room: int) -> Gains:
    """All moves from some chosen units, `room` at most; entries that are held keep their value at z0."""
    f, s, m = model.n_free, model.size, min(max(room, 1), model.units.shape[0])
    slots = top_k(chosen.astype(model.r.dtype), m)
    filled = chosen[slots]
    places = (f + slots[:, None] * s + jnp.arange(s, dtype=jnp.int32)).ravel()
    E = jnp.concatenate([jnp.arange(f, dtype=jnp.int32), places])
    live = model.entries.mask[E] & jnp.concatenate([jnp.ones(f, bool), jnp.repeat(filled, s)])
    still = jnp.zeros(live.shape, bool) if held is None else live & held[E]
    moving = live & ~still
    K = jnp.where(live[:, None], model.A[E], 0)
    P = masked_factor(jnp.where(moving, K[:, E], 0), moving).inverse(model.r.dtype)
    H = dot(P, K)  # zero in rows that are held
    fixed = jnp.where(still, model.z0[E], 0)
    c = dot(P, model.r[E] - dot(fixed, K[:, E])) + fixed
    g = model.r - dot(c, K)
    value = model.c0 - 0.5 * (jnp.vdot(c, model.r[E]) + jnp.vdot(c, g[E]))
    k_unit, h_unit = model.by_unit(K), model.by_unit(H)
    diagonal = _blocks(model)
    Q = diagonal - jnp.einsum("mus,mut->ust", k_unit, h_unit, precision=lax.Precision.HIGHEST)
    g_unit, c_slot = model.by_unit(g), c[f:].reshape(m, s)
    floor = 100 * jnp.finfo(g.dtype).eps * jnp.diagonal(diagonal, axis1=1, axis2=2)

    # What leaves: v, the rows that bring it to the others, and what the room that it gives adds to their curvature.
    D = P[f:, f:].reshape(m, s, m, s)[jnp.arange(m), :, jnp.arange(m), :]
    here = live[f:].reshape(m, s)
    D = jnp.where(here[:, :, None] & here[:, None, :], D, jnp.eye(s, dtype=D.dtype))
    freed = _inverse(D)
    v = jnp.einsum("mst,mt->ms", freed, jnp.where(here, c_slot, 0), precision=lax.Precision.HIGHEST)
    rows = h_unit[f:].reshape(m, s, *h_unit.shape[1:])
    loss = 0.5 * jnp.sum(c_slot * v, axis=1)
    if held is not None:  # single entries
        stays = still[f:]
        cross = jnp.where(stays[:, None], K[f:] - dot(K[f:][:, E], H), 0)
        own = cross[jnp.arange(m), places]
        leaving = g[places] * c[f:] + 0.5 * own * c[f:] ** 2
        loss = jnp.where(stays, leaving, loss)
        v = jnp.where(stays[:, None], c_slot, v)
        rows = jnp.where(stays[:, None, None, None], model.by_unit(cross)[:, None], rows)
        freed = jnp.where(stays[:, None, None], 0, freed)
    may_leave = filled & ~model.kept[slots]
    loss = jnp.where(may_leave, loss, jnp.inf)
    g_swap = g_unit + jnp.einsum("ms,msut->mut", v, rows, precision=lax.Precision.HIGHEST)
    Q_swap = Q + jnp.einsum("msut,msr,mruq->mutq", rows, freed, rows, precision=lax.Precision.HIGHEST)
    box = None if model.box is None else tuple(model.by_unit(bound) for bound in model.box)
    outside = ~chosen & jnp.any(model.by_unit(model.entries.mask), axis=-1)
    same = model.pools[slots][:, None] == model.pools
    swap = jnp.where(may_leave[:, None] & outside & same, _gain(g_swap, Q_swap, floor, box) - loss[:, None], -jnp.inf)
    return Gains(slots, jnp.where(outside, _gain(g_unit, Q, floor, box), -jnp.inf), swap, loss, value)


def _blocks(model: Model) -> Float[Array, "w s s"]:
    """The units' own parts of A."""
    w, s = model.units.shape[0], model.size
    inner = model.A[model.n_free :, model.n_free :].reshape(w, s, w, s)
    return inner[jnp.arange(w), :, jnp.arange(w), :]


def _gain(g: Array, Q: Array, floor: Array, box: Any) -> Array:
    """g' Q^-1 g / 2 by one pivot after the other, dependent entries left out; of single entries within their box."""
    if box is not None:
        q, g = Q[..., 0, 0], g[..., 0]
        move = jnp.clip(g / jnp.where(q > floor[..., 0], q, 1), box[0][..., 0], box[1][..., 0])
        return jnp.where(q > floor[..., 0], g * move - 0.5 * q * move**2, 0)

    def pivot(j: Int[Array, ""], carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        g, Q, total = carry
        q = Q[..., j, j]
        step = jnp.where(q > floor[..., j], 1 / jnp.where(q > floor[..., j], q, 1), 0)
        column = Q[..., j]
        left = Q - column[..., :, None] * column[..., None, :] * step[..., None, None]
        return g - column * (g[..., j] * step)[..., None], left, total + 0.5 * g[..., j] ** 2 * step

    zero = jnp.zeros(jnp.broadcast_shapes(g.shape[:-1], Q.shape[:-2]), g.dtype)
    g, Q = jnp.broadcast_to(g, (*zero.shape, g.shape[-1])), jnp.broadcast_to(Q, (*zero.shape, *Q.shape[-2:]))
    return lax.fori_loop(0, g.shape[-1], pivot, (g, Q, zero))[2]


def _inverse(D: Float[Array, "m s s"]) -> Float[Array, "m s s"]:
    """Inverses of small positive definite matrices by Gauss-Jordan steps; what has no pivot is left out."""
    least = 100 * jnp.finfo(D.dtype).eps * jnp.diagonal(D, axis1=1, axis2=2)

    def step(j: Int[Array, ""], M: Array) -> Array:
        q = M[:, j, j]
        ok = q > jnp.maximum(least[:, j], 0)
        inverse = jnp.where(ok, 1 / jnp.where(ok, q, 1), 0)
        row, column = M[:, j] * inverse[:, None], M[:, :, j]
        new = M - column[:, :, None] * row[:, None, :]
        new = new.at[:, j, :].set(row).at[:, :, j].set(-column * inverse[:, None]).at[:, j, j].set(inverse)
        return new

    return lax.fori_loop(0, D.shape[-1], step, D)


class Goal(NamedTuple):
    """Where a settling ends: at so many units of every pool beside the kept ones and, with `descend`, where no swap
    gains more than `least`. Units that are not `open` come in only when there is no other, and then all may."""

    counts: Int[Array, "pools"]
    descend: Bool[Array, ""]
    least: Float[Array, ""]


def settle(
    model: Model, chosen: Bool[Array, "w"], open_: Bool[Array, "w"], goal: Goal, held: Array | None, room: int
) -> tuple[Bool[Array, "w"], Gains]:
    """Add, remove and swap units in the model until the goal is met: the chosen units, and the moves that are left."""
    limit = MAX_MOVES * (room + 1)

    def body(carry: Any) -> Any:
        chosen, open_, _, _, count = carry
        gains = local_gains(model, chosen, held, room)
        numbers = jnp.zeros(goal.counts.shape, jnp.int32).at[model.pools].add((chosen & ~model.kept).astype(jnp.int32))
        lacking, excess = numbers < goal.counts, numbers > goal.counts
        add = jnp.where(lacking[model.pools], gains.add, -jnp.inf)
        opened = jnp.where(open_, add, -jnp.inf)
        wanted = jnp.any(opened > -jnp.inf)
        add = jnp.where(wanted, opened, add)
        remove = jnp.where(excess[model.pools[gains.slots]], gains.remove, jnp.inf)
        grows, shrinks = jnp.any(add > -jnp.inf), jnp.any(remove < jnp.inf)
        best = jnp.max(gains.swap)
        swaps = ~grows & ~shrinks & goal.descend & (best > goal.least)
        i, j = jnp.unravel_index(jnp.argmax(gains.swap), gains.swap.shape)
        j = jnp.where(grows, jnp.argmax(add), j)
        i = gains.slots[jnp.where(shrinks, jnp.argmin(remove), i)]
        into, out = grows | swaps, swaps | (shrinks & ~grows)
        new = chosen.at[i].set(chosen[i] & ~out)
        new = new.at[j].set(new[j] | into)
        return new, open_ | ~grows, gains, into | out, count + 1

    def going(carry: Any) -> Any:
        return any_lane(carry[3]) & (carry[4] < limit)

    shapes = jax.eval_shape(lambda: local_gains(model, chosen, held, room))
    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    start = (chosen, open_, nothing, jnp.ones((), bool), jnp.int32(0))
    chosen, _, gains, _, _ = lax.while_loop(going, body, start)
    return chosen, gains


def neighbours(chosen: Bool[Array, "w"], gains: Gains, number: int) -> Bool[Array, "number w"]:
    """The supports of the most promising swaps, at most `PER_SLOT` for each unit that may leave; the chosen one itself
    where there are fewer."""
    m, w = gains.swap.shape
    each = min(PER_SLOT, w)
    units = jax.vmap(lambda row: top_k(row, each))(gains.swap)
    worth = jnp.take_along_axis(gains.swap, units, axis=1).ravel()
    best = top_k(worth, min(number, m * each))

    def swapped(pair: Int[Array, ""]) -> Bool[Array, "w"]:
        new = chosen.at[gains.slots[pair // each]].set(False).at[units.ravel()[pair]].set(True)
        return jnp.where(worth[pair] > -jnp.inf, new, chosen)

    return jax.vmap(swapped)(best)


class Point(NamedTuple):
    """A refit of F on some units."""

    chosen: Bool[Array, "units"]
    x: Float[Array, "d"]
    value: Float[Array, ""]
    fault: Int[Array, ""]


def support_of(threshold: Any, chosen: Bool[Array, "units"], dtype: Any) -> Support:
    """The support of the chosen units, as many as the threshold keeps."""
    return threshold.select(chosen.astype(dtype))


def best_fitted(objective: Any, threshold: Any, candidates: Bool[Array, "b units"], start: Float[Array, "d"]) -> Point:
    """The best of the refits on several choices of units."""

    def fitted(chosen: Bool[Array, "units"]) -> Point:
        entries = threshold.entries(start, support_of(threshold, chosen, start.dtype))
        x, fault = refit(objective, threshold, entries, start)
        return Point(chosen, x, objective.value(x, entries), fault)

    if candidates.shape[0] == 1:
        return fitted(candidates[0])
    points = jax.vmap(fitted)(candidates)
    i = jnp.argmin(jnp.where(jnp.isfinite(points.value), points.value, jnp.inf))
    return jax.tree.map(lambda a: a[i], points)


def promising(
    objective: Any, threshold: Any, x: Float[Array, "d"], grad: Float[Array, "d"], chosen: Bool[Array, "units"], w: int
) -> Int[Array, "w"]:
    """The chosen units and those whose gradient promises most."""
    p, steepest = objective.n_coefficients, -threshold.free_gradient(x, grad)
    if isinstance(objective, AbstractScored):
        curvature = objective.curvatures(x)
        steepest = steepest.at[:p].multiply(jnp.where(curvature > 0, lax.rsqrt(jnp.maximum(curvature, 1e-30)), 0))
    return top_k(jnp.where(chosen, jnp.inf, threshold.scores(steepest)), w)


def held_entries(model: Model, chosen: Bool[Array, "w"]) -> Bool[Array, "d"] | None:
    """Entries of the chosen units at an active bound; None without bounds."""
    if model.box is None:
        return None
    grad = dot(model.A, model.z0) - model.r
    lower, upper = model.box
    at = ((model.z0 <= lower) & (grad > 0)) | ((model.z0 >= upper) & (grad < 0))
    inside = jnp.concatenate([jnp.zeros(model.n_free, bool), jnp.repeat(chosen, model.size)])
    return at & inside


def least_gain(value: Array, c0: Array) -> Array:
    """A gain that is worth a swap: more than a part of the value, and than the rounding of the model."""
    return tolerance("swap", value.dtype) * jnp.abs(value) + 5 * jnp.finfo(value.dtype).eps * jnp.abs(c0)


class UnitState(NamedTuple):
    """The best point so far with its gradient, the units chosen there, and how the search for a better one stands."""

    x: Array
    support: Support
    value: Array
    grad: Array
    step_size: Array
    fault: Array
    chosen: Bool[Array, "units"]
    stage: Array  # DESCEND, SINGLE or PERTURB
    failures: Array  # steps of perturbed starts since the last improvement
    optimal: Array
    model: Model
    stale: Array  # the point has left the model's
    key: Array


def width_of(objective: Any, threshold: Any, most: int) -> int:
    """Units of a working set of about `most` entries."""
    units, size = unit_count(objective, threshold), threshold.entries_per_unit
    most = min(most, max(FEWEST, math.isqrt(GRAM_PRODUCTS // max(objective.n_samples, 1))))
    return min(units, max(most // size, 2 * threshold.room))


def init(objective: Any, threshold: Any, x0: Array, key: Array, width: int) -> UnitState:
    """The state before the first step, which finds the units."""
    units = jnp.arange(width, dtype=jnp.int32)
    zero, n_units = jnp.zeros((), objective.dtype), unit_count(objective, threshold)
    shapes = jax.eval_shape(lambda: local_model(objective, threshold, x0, units))
    return UnitState(
        x=x0,
        support=threshold.select(jnp.zeros(n_units, objective.dtype)),
        value=zero + jnp.inf,  # until the first step has refitted
        grad=jnp.zeros_like(x0),
        step_size=zero + 1,
        fault=jnp.int32(0),
        chosen=(threshold.scores(x0) > 0) | threshold.locked(n_units),
        stage=jnp.int32(DESCEND),
        failures=jnp.int32(0),
        optimal=jnp.zeros((), bool),
        model=jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes),
        stale=jnp.ones((), bool),
        key=key,
    )


def step(objective: Any, threshold: Any, state: UnitState, t: Any, starts: int, patience: int) -> UnitState:
    """Settle in the model from the present support or, where that has settled, from perturbed ones, and keep the best
    refit of what is found."""
    width, n_units = state.model.units.shape[0], state.chosen.shape[0]
    tol, started = tolerance("swap", state.value.dtype), jnp.isfinite(state.value)
    far = (state.stage == PERTURB) & (starts > 0)

    def built() -> Model:
        units = jnp.arange(n_units, dtype=jnp.int32)
        if width < n_units:
            grad = objective.value_and_grad(state.x, None)[1]
            units = promising(objective, threshold, state.x, grad, state.chosen, width)
        return local_model(objective, threshold, state.x, units)

    model = lax.cond(any_lane(state.stale), lambda: where(state.stale, built(), state.model), lambda: state.model)
    inside = state.chosen[model.units]
    held = held_entries(model, inside)
    exact = objective.quadratic and held is None
    _, counts = threshold.pools(n_units)
    least = least_gain(jnp.where(started, state.value, model.c0), model.c0)
    goal = Goal(counts, (state.stage != SINGLE) & (started | exact), least)

    def search(i: Any) -> Any:
        begin, open_ = perturbed(state.key, t, model, inside, i)
        begin, open_ = jnp.where(i == 0, inside, begin), (i == 0) | open_
        return settle(model, begin, open_, goal, held, threshold.room)

    (end, gains), ends, values = searched(search, starts, far)
    moved = ~started | jnp.any(end != inside)
    if exact:
        candidates = end[None] if not starts else jnp.where(far, ends[jnp.argmin(values)], end)[None]
    else:
        near = neighbours(end, gains, SINGLES if held is None else BOUNDED_SINGLES)
        if starts:
            order = jnp.argsort(values)[jnp.arange(near.shape[0]) % starts]
            near = jnp.where(far, ends[order], near)
        candidates = jnp.concatenate([end[None], near])
    everywhere = jnp.zeros((candidates.shape[0], n_units), bool).at[:, model.units].set(candidates)
    found = best_fitted(objective, threshold, everywhere, state.x)

    better = found.value < state.value
    improved = found.value < state.value - jnp.where(started, tol * jnp.abs(state.value), 0)
    chosen, x, fault = where(better, (found.chosen, found.x, found.fault), (state.chosen, state.x, state.fault))
    support = threshold.select(chosen.astype(x.dtype))
    value, grad = objective.value_and_grad(x, threshold.entries(x, support))
    failures = jnp.where(improved, 0, state.failures + far)
    optimal = ~moved & ~improved & (failures >= patience)
    if exact:
        optimal &= jnp.max(gains.swap, initial=-jnp.inf) <= least
    return UnitState(
        x=x,
        support=support,
        value=value,
        grad=grad,
        step_size=state.step_size,
        fault=fault,
        chosen=chosen,
        stage=jnp.where(improved, DESCEND, jnp.where(moved, SINGLE, PERTURB)).astype(jnp.int32),
        failures=failures,
        optimal=optimal,
        model=model,
        stale=better & ~jnp.asarray(exact and width == n_units),
        key=state.key,
    )


def searched(search: Any, starts: int, far: Array) -> Any:
    """The search from the support itself (i = 0), and where those from perturbed starts end (with `far` alone), in one
    loop: one after the other on a CPU and side by side elsewhere, so that it is compiled once."""
    if not starts:
        return search(jnp.int32(0)), None, None
    if not one_by_one():
        chosen, gains = jax.vmap(search, axis_name=START)(jnp.arange(starts + 1))
        return (chosen[0], jax.tree.map(lambda a: a[0], gains)), chosen[1:], gains.value[1:]
    shapes = jax.eval_shape(search, jnp.int32(0))
    own = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)

    def body(i: Any, carry: Any) -> Any:
        own, ends, values = carry
        end = search(i)
        own = where(i == 0, end, own)
        return own, ends.at[i - 1].set(end[0]), values.at[i - 1].set(end[1].value)  # i = 0: overwritten

    ends, values = jnp.zeros((starts, *own[0].shape), bool), jnp.full(starts, jnp.inf, own[1].value.dtype)
    return lax.fori_loop(0, jnp.where(any_lane(far), starts + 1, 1), body, (own, ends, values))


def perturbed(key: Array, t: Any, model: Model, chosen: Bool[Array, "w"], i: Any) -> tuple[Array, Array]:
    """The support without a random part of its units (at least one), and the random part of the others that may enter."""
    seed = mixed(jax.random.key_data(key).ravel(), t, i)
    leave, part = uniform(seed, jnp.uint32(2**32 - 1)), 0.5 ** (1 + RAREST * uniform(seed, jnp.uint32(2**32 - 2)))
    draws = uniform(seed, model.units)
    may = chosen & ~model.kept
    first = draws == jnp.min(jnp.where(may, draws, 1))
    return chosen & ~(may & ((draws < leave) | first)), ~chosen & (draws < part)


def path(objective: Any, threshold: Any, width: int, rounds: int) -> Trail:
    """The best support found for every k, each from that of the size before, in at most so many rounds."""
    n_units, k_max = unit_count(objective, threshold), threshold.k_max
    exact = objective.quadratic and threshold.structure != "bounded entries"
    origin, everything = objective.origin(), jnp.arange(n_units, dtype=jnp.int32)

    def model_at(x: Array, chosen: Array) -> Model:
        units = everything
        if width < n_units:
            units = promising(objective, threshold, x, objective.value_and_grad(x, None)[1], chosen, width)
        return local_model(objective, threshold, x, units)

    lasting = model_at(origin, threshold.locked(n_units)) if exact and width == n_units else None

    def size(carry: Any, k: Any) -> Any:
        limited = replace(threshold, k=jnp.minimum(k, threshold.k))
        _, counts = limited.pools(n_units)

        def better(carry: Any) -> Any:
            chosen, x, value, fault, _, tries = carry
            model = model_at(x, chosen) if lasting is None else lasting
            inside = chosen[model.units]
            held, new = held_entries(model, inside), ~jnp.isfinite(value)
            least = least_gain(jnp.where(new, model.c0, value), model.c0)
            # A descent by the model alone may end higher: later rounds try its best swaps one by one.
            goal = Goal(counts, jnp.asarray(exact) | (tries == 0), least)
            end, gains = settle(model, inside, jnp.ones(inside.shape, bool), goal, held, threshold.room)
            candidates = end[None]
            if not exact and rounds > 1:
                near = neighbours(end, gains, SINGLES if held is None else BOUNDED_SINGLES)
                candidates = jnp.concatenate([candidates, near])
            everywhere = jnp.zeros((candidates.shape[0], n_units), bool).at[:, model.units].set(candidates)
            found = best_fitted(objective, limited, everywhere, x)
            improved = new | (found.value < value - tolerance("swap", value.dtype) * jnp.abs(value))
            moved = new | jnp.any(end != inside)
            point = where(new | (found.value < value), found, Point(chosen, x, value, fault))
            return *point, improved | moved, tries + 1

        chosen, x, *_ = carry
        first = (chosen, x, jnp.asarray(jnp.inf, x.dtype), jnp.int32(0), jnp.ones((), bool), jnp.int32(0))
        chosen, x, value, fault, _, _ = lax.while_loop(lambda c: any_lane(c[-2] & (c[-1] < rounds)), better, first)
        support = limited.select(chosen.astype(x.dtype))
        result = jnp.where(fault != 0, fault, jnp.int32(RESULTS.converged))
        row = Trail(support, gather(x, limited.entries(x, support)), value, result)
        return (chosen, x), row

    _, rows = lax.scan(size, (threshold.locked(n_units), origin), jnp.arange(k_max + 1, dtype=jnp.int32))
    return rows
