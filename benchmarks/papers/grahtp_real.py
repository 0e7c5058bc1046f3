"""Sparse logistic regression of real data by the methods of [GraHTP], and by L1."""

import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.sparse import issparse

from sparsehtp._programs import program
from sparsehtp._solve import solve
from sparsehtp._threads import one_blas_thread
from sparsehtp.designs import DenseDesign, SparseDesign
from sparsehtp.designs.base import AbstractDesign
from sparsehtp.iteration.termination import SmallStep
from sparsehtp.objectives import LinearModel
from sparsehtp.solvers import IHT
from sparsehtp.steps import ConstantStep
from sparsehtp.thresholds import L0L1L2
from sparsehtp.thresholds.base import next_power_of_two

from .data import DataSet
from .figures import curves, legend_below, panels
from .grahtp import ALGORITHMS, LOSSES, PRINTED, STEPPING, digits, fit, limit, theory_step
from .run import Run
from .verdicts import Mean, Share, Undecided, at_most, enough, most, shown

LOSS = LOSSES["logistic"]
EQUAL_ACCURACY = "times to one objective for all methods, of ten runs each, about 2 CPU hours"


@program(static_argnames="k")
def paper_step(design: AbstractDesign, l2: Any, *, k: int) -> Array:
    """1 / (2 M_2k)."""
    return theory_step(design, jnp.ones(design.shape[0], design.dtype), l2, LOSS.smoothness, k)


@program(static_argnames=("algorithm", "k_max", "max_steps"))
def sparse_fit(
    design: AbstractDesign,
    y: Any,
    l2: Any,
    k: Any,
    step_size: Any,
    *,
    algorithm: str,
    k_max: int,
    max_steps: int | None,
) -> tuple[Array, Array, Array]:
    """(w, value, steps)."""
    weights = jnp.ones(design.shape[0], design.dtype)
    x, _, value, steps = fit(design, y, weights, l2, k, step_size, algorithm, "logistic", k_max, max_steps)
    return x, value, steps


@program(static_argnames="max_steps")
def accelerated(design: AbstractDesign, y: Any, l1: Any, *, max_steps: int) -> tuple[Array, Array]:
    """(w, steps) of L1-penalised logistic regression by accelerated proximal gradient steps from zero."""
    solver = IHT(ConstantStep(), momentum=None)
    objective = LinearModel(design, y, loss=LOSS)
    ending: dict[str, Any] = {"termination": SmallStep(1e-4), "max_steps": max_steps}
    solution = solve(objective, L0L1L2(0.0, l1), solver, record=None, throw=False, **ending)
    return solution.x, solution.num_steps


class Problem:
    """A data set on the device, and fits to it with their processor seconds, without compiling."""

    def __init__(self, run: Run, data: DataSet) -> None:
        self.run, self.data = run, data
        self.design = SparseDesign(data.X) if issparse(data.X) else DenseDesign(jnp.asarray(data.X))
        self.y = jnp.asarray(data.y)
        self.paper_step = functools.lru_cache(lambda k: paper_step(self.design, run["l2"], k=k))
        self._compiled: set[Any] = set()

    def fit(self, algorithm: str, k: int, scale: float = 1.0) -> dict[str, Any]:
        """The outcome of one fit, with a multiple of the paper's step where the algorithm has one."""
        k_max = min(next_power_of_two(k), self.design.shape[1])
        settings = {"algorithm": algorithm, "k_max": k_max, "max_steps": limit(self.run, algorithm)}
        step = scale * self.paper_step(k) if algorithm in STEPPING else 0.0

        def call(k: int, step: Any) -> Any:
            return sparse_fit(self.design, self.y, self.run["l2"], jnp.int32(k), jnp.float32(step), **settings)

        # One feature and no step: as short as a call of the same program can be.
        (x, value, steps), seconds = self.timed(tuple(settings.values()), lambda: call(1, 0.0), lambda: call(k, step))
        return {"objective": float(value), "steps": int(steps), "time": seconds, "wrong": self.wrong(x)}

    def accelerated(self, l1: float) -> tuple[np.ndarray, dict[str, Any]]:
        """The L1 fit by accelerated proximal gradient steps, and its outcome."""

        def call(l1: float) -> Any:
            return accelerated(self.design, self.y, jnp.float32(l1), max_steps=self.run["l1_steps"])

        (x, steps), seconds = self.timed("l1", lambda: call(1e6), lambda: call(l1))
        return np.asarray(x), {"steps": int(steps), "time": seconds, "wrong": self.wrong(x)}

    def timed(self, key: Any, short: Callable[[], Any], call: Callable[[], Any]) -> tuple[Any, float]:
        """(result, processor seconds); the first call of a program is a short one, which compiles."""
        with one_blas_thread():
            if key not in self._compiled:
                jax.block_until_ready(short())
                self._compiled.add(key)
            start = time.process_time()
            result = jax.block_until_ready(call())
            return result, time.process_time() - start

    def wrong(self, x: Any) -> str:
        """For every test row 0 if its label is found, 2 if not, and 1, half an error, where the score is zero."""
        return digits(1 - np.sign(self.data.X_test @ np.asarray(x)) * self.data.y_test)


