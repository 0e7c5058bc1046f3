"""The tableau of a least-squares problem on a support: every exact addition, removal and swap at matrix-product speed.

For S the chosen features, G = X_S'X_S + diag(l2_S), all products weighted and centred, it holds

    inverse = G^-1,  H = G^-1 X_S'X (a row per chosen feature),  c = G^-1 X_S'y,  g = X'(y - X_S c),
    q_j = ||x_j - X_S G^-1 X_S'x_j||^2 + l2_j (a Schur complement),  value = ||y - X_S c||^2 + sum l2 c^2.

Adding j lowers the value by g_j^2 / q_j; swapping i out and j in lowers it by

    (g_j + (c_i/d_i) H_ij)^2 / (q_j + H_ij^2/d_i) - c_i^2/d_i,    d_i = (G^-1)_ii,

with all coefficients optimised again, for all pairs in one pass over H. Only an addition needs the data: one column
X'x_j of the Gram matrix. Those columns are fetched for a block of the best candidates at a time, since one matrix
product costs little more than one vector product.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .lanes import any_lane
from .masked_cholesky import masked_factor
from .products import dot
from .top_k import top_k

BLOCK = 32  # candidate columns per fetch

GramColumns = Callable[[Array], Array]  # indices (b,) -> rows (b, p) of X'X + diag(l2)


class Equations(Protocol):
    """Normal equations: right-hand side X'y, diagonal and columns of X'X + diag(l2), and y'y."""

    @property
    def rhs(self) -> Float[Array, "p"]: ...
    @property
    def diagonal(self) -> Float[Array, "p"]: ...
    @property
    def constant(self) -> Float[Array, ""]: ...
    def columns(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]: ...


class Tableau(NamedTuple):
    """The state described above; rows past `size` are padding, and rows below `locked` are never swapped out."""

    idx: Int[Array, "m"]
    size: Int[Array, ""]
    inverse: Float[Array, "m m"]
    H: Float[Array, "m p"]
    c: Float[Array, "m"]
    g: Float[Array, "p"]
    q: Float[Array, "p"]
    value: Float[Array, ""]
    chosen: Bool[Array, "p"]
    floor: Float[Array, "p"]  # q below this counts as dependent on the chosen features
    block: Int[Array, "b"]  # features whose Gram columns are at hand
    columns: Float[Array, "b p"]


def empty_tableau(equations: Equations, rows: int) -> Tableau:
    """The tableau of no features, with room for `rows` of them."""
    diagonal, rhs, constant = equations.diagonal, equations.rhs, equations.constant
    p, dtype = rhs.shape[0], rhs.dtype
    block = min(BLOCK, p)
    eps = jnp.finfo(dtype).eps
    return Tableau(
        idx=jnp.zeros(rows, jnp.int32),
        size=jnp.int32(0),
        inverse=jnp.zeros((rows, rows), dtype),
        H=jnp.zeros((rows, p), dtype),
        c=jnp.zeros(rows, dtype),
        g=rhs,
        q=diagonal,
        value=constant,
        chosen=jnp.zeros(p, bool),
        floor=jnp.maximum(100 * eps * diagonal, jnp.finfo(dtype).tiny),
        block=jnp.full(block, -1, jnp.int32),
        columns=jnp.zeros((block, p), dtype),
    )


def tableau_at(equations: Equations, idx: Int[Array, "m"], size: Int[Array, ""] | int) -> Tableau:
    """The tableau of the first `size` features of idx, from the data."""
    diagonal, rhs, constant = equations.diagonal, equations.rhs, equations.constant
    rows = idx.shape[0]
    active = jnp.arange(rows) < size
    K = jnp.where(active[:, None], equations.columns(idx), 0)
    G = jnp.where(active, K[:, idx], 0)
    inverse = masked_factor((G + G.T) / 2, active).inverse(rhs.dtype)
    H = dot(inverse, K)
    c = dot(inverse, jnp.where(active, rhs[idx], 0))
    empty = empty_tableau(equations, rows)
    chosen = empty.chosen.at[idx].max(active)
    return empty._replace(
        idx=jnp.where(active, idx, 0),
        size=jnp.asarray(size, jnp.int32),
        inverse=inverse,
        H=H,
        c=c,
        g=rhs - dot(c, K),
        q=jnp.where(chosen, 0, diagonal - jnp.sum(K * H, axis=0)),
        value=constant - dot(c, rhs[idx]),
        chosen=chosen,
    )


