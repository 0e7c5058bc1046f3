"""The convergence theorems of [GraHTP]: their contraction factors, and their bounds on problems in their conditions."""

from typing import Any, NamedTuple

import jax
import numpy as np

from sparsehtp._solve import solve
from sparsehtp.iteration.termination import DualGap
from sparsehtp.objectives import LinearModel
from sparsehtp.solvers import HTP, IHT
from sparsehtp.steps import ConstantStep
from sparsehtp.thresholds import Sparsity

from .figures import STYLE, panels
from .run import Run
from .verdicts import Exact, Share, all_of


def theorem2(condition: Any) -> tuple[np.ndarray, np.ndarray]:
    """The factors (mu_1, mu_2) of GraHTP and FGraHTP for M/m, with the step m/M^2, which makes rho least."""
    rho = np.sqrt(1 - 1 / np.asarray(condition, float) ** 2)
    return rho / (1 - rho), 1.62 * rho


def theorem5(condition: Any, ratio: Any) -> tuple[np.ndarray, np.ndarray]:
    """The same of Theorem 5, with steps 1/(2M) and m/M^2; `ratio` is the target's sparsity over k."""
    condition = np.asarray(condition, float)
    return 1 - 1 / (8 * condition), np.sqrt(hard_threshold_bound(ratio) * (1 - 1 / condition**2))


def hard_threshold_bound(rho: Any) -> Any:
    """nu in ||H_k(b) - x||^2 <= nu ||b - x||^2 for every K-sparse x, which is attained: [Tight] Theorem 1.

    Args:
        rho: m / (k - K + m) with m = min(K, p - k): K / k where at least K entries are dropped.
    """
    return 1 + (rho + np.sqrt((4 + rho) * rho)) / 2


def relaxed(condition: Any) -> Any:
    """The least k over the target's sparsity for which Theorem 5(a) holds with the step 1/(2M)."""
    return 2 + 16 * np.asarray(condition, float) ** 2


class Theorem(NamedTuple):
    """One part of a theorem.

    Attributes:
        solver: GraHTP or FGraHTP.
        step: times M.
        target: nonzeros of the target.
        k: sparsity level.
        bound: (steps, start, gradient, M, m, k) -> bound of the error after so many steps; `start` is the first error
            or, for 5(a), the first excess of f, and `gradient` the largest entry of grad f at the target.
        by_value: whether `start` is the excess of f.
    """

    solver: Any
    step: float
    target: int
    k: int
    bound: Any
    by_value: bool = False


def theorem(part: str, condition: float) -> Theorem:
    """A part of Theorem 2 or 5 with the least k that it allows."""
    rho = np.sqrt(1 - 1 / condition**2)
    if part == "2a":
        mu = rho / (1 - rho)
        return Theorem(
            HTP, 1 / condition, 4, 4, lambda t, e, g, M, m, k: mu**t * e + 2.83 * m / M**2 * k**0.5 * g / (1 - 2 * rho)
        )
    if part == "2b":
        mu = 1.62 * rho
        return Theorem(
            IHT, 1 / condition, 4, 4, lambda t, e, g, M, m, k: mu**t * e + 2.81 * m / M**2 * k**0.5 * g / (1 - mu)
        )
    if part == "5a":
        mu = 1 - 1 / (8 * condition)
        k = int(np.ceil(relaxed(condition)))
        return Theorem(
            HTP, 0.5, 1, k, lambda t, e, g, M, m, k: (2 * mu**t * e / m) ** 0.5 + 2.83 * k**0.5 * g / m, True
        )
    target = 2
    k = int(np.floor(rho * target / (1 - rho) ** 2)) + 1
    mu = float(theorem5(condition, target / k)[1])
    gamma = mu / rho
    return Theorem(
        IHT,
        1 / condition,
        target,
        max(k, target),
        lambda t, e, g, M, m, k: mu**t * e + gamma * m / M**2 * (2 * k + target) ** 0.5 * g / (1 - mu),
    )


