"""Proofs for logistic and other losses agree with exhaustive search in extended precision, on data of every kind."""

import numpy as np
import pytest
from exact import LEVEL, Loss, Problem
from scipy import sparse
from scipy.special import xlogy

import sparsehtp as sht

RATIO = 1.05
LOSSES = {
    "logistic": lambda c: sht.Logistic(c),
    "poisson": lambda c: sht.Poisson(),
    "smoothed_hinge": lambda c: sht.SmoothedHinge(c),
    "huber": lambda c: sht.Huber(c),
    "negative_binomial": lambda c: sht.NegativeBinomial(c),
    "gamma": lambda c: sht.Gamma(),
    "squared_hinge": lambda c: sht.SquaredHinge(),
    "quantile": lambda c: sht.Quantile(float(LEVEL), c),
}


def draw(seed, most, sizes):
    """(X, y, loss's name and parameter, model's settings, k, keep): copies, scales, constants, counts and outliers."""
    rng = np.random.default_rng(seed)
    name = list(LOSSES)[seed % len(LOSSES)]
    p, n = int(rng.integers(2, most + 1)), int(rng.choice(sizes))
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
    score = 0.7 * X @ (rng.standard_normal(p) * (rng.random(p) < 0.6))
    if name in ("poisson", "negative_binomial"):
        y = rng.poisson(np.exp(np.clip(score, -3, 3)) * rng.choice([0.5, 5.0])).astype(float)
        parameter = 1.0 if name == "poisson" else rng.choice([0.2, 2.0])
    elif name == "gamma":
        y, parameter = rng.gamma(2, np.exp(np.clip(score, -3, 3)) * rng.choice([1e-3, 5.0])) + 1e-6, 1.0
    elif name in ("huber", "quantile"):
        y = score + rng.standard_t(2, n) + rng.choice([0.0, 2.0])
        parameter = rng.choice([0.1, 1.0, 10.0])
    else:
        y = np.where(score + rng.choice([0.0, 1.0]) * rng.logistic(size=n) > 0, 1.0, -1.0)
        parameter = rng.choice([0.5, 1.0])
    standardize = bool(rng.random() < 0.5)
    l2 = np.full(p, 10.0 ** rng.uniform(-3, 1))
    if rng.random() < 0.3:
        l2 = l2 * rng.uniform(0.1, 2, p)
    if standardize and rng.random() < 0.6:
        X = X * 10.0 ** rng.integers(-4, 5, p)
    kept = int(rng.integers(0, 3)) if rng.random() < 0.3 and p > 3 else 0
    settings = {
        "l2": l2,
        "sample_weight": np.ones(n) if rng.random() < 0.5 else rng.exponential(size=n) * (rng.random(n) < 0.9) + 1e-3,
        "fit_intercept": bool(rng.random() < 0.6),
        "standardize": standardize,
        "offset": None if rng.random() < 0.7 else rng.uniform(-1, 1, n),
    }
    if rng.random() < 0.5:
        settings["sample_weight"][5:7] = 0
    k = int(rng.integers(0 if rng.random() < 0.1 else 1, min(p - kept, 6) + 1))
    return X, y, name, parameter, settings, k, np.sort(rng.permutation(p)[:kept]), is_sparse


def check(drawn, collect):
    X, y, name, parameter, settings, k, keep, is_sparse = drawn
    reference = Problem(
        X,
        y,
        Loss(name, np.longdouble(parameter)),
        settings["l2"],
        settings["sample_weight"],
        settings["offset"],
        settings["fit_intercept"],
        settings["standardize"],
    )
    masks, values, _ = reference.minima()
    values = values.astype(float)
    usable = np.isfinite(reference.size)
    kept = np.zeros(len(usable), bool)
    kept[keep] = True
    right = ~np.any(masks & ~usable, 1) & np.all(masks >= (kept & usable), 1)
    right &= np.sum(masks & ~kept, 1) == min(k, int(np.sum(usable & ~kept)))
    masks, values = masks[right], values[right]
    best = values.min()
    # These losses are not zero at their best, and what is relative is so without that.
    if name == "negative_binomial":
        each = xlogy(y, (1 + parameter * y) / np.where(y > 0, parameter * y, 1)) + np.log1p(parameter * y) / parameter
    else:
        each = {"poisson": y - xlogy(y, y), "gamma": 1 + np.log(np.maximum(y, 1e-300))}.get(name, np.zeros(len(y)))
    least = float(reference.omega @ each)
    size = best - least
    slack = 1e-9 * size + 1e-11 * (1 + abs(least))
    model = sht.LinearModel(sparse.csr_array(X) if is_sparse else X, y, LOSSES[name](parameter), **settings)
    proof = sht.prove(model, sht.Sparsity(k, keep=keep), collect=collect, time_limit=120)
    assert proof.proved, proof.statement
    assert proof.lower <= best + slack and abs(proof.upper - best) <= 1e-4 * size + slack
    assert proof.upper - proof.lower <= 1e-4 * (proof.upper - least) + slack
    if collect is not None:
        assert abs(proof.upper - best) <= slack
    lower, upper = proof.history["lower"], proof.history["upper"]
    assert (lower <= best + slack).all() and (upper >= best - slack).all()
    assert (np.diff(lower) >= 0).all() and (np.diff(upper) <= 0).all() and (np.diff(proof.history["nodes"]) >= 0).all()
    chosen = np.asarray(proof.support.idx)
    assert set(np.flatnonzero(proof.x)) <= set(chosen) and set(keep) <= set(chosen) and len(chosen) <= k + len(keep)
    assert abs(float(reference.value(proof.x, proof.intercept)) - proof.upper) <= 1e-7 * size + slack
    if collect is None:
        return
    level = least + collect * size
    near = np.abs(values - level) <= 1e-7 * size + 10 * slack
    everything = {frozenset(np.flatnonzero(m | kept)): value for m, value in zip(masks, values, strict=True)}
    wanted = {frozenset(np.flatnonzero(m | kept)) for m in masks[(values <= level) & ~near]}
    allowed = wanted | {frozenset(np.flatnonzero(m | kept)) for m in masks[near]}
    found = [frozenset(np.flatnonzero(mask)) for mask in proof.collected.masks]
    assert proof.collected.complete and len(found) == len(set(found)) and wanted <= set(found) <= allowed
    assert all(abs(everything[s] - v) <= 10 * slack for s, v in zip(found, proof.collected.values, strict=True))


@pytest.mark.parametrize("seed", range(24))
def test_agrees_with_exhaustive_search(x64, seed):
    check(draw(seed, 7, [30]), RATIO if seed % 3 == 0 else None)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_agrees_with_exhaustive_search_many_times(x64, part):
    for seed in range(1000 + 30 * part, 1030 + 30 * part):
        check(draw(seed, 10, [8, 20, 60]), RATIO if seed % 3 == 0 else None)