def subtableau(t: Tableau, features: Int[Array, "w"]) -> Tableau:
    """The tableau of the same features among `features`, which holds them; idx is relative to it."""
    position = jnp.zeros(t.g.shape[0], jnp.int32).at[features].set(jnp.arange(features.shape[0], dtype=jnp.int32))
    block = min(BLOCK, features.shape[0])
    return t._replace(
        idx=position[t.idx],
        H=t.H[:, features],
        g=t.g[features],
        q=t.q[features],
        chosen=t.chosen[features],
        floor=t.floor[features],
        block=jnp.full(block, -1, jnp.int32),
        columns=jnp.zeros((block, features.shape[0]), t.g.dtype),
    )


def resize(t: Tableau, rows: int) -> Tableau:
    """The same tableau with room for `rows` features, not fewer than it holds."""
    t = t._replace(idx=t.idx[:rows], inverse=t.inverse[:rows, :rows], H=t.H[:rows], c=t.c[:rows])
    more = (0, rows - t.idx.shape[0])
    return t._replace(
        idx=jnp.pad(t.idx, more),
        inverse=jnp.pad(t.inverse, (more, more)),
        H=jnp.pad(t.H, (more, (0, 0))),
        c=jnp.pad(t.c, more),
    )


def addition_gains(t: Tableau) -> Float[Array, "p"]:
    """Decrease of the value from adding each feature; -inf for chosen and dependent ones."""
    return jnp.where(t.chosen | (t.q <= t.floor), -jnp.inf, t.g**2 / jnp.where(t.q > t.floor, t.q, 1))


def swap_gains(t: Tableau, locked: Int[Array, ""] | int = 0) -> Float[Array, "m p"]:
    """Decrease of the value from every swap (row out, feature in); -inf where there is none."""
    row = jnp.arange(t.idx.shape[0])
    active = (row >= locked) & (row < t.size)
    d = jnp.where(active, jnp.diagonal(t.inverse), 1.0)
    c = jnp.where(active, t.c, 0.0)
    q = t.q + t.H**2 / d[:, None]
    numerator = (t.g + (c / d)[:, None] * t.H) ** 2
    usable = active[:, None] & ~t.chosen & (q > t.floor)
    return jnp.where(usable, numerator / jnp.where(usable, q, 1) - (c**2 / d)[:, None], -jnp.inf)


def removal_losses(t: Tableau, locked: Int[Array, ""] | int = 0) -> Float[Array, "m"]:
    """Increase of the value from removing each row; inf for padded and locked ones."""
    row = jnp.arange(t.idx.shape[0])
    active = (row >= locked) & (row < t.size)
    return jnp.where(active, t.c**2 / jnp.where(active, jnp.diagonal(t.inverse), 1), jnp.inf)


def remove(t: Tableau, i: Int[Array, ""], wanted: Array) -> Tableau:
    """Row i out, and the last row into its place, where `wanted`."""
    last = t.size - 1
    row = jnp.arange(t.idx.shape[0])
    a = jnp.where(wanted, t.inverse[:, i], 0)
    d = jnp.where(wanted, t.inverse[i, i], 1)
    f = t.H[i] / d
    ci = jnp.where(wanted, t.c[i], 0) / d
    order = jnp.where(wanted & (row == i), last, row)
    stays = ~wanted | (row != last)
    inverse = (t.inverse - a[:, None] * a / d)[order][:, order]
    return t._replace(
        idx=jnp.where(stays, t.idx[order], 0),
        size=t.size - wanted,
        inverse=jnp.where(stays[:, None] & stays, inverse, 0),
        H=jnp.where(stays[:, None], (t.H - a[:, None] * f)[order], 0),
        c=jnp.where(stays, (t.c - a * ci)[order], 0),
        g=t.g + ci * t.H[i],
        q=t.q + jnp.where(wanted, t.H[i] * f, 0),
        value=t.value + jnp.where(wanted, t.c[i], 0) * ci,
        chosen=t.chosen.at[t.idx[i]].set(t.chosen[t.idx[i]] & ~wanted),
    )


def fetch(
    gram: GramColumns, t: Tableau, j: Int[Array, ""], priority: Float[Array, "p"] | None, wanted: Array
) -> tuple[Tableau, Float[Array, "p"]]:
    """The Gram column of j, and the tableau that has it at hand.

    A miss fetches the columns of the highest priority beside it; no priority means that columns cost nothing.
    """
    if priority is None:
        return t, gram(j[None])[0]
    missing = wanted & ~(t.block == j).any()

    def refill(_):
        block = top_k(priority.at[j].set(jnp.inf), t.block.shape[0])
        return jnp.where(missing, block, t.block), jnp.where(missing, gram(block), t.columns)

    block, columns = lax.cond(any_lane(missing), refill, lambda _: (t.block, t.columns), None)
    return t._replace(block=block, columns=columns), columns[jnp.argmax(block == j)]


def add(gram: GramColumns, t: Tableau, j: Int[Array, ""], priority: Float[Array, "p"] | None, wanted: Array) -> Tableau:
    """Add feature j where `wanted`."""
    t, kappa = fetch(gram, t, j, priority, wanted)
    row = jnp.arange(t.idx.shape[0])
    active = row < t.size
    u = jnp.where(active, t.H[:, j], 0)
    schur = kappa - dot(jnp.where(active, kappa[t.idx], 0), t.H)
    q, g = t.q[j], t.g[j]
    unit = jnp.where(row == t.size, -1.0, u) * wanted
    safe = jnp.where(wanted, q, 1)
    step = jnp.where(wanted, g, 0) / safe
    scaled = schur / safe
    return t._replace(
        idx=jnp.where(wanted & (row == t.size), j, t.idx),
        size=t.size + wanted,
        inverse=t.inverse + unit[:, None] * unit / safe,
        H=t.H - unit[:, None] * scaled,
        c=t.c - unit * step,
        g=t.g - schur * step,
        q=t.q - jnp.where(wanted, schur * scaled, 0),
        value=t.value - g * step,
        chosen=t.chosen.at[j].set(t.chosen[j] | wanted),
    )


def swap(
    gram: GramColumns,
    t: Tableau,
    i: Int[Array, ""],
    j: Int[Array, ""],
    priority: Float[Array, "p"] | None,
    wanted: Array,
) -> Tableau:
    """Row i out and feature j in, in one pass over H, where `wanted`."""
    t, kappa = fetch(gram, t, j, priority, wanted)
    row = jnp.arange(t.idx.shape[0])
    rest = (row < t.size) & (row != i)
    on = wanted.astype(t.c.dtype)
    # Removal of row i.
    a = t.inverse[:, i] * on
    d = jnp.where(wanted, t.inverse[i, i], 1)
    f = t.H[i] / d
    ci = t.c[i] * on / d
    q = t.q + on * t.H[i] * f
    g = t.g + ci * t.H[i]
    c = t.c - a * ci
    # Addition of j to what is left.
    b = jnp.where(rest, kappa[t.idx], 0)
    schur = kappa - dot(b, t.H) + dot(b, a) * f
    u = jnp.where(rest, t.H[:, j] - a * f[j], 0)
    qj = jnp.where(wanted, q[j], 1)
    step = g[j] * on / qj
    unit = jnp.where(row == i, -1.0, u) * on
    scaled = schur / qj
    inverse = t.inverse - a[:, None] * a / d
    kept = jnp.where(wanted, (row != i).astype(on.dtype), 1)  # row and column i are zero up to rounding: make it exact
    return t._replace(
        idx=jnp.where(wanted & (row == i), j, t.idx),
        inverse=inverse * kept[:, None] * kept + unit[:, None] * unit / qj,
        H=(t.H - a[:, None] * f) * kept[:, None] - unit[:, None] * scaled,
        c=c * kept - unit * step,
        g=g - schur * step,
        q=q - on * schur * scaled,
        value=t.value + on * t.c[i] * ci - g[j] * step,
        chosen=t.chosen.at[jnp.where(wanted, t.idx[i], j)]
        .set(jnp.where(wanted, False, t.chosen[j]))
        .at[j]
        .set(t.chosen[j] | wanted),
    )
