"""Pursuits that minimise over a candidate support and prune it: GraSP, CoSaMP, subspace pursuit."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Info, Support
from ..iteration.termination import AbstractTermination, Cycle, SmallStep, StableSupport
from ..objectives import AbstractRefittable
from ..thresholds import AbstractThreshold, AbstractUnitThreshold, union
from .base import AbstractSolver
from .htp import PursuitState, pursuit_start, pursuit_step
from .refit import refit


class AbstractPursuit(AbstractSolver):
    """T = supp x and the `expansion * k` largest gradient units; minimise over T; prune to k; refit."""

    expansion: ClassVar[int]

    requires = AbstractRefittable
    needs_curvature = True
    default_max_steps = 100
    returns_best = True

    @classmethod
    def takes(cls, threshold: AbstractThreshold) -> bool:
        return not threshold.penalises and threshold.kind != "rank"

    @property
    def refits(self) -> bool:
        """True if the pruned support is refitted."""
        return True

    @property
    def default_termination(self) -> AbstractTermination:
        return (StableSupport() if self.refits else SmallStep()) | Cycle()

    def init(
        self, objective: AbstractRefittable, threshold: AbstractUnitThreshold, x0: Array, key: Array
    ) -> PursuitState:
        return pursuit_start(objective, threshold, x0, jnp.ones((), objective.dtype))

    def step(
        self, objective: AbstractRefittable, threshold: AbstractUnitThreshold, state: PursuitState, t: Array
    ) -> tuple[PursuitState, Info]:
        scores = threshold.scores(-threshold.free_gradient(state.x, state.grad))
        candidates = threshold.select(scores, self.expansion)
        assert isinstance(state.support, Support)  # by `takes`
        # A start at zero has no support of its own yet.
        own = state.support._replace(mask=state.support.mask & jnp.any(threshold.occupied(state.x)))
        merged = union(own, candidates, scores.shape[0] + threshold.n_free)
        wide, fault = refit(objective, threshold, threshold.entries(state.x - state.grad, merged), state.x)
        x, support = threshold(wide)
        x, entries = objective.feasible(x), threshold.entries(x, support)
        if self.refits:
            x, fault = refit(objective, threshold, entries, x)
        new = state._replace(x=x, support=support, forward=objective.forward(x, entries))
        return pursuit_step(objective, threshold, state, new, entries, fault, hard_thresholds=2)


class GraSP(AbstractPursuit):
    """Gradient support pursuit: minimise over supp(x) and the 2k largest gradient entries, prune to k, refit.

    For the squared loss this is CoSaMP ([Tight] prints the top k of the gradient where its proof needs 2k). The best
    iterate is returned, since the objective need not fall at every step.

    Args:
        debias: refit on the pruned support, so that x is stationary there; False gives the published iteration.

    Source: Bahmani, Raj and Boufounos (2013); Needell and Tropp (2009).
    """

    debias: bool = eqx.field(static=True, default=True)
    expansion = 2

    @property
    def refits(self) -> bool:
        return self.debias


class SubspacePursuit(AbstractPursuit):
    """Subspace pursuit: minimise over supp(x) and the k largest gradient entries, prune to k, refit.

    The best iterate is returned. Source: Dai and Milenkovic (2009).
    """

    expansion = 1
