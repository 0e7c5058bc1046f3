"""The experiments of [DIOM]: primal-dual updating against dual ascent, DIHT and coordinate descent with swaps."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._programs import program
from .._solve import solve
from ..iteration.termination import DualGap
from ..objectives import LinearModel
from ..screening import lower_bound
from ..solvers import CDSS, DIHT, PrimalDual
from ..thresholds import L0L1L2, Sparsity
from .figures import curves, legend_below, panels
from .run import Run

ALGORITHMS = ("PrimDual", "DualAst", "DIHT", "CDSS")
UNITS = {
    "time": "time (s)",
    "objective": "objective",
    "gap": "gap to the bound",
    "nonzeros": "nonzeros",
    "recovery": "recovered share",
    "error": "estimation error",
}


@program(static_argnames=("algorithm", "k", "steps"))
def _fit(
    X: Any, y: Any, l0: Any, l1: Any, l2: Any, tol: Any, *, algorithm: str, k: int, steps: int
) -> tuple[Array, Array]:
    model = LinearModel(X, y, l2=l2)
    if algorithm == "DIHT":
        found = solve(model, Sparsity(k), DIHT(), max_steps=steps, termination=DualGap(tol), record=None, throw=False)
        return found.x, found.num_steps
    solver = {"PrimDual": PrimalDual(), "DualAst": PrimalDual(dual_ascent=True), "CDSS": CDSS()}[algorithm]
    limits: dict[str, Any] = {"max_steps": steps, "termination": DualGap(tol)} if algorithm == "DualAst" else {}
    found = solve(model, L0L1L2(l0, l1), solver, record=None, throw=False, **limits)
    return found.x, found.num_steps


def measured(
    X: np.ndarray, y: np.ndarray, lam: tuple[float, float, float], algorithm: str, k: int, steps: int
) -> tuple[np.ndarray, float, float, int]:
    """Coefficients, seconds without compiling, and F + penalty in the sum form, of one algorithm.

    `lam` are the weights of the sum form: lam0 = n l0, lam1 = n l1, lam2 = n l2 / 2.
    """
    n = len(y)
    lam0, lam1, lam2 = lam
    arguments = (jnp.asarray(X), jnp.asarray(y), lam0 / n, lam1 / n, 2 * lam2 / n, 1e-6)
    jax.block_until_ready(_fit(*arguments, algorithm=algorithm, k=k, steps=steps))
    start = time.perf_counter()
    x, taken = jax.block_until_ready(_fit(*arguments, algorithm=algorithm, k=k, steps=steps))
    seconds = time.perf_counter() - start
    x = np.asarray(x)
    value = 0.5 * np.sum((X @ x - y) ** 2) + lam0 * np.count_nonzero(x) + lam1 * np.abs(x).sum() + lam2 * x @ x
    return x, seconds, float(value), int(taken)


def _row(
    X: np.ndarray, y: np.ndarray, lam: Any, algorithm: str, k: int, steps: int, lower: float
) -> tuple[np.ndarray, dict[str, Any]]:
    x, seconds, value, taken = measured(X, y, lam, algorithm, k, steps)
    return x, {
        "time": seconds,
        "objective": value,
        "gap": value - lower,
        "nonzeros": int(np.count_nonzero(x)),
        "steps": taken,
    }


def _lower(X: np.ndarray, y: np.ndarray, lam: Any, upper: float) -> float:
    """The best dual value, in the sum form: the same for every algorithm's gap."""
    n = len(y)
    model = LinearModel(jnp.asarray(X), jnp.asarray(y), l2=2 * lam[2] / n)
    return n * lower_bound(model, L0L1L2(lam[0] / n, lam[1] / n), upper / n).lower


