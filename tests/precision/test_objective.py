"""Precision matrices: derivatives, refits against NumPy and SciPy, bounds, batches, planted graphs, bad input."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import sparsehtp as sht
from sparsehtp.linalg import Interval, minimise_log_det
from sparsehtp.testing import check_objective
from sparsehtp.thresholds import pair_index, pairs_of

pytestmark = pytest.mark.usefixtures("x64")

P = 6
PAIRS = P * (P - 1) // 2
RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, P)) @ (np.eye(P) + 0.4 * RNG.standard_normal((P, P)))
S = np.cov(X.T, bias=True)
WIDE = Interval(1e-6, 1e6)


def value(A, S=S):
    return np.sum(S * A) - np.linalg.slogdet(A)[1]


def masks(number, p=P, probability=0.4, seed=1):
    upper = np.triu(np.random.default_rng(seed).random((number, p, p)) < probability, 1)
    return upper | upper.transpose(0, 2, 1) | np.eye(p, dtype=bool)


def covariances(number, n=30, p=P, seed=2):
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((number, n, p)) @ (np.eye(p) + 0.5 * rng.standard_normal((number, p, p)))
    return np.einsum("bni,bnj->bij", data, data) / n


@pytest.mark.parametrize("standardize", [False, True])
def test_the_documented_formula_and_its_laws(standardize):
    objective = sht.Precision(S, 40, standardize=standardize)
    check_objective(objective)
    A = np.linalg.inv(S + np.diag(np.diag(S)))
    x = objective.to_internal((A + A.T) / 2)
    matrix, intercept = map(np.asarray, objective.to_external(x))
    assert intercept == 0 and np.array_equal(matrix, matrix.T)
    for part, expected in zip(objective.parts(x), (A[np.triu_indices(P, 1)], np.diag(A)), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-12)
    np.testing.assert_allclose(matrix, A, rtol=1e-12)
    found, gradient = objective.value_and_grad(x)
    np.testing.assert_allclose(found, value(A), rtol=1e-12)
    np.testing.assert_allclose(objective.lipschitz(), np.trace(objective.S) ** 2, rtol=1e-12)
    if not standardize:
        np.testing.assert_allclose(np.linalg.norm(matrix), np.linalg.norm(x), rtol=1e-12)
        gradient = objective.to_external(gradient)[0]
        np.testing.assert_allclose(gradient, S - np.linalg.inv(matrix), atol=1e-12, err_msg="S - O^{-1}")


def test_gains_of_single_pairs():
    """`curvatures` is the second-order gain with both variances free; `without_each` the exact cost of a removal."""
    objective = sht.Precision(S, 40)
    diagonal = np.diag(1 / np.diag(S))
    np.testing.assert_allclose(objective.value(objective.origin()), value(diagonal), rtol=1e-12)
    # By the other second derivatives, and removals from a triangle: nothing else but the two variances moves.
    triangle = [(0, 2), (0, 5), (2, 5)]
    idx = jnp.array([*range(PAIRS, PAIRS + P), *(pair_index(i, j, P) for i, j in triangle)])
    restricted = objective.restrict(sht.results.Support(idx, jnp.ones(P + 3, bool)))
    x = objective.pack(jnp.asarray(np.linalg.inv(S)))
    z, full = x[idx] * jnp.where(idx < PAIRS, 0.3, jnp.linspace(1, 1.2, P + 3)), jnp.zeros_like(x).at[idx]
    H, curvature = np.asarray(restricted.hess(z)), objective.curvatures(full.set(z))
    costs = np.asarray(restricted.without_each(z, P) - restricted.value(z))
    assert np.isinf(costs[:P]).all()
    for place, own in enumerate(triangle, P):
        own, at = list(own), np.asarray(objective.unpack(full.set(z.at[place].set(0))))
        schur = H[place, place] - H[place, own] @ np.linalg.solve(H[np.ix_(own, own)], H[own, place])
        np.testing.assert_allclose(curvature[idx[place]], schur, rtol=1e-10)

        def moved(variances, own=own, at=at):
            A = at.copy()
            A[own, own] = np.exp(variances)
            return value(A) if np.linalg.eigvalsh(A)[0] > 0 else np.inf

        best = minimize(moved, np.log(at[own, own]), method="Nelder-Mead", options=dict(xatol=1e-7, fatol=1e-12)).fun
        np.testing.assert_allclose(costs[place], best - value(np.asarray(objective.unpack(full.set(z)))), atol=1e-8)


@cases.jit
def _without_each(S, A):
    objective = sht.Precision(S, 40, bounds=(1e-9, 1e9))
    restricted = objective.restrict(sht.results.Support(jnp.arange(6), jnp.ones(6, bool)))
    z = objective.pack(A)
    return restricted.value(z), restricted.without_each(z, 3)[:3]


def test_no_removal_is_free_because_variables_nearly_copy_each_other():
    """In single precision, where nothing may be left of a conditional variance: a cost is never NaN or minus infinity,
    and where both are far from the rounding it is the one of double precision."""
    close = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        Z = rng.standard_normal((3, 3))
        Z[:, 1:] = Z[:, :1] + 10.0 ** -rng.uniform(0, 4, 2) * Z[:, 1:]
        A, S = np.linalg.inv(Z.T @ Z) * 10.0 ** rng.uniform(-4, 4), np.diag(10.0 ** rng.uniform(-4, 4, 3))
        value, costs = _without_each(*(np.asarray(each, np.float32) for each in (S, A + A.T)))
        exact, exact_costs = _without_each(S, A + A.T)
        assert not np.isfinite(value) or (costs > -np.inf).all(), (seed, costs)  # nor NaN
        near = np.linalg.cond(Z) < 30 and np.isfinite(exact_costs).all()
        close += near
        assert not near or np.allclose(costs, exact_costs, rtol=1e-3, atol=1e-3 * abs(exact)), seed
    assert close > 5


FIT = {
    method: cases.jit(jax.vmap(lambda S, mask, start, interval, method=method: minimise_log_det(
        S, mask, start, interval, method=method
    ), in_axes=(0, 0, 0, None)))
    for method in ("newton", "admm")
}  # fmt: skip


def starts(S):
    return np.einsum("bij,ij->bij", 1 / S, np.eye(S.shape[1]))


def test_newton_and_admm_agree_on_random_supports_and_satisfy_the_conditions():
    units = 10.0 ** (np.arange(50) % 9 - 4)
    Ss, supports = covariances(50) * units[:, None, None], masks(50)
    first = starts(Ss)
    first[0], first[1], first[2] = np.nan, -first[1], 0  # none of these is a start
    first[3] += 1e3 * supports[3]
    newton, admm = (FIT[name](Ss, supports, first, WIDE) for name in ("newton", "admm"))
    assert newton.solved.all() and admm.solved.all()
    for A, B, S, mask in zip(*map(np.asarray, (newton.matrix, admm.matrix, Ss, supports)), strict=True):
        assert np.linalg.norm(A - B) <= 1e-6 * np.linalg.norm(A)
        assert np.all(A[~mask] == 0) and np.all(B[~mask] == 0)
        assert np.linalg.eigvalsh(A)[0] > 0 and np.linalg.eigvalsh(B)[0] > 0
        # The inverse equals S on the support.
        assert np.abs((np.linalg.inv(A) - S)[mask]).max() <= 1e-6 * np.abs(S).max()


def dual_optimum(S, mask, interval):
    """The largest lower bound: the minimum over all matrices between the bounds of L + <G, A>, with G off the support.

    G costs nothing on the support, and the inner minimum is explicit in the eigenvalues of S + G. By duality it is the
    minimum on the support.
    """
    rows, columns = np.nonzero(np.triu(~mask))

    def bound(z):
        B = S.copy()
        B[rows, columns] += z
        B[columns, rows] += z
        d, V = np.linalg.eigh(B)
        values = np.clip(1 / np.where(d > 0, d, 1e-300), interval.lower, interval.upper)
        A = (V * values) @ V.T
        return -np.sum(d * values - np.log(values)), -2 * A[rows, columns]

    if not rows.size:
        return -bound(np.zeros(0))[0]
    return -minimize(bound, np.zeros(rows.size), jac=True, method="BFGS", options=dict(gtol=1e-9)).fun


def test_active_bounds_against_a_generic_solver():
    p = 4
    Ss, supports = covariances(50, p=p), masks(50, p=p, probability=0.6)
    free = np.asarray(FIT["newton"](Ss, supports, starts(Ss), WIDE).matrix)
    spectra = np.linalg.eigvalsh(free)
    interval = Interval(np.quantile(spectra[:, 0], 0.7), np.quantile(spectra[:, -1], 0.3))
    active = (spectra[:, 0] < interval.lower) | (spectra[:, -1] > interval.upper)
    assert 30 < active.sum() < 50, "with and without active bounds"
    newton, admm = (FIT[name](Ss, supports, starts(Ss), interval) for name in ("newton", "admm"))
    assert newton.solved.all() and admm.solved.all()
    sizes = np.linalg.norm(newton.matrix, axis=(1, 2))
    assert np.all(np.linalg.norm(newton.matrix - admm.matrix, axis=(1, 2)) <= 1e-6 * sizes)
    spectra = np.linalg.eigvalsh(newton.matrix)
    assert spectra.min() >= interval.lower * (1 - 1e-12) and spectra.max() <= interval.upper * (1 + 1e-12)
    for A, S, mask in zip(*map(np.asarray, (newton.matrix, Ss, supports)), strict=True):
        np.testing.assert_allclose(value(A, S), dual_optimum(S, mask, interval), atol=1e-7)


def test_default_bounds_hold_on_every_support():
    Ss, supports = covariances(50), masks(50, seed=5)
    free = np.asarray(FIT["newton"](Ss, supports, starts(Ss), WIDE).matrix)
    for A, S in zip(free, Ss, strict=True):
        interval = sht.Precision(S, 30).interval
        np.testing.assert_allclose(interval.lower, 1 / np.trace(S))
        np.testing.assert_allclose(interval.upper, P / np.linalg.eigvalsh(S)[0], rtol=1e-9)
        spectrum = np.linalg.eigvalsh(A)
        assert interval.lower <= spectrum[0] and spectrum[-1] <= interval.upper
    lu = sht.Precision(S, 30, bounds="lu").interval
    np.testing.assert_allclose(lu.lower, 1 / (np.linalg.norm(S, 2) + P * 0.01))
    np.testing.assert_allclose(lu.upper, (P - lu.lower * np.trace(S)) / 0.01)


@pytest.mark.parametrize("double", [False, True])
def test_the_least_eigenvalue_decides_the_upper_bound_where_it_is_more_than_rounding(double):
    """A matrix of few rows has none, and gets the bound of its trace."""
    dtype, small = (np.float64, 1e-11) if double else (np.float32, 3e-4)
    with jax.enable_x64(double):
        for seed in range(6):
            rng = np.random.default_rng(seed)
            Q, size = np.linalg.qr(rng.standard_normal((P, P)))[0], 10.0 ** rng.integers(-3, 4)
            singular = size * (few := rng.standard_normal((3, P))).T @ few
            found = sht.Precision(singular.astype(dtype), 3).interval
            np.testing.assert_allclose(found.upper, (P - 1) * P / (0.01 * np.trace(singular)), rtol=1e-5)
            regular = (Q * size * np.append(small, np.linspace(0.1, 1, P - 1))) @ Q.T
            regular = ((regular + regular.T) / 2).astype(dtype)
            found = sht.Precision(regular, 3).interval
            np.testing.assert_allclose(found.upper, P / np.linalg.eigvalsh(regular)[0], rtol=0.02)


def test_variables_that_are_uncorrelated_are_shrunk_the_most():
    """The rule divides by what their correlations are above none: zero, or in single precision less."""
    with jax.enable_x64(False):
        for p in (4, 5, 7, 11):
            found = sht.Precision(np.eye(p, dtype=np.float32), 30, shrinkage="oas")
            np.testing.assert_allclose(found.shrinkage, 0.9, rtol=1e-6)
            np.testing.assert_array_equal(found.S, np.eye(p))


def test_what_rounding_left_of_a_covariance_is_taken():
    """Of few rows, or of single precision, as semidefinite; what is smaller than a program's numbers is no variance."""
    for seed in range(4):
        few = np.random.default_rng(seed).standard_normal((2, 40)).astype(np.float32)
        rounded = few.T @ few
        assert np.linalg.eigvalsh(rounded.astype(float))[0] < -1e-8
        sht.Precision(rounded.astype(float), 10)
        sht.Precision(rounded.astype(float) * (1 + 1e-6 * np.tri(40)), 10)
    double = 1e-12 * rounded.astype(float)
    bad = {
        "positive semidefinite": double - 0.1 * np.diag(np.diag(double)),
        "symmetric": double + 1e-3 * np.tril(double),
    }
    for what, A in bad.items():
        cases.refused(ValueError, f"S: is not {what}", lambda A=A: sht.Precision(A, 10))
    tiny = np.diag([1, np.finfo(float).tiny / 2, 1])
    cases.refused(ValueError, "S: variable 1 has no variance", lambda: sht.Precision(tiny, 10))


