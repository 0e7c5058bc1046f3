"""One fit: how it went, and what it chose."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from .style import PALETTE, new_figure, short_name, signed_bars, tidy

MAX_BARS = 30


def plot_fit(
    history: dict[str, np.ndarray],
    names: Sequence[str],
    coefficients: np.ndarray,
    *,
    title: str,
    caption: str = "coefficient",
) -> Any:
    """Objective and gradient norm against the step, and the chosen coefficients as bars.

    Args:
        history: arrays `value` and `grad_norm`, one entry per step.
        names: names of the chosen features.
        coefficients: their coefficients; the largest `MAX_BARS` are drawn.
        title: of the figure.
        caption: of the bars' axis: what the coefficients' units are.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
    """
    bars = min(len(names), MAX_BARS)
    figure = new_figure(11, max(5.0, 1.6 + 0.24 * bars))
    axes = figure.subplot_mosaic([["objective", "bars"], ["gradient", "bars"]], width_ratios=[1, 1.15])
    figure.suptitle(textwrap.fill(title, 100), fontsize=13, parse_math=False)
    gradient = np.asarray(history["grad_norm"])
    _draw_objective(axes["objective"], np.asarray(history["value"]))
    _draw_steps(axes["gradient"], gradient, log=np.any((gradient > 0) & np.isfinite(gradient)))
    axes["gradient"].set_title("Gradient norm on the support", fontsize=11)
    axes["gradient"].set_ylabel("Euclidean norm")
    axes["gradient"].set_xlabel("step")
    axes["objective"].sharex(axes["gradient"])
    axes["objective"].tick_params(labelbottom=False)
    _draw_bars(axes["bars"], names, np.asarray(coefficients, float), caption)
    return figure


def _draw_objective(ax: Any, value: np.ndarray) -> None:
    finite = value[np.isfinite(value)]
    best = finite.min() if finite.size else np.nan
    gap = value - best
    log = np.sum((gap > 0) & np.isfinite(gap)) > 2  # fewer points than that show more on a linear scale
    _draw_steps(ax, gap if log else value, log)
    ax.set_title(f"Objective (best {best:.6g})", fontsize=11)
    ax.set_ylabel("objective minus best" if log else "objective")


def _draw_steps(ax: Any, y: np.ndarray, log: Any) -> None:
    steps = np.arange(1, y.size + 1)
    drawn = np.isfinite(y) & ((y > 0) | (not log))
    marker = "o" if y.size <= 60 else None
    ax.plot(steps[drawn], y[drawn], color=PALETTE[0], marker=marker, markersize=4, linewidth=1.5)
    if log:
        decades = np.log10(y[drawn])
        ax.set_yscale("log")
        ax.set_ylim(10 ** np.floor(decades.min() - 0.1), 10 ** np.ceil(decades.max() + 0.1))
    else:
        ax.ticklabel_format(axis="y", useOffset=False)
    ax.margins(x=0.03)
    ax.xaxis.get_major_locator().set_params(integer=True)
    tidy(ax)


def _draw_bars(ax: Any, names: Sequence[str], coefficients: np.ndarray, caption: str) -> None:
    order = np.argsort(-np.abs(coefficients), kind="stable")[:MAX_BARS]
    signed_bars(ax, coefficients[order], [short_name(names[j]) for j in order])
    left_out = coefficients.size - order.size
    ax.set_title("Chosen features" + (f" ({left_out} smaller ones left out)" if left_out else ""), fontsize=11)
    ax.set_xlabel(caption)
