"""Nodes of a branch and bound for least squares, many at a time: safe bounds, what they decide, and exact leaves.

All take F(x) = c0 - b'x + x'Q x / 2 in float64. A node is two masks: features that are in, and features that are out.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._programs import program
from ..linalg import dot, top_k

CHUNK = 10  # steps between two looks at the bounds
LEAST_PIVOT = 1e-9  # of a feature's or a pair's squared norm, below which rounding could decide a leaf
LEAF_NUMBERS = 1 << 22  # of the p x p matrices of leaves that are worked on together
ROUNDINGS = 16


class Scaled(NamedTuple):
    """The problem in the units x = sqrt(d) w, where it is a nonnegative form plus |x|^2 / 2.

    Attributes:
        M: D^-1/2 Q D^-1/2 - I, nonnegative definite where `safe`.
        K: (M + rho I)^-1.
        terms: (p,) sqrt(M_jj + 1): |M_ij| is at most the product of two.
        b: D^-1/2 b.
        c0: the constant.
        rho: penalty of the iteration.
        safe: False if d is only good enough to find points, and bounds nothing.
    """

    M: Float[Array, "p p"]
    K: Float[Array, "p p"]
    terms: Float[Array, "p"]
    b: Float[Array, "p"]
    c0: Float[Array, ""]
    rho: Float[Array, ""]
    safe: Bool[Array, ""]


class Bounded(NamedTuple):
    """The bounds and solutions of a batch of nodes.

    Attributes:
        lower: a lower bound of F over the node; 0 where `Scaled.safe` is False.
        v, u: a point of the relaxation, and the scaled dual, to start the children from.
        inn, out: the node with what its bound decides.
        weight: |x_j| of the undecided features, -1 of others.
    """

    lower: Float[Array, "B"]
    v: Float[Array, "B p"]
    u: Float[Array, "B p"]
    inn: Bool[Array, "B p"]
    out: Bool[Array, "B p"]
    weight: Float[Array, "B p"]


@program(static_argnames="k_max")
def bound(
    at: Scaled,
    inn: Bool[Array, "B p"],
    out: Bool[Array, "B p"],
    v: Float[Array, "B p"],
    u: Float[Array, "B p"],
    level: Float[Array, ""],
    k: Int[Array, ""],
    max_chunks: Int[Array, ""],
    k_max: int,
) -> Bounded:
    """Bounds of nodes that ask whether a support of k features, k <= k_max, has a value below the level.

    For every w, since x'Mx >= 2 w'Mx - w'Mw and |x|^2 / 2 is separable,

        F >= c0 - w'Mw / 2 - (1/2) [sum over what is in and the largest free ones of (b - Mw)_j^2],

    so that any iterate proves what it says. They come from ADMM on the perspective relaxation, whose lanes share M and
    K: a step is one product of a (B, p) matrix. A lane is done when its bound reaches the level, or when the relaxation
    shows that it cannot.
    """
    M, K, b, rho = at.M, at.K, at.b, at.rho
    free, s = ~(inn | out), k - inn.sum(1)
    rounding = (M.shape[0] + ROUNDINGS) * jnp.finfo(M.dtype).eps

    def safe(w: Array) -> tuple[Array, Array, Array, Array]:
        """The bound, with all that rounding may have done taken off; the features' terms; the s-th and next one."""
        Mw, size = dot(w, M), dot(jnp.abs(w), at.terms)
        wrong = rounding * (size[:, None] * at.terms + jnp.abs(b))
        G = 0.5 * (jnp.abs(b - Mw) + wrong) ** 2
        top, last, after = _largest(G, free, s, k_max)
        form = 0.5 * (jnp.sum(w * Mw, 1) + 3 * rounding * size**2)
        taken = jnp.where(inn, G, 0).sum(1) + top
        return at.c0 - form - taken - rounding * (at.c0 + form + taken), G, last, after

    def primal(v: Array, z: Array) -> Array:
        shared = jnp.where(z > 0, v * v / jnp.maximum(z, 1e-12), 0).sum(1)
        return at.c0 - dot(v, b) + 0.5 * jnp.sum(v * dot(v, M), 1) + 0.5 * shared

    def step(_: Any, state: tuple[Array, ...]) -> tuple[Array, ...]:
        v, u, w, z, theta = state
        w = dot(b + rho * (v - u), K)
        a = 1.6 * w - 0.6 * v + u
        v, z, theta = _prox(a, inn, free, s, rho, theta)
        return v, a - v, w, z, theta

    def look(carry: Any) -> Any:
        t, _, best, state = carry
        state = lax.fori_loop(0, CHUNK, step, state)
        found = safe(state[2])
        better = found[0] > best[0]
        best = tuple(
            jnp.where(better[:, None] if a.ndim > 1 else better, a, b) for a, b in zip(found, best, strict=True)
        )
        value, lower = primal(state[0], state[3]), best[0]
        done = (lower >= level) | ((value < level) & (value - lower < 0.3 * (level - value)))
        return t + 1, done, best, state

    B = inn.shape[0]
    v, u = v.astype(M.dtype), u.astype(M.dtype)
    state = v, u, v, jnp.zeros_like(v), jnp.ones(B, M.dtype)
    nothing = jnp.full(B, -jnp.inf, M.dtype)
    carry = 0, jnp.zeros(B, bool), (nothing, jnp.zeros_like(v), nothing, nothing), state
    carry = lax.while_loop(lambda c: (c[0] < max_chunks) & (c[1].mean() < 0.9), look, carry)
    _, _, (lower, G, last, after), (v, u, *_) = carry
    # What the dual point decides: without j the bound is lower + G_j - G_(s+1), with j it is lower + G_(s) - G_j.
    # Of what `safe` took off, most is left for the rounding of these two sums.
    level = jnp.where(at.safe, level, jnp.inf)
    last, after, lower_ = last[:, None], after[:, None], lower[:, None]
    new_in = free & (s > 0)[:, None] & (G >= last) & (lower_ + G - after > level)
    new_out = free & (s > 0)[:, None] & (G < last) & (lower_ + last - G > level)
    weight = jnp.where(free & ~new_in & ~new_out, jnp.abs(v), -1)
    return Bounded(jnp.where(at.safe, lower, 0), v, u, inn | new_in, out | new_out, weight)


