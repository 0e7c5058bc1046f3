"""The text experiments of [DIHT]: hinge losses, dual against primal hard thresholding in time and epochs."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .. import solvers
from .._programs import program
from .._solve import solve
from .._types import Info
from ..iteration.results import FIRED, RESULTS
from ..iteration.termination import AbstractTermination, Never
from ..losses import Hinge, SmoothedHinge
from ..objectives import LinearModel
from ..solvers import DIHT, HTP, IHT, SDIHT
from ..steps import ConstantStep, ScheduleStep
from ..thresholds import Sparsity
from .figures import STYLE, panels
from .run import Run

ROUNDING = 1e-7
DUALS = ("DIHT", "SDIHT")


def _contenders(smooth: bool, scale: float, steps: int) -> dict[str, tuple[Any, int]]:
    """Solver and epochs of every algorithm; the step's scale comes from the grid."""
    found: dict[str, tuple[Any, int]] = {
        "IHT": (IHT(ConstantStep(scale=scale)) if smooth else IHT(ScheduleStep(_FALLING[scale])), steps),
        "DIHT": (DIHT(scale=scale), steps),
        "SDIHT": (SDIHT(scale=scale), max(steps // 5, 5)),
    }
    if smooth:
        found["HTP"] = (HTP(ConstantStep(scale=scale)), min(steps, 20))
    stochastic = getattr(solvers, "SVRGHT", None)
    if smooth and stochastic is not None:
        found["SVRGHT"] = (stochastic(), max(steps // 5, 5))
    return found


def _falling(c: float) -> Callable[[Any], Any]:
    def schedule(t: Any) -> Any:
        return c * (t + 2.0) ** -0.5

    return schedule


SCALES = (0.3, 1.0, 3.0)
_FALLING = {c: _falling(c) for c in SCALES}


class TestError(AbstractTermination):
    """Stops once the share of wrong labels on test rows is at most `level`."""

    X: Any
    y: Any
    level: Any

    def init(self, state: Any) -> Any:
        return ()

    def __call__(
        self, memory: Any, previous: Any, state: Any, info: Info, t: Int[Array, ""]
    ) -> tuple[Any, Int[Array, ""]]:
        error = jnp.mean(jnp.sign(self.X @ state.x) != self.y)
        return memory, jnp.where(error <= self.level, jnp.int32(FIRED.Complete), 0)


@program(static_argnames=("k", "steps"))
def _trace(
    X: Any, y: Any, l2: Any, solver: Any, loss: Any, k: int, steps: int, termination: AbstractTermination | None = None
) -> tuple[Any, ...]:
    model = LinearModel(X, y, loss, l2=l2)
    termination = Never() if termination is None else termination
    found = solve(model, Sparsity(k), solver, max_steps=steps, termination=termination, throw=False)
    return found.history, found.num_steps, found.x, found.result, found.fired


def _text(run: Run, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Training and test rows of the most frequent words, dense."""
    data = run.load(name)
    if data is None:
        return None
    frequent = np.argsort(-np.asarray((data.X != 0).sum(0)).ravel(), kind="stable")[: run["features"]]
    X, X_test = (np.asarray(part[:, frequent].todense(), np.float32) for part in (data.X, data.X_test))
    return X[: run["max_rows"]], data.y[: run["max_rows"]].astype(np.float32), X_test, data.y_test


def _texts(run: Run) -> dict[str, Any]:
    held = {name: data for name in run["data"] if (data := _text(run, name)) is not None}
    if not held:
        raise FileNotFoundError(" ".join(run.notes))
    return held


def _text_runs(run: Run, smooth: bool) -> list[dict[str, Any]]:
    loss = SmoothedHinge(0.25) if smooth else Hinge()
    held = _texts(run)

    def trace(data: str, k: int, l0: float, algorithm: str) -> dict[str, Any]:
        X, y, X_test, y_test = held[data]
        best: dict[str, Any] | None = None
        for scale in SCALES:
            pool = _contenders(smooth, scale, run["steps"])
            if algorithm not in pool:
                continue
            solver, steps = pool[algorithm]
            arguments = (jnp.asarray(X), jnp.asarray(y), l0 / np.sqrt(len(y)), solver, loss, k, steps)
            jax.block_until_ready(_trace(*arguments))
            start = time.perf_counter()
            history, steps_taken, x, result, _ = jax.block_until_ready(_trace(*arguments))
            elapsed, last = time.perf_counter() - start, int(steps_taken)
            if result == RESULTS.nonfinite:
                continue
            values = np.minimum.accumulate(np.asarray(history.value)[:last])
            gaps = np.minimum.accumulate(np.where(np.isfinite(history.gap[:last]), history.gap[:last], np.inf))
            row = {
                "scale": scale,
                "time": elapsed,
                "values": values.tolist(),
                "gaps": gaps.tolist() if np.isfinite(gaps[-1]) else [],
                "epochs": (np.cumsum(np.asarray(history.ifo, float)[:last]) / len(y)).tolist(),
                "test_error": float(np.mean(np.sign(X_test @ np.asarray(x)) != y_test)),
            }
            if best is None or row["values"][-1] < best["values"][-1]:
                best = row
        if best is None:
            raise ValueError(f"SCALES: {algorithm} diverged on {data} with every step size; add a smaller one.")
        return best

    names = [a for a in ("IHT", "HTP", "SVRGHT", *DUALS) if a in _contenders(smooth, 1.0, 5)]
    cells = [
        {"data": data, "k": min(k, run["features"]), "l0": l0, "algorithm": a}
        for data in held
        for k in run["ks"]
        for l0 in run["l0s"]
        for a in names
    ]
    return run.map(trace, cells)


def _when(row: dict[str, Any], level: float) -> float:
    """Seconds until the objective reaches a level; infinity if it does not."""
    hits = np.flatnonzero(np.array(row["values"]) <= level)
    return np.inf if not hits.size else row["time"] * (hits[0] + 1) / len(row["values"])


def _problems(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    keys = sorted({(r["data"], r["k"], r["l0"]) for r in rows})
    return {key: {r["algorithm"]: r for r in rows if (r["data"], r["k"], r["l0"]) == key} for key in keys}


def _label(key: tuple[Any, ...]) -> str:
    return f"{key[0]}, k = {key[1]}, l0 = {key[2]:g}"


def _loss_curves(run: Run, smooth: bool) -> Any:
    rows = _text_runs(run, smooth)
    first, second, times = [], [], {}
    for key, each in _problems(rows).items():
        level = max(min(r["values"]) for r in each.values()) * (1 + 1e-3)  # reached by all
        when = {a: _when(r, level) for a, r in each.items()}
        times[_label(key)] = when
        first.append(min(when[a] for a in DUALS) <= min(t for a, t in when.items() if a not in DUALS))
        second.append(when["SDIHT"] <= when["DIHT"])
    run.claim("a", "DIHT or SDIHT reaches the common primal loss first, everywhere", all(first), seconds=times)
    run.claim("b", "SDIHT reaches it before DIHT, everywhere", all(second), share=float(np.mean(second)))
    problems = _problems(rows)
    figure, axes = panels(1, len(problems))
    for ax, (key, each) in zip(axes[0], problems.items(), strict=True):
        for name, row in each.items():
            seconds = np.linspace(0, row["time"], len(row["values"]) + 1)[1:]
            ax.semilogx(seconds, row["values"], color=STYLE[name][0], label=name)
        ax.set_title(f"{key[0]}, k = {key[1]}", fontsize=10)
        ax.set_xlabel("seconds")
        ax.set_ylabel("best primal loss so far")
        ax.grid(alpha=0.3)
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def _time_to_error(run: Run, smooth: bool) -> Any:
    rows = _text_runs(run, smooth)
    held, loss = _texts(run), SmoothedHinge(0.25) if smooth else Hinge()
    problems = _problems(rows)
    # The slowest method's error at its end, plus one point.
    levels = {key: max(r["test_error"] for r in each.values()) + 0.01 for key, each in problems.items()}

    def reach(data: str, k: int, l0: float, algorithm: str) -> dict[str, Any]:
        X, y, X_test, y_test = held[data]
        scale = problems[data, k, l0][algorithm]["scale"]
        solver, steps = _contenders(smooth, scale, run["steps"])[algorithm]
        stop = TestError(jnp.asarray(X_test), jnp.asarray(y_test), levels[data, k, l0])
        arguments = (jnp.asarray(X), jnp.asarray(y), l0 / np.sqrt(len(y)), solver, loss, k, steps, stop)
        jax.block_until_ready(_trace(*arguments))
        start = time.perf_counter()
        *_, fired = jax.block_until_ready(_trace(*arguments))
        return {"time": time.perf_counter() - start, "reached": bool(fired)}

    cells = [{name: r[name] for name in ("data", "k", "l0", "algorithm")} for r in rows]
    dual_first, stochastic_first, times = [], [], {}
    for key, each in _problems(run.map(reach, cells)).items():
        when = {a: r["time"] if r["reached"] else np.inf for a, r in each.items()}
        times[_label(key)] = when
        dual_first.append(min(when[a] for a in DUALS) <= min(t for a, t in when.items() if a not in DUALS))
        stochastic_first.append(when["SDIHT"] <= when["DIHT"])
    run.claim(
        "c",
        "DIHT or SDIHT reaches the test error (the slowest method's final one + 1 point) first, and SDIHT before DIHT",
        all(dual_first) and all(stochastic_first),
        test_errors={_label(key): level for key, level in levels.items()},
        seconds=times,
    )
    figure, axes = panels(1, len(times))
    for ax, (label, when) in zip(axes[0], times.items(), strict=True):
        ax.bar(list(when), [t if np.isfinite(t) else 0 for t in when.values()])
        ax.set_title(label, fontsize=8)
        ax.set_ylabel("seconds")
    return figure


def _gap_curves(run: Run, smooth: bool) -> Any:
    rows = [row for row in _text_runs(run, smooth) if row["algorithm"] in DUALS]
    fewer, epochs = [], {}
    for key, each in _problems(rows).items():
        # A gap below the rounding of F, in single precision about one, is zero, and may come out negative.
        gaps = {name: np.maximum(row["gaps"], ROUNDING) for name, row in each.items()}
        level = max(values.min() for values in gaps.values()) * 1.001
        need = {}
        for name, row in each.items():
            hit = np.flatnonzero(gaps[name] <= level)[0]
            need[name] = row["epochs"][hit]
        epochs[_label(key)] = need
        fewer.append(need["SDIHT"] <= need["DIHT"])
    run.claim("d", "SDIHT needs fewer epochs than DIHT for the gap that both reach", all(fewer), epochs=epochs)
    figure, axes = panels(1, 2)
    for ax, name in zip(axes[0], DUALS, strict=True):
        for row in rows:
            if row["algorithm"] == name:
                ax.plot(row["epochs"], row["gaps"], label=f"{row['data']}, l0 = {row['l0']}")
        ax.set_yscale("log")
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("epochs")
        ax.set_ylabel("gap")
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize=8)
    return figure


def fig5(run: Run) -> Any:
    """Figure 5: primal loss against time, smoothed hinge."""
    return _loss_curves(run, smooth=True)


def fig6(run: Run) -> Any:
    """Figure 6: time to a test error, smoothed hinge."""
    return _time_to_error(run, smooth=True)


def fig7(run: Run) -> Any:
    """Figure 7: gap against epochs, smoothed hinge."""
    return _gap_curves(run, smooth=True)


def fig8(run: Run) -> Any:
    """Figure 8: primal loss against time, hinge."""
    return _loss_curves(run, smooth=False)


def fig9(run: Run) -> Any:
    """Figure 9: time to a test error, hinge."""
    return _time_to_error(run, smooth=False)


def fig10(run: Run) -> Any:
    """Figure 10: gap against epochs, hinge."""
    return _gap_curves(run, smooth=False)
