"""Iterative hard thresholding."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._termination import Cycle, SmallGradient, SmallStep
from .._types import Support
from ..objectives import AbstractObjective
from ..steps import AbstractStep, NormalisedStep, ScheduleStep
from ..thresholds import AbstractUnitThreshold
from .base import AbstractSolver, first_support, report

MAX_SHRINKS = 60


class IHTState(NamedTuple):
    """x with its support; `point`, where the next gradient step starts, with its value and gradient."""

    x: Array
    support: Support
    point: Array
    value: Array
    grad: Array
    previous: Array
    step_size: Array


class IHT(AbstractSolver):
    """Iterative hard thresholding: x <- H_k(x - eta grad F(x)).

    Also known as FGraHTP [GraHTP], projected gradient descent PGD [Tight], and FG-HT [HSG]. With `momentum` beta > 0,
    heavy ball adds beta (x_t - x_{t-1}) before thresholding; `nesterov` also takes the gradient there.

    Searching steps (`NormalisedStep`, the default, and `BacktrackingStep`) accept a size once
    F(x+) <= F(x) + <grad F(x), x+ - x> + ||x+ - x||^2 / (2 eta); then F never rises without momentum. One full product
    with the data an iteration (two with `nesterov`).

    Args:
        step: step-size rule.
        momentum: beta in [0, 1).
        nesterov: extrapolate before the gradient.

    Guarantee: a limit point x is stationary on its support, with |x_j| >= eta |grad_j F(x)| between the smallest kept
    and the largest dropped coordinate; linear convergence to a k-sparse target under restricted strong convexity
    ([GraHTP] Theorem 5, [Tight] section 4). It can stop at a poor support on correlated designs.

    Source: Blumensath and Davies (2009, 2010); [GraHTP] Algorithm 1.
    """

    step_rule: AbstractStep
    momentum: Float[Array, ""] | float
    nesterov: bool = eqx.field(static=True)

    requires = AbstractObjective
    supports = (AbstractUnitThreshold,)

    def __init__(self, step: AbstractStep | None = None, momentum: float = 0.0, nesterov: bool = False):
        self.step_rule = NormalisedStep() if step is None else step
        self.momentum = momentum
        self.nesterov = nesterov

    @property
    def default_termination(self):
        return (SmallStep() & SmallGradient()) | Cycle()

    @property
    def default_max_steps(self):
        return 2000

    @property
    def returns_best(self):
        return isinstance(self.step_rule, ScheduleStep)  # a subgradient method does not descend at every step

    def init(self, objective, threshold, x0, key):
        x, _ = threshold(x0)
        value, grad = objective.value_and_grad(x)
        return IHTState(
            x, first_support(threshold, x, grad), x, value, grad, x, self.step_rule.init(objective).astype(x.dtype)
        )

    def step(self, objective, threshold, state, t):
        rule = self.step_rule
        point, grad = state.point, state.grad
        entries = threshold.entries(point, state.support)
        size = rule.propose(objective, point, grad, entries, state.step_size, t)
        # Nesterov's extrapolation is already in `point`.
        drift = 0.0 if self.nesterov else self.momentum * (state.x - state.previous)

        def trial(size):
            x, support = threshold(point - size * grad + drift, size)
            return x, support

        if rule.searches:
            eps = jnp.finfo(point.dtype).eps

            def refused(carry):
                size, x, support, tries = carry
                move = x - point
                value = objective.value(x, threshold.entries(x, support))
                bound = state.value + jnp.vdot(grad, move) + jnp.sum(move**2) / (2 * size)
                return ~(value <= bound + 16 * eps * jnp.abs(state.value)) & (tries < MAX_SHRINKS)

            def shrink(carry):
                size, _, _, tries = carry
                size = size * rule.shrink
                return size, *trial(size), tries + 1

            size, x, support, tries = lax.while_loop(refused, shrink, (size, *trial(size), jnp.int32(0)))
        else:
            (x, support), tries = trial(size), 0

        entries = threshold.entries(x, support)
        value, new_grad = objective.value_and_grad(x, entries)
        new = IHTState(x, support, x, value, new_grad, state.x, size)
        products = 1
        info_grad = new_grad
        if self.nesterov:
            ahead = x + self.momentum * (x - state.x)
            ahead_value, ahead_grad = objective.value_and_grad(ahead)
            new = new._replace(point=ahead, value=ahead_value, grad=ahead_grad)
            products = 3
        return new, report(
            objective,
            threshold,
            state,
            new,
            value=value,
            grad=info_grad,
            entries=entries,
            hard_thresholds=1 + tries,
            design_products=products,
        )
