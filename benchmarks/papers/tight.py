"""The experiments of [Tight]: compressed sensing by hard thresholding."""

from typing import Any

import numpy as np
from scipy.stats import linregress, t

from .compressed_sensing import ht_svrg, projected_gradient
from .figures import STYLE, curves, panels
from .run import Run
from .verdicts import (
    ALPHA,
    NO_MARGIN,
    Clustered,
    Decision,
    Mean,
    Parts,
    Share,
    Undecided,
    all_of,
    at_least,
    every,
    shown,
)

ALGORITHMS = ("IHT", "PGD", "HT-SVRG")
SVRG = "HT-SVRG"
LAST = "HT-SVRG last iterate"  # which the text does not say; with it a stage is as long as two with a random one
ITERATES = {SVRG: "from a random inner iterate", LAST: "from the last one"}
EXPANSION = 9  # k = 9 K for PGD and HT-SVRG
STAGES = 10_000  # of the paper
FEW = 10  # signals; where more than half are lost, n is too small: 3 in a million are at a success of 95%
GRADIENTS = 7  # of a stage of HT-SVRG with m = 3 n inner steps: 2 m / n + 1 full gradients


def problem(run: Run, n: int, K: int, matrix: int = 0, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(A, signals) of one of several matrices: all its signals share it, and those of every n the signals.

    `count` of them are the first ones.

    In double precision: a step of HT-SVRG is n times shorter than one of PGD, and in single precision the larger
    entries stop moving a thousandth from the signal.
    """
    d, count = run["d"], run["signals"] if count is None else count
    more = (matrix,) if matrix else ()
    A = run.rng("matrix", n, *more).standard_normal((n, d), np.float32) / np.sqrt(n, dtype=np.float32)
    rng = run.rng("signals", K, *more)
    x = np.zeros((count, d), np.float32)
    for row in x:
        places = rng.choice(d, K, replace=False)
        row[places] = rng.choice([-1, 1], K) if run["nonzeros"] == "signs" else rng.standard_normal(K, np.float32)
    return A.astype(float), x.astype(float)


def recovered(run: Run, n: int, K: int, algorithm: str, matrix: int = 0, count: int | None = None) -> dict[str, Any]:
    """Number of signals that an algorithm finds in the paper's settings, and the most stages that one took."""
    A, signals = problem(run, n, K, matrix, count)
    k = K if algorithm == "IHT" else min(EXPANSION * K, run["d"])
    step = 1.0 if algorithm == "IHT" else 2 / float(np.linalg.norm(A, 2)) ** 2
    if algorithm in (SVRG, LAST):
        rng = run.rng("samples", n, K, *((matrix,) if matrix else ()))
        found = ht_svrg(A, signals, k, 3 * n, step, run["stages"], rng, random_iterate=algorithm == SVRG)
    else:
        found = projected_gradient(A, signals, k, step, GRADIENTS * run["stages"])
    return {"hits": int(found.success.sum()), "stages": int(found.stages[found.success].max(initial=0))}


def with_all_stages(run: Run, decisions: Parts) -> Parts:
    """Decisions on success at the paper's number of stages: more only add to it, so that with fewer a failure decides
    nothing."""
    if run["stages"] >= STAGES:
        return decisions
    short = Undecided(f"{STAGES:,} stages, the paper's number")
    return decisions._replace(found=tuple(short if one is False else one for one in decisions.found))


def fig1(run: Run) -> Any:
    """Figure 1: success of recovery against measurements and sparsity."""
    ns, Ks = run["ns"], run["Ks"]

    def cell(n: int, K: int, algorithm: str) -> dict[str, Any]:
        return recovered(run, n, K, algorithm)

    rows = run.map(cell, [{"n": n, "K": K, "algorithm": a} for a in ALGORITHMS for n in ns for K in Ks])
    shares = {
        a: {(r["n"], r["K"]): Share(r["hits"], run["signals"]) for r in rows if r["algorithm"] == a} for a in ALGORITHMS
    }

    def ahead(first: str, second: str) -> Mean:
        """By how much one recovers more, mean over K, for each n, which has a matrix of its own."""
        return Mean([float(np.mean([shares[first][n, K].value - shares[second][n, K].value for K in Ks])) for n in ns])

    leads = {f"{a} over IHT": ahead(a, "IHT") for a in ALGORITHMS[1:]}
    values = {a: [share.value for share in each.values()] for a, each in shares.items()}
    run.claim(
        "a",
        "PGD and HT-SVRG recover more than IHT, mean over the cells",
        with_all_stages(run, every(leads.values())),
        draws=len(ns),
        numbers=leads,
        compared=values,
        mean_success={a: float(np.mean(each)) for a, each in values.items()},
    )
    run.claim(
        "b",
        "HT-SVRG performs comparably to PGD, in what it recovers",
        None,
        draws=len(ns),
        numbers={"HT-SVRG over PGD": ahead(SVRG, "PGD")},
        need=NO_MARGIN,
        compared={a: values[a] for a in ALGORITHMS[1:]},
    )
    figure, axes = panels(1, len(ALGORITHMS), 3.6, 3.4)
    for ax, (name, each) in zip(axes[0], shares.items(), strict=True):
        grid = np.array([[100 * each[n, K].value for n in ns] for K in Ks])
        image = ax.pcolormesh(ns, Ks, grid, vmin=0, vmax=100, cmap="viridis", shading="nearest")
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("measurements n")
        ax.set_ylabel("nonzeros K")
    figure.colorbar(image, ax=axes[0].tolist(), label="success (%)")
    return figure


def fig2(run: Run) -> Any:
    """Figure 2: success against the measurements at K = 16, and against the sparsity at n = 232; PGD at equal cost.

    HT-SVRG goes on from a random inner iterate, as Algorithm 1 prints, or from the last one, which is common: nothing
    says which one the authors ran.
    """

    def cell(n: int, K: int, algorithm: str, matrix: int) -> dict[str, Any]:
        return recovered(run, n, K, algorithm, matrix)

    algorithms = (SVRG, LAST, "PGD")
    places = [(n, run["K"]) for n in run["ns"]] + [(run["n"], K) for K in run["Ks"]]
    matrices = range(run["matrices"])
    rows = run.map(
        cell, [{"n": n, "K": K, "algorithm": a, "matrix": m} for m in matrices for n, K in places for a in algorithms]
    )
    table = {
        a: {
            (n, K): Clustered(
                [Share(r["hits"], run["signals"]) for r in rows if (r["n"], r["K"], r["algorithm"]) == (n, K, a)]
            )
            for n, K in places
        }
        for a in algorithms
    }
    there = (175, 16) in places
    run.claim(
        "a",
        "HT-SVRG recovers at least 80% of the signals with K = 16 at n = 175",
        {
            ITERATES[a]: with_all_stages(run, all_of(at_least(table[a][175, 16], 0.8))) if there else None
            for a in ITERATES
        },
        draws=run["matrices"],
        numbers={ITERATES[a]: {"success": table[a][175, 16]} for a in ITERATES if there},
        need="" if there else "n = 175 and K = 16",
        PGD=shown(table["PGD"][175, 16]) if there else None,
    )
    sure = [K for K in run["Ks"] if run["n"] == 232 and K <= 22]
    success = {ITERATES[a]: {f"K = {K}": table[a][232, K] for K in sure} for a in ITERATES}
    run.claim(
        "b",
        "HT-SVRG recovers at least 95% of the signals with K <= 22 at n = 232",
        {
            reading: with_all_stages(run, every(each.values(), 0.95)) if sure else None
            for reading, each in success.items()
        },
        draws=run["matrices"],
        numbers=success,
        need="" if sure else "n = 232 and K up to 22",
        PGD={K: shown(table["PGD"][232, K]) for K in sure},
    )
    figure, axes = panels(1, 2)
    for ax, xs, at, label, title in (
        (axes[0, 0], run["ns"], [(n, run["K"]) for n in run["ns"]], "measurements n", f"K = {run['K']}"),
        (axes[0, 1], run["Ks"], [(run["n"], K) for K in run["Ks"]], "nonzeros K", f"n = {run['n']}"),
    ):
        bands = {a: 100 * np.array([row[place].interval(ALPHA) for place in at]).T for a, row in table.items()}
        curves(ax, xs, {a: [100 * row[place].value for place in at] for a, row in table.items()}, bands)
        ax.set(xlabel=label, ylabel="success (%)", ylim=(-5, 105))
        ax.set_title(title, fontsize=10)
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


SLOPE, PRINTED = 1.7, {0.95: 33, 0.99: 40}  # of the paper's lines n = 1.7 K ln 256 + 33 at 95%, + 40 at 99%


def _printed(line: Any, count: int, intercept: float) -> Parts:
    """Whether a fitted line's slope and intercept are the printed ones, to their digits: intervals for all four."""
    if line is None:
        return all_of(*[Undecided("more stages, so that more sparsities are recovered")] * 2)
    reach = t.ppf(1 - ALPHA / 8, count - 2)
    unit = np.log(256)
    return all_of(
        _within(line.slope, reach * line.stderr, (SLOPE - 0.05) * unit, (SLOPE + 0.05) * unit),
        _within(line.intercept, reach * line.intercept_stderr, intercept - 0.5, intercept + 0.5),
    )


def _within(value: float, reach: float, low: float, high: float) -> Decision:
    """Whether a number, known to within `reach`, is between two others."""
    if low <= value - reach and value + reach <= high:
        return True
    return False if value + reach < low or value - reach > high else Undecided("more sparsities and signals")


def fig3(run: Run) -> Any:
    """Figure 3: measurements needed for 95% and 99% success against the sparsity."""
    d, targets = run["d"], tuple(PRINTED)

    def needed(K: int, algorithm: str) -> dict[str, Any]:
        """The least n, by bisection, at which each target is reached; success rises with n but for chance."""
        tried: dict[int, float] = {}

        def share(n: int) -> float:
            if n not in tried:
                few = recovered(run, n, K, algorithm, count=FEW)["hits"] / FEW
                tried[n] = recovered(run, n, K, algorithm)["hits"] / run["signals"] if few >= 0.5 else few
            return tried[n]

        found = []
        for target in targets:
            low, high = K, d + 1  # not enough, enough
            while high - low > run["resolution"]:
                middle = (low + high) // 2
                low, high = (low, middle) if share(middle) >= target else (middle, high)
            found.append((low + 1 + high) / 2 if high <= d else high)  # the middle of what it may be
        return {"needed": found, "tried": {str(n): s for n, s in sorted(tried.items())}}

    algorithms = (*ALGORITHMS, LAST)
    rows = run.map(needed, [{"K": K, "algorithm": a} for a in algorithms for K in run["Ks"]])
    lines = {}
    for i, target in enumerate(targets):
        for algorithm in algorithms:
            points = [(r["K"], r["needed"][i]) for r in rows if r["algorithm"] == algorithm and r["needed"][i] <= d]
            lines[algorithm, target] = (points, linregress(*zip(*points, strict=True)) if len(points) > 2 else None)
    fewest = min(len(points) for (algorithm, _), (points, _) in lines.items() if algorithm in ITERATES)
    run.claim(
        "b",
        "the line of HT-SVRG is n = 1.7 K ln 256 + 33 at 95%, + 40 at 99%, to the digits that are given: both numbers "
        "of each",
        {
            words: with_all_stages(
                run,
                all_of(*(_printed(lines[a, target][1], fewest, at) for target, at in PRINTED.items())),
            )
            for a, words in ITERATES.items()
        },
        draws=fewest,
        need="" if run["stages"] >= STAGES else f"{STAGES:,} stages, the paper's number",
        lines={
            f"{name} at {target:.0%}": f"n = {line.slope:.2f} K + {line.intercept:.0f}, R2 = {line.rvalue**2:.3f}"
            for (name, target), (_, line) in lines.items()
            if line is not None
        },
    )
    table = {(r["algorithm"], r["K"]): r["needed"] for r in rows}
    more = {
        words: {
            "measurements more than PGD": Mean([np.mean(np.subtract(table[a, K], table["PGD", K])) for K in run["Ks"]])
        }
        for a, words in ITERATES.items()
    }
    run.claim(
        "c",
        "HT-SVRG needs as many measurements as PGD",
        dict.fromkeys(ITERATES.values()),
        draws=len(run["Ks"]),
        numbers=more,
        need=f"{STAGES:,} stages, the paper's number, and {NO_MARGIN}" if run["stages"] < STAGES else NO_MARGIN,
        compared={a: [table[a, K] for K in run["Ks"]] for a in algorithms},
    )
    figure, axes = panels(1, 2)
    for ax, (target, intercept) in zip(axes[0], PRINTED.items(), strict=True):
        for algorithm in algorithms:
            colour, marker = STYLE[algorithm]
            points, line = lines[algorithm, target]
            K = np.array(run["Ks"])
            ax.scatter(*np.array(points or [(np.nan, np.nan)]).T, s=16, color=colour, marker=marker, label=algorithm)
            if line is not None:
                ax.plot(K, line.slope * K + line.intercept, color=colour, linewidth=1.2)
        ax.plot(K, SLOPE * np.log(256) * K + intercept, color="black", linestyle=":", label="the paper's line")
        ax.set_title(f"{target:.0%} success", fontsize=10)
        ax.set_xlabel("nonzeros K")
        ax.set_ylabel("measurements n")
        ax.set_ylim(0, d)
        ax.grid(alpha=0.3)
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure
