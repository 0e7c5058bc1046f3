"""A refit never raises what it refits: from any start, on any support, for every objective, in both precisions."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.results import RESULTS
from sparsehtp.solvers.refit import refit

N, P, K = 20, 6, 3
QUICK = ("squared", "logistic", "poisson", "custom")
NAMES = [name for name, loss in cases.LOSSES.items() if loss.twice_differentiable]
NAMES += [name for name in cases.OBJECTIVES if name not in ("linear_model", "precision")]


def drawn(name, seed, dtype):
    """An objective whose columns differ in scale; some are near copies, some far from zero."""
    rng, loss = np.random.default_rng(seed), cases.LOSSES.get(name, sht.losses.Squared())
    X = rng.standard_normal((N, P)) * 10.0 ** rng.uniform(-2, 2, P)
    if seed % 3 == 0:
        X[:, 1] = X[:, 0] * (1 + 10.0 ** rng.uniform(-9, -1) * rng.standard_normal(N))
    if seed % 4 == 0:
        X[:, 2] += 100 * X[:, 2].std()
    y = loss.draw_targets((X - X.mean(0)) / X.std(0) @ rng.standard_normal(P), rng)
    X, y = X.astype(dtype), np.asarray(y, dtype)
    if name not in cases.LOSSES:
        return cases.OBJECTIVES[name](X, y), rng
    return sht.LinearModel(X, y, loss, l2=1e-4 * (seed % 2), fit_intercept=True), rng


def values(dtype):
    """A compiled function: F at a start on some units, and at its refit."""

    @cases.jit
    def call(objective, units, z):
        kind = sht.RowSparsity if isinstance(objective, sht.MultiResponse) else sht.Sparsity
        threshold, d = kind(K, k_max=K).bind(objective), objective.n_coefficients + objective.n_free
        entries = threshold.entries(jnp.zeros(d, dtype), sht.results.Support(units, jnp.ones(units.shape, bool)))
        start = objective.feasible(jnp.zeros(d, dtype).at[entries.idx].set(z[: entries.idx.shape[0]]))
        x, _ = refit(objective, threshold, entries, start)
        return objective.value(start, entries), objective.value(x, entries)

    return call


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_a_refit_never_raises_its_objective(name, double):
    dtype = np.dtype(np.float64 if double else np.float32)
    with jax.enable_x64(double):
        call = values(dtype)
        for seed in range(12):
            objective, rng = drawn(name, seed, dtype)
            free = objective.n_coefficients // max(1, objective.n_coefficients // P) + np.arange(objective.n_free)
            units = np.concatenate([free, rng.choice(P, K, replace=False)]).astype(np.int32)
            z = rng.standard_normal(2 * (K + objective.n_free)) * 10.0 ** rng.uniform(-3, 1)
            before, after = map(float, call(objective, units, z.astype(dtype)))
            assert np.isfinite(after) and not after > before + 16 * jnp.finfo(dtype).eps * abs(before), (seed, before)


def test_a_refit_never_raises_a_least_squares_solution_in_float64():
    """float32 counts nearly equal columns as collinear, and drops what little tells them apart."""
    call = values(np.float32)
    for seed in range(0, 60, 3):
        objective, rng = drawn("squared", seed, np.float32)
        chosen = np.array([0, 1, rng.integers(2, P)])
        A = np.column_stack([np.ones(N), np.asarray(objective.columns.design.columns(chosen), float)])
        ridge = np.diag(np.sqrt([0, *[N * float(objective.l2)] * K]))
        z = np.linalg.lstsq(np.vstack([A, ridge]), np.append(objective.y, np.zeros(K + 1)))[0]
        before, after = map(float, call(objective, np.append(P, chosen).astype(np.int32), z.astype(np.float32)))
        assert after <= before * (1 + 1e-5), (seed, before, after)


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
def test_polishing_a_dual_ascent_lowers_its_objective(double):
    """The dual points are those without a refit, so that the run does not end because the refit stood still."""
    dtype = np.dtype(np.float64 if double else np.float32)
    with jax.enable_x64(double):
        for solver in (sht.solvers.DIHT, sht.solvers.SDIHT):
            for seed in range(8):
                rng = np.random.default_rng(seed)
                X = (rng.standard_normal((N, P)) + rng.standard_normal(N)[:, None]).astype(dtype)
                model = sht.LinearModel(X, (X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(N)).astype(dtype), l2=0.3)
                both = (solver(polish=polish) for polish in (False, True))
                plain, polished = (sht.solve(model, sht.Sparsity(2), each, max_steps=60) for each in both)
                assert polished.value <= plain.value * (1 + 16 * jnp.finfo(dtype).eps), (solver, seed)
                if polished.result == RESULTS.converged:
                    assert plain.result == RESULTS.converged, (solver, seed)