def fit(S, k, solver=None, n=200, **options):
    objective = sht.Precision(S, n, **options)
    return sht.solve(objective, sht.OffDiagonal(k, k_max=PAIRS), solver)


SOLVERS = cases.solvers("htp", "iht", "grasp", "forward", "foba")


def planted(n=400, p=P):
    A = np.eye(p)
    for i, j in ((0, 1), (2, 5), (3, 4)):
        A[i, j] = A[j, i] = 0.45
    data = np.random.default_rng(3).standard_normal((n, p)) @ np.linalg.inv(np.linalg.cholesky(A))
    return data, A


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_finds_a_planted_graph(name):
    data, A = planted()
    S = np.cov(data.T, bias=True)
    solution = fit(S, 3, SOLVERS[name])
    assert int(solution.result) == sht.results.RESULTS.converged
    expected = pair_index(*np.nonzero(np.triu(A, 1)), P)
    np.testing.assert_array_equal(cases.members(solution.support), np.sort(expected))
    x = np.asarray(solution.x)
    mask = A != 0
    np.testing.assert_array_equal(x != 0, mask)
    np.testing.assert_array_equal(x, x.T)
    np.testing.assert_allclose(np.linalg.inv(x)[mask], S[mask], atol=1e-6)
    np.testing.assert_allclose(solution.value, value(x, S), rtol=1e-10)
    assert solution.intercept == 0 and int(solution.history.support_size[int(solution.best_step)]) == 3


@pytest.mark.slow
def test_admm_and_single_precision_agree():
    np.testing.assert_allclose(fit(S, 4, debias="admm").x, fit(S, 4).x, atol=1e-6)
    data, _ = planted()
    double = fit(np.cov(data.T), 3)
    with jax.enable_x64(False):
        single = fit(np.cov(data.T).astype(np.float32), 3)
        assert sht.SparsePrecision(3).fit(data.astype(np.float32)).precision_.dtype == np.float32
    assert single.x.dtype == np.float32 and int(single.result) == sht.results.RESULTS.converged
    np.testing.assert_allclose(single.x, double.x, atol=1e-4)


def test_ties_kept_pairs_and_the_threshold():
    threshold = sht.OffDiagonal(2, keep=[(4, 1)]).bind(sht.Precision(S, 40))
    z = jnp.arange(1.0, PAIRS + P + 1)
    x, support = threshold(z)
    kept = int(pair_index(1, 4, P))
    assert set(np.flatnonzero(x)) == {kept, PAIRS - 2, PAIRS - 1, *range(PAIRS, PAIRS + P)}
    assert support.idx[:P].tolist() == list(range(PAIRS, PAIRS + P)) and support.idx[P] == kept
    np.testing.assert_array_equal(pair_index(*pairs_of(np.arange(PAIRS), P).T, P), np.arange(PAIRS))
    mask = np.zeros((P, P), bool)
    mask[5, 0] = mask[0, 5] = True
    assert np.array_equal(sht.OffDiagonal(1, keep=mask).keep, [[0, 5]])


