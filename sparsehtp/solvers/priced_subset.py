"""Best subsets of features that each have a price: exact moves on a tableau, and perturbed starts."""

from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float, Int

from .._tolerances import tolerance
from .._types import Info, Support, replace
from ..duality.dual import Dual
from ..iteration.termination import SwapOptimal
from ..linalg import any_lane, dot, either, lane_by_lane, max_lane, top_k
from ..linalg.tableau import Equations, Tableau, pivot, removal_losses, swap_gains, tableau_at, turned
from ..objectives import GramEquations, LinearModel
from ..thresholds import L0L1L2, AbstractThreshold
from .base import AbstractSolver, report
from .best_subset import EFFORTS, start_count
from .cdss import CDSSState, best_swap, descended, entry_gains, looked_around, no_swap, state_at
from .pivot_search import IN, MAX_PIVOTS, OUT, PER_FEATURE, WALK, Roam, share_of, swap_noise
from .primal_dual import centred_intercept, supported
from .search import affordable, renewed
from .starts import from_starts, parts, seed_of
from .working_set import gram_equations, swap_scores

ROOM = 64  # rows of a tableau: of a larger support, three quarters as many may leave
TRIALS = 16  # supports that are fitted in a step where the tableau is that of a local model


class Found(NamedTuple):
    """The best support that a search met, its coefficients, and the tableau's value there with all prices."""

    idx: Int[Array, "m"]
    c: Float[Array, "m"]
    value: Float[Array, ""]


class Candidate(NamedTuple):
    """A support to be fitted, where its coefficients start, and the tableau's value there with all prices."""

    inside: Bool[Array, "w"]
    c: Float[Array, "w"]
    value: Float[Array, ""]


class Prices(NamedTuple):
    """The price of each feature in units of the tableau's value, which ones a search is first offered, which are always
    in (at a bound, or as too many for the tableau), and the scale that gains are compared with."""

    l0: Float[Array, "w"]
    offered: Bool[Array, "w"]
    fixed: Bool[Array, "w"]
    scale: Float[Array, ""]


class PricedState(NamedTuple):
    """A point, first all that `CDSSState` says of one, and how the search for a better one stands.

    Attributes:
        failures: searches without improvement since the last one that had it.
        features, equations: the working set, and its normal equations.
        stale: the point has left them.
    """

    x: Array
    support: Support
    value: Array
    grad: Array
    energies: Array
    centres: Array | None
    local: Array
    optimal: Array
    step_size: Array
    failures: Array
    features: Array
    equations: GramEquations
    stale: Array
    key: Array

    @property
    def point(self) -> CDSSState:
        return CDSSState(*self[:9])


_Carry: TypeAlias = tuple[Tableau, Found, Array, Array, Array, Array, Array]


