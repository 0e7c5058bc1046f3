"""The experiments of [Tight]: compressed sensing by hard thresholding."""

from typing import Any

import numpy as np
from scipy.stats import linregress, t

from .compressed_sensing import ht_svrg, projected_gradient
from .figures import STYLE, curves, panels
from .run import Run
from .verdicts import ALPHA, Decision, Lead, Mean, Share, Undecided, at_least, at_most, both, either, every, shown

ALGORITHMS = ("IHT", "PGD", "HT-SVRG")
SVRG = "HT-SVRG"
LAST = "HT-SVRG last iterate"  # which the text does not say; with it a stage is as long as two with a random one
EXPANSION = 9  # k = 9 K for PGD and HT-SVRG
STAGES = 10_000  # of the paper
GRADIENTS = 7  # of a stage of HT-SVRG with m = 3 n inner steps: 2 m / n + 1 full gradients


def problem(run: Run, n: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    """(A, signals): all signals share the matrix, and those of every n the signals.

    In double precision: a step of HT-SVRG is n times shorter than one of PGD, and in single precision the larger
    entries stop moving a thousandth from the signal.
    """
    d, count = run["d"], run["signals"]
    A = run.rng("matrix", n).standard_normal((n, d), np.float32) / np.sqrt(n, dtype=np.float32)
    rng = run.rng("signals", K)
    x = np.zeros((count, d), np.float32)
    for row in x:
        row[rng.choice(d, K, replace=False)] = rng.standard_normal(K, np.float32)
    return A.astype(float), x.astype(float)


def recovered(run: Run, n: int, K: int, algorithm: str) -> dict[str, Any]:
    """Number of signals that an algorithm finds in the paper's settings, and the most stages that one took."""
    A, signals = problem(run, n, K)
    k = K if algorithm == "IHT" else min(EXPANSION * K, run["d"])
    step = 1.0 if algorithm == "IHT" else 2 / float(np.linalg.norm(A, 2)) ** 2
    if algorithm in (SVRG, LAST):
        rng = run.rng("samples", n, K)
        found = ht_svrg(A, signals, k, 3 * n, step, run["stages"], rng, random_iterate=algorithm == SVRG)
    else:
        found = projected_gradient(A, signals, k, step, GRADIENTS * run["stages"])
    return {"hits": int(found.success.sum()), "stages": int(found.stages[found.success].max(initial=0))}


def with_all_stages(run: Run, decision: Decision) -> Decision:
    """A decision on success at the paper's number of stages: more only add to it, so that with fewer a failure decides
    nothing."""
    enough = run["stages"] >= STAGES
    return decision if decision is not False or enough else Undecided(f"{STAGES:,} stages, the paper's number")


def fig1(run: Run) -> Any:
    """Figure 1: success of recovery against measurements and sparsity."""
    ns, Ks = run["ns"], run["Ks"]

    def cell(n: int, K: int, algorithm: str) -> dict[str, Any]:
        return recovered(run, n, K, algorithm)

    rows = run.map(cell, [{"n": n, "K": K, "algorithm": a} for a in ALGORITHMS for n in ns for K in Ks])
    shares = {
        a: {(r["n"], r["K"]): Share(r["hits"], run["signals"]) for r in rows if r["algorithm"] == a} for a in ALGORITHMS
    }
    places = list(shares["IHT"])
    leads = {a: [Lead(shares[a][at], shares["IHT"][at]) for at in places] for a in ALGORITHMS[1:]}
    more = {a: sum(at_least(lead) is True and lead.value > 0 for lead in each) for a, each in leads.items()}
    less = {a: sum(at_least(lead) is False for lead in each) for a, each in leads.items()}
    mean = {a: float(np.mean([share.value for share in each.values()])) for a, each in shares.items()}
    run.claim(
        "a",
        "PGD and HT-SVRG recover more than IHT: beyond the interval in more than twice as many cells as less, and on "
        "the mean of all cells",
        with_all_stages(run, both(*(more[a] > 2 * less[a] and mean[a] > mean["IHT"] for a in ALGORITHMS[1:]))),
        compared={a: [share.value for share in each.values()] for a, each in shares.items()},
        cells_with_more_than_IHT=more,
        cells_with_less=less,
        of=len(places),
        mean_success=mean,
    )
    pairs = [Lead(shares[SVRG][at], shares["PGD"][at]) for at in places]
    apart = [pair for pair in pairs if at_least(pair) is False or at_most(pair) is False]
    within = sum(abs(pair.value) <= 0.1 for pair in pairs)
    worst = max(pairs, key=lambda pair: abs(pair.value))
    run.claim(
        "b",
        "HT-SVRG performs comparably to PGD: its share is within 10 points of PGD's in at least 95% of the cells",
        with_all_stages(run, within >= 0.95 * len(pairs)),
        compared={a: [share.value for share in shares[a].values()] for a in ALGORITHMS},
        cells_within_10_points=within,
        cells_apart_beyond_the_interval=len(apart),
        of=len(pairs),
        largest_difference=shown(worst),
        stages=run["stages"],
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

    A claim of HT-SVRG holds if it holds for the random iterate that Algorithm 1 prints or for the last one, which is
    common: nothing says which one the authors ran.
    """

    def cell(n: int, K: int, algorithm: str) -> dict[str, Any]:
        return recovered(run, n, K, algorithm)

    algorithms = (SVRG, LAST, "PGD")
    places = [(n, run["K"]) for n in run["ns"]] + [(run["n"], K) for K in run["Ks"]]
    rows = run.map(cell, [{"n": n, "K": K, "algorithm": a} for n, K in places for a in algorithms])
    table = {
        a: {(r["n"], r["K"]): Share(r["hits"], run["signals"]) for r in rows if r["algorithm"] == a} for a in algorithms
    }
    here = [table[a][175, 16] for a in (SVRG, LAST) if (175, 16) in table[a]]
    run.claim(
        "a",
        "HT-SVRG recovers at least 80% (to within 10 points) of the signals with K = 16 from n = 175",
        with_all_stages(run, either(*(at_least(share, 0.7) for share in here))) if here else None,
        need="n = 175 and K = 16",
        success={a: shown(each[175, 16]) for a, each in table.items() if (175, 16) in each},
        stages=run["stages"],
    )
    sure = [K for K in run["Ks"] if run["n"] == 232 and K <= 22]
    reliable = [every([table[a][232, K] for K in sure], 0.95) for a in (SVRG, LAST)]
    run.claim(
        "b",
        "n = 232 recovers signals with K <= 22 reliably (at least 95%)",
        with_all_stages(run, either(*reliable)) if sure else None,
        need="n = 232 and K up to 22",
        success={a: {K: shown(table[a][232, K]) for K in sure} for a in table},
        most_stages=max(row["stages"] for row in rows),
        stages=run["stages"],
    )
    figure, axes = panels(1, 2)
    for ax, xs, at, label, title in (
        (axes[0, 0], run["ns"], [(n, run["K"]) for n in run["ns"]], "measurements n", f"K = {run['K']}"),
        (axes[0, 1], run["Ks"], [(run["n"], K) for K in run["Ks"]], "nonzeros K", f"n = {run['n']}"),
    ):
        curves(ax, xs, {a: [100 * row[place].value for place in at] for a, row in table.items()})
        ax.set(xlabel=label, ylabel="success (%)", ylim=(-5, 105))
        ax.set_title(title, fontsize=10)
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def fig3(run: Run) -> Any:
    """Figure 3: measurements needed for 95% and 99% success against the sparsity."""
    d, targets = run["d"], (0.95, 0.99)

    def needed(K: int, algorithm: str) -> dict[str, Any]:
        """The least n, by bisection, at which each target is reached; success rises with n but for chance."""
        tried: dict[int, float] = {}

        def share(n: int) -> float:
            if n not in tried:
                tried[n] = recovered(run, n, K, algorithm)["hits"] / run["signals"]
            return tried[n]

        found = []
        for target in targets:
            low, high = K, d + 1  # not enough, enough
            while high - low > run["resolution"]:
                middle = (low + high) // 2
                low, high = (low, middle) if share(middle) >= target else (middle, high)
            found.append(high)
        return {"needed": found, "tried": {str(n): s for n, s in sorted(tried.items())}}

    rows = run.map(needed, [{"K": K, "algorithm": a} for a in ALGORITHMS for K in run["Ks"]])
    lines = {}
    for i, target in enumerate(targets):
        for algorithm in ALGORITHMS:
            points = [(r["K"], r["needed"][i]) for r in rows if r["algorithm"] == algorithm and r["needed"][i] <= d]
            lines[algorithm, target] = (points, linregress(*zip(*points, strict=True)) if len(points) > 2 else None)
    fits = {f"{a} {target:.0%}": line for (a, target), (_, line) in lines.items() if line is not None}
    run.claim(
        "a",
        "the number of measurements is almost linear in K (R^2 above 0.95)",
        with_all_stages(run, min(line.rvalue**2 for line in fits.values()) > 0.95) if fits else None,
        need="more sparsities at which d measurements are enough",
        R2={name: line.rvalue**2 for name, line in fits.items()},
    )
    slope = 1.7 * np.log(256)
    decisions: list[Decision] = []
    for target, intercept in zip(targets, (33, 40), strict=True):
        points, line = lines[SVRG, target]
        if line is None:
            decisions.append(Undecided("more stages, so that more sparsities are recovered"))
            continue
        reach = t.ppf(1 - ALPHA / 2, max(len(points) - 2, 1))
        for value, error, aim, room in (
            (line.slope, line.stderr, slope, 0.2 * slope),
            (line.intercept, line.intercept_stderr, intercept, 15),
        ):
            inside = abs(value - aim) + reach * error <= room
            outside = abs(value - aim) - reach * error > room
            decisions.append(True if inside else False if outside else Undecided("more sparsities and signals"))
    run.claim(
        "b",
        "the line of HT-SVRG is n = 1.7 K ln 256 + 33 at 95%, + 40 at 99%: slope within 20%, intercept within 15",
        with_all_stages(run, both(*decisions)),
        **{
            f"{name}_at_{target:.0%}": f"n = {line.slope:.2f} K + {line.intercept:.0f}"
            for (name, target), (_, line) in lines.items()
            if line is not None
        },
        stages=run["stages"],
    )
    table = {(r["algorithm"], r["K"]): r["needed"] for r in rows}
    gaps = [table[SVRG, K][i] - table["PGD", K][i] for i in range(2) for K in run["Ks"]]
    run.claim(
        "c",
        "the markers of HT-SVRG are almost on top of those of PGD: on average within 10 measurements",
        with_all_stages(run, both(at_most(Mean(gaps), 10.0), at_least(Mean(gaps), -10.0))),
        compared={a: [table[a, K] for K in run["Ks"]] for a in ALGORITHMS},
        mean_difference=shown(Mean(gaps)),
        stages=run["stages"],
    )
    figure, axes = panels(1, 2)
    for ax, target in zip(axes[0], targets, strict=True):
        for algorithm in ALGORITHMS:
            colour, marker = STYLE[algorithm]
            points, line = lines[algorithm, target]
            K = np.array(run["Ks"])
            ax.scatter(*np.array(points or [(np.nan, np.nan)]).T, s=16, color=colour, marker=marker, label=algorithm)
            if line is not None:
                ax.plot(K, line.slope * K + line.intercept, color=colour, linewidth=1.2)
        ax.plot(K, slope * K + (33 if target == 0.95 else 40), color="black", linestyle=":", label="the paper's line")
        ax.set_title(f"{target:.0%} success", fontsize=10)
        ax.set_xlabel("nonzeros K")
        ax.set_ylabel("measurements n")
        ax.grid(alpha=0.3)
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure
