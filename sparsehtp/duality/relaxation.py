"""The convex form of the dual: its optimum is max D, and its residual is the dual maximiser.

The dual's maximum is the perspective relaxation's minimum ([DIHT] and [DIOM] do not say so; proved by exchanging the
minimum over 0 <= z <= 1 with the maximum over a):

    max D = min over w, b, 0 <= z <= 1 of  sum_i omega_i l(x_i'w + b + o_i, y_i) + R(w, z),
    R(w, z) = sum_j [l0 z_j + l1 |w_j| + (l2_j / 2) w_j^2 / z_j],    sum_j z_j <= k for `Sparsity` (then l0 = l1 = 0)

(z_j = 1 for kept features). It is convex and, for a smooth loss, a = l'(prediction) at its minimum is the dual
maximiser. Accelerated proximal gradient steps with restarts minimise it: the proximal map has a closed form up to one
number theta,

    z_j = clip(theta |v_j| sqrt(c_j) - c_j, 0, 1),   w_j = v_j z_j / (z_j + c_j),   c_j = step l2_j, v soft-thresholded,

with theta = (2 step l0)^(-1/2), or the theta that makes sum z_j = k. Columns are centred where there is an intercept,
so that it decouples.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._types import replace
from ..linalg import bisect, dot, either, shrink_until
from .dual import Dual, DualPoint, best_shift

CHECK = 10  # steps between evaluations of the dual
MAX_TRIES = 61
NORM_STEPS = 16  # of a power iteration, each as dear as a gradient step
SHRINK = 0.7
HINGE_SMOOTHING = 1e-3  # costs the bound at most half of it


class Relaxed(NamedTuple):
    """The convex form's solution.

    Attributes:
        point: the best feasible dual point found, whose value is a lower bound of the original problem.
        upper: the convex form's value: max D lies between the two.
        w: the convex form's coefficients, in the solver's units.
        num_steps: gradient steps.
    """

    point: DualPoint
    upper: Float[Array, ""]
    w: Float[Array, "p"]
    num_steps: Int[Array, ""]


class _Carry(NamedTuple):
    w: Array
    b: Array
    eta: Array
    w_at: Array  # the extrapolated point
    b_at: Array  # what the descent test takes the intercept's step from
    eta_at: Array
    momentum: Array
    step: Array  # in units of 1 / smoothness
    value: Array


class _Outer(NamedTuple):
    inner: _Carry
    best: DualPoint
    t: Array
    done: Array


def relax(
    dual: Dual,
    tol: Float[Array, ""] | float,
    enough: Float[Array, ""] | float = jnp.inf,
    useless: Float[Array, ""] | float = -jnp.inf,
    max_steps: Int[Array, ""] | int = 2000,
    w0: Float[Array, "p"] | None = None,
    share: float = 0.0,
    norm: Float[Array, ""] | None = None,
) -> Relaxed:
    """Maximise the dual through its convex form.

    Args:
        dual: the dual; a `Hinge` is replaced by a `SmoothedHinge` of width 1e-3, whose dual points are the same.
        tol: stop once upper - lower <= tol |upper|.
        enough: stop once lower reaches this.
        useless: stop once upper falls to this: no bound can be better than it.
        max_steps: limit of gradient steps, two products with the data each.
        w0: (p,) start in the solver's units; None: zeros.
        share: stop once upper - lower is at most this share of enough - upper: lower will not reach it.
        norm: the largest eigenvalue of X'diag(omega)X of the (centred) columns, or somewhat less; None: estimated.
    """
    objective = dual.objective
    smooth = dual.loss.smoothed(jnp.asarray(HINGE_SMOOTHING, objective.dtype))
    surrogate = replace(dual, objective=replace(objective, loss=smooth))
    problem = _Smooth(surrogate)
    p, dtype = objective.n_coefficients, objective.dtype
    w0 = jnp.zeros(p, dtype) if w0 is None else jnp.where(dual.masks().zero, 0, w0)
    eta0 = problem.predict(w0)
    b0 = problem.shift(eta0, jnp.zeros((), dtype))
    value0 = jnp.asarray(jnp.inf, dtype)
    norm = problem.norm() if norm is None else norm
    start = _Carry(w0, b0, eta0 + b0, w0, b0, eta0 + b0, jnp.ones((), dtype), 0.99 / norm, value0)

    def point_of(inner: _Carry) -> DualPoint:
        return dual.point(dual.project(problem.slope(inner.eta)))

    # No point yet: one at the start would be half as much again to compile, and is seldom the best.
    first = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(point_of, start))
    first = first._replace(value=-value0)

    def body(outer: _Outer) -> _Outer:
        inner = lax.fori_loop(0, CHECK, lambda _, c: _step(problem, c), outer.inner)
        point = point_of(inner)
        best = either(point.value > outer.best.value, point, outer.best)
        closed = inner.value - best.value <= tol * jnp.abs(inner.value)
        closed |= inner.value - best.value <= share * (enough - inner.value)  # never for infinity times zero
        done = closed | (best.value >= enough) | (inner.value <= useless) | ~jnp.isfinite(inner.value)
        return _Outer(inner, best, outer.t + CHECK, done)

    out = lax.while_loop(
        lambda o: ~o.done & (o.t < max_steps), body, _Outer(start, first, jnp.int32(0), jnp.zeros((), bool))
    )
    c = out.inner
    return Relaxed(out.best, c.value, c.w, out.t)


class _Smooth:
    """The smooth part of the convex form, on centred columns; not a pytree, lives inside one trace."""

    def __init__(self, dual: Dual) -> None:
        self.dual = dual
        self.objective = dual.objective
        self.weights = dual.weights
        self.centres = dual.columns.moments()[0]
        self.fixed = dual.masks()
        self.unbounded = not self.objective.smooth
        # Without a bound on the curvature the search finds the step.
        bound = 1.0 if self.unbounded else self.objective.loss.smoothness
        self.smoothness = jnp.asarray(bound, self.objective.dtype)

    def norm(self) -> Float[Array, ""]:
        """Scale of the Gram matrix; an underestimate, since the search shrinks the step where needed."""
        objective = self.objective
        unscaled = replace(self.dual, objective=objective.reweighted(l2=jnp.ones((), objective.dtype)))
        return jnp.maximum(unscaled.gram_norm(NORM_STEPS), jnp.finfo(objective.dtype).tiny)

    def predict(self, w: Float[Array, "p"]) -> Float[Array, "n"]:
        """Prediction of the coefficients on centred columns, offset included."""
        columns = self.dual.columns
        eta = columns.product(self.dual.lift(w))
        if self.centres is not None:
            eta = eta - dot(self.centres, w)
        return eta if columns.offset is None else eta + columns.offset

    def slope(self, eta: Float[Array, "n"]) -> Float[Array, "n"]:
        return self.objective.loss.derivative(eta, self.objective.y)

    def value(self, eta: Float[Array, "n"]) -> Float[Array, ""]:
        each = self.objective.loss.value(eta, self.objective.y)
        return dot(self.weights, jnp.where(self.weights > 0, each, 0))

    def shift(self, eta: Float[Array, "n"], b: Float[Array, ""]) -> Float[Array, ""]:
        """The intercept's minimiser, where the loss is neither squared nor without a bound one majorised step."""
        if not self.objective.n_free:
            return b
        if self.unbounded:
            return best_shift(self.objective.loss, eta, self.objective.y, self.weights)
        return b - dot(self.weights, jnp.where(self.weights > 0, self.slope(eta + b), 0)) / self.smoothness

    def gradient(self, a: Float[Array, "n"]) -> Float[Array, "p"]:
        a = jnp.where(self.weights > 0, a, 0)
        tau = self.dual.moments(a)
        return tau if self.centres is None else tau - self.centres * dot(self.weights, a)

    def proximal(self, v: Float[Array, "p"], step: Float[Array, ""]) -> tuple[Float[Array, "p"], Float[Array, "p"]]:
        """(w, z) of the penalty's proximal map for a step."""
        l0, l1 = self.dual.prices
        zero, nonzero = self.fixed
        c = step * self.dual.ridge
        v = jnp.sign(v) * jnp.maximum(jnp.abs(v) - step * l1, 0)
        v = jnp.where(zero, 0, v)
        pull = jnp.abs(v) * jnp.sqrt(c)
        if self.dual.penalised:
            theta = 1 / jnp.sqrt(jnp.maximum(2 * step * l0, jnp.finfo(v.dtype).tiny))
        else:
            theta = _water_level(jnp.where(nonzero, 0, pull), c, self.dual.slots())
        z = jnp.where(nonzero, 1.0, jnp.clip(theta * pull - c, 0, 1))
        z = jnp.where(zero, 0.0, z)
        return v * z / (z + c), z

    def penalty(self, w: Float[Array, "p"], z: Float[Array, "p"]) -> Float[Array, ""]:
        l0, l1 = self.dual.prices
        tiny = jnp.finfo(w.dtype).tiny
        square = jnp.where(w != 0, w**2 / jnp.maximum(z, tiny), 0)
        return jnp.sum(l0 * z + l1 * jnp.abs(w) + 0.5 * self.dual.ridge * square)


