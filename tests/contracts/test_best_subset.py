"""BestSubset and its tableau against exhaustive search and refits."""

import functools
import itertools
import types

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.linalg.tableau import addition_gains, empty_tableau, pivot, removal_losses, swap_gains, tableau_at
from sparsehtp.objectives import GramEquations
from sparsehtp.solvers.best_subset import EFFORTS
from sparsehtp.solvers.refit import with_free
from sparsehtp.solvers.working_set import gram_equations, narrowed_to, promises, support_of, swap_scores

N, P, K = 40, 9, 3
MODELS = {
    "plain": {},
    "weights_l2": {"l2": 0.3, "sample_weight": np.random.default_rng(2).uniform(0.5, 2, N)},
    "intercept": {"fit_intercept": True, "l2": 0.1},
    "standardized": {"fit_intercept": True, "standardize": True, "l2": np.linspace(0.01, 0.2, P)},
    "scaled": {"standardize": True, "offset": np.linspace(-1, 1, N)},
}


def problem(seed, rho=0.9):
    """A hard design: AR(rho) columns of different scales, and a mean."""
    rng = np.random.default_rng(seed)
    X = cases.chained(rng.standard_normal((N, P)), rho)
    y = X[:, 1] - X[:, 4] + 0.5 * X[:, 7] + rng.standard_normal(N) + 1
    return X * np.geomspace(0.5, 2, P) + 0.3, y


def exhaustive(model, k):
    """The smallest value over all supports, each fitted by its own restricted problem."""
    p = model.n_coefficients
    supports = np.array([[*range(p, p + model.n_free), *S] for S in itertools.combinations(range(p), k)], np.int32)
    return float(fitted_values(model, jnp.asarray(supports)).min())


@cases.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def fitted_values(model, idx):
    restricted = model.restrict(sht.results.Support(idx, jnp.ones(idx.shape, bool)))
    return restricted.value(restricted.minimise(jnp.zeros(idx.shape[0])).z)


def searched(name, seed):
    """A linear model with the options of `MODELS` or a loss of that name, or another objective."""
    if name in MODELS:
        return sht.LinearModel(*problem(seed), **MODELS[name])
    (X, y), rng = problem(seed, rho=0.5), np.random.default_rng(seed)
    if name == "cox":
        return sht.CoxModel(X, rng.exponential(np.exp(-y / 2)), rng.random(N) < 0.8, l2=1e-3)
    if name == "ordinal":
        levels = np.quantile(y / 2, [0.2, 0.5, 0.8])
        return sht.OrdinalModel(X, np.digitize(y / 2 + rng.logistic(size=N), levels), l2=1e-3)
    loss = cases.LOSSES[name]
    return sht.LinearModel(X, loss.draw_targets(y / 2, rng), loss, l2=0.01, fit_intercept=True)


# name -> problems; noisy enough for greedy searches to miss some
SEARCHES = dict.fromkeys(MODELS, 5) | dict.fromkeys(["logistic", "poisson", "huber", "smoothed_hinge"], 3)
SEARCHES |= {"cox": 10, "ordinal": 10}


@pytest.mark.parametrize("name", SEARCHES)
def test_finds_the_best_subset(x64, name):
    for seed in range(SEARCHES[name]):
        model = searched(name, seed)
        start = np.ones(P) if seed else None  # more features than there may be
        solution = sht.solve(model, sht.Sparsity(K), sht.solvers.BestSubset(), start)
        if name in ("huber", "smoothed_hinge"):  # a local model says little about such a loss
            assert solution.value <= sht.solve(model, sht.Sparsity(K), sht.solvers.HTP()).value * (1 + 1e-9)
        else:
            np.testing.assert_allclose(solution.value, exhaustive(model, K), rtol=1e-9)
        assert solution.result == sht.results.RESULTS.converged and solution.fired == sht.results.FIRED.SwapOptimal


def test_duplicate_columns_and_more_features_than_samples(x64):
    X, y = problem(4)
    X = np.hstack([X, X])[:6]  # 6 samples, rank at most 6, every column twice
    solution = sht.solve(sht.LinearModel(X, y[:6]), sht.Sparsity(8), sht.solvers.BestSubset(), throw=False)
    assert np.isfinite(solution.x).all()
    assert float(solution.value) < 1e-12 * float(y[:6] @ y[:6])


