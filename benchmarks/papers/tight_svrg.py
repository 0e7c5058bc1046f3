"""The experiments of [Tight] on HT-SVRG: compressed sensing under several settings, and MNIST pairs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

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
from .verdicts import Decision, Mean, Share, Undecided, at_least, at_most, both, shown, some


def _traces(run: Run, k: int, m: int, step: float, stages: int) -> dict[str, Any]:
    """Success rate and the mean of log10 F over the signals after every stage (over failures below 95%)."""
    A, signals = problem(run, run["n"], run["K"])
    rng = run.rng("samples", k, m, step)
    found = ht_svrg(A, signals, k, m, step, stages, rng, random_iterate=m > 1, trace=True)
    good = found.success
    values = np.asarray(found.values)[:, good if good.mean() >= 0.95 else ~good]
    curve = np.mean(np.log10(np.maximum(values, 1e-16)), axis=1)  # NaN once one of them has diverged
    every = max(stages // 400, 1)
    return {
        "hits": int(good.sum()),
        "diverged": int(found.diverged.sum()),
        "curve": curve[::every].tolist(),
        "every": every,
    }


def _stages_to(row: dict[str, Any], level: float) -> float:
    """Stages until log10 F falls below a level; infinity if it never does."""
    below = np.flatnonzero(np.array(row["curve"], float) <= level)
    return float(below[0] * row["every"] + 1) if below.size else np.inf


def fig4(run: Run) -> Any:
    """Figure 4: other sparsity parameters, update frequencies and step sizes than the standard ones."""
    k0, m0, step0, count = run["k"], run["m"], run["step"], run["signals"]

    def trace(k: int, m: int, step: float, stages: int) -> dict[str, Any]:
        return _traces(run, k, m, step, stages)

    standard = {"k": k0, "m": m0, "step": step0, "stages": run["stages"]}
    cells = {
        "k": [{**standard, "k": k} for k in run["ks"]],
        "m": [{**standard, "m": m, "stages": run["inner"] // m} for m in run["ms"]],
        "step": [{**standard, "step": step} for step in run["steps"]],
    }
    rows = run.map(trace, [cell for part in cells.values() for cell in part])
    parts = {}
    for name, part in cells.items():
        parts[name] = {cell[name]: row for cell, row in zip(part, rows[: len(part)], strict=True)}
        rows = rows[len(part) :]
    ks = {k: Share(row["hits"], count) for k, row in parts["k"].items()}
    run.claim(
        "a",
        "k has to be larger than K: k = 36 recovers at least 95% of the signals, k = K = 4 does not",
        both(_less(ks[4], 0.95), with_all_stages(run, at_least(ks[36], 0.95))),
        success={k: shown(share) for k, share in ks.items()},
        stages=run["stages"],
    )
    run.claim(
        "d",
        "k = 8 = 2 K is not enough either (its curve stays up in the figure)",
        _less(ks[8], 0.95),
        success=shown(ks[8]),
        stages=run["stages"],
    )
    level = -6.0
    need = {m: _stages_to(row, level) for m, row in parts["m"].items()}
    reached = {m: Share(row["hits"], count) for m, row in parts["m"].items()}
    slower = all(need[m] > need[m0] for m in need if m != m0)
    run.claim(
        "b",
        "a small m is slower, in stages, and still converges: m = 1, 10, 100 against m = 300",
        both(slower, with_all_stages(run, both(*(at_least(share, 0.95) for share in reached.values())))),
        stages_to_1e_6=need,
        success={m: shown(share) for m, share in reached.items()},
        stages_run={m: run["inner"] // m for m in run["ms"]},
        note="m = 1 takes the last inner iterate: the printed choice, among x^0, ..., x^(m-1), would never move",
    )
    steps = {step: Share(row["hits"], count) for step, row in parts["step"].items()}
    diverged = {step: Share(row["diverged"], count) for step, row in parts["step"].items()}
    run.claim(
        "c",
        "a step of 0.3 works; steps of 3 and more diverge",
        both(
            *(at_least(diverged[s], 0.95) for s in steps if s >= 3), with_all_stages(run, at_least(steps[step0], 0.95))
        ),
        success={step: shown(share) for step, share in steps.items()},
        diverged={step: shown(share) for step, share in diverged.items()},
    )
    figure, axes = panels(1, 3)
    for ax, (name, found) in zip(axes[0], parts.items(), strict=True):
        for value, row in found.items():
            curve = np.array(row["curve"], float)
            ax.plot(np.arange(curve.size) * row["every"] + 1, curve, label=f"{name} = {value:g}")
        ax.set(xlabel="stages", ylabel="log10 F", xscale="log" if name == "m" else "linear")
        ax.legend(frameon=False, fontsize=8)
        ax.grid(alpha=0.3)
    return figure


def _less(share: Share, level: float) -> Decision:
    """Whether a probability is below a level."""
    found = at_least(share, level)
    return found if isinstance(found, Undecided) else not found


def fig5(run: Run) -> Any:
    """Figure 5: very small steps converge once m is large."""

    def trace(step: float, m: int, stages: int) -> dict[str, Any]:
        # In single precision steps of 0.003 are lost in the rounding of x before the signal is found.
        return _traces(run, run["k"], m, step, stages)

    rows = run.map(trace, [{"step": step, "m": m, "stages": run["stages"]} for step in run["steps"] for m in run["ms"]])
    for letter, step in zip("abc", (3e-3, 3e-4, 3e-5), strict=True):
        shares = {row["m"]: Share(row["hits"], run["signals"]) for row in rows if row["step"] == step}
        found = [at_least(share, 0.95) for share in shares.values()]
        run.claim(
            letter,
            f"with a step of {step:g} HT-SVRG converges for some m <= 2000",
            None
            if not shares
            else True
            if True in found
            else found[0]
            if run["stages"] >= 50000
            else Undecided("50,000 stages"),
            need="up to 1e8 inner steps",
            success={m: shown(share) for m, share in shares.items()},
            stages=run["stages"],
        )
    figure, axes = panels(1, len(run["steps"]))
    for ax, step in zip(axes[0], run["steps"], strict=True):
        for row in (row for row in rows if row["step"] == step):
            curve = np.array(row["curve"], float)
            ax.plot(np.arange(curve.size) * row["every"] + 1, curve, label=f"m = {row['m']}")
        ax.set(xlabel="stages", ylabel="log10 F")
        ax.set_title(f"step {step:g}", fontsize=10)
        ax.legend(frameon=False, fontsize=8)
        ax.grid(alpha=0.3)
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
    run.claim(
        "a",
        f"after 20 stages at most {run['tolerance']:.0%} is left of F's decrease in {run['stages']}, for most pairs "
        "and k, by the formula's step or the printed one",
        some([settled["HT-SVRG"], settled[PRINTED]], 0.5) if run["stages"] >= 40 else None,
        need="40 stages",
        share={a: shown(share) for a, share in settled.items()},
        median_part_left={a: float(np.median(each)) for a, each in left.items()},
    )
    losses = {a: {p: Mean(wrong[a, p, 70] - wrong[a, p, ks[-1]]) for p in pairs} for a in ("HT-SVRG", PRINTED)}
    means = {a: Mean([each.value for each in lost.values()]) for a, lost in losses.items()}
    run.claim(
        "b",
        f"k = 70 is as accurate as k = {ks[-1]} to within 1 point, on the mean of the pairs, by the printed step",
        at_most(means[PRINTED], 0.01),
        compared={k: [wrong[PRINTED, p, k].mean() for p in pairs] for k in (70, ks[-1])},
        mean_lost={a: shown(each) for a, each in means.items()},
        lost={a: {f"{m}/{n}": shown(each) for (m, n), each in lost.items()} for a, lost in losses.items()},
        accuracy_at_70={a: {f"{m}/{n}": 1 - wrong[a, (m, n), 70].mean() for m, n in pairs} for a in losses},
    )
    ends = {p: [values["HT-SVRG", p, k].min() for k in ks] for p in pairs}
    run.claim(
        "c",
        "F at its lowest falls from each k to the next, for every pair",
        all(np.all(np.diff(each) < 0) for each in ends.values()),
        compared={k: [each[i] for each in ends.values()] for i, k in enumerate(ks)},
        lowest={f"{a}/{b}": each for (a, b), each in ends.items()},
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
