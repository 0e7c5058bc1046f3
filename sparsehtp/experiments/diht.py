"""The experiments of [DIHT]: the duality gap of sparse ridge regression, and dual against primal hard thresholding."""

import functools
import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import solvers
from .._results import FIRED
from .._solve import solve
from .._termination import AbstractTermination, SmallStep
from ..duality import dual_of, relax
from ..losses import Hinge, SmoothedHinge
from ..objectives import LinearModel
from ..solvers import DIHT, HTP, IHT, SDIHT, BestSubset
from ..steps import ConstantStep, ScheduleStep
from ..thresholds import Sparsity
from .figures import curves, legend_below, panels
from .run import Run

NEVER = SmallStep(-1.0)  # every run takes its steps
GAP_IS_ZERO = 1e-6


# --- Figures 1 to 3: the optimal gap ---------------------------------------------------------------------------------
@jax.jit
def _exhaustive(gram, rhs, constant, l2, supports):
    """The least (1/2N) ||y - X w||^2 + (l2/2) ||w||^2 over the supports, from the normal equations."""

    def value(s):
        A = gram[s][:, s] + l2 * jnp.eye(s.shape[0], dtype=gram.dtype)
        b = rhs[s]
        return 0.5 * (constant - b @ jax.scipy.linalg.solve(A, b, assume_a="pos"))

    def block(least, part):
        return jnp.minimum(least, jax.vmap(value)(part).min()), None

    return jax.lax.scan(block, jnp.asarray(jnp.inf, gram.dtype), supports)[0]


@functools.partial(jax.jit, static_argnames="k")
def _largest_dual(X, y, l2, k):
    found = relax(dual_of(LinearModel(X, y, l2=l2), Sparsity(k)), 1e-9, max_steps=20000)
    return found.lower, found.upper


@functools.partial(jax.jit, static_argnames="k")
def _best_subset(X, y, l2, k):
    return solve(LinearModel(X, y, l2=l2), Sparsity(k), BestSubset(), record=None, throw=False).value


def gap_of(X: np.ndarray, y: np.ndarray, l2: float, k: int) -> dict[str, float]:
    """The optimal primal-dual gap: the exhaustive optimum up to 200,000 supports, else the best that swaps find."""
    n, p = X.shape
    with jax.enable_x64(True):
        lower, upper = map(float, _largest_dual(jnp.asarray(X), jnp.asarray(y), l2, k))
        if p <= 30:
            supports = np.array(list(itertools.combinations(range(p), k)), np.int32)
            pad = -len(supports) % 1024
            supports = np.concatenate([supports, supports[:pad]]).reshape(-1, 1024, k)
            primal = float(_exhaustive(X.T @ X / n, X.T @ y / n, y @ y / n, l2, supports))
        else:
            primal = float(_best_subset(jnp.asarray(X), jnp.asarray(y), l2, k))
    return {"primal": primal, "dual": lower, "dual_at_most": upper, "gap": max(primal - lower, 0.0)}


def _sample(run: Run, n: int, d: int, k: int, sigma: float, covariance: np.ndarray | None = None, copy: int = 0):
    """The same k-sparse w for every sample size, noise level and covariance of a dimension."""
    w = np.zeros(d)
    rng = run.rng("w", d, copy)
    w[rng.choice(d, k, replace=False)] = rng.standard_normal(k)
    rng = run.rng("data", d, n, copy)
    X = rng.standard_normal((n, d))
    if covariance is not None:
        X = X @ np.linalg.cholesky(covariance + 1e-12 * np.eye(d)).T
    return X, X @ w + sigma * rng.standard_normal(n), w


def _sizes(run: Run):
    return [tuple(size) for size in run["sizes"]]


