"""The primal-dual method for the L0 + L1 + L2 penalty, with a growing active set and safe screening."""

import math
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._tolerances import tolerance
from .._types import Info, Support
from ..columns import gather, scatter
from ..duality.dual import Dual, DualPoint, Fixed, require_dual
from ..iteration.termination import Complete, DualGap
from ..linalg import dot, top_k
from ..losses.base import positive
from ..objectives import LinearModel
from ..screening.rules import gap_sphere, screen
from ..thresholds import L0L1L2, AbstractThreshold
from .base import AbstractSolver, report
from .coordinate import BlockFit, Descent, gather_block, on_block

RULES = ("phi", "gap_sphere", "none")
INNER = ("convex", "printed")
MAX_ROUNDS = 50  # inner rounds of one step
SWEEPS = 5  # of the convex form in a round
OMEGA, ZETA = 5e-4, 1e-6  # of [DIOM]: the ascent's step, and the fall of the summed gap in two steps that ends it
MAX_ASCENTS = 100_000  # of Algorithm 1 in a step

Round: TypeAlias = tuple[BlockFit, Array, Array, Array]  # a fit, its dual point, its gap or the last three, rounds


class PrimalDualState(NamedTuple):
    """The best primal point, the best lower bound, and how the search stands.

    Attributes:
        x, support, value, grad: the primal point in the solver's units, F + penalty, and F's gradient on the support.
        relaxed, shift: the convex form's coefficients and centred intercept.
        point: the last dual point.
        active, out, inn: features in the active set; known to be zero; known to be nonzero.
        lower: the best lower bound so far.
        complete: the dual is maximal, and nothing is left to add or to screen.
        settled: nothing was added or screened in the last step.
        energies, centres: second moments and means of the columns (None: zero).
        norm: largest eigenvalue of the data's part of the dual Hessian, for dual ascent.
        step_size: 1, or the last step of dual ascent.
    """

    x: Array
    support: Support
    value: Array
    grad: Array
    relaxed: Array
    shift: Array
    point: DualPoint
    active: Array
    out: Array
    inn: Array
    lower: Array
    complete: Array
    settled: Array
    energies: Array
    centres: Array | None
    norm: Array
    step_size: Array


