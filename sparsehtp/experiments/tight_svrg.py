"""The experiments of [Tight] on HT-SVRG: compressed sensing under several settings, and MNIST pairs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._programs import program
from .._solve import solve
from ..iteration.record import Record
from ..iteration.results import RESULTS
from ..iteration.termination import Never, SmallGradient
from ..losses import Logistic
from ..objectives import LinearModel
from ..solvers import SVRGHT
from ..steps import ConstantStep
from ..thresholds import Sparsity
from .figures import panels
from .run import Run, taken

EXPANSION = 9  # k = 9 K


@program(static_argnames=("k", "m", "stages", "random_iterate", "trace"))
def recover(
    A: Any,
    signals: Any,
    step_size: Any,
    keys: Any,
    *,
    k: int,
    m: int,
    stages: int,
    random_iterate: bool,
    trace: bool = False,
) -> tuple[Any, ...]:
    """(error, result, stages, F after every stage or None) of HT-SVRG on A x for every signal, from zero.

    The step size multiplies gradients of (a_i'x - y_i)^2 / 2, as in the paper. With a random iterate a stage may leave
    x where it was, so that runs stop at a small gradient, never at a small step.
    """
    solver = SVRGHT(ConstantStep(step_size), inner_steps=m, random_iterate=random_iterate)

    def one(signal: Array, key: Array) -> tuple[Any, ...]:
        solution = solve(
            LinearModel(A, A @ signal),
            Sparsity(k, k_max=k),
            solver,
            key=key,
            max_steps=stages,
            termination=Never() if trace else SmallGradient(1e-6),
            record=Record() if trace else None,
            throw=False,
        )
        value = solution.history.value if trace else None  # its end is padding; see `taken`
        return jnp.linalg.norm(solution.x - signal), solution.result, solution.num_steps, value

    return jax.vmap(one)(signals, keys)


def problem(run: Run, n: int, K: int) -> tuple[Any, Any, Any, float]:
    """(A, signals, keys, the paper's step size): all signals share the matrix, and those of every n the signals."""
    d, count = run["d"], run["signals"]
    A = run.rng("matrix", n).standard_normal((n, d), np.float32) / np.sqrt(n, dtype=np.float32)
    rng = run.rng("signals", K)
    x = np.zeros((count, d), np.float32)
    for row in x:
        row[rng.choice(d, K, replace=False)] = rng.standard_normal(K, np.float32)
    keys = jax.random.split(jax.random.key(run["seed"]), count)
    return jnp.asarray(A), jnp.asarray(x), keys, 2 / float(np.linalg.norm(A, 2)) ** 2


def success_rate(run: Run, n: int, K: int, stages: int) -> tuple[float, float]:
    """Share of signals recovered to 1e-3 by HT-SVRG in the paper's settings, and the most stages that one took."""
    A, signals, keys, step = problem(run, n, K)
    k = min(EXPANSION * K, run["d"])
    error, _, steps, _ = recover(A, signals, step, keys, k=k, m=3 * n, stages=stages, random_iterate=True)
    good = np.asarray(error) < 1e-3
    return float(good.mean()), float(np.asarray(steps)[good].max(initial=0))


def _traces(run: Run, k: int, m: int, step: float, stages: int, random_iterate: bool = False) -> dict[str, Any]:
    """Success rate and the mean of log10 F over the signals after every stage (over failures below 95%)."""
    A, signals, keys, _ = problem(run, run["n"], run["K"])
    error, result, steps, value = recover(
        A, signals, step, keys, k=k, m=m, stages=stages, random_iterate=random_iterate, trace=True
    )
    good = np.asarray(error) < 1e-3
    diverged = np.asarray(result) == RESULTS.nonfinite
    shown = taken(value, steps, result)[good if good.mean() >= 0.95 else ~good]
    curve = np.mean(np.log10(np.maximum(shown, 1e-16)), axis=0)  # NaN once one of them has diverged
    return {"success": float(good.mean()), "diverged": float(diverged.mean()), "curve": curve.tolist()}


def _stages_to(curve: list[float | None], level: float) -> float:
    """Stages until log10 F falls below a level; infinity if it never does."""
    below = np.flatnonzero(np.array(curve, float) <= level)
    return float(below[0] + 1) if below.size else np.inf


def fig4(run: Run) -> Any:
    """Figure 4: other sparsity parameters, update frequencies and step sizes than the standard ones."""
    k0, m0, step0 = run["k"], run["m"], run["step"]

    def trace(k: int, m: int, step: float, stages: int, random_iterate: bool = False) -> dict[str, Any]:
        return _traces(run, k, m, step, stages, random_iterate)

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
    ks = {k: row["success"] for k, row in parts["k"].items()}
    run.claim(
        "a",
        "k = 36 converges (at least 95% of the signals), k = 4 and k = 8 do not",
        ks[36] >= 0.95 and max(ks[4], ks[8]) < 0.95,
        success=ks,
    )
    level = -6.0
    need = {m: _stages_to(row["curve"], level) for m, row in parts["m"].items()}
    reached = {m: row["success"] for m, row in parts["m"].items()}
    slower = all(need[m] > need[m0] for m in need if m != m0)
    run.claim(
        "b",
        "m = 1, 10, 100 take more stages than m = 300, and still converge",
        slower and min(reached.values()) >= 0.95,
        stages_to_1e_6=need,
        success=reached,
        stages_run={m: run["inner"] // m for m in run["ms"]},
        note="each stage starts from the last inner iterate: chosen among x^0, ..., x^(m-1) as printed, m = 1 is x^0",
    )
    steps = {step: row["success"] for step, row in parts["step"].items()}
    diverged = {step: row["diverged"] for step, row in parts["step"].items()}
    run.claim(
        "c",
        "a step of 0.3 works; steps of 3 and more diverge",
        steps[step0] >= 0.95 and all(diverged[s] >= 0.95 for s in steps if s >= 3),
        success=steps,
        diverged=diverged,
    )
    figure, axes = panels(1, 3)
    for ax, (name, found) in zip(axes[0], parts.items(), strict=True):
        for value, row in found.items():
            curve = np.array(row["curve"], float)
            ax.plot(np.arange(1, curve.size + 1), curve, label=f"{name} = {value:g}")
        ax.set(xlabel="stages", ylabel="log10 F", xscale="log" if name == "m" else "linear")
        ax.legend(frameon=False, fontsize=8)
        ax.grid(alpha=0.3)
    return figure


def fig5(run: Run) -> Any:
    """Figure 5: very small steps converge once m is large."""

    def trace(step: float, m: int, stages: int) -> dict[str, Any]:
        row = _traces(run, run["k"], m, step, stages)
        every = max(stages // 400, 1)
        return {**row, "curve": row["curve"][::every], "every": every}

    cells = [{"step": step, "m": m, "stages": run["stages"]} for step in run["steps"] for m in run["ms"]]
    rows = run.map(trace, cells)
    best = {step: max(row["success"] for row in rows if row["step"] == step) for step in run["steps"]}
    whole = set(run["steps"]) >= {3e-5, 3e-4, 3e-3}
    found = min(best.values()) >= 0.95
    run.claim(
        "a",
        "for steps of 3e-5, 3e-4 and 3e-3 convergence returns for some m <= 2000 within 5e4 stages",
        (True if found else False if run["stages"] >= 50000 else None) if whole else None,
        best_success=best,
        stages=run["stages"],
        **({} if whole else {"note": "the smallest steps take 1e8 inner steps and are left to the full run"}),
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
