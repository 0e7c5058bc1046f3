"""PrimalDual, CDSS, the L0L1L2 threshold and certificates."""

import dataclasses
import itertools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exhaustive import Problem, best_penalised
from scipy.optimize import minimize, minimize_scalar

import sparsehtp as sht
from sparsehtp.certificates import penalised
from sparsehtp.duality import Dual, dual_of, relax
from sparsehtp.duality.dual import Fixed
from sparsehtp.results import FIRED, RESULTS
from sparsehtp.solvers import cdss
from sparsehtp.solvers.cdss import best_swap, entry_gains, state_at
from sparsehtp.solvers.coordinate import Descent, block_sizes, gather_block
from sparsehtp.solvers.primal_dual import supported

pytestmark = pytest.mark.usefixtures("x64")
N, P = 60, 150
SPHERE = sht.solvers.PrimalDual(rule="gap_sphere", incremental=False)


def data(logistic=False, seed=0):
    rng = np.random.default_rng(seed)
    X = cases.chained(rng.standard_normal((N, P)), 0.5)
    y = X[:, [10, 60, 110]] @ [2.0, -1.5, 1.0] + 0.5 * rng.standard_normal(N) + 0.7
    return X + 0.3, np.where(y > np.median(y), 1.0, -1.0) if logistic else y


def model(logistic=False, l2=0.3, **options):
    X, y = data(logistic)
    options = {"fit_intercept": True, **options}
    return sht.LinearModel(X, y, sht.losses.Logistic() if logistic else sht.losses.Squared(), l2=l2, **options)


def test_the_threshold_keeps_free_entries_and_shows_an_overflow():
    bound = sht.L0L1L2(0.1, 0.0, k_max=2).bind(model())
    z = jnp.zeros(P + 1).at[jnp.array([3, 5])].set(jnp.array([2.0, -3.0])).at[-1].set(1e-3)
    x, support = bound(z)
    assert x[-1] == z[-1] and support.idx[0] == P and support.idx.shape == (4,) and not bound.overflow(x)
    assert set(cases.members(support).tolist()) == {P, 3, 5}
    x, _ = bound(z.at[9].set(1.0).at[11].set(1.5))
    assert np.count_nonzero(x[:P]) == 3 and bound.overflow(x)
    solution = sht.solve(model(), sht.L0L1L2(1e-6, 0.0, k_max=2), sht.solvers.IHT(), max_steps=20)
    assert solution.result == RESULTS.support_overflow


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("l0", [0.0, 0.02])
def test_a_block_has_the_dual_of_its_features_alone(logistic, l0):
    """Whatever the padding repeats: here feature 0, which may not leave."""
    dual = dual_of(model(logistic), sht.L0L1L2(l0, 0.01))
    rng = np.random.default_rng(1)
    features = np.array([3, 10, 60, 61, 110])
    inn = jnp.zeros(P, bool).at[jnp.array([0, 3, 10])].set(True)
    alone = dataclasses.replace(dual, fixed=Fixed(jnp.ones(P, bool).at[features].set(False), inn.at[0].set(False)))
    centres, _ = dual.columns.moments()
    block = gather_block(dual, jnp.asarray([*features, 0, 0, 0]), jnp.int32(5), inn, centres)
    descent = Descent(dual, block)
    for size in (0.01, 1.0):
        a = dual.project(jnp.asarray(size * rng.standard_normal(N)))
        point = alone.point(a)
        np.testing.assert_allclose(descent.bound(a), point.value, rtol=1e-12)
        free = np.setdiff1d(features, [3, 10])
        np.testing.assert_allclose(descent.link(a)[np.isin(features, free).nonzero()[0]], point.x[free], rtol=1e-12)
        fit = descent.sweep(descent.start(descent.link(a), jnp.zeros(())), descent.envelope_update)
        assert not np.any(fit.w[5:]) and float(descent.envelope_value(fit)) >= float(point.value)


def test_sweeps_are_those_of_their_formula():
    """Within bounds, under weights of which some are zero, with a feature that may not leave and one that is free."""
    rng, l2, smoothness = np.random.default_rng(2), np.linspace(0.05, 0.3, 6), 0.25
    X, weights, offset = rng.standard_normal((30, 6)) + 1, rng.integers(0, 3, 30), rng.standard_normal(30)
    y = np.where(X @ [1, 0, -1, 0, 1, 0.2] + rng.logistic(size=30) > 1, 1.0, -1.0)
    model = sht.LinearModel(X, y, sht.losses.Logistic(), l2, weights, fit_intercept=True, offset=offset)
    dual = Dual(model, sht.L0L1L2(0.004, 0.02, keep=[4], lower=-0.3, upper=0.4).bind(model))
    features, inn, s = np.array([5, 0, 2, 4, 1]), np.arange(6) < 1, weights / weights.sum()
    Z, (centres, _) = X - s @ X, dual.columns.moments()
    w, b, l0, l1 = np.full(5, 0.1), 0.3, np.where(features == 4, 0, 0.004), np.where(features == 4, 0, 0.02)

    @cases.jit
    def swept(order, count):
        block = gather_block(dual, jnp.array([*features, 0, 0]), jnp.int32(5), jnp.asarray(inn), centres)
        descent = Descent(dual, block)
        fit = descent.start(jnp.append(w, jnp.zeros(2)), jnp.asarray(b))
        fit = fit._replace(eta=jnp.where(s > 0, fit.eta, np.nan))  # rows without a weight may overflow
        fits = fit, descent.sweep(fit, descent.penalty_update), descent.sweep(fit, descent.penalty_update, order, count)
        return [(fit.w, fit.b, descent.penalty_value(fit)) for fit in fits]

    def slope():
        return s * -y / (1 + np.exp(y * (Z[:, features] @ w + b + offset)))

    ends, met = swept(jnp.array([3, 1, 0, 0, 0, 0, 0]), 2), set()
    start = w, b - slope().sum() / smoothness
    for found, order in zip(ends, ((), range(5), (3, 1)), strict=True):
        w, b = start[0].copy(), start[1]
        for i in order:
            H, l2_i = smoothness * (s @ Z[:, features[i]] ** 2), l2[features[i]]
            u = H * w[i] - slope() @ Z[:, features[i]]
            t = np.sign(u) * max(abs(u) - l1[i], 0)
            new = np.clip(t / (H + l2_i), -0.3, 0.4)
            stays = new * (t - 0.5 * (H + l2_i) * new) >= l0[i]
            w[i] = new if inn[features[i]] or stays else 0
            met |= {(bool(inn[features[i]]), bool(stays), bool(new in (-0.3, 0.4)))} if l0[i] else set()
        b -= slope().sum() / smoothness if order else 0
        value = s @ np.logaddexp(0, -y * (Z[:, features] @ w + b + offset)) + 0.5 * l2[features] @ w**2
        value += l0 @ (w != 0) + l1 @ np.abs(w)
        np.testing.assert_allclose(np.hstack(found), [*w, 0, 0, b, value], rtol=1e-9, atol=1e-15)
    assert {(True, False, False), (False, False, False), (False, True, False), (False, True, True)} <= met, met


def test_iht_is_stationary_under_the_penalty():
    objective = model()
    solution = sht.solve(objective, sht.L0L1L2(0.05, 0.1, k_max=32), sht.solvers.IHT())
    assert solution.result == RESULTS.converged
    w = np.asarray(solution.x)
    grad = np.asarray(objective.value_and_grad(jnp.append(w, solution.intercept))[1])[:P]
    np.testing.assert_allclose((grad + 0.1 * np.sign(w))[w != 0], 0, atol=1e-6)
    np.testing.assert_allclose(solution.history.value[int(solution.best_step)], solution.value)


# --- solvers ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("logistic", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["squared", "logistic"])
def test_primal_dual_reaches_the_convex_optimum(logistic):
    objective, threshold = model(logistic), sht.L0L1L2(0.01 if logistic else 0.05, 0.01)
    best = float(cases.jit(lambda: relax(dual_of(objective, threshold), 1e-10, max_steps=5000).point.value)())
    solution = sht.solve(objective, threshold, sht.solvers.PrimalDual(include=0.1))  # feature by feature
    assert solution.result == RESULTS.converged
    lower, upper = float(solution.state.lower), float(solution.value)
    # Screening fixes features, which can only raise the bound.
    assert best - 1e-8 * abs(best) <= lower <= upper + 1e-12
    if int(solution.fired) & FIRED.DualGap:
        assert upper - lower <= 1e-8 * upper
    steps = int(solution.num_steps)
    np.testing.assert_allclose(solution.history.gap[steps - 1], upper - lower, atol=1e-14)
    assert np.all(solution.history.step_size[:steps] == 1)
    assert np.all(np.diff(np.asarray(solution.history.value)[:steps]) <= 1e-14)
    chosen = np.flatnonzero(solution.x)
    assert set(chosen) >= {10, 60} and not set(chosen) & set(np.flatnonzero(solution.state.out).tolist())


def by_the_page(X, y, lam0, lam1, lam2, omega):
    """[DIOM] Algorithm 1 as printed, in its own sums: beta, alpha and the gap."""
    eta0 = (2 * np.sqrt(lam0 * lam2) + lam1) / (2 * lam2)
    alpha, beta, gaps = np.zeros(len(y)), np.zeros(X.shape[1]), [np.inf, np.inf]
    while len(gaps) < 5 or gaps[-3] - gaps[-1] > 1e-6:
        alpha = alpha + omega * (X @ beta - y - alpha)
        eta = -X.T @ alpha / (2 * lam2)
        inside = np.abs(eta) > eta0
        beta = np.where(inside, np.sign(eta) * (np.abs(eta) - lam1 / (2 * lam2)), 0)
        psi = np.where(inside, lam0 - lam2 * beta**2, 0)
        for j in range(X.shape[1]):
            energy = X[:, j] @ X[:, j]
            z = (y - X @ beta) @ X[:, j] + energy * beta[j]
            size = (abs(z) - lam1) / (energy + 2 * lam2)
            beta[j] = np.sign(z) * size if size >= np.sqrt(2 * lam0 / (energy + 2 * lam2)) else 0
        dual = -0.5 * alpha @ alpha - y @ alpha + psi.sum()
        penalty = lam0 * np.count_nonzero(beta) + lam1 * np.abs(beta).sum() + lam2 * beta @ beta
        gaps.append(0.5 * np.sum((y - X @ beta) ** 2) + penalty - dual)
    return beta, alpha, gaps[-1]


@pytest.mark.parametrize(("lam2", "omega"), [(0.05, 0.02), (1.0, None)])
def test_algorithm_1_is_the_printed_one(lam2, omega):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((15, 8))
    X /= np.linalg.norm(X, axis=0)
    y = X @ np.array([2, -1, 0, 0, 1.5, 0, 0, 0]) + 0.3 * rng.standard_normal(15)
    n = len(y)
    beta, alpha, gap = by_the_page(X, y, 0.03, 0.02, lam2, omega or 5e-4)
    objective, threshold = sht.LinearModel(X, y, l2=2 * lam2 / n), sht.L0L1L2(0.03 / n, 0.02 / n)
    printed = sht.solvers.PrimalDual(inner="printed", omega=omega, incremental=False, rule="none")
    solution = sht.solve(objective, threshold, printed, max_steps=1)
    np.testing.assert_allclose(solution.x, beta, atol=1e-9)
    np.testing.assert_allclose(solution.state.point.a, alpha, atol=1e-9)
    np.testing.assert_allclose(n * (solution.value - solution.state.point.value), gap, atol=1e-9)


@pytest.mark.slow
def test_the_printed_form_bounds_what_the_convex_one_finds():
    given = model(l2=2.0), sht.L0L1L2(0.05, 0.01)
    convex, printed = (sht.solve(*given, sht.solvers.PrimalDual(inner=inner)) for inner in ("convex", "printed"))
    lower, upper = float(printed.state.lower), float(convex.value)
    assert lower <= upper * (1 + 1e-12) and float(convex.state.lower) <= float(printed.value) * (1 + 1e-12)
    assert printed.fired and float(printed.value) <= 1.01 * upper


@pytest.mark.parametrize("keep", [[0], pytest.param([], marks=pytest.mark.later)])
def test_cdss_ends_where_its_certificate_says_so(keep):
    """At no gain by any swap, from anywhere, without a rise on the way."""
    # Of correlated columns, a stop at a small fall of the value is far from a small slope.
    X, y = data()
    X, rng = X + 2 * np.random.default_rng(1).standard_normal((N, 1)), np.random.default_rng(0)
    for l0, l1 in ((0.0, 0.02), (0.003, 0.0), (0.1, 0.02)):
        objective, threshold = sht.LinearModel(X, y, l2=1e-4), sht.L0L1L2(l0, l1, keep=keep)
        x0 = np.where(rng.random(P) < 0.03, rng.standard_normal(P), 0)
        solution = sht.solve(objective, threshold, sht.solvers.CDSS(), x0=x0)
        found = sht.certificate(objective, threshold, solution, bounds=False)
        assert solution.result == RESULTS.converged and solution.fired == FIRED.SwapOptimal
        assert found.stationary and found.swap_gain == 0 and solution.history.step_size[0] == 1
        assert np.all(np.diff(np.asarray(solution.history.value)[: int(solution.num_steps)]) <= 1e-12)


