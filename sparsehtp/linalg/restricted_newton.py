"""Minimisation over the coefficients of a fixed support: exact for quadratics, projected damped Newton otherwise."""

import functools
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .._tolerances import tolerance
from .box import WHOLE, Box, Everywhere
from .masked_cholesky import masked_factor

MAX_NEWTON_STEPS = 60
MAX_HALVINGS = 30
DAMPING = 1e-3  # of the first step
ATTEMPTS = 3  # from the start, of the intercept alone, and from there


class Smooth(Protocol):
    """A smooth convex function of the m coefficients of a support."""

    @property
    def mask(self) -> Bool[Array, "m"]: ...
    @property
    def quadratic(self) -> bool: ...
    @property
    def kinked(self) -> bool: ...
    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]: ...
    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]: ...


class WithHessian(Smooth, Protocol):
    """The same with its Hessian matrix, the magnitudes of what the gradient sums, and the place of an intercept."""

    @property
    def intercept(self) -> Bool[Array, "m"] | None: ...
    def grad_terms(self, z: Float[Array, "m"]) -> Float[Array, "m"]: ...
    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]: ...


class Refit(NamedTuple):
    """A minimiser over a support.

    `singular` if its system was; `solved` unless the step limit was reached or a slope is left that no step could use.
    """

    z: Float[Array, "m"]
    singular: Bool[Array, ""]
    solved: Bool[Array, ""]


def solve_quadratic(problem: WithHessian, start: Float[Array, "m"]) -> Refit:
    """Minimiser of a quadratic, with one step of iterative refinement so that float32 Gram rounding does not stay.

    Of a singular system it is the start where that is lower: what counts as singular may be a little more than that.
    """
    zero = jnp.zeros_like(start)
    system = masked_factor(problem.hess(zero), problem.mask)
    z = system.solve(-problem.grad(zero))
    z = z + system.solve(-problem.grad(z))
    value = problem.value(z)
    lower = system.singular & (problem.value(start) < value - tolerance("swap", z.dtype) * jnp.abs(value))
    return Refit(jnp.where(lower, start, z), system.singular, jnp.ones((), bool))


class _Newton(NamedTuple):
    z: Array
    value: Array
    grad: Array
    damping: Array
    step: Array
    singular: Array
    done: Array


class _Attempt(NamedTuple):
    """The best of the attempts so far; `null` is where the last of them starts."""

    z: Array
    value: Array
    singular: Array
    solved: Array
    null: Array
    number: Array


