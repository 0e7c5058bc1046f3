"""[DIHT] Algorithm 2 against a plain transcription, and Theorems 15, 17, 19 and 22 along runs."""

from typing import NamedTuple

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import Problem

import sparsehtp as sht

pytestmark = pytest.mark.usefixtures("x64")

N, P, K, BLOCK = 20, 6, 2, 4
BLOCKS = N // BLOCK


class Instance(NamedTuple):
    """A problem that satisfies the theorems' assumptions, with what their bounds are made of.

    Attributes:
        model: the problem; the rows of X have at most unit norm.
        mu: 1 over the loss's smoothness.
        a: the dual optimum l'(X w) at the primal one.
        norm: of X.
        radius: epsilon_0 = lam N epsilon / (2 ||X||), within which the supports agree (Lemma 31).
        link: Lipschitz constant about the optimum of the primal link w(a) (Lemma 31).
        support: of the primal optimum.
    """

    model: sht.LinearModel
    mu: float
    a: np.ndarray
    norm: float
    radius: float
    link: float
    support: np.ndarray


def instance(loss, lam):
    rng = np.random.default_rng(3)
    X = np.linalg.qr(rng.standard_normal((N, P)))[0]  # nearly independent columns: the constants are small
    X /= np.linalg.norm(X, axis=1).max()
    signal = X @ np.array([2.0, 0, 0, -2.0, 0, 0])
    y = np.sign(signal) if isinstance(loss, sht.losses.SmoothedHinge) else 10 * signal + 0.1 * rng.standard_normal(N)
    model = sht.LinearModel(X, y, loss, l2=lam)
    masks, values, (found, _) = Problem(X, y, cases.exact(loss), lam).minima()
    best = np.argmin(np.where(masks.sum(1) == K, values, np.inf))
    support, w = np.flatnonzero(masks[best]), found[best].astype(float)
    a = np.asarray(loss.derivative(X @ w, y))
    full = X.T @ a / N + lam * w
    epsilon = np.min(np.abs(w[support])) - np.max(np.abs(full)) / lam
    assert epsilon > 0, "the theorems assume that the strong sparse duality is strict"
    assert np.linalg.norm(X, axis=1).max() <= 1 + 1e-12
    norm = np.linalg.norm(X, 2)
    radius = lam * N * epsilon / (2 * norm)
    link = norm / (lam * N) * (1 + 2 * np.linalg.norm(a) / radius)
    return Instance(model, 1 / float(loss.smoothness), a, norm, radius, link, support)


def along(model, solver, steps, key):
    """(a, gap, link) after every step of a run."""
    threshold = sht.Sparsity(K).bind(model)

    @cases.jit
    def run(model, threshold, solver, key):
        def step(state, t):
            new, info = solver.step(model, threshold, state, t)
            return new, (new.point.a, info.gap, new.x)

        start = solver.init(model, threshold, jnp.zeros(P), key)
        return jax.lax.scan(step, start, jnp.arange(steps))[1]

    if key is None:
        return tuple(map(np.asarray, run(model, threshold, solver, jax.random.key(0))))
    over = jax.vmap(lambda key: run(model, threshold, solver, key))
    return tuple(map(np.asarray, over(key)))


def sublinear(problem):
    """c_0 of Theorem 15: the square of (r ||X|| + lam sqrt(N) rho) / (lam mu), with r = rho = 1 for a hinge loss."""
    lam = float(problem.model.l2)
    return ((problem.norm + lam * np.sqrt(N)) / (lam * problem.mu)) ** 2


def transcribed(model, picks, size):
    """Algorithm 2 from zero; `picks` is the block of every update, `size` a function of t = 0, 1, ..."""
    X, y, lam = np.asarray(model.columns.design.array), np.asarray(model.y), float(model.l2)
    a, tau, path = np.zeros(N), np.zeros(P), []
    for t, block in enumerate(picks):
        w = np.where(np.isin(np.arange(P), np.argsort(-np.abs(tau))[:K]), tau, 0)
        rows = np.arange(block * BLOCK, (block + 1) * BLOCK)
        g = (X[rows] @ w - np.asarray(model.loss.conjugate_derivative(a[rows], y[rows]))) / N
        new = np.asarray(model.loss.project_dual(a[rows] + size(t) * g, y[rows]))
        tau = tau - X[rows].T @ (new - a[rows]) / (lam * N)
        a[rows] = new
        path.append(a.copy())
    return np.array(path)


