"""Colours of the algorithms, the same in every figure, and the plots that several experiments share."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..plot.style import PALETTE, new_figure, tidy

# An algorithm that papers know by several names has one colour.
STYLE = {
    "GraHTP": (PALETTE[0], "o"),
    "FGraHTP": (PALETTE[1], "s"),
    "GraHTP 1/(2M)": (PALETTE[0], "$1$"),
    "FGraHTP 1/(2M)": (PALETTE[1], "$1$"),
    "FBS scaled": (PALETTE[3], "$s$"),
    "liblinear": (PALETTE[6], "+"),
    "PGD": (PALETTE[1], "s"),
    "GraSP": (PALETTE[2], "^"),
    "FBS": (PALETTE[3], "v"),
    "FoBa": (PALETTE[4], "D"),
    "L1": (PALETTE[7], "x"),
    "GLasso": (PALETTE[7], "x"),
    "IHT": (PALETTE[5], "P"),
    "HT-SVRG": (PALETTE[0], "o"),
    "FG-HT": (PALETTE[1], "s"),
    "SG-HT": (PALETTE[7], "x"),
    "SVRG-HT": (PALETTE[0], "o"),
    "HSG-HT": (PALETTE[2], "^"),
    "AHSG-HT": (PALETTE[3], "v"),
    "HTP": (PALETTE[0], "o"),
    "DIHT": (PALETTE[6], "*"),
    "BestSubset": (PALETTE[2], "^"),
    "SDIHT": (PALETTE[3], "v"),
    "SVRGHT": (PALETTE[4], "D"),
    "PrimDual": (PALETTE[0], "o"),
    "CDSS": (PALETTE[1], "s"),
    "DualAst": (PALETTE[2], "^"),
}


def curves(ax: Any, xs: Sequence[float], series: Mapping[str, Any]) -> None:
    """One line per algorithm."""
    for name, ys in series.items():
        colour, marker = STYLE[name]
        ax.plot(xs, np.asarray(ys, float), color=colour, marker=marker, markersize=4, linewidth=1.4, label=name)
    tidy(ax)


def panels(rows: int, columns: int, width: float = 3.4, height: float = 2.9) -> tuple[Any, np.ndarray]:
    """A figure and its axes, always as a matrix."""
    figure = new_figure(width * columns, height * rows)
    return figure, np.asarray(figure.subplots(rows, columns, squeeze=False))


def legend_below(figure: Any, ax: Any) -> None:
    """One legend for all panels, under them."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
