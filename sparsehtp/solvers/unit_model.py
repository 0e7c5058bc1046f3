"""The quadratic model of F over units (entries with bounds, groups, rows, leaves), and what every move would gain.

Around a point z0 the model is c0 - r'z + z'Az / 2 over the entries of a working set of units. With E the entries of the
chosen units and the free ones, those at an active bound held where they are,

    P = A_EE^-1,    H = P A_E,    c = P r_E,    g = r - A_E' c,    Q_J = A_JJ - A_JE P A_EJ,

adding unit J lowers the model by g_J' Q_J^-1 g_J / 2, and swapping unit i out and J in by

    (g_J + H_iJ' v)' (Q_J + H_iJ' D^-1 H_iJ)^-1 (g_J + H_iJ' v) / 2 - c_i'v / 2,    D = P_ii,  v = D^-1 c_i,

with all coefficients of E optimised again. Both are exact for a quadratic F without bounds. Else they propose: only a
refit of F itself decides which support is kept.
"""

from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._types import Support, replace
from ..linalg import dot, masked_factor, top_k

ACTIVE_SETS = 6  # at most, to find the model's minimum within bounds
BOX_PASSES = 4  # over the entries of a unit within bounds


class UnitModel(eqx.Module):
    """A working set of units and the quadratic over its entries: the free ones first, then `size` places a unit.

    Without bounds r, and so c and g, may have several columns: a sum of quadratics with the same A, and units
    that bring their entries into all.
    """

    units: Int[Array, "w"]
    pools: Int[Array, "w"]  # the units of one pool share a count
    kept: Bool[Array, "w"]
    entries: Support
    A: Float[Array, "d d"]
    r: Float[Array, "d *t"]
    c0: Float[Array, ""]
    z0: Float[Array, "d"]
    box: tuple[Array, Array] | None
    n_free: int = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def by_unit(self, a: Array) -> Array:
        """The entries at the units' places, (..., w, size)."""
        return a[..., self.n_free :].reshape(*a.shape[:-1], self.units.shape[0], self.size)

    def of_units(self, g: Float[Array, "d *t"]) -> Float[Array, "w s *t"]:
        """Those of a gradient."""
        return g[self.n_free :].reshape(self.units.shape[0], self.size, *g.shape[1:])


class Blocks(NamedTuple):
    """The model on the chosen units, as above; a slot that is not filled is zero."""

    slots: Int[Array, "m"]  # places of the chosen units in the working set
    filled: Bool[Array, "m"]
    P: Float[Array, "e e"]
    H: Float[Array, "e d"]
    c: Float[Array, "e *t"]
    g: Float[Array, "d *t"]
    Q: Float[Array, "w s s"]
    value: Float[Array, ""]


class Gains(NamedTuple):
    """How the model's value falls with one more unit, with every swap (slot out, unit in), and rises with one less;
    -inf (inf) where there is none."""

    add: Float[Array, "w"]
    swap: Float[Array, "m w"]
    remove: Float[Array, "m"]


Bound: TypeAlias = tuple[Array, Array, tuple[Blocks, Array] | None]  # entries held below, above; the minimum so


def blocks_at(model: UnitModel, chosen: Bool[Array, "w"], held: Bool[Array, "d"] | None, room: int) -> Blocks:
    """The model on some chosen units, `room` at most; entries that are held keep their value at z0."""
    f, s, m = model.n_free, model.size, min(max(room, 1), model.units.shape[0])
    slots = top_k(chosen.astype(model.r.dtype), m)
    filled = chosen[slots]
    E = _places(model, slots)
    live = model.entries.mask[E] & jnp.concatenate([jnp.ones(f, bool), jnp.repeat(filled, s)])
    still = jnp.zeros(live.shape, bool) if held is None else live & held[E]
    K = jnp.where(live[:, None], model.A[E], 0)
    P = masked_factor(K[:, E], live & ~still).inverse(model.r.dtype)
    H = dot(P, K)  # zero in rows that are held
    if held is None:
        c = dot(P, model.r[E])
    else:
        fixed = jnp.where(still, model.z0[E], 0)
        c = dot(P, model.r[E] - dot(fixed, K[:, E])) + fixed
    g = model.r - dot(K.T, c)
    Q = _blocks(model) - _sum("eus,eut->ust", model.by_unit(K), model.by_unit(H))
    value = model.c0 - 0.5 * dot(c.ravel(), (model.r[E] + g[E]).ravel())
    return Blocks(slots, filled, P, H, c, g, Q, value)


