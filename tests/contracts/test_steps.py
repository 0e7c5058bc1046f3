"""Step sizes: the laws of `sparsehtp.testing`, and what every rule proposes."""

import cases
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.testing import check_step

# name -> function of (t, last size, gradient on the support, Hessian)
PROPOSES = {
    "constant": lambda t, last, g, H: last,
    "constant_size": lambda t, last, g, H: 0.25,
    "normalised": lambda t, last, g, H: (g @ g) / (g @ H @ g),
    "backtracking": lambda t, last, g, H: last if t == 0 else 2 * last,
    "schedule": lambda t, last, g, H: cases.decreasing(t),
    "sample": lambda t, last, g, H: last,
    "sample_batch": lambda t, last, g, H: last,
}


@pytest.mark.parametrize("name", cases.STEPS)
def test_laws(name):
    check_step(cases.STEPS[name], reference=PROPOSES[name])


@pytest.mark.usefixtures("x64")
def test_first_sizes():
    rng = np.random.default_rng(0)
    X, y, weights = rng.standard_normal((9, 3)), rng.standard_normal(9), rng.uniform(1, 2, 9)
    model = sht.LinearModel(X, y, l2=0.1, sample_weight=weights)
    share = weights / weights.sum()
    whole = np.linalg.eigvalsh((X.T * share) @ X)[-1] + 0.1
    single = np.max(9 * share * np.sum(X**2, axis=1)) + 0.1
    np.testing.assert_allclose(sht.steps.ConstantStep(scale=0.5).init(model) * whole, 0.5, rtol=1e-3)
    np.testing.assert_allclose(sht.steps.SampleStep(0.5).init(model) * single, 0.5, rtol=1e-3)
    b = 4
    mixed = 9 * (b - 1) / (b * 8) * whole + (9 - b) / (b * 8) * single
    np.testing.assert_allclose(sht.steps.SampleStep(batch_size=b).init(model) * mixed, 1, rtol=1e-3)
