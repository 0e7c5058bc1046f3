"""The experiments of [GraHTP] on precision matrices: a simulation, and discriminant analysis of gene expression."""

import functools
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import matthews_corrcoef

from .._solve import solve
from ..datasets import make_precision
from ..estimators import SparseLDA
from ..grids.path import solve_path
from ..objectives import Precision
from ..solvers import HTP, FoBa, ForwardSelection, GraSP
from ..thresholds import OffDiagonal
from .figures import curves, legend_below, panels
from .run import Run

SOLVERS = {"GraHTP": HTP(), "GraSP": GraSP(), "FBS": ForwardSelection(), "FoBa": FoBa()}
ALGORITHMS = (*SOLVERS, "GLasso")


def fig6(run: Run) -> Any:
    """Figure 6: error, support recovery and time of precision matrices against the number of variables."""

    @functools.lru_cache(maxsize=1)
    def samples(p: int, copy: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, truth = make_precision(2 * run["n"], p, probability=run["probability"], seed=run.rng("graph", p, copy))
        return _covariance(X[: run["n"]]), _covariance(X[run["n"] :]), truth

    def estimation(p: int, copy: int, algorithm: str) -> dict[str, Any]:
        S, S_tune, truth = samples(p, copy)
        estimate = _lasso if algorithm == "GLasso" else functools.partial(_graph, SOLVERS[algorithm])
        precision, seconds, k = estimate(run, S, S_tune)
        upper = np.triu_indices(p, 1)
        found, true = precision[upper] != 0, truth[upper] != 0
        return {
            "f_score": 2 * np.sum(found & true) / max(found.sum() + true.sum(), 1),
            "frobenius": np.linalg.norm(precision - truth),
            "time": seconds,
            "k": k,
        }

    cells = [{"p": p, "copy": c, "algorithm": a} for p in run["ps"] for c in range(run["copies"]) for a in ALGORITHMS]
    with jax.enable_x64(True):
        rows = run.map(estimation, cells)
    means, errors = {}, {}
    for measure in ("f_score", "frobenius", "time"):
        for p in run["ps"]:
            for a in ALGORITHMS:
                values = np.array([row[measure] for row in rows if row["p"] == p and row["algorithm"] == a])
                means[measure, p, a] = values.mean()
                errors[measure, p, a] = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else 0.0

    def behind(measure: str, sign: int) -> float:
        """By how many standard errors GraHTP is behind the best, at the worst p."""
        worst = 0.0
        for p in run["ps"]:
            best = max(sign * means[measure, p, a] for a in ALGORITHMS)
            lag = best - sign * means[measure, p, "GraHTP"]
            worst = max(worst, lag / max(errors[measure, p, "GraHTP"], 1e-12))
        return worst

    lags = {"f_score": behind("f_score", 1), "frobenius": behind("frobenius", -1)}
    table = {
        measure: {f"p={p}": {a: round(float(means[measure, p, a]), 4) for a in ALGORITHMS} for p in run["ps"]}
        for measure in ("f_score", "frobenius", "time")
    }
    run.claim(
        "a",
        "GraHTP's F-score and Frobenius loss are the best or within one standard error of it at every p",
        max(lags.values()) <= 1,
        compared={a: [means[m, p, a] for m in ("f_score", "frobenius") for p in run["ps"]] for a in ALGORITHMS},
        standard_errors_behind=lags,
        f_score=table["f_score"],
        frobenius=table["frobenius"],
    )
    greedy = [a for a in SOLVERS if a != "GraHTP"]
    lasso = all(means["time", p, "GLasso"] < means["time", p, "GraHTP"] for p in run["ps"])
    first = all(means["time", p, "GraHTP"] < means["time", p, a] for p in run["ps"] for a in greedy)
    run.claim(
        "b",
        "the graphical lasso is faster than GraHTP, and GraHTP than the other greedy methods, at every p",
        lasso and first,
        lasso_is_faster=lasso,
        GraHTP_is_the_fastest_greedy_method=first,
        time=table["time"],
    )
    labels = {"frobenius": "Frobenius loss", "f_score": "F-score", "time": "time (s)"}
    figure, axes = panels(1, 3)
    for ax, (measure, label) in zip(axes[0], labels.items(), strict=True):
        curves(ax, run["ps"], {a: [means[measure, p, a] for p in run["ps"]] for a in ALGORITHMS})
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


def _graph(solver: Any, run: Run, S: np.ndarray, S_tune: np.ndarray) -> tuple[np.ndarray, float, int]:
    """(matrix, seconds of a second fit, k) with k of the least loss on the second sample."""
    p = len(S)
    ks = sorted({round(share * p) for share in run["shares"]})
    ks = [k for k in ks if k <= p * (p - 1) // 2]
    objective = Precision(jnp.asarray(S), run["n"])
    path = solve_path(objective, ks, solver=solver)
    best = int(np.argmin([_loss(matrix, S_tune) for matrix in path.x]))
    threshold = OffDiagonal(int(path.ks[best]), k_max=max(ks))

    def fit() -> Any:
        return jax.block_until_ready(solve(objective, threshold, solver, record=None, throw=False).x)

    matrix = np.asarray(fit())  # compiles
    start = time.perf_counter()
    fit()
    return matrix, time.perf_counter() - start, int(path.ks[best])


def _lasso(run: Run, S: np.ndarray, S_tune: np.ndarray) -> tuple[np.ndarray, float, int]:
    """The same for the graphical lasso."""
    from sklearn.covariance import graphical_lasso

    best: Any = None
    for alpha in run["alphas"]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.perf_counter()
            try:
                precision = graphical_lasso(S, alpha)[1]
            except FloatingPointError:  # too little penalty for it
                continue
            seconds = time.perf_counter() - start
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

    def split(copy: int, algorithm: str) -> dict[str, Any]:
        rng = run.rng("split", copy)
        test = np.concatenate([rng.choice(np.flatnonzero(y == c), run[n], replace=False) for c, n in _TEST.items()])
        train = np.setdiff1d(np.arange(y.size), test)
        genes = _most_significant(X[train], y[train], run["genes"])
        mean, deviation = X[np.ix_(train, genes)].mean(0), X[np.ix_(train, genes)].std(0)
        Z = (X[:, genes] - mean) / deviation
        start = time.perf_counter()
        model: Any = _lasso_lda(Z[train], y[train], run) if algorithm == "GLasso" else _lda(algorithm, run)
        if algorithm != "GLasso":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = model.fit(Z[train], y[train])
        seconds = time.perf_counter() - start
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
    measures = ("specificity", "sensitivity", "mcc", "time")
    values = {a: {m: np.array([row[m] for row in rows if row["algorithm"] == a]) for m in measures} for a in ALGORITHMS}
    means = {a: {m: float(values[a][m].mean()) for m in measures} for a in ALGORITHMS}
    # The first fit of an algorithm compiles.
    times = {a: float(np.median(values[a]["time"])) for a in ALGORITHMS}
    error = values["GraHTP"]["mcc"].std(ddof=1) / np.sqrt(run["copies"])
    lag = max(means[a]["mcc"] for a in ALGORITHMS) - means["GraHTP"]["mcc"]
    run.claim(
        "a",
        "GraHTP's MCC is the highest or within one standard error of it",
        lag <= error,
        compared={a: values[a]["mcc"] for a in ALGORITHMS},
        mcc={a: means[a]["mcc"] for a in ALGORITHMS},
        specificity={a: means[a]["specificity"] for a in ALGORITHMS},
        sensitivity={a: means[a]["sensitivity"] for a in ALGORITHMS},
        standard_error=error,
    )
    fastest = min(SOLVERS, key=times.__getitem__)
    run.claim("b", "GraHTP is the fastest L0 method", fastest == "GraHTP", median_seconds=times)
    figure, axes = panels(1, 2, width=4)
    for place, a in enumerate(ALGORITHMS):
        axes[0, 0].boxplot(values[a]["mcc"], positions=[place], widths=0.6, showmeans=True)
        axes[0, 1].bar(place, times[a], color="#0072B2")
    for ax, label in zip(axes[0], ("Matthews correlation", "median time (s)"), strict=True):
        ax.set_xticks(range(len(ALGORITHMS)), ALGORITHMS)
        ax.set_ylabel(label)
    return figure


_TEST = {1: "test_positive", -1: "test_negative"}


def _most_significant(X: np.ndarray, y: np.ndarray, number: int) -> np.ndarray:
    """Columns with the largest two-sample t statistic."""
    a, b = X[y == 1], X[y == -1]
    spread = np.sqrt(a.var(0, ddof=1) / len(a) + b.var(0, ddof=1) / len(b))
    t = np.abs(a.mean(0) - b.mean(0)) / np.maximum(spread, np.finfo(float).tiny)
    return np.sort(np.argsort(-t, kind="stable")[:number])


def _lda(algorithm: str, run: Run) -> Any:
    return SparseLDA(solver=SOLVERS[algorithm], cv=run["folds"], random_state=run["seed"])


class _Discriminant:
    """The rule of [GraHTP] section 6.3.2 for a given precision matrix."""

    def __init__(self, means: np.ndarray, shares: np.ndarray, precision: np.ndarray) -> None:
        self.coef = means @ precision
        self.intercept = np.log(shares) - np.sum(self.coef * means, axis=1) / 2

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.array([-1, 1])[np.argmax(X @ self.coef.T + self.intercept, axis=1)]


def _lasso_lda(X: np.ndarray, y: np.ndarray, run: Run) -> _Discriminant:
    from sklearn.covariance import GraphicalLassoCV

    classes = (-1, 1)
    means = np.stack([X[y == c].mean(0) for c in classes])
    within = X - means[(y == 1).astype(int)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        precision = GraphicalLassoCV(cv=run["folds"], assume_centered=True).fit(within).precision_
    return _Discriminant(means, np.array([np.mean(y == c) for c in classes]), precision)
