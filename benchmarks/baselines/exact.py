"""Exact solvers for L0: OKRidge (at most k features), L0BnB and El0ps (a price l0 for each), for standardised data.

Each takes the problem in the mean form, |y - Xw|^2 / (2n) + (l2 / 2) |w|^2, and returns (whether its gap is closed, its
gap or None if it does not say, seconds). The two that penalise start from the optimum, and l0 makes it theirs.
"""

import time

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
    from el0ps.penalty import L2norm
    from el0ps.solver import BnbSolver, Status

    n = len(y)

    def run(limit):
        start = time.perf_counter()
        solver = BnbSolver(relative_gap=GAP, time_limit=limit)
        result = solver.solve(Leastsquares(y), L2norm(n * l2 / 2), X, n * l0, x_init=w)
        return result.status == Status.OPTIMAL, None, time.perf_counter() - start

    run(1.0)  # compiles
    return run(limit)


SOLVERS = {"okridge": okridge, "l0bnb": l0bnb, "el0ps": el0ps}