def test_without_swaps_it_ends_where_no_coordinate_gains():
    """Each nonzero is the best value of its own and worth its price, and no other one is."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = cases.chained(rng.standard_normal((30, 8)), 0.99)
        y = X @ rng.standard_normal(8) + rng.standard_normal(30)
        start, most = np.where(np.arange(8) < 4, 2 * rng.standard_normal(8), 0), sht.solvers.CDSS(swaps=False)
        found = sht.solve(sht.LinearModel(X, y, l2=1e-3), sht.L0L1L2(0.01, 0.02), most, start, record=None)
        w, total = np.asarray(found.x), np.mean(X**2, axis=0) + 1e-3
        t = (X.T @ (y - X @ w) / 30 - 1e-3 * w) + total * w
        t = np.sign(t) * np.maximum(np.abs(t) - 0.02, 0)
        gains = t**2 / (2 * total)
        assert found.result == RESULTS.converged and found.fired == FIRED.SwapOptimal
        np.testing.assert_allclose(w[w != 0], (t / total)[w != 0], atol=1e-7)
        assert np.all(gains[w != 0] >= 0.01 - 1e-6) and np.all(gains[w == 0] <= 0.01 + 1e-6)


BEST_SWAP = cases.jit(lambda dual, x, support: best_swap(dual, state_at(dual, x, support)))


@pytest.mark.parametrize("loss", [sht.losses.Squared(), sht.losses.Logistic()])
def test_a_swap_lowers_the_objective_by_what_is_said_of_it(loss, monkeypatch):
    """By exactly that with the squared loss, by no less with others; the intercept follows, whatever the means."""
    monkeypatch.setattr(cdss, "SWAP_ROWS", 2)  # of three that may leave
    l0, l1, l2, threshold = 0.01, 0.02, 0.1, sht.L0L1L2(0.01, 0.02)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = np.array([3, -2, 0, 1, -3, 2]) + rng.standard_normal((30, 6))
        y = loss.draw_targets(X @ [1.0, 0, -1, 0, 0.5, 0] - 2.5, rng)

        def penalised(w, b, X=X, y=y):
            ridge = l2 / 2 * w @ w + l1 * np.abs(w).sum() + l0 * np.count_nonzero(w)
            return np.mean(loss.value(X @ w + b, y)) + ridge

        w = np.array([0.3, 0, 0, 0, -0.2, 0.1] if seed % 2 else [0.1, 0, 0, 0, -0.2, 0.3])
        b = minimize_scalar(lambda b, w=w: penalised(w, b), bracket=(-1, 1)).x
        swaps = []
        for by in (np.zeros(6), np.array([-3, 4, 0, -1, 2, -2])):
            objective = sht.LinearModel(X + by, y, loss, l2=l2, fit_intercept=True)
            bound = threshold.bind(objective)
            start = objective.to_internal(w, b - by @ w)
            swaps.append(BEST_SWAP(Dual(objective, bound), *supported(bound, start)))
        swap, shifted = swaps
        np.testing.assert_allclose(np.array(shifted, float), np.array(swap, float), rtol=1e-9)

        def after(v, w=w, swap=swap):
            moved = w.copy()
            moved[swap.out], moved[swap.new] = 0, v[0]
            return penalised(moved, v[1])

        best = minimize(after, [float(swap.size), b], method="Nelder-Mead", options=dict(xatol=1e-9, fatol=1e-13))
        fall = penalised(w, b) - best.fun
        assert swap.gain <= fall + 1e-9 and swap.gain > 0
        if loss.quadratic:
            np.testing.assert_allclose(swap.gain, fall, rtol=1e-7)
            gains = []
            for out, new in itertools.product([0, 4, 5], [1, 2, 3]):
                rest, column = np.where(np.arange(6) == out, 0, w), X[:, new] - X[:, new].mean()
                slope = max(abs(column @ (y - X @ rest)) / 30 - l1, 0)
                least = penalised(rest, np.mean(y - X @ rest)) + l0 - slope**2 / (2 * (column @ column / 30 + l2))
                gains.append(penalised(w, b) - least)
            np.testing.assert_allclose(swap.gain, max(gains), rtol=1e-7)


def test_an_overflow_without_one_feature_hides_no_exchange():
    """Two coefficients that cancel are each too large for a sum of squares; feature 2 is exchanged for feature 3."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 6)), rng.standard_normal(30)
    y = 3 * X[:, 3] + 0.1 * y
    X[:, 1], X[:, 4] = X[:, 0], 2 * X[:, 0]
    objective = sht.LinearModel(X, y, l2=0.0, fit_intercept=True)
    bound = sht.L0L1L2(0.01, 0.0).bind(objective)
    start = objective.to_internal(np.array([1.2e154, -1.2e154, 0.1, 0, 0, 0]), 0.0)
    swap = BEST_SWAP(Dual(objective, bound), *supported(bound, start))
    assert np.isfinite(swap.gain) and (int(swap.out), int(swap.new)) == (2, 3)


def test_a_slope_below_its_price_gains_nothing_even_without_curvature():
    """One above gains without end, and a column of zeros is none."""
    objective = sht.LinearModel(np.eye(4) * [1, 1, 1, 0], np.zeros(4))
    dual = Dual(objective, sht.L0L1L2(0.1, 0.5).bind(objective))
    energies, grad = jnp.array([0.25, 0.25, 0.25, 0]), jnp.array([0.4, -0.5, 20.0, 9.0])
    gain, new = entry_gains(dual, energies, grad, jnp.zeros(4), 0)
    assert gain.tolist()[:2] == [0, 0] and new.tolist()[:2] == [0, 0]
    assert 1e100 < gain[2] < np.inf and gain[3] == -np.inf
    gain, new = entry_gains(dual, energies, grad, jnp.zeros(4))
    np.testing.assert_allclose(gain, [0, 0, 19.5**2 / 0.5, -np.inf])


