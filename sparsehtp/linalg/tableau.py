"""The tableau of a least-squares problem on a support: every exact addition, removal and swap at matrix-product speed.

For S the chosen features, G = X_S'X_S + diag(l2_S), all products weighted and centred, it holds

    gram = G,  inverse = G^-1,  H = G^-1 X_S'X (a row per chosen feature),  c = G^-1 X_S'y,  g = X'(y - X_S c),
    q_j = ||x_j - X_S G^-1 X_S'x_j||^2 + l2_j (a Schur complement),  value = ||y - X_S c||^2 + sum l2 c^2.

Adding j lowers the value by g_j^2 / q_j; swapping i out and j in lowers it by

    (g_j + (c_i/d_i) H_ij)^2 / (q_j + H_ij^2/d_i) - c_i^2/d_i,    d_i = (G^-1)_ii,

with all coefficients optimised again, for all pairs in one pass over H. With prices l1 of magnitude the value has
2 l1'|c| in it, at the signs that the chosen features came in with: g is shrunk by l1 where a feature comes in, and a
coefficient that has changed its sign since (`turned`) is to be taken out. One `pivot` takes a feature out, or in, or
both. Only what comes in needs the data: one column X'x_j of the Gram matrix. Those columns are fetched for a block of
the best candidates at a time, since one matrix product costs little more than one vector product.
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
    def rows(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]: ...


class Tableau(NamedTuple):
    """The state described above; a row is free (zeros) where idx is -1."""

    idx: Int[Array, "m"]
    gram: Float[Array, "m m"]  # G, with any diagonal in free rows
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
    l1: Float[Array, "2 p"] | None = None  # of positive and of negative coefficients; infinite where there may be none


def empty_tableau(equations: Equations, rows: int) -> Tableau:
    """The tableau of no features, with room for `rows` of them."""
    diagonal, rhs, constant = equations.diagonal, equations.rhs, equations.constant
    p, dtype = rhs.shape[0], rhs.dtype
    block = min(BLOCK, p)
    eps = jnp.finfo(dtype).eps
    return Tableau(
        idx=jnp.full(rows, -1, jnp.int32),
        gram=jnp.zeros((rows, rows), dtype),
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


def tableau_at(
    equations: Equations,
    idx: Int[Array, "m"],
    mask: Bool[Array, "m"],
    l1: Array | None = None,
    signs: Array | None = None,
) -> Tableau:
    """The tableau of the features idx where `mask` holds, from the data; with prices of magnitude at these signs."""
    rhs, empty = equations.rhs, empty_tableau(equations, idx.shape[0])
    K = jnp.where(mask[:, None], equations.rows(idx), 0)
    G = K[:, idx]
    G = (G + G.T) / 2
    inverse = masked_factor(G, mask).inverse(rhs.dtype)
    H = dot(inverse, K)
    pull = rhs[idx] if l1 is None or signs is None else rhs[idx] - jnp.where(signs > 0, l1[0, idx], -l1[1, idx])
    c = dot(inverse, jnp.where(mask, pull, 0))
    chosen = empty.chosen.at[idx].max(mask)
    return empty._replace(
        idx=jnp.where(mask, idx, -1),
        gram=G,
        inverse=inverse,
        H=H,
        c=c,
        g=rhs - dot(c, K),
        q=jnp.where(chosen, 0, equations.diagonal - jnp.sum(K * H, axis=0)),
        value=equations.constant - dot(c, jnp.where(mask, pull, 0)),
        chosen=chosen,
        l1=l1,
    )


def soft(g: Array, l1: Array | None) -> Array:
    """A slope beyond the price of magnitude, else zero."""
    return g if l1 is None else jnp.maximum(g - l1[0], 0) - jnp.maximum(-g - l1[1], 0)


def turned(t: Tableau) -> Bool[Array, "m"]:
    """The rows whose coefficient is not of the sign that it came in with, which their g tells."""
    if t.l1 is None:
        return jnp.zeros(t.idx.shape, bool)
    g, l1 = t.g[t.idx], t.l1[:, t.idx]
    plus, minus = jnp.abs(g - l1[0]), jnp.abs(g + l1[1])
    told = jnp.abs(l1[0] + l1[1]) > 1e3 * jnp.finfo(g.dtype).eps * jnp.max(jnp.abs(t.g))
    return (t.idx >= 0) & told & jnp.where(t.c > 0, plus > minus, plus < minus)


def addition_gains(t: Tableau) -> Float[Array, "p"]:
    """Decrease of the value from adding each feature; -inf for chosen and dependent ones."""
    usable = ~t.chosen & (t.q > t.floor)
    return jnp.where(usable, soft(t.g, t.l1) ** 2 / jnp.where(usable, t.q, 1), -jnp.inf)


def removal_losses(t: Tableau, rows: Bool[Array, "m"]) -> Float[Array, "m"]:
    """Increase of the value from removing each row; inf for rows that may not leave."""
    return jnp.where(rows, t.c**2 / jnp.where(rows, jnp.diagonal(t.inverse), 1), jnp.inf)


def swap_gains(t: Tableau, rows: Bool[Array, "m"], features: Int[Array, "b"] | None = None) -> Float[Array, "m b"]:
    """Decrease of the value from every swap (row out, feature in); -inf where there is none.

    Rows that may not leave are masked; `features` limits what may come in, None to all.
    """
    H, g, q, chosen, floor, l1 = t.H, t.g, t.q, t.chosen, t.floor, t.l1
    if features is not None:
        H, g, q, chosen, floor = H[:, features], g[features], q[features], chosen[features], floor[features]
        l1 = l1 if l1 is None else l1[:, features]
    d = jnp.where(rows, jnp.diagonal(t.inverse), 1.0)[:, None]
    c = jnp.where(rows, t.c, 0.0)[:, None]
    q = q + H**2 / d
    usable = rows[:, None] & ~chosen & (q > floor)
    slope = soft(g + c / d * H, l1 if l1 is None else l1[:, None])
    return jnp.where(usable, slope**2 / jnp.where(usable, q, 1) - c**2 / d, -jnp.inf)


def pivot(
    gram: GramColumns,
    t: Tableau,
    i: Int[Array, ""],
    j: Int[Array, ""],
    out: Bool[Array, ""],
    into: Bool[Array, ""],
    priority: Float[Array, "p"] | None,
) -> Tableau:
    """The feature of row i out where `out`, and feature j into row i where `into`.

    A Gram column that is not at hand is fetched together with those of the highest priority; no priority means that
    columns cost nothing.
    """
    if priority is None:
        block, columns, kappa = t.block, t.columns, gram(j[None])[0]
    else:
        missing = into & ~(t.block == j).any()

        def refill() -> tuple[Array, Array]:
            block = top_k(priority.at[j].set(jnp.inf), t.block.shape[0])
            return jnp.where(missing, block, t.block), jnp.where(missing, gram(block), t.columns)

        block, columns = lax.cond(any_lane(missing), refill, lambda: (t.block, t.columns))
        kappa = columns[jnp.argmax(block == j)]
    row, on = jnp.arange(t.idx.shape[0]), into.astype(t.c.dtype)
    # Removal of row i.
    a = jnp.where(out, t.inverse[:, i], 0)
    d = jnp.where(out, t.inverse[i, i], 1)
    h = jnp.where(out, t.H[i], 0)
    ci = jnp.where(out, t.c[i], 0) / d
    f = h / d
    q, g, c = t.q + h * f, t.g + ci * h, t.c - a * ci
    # Addition of j to what is left.
    rest = (t.idx >= 0) & ~(out & (row == i))
    b = jnp.where(rest, kappa[t.idx], 0)
    schur = (kappa - dot(b, t.H) + dot(b, a) * f) * on
    qj = jnp.where(into, q[j], 1)
    slope = soft(g[j], None if t.l1 is None else t.l1[:, j]) * on
    step = slope / qj
    scaled = schur / qj
    unit = jnp.where(row == i, -1, jnp.where(rest, t.H[:, j] - a * f[j], 0)) * on
    keep = jnp.where(out & (row == i), 0, 1).astype(t.c.dtype)  # row and column i are zero up to rounding: exactly so
    inverse = (t.inverse - a[:, None] * (a / d)) * (keep[:, None] * keep)
    left, new = t.idx[i], jnp.where(into, jnp.where(row == i, kappa[j], b), t.gram[i])
    return Tableau(
        idx=t.idx.at[i].set(jnp.where(into, j, jnp.where(out, -1, left))),
        gram=t.gram.at[i].set(new).at[:, i].set(new),
        inverse=inverse + unit[:, None] * (unit / qj),
        H=(t.H - a[:, None] * f) * keep[:, None] - unit[:, None] * scaled,
        c=c * keep - unit * step,
        g=g - schur * step,
        q=q - schur * scaled,
        value=t.value + jnp.where(out, t.c[i], 0) * ci - slope * step,
        chosen=t.chosen.at[left].set(t.chosen[left] & ~out).at[j].max(into),
        floor=t.floor,
        block=block,
        columns=columns,
        l1=t.l1,
    )