def fig1(run: Run) -> Any:
    """Figure 1: time, gap, nonzeros, support recovery and error on simulated data."""
    p, share = run["p"], run["share"]

    def problem(n: int, snr: float, copy: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = run.rng("problem", n, snr, copy)
        X = rng.standard_normal((n, p))
        for j in range(1, p):
            X[:, j] = run["rho"] * X[:, j - 1] + np.sqrt(1 - run["rho"] ** 2) * X[:, j]
        X /= np.linalg.norm(X, axis=0)
        w = np.zeros(p)
        w[rng.choice(p, round(share * p), replace=False)] = rng.uniform(-1, 1, round(share * p))
        signal = X @ w
        return X, signal + rng.standard_normal(n) * np.sqrt(signal.var() / snr), w

    def compare(n: int, snr: float, copy: int) -> dict[str, Any]:
        with jax.enable_x64(True):
            X, y, w = problem(n, snr, copy)
            lam = tuple(run["prices_snr20" if snr == 20 else "prices"])
            k = int(np.count_nonzero(w))
            rows: dict[str, Any] = {}
            for algorithm in ALGORITHMS:
                x, rows[algorithm] = _row(X, y, lam, algorithm, k, run["max_steps"], 0.0)
                rows[algorithm]["recovery"] = float(np.mean(x[w != 0] != 0))
                rows[algorithm]["error"] = float(np.linalg.norm(x - w) / np.linalg.norm(w))
            lower = _lower(X, y, lam, min(r["objective"] for a, r in rows.items() if a != "DIHT"))
            for row in rows.values():
                row["gap"] = row["objective"] - lower
        return rows

    cells = [{"n": n, "snr": snr, "copy": c} for snr in run["snrs"] for n in run["ns"] for c in range(run["copies"])]
    rows = run.map(compare, cells)

    def mean(algorithm: str, measure: str, n: int, snr: float) -> float:
        return float(np.mean([r[algorithm][measure] for r in rows if (r["n"], r["snr"]) == (n, snr)]))

    grid = [(n, snr) for snr in run["snrs"] for n in run["ns"]]
    apart = {
        measure: max(
            abs(mean("PrimDual", measure, *at) - mean("CDSS", measure, *at)) / max(mean("CDSS", measure, *at), 1e-12)
            for at in grid
        )
        for measure in ("recovery", "error")
    }
    run.claim(
        "a",
        "support recovery and error of PrimDual are within 5% of CDSS's",
        max(apart.values()) <= 0.05,
        compared={a: [mean(a, m, *at) for m in ("recovery", "error") for at in grid] for a in ("PrimDual", "CDSS")},
        filled={
            f"n={n}, SNR {snr}": max(mean(a, "nonzeros", n, snr) for a in ("PrimDual", "CDSS")) / round(share * p)
            for n, snr in grid
        },
        apart=apart,
    )
    times = {a: [mean(a, "time", *at) for at in grid] for a in ALGORITHMS}
    fastest = [ALGORITHMS[np.argmin(each)] for each in zip(*times.values(), strict=True)]
    run.claim(
        "b",
        "PrimDual is faster than CDSS, DualAst and DIHT at every n",
        all(name == "PrimDual" for name in fastest),
        fastest={f"n={n}, SNR {snr}": name for (n, snr), name in zip(grid, fastest, strict=True)},
        mean_seconds={a: float(np.mean(t)) for a, t in times.items()},
    )
    measures = ("time", "gap", "nonzeros", "recovery", "error")
    figure, axes = panels(len(run["snrs"]), len(measures), width=2.6)
    for i, snr in enumerate(run["snrs"]):
        for ax, measure in zip(axes[i], measures, strict=True):
            curves(ax, run["ns"], {a: [mean(a, measure, n, snr) for n in run["ns"]] for a in ALGORITHMS})
            ax.set(title=f"{UNITS[measure]}, SNR {snr}", xlabel="sample size n")
    legend_below(figure, axes[0, 0])
    return figure


def fig2(run: Run) -> Any:
    """Figure 2: time, objective, gap and nonzeros on the News20 text data, labels mapped to [-10, 10]."""
    data = run.load("news20-topics")
    if data is None:
        raise FileNotFoundError(" ".join(run.notes))

    def compare(n: int, p: int, copy: int) -> dict[str, Any]:
        rng = run.rng("rows", n, p, copy)
        rows = rng.choice(data.X.shape[0], n, replace=False)
        part = data.X[rows]
        present = np.flatnonzero(np.asarray((part != 0).sum(0)).ravel())
        columns = rng.choice(present, min(p, present.size), replace=False)
        X = np.asarray(part[:, columns].todense(), float)
        X = np.pad(X, ((0, 0), (0, p - X.shape[1])))
        y = np.interp(data.y[rows].astype(float), [data.y.min(), data.y.max()], [-10, 10])
        lam = tuple(run["prices"])
        with jax.enable_x64(True):
            found = {a: _row(X, y, lam, a, run["k"], run["max_steps"], 0.0)[1] for a in ALGORITHMS}
            lower = _lower(X, y, lam, min(r["objective"] for a, r in found.items() if a != "DIHT"))
        for row in found.values():
            row["gap"] = row["objective"] - lower
        return found

    cells = [{"n": n, "p": p, "copy": c} for p in run["ps"] for n in run["ns"] for c in range(run["copies"])]
    rows = run.map(compare, cells)

    def mean(a: str, measure: str, n: int, p: int) -> float:
        return float(np.mean([r[a][measure] for r in rows if (r["n"], r["p"]) == (n, p)]))

    late = [(n, p) for p in run["ps"] for n in run["ns"] if n >= 400]
    rivals = ("DualAst", "CDSS")
    near = all(
        mean("PrimDual", "objective", *at) <= 1.01 * min(mean(a, "objective", *at) for a in rivals) for at in late
    )
    faster = all(mean("PrimDual", "time", *at) < min(mean(a, "time", *at) for a in rivals) for at in late)
    run.claim(
        "a",
        "PrimDual's objective is within 1% of DualAst's and CDSS's in less time at n >= 400",
        near and faster if late else None,
        within_1_percent=near,
        less_time=faster,
        seconds={a: [mean(a, "time", *at) for at in late] for a in ALGORITHMS},
    )
    small, large = run["ps"][0], run["ps"][-1]
    longest = [ALGORITHMS[np.argmax([mean(a, "time", n, small) for a in ALGORITHMS])] for n in run["ns"]]
    swaps = ("PrimDual", *rivals)
    least = [swaps[np.argmin([mean(a, "gap", n, large) for a in swaps])] for n in run["ns"]]
    run.claim(
        "b",
        f"CDSS takes longest at p = {small}, and has the smallest gap at p = {large}",
        all(a == "CDSS" for a in longest + least),
        longest=longest,
        smallest_gap=least,
    )
    measures = ("time", "objective", "gap", "nonzeros")
    figure, axes = panels(len(run["ps"]), len(measures), width=2.8)
    for i, p in enumerate(run["ps"]):
        for ax, measure in zip(axes[i], measures, strict=True):
            curves(ax, run["ns"], {a: [mean(a, measure, n, p) for n in run["ns"]] for a in ALGORITHMS})
            ax.set(title=f"{UNITS[measure]}, p = {p}", xlabel="sample size n")
    legend_below(figure, axes[0, 0])
    return figure