@pytest.mark.slow
def test_solvers_take_lanes():
    # At l0 = 0.05 changes of y by 1e-13 decide between two local optima, so that no two programs need agree.
    objective = model()
    l0s = jnp.array([0.1, 0.3])
    for solver in (sht.solvers.PrimalDual(), sht.solvers.CDSS(swaps=False)):
        batch = jax.vmap(lambda l0, s=solver: sht.solve(objective, sht.L0L1L2(l0), s, record=None).value)(l0s)
        single = [float(sht.solve(objective, sht.L0L1L2(l0), solver, record=None).value) for l0 in (0.1, 0.3)]
        np.testing.assert_allclose(batch, single, rtol=1e-8)


def test_the_sphere_of_the_gap_screens_what_no_optimum_has():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((20, 6))
        y = X @ np.where(np.arange(6) < 3, [2, -1, 0.5, 0, 0, 0], 0) + 0.3 * rng.standard_normal(20)
        found = sht.solve(sht.LinearModel(X, y, l2=0.5), sht.L0L1L2(0.05, 0.02), SPHERE, record=None)
        best, (chosen,) = best_penalised(Problem(X, y, np.ones(20), 0.05, 0.02, 0.5, False, "squared"))
        assert found.state.lower <= best * (1 + 1e-9) <= found.value * (1 + 2e-9)
        known = np.asarray(found.state.out), np.asarray(found.state.inn)
        assert not np.any(chosen & known[0]) and known[0].any() and not known[1].any(), "of the others it says nothing"


def test_block_sizes_cover_every_active_set():
    sizes = {5: [5], 511: [511], 512: [256, 512], 20_000: [256, 4096, 20_000]}
    assert {p: block_sizes(p) for p in sizes} == sizes


def test_bad_input():
    flat = sht.LinearModel(np.eye(3), np.ones(3))
    cases.refused(ValueError, "l2", lambda: sht.solvers.PrimalDual().check(flat, sht.L0L1L2(0.1)))
    cases.refused(ValueError, "l2", lambda: sht.solvers.DIHT().check(flat, sht.Sparsity(1)))
    for name, wrong in (("rule", "strong"), ("inner", "dual"), ("omega", 0.0), ("include", 0.0)):
        cases.refused(ValueError, name, lambda name=name, wrong=wrong: sht.solvers.PrimalDual(**{name: wrong}))
    cases.refused(ValueError, "effort", lambda: sht.solvers.PricedSubset("best"))
    for name, wrong in (("l0", -1.0), ("l1", np.nan), ("k_max", 0)):
        cases.refused(ValueError, name, lambda given={"l0": 0.1, name: wrong}: sht.L0L1L2(**given))
    bad = [("prices", "dear"), ("prices", [1.0, -1.0]), ("prices", np.ones(5)), ("keep", [7])]
    for name, wrong in (*bad, ("upper", "a"), ("upper", -1.0)):
        cases.refused(ValueError, name, lambda given={name: wrong}: sht.solve(flat, sht.L0L1L2(0.1, **given)))
    cases.refused(TypeError, "use CDSS", lambda: sht.lower_bound(flat, sht.L0L1L2(0.1, lower=0.0), 1.0))
    assert [sht.solvers.PrimalDual()._include(p) for p in (1, 2, 100)] == [1, 2, 19], "ceil(4 ln p), of p"
    assert sht.solvers.PrimalDual(dual_ascent=True).default_max_steps == 5000
    bounded = sht.L0L1L2(0.1, lower=0.0)
    cases.refused(TypeError, "L0L1L2 with bounds; leave", lambda: sht.solvers.PrimalDual().check(flat, bounded))
    cases.refused(ValueError, "block_size", lambda: sht.solvers.SDIHT(0).check(model(), sht.Sparsity(2)))


