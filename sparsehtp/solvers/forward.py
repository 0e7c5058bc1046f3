"""Forward selection (orthogonal matching pursuit, orthogonal least squares), and what the greedy solvers share."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from .._types import Info, Support, is_concrete
from ..columns import gather
from ..iteration.results import RESULTS
from ..iteration.termination import Complete
from ..linalg import any_lane
from ..linalg.tableau import Tableau, addition_gains, empty_tableau, pivot, tableau_at
from ..objectives import AbstractRestrictable, AbstractScored
from ..objectives.base import in_columns
from ..thresholds import AbstractThreshold, AbstractUnitThreshold
from ..thresholds.base import members
from .base import AbstractSolver, Trail, report
from .refit import refit

TABLEAU_BYTES = 2**31  # of a tableau over all features
MAX_STEPS = 1000  # rows of a history, so not more than most selections need


class GreedyState(NamedTuple):
    """The features chosen so far, in their order, with their refit.

    `memory` is the solver's own. `curvature` holds F_jj for a quadratic F, free entries minimised out; None: it changes
    with x. `size` counts the chosen features, the kept ones left out; `complete` says that no step can change the rest.
    """

    x: Array
    support: Support
    value: Array
    grad: Array
    step_size: Array
    size: Array
    fault: Array
    complete: Array
    curvature: Array | None
    memory: PyTree


def start(objective: AbstractScored, threshold: AbstractUnitThreshold) -> GreedyState:
    """The state of the free and the kept entries alone."""
    return refitted(objective, threshold, unfitted(objective, threshold))


def unfitted(objective: AbstractScored, threshold: AbstractUnitThreshold) -> GreedyState:
    """A state before its refit: of no value."""
    p, n_keep = objective.n_coefficients, threshold.keep.shape[0]
    free = p + jnp.arange(objective.n_free, dtype=jnp.int32)
    idx = jnp.concatenate([free, jnp.asarray(threshold.keep), jnp.zeros(threshold.most, jnp.int32)])
    zero = jnp.zeros((), objective.dtype)
    x = objective.origin()
    return GreedyState(
        x=x,
        support=Support(idx, jnp.arange(idx.shape[0]) < objective.n_free + n_keep),
        value=zero + jnp.inf,
        grad=x,
        step_size=zero + 1,
        size=jnp.int32(0),
        fault=jnp.int32(0),
        complete=limit(threshold) <= 0,
        curvature=objective.curvatures(x) if objective.quadratic else None,
        memory=None,
    )


def limit(threshold: AbstractUnitThreshold) -> Array:
    """The number of features to choose."""
    return jnp.minimum(threshold.k, threshold.most)


def appended(
    objective: AbstractScored, threshold: AbstractUnitThreshold, state: GreedyState, j: Array, wanted: Array
) -> GreedyState:
    """The state with feature j in the support where `wanted`; complete where not, and where the support is full."""
    position = objective.n_free + threshold.keep.shape[0] + state.size
    idx, size = state.support.idx, state.size + wanted
    mask = jnp.arange(idx.shape[0]) < position + wanted
    support = Support(idx.at[position].set(jnp.where(wanted, j, idx[position])), mask)
    return state._replace(support=support, size=size, complete=~wanted | (size >= limit(threshold)))


def refitted(
    objective: AbstractScored, threshold: AbstractUnitThreshold, state: GreedyState, slope: bool = True
) -> GreedyState:
    """The state with F minimised over its support; without `slope` the gradient is left as it was."""
    x, fault = refit(objective, threshold, state.support, state.x)
    if not slope:
        return state._replace(x=x, value=objective.value(x, state.support), fault=fault)
    value, grad = objective.value_and_grad(x, state.support)
    return state._replace(x=x, value=value, grad=grad, fault=fault)


def decreases(
    objective: AbstractScored, threshold: AbstractUnitThreshold, state: GreedyState, scaled: bool = True
) -> Float[Array, "p"]:
    """Decrease of F, to second order, from moving each coefficient alone; -inf for those that are in or have no effect.

    That is g_j^2 / (2 F_jj) unless a bound cuts the move short; all F_jj count as one if not `scaled`.
    """
    p = objective.n_coefficients
    curvature = objective.curvatures(state.x) if state.curvature is None else state.curvature
    usable = (curvature > 0) & ~members(state.support, p)
    curvature = jnp.where(usable & scaled, curvature, 1)
    move = -state.grad.at[:p].divide(curvature)
    return jnp.where(usable, 0.5 * curvature * threshold.scores(move) ** 2, -jnp.inf)


def row(state: GreedyState) -> Trail:
    """A state as one row of a trail."""
    result = jnp.where(state.fault != 0, state.fault, jnp.int32(RESULTS.converged))
    return Trail(state.support, gather(state.x, state.support), state.value, result)


class AbstractGreedy(AbstractSolver):
    """A solver that adds features one by one."""

    requires = AbstractScored
    needs_curvature = True
    by_path = True
    default_termination = Complete()
    default_max_steps = MAX_STEPS

    @classmethod
    def takes(cls, threshold: AbstractThreshold) -> bool:
        return threshold.kind in ("entries", "pairs") and not (threshold.summed or threshold.penalises)


class ForwardSelection(AbstractGreedy):
    """Greedy forward selection: add the feature that promises the largest decrease of F, refit, until k are in.

        S <- S + {argmax_{j not in S} score_j},   w <- argmin {F(w) : supp w in S}

    Args:
        rule: "omp": score_j = g_j^2 / F_jj, twice the decrease from moving coefficient j alone (the largest |gradient|,
            scaled by the column); "ols": score_j = g_j^2 / (F_jj - F_jS F_SS^-1 F_Sj), twice the decrease with all
            coefficients on S optimised again. Both are exact for quadratics and hold to second order at the current w
            otherwise; free entries (the intercept) are minimised out in both. On the pairs of `OffDiagonal` both names
            mean the former, with the two variances that a pair joins minimised out. "gradient": score_j = |g_j|, as
            published; it depends on the units of the columns.

    The start x0 is not used: selection begins with the free and the kept entries. For quadratics without bounds the
    scores are updated on the normal equations, and a path costs one block of Gram columns for about 32 features;
    otherwise a step costs a gradient and the curvatures, and with "ols" one product per chosen feature beside.

    Raises:
        ValueError: if rule is none of them.
        TypeError: for bounds with rule="ols", and for thresholds other than `Sparsity` and `OffDiagonal`.

    Guarantee: supports are nested in k and values do not rise; the best subset for every k if the (centred) columns
    are orthogonal (with "gradient": and of one length). In general no rule finds the best subset: a feature that was
    taken is never given back; follow with swaps (`BestSubset`) or use `FoBa`. It converged when k features are in, or
    every other one is zero or depends on those that are. More than 1000 features need `max_steps`.

    Source: orthogonal matching pursuit, Pati, Rezaiifar and Krishnaprasad (1993); orthogonal least squares, Chen,
    Billings and Luo (1989); forward selection (FBS) in the experiments of [GraHTP].
    """

    rule: str = eqx.field(static=True, default="ols")

    def __check_init__(self) -> None:
        if self.rule not in ("omp", "ols", "gradient"):
            raise ValueError(f'rule: must be "omp", "ols" or "gradient", got {self.rule!r}.')

    def check(self, objective: AbstractScored, threshold: AbstractUnitThreshold) -> None:
        super().check(objective, threshold)
        if self.rule == "ols" and threshold.bounded:
            raise TypeError(
                'threshold: ForwardSelection(rule="ols") takes no bounds; use ForwardSelection(rule="omp") or HTP.'
            )
        if self.rule == "ols" and is_concrete(threshold.k) and not _fits(objective, threshold.bind(objective)):
            raise ValueError(
                f'k: ForwardSelection(rule="ols") keeps k_max numbers a feature, over {TABLEAU_BYTES / 2**30:.0f} GiB '
                'here; use ForwardSelection(rule="omp"), BestSubset (which takes working sets), or a smaller k_max.'
            )

    def init(
        self, objective: AbstractScored, threshold: AbstractUnitThreshold, x0: Array | None, key: Array
    ) -> GreedyState:
        state = start(objective, threshold)
        if (
            objective.quadratic
            and in_columns(objective, threshold)
            and (self.rule == "ols" or _fits(objective, threshold))
        ):
            return state._replace(memory=_first_tableau(objective, threshold))
        return state

    def step(
        self, objective: AbstractScored, threshold: AbstractUnitThreshold, state: GreedyState, t: Array
    ) -> tuple[GreedyState, Info]:
        new = refitted(objective, threshold, self._extended(objective, threshold, state))
        if new.memory is not None:  # from the data, so that rounding in the updates does not build up
            new = new._replace(memory=new.memory._replace(g=-new.grad[: objective.n_coefficients]))
        products = 1
        if not objective.quadratic:
            products += 1 + (state.support.idx.shape[0] if self.rule == "ols" else 0)
        return new, report(objective, threshold, state, new, fault=new.fault, design_products=products)

    def path(self, objective: AbstractScored, threshold: AbstractUnitThreshold, key: Array) -> Trail:
        def advance(state: GreedyState) -> GreedyState:
            # A tableau brings its own gradient.
            return refitted(objective, threshold, self._extended(objective, threshold, state), state.memory is None)

        def body(state: GreedyState, _: None) -> tuple[GreedyState, Trail]:
            state = lax.cond(any_lane(~state.complete), advance, lambda state: state, state)
            return state, row(state)

        first = self.init(objective, threshold, None, key)
        _, rows = lax.scan(body, first, length=threshold.most)
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), row(first), rows)

    def _extended(self, objective: AbstractScored, threshold: AbstractUnitThreshold, state: GreedyState) -> GreedyState:
        """The state with the best feature added, not refitted yet."""
        scores = self._scores(objective, threshold, state)
        j = jnp.argmax(scores).astype(jnp.int32)
        wanted = (scores[j] > -jnp.inf) & (state.size < limit(threshold))
        new = appended(objective, threshold, state, j, wanted)
        if state.memory is None or not in_columns(objective, threshold):
            return new

        def gram(
            idx: Array,
        ) -> Array:  # in here, so that the normal equations are formed only where columns are fetched
            return objective.normal_equations().rows(idx)

        free = jnp.argmax(state.memory.idx < 0).astype(jnp.int32)
        return new._replace(memory=pivot(gram, state.memory, free, j, jnp.zeros((), bool), wanted, scores))

    def _scores(self, objective: AbstractScored, threshold: AbstractUnitThreshold, state: GreedyState) -> Array:
        if state.memory is not None:
            gains = addition_gains(state.memory)
            one = state.memory.g**2
            if self.rule == "omp" and state.curvature is not None:
                one = one / jnp.where(state.curvature > 0, state.curvature, 1)
            return gains if self.rule == "ols" else jnp.where(gains > -jnp.inf, one, -jnp.inf)
        if self.rule == "ols" and in_columns(objective, threshold):
            idx, mask = (part[objective.n_free :] for part in state.support)
            local = tableau_at(objective.normal_equations(state.x), idx, mask)
            return addition_gains(local._replace(g=-state.grad[: objective.n_coefficients]))
        return decreases(objective, threshold, state, scaled=self.rule != "gradient")


def _fits(objective: AbstractScored, threshold: AbstractUnitThreshold) -> bool:
    """True if the tableau of k_max p numbers does not take too much memory."""
    size = jnp.dtype(objective.dtype).itemsize * objective.n_coefficients
    return threshold.room * size <= TABLEAU_BYTES


def _first_tableau(objective: AbstractRestrictable, threshold: AbstractUnitThreshold) -> Tableau:
    """The tableau of the kept features."""
    equations = objective.normal_equations()
    n_keep = threshold.keep.shape[0]
    if not n_keep:
        return empty_tableau(equations, threshold.room)
    idx = jnp.zeros(threshold.room, jnp.int32).at[:n_keep].set(threshold.keep)
    return tableau_at(equations, idx, jnp.arange(idx.shape[0]) < n_keep)
