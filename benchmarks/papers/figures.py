"""Colours of the algorithms, the same in every figure, and the plots that several experiments share."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from sparsehtp.plot.style import PALETTE, new_figure, tidy

from .verdicts import ALPHA, Mean

# An algorithm that papers know by several names has one colour.
STYLE = {
    "GraHTP": (PALETTE[0], "o"),
    "FGraHTP": (PALETTE[1], "s"),
    "liblinear": (PALETTE[6], "+"),
    "PGD": (PALETTE[1], "s"),
    "GraSP": (PALETTE[2], "^"),
    "FBS": (PALETTE[3], "v"),
    "FoBa": (PALETTE[4], "D"),
    "L1": (PALETTE[7], "x"),
    "GLasso": (PALETTE[7], "x"),
    "IHT": (PALETTE[5], "P"),
    "HT-SVRG": (PALETTE[0], "o"),
    "HT-SVRG last iterate": (PALETTE[2], "^"),
    "FG-HT": (PALETTE[1], "s"),
    "FG-HT long": (PALETTE[1], "s"),
    "SG-HT": (PALETTE[7], "x"),
    "SVRG-HT": (PALETTE[0], "o"),
    "SVRG-HT stored": (PALETTE[0], "o"),
    "HSG-HT": (PALETTE[2], "^"),
    "AHSG-HT": (PALETTE[3], "v"),
    "HTP": (PALETTE[0], "o"),
    "DIHT": (PALETTE[6], "*"),
    "DIHT refitted": ("black", "x"),
    "BestSubset": (PALETTE[2], "^"),
    "SDIHT": (PALETTE[3], "v"),
    "SVRGHT": (PALETTE[4], "D"),
    "PrimDual": (PALETTE[0], "o"),
    "PrimDual convex": (PALETTE[3], "v"),
    "CDSS": (PALETTE[1], "s"),
    "DualAst": (PALETTE[2], "^"),
}


def curves(ax: Any, xs: Sequence[float], series: Mapping[str, Any], bands: Mapping[str, Any] | None = None) -> None:
    """One line per algorithm, with a band from (lower, upper) ends if there are some.

    A variant of an algorithm, its name and another word, is dashed in the same colour.
    """
    for name, ys in series.items():
        variant = name not in STYLE
        colour, marker = STYLE[name.split()[0] if variant else name]
        form = {"linestyle": "--", "markerfacecolor": "white"} if variant else {}
        label = {"color": colour, "marker": marker, "label": name}
        ax.plot(xs, np.asarray(ys, float), markersize=4, linewidth=1.4, **label, **form)
        if bands and name in bands:
            ax.fill_between(xs, *np.asarray(bands[name], float), color=colour, alpha=0.12, linewidth=0)
    tidy(ax)


def panels(rows: int, columns: int, width: float = 3.4, height: float = 2.9) -> tuple[Any, np.ndarray]:
    """A figure and its axes, always as a matrix."""
    figure = new_figure(width * columns, height * rows)
    return figure, np.asarray(figure.subplots(rows, columns, squeeze=False))


def legend_below(figure: Any, ax: Any) -> None:
    """One legend for all panels, under them."""
    handles, labels = ax.get_legend_handles_labels()
    entry = 0.6 + 0.09 * max(map(len, labels))  # inches, at the usual size of text
    columns = min(len(labels), max(1, int(figure.get_figwidth() / entry)))
    rows = -(-len(labels) // columns)
    figure.legend(handles, labels, loc="outside lower center", ncols=-(-len(labels) // rows), frameon=False)


def short_log(axis: Any) -> None:
    """Plain numbers on a logarithmic axis of about a decade, few enough to stand apart."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def interval(draws: Any) -> tuple[np.ndarray, np.ndarray]:
    """The ends of Student's intervals of the means over the last axis."""
    ends = np.array([Mean(each).interval(ALPHA) for each in np.asarray(draws, float)])
    return ends[:, 0], ends[:, 1]
