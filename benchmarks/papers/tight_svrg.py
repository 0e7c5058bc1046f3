"""The experiments of [Tight] on HT-SVRG: compressed sensing under several settings, and MNIST pairs."""

import itertools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.stats import linregress

from sparsehtp._programs import program
from sparsehtp._solve import solve
from sparsehtp.iteration.termination import Never
from sparsehtp.losses import Logistic
from sparsehtp.objectives import LinearModel
from sparsehtp.solvers import SAGAHT, SVRGHT
from sparsehtp.steps import ConstantStep
from sparsehtp.thresholds import Sparsity

from .compressed_sensing import ht_svrg
from .figures import legend_below, panels
from .grahtp import digits
from .run import Run, taken
from .tight import problem, with_all_stages
from .verdicts import Clustered, Decision, Mean, Share, Undecided, all_of, at_least, enough, every, moves, shown

BEYOND = 120.0  # log10 F that the paper reports of divergence, within 3 stages


def _traces(run: Run, k: int, m: int, step: float, stages: int, matrix: int, of_all: bool = False) -> dict[str, Any]:
    """Success and divergence, and the mean of log10 F over a matrix's signals after every stage, as the paper takes it:
    over the failures where fewer than 95% are recovered; or `of_all`."""
    A, signals = problem(run, run["n"], run["K"], matrix)
    rng = run.rng("samples", k, m, step, *((matrix,) if matrix else ()))
    found = ht_svrg(A, signals, k, m, step, stages, rng, random_iterate=m > 1, trace=True)
    good, each = found.success, max(stages // 100, 1)
    assert found.values is not None  # they are traced
    logs = np.log10(np.maximum(found.values, 1e-16))  # NaN once a signal has diverged
    drawn = slice(None) if of_all else good if good.mean() >= 0.95 else ~good
    return {
        "hits": int(good.sum()),
        "diverged": int(found.diverged.sum()),
        "far": int(np.sum(~(logs[:3].max(axis=0) <= BEYOND))),
        "curve": np.round(np.mean(logs[:, drawn], axis=1)[::each], 3).tolist(),
        "every": each,
    }


def _stages_to(row: dict[str, Any], level: float) -> float:
    """Stages until the mean log10 F falls below a level; infinity if it never does."""
    below = np.flatnonzero(np.array(row["curve"], float) <= level)
    return float(below[0] * row["every"] + 1) if below.size else np.inf


def _late_line(row: dict[str, Any]) -> Any:
    """The line through log10 F after `LINEAR_FROM` stages."""
    curve = np.array(row["curve"], float)
    stages = np.arange(curve.size) * row["every"] + 1
    return linregress(stages[stages > LINEAR_FROM], curve[stages > LINEAR_FROM])


def _quarters(curve: np.ndarray) -> np.ndarray:
    """A curve at its start, and after each quarter of the stages."""
    return curve[np.linspace(0, curve.size - 1, 5).astype(int)]


def _one_of(decisions: Iterable[Decision]) -> Decision:
    """Whether one of several holds, as a part of a sentence."""
    found = enough(decisions, 1).outcome()
    assert not isinstance(found, str)  # that of a sentence about all of its parts
    return found


def _clustered(rows: list[dict[str, Any]], count: int, field: str = "hits") -> Clustered:
    return Clustered([Share(row[field], count) for row in rows])


def fig4(run: Run) -> Any:
    """Figure 4: other sparsity parameters, update frequencies and step sizes than the standard ones."""
    k0, m0, step0, count = run["k"], run["m"], run["step"], run["signals"]

    def trace(k: int, m: int, step: float, stages: int, matrix: int) -> dict[str, Any]:
        return _traces(run, k, m, step, stages, matrix)

    standard = {"k": k0, "m": m0, "step": step0, "stages": run["stages"]}
    cells = {
        "k": {k: {**standard, "k": k} for k in run["ks"]},
        "m": {m: {**standard, "m": m, "stages": run["inner"] // m} for m in run["ms"]},
        "step": {step: {**standard, "step": step, "stages": run["stages"] if step < 1 else 3} for step in run["steps"]},
    }
    wanted = [cell for part in cells.values() for cell in part.values()]
    once = [cell for i, cell in enumerate(wanted) if cell not in wanted[:i]]
    rows = run.map(trace, [{**cell, "matrix": matrix} for matrix in range(run["matrices"]) for cell in once])
    parts = {
        name: {
            value: [row for row in rows if all(row[key] == at for key, at in cell.items())]
            for value, cell in part.items()
        }
        for name, part in cells.items()
    }
    ks = {k: _clustered(each, count) for k, each in parts["k"].items()}
    large, small = [k for k in ks if k > 8], [k for k in ks if k <= 8]
    run.claim(
        "a",
        f"at least 95% of the signals are recovered with k = {', '.join(map(str, large))}, and less with k = "
        f"{', '.join(map(str, small))}: K = {run['K']} and twice that",
        all_of(with_all_stages(run, every([ks[k] for k in large], 0.95)), *(_less(ks[k], 0.95) for k in small)),
        draws=run["matrices"],
        numbers={f"success, k = {k}": ks[k] for k in (large[-1], small[0])},
        success={k: shown(share) for k, share in ks.items()},
    )
    need = {m: [_stages_to(row, -6.0) for row in each] for m, each in parts["m"].items()}
    slower = {
        f"m = {m}": Mean(np.log10(each) - np.log10(need[m0])) if np.isfinite(each).all() else Mean([np.nan])
        for m, each in need.items()
        if m != m0
    }
    reached = {f"m = {m}": _clustered(each, count) for m, each in parts["m"].items()}
    run.claim(
        "b",
        "with m = 1, 10 and 100 at least 95% of the signals are recovered, in more stages than with m = 300",
        all_of(
            with_all_stages(run, every(reached.values(), 0.95)),
            [at_least(each) for each in slower.values() if np.isfinite(each.value)],
        ),
        draws=run["matrices"],
        numbers={
            f"log10 of stages over those of m = 300, {m}": each for m, each in slower.items() if np.isfinite(each.value)
        },
        success={m: shown(share) for m, share in reached.items()},
        stages_to_1e_6=need,
    )
    success = {step: _clustered(each, count) for step, each in parts["step"].items()}
    diverged = {step: _clustered(each, count, "far") for step, each in parts["step"].items()}
    beyond = {f"step {step:g}": share for step, share in diverged.items() if step > 3}
    run.claim(
        "c",
        f"with a step of {step0} at least 95% of the signals are recovered; with steps above 3 F exceeds 10^120 in 3 "
        "stages, for at least 95%",
        all_of(with_all_stages(run, every([success[step0]], 0.95)), every(beyond.values(), 0.95)),
        draws=run["matrices"],
        numbers={f"beyond 10^120, {step}": share for step, share in beyond.items()},
        success={step: shown(share) for step, share in success.items()},
        beyond={step: shown(share) for step, share in diverged.items()},
    )
    figure, axes = panels(1, 3, 3.6, 3.1)
    for ax, (name, found) in zip(axes[0], parts.items(), strict=True):
        for value, each in found.items():
            _bands(ax, each, f"{'step' if name == 'step' else name} = {value:g}")
        ax.set(xlabel="stages", xscale="log" if name == "m" else "linear")
        ax.set_ylabel("log10 F (band: all matrices)")
        ax.legend(frameon=False, fontsize=8)
    axes[0, 2].set(xlim=(1, 10), ylim=(-15, 130))
    axes[0, 2].axhline(BEYOND, color="black", linewidth=0.8)
    return figure


def _bands(ax: Any, rows: list[dict[str, Any]], label: str) -> None:
    """The mean over the matrices of log10 F, and its range; above all axes where it diverged."""
    curves = np.nan_to_num(np.array([row["curve"] for row in rows], float), nan=400.0)
    stages = np.arange(curves.shape[1]) * rows[0]["every"] + 1
    (line,) = ax.plot(stages, curves.mean(axis=0), label=label, linewidth=1.4)
    ax.fill_between(stages, curves.min(axis=0), curves.max(axis=0), color=line.get_color(), alpha=0.15, linewidth=0)
    ax.grid(alpha=0.3)


def _less(share: Clustered, level: float) -> Decision:
    """Whether a probability is below a level."""
    found = at_least(share, level)
    return found if isinstance(found, Undecided) else not found


SMALLEST = 3e-5  # step of the paper's Figure 5
LINEAR_FROM = 20_000  # stages, from which on log F falls linearly there


def fig5(run: Run) -> Any:
    """Figure 5: very small steps converge once m is large."""

    def trace(step: float, m: int, stages: int, matrix: int) -> dict[str, Any]:
        # In single precision steps of 0.003 are lost in the rounding of x before the signal is found.
        return _traces(run, run["k"], m, step, stages, matrix, of_all=True)

    cells = [
        {"step": step, "m": m, "stages": stages, "matrix": matrix}
        for matrix in range(run["matrices"])
        for step, stages in zip(run["steps"], run["stages"], strict=True)
        for m in run["ms"]
    ]
    rows = run.map(trace, cells)
    parts = {
        (step, m): [row for row in rows if (row["step"], row["m"]) == (step, m)]
        for step in run["steps"]
        for m in run["ms"]
    }
    curves = {at: [np.array(row["curve"], float) for row in each] for at, each in parts.items()}
    falls = {at: moves(list(np.transpose([_quarters(curve) for curve in each])), -1) for at, each in curves.items()}
    names = {at: f"step {at[0]:g}, m = {at[1]}" for at in parts}
    run.claim(
        "a",
        "with each step F falls from quarter to quarter of the stages for some m",
        all_of(_one_of(falls[step, m] for m in run["ms"]) for step in run["steps"]),
        draws=run["matrices"],
        numbers={
            f"decades, {names[at]}": Mean([curve[-1] - curve[0] for curve in each]) for at, each in curves.items()
        },
        recovered={names[at]: shown(_clustered(each, run["signals"])) for at, each in parts.items()},
        falls={names[at]: fall if isinstance(fall, bool) else "open" for at, fall in falls.items()},
    )
    late = {m: [_late_line(row) for row in parts[SMALLEST, m]] for m in run["ms"] if (SMALLEST, m) in parts}
    run.claim(
        "b",
        "with a step of 0.00003 log F falls linearly after 20,000 stages",
        None,
        draws=run["matrices"],
        numbers={f"R2 of a line, m = {m}": Mean([each.rvalue**2 for each in lines]) for m, lines in late.items()},
        need="a margin: the paper says how straight is straight in no number",
        decades_in_10_000_stages={m: shown(Mean([1e4 * each.slope for each in lines])) for m, lines in late.items()},
    )
    figure, axes = panels(1, len(run["steps"]), 4.2, 3.1)
    for ax, step in zip(axes[0], run["steps"], strict=True):
        for m in run["ms"]:
            _bands(ax, parts[step, m], f"m = {m}")
        ax.set(xlabel="stages", ylabel="log10 F")
        ax.set_title(f"step {step:g}", fontsize=10)
        ax.legend(frameon=False, fontsize=8)
    return figure


PRINTED = "HT-SVRG, printed step"


@program(static_argnames=("algorithm", "k", "stages"))
def pair(X: Any, y: Any, step: Any, key: Any, *, algorithm: str, k: int, stages: int) -> tuple[Array, ...]:
    """(w, F after every stage, stages, result) of sparse logistic regression by HT-SVRG or HT-SAGA.

    A stage of HT-SVRG ends, on average, after half of its m = 3n inner steps: with its full gradient it costs as many
    gradients, of one component at one point, as four passes of HT-SAGA.
    """
    svrg = algorithm != "HT-SAGA"
    passes = 1 if svrg else 4
    solution = solve(
        LinearModel(X, y, Logistic()),
        Sparsity(k, k_max=k),
        SVRGHT(ConstantStep(step), 3 * len(y), 1, True) if svrg else SAGAHT(ConstantStep(step), 1),
        key=key,
        max_steps=passes * stages,
        termination=Never(),
        throw=False,
    )
    assert solution.history is not None  # it is recorded
    return solution.x, solution.history.value[passes - 1 :: passes], solution.num_steps // passes, solution.result


def fig78(run: Run) -> Any:
    """Figures 7 and 8: MNIST pairs; the weights as images, F per stage, and accuracy against k."""
    data = run.load("mnist")
    if data is None:
        raise FileNotFoundError(" ".join(run.notes))

    def rows_of(X: np.ndarray, y: np.ndarray, pair: tuple[int, int], limit: int | None = None) -> tuple[Any, Any]:
        chosen = np.flatnonzero(np.isin(y, pair))[:limit]
        return X[chosen], np.where(y[chosen] == pair[0], 1.0, -1.0).astype(np.float32)

    def fit(first: int, second: int, k: int, algorithm: str) -> dict[str, Any]:
        X, y = rows_of(data.X, data.y, (first, second), run["rows"])
        X_test, y_test = rows_of(data.X_test, data.y_test, (first, second))
        formula = 2 / np.linalg.eigvalsh(X.T @ X)[-1]  # 2 / svds(A A')
        step = np.float32(run["printed_step"] if algorithm == PRINTED else formula)
        key = jax.random.key(run["seed"])
        found, *history = pair(jnp.asarray(X), y, step, key, algorithm=algorithm, k=k, stages=run["stages"])
        w, values = np.asarray(found), taken(*history)
        return {
            "step": float(step),
            "wrong": digits((np.where(X_test @ w > 0, 1, -1) != y_test).astype(int)),
            "values": [float(f"{value:.6g}") for value in values],
            "pixels": np.flatnonzero(w).tolist(),
            "w": [float(f"{weight:.3g}") for weight in w[w != 0]],
        }

    pairs, ks = [tuple(each) for each in run["pairs"]], run["ks"]
    cells = [{"first": a, "second": b, "k": k, "algorithm": "HT-SVRG"} for a, b in pairs for k in ks]
    cells += [{"first": a, "second": b, "k": k, "algorithm": PRINTED} for a, b in pairs for k in run["printed_ks"]]
    cells += [{"first": a, "second": b, "k": 70, "algorithm": "HT-SAGA"} for a, b in pairs[: run["saga_pairs"]]]
    table = {(row["algorithm"], (row["first"], row["second"]), row["k"]): row for row in run.map(fit, cells)}
    values = {place: np.array(row["values"], float) for place, row in table.items()}
    wrong = {place: np.array([int(c) for c in row["wrong"]]) for place, row in table.items()}

    # What is left of the decrease from F(0) = log 2, as the figure's axis shows it, after 20 of the stages.
    left: dict[str, list[float]] = {}
    for (algorithm, *_), curve in values.items():
        left.setdefault(algorithm, []).append((curve[19] - curve.min()) / (np.log(2) - curve.min()))
    settled = {a: Share(int(np.sum(np.array(each) <= run["tolerance"])), len(each)) for a, each in left.items()}
    words = {"HT-SVRG": "the step 2 / svds(AA')", PRINTED: "the printed step"}
    run.claim(
        "a",
        f"after 20 stages at most {run['tolerance']:.0%} is left of F's decrease in {run['stages']}, for most pairs "
        "and k",
        {words[a]: at_least(settled[a], 0.5) if run["stages"] >= 40 else None for a in words},
        draws=len(pairs),
        numbers={words[a]: {"share of pairs and k": settled[a]} for a in words},
        need="" if run["stages"] >= 40 else "40 stages",
        median_part_left={a: float(np.median(each)) for a, each in left.items()},
    )
    ends = {a: {p: [values[a, p, k].min() for k in ks] for p in pairs} for a in words}
    falls = {
        words[a]: {
            f"k = {low} to {high}": Mean([each[i] - each[i + 1] for each in ends[a].values()])
            for i, (low, high) in enumerate(itertools.pairwise(ks))
        }
        for a in words
    }
    run.claim(
        "c",
        "F at its lowest falls from each k to the next, mean over the pairs",
        {reading: every(each.values()) for reading, each in falls.items()},
        draws=len(pairs),
        numbers=falls,
        compared={k: [each[i] for each in ends["HT-SVRG"].values()] for i, k in enumerate(ks)},
        lowest={a: {f"{m}/{n}": each for (m, n), each in ends[a].items()} for a in words},
        HT_SAGA_at_70={f"{a}/{b}": values["HT-SAGA", (a, b), 70].min() for a, b in pairs[: run["saga_pairs"]]},
    )
    figure, axes = panels(len(pairs), len(ks) + 2, 1.9, 1.9)
    for row, p in zip(axes, pairs, strict=True):
        for ax, k in zip(row, ks, strict=False):
            image, cell = np.zeros(784), table["HT-SVRG", p, k]
            image[cell["pixels"]] = cell["w"]
            top = np.abs(image).max() or 1.0
            ax.imshow(image.reshape(28, 28), cmap="RdBu", vmin=-top, vmax=top)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.set_title(f"{p[0]}/{p[1]}, k = {k}", fontsize=8)
        for (algorithm, digit, k), curve in values.items():
            if digit == p:
                style = {} if algorithm == "HT-SVRG" else {"linestyle": ":" if algorithm == "HT-SAGA" else "--"}
                label = f"k = {k}" if algorithm == "HT-SVRG" else f"{algorithm.removeprefix('HT-SVRG, ')}, k = {k}"
                row[-2].plot(np.arange(1, curve.size + 1), curve, label=label, linewidth=1, **style)
        row[-2].set_title("F per stage", fontsize=8)
        row[-1].plot(ks, [100 - 100 * wrong["HT-SVRG", p, k].mean() for k in ks], marker="o", markersize=3)
        row[-1].set_title("accuracy (%)", fontsize=8)
    legend_below(figure, axes[0, -2])
    return figure