def newton(
    problem: WithHessian,
    z0: Float[Array, "m"],
    box: Box = WHOLE,
    max_steps: int | None = None,
) -> Refit:
    """Minimise a smooth convex function over a box, on its plane, by projected Newton steps with backtracking.

    It starts at z0 or at zero, whichever is lower (on a plane, at their nearest points there). Where no minimiser is
    found within the steps that there are by default, the null model (the intercept alone) follows, and a start from
    there: a poor start never costs more than none, and the value is never above that of the null model. Coordinates at
    a bound that the gradient pushes outwards are held; the others take the Newton step of the free block, clipped to
    the box, and on a plane the largest follows from them, anew in every step (see `box`). Where a loss has
    kinks or is saturated its curvature vanishes and its slope need not, so the Hessian is damped by a multiple of a
    matrix that does not; the multiple falls with every full step.

    Returns:
        The minimiser, and whether its system was singular, that of a loss with kinks wholly damped. Stops when the
        Newton decrement is at most 1e-7 of the value (1e-14 in float64) and every entry of the gradient is at most 3e-5
        (1e-10) of the terms that it sums, or after `max_steps`; the answer is finite in either case.
    """
    dtype = z0.dtype
    tol, tiny = tolerance("newton", dtype), jnp.finfo(dtype).tiny
    eps = jnp.finfo(dtype).eps
    flat = tolerance("level", dtype)
    lower = jnp.full_like(z0, -jnp.inf) if box.lower is None else box.lower
    upper = jnp.full_like(z0, jnp.inf) if box.upper is None else box.upper

    def search(
        chart: Everywhere,
        z: Float[Array, "m"],
        value: Float[Array, ""],
        slope: Float[Array, "m"],
        direction: Float[Array, "m"],
    ) -> tuple[Array, Array, Array, Array]:
        def trial(alpha: Float[Array, ""]) -> tuple[Float[Array, "m"], Float[Array, ""]]:
            moved = z + alpha * direction
            new = chart.completed(jnp.clip(moved, lower, upper), moved)
            return new, problem.value(new)

        def refused(carry: tuple[Array, Array, Array, Array]) -> Bool[Array, ""]:
            _, new, new_value, tries = carry
            # The slack of a few ulp lets the last steps pass, where the decrease is below the rounding of the value.
            bound = value + 1e-4 * jnp.minimum(jnp.vdot(slope, new - z), 0) + 8 * eps * jnp.abs(value)
            return ~(new_value <= bound) & (tries < MAX_HALVINGS)

        def halve(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            alpha, _, _, tries = carry
            alpha = alpha / 2
            return alpha, *trial(alpha), tries + 1

        one = jnp.ones((), dtype)
        _, new, new_value, tries = lax.while_loop(refused, halve, (one, *trial(one), jnp.int32(0)))
        ok = new_value <= value + 8 * eps * jnp.abs(value)
        return jnp.where(ok, new, z), jnp.where(ok, new_value, value), tries == 0, ok

    def free(z: Float[Array, "m"], slope: Float[Array, "m"], mask: Bool[Array, "m"]) -> Bool[Array, "m"]:
        return mask & ~((z <= lower) & (slope > 0)) & ~((z >= upper) & (slope < 0))

    def level(z: Float[Array, "m"], grad: Float[Array, "m"], mask: Bool[Array, "m"]) -> Bool[Array, ""]:
        chart = box.around(z)
        slope = chart.slope(grad)
        return jnp.all(~free(z, slope, mask) | (jnp.abs(slope) <= flat * chart.terms(problem.grad_terms(z))))

    def body(mask: Array, c: _Newton) -> _Newton:
        chart = box.around(c.z)
        slope = chart.slope(c.grad)
        system = masked_factor(chart.curvature(problem.hess(c.z, c.damping), slope), chart.own(free(c.z, slope, mask)))
        direction = chart.move(system.solve(-slope))
        decrement = -jnp.vdot(slope, direction)
        z, value, whole, ok = search(chart, c.z, c.value, slope, direction)
        clipped = jnp.any(chart.own(z != c.z + direction)) & ok & whole
        small = (decrement <= tol * jnp.abs(value) + tiny) & ~clipped
        done = small & level(c.z, c.grad, mask)
        grad = problem.grad(z)
        # A whole step that leaves the slope as it was is too short: far out on a tail even the damping is too steep.
        short = (decrement > 0) & (jnp.vdot(chart.slope(grad), direction) <= -decrement / 2)
        eases = ok & whole & (done | ~small | short)
        damping = jnp.where(
            eases, c.damping * jnp.where(short, 1e-5, 0.1), jnp.minimum(jnp.maximum(c.damping, DAMPING) * 10, 1.0)
        )
        stuck = (c.damping >= 1) & (~ok | small) & ~eases
        return _Newton(z, value, grad, damping, c.step + 1, system.singular, done | stuck)

    limit = MAX_NEWTON_STEPS if max_steps is None else max_steps
    zero, false = box.nearest(jnp.zeros_like(z0)), jnp.zeros((), bool)
    intercept = jnp.zeros(z0.shape, bool) if problem.intercept is None else problem.intercept & problem.mask

    def attempt(a: _Attempt) -> _Attempt:
        alone = a.number == 1  # the intercept
        mask = jnp.where(alone, intercept, problem.mask)
        z = jnp.where(a.number == 0, a.z, a.null)
        damping = jnp.asarray(DAMPING, dtype)
        carry = _Newton(z, problem.value(z), problem.grad(z), damping, jnp.int32(0), false, false)
        out = lax.while_loop(lambda c: ~c.done & (c.step < limit), functools.partial(body, mask), carry)
        solved = out.done & level(out.z, out.grad, problem.mask)
        better = (out.value < a.value) | (a.number == 0)
        new = _Attempt(out.z, out.value, out.singular, solved, a.null, a.number)
        best = jax.tree.map(lambda n, o: jnp.where(better, n, o), new, a)
        hopeful = ~alone | better | (far & ~a.solved)
        return best._replace(null=jnp.where(alone, out.z, a.null), number=jnp.where(hopeful, a.number + 1, ATTEMPTS))

    start, value = lower_start(problem, box.nearest(z0), zero)
    far = jnp.any(start != zero)
    # Far out rounding may hide every descent, and so may collinear columns beside the intercept.
    out = lax.while_loop(
        lambda a: (a.number == 0) | ((a.number < ATTEMPTS) & (~a.solved | a.singular) & (max_steps is None)),
        attempt,
        _Attempt(start, value, false, false, zero, jnp.int32(0)),
    )
    singular = out.singular
    if problem.kinked:  # the curvature that there is by chance does not tell
        chart = box.around(out.z)
        slope = chart.slope(problem.grad(out.z))
        own = chart.own(free(out.z, slope, problem.mask))
        singular = masked_factor(chart.curvature(problem.hess(out.z, 1.0), slope), own).singular
    return Refit(out.z, singular, out.solved)


def lower_start(problem: Smooth, z: Float[Array, "m"], other: Float[Array, "m"]) -> tuple[Array, Array]:
    """z and its value, or another point and its value where that is lower, or where z has none."""
    value, rival = problem.value(z), problem.value(other)
    better = ~(value <= rival) & jnp.isfinite(rival)
    return jnp.where(better, other, z), jnp.where(better, rival, value)


def minimise(
    problem: WithHessian,
    z0: Float[Array, "m"],
    box: Box = WHOLE,
    max_steps: int | None = None,
) -> Refit:
    """Minimise over the support: directly for an unbounded quadratic, else by `newton` with at most `max_steps`."""
    z0 = jnp.where(problem.mask, z0, 0)
    if problem.quadratic and box.whole:
        return solve_quadratic(problem, z0)
    return newton(problem, z0, box, max_steps)
