"""Exact solvers for L0: OKRidge (at most k features), L0BnB and El0ps (a price l0 for each), for standardised data.

Each takes the problem in the mean form, |y - Xw|^2 / (2n) + (l2 / 2) |w|^2, and returns (whether its gap is closed, its
gap or None if it does not say, seconds). The two that penalise start from the optimum, l0 makes it theirs, and they are
told that no coefficient is above 1.2 times its largest.

They need an older NumPy than the package, so that this file runs alone in a Python of theirs:
`python exact.py NAME PROBLEM.npz SECONDS` prints their answer as JSON; without arguments, their versions.
"""

import json
import sys
import time
from importlib import metadata

import numpy as np

GAP = 1e-4


def okridge(X, y, k, l2, limit, **_):
    from okridge.tree import BNBTree

    start = time.perf_counter()
    tree = BNBTree(X=X, y=y, lambda2=len(y) * l2)
    _, _, gap, *_ = tree.solve(k=k, gap_tol=GAP, time_limit=limit, verbose=False)
    return bool(gap <= GAP), float(gap), time.perf_counter() - start


def l0bnb(X, y, k, l2, limit, l0, w):
    from l0bnb import BNBTree

    n, start = len(y), time.perf_counter()
    result = BNBTree(X, y).solve(
        n * l0, n * l2 / 2, 1.2 * np.abs(w).max(), gap_tol=GAP, warm_start=w, time_limit=limit, verbose=False
    )
    return bool(result.gap <= GAP), float(result.gap), time.perf_counter() - start


def el0ps(X, y, k, l2, limit, l0, w):
    from el0ps.datafit import Leastsquares
    from el0ps.penalty import BigmL2norm
    from el0ps.solver import BnbSolver, Status

    n, start = len(y), time.perf_counter()
    penalty = BigmL2norm(1.2 * np.abs(w).max(), n * l2 / 2)
    result = BnbSolver(relative_gap=GAP, time_limit=limit).solve(Leastsquares(y), penalty, X, n * l0, x_init=w)
    return result.status == Status.OPTIMAL, None, time.perf_counter() - start


SOLVERS = {"okridge": okridge, "l0bnb": l0bnb, "el0ps": el0ps}


def main(name, path, limit):
    """One solver on a stored problem, after a small one that compiles what it compiles."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8))
    y = X[:, 0] - X[:, 1] + rng.standard_normal(60)
    with np.load(path) as facts:
        problem = {key: facts[key][()] for key in facts.files}
    small = {"X": X, "y": y, "k": 2, "l2": 0.01, "l0": 0.01, "w": np.where(np.arange(8) < 2, [1.0, -1] * 4, 0)}
    SOLVERS[name](**small, limit=5.0)
    problem["k"] = int(problem["k"])
    proved, gap, seconds = SOLVERS[name](**problem, limit=float(limit))
    return {"proved": proved, "gap": gap, "seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:]) if sys.argv[1:] else {name: metadata.version(name) for name in SOLVERS}))
