"""The simulations of [DIHT]: the duality gap of sparse ridge regression, and dual against primal hard thresholding."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._programs import program
from .._solve import solve
from ..duality import dual_of, relax
from ..objectives import LinearModel
from ..solvers import DIHT, HTP, IHT, BestSubset
from ..thresholds import Sparsity
from .figures import curves, legend_below, panels
from .run import Run

GAP_IS_ZERO = 1e-6


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


@program(static_argnames="k")
def _largest_dual(X: Any, y: Any, l2: Any, k: int) -> tuple[Array, Array]:
    found = relax(dual_of(LinearModel(X, y, l2=l2), Sparsity(k)), 1e-9, max_steps=20000)
    return found.lower, found.upper


@program(static_argnames="k")
def _best_subset(X: Any, y: Any, l2: Any, k: int) -> Array:
    return solve(LinearModel(X, y, l2=l2), Sparsity(k), BestSubset(), record=None, throw=False).value


def gap_of(X: np.ndarray, y: np.ndarray, l2: float, k: int) -> dict[str, float]:
    """The optimal primal-dual gap: the exhaustive optimum up to 200,000 supports, else the best that swaps find."""
    p = X.shape[1]
    with jax.enable_x64(True):
        lower, upper = map(float, _largest_dual(jnp.asarray(X), jnp.asarray(y), l2, k))
        if p <= 30:
            primal = exhaustive(X, y, l2, k)
        else:
            primal = float(_best_subset(jnp.asarray(X), jnp.asarray(y), l2, k))
    return {"primal": primal, "dual": lower, "dual_at_most": upper, "gap": max(primal - lower, 0.0)}


def _sample(
    run: Run, n: int, d: int, k: int, sigma: float, covariance: np.ndarray | None = None, copy: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same k-sparse w for every sample size, noise level and covariance of a dimension."""
    w = np.zeros(d)
    rng = run.rng("w", d, copy)
    w[rng.choice(d, k, replace=False)] = rng.standard_normal(k)
    rng = run.rng("data", d, n, copy)
    X = rng.standard_normal((n, d))
    if covariance is not None:
        X = X @ np.linalg.cholesky(covariance + 1e-12 * np.eye(d)).T
    return X, X @ w + sigma * rng.standard_normal(n), w


def _sizes(run: Run) -> list[tuple[int, int]]:
    return [tuple(size) for size in run["sizes"]]


def fig1(run: Run) -> Any:
    """Figure 1: the optimal gap against the ridge, for three sample sizes."""

    def optimal_gap(d: int, k: int, share: float, l0: float) -> dict[str, Any]:
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

    def optimal_gap(d: int, k: int, sigma: float, l0: float) -> dict[str, Any]:
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

    def optimal_gap(d: int, k: int, kappa: float, l0: float) -> dict[str, Any]:
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


def _conditioned(run: Run, d: int, kappa: float, lam: float) -> np.ndarray:
    """The paper's footnote 3: Sigma = Sigma' + sigma I with condition number kappa of Sigma + lam I."""
    if kappa <= 1:
        return np.eye(d)
    rng = run.rng("covariance", d)
    basis, _ = np.linalg.qr(rng.standard_normal((d, d)))
    spectrum = np.sort(rng.random(d))
    spectrum = (spectrum - spectrum[0]) / (spectrum[-1] - spectrum[0]) * (2 * kappa - 1) * lam
    return (basis * spectrum) @ basis.T + lam * kappa / (kappa - 1) * np.eye(d)


def _gap_figure(run: Run, series: dict[int, dict[str, list[float]]], xs: Any, label: str) -> Any:
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


@program(static_argnames=("algorithm", "k", "max_steps"))
def _correlated_fit(X: Any, y: Any, l2: Any, algorithm: str, k: int, max_steps: int) -> tuple[Array, Array]:
    solver = {"DIHT": DIHT(), "IHT": IHT(), "HTP": HTP(), "BestSubset": BestSubset()}[algorithm]
    steps = max_steps if algorithm == "DIHT" else None
    found = solve(LinearModel(X, y, l2=l2), Sparsity(k), solver, record=None, throw=False, max_steps=steps)
    return found.value, found.x


def fig4(run: Run) -> Any:
    """Figure 4: primal objective and estimation error on designs with heavily correlated pairs."""
    d, k = run["d"], run["k"]

    def fit(n: int, l0: float, algorithm: str) -> dict[str, Any]:
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
    really = [min((rows[n, l0, a]["objective"], i, a) for i, a in enumerate(RIVALS))[2] for n, l0 in grid]
    run.claim(
        "a",
        "DIHT's objective and error are the lowest of DIHT, IHT and HTP in most cells",
        min(wins.values()) > 0.5,
        compared={a: [rows[n, l0, a][m] for m in wins for n, l0 in grid] for a in ("DIHT", "IHT", "HTP")},
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
