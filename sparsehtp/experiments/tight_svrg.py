"""The experiments of [Tight] on HT-SVRG: compressed sensing under several settings, and MNIST pairs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._programs import program
from .._solve import solve
from ..iteration.termination import Never
from ..losses import Logistic
from ..objectives import LinearModel
from ..solvers import SVRGHT
from ..steps import ConstantStep
from ..thresholds import Sparsity
from .compressed_sensing import ht_svrg
from .figures import panels
from .run import Run, taken
from .tight import problem, with_all_stages
from .verdicts import Decision, Share, Undecided, at_least, both, shown


def _traces(run: Run, k: int, m: int, step: float, stages: int, dtype: Any = np.float32) -> dict[str, Any]:
    """Success rate and the mean of log10 F over the signals after every stage (over failures below 95%)."""
    A, signals = (a.astype(dtype) for a in problem(run, run["n"], run["K"]))
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
        return _traces(run, run["k"], m, step, stages, np.float64)

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


@program(static_argnames=("k", "m", "stages"))
def pair(X: Any, y: Any, step: Any, key: Any, *, k: int, m: int, stages: int) -> tuple[Array, ...]:
    """(w, F after every stage, stages, result) of sparse logistic regression by HT-SVRG."""
    solution = solve(
        LinearModel(X, y, Logistic()),
        Sparsity(k, k_max=k),
        SVRGHT(ConstantStep(step), inner_steps=m, random_iterate=True),
        key=key,
        max_steps=stages,
        termination=Never(),
        throw=False,
    )
    return solution.x, solution.history.value, solution.num_steps, solution.result


def fig78(run: Run) -> Any:
    """Figures 7 and 8: MNIST pairs; the weights as images, F per stage, and accuracy against k."""
    data = run.load("mnist")
    if data is None:
        raise FileNotFoundError(" ".join(run.notes))

    def digits(
        X: np.ndarray, y: np.ndarray, first: int, second: int, limit: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        chosen = np.flatnonzero(np.isin(y, (first, second)))[:limit]
        return X[chosen], np.where(y[chosen] == first, 1.0, -1.0).astype(np.float32)

    def fit(first: int, second: int, k: int) -> dict[str, Any]:
        X, y = digits(data.X, data.y, first, second, run["rows"])
        X_test, y_test = digits(data.X_test, data.y_test, first, second)
        key = jax.random.key(run["seed"])
        found, *history = pair(jnp.asarray(X), y, run["step"], key, k=k, m=3 * len(y), stages=run["stages"])
        w, values = np.asarray(found), taken(*history)
        accuracy = float(np.mean(np.where(X_test @ w > 0, 1, -1) == y_test))
        return {"accuracy": accuracy, "values": values.tolist(), "w": w.tolist()}

    rows = run.map(fit, [{"first": a, "second": b, "k": k} for a, b in run["pairs"] for k in run["ks"]])
    table = {((row["first"], row["second"]), row["k"]): row for row in rows}
    excess = {}
    for (digit, k), row in table.items():
        values = np.array(row["values"], float)
        # At stage 20 and from there on: within 1% of the final value.
        excess[f"{digit[0]}/{digit[1]} k={k}"] = float(np.max(values[19:]) / values[-1] - 1)
    worst = max(excess, key=excess.__getitem__)
    run.claim(
        "a",
        "F is within 1% of its final value from stage 20 on",
        excess[worst] <= 0.01 if run["stages"] > 20 else None,
        largest_excess=excess[worst],
        of=worst,
        stages=run["stages"],
        share_within=float(np.mean(np.array(list(excess.values())) <= 0.01)),
    )
    gain = {f"{a}/{b}": table[(a, b), 150]["accuracy"] - table[(a, b), 70]["accuracy"] for a, b in run["pairs"]}
    run.claim(
        "b",
        "the accuracy at k = 70 is within 1 point of that at k = 150",
        max(map(abs, gain.values())) <= 0.01,
        gain=gain,
    )
    figure, axes = panels(len(run["pairs"]), len(run["ks"]) + 2, 1.9, 1.9)
    for row, digit in zip(axes, map(tuple, run["pairs"]), strict=True):
        for ax, k in zip(row, run["ks"], strict=False):
            image = np.array(table[digit, k]["w"]).reshape(28, 28)
            top = np.abs(image).max() or 1.0
            ax.imshow(image, cmap="RdBu", vmin=-top, vmax=top)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.set_title(f"{digit[0]}/{digit[1]}, k = {k}", fontsize=8)
        for k in run["ks"]:
            row[-2].plot(
                np.arange(1, run["stages"] + 1),
                np.array(table[digit, k]["values"], float),
                label=f"k = {k}",
                linewidth=1,
            )
        row[-2].set_title("F per stage", fontsize=8)
        row[-1].plot(run["ks"], [100 * table[digit, k]["accuracy"] for k in run["ks"]], marker="o", markersize=3)
        row[-1].set_title("accuracy (%)", fontsize=8)
    axes[0, -2].legend(frameon=False, fontsize=6)
    return figure
