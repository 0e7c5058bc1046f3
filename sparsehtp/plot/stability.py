"""Selection probabilities."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..grids.stability import Stability
from .style import MAX_LABELS, PALETTE, REST, k_axis, label_ends, line_style, names_of, new_figure, tidy


def plot_stability(
    stability: Stability, feature_names: Sequence[str] | None = None, ax: Any = None, *, threshold: float = 0.75
) -> Any:
    """Selection probabilities against k; features that reach the threshold are named, the rest are grey.

    Of those, the 16 that are most stable on the mean over k; where there are fewer than 8, the next most stable too.

    The caption bounds the expected number of false selections at the threshold (Shah and Samworth), for a k that was
    fixed beforehand.

    Args:
        stability: from `stability_selection`.
        feature_names: one name per unit (feature or group); None: their numbers.
        ax: axes to draw into; None: a new figure.
        threshold: in (1/2, 1], the probability from which a unit counts as selected.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for the wrong number of names, or a threshold out of range.
    """
    names = names_of(feature_names, stability.probabilities.shape[1])
    bound = stability.error_bound(threshold).shah_samworth
    ax = new_figure(9, 5.5).subplots() if ax is None else ax
    order = np.argsort(stability.ks, kind="stable")
    ks, lines = stability.ks[order], stability.probabilities[order]
    reached, share = stability.selected(threshold).any(0), lines.mean(0)
    number = max(min(int(reached.sum()), MAX_LABELS), min(len(PALETTE), np.count_nonzero(share)))
    named = np.lexsort((-share, ~reached))[:number]
    others = np.setdiff1d(np.flatnonzero(lines.any(0)), named)
    markers = {"marker": "o", "markersize": 3} if ks.size <= 40 else {}
    ax.plot(ks, lines[:, others], color=REST, linewidth=0.8, zorder=1.5)
    ax.axhline(threshold, color="black", linestyle="--", linewidth=0.8)
    for place, j in enumerate(named):
        ax.plot(ks, lines[:, j], **line_style(place), linewidth=1.5, clip_on=False, **markers)
    ax.set_ylim(-0.02, 1.02)
    k_axis(ax, ks)
    tidy(ax)
    ax.set_ylabel("selection probability")
    ax.set_title(f"Selection probabilities, {stability.n_resamples} subsamples", pad=16)
    label_ends(ax, ks[-1], lines[-1, named], [names[j] for j in named])
    caption = textwrap.fill(_caption(ks, bound[order], threshold), 100)
    ax.set_xlabel(f"{ax.get_xlabel()}\n\n{caption}", fontsize=9)
    return ax.figure


def _caption(ks: np.ndarray, bound: np.ndarray, threshold: float) -> str:
    bounded = np.flatnonzero(np.isfinite(bound) & (ks > 0))
    if not bounded.size:
        return "There is no bound on the number of false selections here."
    some = np.unique(bounded[np.linspace(0, bounded.size - 1, 4).astype(int)])
    shown = ", ".join(f"{bound[i]:.2g}\u00a0at\u00a0k\u00a0=\u00a0{ks[i]}" for i in some)
    return (
        f"Features that are no better than chance, expected among those selected at {threshold:g}: "
        f"at most {shown} (for one k fixed beforehand)."
    )
