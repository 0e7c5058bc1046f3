"""The experiments of [HSG]: five hard-thresholding algorithms against gradient evaluations and thresholdings."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.feature_extraction.text import TfidfTransformer

from sparsehtp._solve import solve
from sparsehtp._types import replace
from sparsehtp.iteration.results import RESULTS
from sparsehtp.iteration.termination import Never, SmallStep
from sparsehtp.losses import Logistic, Softmax
from sparsehtp.objectives import LinearModel, MultiResponse
from sparsehtp.solvers import IHT, SVRGHT, HybridHT, StochasticHT
from sparsehtp.steps import ConstantStep
from sparsehtp.thresholds import Rank, Sparsity

from .data import DataSet
from .figures import STYLE, legend_below, panels
from .run import Run
from .verdicts import NO_MARGIN, Mean, Ratio, Undecided, all_of, every, shown

ALGORITHMS = ("FG-HT", "SG-HT", "SVRG-HT", "SVRG-HT stored", "HSG-HT", "AHSG-HT")
HYBRIDS = ("HSG-HT", "AHSG-HT")
RIVALS = ("FG-HT", "SG-HT", "SVRG-HT")
LONG = "FG-HT long"  # for as many full gradients as the others' accuracy takes
POINTS = 60  # of a stored curve
FLOOR = 1e-6  # of F(0) - F*: float32 tells no less
FIRST_POWER = 2  # where the search for a step begins: 2^2 / smoothness
POWERS = 40  # at most this far


class Problem(NamedTuple):
    """An objective, its constraint and a name."""

    name: str
    objective: Any
    threshold: Any


class Trial(NamedTuple):
    """A solver without its step size, for as many steps as the budget allows, and what was chosen in it."""

    solver: Any
    steps: int
    chosen: dict[str, Any]


class Trace(NamedTuple):
    """IFO calls / n, thresholdings and F at the start and after every step; and the last coefficients."""

    ifo: np.ndarray
    thresholds: np.ndarray
    value: np.ndarray
    x: Any


class Curves(NamedTuple):
    """An algorithm's IFO calls / n, thresholdings (points,) and sub-optimality (copies, points)."""

    ifo: np.ndarray
    thresholds: np.ndarray
    gap: np.ndarray


def fig1(run: Run) -> Any:
    """Figure 1: a single pass over the data, sparse logistic regression."""
    problems = []
    for name, k in run["data"].items():
        data = run.load(name)
        if data is None:
            continue
        X, y = _rows(run, name, data)
        if name == "news20-topics":
            y = np.where(np.isin(y, run["positive"]), 1.0, -1.0).astype(np.float32)
        problems.append(Problem(name, LinearModel(X, y, Logistic(), l2=run["l2"]), Sparsity(k)))
    return _compare(run, problems, _decide_pass)


def fig2(run: Run) -> Any:
    """Figure 2: several passes over the data, sparse softmax and rank-constrained linear regression."""
    problems = []
    for name, size in run["data"].items():
        data = run.load(name)
        if data is None:
            continue
        X, y = _rows(run, name, data)
        y = y.astype(np.int32)
        if name.startswith("rank-"):
            Y = np.eye(y.max() + 1, dtype=np.float32)[y]
            # Its loss is the squared distance, twice ours: half of its lambda is our l2, at the same minimiser.
            problems.append(Problem(name, MultiResponse(X, Y, l2=run["l2"] / 2), Rank(size)))
        else:
            classes = int(y.max()) + 1
            objective = MultiResponse(X, y, Softmax(classes), l2=run["l2"] / classes)
            problems.append(Problem(name, objective, Sparsity(size)))
    return _compare(run, problems, _decide_passes)


def _rows(run: Run, name: str, data: DataSet) -> tuple[np.ndarray, np.ndarray]:
    """As many rows as the settings say; of words the most frequent ones, weighted by tf-idf, rows of unit norm."""
    X, y, rows = data.X, data.y, run["rows"][name]
    if not isinstance(X, np.ndarray):
        drawn = run.rng("rows").permutation(X.shape[0])[:rows]
        X = X[drawn]
        frequent = np.sort(np.argsort(-np.asarray((X > 0).sum(0)).ravel(), kind="stable")[: run["words"]])
        return TfidfTransformer().fit_transform(X[:, frequent]).toarray().astype(np.float32), y[drawn]
    return X[:rows], y[:rows]


def _compare(run: Run, problems: list[Problem], decide: Callable[..., None]) -> Any:
    if not problems:
        raise FileNotFoundError(" ".join(run.notes))
    by_name = {problem.name: problem for problem in problems}

    def curve(data: str, algorithm: str) -> dict[str, Any]:
        return tuned_curve(run, by_name[data], algorithm)

    rows = run.map(curve, [{"data": p.name, "algorithm": a} for p in problems for a in (*ALGORITHMS, LONG)])
    found: dict[str, dict[str, Curves]] = {}
    for problem in problems:
        own = [row for row in rows if row["data"] == problem.name]
        lowest = min(min(row["limit"], np.min(row["value"])) for row in own)
        start = own[0]["value"][0][0]
        found[problem.name] = {
            row["algorithm"]: Curves(
                np.array(row["ifo"]),
                np.array(row["thresholds"]),
                np.maximum(np.array(row["value"]) - lowest, FLOOR * (start - lowest)),
            )
            for row in own
        }
    decide(run, found)
    return _figure(run, found)


def tuned_curve(run: Run, problem: Problem, algorithm: str) -> dict[str, Any]:
    """The curves of an algorithm over several seeds, with the settings that ended lowest on a seed of its own.

    The step is searched among the powers of two over the smoothness until both neighbours of the best are worse; the
    rest (growth, momentum, inner steps) on a grid. `limit` is the value where FG-HT ends when it goes on from there.
    """
    n = problem.objective.n_samples
    tried: dict[tuple[int, int], float] = {}
    trials = list(_trials(run, algorithm, n))
    power = FIRST_POWER
    for place, trial in enumerate(trials):

        def value(power: int, place: int = place, trial: Trial = trial) -> float:
            tried[place, power] = trace(run, problem, algorithm, trial, power, 0).value[-1]
            return tried[place, power]

        power = climb(value, power)
    place, power = min(tried, key=lambda key: tried[key])
    if not np.isfinite(tried[place, power]):
        raise ValueError(f"data: {algorithm} diverged on {problem.name} with every step size; scale the data.")
    copies = 1 if algorithm.startswith("FG-HT") else run["copies"]
    traces = [trace(run, problem, algorithm, trials[place], power, 1 + copy) for copy in range(copies)]
    limit = solve(
        problem.objective,
        problem.threshold,
        IHT(),
        x0=traces[0].x,
        termination=SmallStep(1e-6),
        max_steps=run["limit_steps"],
        record=None,
        throw=False,
    )
    ifo, thresholds = traces[0][:2]
    keep = thinned(ifo)
    return {
        "ifo": _short(ifo[keep]),
        "thresholds": thresholds[keep].tolist(),
        "value": [_short(each.value[keep]) for each in traces],
        "limit": float(limit.value),
        "settings": repr({**trials[place].chosen, "step x smoothness": 2.0**power}),
        "tried": len(tried),
    }


def climb(value: Callable[[int], float], start: int) -> int:
    """The power with the lowest value, from `start` until both neighbours are no better; down while all diverge."""
    seen: dict[int, float] = {}
    best = start
    while abs(best - start) <= POWERS:
        for power in (best - 1, best, best + 1):
            if power not in seen:
                found = value(power)
                seen[power] = found if np.isfinite(found) else np.inf
        lowest = min(seen, key=lambda power: (seen[power], power))
        if lowest == best:
            break
        best = lowest
    return best


def trace(run: Run, problem: Problem, algorithm: str, trial: Trial, power: int, seed: int) -> Trace:
    """One run; all infinite if it diverges.

    An IFO call is one component's gradient at one point, so that an inner step of SVRG-HT is two; "stored" keeps the n
    scores of its full gradient and makes one.
    """
    objective = problem.objective
    full = algorithm.startswith("FG-HT")
    size = 2.0**power / float(objective.lipschitz() if full else objective.sample_smoothness())
    solution = solve(
        objective,
        problem.threshold,
        replace(trial.solver, step_rule=ConstantStep(jax.numpy.float32(size))),
        key=jax.random.key(seed),
        max_steps=trial.steps,
        termination=Never(),
        throw=False,
    )
    start = float(objective.value(np.zeros(objective.n_coefficients, objective.dtype)))
    history = solution.history
    assert history is not None  # it is recorded
    value, ifo, thresholds = (np.asarray(each, float) for each in (history.value, history.ifo, history.hard_thresholds))
    if int(solution.result) == RESULTS.nonfinite or not np.isfinite(value).all():
        value = np.full_like(value, np.inf)
    if algorithm == "SVRG-HT":
        ifo = ifo + thresholds
    if algorithm.startswith("SVRG-HT") and run["first_gradient_free"]:
        ifo[0] -= objective.n_samples
    spent = np.cumsum(ifo) / objective.n_samples
    return Trace(np.append(0, spent), np.append(0, np.cumsum(thresholds)), np.append(start, value), solution.x)


