"""One fit: how it went, and what it chose."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from .style import PALETTE, new_figure

MAX_BARS = 30
MAX_NAME = 32


def plot_fit(
    history: dict[str, np.ndarray],
    names: Sequence[str],
    coefficients: np.ndarray,
    *,
    title: str,
    start_value: float | None = None,
    caption: str = "coefficient",
    colour: str = PALETTE[0],
) -> Any:
    """Objective and gradient norm against the step, and the chosen coefficients as bars.

    Args:
        history: arrays `value` and `grad_norm`, one entry per step.
        names: names of the chosen features.
        coefficients: their coefficients; the largest `MAX_BARS` are drawn.
        title: of the figure.
        start_value: objective before the first step, drawn as step 0.
        caption: of the bars' axis: what the coefficients' units are.
        colour: of the lines; `solver_colour(name)`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
    """
    bars = min(len(names), MAX_BARS)
    figure = new_figure(11, max(5.0, 1.6 + 0.24 * bars))
    axes = figure.subplot_mosaic([["objective", "bars"], ["gradient", "bars"]], width_ratios=[1, 1.15])
    figure.suptitle(textwrap.fill(title, 100), fontsize=13, parse_math=False)
    steps = np.arange(len(history["value"]) + 1)
    start = np.nan if start_value is None else start_value
    _draw_objective(axes["objective"], steps, np.append(start, history["value"]), colour)
    gradient = np.append(np.nan, history["grad_norm"])
    _draw_steps(axes["gradient"], steps, gradient, colour, log=np.any((gradient > 0) & np.isfinite(gradient)))
    axes["gradient"].set_title("Gradient norm on the support", fontsize=11)
    axes["gradient"].set_ylabel("Euclidean norm")
    axes["gradient"].set_xlabel("step")
    axes["objective"].sharex(axes["gradient"])
    axes["objective"].tick_params(labelbottom=False)
    _draw_bars(axes["bars"], names, np.asarray(coefficients, float), caption)
    return figure


def _draw_objective(ax, steps, value, colour):
    finite = value[np.isfinite(value)]
    best = finite.min() if finite.size else np.nan
    gap = value - best
    log = np.sum((gap > 0) & np.isfinite(gap)) > 2  # fewer points than that show more on a linear scale
    _draw_steps(ax, steps, gap if log else value, colour, log)
    ax.set_title(f"Objective (best {best:.6g})", fontsize=11)
    ax.set_ylabel("objective minus best" if log else "objective")


def _draw_steps(ax, steps, y, colour, log):
    drawn = np.isfinite(y) & ((y > 0) | (not log))
    marker = "o" if y.size <= 60 else None
    ax.plot(steps[drawn], y[drawn], color=colour, marker=marker, markersize=4, linewidth=1.5)
    if log:
        decades = np.log10(y[drawn])
        ax.set_yscale("log")
        ax.set_ylim(10 ** np.floor(decades.min() - 0.1), 10 ** np.ceil(decades.max() + 0.1))
    else:
        ax.ticklabel_format(axis="y", useOffset=False)
    ax.set_xlim(-0.03 * steps[-1], 1.03 * steps[-1])
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def _draw_bars(ax, names, coefficients, caption):
    order = np.argsort(-np.abs(coefficients), kind="stable")[:MAX_BARS]
    rows = np.arange(order.size)
    shown = coefficients[order]
    ax.barh(rows, shown, height=0.7, color=np.where(shown < 0, PALETTE[1], PALETTE[0]))
    short = [name if len(name) <= MAX_NAME else f"{name[:18]}…{name[-13:]}" for name in (names[j] for j in order)]
    ax.set_yticks(rows, short, parse_math=False)
    ax.set_ylim(order.size - 0.4, -0.6)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.margins(x=0.18)
    for row, value in zip(rows, shown, strict=True):
        ax.annotate(
            f"{value:.3g}",
            (value, row),
            xytext=(-4 if value < 0 else 4, 0),
            textcoords="offset points",
            ha="right" if value < 0 else "left",
            va="center",
            fontsize=8,
        )
    left_out = coefficients.size - order.size
    ax.set_title("Chosen features" + (f" ({left_out} smaller ones left out)" if left_out else ""), fontsize=11)
    ax.set_xlabel(caption)
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
