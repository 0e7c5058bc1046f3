"""skglm: MCP and SCAD along a path of strengths, down to a size or tuned by cross-validation.

For columns of norm root n. The shapes are ncvreg's own, and a smaller one, where the penalty is nearer to a count of
features; times the length of a coordinate's step, so that a coordinate's problem stays convex.
"""

import numpy as np

SETTINGS = {
    "skglm, MCP": {"kind": "MCP", "shape": 3.0},
    "skglm, MCP, shape 1.5": {"kind": "MCP", "shape": 1.5},
    "skglm, SCAD": {"kind": "SCAD", "shape": 3.7},
}
STEP = 4.0  # of a coordinate for the logistic loss; 1 for the squared
STRENGTHS = 50
HALVINGS = 10


class Problem:
    """One problem, fitted at a strength from given coefficients (the intercept last)."""

    def __init__(self, X, y, kind, shape, classification=False, intercept=False):
        from skglm import datafits, penalties, solvers

        self.X, self.y = np.asfortranarray(X), np.ascontiguousarray(y)
        self.loss = datafits.Logistic() if classification else datafits.Quadratic()
        self.penalty = {"MCP": penalties.MCPenalty, "SCAD": penalties.SCAD}[kind]
        self.shape = shape * (STEP if classification else 1)
        self.solver = solvers.AndersonCD(fit_intercept=intercept)
        self.zero = np.zeros(X.shape[1] + intercept)
        residual = (y - y.mean() if intercept else y) / (2 if classification else 1)
        self.largest = np.abs(X.T @ residual).max() / len(y)  # the least strength without features

    def fit(self, strength, w):
        p = self.X.shape[1]
        eta = self.X @ w[:p] + np.sum(w[p:])
        return self.solver.solve(self.X, self.y, self.loss, self.penalty(strength, self.shape), w.copy(), eta)[0]


def best_subset(X, y, k, **setting):
    """Support of at most k features: the path down to the last strength with so few, bisected there while fewer."""
    scale = np.sqrt(len(y))  # the solver's tolerance is absolute
    problem = Problem(X * (scale / np.linalg.norm(X, axis=0)), y * (scale / np.linalg.norm(y)), **setting)
    w, high = problem.zero, problem.largest
    for low in problem.largest * np.geomspace(1, 1e-3, STRENGTHS)[1:]:
        smaller = problem.fit(low, w)
        if np.count_nonzero(smaller) > k:
            break
        w, high = smaller, low
    for _ in range(HALVINGS):
        if np.count_nonzero(w) == k:
            break
        middle = np.sqrt(low * high)
        found = problem.fit(middle, w)
        if np.count_nonzero(found) > k:
            low = middle
        else:
            w, high = found, middle
    return np.flatnonzero(w)


def cross_validated(X, y, fold, classification=False, **setting):
    """(coefficients, intercept) of the strength with the least mean loss; `fold` numbers each sample's fold."""
    scale = 1.0 if classification else y.std()
    y = np.where(y == y.max(), 1.0, -1.0) if classification else y / scale
    setting = {"classification": classification, "intercept": True, **setting}
    whole = Problem(X, y, **setting)
    least = 1e-3 if len(y) > X.shape[1] else 0.05  # as in ncvreg
    strengths = whole.largest * np.geomspace(1, least, STRENGTHS)
    losses = np.zeros(STRENGTHS)
    for number in range(int(fold.max()) + 1):
        out = fold == number
        part = Problem(X[~out], y[~out], **setting)
        w = part.zero
        for i, strength in enumerate(strengths):
            w = part.fit(strength, w)
            eta = X[out] @ w[:-1] + w[-1]
            losses[i] += np.sum(np.logaddexp(0, -y[out] * eta) if classification else (y[out] - eta) ** 2)
    w = whole.zero
    for strength in strengths[: losses.argmin() + 1]:
        w = whole.fit(strength, w)
    return scale * w[:-1], float(scale * w[-1])
