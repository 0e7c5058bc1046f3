"""Iterative hard thresholding."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Factors, Info, Support
from ..iteration.termination import Cycle, SmallGradient, SmallStep
from ..linalg import dot
from ..objectives import AbstractObjective
from ..steps import AbstractStep, At, NormalisedStep
from ..thresholds import AbstractThreshold
from .base import AbstractSolver, first_support, report, search

MAX_TRIES = 60


class IHTState(NamedTuple):
    """x with its support; `point`, where the next step starts, with its forward product, value and gradient."""

    x: Array
    support: Support | Factors
    point: Array
    forward: Array
    value: Array
    grad: Array
    previous: Array
    step_size: Array


class IHT(AbstractSolver):
    """Iterative hard thresholding: x <- H_k(x - eta grad F(x)).

    Also known as FGraHTP [GraHTP], projected gradient descent PGD [Tight], and FG-HT [HSG]. With `momentum` beta > 0,
    heavy ball adds beta (x_t - x_{t-1}) before thresholding; `nesterov` also takes the gradient there. With
    momentum=None, beta_t = t / (t + 3): on the convex penalty `L0L1L2(0, l1)` this is the accelerated proximal gradient
    method (FISTA).

    Searching steps (`NormalisedStep`, the default, and `BacktrackingStep`) accept a size once
    F(x+) <= F(x) + <grad F(x), x+ - x> + ||x+ - x||^2 / (2 eta); then F never rises without momentum. One full product
    with the data an iteration (three with `nesterov`, which takes two gradients).

    Args:
        step: step-size rule.
        momentum: beta in [0, 1); None: that of FISTA, which extrapolates before the gradient.
        nesterov: extrapolate before the gradient.

    Guarantee: a limit point x is stationary on its support, with |x_j| >= eta |grad_j F(x)| between the smallest kept
    and the largest dropped coordinate (for `Rank`: stationary along the rank-r matrices); linear convergence to a
    k-sparse target under restricted strong convexity ([GraHTP] Theorem 5, [Tight] section 4). It can stop at a poor
    support on correlated designs.

    Source: Blumensath and Davies (2009, 2010); [GraHTP] Algorithm 1; Beck and Teboulle (2009).
    """

    step_rule: AbstractStep
    momentum: Float[Array, ""] | float | None
    nesterov: bool = eqx.field(static=True)

    requires = AbstractObjective
    default_termination = (SmallStep() & SmallGradient()) | Cycle()
    default_max_steps = 2000

    def __init__(self, step: AbstractStep | None = None, momentum: float | None = 0.0, nesterov: bool = False) -> None:
        self.step_rule = NormalisedStep() if step is None else step
        self.momentum = momentum
        self.nesterov = nesterov or momentum is None

    @property
    def returns_best(self) -> bool:
        return not self.step_rule.descends

    @property
    def unrollable(self) -> bool:
        return not self.step_rule.searches

    def init(self, objective: AbstractObjective, threshold: AbstractThreshold, x0: Array, key: Array) -> IHTState:
        x = objective.feasible(threshold(x0)[0])
        forward = objective.forward(x)
        value, grad = objective.value_at(forward, x), objective.grad_at(forward, x)
        size = self.step_rule.init(objective).astype(x.dtype)
        return IHTState(x, first_support(threshold, x, grad), x, forward, value, grad, x, size)

    def step(
        self, objective: AbstractObjective, threshold: AbstractThreshold, state: IHTState, t: Array
    ) -> tuple[IHTState, Info]:
        rule = self.step_rule
        point, grad = state.point, state.grad
        entries = threshold.entries(point, state.support)
        along = threshold.tangent(threshold.free_gradient(point, grad), state.support)
        size = rule.propose(objective, At(state.forward, along, entries, state.step_size, t))
        # Nesterov's extrapolation is already in `point`.
        drift = 0.0 if self.nesterov or self.momentum is None else self.momentum * (state.x - state.previous)

        def trial(size: Array) -> tuple[Array, Support | Factors, Array]:
            x, support = threshold(point - size * grad + drift, size)
            return x, support, objective.forward(x, threshold.entries(x, support))

        def accepted(size: Array, tried: tuple[Array, Support | Factors, Array]) -> Array:
            x, _, forward = tried
            move = x - point
            bound = state.value + dot(grad, move) + jnp.sum(move**2) / (2 * size)
            slack = 16 * jnp.finfo(point.dtype).eps * jnp.abs(state.value)
            # Moves this small drown in the rounding of F, which then accepts any size: do not grow on its word.
            blind = jnp.sum(move**2) / (2 * size) <= 4 * slack
            grown = rule.grows & (size > state.step_size) & (t > 0)
            return (objective.value_at(forward, x) <= bound + slack) & ~(blind & grown)

        placeholder = (state.x, state.support, state.forward)
        size, (x, support, forward), tries = search(trial, accepted, rule, size, placeholder, MAX_TRIES)
        value, new_grad = objective.value_at(forward, x), objective.grad_at(forward, x)
        new = IHTState(x, support, x, forward, value, new_grad, state.x, size)
        if self.nesterov:
            now = jnp.asarray(t, x.dtype)
            beta = now / (now + 3) if self.momentum is None else self.momentum
            point = x + beta * (x - state.x)
            forward = objective.forward(point)
            ahead = objective.value_at(forward, point), objective.grad_at(forward, point)
            new = IHTState(x, support, point, forward, *ahead, state.x, size)
        return new, report(
            objective,
            threshold,
            state,
            new,
            value=value,
            grad=new_grad,
            hard_thresholds=tries,
            design_products=3 if self.nesterov else 1,
            gradients=2 if self.nesterov else 1,
        )
