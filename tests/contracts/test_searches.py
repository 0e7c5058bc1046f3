"""The parts of every search over subsets against brute force: what follows a step, perturbed starts, and settling."""

import itertools
from types import SimpleNamespace

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.linalg.tableau import tableau_at
from sparsehtp.objectives import GramEquations
from sparsehtp.solvers import pivot_search
from sparsehtp.solvers.best_subset import _chosen_before, _end, _near, _scale, start_count
from sparsehtp.solvers.pivot_search import KEPT, Goal, Lowest, Roam, _next_move, no_move, settle_entries, swap_noise
from sparsehtp.solvers.search import DESCEND, PERTURB, SINGLE, SWAPS, Point, best_of, first_state
from sparsehtp.solvers.starts import from_starts, parts, seed_of

pytestmark = pytest.mark.usefixtures("x64")
P, ROOM = 10, 5
KEY = jax.random.key(3)


def test_what_follows_a_step():
    """Descents after progress, single swaps after a move in the model alone, and then starts elsewhere, in turn."""
    objective, flags = sht.QuadraticForm(np.eye(2), np.ones(2)), [False, True]
    state = first_state(objective, np.zeros(2), None, np.zeros(2, bool), None, KEY)
    assert state.value == np.inf and state.stale and not state.optimal and state.step_size == 1
    for improved, moved, far, sure, failures, patience in itertools.product(*4 * [flags], (0, 1, 2), (0, 2)):
        each = map(np.bool_, (improved, moved, far, sure))
        after = state._replace(failures=np.int32(failures)).progressed(*each, patience)
        count = 0 if improved else failures + far
        assert after.failures == count
        assert after.stage == (DESCEND if improved else SINGLE if moved else PERTURB)
        assert after.optimal == (sure and not moved and not improved and count >= patience)


def test_the_best_refit_is_the_least_number_and_starts_are_as_many_as_they_may():
    """No more than are compiled, and more of them from small supports, whose walks are short."""
    values = jnp.array([np.nan, 3.0, np.inf, 1.0, -np.inf, 2.0])
    assert best_of(lambda i: Point(i, values, values[i], 0), jnp.arange(6)).where == 3
    assert best_of(lambda i: Point(i, values, values[i], 0), jnp.arange(1)).where == 0
    counts = [int(start_count(20, k)) for k in range(60)]
    assert counts[:3] == [20, 20, 20] and counts[5] == counts[-1] == 8 and counts == sorted(counts, reverse=True)


@pytest.mark.parametrize(("far", "count", "made"), [(True, None, 4), (True, 2, 2), (False, None, 0)])
def test_every_start_ends_in_its_place(far, count, made):
    own, ends = from_starts(lambda i: 10 * i + 1, lambda end: -end, 4, jnp.asarray(far), count)
    np.testing.assert_array_equal([own, *ends[: made or 3]], [1, *([-11, -21, -31, -41][:made] or [0, 0, 0])])
    own, ends = from_starts(lambda i: 10 * i + 1, lambda end: -end, 0, jnp.asarray(far))
    assert own == 1 and ends.shape == (0,)