def errors(row: dict[str, Any]) -> np.ndarray:
    """The test rows' errors: 0, 1, or 1/2."""
    return np.array([int(c) for c in row["wrong"]]) / 2


def _sets(run: Run) -> dict[str, DataSet]:
    """The data sets that are there; FileNotFoundError if none is."""
    found = {name: data for name in run["data"] if (data := run.load(name)) is not None}
    if not found:
        raise FileNotFoundError(" ".join(run.notes))
    if run["max_rows"]:
        found = {name: d._replace(X=d.X[: run["max_rows"]], y=d.y[: run["max_rows"]]) for name, d in found.items()}
    return found


def _problems(run: Run, sets: dict[str, DataSet]) -> Callable[[str], Problem]:
    return functools.lru_cache(maxsize=1)(lambda name: Problem(run, sets[name]))


def scales(run: Run, algorithm: str) -> list[float]:
    """Multiples of the paper's step that are tried."""
    return run["scales"] if algorithm in STEPPING else [1.0]


def best(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The fit with the lowest objective; one that diverged is never it."""
    return min(rows, key=lambda row: np.inf if row["objective"] is None else row["objective"])


def fig4(run: Run) -> Any:
    """Figure 4: objective, test error and time of sparse logistic regression on real data."""
    sets = _sets(run)
    problem = _problems(run, sets)

    def real(data: str, k: int, algorithm: str, scale: float) -> dict[str, Any]:
        return problem(data).fit(algorithm, k, scale)

    methods = (*ALGORITHMS, "FBS scaled")
    cells = [
        {"data": name, "k": k, "algorithm": a, "scale": scale}
        for name, d in sets.items()
        for k in run["ks"]
        if k <= d.X.shape[1] // 2
        for a in methods
        for scale in scales(run, a)
    ]
    points: dict[tuple[str, int], dict[str, Any]] = {}  # (data, k) -> algorithm -> row
    tried: dict[Any, list[Any]] = {}
    for row in run.map(real, cells):
        tried.setdefault((row["data"], row["k"], row["algorithm"]), []).append(row)
    for (name, k, a), rows in tried.items():
        point = points.setdefault((name, k), {})
        point[a] = best(rows)
        if a in STEPPING:
            point[f"{a} 1/(2M)"] = next(row for row in rows if row["scale"] == 1)
    _claim_objectives(run, points)
    _claim_errors(run, points, sets)
    _claim_times(run, points, sets)

    figure, axes = panels(3, len(sets))
    labels = {"objective": "objective F", "error": "test error (%)", "time": "processor time (s)"}
    drawn = (*ALGORITHMS, "FBS scaled", *PRINTED)
    for column, name in zip(axes.T, sets, strict=True):
        ks = [k for d, k in points if d == name]
        for ax, (measure, label) in zip(column, labels.items(), strict=True):
            series = {a: [points[name, k][a] for k in ks] for a in drawn}
            values = {
                a: [100 * errors(row).mean() if measure == "error" else row[measure] for row in rows]
                for a, rows in series.items()
            }
            curves(ax, ks, values)
            if measure != "error":
                ax.set_yscale("log")
            ax.set_xlabel("number of features k")
            ax.set_ylabel(label)
        column[0].set_title(name, fontsize=10)
    legend_below(figure, axes[0, 0])
    return figure


def _claim_objectives(run: Run, points: dict[tuple[str, int], dict[str, Any]]) -> None:
    wins: dict[str, list[bool]] = {}
    for step, (ours, fast) in {"the best step": STEPPING, "the step 1/(2M)": PRINTED}.items():
        below = [
            [point[ours]["objective"] < point[a]["objective"] for a in (fast, *ALGORITHMS[2:])]
            for point in points.values()
        ]
        wins[f"{step}; below all others at once"] = [all(each) for each in below]
        wins[f"{step}; below one other, each a case"] = [one for each in below for one in each]
    run.claim(
        "a",
        "GraHTP's objective is below the others' in most cases of k and data",
        {words: most(each) for words, each in wins.items()},
        draws=len(points),
        numbers={words: {"share of cases": Share(sum(each), len(each))} for words, each in wins.items()},
        compared={a: [point[a]["objective"] for point in points.values()] for a in ALGORITHMS},
        objective_over_that_of_FBS={
            f"{name} k={k}": point["GraHTP"]["objective"] / point["FBS"]["objective"]
            for (name, k), point in points.items()
        },
        step_over_the_papers={f"{name} k={k}": point["GraHTP"]["scale"] for (name, k), point in points.items()},
    )


def _claim_errors(run: Run, points: dict[tuple[str, int], dict[str, Any]], sets: dict[str, Any]) -> None:
    def mean_over_k(name: str, algorithm: str) -> np.ndarray:
        return np.mean([errors(point[algorithm]) for (d, _), point in points.items() if d == name], axis=0)

    differences = {
        f"{name}: {ours} - {other}": Mean(mean_over_k(name, ours) - mean_over_k(name, other))
        for name in sets
        for ours in ("GraHTP", "GraSP")
        for other in ("FGraHTP", "FBS", "FoBa")
    }
    run.claim(
        "b",
        "GraHTP's and GraSP's test errors, mean over k, are lower than those of FGraHTP, FBS and FoBa in most of the "
        "comparisons",
        most([at_most(difference) for difference in differences.values()]),
        draws=min(len(sets[name].y_test) for name in sets),
        numbers=differences,
        compared={a: np.concatenate([mean_over_k(name, a) for name in sets]) for a in ALGORITHMS},
        differences={name: shown(difference) for name, difference in differences.items()},
    )


def _claim_times(run: Run, points: dict[tuple[str, int], dict[str, Any]], sets: dict[str, Any]) -> None:
    totals = {
        name: {
            a: float(np.sum([point[a]["time"] for (d, _), point in points.items() if d == name]))
            for a in (*ALGORITHMS, *PRINTED)
        }
        for name in sets
    }

    run.claim(
        "c",
        "FGraHTP takes the least time on every set, and GraHTP the next except on the gene set",
        None,
        draws=None,
        need=EQUAL_ACCURACY,
        seconds=totals,
    )


def fig5(run: Run) -> Any:
    """Figure 5: GraHTP and FGraHTP against L1 at equal sparsity, in test error and time."""
    sets = _sets(run)
    problem = _problems(run, sets)

    def comparison(data: str, strength: float) -> dict[str, Any]:
        here = problem(data)
        d = here.data
        # From here on the solution is not zero: ||grad l(0)||_inf, where every derivative of the loss is -y.
        l1 = strength * float(np.abs(d.X.T @ d.y).max()) / d.y.size
        x, lasso = here.accelerated(l1)
        k = int(np.count_nonzero(x))
        outcomes = {"L1": lasso, "liblinear": _liblinear(here, l1)}
        for a in STEPPING:
            rows = [{**here.fit(a, max(k, 1), scale), "scale": scale} for scale in scales(run, a)]
            outcomes[a] = best({**row, "objective": _finite(row["objective"])} for row in rows)
            outcomes[f"{a} 1/(2M)"] = rows[0]
        row = {f"{a} {part}": outcome[part] for a, outcome in outcomes.items() for part in ("time", "wrong")}
        return row | {"k": k, "l1": l1} | {f"{a} scale": outcomes[a]["scale"] for a in STEPPING}

    rows = run.map(comparison, [{"data": name, "strength": s} for name in sets for s in run["strengths"]])
    by_set = {name: [row for row in rows if row["data"] == name and row["k"] > 0] for name in sets}
    absent = [Undecided(f"the data of {name}") for name in run["data"] if name not in sets]
    drawn = (*STEPPING, "L1", "liblinear", *PRINTED)

    def mean_errors(name: str, algorithm: str) -> np.ndarray:
        return np.mean([errors({"wrong": row[f"{algorithm} wrong"]}) for row in by_set[name]], axis=0)

    better = {a: {name: Mean(mean_errors(name, a) - mean_errors(name, "L1")) for name in sets} for a in STEPPING}
    run.claim(
        "a",
        "GraHTP and FGraHTP have a lower test error than L1 on at least 3 of 4 sets, mean over the strengths",
        {a: enough([*map(at_most, better[a].values()), *absent], 3) for a in STEPPING},
        draws=min(len(sets[name].y_test) for name in sets),
        numbers=better,
        compared={a: np.concatenate([mean_errors(name, a) for name in sets]) for a in (*STEPPING, "L1")},
        difference={a: {name: shown(mean) for name, mean in better[a].items()} for a in STEPPING},
        error={name: {a: float(mean_errors(name, a).mean()) for a in drawn} for name in sets},
    )
    totals = {name: {a: float(np.sum([row[f"{a} time"] for row in by_set[name]])) for a in drawn} for name in sets}
    run.claim(
        "b",
        "FGraHTP takes the least time on every set, and GraHTP less than L1 on 3 of 4",
        None,
        draws=None,
        need=EQUAL_ACCURACY,
        seconds=totals,
    )
    figure, axes = panels(2, len(sets))
    for column, name in zip(axes.T, sets, strict=True):
        here = by_set[name]
        strengths = [row["strength"] for row in here]
        error = {a: [100 * errors({"wrong": row[f"{a} wrong"]}).mean() for row in here] for a in drawn}
        curves(column[0], strengths, error)
        curves(column[1], strengths, {a: [row[f"{a} time"] for row in here] for a in drawn})
        column[1].set_yscale("log")
        for ax, label in zip(column, ("test error (%)", "processor time (s)"), strict=True):
            ax.set_xscale("log")
            ax.set_xticks(run["strengths"], [f"{each:g}" for each in run["strengths"]])
            ax.tick_params("x", which="minor", bottom=False, labelbottom=False)
            ax.set_xlabel("strength of L1 / the least that gives zero")
            ax.set_ylabel(label)
        column[0].set_title(name, fontsize=10)
    legend_below(figure, axes[0, 0])
    return figure


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _liblinear(here: Problem, l1: float) -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression

    X = 2 * here.data.X  # liblinear minimises ||w||_1 + C sum_i log(1 + exp(-y eta)); the paper's loss has 2 y eta
    if issparse(X):  # liblinear takes no other indices
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    peer = LogisticRegression(
        l1_ratio=1.0, solver="liblinear", C=1 / (X.shape[0] * l1), fit_intercept=False, tol=1e-4, random_state=0
    )
    start = time.process_time()
    peer.fit(X, here.data.y)
    return {"time": time.process_time() - start, "wrong": here.wrong(peer.coef_[0])}
