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
from sparsehtp.steps import ConstantStep
from sparsehtp.thresholds import Sparsity

from .figures import curves, interval, legend_below, panels
from .run import Run
from .verdicts import NO_MARGIN, Decision, Ratio, Share, Undecided, all_of, at_least, most, moves, shown

GAP_IS_ZERO = 1e-6
DUAL = {"gap": "DIHT's dual value", "least": "the largest dual value"}


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
    return found.value, dual, largest.point.value, largest.upper


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


def _nonzeros(run: Run, rng: np.random.Generator, k: int) -> np.ndarray:
    """Those of w, of which the paper says nothing: "normal" or "signs"."""
    return rng.choice([-1.0, 1.0], k) if run["nonzeros"] == "signs" else rng.standard_normal(k)


def _sample(
    run: Run, n: int, d: int, k: int, sigma: float, covariance: np.ndarray | None = None, copy: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same k-sparse w for every sample size, noise level and covariance of a dimension and copy."""
    w = np.zeros(d)
    rng = run.rng("w", d, copy)
    w[rng.choice(d, k, replace=False)] = _nonzeros(run, rng, k)
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


def curve_names(run: Run, logs: dict[int, np.ndarray], axis: int, other: str, word: str) -> dict[str, list[np.ndarray]]:
    """Curves over the setting on an axis, by their name: the draws at each place."""
    return {
        f"d = {d}, {word} {value:g}": list(np.take(table, i, axis=1 - axis))
        for d, table in logs.items()
        for i, value in enumerate(run[other + "s"])
    }


def ends(curves: dict[str, list[np.ndarray]], sign: int) -> dict[str, Ratio]:
    """By how many times each curve rises (sign 1) or falls (-1) from its first place to its last."""
    return {name: Ratio(sign * np.log(10) * (draws[-1] - draws[0])) for name, draws in curves.items()}


def _spread(logs: dict[int, np.ndarray], values: list[float], word: str) -> dict[str, Ratio]:
    """The factor between the largest and the least gap of one copy over the second setting, at each of the first."""
    return {
        f"d = {d}, {word} {value:g}": Ratio(np.log(10) * np.ptp(lines, axis=0))
        for d, table in logs.items()
        for value, lines in zip(values, table, strict=True)
    }


def _medians(run: Run, logs: dict[int, np.ndarray]) -> dict[str, Any]:
    return {f"d = {d}": np.median(10.0**table, axis=-1) for d, table in logs.items()}


def fig1(run: Run) -> Any:
    """Figure 1: the gap against the ridge, for three sample sizes."""

    def optimal_gap(d: int, k: int, l0: float, share: float, copy: int) -> dict[str, Any]:
        n = round(share * d)
        X, y, _ = _sample(run, n, d, k, run["sigma"], copy=copy)
        return gap_of(X, y, l0 / np.sqrt(n), k, run["max_steps"])

    found = _logs(run, optimal_gap, "l0", "share")
    falling = {words: curve_names(run, found[kind], 0, "share", "N / d =") for kind, words in DUAL.items()}

    def zero(draws: np.ndarray) -> Decision:
        # "Sufficiently large" has no number: what is open at one lam may be closed at a larger one.
        hits = int(np.sum(draws <= np.log10(GAP_IS_ZERO)))
        return True if hits == draws.size else Undecided(f"{hits} of {draws.size} draws are at zero; a larger lam")

    run.claim(
        "a",
        "each curve falls as lam grows, and is zero from some lam on, in every draw",
        {
            words: all_of(*(each for draws in curves.values() for each in (moves(draws, -1), zero(draws[-1]))))
            for words, curves in falling.items()
        },
        draws=run["copies"],
        numbers={
            words: {f"falls by a factor, {at}": x for at, x in ends(c, -1).items()} for words, c in falling.items()
        },
        zero_at_the_largest_ridge={
            words: {
                at: shown(Share(int(np.sum(c[-1] <= np.log10(GAP_IS_ZERO))), c[-1].size)) for at, c in curves.items()
            }
            for words, curves in falling.items()
        },
        median_gaps=_medians(run, found["gap"]),
    )
    spread = _spread(found["gap"], run["l0s"], "lam sqrt(N) =")
    run.claim(
        "b",
        "the gap is insensitive to N",
        None,
        draws=run["copies"],
        numbers={f"factor between the three N, {at}": each for at, each in spread.items()},
        need=NO_MARGIN,
    )
    return _gap_figure(run, found["gap"], 0, "l0", "share")


def fig2(run: Run) -> Any:
    """Figure 2: the gap against the noise, N = d."""

    def optimal_gap(d: int, k: int, l0: float, sigma: float, copy: int) -> dict[str, Any]:
        X, y, _ = _sample(run, d, d, k, sigma, copy=copy)
        return gap_of(X, y, l0 / np.sqrt(d), k, run["max_steps"])

    found = _logs(run, optimal_gap, "l0", "sigma")
    rising = {words: curve_names(run, found[kind], 1, "l0", "lam sqrt(N) =") for kind, words in DUAL.items()}
    run.claim(
        "a",
        "each curve of fixed lam rises with sigma",
        {words: all_of(moves(draws) for draws in curves.values()) for words, curves in rising.items()},
        draws=run["copies"],
        numbers={words: {f"rises by a factor, {at}": x for at, x in ends(c, 1).items()} for words, c in rising.items()},
        median_gaps=_medians(run, found["gap"]),
    )
    falling = {words: curve_names(run, found[kind], 0, "sigma", "sigma =") for kind, words in DUAL.items()}
    run.claim(
        "b",
        f"at each sigma the gap falls as lam sqrt(N) grows from {run['l0s'][0]:g} to {run['l0s'][-1]:g}",
        {words: all_of(moves(draws, -1) for draws in curves.values()) for words, curves in falling.items()},
        draws=run["copies"],
        numbers={
            words: {f"falls by a factor, {at}": x for at, x in ends(c, -1).items()} for words, c in falling.items()
        },
    )
    return _gap_figure(run, found["gap"], 1, "l0", "sigma")


def fig3(run: Run) -> Any:
    """Figure 3: the gap that DIHT reaches against the condition number of the Hessian."""

    def optimal_gap(d: int, k: int, l0: float, kappa: float, copy: int) -> dict[str, Any]:
        lam = l0 / np.sqrt(d)
        X, y, _ = _sample(run, d, d, k, run["sigma"], _conditioned(run, d, kappa, lam), copy)
        return gap_of(X, y, lam, k, run["max_steps"])

    found = _logs(run, optimal_gap, "l0", "kappa")
    late = [i for i, kappa in enumerate(run["kappas"]) if 50 <= kappa <= 200]
    spread = _spread({d: table[:, late] for d, table in found["gap"].items()}, run["l0s"], "lam sqrt(N) =")
    run.claim(
        "a",
        "the gap is insensitive to kappa >= 50",
        None,
        draws=run["copies"],
        numbers={f"factor over kappa in [50, 200], {at}": each for at, each in spread.items()},
        need=NO_MARGIN,
    )
    return _gap_figure(run, found["gap"], 1, "l0", "kappa")


def _conditioned(run: Run, d: int, kappa: float, lam: float) -> np.ndarray:
    """The paper's footnote 3: Sigma = Sigma' + sigma I with condition number kappa of Sigma + lam I."""
    if kappa <= 1:
        return np.eye(d)
    rng = run.rng("covariance", d)
    basis, _ = np.linalg.qr(rng.standard_normal((d, d)))
    spectrum = np.sort(rng.random(d))
    spectrum = (spectrum - spectrum[0]) / (spectrum[-1] - spectrum[0]) * (2 * kappa - 1) * lam
    return (basis * spectrum) @ basis.T + lam * kappa / (kappa - 1) * np.eye(d)


WORDS = {"l0": "lam sqrt(N)", "share": "N / d", "sigma": "sigma", "kappa": "condition number"}


def _gap_figure(run: Run, logs: dict[int, np.ndarray], axis: int, first: str, second: str) -> Any:
    """Medians over copies, and quartiles, against the setting on `axis`: a line for each of the other."""
    along, across = ((first, second)[i] for i in (axis, 1 - axis))
    figure, axes = panels(1, len(run["sizes"]), 3.8, 3.1)
    for ax, (d, _) in zip(axes[0], run["sizes"], strict=True):
        for i, other in enumerate(run[across + "s"]):
            low, middle, high = 10 ** np.quantile(np.take(logs[d], i, axis=1 - axis), [0.25, 0.5, 0.75], axis=-1)
            label = {"label": f"{WORDS[across]} = {other:g}", "color": f"C{i}"}
            ax.plot(run[along + "s"], middle, marker="o", markersize=4, **label)
            ax.fill_between(run[along + "s"], low, high, color=f"C{i}", alpha=0.12, linewidth=0)
        ax.set(yscale="log", xlabel=WORDS[along], ylabel="gap (median and quartiles)")
        if along in ("l0", "sigma"):
            ax.set_xscale("log")
        ax.set_title(f"d = {d}", fontsize=10)
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize=8)
    return figure


# --- Figure 4: dual against primal on correlated designs -------------------------------------------------------------
CONSTANT = "1/L"  # a step of this size, in place of the normalised one


@program(static_argnames=("algorithm", "k", "max_steps"))
def _correlated_fit(X: Any, y: Any, l2: Any, algorithm: str, k: int, max_steps: int) -> tuple[Array, ...]:
    solver = {
        "DIHT": DIHT(),
        "DIHT refitted": DIHT(polish=True),
        "IHT": IHT(),
        "HTP": HTP(),
        f"IHT {CONSTANT}": IHT(ConstantStep()),
        f"HTP {CONSTANT}": HTP(ConstantStep()),
        "BestSubset": BestSubset(),
    }[algorithm]
    steps = max_steps if algorithm.startswith("DIHT") else None
    found = solve(LinearModel(X, y, l2=l2), Sparsity(k), solver, record=None, throw=False, max_steps=steps)
    return found.value, found.x, found.result, found.num_steps


def fig4(run: Run) -> Any:
    """Figure 4: primal objective and estimation error on designs with heavily correlated pairs."""
    d, k, rivals = run["d"], run["k"], run["rivals"]

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
        w[support] = _nonzeros(run, rng, k)
        X = run.rng("data", n, copy).standard_normal((n, d)) @ np.linalg.cholesky(covariance).T
        y = X @ w + run["sigma"] * run.rng("noise", n, copy).standard_normal(n)
        with jax.enable_x64(True):
            value, x, result, steps = jax.device_get(_correlated_fit(X, y, lam, algorithm, k, run["max_steps"]))
        error = float(np.linalg.norm(x - w))
        return {"objective": float(value), "error": error, "result": RESULTS(result).name, "steps": int(steps)}

    grid, copies = list(itertools.product(run["ns"], run["l0s"])), range(run["copies"])
    cells = [{"n": n, "l0": l0, "copy": c, "algorithm": a} for (n, l0), c, a in itertools.product(grid, copies, rivals)]
    rows = {(r["n"], r["l0"], r["copy"], r["algorithm"]): r for r in run.map(fit, cells)}

    def log(n: int, l0: float, algorithm: str, measure: str) -> np.ndarray:
        return np.log([rows[n, l0, c, algorithm][measure] for c in copies])

    measures = ("objective", "error")
    primal = {"IHT and HTP with normalised steps": ("IHT", "HTP")}
    if f"HTP {CONSTANT}" in rivals:
        primal["IHT and HTP with the step 1/L"] = (f"IHT {CONSTANT}", f"HTP {CONSTANT}")
    own = [a for a in ("DIHT", "DIHT refitted") if a in rivals]

    def leads(own: str, others: tuple[str, ...]) -> dict[str, Ratio]:
        """Of each cell: the better primal method's outcome over DIHT's."""
        return {
            f"{m}, N = {n}, lam sqrt(N) = {l0:g}": Ratio(
                np.min([log(n, l0, a, m) for a in others], axis=0) - log(n, l0, own, m)
            )
            for m in measures
            for n, l0 in grid
        }

    found = {f"{a} against {words}": leads(a, others) for a in own for words, others in primal.items()}
    really = [
        min(rivals, key=lambda a: rows[n, l0, c, a]["objective"]) for (n, l0), c in itertools.product(grid, copies)
    ]
    run.claim(
        "a",
        "DIHT's objective and error are lower than those of IHT and HTP, in most cells",
        {reading: most([at_least(each) for each in cells.values()]) for reading, cells in found.items()},
        draws=run["copies"],
        numbers={
            reading: {f"times DIHT's, {at}": each for at, each in cells.items()} for reading, cells in found.items()
        },
        compared={a: [log(n, l0, a, m) for m in measures for n, l0 in grid] for a in ("DIHT", "IHT", "HTP")},
        lowest_objective_of_all={a: really.count(a) for a in rivals},
    )
    figure, axes = panels(len(run["l0s"]), 2)
    for i, l0 in enumerate(run["l0s"]):
        for ax, measure in zip(axes[i], ("objective", "error"), strict=True):
            draws = {a: np.array([log(n, l0, a, measure) for n in run["ns"]]) for a in rivals}
            bands = {a: np.exp(interval(each)) for a, each in draws.items()}
            curves(ax, run["ns"], {a: np.exp(each.mean(axis=1)) for a, each in draws.items()}, bands)
            ax.set_title(f"lam sqrt(N) = {l0:g}", fontsize=10)
            ax.set_xlabel("samples N")
            ax.set_ylabel({"objective": "objective P", "error": "error of w"}[measure])
    legend_below(figure, axes[0, 0])
    return figure