def test_what_it_does_not_take():
    solver, wide = sht.solvers.BestSubset(), sht.LinearModel(np.zeros((2, 2100)), np.ones(2))
    of_two, bounded = (lambda k: sht.GroupSparsity(np.arange(2100) // 2, k)), lambda k: sht.Sparsity(k, lower=0)
    for most, units, threshold in ((2048, 2048, sht.Sparsity), (2048, 1024, of_two), (256, 256, bounded)):
        solver.check(wide, threshold(units))
        cases.refused(ValueError, f"limited to {most}", lambda: solver.check(wide, threshold(units + 1)))  # noqa: B023
    within = sht.GroupSparsity(np.arange(2100) // 2, 1, within=1)
    cases.refused(TypeError, "does not take the threshold GroupSparsity; leave", lambda: solver.check(wide, within))
    cases.refused(ValueError, "effort", lambda: sht.solvers.BestSubset("hard"))


@pytest.mark.parametrize("name", ["plain", pytest.param("standardized", marks=pytest.mark.slow)])
def test_path_gives_every_k(x64, name):
    """Each size's best subset, on designs where the way up alone misses some and the way back finds them."""
    path = cases.jit(lambda m, t: sht.solvers.BestSubset().path(m, t, jax.random.key(0)))
    for seed in (1, 3, 10, 11):
        model = sht.LinearModel(*problem(seed), **MODELS[name])
        trail = path(model, sht.Sparsity(7, k_max=8).bind(model))
        np.testing.assert_allclose(trail.value[1:8], [exhaustive(model, k) for k in range(1, 8)], rtol=1e-9)
        np.testing.assert_allclose(trail.value[8], trail.value[7])
    for k in range(8):
        support = sht.results.Support(trail.support.idx[k], trail.support.mask[k])
        assert int(support.mask.sum()) == k + model.n_free
        refit = model.restrict(support).minimise(jnp.zeros(support.idx.shape[0]))
        np.testing.assert_allclose(trail.z[k], refit.z, atol=1e-9)


@pytest.mark.parametrize("loss", [sht.losses.Squared(), sht.losses.Logistic()], ids=type)
def test_working_set_reaches_a_swap_optimum(x64, loss):
    X, y, support = cases.planted(loss, n=150, p=60)
    model = sht.LinearModel(X, y, loss, l2=0.01, fit_intercept=True)
    solution = sht.solve(model, sht.Sparsity(3), sht.solvers.BestSubset("fast", working_set=8))
    assert solution.result == sht.results.RESULTS.converged
    np.testing.assert_array_equal(cases.members(solution.support), support)
    path = cases.jit(lambda m, t: sht.solvers.BestSubset("fast", working_set=8).path(m, t, jax.random.key(0)))
    trail = path(model, sht.Sparsity(3).bind(model))
    assert set(np.asarray(trail.support.idx[3, 1:])) == set(support.tolist())


def test_working_sets_of_groups_reach_swap_optima(x64):
    for seed in (0, 2, 3, 7):
        X, y = problem(seed, rho=0.8)
        model = sht.LinearModel(X, y, l2=0.01, fit_intercept=True)
        threshold = sht.GroupSparsity(np.arange(P), 3)
        solution = sht.solve(model, threshold, sht.solvers.BestSubset("fast", working_set=5))
        assert sht.certificate(model, threshold, solution, bounds=False).swap_gain == 0


@pytest.mark.slow
def test_thorough_finds_the_optimum_of_correlated_designs(x64):
    """AR(0.95) designs with p = 20 to 25 and k = 5, a hundred of them, against all subsets."""
    for seed in range(100):
        rng, p = np.random.default_rng(seed), 20 + seed % 6
        X = cases.chained(rng.standard_normal((50, p)), 0.95)
        signal = X[:, rng.choice(p, 5, replace=False)] @ (rng.choice([-1, 1], 5) * rng.uniform(0.5, 1.5, 5))
        model = sht.LinearModel(X, signal + rng.standard_normal(50) * signal.std() / np.sqrt(2))
        solution = sht.solve(model, sht.Sparsity(5), sht.solvers.BestSubset("thorough"))
        np.testing.assert_allclose(solution.value, exhaustive(model, 5), rtol=1e-9)


def test_moves_of_a_tableau_are_exact(x64):
    """What every move gains, and the tableau after it, which is the one that is made there."""
    X, y = problem(5)
    A, b, l2 = jnp.asarray(X.T @ X + 0.3 * np.eye(P)), jnp.asarray(X.T @ y), 0.3
    equations, chosen = GramEquations(A, b, jnp.diagonal(A), jnp.asarray(y @ y)), [1, 4, 6, None]
    move = cases.jit(lambda t, *move: pivot(equations.rows, t, *move, addition_gains(t)))
    made = cases.jit(lambda idx, mask: tableau_at(equations, idx, mask))
    gains = cases.jit(lambda t: (addition_gains(t), removal_losses(t, t.idx >= 0), swap_gains(t, t.idx >= 0)))

    def at(rows):
        return made(np.array([j or 0 for j in rows]), np.array([j is not None for j in rows]))

    def value(features):
        c = np.linalg.solve(np.asarray(A)[np.ix_(features, features)], np.asarray(b)[features])
        return np.sum((y - X[:, features] @ c) ** 2) + l2 * c @ c

    t = at(chosen)
    adds, losses, swaps = map(np.asarray, gains(t))
    np.testing.assert_allclose(empty_tableau(equations, 4).value, y @ y)
    for i, j in itertools.product(range(4), [0, 2, 3, 5, 7, 8, None]):
        after = [*chosen[:i], j, *chosen[i + 1 :]]
        gain = -losses[i] if j is None else adds[j] if i == 3 else swaps[i, j]
        moved = move(t, np.int32(i), np.int32(j or 0), np.asarray(i < 3), np.asarray(j is not None))
        if i < 3 or j is not None:
            np.testing.assert_allclose(t.value - gain, value([f for f in after if f is not None]), rtol=1e-9)
        fresh, rows = at(after), np.array([f is not None for f in after])
        for name in ("idx", "c", "g", "q", "value", "chosen", "inverse", "H"):
            np.testing.assert_allclose(getattr(moved, name), getattr(fresh, name), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(moved.gram[rows][:, rows], fresh.gram[rows][:, rows], rtol=1e-9)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_matrix_of_a_working_set_is_the_hessian_of_refits(x64, fit_intercept, standardize):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 8)) * np.geomspace(0.1, 10, 8) + 0.5
    weights = rng.integers(0, 3, 40)
    model = sht.LinearModel(
        X, rng.standard_normal(40), None, 0.3, weights, fit_intercept=fit_intercept, standardize=standardize
    )
    A = gram_equations(model.normal_equations()).A
    support = support_of(model, jnp.array([5, 2, 6, 0]), jnp.int32(3))
    idx = support.idx[model.n_free :]
    restricted, mask = model.restrict(support), np.asarray(support.mask)
    found = with_free(restricted, A[idx][:, idx], model.n_free)
    expected = restricted.hess(jnp.zeros(mask.size))
    np.testing.assert_allclose(found[mask][:, mask], expected[mask][:, mask], atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("keep", [[], [5]])
def test_a_fit_in_a_working_set_is_that_of_its_features_among_all(x64, keep):
    """Rows of a tableau may be empty, or hold a kept feature, which comes first."""
    X, y = problem(2)
    model = sht.LinearModel(X, y, l2=0.1, fit_intercept=True)
    rows = np.array([2, -1, 0, 1 if keep else -1, 3], np.int32)
    threshold, features = sht.Sparsity(K, k_max=4, keep=keep).bind(model), np.array([7, 5, 1, 3, 8], np.int32)

    @cases.jit
    def fitted(start):
        within = narrowed_to(model, threshold, jnp.asarray(features))
        inward = within.inward(start, P)
        A = gram_equations(within.objective.normal_equations(inward)).A
        return inward, within.outward(within.fitted(threshold, jnp.asarray(rows), inward, A[rows][:, rows]), P)

    inward, point = fitted(jnp.arange(P + 1.0))
    np.testing.assert_array_equal(inward, [*features, P])
    idx, size = point.where
    S, Z = [*keep, 1, 7, 3], X - X.mean(0)
    assert idx[:size].tolist() == S and point.fault == 0
    w = np.linalg.solve(Z[:, S].T @ Z[:, S] / N + 0.1 * np.eye(len(S)), Z[:, S].T @ y / N)
    expected, intercept = model.to_external(point.x)
    np.testing.assert_allclose(expected, np.bincount(S, w, P), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(intercept, y.mean() - X[:, S].mean(0) @ w, rtol=1e-9)
    np.testing.assert_allclose(point.value, np.mean((y - y.mean() - Z[:, S] @ w) ** 2) / 2 + 0.05 * w @ w, rtol=1e-9)


def test_what_lies_in_the_span_of_what_is_kept_promises_nothing():
    """However large the coefficients of the kept features, in single precision; others promise their best swap."""
    score = cases.jit(swap_scores)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((40, 30)).astype(np.float32)
        X[:, 10:29] = X[:, :2] @ rng.choice([-1, 0.5, 1, 3], (2, 19)).astype(np.float32)
        X[:, 29] = 0
        y = (1000 * (X[:, 0] - X[:, 1]) + rng.standard_normal(40)).astype(np.float32)
        A, idx, inside = X.T @ X, np.array([0, 1, 3, 5, 0], np.int32), [0, 1, 3, 5]
        equations = GramEquations(*map(jnp.asarray, (A, X.T @ y, np.diag(A), y @ y)))
        found = np.asarray(score(equations, np.arange(30) < 2, idx, np.arange(5) < 4))
        assert (found[10:] == -np.inf).all() and (found[inside] == -np.inf).all(), seed
        X, y = X.astype(float), y.astype(float)

        def value(S, X=X, y=y):
            return np.sum((y - X[:, S] @ np.linalg.lstsq(X[:, S], y, rcond=None)[0]) ** 2)

        swaps = [(value(inside) - value([0, 1, rest, j])) for j in (2, 4, 6, 7, 8, 9) for rest in (3, 5)]
        np.testing.assert_allclose(found[[2, 4, 6, 7, 8, 9]], np.reshape(swaps, (6, 2)).max(1), atol=0.1)


def test_features_promise_what_their_slopes_say_also_before_the_first_fit(x64):
    """Where there is no gradient yet; a column of zeros promises nothing."""
    X, y = problem(0)
    X[:, 3] = 0
    model, nothing = sht.LinearModel(X, y, fit_intercept=True), jnp.zeros(P + 1)
    threshold = sht.Sparsity(K).bind(model)
    promised = cases.jit(lambda state: promises(model, threshold, types.SimpleNamespace(**state), jnp.asarray(True)))
    support = sht.results.Support(jnp.full(K + 1, P), jnp.arange(K + 1) < 1)
    centred = X - X.mean(0)
    slopes, energy = centred.T @ y / N, np.mean(centred**2, axis=0)
    for value, grad in ((np.inf, nothing), (1.0, jnp.append(2 * slopes, 0))):
        found = promised(dict(x=nothing, value=jnp.asarray(value), grad=grad, support=support))
        expected = (1 if value == np.inf else 4) * slopes**2 / np.where(energy > 0, energy, np.inf)
        np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize("threshold", [sht.Sparsity(3, k_max=4, keep=[0]), sht.GroupSparsity(np.arange(P) // 2, 3)])
def test_a_search_among_supports_that_all_explain_everything_ends(threshold):
    """Of targets in the span of two features what other supports are better by is rounding, in single precision."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((N, P)).astype(np.float32)
        y = (X[:, 1:3] @ [1, 2] * (seed > 0)).astype(np.float32)
        solution = sht.solve(sht.LinearModel(X, y), threshold, sht.solvers.BestSubset())
        assert int(solution.result) == sht.results.RESULTS.converged and solution.num_steps <= 6, seed


def test_no_effort_searches_among_fewer_features_than_a_lesser_one():
    threshold = sht.Sparsity(3, k_max=16)
    for n in (10, 2000, 3000, 40_000, 10**7):
        objective = types.SimpleNamespace(n_coefficients=5000, ifo_per_gradient=n)
        widths = [sht.solvers.BestSubset(e)._model_width(objective, threshold) for e in ("fast", "default", "thorough")]
        assert widths == sorted(widths) and 128 <= widths[0] <= 512
        assert n > 2000 or widths == [512, 512, 2048]
    steps = [sht.solvers.BestSubset(effort).default_max_steps for effort in EFFORTS]
    assert steps == [50, 100, 400] and np.all(np.diff([effort[:2] for effort in EFFORTS.values()], axis=0) > 0)
    large = types.SimpleNamespace(n_coefficients=10**8, ifo_per_gradient=1, dtype=float)
    few = sht.solvers.BestSubset(working_set=8)
    assert few._model_width(large, sht.Sparsity(300, k_max=300)) == 600
    assert few._path_width(types.SimpleNamespace(n_coefficients=17, dtype=float), threshold) is None, "all are few"
    assert few._path_width(large, threshold) == 17 and sht.solvers.BestSubset()._path_width(large, threshold) == 512
    fits = types.SimpleNamespace(n_coefficients=2**25 // 16, dtype=float)  # in 256 MiB
    assert sht.solvers.BestSubset()._path_width(fits, threshold) is None