def test_batches_equal_loops():
    Ss, ks = jnp.asarray(covariances(3)), jnp.array([2, 5])

    def run(S, k):
        return sht.solve(sht.Precision(S, 200), sht.OffDiagonal(k, k_max=PAIRS))

    batch = cases.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(Ss, ks)
    for i, j in np.ndindex(3, 2):
        single = run(Ss[i], ks[j])
        assert batch.result[i, j] == single.result == sht.results.RESULTS.converged
        np.testing.assert_allclose(batch.x[i, j], single.x, atol=1e-9)
        np.testing.assert_allclose(batch.value[i, j], single.value, rtol=1e-11)
        assert batch.num_steps[i, j] == single.num_steps


def positive(solution):
    x = np.asarray(solution.x)
    return np.isfinite(x).all() and np.array_equal(x, x.T) and np.linalg.eigvalsh(x)[0] > 0


def test_no_pairs_and_all_pairs():
    for k, expected in ((0, np.diag(1 / np.diag(S))), (PAIRS, np.linalg.inv(S))):
        solution = sht.solve(sht.Precision(S, 200), sht.OffDiagonal(k))
        np.testing.assert_allclose(solution.x, expected, rtol=1e-6)
        assert int(solution.result) == sht.results.RESULTS.converged


@pytest.mark.parametrize("name", ["htp", "iht"])
def test_rank_deficient_and_duplicated(name):
    few = X[:3] - X[:3].mean(0)
    S = few.T @ few / 3
    for k in (2, 8):
        solution = fit(S, k, SOLVERS[name], n=3)
        assert positive(solution)
        interval = sht.Precision(S, 3).interval
        spectrum = np.linalg.eigvalsh(solution.x)
        assert interval.lower * (1 - 1e-5) <= spectrum[0] and spectrum[-1] <= interval.upper * (1 + 1e-5)
    twice = X.copy()
    twice[:, 1] = twice[:, 0]
    assert positive(fit(np.cov(twice.T), 3, SOLVERS[name]))


def test_other_weights_give_other_bounds_and_derivatives():
    counts = np.array([0, 1, 2, 3] * 10)
    weighted = sht.Precision.from_data(X, counts)
    traced = jax.jit(lambda counts: sht.Precision.from_data(X, counts).S)(counts.astype(float))
    np.testing.assert_allclose(traced, weighted.S, atol=1e-13)
    np.testing.assert_allclose(sht.Precision.from_data(X).reweighted(counts).interval, weighted.interval)
    assert weighted.reweighted() is weighted
    bounds = 0.9 / np.diag(S).max(), 1.1 / np.diag(S).max()  # which leave out the best without pairs
    narrow = sht.Precision(S, 40, bounds=bounds)
    assert np.isfinite(narrow.value(narrow.origin())) and narrow.interval == bounds
    still = sht.Precision.from_data(np.where((np.arange(P) == 0) & (np.arange(40) < 20)[:, None], 1, X))
    weights = jnp.where(jnp.arange(40) < 20, 1.0, 0)
    flat = jax.grad(lambda weights: still.reweighted(weights).origin().sum())(weights)  # a column without variance
    assert np.isfinite(flat).all()


def test_moments_scales_and_shrinkage_by_hand():
    """Within classes, under weights and others; held-out rows are about the means and in the scale of the fit."""
    rng, labels, off = np.random.default_rng(4), np.array(list("abacb") * 2), 1 - np.eye(3)
    Z, s, t, r = rng.standard_normal((10, 3)) + 2, rng.integers(0, 3, 10) * 1.0, np.arange(10.0), rng.random(10)

    def means(s):
        return np.stack([np.average(Z[labels == each], 0, s[labels == each]) for each in labels])

    def moment(s, centre):
        return (Z - centre).T @ ((s / s.sum())[:, None] * (Z - centre))

    options = {"labels": labels, "standardize": True, "shrinkage": 0.3}
    model = sht.Precision.from_data(Z, s, **options)
    for weights, found in ((s, model), (t, model.reweighted(t))):
        S = moment(weights, means(weights))
        scale = np.sqrt(np.diag(S))
        np.testing.assert_allclose(found.S, S / np.outer(scale, scale) * (1 - 0.3 * off), rtol=1e-12)
        np.testing.assert_allclose(found.scale, scale, rtol=1e-12)
        assert found.n == weights.sum() and found.shrinkage == 0.3 and np.array_equal(found.sample_weight, weights)
        held = found.scorer(jnp.asarray(r))
        np.testing.assert_allclose(held.S, moment(r, means(weights)) / np.outer(scale, scale), rtol=1e-12)
        np.testing.assert_allclose(found.scorer().S, S / np.outer(scale, scale), rtol=1e-12)
        assert held.shrinkage == found.scorer().shrinkage == 0
    small = sht.Precision.from_data(Z, 1e-2 * r, assume_centered=True, shrinkage="oas")
    S, n = moment(r, 0), 1e-2 * r.sum()
    power = np.mean((S / np.sqrt(np.outer(np.diag(S), np.diag(S)))) ** 2)
    part = min((power + 1) / ((max(n, 2) + 1) * (power - 1 / 3)), 0.9)
    np.testing.assert_allclose(small.shrinkage, part, rtol=1e-12)
    np.testing.assert_allclose(small.S, S * (1 - part * off), rtol=1e-12)
    np.testing.assert_allclose(small.n, n, rtol=1e-12)
    many = sht.Precision.from_data(Z, 50 * r, shrinkage="oas").reweighted(30 * r)
    S = moment(r, np.average(Z, 0, r))
    power = np.mean((S / np.sqrt(np.outer(np.diag(S), np.diag(S)))) ** 2)
    np.testing.assert_allclose(many.shrinkage, (power + 1) / ((30 * r.sum() + 1) * (power - 1 / 3)), rtol=1e-12)


def test_a_variable_that_differs_by_rounding_is_constant():
    """Whatever its sign, in the data, in a fold, and within the classes, where it gets its small variance."""
    flat = np.nextafter(1 / 3, 1, where=(np.arange(40) % 2 == 0), out=np.full(40, 1 / 3))
    for sign in (1, -1):
        data = np.c_[X, sign * flat]
        cases.refused(ValueError, "X: variable 6 is constant", lambda data=data: sht.Precision.from_data(data))
        sht.Precision.from_data(np.c_[X, flat * (1 + 1e-9 * X[:, 0])])
    half = (np.arange(40) < 20) * 1.0
    data = np.c_[np.where(half, flat, 1), X]
    for standardize, own, best in ((False, 0, 50), (True, 1, 1)):  # the bounds leave 50 at most
        still = sht.Precision.from_data(data, bounds=(1e-3, 50.0), standardize=standardize).reweighted(half)
        np.testing.assert_array_equal(still.S[0], own * np.eye(P + 1)[0])
        np.testing.assert_allclose(still.to_external(still.origin())[0][0, 0], best)
    labels, weights = np.arange(40) % 4, np.where(np.arange(40) % 4 == 3, 0, 1 + np.arange(40) % 5)
    levels = np.array([0, 1e3 / 3, 1e3 / 7, 5])[labels]
    data = np.c_[levels + 1e3 * (flat - 1 / 3), levels * (1 + 1e-9 * X[:, 0]), X]
    whole = sht.Precision.from_data(data, labels=labels)
    found, live = whole.reweighted(weights), weights > 0  # and a class without weight
    alone = sht.Precision.from_data(data[live], weights[live], labels=labels[live])
    np.testing.assert_allclose(found.S, alone.S, rtol=1e-9, atol=1e-18)
    share = weights / weights.sum()
    between = share @ (levels - share @ levels) ** 2
    np.testing.assert_allclose(found.S[0], 1e-8 * between * np.eye(P + 2)[0], rtol=1e-12)
    within = levels * 1e-9 * X[:, 0]
    within -= np.array([(share * within)[labels == c].sum() / share[labels == c].sum() if c < 3 else 0 for c in labels])
    np.testing.assert_allclose(found.S[1, 1], share @ within**2, rtol=1e-3)