def fig1(run: Run) -> Any:
    """Figure 1: the optimal gap against the ridge, for three sample sizes."""

    def optimal_gap(d, k, share, l0):
        n = round(share * d)
        X, y, _ = _sample(run, n, d, k, run["sigma"])
        return gap_of(X, y, l0 / np.sqrt(n), k)

    cells = [
        {"d": d, "k": k, "share": share, "l0": l0}
        for d, k in _sizes(run)
        for share in run["shares"]
        for l0 in run["l0s"]
    ]
    rows = {(r["d"], r["share"], r["l0"]): r for r in run.map(optimal_gap, cells)}
    d = _sizes(run)[0][0]
    last = {f"N={share}d": rows[d, share, run["l0s"][-1]]["gap"] for share in run["shares"]}
    falls = all(rows[d, s, run["l0s"][-1]]["gap"] <= rows[d, s, run["l0s"][0]]["gap"] for s in run["shares"])
    run.claim(
        "a",
        f"the gap falls to zero (at most {GAP_IS_ZERO:.0e}) as lam sqrt(N) grows to {run['l0s'][-1]} "
        f"(d = {d}, exhaustive primal optimum)",
        falls and max(last.values()) <= GAP_IS_ZERO,
        gaps_at_the_largest_ridge=last,
    )
    spread = max(
        max(gaps) / max(min(gaps), GAP_IS_ZERO)
        for l0 in run["l0s"]
        if max(gaps := [rows[d, s, l0]["gap"] for s in run["shares"]]) > GAP_IS_ZERO
    )
    run.claim("b", "curves for different N differ by less than a factor of 10", spread < 10, largest_factor=spread)
    return _gap_figure(
        run,
        {
            d: {f"N = {s} d": [rows[d, s, l0]["gap"] for l0 in run["l0s"]] for s in run["shares"]}
            for d, _ in _sizes(run)
        },
        run["l0s"],
        "lam sqrt(N)",
    )


def fig2(run: Run) -> Any:
    """Figure 2: the optimal gap against the noise, N = d."""

    def optimal_gap(d, k, sigma, l0):
        X, y, _ = _sample(run, d, d, k, sigma)
        return gap_of(X, y, l0 / np.sqrt(d), k)

    cells = [
        {"d": d, "k": k, "sigma": sigma, "l0": l0}
        for d, k in _sizes(run)
        for sigma in run["sigmas"]
        for l0 in run["l0s"]
    ]
    rows = {(r["d"], r["sigma"], r["l0"]): r["gap"] for r in run.map(optimal_gap, cells)}
    d = _sizes(run)[0][0]
    by_noise = {str(l0): [rows[d, s, l0] for s in run["sigmas"]] for l0 in run["l0s"]}
    rises = all(np.all(np.diff(gaps) >= -1e-9) for gaps in by_noise.values())
    run.claim("a", f"the gap rises with sigma (d = {d})", rises, gaps=by_noise)
    by_ridge = np.array(list(by_noise.values()))
    falls = bool(np.all(np.diff(by_ridge, axis=0) <= 1e-9))
    where = [s for s, column in zip(run["sigmas"], by_ridge.T, strict=True) if np.any(np.diff(column) > 1e-9)]
    run.claim("b", "it falls as lam grows, at every sigma", falls, rises_at_sigma=where)
    series = {d: {f"l0 = {l0}": [rows[d, s, l0] for s in run["sigmas"]] for l0 in run["l0s"]} for d, _ in _sizes(run)}
    return _gap_figure(run, series, run["sigmas"], "noise sigma")


def fig3(run: Run) -> Any:
    """Figure 3: the optimal gap against the condition number of the Hessian."""

    def optimal_gap(d, k, kappa, l0):
        lam = l0 / np.sqrt(d)
        X, y, _ = _sample(run, d, d, k, run["sigma"], _conditioned(run, d, kappa, lam))
        return gap_of(X, y, lam, k)

    cells = [
        {"d": d, "k": k, "kappa": kappa, "l0": l0}
        for d, k in _sizes(run)
        for kappa in run["kappas"]
        for l0 in run["l0s"]
    ]
    rows = {(r["d"], r["kappa"], r["l0"]): r["gap"] for r in run.map(optimal_gap, cells)}
    d = _sizes(run)[0][0]
    late = [kappa for kappa in run["kappas"] if 50 <= kappa <= 200]
    factors = {}
    for l0 in run["l0s"]:
        gaps = [max(rows[d, kappa, l0], GAP_IS_ZERO) for kappa in late]
        factors[str(l0)] = max(gaps) / min(gaps)
    run.claim("a", "the gap changes by less than a factor of 3 over kappa in [50, 200]", max(factors.values()) < 3,
              factors=factors)  # fmt: skip
    series = {
        d: {f"l0 = {l0}": [rows[d, kappa, l0] for kappa in run["kappas"]] for l0 in run["l0s"]} for d, _ in _sizes(run)
    }
    return _gap_figure(run, series, run["kappas"], "condition number")


def _conditioned(run, d, kappa, lam):
    """The paper's footnote 3: Sigma = Sigma' + sigma I with condition number kappa of Sigma + lam I."""
    if kappa <= 1:
        return np.eye(d)
    rng = run.rng("covariance", d)
    basis, _ = np.linalg.qr(rng.standard_normal((d, d)))
    spectrum = np.sort(rng.random(d))
    spectrum = (spectrum - spectrum[0]) / (spectrum[-1] - spectrum[0]) * (2 * kappa - 1) * lam
    return (basis * spectrum) @ basis.T + lam * kappa / (kappa - 1) * np.eye(d)


