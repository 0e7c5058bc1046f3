"""The text experiments of [DIHT]: hinge losses, dual against primal hard thresholding in time, accuracy and epochs."""

import functools
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

from sparsehtp._programs import program
from sparsehtp._threads import one_blas_thread
from sparsehtp.losses import Hinge, SmoothedHinge
from sparsehtp.objectives import LinearModel
from sparsehtp.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT
from sparsehtp.steps import ConstantStep
from sparsehtp.steps.base import AbstractStep, At
from sparsehtp.thresholds import Sparsity

from .figures import STYLE, interval, panels, short_log
from .hsg import climb
from .run import Run
from .verdicts import Ratio, every, shown

DUALS = ("DIHT", "SDIHT")
BATCH = 10
POINTS = 60  # of a stored curve
ROUNDING = 1e-7  # a gap below it, in single precision for F of about one, is zero and may come out negative
# Powers of two where the search of a step begins; smooth or not.
FIRST = {
    True: {"IHT": 6, "HTP": 9, "SVRGHT": 4, "DIHT": -5, "SDIHT": -3},
    False: {"IHT": 5, "SVRGHT": 6, "DIHT": -2, "SDIHT": 1},
}


class Falling(AbstractStep):
    """c / sqrt(t + 1), for losses that are not smooth."""

    c: Any
    searches = False

    def init(self, objective: Any) -> Float[Array, ""]:
        return jnp.asarray(self.c, objective.dtype)

    def propose(self, objective: Any, at: At) -> Float[Array, ""]:
        return jnp.asarray(self.c / jnp.sqrt(at.t + 1.0), at.size.dtype)


def _solver(algorithm: str, smooth: bool, n: int, power: int) -> Any:
    scale = float(2.0**power)
    step = ConstantStep(scale) if smooth else Falling(scale)
    inner = n // BATCH  # of SVR-GHT: one pass between two full gradients
    return {
        "IHT": IHT(step),
        "HTP": HTP(step),
        "SVRGHT": SVRGHT(step, inner, BATCH),
        "DIHT": DIHT("theorem15", scale),
        "SDIHT": SDIHT(BATCH, "theorem15", scale, polish=False, sampling="paper"),
    }[algorithm]


@program()
def _start(objective: Any, threshold: Any, solver: Any, key: Array) -> Any:
    return solver.init(objective, threshold, objective.origin(), key)


@program()
def _step(objective: Any, threshold: Any, solver: Any, state: Any, t: Any) -> tuple[Any, tuple[Array, ...]]:
    state, info = solver.step(objective, threshold, state, t)
    return state, (info.value, info.gap, info.ifo)