def settle_prices(equations: Equations, t: Tableau, prices: Prices, roam: Roam) -> Found:
    """Pivot until no entry, removal or exchange gains more than it costs: the best support met.

    A coefficient that has changed its sign leaves first. Then come the best moves among what is offered, then those of
    all, until the value falls no more, or a walk ends.
    """
    m, w = t.idx.shape[0], prices.l0.shape[0]
    least = tolerance("swap", t.c.dtype) * prices.scale + swap_noise(equations)

    def body(carry: _Carry) -> _Carry:
        t, best, since, held, open_, _, count = carry
        rows, feature = t.idx >= 0, jnp.maximum(t.idx, 0)
        wrong = turned(t)
        forced = jnp.any(wrong)
        total = t.value + jnp.sum(jnp.where(rows, prices.l0[feature], 0))
        there = open_ & ~forced
        lower = there & (total + least < best.value)
        best = either(lower, Found(t.idx, t.c, total), best)
        since = jnp.where(lower, 0, since + there)

        may_leave = rows & (prices.l0[feature] > 0) & (held[feature] < count)
        gains = move_gains(t, may_leave, prices.l0, (prices.offered | open_ & ~prices.fixed) & (held < count))
        gain = jnp.max(gains)
        i, j = jnp.divmod(jnp.argmax(gains).astype(jnp.int32), w + 1)
        i = jnp.where(forced, jnp.argmax(jnp.where(wrong, removal_losses(t, rows), -1)).astype(jnp.int32), i)
        walks = (since < jnp.minimum(WALK, PER_FEATURE * (2 + jnp.sum(rows)))) & (gain > -jnp.inf)
        onward = forced | jnp.where(roam.on & open_, walks, (gain > least) & (since == 0))
        out, into = onward & (i < m), onward & ~forced & (j < w)

        share = share_of(roam, count)
        until = held.at[feature[jnp.minimum(i, m - 1)]].max(jnp.where(out, count + (OUT * share).astype(jnp.int32), -1))
        stay = (IN * jnp.sum(rows) * share).astype(jnp.int32)
        until = until.at[jnp.minimum(j, w - 1)].max(jnp.where(into, count + stay, -1))
        held = jnp.where(roam.on & there, until, held)
        row = jnp.where(i < m, i, jnp.argmin(t.idx)).astype(jnp.int32)
        t = pivot(equations.rows, t, row, jnp.minimum(j, w - 1), out, into, None)
        return t, best, since, held, open_ | ~onward, ~onward & open_, count + 1

    nothing = Found(t.idx, t.c, jnp.full_like(t.value, jnp.inf))
    carry = (t, nothing, jnp.int32(0), jnp.full(w, -1, jnp.int32), ~roam.on, jnp.zeros((), bool), jnp.int32(0))
    limit = MAX_PIVOTS * (m + 1)
    return lax.while_loop(lambda c: any_lane(~c[5]) & (c[6] < limit), body, carry)[1]


def move_gains(
    t: Tableau, may_leave: Bool[Array, "m"], l0: Float[Array, "w"], may_enter: Bool[Array, "w"]
) -> Float[Array, "m+1 w+1"]:
    """Gains of all moves: row i out, feature j in; nothing out in the last row, nothing in in the last column."""
    dtype, w = t.c.dtype, l0.shape[0]
    # A row of nothing, with room for what comes in.
    more = t._replace(
        idx=jnp.append(t.idx, -1),
        inverse=jnp.pad(t.inverse, (0, 1)).at[-1, -1].set(1),
        H=jnp.vstack([t.H, jnp.zeros((1, w), dtype)]),
        c=jnp.append(t.c, 0),
    )
    gains = swap_gains(more, jnp.append(may_leave, jnp.any(t.idx < 0)))
    gains = jnp.where(may_enter, gains - l0, -jnp.inf)
    alone = jnp.append(-removal_losses(t, may_leave), -jnp.inf)
    back = jnp.append(jnp.where(t.idx >= 0, l0[t.idx], 0), 0)
    return jnp.hstack([gains, alone[:, None]]) + back[:, None]


