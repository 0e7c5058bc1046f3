"""The experiments of [Tight]: compressed sensing by hard thresholding."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import linregress

from .._solve import solve
from .._termination import SmallStep
from ..objectives import LinearModel
from ..solvers import IHT
from ..steps import ConstantStep
from ..thresholds import Sparsity
from .figures import STYLE, panels
from .run import Run

BATCH = ("IHT", "PGD")
EXPANSION = 9  # k = 9 K for PGD and HT-SVRG


@functools.partial(jax.jit, static_argnames=("max_steps",))
def recovered(A, signals, k, step_size, max_steps):
    """Which signals, (signals, d), are found from A x to 1e-3 by x <- H_k(x - step_size A'(A x - y)) from zero.

    A may have rows of zeros at its end, so that one program serves every number of measurements.
    """
    rows, d = A.shape
    # F is a mean over the rows, the paper's objective is a sum.
    solver = IHT(ConstantStep(rows * step_size))

    def one(signal):
        objective = LinearModel(A, A @ signal)
        solution = solve(
            objective,
            Sparsity(k, k_max=d),
            solver,
            record=None,
            throw=False,
            termination=SmallStep(3e-7),
            max_steps=max_steps,
        )
        return jnp.linalg.norm(solution.x - signal) < 1e-3

    return jax.vmap(one)(signals)


def measure(run: Run, n: int, K: int, algorithm: str) -> float:
    """The share of successes of one algorithm at n measurements of K-sparse signals."""
    d, signals = run["d"], run["signals"]
    A = np.zeros((d, d), np.float32)
    # The signals of every K share the matrix, and those of every n share the signals.
    A[:n] = run.rng("matrix", n).standard_normal((n, d), np.float32) / np.sqrt(n)
    rng = run.rng("signals", K)
    x = np.zeros((signals, d), np.float32)
    for row in x:
        row[rng.choice(d, K, replace=False)] = rng.standard_normal(K, np.float32)
    k, step = (K, 1.0) if algorithm == "IHT" else (min(EXPANSION * K, d), 2 / np.linalg.norm(A, 2) ** 2)
    steps = run["stages"] * 7  # what HT-SVRG's stages cost: 2 m / n + 1 = 7 full gradients each
    return float(np.mean(recovered(jnp.asarray(A), jnp.asarray(x), k, jnp.float32(step), max_steps=steps)))


def fig1(run: Run) -> Any:
    """Figure 1: success of recovery against measurements and sparsity."""
    ns, Ks = run["ns"], run["Ks"]

    def success_rate(n, K, algorithm):
        return {"success": measure(run, n, K, algorithm)}

    rows = run.map(
        success_rate,
        [{"n": n, "K": K, "algorithm": a} for a in BATCH for n in ns for K in Ks],
    )
    success = {a: np.array([r["success"] for r in rows if r["algorithm"] == a]).reshape(len(ns), len(Ks)) for a in BATCH}
    cells = {a: int((s >= 0.5).sum()) for a, s in success.items()}
    run.claim(
        "a",
        "PGD and HT-SVRG succeed on more cells than IHT (half of the signals or more)",
        False if cells["PGD"] <= cells["IHT"] else None,
        cells=cells,
        PGD_alone=cells["PGD"] > cells["IHT"],
        HT_SVRG="no solver yet",
    )
    run.claim("b", "the diagrams of HT-SVRG and PGD differ by less than 5% of the cells", None, HT_SVRG="no solver yet")
    figure, axes = panels(1, len(BATCH), 3.6, 3.4)
    for ax, (name, s) in zip(axes[0], success.items(), strict=True):
        image = ax.pcolormesh(ns, Ks, 100 * s.T, vmin=0, vmax=100, cmap="viridis", shading="nearest")
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("measurements n")
        ax.set_ylabel("nonzeros K")
    figure.colorbar(image, ax=axes[0].tolist(), label="success (%)")
    return figure


def fig3(run: Run) -> Any:
    """Figure 3: measurements needed for 95% and 99% success against the sparsity."""

    def needed(K, algorithm, target):
        # Success rises with n but for chance: bisection, then down again while one measurement less still does.
        def enough(n):
            return measure(run, n, K, algorithm) >= target

        low, high = K, run["d"]  # K measurements are too few
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        while high > K + 1 and enough(high - 1):
            high -= 1
        return {"n": high}

    targets = (0.95, 0.99)
    rows = run.map(
        needed, [{"K": K, "algorithm": a, "target": t} for t in targets for a in BATCH for K in run["Ks"]]
    )
    lines = {}
    for target in targets:
        for algorithm in BATCH:
            ns = [r["n"] for r in rows if r["algorithm"] == algorithm and r["target"] == target]
            lines[algorithm, target] = (ns, linregress(run["Ks"], ns))
    fits = {f"{a} {t:.0%}": line for (a, t), (_, line) in lines.items()}
    run.claim(
        "a",
        "the number of measurements is linear in K (R^2 above 0.95)",
        min(line.rvalue**2 for line in fits.values()) > 0.95,
        R2={name: line.rvalue**2 for name, line in fits.items()},
        HT_SVRG="no solver yet",
    )
    slope = 1.7 * np.log(256)
    pairs = {t: lines["PGD", t][1] for t in targets}
    holds = all(
        abs(line.slope / slope - 1) <= 0.2 and abs(line.intercept - intercept) <= 15
        for line, intercept in zip(pairs.values(), (33, 40), strict=True)
    )
    run.claim(
        "b",
        "the slope is within 20% of 1.7 ln 256 = 9.43, and the intercepts are within 15 of 33 and 40 (PGD)",
        holds,
        **{f"at_{t:.0%}": f"n = {line.slope:.2f} K + {line.intercept:.0f}" for t, line in pairs.items()},
    )
    figure, axes = panels(1, 2)
    for ax, target in zip(axes[0], targets, strict=True):
        for algorithm in BATCH:
            colour, marker = STYLE[algorithm]
            ns, line = lines[algorithm, target]
            K = np.array(run["Ks"])
            ax.plot(K, ns, linestyle="", color=colour, marker=marker, markersize=4, label=algorithm)
            ax.plot(K, line.slope * K + line.intercept, color=colour, linewidth=1.2)
        ax.plot(K, slope * K + (33 if target == 0.95 else 40), color="black", linestyle=":", label="the paper's line")
        ax.set_title(f"{target:.0%} success", fontsize=10)
        ax.set_xlabel("nonzeros K")
        ax.set_ylabel("measurements n")
        ax.grid(alpha=0.3)
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure
