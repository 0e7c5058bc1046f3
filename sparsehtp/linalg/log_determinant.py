"""Minimisation of -logdet(A) + <S, A> over symmetric matrices A with given nonzeros and eigenvalues in an interval.

All matrices are dense (p, p): on a support of some thousand entries two products of p x p matrices are the Hessian
times a vector, which hardware does at full speed, and a mask keeps the support. On a CPU a batch is taken lane by lane
(see `masked_cholesky`), so that no lane waits for the iterations of another.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .._programs import program
from .._tolerances import tolerance
from .backtracking import shrink_until
from .lanes import any_lane, lane_by_lane, one_by_one
from .products import dot

MAX_NEWTON_STEPS = 60
MAX_CG_STEPS = 300
MAX_HALVINGS = 40
MAX_ADMM_STEPS = 3000
BALANCED_STEPS = 1000  # ADMM steps in which the penalty may still change
FORCING = 0.1  # relative residual of a Newton system far from the minimum
SLACK = 1e-6  # relative room around the interval, for rounding


class Factor(NamedTuple):
    """The inverse of a matrix and its log determinant; minus infinity if the matrix is not in the given set."""

    inverse: Float[Array, "p p"]
    logdet: Float[Array, ""]


class Interval(NamedTuple):
    """Bounds on the eigenvalues."""

    lower: Float[Array, ""]
    upper: Float[Array, ""]


class LogDetFit(NamedTuple):
    """A minimiser, and whether it was reached within the step limit."""

    matrix: Float[Array, "p p"]
    solved: Bool[Array, ""]


@jax.custom_jvp
def factorise(A: Float[Array, "p p"], interval: Interval) -> Factor:
    """Inverse and log determinant of a symmetric matrix with its eigenvalues in an interval (to rounding)."""
    return lane_by_lane(_factorise)(A, interval)


@factorise.defjvp
def _factorise_jvp(primals: tuple[Array, Interval], tangents: tuple[Array, Interval]) -> tuple[Factor, Factor]:
    factor, moved = factorise(*primals), tangents[0]
    W = factor.inverse
    return factor, Factor(-dot(dot(W, moved), W), jnp.sum(W * moved))


def smallest_and_largest(A: Float[Array, "p p"]) -> tuple[Array, Array]:
    """The extreme eigenvalues of a symmetric matrix."""
    return lane_by_lane(_extremes)(A)


def shrunk(A: Float[Array, "p p"], interval: Interval) -> Float[Array, "p p"]:
    """A with its off-diagonal part halved until the eigenvalues lie in the interval; the diagonal is clipped to it."""
    return lane_by_lane(_shrunk)(A, interval)


def minimise_log_det(
    S: Float[Array, "p p"],
    mask: Bool[Array, "p p"],
    start: Float[Array, "p p"],
    interval: Interval,
    target: Float[Array, ""] | float = jnp.inf,
    method: str = "newton",
    max_steps: int | None = None,
) -> LogDetFit:
    """argmin -logdet(A) + <S, A> subject to A = 0 outside the mask and eigenvalues in the interval.

    Newton-CG ignores the interval; where its minimiser lies outside, or runs away since there is none, ADMM takes over.

    Args:
        S: symmetric positive semidefinite.
        mask: symmetric, with a True diagonal.
        start: any symmetric matrix; shrunk to a feasible one.
        interval: bounds on the eigenvalues.
        target: give up as soon as the minimum is sure (to about a fifth of the Newton decrement) to lie above it.
        method: "newton", or "admm" from the start.
        max_steps: limit of Newton steps.
    """
    steps = MAX_NEWTON_STEPS if max_steps is None else max_steps
    return lane_by_lane(_minimiser(method, steps))(S, mask, start, interval, target)


# --- factorisation ----------------------------------------------------------------------------------------------------
def _cholesky(A: Float[Array, "p p"]) -> tuple[Float[Array, "p p"], Float[Array, ""], Bool[Array, ""]]:
    """Factor, log determinant and success; the identity and minus infinity where A is not positive definite."""
    L = lax.linalg.cholesky(A, symmetrize_input=False)
    pivots = jnp.diagonal(L)
    ok = jnp.all(jnp.isfinite(pivots) & (pivots > 0))  # a failed factorisation is NaN
    L = jnp.where(ok, L, jnp.eye(A.shape[0], dtype=A.dtype))
    logdet = 2 * jnp.sum(jnp.log(jnp.diagonal(L)))
    return L, jnp.where(ok, logdet, -jnp.inf), ok


def _inverse(L: Float[Array, "p p"]) -> Float[Array, "p p"]:
    half = lax.linalg.triangular_solve(L, jnp.eye(L.shape[0], dtype=L.dtype), left_side=True, lower=True)
    return dot(half.T, half)


def _inside(A: Float[Array, "p p"], interval: Interval) -> Bool[Array, ""]:
    eye = jnp.eye(A.shape[0], dtype=A.dtype)
    margins = jnp.stack([A - (1 - SLACK) * interval.lower * eye, (1 + SLACK) * interval.upper * eye - A])
    return jnp.all(lax.map(lambda B: _cholesky(B)[2], margins))


@program
def _factorise(A: Float[Array, "p p"], interval: Interval) -> Factor:
    L, logdet, _ = _cholesky(A)
    return Factor(_inverse(L), jnp.where(_inside(A, interval), logdet, -jnp.inf))


@program
def _extremes(A: Float[Array, "p p"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    values = jnp.linalg.eigvalsh(A, symmetrize_input=False)
    return values[0], values[-1]


@program
def _shrunk(A: Float[Array, "p p"], interval: Interval) -> Float[Array, "p p"]:
    diagonal = jnp.diag(jnp.clip(jnp.diagonal(A), interval.lower, interval.upper))
    rest = A - jnp.diag(jnp.diagonal(A))

    def outside(carry: tuple[Array, Array]) -> Bool[Array, ""]:
        rest, tries = carry
        return ~_inside(diagonal + rest, interval) & (tries < MAX_HALVINGS)

    rest, tries = lax.while_loop(outside, lambda c: (c[0] / 2, c[1] + 1), (rest, jnp.int32(0)))
    return diagonal + jnp.where(tries < MAX_HALVINGS, rest, 0)


# --- on a support -----------------------------------------------------------------------------------------------------
@functools.cache
def _minimiser(method: str, max_steps: int) -> Callable[[Array, Array, Array, Interval, Array | float], LogDetFit]:
    @jax.jit
    def run(
        S: Float[Array, "p p"],
        mask: Bool[Array, "p p"],
        start: Float[Array, "p p"],
        interval: Interval,
        target: Float[Array, ""],
    ) -> LogDetFit:
        M = mask.astype(S.dtype)
        start = M * start
        diagonal = jnp.diagonal(start)
        usable = jnp.isfinite(diagonal) & (diagonal > 0)
        best = 1 / jnp.where(jnp.diagonal(S) > 0, jnp.diagonal(S), 1 / interval.upper)
        start = jnp.where(usable.all(), start, jnp.diag(best))
        if method == "admm":
            return _admm(S, M, start, interval)
        fit, runaway = _newton(S, M, start, interval, target, max_steps)
        wrong = fit.solved & (runaway | ~_inside(fit.matrix, interval))
        rare = wrong if one_by_one() else any_lane(wrong)
        bounded = lax.cond(rare, lambda: _admm(S, M, start, interval), lambda: fit)
        return jax.tree.map(lambda a, b: jnp.where(wrong, a, b), bounded, fit)

    return run


class _Newton(NamedTuple):
    matrix: Array
    cholesky: Array
    value: Array
    step: Array
    solved: Array  # the last step started within the tolerance, or the interval was left
    runaway: Array
    hopeless: Array  # the minimum lies above the target


def _newton(
    S: Float[Array, "p p"],
    M: Float[Array, "p p"],
    start: Float[Array, "p p"],
    interval: Interval,
    target: Float[Array, ""],
    max_steps: int,
) -> tuple[LogDetFit, Bool[Array, ""]]:
    """Newton steps on the cone of positive definite matrices; returns the fit, and whether it left the interval."""
    dtype, p = S.dtype, S.shape[0]
    tol, eps = tolerance("decrement", dtype), jnp.finfo(dtype).eps

    one, nothing = jnp.ones((), dtype), (M, M, jnp.zeros((), dtype))

    def at(A: Float[Array, "p p"]) -> tuple[Array, Array, Array]:
        L, logdet, _ = _cholesky(A)
        return A, L, jnp.sum(S * A) - logdet

    def body(c: _Newton) -> _Newton:
        inverse = _inverse(c.cholesky)
        gradient = M * (S - inverse)
        direction = _newton_direction(c.matrix, inverse, M, gradient)
        decrement2 = -jnp.sum(gradient * direction)
        decrement = jnp.sqrt(jnp.maximum(decrement2, 0))

        # -logdet is self-concordant: sizes below 1 / (1 + decrement) are feasible and descend.
        def accepted(size: Array, tried: tuple[Array, Array, Array]) -> Bool[Array, ""]:
            return tried[2] <= c.value - 1e-4 * size * decrement2 + 8 * eps * jnp.abs(c.value)

        size, tried, _ = shrink_until(
            accepted, lambda size: at(c.matrix + size * direction), one, nothing, 0.5, MAX_HALVINGS
        )
        ok = accepted(size, tried)
        A, L, value = jax.tree.map(lambda new, old: jnp.where(ok, new, old), tried, (c.matrix, c.cholesky, c.value))
        runaway = jnp.sum(A**2) > p * interval.upper**2
        # F* >= F(c) + d + log(1 - d), with room for the inexact direction.
        most = jnp.minimum(1.2 * decrement, 1 - eps)
        hopeless = (1.2 * decrement < 1) & (c.value + most + jnp.log1p(-most) > target)
        solved = (decrement2 <= jnp.maximum(tol, 8 * eps * jnp.abs(value))) | ~ok | runaway
        return _Newton(A, L, value, c.step + 1, solved, runaway, hopeless)

    def going(c: _Newton) -> Bool[Array, ""]:
        return ~(c.solved | c.hopeless) & (c.step < max_steps)

    diagonal = jnp.diag(jnp.diagonal(start))
    least = 2.0 ** (2 - MAX_HALVINGS)  # after which the diagonal alone is tried

    def towards(size: Array) -> tuple[Array, Array, Array]:
        return at(diagonal + jnp.where(size < least, 0, size) * (start - diagonal))

    _, (A, L, value), _ = shrink_until(
        lambda _, tried: jnp.isfinite(tried[2]), towards, one, nothing, 0.5, MAX_HALVINGS
    )
    no = jnp.zeros((), bool)
    out = lax.while_loop(going, body, _Newton(A, L, value, jnp.int32(0), no, no, no))
    return LogDetFit(out.matrix, out.solved), out.runaway


class _CG(NamedTuple):
    x: Array
    residual: Array
    direction: Array
    product: Array  # <residual, preconditioned residual>
    step: Array


def _newton_direction(
    A: Float[Array, "p p"], W: Float[Array, "p p"], M: Float[Array, "p p"], gradient: Float[Array, "p p"]
) -> Float[Array, "p p"]:
    """-(Hessian)^{-1} gradient on the mask, Hessian D -> M * (W D W) with W = A^{-1}, by conjugate gradients.

    Preconditioned by D -> M * (A D A), the inverse where nothing is masked: about a third of the steps of a diagonal
    preconditioner for twice their cost, and the more so the worse A is conditioned.
    """

    def precondition(residual: Float[Array, "p p"]) -> Float[Array, "p p"]:
        return M * dot(dot(A, residual), A)

    def body(c: _CG) -> _CG:
        curved = M * dot(dot(W, c.direction), W)
        alpha = c.product / jnp.maximum(jnp.sum(c.direction * curved), jnp.finfo(W.dtype).tiny)
        residual = c.residual - alpha * curved
        z = precondition(residual)
        product = jnp.sum(residual * z)
        return _CG(c.x + alpha * c.direction, residual, z + (product / c.product) * c.direction, product, c.step + 1)

    z = precondition(-gradient)
    first = -jnp.sum(gradient * z)
    # About the squared decrement: superlinear convergence of the Newton steps.
    enough = first * jnp.minimum(FORCING**2, first)
    start = _CG(jnp.zeros_like(W), -gradient, z, first, jnp.int32(0))
    return lax.while_loop(lambda c: (c.product > enough) & (c.step < MAX_CG_STEPS), body, start).x


class _ADMM(NamedTuple):
    matrix: Array  # on the mask
    dual: Array
    penalty: Array
    step: Array
    solved: Array


def _admm(S: Float[Array, "p p"], M: Float[Array, "p p"], start: Float[Array, "p p"], interval: Interval) -> LogDetFit:
    """Alternating directions: a spectral step in the interval, and a projection onto the mask."""
    dtype = S.dtype
    tol = tolerance("admm", dtype)

    def body(c: _ADMM) -> _ADMM:
        values, V = jnp.linalg.eigh(c.matrix - (S - c.dual) / c.penalty)
        root = jnp.sqrt(values**2 + 4 / c.penalty)
        # (values + root) / 2 without cancellation
        values = jnp.where(values > 0, (values + root) / 2, 2 / (c.penalty * (root - values)))
        spectral = dot(V * jnp.clip(values, interval.lower, interval.upper), V.T)
        matrix = M * (spectral - c.dual / c.penalty)
        primal = jnp.linalg.norm(spectral - matrix) / jnp.linalg.norm(spectral)
        dual_scale = jnp.maximum(jnp.linalg.norm(c.dual), jnp.linalg.norm(S))
        dual = c.penalty * jnp.linalg.norm(matrix - c.matrix) / dual_scale
        solved = (primal <= tol) & (dual <= tol)
        # Keep the residuals within a factor of ten of each other, and then settle.
        factor = jnp.where(primal > 10 * dual, 2.0, jnp.where(dual > 10 * primal, 0.5, 1.0)).astype(dtype)
        factor = jnp.where((c.step % 10 == 9) & (c.step < BALANCED_STEPS), factor, 1)
        return _ADMM(matrix, c.dual - c.penalty * (spectral - matrix), c.penalty * factor, c.step + 1, solved)

    penalty = jnp.mean(jnp.diagonal(S)) ** 2
    first = _ADMM(start, jnp.zeros_like(S), penalty, jnp.int32(0), jnp.zeros((), bool))
    c = lax.while_loop(lambda c: ~c.solved & (c.step < MAX_ADMM_STEPS), body, first)
    # The matrix leaves the interval by the last residual at most: mix in a multiple of the identity.
    least, largest = _extremes(c.matrix)
    centre = (interval.lower + interval.upper) / 2
    below, above = jnp.maximum(interval.lower - least, 0), jnp.maximum(largest - interval.upper, 0)
    width = jnp.maximum(centre - interval.lower, jnp.finfo(dtype).tiny)
    share = jnp.maximum(below / (width + below), above / (width + above))
    matrix = c.matrix + share * (centre * jnp.eye(S.shape[0], dtype=dtype) - c.matrix)
    return LogDetFit(matrix, c.solved)