def _largest(
    G: Float[Array, "B p"], free: Bool[Array, "B p"], s: Int[Array, "B"], k_max: int
) -> tuple[Array, Array, Array]:
    """The sum of the s largest free entries of every row, the s-th and the next one."""
    G = jnp.where(free, G, 0)
    width = min(k_max + 1, G.shape[1])
    top = jnp.take_along_axis(G, jax.vmap(lambda g: top_k(g, width))(G), 1)

    def place(i: Array) -> Array:
        return jnp.take_along_axis(top, jnp.clip(i, 0, width - 1)[:, None], 1)[:, 0]

    after = jnp.where(s < width, place(s), 0)
    return jnp.where(jnp.arange(width) < s[:, None], top, 0).sum(1), place(s - 1), after


def _prox(
    a: Float[Array, "B p"], inn: Array, free: Array, s: Array, rho: Array, theta: Float[Array, "B"]
) -> tuple[Array, Array, Array]:
    """The prox of sum_j x_j^2 / (2 z_j) with sum z <= s: z = clip(theta |a| - 1/rho, 0, 1), theta by bisection."""
    size = jnp.where(free, jnp.abs(a), 0)
    full = (1 + 1 / rho) / jnp.maximum(size.max(1), 1e-300)

    def count(theta: Array) -> Array:
        return jnp.clip(theta[:, None] * size - 1 / rho, 0, 1).sum(1)

    low, high = 0.8 * theta, 1.25 * theta  # around the last one
    low = jnp.where(count(low) < s, low, 0)
    high = jnp.where(count(high) >= s, high, 1e4 * jnp.maximum(full, high))

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        near = (low > 0) & (high < 1.6 * low)
        middle = jnp.where(near, 0.5 * (low + high), jnp.sqrt(jnp.maximum(low, 1e-6 * high) * high))
        less = count(middle) < s
        return jnp.where(less, middle, low), jnp.where(less, high, middle)

    low, high = lax.fori_loop(0, 14, halve, (low, high))
    z = jnp.where(inn, 1, jnp.where(free, jnp.clip(low[:, None] * size - 1 / rho, 0, 1), 0))
    return a * rho * z / (1 + rho * z), z, low


class NodeData(NamedTuple):
    """Q, b and c0."""

    Q: Float[Array, "p p"]
    b: Float[Array, "p"]
    c0: Float[Array, ""]


