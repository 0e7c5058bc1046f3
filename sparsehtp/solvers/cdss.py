"""Coordinate descent with spacer steps and single swaps, for the L0 + L1 + L2 penalty."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._tolerances import tolerance
from .._types import Info, Scalar, Support
from ..columns import gather, scatter
from ..duality.dual import Dual
from ..iteration.termination import SwapOptimal
from ..linalg import any_lane, dot, either
from ..objectives import LinearModel
from ..thresholds import L0L1L2, AbstractThreshold
from .base import AbstractSolver, report
from .coordinate import Descent, gather_block, on_block
from .primal_dual import centred_intercept, supported

TRIAL = 10  # sweeps over all members, with ten each over the support, after which a trial ends
SWAP_ROWS = 32  # features whose removal is scored in one product with the data


class CDSSState(NamedTuple):
    """The point, and how the search for a better one stands.

    Attributes:
        x, support, value, grad: in the solver's units; F + penalty, and F's gradient.
        energies, centres: second moments and means of the columns (None: zero).
        local: no coordinate, alone, improves.
        optimal: no swap improves either.
        step_size: 1.
    """

    x: Array
    support: Support
    value: Array
    grad: Array
    energies: Array
    centres: Array | None
    local: Array
    optimal: Array
    step_size: Array


def state_at(dual: Dual, x: Float[Array, "d"], support: Support) -> CDSSState:
    """The state at a point of which nothing else is known."""
    eta = dual.objective.forward(x)
    no = jnp.zeros((), bool)
    centres, energies = dual.columns.moments()
    return CDSSState(
        x=x,
        support=support,
        value=dual.primal(eta, x),
        grad=dual.objective.grad_at(eta, x),
        energies=energies,
        centres=centres,
        local=no,
        optimal=no,
        step_size=jnp.ones((), x.dtype),
    )


class Swap(NamedTuple):
    """The exchange of the coefficient `out` for one of a given size of the feature `new`, and what it gains."""

    gain: Array
    out: Array
    new: Array
    size: Array


class CDSS(AbstractSolver):
    """Cyclic coordinate descent with spacer steps, then single swaps, for the L0 + L1 + L2 penalty.

        min_w F(w) + l0 ||w||_0 + l1 ||w||_1

    A step is either a descent (sweeps over the support and all features that would enter, each followed by sweeps over
    the support alone, the spacer steps) or, where no coordinate improves alone, the best swap of one nonzero
    coefficient for one other, the rest held. It ends when no swap improves.

    Args:
        swaps: False stops at coordinate-wise optimality.

    Guarantee: with the squared loss the result is partially swap inescapable of order 1, PSI(1) of Hazimeh and
    Mazumder; for other losses a swap's gain is that of the loss's quadratic upper bound, so that a swap which is made
    lowers the objective, but one may be missed. `BestSubset`'s swaps optimise all coefficients again and are stronger.

    Raises:
        TypeError: for a loss that is not smooth.

    Source: Hazimeh and Mazumder (2020), Algorithm 1 and section 3.2.
    """

    swaps: bool = eqx.field(static=True, default=True)

    requires = LinearModel
    needs_curvature = True
    needs_smoothness = True
    default_termination = SwapOptimal()
    default_max_steps = 500

    @classmethod
    def takes(cls, threshold: AbstractThreshold) -> bool:
        return threshold.penalises

    def init(self, objective: LinearModel, threshold: L0L1L2, x0: Array, key: Array) -> CDSSState:
        return state_at(Dual(objective, threshold), *supported(threshold, x0))

    def step(self, objective: LinearModel, threshold: L0L1L2, state: CDSSState, t: Array) -> tuple[CDSSState, Info]:
        dual = Dual(objective, threshold)
        p = objective.n_coefficients

        gain, _ = entry_gains(dual, state.energies, state.grad, state.x)
        member = (state.x[:p] != 0) | ((gain > dual.prices[0]) & ~state.local)
        wanted, start = jnp.zeros((), bool), state.x
        if self.swaps:
            best = lax.cond(any_lane(state.local), lambda: best_swap(dual, state), lambda: no_swap(state.value))
            enough = tolerance("swap", state.value.dtype) * jnp.abs(state.value)
            # Without l0 the objective is convex.
            wanted = state.local & (best.gain > enough) & jnp.any(dual.prices[0] > 0)
            start = jnp.where(wanted, state.x.at[best.out].set(0).at[best.new].set(best.size), state.x)
        last = state.local & ~wanted if self.swaps else True
        x, value = descended(dual, state, start, member | (start[:p] != 0), last)
        better = value < state.value
        x = jnp.where(better, x, state.x)
        value = jnp.where(better, value, state.value)
        grad, fine, enters = looked_around(dual, state, x, value)
        improved = better & (state.value - value > fine)
        local = ~enters & ~(improved & state.local) | ~improved
        new = state._replace(
            x=x,
            support=threshold.support(x[:p]),
            value=value,
            grad=grad,
            local=local,
            optimal=local & ((state.local & (~wanted | ~improved)) if self.swaps else True),
        )
        return new, report(objective, threshold, state, new, value=value - threshold.value(x), design_products=2)


def looked_around(dual: Dual, state: CDSSState, x: Array, value: Array) -> tuple[Array, Array, Array]:
    """The gradient at a point, the least fall of its value that counts, and whether one more coefficient brings it."""
    objective = dual.objective
    grad = objective.grad_at(objective.forward(x), x)
    fine = 0.1 * tolerance("gap", value.dtype) * jnp.abs(value)
    gain, _ = entry_gains(dual, state.energies, grad, x)
    return grad, fine, jnp.any(gain > dual.prices[0] + fine)


def entry_gains(
    dual: Dual, energies: Array, grad: Array, x: Array, smoothness: Scalar | None = None
) -> tuple[Array, Array]:
    """The fall of the objective by one zero coefficient alone, l0 apart, and its best value: at least so much by the
    loss's own smoothness (None), at most so much without any (0)."""
    p, (_, l1) = energies.shape[0], dual.prices
    grad, w, ridge = grad[:p], x[:p], dual.objective.columns.ridge()[:p]
    total = (dual.objective.loss.smoothness if smoothness is None else smoothness) * energies + ridge
    t = -jnp.sign(grad) * jnp.maximum(jnp.abs(grad) - l1, 0)
    usable = (w == 0) & (energies > 0)
    safe = jnp.maximum(jnp.where(usable, total, 1), jnp.finfo(total.dtype).tiny ** 0.5)
    new, gain = t / safe, t**2 / (2 * safe)
    if dual.threshold.bounded:
        new = dual.threshold.clip(dual.lift(new))[: new.shape[0]]
        gain = new * (t - 0.5 * safe * new)
    return jnp.where(usable, gain, -jnp.inf), new


