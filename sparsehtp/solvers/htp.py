"""Hard thresholding pursuit."""

from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Factors, Info, Support
from ..iteration.termination import Cycle, StableSupport
from ..objectives import AbstractRefittable
from ..steps import AbstractStep, At, NormalisedStep
from ..thresholds import AbstractThreshold
from .base import AbstractSolver, first_support, report, search
from .refit import refit, refit_left

MAX_TRIES = 30

# What a step size leads to: x, support, entries, fault, forward product.
Tried: TypeAlias = tuple[Array, Support | Factors, Support | None, Array, Array]


class PursuitState(NamedTuple):
    """x with its support, forward product, value and gradient."""

    x: Array
    support: Support | Factors
    forward: Array
    value: Array
    grad: Array
    step_size: Array


class HTP(AbstractSolver):
    """Hard thresholding pursuit: S <- supp H_k(x - eta grad F(x)), then x <- argmin {F(w) : supp w in S}.

    Also known as GraHTP [GraHTP]. One full product with the data an iteration, and the refit on k columns: direct for
    quadratics, damped Newton otherwise. Under `Rank` the support is the span of the left singular vectors, and the
    refit is over all matrices with columns in it: r coefficients per response. With a searching step rule the size
    shrinks until F does not rise, so that the iteration cannot cycle; with a constant step it can (a period-2 cycle
    was seen at 4/L), which is reported.

    Args:
        step: step-size rule; the default takes the curvature along the k largest gradient entries.
        newton_steps: at most this many Newton steps per refit; None: to optimality.

    Guarantee: it stops at a support S with x optimal on S that one more gradient step does not change. Exact recovery
    of a k-sparse target under restricted strong convexity and smoothness with eta = 1/(2M) ([GraHTP] Theorem 8; its
    proof once prints 1/M). Plain HTP is often far from the best objective on correlated designs.

    Source: Foucart (2011); [GraHTP] Algorithm 1.
    """

    step_rule: AbstractStep
    newton_steps: int | None = eqx.field(static=True)

    requires = AbstractRefittable
    needs_curvature = True
    default_termination = StableSupport() | Cycle()
    default_max_steps = 100
    returns_best = True

    @classmethod
    def takes(cls, threshold: AbstractThreshold) -> bool:
        return not threshold.penalises

    def __init__(self, step: AbstractStep | None = None, newton_steps: int | None = None) -> None:
        self.step_rule = NormalisedStep() if step is None else step
        self.newton_steps = newton_steps

    def init(self, objective: AbstractRefittable, threshold: AbstractThreshold, x0: Array, key: Array) -> PursuitState:
        return pursuit_start(objective, threshold, x0, self.step_rule.init(objective))

    def step(
        self, objective: AbstractRefittable, threshold: AbstractThreshold, state: PursuitState, t: Array
    ) -> tuple[PursuitState, Info]:
        rule = self.step_rule
        _, steepest = threshold(-state.grad)
        along = threshold.entries(-state.grad, steepest)
        direction = threshold.tangent(state.grad, steepest)
        size = rule.propose(objective, At(state.forward, direction, along, state.step_size, t))

        # A searching step refuses what is above.
        target = state.value if rule.searches else None

        def trial(size: Array) -> Tried:
            thresholded, support = threshold(state.x - size * state.grad, size)
            entries = threshold.entries(thresholded, support)
            if entries is None:
                assert isinstance(support, Factors)
                x, support, fault = refit_left(objective, thresholded, support, self.newton_steps)
            else:
                x, fault = refit(objective, threshold, entries, state.x, self.newton_steps, target)
            return x, support, entries, fault, objective.forward(x, entries)

        def accepted(size: Array, tried: Tried) -> Array:
            value = objective.value_at(tried[-1], tried[0])
            return value <= state.value + 16 * jnp.finfo(value.dtype).eps * jnp.abs(state.value)

        no = jnp.int32(0)
        placeholder = (state.x, state.support, threshold.entries(state.x, state.support), no, state.forward)
        size, tried, tries = search(trial, accepted, rule, size, placeholder, MAX_TRIES)
        x, support, entries, fault, forward = tried
        new = state._replace(x=x, support=support, forward=forward, step_size=size)
        return pursuit_step(objective, threshold, state, new, entries, fault, 1 + tries)


def pursuit_step(
    objective: AbstractRefittable,
    threshold: AbstractThreshold,
    old: PursuitState,
    new: PursuitState,
    entries: Support | None,
    fault: Array | int,
    hard_thresholds: Array | int,
) -> tuple[PursuitState, Info]:
    """The state of a pursuit that moved, with its value and gradient, and the Info of the move."""
    value, grad = objective.value_at(new.forward, new.x), objective.grad_at(new.forward, new.x)
    new = new._replace(value=value, grad=grad)
    return new, report(objective, threshold, old, new, entries=entries, fault=fault, hard_thresholds=hard_thresholds)


def pursuit_start(
    objective: AbstractRefittable, threshold: AbstractThreshold, x0: Array, step_size: Array
) -> PursuitState:
    """State of a pursuit at the thresholded starting point."""
    x = objective.feasible(threshold(x0)[0])
    forward = objective.forward(x)
    value, grad = objective.value_at(forward, x), objective.grad_at(forward, x)
    return PursuitState(x, first_support(threshold, x, grad), forward, value, grad, step_size.astype(x.dtype))