def _water_level(pull: Float[Array, "p"], c: Float[Array, "p"], k: Array) -> Float[Array, ""]:
    """theta with sum clip(theta pull - c, 0, 1) = k, or one that sets every z with a pull to 1 if that is fewer."""
    live = pull > 0
    safe = jnp.where(live, pull, 1)
    full = jnp.max(jnp.where(live, (1 + c) / safe, 0), initial=0)

    def short(level: Float[Array, ""]) -> Bool[Array, ""]:
        return jnp.sum(jnp.where(live, jnp.clip(level * pull - c, 0, 1), 0)) < k

    low, _ = bisect(short, jnp.zeros_like(full), full)
    return jnp.where(jnp.sum(live) <= k, full, low)


def _step(problem: _Smooth, c: _Carry) -> _Carry:
    slope = problem.slope(c.eta_at)
    base = problem.value(c.eta_at)
    g = problem.gradient(slope)
    has_free = problem.objective.n_free
    # What rounding of the predictions does to the value: a test stricter than that shrinks the step for ever.
    rounding = dot(problem.weights, jnp.where(problem.weights > 0, jnp.abs(slope * c.eta_at), 0))
    slack = 16 * jnp.finfo(base.dtype).eps * (jnp.abs(base) + rounding)

    def trial(step: Float[Array, ""]) -> tuple[tuple[Array, Array, Array, Array], Array]:
        size = step / problem.smoothness
        w, z = problem.proximal(c.w_at - size * g, size)
        eta = problem.predict(w)
        b = problem.shift(eta, c.b_at) if has_free else c.b
        eta = eta + b
        move = w - c.w_at
        # The intercept's own step only lowers the left side.
        bound = base + dot(g, move) + jnp.sum(move**2) / (2 * size)
        return (w, z, b, eta), problem.value(eta) <= bound + slack

    nothing = (c.w, c.w, c.b, c.eta), jnp.zeros((), bool)
    found = shrink_until(lambda _, tried: tried[1], trial, c.step, nothing, SHRINK, MAX_TRIES)
    step, ((w, z, b, eta), _), _ = found
    value = problem.value(eta) + problem.penalty(w, z)
    # Momentum that points uphill is dropped (O'Donoghue and Candes).
    uphill = dot(c.w_at - w, w - c.w) + (c.b_at - b) * (b - c.b) > 0
    momentum = jnp.where(uphill, 1.0, 0.5 * (1 + jnp.sqrt(1 + 4 * c.momentum**2)))
    beta = jnp.where(uphill, 0.0, (c.momentum - 1) / momentum)
    return _Carry(
        w=w,
        b=b,
        eta=eta,
        w_at=w + beta * (w - c.w),
        b_at=b + beta * (b - c.b),
        eta_at=eta + beta * (eta - c.eta),
        momentum=momentum,
        step=step,
        value=value,
    )
