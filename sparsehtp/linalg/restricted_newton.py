"""Minimisation over the coefficients of a fixed support: exact for quadratics, projected damped Newton otherwise."""

import functools
from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._tolerances import tolerance
from .box import WHOLE, Box, Everywhere
from .lanes import any_lane
from .masked_cholesky import masked_factor
from .products import dot

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
    """A smooth function with its Hessian matrix, the terms of its gradient, and the place of an intercept."""

    @property
    def intercept(self) -> Bool[Array, "m"] | None: ...
    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]: ...
    def derivatives(self, z: Float[Array, "m"]) -> tuple[Array, Array, Callable[[Array | float], Array]]: ...


class Refit(NamedTuple):
    """A minimiser over a support.

    `singular` if its system was; `solved` unless the step limit was reached or a slope is left that no step could use.
    """

    z: Float[Array, "m"]
    singular: Bool[Array, ""]
    solved: Bool[Array, ""]


def solve_quadratic(problem: WithHessian, start: Float[Array, "m"], hess: Float[Array, "m m"] | None = None) -> Refit:
    """Minimiser of a quadratic, with one step of iterative refinement so that float32 Gram rounding does not stay.

    Of a singular system it is the start where that is lower: what counts as singular may be a little more than that.
    A Hessian that is known need not be computed.
    """
    zero = jnp.zeros_like(start)
    system = masked_factor(problem.hess(zero) if hess is None else hess, problem.mask)
    z = system.solve(-problem.grad(zero))
    z = z + system.solve(-problem.grad(z))
    value = problem.value(z)
    lower = system.singular & (problem.value(start) < value - tolerance("swap", z.dtype) * jnp.abs(value))
    return Refit(jnp.where(lower, start, z), system.singular, jnp.ones((), bool))


class _Newton(NamedTuple):
    """A point, and the step from there that is tried next; before the first one, the start."""

    z: Array
    value: Array
    grad: Array
    direction: Array
    damping: Array
    step: Array
    far: Array  # it began elsewhere than at zero
    level: Array  # the gradient is level for the coordinates that are fitted
    solved: Array  # and for all
    singular: Array  # the system of the last step that was tried
    done: Array


class _Attempt(NamedTuple):
    """The best of the attempts so far; `null` is where the last of them starts."""

    z: Array
    value: Array
    singular: Array
    solved: Array
    far: Array
    null: Array
    number: Array


