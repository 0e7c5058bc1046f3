"""The one loop of a search over supports: pivots on a tableau until no swap improves.

Growth, removal, swaps that are asked for, descent by best swaps and walks on from where a descent ends differ only in
which pivot comes next, so that one `while_loop` holds them all, with the target size and the levels of the features as
data.
"""

from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt32

from .._tolerances import tolerance
from ..linalg import any_lane, uniform
from ..linalg.tableau import Equations, Tableau, addition_gains, pivot, removal_losses, swap_gains
from ..objectives import GramEquations

MAX_PIVOTS = 12  # per row of the tableau and call
KEPT = 2  # the level of features that are always in
HIGHEST = KEPT + 1
# Counters of a walk's draws, which no feature has. One of eighty: with it no answer on the 25 instances of
# benchmarks/best_subset.py is above what it was before there were walks.
DRAWS = 2**31 + 75_000
WALK, PER_FEATURE = 20, 2  # swaps at most, and for each feature, without a new lowest value, after which a walk ends
# Pivots, and share of the size, for which a walk holds what it took out and in; one half more or less.
OUT, IN = 5, 0.15


class Move(NamedTuple):
    """The next pivot: row i out where `out`, feature j into it where `into`."""

    i: Int[Array, ""]
    j: Int[Array, ""]
    out: Bool[Array, ""]
    into: Bool[Array, ""]
    scores: Float[Array, "p"]  # what each feature would bring, by an addition or its best swap
    gain: Float[Array, ""]  # of the best swap


class Roam(NamedTuple):
    """A descent that goes on: the best swap is made even where it gains nothing, and what went out or came in is held
    there for some pivots, so that the walk leaves the optimum behind. `seed` draws for how many."""

    on: Bool[Array, ""]
    seed: UInt32[Array, ""]


class Lowest(NamedTuple):
    """The best support that a walk met, the swaps made since, and the pivots until which features are held."""

    idx: Int[Array, "m"]
    value: Float[Array, ""]
    since: Int[Array, ""]
    held: Int[Array, "p"]


class Goal(NamedTuple):
    """Where a search is to end: at `size` features beside the kept ones and, with `descend`, where no swap gains more
    than a part of `scale` (None: of the tableau's value). `after` says which pivot to prepare then: an addition (1), a
    removal (-1) or none (0). With `roam` it goes on from there."""

    kept: Bool[Array, "p"]
    size: Int[Array, ""]
    descend: Bool[Array, ""]
    scale: Float[Array, ""] | None = None
    after: Int[Array, ""] | int = 0
    roam: Roam | None = None


Settled: TypeAlias = tuple[Tableau, Move, Array, Lowest | None]  # with the levels left
_Carry: TypeAlias = tuple[Tableau, Move, Array, Lowest | None, Array, Array]  # and: the goal is met; pivots made


def share_of(roam: Roam, count: Array) -> Float[Array, ""]:
    """One half more or less, for how long a walk holds what it moves."""
    return 0.5 + uniform(roam.seed, jnp.uint32(DRAWS) + count.astype(jnp.uint32))


def no_move(t: Tableau) -> Move:
    """Nothing: the search begins by looking at the tableau."""
    zero, no = jnp.int32(0), jnp.zeros((), bool)
    return Move(zero, zero, no, no, jnp.zeros_like(t.g), jnp.zeros_like(t.value))


def swap_noise(equations: Equations) -> Array:
    """Gain of a tableau's value that is below the rounding of the sums of squares."""
    return 10 * jnp.finfo(equations.constant.dtype).eps * equations.constant


