"""Adaptive forward-backward greedy selection."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from .._types import Info, Support, is_concrete
from ..columns import gather
from ..iteration.results import RESULTS
from ..linalg import any_lane, either
from ..objectives import AbstractScored
from ..thresholds import AbstractUnitThreshold
from .base import Trail, report
from .forward import MAX_STEPS, AbstractGreedy, GreedyState, appended, decreases, limit, refitted, row, start, unfitted


class Recorded(NamedTuple):
    """The decrease of F recorded when the support last grew to each size, and the least one that counts."""

    by_size: Float[Array, "sizes"]
    least: Float[Array, ""]


class Turn(NamedTuple):
    """A state, the feature at a position of its support that is to go next (where `drops`), and what was collected."""

    state: GreedyState
    position: Array
    drops: Array
    rows: Trail | None  # None where a path is not asked for


class FoBa(AbstractGreedy):
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
        TypeError: for thresholds other than `Sparsity` and `OffDiagonal`.

    Guarantee: whenever a size is met again, F is lower than before, so that no support is met twice and the run ends.
    `path` gives the best solution met with at most k features, for every k; the values do not rise with k.
    It may stop far from the best subset if features help only together. `path` ends after 1000 steps at the latest.

    Source: Zhang (2011), Adaptive forward-backward greedy algorithm for learning sparse representations.
    """

    epsilon: Float[Array, ""] | float = 0.0
    backward_ratio: Float[Array, ""] | float = 0.5

    def __check_init__(self) -> None:
        for name, below, words in (
            ("epsilon", np.inf, "finite number >= 0"),
            ("backward_ratio", 1, "number in [0, 1)"),
        ):
            value = getattr(self, name)
            if is_concrete(value) and not (np.ndim(value) == 0 and 0 <= value < below):
                raise ValueError(f"{name}: must be a {words}, got {value}.")

    def init(
        self, objective: AbstractScored, threshold: AbstractUnitThreshold, x0: Array | None, key: Array
    ) -> GreedyState:
        state = start(objective, threshold)
        return state._replace(memory=self._gains(threshold, state.value))

    def _gains(self, threshold: AbstractUnitThreshold, value: Array) -> Recorded:
        """The record at the beginning, whose F is given."""
        least = jnp.maximum(self.epsilon, 10 * jnp.finfo(value.dtype).eps * jnp.abs(value))
        return Recorded(jnp.zeros(threshold.most + 1, value.dtype), least)

    def step(
        self, objective: AbstractScored, threshold: AbstractUnitThreshold, state: GreedyState, t: Array
    ) -> tuple[GreedyState, Info]:
        first = Turn(state, jnp.int32(0), jnp.zeros((), bool), None)

        def going(carry: tuple[Turn, Array]) -> Array:
            turn, started = carry
            return ~started | any_lane(turn.drops)

        # The first turn adds, the others drop.
        turn, _ = lax.while_loop(
            going,
            lambda carry: (self._after(objective, threshold, carry[0], carry[1]), jnp.ones((), bool)),
            (first, jnp.zeros((), bool)),
        )
        new = turn.state
        products = 1 if objective.quadratic else 2
        return new, report(objective, threshold, state, new, fault=new.fault, design_products=products)

    def path(self, objective: AbstractScored, threshold: AbstractUnitThreshold, key: Array) -> Trail:
        def going(carry: tuple[Turn, Array]) -> Array:
            turn, t = carry
            return any_lane(~turn.state.complete) & (t < MAX_STEPS)

        def body(carry: tuple[Turn, Array]) -> tuple[Turn, Array]:
            turn, t = carry
            turn = self._after(objective, threshold, turn, begins=t < 0)
            return turn, t + ~turn.drops

        no, first = jnp.zeros((), bool), unfitted(objective, threshold)
        first = first._replace(memory=self._gains(threshold, first.value), complete=no)
        k = jnp.arange(threshold.most + 1)
        rows = jax.tree.map(lambda a: jnp.broadcast_to(a, (k.shape[0], *a.shape)), row(first))
        # The first turn is that of no feature, so that there is one refit to compile.
        (state, _, _, rows), _ = lax.while_loop(going, body, (Turn(first, jnp.int32(0), no, rows), jnp.int32(-1)))
        assert rows is not None  # as it began
        lowest = lax.cummin(rows.value)
        improves = (k == 0) | (rows.value < jnp.roll(lowest, 1))
        rows = jax.tree.map(lambda a: a[lax.cummax(jnp.where(improves, k, 0))], rows)
        unfinished = ~state.complete & (rows.result == RESULTS.converged)
        return rows._replace(result=jnp.where(unfinished, jnp.int32(RESULTS.max_steps), rows.result))

    def _after(
        self,
        objective: AbstractScored,
        threshold: AbstractUnitThreshold,
        turn: Turn,
        only_drops: Bool[Array, ""] | bool = False,
        begins: Bool[Array, ""] | bool = False,
    ) -> Turn:
        """One feature out where it is superfluous, else the best one in; a run is complete if that brings too little.

        Both are one refit, so that it is compiled once. With `only_drops`, lanes that have none stay as they are. What
        `begins` is fitted as it is.
        """
        state, drops, begins = turn.state, turn.drops, jnp.asarray(begins)
        scores = decreases(objective, threshold, state)
        j = jnp.argmax(scores).astype(jnp.int32)
        wanted = ~drops & ~begins & ~state.complete & (scores[j] > -jnp.inf) & (state.size < limit(threshold))
        grown = appended(objective, threshold, state, j, wanted)
        new = refitted(objective, threshold, either(drops, _without(state, turn.position), grown))
        gain = state.value - new.value
        gains = state.memory._replace(by_size=state.memory.by_size.at[new.size].set(gain))
        gains = either(drops, state.memory, gains)
        gains = either(begins, self._gains(threshold, new.value), gains)
        accepted = drops | begins | (wanted & (gain > gains.least))
        new = new._replace(memory=gains, complete=jnp.zeros((), bool))
        new = either(accepted, new, state._replace(complete=jnp.ones((), bool)))
        position, superfluous = self._weakest(objective, threshold, new)
        new = new._replace(complete=~superfluous & (new.complete | (new.size >= limit(threshold))))
        after = Turn(new, position, superfluous, _collected(turn.rows, new))
        return either(drops | ~jnp.asarray(only_drops), after, turn)

    def _weakest(
        self, objective: AbstractScored, threshold: AbstractUnitThreshold, state: GreedyState
    ) -> tuple[Array, Array]:
        """Position in the support of the feature whose removal costs least, and whether it is to go."""
        support, n_free = state.support, objective.n_free
        z = gather(state.x, support)
        costs = objective.restrict(support).without_each(z, n_free) - state.value
        position = jnp.arange(z.shape[0])
        first = n_free + threshold.keep.shape[0]
        candidate = (position >= first) & (position < first + state.size) & jnp.isfinite(costs)
        costs = jnp.where(candidate, costs, jnp.inf)
        weakest = jnp.argmin(costs).astype(jnp.int32)
        superfluous = costs[weakest] <= self.backward_ratio * state.memory.by_size[state.size]
        return weakest, superfluous & ~state.complete


def _without(state: GreedyState, position: Array) -> GreedyState:
    """The state without the feature at a position of the support, not refitted yet."""
    place = jnp.arange(state.support.idx.shape[0])
    idx = jnp.where(place >= position, jnp.roll(state.support.idx, -1), state.support.idx)
    mask = place < jnp.sum(state.support.mask) - 1
    return state._replace(support=Support(idx, mask), size=state.size - 1)


def _collected(rows: Trail | None, state: GreedyState) -> Trail | None:
    if rows is None:
        return None
    better = state.value < rows.value[state.size]
    return jax.tree.map(lambda a, new: a.at[state.size].set(jnp.where(better, new, a[state.size])), rows, row(state))