def test_algorithm_2():
    problem, key, epochs = instance(sht.losses.SmoothedHinge(1.0), 0.2), jax.random.key(5), 8
    a, *_ = along(problem.model, sht.solvers.SDIHT(BLOCK, "theorem15", 1.0, sampling="paper"), epochs, key[None])
    picks = []
    for _ in range(epochs):
        key, draw = jax.random.split(key)
        picks += jax.random.randint(draw, (BLOCKS,), 0, BLOCKS).tolist()
    assert len(set(picks[:BLOCKS])) < BLOCKS, "an epoch that meets every block once would not tell the samplings apart"
    path = transcribed(problem.model, picks, lambda t: BLOCKS * N / (problem.mu * (t + 2)))
    np.testing.assert_allclose(a[0], path[BLOCKS - 1 :: BLOCKS], atol=1e-12)


def test_the_papers_sampling_has_no_intercept():
    X = np.random.default_rng(0).standard_normal((N, P))
    model = sht.LinearModel(X, X[:, 0], sht.losses.Huber(1.0), l2=0.1, fit_intercept=True)
    for sampling, said in (("paper", '"paper" moves no mass'), ("sorted", "must be one of shuffled, paper")):
        solver = sht.solvers.SDIHT(sampling=sampling)
        cases.refused(ValueError, f"sampling: {said}", lambda s=solver: sht.solve(model, sht.Sparsity(K), s))


def check_rate(problem, run, size, rate, steepest, recovered=None):
    """Distances, gaps and supports along a run, or the means over runs, as a theorem bounds them."""
    a, gap, x = run
    sure = np.sqrt(N) * problem.link / problem.mu + 1  # what the slope of the gap is at most, times the distance
    error = np.sum((a - problem.a) ** 2, axis=-1)
    error, gap = (each.reshape(-1, each.shape[-1]).mean(0) for each in (error, gap))
    assert np.all(error <= size * rate * (1 + 1e-9))
    assert np.all(gap <= steepest(size * rate) * sure + 1e-12)
    if recovered is not None:
        assert recovered < len(a)
        assert all(set(np.flatnonzero(each)) == set(problem.support) for each in x[recovered:])


@pytest.mark.parametrize("theorem", [15, 19])
def test_bounded_dual_sets(theorem):
    """[DIHT] Theorem 15, and 19 for the stochastic method."""
    problem, blocks = instance(sht.losses.SmoothedHinge(1.0), 0.2), BLOCKS if theorem == 19 else 1
    c0, keys = blocks * sublinear(problem), jax.random.split(jax.random.key(1), 40)
    recovered = int(np.ceil(c0 / problem.radius**2)) if theorem == 15 else None
    if theorem == 15:
        run = along(problem.model, sht.solvers.DIHT("theorem15", 1.0), 20_000, None)
    else:
        run = along(problem.model, sht.solvers.SDIHT(BLOCK, "theorem15", 1.0, sampling="paper"), 2000, keys)
    t = blocks * np.arange(1, run[1].shape[-1] + 1)
    supergradient = np.sqrt(sublinear(problem)) * problem.mu / N
    check_rate(problem, run, c0, 1 / (t + 2), lambda bound: supergradient * np.sqrt(bound), recovered)


@pytest.mark.parametrize("theorem", [17, 22])
def test_strong_convexity(theorem):
    """[DIHT] Theorem 17, and 22 for the stochastic method, with 1/l-strong convexity of the squared loss, l = 1."""
    problem, blocks = instance(sht.losses.Squared(), 0.1), BLOCKS if theorem == 22 else 1
    lipschitz = np.sqrt(2) * (np.sqrt(N) * problem.link + 1) / N  # l_D
    lam, keys = float(problem.model.l2), jax.random.split(jax.random.key(1), 40)
    # What makes the library's step, with the l_D of a fixed support, the theorem's.
    scale = ((problem.norm**2 / (lam * N) + problem.mu) / (N * lipschitz)) ** 2
    rate, size = 1 - (problem.mu / N / lipschitz) ** 2 / blocks, np.sum(problem.a**2)
    if theorem == 17:
        run = along(problem.model, sht.solvers.DIHT("theorem17", scale), 4000, None)
        recovered = int(np.ceil(np.log(size / problem.radius**2) / -np.log(rate)))
    else:
        run = along(problem.model, sht.solvers.SDIHT(BLOCK, "theorem17", scale, sampling="paper"), 4000, keys)
        recovered = None
    t = blocks * np.arange(1, run[1].shape[-1] + 1)
    check_rate(problem, run, size, rate**t, lambda bound: lipschitz * bound, recovered)