def boxed_blocks(model: UnitModel, chosen: Bool[Array, "w"], room: int) -> tuple[Blocks, Bool[Array, "d"]]:
    """The model's minimum on some chosen units within their bounds, and the entries that are held at one: primal-dual
    active sets, which nearly always settle in so few steps."""
    lower, upper = model.box if model.box is not None else (model.z0, model.z0)
    inside = jnp.concatenate([jnp.zeros(model.n_free, bool), jnp.repeat(chosen, model.size)])

    def step(_: Array | int, carry: Bound) -> Bound:
        low, high = carry[:2]
        t = blocks_at(replace(model, z0=jnp.where(low, lower, jnp.where(high, upper, 0))), chosen, low | high, room)
        z = jnp.zeros_like(lower).at[_places(model, t.slots)].add(t.c)
        free = inside & ~low & ~high
        return (low & (t.g < 0)) | (free & (z < lower)), (high & (t.g > 0)) | (free & (z > upper)), (t, low | high)

    no = jnp.zeros(inside.shape, bool)
    first = step(0, (no, no, None))
    return tuple(lax.fori_loop(1, ACTIVE_SETS, step, first)[2])


def chosen_in(model: UnitModel, t: Blocks) -> Bool[Array, "w"]:
    """The chosen units."""
    return jnp.zeros(model.units.shape, bool).at[t.slots].max(t.filled)


def _places(model: UnitModel, slots: Int[Array, "m"]) -> Int[Array, "e"]:
    """The entries of the free ones and of some units, as places in the model."""
    f, s = model.n_free, model.size
    own = f + slots[:, None] * s + jnp.arange(s, dtype=jnp.int32)
    return jnp.concatenate([jnp.arange(f, dtype=jnp.int32), own.ravel()])


def _sum(subscripts: str, *arrays: Array) -> Array:
    return jnp.einsum(subscripts, *arrays, precision=lax.Precision.HIGHEST)


def _schur(model: UnitModel, t: Blocks, rows: Int[Array, "b"]) -> Float[Array, "b d"]:
    """Rows of A with the coefficients of the chosen units optimised out."""
    A = jnp.where(model.entries.mask[rows][:, None], model.A[rows], 0)
    return A - dot(A[:, _places(model, t.slots)], t.H)


def _leaving(model: UnitModel, t: Blocks, held: Bool[Array, "d"] | None) -> tuple[Array, Array, Array, Array]:
    """For every slot: v, the rows that bring it to the gradient of the others, what the room that it gives adds to
    their curvature, and how much the value rises."""
    f, s, m = model.n_free, model.size, t.slots.shape[0]
    own = _places(model, t.slots)[f:]
    here = (model.entries.mask[own] & jnp.repeat(t.filled, s)).reshape(m, s)
    still, c = None, t.c[f:].reshape(m, s, *t.c.shape[1:])
    c = jnp.where(here.reshape(m, s, *[1] * (c.ndim - 2)), c, 0)
    if held is not None:
        still = here & held[own].reshape(m, s)
        here = here & ~still
    D = t.P[f:, f:].reshape(m, s, m, s)[jnp.arange(m), :, jnp.arange(m), :]
    D = jnp.where(here[:, :, None] & here[:, None, :], D, jnp.eye(s, dtype=D.dtype))
    freed = _inverse(D)
    rows = t.H[f:].reshape(m, s, -1)
    if still is None:
        v = _sum("mst,mt...->ms...", freed, c)
        return v, rows, freed, 0.5 * jnp.sum((c * v).reshape(m, -1), axis=1)
    # Entries move to zero from where they are held too, and pull the free ones of their unit along.
    place = own.reshape(m, s)
    freed = jnp.where(here[:, :, None] & here[:, None, :], freed, 0)
    fixed = jnp.where(still, c, 0)
    c = jnp.where(here, c + _sum("mst,mt->ms", _own(rows, place), fixed), 0)
    cross = _schur(model, t, own).reshape(m, s, -1)
    v = _sum("mst,mt->ms", freed, c)
    moved = t.g[place] * fixed + 0.5 * fixed * _sum("mst,mt->ms", _own(cross, place), fixed)
    loss = jnp.sum(0.5 * c * v + moved, axis=1)
    return v + fixed, jnp.where(still[:, :, None], cross, rows), freed, loss


def _own(rows: Float[Array, "m s d"], place: Int[Array, "m s"]) -> Float[Array, "m s s"]:
    """The columns of every unit's rows that are its own."""
    return jnp.take_along_axis(rows, place[:, None, :], axis=2)


def gains_of(model: UnitModel, t: Blocks, held: Bool[Array, "d"] | None) -> Gains:
    """All moves from the chosen units."""
    v, rows, freed, loss = _leaving(model, t, held)
    may_leave = t.filled & ~model.kept[t.slots]
    loss = jnp.where(may_leave, loss, jnp.inf)
    rows, g = model.by_unit(rows), model.of_units(t.g)
    g_swap = g + _sum("ms...,msut->mut...", v, rows)
    Q_swap = t.Q + _sum("msut,msr,mruq->mutq", rows, freed, rows)
    box = jax.tree.map(model.by_unit, model.box)
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