def descended(
    dual: Dual, state: CDSSState, x: Array, member: Array, last: Array | bool, stays: Array | None = None
) -> tuple[Array, Array]:
    """x after coordinate descent over the members, and its value; the last descent goes on to rounding. With features
    that may not leave it is a trial, and short."""
    objective = dual.objective
    p = objective.n_coefficients
    fine = jnp.where(last, 2 * jnp.finfo(x.dtype).eps, 0.05 * tolerance("gap", x.dtype)) * jnp.abs(state.value)

    def solve(features: Array, count: Array) -> tuple[Array, Array, Array]:
        block = gather_block(dual, features, count, jnp.zeros(p, bool) if stays is None else stays, state.centres)
        descent = Descent(dual, block)
        on = Support(features, jnp.arange(features.shape[0]) < count)
        fit = descent.start(gather(x, on), centred_intercept(x, state.centres, objective.n_free))
        fit = descent.descend(fit, fine, 200 if stays is None else jnp.where(jnp.any(stays), TRIAL, 200))
        return scatter(fit.w, on, p), fit.b, descent.penalty_value(fit)

    w, b, value = on_block(member, solve)
    return dual.lift(w, b if state.centres is None else b - dot(state.centres, w)), value


def best_swap(dual: Dual, state: CDSSState, smoothness: Scalar | None = None) -> Swap:
    """The best exchange of one nonzero coefficient for one other: exact for the squared loss, else a bound as that of
    `entry_gains`."""
    objective = dual.objective
    p, x = objective.n_coefficients, state.x
    l0, l1 = dual.prices
    w, ridge, weights = x[:p], objective.columns.ridge()[:p], dual.weights
    eta = objective.forward(x)
    count = jnp.sum(w != 0, dtype=jnp.int32)
    padded = -(-p // SWAP_ROWS) * SWAP_ROWS
    order = jnp.nonzero(w, size=padded, fill_value=0)[0].astype(jnp.int32)

    def body(carry: tuple[Array, Swap]) -> tuple[Array, Swap]:
        start, best = carry
        rows = lax.dynamic_slice(order, (start,), (SWAP_ROWS,))
        live = start + jnp.arange(SWAP_ROWS) < count
        columns = objective.columns.on(Support(rows, live)).T
        if state.centres is not None:
            columns = jnp.where(live[:, None], columns - state.centres[rows][:, None], 0)
        without = eta - w[rows][:, None] * columns
        loss, y, live_rows = objective.loss, objective.y, weights > 0
        each = jax.vmap(lambda e: dot(weights, jnp.where(live_rows, loss.value(e, y), 0)))(without)
        slopes = jax.vmap(lambda e: weights * jnp.where(live_rows, loss.derivative(e, y), 0))(without)
        if objective.n_free:  # the intercept follows
            slopes = slopes - weights * jnp.sum(slopes, axis=1, keepdims=True)
        grads = jax.vmap(objective.columns.transpose_product)(slopes)[:, :p]
        price = l0 * (w != 0) + l1 * jnp.abs(w)
        base = objective.value_at(eta, x) + jnp.sum(price)
        removed = each + 0.5 * jnp.sum(ridge * w**2) - 0.5 * ridge[rows] * w[rows] ** 2
        removed = removed + jnp.sum(price) - price[rows]
        gains, sizes = jax.vmap(lambda g: entry_gains(dual, state.energies, g, x, smoothness))(grads)
        gains = base - removed[:, None] + gains - l0
        gains = jnp.where(live[:, None] & ~jnp.isnan(gains), gains, -jnp.inf)  # where the loss overflows without one
        flat = jnp.argmax(gains)
        row, new = flat // p, flat % p
        found = Swap(gains[row, new], rows[row], new.astype(jnp.int32), sizes[row, new])
        return start + SWAP_ROWS, either(found.gain > best.gain, found, best)

    return lax.while_loop(lambda c: c[0] < count, body, (jnp.int32(0), no_swap(state.value)))[1]


def no_swap(value: Array) -> Swap:
    """None, which gains nothing."""
    return Swap(jnp.full_like(value, -jnp.inf), jnp.int32(0), jnp.int32(0), jnp.zeros_like(value))