class PricedSubset(AbstractSolver):
    """The best features at a price for each, found by exact entries, removals and exchanges, and perturbed starts.

        min_w F(w) + l0 ||w||_0 + l1 ||w||_1

    A step is either a coordinate descent, as that of `CDSS`, or, where no coordinate improves alone, a search among the
    features of a working set: the entry, the removal or the exchange that gains most beyond its price, all coefficients
    optimised again at their signs, until none gains. A coefficient whose sign turns on the way leaves. Where the search
    ends at the present point, the next ones begin from parts of its support and walk on from where they end, as those
    of `BestSubset`. For a loss that is not squared, and within bounds, gains are those of the local quadratic model
    without bounds; what they promise is fitted by coordinate descent under the objective itself, which alone decides.

    Args:
        effort: "fast" (no perturbed starts), "default" or "thorough".

    Guarantee: that of `CDSS`, and if it says converged with a squared loss without bounds and at most 48 features, no
    entry, removal or exchange within the last working set lowers the objective by more than 1e-5 of it in float32,
    1e-10 in float64, at the signs that the other coefficients have. Of more features, the 48 that are missed least may
    leave in a search; the others are exchanged as by `CDSS`.

    Raises:
        ValueError: if effort is not one of the three.
        TypeError: for a loss that is not smooth.

    Source: exact swaps as in full-swap inescapability, and prices, Hazimeh and Mazumder (2020); walks as in tabu
    search, Glover (1989).
    """

    effort: str = eqx.field(static=True, default="default")

    requires = LinearModel
    needs_curvature = True
    needs_smoothness = True
    default_termination = SwapOptimal()
    default_max_steps = 500

    def __check_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise ValueError(f"effort: must be one of {', '.join(EFFORTS)}, got {self.effort!r}.")

    @classmethod
    def takes(cls, threshold: AbstractThreshold) -> bool:
        return threshold.penalises

    def init(self, objective: LinearModel, threshold: L0L1L2, x0: Array, key: Array) -> PricedState:
        width, dtype = self._width(objective), objective.dtype
        vector = jnp.zeros(width, dtype)
        return PricedState(
            *state_at(Dual(objective, threshold), *supported(threshold, x0)),
            failures=jnp.int32(0),
            features=jnp.arange(width, dtype=jnp.int32),
            equations=GramEquations(jnp.zeros((width, width), dtype), vector, vector, jnp.zeros((), dtype)),
            stale=jnp.ones((), bool),
            key=key,
        )

    def step(self, objective: LinearModel, threshold: L0L1L2, state: PricedState, t: Array) -> tuple[PricedState, Info]:
        dual, p, here = Dual(objective, threshold), objective.n_coefficients, state.point
        patience = EFFORTS[self.effort].patience

        def far() -> tuple[Array, Array, GramEquations]:
            model = renewed(state.stale, lambda: self._model(dual, state), (state.features, state.equations))
            return self._explored(dual, state, *model, t), *model

        shape = jax.eval_shape(far)[0]
        stay = jnp.broadcast_to(here.x, shape.shape), state.features, state.equations
        points, features, equations = either(here.local, lax.cond(any_lane(here.local), far, lambda: stay), stay)
        gain, _ = entry_gains(dual, here.energies, here.grad, here.x)
        enters = (gain > dual.prices[0]) & ~here.local

        def descend(i: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
            point, own = points[i], i == 0
            inside, last = point[:p] != 0, own & (state.failures >= patience)
            found = descended(dual, here, point, inside | enters, last, inside & ~own)
            return either((found[1] < best[1]) & (own | here.local), found, best)

        number = max_lane(jnp.where(here.local, points.shape[0], 1))
        x, value = lax.fori_loop(0, number, descend, (here.x, here.value))
        better = value < here.value
        grad, fine, enters = looked_around(dual, here, x, value)
        improved = better & (here.value - value > jnp.where(here.local, tolerance("swap", value.dtype) * value, fine))
        failures = jnp.where(improved, 0, state.failures + here.local)
        whole = objective.quadratic and features.shape[0] == p
        new = state._replace(
            x=x,
            support=threshold.support(x[:p]),
            value=value,
            grad=grad,
            local=~improved | (~here.local & ~enters),
            failures=failures,
            features=features,
            equations=equations,
            stale=(state.stale & ~here.local) | (better & ~jnp.asarray(whole)),
            optimal=failures > patience,
        )
        return new, report(objective, threshold, state, new, value=value - threshold.value(x), design_products=2)

    def _width(self, objective: LinearModel) -> int:
        width = affordable(EFFORTS[self.effort].width, objective.ifo_per_gradient)
        return min(max(width, 2 * ROOM), objective.n_coefficients)

    def _model(self, dual: Dual, state: PricedState) -> tuple[Array, GramEquations]:
        """The features that promise most, and the normal equations around the point."""
        objective, here = dual.objective, state.point
        width, p = state.features.shape[0], objective.n_coefficients
        features, within, x = state.features, objective, here.x
        if width < p:
            equations, w = objective.normal_equations(x), x[:p]
            idx, mask = _rows(w != 0, ROOM)
            gain, _ = entry_gains(dual, here.energies, here.grad, x)
            gain = jnp.maximum(2 * (gain - dual.prices[0]), swap_scores(equations, jnp.zeros(p, bool), idx, mask))
            features = top_k(jnp.where(w != 0, jnp.inf, gain), width)
            within, x = objective.subset(features), jnp.concatenate([w[features], x[p:]])
        return features, gram_equations(within.normal_equations(x))

    def _explored(
        self, dual: Dual, state: PricedState, features: Array, equations: GramEquations, t: Array
    ) -> Float[Array, "m d"]:
        """The present point, and those that searches from it lead to."""
        here, repeated = state.point, state.failures > 0
        starts, p = EFFORTS[self.effort].starts, dual.objective.n_coefficients
        w, width, room = here.x[features], features.shape[0], min(ROOM, features.shape[0])
        l0, l1 = (each[features] for each in dual.prices)
        inside, sides, bound = w != 0, jnp.stack([l1, l1]), jnp.zeros(width, bool)
        if dual.threshold.bounded:
            box = replace(dual.threshold, n_free=0).box(Support(features, jnp.ones(width, bool)))
            for side, end in enumerate((box.upper, box.lower)):
                if end is not None:
                    sides = sides.at[side].set(jnp.where(end == 0, jnp.inf, l1))
                    bound |= w == end
        count = jnp.sum(here.x[:p] != 0)
        fits = count == jnp.sum(inside)  # a support larger than the working set is exchanged as by `CDSS`
        firm = (
            inside & fits & ~bound & (_ranks(jnp.where(inside, w**2 * equations.diagonal, -1)) < count - 3 * room // 4)
        )
        signed = jnp.where(w > 0, sides[0], -sides[1])
        equations = lax.cond(any_lane(jnp.any(firm)), lambda: without(equations, firm, signed), lambda: equations)

        def begun(inside: Array) -> tuple[Tableau, GramEquations, Array]:
            """The tableau of what is inside, where coefficients at a bound stay there."""
            stays = inside & bound
            idx, mask = _rows(inside & ~stays & ~firm & fits, room)
            z = jnp.where(stays, w, 0)
            product = dot(equations.A, z)
            cost = dot(z, product - 2 * equations.rhs) + jnp.sum(jnp.where(stays, 2 * l0 + 2 * l1 * jnp.abs(z), 0))
            own = replace(equations, rhs=equations.rhs - product, constant=equations.constant + cost)
            return tableau_at(own, idx, mask, sides, w[idx]), own, stays | firm

        def spread(found: Found, stays: Array) -> Candidate:
            live = jnp.where(found.idx >= 0, found.idx, width)
            chosen = stays.at[live].set(True, mode="drop")
            return Candidate(chosen, jnp.where(stays, w, 0).at[live].set(found.c, mode="drop"), found.value)

        def search(i: Array) -> tuple[Candidate, Tableau, Array]:
            seed = seed_of(state.key, t, i)
            stay, offered = parts(seed, features, inside & (l0 > 0) & ~firm)
            stay, offered = (jnp.where(i == 0, True, each) for each in (stay | (l0 <= 0), offered))
            tableau, own, stays = begun(inside & stay)
            prices = Prices(2 * l0, offered & ~stays, stays, 2 * jnp.abs(here.value))
            return spread(settle_prices(own, tableau, prices, Roam(i > 0, seed)), stays), tableau, stays

        (own, tableau, stays), ends = from_starts(
            search, lambda end: end[0], starts, repeated & fits, start_count(starts, count)
        )
        may_leave = (tableau.idx >= 0) & (l0[tableau.idx] > 0)
        gains = move_gains(tableau, may_leave, 2 * l0, ~stays)
        exact = dual.objective.quadratic and not dual.threshold.bounded
        best = top_k(gains.ravel(), min(1 if exact else TRIALS, gains.size))
        others = jax.vmap(lambda flat: spread(_moved(equations, tableau, gains, flat), stays))(best)
        if starts:
            # Each support once: starts meet again.
            known = jnp.vstack([inside, ends.inside])
            again = jnp.tril(jnp.all(known[:, None] == known, axis=2), -1).any(axis=1)[1:]
            again |= jnp.arange(starts) >= start_count(starts, count)
            order = jnp.argsort(jnp.where(again, jnp.inf, ends.value))[jnp.arange(best.size) % starts]
            others = jax.tree.map(lambda far, near: jnp.where(repeated, far[order], near), ends, others)
        candidates = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), own, others)
        points = jax.vmap(lambda c: jnp.zeros(p, c.dtype).at[features].set(c))(candidates.c)
        points = jnp.where(fits, points, here.x[:p])
        shift = centred_intercept(here.x, here.centres, dual.objective.n_free)
        shifts = shift if here.centres is None else shift - dot(points, here.centres)
        points = jax.vmap(dual.lift)(points, jnp.broadcast_to(shifts, points.shape[:1]))
        # That of `CDSS`, of all features.
        swap = lax.cond(any_lane(~repeated), lambda: best_swap(dual, here), lambda: no_swap(here.value))
        wanted = ~repeated & (swap.gain > 0) & jnp.any(dual.prices[0] > 0)
        swapped = jnp.where(wanted, here.x.at[swap.out].set(0).at[swap.new].set(swap.size), here.x)
        return jnp.vstack([here.x, points, swapped])


