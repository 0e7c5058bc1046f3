"""Proofs of best subsets agree with exhaustive search: shapes, kept features, sparse and constant columns, edges."""

import numpy as np
import pytest
import statements
from scipy import sparse
from statements import Drawn

import sparsehtp as sht

RATIO = 1.05


def draw(seed):
    """(problem, whether its columns are sparse), which may be constant, or kept."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.choice([12, 40, 80])), int(rng.integers(3, 9))
    drawn = statements.draw(rng, True, bool(rng.random() < 0.6), bool(rng.random() < 0.5), n, p)
    X, is_sparse, keep = drawn.X, bool(rng.random() < 0.25), []
    if is_sparse:
        X = np.where(rng.random(X.shape) < 0.5, 0, X)
    if rng.random() < 0.3:
        keep = np.sort(rng.permutation(p)[: rng.integers(1, 3)])
    elif rng.random() < 0.3:
        X[:, rng.integers(p)] = rng.choice([0.0, 1.0, 3.0])
    return drawn._replace(X=X, k=int(rng.integers(1, min(p - len(keep), 5) + 1)), keep=keep), is_sparse


def check(drawn, is_sparse, collect, choices_of):
    model = drawn._replace(X=sparse.csr_array(drawn.X)).model() if is_sparse else drawn.model()
    proof, choices = sht.prove(model, drawn.threshold(), collect=collect, time_limit=120), choices_of(drawn)
    assert list(statements.of_proof(drawn, proof, choices, collect, 1e-7)) == []
    if collect is not None:
        np.testing.assert_allclose(proof.collected.share, proof.collected.masks.mean(0))
    return proof, choices


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(each, marks=pytest.mark.later) for each in range(20, 60))])
def test_agrees_with_exhaustive_search(x64, seed):
    check(*draw(seed), RATIO if seed % 3 == 0 else None, statements.by_fractions)


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
    proof, choices = check(*problem, RATIO, statements.by_search)
    best, y = min(choices.values.values()), problem[0].y
    slack = 1e-9 * best + 1e-12 * statements.spread(problem[0]).null + 1e-28 * np.max(y**2)
    assert proof.proved and proof.collected.complete
    assert abs(proof.upper - best) <= slack and 0 <= proof.upper - proof.lower <= 1e-4 * proof.upper + slack
