"""Step sizes: the laws of `sparsehtp.testing`, and what every rule proposes; first sizes are in test_stochastic.py."""

import cases
import jax.numpy as jnp
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
    sht.steps.SampleStep: ["batch_size"],
    sht.solvers.BestSubset: ["working_set"],
    sht.solvers.HybridHT: ["first", "iterations"],
    sht.solvers.StochasticHT: ["batch_size", "epoch"],
    sht.solvers.SVRGHT: ["batch_size", "inner_steps"],
    sht.solvers.SAGAHT: ["batch_size"],
}


@pytest.mark.parametrize("kind", LEAST)
def test_counts_are_taken_from_one_on(kind):
    for name in LEAST[kind]:
        kind(**{name: 1})
        cases.refused(ValueError, f"{name}: must be at least 1", lambda name=name: kind(**{name: 0}))


def test_a_normalised_step_keeps_its_size_where_nothing_tells_another():
    """No gradient, no curvature, or squares of the gradient that are no numbers."""
    form = sht.QuadraticForm(np.diag(np.float32([1e20, 1, 0, 1e-30])), np.zeros(4, np.float32))
    at = sht.steps.base.At(jnp.zeros(4), jnp.zeros(4), None, jnp.asarray(0.25), jnp.int32(1))
    propose = cases.jit(lambda grad: sht.steps.NormalisedStep().propose(form, at._replace(grad=grad)))
    assert propose(jnp.array([0.0, 3, 0, 0])) == 1
    for grad in ([0, 0, 0, 0], [0, 0, 3, 0], [0, 1e30, 0, 0], [1e-25, 0, 0, 0], [0, 0, 0, 1e30]):
        assert propose(jnp.array(grad, jnp.float32)) == 0.25
