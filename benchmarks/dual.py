"""Dual and penalised solvers: time and epochs to a set loss, screening on and off, and a path over l0.

Every solver's program is compiled before it is timed. All comparisons are of one process on the same data; objectives
are F + penalty of the same model, so that lower is better and equal is equal.
"""

import time

import jax
import numpy as np

import sparsehtp as sht
from sparsehtp._programs import clear
from sparsehtp.datasets import make_text

from .baselines import abess, version
from .problems import generate
from .scores import aim, finish, print_table
from .timing import best_of


def timed(function):
    """(result, seconds) of a second run."""
    jax.block_until_ready(function())
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return result, time.perf_counter() - start


def classification(quick):
    """Seconds and epochs to a primal loss that all reach: smoothed hinge, dense, the scale of each step by a grid."""
    n, p, k = (400, 100, 20) if quick else (4000, 1000, 100)
    X, eta, _ = generate(n, p, k, seed=0)
    X, y = X.astype(np.float32) / np.sqrt(p, dtype=np.float32), np.where(eta > 0, 1, -1).astype(np.float32)
    model = sht.LinearModel(X, y, sht.losses.SmoothedHinge(), l2=float(1 / np.sqrt(n)))
    steps = 50 if quick else 300
    solvers = {
        "DIHT": (lambda c: sht.solvers.DIHT(scale=8 * c), steps),
        "SDIHT": (lambda c: sht.solvers.SDIHT(scale=c), steps // 5),
        "IHT": (lambda c: sht.solvers.IHT(sht.steps.ConstantStep(scale=c)), steps),
        "HTP": (lambda c: sht.solvers.HTP(sht.steps.ConstantStep(scale=c)), 20),
        "SVRGHT": (lambda c: sht.solvers.SVRGHT(sht.steps.ConstantStep(scale=0.1 * c)), steps // 5),
    }
    runs = {}
    for name, (make, most) in solvers.items():
        for c in (0.3, 1.0, 3.0):
            solver = make(c)
            solution, seconds = timed(
                lambda s=solver, m=most: sht.solve(
                    model, sht.Sparsity(k), s, max_steps=m, termination=sht.stopping.Never(), throw=False
                )
            )
            taken = int(solution.num_steps)
            values = np.minimum.accumulate(np.asarray(solution.history.value)[:taken])
            epochs = np.cumsum(np.asarray(solution.history.ifo, float)[:taken]) / n
            if name not in runs or values[-1] < runs[name][0][-1]:
                runs[name] = values, epochs, seconds
    level = max(values[-1] for values, _, _ in runs.values()) * (1 + 1e-3)
    rows = []
    for name, (values, epochs, seconds) in runs.items():
        hit = int(np.argmax(values <= level))
        share = (hit + 1) / len(values)
        label = f"smoothed hinge n={n} p={p} k={k}: {name}"
        rows.append({"name": f"{label}, seconds to loss {level:.4f}", "value": seconds * share, "unit": "s",
                     "epochs": float(epochs[hit]), "final_loss": float(values[-1])})  # fmt: skip
    return rows


def penalised_data(n, p, k):
    """Standardised AR(0.5) columns, contiguous by feature."""
    X, y, _ = generate(n, p, k, 5.0, 0.5)
    X = (X - X.mean(0)) / X.std(0)
    return np.asfortranarray(X), (y - y.mean()) / y.std()


def penalised(quick):
    """PrimalDual against CDSS, dual ascent and DIHT: seconds, objective, gap."""
    n, p, k = (100, 400, 10) if quick else (500, 2000, 30)
    X, y = penalised_data(n, p, k)
    model, l0 = sht.LinearModel(X, y, l2=1.0), 2e-3
    rows, lower = [], -np.inf
    found = {}
    for name, solver, threshold in (
        ("PrimalDual", sht.solvers.PrimalDual(), sht.L0L1L2(l0)),
        ("CDSS", sht.solvers.CDSS(), sht.L0L1L2(l0)),
        ("DualAst", sht.solvers.PrimalDual(dual_ascent=True), sht.L0L1L2(l0)),
        ("DIHT", sht.solvers.DIHT(), sht.Sparsity(k)),
    ):
        steps = 100 if quick else (2000 if name in ("DualAst", "DIHT") else None)
        solution, seconds = timed(
            lambda s=solver, t=threshold, m=steps: sht.solve(model, t, s, max_steps=m, throw=False, record=None)
        )
        x = np.asarray(solution.x)
        value = float(model.value(solution.x)) + l0 * np.count_nonzero(x)
        lower = max(lower, float(getattr(solution.state, "lower", -np.inf)))
        found[name] = seconds, value, int(np.count_nonzero(x)), int(solution.num_steps)
    for name, (seconds, value, nonzeros, steps) in found.items():
        rows.append({"name": f"l0 = {l0}, n={n} p={p}: {name}", "value": seconds, "unit": "s", "objective": value,
                     "gap": (value - lower) / value, "nonzeros": nonzeros, "steps": steps})  # fmt: skip
    return rows


def screening(quick):
    """PrimalDual with screening on and off, with and without the growing active set."""
    n, p, k = (100, 600, 10) if quick else (1000, 20_000, 100)
    X, y = penalised_data(n, p, k)
    l0, tol = 2e-3, 1e-2
    model, l2 = sht.LinearModel(X, y, l2=1.0), None
    for l2 in (1.0, 2.0, 4.0, 8.0):
        solution = sht.solve(model.reweighted(l2=l2), sht.L0L1L2(l0), sht.solvers.PrimalDual(), record=None)
        gap = float((solution.value - solution.state.lower) / solution.value)
        if gap <= tol:
            break
    objective = model.reweighted(l2=l2)
    settings = {
        "active set, phi test": sht.solvers.PrimalDual(),
        "active set, rule (16)": sht.solvers.PrimalDual(rule="gap_sphere"),
        "active set, none": sht.solvers.PrimalDual(rule="none"),
        "all features, phi test": sht.solvers.PrimalDual(incremental=False),
        "all features, none": sht.solvers.PrimalDual(rule="none", incremental=False),
    }
    rows, seconds, facts = [], {}, {}
    for name, solver in settings.items():
        solution, seconds[name] = timed(
            lambda s=solver: sht.solve(
                objective,
                sht.L0L1L2(l0),
                s,
                record=None,
                termination=sht.stopping.DualGap(tol) | sht.stopping.Complete(),
            )
        )
        facts[name] = {
            "steps": int(solution.num_steps),
            "gap": float((solution.value - solution.state.lower) / solution.value),
            "objective": float(solution.value),
            "out": int(solution.state.out.sum()),
            "in": int(solution.state.inn.sum()),
        }
    label = f"n={n} p={p} k={k} AR(0.5), l2={l2}"
    for name, value in seconds.items():
        rows.append({"name": f"{label}: {name}", "value": value, "unit": "s", **facts[name]})
    for kind in ("active set", "all features"):
        ratio = seconds[f"{kind}, none"] / seconds[f"{kind}, phi test"]
        row = {"name": f"{label}: {kind}, screening off over on", "value": ratio, "unit": "times"}
        rows.append(aim(row, ">= 3", ratio >= 3))
    return rows


def path(quick):
    """The path over l0: time, sizes found, and the residual at each size against abess and BestSubset."""
    n, p, k = (100, 300, 8) if quick else (1000, 10_000, 50)
    X, y = penalised_data(n, p, k)
    model, limit = sht.LinearModel(X, y, l2=1e-6), 10 if quick else 60
    fits = {
        "path over l0": lambda: sht.solve_path(model, ks=[limit], threshold=sht.L0L1L2(0.0)),
        "BestSubset path": lambda: sht.solve_path(model, ks=range(1, limit + 1)),
    }
    paths = {}

    def run(name):
        paths[name] = fits[name]()
        return paths[name].value

    seconds = best_of({name: (lambda name=name: run(name)) for name in fits}, repeats=1)
    losses = {name: dict(zip(each.ks.tolist(), each.loss.tolist(), strict=True)) for name, each in paths.items()}
    if version("abess") is not None:
        start, losses["abess"] = time.perf_counter(), {}
        for size in range(1, limit + 1, 1 if quick else 10):
            support = abess.best_subset(X, y, size, **next(iter(abess.SETTINGS.values())))
            A = X[:, support]
            r = y - A @ np.linalg.lstsq(A, y, rcond=None)[0]
            losses["abess"][size] = float(r @ r) / (2 * n)
        seconds["abess (every tenth size)"] = time.perf_counter() - start
    sizes = sorted(losses["path over l0"])
    best = {s: min(each[s] for each in losses.values() if s in each) for s in sizes}
    over = [losses["path over l0"][s] / best[s] - 1 for s in sizes]
    print_table("mean loss at each size", ["size", *losses], [
        [str(s), *(f"{each[s]:.6g}" if s in each else "-" for each in losses.values())] for s in sizes
    ])  # fmt: skip
    label = f"n={n} p={p}"
    rows = [{"name": f"{label}: {name}", "value": value, "unit": "s"} for name, value in seconds.items()]
    rows.append(
        {"name": f"{label}: sizes 1 to {limit} that the path over l0 finds", "value": len(sizes), "unit": "sizes"}
    )
    rows.append({"name": f"{label}: worst loss over the best of all", "value": 100 * max(over), "unit": "%"})
    return rows


def large(quick):
    """DIHT and SDIHT on data shaped like News20, with k = 10,000 and the smoothed hinge: to a gap of 1%."""
    n, p, words, k = (500, 50_000, 60.0, 500) if quick else (10_000, 1_355_191, 455.0, 10_000)
    X, y, _ = make_text(n, p, words)
    model = sht.LinearModel(X, y, sht.losses.SmoothedHinge(), l2=1 / float(np.sqrt(n)))
    rows = []
    for name, solver in (("DIHT", sht.solvers.DIHT()), ("SDIHT", sht.solvers.SDIHT(block_size=n // 20))):
        start = time.perf_counter()
        solution = sht.solve(
            model,
            sht.Sparsity(k),
            solver,
            termination=sht.stopping.DualGap(1e-2) | sht.stopping.SmallStep(),
            max_steps=500,
            throw=False,
        )
        seconds = time.perf_counter() - start
        taken = int(solution.num_steps)
        gaps = np.asarray(solution.history.gap)[:taken] / np.abs(np.asarray(solution.history.value)[:taken])
        result = sht.results.RESULTS(int(solution.result)).name
        rows.append({"name": f"News20-shaped, k={k}, {name}: {result}, with compiling", "value": seconds, "unit": "s",
                     "steps": taken, "objective": float(solution.value), "least_gap": float(gaps.min())})  # fmt: skip
    return rows


def main(quick):
    """The five comparisons; those of the penalised problem in float64, as the bounds are."""
    rows = classification(quick) + large(quick)
    with jax.enable_x64(True):
        for part in (penalised, screening, path):
            rows += part(quick)
            clear()
    finish("dual", rows, quick)