def pivot_units(model: UnitModel, t: Blocks, i: Array, j: Array, out: Array, into: Array) -> Blocks:
    """The unit of slot i out where `out`, and unit j into that slot where `into`; without bounds."""
    f, s = model.n_free, model.size
    rows = f + i * s + jnp.arange(s, dtype=jnp.int32)
    # Out: the others take over, by the rows of what leaves.
    v, gone, freed, loss = (a[i] for a in _leaving(model, t, None))
    v, freed = jnp.where(out, v, 0), jnp.where(out, freed, 0)
    share = t.P[:, rows]
    keep = jnp.ones(t.c.shape[0], t.c.dtype).at[rows].set(jnp.where(out, 0, 1))
    P = (t.P - dot(dot(share, freed), share.T)) * keep[:, None] * keep
    H = (t.H - dot(dot(share, freed), t.H[rows])) * keep[:, None]
    c, g = (t.c - dot(share, v)) * keep.reshape(-1, *[1] * (t.c.ndim - 1)), t.g + dot(gone.T, v)
    Q = t.Q + _sum("sut,sr,ruq->utq", model.by_unit(gone), freed, model.by_unit(gone))
    value = t.value + jnp.where(out, loss, 0)
    t = Blocks(t.slots, t.filled.at[i].set(t.filled[i] & ~out), P, H, c, g, Q, value)
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
    return Blocks(
        slots=t.slots.at[i].set(jnp.where(into, j, t.slots[i]).astype(jnp.int32)),
        filled=t.filled.at[i].set(t.filled[i] | into),
        P=P,
        H=H,
        c=jnp.where(into, c.at[rows].set(step), c),
        g=t.g - dot(S.T, step),
        Q=t.Q - _sum("sut,sr,ruq->utq", model.by_unit(S), inverse, model.by_unit(S)),
        value=t.value - 0.5 * dot(step.ravel(), t.g[new].ravel()),
    )


def _blocks(model: UnitModel) -> Float[Array, "w s s"]:
    """The units' own parts of A."""
    w, s = model.units.shape[0], model.size
    inner = model.A[model.n_free :, model.n_free :].reshape(w, s, w, s)
    return inner[jnp.arange(w), :, jnp.arange(w), :]


def _gain(g: Array, Q: Array, floor: Array, box: tuple[Array, Array] | None) -> Array:
    """g' Q^-1 g / 2, or the sum over the columns of g, by one pivot after the other, dependent entries left out; within
    a box what passes over the entries one by one gain, exact for single ones."""
    if box is not None:
        size = g.shape[-1]

        def along(i: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
            move, left = carry  # left: the gradient that remains
            j = i % size
            q, at = Q[..., j, j], move[..., j]
            new = at + left[..., j] / jnp.where(q > floor[..., j], q, 1)
            new = jnp.where(q > floor[..., j], jnp.clip(new, box[0][..., j], box[1][..., j]), at)
            return move.at[..., j].set(new), left - Q[..., j] * (new - at)[..., None]

        shape = jnp.broadcast_shapes(g.shape, Q.shape[:-1])
        g = jnp.broadcast_to(g, shape)
        passes = 1 if size == 1 else BOX_PASSES
        move, left = lax.fori_loop(0, passes * size, along, (jnp.zeros(shape, g.dtype), g))
        return 0.5 * jnp.sum(move * (g + left), axis=-1)

    def pivot(j: Int[Array, ""], carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        g, Q, total = carry
        q, row = Q[..., j, j], g[..., j, :]
        step = jnp.where(q > floor[..., j], 1 / jnp.where(q > floor[..., j], q, 1), 0)
        column = Q[..., j]
        left = Q - column[..., :, None] * column[..., None, :] * step[..., None, None]
        moved = column[..., :, None] * (row * step[..., None])[..., None, :]
        return g - moved, left, total + 0.5 * jnp.sum(row**2, axis=-1) * step

    g = g if g.ndim == Q.ndim else g[..., None]  # with its columns, if they are one
    zero = jnp.zeros(jnp.broadcast_shapes(g.shape[:-2], Q.shape[:-2]), g.dtype)
    g, Q = jnp.broadcast_to(g, (*zero.shape, *g.shape[-2:])), jnp.broadcast_to(Q, (*zero.shape, *Q.shape[-2:]))
    return lax.fori_loop(0, Q.shape[-1], pivot, (g, Q, zero))[2]


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
