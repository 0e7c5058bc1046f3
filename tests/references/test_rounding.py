"""Proofs and certificates of least squares where float64 could decide wrongly, against exact fractions."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
from rational import Quadratic

import sparsehtp as sht
from sparsehtp.certificates import exact

N, P = 30, 6
SMALL = Fraction(1, 10**9)


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
        support = sht.results.Support(np.array(members), np.ones(2, bool))
        solution = SimpleNamespace(x=x, intercept=z[2], support=support)
        c = sht.certificate(sht.LinearModel(X, y, fit_intercept=True), sht.Sparsity(2), solution, bounds=False)
        exact = Quadratic(X, y, intercept=True)
        here, others = exact.value(x, z[2]), sorted({*range(P)} - {*members})
        least = min(exact.minimum(sorted({*members, j} - {i})) for i in members for j in others)
        if c.swap_gain == 0.0:
            assert here - least <= Fraction(2, 10**10) * here, (seed, c.statement)
        if c.swap_gain:
            assert here - least >= Fraction(c.swap_gain) * (1 - SMALL), (seed, c.statement)
        if c.stationary:
            assert here - exact.minimum(members) <= SMALL * here, (seed, c.statement)


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


def test_exact_fits_are_of_the_numbers_themselves_and_of_columns_that_depend_on_no_others():
    for numbers in ([0.0, 3e5, -7.25], [0.0, 0.0], [1e-300, 0.0, -5e300]):
        whole, power = exact.integers(np.array(numbers))
        assert [int(m) * Fraction(2) ** power for m in whole] == [Fraction(each) for each in numbers]
    X = np.random.default_rng(0).integers(-9, 9, (8, 4)) + 0.5
    X[:, 2] = X[:, 0] - X[:, 1]
    moments = exact.Moments(lambda j: X[:, j], [X[:, 3] ** 2], np.ones(8), True)
    (value, x), (least, z) = (moments.fit(own, [Fraction(0)] * len(own)) for own in ([0, 1, 2, 3], [0, 1, 3]))
    assert value == least and x == [*z[:2], 0, z[2]]
    w, ridge, rows = [Fraction(1, 4), Fraction(-3)], [Fraction(2), Fraction(1, 7)], [[*map(Fraction, r)] for r in X]
    for intercept in (True, False):
        at = exact.Moments(lambda j: X[:, j], [X[:, 3] ** 2, 1e-3 * X[:, 0]], np.arange(1.0, 9), intercept)

        def value(w, level, intercept=intercept):
            rest = [y**2 + Fraction(float(1e-3 * a)) - a * w[0] - b * w[1] - intercept * level for a, b, _, y in rows]
            return sum(m * r**2 for m, r in enumerate(rest, 1)) / 36 + ridge[0] * w[0] ** 2 + ridge[1] * w[1] ** 2

        assert at.value([0, 1], ridge, np.array(w, float), Fraction(1, 3)) == value(w, Fraction(1, 3))
        (least, (a, b)), here = at.fit([0, 1], ridge), at.mean(-1)
        here -= a * at.mean(0) + b * at.mean(1)
        more = [value([a + i, b + j], here) - least for i, j in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))]
        assert more[0] == 0 < more[1] == more[2] and 0 < more[3] == more[4]
