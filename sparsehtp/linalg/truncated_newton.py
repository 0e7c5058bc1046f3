"""Minimisation over a support too large for a dense Hessian: Newton steps by preconditioned conjugate gradients."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .._tolerances import tolerance
from .backtracking import shrink_until
from .products import dot
from .restricted_newton import DAMPING, MAX_HALVINGS, Refit, Smooth

MAX_TRUNCATED_STEPS = 60
MAX_PRODUCTS = 500  # Hessian products per Newton step
FORCING = 0.1  # residual of the first Newton systems, relative


class MatrixFree(Smooth, Protocol):
    """A smooth convex function of m coefficients with Hessian-vector products and a preconditioner."""

    def hessian_product(self, z: Float[Array, "m"]) -> Callable[[Array], Array]: ...
    def scale(self, z: Float[Array, "m"]) -> Float[Array, "m"]: ...


def conjugate_gradients(
    matvec: Callable[[Array], Array],
    b: Float[Array, "m"],
    scale: Float[Array, "m"],
    tol: Float[Array, ""] | float,
    max_steps: int = MAX_PRODUCTS,
) -> Float[Array, "m"]:
    """x with A x = b for a positive semidefinite A, preconditioned by the positive diagonal `scale`.

    Stops once the residual, in the norm of the inverse of `scale`, is at most `tol` times that of b; at a direction
    without curvature; or after `max_steps` products. Every iterate is a descent direction for b'x.
    """

    def going(carry: tuple[Array, Array, Array, Array, Array, Array]) -> Bool[Array, ""]:
        _, _, _, rho, step, flat = carry
        return (rho > tol**2 * first) & (step < max_steps) & ~flat

    def body(carry: tuple[Array, Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array, Array]:
        x, r, d, rho, step, _ = carry
        Ad = matvec(d)
        curvature = dot(d, Ad)
        flat = ~(curvature > 0)
        alpha = jnp.where(flat, 0, rho / jnp.where(flat, 1, curvature))
        r = r - alpha * Ad
        new = dot(r, r / scale)
        return x + alpha * d, r, r / scale + new / rho * d, new, step + 1, flat

    d = b / scale
    first = dot(b, d)
    carry = jnp.zeros_like(b), b, d, first, jnp.int32(0), ~(first > 0)
    return lax.while_loop(going, body, carry)[0]


class _State(NamedTuple):
    z: Array
    value: Array
    grad: Array
    damping: Array
    step: Array
    done: Array


def truncated_newton(problem: MatrixFree, z0: Float[Array, "m"], max_steps: int | None = None) -> Refit:
    """Minimise a smooth convex function by truncated Newton steps with backtracking.

    It starts at z0 or at zero, whichever is lower. The systems are solved more and more exactly as the gradient falls.
    Losses that are not quadratic are damped by a multiple of `scale`, which falls with every full step. Stops when the
    Newton decrement is at most 1e-7 of the value (1e-14 in float64), where no step lowers the value, or after
    `max_steps`.
    """
    limit = MAX_TRUNCATED_STEPS if max_steps is None else max_steps
    dtype = z0.dtype
    tol, eps = tolerance("newton", dtype), jnp.finfo(dtype).eps
    z0 = jnp.where(problem.mask, z0, 0)
    value0, null = problem.value(z0), problem.value(jnp.zeros_like(z0))
    lower = ~(value0 <= null) & jnp.isfinite(null)
    z0, value0 = jnp.where(lower, 0, z0), jnp.where(lower, null, value0)
    scale = jnp.where(problem.mask, problem.scale(z0), 0)
    scale = jnp.maximum(scale, eps * jnp.max(scale))

    def size(g: Float[Array, "m"]) -> Float[Array, ""]:
        return dot(g, g / scale)

    def search(s: _State, direction: Float[Array, "m"], slope: Float[Array, ""]) -> tuple[Array, Array, Array]:
        # A few ulp let the last steps pass, where the decrease is below the rounding of the value.
        slack = 8 * eps * jnp.abs(s.value)

        alpha, value, _ = shrink_until(
            lambda alpha, value: value <= s.value + 1e-4 * alpha * slope + slack,
            lambda alpha: problem.value(s.z + alpha * direction),
            jnp.ones((), dtype),
            s.value,
            0.5,
            MAX_HALVINGS + 1,
        )
        return alpha, value, value <= s.value + slack

    first = problem.grad(z0)
    start = size(first)
    exact = tol**0.5

    def body(s: _State) -> _State:
        damping = 0.0 if problem.quadratic else s.damping
        relative = jnp.sqrt(size(s.grad) / jnp.where(start > 0, start, 1))
        forcing = exact if problem.quadratic else jnp.clip(relative, exact, FORCING)
        times = problem.hessian_product(s.z)
        direction = conjugate_gradients(lambda v: times(v) + damping * scale * v, -s.grad, scale, forcing)
        slope = dot(s.grad, direction)
        alpha, value, ok = search(s, direction, slope)
        small = -slope <= tol * jnp.abs(s.value) + jnp.finfo(dtype).tiny
        stuck = ~ok & (True if problem.quadratic else s.damping >= 1)
        z = jnp.where(ok, s.z + alpha * direction, s.z)
        return _State(
            z=z,
            value=jnp.where(ok, value, s.value),
            grad=problem.grad(z),
            damping=jnp.where(ok & (alpha == 1), s.damping * 0.1, jnp.minimum(s.damping * 10, 1.0)),
            step=s.step + 1,
            done=small | stuck,
        )

    state = _State(z0, value0, first, jnp.asarray(DAMPING, dtype), jnp.int32(0), jnp.zeros((), bool))
    out = lax.while_loop(lambda s: ~s.done & (s.step < limit), body, state)
    return Refit(out.z, jnp.zeros((), bool), out.done)
