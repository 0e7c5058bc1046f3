"""References by exhaustive search in NumPy: every support of a small problem, all at once."""

import itertools
from typing import NamedTuple

import numpy as np


class Problem(NamedTuple):
    """A small problem in the mean form; `logistic` says which loss."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    l0: float
    l1: float
    l2: float
    intercept: bool
    logistic: bool


def masks(p, k=None):
    """(supports, p) every support, or every one of k features."""
    if k is None:
        return np.array(list(itertools.product((False, True), repeat=p)))
    chosen = np.array(list(itertools.combinations(range(p), k)), int)
    out = np.zeros((len(chosen), p), bool)
    if k:
        np.put_along_axis(out, chosen, True, axis=1)
    return out


def fits(problem, members, sweeps=400):
    """(w, b, F + l1 term) of the best fit on every support, by coordinate descent over all of them at once."""
    X, y = problem.X, problem.y
    omega = problem.weights / problem.weights.sum()
    mean = omega @ X if problem.intercept else np.zeros(X.shape[1])
    Z = X - mean
    smoothness = 0.25 if problem.logistic else 1.0
    energy = smoothness * (omega @ Z**2)
    w, b = np.zeros(members.shape), np.zeros(len(members))
    eta = np.zeros((len(members), len(y)))

    def slope(eta):
        return -y / (1 + np.exp(np.clip(y * eta, -500, 500))) if problem.logistic else eta - y

    for _ in range(sweeps):
        change = 0.0
        for j in range(X.shape[1]):
            g = slope(eta) @ (omega * Z[:, j])
            u = energy[j] * w[:, j] - g
            new = np.sign(u) * np.maximum(np.abs(u) - problem.l1, 0) / (energy[j] + problem.l2)
            new = np.where(members[:, j], new, 0.0)
            eta += (new - w[:, j])[:, None] * Z[:, j]
            change = max(change, float(np.abs(new - w[:, j]).max()))
            w[:, j] = new
        if problem.intercept:
            step = -slope(eta) @ omega / smoothness
            b, eta = b + step, eta + step[:, None]
            change = max(change, float(np.abs(step).max()))
        if change < 1e-13:
            break
    loss = np.logaddexp(0, -y * eta) if problem.logistic else 0.5 * (eta - y) ** 2
    value = loss @ omega + problem.l1 * np.abs(w).sum(1) + 0.5 * problem.l2 * (w**2).sum(1)
    return w, b - w @ mean, value


def best_penalised(problem):
    """(value, masks of the supports of all optima) of F + l0 + l1 terms."""
    every = masks(problem.X.shape[1])
    w, _, value = fits(problem, every)
    total = value + problem.l0 * (w != 0).sum(1)
    ties = total <= total.min() + 1e-10 * abs(total.min())
    return total.min(), (w != 0)[ties]


def best_sparse(problem, k):
    """(value, masks of the supports of all optima) with at most k features."""
    every = masks(problem.X.shape[1], k)
    w, _, value = fits(problem, every)
    ties = value <= value.min() + 1e-10 * abs(value.min())
    return value.min(), (w != 0)[ties]