def newton(problem: WithHessian, z0: Float[Array, "m"], box: Box = WHOLE, max_steps: int | None = None) -> Refit:
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

    zero, false = box.nearest(jnp.zeros_like(z0)), jnp.zeros((), bool)

    def tried(
        c: _Newton, chart: Everywhere, slope: Float[Array, "m"]
    ) -> tuple[Float[Array, "m"], Float[Array, ""], Int[Array, ""]]:
        """The point that the step leads to, its value and the number of tries; at first z0 or zero, the lower."""
        begins = c.step == 0

        def going(carry: tuple[Array, Array, Array, Array]) -> Bool[Array, ""]:
            _, new, new_value, tries = carry
            # The slack of a few ulp lets the last steps pass, where the decrease is below the rounding of the value.
            bound = c.value + 1e-4 * jnp.minimum(dot(slope, new - c.z), 0) + 8 * eps * jnp.abs(c.value)
            refused = ~(new_value <= bound) & (tries <= MAX_HALVINGS)
            return (tries == 0) | jnp.where(begins, (tries == 1) & jnp.any(c.z != zero), refused)

        def trial(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            alpha, old, old_value, tries = carry
            moved = c.z + alpha * c.direction
            new = chart.completed(jnp.clip(moved, lower, upper), moved)
            new = jnp.where(begins, jnp.where(tries == 0, c.z, zero), new)
            value = problem.value(new)
            takes = ~begins | (tries == 0) | (~(old_value <= value) & jnp.isfinite(value))
            return alpha / 2, jnp.where(takes, new, old), jnp.where(takes, value, old_value), tries + 1

        return lax.while_loop(going, trial, (jnp.ones((), dtype), c.z, c.value, jnp.int32(0)))[1:]

    def free(z: Float[Array, "m"], slope: Float[Array, "m"], mask: Bool[Array, "m"]) -> Bool[Array, "m"]:
        return mask & ~((z <= lower) & (slope > 0)) & ~((z >= upper) & (slope < 0))

    def body(mask: Array, c: _Newton) -> _Newton:
        chart, begins = box.around(c.z), c.step == 0
        slope = chart.slope(c.grad)
        decrement = -dot(slope, c.direction)
        new, new_value, tries = tried(c, chart, slope)
        ok, whole = begins | (new_value <= c.value + 8 * eps * jnp.abs(c.value)), tries == 1
        z, value = jnp.where(ok, new, c.z), jnp.where(ok, new_value, c.value)
        # The one place of the program that has derivatives: they are most of what it takes to compile.
        grad, terms, hess = problem.derivatives(z)
        clipped = jnp.any(chart.own(z != c.z + c.direction)) & ok & whole
        rounding = 8 * eps * dot(terms, jnp.abs(c.direction))  # of the slope: F itself may be nearly zero
        small = (decrement <= tol * jnp.abs(value) + jnp.where(jnp.isfinite(rounding), rounding, 0) + tiny) & ~clipped
        done = small & c.level
        # A whole step that leaves the slope as it was is too short: far out on a tail even the damping is too steep.
        short = (decrement > 0) & (dot(chart.slope(grad), c.direction) <= -decrement / 2)
        eases = ok & whole & (done | ~small | short)
        damping = jnp.where(
            eases, c.damping * jnp.where(short, 1e-5, 0.1), jnp.minimum(jnp.maximum(c.damping, DAMPING) * 10, 1.0)
        )
        stuck = (c.damping >= 1) & (~ok | small) & ~eases
        damping, done = jnp.where(begins, c.damping, damping), (done | stuck) & ~begins

        chart = box.around(z)
        slope = chart.slope(grad)
        moves = [free(z, slope, of) for of in (mask, problem.mask)]
        near = jnp.abs(slope) <= flat * chart.terms(terms)

        def ahead() -> tuple[Float[Array, "m"], Bool[Array, ""]]:
            system = masked_factor(chart.curvature(hess(damping), slope), chart.own(moves[0]))
            return chart.move(system.solve(-slope)), system.singular

        last = done | (c.step == limit)
        direction, singular = lax.cond(any_lane(~last), ahead, lambda: (c.direction, c.singular))
        return _Newton(
            z=z,
            value=value,
            grad=grad,
            direction=direction,
            damping=damping,
            step=c.step + 1,
            far=jnp.where(begins, jnp.any(z != zero), c.far),
            level=jnp.all(~moves[0] | near),
            solved=jnp.all(~moves[1] | near),
            singular=jnp.where(last, c.singular, singular),
            done=done,
        )

    limit = MAX_NEWTON_STEPS if max_steps is None else max_steps
    intercept = jnp.zeros(z0.shape, bool) if problem.intercept is None else problem.intercept & problem.mask
    infinite = jnp.full((), jnp.inf, dtype)

    def attempt(a: _Attempt) -> _Attempt:
        alone = a.number == 1  # the intercept
        mask = jnp.where(alone, intercept, problem.mask)
        carry = _Newton(
            z=jnp.where(a.number == 0, a.z, a.null),
            value=infinite,
            grad=jnp.zeros_like(zero),
            direction=jnp.zeros_like(zero),
            damping=jnp.asarray(DAMPING, dtype),
            step=jnp.int32(0),
            far=false,
            level=false,
            solved=false,
            singular=false,
            done=false,
        )
        out = lax.while_loop(lambda c: ~c.done & (c.step <= limit), functools.partial(body, mask), carry)
        first, solved = a.number == 0, out.done & out.solved
        better = (out.value < a.value) | first
        new = _Attempt(out.z, out.value, out.singular, solved, out.far, a.null, a.number)
        best = jax.tree.map(lambda n, o: jnp.where(better, n, o), new, a)
        hopeful = ~alone | better | (a.far & ~a.solved)
        return best._replace(
            far=jnp.where(first, out.far, a.far),
            null=jnp.where(alone, out.z, a.null),
            number=jnp.where(hopeful, a.number + 1, ATTEMPTS),
        )

    # Far out rounding may hide every descent, and so may collinear columns beside the intercept.
    out = lax.while_loop(
        lambda a: (a.number == 0) | ((a.number < ATTEMPTS) & (~a.solved | a.singular) & (max_steps is None)),
        attempt,
        _Attempt(box.nearest(z0), infinite, false, false, false, zero, jnp.int32(0)),
    )
    singular = out.singular
    if problem.kinked:  # the curvature that there is by chance does not tell
        chart = box.around(out.z)
        grad, _, hess = problem.derivatives(out.z)
        slope = chart.slope(grad)
        own = chart.own(free(out.z, slope, problem.mask))
        singular = masked_factor(chart.curvature(hess(1.0), slope), own).singular
    return Refit(out.z, singular, out.solved)


def minimise(problem: WithHessian, z0: Float[Array, "m"], box: Box = WHOLE, max_steps: int | None = None) -> Refit:
    """Minimise over the support: directly for an unbounded quadratic, else by `newton` with at most `max_steps`."""
    z0 = jnp.where(problem.mask, z0, 0)
    if problem.quadratic and box.whole:
        return solve_quadratic(problem, z0)
    return newton(problem, z0, box, max_steps)
