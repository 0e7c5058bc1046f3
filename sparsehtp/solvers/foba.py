"""Adaptive forward-backward greedy selection."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._results import RESULTS
from .._termination import Complete
from .._types import Support, is_concrete
from ..linalg import any_lane
from ..objectives import AbstractRestrictable, gather
from ..thresholds import NonNegativeSparsity, OffDiagonal, Sparsity
from .base import AbstractPathSolver, Trail, report, where
from .forward import MAX_STEPS, GreedyState, appended, decreases, differentiated, limit, refitted, row, start


class Gains(NamedTuple):
    """The decrease of F recorded when the support last grew to each size, and the least one that counts."""

    by_size: Float[Array, "sizes"]
    least: Float[Array, ""]


class FoBa(AbstractPathSolver):
    """Forward-backward greedy selection: add the best feature, then drop those that have become superfluous.

    Forward: the feature with the largest one-coordinate decrease, g_j^2 / (2 F_jj), comes in and F is minimised over
    the support; the decrease is recorded for the new size, and the run ends if it is at most `epsilon` (the feature is
    then left out) or if the size is k. Backward: as long as

        min_{j in S} F(w - w_j e_j) - F(w) <= backward_ratio * (the decrease recorded for the current size),

    the minimising feature goes out and F is minimised over the rest. One step is one feature in and what then goes out.
    The one-coordinate decrease is exact for quadratics and holds to second order otherwise. Free entries follow both
    moves (an intercept is minimised out of the local quadratic model), so that shifting a column changes nothing;
    kept features never leave.

    Args:
        epsilon: least decrease of F that a feature must bring, >= 0. Less than the rounding of F never counts.
        backward_ratio: see above, 0 <= backward_ratio < 1; 0 never drops a feature that matters.

    The start x0 is not used.

    Raises:
        ValueError: if an argument is out of its range.
        TypeError: for thresholds other than `Sparsity`, `NonNegativeSparsity` and `OffDiagonal`.

    Guarantee: whenever a size is met again, F is lower than before, so that no support is met twice and the run ends.
    `path` gives the best solution met with at most k features, for every k; the values do not rise with k.
    It may stop far from the best subset if features help only together. `path` ends after 1000 steps at the latest.

    Source: Zhang (2011), Adaptive forward-backward greedy algorithm for learning sparse representations.
    """

    epsilon: Float[Array, ""] | float
    backward_ratio: Float[Array, ""] | float

    requires = AbstractRestrictable
    supports = (Sparsity, NonNegativeSparsity, OffDiagonal)
    needs_curvature = True

    def __init__(self, epsilon: float = 0.0, backward_ratio: float = 0.5):
        self.epsilon = epsilon
        self.backward_ratio = backward_ratio

    def __check_init__(self):
        for name, below, words in (
            ("epsilon", np.inf, "finite number >= 0"),
            ("backward_ratio", 1, "number in [0, 1)"),
        ):
            value = getattr(self, name)
            if is_concrete(value) and not (np.ndim(value) == 0 and 0 <= value < below):
                raise ValueError(f"{name}: must be a {words}, got {value}.")

    @property
    def default_termination(self):
        return Complete()

    @property
    def default_max_steps(self):
        return MAX_STEPS

    def init(self, objective, threshold, x0, key):
        state = start(objective, threshold)
        dtype = state.value.dtype
        rounding = 10 * jnp.finfo(dtype).eps * jnp.abs(state.value)
        least = jnp.maximum(jnp.asarray(self.epsilon, dtype), rounding)
        return state._replace(memory=Gains(jnp.zeros(threshold.k_max + 1, dtype), least))

    def step(self, objective, threshold, state, t):
        new, _ = self._round(objective, threshold, state, None)
        return new, report(
            objective,
            threshold,
            state,
            new,
            value=new.value,
            grad=new.grad,
            entries=new.support,
            fault=new.fault,
            design_products=1 if objective.quadratic else 2,
        )

    def path(self, objective, threshold, key):
        def going(carry):
            state, _, t = carry
            return any_lane(~state.complete) & (t < MAX_STEPS)

        def body(carry):
            state, rows, t = carry
            return *self._round(objective, threshold, state, rows), t + 1

        first = self.init(objective, threshold, None, key)
        k = jnp.arange(threshold.k_max + 1)
        rows = jax.tree.map(lambda a: jnp.broadcast_to(a, (k.shape[0], *a.shape)), row(first))
        rows = rows._replace(value=jnp.where(k == 0, rows.value, jnp.inf))
        state, rows, _ = lax.while_loop(going, body, (first, rows, jnp.int32(0)))
        lowest = lax.cummin(rows.value)
        improves = (k == 0) | (rows.value < jnp.roll(lowest, 1))
        rows = jax.tree.map(lambda a: a[lax.cummax(jnp.where(improves, k, 0))], rows)
        unfinished = ~state.complete & (rows.result == RESULTS.converged)
        return rows._replace(result=jnp.where(unfinished, jnp.int32(RESULTS.max_steps), rows.result))

    def _round(self, objective, threshold, state: GreedyState, rows: Trail | None):
        """One feature in, what has become superfluous out; `rows` collects the best state met of every size."""

        def drop(carry):
            state, (position, superfluous), rows = carry
            state = _dropped(objective, threshold, state, position, superfluous)
            return state, self._weakest(objective, threshold, state), _collected(rows, state)

        state = self._extended(objective, threshold, state)
        carry = state, self._weakest(objective, threshold, state), _collected(rows, state)
        state, _, rows = lax.while_loop(lambda carry: any_lane(carry[1][1]), drop, carry)
        complete = state.complete | (state.size >= limit(threshold))
        return differentiated(objective, state._replace(complete=complete)), rows

    def _extended(self, objective, threshold, state):
        """The state with the best feature added; complete, and else unchanged, if it brings too little."""
        scores = decreases(objective, threshold, state)
        j = jnp.argmax(scores).astype(jnp.int32)
        wanted = ~state.complete & (scores[j] > -jnp.inf) & (state.size < limit(threshold))
        new = refitted(objective, threshold, appended(objective, threshold, state, j, wanted))
        gain = state.value - new.value
        gains = state.memory._replace(by_size=state.memory.by_size.at[new.size].set(gain))
        accepted = wanted & (gain > gains.least)
        new = new._replace(memory=gains, complete=jnp.zeros((), bool))
        return where(accepted, new, state._replace(complete=jnp.ones((), bool)))

    def _weakest(self, objective, threshold, state):
        """Position in the support of the feature whose removal costs least, and whether it is to go."""
        support, n_free = state.support, objective.n_free
        z = gather(state.x, support)
        costs = objective.restrict(support).without_each(z, n_free) - state.value
        position = jnp.arange(z.shape[0])
        first = n_free + threshold.keep.shape[0]
        candidate = (position >= first) & (position < first + state.size) & jnp.isfinite(costs)
        costs = jnp.where(candidate, costs, jnp.inf)
        weakest = jnp.argmin(costs)
        superfluous = costs[weakest] <= self.backward_ratio * state.memory.by_size[state.size]
        return weakest, superfluous & ~state.complete


def _dropped(objective, threshold, state, position, wanted):
    """The state without the feature at a position of the support, where `wanted`."""
    place = jnp.arange(state.support.idx.shape[0])
    idx = jnp.where(place >= position, jnp.roll(state.support.idx, -1), state.support.idx)
    mask = place < jnp.sum(state.support.mask) - 1
    smaller = state._replace(support=Support(idx, mask), size=state.size - 1)
    return where(wanted, refitted(objective, threshold, smaller), state)


def _collected(rows: Trail | None, state: GreedyState) -> Any:
    if rows is None:
        return None
    better = state.value < rows.value[state.size]
    return jax.tree.map(lambda a, new: a.at[state.size].set(jnp.where(better, new, a[state.size])), rows, row(state))
