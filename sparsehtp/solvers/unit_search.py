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
ACTIVE_SETS = 6  # at most, to find the model's minimum within bounds
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


class Tableau(NamedTuple):
    """The model on the chosen units, as above; a slot that is not filled is zero."""

    slots: Int[Array, "m"]  # places of the chosen units in the working set
    filled: Bool[Array, "m"]
    P: Float[Array, "e e"]
    H: Float[Array, "e d"]
    c: Float[Array, "e"]
    g: Float[Array, "d"]
    Q: Float[Array, "w s s"]
    value: Float[Array, ""]


class Gains(NamedTuple):
    """How the model's value falls with one more unit, with every swap (slot out, unit in), and rises with one less;
    -inf (inf) where there is none."""

    add: Float[Array, "w"]
    swap: Float[Array, "m w"]
    remove: Float[Array, "m"]


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


def tableau_at(model: Model, chosen: Bool[Array, "w"], held: Bool[Array, "d"] | None, room: int) -> Tableau:
    """The model on some chosen units, `room` at most; entries that are held keep their value at z0."""
    f, s, m = model.n_free, model.size, min(max(room, 1), model.units.shape[0])
    slots = top_k(chosen.astype(model.r.dtype), m)
    filled = chosen[slots]
    E = _places(model, slots)
    live = model.entries.mask[E] & jnp.concatenate([jnp.ones(f, bool), jnp.repeat(filled, s)])
    still = jnp.zeros(live.shape, bool) if held is None else live & held[E]
    K = jnp.where(live[:, None], model.A[E], 0)
    P = masked_factor(jnp.where(live & ~still, K[:, E], 0), live & ~still).inverse(model.r.dtype)
    H = dot(P, K)  # zero in rows that are held
    fixed = jnp.where(still, model.z0[E], 0)
    c = dot(P, model.r[E] - dot(fixed, K[:, E])) + fixed
    g = model.r - dot(c, K)
    Q = _blocks(model) - _sum("eus,eut->ust", model.by_unit(K), model.by_unit(H))
    value = model.c0 - 0.5 * (jnp.vdot(c, model.r[E]) + jnp.vdot(c, g[E]))
    return Tableau(slots, filled, P, H, c, g, Q, value)


def boxed_tableau(model: Model, chosen: Bool[Array, "w"], room: int) -> tuple[Tableau, Bool[Array, "d"]]:
    """The model's minimum on some chosen units within their bounds, and the entries that are held at one: primal-dual
    active sets, which nearly always settle in so few steps."""
    lower, upper = model.box if model.box is not None else (model.z0, model.z0)
    inside = jnp.concatenate([jnp.zeros(model.n_free, bool), jnp.repeat(chosen, model.size)])

    def step(_: Any, carry: Any) -> Any:
        low, high, _ = carry
        t = tableau_at(replace(model, z0=jnp.where(low, lower, jnp.where(high, upper, 0))), chosen, low | high, room)
        z = jnp.zeros_like(lower).at[_places(model, t.slots)].add(t.c)
        free = inside & ~low & ~high
        return (low & (t.g < 0)) | (free & (z < lower)), (high & (t.g > 0)) | (free & (z > upper)), (t, low | high)

    no = jnp.zeros(inside.shape, bool)
    first = step(0, (no, no, None))
    return tuple(lax.fori_loop(1, ACTIVE_SETS, step, first)[2])


def chosen_in(model: Model, t: Tableau) -> Bool[Array, "w"]:
    """The chosen units."""
    return jnp.zeros(model.units.shape, bool).at[t.slots].max(t.filled)


def _places(model: Model, slots: Int[Array, "m"]) -> Int[Array, "e"]:
    """The entries of the free ones and of some units, as places in the model."""
    f, s = model.n_free, model.size
    own = f + slots[:, None] * s + jnp.arange(s, dtype=jnp.int32)
    return jnp.concatenate([jnp.arange(f, dtype=jnp.int32), own.ravel()])


def _sum(subscripts: str, *arrays: Array) -> Array:
    return jnp.einsum(subscripts, *arrays, precision=lax.Precision.HIGHEST)


def _schur(model: Model, t: Tableau, rows: Int[Array, "b"]) -> Float[Array, "b d"]:
    """Rows of A with the coefficients of the chosen units optimised out."""
    A = jnp.where(model.entries.mask[rows][:, None], model.A[rows], 0)
    return A - dot(A[:, _places(model, t.slots)], t.H)


