"""Proofs of best subsets agree with exhaustive search in NumPy, on data of every kind."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from scipy import sparse

import sparsehtp as sht

RATIO = 1.05


class Drawn(NamedTuple):
    """A small problem in the units of its user, and how it is given."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    offset: np.ndarray
    l2: np.ndarray
    intercept: bool
    standardize: bool
    keep: np.ndarray
    k: int
    sparse: bool


def draw(seed, most=11):
    """Correlated, copied, nearly copied, constant, tiny and huge columns; few samples or many; l2 from 0 to 10."""
    rng = np.random.default_rng(seed)
    p, n = int(rng.integers(2, most + 1)), int(rng.choice([5, 12, 40, 80]))
    X = rng.standard_normal((n, p))
    rho = rng.choice([0.0, 0.6, 0.95])
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
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
    if rng.random() < 0.4:
        X = X * 10.0 ** rng.integers(-4, 5, p)
    if rng.random() < 0.3 and not is_sparse:
        X = X + rng.uniform(-3, 3, p) * np.abs(X).max(0)
    kept = int(rng.integers(0, 3)) if rng.random() < 0.3 and p > 3 else 0
    keep = np.sort(rng.permutation(p)[:kept])
    k = int(rng.integers(0 if rng.random() < 0.1 else 1, min(p - kept, 6) + 1))
    scale = np.abs(X).max(0)
    signal = (X / np.where(scale > 0, scale, 1)) @ (rng.standard_normal(p) * (rng.random(p) < 0.6))
    y = signal + rng.choice([0.0, 0.1, 1.0, 5.0]) * rng.standard_normal(n) + rng.choice([0.0, 2.0])
    y = y * 10.0 ** rng.integers(-3, 4)
    standardize = bool(rng.random() < 0.5)
    l2 = np.full(p, rng.choice([0.0, 0.0, 1e-8, 1e-4, 1e-2, 0.1, 1.0, 10.0]))
    if rng.random() < 0.3:
        l2 = l2 * rng.uniform(0, 2, p)
    if not standardize:
        l2 = l2 * np.where(scale > 0, scale, 1) ** rng.choice([0, 2])
    weights = np.ones(n) if rng.random() < 0.5 else rng.exponential(size=n) * (rng.random(n) < 0.9)
    weights[:3] = 1
    offset = np.zeros(n) if rng.random() < 0.7 else rng.standard_normal(n) * np.abs(y).max()
    return Drawn(X, y, weights, offset, l2, bool(rng.random() < 0.6), standardize, keep, k, is_sparse)


def model_of(problem):
    X = sparse.csr_array(problem.X) if problem.sparse else problem.X
    return sht.LinearModel(
        X,
        problem.y,
        l2=problem.l2,
        sample_weight=problem.weights,
        fit_intercept=problem.intercept,
        standardize=problem.standardize,
        offset=problem.offset if problem.offset.any() else None,
    )


def moments(problem):
    """Normed weights, the columns' means, which columns are constant, and the scale that a model gives them."""
    X, weights = problem.X.astype(float), problem.weights / problem.weights.sum()
    mean = weights @ X
    deviation = np.sqrt(weights @ (X - mean) ** 2)
    constant = deviation <= 1e-12 * np.sqrt(weights @ X**2)
    return weights, mean, constant, np.where(constant, 1, deviation) if problem.standardize else np.ones(len(mean))


def exhaustive(problem):
    """(supports, their values) of all choices of k of the columns that are not constant, and the size of rounding."""
    X, t = problem.X.astype(float), problem.y.astype(float) - problem.offset
    digits = 1e-28 * np.max(problem.y**2 + problem.offset**2)
    weights, mean, constant, scale = moments(problem)
    usable = ~constant if problem.intercept else (weights @ X**2) > 0
    if problem.intercept:
        X, t = X - mean, t - weights @ t
    root = np.sqrt(weights)[:, None]
    A = np.vstack([root * (X / scale), np.diag(np.sqrt(problem.l2))])
    t = np.append(root[:, 0] * t, np.zeros(len(mean)))
    keep = [j for j in problem.keep if usable[j]]
    others = [j for j in np.flatnonzero(usable) if j not in keep]
    k = min(problem.k, len(others))
    supports = np.array([(*keep, *rest) for rest in itertools.combinations(others, k)], int)
    size = np.sqrt((A**2).sum(0))
    U, s, _ = np.linalg.svd(np.moveaxis((A / np.where(size > 0, size, 1))[:, supports], 1, 0), full_matrices=False)
    inside = np.where(s > 1e-12 * s.max(1, initial=0, keepdims=True), np.einsum("snj,n->sj", U, t), 0)
    rest = t - np.einsum("snj,sj->sn", U, inside)
    return supports, (rest**2).sum(1) / 2, 1e-12 * (t @ t / 2) + digits