class Split(NamedTuple):
    """Training and test rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


class Trace(NamedTuple):
    """What a method has after each of its steps: processor seconds, epochs, loss, least gap, test error."""

    seconds: np.ndarray
    epochs: np.ndarray
    value: np.ndarray
    gap: np.ndarray
    error: np.ndarray


def _splits(run: Run) -> Callable[[str, int], Split]:
    """(data set, copy) -> random training and test rows of the words that are most frequent in the former."""
    texts = {}
    for name in run["data"]:
        data = run.load(name)
        if data is None:
            continue
        X, y = sparse.vstack([data.X, data.X_test]).tocsr(), np.concatenate([data.y, data.y_test])
        texts[name] = X, np.where(np.isin(y, run["positive"]), 1.0, -1.0)
    if not texts:
        raise FileNotFoundError(" ".join(run.notes))

    @functools.lru_cache(maxsize=1)
    def split(name: str, copy: int) -> Split:
        X, y = texts[name]
        rows = run.rng("rows", name, copy).permutation(X.shape[0])
        size = run["rows"][name]
        train, test = rows[:size], rows[size : size + run["test_rows"]]
        words = np.sort(np.argsort(-(X[train] > 0).sum(0), kind="stable")[: run["words"][name]])
        X = X[:, words]
        X = normalize(TfidfTransformer().fit(X[train]).transform(X)).astype(np.float32)
        return Split(X[train].toarray(), y[train].astype(np.float32), X[test].toarray(), y[test])

    return split


class Text:
    """The problem of a data set, k and lam, on the rows of a copy."""

    def __init__(self, run: Run, split: Split, data: str, k: int, l0: float, smooth: bool) -> None:
        self.smooth, self.split, self.budget, self.k = smooth, split, run["seconds"], k
        self.lam = l0 / np.sqrt(run["paper_rows"][data])
        loss = SmoothedHinge(0.25) if smooth else Hinge()
        self.model = LinearModel(jnp.asarray(split.X), jnp.asarray(split.y), loss, l2=np.float32(self.lam))
        self.start = 0.875 if smooth else 1.0  # the loss at zero

    def one_threshold(self) -> float:
        """The loss of H_k(X'y / (lam N)), at which both duals arrive in one step where lam is large."""
        X, y = self.split.X, self.split.y
        x = y @ X / (len(y) * self.lam)
        x[np.argsort(-np.abs(x))[self.k :]] = 0
        return float(self.model.value(jnp.asarray(x)))

    def trace(self, algorithm: str, power: int) -> Trace:
        """A run of as many processor seconds as are granted, without compiling and the constants of the data."""
        threshold, _ = Sparsity(self.k).bind(self.model).counted()
        n = len(self.split.y)
        inputs = jax.tree.map(jnp.asarray, (self.model, threshold, _solver(algorithm, self.smooth, n, power)))
        rows: list[tuple[float, ...]] = []
        with one_blas_thread():
            state = _start(*inputs, jax.random.key(0))
            jax.block_until_ready(_step(*inputs, state, 0))
            spent = epochs = 0.0
            while spent < self.budget:
                start = time.process_time()
                state, info = jax.block_until_ready(_step(*inputs, state, len(rows)))
                spent += time.process_time() - start
                value, gap, ifo = map(float, info)
                if not np.isfinite(value):
                    break
                epochs += ifo / n
                wrong = np.sign(self.split.X_test @ np.asarray(state.x)) != self.split.y_test
                rows.append((spent, epochs, value, gap, np.mean(wrong)))
        table = np.array(rows, float).reshape(-1, 5).T
        seconds, spent_epochs, values, gaps, errors = table
        gaps = np.maximum(np.minimum.accumulate(gaps), ROUNDING)
        return Trace(seconds, spent_epochs, values, gaps, errors)

    def mean_loss(self, trace: Trace) -> float:
        """The mean over the time granted of the least loss so far; infinite if the method diverged."""
        if not trace.value.size or trace.seconds[-1] < self.budget:
            return np.inf
        steps = np.diff(np.minimum(np.append(0, trace.seconds), self.budget), append=self.budget)
        return float(steps @ np.minimum.accumulate(np.append(self.start, trace.value)) / self.budget)


def _cost(trace: Trace, of: str, level: float, per: str = "seconds") -> float:
    """What a run has cost when its `of` is first at most `level`; infinite if it never is."""
    there = getattr(trace, of) <= level
    return float(getattr(trace, per)[np.argmax(there)]) if there.any() else np.inf


def _lead(first: Trace, second: Trace, of: str, per: str = "seconds") -> float:
    """The logarithm of how many times sooner the first run is at the lowest `of` that both reach."""
    level = max(getattr(trace, of).min(initial=np.inf) for trace in (first, second))
    return float(np.log(_cost(second, of, level, per) / _cost(first, of, level, per)))


def _pairs(smooth: bool) -> list[tuple[str, str]]:
    """(dual method, rival), each with each primal method, and SDIHT with DIHT."""
    primal = [a for a in FIRST[smooth] if a not in DUALS]
    return [*itertools.product(DUALS, primal), ("SDIHT", "DIHT")]


def _compare(run: Run, smooth: bool) -> list[dict[str, Any]]:
    """For every problem and copy what each method needs; the step is searched on a copy of its own."""
    split, algorithms = _splits(run), tuple(FIRST[smooth])

    def tune(data: str, k: int, l0: float, algorithm: str) -> dict[str, Any]:
        text = Text(run, split(data, -1), data, k, l0, smooth)
        tried: dict[int, float] = {}

        def mean_loss(power: int) -> float:
            if power not in tried:
                tried[power] = text.mean_loss(text.trace(algorithm, power))
            return tried[power]

        for away in (0, 4, -4):  # from one place alone a search may end in a poor local minimum
            climb(mean_loss, FIRST[smooth][algorithm] + away)
        return {"power": min(tried, key=lambda power: tried[power]), "tried": sorted(tried)}

    def compare(data: str, k: int, l0: float, copy: int) -> dict[str, Any]:
        text = Text(run, split(data, copy), data, k, l0, smooth)
        traces = {a: text.trace(a, powers[data, k, l0, a]) for a in algorithms}
        best = min(trace.value.min(initial=text.start) for trace in traces.values())
        error = max(trace.error.min(initial=np.inf) for trace in traces.values())
        found = {
            "lowest": {a: trace.value.min(initial=text.start) for a, trace in traces.items()},
            "to_error": {a: _cost(t, "error", error) for a, t in traces.items()},  # to the lowest that all reach
            "left_by_one_threshold": (text.one_threshold() - best) / (text.start - best),
        }
        for of in ("value", "error"):
            found[of] = {f"{a} over {b}": _lead(traces[a], traces[b], of) for a, b in _pairs(smooth)}
        found["gap"] = {"SDIHT over DIHT": _lead(traces["SDIHT"], traces["DIHT"], "gap", "epochs")}
        return found | ({"curves": {a: _thinned(trace) for a, trace in traces.items()}} if copy == 0 else {})

    problems = [{"data": d, "k": k, "l0": l0} for d in run["data"] for k in run["ks"][d] for l0 in run["l0s"]]
    tuned = run.map(tune, [{**problem, "algorithm": a} for problem in problems for a in algorithms])
    powers = {(r["data"], r["k"], r["l0"], r["algorithm"]): r["power"] for r in tuned}
    return run.map(compare, [{**p, "copy": copy} for copy in range(run["copies"]) for p in problems])


def _thinned(trace: Trace) -> list[list[float]]:
    """Rows of a trace, evenly spread over the logarithm of its steps."""
    steps = len(trace.value)
    keep = np.unique(np.geomspace(1, steps, POINTS).round().astype(int)) - 1
    return [[float(f"{number:.4g}") for number in column[keep]] for column in trace]


def _leads(rows: list[dict[str, Any]], of: str, *pairs: tuple[str, str]) -> dict[str, Ratio]:
    """Problem and pair -> how many times sooner the first is at the lowest loss, test error or gap that both reach."""
    return {
        f"{name} {a} over {b}": Ratio([row[of][f"{a} over {b}"] for row in copies])
        for name, copies in _problems(rows).items()
        for a, b in pairs
    }


def _figure(run: Run, smooth: bool) -> Any:
    rows = _compare(run, smooth)
    middle = [row for row in rows if row["l0"] == 1.0]
    largest = [row for row in rows if row["k"] == max(run["ks"][row["data"]])]
    duals = ("SDIHT", "DIHT")
    over_primal = [pair for pair in _pairs(smooth) if pair != duals]

    def claim(
        letter: str, text: str, at: list[dict[str, Any]], leads: dict[str, Ratio], of: str = "times sooner"
    ) -> None:
        left = {name: np.mean([r["left_by_one_threshold"] for r in own]) for name, own in _problems(at).items()}
        run.claim(
            letter,
            text,
            every(leads.values()),
            draws=run["copies"],
            numbers={f"{of}, {name}": lead for name, lead in leads.items()},
            solved=[name for name, share in left.items() if share <= run["solved"]],
            leads={name: shown(lead) for name, lead in leads.items()},
            lowest_loss_of_all=Counter(min(row["lowest"], key=row["lowest"].__getitem__) for row in at),
        )

    loss, error = "to the lowest loss that both reach, at lam0 = 1", "to the lowest test error that both reach"
    before = "DIHT and SDIHT come {} before each primal method"
    to_loss, to_error = _leads(middle, "value", *over_primal), _leads(rows, "error", *over_primal)
    if smooth:
        lower = {
            f"{name} {a}": Ratio(
                [float(np.log(min(row["lowest"][b] for _, b in over_primal) / row["lowest"][a])) for row in copies]
            )
            for name, copies in _problems(middle).items()
            for a in DUALS
        }
        text = "DIHT's and SDIHT's lowest loss in the time granted, at lam0 = 1, is below that of all primal methods"
        claim("a", f"{text}, for each k", middle, lower, "times lower")
        claim("b", f"SDIHT comes {loss}, before DIHT, for each k", middle, _leads(middle, "value", duals))
        claim("c", f"{before.format(error)}, for each lam0 and k", rows, to_error)
        claim("d", f"SDIHT comes {error}, before DIHT, for each lam0 and k", rows, _leads(rows, "error", duals))
    else:
        both = {f"loss, {at}": x for at, x in to_loss.items()} | {f"error, {at}": x for at, x in to_error.items()}
        claim("a", before.format(f"{loss}, and {error},"), rows, both)
    fewer = "SDIHT takes fewer epochs than DIHT to the lowest gap that both reach, for each lam0"
    claim("e" if smooth else "b", fewer, largest, _leads(largest, "gap", duals))
    return _panels(run, rows, tuple(FIRST[smooth]))


def _problems(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of the copies of each problem, by its name."""
    found = defaultdict(list)
    for row in rows:
        found[f"{row['data']} k = {row['k']} lam0 = {row['l0']:g}"].append(row)
    return found


def _panels(run: Run, rows: list[dict[str, Any]], algorithms: tuple[str, ...]) -> Any:
    """Loss against time at lam0 = 1; time to the test error against lam0; gap against epochs at the largest k."""
    columns = [(data, k) for data in run["data"] for k in run["ks"][data]]
    figure, axes = panels(3, len(columns))
    for column, (data, k) in zip(axes.T, columns, strict=True):
        here = [row for row in rows if (row["data"], row["k"]) == (data, k)]
        drawn = {row["l0"]: row["curves"] for row in here if row["copy"] == 0}
        for a in algorithms:
            seconds, _, value, _, _ = drawn[1.0][a]
            colour, marker = STYLE[a]
            column[0].plot(seconds, np.minimum.accumulate(value), color=colour, label=a)
            times = [[row["to_error"][a] for row in here if row["l0"] == l0] for l0 in run["l0s"]]
            column[1].plot(run["l0s"], np.exp(np.log(times).mean(1)), color=colour, marker=marker, markersize=4)
            column[1].fill_between(run["l0s"], *np.exp(interval(np.log(times))), color=colour, alpha=0.12, linewidth=0)
        for (l0, curves), a in itertools.product(drawn.items(), DUALS):
            _, epochs, _, gap, _ = curves[a]
            style = ("-", "--", ":")[run["l0s"].index(l0) % 3]
            column[2].plot(epochs, gap, style, color=STYLE[a][0], label=f"lam0 = {l0:g}" if a == "DIHT" else None)
        column[0].set_xscale("log")
        column[0].set_title(f"{data}, k = {k}", fontsize=10)
        column[1].set_yscale("log")
        short_log(column[0].xaxis)
        short_log(column[1].yaxis)
        column[2].set(xscale="log", yscale="log")
        column[2].legend(frameon=False, fontsize=7)
        for ax, x, y in zip(
            column,
            ("processor seconds, lam0 = 1", "lam0", "epochs"),
            ("least loss so far", "seconds to a common test error", "least gap so far"),
            strict=True,
        ):
            ax.set(xlabel=x, ylabel=y)
            ax.grid(alpha=0.3)
    axes[0, 0].legend(frameon=False, fontsize=7)
    return figure


def smoothed(run: Run) -> Any:
    """Figures 5 to 7: the smoothed hinge loss."""
    return _figure(run, smooth=True)


def plain(run: Run) -> Any:
    """Figures 8 to 10: the hinge loss."""
    return _figure(run, smooth=False)