def _factor(problem: NodeData, inn: Bool[Array, "p"], k_max: int) -> tuple[Array, Array, Array, Array]:
    """The features that are in, in k_max slots; which slots are used; a Cholesky factor; and its solution of b."""
    idx = top_k(inn.astype(problem.b.dtype), k_max)
    on = inn[idx]
    A = jnp.where(on[:, None] & on, problem.Q[idx][:, idx], jnp.eye(k_max))
    C = jnp.linalg.cholesky(A)
    return idx, on, C, jax.scipy.linalg.solve_triangular(C, jnp.where(on, problem.b[idx], 0), lower=True)


@program(static_argnames="k_max")
def support_values(problem: NodeData, inn: Bool[Array, "B p"], k_max: int) -> Float[Array, "B"]:
    """min F over each of some supports of at most k_max features; NaN where a support is singular."""

    def one(inn: Array) -> Array:
        h = _factor(problem, inn, k_max)[3]
        return problem.c0 - 0.5 * jnp.sum(h * h)

    return jax.vmap(one)(inn)


def _pairs(
    problem: NodeData, inn: Bool[Array, "p"], out: Bool[Array, "p"], k: Array, k_max: int
) -> tuple[Float[Array, "p p"], Bool[Array, "p p"]]:
    """min F with each pair i < j beside what is in (i = j where one place is left), and where rounding could decide.

    With S the Schur complement of what is in and g the gradient, a pair gains

        (g_i^2 S_jj - 2 g_i g_j S_ij + g_j^2 S_ii) / (2 (S_ii S_jj - S_ij^2)).
    """
    p = problem.b.shape[0]
    idx, on, C, h = _factor(problem, inn, k_max)
    V = jax.scipy.linalg.solve_triangular(C, jnp.where(on[:, None], problem.Q[idx], 0), lower=True)
    start, g, S = problem.c0 - 0.5 * jnp.sum(h * h), problem.b - dot(V.T, h), problem.Q - dot(V.T, V)
    free, two, place = ~(inn | out), k - inn.sum() >= 2, jnp.arange(p)
    pair = jnp.where(two, place[:, None] < place, place[:, None] == place) & free[:, None] & free
    q = jnp.diag(S)
    large = q > LEAST_PIVOT  # False for NaN
    q = jnp.where(large, q, 1)
    det = q[:, None] * q - S * S
    apart = jnp.where(two, det > LEAST_PIVOT * q[:, None] * q, True)
    terms = g[:, None] ** 2 * q + g**2 * q[:, None]
    gain = 0.5 * (terms - 2 * g[:, None] * g * S + 2 * ROUNDINGS * jnp.finfo(g.dtype).eps * terms)
    values = start - jnp.where(two, gain / jnp.where(apart, det, 1), (0.5 * g * g / q)[:, None])
    known = large[:, None] & large & apart & jnp.isfinite(values)  # a minimum may drop NaN
    return jnp.where(pair & known, values, jnp.inf), pair & ~known


@program(static_argnames="k_max")
def leaves(
    problem: NodeData, inn: Bool[Array, "B p"], out: Bool[Array, "B p"], k: Int[Array, ""], k_max: int
) -> tuple[Float[Array, "B"], Int[Array, "B"], Int[Array, "B"]]:
    """The least F of nodes with one or two places left, the pair i p + j that has it, and how many are in doubt."""

    def one(node: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        value, doubt = _pairs(problem, *node, k, k_max)
        return value.min(), jnp.argmin(value), doubt.sum()

    return lax.map(one, (inn, out), batch_size=leaves_at_once(problem.b.shape[0], inn.shape[0]))


def leaves_at_once(p: int, most: int) -> int:
    """Of how many leaves all pairs are in memory together: a power of two, as batches are, without a remainder."""
    return 1 << (max(1, min(most, LEAF_NUMBERS // p**2)).bit_length() - 1)


@program(static_argnames="k_max")
def leaf_pairs(
    problem: NodeData, inn: Bool[Array, "B p"], out: Bool[Array, "B p"], k: Int[Array, ""], k_max: int
) -> tuple[Float[Array, "B p p"], Bool[Array, "B p p"]]:
    """All that is known of such nodes: F of every pair, infinity for none, and the pairs in doubt."""
    return jax.vmap(lambda inn, out: _pairs(problem, inn, out, k, k_max))(inn, out)
