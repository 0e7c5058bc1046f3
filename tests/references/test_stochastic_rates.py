"""[Tight] Corollary 15 and [HSG] Theorems 2 and 3 along runs.

The theorems ask for k far above the sparsity K, and so for p: they are held against problems whose ridge makes the
condition number c near 1, and whose minimiser over all w has one nonzero, so that no gradient is left there. [HSG]
Theorem 1, with (1 - 1/(480 c))^(T/2), says next to nothing of such a problem.
"""

import jax
import numpy as np
import pytest

import sparsehtp as sht

pytestmark = pytest.mark.usefixtures("x64")

KEYS = 20


def problem(X, l2):
    """(objective, minimiser over all w), with one nonzero: X'(y - X w) / n = l2 w."""
    n, p = X.shape
    w = np.zeros(p)
    w[7] = 1.0
    objective = sht.LinearModel(X, X @ w + n * l2 * X @ np.linalg.solve(X.T @ X, w), l2=l2)
    np.testing.assert_allclose(objective.grad_at(objective.forward(w), w), 0, atol=1e-8 * l2)
    return objective, w


def excess(objective, w, k, solver, steps):
    """F less its minimum at the start and after every step, by keys."""

    def values(key):
        return sht.solve(
            objective, sht.Sparsity(k), solver, key=key, max_steps=steps, termination=sht.stopping.Never()
        ).history.value

    found = np.asarray(jax.vmap(values)(jax.random.split(jax.random.key(1), KEYS)))
    start = np.full((KEYS, 1), float(objective.value(np.zeros_like(w))))
    return np.hstack([start, found]) - float(objective.value(w))


def test_hard_thresholded_svrg_comes_nearer_by_a_third_in_every_stage():
    X = np.random.default_rng(0).standard_normal((120, 100))
    objective, w = problem(X / np.linalg.norm(X, axis=1, keepdims=True), 10.0)
    solver, k = sht.solvers.SVRGHT.theory(objective, 1, 10.0)
    assert k < len(w)
    left = excess(objective, w, k, solver, 6).mean(0)
    assert np.all(left <= left[0] * (2 / 3) ** np.arange(7) * (1 + 1e-9))


def deviation(objective, w):
    """B of [HSG]: at least the squared deviation of a sample's gradient, in the ball about w through the start."""
    X, y = np.asarray(objective.columns.design.array), np.asarray(objective.y)
    gradients = (X @ w - y)[:, None] * X
    at_w = np.linalg.norm(gradients - gradients.mean(0), axis=1)
    mean = X.T @ X / len(X)
    change = [np.linalg.norm(np.outer(x, x) - mean) for x in X]  # Lipschitz, in the Frobenius norm
    return float(np.max(at_w + np.array(change) * np.linalg.norm(w)) ** 2)


@pytest.mark.parametrize("theorem", [2, 3])
def test_hybrid_thresholding_converges_as_its_theorems_say(theorem):
    n, p, l2, steps = 500, 100, 10.0, 20
    noise = 0.1 * np.random.default_rng(0).standard_normal((n, p)) / np.sqrt(p)
    objective, w = problem(np.eye(p)[7] + noise - noise.mean(0), l2)  # the samples are alike, or B needs them all
    ell, B = float(objective.sample_smoothness()), deviation(objective, w)
    kappa, decrease = ell / l2, float(objective.value(np.zeros(p)) - objective.value(w))
    least = 148 * B * kappa**2 / (l2 * decrease) if theorem == 2 else 81 * B * kappa / (4 * (l2**0.5 + ell**0.5) ** 4)
    solver, k = sht.solvers.HybridHT.theory(objective, 1, l2, theorem, first=max(least, 1))
    assert k < p
    assert least < n / 20, "with all samples from the start nothing is stochastic"
    left = np.maximum(excess(objective, w, k, solver, steps), 0)
    T = solver.iterations * np.arange(steps + 1)
    if theorem == 2:
        assert np.all(left.mean(0) <= decrease * (1 - 1 / (16 * kappa)) ** T * (1 + 1e-9))
    else:
        distance = np.sqrt(2 * left / l2).mean(0)  # at least; that of the start is one
        assert np.all(distance[1:] <= 2 * (1 - 1 / (18 * kappa**0.5)) ** T[1:])