def settle_entries(equations: Equations, t: Tableau, move: Move, level: Int[Array, "p"], goal: Goal) -> Settled:
    """Pivot until the goal is met: the tableau, the pivot to go on with, the levels left, and what a walk found.

    Features of a higher level come in first, and swaps, good or bad, take in those of a higher level for those of the
    lowest. The levels are given up, all set to zero, once that is done: best swaps follow until none improves.
    """
    # Columns that are at hand need no priority.
    at_hand = isinstance(equations, GramEquations)
    noise, limit = swap_noise(equations), MAX_PIVOTS * (t.idx.shape[0] + 1)
    lowest = None
    if goal.roam is not None:
        lowest = Lowest(t.idx, jnp.full_like(t.value, jnp.inf), jnp.int32(0), jnp.full_like(level, -1))

    def going(carry: _Carry) -> Array:
        *_, settled, count = carry
        return any_lane(~settled) & (count < limit)

    def body(carry: _Carry) -> _Carry:
        t, move, level, lowest, settled, count = carry
        priority = None if at_hand else move.scores
        t = pivot(equations.rows, t, move.i, move.j, move.out & ~settled, move.into & ~settled, priority)
        return t, *_next_move(t, level, lowest, goal, noise, count), count + 1

    carry = (t, move, level, lowest, jnp.zeros((), bool), jnp.int32(0))
    return lax.while_loop(going, body, carry)[:4]


def _next_move(
    t: Tableau, level: Array, lowest: Lowest | None, goal: Goal, noise: Array, count: Array
) -> tuple[Move, Array, Lowest | None, Array]:
    """The next pivot, the levels, what the walk found, and whether the goal is met."""
    feature = jnp.maximum(t.idx, 0)
    rows = (t.idx >= 0) & ~goal.kept[feature]  # those that may leave
    size = jnp.sum(rows, dtype=jnp.int32)
    adds = addition_gains(t)
    top = jnp.max(jnp.where(adds > -jnp.inf, level, -1))
    adds = jnp.where(level == top, adds, -jnp.inf)
    grows = (top == KEPT) | ((top >= 0) & (size < goal.size))

    ranks = jnp.where(rows, level[feature], HIGHEST)
    bottom = jnp.min(ranks)
    wanted = jnp.any(~t.chosen & (level > bottom))
    leaving = rows & ((ranks == bottom) | ~wanted)
    if lowest is not None:
        leaving &= lowest.held[feature] < count
    best = jnp.max(swap_gains(t, leaving), axis=0)
    if lowest is not None:
        best = jnp.where(lowest.held < count, best, -jnp.inf)
    highest = jnp.max(jnp.where(best > -jnp.inf, level, -1))
    forced = wanted & (highest > bottom)
    best = jnp.where(~forced | (level == highest), best, -jnp.inf)
    gain = jnp.max(best)
    scale = t.value if goal.scale is None else goal.scale
    least = tolerance("swap", t.c.dtype) * scale + noise
    onward = gain > least
    if lowest is not None and goal.roam is not None:
        there = ~(grows | wanted)
        lower = there & (t.value + least < lowest.value)
        since = jnp.where(lower, 0, lowest.since + there)
        onward = jnp.where(
            goal.roam.on, (since < jnp.minimum(WALK, PER_FEATURE * goal.size)) & (gain > -jnp.inf), onward
        )
    swaps = ~grows & (forced | (goal.descend & ~wanted & onward))
    settled = ~(grows | swaps | wanted)

    adding = grows | (settled & (goal.after > 0) & (top >= 0))
    removing = settled & (goal.after < 0) & (size > 0)
    scores = jnp.where(adding, adds, best)
    j = jnp.argmax(scores).astype(jnp.int32)
    # Which row: that of the swap, a free one, or the one that is missed least.
    worth = jnp.where(swaps, swap_gains(t, leaving, j[None])[:, 0], -removal_losses(t, rows))
    i = jnp.argmax(jnp.where(adding, jnp.where(t.idx < 0, 0.0, -jnp.inf), worth)).astype(jnp.int32)
    level = jnp.where(grows | forced, level, 0)
    if lowest is not None and goal.roam is not None:
        share = share_of(goal.roam, count)
        steps = swaps & there & goal.roam.on
        until = lowest.held.at[feature[i]].set(count + (OUT * share).astype(jnp.int32))
        until = until.at[j].set(count + (IN * goal.size * share).astype(jnp.int32))
        lowest = Lowest(
            idx=jnp.where(lower, t.idx, lowest.idx),
            value=jnp.where(lower, t.value, lowest.value),
            since=since,
            held=jnp.where(steps, until, lowest.held),
        )
    return Move(i, j, swaps | removing, swaps | adding, scores, gain), level, lowest, settled
