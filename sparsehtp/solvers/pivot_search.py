"""The one loop of a search over supports: pivots on a tableau until no swap improves.

Growth, removal, swaps that are asked for and descent by best swaps differ only in which pivot comes next, so that one
`while_loop` holds them all, with the target size and the levels of the features as data.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._tolerances import tolerance
from ..linalg import any_lane
from ..linalg.tableau import Tableau, addition_gains, pivot, removal_losses, swap_gains
from ..objectives import GramEquations

MAX_PIVOTS = 12  # per row of the tableau and call
KEPT = 2  # the level of features that are always in
HIGHEST = KEPT + 1


class Move(NamedTuple):
    """The next pivot: row i out where `out`, feature j into it where `into`."""

    i: Int[Array, ""]
    j: Int[Array, ""]
    out: Bool[Array, ""]
    into: Bool[Array, ""]
    scores: Float[Array, "p"]  # what each feature would bring, by an addition or its best swap
    gain: Float[Array, ""]  # of the best swap


class Goal(NamedTuple):
    """Where a search is to end: at `size` features beside the kept ones and, with `descend`, where no swap gains more
    than a part of `scale` (None: of the tableau's value). `after` says which pivot to prepare then: an addition (1), a
    removal (-1) or none (0)."""

    kept: Bool[Array, "p"]
    size: Int[Array, ""]
    descend: Bool[Array, ""]
    scale: Float[Array, ""] | None = None
    after: Int[Array, ""] | int = 0


def no_move(t: Tableau) -> Move:
    """Nothing: the search begins by looking at the tableau."""
    zero, no = jnp.int32(0), jnp.zeros((), bool)
    return Move(zero, zero, no, no, jnp.zeros_like(t.g), jnp.zeros_like(t.value))


def swap_noise(equations: Any) -> Array:
    """Gain of a tableau's value that is below the rounding of the sums of squares."""
    return 10 * jnp.finfo(equations.constant.dtype).eps * equations.constant


def settle(
    equations: Any, t: Tableau, move: Move, level: Int[Array, "p"], goal: Goal
) -> tuple[Tableau, Move, Int[Array, "p"]]:
    """Pivot until the goal is met: the tableau, the pivot to go on with, and the levels left.

    Features of a higher level come in first, and swaps, good or bad, take in those of a higher level for those of the
    lowest. The levels are given up, all set to zero, once that is done: best swaps follow until none improves.
    """
    # Columns that are at hand need no priority.
    at_hand = isinstance(equations, GramEquations)
    noise, limit = swap_noise(equations), MAX_PIVOTS * (t.idx.shape[0] + 1)

    def going(carry: Any) -> Array:
        *_, settled, count = carry
        return any_lane(~settled) & (count < limit)

    def body(carry: Any) -> Any:
        t, move, level, settled, count = carry
        priority = None if at_hand else move.scores
        t = pivot(equations.columns, t, move.i, move.j, move.out & ~settled, move.into & ~settled, priority)
        return t, *_next_move(t, level, goal, noise), count + 1

    return lax.while_loop(going, body, (t, move, level, jnp.zeros((), bool), jnp.int32(0)))[:3]


def _next_move(t: Any, level: Any, goal: Goal, noise: Array) -> Any:
    """The next pivot, the levels, and whether the goal is met."""
    feature = jnp.maximum(t.idx, 0)
    rows = (t.idx >= 0) & ~goal.kept[feature]  # those that may leave
    size = jnp.sum(rows, dtype=jnp.int32)
    adds = addition_gains(t)
    top = jnp.max(jnp.where(adds > -jnp.inf, level, -1))
    adds = jnp.where(level == top, adds, -jnp.inf)
    grows = (top == KEPT) | ((top >= 0) & (size < goal.size))
    shrinks = ~grows & (size > goal.size)

    ranks = jnp.where(rows, level[feature], HIGHEST)
    lowest = jnp.min(ranks)
    wanted = jnp.any(~t.chosen & (level > lowest))
    leaving = rows & ((ranks == lowest) | ~wanted)
    best = jnp.max(swap_gains(t, leaving), axis=0)
    highest = jnp.max(jnp.where(best > -jnp.inf, level, -1))
    forced = wanted & (highest > lowest)
    best = jnp.where(~forced | (level == highest), best, -jnp.inf)
    gain = jnp.max(best)
    scale = t.value if goal.scale is None else goal.scale
    improves = goal.descend & ~wanted & (gain > tolerance("swap", t.c.dtype) * scale + noise)
    swaps = ~grows & ~shrinks & (forced | improves)
    settled = ~(grows | shrinks | swaps | wanted)

    adding = grows | (settled & (goal.after > 0) & (top >= 0))
    removing = shrinks | (settled & (goal.after < 0) & (size > 0))
    scores = jnp.where(adding, adds, best)
    j = jnp.argmax(scores).astype(jnp.int32)
    # Which row: that of the swap, a free one, or the one that is missed least.
    worth = jnp.where(swaps, swap_gains(t, leaving, j[None])[:, 0], -removal_losses(t, rows))
    i = jnp.argmax(jnp.where(adding, jnp.where(t.idx < 0, 0.0, -jnp.inf), worth)).astype(jnp.int32)
    level = jnp.where(grows | shrinks | forced, level, 0)
    return Move(i, j, swaps | removing, swaps | adding, scores, gain), level, settled
