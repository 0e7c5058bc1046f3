"""IHT and HTP against plain NumPy transcriptions of the papers' algorithms, iterate by iterate."""

import cases
import numpy as np
import pytest

import sparsehtp as sht

pytestmark = pytest.mark.usefixtures("x64")

N, P, K, STEPS, L2 = 20, 6, 2, 12, 0.05


def problem(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) @ rng.standard_normal((P, P))  # correlated, so that the support moves
    return X, X @ np.array([1.0, 0, -1.0, 0, 0.5, 0]) + rng.standard_normal(N)


def value(X, y, x):
    return 0.5 * np.mean((X @ x - y) ** 2) + 0.5 * L2 * x @ x


def gradient(X, y, x):
    return X.T @ (X @ x - y) / N + L2 * x


def top(z, k):
    return np.sort(np.argsort(-np.abs(z), kind="stable")[:k])


def iht(X, y, size, momentum=0.0):
    x, previous, path = np.zeros(P), np.zeros(P), []
    for _ in range(STEPS):
        z = x - size * gradient(X, y, x) + momentum * (x - previous)
        new = np.zeros(P)
        new[top(z, K)] = z[top(z, K)]
        x, previous = new, x
        path.append(x)
    return np.array(path)


def nesterov(X, y, size, momentum):
    """`momentum` is a function of t = 0, 1, ..."""
    x, ahead, path = np.zeros(P), np.zeros(P), []
    for t in range(STEPS):
        z = ahead - size * gradient(X, y, ahead)
        new = np.zeros(P)
        new[top(z, K)] = z[top(z, K)]
        ahead = new + momentum(t) * (new - x)
        x = new
        path.append(x)
    return np.array(path)


def htp(X, y, size):
    x, path = np.zeros(P), []
    for _ in range(STEPS):
        S = top(x - size * gradient(X, y, x), K)
        A = X[:, S]
        x = np.zeros(P)
        x[S] = np.linalg.solve(A.T @ A / N + L2 * np.eye(K), A.T @ y / N)
        path.append(x)
    return np.array(path)


def compare(solver, path):
    X, y = problem()
    solution = sht.solve(
        sht.LinearModel(X, y, l2=L2), sht.Sparsity(K), solver, max_steps=STEPS, termination=sht.DualGap(0.0)
    )
    assert int(solution.num_steps) == STEPS
    values = [value(X, y, x) for x in path]
    np.testing.assert_allclose(solution.history.value, values, rtol=1e-10)
    moves = np.linalg.norm(np.diff(np.vstack([np.zeros(P), path]), axis=0), axis=1)
    np.testing.assert_allclose(solution.history.step_norm, moves, rtol=1e-7, atol=1e-12)
    best = np.argmin(values) if solver.returns_best else STEPS - 1
    np.testing.assert_allclose(solution.value, values[best], rtol=1e-10)
    np.testing.assert_allclose(solution.x, path[best], atol=1e-10)


def step_size():
    X, _ = problem()
    return 0.9 / np.linalg.eigvalsh(X.T @ X / N + L2 * np.eye(P))[-1]


def test_iht():
    X, y = problem()
    path = iht(X, y, step_size())
    supports = {tuple(np.flatnonzero(x)) for x in path}
    assert len(supports) > 1, "the support moves, or this test shows little"
    compare(sht.IHT(sht.ConstantStep(step_size())), path)


def test_iht_with_heavy_ball_momentum():
    compare(sht.IHT(sht.ConstantStep(step_size()), momentum=0.6), iht(*problem(), step_size(), 0.6))


def test_iht_with_nesterov_momentum():
    solver = sht.IHT(sht.ConstantStep(step_size()), momentum=0.6, nesterov=True)
    compare(solver, nesterov(*problem(), step_size(), lambda t: 0.6))


def test_iht_with_the_momentum_of_fista():
    solver = sht.IHT(sht.ConstantStep(step_size()), momentum=None)
    compare(solver, nesterov(*problem(), step_size(), lambda t: t / (t + 3)))


def test_htp():
    compare(sht.HTP(sht.ConstantStep(step_size())), htp(*problem(), step_size()))


def test_the_constant_step_is_a_multiple_of_one_over_L():
    X, y = problem()
    solver = sht.IHT(sht.ConstantStep(scale=0.9))
    solution = sht.solve(sht.LinearModel(X, y, l2=L2), sht.Sparsity(K), solver, max_steps=STEPS)
    np.testing.assert_allclose(solution.history.step_size[0], step_size(), rtol=1e-6)
    assert cases.members(solution.support).size == K