def _gap_figure(run, series, xs, label):
    figure, axes = panels(1, len(series))
    for ax, (d, lines) in zip(axes[0], series.items(), strict=True):
        for name, ys in lines.items():
            ax.plot(xs, np.maximum(ys, 1e-12), marker="o", markersize=4, label=name)
        ax.set_yscale("log")
        ax.set_xlabel(label)
        ax.set_ylabel("optimal gap")
        ax.set_title(f"d = {d}", fontsize=10)
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize=8)
    return figure


# --- Figure 4: dual against primal on correlated designs -------------------------------------------------------------
RIVALS = ("DIHT", "IHT", "HTP", "BestSubset")


@functools.partial(jax.jit, static_argnames=("algorithm", "k", "max_steps"))
def _correlated_fit(X, y, l2, algorithm, k, max_steps):
    solver = {"DIHT": DIHT(), "IHT": IHT(), "HTP": HTP(), "BestSubset": BestSubset()}[algorithm]
    steps = max_steps if algorithm == "DIHT" else None
    found = solve(LinearModel(X, y, l2=l2), Sparsity(k), solver, record=None, throw=False, max_steps=steps)
    return found.value, found.x


def fig4(run: Run) -> Any:
    """Figure 4: primal objective and estimation error on designs with heavily correlated pairs."""
    d, k = run["d"], run["k"]

    def fit(n, l0, algorithm):
        lam = l0 / np.sqrt(n)
        rng = run.rng("w", d, 0)
        support = rng.choice(d, k, replace=False)
        outside = rng.choice(np.setdiff1d(np.arange(d), support), k // 2, replace=False)
        block = np.concatenate([rng.permutation(support)[: k // 2], outside])
        covariance = np.eye(d)
        # All pairs of the block equally correlated: eigenvalues 1 + (2 (k/2) - 1) rho and 1 - rho.
        rho = (run["kappa"] - 1) / (run["kappa"] - 1 + block.size)
        covariance[np.ix_(block, block)] = rho
        np.fill_diagonal(covariance, 1.0)
        w = np.zeros(d)
        w[support] = rng.standard_normal(k)
        X = run.rng("data", n).standard_normal((n, d)) @ np.linalg.cholesky(covariance).T
        y = X @ w + run["sigma"] * run.rng("noise", n).standard_normal(n)
        with jax.enable_x64(True):
            value, x = jax.device_get(_correlated_fit(X, y, lam, algorithm, k, run["max_steps"]))
        return {"objective": float(value), "error": float(np.linalg.norm(x - w))}

    cells = [{"n": n, "l0": l0, "algorithm": a} for n in run["ns"] for l0 in run["l0s"] for a in RIVALS]
    rows = {(r["n"], r["l0"], r["algorithm"]): r for r in run.map(fit, cells)}
    grid = list(itertools.product(run["ns"], run["l0s"]))
    wins = {}
    for measure in ("objective", "error"):
        best = [min(rows[n, l0, a][measure] for a in ("IHT", "HTP")) for n, l0 in grid]
        own = [rows[n, l0, "DIHT"][measure] for n, l0 in grid]
        wins[measure] = float(np.mean(np.array(own) <= np.array(best) * (1 + 1e-9)))
    really = [min(RIVALS, key=lambda a, c=(n, l0): rows[(*c, a)]["objective"]) for n, l0 in grid]
    run.claim(
        "a",
        "DIHT's objective and error are the lowest of DIHT, IHT and HTP in most cells",
        min(wins.values()) > 0.5,
        share_of_cells=wins,
        lowest_objective_of_all={a: really.count(a) for a in RIVALS},
    )
    figure, axes = panels(len(run["l0s"]), 2)
    for i, l0 in enumerate(run["l0s"]):
        for ax, measure in zip(axes[i], ("objective", "error"), strict=True):
            curves(ax, run["ns"], {a: [rows[n, l0, a][measure] for n in run["ns"]] for a in RIVALS})
            ax.set_title(f"l0 = {l0}", fontsize=10)
            ax.set_xlabel("samples N")
            ax.set_ylabel(measure)
    legend_below(figure, axes[0, 0])
    return figure


# --- Figures 5 to 10: hinge losses on text ---------------------------------------------------------------------------
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


def _falling(c):
    def schedule(t):
        return c * (t + 2.0) ** -0.5

    return schedule


SCALES = (0.3, 1.0, 3.0)
_FALLING = {c: _falling(c) for c in SCALES}


class TestError(AbstractTermination):
    """Stops once the share of wrong labels on test rows is at most `level`."""

    X: Any
    y: Any
    level: Any

    def init(self, state):
        return ()

    def __call__(self, memory, previous, state, info, t):
        error = jnp.mean(jnp.sign(self.X @ state.x) != self.y)
        return memory, jnp.where(error <= self.level, jnp.int32(FIRED.Complete), 0)


@functools.partial(jax.jit, static_argnames=("k", "steps"))
def _trace(X, y, l2, solver, loss, k, steps, termination=NEVER):
    model = LinearModel(X, y, loss, l2=l2)
    found = solve(model, Sparsity(k), solver, max_steps=steps, termination=termination, throw=False)
    return found.history, found.num_steps, found.x, found.fired


def _text(run: Run, name: str):
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

    def trace(data, k, l0, algorithm):
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
            history, taken, x, _ = jax.block_until_ready(_trace(*arguments))
            elapsed, taken = time.perf_counter() - start, int(taken)
            values = np.minimum.accumulate(np.asarray(history.value)[:taken])
            gaps = np.minimum.accumulate(np.where(np.isfinite(history.gap[:taken]), history.gap[:taken], np.inf))
            row = {
                "scale": scale,
                "time": elapsed,
                "values": values.tolist(),
                "gaps": gaps.tolist() if np.isfinite(gaps[-1]) else [],
                "epochs": (np.cumsum(np.asarray(history.ifo, float)[:taken]) / len(y)).tolist(),
                "test_error": float(np.mean(np.sign(X_test @ np.asarray(x)) != y_test)),
            }
            if best is None or row["values"][-1] < best["values"][-1]:
                best = row
        assert best is not None
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


def _problems(rows):
    keys = sorted({(r["data"], r["k"], r["l0"]) for r in rows})
    return {key: {r["algorithm"]: r for r in rows if (r["data"], r["k"], r["l0"]) == key} for key in keys}


def _loss_curves(run: Run, smooth: bool) -> Any:
    rows = _text_runs(run, smooth)
    first, second, times = [], [], {}
    for key, each in _problems(rows).items():
        level = max(min(r["values"]) for r in each.values()) * (1 + 1e-3)  # reached by all
        when = {a: _when(r, level) for a, r in each.items()}
        times[str(key)] = when
        first.append(min(when[a] for a in DUALS) <= min(t for a, t in when.items() if a not in DUALS))
        second.append(when["SDIHT"] <= when["DIHT"])
    run.claim("a", "DIHT or SDIHT reaches the common primal loss first, everywhere", all(first), seconds=times)
    run.claim("b", "SDIHT reaches it before DIHT, everywhere", all(second), share=float(np.mean(second)))
    problems = _problems(rows)
    figure, axes = panels(1, len(problems))
    for ax, (key, each) in zip(axes[0], problems.items(), strict=True):
        for name, row in each.items():
            ax.plot(np.linspace(0, row["time"], len(row["values"]) + 1)[1:], row["values"], label=name)
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

    def reach(data, k, l0, algorithm):
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
        times[str(key)] = when
        dual_first.append(min(when[a] for a in DUALS) <= min(t for a, t in when.items() if a not in DUALS))
        stochastic_first.append(when["SDIHT"] <= when["DIHT"])
    run.claim(
        "c",
        "DIHT or SDIHT reaches the test error (the slowest method's final one + 1 point) first, and SDIHT before DIHT",
        all(dual_first) and all(stochastic_first),
        test_errors={str(key): level for key, level in levels.items()},
        seconds=times,
    )
    figure, axes = panels(1, len(times))
    for ax, (key, when) in zip(axes[0], times.items(), strict=True):
        ax.bar(list(when), [t if np.isfinite(t) else 0 for t in when.values()])
        ax.set_title(key, fontsize=8)
        ax.set_ylabel("seconds")
    return figure


def _gap_curves(run: Run, smooth: bool) -> Any:
    rows = [row for row in _text_runs(run, smooth) if row["algorithm"] in DUALS]
    fewer, epochs = [], {}
    for key, each in _problems(rows).items():
        level = max(min(r["gaps"]) for r in each.values()) * 1.001
        need = {}
        for name, row in each.items():
            hit = np.flatnonzero(np.array(row["gaps"]) <= level)[0]
            need[name] = row["epochs"][hit]
        epochs[str(key)] = need
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
