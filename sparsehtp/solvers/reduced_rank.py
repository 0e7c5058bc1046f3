"""Reduced-rank regression in closed form: the global minimiser for every rank from one decomposition."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._tolerances import tolerance
from .._types import is_concrete
from ..linalg import dot
from ..linalg.lanes import lane_by_lane
from ..objectives import MultiResponse


class ReducedRank(NamedTuple):
    """Minimisers of a least-squares objective for every rank, in the objective's internal units.

    Attributes:
        W: (p, c) minimiser without a constraint.
        basis: (c, c) orthonormal; with its first r columns V, the minimiser of rank at most r is W V V'.
        losses: (c,) how much more F is without each column of the basis.
        mean: (p,), response_mean: (c,): the intercepts are response_mean - mean'B; None without intercepts.
        singular: the system of W is singular, and the minimum-norm W is taken.
    """

    W: Float[Array, "p c"]
    basis: Float[Array, "c c"]
    losses: Float[Array, "c"]
    mean: Float[Array, "p"] | None
    response_mean: Float[Array, "c"] | None
    singular: Bool[Array, ""]

    def at(self, r: Int[Array, ""] | int) -> Float[Array, "d"]:
        """x of the objective at rank r (which may be traced)."""
        V = jnp.where(jnp.arange(self.basis.shape[1]) < r, self.basis, 0)
        return self.join(dot(dot(self.W, V), V.T))

    def join(self, B: Float[Array, "p c"]) -> Float[Array, "d"]:
        """x of the objective with coefficients B and the best intercepts."""
        if self.mean is None or self.response_mean is None:
            return B.ravel()
        return jnp.append(B.ravel(), self.response_mean - dot(self.mean, B))


def reduced_rank(objective: MultiResponse) -> ReducedRank:
    """Global minimisers of a squared-loss `MultiResponse` subject to rank B <= r, for all r at once.

        B_r = W V_r V_r',   W = (X'SX + l2 I)^-1 X'SY,   V_r the r leading eigenvectors of Y'SX W

    with S the normalised weights, X and Y centred under them where there is an intercept. Since
    F(B) = F(W) + (1/2) ||G^(1/2) (W - B)||^2 with G = X'SX + l2 I, and G^(1/2) W has the Gram matrix W'G W = Y'SX W,
    this is the theorem of Eckart and Young; it holds for any l2 >= 0 (a scalar or one value per feature).

    One factorisation of the smaller of (p, p) and (n, n), one eigendecomposition of (c, c); pure and traceable.

    Args:
        objective: with the squared loss.

    Raises:
        TypeError: for another loss.
        ValueError: if p > n and l2 is zero somewhere (concrete), as the dual system then needs l2 > 0.

    Source: Izenman (1975); with a ridge, Mukherjee and Zhu (2011).
    """
    if not objective.quadratic:
        raise TypeError("objective: reduced-rank regression in closed form needs the squared loss; use solve.")
    columns = objective.columns
    n, p, weights = columns.n, columns.p, columns.weights
    Y = objective.y if columns.offset is None else objective.y - columns.offset
    mean = response_mean = None
    A, target = columns.dense_rows(jnp.arange(n)), Y  # the closed form is for data that fit in memory
    if columns.n_free:
        response_mean, mean = dot(weights, Y), dot(weights, A)
        A, target = A - mean, Y - response_mean
    ridge = columns.ridge()[:p]
    root = jnp.sqrt(weights)[:, None]
    A, target = root * A, root * target
    rhs = dot(A.T, target)
    if p <= n:
        gram = dot(A.T, A) + jnp.diag(ridge)
        W, singular = lane_by_lane(_solve)(gram, rhs)
    else:
        if is_concrete(ridge) and not bool(jnp.all(ridge > 0)):
            raise ValueError("l2: must be > 0 where there are more features than samples; a small value will do.")
        Z, singular = lane_by_lane(_solve)(dot(A / ridge, A.T) + jnp.eye(n, dtype=A.dtype), target)
        W = dot(A.T, Z) / ridge[:, None]
    values, vectors = lane_by_lane(_eigen)(dot(W.T, rhs))
    return ReducedRank(W, vectors[:, ::-1], jnp.maximum(0.5 * values[::-1], 0), mean, response_mean, singular)


def _solve(G: Array, B: Array) -> tuple[Array, Array]:
    """Solution of a positive definite system in float64, and whether it is singular to working precision.

    A singular one is made regular by the smallest ridge, relative to its diagonal, that float64 allows. There is no
    matrix product here, whose batching would forget float64 (see linalg/masked_cholesky.py).
    """
    tol = tolerance("pivot", B.dtype)
    with jax.enable_x64(True):
        G = G.astype(jnp.float64)
        diagonal = jnp.diagonal(G)
        scale = jnp.where(diagonal > 0, lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 0.0)
        eye = jnp.eye(G.shape[0], dtype=jnp.float64)
        M = jnp.where(eye == 1, 1.0, G * scale[:, None] * scale)
        factor = jnp.linalg.cholesky(M)
        singular = ~jnp.all(jnp.diagonal(factor) ** 2 > tol)
        factor = lax.cond(singular, lambda: jnp.linalg.cholesky(M + 1e-10 * eye), lambda: factor)
        Z = jax.scipy.linalg.cho_solve((factor, True), scale[:, None] * B.astype(jnp.float64))
        return (scale[:, None] * Z).astype(B.dtype), singular


def _eigen(M: Array) -> tuple[Array, Array]:
    dtype = M.dtype
    with jax.enable_x64(True):
        M = M.astype(jnp.float64)
        values, vectors = jnp.linalg.eigh(0.5 * (M + M.T))
        return values.astype(dtype), vectors.astype(dtype)