# --- certificates ----------------------------------------------------------------------------------------------------
def moves(problem, w, b):
    """The most that adding, leaving out or exchanging a feature gains, the others held as columns about their means."""
    Z = problem.X - problem.weights @ problem.X / problem.weights.sum()
    omega, p, sizes = problem.weights / problem.weights.sum(), w.size, np.append(0.0, np.linspace(-3, 3, 1501))
    eta = problem.X @ w + b
    most = 0.0

    def worth(w, eta):
        """F + penalty of rows w with predictions eta."""
        if problem.loss == "logistic":
            loss = np.logaddexp(0, -problem.y * eta) @ omega
        else:
            left = problem.y - eta
            loss = 0.5 * (left - (left @ omega)[:, None]) ** 2 @ omega
        price = problem.l0 * (w != 0) + problem.l1 * np.abs(w)
        return loss + price @ problem.prices + 0.5 * problem.l2 * (w**2).sum(1)

    here = worth(w[None], eta[None])[0]
    for out, new in itertools.product([None, *np.flatnonzero(w)], range(p)):
        if w[new] != 0 and out not in (None, new):
            continue
        moved = np.tile(np.where(np.arange(p) == out, 0, w), (sizes.size, 1))
        moved[:, new] = 0.0 if w[new] != 0 else sizes
        inside = (moved[:, new] >= problem.lower[new]) & (moved[:, new] <= problem.upper[new])
        most = max(most, here - worth(moved, eta + (moved - w) @ Z.T)[inside].min())
    return most


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 59), marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("logistic", [False, True], ids=["squared", "logistic"])
@pytest.mark.parametrize("bounded", [False, True], ids=["free", "bounded"])
def test_what_a_certificate_says_of_moves(logistic, bounded, seeds):
    """A gain is there; where it says that there is none, there is none, at a solution and far from one."""
    known, none = 0, np.full(6, np.inf)
    for seed, l0 in itertools.product(seeds, (1e-3, 0.05, 0.5)):
        problem = small(seed, logistic)._replace(l0=l0, l2=0.5 if logistic else 0.1)
        box = {"lower": problem.lower, "upper": problem.upper} if bounded else {}
        problem = problem if bounded else problem._replace(lower=-none, upper=none)
        objective, threshold = posed(problem, **box)
        for price in (1e-6, l0, 10.0):
            solution = sht.solve(objective, posed(problem._replace(l0=price), **box)[1], sht.solvers.CDSS())
            found = sht.certificate(objective, threshold, solution, bounds=False)
            most = moves(problem, np.asarray(solution.x), float(solution.intercept))
            gain = found.swap_gain
            if gain is None:
                assert logistic and "unknown" in found.statement
                continue
            known += 1
            assert gain <= most + 1e-4 and (gain > 0) == (found.best_swap is not None)
            if not logistic or gain == 0:
                assert gain >= most - 1e-9
            assert ("no feature that is added" in found.statement.lower()) == (gain == 0)
    assert known > 9


def test_a_move_gains_between_what_is_found_and_what_is_bounded():
    for seed, l0 in itertools.product(range(4), (1e-3, 0.02)):
        problem = small(seed, True)._replace(l0=l0, l2=0.5)
        objective, threshold = posed(problem, lower=problem.lower, upper=problem.upper)
        w = np.clip(np.where(np.arange(6) % 2, 0, 0.3), problem.lower, problem.upper)
        entries = sht.results.Support(np.arange(8), np.append(w != 0, [True, False]))
        x = objective.to_internal(jnp.asarray(w), 0.1)
        point = penalised._penalised(objective, threshold.bind(objective), x, entries)
        most = moves(problem, w, 0.1)
        assert point.found.gain <= most + 1e-4 and 0 < most <= point.most + 1e-12, (seed, l0, point.found, most)


