"""The simulations of [DIHT]: the duality gap of sparse ridge regression, and dual against primal hard thresholding."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sparsehtp._programs import program
from sparsehtp._solve import solve
from sparsehtp.duality import dual_of, relax
from sparsehtp.iteration.results import RESULTS
from sparsehtp.objectives import LinearModel
from sparsehtp.solvers import DIHT, HTP, IHT, BestSubset
from sparsehtp.thresholds import Sparsity

from .figures import curves, legend_below, panels
from .run import Run
from .verdicts import Decision, Mean, Share, at_least, at_most, both, every, most, shown

GAP_IS_ZERO = 1e-6
ROUNDING = 1e-9


# --- Figures 1 to 3: the optimal gap ---------------------------------------------------------------------------------
def exhaustive(X: np.ndarray, y: np.ndarray, l2: float, k: int) -> float:
    """The least (1/2N) ||y - X w||^2 + (l2/2) ||w||^2 over all supports of k features, from the normal equations."""
    n, p = X.shape
    supports = np.array(list(itertools.combinations(range(p), k)))
    gram, rhs = X.T @ X / n + l2 * np.eye(p), X.T @ y / n
    best = 0.0
    for part in np.array_split(supports, max(len(supports) // 10_000, 1)):
        A, b = gram[part[:, :, None], part[:, None, :]], rhs[part]
        best = max(best, float(np.max(np.sum(b * np.linalg.solve(A, b[..., None])[..., 0], axis=1))))
    return 0.5 * (float(y @ y) / n - best)


@program(static_argnames=("k", "max_steps"))
def _converged(X: Any, y: Any, l2: Any, k: int, max_steps: int) -> tuple[Array, ...]:
    """DIHT's primal and dual value, and the bounds on the largest dual from its convex form."""
    model, structure = LinearModel(X, y, l2=l2), Sparsity(k)
    found = solve(model, structure, DIHT(), throw=False, max_steps=max_steps)
    taken = jnp.arange(max_steps) < found.num_steps
    assert found.history is not None  # it is recorded
    dual = jnp.max(jnp.where(taken, found.history.value - found.history.gap, 0))  # D(0) = 0
    largest = relax(dual_of(model, structure), 1e-9, max_steps=max_steps)
    return found.value, dual, largest.lower, largest.upper


def gap_of(X: np.ndarray, y: np.ndarray, l2: float, k: int, max_steps: int = 20_000) -> dict[str, float]:
    """The gap as the paper has it: primal optimum less DIHT's dual; DIHT's primal where supports are too many to list.

    `least` is the same with the largest dual, from the convex form.
    """
    with jax.enable_x64(True):
        primal, dual, lower, upper = map(float, _converged(jnp.asarray(X), jnp.asarray(y), l2, k, max_steps))
    if X.shape[1] <= 30:
        primal = exhaustive(X, y, l2, k)
    return {
        "primal": primal,
        "dual": dual,
        "dual_at_most": upper,
        "gap": max(primal - dual, 0.0),
        "least": max(primal - lower, 0.0),
    }