def _leaving(model: Model, t: Tableau, held: Bool[Array, "d"] | None) -> tuple[Array, Array, Array, Array]:
    """For every slot: v, the rows that bring it to the gradient of the others, what the room that it gives adds to
    their curvature, and how much the value rises."""
    f, s, m = model.n_free, model.size, t.slots.shape[0]
    own = _places(model, t.slots)[f:]
    here = (model.entries.mask[own] & jnp.repeat(t.filled, s)).reshape(m, s)
    D = t.P[f:, f:].reshape(m, s, m, s)[jnp.arange(m), :, jnp.arange(m), :]
    D = jnp.where(here[:, :, None] & here[:, None, :], D, jnp.eye(s, dtype=D.dtype))
    freed, c = _inverse(D), jnp.where(here, t.c[f:].reshape(m, s), 0)
    v, rows = _sum("mst,mt->ms", freed, c), t.H[f:].reshape(m, s, -1)
    loss = 0.5 * jnp.sum(c * v, axis=1)
    if held is not None:  # single entries, which move to zero from where they are held
        still = here[:, 0] & held[own]
        cross = _schur(model, t, own)
        at_bound = t.g[own] * c[:, 0] + 0.5 * cross[jnp.arange(m), own] * c[:, 0] ** 2
        loss = jnp.where(still, at_bound, loss)
        v = jnp.where(still[:, None], c, v)
        rows = jnp.where(still[:, None, None], cross[:, None], rows)
        freed = jnp.where(still[:, None, None], 0, freed)
    return v, rows, freed, loss


def gains_of(model: Model, t: Tableau, held: Bool[Array, "d"] | None) -> Gains:
    """All moves from the chosen units."""
    v, rows, freed, loss = _leaving(model, t, held)
    may_leave = t.filled & ~model.kept[t.slots]
    loss = jnp.where(may_leave, loss, jnp.inf)
    rows, g = model.by_unit(rows), model.by_unit(t.g)
    g_swap = g + _sum("ms,msut->mut", v, rows)
    Q_swap = t.Q + _sum("msut,msr,mruq->mutq", rows, freed, rows)
    box = None if model.box is None else tuple(model.by_unit(bound) for bound in model.box)
    floor = 100 * jnp.finfo(g.dtype).eps * jnp.diagonal(_blocks(model), axis1=1, axis2=2)
    # A unit without curvature is a constant or an added column.
    outside = ~chosen_in(model, t) & jnp.any(model.by_unit(jnp.diagonal(model.A)) > 0, axis=-1)
    same = model.pools[t.slots][:, None] == model.pools
    swap = _gain(g_swap, Q_swap, floor, box) - loss[:, None]
    return Gains(
        add=jnp.where(outside, _gain(g, t.Q, floor, box), -jnp.inf),
        swap=jnp.where(may_leave[:, None] & outside & same, swap, -jnp.inf),
        remove=loss,
    )


