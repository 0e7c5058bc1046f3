"""Hard thresholding pursuit."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._termination import Cycle, StableSupport
from .._types import Support
from ..objectives import AbstractRestrictable, gather, scatter
from ..steps import AbstractStep, NormalisedStep
from ..thresholds import AbstractUnitThreshold
from .base import AbstractSolver, first_support, report

MAX_SHRINKS = 30


class PursuitState(NamedTuple):
    """x with its support, value and gradient."""

    x: Array
    support: Support
    value: Array
    grad: Array
    step_size: Array


def refit(objective, threshold, entries, start, max_steps=None):
    """argmin of F over the entries of a support (and the threshold's box), and whether the system was singular."""
    z, singular = objective.restrict(entries).minimise(gather(start, entries), *threshold.box(entries), max_steps)
    return scatter(z, entries, start.shape[0]), singular


class HTP(AbstractSolver):
    """Hard thresholding pursuit: S <- supp H_k(x - eta grad F(x)), then x <- argmin {F(w) : supp w in S}.

    Also known as GraHTP [GraHTP]. One full product with the data an iteration, and the refit on k columns: direct for
    quadratics, damped Newton otherwise. With a searching step rule the size shrinks until F does not rise, so that
    the iteration cannot cycle; with a constant step it can (a period-2 cycle was seen at 4/L), which is reported.

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

    requires = AbstractRestrictable
    supports = (AbstractUnitThreshold,)
    needs_curvature = True

    def __init__(self, step: AbstractStep | None = None, newton_steps: int | None = None):
        self.step_rule = NormalisedStep() if step is None else step
        self.newton_steps = newton_steps

    @property
    def default_termination(self):
        return StableSupport() | Cycle()

    @property
    def default_max_steps(self):
        return 100

    @property
    def returns_best(self):
        return True

    def init(self, objective, threshold, x0, key):
        return start(objective, threshold, x0, self.step_rule.init(objective))

    def step(self, objective, threshold, state, t):
        rule = self.step_rule
        _, steepest = threshold(-state.grad)
        size = rule.propose(
            objective, state.x, state.grad, threshold.entries(-state.grad, steepest), state.step_size, t
        )

        def trial(size):
            thresholded, support = threshold(state.x - size * state.grad, size)
            entries = threshold.entries(thresholded, support)
            x, singular = refit(objective, threshold, entries, state.x, self.newton_steps)
            return x, support, entries, singular, objective.value(x, entries)

        carry = (size, *trial(size), jnp.int32(0))
        if rule.searches:
            slack = 16 * jnp.finfo(state.x.dtype).eps * jnp.abs(state.value)

            def shrink(carry):
                size = carry[0] * rule.shrink
                return size, *trial(size), carry[-1] + 1

            # At the first step x need not be optimal on its support, so any refit lowers F for a small enough size.
            carry = lax.while_loop(
                lambda c: ~(c[-2] <= state.value + slack) & (c[-1] < MAX_SHRINKS), shrink, carry
            )
        size, x, support, entries, singular, _, tries = carry
        value, grad = objective.value_and_grad(x, entries)
        new = PursuitState(x, support, value, grad, size)
        return new, report(
            objective,
            threshold,
            state,
            new,
            value=value,
            grad=grad,
            entries=entries,
            singular=singular,
            hard_thresholds=2 + tries,
        )


def start(objective, threshold, x0, step_size) -> PursuitState:
    """State of a pursuit at the thresholded starting point."""
    x, _ = threshold(x0)
    value, grad = objective.value_and_grad(x)
    return PursuitState(x, first_support(threshold, x, grad), value, grad, step_size.astype(x.dtype))