def _trials(run: Run, algorithm: str, n: int) -> Iterator[Trial]:
    budget, step = run["passes"] * n, ConstantStep(1.0)
    if algorithm == "FG-HT":
        yield Trial(IHT(step), int(run["passes"]), {})
    elif algorithm == LONG:
        yield Trial(IHT(step), run["long_passes"], {})
    elif algorithm == "SG-HT":
        epoch = max(int(budget / run["points"]), 1)
        yield Trial(StochasticHT(step, batch_size=1, epoch=epoch), int(budget / epoch), {})
    elif algorithm in ("SVRG-HT", "SVRG-HT stored"):
        for share in run["svrg_inner"]:
            m = max(int(share * n), 1)
            stage = n + (2 * m if algorithm == "SVRG-HT" else m)
            stages = int((budget + n * run["first_gradient_free"]) / stage)
            if stages > 0:
                yield Trial(SVRGHT(step, inner_steps=m, batch_size=1), stages, {"m / n": share})
    else:
        for growth in run["growth"]:
            for momentum in run["momentum"] if algorithm == "AHSG-HT" else [0.0]:
                sizes = HybridHT(step, momentum, growth, iterations=1).batches(n).sizes
                spent = np.cumsum(np.concatenate([sizes, np.full(int(run["passes"]) + 1, n)]))
                taken = int(np.searchsorted(spent, budget, side="right"))
                # F is looked at between 30 and 60 times: it costs all the rows.
                each = min(range(-(-taken // 60), max(taken // 30, 1) + 1), key=lambda size: taken % size)
                solver = HybridHT(step, momentum, growth, iterations=each)
                yield Trial(solver, taken // each, {"growth": growth, "momentum": momentum})


def thinned(ifo: np.ndarray) -> np.ndarray:
    """Places of a curve: half of them even in its steps, half in its IFO calls."""
    even = np.linspace(0, len(ifo) - 1, POINTS // 2).astype(int)
    return np.union1d(even, np.searchsorted(ifo, np.linspace(0, ifo[-1], POINTS // 2)))


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.7g}") for value in values]


def decades_below(first: Curves, second: Curves, budgets: list[float]) -> Mean:
    """log10 of the second's sub-optimality over the first's after equal IFO calls, mean over several; by copies."""

    def after(curves: Curves) -> np.ndarray:
        place = np.searchsorted(curves.ifo, np.array(budgets) * (1 + 1e-6), side="right") - 1
        return np.log10(curves.gap[:, place]).mean(axis=1)

    return Mean(after(second) - after(first))


def times_fewer(first: Curves, second: Curves) -> Ratio:
    """The second's thresholdings over the first's, to the lowest sub-optimality that both reach; by copies."""
    copies = np.broadcast_shapes(first.gap.shape[:1], second.gap.shape[:1])[0]
    draws = []
    for copy in range(copies):
        pair = [(each.thresholds, each.gap[copy % len(each.gap)]) for each in (first, second)]
        level = max(gap.min() for _, gap in pair)
        counts = [max(_reached(thresholds, gap, level), 1) for thresholds, gap in pair]
        draws.append(np.log(counts[1] / counts[0]))
    return Ratio(draws)


def _reached(places: np.ndarray, gap: np.ndarray, level: float) -> float:
    """Where a curve first falls to a level, on the straight line of log(gap) between two points."""
    i = int(np.argmax(gap <= level))
    if i == 0:
        return float(places[0])
    share = np.log(gap[i - 1] / level) / np.log(gap[i - 1] / gap[i])
    return float(places[i - 1] + share * (places[i] - places[i - 1]))


def _shown(estimates: dict[str, Any]) -> dict[str, str]:
    return {name: shown(estimate) for name, estimate in estimates.items()}


def _pairs(
    found: dict[str, dict[str, Curves]], rivals: tuple[str, ...], estimate: Callable[[Curves, Curves], Any]
) -> dict[str, Any]:
    return {
        f"{data}, {hybrid} to {rival}": estimate(curves[hybrid], curves[rival])
        for data, curves in found.items()
        for hybrid in HYBRIDS
        for rival in rivals
    }


def _final(found: dict[str, dict[str, Curves]]) -> dict[str, list[float]]:
    return {a: [float(np.mean(curves[a].gap[:, -1])) for curves in found.values()] for a in ALGORITHMS}


COUNTINGS = {"n + 2m gradients a stage of SVRG-HT": RIVALS, "n + m of them": (*RIVALS[:2], "SVRG-HT stored")}


def _claim_lower(run: Run, found: dict[str, dict[str, Curves]], budgets: list[float], words: str) -> None:
    """That the hybrids are below the others after equal IFO calls, under both countings of SVRG-HT's."""

    def below(first: Curves, second: Curves) -> Mean:
        return decades_below(first, second, budgets)

    lower = {words: _pairs(found, rivals, below) for words, rivals in COUNTINGS.items()}
    run.claim(
        "a",
        f"F - F* of HSG-HT and of AHSG-HT is below that of FG-HT, SG-HT and SVRG-HT on each data set, {words}",
        {reading: every(each.values()) for reading, each in lower.items()},
        draws=run["copies"],
        numbers={reading: {f"decades, {at}": each[at] for at in each} for reading, each in lower.items()},
        compared=_final(found),
        decades_below={reading: _shown(each) for reading, each in lower.items()},
    )


def _decide_pass(run: Run, found: dict[str, dict[str, Curves]]) -> None:
    """The claims on one pass."""
    _claim_lower(run, found, [run["passes"]], "after one pass")
    fewer, full = _pairs(found, ("SG-HT", "SVRG-HT"), times_fewer), _pairs(found, (LONG,), times_fewer)
    run.claim(
        "b",
        "to the lowest F - F* that both reach, HSG-HT and AHSG-HT take fewer thresholdings than SG-HT and SVRG-HT, and "
        "about as many as FG-HT",
        all_of(every(fewer.values()), [Undecided(NO_MARGIN)] * len(full)),
        need=NO_MARGIN,
        draws=run["copies"],
        numbers={"times fewer, " + at: each for at, each in {**fewer, **full}.items()},
        compared=_final(found),
        times_fewer=_shown({**fewer, **full}),
    )
    sharper = {data: times_fewer(curves["AHSG-HT"], curves["HSG-HT"]) for data, curves in found.items()}
    run.claim(
        "c",
        "AHSG-HT takes no more thresholdings than HSG-HT to the lowest F - F* that both reach",
        every(sharper.values()),
        draws=run["copies"],
        numbers={f"times fewer, {data}": each for data, each in sharper.items()},
        compared={a: _final(found)[a] for a in HYBRIDS},
    )


def _decide_passes(run: Run, found: dict[str, dict[str, Curves]]) -> None:
    """The claims on many passes."""
    budgets = [run["passes"] * share for share in (0.2, 0.4, 0.6, 0.8, 1.0)]
    _claim_lower(run, found, budgets, f"in the mean after {', '.join(f'{b:g}' for b in budgets)} passes")
    fewer = _pairs(found, (LONG, "SG-HT", "SVRG-HT"), times_fewer)
    run.claim(
        "b",
        "HSG-HT and AHSG-HT take fewer thresholdings than FG-HT, SG-HT and SVRG-HT to the lowest F - F* that "
        "both reach",
        every(fewer.values()),
        draws=run["copies"],
        numbers={f"times fewer, {at}": each for at, each in fewer.items()},
        compared=_final(found),
    )


def _figure(run: Run, found: dict[str, dict[str, Curves]]) -> Any:
    figure, axes = panels(len(found), 2, 5.2, 2.9)
    for row, (name, curves) in zip(axes, found.items(), strict=True):
        for algorithm in (*ALGORITHMS, LONG):
            colour, _ = STYLE[algorithm]
            dashes = "--" if algorithm in ("SVRG-HT stored", LONG) else "-"
            gaps = curves[algorithm].gap
            gap = np.exp(np.log(gaps).mean(axis=0))
            for ax, field in zip(row, ("ifo", "thresholds"), strict=True):
                xs = getattr(curves[algorithm], field)
                ax.plot(xs, gap, color=colour, linestyle=dashes, linewidth=1.4, label=algorithm)
                ax.fill_between(xs, gaps.min(axis=0), gaps.max(axis=0), color=colour, alpha=0.12, linewidth=0)
        for ax, label in zip(row, ("gradients of components / n", "thresholdings"), strict=True):
            ax.set_yscale("log")
            ax.set_xlabel(label)
            ax.grid(alpha=0.3)
        row[0].set_xlim(0, run["passes"])
        row[1].set_xscale("symlog")
        row[1].set_xlim(left=0)
        row[0].set_ylabel("F - F* (band: all copies)")
        row[0].set_title(name, fontsize=10)
    legend_below(figure, axes[0, 0])
    return figure