def test_starting_points():
    first = fit(S, 4)
    np.testing.assert_array_equal(first.x, fit(S, 4, sht.solvers.HTP()).x)  # the default
    objective = sht.Precision(S, 200)
    for x0 in (first, first.x, np.ones((P, P))):  # the last is not positive definite
        again = sht.solve(objective, sht.OffDiagonal(4, k_max=PAIRS), x0=x0)
        assert positive(again) and again.value <= first.value + 0.1
    np.testing.assert_allclose(sht.solve(objective, sht.OffDiagonal(4, k_max=PAIRS), x0=first).x, first.x, atol=1e-6)


BAD = {
    "not square": ("S", lambda: sht.Precision(S[:3], 10)),
    "one variable": ("S", lambda: sht.Precision([[1.0]], 10)),
    "one sample": ("n", lambda: sht.Precision(S, 1)),
    "unknown bounds": ("bounds", lambda: sht.Precision(S, 10, bounds="tight")),
    "crossed bounds": ("bounds", lambda: sht.Precision(S, 10, bounds=(2.0, 1.0))),
    "unknown debias": ("debias", lambda: sht.Precision(S, 10, debias="cholesky")),
    "one row": ("sample_weight", lambda: sht.Precision.from_data(X[:1])),
    "weights shape": ("sample_weight", lambda: sht.Precision.from_data(X, np.ones(3))),
    "labels shape": ("labels", lambda: sht.Precision.from_data(X, labels=np.ones(3))),
    "k too large": ("k", lambda: fit(S, PAIRS + 1)),
    "keep out of range": ("keep", lambda: sht.solve(sht.Precision(S, 10), sht.OffDiagonal(1, keep=[(0, P)]))),
    "keep diagonal": ("keep", lambda: sht.OffDiagonal(1, keep=[(2, 2)])),
    "keep repeated": ("keep", lambda: sht.OffDiagonal(1, keep=[(2, 1), (1, 2)])),
    "keep flat": ("keep", lambda: sht.OffDiagonal(1, keep=[0, 1])),
    "x0 shape": ("x0", lambda: sht.solve(sht.Precision(S, 10), sht.OffDiagonal(1), x0=np.ones(3))),
}
WRONG_KIND = {
    "entries": ("threshold", lambda: sht.solve(sht.Precision(S, 10), sht.Sparsity(2))),
    "pairs of a linear model": ("threshold", lambda: sht.solve(sht.LinearModel(X, X[:, 0]), sht.OffDiagonal(2))),
    "best subset": ("solver", lambda: sht.solve(sht.Precision(S, 10), sht.OffDiagonal(2), sht.solvers.BestSubset())),
    "no samples": ("objective", lambda: sht.cross_validate(sht.Precision(S, 10))),
}
REFUSED = [*((ValueError, *bad) for bad in BAD.values()), *((TypeError, *bad) for bad in WRONG_KIND.values())]


@pytest.mark.parametrize(("error", "name", "call"), REFUSED, ids=[*BAD, *WRONG_KIND])
def test_bad_input_names_the_argument(error, name, call):
    cases.names(error, name, call)