def test_what_a_perturbed_start_leaves_out_and_offers():
    units, may_leave = np.arange(300), np.arange(300) % 3 == 0

    @cases.jit
    def drawn(units, may_leave):
        seeds = jax.vmap(lambda i: seed_of(KEY, i // 20, i % 20))(jnp.arange(400))
        return seeds, *jax.vmap(parts, in_axes=(0, None, None))(seeds, units, may_leave)

    seeds, stay, offered = map(np.asarray, drawn(units, may_leave))
    assert np.unique(seeds).size == 400 and not stay[:, ~may_leave].any()
    left = 1 - stay[:, may_leave].mean(1)
    assert abs(left.mean() - 0.65) < 0.03 and left.max() == 1 and 0.1 < left.min() < 0.35, "from 0.3 of them to all"
    share = offered.mean(1)  # 2^-1 to 2^-5, by their logarithm
    assert abs(share.mean() - 0.169) < 0.02 and share.max() < 0.7 and np.median(share) < 0.16
    assert not np.any(drawn(units, units == 7)[1]), "one at least leaves"
    for one, other in zip((stay, offered), drawn(units[::-1], may_leave[::-1])[1:], strict=True):
        np.testing.assert_array_equal(one[:, ::-1], other)


KEEP = 0


class Brute:
    """A least-squares problem whose columns share much of their variance, support by support."""

    def __init__(self, seed, noise=1.0):
        rng = np.random.default_rng(seed)
        X = cases.chained(rng.standard_normal((40, P)), 0.8)
        w = rng.choice([-1.0, 0, 1], P) if noise else np.append(rng.uniform(1, 2, 2), np.zeros(P - 2))
        y = X @ w + noise * rng.standard_normal(40)
        self.A, self.b, self.c = X.T @ X + 0.1 * noise * np.eye(P), X.T @ y, y @ y
        A = jnp.asarray(self.A)
        self.equations = GramEquations(A, jnp.asarray(self.b), jnp.diagonal(A), jnp.asarray(self.c))

    def value(self, S):
        S = sorted(S)
        return self.c - self.b[S] @ np.linalg.solve(self.A[np.ix_(S, S)], self.b[S])

    def least(self, supports):
        return min(map(frozenset, supports), key=self.value)

    def settled(self, size, begin=(KEEP,), asked=(), descend=False, after=0, walk=False, seed=0):
        """(support, move, gain of the best swap, end) from a support, with the kept feature, and what is asked for."""
        level = np.where(np.arange(P) == KEEP, KEPT, np.isin(np.arange(P), list(asked))).astype(np.int32)
        idx = np.array([*begin, *[0] * (ROOM - len(begin))], np.int32)
        numbers = np.int32(size), np.bool_(descend), np.int32(after), np.bool_(walk), np.uint32(seed)
        end = settle(self.equations, idx, np.arange(ROOM) < len(begin), level, *numbers)
        t, move, left, _ = end
        S = frozenset(int(j) for j in t.idx if j >= 0)
        np.testing.assert_allclose(t.value, self.value(S), rtol=1e-9)
        assert KEEP in S and len(S) == size + 1 and not np.any(left)
        swaps = [S - {i} | {j} for i in S - {KEEP} for j in {*range(P)} - S]
        gain = self.value(S) - min(map(self.value, swaps), default=np.inf)
        assert walk or np.isclose(move.gain, gain, rtol=1e-7, atol=1e-9)
        return S, (int(t.idx[move.i]), int(move.j), bool(move.out), bool(move.into)), gain, end


@cases.jit
def settle(equations, idx, mask, level, size, descend, after, on, seed):
    t = tableau_at(equations, idx, mask)
    goal = Goal(jnp.arange(P) == KEEP, size, descend, None, after, Roam(on, seed))
    return settle_entries(equations, t, no_move(t), level, goal)


@pytest.mark.parametrize("seed", range(3))
def test_settling_is_that_of_brute_force(seed):
    problem, S = Brute(seed), frozenset({KEEP})
    for size in range(5):  # growth by the best feature, what goes or comes next, and best swaps
        others = {*range(P)} - S
        found, move, _, _ = problem.settled(size, after=1)
        more = problem.least(S | {j} for j in others)
        assert found == S and (size == 4 or (S | {move[1]}, *move[2:]) == (more, False, True))
        _, move, _, _ = problem.settled(size, begin=S, asked=S, after=-1)
        assert move[2:] == (size > 0, False)
        assert not size or S - {move[0]} == problem.least(S - {i} for i in S - {KEEP})
        assert problem.settled(size, descend=True)[2] <= 1e-8 * problem.c
        S = more
    new, begin = {3, 5, 9}, problem.settled(3, asked=[1, 2, 4])[0]
    assert begin == {1, 2, 4, KEEP} and problem.settled(3, begin, new)[0] == {*new, KEEP}, "asked for, good or bad"
    assert problem.settled(4, asked=new)[0] == problem.least({*new, KEEP, j} for j in {1, 2, 4, 6, 7, 8})


@pytest.mark.parametrize("walk", [False, True])
def test_no_swap_gains_where_all_is_explained(walk):
    """The rest is rounding: neither a descent nor a walk ends elsewhere, nor says that there is a gain."""
    for seed in range(6):
        equations = Brute(seed, noise=0).equations
        begin = np.array([KEEP, 1, 3, 4, 0], np.int32)
        level = np.where(np.arange(P) == KEEP, KEPT, 0).astype(np.int32)
        numbers = np.int32(3), np.bool_(True), np.int32(0), np.bool_(walk), np.uint32(seed)
        t, move, _, lowest = settle(equations, begin, np.arange(ROOM) < 4, level, *numbers)
        assert {*(lowest.idx if walk else t.idx)[:4].tolist()} == {KEEP, 1, 3, 4}, seed
        assert move.gain <= swap_noise(equations)


def test_a_walk_finds_what_a_descent_misses():
    for seed in (0, 12, 16, 22, 39):
        problem = Brute(seed)
        best = problem.least({KEEP, *S} for S in itertools.combinations({*range(P)} - {KEEP}, 3))
        assert problem.settled(3, descend=True)[0] != best
        lowest = problem.settled(3, descend=True, walk=True, seed=seed)[-1][-1]
        assert best == {int(j) for j in lowest.idx if j >= 0}
        np.testing.assert_allclose(lowest.value, problem.value(best), rtol=1e-9)


def test_what_a_walk_holds_neither_leaves_nor_comes_in():
    """It makes the best of the other swaps, holds what it moved, and ends after 2 a feature without a new lowest."""
    problem, S, size, count = Brute(1), [1, 3, 4, KEEP], 3, 9
    held = np.where(np.isin(np.arange(P), [3, 8]), count, count - 1)
    t, *_ = problem.settled(size, begin=S)[-1]
    goal = Goal(jnp.arange(P) == KEEP, jnp.int32(size), jnp.asarray(True), roam=Roam(jnp.asarray(True), jnp.uint32(2)))

    @cases.jit
    def step(t, lowest, size=size):
        own = goal._replace(size=jnp.asarray(size))
        return _next_move(t, jnp.zeros(P, jnp.int32), lowest, own, 0.0, jnp.int32(count))

    swaps = {(i, j): problem.value({*S} - {i} | {j}) for i in (1, 4) for j in (2, 5, 6, 7, 9)}
    out, new = min(swaps, key=swaps.get)
    for since, value in itertools.product((0, 5, 6), (problem.value(S) - 1, np.inf)):
        lowest = Lowest(t.idx * 0, jnp.asarray(value), jnp.int32(since), jnp.asarray(held, jnp.int32))
        move, _, after, settled = step(t, lowest)
        lower = value == np.inf
        assert after.since == (0 if lower else since + 1) and settled == (after.since >= 2 * size)
        assert (int(after.idx[1]), float(after.value)) == ((3, t.value) if lower else (0, value))
        if not settled:
            assert (S[int(move.i)], int(move.j), bool(move.out), bool(move.into)) == (out, new, True, True)
            others = np.setdiff1d(np.arange(P), [out, new])
            np.testing.assert_array_equal(after.held[others], held[others])
            assert 2 <= after.held[out] - count <= 7 and after.held[new] == count  # of 3 features less than one pivot
    move, _, after, _ = step(t._replace(q=0 * t.q), lowest, 20)  # to which none can be added
    share = pivot_search.share_of(goal.roam, jnp.int32(count))
    moved = after.held[jnp.array([S[int(move.i)], int(move.j)])] - count
    assert 0.5 <= share < 1.5 and moved.tolist() == [int(5 * share), int(0.15 * 20 * share)]


def test_supports_to_refit_are_those_of_the_best_swaps():
    """Of a local model: its own first, and of each feature that promises most its best swap; it may have none."""
    problem, S = Brute(2), [KEEP, 1, 4, 7]
    swaps = {j: max((problem.value(S) - problem.value({*S} - {i} | {j}), i) for i in S[1:]) for j in {*range(P)} - {*S}}
    scores = jnp.asarray([swaps[j][0] if j in swaps else -np.inf for j in range(P)])

    @cases.jit
    def near(scores):
        t = tableau_at(problem.equations, jnp.array([*S, 0]), jnp.arange(ROOM) < 4)
        move, kept = no_move(t)._replace(scores=scores), jnp.arange(P) == KEEP
        return jnp.vstack([_near(SimpleNamespace(quadratic=quadratic), t, move, kept) for quadratic in (True, False)])

    here, lower = SimpleNamespace(idx=1, value=2), SimpleNamespace(idx=3, value=1)
    assert [_end((here, None, None, lowest)) for lowest in (None, lower)] == [(1, 2), (3, 1)], "where a walk was lowest"
    found = [{int(j) for j in row if j >= 0} for row in near(scores)]
    order = sorted(swaps, key=swaps.get)[::-1]
    assert found == [{*S}, {*S}, *[{*S} - {swaps[j][1]} | {j} for j in order], *[{*S}] * (SWAPS - len(order))]


def test_how_far_a_search_grows_at_once():
    """To the end where all features are at hand; else to four times the size; twice in a local model, once fitted."""
    of = {few: sht.solvers.BestSubset(working_set=8 if few else None) for few in (True, False)}
    threshold = SimpleNamespace(k=100, room=100)

    def grown(size, few=True, started=True, quadratic=True):
        objective = SimpleNamespace(quadratic=quadratic, n_coefficients=5000 if few else 150, ifo_per_gradient=10)
        return int(of[few]._next_size(objective, threshold, jnp.int32(size), jnp.asarray(started)))

    assert grown(3, few=False) == 100 and [grown(size) for size in (0, 3, 5)] == [16, 16, 20]
    assert [grown(size, quadratic=False) for size in (0, 1, 5)] == [4, 4, 10]
    assert grown(5, started=False, quadratic=False) == 5, "what is there is fitted first"


def test_a_walk_goes_on_from_the_size_before_where_its_own_has_no_support_yet():
    supports = sht.results.Support(
        jnp.arange(12, dtype=jnp.int32).reshape(4, 3), jnp.arange(3) < jnp.arange(4)[:, None]
    )
    values = jnp.array([3.0, 2.0, np.inf, np.inf])

    @cases.jit
    def before(k, values):
        walk = SimpleNamespace(k=k, trail=SimpleNamespace(value=values, support=supports))
        return _chosen_before(SimpleNamespace(n_coefficients=12), walk)

    for k, row, found in ((0, 0, values), (1, 1, values), (2, 1, values), (0, 0, values + np.inf)):
        chosen, support = before(np.int32(k), found)
        assert support.idx[0] == 3 * row and np.flatnonzero(chosen).tolist() == list(range(3 * row, 4 * row))
    assert _scale(SimpleNamespace(quadratic=True), -3.0) is None and _scale(SimpleNamespace(quadratic=False), -3.0) == 6