def fig1(run: Run) -> Any:
    """Figure 1: the contraction factors of Theorems 2 and 5, and their bounds beside what the algorithms do."""

    def bounded(part: str, condition: float) -> dict[str, Any]:
        outcomes = [_ratios(run, part, condition, copy) for copy in range(run["copies"])]
        return {"ratios": np.max(outcomes, axis=1)}

    cells = [{"part": part, "condition": c} for part in run["conditions"] for c in run["conditions"][part]]
    with jax.enable_x64(True):
        rows = run.map(bounded, cells)
    _claim_curves(run)
    for letter, part in zip("cdef", run["conditions"], strict=True):
        ratios = np.concatenate([row["ratios"] for row in rows if row["part"] == part])
        name = "GraHTP" if part.endswith("a") else "FGraHTP"
        run.claim(
            letter,
            f"Theorem {part[0]}({part[1]}): the error of {name} is within the bound at every one of {run['steps']} "
            "steps, in every problem in its conditions",
            bool(np.all(ratios <= 1 + 1e-9)),
            draws=ratios.size,
            numbers={"share of problems beyond it": Share(float(np.sum(ratios > 1 + 1e-9)), ratios.size)},
            largest_error_over_bound=ratios.max(),
        )

    figure, axes = panels(1, 3)
    first, second = np.linspace(1, 1.25, 200), np.linspace(1, 2, 200)
    curves = ((first, theorem2(first)), (second, theorem5(second, 1 / relaxed(second))))
    for ax, (conditions, factors), title in zip(axes[0], curves, ("Theorem 2", "Theorem 5"), strict=False):
        for name, factor in zip(("GraHTP", "FGraHTP"), factors, strict=True):
            ax.plot(conditions, factor, color=STYLE[name][0], label=name)
        ax.axhline(1, color="black", linewidth=0.8)
        ax.set_ylim(0, 1.1)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("M / m")
        ax.set_ylabel("contraction factor")
    axes[0, 0].legend(frameon=False)
    names = list(run["conditions"])
    for place, part in enumerate(names):
        ratios = np.concatenate([row["ratios"] for row in rows if row["part"] == part])
        axes[0, 2].plot(place + np.linspace(-0.3, 0.3, ratios.size), np.sort(ratios), ".", color=STYLE["GraHTP"][0])
    axes[0, 2].axhline(1, color="black", linewidth=0.8)
    axes[0, 2].set_xticks(range(len(names)), [f"{part[0]}({part[1]})" for part in names])
    axes[0, 2].set_xlabel("theorem")
    axes[0, 2].set_ylabel("largest error / bound")
    return figure


def _claim_curves(run: Run) -> None:
    grid = np.linspace(1, 1.26, 10_000, endpoint=False)[1:]
    first, second = theorem2(grid)
    below = first < second
    run.claim(
        "a",
        "Theorem 2: GraHTP's factor is the smaller one up to some M/m, and the larger one from there",
        bool(below[0] and not below[-1] and np.sum(np.diff(below)) == 1),
        draws=None,
        numbers={"they cross at M/m =": Exact(float(grid[np.argmin(below)]))},
    )
    wide = np.linspace(1, 4, 10_000)
    slow, fast = theorem5(wide, 1 / relaxed(wide))
    gamma = np.sqrt(hard_threshold_bound(1 / relaxed(wide)))
    fasts = {"FGraHTP's step m/M^2": fast, "FGraHTP's step 1/(2M)": gamma * np.sqrt(1.25 - 1 / wide)}
    better = {step: fast < slow for step, fast in fasts.items()}
    run.claim(
        "b",
        "Theorem 5, both with the k of part (a): FGraHTP's factor is the smaller one up to some M/m; GraHTP's is above "
        "0.87 everywhere, FGraHTP's above 0.65",
        {
            step: all_of(
                each[0] and not each[-1] and np.sum(np.diff(each)) == 1, slow.min() > 0.87, fasts[step].min() > 0.65
            )
            for step, each in better.items()
        },
        draws=None,
        numbers={
            step: {
                "they cross at M/m =": Exact(float(wide[np.argmin(each)])),
                "FGraHTP's least factor": Exact(float(fasts[step].min())),
            }
            for step, each in better.items()
        },
        least_factor_of_GraHTP=slow.min(),
    )


def _ratios(run: Run, part: str, condition: float, copy: int) -> list[float]:
    """The error over its bound after 1, 2, ... steps on a random problem with eigenvalues from 1 to `condition`."""
    rng, p = run.rng("problem", part, condition, copy), run["p"]
    here = theorem(part, condition)
    basis = np.linalg.qr(rng.standard_normal((p, p)))[0]
    X = np.sqrt(p) * (np.sqrt(np.linspace(1, condition, p))[:, None] * basis.T)  # X'X/p has these eigenvalues
    target = np.zeros(p)
    target[rng.choice(p, here.target, replace=False)] = rng.choice([-1, 1], here.target)
    noise = run["noise"] * rng.standard_normal(p)
    y = X @ target + noise
    gradient = float(np.abs(X.T @ noise).max()) / p
    excess = max((y @ y - noise @ noise) / (2 * p), 0)
    start = excess if here.by_value else np.linalg.norm(target)
    objective, solver = LinearModel(X, y), here.solver(ConstantStep(here.step / condition))
    x, ratios = np.zeros(p), []
    for t in range(1, run["steps"] + 1):
        ending: dict[str, Any] = {"max_steps": 1, "termination": DualGap(0.0), "record": None, "throw": False}
        x = np.asarray(solve(objective, Sparsity(here.k), solver, x0=x, **ending).x)
        bound = here.bound(t, start, gradient, condition, 1.0, here.k)
        ratios.append(float(np.linalg.norm(x - target) / bound))
    return ratios
