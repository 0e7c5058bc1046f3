"""Dual iterative hard thresholding, batch and stochastic."""

from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._types import Info, Support
from ..columns import scatter
from ..duality.dual import Dual, DualPoint, require_dual, with_sum
from ..iteration.termination import DualGap, SmallStep
from ..linalg import dot
from ..losses import AbstractConjugateLoss
from ..objectives import LinearModel
from ..steps.sample import MOST
from ..thresholds import AbstractThreshold, Sparsity
from .base import AbstractSolver, report
from .refit import refit
from .stochastic import permuted

STEPS = ("capped", "theorem15", "theorem17")
PAPER, LARGE = 10, 64  # samples of a block
SAMPLINGS = ("shuffled", "paper")

Pair: TypeAlias = tuple[Array, Array]  # a dual point's a and tau


class DualState(NamedTuple):
    """The dual point, and the primal link with its value; `grad` is the primal gradient where it is refitted."""

    x: Array
    support: Support
    point: DualPoint
    eta: Array  # prediction of the link, before any refit
    grad: Array
    step_size: Array
    norm: Array  # largest eigenvalue of the data's part of the dual Hessian
    key: Array


class AbstractDualAscent(AbstractSolver):
    """Shared by `DIHT` and `SDIHT`."""

    rule: eqx.AbstractVar[str]
    scale: eqx.AbstractVar[Float[Array, ""] | float]
    polish: eqx.AbstractVar[bool | None]

    requires = LinearModel
    default_termination = DualGap() | SmallStep()
    returns_best = True

    @classmethod
    def takes(cls, threshold: AbstractThreshold) -> bool:
        return threshold.plain

    def check(self, objective: LinearModel, threshold: Sparsity) -> None:
        super().check(objective, threshold)
        if self.rule not in STEPS:
            raise ValueError(f"step: must be one of {', '.join(STEPS)}, got {self.rule!r}.")
        require_dual(objective, threshold)
        if self.polish and not objective.loss.twice_differentiable:
            raise TypeError(f"polish: {type(objective.loss).__name__} is not smooth enough to refit; set polish=False.")

    def score(self, info: Info) -> Array:
        # Minus the dual value: the theorems are about the dual iterate.
        return info.gap - info.value

    def init(self, objective: LinearModel, threshold: Sparsity, x0: Array, key: Array) -> DualState:
        dual = Dual(objective, threshold)
        if objective.loss.twice_differentiable:
            a = dual.project(objective.loss.derivative(objective.forward(x0), objective.y))
            point = dual.point(a)
            finite = jnp.isfinite(point.value)  # a start far out has slopes without bound
            a = jnp.where(jnp.any(x0 != 0) & finite, a, dual.zero())
        else:
            a = dual.zero()
        point = dual.point(a)
        x, eta = dual.predict(point)
        norm = dual.gram_norm() if self.bounded else jnp.zeros((), x.dtype)  # it takes 200 products
        return DualState(x, point.support, point, eta, jnp.zeros_like(x), jnp.ones((), x.dtype), norm, key)

    @property
    def bounded(self) -> bool:
        """Whether steps ask for the largest eigenvalue of all rows."""
        return self.rule != "theorem15"

    def size(self, dual: Dual, norm: Array, t: Array, blocks: int = 1) -> Array:
        """Step size in the weighted inner product: [DIHT]'s step times 1/N."""
        mu = jnp.asarray(dual.loss.strong_convexity, norm.dtype)
        smooth = mu > 0
        flat = 1 / (norm + mu)
        falling = blocks * self.scale / (jnp.where(smooth, mu, 1) * (t + 2.0))
        if self.rule == "theorem15":
            return falling
        if self.rule == "theorem17":
            return self.scale * mu * flat**2
        # Without strong concavity: on text, with tuned steps, the paper's c / (t + 2) left 1.2 to 5 times the gap
        # of this one in batches, and about the same in blocks.
        falling = jnp.where(smooth, falling, self.scale * jnp.sqrt(blocks / (t + 2.0)))
        return jnp.minimum(flat, falling)

    def arrive(
        self, dual: Dual, old: DualState, a: Array, size: Array, key: Array, hard_thresholds: int = 1
    ) -> tuple[DualState, Info]:
        """The state at a feasible dual point, and the Info of the step to it."""
        objective, threshold, columns, point = dual.objective, dual.threshold, dual.columns, dual.point(a)
        x, link_eta = dual.predict(point)
        eta, fault = link_eta, jnp.int32(0)
        if objective.loss.twice_differentiable if self.polish is None else self.polish:
            x, fault = refit(objective, threshold, point.support, x, None)
            eta = objective.forward(x, point.support)
        value = dual.primal(eta, x)
        residual = objective.loss.derivative(eta, objective.y)
        # The gradient on the support only: no second product with all the data.
        slope = dot(columns.weights * residual, columns.on(point.support)) + (columns.ridge() * x)[point.support.idx]
        grad = scatter(slope, point.support, x.shape[0])
        new = DualState(x, point.support, point, link_eta, grad, size, old.norm, key)
        info = report(objective, threshold, old, new, value=value, fault=fault, hard_thresholds=hard_thresholds)
        # A refit on a support that stays does not move, however far the dual point does.
        step_norm = jnp.maximum(info.step_norm, jnp.linalg.norm(point.x - old.point.x))
        return new, info._replace(step_norm=step_norm, gap=value - point.value)


class DIHT(AbstractDualAscent):
    """Dual iterative hard thresholding: supergradient ascent on the sparse dual, with the primal link w(a).

        a <- Proj_F(a + eta (x_i'w(a) + o_i - l*'(a_i))),    w(a) = H_k(-(1/l2) sum_i (s_i/W) a_i x_i)

    The dual iterate with the largest D(a) is returned with its link, and `history.gap` is the primal value minus D: a
    proof of how far the answer can be from the best. Kept features are never truncated; an unpenalised intercept adds
    sum_i s_i a_i = 0, on which a is projected. An x0 other than zero starts from its residuals.

    Args:
        step: "capped": min(1 / (lam_max(X'SX/W) / l2 + mu), scale / (mu (t + 2))), with mu = 1/smoothness, and scale /
            sqrt(t + 2) in place of the second for `Hinge`; "theorem15": 1 / (mu (t + 2)) times scale, for bounded
            feasible sets (with the squared loss it may diverge); "theorem17": mu times the square of the first, with a
            guarantee and uselessly small. All are [DIHT]'s steps over N, since the inner product is a mean.
        scale: c of the steps; 8 worked well for "capped", 1 is the theorems'.
        polish: refit the coefficients on the link's support at every step (the history shows the refitted values).

    Guarantee: D(a) <= min F for every iterate. With "theorem15" and bounded dual sets, ||a_t - a*||^2 = O(1/t)
    ([DIHT] Theorem 15). Ascent is not guaranteed, since D has kinks where the support changes. The gap closes only
    if the problem has no duality gap, as for large l2: `sht.certificate` says. At small l2 the link is a poor primal
    point even with `polish`: pass the solution as x0 to `BestSubset`, which swaps.

    Raises:
        TypeError, ValueError: for l2 = 0, bounds, or a loss without a conjugate.

    Source: [DIHT] Algorithm 1.
    """

    rule: str = eqx.field(static=True)
    scale: Float[Array, ""] | float
    polish: bool = eqx.field(static=True)

    default_max_steps = 2000

    def __init__(self, step: str = "capped", scale: float = 8.0, polish: bool = False) -> None:
        self.rule, self.scale, self.polish = step, scale, polish

    def step(self, objective: LinearModel, threshold: Sparsity, state: DualState, t: Array) -> tuple[DualState, Info]:
        dual = Dual(objective, threshold)
        size = self.size(dual, state.norm, t)
        a = dual.project(state.point.a + size * dual.supergradient(state.point, state.eta))
        return self.arrive(dual, state, a, size, state.key)


class SDIHT(AbstractDualAscent):
    """Stochastic dual iterative hard thresholding: `DIHT` over blocks of samples, with a running sum.

    One step is an epoch: a random partition of the samples in blocks, and for each block the update of its dual
    variables and of tau = sum_i omega_i a_i x_i by the block's rows, followed by one thresholding ([DIHT] (12)). The
    sum is formed anew at the end of every epoch, so that rounding does not pile up. With an intercept every block keeps
    its own sum_i s_i a_i, and the partition is drawn anew at every epoch, so that mass moves between all samples.

    Args:
        block_size: samples of a block; [DIHT] uses 10. None: n // 256, at least 10 and at most 64.
        step, scale: see `DIHT`; "capped" bounds a block's curvature by the norm of its Gram matrix, and "theorem15" is
            m / (mu (t + 2)) over m blocks with t counting blocks ([DIHT] Theorem 19); "theorem17" is Theorem 22's.
        polish: see `DIHT`. None: where the loss is twice differentiable.
        sampling: "shuffled": the above; "paper": one partition for all epochs, the samples in their order, of which
            every update draws a block, so that an epoch misses some and meets others twice. On text (hinge loss, tuned
            steps, 20 epochs) its duality gap was 1.15 times that of "shuffled" with n > p, and 6.5 times with n < p.

    Guarantee: as `DIHT`, in expectation (Theorem 19). Where the top k are tied at the dual optimum, so that D has a
    kink there and the gap is open, the error falls like the step, 1 / epochs: 1e-4 relative took some thousand epochs.

    Raises:
        TypeError, ValueError: as `DIHT`; for an intercept with "paper", since no mass would move between its blocks.

    Source: [DIHT] Algorithm 2.
    """

    block_size: int | None = eqx.field(static=True)
    rule: str = eqx.field(static=True)
    scale: Float[Array, ""] | float
    polish: bool | None = eqx.field(static=True)
    sampling: str = eqx.field(static=True)

    default_max_steps = 500

    def __init__(
        self,
        block_size: int | None = None,
        step: str = "capped",
        scale: float = 1.0,
        polish: bool | None = None,
        sampling: str = "shuffled",
    ) -> None:
        self.block_size, self.rule, self.scale, self.polish = block_size, step, scale, polish
        self.sampling = sampling

    @property
    def bounded(self) -> bool:
        return self.rule == "theorem17"

    def check(self, objective: LinearModel, threshold: Sparsity) -> None:
        super().check(objective, threshold)
        if self.block_size is not None and self.block_size < 1:
            raise ValueError(f"block_size: must be at least 1, got {self.block_size}.")
        if self.sampling not in SAMPLINGS:
            raise ValueError(f"sampling: must be one of {', '.join(SAMPLINGS)}, got {self.sampling!r}.")
        if self.sampling == "paper" and objective.n_free:
            raise ValueError(
                'sampling: "paper" moves no mass between its blocks, as an intercept needs; take "shuffled".'
            )

    def step(self, objective: LinearModel, threshold: Sparsity, state: DualState, t: Array) -> tuple[DualState, Info]:
        dual = Dual(objective, threshold)
        columns, n = objective.columns, objective.columns.n
        b = min(max(n // MOST, PAPER), LARGE) if self.block_size is None else self.block_size
        blocks = -(-n // b)
        key, draw = jax.random.split(state.key)
        order = permuted(draw, n) if self.sampling == "shuffled" else jnp.arange(n)
        # The last block is filled up with samples of weight zero in it.
        order = jnp.pad(order, (0, blocks * b - n)).reshape(blocks, -1)
        live = (jnp.arange(blocks * b) < n).reshape(blocks, -1)
        if self.sampling == "paper":
            drawn = jax.random.randint(draw, (blocks,), 0, blocks)
            order, live = order[drawn], live[drawn]
        weights, ridge = dual.weights, dual.ridge
        loss, y = dual.loss, objective.y

        def update(carry: Pair, block: tuple[Array, Array, Array]) -> tuple[Pair, Array]:
            a, tau = carry
            i, use, j = block
            member, _ = dual.select(dual.terms(tau))
            x = dual.lift(jnp.where(member, -tau / ridge, 0))
            omega = jnp.where(use, weights[i], 0)
            rows = columns.rows(i, omega)
            eta = rows.product(x)
            eta = eta if rows.offset is None else eta + rows.offset
            norm = state.norm
            if self.rule == "capped":
                # The Frobenius norm of the block's Gram matrix: at least its largest eigenvalue.
                scaled = rows.dense_rows(jnp.arange(i.size)) * jnp.sqrt(omega)[:, None] / jnp.sqrt(ridge)
                norm = jnp.linalg.norm(dot(scaled, scaled.T))
            size = self.size(dual, norm, t * blocks + j, blocks)
            old = a[i]
            target = old + size * (eta - loss.conjugate_derivative(old, y[i]))
            if objective.n_free:
                new = _same_sum(loss, target, old, y[i], omega)
            else:
                new = loss.project_dual(target, y[i])
            change = jnp.where(use, new - old, 0)
            tau = tau + rows.transpose_product(omega * change)[: tau.shape[0]]
            return (a.at[i].add(change), tau), size

        start = (state.point.a, state.point.tau)
        (a, _), sizes = lax.scan(update, start, (order, live, jnp.arange(blocks)))
        return self.arrive(dual, state, dual.project(a), jnp.mean(sizes), key, blocks + 1)


def _same_sum(loss: AbstractConjugateLoss, target: Array, old: Array, y: Array, weights: Array) -> Array:
    """The range's projection of target + b with the weighted sum of the old values."""
    live = weights > 0
    goal = dot(weights, old)
    if loss.quadratic:  # the range is the whole line
        return target - (dot(weights, target) - goal) / jnp.maximum(jnp.sum(weights), jnp.finfo(old.dtype).tiny)
    reach = jnp.max(jnp.where(live, jnp.abs(target) + jnp.abs(old), 0))
    # The old values are in the range: at these two shifts every entry is on one side of its old value.
    return with_sum(loss, target, y, weights, goal, (-2 * reach, 2 * reach))
