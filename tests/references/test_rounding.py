"""Proofs and certificates of least squares where float64 could decide wrongly, against exact fractions."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
from rational import Quadratic

import sparsehtp as sht

N, P = 30, 6
SMALL = Fraction(1, 10**9)


def near_copies(seed):
    """Two columns that differ by 1e-13.5 to 1e-7 of their size, and targets that may follow the difference."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + rng.choice([0.0, 3.0, 1e6])
    first, second = rng.permutation(P)[:2]
    X[:, second] = X[:, first] * (1 + 10 ** rng.uniform(-13.5, -7) * rng.standard_normal(N))
    change = X[:, second] - X[:, first]
    others = X[:, (first + 1) % P] + 0.5 * X[:, (first + 2) % P]
    y = rng.uniform(0, 1.5) * (change - change.mean()) / change.std() + rng.uniform(0, 1) * (others - others.mean())
    return X, y + rng.choice([0.1, 1.0]) * rng.standard_normal(N), float(rng.choice([0.0, 0.0, 1e-20])), seed % 4 > 0


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(100, 300), marks=pytest.mark.slow)])
def test_columns_that_differ_by_little(x64, seeds):
    decided = 0
    for seed in seeds:
        X, y, l2, intercept = near_copies(seed)
        model, exact = sht.LinearModel(X, y, l2=l2, fit_intercept=intercept), Quadratic(X, y, l2, intercept=intercept)
        values = exact.choices(2)
        best = min(values.values())
        proof = sht.prove(model, sht.Sparsity(2))
        assert Fraction(proof.lower) <= best * (1 + SMALL), seed
        assert abs(exact.value(proof.x, proof.intercept) - Fraction(proof.upper)) <= SMALL * Fraction(proof.upper), seed
        assert not proof.proved or Fraction(proof.upper) <= best * Fraction(10002, 10000), (seed, proof.statement)
        decided += proof.proved
        for solution in (proof, sht.solve(model, sht.Sparsity(2), sht.solvers.HTP(), throw=False)):
            check_exchanges(sht.certificate(model, sht.Sparsity(2), solution, bounds=False), solution, exact, seed)
    assert decided >= 0.9 * len(seeds)


def check_exchanges(c, solution, exact, seed, groups=None):
    """What a certificate says of exchanges holds in exact arithmetic."""
    members = np.unique(np.asarray(solution.support.idx)[np.asarray(solution.support.mask)]).tolist()
    here = exact.value(solution.x, solution.intercept)
    units = P if groups is None else max(groups) + 1

    def columns(chosen):
        return chosen if groups is None else [j for j, g in enumerate(groups) if g in chosen]

    least = min(
        exact.minimum(columns(sorted({*members, j} - {i}))) for i in members for j in range(units) if j not in members
    )
    if c.swap_gain == 0.0:
        assert here - least <= Fraction(2, 10**10) * here, (seed, c.statement)
    if c.swap_gain:
        assert here - least >= Fraction(c.swap_gain) * (1 - SMALL), (seed, c.statement)
    if c.stationary:
        assert here - exact.minimum(columns(members)) <= SMALL * here, (seed, c.statement)


@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(100, 300), marks=pytest.mark.slow)])
def test_an_exchange_that_gains_next_to_nothing(x64, seeds):
    """A near copy brings as much as the feature that it replaces, but for 1e-6 to 1e-10 of F; no other one does."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X, noise = rng.standard_normal((N, P)), 0.3 * rng.standard_normal(N)
        change, X[:, 1] = X[:, 1].copy(), X[:, 0] + 10 ** rng.uniform(-4.4, -2) * X[:, 1]
        base = np.column_stack([np.ones(N), X[:, :3], noise])
        X[:, 3:] -= base @ np.linalg.lstsq(base, X[:, 3:])[0]

        def target(t, X=X, change=change, noise=noise):
            return X[:, 0] - change + t * X[:, 2] + noise

        def fit(members, y, X=X):
            A = np.column_stack([X[:, members], np.ones(N)])
            z = np.linalg.lstsq(A, y)[0]
            return z, np.mean((A @ z - y) ** 2)

        def worse(t):
            return fit([0, 1], target(t))[1] - fit([0, 2], target(t))[1]

        side = (-1) ** seed  # from the feature to the near copy, or back
        y = target(scipy.optimize.brentq(worse, 0, 9, xtol=1e-15) * (1 - side * 10 ** rng.uniform(-10, -6)))
        members, x = [0, 2 if side == 1 else 1], np.zeros(P)
        z = fit(members, y)[0]
        x[members] = z[:2]
        solution = SimpleNamespace(
            x=x, intercept=z[2], support=sht.results.Support(np.array(members), np.ones(2, bool))
        )
        c = sht.certificate(sht.LinearModel(X, y, fit_intercept=True), sht.Sparsity(2), solution, bounds=False)
        check_exchanges(c, solution, Quadratic(X, y, intercept=True), seed)


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(100, 300), marks=pytest.mark.slow)])
def test_groups_whose_columns_differ_by_little(x64, seeds):
    groups, threshold = [0, 0, 1, 1, 2, 2], sht.GroupSparsity([0, 0, 1, 1, 2, 2], 1)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((N, P))
        difference = 10 ** rng.uniform(-14, -6)
        X[:, 1] = X[:, 0] * (1 + difference * rng.standard_normal(N))
        change = (X[:, 1] - X[:, 0]) / (X[:, 1] - X[:, 0]).std()
        y = rng.uniform(0, 2) * change + X[:, 2] - 0.5 * X[:, 4] + 0.3 * rng.standard_normal(N)
        model, exact = sht.LinearModel(X, y, fit_intercept=bool(seed % 2)), Quadratic(X, y, intercept=bool(seed % 2))
        for start in (2, 4):
            x0 = np.zeros(P)
            x0[start] = 1.0
            solution = sht.solve(model, threshold, sht.solvers.HTP(), x0=x0, throw=False)
            check_exchanges(sht.certificate(model, threshold, solution, bounds=False), solution, exact, seed, groups)


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(100, 200), marks=pytest.mark.slow)])
def test_collections_of_tiny_noise(x64, seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X, noise = rng.standard_normal((N, P)) * 10.0 ** rng.integers(-2, 3, P), 10 ** rng.uniform(-13, -5)
        y = (X / X.std(0)) @ rng.choice([0.0, 0.0, 1.0, -2.0], P) + rng.standard_normal(N) * noise
        intercept, share = bool(seed % 2), float(rng.choice([1.0001, 1.01, 1.2]))
        values = Quadratic(X, y, intercept=intercept).choices(3)
        best = min(values.values())
        proof = sht.prove(sht.LinearModel(X, y, fit_intercept=intercept), sht.Sparsity(3), collect=share)
        assert Fraction(proof.lower) <= best * (1 + SMALL) and proof.collected.complete, seed
        found = {frozenset(np.flatnonzero(mask).tolist()) for mask in proof.collected.masks}
        if "within rounding" in proof.statement:  # of targets of size one
            assert all(values[s] <= best + Fraction(1e-26) for s in found), seed
            continue
        level = best * Fraction(share)
        assert {s for s, v in values.items() if v <= level * (1 - 4 * SMALL)} <= found, (seed, proof.statement)
        assert found <= {s for s, v in values.items() if v <= level * (1 + 4 * SMALL)}, (seed, proof.statement)


def test_copies_in_other_units_add_nothing(x64):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((N, P))
    X[:, 4] = X[:, 1] * 2.54  # rounded, so that in exact arithmetic these columns differ
    y = X[:, 1] + X[:, 2] + 0.3 * rng.standard_normal(N)
    values = Quadratic(X, y, intercept=True).choices(3)
    proof = sht.prove(sht.LinearModel(X, y, fit_intercept=True), sht.Sparsity(3), collect=1.05)
    assert "columns that copy others but for rounding add nothing" in proof.statement
    assert proof.upper == pytest.approx(float(min(v for s, v in values.items() if not {1, 4} <= s)), rel=1e-9)
    assert np.abs(proof.x).max() < 10
