"""The model that units are swapped in, against NumPy: every move's gain, the tableau after it, minima within bounds."""

import itertools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

import sparsehtp as sht
from sparsehtp._types import Support
from sparsehtp.linalg.box import Plane
from sparsehtp.solvers import unit_model, unit_search
from sparsehtp.solvers.unit_search import UnitGoal, local_model, neighbours, promising, settle_units

pytestmark = pytest.mark.usefixtures("x64")
UNITS, ROOM = 7, 4
blocks_at, boxed_blocks = (
    cases.jit(function, static_argnames="room") for function in (unit_model.blocks_at, unit_model.boxed_blocks)
)
settle = cases.jit(settle_units, static_argnames="room")
gains_of, pivot, chosen_in = map(cases.jit, (unit_model.gains_of, unit_model.pivot_units, unit_model.chosen_in))


def draw(seed, size, n_free, box=False, columns=()):
    """A random model, two of its units smaller than the others, with columns of r as given."""
    rng = np.random.default_rng(seed)
    d = n_free + UNITS * size
    B = rng.standard_normal((2 * d, d))
    mask = np.ones(d, bool)
    if size > 1:
        mask[[n_free + size - 1, n_free + 3 * size - 1]] = False
    A = np.where(mask[:, None] & mask, B.T @ B / d, 0)
    r = (np.where(mask, 2, 0) * rng.standard_normal((*columns, d))).T
    bounds = None
    if box:
        inside = np.arange(d) >= n_free
        bounds = tuple(jnp.asarray(np.where(inside, sign * 0.3, sign * np.inf)) for sign in (-1, 1))
    return unit_model.UnitModel(
        units=jnp.arange(UNITS),
        pools=jnp.zeros(UNITS, jnp.int32),
        kept=jnp.zeros(UNITS, bool),
        entries=Support(jnp.arange(d), jnp.asarray(mask)),
        A=jnp.asarray(A),
        r=jnp.asarray(r),
        c0=jnp.asarray(1.0),
        z0=jnp.zeros(d),
        box=bounds,
        n_free=n_free,
        size=size,
    )


def entries(model, chosen):
    f, s = model.n_free, model.size
    own = [f + unit * s + place for unit in sorted(chosen) for place in range(s)]
    return [e for e in [*range(f), *own] if bool(model.entries.mask[e])]


def least(model, chosen):
    E = entries(model, chosen)
    A, r = np.asarray(model.A)[np.ix_(E, E)], np.asarray(model.r)[E]
    return float(model.c0) - 0.5 * np.sum(r * np.linalg.solve(A, r))


def members(chosen):
    return jnp.zeros(UNITS, bool).at[jnp.asarray(sorted(chosen), jnp.int32)].set(True)


@pytest.mark.parametrize("seed", range(3))
def test_minima_within_bounds(seed):
    model, chosen = draw(seed, 1, seed % 2, box=True), [0, 2, 3, 6]
    t, _ = boxed_blocks(model, members(chosen), room=ROOM)
    E = entries(model, chosen)
    half = np.linalg.cholesky(np.asarray(model.A)[np.ix_(E, E)]).T
    lower, upper = (np.asarray(bound)[E] for bound in model.box)
    target = np.linalg.solve(half.T, np.asarray(model.r)[E])
    best = lsq_linear(half, target, (lower, upper), tol=1e-14)
    np.testing.assert_allclose(t.value, float(model.c0) + best.cost - 0.5 * target @ target, rtol=1e-9)
    assert np.any((best.x == lower) | (best.x == upper) | (np.abs(np.abs(best.x) - 0.3) < 1e-9))


@pytest.mark.parametrize(("size", "n_free"), [(1, 2), (3, 1)])
@pytest.mark.parametrize("seed", [0, 1])
def test_moves_within_bounds(size, n_free, seed):
    """What leaves goes to zero from where it is held too; the others follow, but for those that are held."""
    model, chosen = draw(seed, size, n_free, box=True), [1, 3, 4]
    t, held = boxed_blocks(model, members(chosen), room=ROOM)
    assert np.asarray(held)[entries(model, chosen)].any()
    gains = gains_of(model, t, held)
    A, r, place = np.asarray(model.A), np.asarray(model.r), np.asarray(unit_model._places(model, t.slots))
    z = np.zeros(r.size)
    z[place] = np.asarray(t.c)

    def least_with(units, new=None):
        """The minimum with the held ones of these units held, the other ones free, and those of `new` in their box."""
        E = entries(model, units)
        still = np.array([bool(held[e]) for e in E])
        fixed = np.where(still, z[E], 0)
        E += [] if new is None else [e for e in entries(model, [new]) if e >= model.n_free]
        still, fixed = (np.append(a, np.zeros(len(E) - len(a), a.dtype)) for a in (still, fixed))
        bound = 0.3 * np.ones(len(E))
        bound[: len(entries(model, units))] = np.inf
        sub = A[np.ix_(E, E)]
        half = np.linalg.cholesky(sub[np.ix_(~still, ~still)]).T
        target = np.linalg.solve(half.T, (r[E] - sub @ fixed)[~still])
        best = lsq_linear(half, target, (-bound[~still], bound[~still]), tol=1e-14)
        return float(model.c0) + best.cost - 0.5 * target @ target + 0.5 * fixed @ sub @ fixed - r[E] @ fixed

    np.testing.assert_allclose(t.value, least_with(chosen), rtol=1e-9)
    for i, unit in enumerate(int(u) for u in t.slots[: len(chosen)]):
        rest = [u for u in chosen if u != unit]
        np.testing.assert_allclose(t.value + gains.remove[i], least_with(rest), rtol=1e-9)
        for new in set(range(UNITS)) - set(chosen):
            best = float(t.value) - least_with(rest, new)
            assert best - 0.05 * abs(best) - 1e-9 <= float(gains.swap[i, new]) <= best + 1e-9
            alone = float(t.value) - least_with(chosen, new)
            assert 0.95 * alone - 1e-9 <= float(gains.add[new]) <= alone + 1e-9


