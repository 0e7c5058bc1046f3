"""Proofs of best subsets agree with exhaustive search in extended precision: every loss, on data of every kind."""

import numpy as np
import pytest
import statements
from cases import chained
from exact import LOG_LINK, Loss
from scipy import sparse
from statements import Drawn

import sparsehtp as sht

RATIO = 1.05
PARAMETERS = {
    "logistic": (0.5, 1.0),
    "poisson": (1.0,),
    "smoothed_hinge": (0.5, 1.0),
    "huber": (0.1, 1.0, 10.0),
    "negative_binomial": (0.2, 2.0),
    "gamma": (1.0,),
    "squared_hinge": (1.0,),
    "quantile": (0.1, 1.0, 10.0),
}


def draw(seed, name, most, sizes):
    """(problem, whether its columns are sparse): correlated, copied, constant, tiny and huge columns, kept features,
    few samples or many, counts and outliers; with the squared loss also far columns, and l2 from 0 to 10."""
    rng, squared = np.random.default_rng(seed), name == "squared"
    p, n = int(rng.integers(2, most + 1)), int(rng.choice(sizes))
    X = rng.standard_normal((n, p))
    X = chained(X, rng.choice([0.0, 0.6, 0.95]))
    if rng.random() < 0.4:
        copied, onto = rng.integers(p, size=2)
        X[:, onto] = X[:, copied] * rng.choice([-1.0, 2.0])
    if rng.random() < 0.2:
        X[:, rng.integers(p)] = rng.choice([0.0, 1.0, 3.0])
    if rng.random() < 0.3:
        X = np.round(X)
    is_sparse = rng.random() < 0.25
    if is_sparse:
        X = np.where(rng.random(X.shape) < 0.5, 0, X)
    score, parameter = 0.7 * X @ (rng.standard_normal(p) * (rng.random(p) < 0.6)), 1.0
    standardize = bool(rng.random() < 0.5)
    if (squared or standardize) and rng.random() < 0.5:
        X = X * 10.0 ** rng.integers(-4, 5, p)
    if squared:
        y = score + rng.choice([0.0, 0.1, 1.0, 5.0]) * rng.standard_normal(n) + rng.choice([0.0, 2.0])
        y = y * 10.0 ** rng.integers(-3, 4)
        if rng.random() < 0.3 and not is_sparse:
            X = X + rng.uniform(-3, 3, p) * np.abs(X).max(0)
        l2 = np.full(p, rng.choice([0.0, 0.0, 1e-8, 1e-4, 1e-2, 0.1, 1.0, 10.0]))
        if not standardize:
            l2 = l2 * np.where(np.abs(X).max(0) > 0, np.abs(X).max(0), 1) ** rng.choice([0, 2])
    else:
        parameter, l2 = rng.choice(PARAMETERS[name]), np.full(p, 10.0 ** rng.uniform(-3, 1))
        mean = np.exp(np.clip(score, -3, 3)) * (rng.choice([1e-3, 5.0]) if name == "gamma" else rng.choice([0.5, 5.0]))
        if name in LOG_LINK:
            y = rng.gamma(2, mean) + 1e-6 if name == "gamma" else rng.poisson(mean).astype(float)
        elif name in ("huber", "quantile"):
            y = score + rng.standard_t(2, n) + rng.choice([0.0, 2.0])
        else:
            y = np.where(score + rng.choice([0.0, 1.0]) * rng.logistic(size=n) > 0, 1.0, -1.0)
    if rng.random() < 0.3:
        l2 = l2 * rng.uniform(0.1, 2, p)
    kept = int(rng.integers(0, 3)) if rng.random() < 0.3 and p > 3 else 0
    keep, k = (
        np.sort(rng.permutation(p)[:kept]),
        int(rng.integers(0 if rng.random() < 0.1 else 1, min(p - kept, 6) + 1)),
    )
    weights = np.ones(n) if rng.random() < 0.5 else rng.exponential(size=n) * (rng.random(n) < 0.9)
    weights[:3] = 1
    offset = None if rng.random() < 0.7 else rng.uniform(-1, 1, n) * (np.abs(y).max() if squared else 1)
    intercept, loss = bool(rng.random() < 0.6), Loss(name, np.longdouble(parameter))
    return Drawn(X, y, l2, weights, offset, intercept, standardize, k, True, "", loss, keep), is_sparse


def check(drawn, is_sparse, collect):
    model = drawn._replace(X=sparse.csr_array(drawn.X)).model() if is_sparse else drawn.model()
    proof, choices = sht.prove(model, drawn.threshold(), collect=collect, time_limit=120), statements.by_search(drawn)
    assert list(statements.of_proof(drawn, proof, choices, collect, 1e-7)) == []
    size = min(choices.values.values()) - choices.floor
    slack = 1e-9 * size + 1e-11 * (1 + abs(choices.floor)) * (drawn.loss.name != "squared")
    slack += 1e-12 * statements.spread(drawn).null + 1e-28 * np.max(drawn.y**2)
    assert proof.lower <= choices.floor + size + slack
    assert proof.proved and proof.upper - proof.lower <= 1e-4 * (proof.upper - choices.floor) + slack
    if collect is not None:
        assert proof.collected.complete and abs(proof.upper - choices.floor - size) <= slack
        np.testing.assert_allclose(proof.collected.share, proof.collected.masks.mean(0))


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_exhaustive_search(x64, seed):
    check(*draw(seed, "squared", 11, [5, 12, 40, 80]), RATIO if seed % 3 == 0 else None)


@pytest.mark.parametrize("seed", range(24))
def test_other_losses_agree_with_exhaustive_search(x64, seed):
    check(*draw(seed, list(PARAMETERS)[seed % len(PARAMETERS)], 7, [30]), RATIO if seed % 3 == 0 else None)


def edge(X, y, k, keep=(), weights=None, l2=1e-3, intercept=True, standardize=True, is_sparse=False):
    l2 = np.full(X.shape[1], l2)
    return Drawn(X, y, l2, weights, None, intercept, standardize, k, True, "", keep=np.asarray(keep, int)), is_sparse


RNG = np.random.default_rng(0)
A, T = RNG.standard_normal((30, 6)), RNG.standard_normal(30)
EDGES = {
    "one sample": edge(A[:1], T[:1], 2, intercept=False, standardize=False),
    "one sample and an intercept": edge(A[:1], T[:1], 2),
    "one feature": edge(A[:, :1], T, 1),
    "no features": edge(A, T, 0),
    "all features": edge(A, T, 6),
    "all kept": edge(A, T, 0, keep=range(6)),
    "the least useful is kept": edge(A, T, 2, keep=[np.argmin(np.abs(A.T @ (T - T.mean())))]),
    "a constant is kept": edge(np.column_stack([A, np.ones(30)]), T, 1, keep=[6]),
    "all constant": edge(np.ones((30, 3)), T, 2),
    "far from zero": edge(A + 1e7, T + 1e7, 2),
    "far from zero and sparse": edge(A + 1e5, T + 1e5, 2, is_sparse=True),
    "tiny columns": edge(A * 1e-150, T, 2, l2=0.0, standardize=False),
    "columns of all sizes": edge(A * np.array([1e-100, 1, 1e100, 1e-8, 1e8, 1]), T, 2, l2=0.0),
    "weights of all sizes": edge(A, T, 2, weights=10.0 ** RNG.integers(-12, 12, 30)),
    "a large l2": edge(A, T, 2, l2=1e12),
}


@pytest.mark.parametrize("problem", EDGES.values(), ids=EDGES)
def test_agrees_at_the_edges(x64, problem):
    check(*problem, RATIO)