def pivot(model: Model, t: Tableau, i: Array, j: Array, out: Array, into: Array) -> Tableau:
    """The unit of slot i out where `out`, and unit j into that slot where `into`; without bounds."""
    f, s = model.n_free, model.size
    rows = f + i * s + jnp.arange(s, dtype=jnp.int32)
    # Out: the others take over, by the rows of what leaves.
    v, gone, freed, loss = (a[i] for a in _leaving(model, t, None))
    v, freed = jnp.where(out, v, 0), jnp.where(out, freed, 0)
    share = t.P[:, rows]
    keep = jnp.ones(t.c.shape, t.c.dtype).at[rows].set(jnp.where(out, 0, 1))
    P = (t.P - dot(dot(share, freed), share.T)) * keep[:, None] * keep
    H = (t.H - dot(dot(share, freed), t.H[rows])) * keep[:, None]
    c, g = (t.c - dot(share, v)) * keep, t.g + dot(v, gone)
    Q = t.Q + _sum("sut,sr,ruq->utq", model.by_unit(gone), freed, model.by_unit(gone))
    value = t.value + jnp.where(out, loss, 0)
    t = Tableau(t.slots, t.filled.at[i].set(t.filled[i] & ~out), P, H, c, g, Q, value)
    # In.
    new = f + j * s + jnp.arange(s, dtype=jnp.int32)
    S = _schur(model, t, new)
    here = model.entries.mask[new]
    block = jnp.where(here[:, None] & here, t.Q[j], jnp.eye(s, dtype=S.dtype))
    inverse = jnp.where(here[:, None] & here & into, _inverse(block, jnp.diagonal(_blocks(model)[j])), 0)
    B, moved, step = t.H[:, new], dot(inverse, S), dot(inverse, t.g[new])
    left = dot(B, inverse)
    P = t.P + dot(left, B.T)
    P = jnp.where(into, P.at[rows].set(-left.T).at[:, rows].set(-left).at[rows[:, None], rows].set(inverse), P)
    H = t.H - dot(B, moved)
    H = jnp.where(into, H.at[rows].set(moved), H)
    c = t.c - dot(B, step)
    return Tableau(
        slots=t.slots.at[i].set(jnp.where(into, j, t.slots[i]).astype(jnp.int32)),
        filled=t.filled.at[i].set(t.filled[i] | into),
        P=P,
        H=H,
        c=jnp.where(into, c.at[rows].set(step), c),
        g=t.g - dot(step, S),
        Q=t.Q - _sum("sut,sr,ruq->utq", model.by_unit(S), inverse, model.by_unit(S)),
        value=t.value - 0.5 * jnp.vdot(step, t.g[new]),
    )


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


