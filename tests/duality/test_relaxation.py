"""The convex form against generic solvers, and the dual solvers against the convex form."""

import functools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import Loss
from scipy.optimize import minimize

import sparsehtp as sht
from sparsehtp.duality import Fixed, dual_of, relax

pytestmark = pytest.mark.usefixtures("x64")
N, P = 12, 6


def problem(seed, logistic=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 0.5
    y = X @ np.array([1.0, -0.8, 0.6, 0, 0, 0]) + 0.5 * rng.standard_normal(N)
    weights = rng.uniform(0.5, 2, N)
    return X, np.where(y > np.median(y), 1.0, -1.0) if logistic else y, weights / weights.mean()


@functools.cache
def solver(logistic, intercept, penalised):
    """(lower, upper, dual value of the printed dual point) of the convex form, compiled once per kind."""
    loss = sht.losses.Logistic() if logistic else sht.losses.Squared()

    def run(X, y, weights, l2, k, l0, l1, zero, nonzero):
        model = sht.LinearModel(X, y, loss, l2=l2, sample_weight=weights, fit_intercept=intercept)
        threshold = sht.L0L1L2(l0, l1) if penalised else sht.Sparsity(k, P - 1, keep=[4])
        dual = dual_of(model, threshold, Fixed(zero, nonzero))
        found = relax(dual, 1e-9, max_steps=5000)
        return found.point.value, found.upper, dual.point(found.point.a).value

    return cases.jit(run)


def fixed_of(seed, k=1):
    """Some features that are known to be zero, or nonzero."""
    places = np.random.default_rng(seed).permutation(np.delete(np.arange(P), 4))
    return Fixed(*(np.isin(np.arange(P), places[: seed % 3]), np.isin(np.arange(P), places[2 : 2 + min(k, seed % 2)])))


def envelope(X, y, weights, l2, l0, l1, fixed, logistic, intercept):
    """min sum l + rho(|w|) by L-BFGS-B in positive and negative parts."""
    omega = weights / weights.sum()
    root, edge = np.sqrt(2 * l0 * l2), np.sqrt(2 * l0 / l2)

    def objective(v):
        w, size, b = v[:P] - v[P : 2 * P], v[:P] + v[P : 2 * P], v[2 * P] * intercept
        eta = X @ w + b
        loss, _, slope, *_ = Loss("logistic" if logistic else "squared", 1.0).parts(eta, y)
        near = (size <= edge) & ~fixed.nonzero
        rho = np.where(near, root * size, l0 + 0.5 * l2 * size**2) + l1 * size
        slopes = np.where(near, root, l2 * size) + l1
        g = X.T @ (omega * slope)
        return omega @ loss + rho.sum(), np.concatenate([g + slopes, slopes - g, [intercept * (omega @ slope)]])

    bounds = [(0, 0 if zero else None) for zero in (*fixed.zero, *fixed.zero)] + [(None, None)]
    options = {"maxiter": 20000, "ftol": 1e-15, "gtol": 1e-10, "maxfun": 10**6}
    return minimize(objective, np.full(2 * P + 1, 0.1), jac=True, bounds=bounds, options=options).fun


def perspective(X, y, weights, l2, k, fixed):
    """min over z of (1/2) y' (I + X diag(z) X'/l2)^-1 y in the weighted mean, feature 4 kept, by SLSQP."""
    root = np.sqrt(weights / weights.sum())
    Z, target = X * root[:, None], y * root

    def objective(z):
        a = np.linalg.solve(np.eye(N) + (Z * z) @ Z.T / l2, target)
        return 0.5 * target @ a, -((Z.T @ a) ** 2) / (2 * l2)

    others = np.arange(P) != 4
    rules = [{"type": "ineq", "fun": lambda z: k - z[others].sum(), "jac": lambda z: -others.astype(float)}]
    least, most = (fixed.nonzero | ~others).astype(float), (~fixed.zero | ~others).astype(float)
    bounds = list(zip(least, most, strict=True))
    start = np.where(least == most, least, np.where(others, max(k - fixed.nonzero[others].sum(), 0) / P, 1.0))
    options = {"ftol": 1e-15, "maxiter": 1000}
    return minimize(objective, start, jac=True, bounds=bounds, constraints=rules, options=options).fun


@pytest.mark.parametrize("logistic", [False, True], ids=["squared", "logistic"])
@pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
def test_the_penalised_optimum_is_that_of_a_generic_solver(logistic, intercept):
    for seed in range(4):
        X, y, weights = problem(seed, logistic)
        l2, l0, l1 = 10.0 ** np.random.default_rng(seed).uniform([-2, -3, -3], [0.5, -1, -1])
        fixed = fixed_of(seed)
        lower, upper, value = solver(logistic, intercept, True)(X, y, weights, l2, 0, l0, l1, *fixed)
        best = envelope(X, y, weights, l2, l0, l1, fixed, logistic, intercept)
        assert lower == pytest.approx(float(value), rel=1e-14) and lower <= best + 1e-9
        np.testing.assert_allclose([lower, upper], best, rtol=1e-6)


def test_the_sparse_optimum_is_that_of_a_generic_solver():
    for seed in range(6):
        X, y, weights = problem(seed)
        l2, k = 10.0 ** np.random.default_rng(seed).uniform(-2, 0.5), seed % 4
        fixed = fixed_of(seed, k)
        lower, upper, _ = solver(False, False, False)(X, y, weights, l2, k, 0.0, 0.0, *fixed)
        np.testing.assert_allclose([lower, upper], perspective(X, y, weights, l2, k, fixed), rtol=1e-6)
        # Weighted centring of X and y is what an intercept does for the squared loss.
        omega = weights / weights.sum()
        lower, upper, _ = solver(False, True, False)(X, y, weights, l2, k, 0.0, 0.0, *fixed)
        best = perspective(X - omega @ X, y - omega @ y, weights, l2, k, fixed)
        np.testing.assert_allclose([lower, upper], best, rtol=1e-6)


@cases.jit
def largest_dual(model, threshold):
    return relax(dual_of(model, threshold), 1e-9, max_steps=5000).point.value


@pytest.mark.parametrize("name", ["smoothed_hinge", "squared", "logistic", "huber", "hinge"])
def test_diht_and_sdiht_reach_the_convex_optimum(name):
    loss = cases.LOSSES[name]
    X, y, weights = problem(3, loss.classification)
    model = sht.LinearModel(X, y, loss, l2=0.3, sample_weight=weights, fit_intercept=True)
    threshold = sht.Sparsity(2, k_max=2, keep=[4])
    best = float(largest_dual(model, threshold))
    room = 2e-3 if name == "hinge" else 1e-4  # the convex form of the hinge is that of a smoothed one
    for solver, steps in ((sht.solvers.DIHT(), 4000), (sht.solvers.SDIHT(block_size=4), 6000)):
        solution = sht.solve(model, threshold, solver, max_steps=steps, key=jax.random.key(1))
        row = int(solution.best_step)
        dual = float(solution.history.value[row] - solution.history.gap[row])
        assert dual <= best * (1 + 1e-9) + room * abs(best) * (name == "hinge")
        assert dual >= best - room * abs(best), (type(solver).__name__, dual, best)
        history = jax.tree.map(lambda h, steps=int(solution.num_steps): np.asarray(h)[:steps], solution.history)
        assert np.all(history.gap >= -1e-12) and row == np.argmax(history.value - history.gap)
        assert set(np.flatnonzero(solution.x)) <= set(np.asarray(solution.support.idx).tolist())
        np.testing.assert_allclose(model.value(jnp.append(solution.x, solution.intercept)), solution.value, rtol=1e-10)


def test_the_convex_form_closes_to_rounding():
    """Steps that were refused for rounding alone once shrank to nothing, and left it open."""
    solve = cases.jit(relax)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, w = rng.standard_normal((30, 30)), np.zeros(30)
        w[rng.choice(30, 5, replace=False)] = rng.standard_normal(5)
        y = X @ w + 0.1 * rng.standard_normal(30)
        for l2 in (0.1, 1.0):
            found = solve(dual_of(sht.LinearModel(X, y, l2=l2 / np.sqrt(30)), sht.Sparsity(5)), 1e-9)
            assert 0 <= found.upper - found.point.value <= 1e-9 * found.upper and found.num_steps < 2000


@cases.jit
def relaxed(X, y, offset, l2, w0):
    model = sht.LinearModel(X, y, sht.losses.SmoothedHinge(), l2=l2, offset=offset, fit_intercept=True)
    return relax(dual_of(model, sht.Sparsity(4)), 1e-7, max_steps=3000, w0=w0)


def test_the_convex_form_closes_beside_an_intercept_from_anywhere():
    """Its descent test once took the intercept's step from another point, and steps shrank to nothing: NaN."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, offset = rng.standard_normal((30, 7)), rng.uniform(-1, 1, 30)
        y = np.where(X[:, 0] + rng.logistic(size=30) > 0, 1.0, -1.0)
        found = relaxed(X, y, offset, 10 ** rng.uniform(-3.5, -1, 7), 3 * rng.standard_normal(7))
        gap = found.upper - found.point.value
        assert 0 <= gap <= 1e-7 * found.upper, (seed, float(gap), int(found.num_steps))


@cases.jit
def relaxed_with(X, y, l2, norm, enough=np.inf, useless=-np.inf, share=0.0):
    model = sht.LinearModel(X, y, sht.losses.Logistic(), l2=l2)
    return relax(dual_of(model, sht.Sparsity(4)), 1e-9, enough, useless, 200, share=share, norm=norm)


def test_the_convex_form_closes_with_a_norm_that_was_underestimated():
    """Its steps begin 30 times too long, and shrink. It ends sooner where that is said to be enough, or useless."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((30, 8))
        y = np.where(X[:, 0] - X[:, 1] + rng.logistic(size=30) > 0, 1.0, -1.0)
        data = X, y, 10 ** rng.uniform(-2, -1), np.linalg.norm(X, 2) ** 2 / 30 / 30
        found = relaxed_with(*data)
        best = found.upper
        assert 0 <= best - found.point.value <= 1e-9 * best and found.num_steps < 200, (seed, found.num_steps)
        for how in ({"enough": 0.99 * best}, {"useless": 1.01 * best}, {"enough": 1.1 * best, "share": 0.5}):
            part = relaxed_with(*data, **how)
            assert part.num_steps < found.num_steps, (seed, how)
            if how.keys() == {"enough"}:
                assert part.point.value >= how["enough"]
            else:
                assert part.upper <= how.get("useless", np.inf) and best <= part.upper < 1.1 * best
