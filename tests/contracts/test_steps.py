"""Step sizes: the laws of `sparsehtp.testing`, and what every rule proposes; first sizes are in test_stochastic.py."""

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


def test_the_schedule_of_losses_that_are_not_smooth():
    np.testing.assert_allclose([sht.steps.inverse_sqrt(t) for t in (0, 3, 8)], [1, 1 / 2, 1 / 3])


LEAST = {
    "batch_size": sht.steps.SampleStep,
    "working_set": sht.solvers.BestSubset,
    "first": sht.solvers.HybridHT,
}


@pytest.mark.parametrize("name", LEAST)
def test_counts_are_taken_from_one_on(name):
    LEAST[name](**{name: 1})
    cases.refused(ValueError, f"{name}: must be at least 1", lambda: LEAST[name](**{name: 0}))
