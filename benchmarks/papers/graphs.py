"""The experiments of [GraHTP] on precision matrices: a simulation, and discriminant analysis of gene expression."""

import functools
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import matthews_corrcoef

from sparsehtp._solve import solve
from sparsehtp._threads import one_blas_thread
from sparsehtp.datasets import make_precision
from sparsehtp.estimators import SparseLDA
from sparsehtp.grids.path import solve_path
from sparsehtp.objectives import Precision
from sparsehtp.solvers import HTP, FoBa, ForwardSelection, GraSP
from sparsehtp.thresholds import OffDiagonal

from .figures import STYLE, curves, legend_below, panels
from .run import Run
from .verdicts import Mean, Ratio, at_least, every, most, shown

SOLVERS = {"GraHTP": HTP(), "GraSP": GraSP(), "FBS": ForwardSelection("gradient"), "FoBa": FoBa()}
GREEDY = tuple(SOLVERS)[1:]
ALGORITHMS = (*SOLVERS, "GLasso")
MEASURES = ("specificity", "sensitivity", "mcc", "time")


def fig6(run: Run) -> Any:
    """Figure 6: error, support recovery and time of precision matrices against the number of variables."""

    @functools.lru_cache(maxsize=1)
    def samples(p: int, copy: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, truth = make_precision(2 * run["n"], p, probability=run["probability"], seed=run.rng("graph", p, copy))
        return _covariance(X[: run["n"]]), _covariance(X[run["n"] :]), truth

    def estimation(p: int, copy: int, algorithm: str, refits: str) -> dict[str, Any]:
        S, S_tune, truth = samples(p, copy)
        if algorithm == "GLasso":
            precision, seconds, k = _lasso(run, S, S_tune)
        else:
            precision, seconds, k = _graph(SOLVERS[algorithm], refits, run, S, S_tune)
        upper = np.triu_indices(p, 1)
        found, true = precision[upper] != 0, truth[upper] != 0
        return {
            "f_score": 2 * np.sum(found & true) / max(found.sum() + true.sum(), 1),
            "frobenius": np.linalg.norm(precision - truth),
            "time": seconds,
            "k": k,
        }

    sizes = list(zip(run["ps"], run["copies"], strict=True))
    cells = [
        {"p": p, "copy": c, "algorithm": a, "refits": "newton"}
        for p, copies in sizes
        for c in range(copies)
        for a in ALGORITHMS
    ]
    # The paper's way to refit, on a few copies of the smallest graphs: it takes ten times as long.
    cells += [
        {"p": run["ps"][0], "copy": c, "algorithm": a, "refits": "admm"}
        for c in range(run["admm_copies"])
        for a in SOLVERS
    ]
    with jax.enable_x64(True):
        rows = run.map(estimation, cells)

    def draws(measure: str, p: int, a: str, refits: str = "newton") -> np.ndarray:
        return np.array([r[measure] for r in rows if (r["p"], r["algorithm"], r["refits"]) == (p, a, refits)])

    def spread(measure: str, p: int, a: str) -> np.ndarray:
        """Squared deviations from the mean, whose own mean is the variance."""
        values = draws(measure, p, a)
        return (values - values.mean()) ** 2

    def longer(p: int, a: str, b: str) -> Ratio:
        """How much longer a takes than b."""
        return Ratio(np.log(draws("time", p, a) / draws("time", p, b)))

    def table(measure: str, number: Callable[[np.ndarray], float] = np.mean) -> dict[str, Any]:
        return {f"p={p}": {a: float(number(draws(measure, p, a))) for a in ALGORITHMS} for p in run["ps"]}

    quality = (("f_score", 1), ("frobenius", -1))
    ahead = {
        f"{measure} p={p} over {a}": Mean(sign * (draws(measure, p, "GraHTP") - draws(measure, p, a)))
        for measure, sign in quality
        for p in run["ps"]
        for a in (*GREEDY, "GLasso")
    }
    run.claim(
        "a",
        "GraHTP's F-score is higher and its Frobenius loss lower than another method's in most comparisons",
        most([at_least(lead) for lead in ahead.values()]),
        draws=min(run["copies"]),
        numbers=ahead,
        compared={a: [draws(m, p, a).mean() for m, _ in quality for p in run["ps"]] for a in ALGORITHMS},
        f_score=table("f_score"),
        frobenius=table("frobenius"),
        leads={name: shown(lead) for name, lead in ahead.items()},
    )
    wider = {
        f"{m}, p={p}": Mean(spread(m, p, "GraHTP") - spread(m, p, "GLasso")) for m, _ in quality for p in run["ps"]
    }
    run.claim(
        "b",
        "GraHTP's variance is larger than the graphical lasso's, in F-score and Frobenius loss, at each p",
        every(wider.values()),
        draws=min(run["copies"]),
        numbers=wider,
        deviation_of_f_score=table("f_score", np.std),
        deviation_of_frobenius=table("frobenius", np.std),
    )
    times = {f"{a}, p={p}": longer(p, a, "GraHTP") for p in run["ps"] for a in GREEDY}
    run.claim(
        "d",
        "GraHTP takes less time than each other greedy method, at each p",
        every(times.values()),
        draws=min(run["copies"]),
        numbers=times,
        seconds=table("time"),
        times_that_of_GLasso={f"p={p}": {a: shown(longer(p, a, "GLasso")) for a in SOLVERS} for p in run["ps"]},
        seconds_with_admm={a: np.mean(draws("time", run["ps"][0], a, "admm")) for a in SOLVERS if run["admm_copies"]},
    )
    labels = {"frobenius": "Frobenius loss", "f_score": "F-score", "time": "processor time (s)"}
    figure, axes = panels(1, 3)
    for ax, (measure, label) in zip(axes[0], labels.items(), strict=True):
        curves(ax, run["ps"], {a: [draws(measure, p, a).mean() for p in run["ps"]] for a in ALGORITHMS})
        for a in ALGORITHMS:
            values = [draws(measure, p, a) for p in run["ps"]]
            ax.errorbar(
                run["ps"],
                [v.mean() for v in values],
                [v.std(ddof=1) / np.sqrt(v.size) for v in values],
                fmt="none",
                ecolor=STYLE[a][0],
                capsize=3,
            )
        ax.set_xlabel("variables p")
        ax.set_ylabel(label)
    axes[0, 2].set_yscale("log")
    legend_below(figure, axes[0, 0])
    return figure


def _covariance(X: np.ndarray) -> np.ndarray:
    centred = X - X.mean(0)
    return centred.T @ centred / len(X)


def _loss(precision: np.ndarray, S: np.ndarray) -> float:
    return np.sum(S * precision) - np.linalg.slogdet(precision)[1]


def _graph(solver: Any, refits: str, run: Run, S: np.ndarray, S_tune: np.ndarray) -> tuple[np.ndarray, float, int]:
    """(matrix, processor seconds, k) with k of the least loss on the second sample."""
    p = len(S)
    ks = sorted({round(share * p) for share in run["shares"]})
    ks = [k for k in ks if k <= p * (p - 1) // 2]
    objective = Precision(jnp.asarray(S), run["n"], bounds="lu", debias=refits)
    path = solve_path(objective, ks=ks, solver=solver)
    best = int(np.argmin([_loss(matrix, S_tune) for matrix in path.x]))

    def fit(k: int) -> Any:
        threshold = OffDiagonal(k, k_max=max(ks))
        return jax.block_until_ready(solve(objective, threshold, solver, record=None, throw=False).x)

    fit(0)  # compiles
    start = time.process_time()
    matrix = fit(int(path.ks[best]))
    return np.asarray(matrix), time.process_time() - start, int(path.ks[best])


def _lasso(run: Run, S: np.ndarray, S_tune: np.ndarray) -> tuple[np.ndarray, float, int]:
    """The same for the graphical lasso."""
    from sklearn.covariance import graphical_lasso

    best: Any = None
    for alpha in run["alphas"]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.process_time()
            try:
                with one_blas_thread():
                    precision = graphical_lasso(S, alpha)[1]
            except FloatingPointError:  # too little penalty for it
                continue
            seconds = time.process_time() - start
        loss = _loss(precision, S_tune)
        if best is None or loss < best[0]:
            best = loss, precision, seconds
    _, precision, seconds = best
    return precision, seconds, int(np.count_nonzero(np.triu(precision, 1)))


def table4(run: Run) -> Any:
    """Table 4: discriminant analysis of gene expression with sparse precision matrices."""
    data = run.load(run["data"])
    if data is None:
        raise FileNotFoundError(" ".join(run.notes))
    X, y = data.X.astype(float), data.y
    compiled: set[tuple[str, int | None]] = set()

    def split(copy: int, algorithm: str) -> dict[str, Any]:
        rng = run.rng("split", copy)
        test = np.concatenate([rng.choice(np.flatnonzero(y == c), run[n], replace=False) for c, n in _TEST.items()])
        train = np.setdiff1d(np.arange(y.size), test)
        genes = _most_significant(X[train], y[train], run["genes"])
        mean, deviation = X[np.ix_(train, genes)].mean(0), X[np.ix_(train, genes)].std(0)
        Z = (X[:, genes] - mean) / deviation

        def fit() -> tuple[Any, float]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                start = time.process_time()
                model = (_lasso_lda if algorithm == "GLasso" else _lda)(algorithm, Z[train], y[train], run)
                return model, time.process_time() - start

        model, seconds = fit()
        program = algorithm, getattr(model, "k_", None)
        if program not in compiled:  # that fit paid for compiling
            compiled.add(program)
            model, seconds = fit()
        found = model.predict(Z[test])
        positive = y[test] == 1
        return {
            "specificity": np.mean(found[~positive] == -1),
            "sensitivity": np.mean(found[positive] == 1),
            "mcc": matthews_corrcoef(y[test], found),
            "time": seconds,
            "k": getattr(model, "k_", -1),
        }

    rows = run.map(split, [{"copy": c, "algorithm": a} for c in range(run["copies"]) for a in ALGORITHMS])
    values = {a: {m: np.array([row[m] for row in rows if row["algorithm"] == a]) for m in MEASURES} for a in ALGORITHMS}
    ahead = {a: Mean(values["GraHTP"]["mcc"] - values[a]["mcc"]) for a in (*GREEDY, "GLasso")}
    run.claim(
        "a",
        "GraHTP has the highest Matthews correlation, as in Table 4",
        every(ahead.values()),
        draws=run["copies"],
        numbers=ahead,
        compared={a: values[a]["mcc"] for a in ALGORITHMS},
    )
    longer = {a: Ratio(np.log(values[a]["time"] / values["GraHTP"]["time"])) for a in GREEDY}
    run.claim(
        "b",
        "GraHTP takes the least time of the L0 methods",
        every(longer.values()),
        draws=run["copies"],
        numbers=longer,
    )
    numbers = {
        a: {m: f"{values[a][m].mean():.3f} ({values[a][m].std(ddof=1):.3f})" for m in MEASURES} for a in ALGORITHMS
    }
    lasso = {f"specificity over {a}": Mean(values["GLasso"]["specificity"] - values[a]["specificity"]) for a in SOLVERS}
    lasso |= {
        f"sensitivity under {a}": Mean(values[a]["sensitivity"] - values["GLasso"]["sensitivity"]) for a in SOLVERS
    }
    run.claim(
        "c",
        "the graphical lasso has the highest specificity and the lowest sensitivity",
        every(lasso.values()),
        draws=run["copies"],
        numbers=lasso,
        mean_and_standard_deviation=numbers,
    )
    figure, axes = panels(1, 1, width=8, height=2.4)
    axes[0, 0].axis("off")
    axes[0, 0].table(
        [[numbers[a][m] for m in MEASURES] for a in ALGORITHMS],
        rowLabels=ALGORITHMS,
        colLabels=("specificity", "sensitivity", "Matthews correlation", "processor time (s)"),
        loc="center",
        cellLoc="center",
    ).scale(1, 1.6)
    axes[0, 0].set_title(f"mean (standard deviation) of {run['copies']} random splits", fontsize=10)
    return figure


_TEST = {1: "test_positive", -1: "test_negative"}


def _most_significant(X: np.ndarray, y: np.ndarray, number: int) -> np.ndarray:
    """Columns with the largest two-sample t statistic."""
    a, b = X[y == 1], X[y == -1]
    spread = np.sqrt(a.var(0, ddof=1) / len(a) + b.var(0, ddof=1) / len(b))
    t = np.abs(a.mean(0) - b.mean(0)) / np.maximum(spread, np.finfo(float).tiny)
    return np.sort(np.argsort(-t, kind="stable")[:number])


def _lda(algorithm: str, X: np.ndarray, y: np.ndarray, run: Run) -> Any:
    solver, folds, seed = SOLVERS[algorithm], run["folds"], run["seed"]
    model = SparseLDA(solver=solver, cv=folds, random_state=seed, standardize=False, shrinkage=0.0, bounds="lu")
    return model.fit(X, y)


class _Discriminant:
    """The rule of [GraHTP] section 6.3.2 for a given precision matrix."""

    def __init__(self, means: np.ndarray, shares: np.ndarray, precision: np.ndarray) -> None:
        self.coef = means @ precision
        self.intercept = np.log(shares) - np.sum(self.coef * means, axis=1) / 2

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.array([-1, 1])[np.argmax(X @ self.coef.T + self.intercept, axis=1)]


def _lasso_lda(_: str, X: np.ndarray, y: np.ndarray, run: Run) -> _Discriminant:
    from sklearn.covariance import GraphicalLassoCV

    classes = (-1, 1)
    means = np.stack([X[y == c].mean(0) for c in classes])
    within = X - means[(y == 1).astype(int)]
    precision = GraphicalLassoCV(cv=run["folds"], assume_centered=True).fit(within).precision_
    return _Discriminant(means, np.array([np.mean(y == c) for c in classes]), precision)