def _sample(
    run: Run, n: int, d: int, k: int, sigma: float, covariance: np.ndarray | None = None, copy: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same k-sparse w for every sample size, noise level and covariance of a dimension and copy."""
    w = np.zeros(d)
    rng = run.rng("w", d, copy)
    w[rng.choice(d, k, replace=False)] = rng.standard_normal(k)
    rng = run.rng("data", d, n, copy)
    X = rng.standard_normal((n, d))
    if covariance is not None:
        X = X @ np.linalg.cholesky(covariance + 1e-12 * np.eye(d)).T
    return X, X @ w + sigma * rng.standard_normal(n), w


def _logs(run: Run, function: Any, first: str, second: str) -> dict[str, dict[int, np.ndarray]]:
    """Kind of gap -> d -> its log10, floored as in the paper: (`first` setting, `second` setting, copies)."""
    axes, copies = [run[first + "s"], run[second + "s"]], range(run["copies"])
    cells = [
        {"d": d, "k": k, first: a, second: b, "copy": copy}
        for d, k in run["sizes"]
        for a, b, copy in itertools.product(*axes, copies)
    ]
    rows, shape = run.map(function, cells), (len(run["sizes"]), len(axes[0]), len(axes[1]), len(copies))
    return {
        kind: {
            d: table
            for (d, _), table in zip(
                run["sizes"],
                np.log10(np.maximum([r[kind] for r in rows], GAP_IS_ZERO)).reshape(shape),
                strict=True,
            )
        }
        for kind in ("gap", "least")
    }


def monotone(logs: dict[int, np.ndarray], axis: int, sign: int) -> Decision:
    """Whether the mean log gap rises (sign 1) or falls (-1) from each value of a setting to the next, for every d."""
    steps = [sign * np.diff(table, axis=axis).reshape(-1, table.shape[-1]) for table in logs.values()]
    # Where all copies are at the floor, nothing rises or falls.
    return every([Mean(draws) for table in steps for draws in table], -ROUNDING)


def insensitive(logs: dict[int, np.ndarray], factor: float) -> list[Decision]:
    """For each d and first setting, whether the gaps of one copy differ by less than a factor over the second."""
    return [at_most(Mean(np.ptp(lines, axis=0)), np.log10(factor)) for table in logs.values() for lines in table]


def _medians(run: Run, logs: dict[int, np.ndarray]) -> dict[str, Any]:
    return {f"d = {d}": np.median(10.0**table, axis=-1) for d, table in logs.items()}


def fig1(run: Run) -> Any:
    """Figure 1: the gap against the ridge, for three sample sizes."""

    def optimal_gap(d: int, k: int, l0: float, share: float, copy: int) -> dict[str, Any]:
        n = round(share * d)
        X, y, _ = _sample(run, n, d, k, run["sigma"], copy=copy)
        return gap_of(X, y, l0 / np.sqrt(n), k, run["max_steps"])

    found = _logs(run, optimal_gap, "l0", "share")
    logs = found["gap"]
    zero = {
        f"d = {d}, N = {share} d": Share(int(np.sum(table[-1, i] <= np.log10(GAP_IS_ZERO))), run["copies"])
        for d, table in logs.items()
        for i, share in enumerate(run["shares"])
    }
    run.claim(
        "a",
        f"the mean log gap falls from each ridge to the next, and the gap is zero (at most {GAP_IS_ZERO:.0e}) at "
        f"lam sqrt(N) = {run['l0s'][-1]} in at least half the draws",
        both(monotone(logs, 0, -1), every(zero.values(), 0.5)),
        zero_at_the_largest_ridge={where: shown(share) for where, share in zero.items()},
        with_the_largest_dual={
            f"d = {d}": float(np.mean(table[-1] <= np.log10(GAP_IS_ZERO))) for d, table in found["least"].items()
        },
        median_gaps=_medians(run, logs),
    )
    run.claim(
        "b",
        "the gaps for different N differ by less than a factor of 10 in the mean of the logs, at most ridges",
        most(insensitive(logs, 10)),
        mean_log10_factors={f"d = {d}": np.ptp(table, axis=1).mean(-1) for d, table in logs.items()},
    )
    return _gap_figure(run, found, 0, "l0", "share", "lam sqrt(N)")


def fig2(run: Run) -> Any:
    """Figure 2: the gap against the noise, N = d."""

    def optimal_gap(d: int, k: int, l0: float, sigma: float, copy: int) -> dict[str, Any]:
        X, y, _ = _sample(run, d, d, k, sigma, copy=copy)
        return gap_of(X, y, l0 / np.sqrt(d), k, run["max_steps"])

    found = _logs(run, optimal_gap, "l0", "sigma")
    logs = found["gap"]
    run.claim("a", "the mean log gap rises from each noise level to the next, at every ridge", monotone(logs, 1, 1),
              median_gaps=_medians(run, logs))  # fmt: skip
    by_sigma = {s: monotone({d: t[:, [i]] for d, t in logs.items()}, 0, -1) for i, s in enumerate(run["sigmas"])}
    run.claim(
        "b",
        "the mean log gap falls as lam grows, at every sigma",
        both(*by_sigma.values()),
        rises_at_sigma=[s for s, falls in by_sigma.items() if falls is False],
        with_the_largest_dual=str(monotone(found["least"], 0, -1)),
    )
    return _gap_figure(run, found, 1, "l0", "sigma", "noise sigma")


def fig3(run: Run) -> Any:
    """Figure 3: the gap that DIHT reaches against the condition number of the Hessian."""

    def optimal_gap(d: int, k: int, l0: float, kappa: float, copy: int) -> dict[str, Any]:
        lam = l0 / np.sqrt(d)
        X, y, _ = _sample(run, d, d, k, run["sigma"], _conditioned(run, d, kappa, lam), copy)
        return gap_of(X, y, lam, k, run["max_steps"])

    found = _logs(run, optimal_gap, "l0", "kappa")
    late = [i for i, kappa in enumerate(run["kappas"]) if 50 <= kappa <= 200]
    cut = {kind: {d: table[:, late] for d, table in logs.items()} for kind, logs in found.items()}
    run.claim(
        "a",
        "over kappa in [50, 200] the gap changes by less than a factor of 3 in the mean of the logs, at most ridges",
        most(insensitive(cut["gap"], 3)),
        mean_log10_factors={f"d = {d}": np.ptp(table, axis=1).mean(-1) for d, table in cut["gap"].items()},
        with_the_largest_dual={f"d = {d}": np.ptp(table, axis=1).mean(-1) for d, table in cut["least"].items()},
    )
    return _gap_figure(run, found, 1, "l0", "kappa", "condition number")


def _conditioned(run: Run, d: int, kappa: float, lam: float) -> np.ndarray:
    """The paper's footnote 3: Sigma = Sigma' + sigma I with condition number kappa of Sigma + lam I."""
    if kappa <= 1:
        return np.eye(d)
    rng = run.rng("covariance", d)
    basis, _ = np.linalg.qr(rng.standard_normal((d, d)))
    spectrum = np.sort(rng.random(d))
    spectrum = (spectrum - spectrum[0]) / (spectrum[-1] - spectrum[0]) * (2 * kappa - 1) * lam
    return (basis * spectrum) @ basis.T + lam * kappa / (kappa - 1) * np.eye(d)


def _gap_figure(run: Run, found: dict[str, Any], axis: int, first: str, second: str, label: str) -> Any:
    """Medians over copies against the setting on `axis`, a line for each of the other; dashed: the largest dual."""
    xs, others = (run[(first, second)[i] + "s"] for i in (axis, 1 - axis))
    figure, axes = panels(1, len(run["sizes"]))
    for ax, (d, _) in zip(axes[0], run["sizes"], strict=True):
        for kind, style in (("gap", "-"), ("least", ":")):
            for i, other in enumerate(others):
                ys = 10 ** np.median(np.take(found[kind][d], i, axis=1 - axis), axis=-1)
                name = f"{(first, second)[1 - axis]} = {other}" if kind == "gap" else None
                ax.plot(xs, ys, style, color=f"C{i}", marker="o", markersize=4, label=name)
        ax.set_yscale("log")
        ax.set_xlabel(label)
        ax.set_ylabel("gap (dotted: with the largest dual)")
        ax.set_title(f"d = {d}", fontsize=10)
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize=8)
    return figure


# --- Figure 4: dual against primal on correlated designs -------------------------------------------------------------
RIVALS = ("DIHT", "DIHT refitted", "IHT", "HTP", "BestSubset")


@program(static_argnames=("algorithm", "k", "max_steps"))
def _correlated_fit(X: Any, y: Any, l2: Any, algorithm: str, k: int, max_steps: int) -> tuple[Array, ...]:
    solver = {
        "DIHT": DIHT(),
        "DIHT refitted": DIHT(polish=True),
        "IHT": IHT(),
        "HTP": HTP(),
        "BestSubset": BestSubset(),
    }[algorithm]
    steps = max_steps if algorithm.startswith("DIHT") else None
    found = solve(LinearModel(X, y, l2=l2), Sparsity(k), solver, record=None, throw=False, max_steps=steps)
    return found.value, found.x, found.result, found.num_steps


def fig4(run: Run) -> Any:
    """Figure 4: primal objective and estimation error on designs with heavily correlated pairs."""
    d, k = run["d"], run["k"]

    def fit(n: int, l0: float, copy: int, algorithm: str) -> dict[str, Any]:
        lam = l0 / np.sqrt(n)
        rng = run.rng("w", d, copy)
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
        X = run.rng("data", n, copy).standard_normal((n, d)) @ np.linalg.cholesky(covariance).T
        y = X @ w + run["sigma"] * run.rng("noise", n, copy).standard_normal(n)
        with jax.enable_x64(True):
            value, x, result, steps = jax.device_get(_correlated_fit(X, y, lam, algorithm, k, run["max_steps"]))
        error = float(np.linalg.norm(x - w))
        return {"objective": float(value), "error": error, "result": RESULTS(result).name, "steps": int(steps)}

    grid, copies = list(itertools.product(run["ns"], run["l0s"])), range(run["copies"])
    cells = [{"n": n, "l0": l0, "copy": c, "algorithm": a} for (n, l0), c, a in itertools.product(grid, copies, RIVALS)]
    rows = {(r["n"], r["l0"], r["copy"], r["algorithm"]): r for r in run.map(fit, cells)}

    def log(n: int, l0: float, algorithm: str, measure: str) -> np.ndarray:
        return np.log([rows[n, l0, c, algorithm][measure] for c in copies])

    def leads(own: str, measure: str) -> list[Mean]:
        """Of each cell: the log ratio of the better primal method's outcome to DIHT's."""
        primal = [np.minimum(*(log(n, l0, a, measure) for a in ("IHT", "HTP"))) for n, l0 in grid]
        return [Mean(best - log(n, l0, own, measure)) for best, (n, l0) in zip(primal, grid, strict=True)]

    measures = ("objective", "error")
    found = {own: {m: leads(own, m) for m in measures} for own in ("DIHT", "DIHT refitted")}
    ratios = {own: {m: [shown(one) for one in each] for m, each in by.items()} for own, by in found.items()}
    really = [
        min(RIVALS, key=lambda a: rows[n, l0, c, a]["objective"]) for (n, l0), c in itertools.product(grid, copies)
    ]
    run.claim(
        "a",
        "DIHT's objective and error are lower than the better of IHT and HTP in the mean, in most cells",
        both(*(most(at_least(one) for one in found["DIHT"][m]) for m in measures)),
        compared={a: [log(n, l0, a, m) for m in measures for n, l0 in grid] for a in ("DIHT", "IHT", "HTP")},
        mean_log_ratios=ratios,
        refitted=str(both(*(most(at_least(one) for one in found["DIHT refitted"][m]) for m in measures))),
        lowest_objective_of_all={a: really.count(a) for a in RIVALS},
    )
    figure, axes = panels(len(run["l0s"]), 2)
    for i, l0 in enumerate(run["l0s"]):
        for ax, measure in zip(axes[i], ("objective", "error"), strict=True):
            curves(ax, run["ns"], {a: [np.exp(log(n, l0, a, measure).mean()) for n in run["ns"]] for a in RIVALS})
            ax.set_title(f"l0 = {l0}", fontsize=10)
            ax.set_xlabel("samples N")
            ax.set_ylabel(measure)
    legend_below(figure, axes[0, 0])
    return figure