def value_of(problem, proof):
    """F at a proof's coefficients, from the data as they were given."""
    weights, _, _, scale = moments(problem)
    penalty = problem.l2 * (proof.x * scale) ** 2
    eta = problem.X.astype(float) @ proof.x + proof.intercept + problem.offset
    return (weights @ (eta - problem.y) ** 2 + penalty.sum()) / 2


def check(problem, collect):
    supports, values, rounding = exhaustive(problem)
    best, slack = values.min(), 1e-9 * values.min() + rounding
    proof = sht.prove(model_of(problem), sht.Sparsity(problem.k, keep=problem.keep), collect=collect, time_limit=120)
    assert proof.proved, proof.statement
    assert proof.lower <= best + slack and abs(proof.upper - best) <= 1e-4 * best + slack
    if collect is not None:
        assert abs(proof.upper - best) <= slack
    lower, upper = proof.history["lower"], proof.history["upper"]
    assert (lower <= best + slack).all() and (upper >= best - slack).all()
    assert (np.diff(lower) >= 0).all() and (np.diff(upper) <= 0).all() and (np.diff(proof.history["nodes"]) >= 0).all()
    chosen = np.asarray(proof.support.idx)
    assert set(np.flatnonzero(proof.x)) <= set(chosen) and set(problem.keep) <= set(chosen)
    assert len(chosen) <= problem.k + len(problem.keep)
    assert abs(value_of(problem, proof) - proof.upper) <= 1e-7 * proof.upper + 1e3 * rounding
    if collect is None:
        return
    level = collect * best
    near = np.abs(values - level) <= 1e-7 * level + 10 * slack
    everything = {frozenset(s) | set(problem.keep): v for s, v in zip(supports.tolist(), values, strict=True)}
    wanted = {frozenset(s) | set(problem.keep) for s in supports[(values <= level) & ~near].tolist()}
    allowed = wanted | {frozenset(s) | set(problem.keep) for s in supports[near].tolist()}
    found = [frozenset(np.flatnonzero(mask)) for mask in proof.collected.masks]
    assert proof.collected.complete and len(found) == len(set(found))
    assert wanted <= set(found) <= allowed
    reference = np.array([everything[s] for s in found])
    assert np.abs(proof.collected.values - reference).max(initial=0) <= 1e-7 * level + 10 * slack
    assert np.allclose(proof.collected.share, proof.collected.masks.mean(0))


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_exhaustive_search(x64, seed):
    check(draw(seed), RATIO if seed % 3 == 0 else None)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_agrees_with_exhaustive_search_many_times(x64, part):
    for seed in range(1000 + 100 * part, 1100 + 100 * part):
        check(draw(seed, 16), RATIO if seed % 3 == 0 else None)


def edge(X, y, k, keep=(), weights=None, l2=1e-3, intercept=True, standardize=True, is_sparse=False):
    n, p = X.shape
    weights = np.ones(n) if weights is None else weights
    return Drawn(
        X, y, weights, np.zeros(n), np.full(p, l2), intercept, standardize, np.asarray(keep, int), k, is_sparse
    )


RNG = np.random.default_rng(0)
A, T = RNG.standard_normal((30, 6)), RNG.standard_normal(30)
EDGES = {
    "one sample": edge(A[:1], T[:1], 2, intercept=False, standardize=False),
    "one sample and an intercept": edge(A[:1], T[:1], 2),
    "one feature": edge(A[:, :1], T, 1),
    "no features": edge(A, T, 0),
    "all features": edge(A, T, 6),
    "all kept": edge(A, T, 0, keep=range(6)),
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
    check(problem, RATIO)
