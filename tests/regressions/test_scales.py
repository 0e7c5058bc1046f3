"""Faults that were found once: extreme scales, weightless rows, minima at infinity."""

import numpy as np
import pytest

import sparsehtp as sht

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 6))
Y = X[:, 0] - 2 * X[:, 4]


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_standardisation_survives_extreme_column_scales(x64, scale):
    model = sht.LinearModel(X * scale, Y, fit_intercept=True, standardize=True)
    solution = sht.solve(model, sht.Sparsity(2), sht.HTP())
    np.testing.assert_allclose(np.asarray(solution.x)[[0, 4]] * scale, [1, -2], rtol=1e-9)


def test_a_weightless_row_does_not_spoil_a_poisson_fit(x64):
    y = RNG.poisson(np.exp(0.5 * X[:, 0])).astype(float)
    clean = sht.solve(sht.LinearModel(X, y, sht.Poisson()), sht.Sparsity(1), sht.HTP())
    X_dirty = np.vstack([X, 1e4 * np.ones((1, 6))])
    weights = np.append(np.ones(40), 0.0)
    model = sht.LinearModel(X_dirty, np.append(y, 3.0), sht.Poisson(), sample_weight=weights)
    dirty = sht.solve(model, sht.Sparsity(1), sht.HTP())
    np.testing.assert_allclose(dirty.x, clean.x, rtol=1e-8)


def test_a_minimum_at_infinity_is_not_called_converged(x64):
    model = sht.LinearModel(X, np.zeros(40), sht.Poisson(), fit_intercept=True)
    solution = sht.solve(model, sht.Sparsity(0), sht.HTP())
    assert solution.result == sht.RESULTS.max_steps
    assert np.isfinite(solution.intercept)
