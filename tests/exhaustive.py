"""References in NumPy and SciPy: every support of a small problem, all at once, and the best fit of matrices."""

import itertools
from typing import NamedTuple

import numpy as np
from exact import Loss
from scipy.optimize import minimize
from scipy.special import logsumexp


class Problem(NamedTuple):
    """A small problem in the mean form; `prices` multiply l0 and l1 feature by feature, zero for a kept one."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    l0: float
    l1: float
    l2: float
    intercept: bool
    loss: str
    prices: np.ndarray | float = 1.0
    lower: np.ndarray | float = -np.inf
    upper: np.ndarray | float = np.inf


# loss -> (the largest curvature, derivative)
LOSSES = {
    "squared": (1.0, lambda eta, y: eta - y),
    "logistic": (0.25, lambda eta, y: -y / (1 + np.exp(np.clip(y * eta, -500, 500)))),
    "squared_hinge": (1.0, lambda eta, y: -y * np.maximum(1 - y * eta, 0)),
}


def masks(p, k=None):
    """(supports, p) every support, or every one of k features."""
    if k is None:
        return np.array(list(itertools.product((False, True), repeat=p)))
    chosen = np.array(list(itertools.combinations(range(p), k)), int)
    out = np.zeros((len(chosen), p), bool)
    if k:
        np.put_along_axis(out, chosen, True, axis=1)
    return out


def best_of_all(fit, p, k, keep=()):
    """The least of a function of some features, over all choices of k of p beside those to keep."""
    others = sorted({*range(p)} - {*keep})
    return min(fit(np.array([*chosen, *keep])) for chosen in itertools.combinations(others, k))


def fits(problem, members, sweeps=400):
    """(w, b, F + l1 term) of the best fit on every support, by coordinate descent over all of them at once."""
    X, y = problem.X, problem.y
    omega = problem.weights / problem.weights.sum()
    mean = omega @ X if problem.intercept else np.zeros(X.shape[1])
    Z = X - mean
    smoothness, slope = LOSSES[problem.loss]
    energy = smoothness * (omega @ Z**2)
    w, b = np.zeros(members.shape), np.zeros(len(members))
    sides = problem.l1 * problem.prices, problem.lower, problem.upper
    l1, lower, upper = (np.broadcast_to(each, X.shape[1]) for each in sides)
    eta = np.zeros((len(members), len(y)))

    for _ in range(sweeps):
        change = 0.0
        for j in range(X.shape[1]):
            g = slope(eta, y) @ (omega * Z[:, j])
            u = energy[j] * w[:, j] - g
            new = np.sign(u) * np.maximum(np.abs(u) - l1[j], 0) / (energy[j] + problem.l2)
            new = np.where(members[:, j], np.clip(new, lower[j], upper[j]), 0.0)
            eta += (new - w[:, j])[:, None] * Z[:, j]
            change = max(change, float(np.abs(new - w[:, j]).max()))
            w[:, j] = new
        if problem.intercept:
            step = -slope(eta, y) @ omega / smoothness
            b, eta = b + step, eta + step[:, None]
            change = max(change, float(np.abs(step).max()))
        if change < 1e-13:
            break
    value = Loss(problem.loss, 1.0).value(eta, y) @ omega + np.abs(w) @ l1 + 0.5 * problem.l2 * (w**2).sum(1)
    return w, b - w @ mean, value


def best_penalised(problem):
    """(value, masks of the supports of all optima) of F + l0 + l1 terms."""

    def totals(members, sweeps):
        w, _, value = fits(problem, members, sweeps)
        return w != 0, value + problem.l0 * ((w != 0) * problem.prices).sum(1)

    found, total = totals(masks(problem.X.shape[1]), 400)
    near = np.unique(found[total <= 1.01 * total.min()], axis=0)
    found, total = totals(near, 20_000)  # to the end
    ties = total <= total.min() + 1e-10 * abs(total.min())
    return total.min(), found[ties]


def best_sparse(problem, k):
    """(value, masks of the supports of all optima) with at most k features and no price."""
    every = masks(problem.X.shape[1], k)
    w, _, value = fits(problem._replace(l1=0.0), every)
    ties = value <= value.min() + 1e-10 * abs(value.min())
    return value.min(), (w != 0)[ties]


def of_matrices(X, y, l2, bounds=(None, None)):
    """(F, W, b) of the best ridge fit of all columns to several responses, or to classes by the softmax, with the same
    bounds on every coefficient."""
    n, c = len(X), y.shape[1] if y.ndim == 2 else y.max() + 1

    def F(z):
        eta = X @ z[c:].reshape(-1, c) + z[:c]
        if y.ndim == 2:
            slope, value = eta - y, 0.5 * np.sum((eta - y) ** 2, axis=1)
        else:
            total = logsumexp(eta, axis=1)
            slope, value = np.exp(eta - total[:, None]) - np.eye(c)[y], total - eta[np.arange(n), y]
        grad = np.append(slope.mean(0), (X.T @ slope / n).ravel() + l2 * z[c:])
        return value.mean() + 0.5 * l2 * np.sum(z[c:] ** 2), grad

    size = c * X.shape[1]
    options = {"maxiter": 10000, "ftol": 1e-16, "gtol": 1e-11, "maxcor": 40}
    free = [(None, None)] * c + [bounds] * size
    found = minimize(F, np.zeros(c + size), jac=True, method="L-BFGS-B", bounds=free, options=options)
    return found.fun, found.x[c:].reshape(-1, c), found.x[:c]