def without(equations: GramEquations, firm: Bool[Array, "w"], signed: Float[Array, "w"]) -> GramEquations:
    """The equations of the other features with the firm ones always in, at slopes `signed` of magnitude."""
    A, pull = equations.A, jnp.where(firm, equations.rhs - signed, 0)
    # In the data's precision and never singular: the moves that follow are a model's, and what they bring is fitted.
    slack = 1 + 10 * jnp.finfo(A.dtype).eps * jnp.sum(firm)
    own = jnp.where(firm[:, None] & firm, A, 0) + jnp.diag(jnp.where(firm, (slack - 1) * equations.diagonal, 1))
    both = jnp.hstack([jnp.where(firm[:, None], A, 0), pull[:, None]])
    solved = lane_by_lane(lambda own, both: cho_solve(cho_factor(own), both))(own, both)
    share, c = solved[:, :-1], solved[:, -1]
    A = A - dot(A, share)
    return GramEquations(A, equations.rhs - dot(equations.A, c), jnp.diagonal(A), equations.constant - dot(c, pull))


def _ranks(sizes: Float[Array, "w"]) -> Int[Array, "w"]:
    """The place of each from the largest on."""
    return jnp.argsort(jnp.argsort(-sizes))


def _rows(inside: Bool[Array, "w"], room: int) -> tuple[Int[Array, "m"], Bool[Array, "m"]]:
    """The places of what is inside, `room` at most, and which of them are filled."""
    idx = jnp.nonzero(inside, size=room, fill_value=0)[0].astype(jnp.int32)
    return idx, jnp.arange(room) < jnp.sum(inside)


def _moved(equations: Equations, t: Tableau, gains: Float[Array, "m+1 w+1"], flat: Array) -> Found:
    """The support after one of the moves, and its coefficients."""
    m, w = t.idx.shape[0], t.g.shape[0]
    i, j = jnp.divmod(flat, w + 1)
    there = gains[i, j] > -jnp.inf
    row = jnp.where(i < m, i, jnp.argmin(t.idx))
    after = pivot(equations.rows, t, row, jnp.minimum(j, w - 1), there & (i < m), there & (j < w), None)
    return Found(after.idx, after.c, after.value)
