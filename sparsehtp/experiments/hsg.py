"""The experiments of [HSG]: five hard-thresholding algorithms against gradient evaluations and thresholdings."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._solve import solve
from .._types import replace
from ..iteration.record import Record
from ..iteration.results import RESULTS
from ..iteration.termination import Never, SmallStep
from ..losses import Logistic, Softmax
from ..objectives import LinearModel, MultiResponse
from ..solvers import IHT, SVRGHT, HybridHT, StochasticHT
from ..steps import ConstantStep
from ..thresholds import Rank, Sparsity
from .figures import STYLE, legend_below, panels
from .run import Run

ALGORITHMS = ("FG-HT", "SG-HT", "SVRG-HT", "HSG-HT", "AHSG-HT")
HYBRIDS = ALGORITHMS[3:]
LEVELS = 25


class Problem(NamedTuple):
    """An objective, its constraint and a name."""

    name: str
    objective: Any
    threshold: Any


def fig1(run: Run) -> Any:
    """Figure 1: a single pass over the data, sparse logistic regression."""
    problems = []
    for name, k in run["data"].items():
        data = run.load(name)
        if data is not None:
            rows = slice(run["rows"])
            objective = LinearModel(data.X[rows], data.y[rows], Logistic(), l2=run["l2"])
            problems.append(Problem(name, objective, Sparsity(k)))
    return _compare(run, problems)


def fig2(run: Run) -> Any:
    """Figure 2: several passes over the data, sparse softmax and rank-constrained linear regression."""
    problems = []
    for name, size in run["data"].items():
        data = run.load(name)
        if data is None:
            continue
        X, y = data.X[: run["rows"]], data.y[: run["rows"]].astype(np.int32)
        if name.startswith("rank-"):
            Y = np.eye(y.max() + 1, dtype=np.float32)[y]
            # Its loss is the squared distance, twice ours: half of its lambda is our l2, at the same minimiser.
            problems.append(Problem(name, MultiResponse(X, Y, l2=run["l2"] / 2), Rank(size)))
        else:
            classes = int(y.max()) + 1
            objective = MultiResponse(X, y, Softmax(classes), l2=run["l2"] / classes)
            problems.append(Problem(name, objective, Sparsity(size)))
    return _compare(run, problems)


def _compare(run: Run, problems: list[Problem]) -> Any:
    if not problems:
        raise FileNotFoundError(" ".join(run.notes))
    by_name = {problem.name: problem for problem in problems}

    def optimum(data: str) -> dict[str, Any]:
        problem = by_name[data]
        solution = solve(
            problem.objective,
            problem.threshold,
            IHT(),
            termination=SmallStep(1e-6),
            max_steps=run["optimum_steps"],
            record=None,
            throw=False,
        )
        zero = jnp.zeros(problem.objective.n_coefficients, problem.objective.dtype)
        return {"value": float(solution.value), "start": float(problem.objective.value(zero))}

    def curve(data: str, algorithm: str) -> dict[str, Any]:
        return best_curve(run, by_name[data], algorithm)

    optima = {row["data"]: row for row in run.map(optimum, [{"data": p.name} for p in problems])}
    rows = run.map(curve, [{"data": p.name, "algorithm": a} for p in problems for a in ALGORITHMS])
    table = {(row["data"], row["algorithm"]): row for row in rows}
    reached, lowest = {}, {}
    for problem in problems:
        name, start = problem.name, optima[problem.name]["start"]
        every = [min(table[name, a]["value"]) for a in ALGORITHMS]
        lowest[name] = min(optima[name]["value"], *every)
        best = min(min(table[name, a]["value"]) for a in HYBRIDS) - lowest[name]
        least = max(best, 1e-6 * (start - lowest[name]))
        levels = np.geomspace(0.7 * (start - lowest[name]), least, LEVELS)
        reached[name] = {a: _first(table[name, a], lowest[name] + levels) for a in ALGORITHMS}
    _decide(run, reached)
    return _figure(run, problems, table, optima, lowest)


def best_curve(run: Run, problem: Problem, algorithm: str) -> dict[str, Any]:
    """(IFO calls / n, thresholdings, F) after every step, for the settings with the lowest F within the budget."""
    best: dict[str, Any] = {"value": [np.inf]}
    n = problem.objective.n_samples
    tried = 0
    for solver, steps, label in _candidates(run, algorithm, n):
        sizes = 2.0 ** np.arange(*run["step_powers"]) / float(problem.objective.sample_smoothness())
        if algorithm == "FG-HT":
            sizes = 2.0 ** np.arange(*run["step_powers"]) / float(problem.objective.lipschitz())
        histories = _histories(problem.objective, problem.threshold, solver, jnp.asarray(sizes, jnp.float32), steps)
        values, ifo, thresholds, results = (np.asarray(each) for each in histories)
        tried += len(sizes)
        for i in np.flatnonzero(results != RESULTS.nonfinite):
            if np.isfinite(values[i, -1]) and values[i, -1] < best["value"][-1]:
                best = {
                    "ifo": np.cumsum(ifo[i]) / n,
                    "thresholds": np.cumsum(thresholds[i]),
                    "value": values[i],
                    "settings": {**label, "step": float(sizes[i])},
                }
    if "settings" not in best:
        raise ValueError(f"step_powers: {algorithm} diverged on {problem.name} with every step size; lower them.")
    keep = np.unique(np.linspace(0, len(best["value"]) - 1, 400).astype(int))
    for field in ("ifo", "thresholds", "value"):
        best[field] = np.asarray(best[field], float)[keep].tolist()
    return {**best, "settings": repr(best["settings"]), "tried": tried}


def _candidates(run: Run, algorithm: str, n: int) -> Iterator[tuple[Any, int, dict[str, Any]]]:
    """(solver, steps, settings): as many steps as the budget of passes allows."""
    passes, points = run["passes"], run["points"]
    step = ConstantStep(1.0)
    if algorithm == "FG-HT":
        yield IHT(step), int(passes), {}
    elif algorithm == "SG-HT":
        epoch = max(int(passes * n / points), 1)
        yield StochasticHT(step, epoch=epoch), int(passes * n / epoch), {}
    elif algorithm == "SVRG-HT":
        for share in run["svrg_inner"]:
            m = max(int(share * n), 1)
            yield SVRGHT(step, inner_steps=m), max(int(passes * n / (n + m)), 1), {"m": m}
    else:
        for growth in run["growth"]:
            for momentum in run["momentum"] if algorithm == "AHSG-HT" else [0.0]:
                solver = HybridHT(step, momentum, growth, iterations=1)
                sizes = solver.batches(n).sizes
                spent = np.cumsum(np.concatenate([sizes, np.full(int(passes) + 1, n)]))
                yield (
                    solver,
                    int(np.searchsorted(spent, passes * n, side="right")),
                    {
                        "growth": growth,
                        "momentum": momentum,
                    },
                )


def _histories(objective: Any, threshold: Any, solver: Any, sizes: Array, steps: int) -> tuple[Array, ...]:
    """Value, IFO calls and thresholdings of every step, and how the runs ended, for several step sizes at once."""

    def one(size: Array) -> tuple[Array, ...]:
        solution = solve(
            objective,
            threshold,
            replace(solver, step_rule=ConstantStep(size)),
            max_steps=steps,
            termination=Never(),
            record=Record(),
            throw=False,
        )
        history = solution.history
        return history.value, history.ifo, history.hard_thresholds, solution.result

    return jax.vmap(one)(sizes)


def _first(row: dict[str, Any], targets: np.ndarray) -> np.ndarray:
    """(IFO calls / n, thresholdings) when F first falls to each target; infinity where it never does."""
    value = np.minimum.accumulate(row["value"])
    place = np.array([np.argmax(value <= target) if (value <= target).any() else -1 for target in targets])
    pick = [np.where(place >= 0, np.asarray(row[field], float)[place], np.inf) for field in ("ifo", "thresholds")]
    return np.stack(pick, axis=1)


def _share(wins: Any, levels: Any) -> float | None:
    return float(np.mean(wins[levels])) if levels.any() else None


def _decide(run: Run, reached: dict[str, dict[str, np.ndarray]]) -> None:
    """The three claims, at the levels that the algorithms in question share."""
    first, thresholdings, faster = {}, {}, {}
    for name, times in reached.items():
        hybrid = np.minimum(times["HSG-HT"][:, 0], times["AHSG-HT"][:, 0])
        others = np.min([times[a][:, 0] for a in ALGORITHMS[:3]], axis=0)
        first[name] = _share(hybrid <= others, np.isfinite(hybrid) & np.isfinite(others))
        most = np.max([times[a][:, 1] for a in HYBRIDS], axis=0)
        parts = {}
        for other, factor in (("FG-HT", 3.0), ("SG-HT", 0.1), ("SVRG-HT", 0.1)):
            count = times[other][:, 1]
            parts[other] = _share(most <= factor * count, np.isfinite(most) & np.isfinite(count))
        thresholdings[name] = parts
        plain, fast = times["HSG-HT"], times["AHSG-HT"]
        both = np.isfinite(plain[:, 0]) & np.isfinite(fast[:, 0])
        faster[name] = _share((fast <= plain).all(axis=1), both)

    def verdict(shares: Iterable[float | None]) -> bool | None:
        known = [share for share in shares if share is not None]
        return min(known) == 1.0 if known else None

    run.claim(
        "a",
        "HSG-HT or AHSG-HT reaches any sub-optimality that they share with the others in the fewest IFO calls",
        verdict(first.values()),
        share_of_levels=first,
    )
    run.claim(
        "b",
        "their thresholdings are within 3 times FG-HT's, and at most a tenth of SG-HT's and SVRG-HT's",
        verdict([share for parts in thresholdings.values() for share in parts.values()]),
        share_of_levels=thresholdings,
    )
    run.claim(
        "c",
        "AHSG-HT needs no more IFO calls nor thresholdings than HSG-HT",
        verdict(faster.values()),
        share_of_levels=faster,
    )


def _figure(
    run: Run,
    problems: list[Problem],
    table: dict[tuple[str, str], dict[str, Any]],
    optima: dict[str, dict[str, Any]],
    lowest: dict[str, float],
) -> Any:
    figure, axes = panels(len(problems), 2, 4.2, 2.9)
    for row, problem in zip(axes, problems, strict=True):
        start = optima[problem.name]["start"]
        floor = 1e-7 * (start - lowest[problem.name])
        for algorithm in ALGORITHMS:
            curve = table[problem.name, algorithm]
            gap = np.maximum(np.array([start, *curve["value"]]) - lowest[problem.name], floor)
            colour, _ = STYLE[algorithm]
            for ax, field in zip(row, ("ifo", "thresholds"), strict=True):
                ax.plot([0, *curve[field]], gap, color=colour, linewidth=1.4, label=algorithm)
        for ax, label in zip(row, ("IFO calls / n", "thresholdings"), strict=True):
            ax.set_yscale("log")
            ax.set_xlabel(label)
            ax.grid(alpha=0.3)
        row[1].set_xscale("symlog")
        row[1].set_xlim(left=0)
        row[0].set_ylabel("F - F*")
        row[0].set_title(problem.name, fontsize=10)
    legend_below(figure, axes[0, 0])
    return figure
