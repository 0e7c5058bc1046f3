"""Batches that once hung or failed."""

import re

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.linalg import masked_factor


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="about LAPACK on a CPU")
def test_factorisations_of_a_batch_are_not_batched_calls():
    """Two independent batched LAPACK calls waited for each other in jaxlib's thread pool, for ever."""

    def inverse(A):
        return masked_factor(A, jnp.ones(6, bool)).inverse(A.dtype)

    A = jnp.asarray(np.random.default_rng(0).standard_normal((72, 8, 6)), jnp.float32)
    A = jnp.swapaxes(A, 1, 2) @ A
    lowered = jax.jit(jax.vmap(inverse)).lower(A)
    calls = [line for line in lowered.as_text().splitlines() if "@lapack_" in line]
    assert calls
    for line in calls:
        assert not re.search(r"tensor<72x\d+x\d+xf", line), line
    np.testing.assert_allclose(lowered.compile()(A) @ A, np.broadcast_to(np.eye(6), (72, 6, 6)), atol=1e-3)


@pytest.mark.parametrize(
    "solver", [sht.solvers.ForwardSelection(), sht.solvers.BestSubset("fast")], ids=["forward", "best_subset"]
)
def test_a_constant_column_beside_an_intercept_is_left_out(solver):
    """Its curvature is rounding, which made its score noise; it repeats the intercept."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 6)).astype(np.float32)
    X[:, 2] = 0.1
    model = sht.LinearModel(X, X[:, 0] + 0.5 * X[:, 4] + rng.standard_normal(50), fit_intercept=True)
    solution = sht.solve(model, sht.Sparsity(5), solver)
    assert solution.result == sht.results.RESULTS.converged
    assert cases.members(solution.support).tolist() == [0, 1, 3, 4, 5]
