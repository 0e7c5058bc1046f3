"""How a fit's time grows with rows and with columns, of a given size and by folds, beside abess and scikit-learn."""

import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import LassoCV, OrthogonalMatchingPursuit

import sparsehtp as sht
from sparsehtp.plot.style import LABEL_SIZE, PALETTE, new_figure, tidy

from .baselines import version
from .scores import finish

K, MOST = 10, 30
LONGEST = 20  # seconds that a fit is let to take, as the one before it says
REPEATS = 2
ACROSS = {
    "rows, 50 columns": [(n, 50) for n in (1000, 10_000, 100_000, 1_000_000)],
    "columns, 1,000 rows": [(1000, p) for p in (100, 1000, 10_000)],
}
QUICK = {"rows, 50 columns": [(200, 50), (400, 50)]}
PICTURE = Path(__file__).parents[1] / "docs" / "guide" / "growth.svg"


def methods():
    """name -> fit(X, y)."""
    fits = {
        f"sparsehtp, k = {K}": lambda X, y: sht.SparseRegressor(k=K).fit(X, y),
        "sparsehtp, folds": lambda X, y: sht.SparseRegressor().fit(X, y),
    }
    if version("abess"):
        from abess import LinearRegression

        fits |= {
            f"abess, k = {K}": lambda X, y: LinearRegression(support_size=K).fit(X, y),
            "abess, folds": lambda X, y: LinearRegression(support_size=range(MOST + 1), cv=5).fit(X, y),
        }
    return fits | {
        f"OMP, k = {K}": lambda X, y: OrthogonalMatchingPursuit(n_nonzero_coefs=K).fit(X, y),
        "LassoCV": lambda X, y: LassoCV(cv=5, eps=0.01).fit(X, y),
    }


def drawn(n, p):
    rng = np.random.default_rng([n, p])
    X = rng.standard_normal((n, p)) + 0.7 * rng.standard_normal((n, 1))
    return X, X[:, :K].sum(axis=1) + 4 * rng.standard_normal(n)


def main(quick=False):
    """Up to 10^6 x 50 and 1,000 x 10,000; the best of two fits after one that compiles."""
    rows, curves = [], {}
    for title, sizes in (QUICK if quick else ACROSS).items():
        curve = curves[title] = {name: [] for name in methods()}
        for place, (n, p) in enumerate(sizes):
            X, y = drawn(n, p)
            for name, fit in methods().items():
                before = curve[name][-1] if curve[name] else 0.0
                growth = n * p / np.prod(sizes[place - 1]) if place else 1
                if len(curve[name]) < place or before * growth > LONGEST:
                    continue
                seconds = []
                for _ in range(REPEATS + 1):
                    start = time.perf_counter()
                    fit(X, y)
                    seconds.append(time.perf_counter() - start)
                curve[name].append(min(seconds[1:]))
                row = {"name": f"{n} x {p}: {name}", "value": curve[name][-1], "unit": "s", "first_call": seconds[0]}
                rows.append(row)
                print(row["name"], round(row["value"], 4), flush=True)
    finish("growth", rows, quick)
    if not quick:
        draw(curves, PICTURE)


def draw(curves, path):
    """Seconds against rows, and against columns."""
    figure = new_figure(10, 4)
    for axis, (ax, (title, curve)) in enumerate(zip(figure.subplots(1, 2, sharey=True), curves.items(), strict=True)):
        for number, (name, seconds) in enumerate(curve.items()):
            at = [size[axis] for size in ACROSS[title][: len(seconds)]]
            chosen = "folds" in name or name == "LassoCV"
            style = {
                "color": PALETTE[number // 2],
                "linestyle": "-" if chosen else "--",
                "marker": "o" if chosen else "s",
            }
            ax.plot(at, seconds, label=name, markersize=4, linewidth=1.4, **style)
        ax.set(xscale="log", yscale="log", xlabel=title)
        tidy(ax)
    figure.axes[0].set_ylabel("seconds of a fit")
    figure.axes[0].legend(fontsize=LABEL_SIZE, frameon=False, loc="upper left")
    figure.savefig(path)
