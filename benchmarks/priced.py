"""Penalised problems: what solvers end above the optimum that El0ps proves, at prices over a whole path, and how long
they take.

    min_w (1/n) sum_i l(x_i'w, y_i) + l0 ||w||_0 + l1 ||w||_1 + (l2/2) ||w||^2

Every value is computed anew in float64 from the coefficients. Times are of a solve from host arrays, after a first one;
El0ps, which also proves, has its time beside them.
"""

import functools
import time

import jax
import numpy as np

import sparsehtp as sht

from .baselines import version
from .scores import aim, finish
from .timing import best_of

N, P, K, RHO, PRICES, SEEDS, LIMIT = 120, 40, 6, 0.7, 4, 2, 20
CASES = [("squared", 0.0), ("squared", 0.05), ("logistic", 0.0), ("logistic", 0.02)]  # loss and l1
L2 = 1e-2
TIE = 1e-6  # relative: El0ps closes its gap to 1e-8
OURS = {
    "PricedSubset": sht.solvers.PricedSubset(),
    "PricedSubset fast": sht.solvers.PricedSubset("fast"),
    "PrimalDual": sht.solvers.PrimalDual(),
    "CDSS": sht.solvers.CDSS(),
}


def draw(loss, seed):
    """Standardised columns of correlation RHO^|i-j|, and standardised targets or labels of -1 and 1."""
    make = sht.datasets.make_classification if loss == "logistic" else sht.datasets.make_regression
    X, y, _ = make(N, P, K, snr=3.0, rho=RHO, seed=seed)
    return (X - X.mean(0)) / X.std(0), y if loss == "logistic" else (y - y.mean()) / y.std()


def value_of(loss, X, y, w, l0, l1):
    """The objective at w."""
    eta = X @ w
    each = np.logaddexp(0, -y * eta) if loss == "logistic" else (y - eta) ** 2 / 2
    return float(each.mean() + l0 * np.count_nonzero(w) + l1 * np.abs(w).sum() + L2 / 2 * w @ w)


def proved(loss, X, y, l0, l1):
    """(objective, whether it is proved, seconds) of El0ps."""
    import pybnb
    from el0ps.datafit import Leastsquares, Logistic
    from el0ps.penalty import L1L2norm, L2norm
    from el0ps.solver import BnbSolver, Status

    pybnb.Solver = functools.partial(pybnb.Solver, comm=None)  # one process, without MPI
    start, n = time.perf_counter(), len(y)
    penalty = L1L2norm(n * l1, n * L2 / 2) if l1 else L2norm(n * L2 / 2)
    data = (Logistic if loss == "logistic" else Leastsquares)(y)
    found = BnbSolver(time_limit=LIMIT).solve(data, penalty, X, n * l0)
    return value_of(loss, X, y, found.x, l0, l1), found.status == Status.OPTIMAL, time.perf_counter() - start


def main(quick=False):
    """Every solver on every problem; a row for each, and the aims."""
    known = version("el0ps") is not None
    rows, above = [], {name: [] for name in OURS}
    for loss, l1 in CASES[: 1 if quick else None]:
        for seed in range(1 if quick else SEEDS):
            X, y = draw(loss, seed)
            kind = sht.losses.Logistic() if loss == "logistic" else sht.losses.Squared()
            with jax.enable_x64(True):
                model = sht.LinearModel(X, y, kind, l2=L2)
                path = sht.solve_path(model, sht.L0L1L2(0.0, l1), ks=[2 * K])
                prices = np.geomspace(path.l0s.max() * 0.7, path.l0s.min(), 2 if quick else PRICES)
                if known:
                    proved(loss, X, y, prices[0], l1)  # compiles
                for l0 in prices:
                    structure = sht.L0L1L2(float(l0), l1)
                    found = {}

                    def run(name, structure=structure, model=model, found=found):
                        found[name] = sht.solve(model, structure, OURS[name], record=None, throw=False)
                        return found[name].x

                    seconds = best_of({name: functools.partial(run, name) for name in OURS}, 3)
                    values = {
                        name: value_of(loss, X, y, np.asarray(solution.x), l0, l1) for name, solution in found.items()
                    }
                    best, sure, needed = proved(loss, X, y, l0, l1) if known else (min(values.values()), False, None)
                    for name, each in values.items():
                        above[name].append(each / best - 1)
                    size = np.count_nonzero(found["PricedSubset"].x)
                    rows.append(
                        {
                            "name": f"{loss}, l1={l1:g}, seed {seed}, l0={l0:.2g}, {size} features",
                            "value": values["PricedSubset"] / best - 1,
                            "unit": "above El0ps" if known else "above the best",
                            "proved": sure,
                            "above": {name: each / best - 1 for name, each in values.items()},
                            "seconds": seconds | ({"El0ps": needed} if known else {}),
                        }
                    )
                    print(rows[-1]["name"], rows[-1]["above"], rows[-1]["seconds"], flush=True)
    for name, each in above.items():
        share = float(np.mean(np.array(each) <= TIE))
        row = {"name": f"{name}: at or below El0ps", "value": share, "unit": "of the problems", "worst": max(each)}
        rows.append(aim(row, ">= 0.99", share >= 0.99) if name == "PricedSubset" else row)
    if not known:
        rows.append({"name": "el0ps: not installed", "value": 0, "unit": "fits"})
    finish("priced", rows, quick)