def test_a_bound_in_single_precision_is_one():
    """The bounds of data in single precision are rounded; what lies at one is stationary all the same."""
    for seed in range(4):
        problem = small(seed)
        X, y = problem.X.astype(np.float32), problem.y.astype(np.float32)
        objective = sht.LinearModel(X, y, l2=0.1, fit_intercept=True, standardize=True)
        threshold = sht.L0L1L2(0.01, 0.01, lower=-0.3, upper=0.2)
        solution = sht.solve(objective, threshold)
        assert objective.dtype == np.float32 and np.isclose(solution.x, 0.2, rtol=1e-6).any()
        found = sht.certificate(objective, threshold, solution, bounds=False)
        assert found.stationary and "not optimal" not in found.statement


# --- prices, kept features and bounds --------------------------------------------------------------------------------
def small(seed, logistic=False):
    """Six features, prices of which one is zero, and bounds."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20, 6)) + 0.7 * rng.standard_normal((20, 1)) + np.arange(6) % 2 * 2.0
    y = X @ [2.0, -1.5, 0.7, 0, 0, 0] + 0.5 * rng.standard_normal(20)
    y = np.where(y > np.median(y), 1.0, -1.0) if logistic else y
    prices, weights = rng.permutation([0, 0.5, 1, 1, 2, 3]), rng.integers(1, 3, 20).astype(float)
    lower, upper = -rng.choice([0.0, 0.3, np.inf], 6), rng.choice([0.4, 1.0, np.inf], 6)
    loss = "logistic" if logistic else "squared"
    return Problem(X, y, weights, 0.05, 0.03, 0.1, True, loss, prices, lower, upper)


def posed(problem, **options):
    X, y, weights, l0, l1, l2, *_ = problem
    model = sht.LinearModel(X, y, cases.LOSSES[problem.loss], l2, weights, fit_intercept=True)
    return model, sht.L0L1L2(l0, l1, prices=problem.prices, **options)


@pytest.mark.parametrize("logistic", [False, True], ids=["squared", "logistic"])
@pytest.mark.parametrize("bounded", [False, True], ids=["free", "bounded"])
def test_prices_and_bounds_against_all_supports(logistic, bounded):
    """Most are the optimum; none is better than it, or has a coordinate that alone could improve."""
    optimal = []
    for seed in range(8):
        problem = small(seed, logistic)
        box = {"lower": problem.lower, "upper": problem.upper} if bounded else {}
        problem = problem if bounded else problem._replace(lower=-np.inf, upper=np.inf)
        best, _ = best_penalised(problem)
        objective, threshold = posed(problem, **box)
        solution = sht.solve(objective, threshold, sht.solvers.CDSS())
        x = np.asarray(solution.x)
        assert (x >= problem.lower).all() and (x <= problem.upper).all() and solution.result == RESULTS.converged
        optimal.append(float(solution.value) <= best * (1 + 1e-7))
        assert float(solution.value) >= best * (1 - 1e-9)
        found = sht.certificate(objective, threshold, solution)
        assert found.stationary and found.upper_bound == pytest.approx(float(solution.value), rel=1e-9)
        assert bounded or 0 < found.lower_bound <= best * (1 + 1e-9)
        by_default = sht.solve(objective, threshold)
        assert best * (1 - 1e-9) <= float(by_default.value) <= best * (1 + 1e-7)
    assert np.mean(optimal) >= 0.75


def test_kept_features_pay_nothing():
    problem = small(3)._replace(prices=np.array([1, 1, 1, 0, 1, 0.0]), lower=-np.inf, upper=np.inf)
    objective, threshold = posed(problem._replace(prices=np.array([1, 1, 1, 0, 1, 1.0])), keep=[5])
    best, supports = best_penalised(problem)
    solution = sht.solve(objective, threshold)
    np.testing.assert_allclose(solution.value, best, rtol=1e-7)
    np.testing.assert_array_equal(np.asarray(solution.x) != 0, supports[0])
    path = sht.solve_path(objective, threshold=threshold)
    assert path.n_kept == 2 and path.ks[0] == 0 and (path.ks == path.support.mask.sum(1) - 2).all()
    assert all({3, 5} <= set(np.flatnonzero(x)) for x in path.x)
