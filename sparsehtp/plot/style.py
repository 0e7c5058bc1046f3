"""Colours, figures and labels that all plots share."""

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ..io.text import printable

# Okabe and Ito's palette, readable with colour blindness and in print.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B", "#555555")
REST = "#BBBBBB"  # what is drawn but not named
MAX_BARS = 30
MAX_NAME = 32
MAX_LABELS = 16  # twice the palette: the second half is dashed
LABEL_SIZE = 8  # points
TITLE_SIZE = 11
MARK = "chosen-k"  # the label between axes and title
STANDARDIZED = "coefficient per standard deviation"  # the one name of coefficients whose units compare


def new_figure(width: float, height: float) -> Any:
    """An empty `matplotlib.figure.Figure` (inches), apart from pyplot's global state; notebooks show it.

    Raises:
        ImportError: without matplotlib.
    """
    try:
        from .figure import ShownFigure
    except ImportError as error:
        raise ImportError("plot: needs matplotlib; run `pip install matplotlib`.") from error
    return ShownFigure(figsize=(width, height), layout="constrained")


def set_title(ax: Any, sentence: str) -> None:
    """A title in as many lines as the axes are wide for; last, as the labels decide how wide these are."""
    pad = 16 if any(text.get_gid() == MARK for text in ax.texts) else None
    title = ax.set_title(sentence, fontsize=TITLE_SIZE, parse_math=False, pad=pad)
    ax.figure.draw_without_rendering()
    text, axes = title.get_window_extent(), ax.get_window_extent()
    if text.width > axes.width:
        whole = sentence.replace(" = ", "\u00a0=\u00a0")  # not torn apart
        lines = textwrap.fill(whole, max(int(0.95 * len(sentence) * axes.width / text.width), 12))
        title.set_text(lines.replace("\u00a0", " "))


def tidy(ax: Any, grid: str = "both") -> None:
    """A light grid and no box."""
    ax.grid(axis=grid, alpha=0.3)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def signed_bars(
    ax: Any, values: np.ndarray, labels: Sequence[str], form: str = ".3g", notes: Sequence[str] | None = None
) -> None:
    """Horizontal bars from the top down, each with its number, negative ones in another colour; neighbours that have a
    note beside the number and the same label share it."""
    rows = list(range(values.size))
    bars = ax.barh(rows, values, height=0.7, color=np.where(values < 0, PALETTE[1], PALETTE[0]))
    ax.axvline(0, color="black", linewidth=0.8)
    notes = [""] * values.size if notes is None else notes
    runs = [[*run] for _, run in groupby(rows, lambda row: (labels[row], -1 if notes[row] else row))]
    ax.set_yticks([np.mean(run) for run in runs], [labels[run[0]] for run in runs], parse_math=False)
    ax.set_ylim(values.size - 0.4, -0.6)
    ax.margins(x=0.18)
    told = [f"{note} {value:{form}}".lstrip() for note, value in zip(notes, values, strict=True)]
    ax.bar_label(bars, told, padding=4, fontsize=LABEL_SIZE, parse_math=False)
    tidy(ax, grid="x")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)


def k_axis(ax: Any, ks: np.ndarray) -> None:
    """Make the x axis one of sparsity levels."""
    ax.set_xlabel("number of features k")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlim(ks.min() - (ks.size == 1), ks.max() + (ks.size == 1))


def names_of(feature_names: Sequence[str] | None, p: int) -> list[str]:
    """One short name per feature, by number where there are none.

    Raises:
        ValueError: if there are names, but not p.
    """
    if feature_names is None:
        return [f"feature {j}" for j in range(p)]
    if len(feature_names) != p:
        raise ValueError(f"feature_names: needs {p} names, one per feature, got {len(feature_names)}.")
    return [short_name(printable(str(name))) for name in feature_names]


def short_name(name: str) -> str:
    """A name without its middle if it is long."""
    return name if len(name) <= MAX_NAME else f"{name[:18]}…{name[-13:]}"


def class_name(label: Any, target: str) -> str:
    """A class in words: a label that is a number is one of the target."""
    return label if isinstance(label, str) else f"{target} = {label}"


def line_style(place: int) -> dict[str, Any]:
    """Colour and dashes of the labelled line number `place`, of up to `MAX_LABELS`."""
    return {"color": PALETTE[place % len(PALETTE)], "linestyle": "-" if place < len(PALETTE) else (0, (4, 1.5))}


def label_ends(ax: Any, x: float, ys: np.ndarray, names: Sequence[str]) -> None:
    """Name lines at their right ends (x, ys), beside the axes, as near to the ends as they go without overlaps.

    The limits of the y axis must be final. Line i is the one with `line_style(i)`.
    """
    if not len(ys):
        return
    from sklearn.isotonic import isotonic_regression

    low, high = ax.get_ylim()
    height = ax.get_window_extent().height * 72 / ax.figure.dpi
    spacing = min(1.35 * LABEL_SIZE / height, 1 / len(ys))
    ends = (np.asarray(ys) - low) / (high - low)
    # Labels in the order of their ends, `spacing` apart at least, and nearest to the ends in the sum of squares.
    order = np.lexsort((-np.arange(ends.size), ends))  # of equal ends the first is on top
    steps = spacing * np.arange(order.size)
    places = isotonic_regression(ends[order] - steps, y_min=0, y_max=1 - steps[-1]) + steps
    for i, place in zip(order, places, strict=True):
        colour = line_style(i)["color"]
        ax.annotate(
            names[i],
            (x, ys[i]),
            xytext=(1.05, place),
            textcoords="axes fraction",
            va="center",
            fontsize=LABEL_SIZE,
            color=colour,
            parse_math=False,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.6,
                "shrinkA": 2,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )


def mark_k(ax: Any, k: int) -> None:
    """A dotted line at the chosen k, named above the axes."""
    ax.axvline(k, color="black", linestyle=":", linewidth=1, zorder=1)
    ax.annotate(
        f"k = {k}",
        (k, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        fontsize=LABEL_SIZE,
        gid=MARK,
    )
