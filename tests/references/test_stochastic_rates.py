"""[Tight] Corollary 15 along runs."""

import jax
import numpy as np
import pytest

import sparsehtp as sht

pytestmark = pytest.mark.usefixtures("x64")


def test_hard_thresholded_svrg_comes_nearer_by_a_third_in_every_stage():
    """With the corollary's settings, where the minimiser over all w is sparse, so that no gradient is left there."""
    n, p, stages, l2 = 120, 100, 6, 10.0
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    X /= np.linalg.norm(X, axis=1, keepdims=True)  # so that 1 + l2 is every sample's smoothness: k = 8c(8c - 1) fits p
    w = np.zeros(p)
    w[7] = 1.0
    y = X @ w + n * l2 * X @ np.linalg.solve(X.T @ X, w)  # X'(y - X w) / n = l2 w
    objective = sht.LinearModel(X, y, l2=l2)
    solver, k = sht.SVRGHT.theory(objective, 1, l2)
    assert k < p
    np.testing.assert_allclose(objective.grad_at(objective.forward(w), w), 0, atol=1e-10)

    def values(key):
        ending = {"max_steps": stages, "termination": sht.Never()}
        return sht.solve(objective, sht.Sparsity(k), solver, key=key, **ending).history.value

    found = np.asarray(jax.vmap(values)(jax.random.split(jax.random.key(1), 50)))
    least = float(objective.value(w))
    left = np.append(float(objective.value(np.zeros(p))) - least, found.mean(0) - least)
    assert np.all(left <= left[0] * (2 / 3) ** np.arange(stages + 1) * (1 + 1e-9))