def _inverse(D: Float[Array, "*m s s"], scale: Float[Array, "*m s"] | None = None) -> Float[Array, "*m s s"]:
    """Inverses of small positive definite matrices by Gauss-Jordan steps; what has no pivot beside its scale (its own
    diagonal) is left out."""
    least = 100 * jnp.finfo(D.dtype).eps * (jnp.diagonal(D, axis1=-2, axis2=-1) if scale is None else scale)

    def step(j: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
        M, left = carry
        q = M[..., j, j]
        ok = q > jnp.maximum(least[..., j], 0)
        inverse = jnp.where(ok, 1 / jnp.where(ok, q, 1), 0)
        row, column = M[..., j, :] * inverse[..., None], M[..., :, j]
        new = M - column[..., :, None] * row[..., None, :]
        new = new.at[..., j, :].set(row).at[..., :, j].set(-column * inverse[..., None]).at[..., j, j].set(inverse)
        return jnp.where(ok[..., None, None], new, M), left.at[..., j].set(~ok)

    M, left = lax.fori_loop(0, D.shape[-1], step, (D, jnp.zeros(D.shape[:-1], bool)))
    return jnp.where(left[..., :, None] | left[..., None, :], 0, M)


class Goal(NamedTuple):
    """Where a settling ends: at so many units of every pool beside the kept ones and, with `descend`, where no swap
    gains more than `least`. Units that are not `open` come in only when there is no other, and then all may."""

    counts: Int[Array, "pools"]
    descend: Bool[Array, ""]
    least: Float[Array, ""]


class Search(NamedTuple):
    """Where a settling ended: the tableau, the chosen units there, and what every swap would gain."""

    t: Tableau
    chosen: Bool[Array, "w"]
    swap: Float[Array, "m w"]


class _Move(NamedTuple):
    i: Int[Array, ""]
    j: Int[Array, ""]
    out: Bool[Array, ""]
    into: Bool[Array, ""]


def settle(model: Model, chosen: Bool[Array, "w"], open_: Bool[Array, "w"], goal: Goal, room: int) -> Search:
    """Add, remove and swap units in the model until the goal is met."""
    limit, kept = MAX_MOVES * (room + 1), model.kept

    def next_move(t: Tableau, held: Array | None, open_: Array) -> tuple[_Move, Array, Array]:
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

    def body(carry: Any) -> Any:
        t, held, open_, move, _, count = carry
        if model.box is None:
            t = pivot(model, t, *move)
        else:
            new = chosen_in(model, t)
            i = t.slots[move.i]
            new = new.at[i].set(new[i] & ~move.out)
            t, held = boxed_tableau(model, new.at[move.j].max(move.into), room)
        move, open_, swap = next_move(t, held, open_)
        return t, held, open_, move, swap, count + 1

    def going(carry: Any) -> Any:
        *_, move, _, count = carry
        return any_lane((count == 0) | move.out | move.into) & (count < limit)

    first, held = (
        (tableau_at(model, chosen, None, room), None) if model.box is None else boxed_tableau(model, chosen, room)
    )
    zero, no = jnp.int32(0), jnp.zeros((), bool)
    nothing = jnp.full((first.slots.shape[0], model.units.shape[0]), -jnp.inf, model.r.dtype)
    carry = (first, held, open_, _Move(zero, zero, no, no), nothing, zero)
    t, _, _, _, swap, _ = lax.while_loop(going, body, carry)
    return Search(t, chosen_in(model, t), swap)


def neighbours(end: Search, number: int) -> Bool[Array, "number w"]:
    """The supports of the most promising swaps, at most `PER_SLOT` for each unit that may leave; the chosen one itself
    where there are fewer."""
    m, w = end.swap.shape
    each = min(PER_SLOT, w)
    units = jax.vmap(lambda row: top_k(row, each))(end.swap)
    worth = jnp.take_along_axis(end.swap, units, axis=1).ravel()
    best = top_k(worth, min(number, m * each))

    def swapped(pair: Int[Array, ""]) -> Bool[Array, "w"]:
        new = end.chosen.at[end.t.slots[pair // each]].set(False).at[units.ravel()[pair]].set(True)
        return jnp.where(worth[pair] > -jnp.inf, new, end.chosen)

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
    exact = objective.quadratic and model.box is None
    _, counts = threshold.pools(n_units)
    least = least_gain(jnp.where(started, state.value, model.c0), model.c0)
    goal = Goal(counts, (state.stage != SINGLE) & (started | exact), least)

    def search(i: Any) -> Any:
        begin, open_ = perturbed(state.key, t, model, inside, i)
        begin, open_ = jnp.where(i == 0, inside, begin), (i == 0) | open_
        return settle(model, begin, open_, goal, threshold.room)

    end, ends, values = searched(search, starts, far)
    moved = ~started | jnp.any(end.chosen != inside)
    if exact:
        candidates = end.chosen[None] if not starts else jnp.where(far, ends[jnp.argmin(values)], end.chosen)[None]
    else:
        near = neighbours(end, SINGLES if model.box is None else BOUNDED_SINGLES)
        if starts:
            order = jnp.argsort(values)[jnp.arange(near.shape[0]) % starts]
            near = jnp.where(far, ends[order], near)
        candidates = jnp.concatenate([end.chosen[None], near])
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
        optimal &= jnp.max(end.swap, initial=-jnp.inf) <= least
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
        every = jax.vmap(search, axis_name=START)(jnp.arange(starts + 1))
        return jax.tree.map(lambda a: a[0], every), every.chosen[1:], every.t.value[1:]
    shapes = jax.eval_shape(search, jnp.int32(0))
    own = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)

    def body(i: Any, carry: Any) -> Any:
        own, ends, values = carry
        end = search(i)
        own = where(i == 0, end, own)
        return own, ends.at[i - 1].set(end.chosen), values.at[i - 1].set(end.t.value)  # i = 0: overwritten

    ends, values = jnp.zeros((starts, *own.chosen.shape), bool), jnp.full(starts, jnp.inf, own.t.value.dtype)
    return lax.fori_loop(0, jnp.where(any_lane(far), starts + 1, 1), body, (own, ends, values))


def perturbed(key: Array, t: Any, model: Model, chosen: Bool[Array, "w"], i: Any) -> tuple[Array, Array]:
    """The support without a random part of its units (one at least), and the others that may come in, a random part."""
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
            new = ~jnp.isfinite(value)
            least = least_gain(jnp.where(new, model.c0, value), model.c0)
            # A descent by the model alone may end higher: later rounds try its best swaps one by one.
            goal = Goal(counts, jnp.asarray(exact) | (tries == 0), least)
            end = settle(model, inside, jnp.ones(inside.shape, bool), goal, threshold.room)
            candidates = end.chosen[None]
            if not exact and rounds > 1:
                near = neighbours(end, SINGLES if model.box is None else BOUNDED_SINGLES)
                candidates = jnp.concatenate([candidates, near])
            everywhere = jnp.zeros((candidates.shape[0], n_units), bool).at[:, model.units].set(candidates)
            found = best_fitted(objective, limited, everywhere, x)
            improved = new | (found.value < value - tolerance("swap", value.dtype) * jnp.abs(value))
            moved = new | jnp.any(end.chosen != inside)
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