class PrimalDual(AbstractSolver):
    """Primal and dual coordinate descent in a growing active set, with safe screening, for the L0 + L1 + L2 penalty.

        min_w F(w) + l0 ||w||_0 + l1 ||w||_1,    F with l2 > 0

    A step solves the active set's convex form by coordinate sweeps, whose residual is a dual point, starts coordinate
    descent on the penalty itself from the link, from the convex form and from the last point, and keeps the best; then
    one product with all the data gives D, screens features out (zero in every optimum) and in (nonzero in every
    optimum), and adds the ceil(include ln p) features that violate the dual most. It ends when the gap is closed, or
    when nothing is added or screened and the dual is maximal: the gap may then stay open. Work goes by the active set,
    gathered in blocks of a few static sizes.

    [DIOM] Algorithm 1 takes supergradient steps where this sweeps the convex form: they climb the same D, at a rate
    that falls with the condition of the data.

    Args:
        inner: "convex", as above; "printed", Algorithms 1 to 3 word by word, from a = 0: a step alternates the ascent
            a <- a + omega (X x - l*'(a)), the link and one primal sweep on the active set, until the gap has fallen by
            at most 1e-6 / W in two of them, and then adds the features with the largest |x_j'a| while one is not
            screened. Its supergradient is taken at the swept point and not at the link, and so is none: it does not
            maximise D, and the gap may stay open where "convex" closes it.
        omega: step of the ascent, constant and from a = 0; None: 5e-4 for "printed", see the next for `dual_ascent`.
        dual_ascent: Algorithm 1 without its primal sweeps, over all features ("DualAst"): one supergradient step, by
            default min(1 / (lam_max / l2 + mu), 8 / (mu (t + 2))), with the link as the primal point.
        rule: "phi", the test that needs no strong duality; "gap_sphere", [DIOM] (16); "none".
        incremental: grow the active set from ceil(include ln p) features; False: all features from the start.
        include: c of Algorithm 3.

    Guarantee: `history.gap` is never less than the distance to the optimum, and screened features are zero (nonzero) in
    every optimum, whether the gap closes or not. [DIOM]'s "the min-max equality holds automatically for the squared
    loss" is false: with n = 10, p = 6 and small l2 a gap remains at the optimum. The primal point is optimal in each
    coordinate; `CDSS` adds swaps.

    Raises:
        TypeError, ValueError: for l2 = 0, a loss without a conjugate or that is not smooth.

    Source: [DIOM] Algorithms 1 to 3.
    """

    dual_ascent: bool = eqx.field(static=True, default=False)
    rule: str = eqx.field(static=True, default="phi")
    incremental: bool = eqx.field(static=True, default=True)
    include: float = eqx.field(static=True, default=4.0)
    inner: str = eqx.field(static=True, default="convex")
    omega: Float[Array, ""] | float | None = None

    requires = LinearModel
    needs_curvature = True
    needs_smoothness = True
    default_termination = DualGap() | Complete()

    def __check_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule: must be one of {', '.join(RULES)}, got {self.rule!r}.")
        if self.inner not in INNER:
            raise ValueError(f"inner: must be one of {', '.join(INNER)}, got {self.inner!r}.")
        if not self.include > 0:
            raise ValueError(f"include: must be > 0, got {self.include}.")
        if self.omega is not None:
            positive("omega", self.omega)

    def check(self, objective: LinearModel, threshold: L0L1L2) -> None:
        super().check(objective, threshold)
        require_dual(objective, threshold)

    @classmethod
    def takes(cls, threshold: AbstractThreshold) -> bool:
        return threshold.penalises and not threshold.bounded

    @property
    def default_max_steps(self) -> int:
        return 5000 if self.dual_ascent else 200

    @property
    def returns_best(self) -> bool:
        return self.dual_ascent

    def _include(self, p: int) -> int:
        return min(p, math.ceil(self.include * math.log(max(p, 2))))

    def init(self, objective: LinearModel, threshold: L0L1L2, x0: Array, key: Array) -> PrimalDualState:
        dual = Dual(objective, threshold)
        p, dtype = objective.n_coefficients, objective.dtype
        x, support = supported(threshold, x0)
        eta = objective.forward(x)
        point = dual.point(dual.project(objective.loss.derivative(eta, objective.y)))
        no = jnp.zeros(p, bool)
        add = top_k(jnp.abs(point.tau), self._include(p))
        if self.inner == "printed" or self.omega is not None:
            point = dual.point(dual.zero())
        active = (x[:p] != 0).at[add].set(True) if self.incremental else ~no
        centres, energies = dual.columns.moments()
        norm = dual.gram_norm() if self.dual_ascent else jnp.ones((), dtype)
        return PrimalDualState(
            x=x,
            support=support,
            value=dual.primal(eta, x),
            grad=jnp.zeros_like(x),
            relaxed=x[:p],
            shift=centred_intercept(x, centres, objective.n_free),
            point=point,
            active=active,
            out=no,
            inn=no,
            lower=point.value,
            complete=jnp.zeros((), bool),
            settled=jnp.zeros((), bool),
            energies=energies,
            centres=centres,
            norm=norm,
            step_size=jnp.ones((), dtype),
        )

    def step(
        self, objective: LinearModel, threshold: L0L1L2, state: PrimalDualState, t: Array
    ) -> tuple[PrimalDualState, Info]:
        dual = Dual(objective, threshold, Fixed(state.out, state.inn))
        new = self._ascend(dual, state, t) if self.dual_ascent else self._sweep(dual, state)
        slope = objective.loss.derivative(objective.forward(new.x), objective.y)
        new = new._replace(grad=dual.columns.transpose_product(dual.weights * slope) + dual.columns.ridge() * new.x)
        value = new.value - threshold.value(new.x)
        info = report(objective, threshold, state, new, value=value, design_products=2, gradients=2)
        return new, info._replace(gap=new.value - new.lower)

    def _ascend(self, dual: Dual, state: PrimalDualState, t: Array) -> PrimalDualState:
        objective = dual.objective
        mu = jnp.asarray(dual.loss.strong_convexity, objective.dtype)
        size = jnp.minimum(1 / (state.norm + mu), 8 / (mu * (t + 2.0)))
        size = size if self.omega is None else jnp.asarray(self.omega, size.dtype)
        _, eta = dual.predict(state.point)
        a = dual.project(state.point.a + size * dual.supergradient(state.point, eta))
        point = dual.point(a)
        x, eta = dual.predict(point)
        return state._replace(
            x=x,
            support=point.support,
            value=dual.primal(eta, x),
            point=point,
            lower=jnp.maximum(state.lower, point.value),
            step_size=size,
        )

    def _sweep(self, dual: Dual, state: PrimalDualState) -> PrimalDualState:
        objective, threshold = dual.objective, dual.threshold
        assert isinstance(threshold, L0L1L2)
        p, centres = objective.n_coefficients, state.centres
        printed = self.inner == "printed"
        fine = 0.25 * tolerance("gap", objective.dtype) * jnp.abs(state.value)

        def solve(features: Array, count: Array) -> tuple[Array, ...]:
            descent = Descent(dual, gather_block(dual, features, count, state.inn, centres))
            on = Support(features, jnp.arange(features.shape[0]) < count)
            fit, a, sub_gap, best = (
                self._printed(descent, state, on) if printed else self._convex(descent, state, on, fine)
            )
            primal = scatter(best.w, on, p), best.b, descent.penalty_value(best)
            return scatter(fit.w, on, p), fit.b, a, sub_gap, *primal

        relaxed, shift, a, sub_gap, w, b, value = on_block(state.active, solve)
        x = dual.lift(w, b if centres is None else b - dot(centres, w))
        better = value < state.value
        x, value = jnp.where(better, x, state.x), jnp.where(better, value, state.value)
        point = dual.point(a)
        lower = jnp.maximum(state.lower, point.value)
        fixed, point = self._screened(dual, point, state.energies, value)
        lower = jnp.maximum(lower, point.value)
        active = (state.active | fixed.nonzero) & ~fixed.zero
        scores = jnp.abs(point.tau) if printed else jnp.maximum(point.terms, 0)
        wanted = jnp.where(active | fixed.zero, 0, scores)
        add = top_k(wanted, self._include(p))
        grown = active.at[add].set(active[add] | (wanted[add] > 0))
        news = jnp.any(fixed.zero & ~state.out) | jnp.any(fixed.nonzero & ~state.inn) | jnp.any(grown != active)
        return state._replace(
            x=x,
            support=threshold.support(x[:p]),
            value=value,
            relaxed=jnp.where(fixed.zero, 0, relaxed),
            shift=shift,
            point=point,
            active=grown,
            out=fixed.zero,
            inn=fixed.nonzero,
            lower=lower,
            complete=~news & (printed | (sub_gap <= fine)),
            settled=~news,
        )

    def _convex(
        self, descent: Descent, state: PrimalDualState, on: Support, fine: Array
    ) -> tuple[BlockFit, Array, Array, BlockFit]:
        """The block's convex form by sweeps, its dual point and gap, and the best primal point from three starts."""
        dual = descent.dual
        p, dtype = dual.objective.n_coefficients, dual.objective.dtype
        # No more accurate than the gap deserves, unless that is all there is left to do.
        goal = jnp.where(state.settled, fine, jnp.maximum(0.1 * (state.value - state.lower), fine))

        def round_of(carry: Round) -> Round:
            fit, _, _, rounds = carry
            fit = lax.fori_loop(0, SWEEPS, lambda _, f: descent.sweep(f, descent.envelope_update), fit)
            a = dual.project(descent.slope(fit.eta))
            return fit, a, descent.envelope_value(fit) - descent.bound(a), rounds + 1

        first = descent.start(gather(state.relaxed, on), state.shift)
        fit, a, sub_gap, _ = lax.while_loop(
            lambda c: (c[2] > goal) & (c[3] < MAX_ROUNDS),
            round_of,
            (first, jnp.zeros_like(dual.objective.y), jnp.asarray(jnp.inf, dtype), jnp.int32(0)),
        )
        # Starts of the primal: the last point, the link, and the convex form's certain part.
        sure = jnp.where(jnp.abs(fit.w) * jnp.sqrt(descent.block.ridge) >= jnp.sqrt(2 * descent.block.l0), fit.w, 0)
        shifts = jnp.stack([centred_intercept(state.x, state.centres, dual.objective.n_free), fit.b, fit.b])
        ends = lax.map(
            lambda start: descent.descend(descent.start(*start), 0.1 * fine),
            (jnp.stack([gather(state.x[:p], on), descent.link(a), sure]), shifts),
        )
        values = jax.vmap(descent.penalty_value)(ends)
        return fit, a, sub_gap, jax.tree.map(lambda each: each[jnp.argmin(values)], ends)

    def _printed(
        self, descent: Descent, state: PrimalDualState, on: Support
    ) -> tuple[BlockFit, Array, Array, BlockFit]:
        """[DIOM] Algorithm 1 on the block."""
        dual = descent.dual
        objective = dual.objective
        omega = jnp.asarray(OMEGA if self.omega is None else self.omega, objective.dtype)
        settled = ZETA / objective.y.shape[0]

        def ascend(carry: Round) -> Round:
            fit, a, gaps, t = carry
            a = dual.project(a + omega * (fit.eta - dual.loss.conjugate_derivative(a, objective.y)))
            fit = descent.sweep(descent.start(descent.link(a), fit.b), descent.penalty_update)
            return fit, a, jnp.append(gaps[1:], descent.penalty_value(fit) - descent.bound(a)), t + 1

        def falling(carry: Round) -> Array:
            _, _, gaps, t = carry
            return (gaps[2] > settled) & (gaps[0] - gaps[2] > settled) & (t < MAX_ASCENTS)

        shift = centred_intercept(state.x, state.centres, objective.n_free)
        start = descent.start(gather(state.x[: objective.n_coefficients], on), shift)
        gaps = jnp.asarray([jnp.inf, jnp.inf, 1e30], objective.dtype)
        fit, a, gaps, _ = lax.while_loop(falling, ascend, (start, state.point.a, gaps, jnp.int32(0)))
        return fit, a, gaps[2], fit

    def _screened(self, dual: Dual, point: DualPoint, energies: Array, value: Array) -> tuple[Fixed, DualPoint]:
        if self.rule == "none":
            return dual.masks(), point
        if self.rule == "phi":
            return screen(dual, point, energies, value)
        found, known = gap_sphere(dual, point, energies, value), dual.masks()
        fixed = Fixed(known.zero | found.zero, known.nonzero)
        return fixed, Dual(dual.objective, dual.threshold, fixed).point(point.a, point.tau)


def supported(threshold: L0L1L2, x0: Array) -> tuple[Array, Support]:
    """x0 with no more nonzeros than the threshold allows, and its support."""
    p = x0.shape[0] - threshold.n_free
    support = threshold.support(x0[:p])
    return scatter(gather(x0, support), support, x0.shape[0]), support


def centred_intercept(x: Float[Array, "d"], centres: Float[Array, "p"] | None, n_free: int) -> Float[Array, ""]:
    """The intercept that goes with centred columns."""
    if not n_free:
        return jnp.zeros((), x.dtype)
    return x[-1] if centres is None else x[-1] + dot(centres, x[:-1])
