"""What a run that says converged has found, of functions that have a minimum and of functions that have none."""

import itertools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import sparsehtp as sht
from sparsehtp._solve import default_solver
from sparsehtp.results import RESULTS

N, P, K, DRAWS = 20, 6, 2, 3

# name -> coefficients of the terms below
KINDS = {
    "smooth": [1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    "quartic": [0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
    "flat": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    "nonconvex": [0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    "a maximum at zero": [0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
    "another": [0.1, 0, 0, 0, 1, 0, 0, 0, 0, 0],
    "unbounded": [0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
    "maximised": [-1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    "kinked": [0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
    "kinked and curved": [0.1, 0, 0, 0, 0, 0, 0, 1, 0, 0],
    "no gradient at zero": [1, 0, 0, 0, 0, 0, 0, 0, 1, 0],
    "not a number in places": [1, 0, 0, 0, 0, 0, 0, 0, 0, 1],
}
SMOOTH = ("smooth", "quartic", "flat")


def drawn_function(w, c, X, y):
    """One program for all of them."""
    eta = X @ w
    r = eta - y
    each = c[0] * r**2 / 2 + c[1] * r**4 + c[2] * jnp.log1p(r**2) + c[3] * jnp.cos(eta) + c[5] * eta
    each += c[6] * jnp.abs(r) + c[7] * jnp.maximum(0, 1 - y * eta)
    rest = c[4] * jnp.mean((w**2 - 1) ** 2) + jnp.sqrt(0.3 + c[9] * w[0])
    return 1 + jnp.mean(each) + rest + jnp.sqrt(c[8] * w @ w + (c[8] == 0))


THRESHOLDS = {
    "sparsity": sht.Sparsity(K),
    "bounds": sht.Sparsity(K, lower=-0.4, upper=0.6),
    "nonnegative": sht.Sparsity(K, lower=0),
    "simplex": sht.Simplex(K),
    "groups": sht.GroupSparsity(np.array([0, 0, 1, 1, 2, 2]), 1),
    "leaves": sht.LeafSparsity(K),
    "penalty": sht.L0L1L2(0.01),
}
LIMITS = {"bounds": (-0.4, 0.6), "nonnegative": (0, np.inf), "simplex": (0, np.inf)}
SOLVERS = cases.solvers("default", "iht", "htp", "grasp", "subspace_pursuit", "foba", "omp")


def takes(solver, threshold):
    """Whether a solver, or the default one, says that it works with a threshold and a function of one's own."""
    objective = sht.Custom(drawn_function, np.zeros(10), np.ones((N, P)), np.ones(N))
    objective = objective.started(np.zeros(P))
    try:
        (default_solver(objective, threshold) if solver is None else solver).check(objective, threshold)
    except TypeError:
        return False
    return True


QUICK = [("default", "sparsity"), ("htp", "sparsity"), ("foba", "sparsity")]
PAIRS = [
    pytest.param(solver, threshold, double, marks=() if (solver, threshold) in QUICK and double else pytest.mark.slow)
    for solver in SOLVERS
    for threshold in THRESHOLDS
    if takes(SOLVERS[solver], THRESHOLDS[threshold])
    for double in (True, False)
]


@cases.jit
def differences(c, X, y, x):
    """Central differences of F along every coordinate, first and second, in float64."""
    F = jax.vmap(lambda w: drawn_function(w, c, X, y))
    moves = 1e-5 * jnp.eye(P)
    up, down, here = F(x + moves), F(x - moves), drawn_function(x, c, X, y)
    return (up - down) / 2e-5, (up + down - 2 * here) / 1e-10


@pytest.mark.parametrize(("solver", "threshold", "double"), PAIRS)
def test_what_converged_is_level_and_curves_upwards(solver, threshold, double):
    dtype, structure, ended = np.float64 if double else np.float32, THRESHOLDS[threshold], {}
    with jax.enable_x64(double):
        for seed in range(DRAWS):
            rng = np.random.default_rng(seed)
            X, y = rng.standard_normal((N, P)), rng.standard_normal(N)
            for name, c in KINDS.items():
                c = np.asarray(c, float)
                objective = sht.Custom(drawn_function, c.astype(dtype), X.astype(dtype), y.astype(dtype))
                found = sht.solve(objective, structure, SOLVERS[solver], throw=False)
                result = RESULTS(int(found.result))
                ended.setdefault(name, set()).add(result)
                if threshold == "sparsity" and np.isfinite(found.value):
                    said = sht.certificate(objective, structure, found).statement
                    assert "No exchange" not in said and "This is the best" not in said, (name, seed, said)
                if result is not RESULTS.converged:
                    assert result not in (RESULTS.stalled, RESULTS.nonfinite) or found.fired == 0, (name, result)
                    continue
                with jax.enable_x64(True):
                    x = np.asarray(found.x, float)
                    points = rng.standard_normal((8, P))
                    slope, bend = (np.asarray(a) for a in differences(c, X, y, x))
                    around = [differences(c, X, y, w) for w in points]
                    slopes, bends = (np.nanmax(np.abs([each[i] for each in around])) for i in (0, 1))
                inside = np.zeros(P, bool)
                inside[cases.members(found.support)] = True
                if threshold == "groups":
                    inside = np.repeat(inside[:3], 2)
                inside |= np.count_nonzero(x) < (0 if threshold in ("groups", "penalty") else K)
                lower, upper = LIMITS.get(threshold, (-np.inf, np.inf))
                free = inside & (x > lower) & (x < upper)
                if threshold == "simplex" and free.any():
                    slope = slope - np.mean(slope[free])
                outwards = np.where(x <= lower, -slope, slope)
                assert np.all(outwards[inside & ~free] <= 1e-2 * slopes), (name, seed)
                assert np.all(np.abs(slope[free]) <= 1e-2 * slopes + 1e-9), (name, seed, slope, slopes)
                if threshold != "simplex":
                    assert np.all(bend[free] >= -1e-2 * bends - 1e-4), (name, seed, bend, bends)
    for name in SMOOTH:
        assert ended[name] == {RESULTS.converged}, (name, ended[name])
    for name in ("unbounded", "maximised"):
        assert threshold in LIMITS or RESULTS.converged not in ended[name], name


def of_two_features(*names):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, P))
    y = X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(N)
    return [sht.Custom(drawn_function, np.asarray(KINDS[name], float), X, y) for name in names]


@pytest.mark.parametrize("name", ["kinked", "maximised"])
def test_a_result_says_what_failed_and_what_helps(name, x64):
    """The cases that were called converged, swap-optimal or stationary at x = 0."""
    (objective,) = of_two_features(name)
    found = sht.solve(objective, sht.Sparsity(K), throw=False)
    assert found.result in (RESULTS.stalled, RESULTS.nonfinite, RESULTS.max_steps) and found.fired == 0
    assert "x0" in found.describe() and "fired" not in found.describe()
    assert not sht.certificate(objective, sht.Sparsity(K), found).swap_gain == 0


def test_a_path_and_a_batch_say_so_too(x64):
    names = ("smooth", "kinked", "no gradient at zero", "maximised")
    objectives = of_two_features(*names)
    for name, objective in zip(names, objectives, strict=True):
        results = sht.solve_path(objective, ks=[1, 2]).result
        assert np.all((results == RESULTS.converged) == (name == "smooth")), (name, results)
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *objectives)
    results = cases.jit(jax.vmap(lambda each: sht.solve(each, sht.Sparsity(K), sht.solvers.HTP()).result))(batch)
    assert results[0] == RESULTS.converged and RESULTS.converged not in results[1:], results


def student(x, X, y):
    """Of three degrees of freedom with a scale to be found: it curves downwards where the scale is far off."""
    r = (X @ x["w"] - y) * jnp.exp(-x["log_scale"])
    return 2 * jnp.mean(jnp.log1p(r**2 / 3)) + x["log_scale"]


def test_a_scale_that_is_learned_is_found(x64):
    structure = sht.LeafSparsity({"w": K, "log_scale": None})
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((40, P)) * 10 ** rng.uniform(-1, 1, P)
        signal = 1.5 * X[:, 0] / X[:, 0].std() - X[:, 1] / X[:, 1].std()
        y = (signal + 0.3 * rng.standard_t(3, 40)) * 10 ** rng.uniform(-1, 1)

        def on(pair, v, X=X, y=y):
            r = (X[:, pair] @ v[:-1] - y) * np.exp(-v[-1])
            return 2 * np.mean(np.log1p(r**2 / 3)) + v[-1]

        pairs = itertools.product(map(list, itertools.combinations(range(P), K)), (0.0, -1.0))
        best = min(minimize(lambda v, pair=pair: on(pair, v), [0, 0, start]).fun for pair, start in pairs)
        objective = sht.Custom(student, X, y, like={"w": np.zeros(P), "log_scale": np.zeros(())})
        found = sht.solve(objective, structure, sht.solvers.HTP())
        assert found.result == RESULTS.converged and abs(found.value - best) <= 1e-6 * (1 + abs(best)), seed
