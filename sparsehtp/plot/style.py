"""Colours and figures that all plots share."""

import zlib
from typing import Any

# Okabe and Ito's palette, readable with colour blindness and in print.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B", "#555555")
SOLVER_COLOURS = dict(zip(("HTP", "IHT", "GraSP", "SubspacePursuit"), PALETTE, strict=False))


def solver_colour(name: str) -> str:
    """The colour of a solver, the same in every plot and every process."""
    return SOLVER_COLOURS.get(name, PALETTE[zlib.crc32(name.encode()) % len(PALETTE)])


def new_figure(width: float, height: float) -> Any:
    """An empty `matplotlib.figure.Figure` (inches), apart from pyplot's global state.

    Raises:
        ImportError: without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plot: needs matplotlib; run `pip install sparsehtp[plot]`.") from error
    return Figure(figsize=(width, height), layout="constrained")
