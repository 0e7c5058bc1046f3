"""Solvers at their defaults on twelve problems: passes and seconds until they are near the least objective."""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

import sparsehtp as sht
from sparsehtp.plot.style import LABEL_SIZE, PALETTE, new_figure, tidy

from .scores import aim, finish

# loss, n, p, correlation of neighbours, share of nonzeros, k (20 features are true)
PROBLEMS = (
    ("squared", 10_000, 1000, 0.0, 1.0, 20),
    ("squared", 100_000, 1000, 0.0, 1.0, 20),
    ("squared", 100_000, 200, 0.9, 1.0, 30),
    ("squared", 1_000_000, 50, 0.5, 1.0, 20),
    ("squared", 20_000, 5000, 0.0, 0.01, 30),
    ("logistic", 10_000, 1000, 0.0, 1.0, 30),
    ("logistic", 100_000, 1000, 0.0, 1.0, 20),
    ("logistic", 100_000, 200, 0.9, 1.0, 20),
    ("logistic", 1_000_000, 50, 0.5, 1.0, 20),
    ("logistic", 20_000, 5000, 0.0, 0.01, 20),
    ("softmax", 10_000, 200, 0.0, 1.0, 60),
    ("softmax", 100_000, 100, 0.5, 1.0, 60),
)
DEFAULTS = {
    "HTP": (sht.solvers.HTP(), 20),
    "IHT": (sht.solvers.IHT(), 40),
    "FoBa": (sht.solvers.FoBa(), 60),
    "StochasticHT": (sht.solvers.StochasticHT(), 20),
    "SVRGHT": (sht.solvers.SVRGHT(), 6),
    "SAGAHT": (sht.solvers.SAGAHT(), 20),
    "HybridHT": (sht.solvers.HybridHT(), 28),
    "SDIHT": (sht.solvers.SDIHT(), 10),
}
PICTURE = Path(__file__).parents[1] / "docs" / "guide" / "stochastic.svg"
DRAWN = (1, 7, 8)  # of the problems
MARKERS = "os^DvPX*"
EXCESSES = (1e-2, 1e-3, 1e-4)  # of F, over the least that was found


def drawn(loss, n, p, rho, share, seed=0):
    """The model of a problem."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p), np.float32)
    for j in range(1, p) if rho else ():
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2, dtype=np.float32) * X[:, j]
    if share < 1:
        X *= rng.random((n, p), np.float32) < share
    classes = 3 if loss == "softmax" else 1
    w = np.zeros((p, classes), np.float32)
    rows = rng.choice(p, 20, replace=False)
    w[rows] = rng.choice([-1, 1], (20, classes)) * rng.uniform(0.5, 1.5, (20, classes)) * share**-0.5
    eta = X @ w
    X = sparse.csr_array(X) if share < 1 else jnp.asarray(X)
    if loss == "softmax":
        return sht.MultiResponse(X, np.argmax(eta + rng.gumbel(size=eta.shape), 1), sht.losses.Softmax(3), l2=1e-3)
    if loss == "logistic":
        y = np.where(eta[:, 0] + rng.logistic(size=n) > 0, 1, -1).astype(np.float32)
        return sht.LinearModel(X, y, sht.losses.Logistic(), l2=1e-3)
    return sht.LinearModel(X, eta[:, 0] + 2 * rng.standard_normal(n, np.float32), l2=1e-3)


def traces(objective, k, solvers):
    """name -> (passes over the data, seconds, F) after every step of a run: the seconds of the run by its passes."""
    found = {}
    threshold = (
        sht.RowSparsity(k // 3, k_max=k // 3) if isinstance(objective, sht.MultiResponse) else sht.Sparsity(k, k)
    )
    for name, (solver, steps) in solvers.items():
        try:
            solution = sht.solve(objective, threshold, solver, max_steps=steps, throw=False)
        except TypeError:  # does not take the objective
            continue
        start = time.perf_counter()
        jax.block_until_ready(sht.solve(objective, threshold, solver, max_steps=steps, throw=False).x)
        seconds = time.perf_counter() - start
        history, taken = solution.history, int(solution.num_steps)
        passes = np.cumsum(np.asarray(history.ifo[:taken], float)) / objective.n_samples
        found[name] = passes, seconds * passes / passes[-1], np.asarray(history.value[:taken], float)
    return found


def main(quick=False):
    """How soon the solvers come near the least objective, as they are when nothing is said."""
    rows = []
    kept = {}
    for loss, n, p, rho, share, k in PROBLEMS:
        n, p = (n // 50, min(p, 100)) if quick else (n, p)
        label = f"{loss}, n = {n}, p = {p}, " + (f"{share:.0%} nonzero" if share < 1 else f"rho = {rho}") + f", k = {k}"
        found = traces(drawn(loss, n, p, rho, share), k, DEFAULTS)
        least = min(np.nanmin(values) for *_, values in found.values())
        first = {name: [_first(trace, least, excess) for excess in EXCESSES] for name, trace in found.items()}
        for name, (passes, seconds, values) in found.items():
            excess = 100 * float(np.nanmin(values) / least - 1)
            row = {"name": f"{label}: {name}, excess of F at the end", "value": excess, "unit": "%"}
            row |= {"passes": float(passes[-1]), "seconds": float(seconds[-1])}
            row |= {f"to {100 * e:g}%": at for e, at in zip(EXCESSES, first[name], strict=True)}
            rows.append(aim(row, "<= 1", excess <= 1))
        kept[label] = {name: [list(map(float, part)) for part in trace] for name, trace in found.items()}
        print(label, {name: at[0] and round(at[0]["passes"], 1) for name, at in first.items()}, flush=True)
    rows.append({"name": "runs behind these rows", "value": len(kept), "unit": "", "passes, seconds, F": kept})
    finish("stochastic", rows, quick)
    if not quick:
        draw(kept, PICTURE)


def draw(kept, path):
    """Excess of F against passes and against seconds, for three of the problems."""
    figure = new_figure(10, 8)
    panels = figure.subplots(3, 2, sharex="col")
    names = list(DEFAULTS)
    for line, label in zip(panels, [list(kept)[i] for i in DRAWN], strict=True):
        least = min(min(values) for *_, values in kept[label].values())
        for name, (*across, values) in kept[label].items():
            style = {"color": PALETTE[names.index(name) % len(PALETTE)], "marker": MARKERS[names.index(name)]}
            for ax, x in zip(line, across, strict=True):
                excess = np.maximum(np.minimum.accumulate(values) / least - 1, 1e-6)
                ax.plot(x, excess, label=name, markersize=4, linewidth=1.2, markevery=0.2, **style)
        for ax in line:
            ax.set(xscale="log", yscale="log", ylim=(5e-7, 20))
            tidy(ax)
        line[0].set_ylabel("excess of F")
        line[0].set_title(label, loc="left", fontsize=LABEL_SIZE)
    panels[-1][0].set_xlabel("passes over the data")
    panels[-1][1].set_xlabel("seconds")
    panels[0][1].legend(fontsize=LABEL_SIZE - 1, ncols=2, frameon=False, loc="upper right")
    figure.savefig(path)


def _first(trace, least, excess):
    """Passes and seconds until F is so near the least; None: never."""
    passes, seconds, values = trace
    there = np.flatnonzero(values <= least + excess * abs(least))
    return {"passes": float(passes[there[0]]), "seconds": float(seconds[there[0]])} if there.size else None
