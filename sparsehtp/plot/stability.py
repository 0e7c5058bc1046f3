"""Selection probabilities."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..grids.stability import Stability
from .style import LABEL_SIZE, MAX_BARS, PALETTE, REST, names_of, new_figure, set_title, tidy


def plot_stability(
    stability: Stability,
    feature_names: Sequence[str] | None = None,
    ax: Any = None,
    *,
    k: int | None = None,
    threshold: float = 0.75,
) -> Any:
    """Selection probabilities for one k as bars, the largest first; those that reach the threshold are coloured.

    The 30 largest are drawn. The caption bounds the expected number of false selections at the threshold (Shah and
    Samworth), for a k that was fixed beforehand.

    Args:
        stability: from `stability_selection`.
        feature_names: one name per unit (feature or group); None: their numbers.
        ax: axes to draw into; None: a new figure.
        k: one of the sparsity levels; None: the largest.
        threshold: in (1/2, 1], the probability from which a unit counts as selected.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for the wrong number of names, another k, or a threshold out of range.
    """
    names = names_of(feature_names, stability.probabilities.shape[1])
    k = int(stability.ks.max()) if k is None else k
    (rows,) = np.nonzero(stability.ks == k)
    if not rows.size:
        raise ValueError(f"k: needs one of the levels {', '.join(map(str, stability.ks))}, got {k}.")
    row = int(rows[0])
    bound = stability.error_bound(threshold).shah_samworth[row]
    chances, reached = stability.probabilities[row], stability.selected(threshold)[row]
    used = int(np.count_nonzero(chances))
    order = np.argsort(-chances, kind="stable")[: min(used, MAX_BARS)]
    ax = new_figure(9, 2 + 0.26 * order.size).subplots() if ax is None else ax
    labels = (f"reaches {threshold:g}", f"does not reach {threshold:g}")
    draw_shares(ax, [names[j] for j in order], chances[order], reached[order], labels)
    ax.axvline(threshold, color="black", linestyle="--", linewidth=0.8, label=f"threshold {threshold:g}")
    left = used - order.size
    label = f"share of {stability.n_resamples} subsamples" + (
        f" ({left} features in fewer are left out)" if left else ""
    )
    ax.set_xlabel(f"{label}\n{_caption(bound, k, threshold)}", fontsize=9)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9)
    number = int(reached.sum())
    are = "1 feature is" if number == 1 else f"{number} features are"
    set_title(ax, f"{are} among the best {k} in {threshold:.0%} or more of {stability.n_resamples} subsamples")
    return ax.figure


def draw_shares(ax: Any, names: Sequence[str], shares: np.ndarray, marked: np.ndarray, labels: tuple[str, str]) -> None:
    """Shares from 0 to 1 as bars with their names, from above; two labels for those that are marked and the others."""
    places = np.arange(shares.size)
    for colour, shown, label in zip((PALETTE[0], REST), (marked, ~marked), labels, strict=True):
        if shown.any():
            bars = ax.barh(places[shown], shares[shown], height=0.7, color=colour, label=label)
            ax.bar_label(bars, fmt="%.2f", padding=4, fontsize=LABEL_SIZE)
    ax.set_yticks(places, names, parse_math=False)
    ax.set_ylim(max(shares.size, 1) - 0.4, -0.6)
    ax.set_xlim(0, 1.06)
    tidy(ax, grid="x")
    ax.tick_params(axis="y", length=0, labelsize=LABEL_SIZE)


def _caption(bound: float, k: int, threshold: float) -> str:
    if not np.isfinite(bound) or not k:
        return f"There is no bound on the number of false selections at k = {k}."
    return textwrap.fill(
        f"Features that are no better than chance, expected among those that reach {threshold:g}: at most {bound:.2g} "
        f"(if k = {k} was fixed beforehand).",
        80,
    )