@pytest.mark.parametrize(
    ("size", "n_free", "columns"),
    [(3, 1, ()), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 2, ()), (1, 1, (3,)), (3, 1, (2,))))],
)
def test_settling_is_that_of_brute_force(size, n_free, columns):
    """Units 0 to 3 and 4 to 6 are counted apart, and unit 3 is always in beside its count."""
    model = draw(4, size, n_free, columns=columns)
    model = unit_model.replace(model, pools=jnp.arange(UNITS) // 4, kept=jnp.arange(UNITS) == 3)

    def settled(begin, open_=range(UNITS), counts=(2, 1), descend=False):
        goal = UnitGoal(jnp.asarray(counts), jnp.asarray(descend), jnp.asarray(1e-9))
        end = settle(model, members(begin), members(open_), goal, room=ROOM)
        S = {*np.flatnonzero(end.chosen).tolist()}
        t, fresh, gains = end.t, blocks_at(model, end.chosen, None, room=ROOM), gains_of(model, end.t, None)
        np.testing.assert_array_equal(end.swap, gains.swap)
        for name in ("g", "Q", "value"):
            np.testing.assert_allclose(getattr(t, name), getattr(fresh, name), rtol=1e-7, atol=1e-9)
        slots = {int(unit): i for i, unit in enumerate(t.slots) if t.filled[i]}
        moves = [(None, j, gains.add[j]) for j in {*range(UNITS)} - S if len(S) < ROOM]
        moves += [(i, None, -gains.remove[slots[i]]) for i in S - {3}]
        pairs = itertools.product(S - {3}, {*range(UNITS)} - S)
        moves += [(i, j, gains.swap[slots[i], j]) for i, j in pairs if i // 4 == j // 4]
        for out, into, gain in moves:
            fall = t.value - least(model, (S - {out}) | ({into} - {None}))
            np.testing.assert_allclose(gain, fall, rtol=1e-7, atol=1e-9, err_msg=f"{out} out, {into} in")
        return S, end

    def best(supports):
        return min(supports, key=lambda S: least(model, S))

    def grown(S, new):
        open_ = [pool & new for pool, most in (({0, 1, 2}, 2), ({4, 5, 6}, 1)) if len(S & pool) < most]
        return best(S | {j} for j in set().union(*open_) - S)

    S = {3}
    for _ in range(3):
        S = grown(S, {*range(UNITS)} - S)
    assert settled([3])[0] == S and 3 in settled([])[0], "the best comes in, where its pool has room"
    assert settled([3], [1, 6])[0] == grown({1, 3, 6}, {0, 2}), "first of what is open, and then of all"
    fewer = best({0, 1, 2, 3} - {j} for j in (0, 1, 2))
    assert settled([0, 1, 2, 3], counts=(1, 0))[0] == best(fewer - {j} for j in fewer - {3})
    assert settled([0, 1, 3, 4])[0] == {0, 1, 3, 4}, "what is asked for stays"
    for begin in itertools.combinations((0, 1, 2), 2):
        S, end = settled([*begin, 3, 5], descend=True)
        swaps = {(i, j): least(model, S - {i} | {j}) for i in S - {3} for j in {*range(UNITS)} - S if i // 4 == j // 4}
        assert min(swaps.values()) >= end.t.value - 1e-8
        order = [S - {i} | {j} for i, j in sorted(swaps, key=swaps.get)]
        np.testing.assert_array_equal(neighbours(model, end), [members(each) for each in [*order, *8 * [S]][:8]])


def test_moves_one_after_another_leave_what_the_formulas_say():
    """Of the chosen: the inverse of their block, its products, coefficients; and of the others what is left."""
    model = draw(6, 2, 1)
    t = blocks_at(model, members([1, 3]), None, room=3)
    filled = {int(unit): i for i, unit in enumerate(t.slots) if t.filled[i]}
    A, r = np.asarray(model.A), np.asarray(model.r)
    for out, new in ((None, 5), (3, 0), (5, 6), (0, None), (1, 4), (None, 2)):
        i = filled.pop(out) if out is not None else ({0, 1, 2} - {*filled.values()}).pop()
        t = pivot(model, t, i, new or 0, out is not None, new is not None)
        filled |= {} if new is None else {new: i}
        E = entries(model, filled)
        place = {0: 0} | {1 + 2 * u + e: 1 + 2 * i + e for u, i in filled.items() for e in range(2)}
        at, inverse = [place[e] for e in E], np.linalg.inv(A[np.ix_(E, E)])
        P, H, c = np.zeros((7, 7)), np.zeros((7, 15)), np.zeros(7)
        P[np.ix_(at, at)], H[at], c[at] = inverse, inverse @ A[E], inverse @ r[E]
        left = A - A[:, E] @ inverse @ A[E]
        Q = [left[u : u + 2, u : u + 2] for u in range(1, 15, 2)]
        for found, said in zip(t[2:], (P, H, c, r - A[:, E] @ inverse @ r[E], Q, least(model, filled)), strict=True):
            np.testing.assert_allclose(found, said, atol=1e-9, err_msg=f"{out} out, {new} in")
        np.testing.assert_array_equal(chosen_in(model, t), members(filled))


def test_a_working_set_holds_the_chosen_units_and_the_steepest():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, UNITS)) * np.geomspace(0.1, 10, UNITS), rng.standard_normal(30)
    objective, threshold = sht.LinearModel(X, y, l2=0.1), sht.Sparsity(2)
    x, slope = jnp.zeros(UNITS), -X.T @ y / 30
    *best, last = np.argsort(-np.abs(slope) / np.sqrt(np.mean(X**2, axis=0) + 0.1))
    found = promising(objective, threshold.bind(objective), x, jnp.asarray(slope), members([last]), 4)
    assert {*found.tolist()} == {last, *best[:3]}
    pairs = sht.GroupSparsity(np.arange(UNITS) // 2, 1).bind(objective)
    widths = [unit_search.width_of(objective, pairs, most) for most in (1, 6, 99)]
    assert widths == [2, 3, 4], "twice the support at least"


def test_what_repeats_the_chosen_gains_nothing():
    model = draw(0, 3, 1)
    mix = np.eye(1 + 3 * UNITS)
    mix[16:19] = mix[4:7]  # unit 5 repeats unit 1
    model = unit_model.replace(model, A=mix @ model.A @ mix.T, r=mix @ model.r)
    t = blocks_at(model, members([1, 4]), None, room=ROOM)
    gains = gains_of(model, t, None)
    np.testing.assert_allclose(gains.add[5], 0, atol=1e-9)
    place = [int(u) for u in t.slots].index(1)
    np.testing.assert_allclose(gains.swap[place, 5], 0, atol=1e-9)


@pytest.mark.parametrize("box", [False, True])
def test_what_lies_in_the_span_of_kept_units_gains_exactly_nothing(box):
    """In single precision, however large their coefficients, alone or in place of a unit that may leave."""
    for seed in range(6):
        model = draw(seed, 1, 1, box)
        rng = np.random.default_rng([seed, 1])
        mix = np.eye(8)  # units 3 to 6 are sums of the kept units 0 and 1, and the intercept
        mix[4:] = 0
        mix[4:, :3] = rng.choice([-1, 0.5, 2], (4, 3))
        A = mix @ np.asarray(model.A) @ mix.T * 10.0 ** rng.integers(-3, 4)
        r = A @ [0, 1e3, -1e3, *np.zeros(5)] + mix @ np.append(rng.standard_normal(4), np.zeros(4)) * A[1, 1]
        A, r, c0, z0 = (jnp.asarray(a, jnp.float32) for a in (A, r, 1.0, np.zeros(8)))
        bounds = (z0 - 1e6, z0 + 1e6) if box else None
        kept = members([0, 1])
        model = unit_model.replace(model, A=A, r=r, c0=c0, z0=z0, box=bounds, kept=kept)
        t = blocks_at(model, members([0, 1, 2]), None, room=ROOM)
        gains = jax.tree.map(np.asarray, gains_of(model, t, None))
        place = [int(u) for u in t.slots].index(2)
        assert (gains.add[3:] == 0).all(), seed
        assert (gains.swap[place, 3:] == -gains.remove[place]).all(), seed


def test_what_has_no_part_of_its_own_is_left_out_of_an_inverse():
    """D G D = D for columns that are sums of others, or zero, and G is no larger than an inverse of the others is."""
    inverse = cases.jit(unit_model._inverse)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        Z = rng.standard_normal((20, 5))
        Z[:, 3:] = Z[:, :2] @ rng.choice([-1, 0.5, 2], (2, 2)) * [1, seed % 2]
        D = (Z.T @ Z).astype(np.float32)
        G = np.asarray(inverse(D))
        np.testing.assert_allclose(D @ G @ D, D, atol=1e-4)
        assert np.abs(G).max() < 2 and np.array_equal(G.any(0), np.arange(5) < 3), seed
        D[4], D[:, 4] = np.inf, np.inf  # squares of a column that overflow
        np.testing.assert_array_equal(inverse(D), G)


def test_a_spring_holds_a_model_near_its_plane():
    """It changes no value on the plane, nor the least one there where its multiplier is that of the point; from another
    point the minimum leaves the plane by little."""
    rng = np.random.default_rng(0)
    B, r, normal, total = rng.standard_normal((9, 6)), rng.standard_normal(6), np.array([0.0, 1, 1, 2, 1, 0.5]), 1.5
    A, plane = B.T @ B, Plane(jnp.asarray(normal), jnp.asarray(total))
    best = np.linalg.solve(np.block([[A, normal[:, None]], [normal, 0]]), np.append(r, total))[:6]
    for z, room in ((best, 1e-9), (best + rng.standard_normal(6), 1e-2)):
        sprung, pull, constant = map(np.asarray, unit_search.with_spring(A, r, jnp.asarray(0.3), z, A @ z - r, plane))
        for x in (best, best + rng.standard_normal(6) * (normal == 0)):
            before = 0.3 + x @ (A @ x / 2 - r)
            np.testing.assert_allclose(constant + x @ (sprung @ x / 2 - pull), before, atol=1e-8)
        found = np.linalg.solve(sprung, pull)
        np.testing.assert_allclose(found, best, atol=room)
        assert abs(normal @ found - total) <= room / 10


def test_a_local_model_has_the_value_and_the_slope_of_its_point():
    """A quadratic F everywhere, on a working set too; where a loss has no curvature its model has some."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, UNITS)) + 1, 100 * rng.standard_normal(30)
    x, other = np.append(np.where(np.arange(UNITS) % 3, 0, rng.standard_normal(UNITS)), 0.3), rng.standard_normal(6)

    @cases.jit
    def values(objective, x, z):
        model = local_model(objective, sht.Sparsity(3).bind(objective), x, x[:UNITS] != 0, 5)
        at = jnp.zeros(UNITS + 1).at[model.entries.idx].set(z)
        return model, model.c0 - model.r @ z + z @ model.A @ z / 2, objective.value_and_grad(at)

    for loss in (sht.losses.Squared(), sht.losses.Huber(1e-3)):
        objective = sht.LinearModel(X, y, loss, 0.1, fit_intercept=True, offset=X[:, 0])
        model, _, _ = values(objective, x, other)
        assert {*np.flatnonzero(x[:UNITS]).tolist()} <= {*model.units.tolist()} and model.units.shape == (5,)
        for z in (x[np.asarray(model.entries.idx)], *[other] * loss.quadratic):
            model, value, (expected, slope) = values(objective, x, z)
            np.testing.assert_allclose(value, expected, rtol=1e-9)
            np.testing.assert_allclose(model.A @ z - model.r, slope[model.entries.idx], rtol=1e-7, atol=1e-9)
        assert np.diagonal(model.A)[1:].min() > (0.1 if loss.quadratic else 0.1 + 1e-9)


@pytest.mark.parametrize("intercept", [False, True])
def test_responses_that_are_alike_share_a_matrix(intercept, monkeypatch):
    """The model with one column for each response gains what the model of all entries gains."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, UNITS)) + 1, rng.standard_normal((30, 3))
    objective = sht.MultiResponse(
        X, Y, l2=rng.uniform(0.1, 1, UNITS), sample_weight=rng.random(30), fit_intercept=intercept, offset=Y[::-1]
    )
    threshold, x = sht.RowSparsity(ROOM).bind(objective), objective.origin()

    def gains():
        model = local_model(objective, threshold, x, members([]), UNITS)
        t = blocks_at(model, members([1, 3]), None, room=ROOM)
        return model, t.value, gains_of(model, t, None)

    few, *shared = gains()
    monkeypatch.setattr(sht.MultiResponse, "alike", 1)
    all_, *full = gains()
    assert 3 * few.A.shape[0] == all_.A.shape[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), shared, full)
