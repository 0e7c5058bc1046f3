"""The worth of each chosen feature, as bars."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..certificates.exchanges import Swaps
from .style import LABEL_SIZE, MAX_BARS, names_of, new_figure, set_title, signed_bars


def plot_swap_gains(swaps: Swaps, feature_names: Sequence[str] | None = None, ax: Any = None) -> Any:
    """By how much the best exchange of each chosen feature raises or lowers the objective, in percent of its value.

    Bars to the right are features that nothing replaces well; a bar to the left is an exchange that improves the
    solution. The 30 that are replaced most easily are drawn.

    Args:
        swaps: from `best_swaps`.
        feature_names: p names; None: their numbers.
        ax: axes to draw into; None: a new figure.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for the wrong number of names.
    """
    names = names_of(feature_names, swaps.n_features)
    rise = -swaps.gains * (100 / abs(swaps.value) if swaps.value else 1)
    order = np.argsort(rise, kind="stable")[:MAX_BARS][::-1]
    ax = new_figure(9, 1.6 + 0.26 * order.size).subplots() if ax is None else ax
    labels = [f"{names[swaps.features[i]]} → {names[swaps.substitutes[i]]}" for i in order]
    signed_bars(ax, rise[order], labels, "+.3g")
    ax.tick_params(axis="y", labelsize=LABEL_SIZE)
    improving = int(np.sum(rise < 0))
    verdict = {0: "No exchange lowers", 1: "1 exchange lowers"}.get(improving, f"{improving} exchanges lower")
    left_out = rise.size - order.size
    ax.set_xlabel("change of the objective" + (" in %" if swaps.value else "") + ", chosen feature → best substitute")
    set_title(ax, f"{verdict} the objective" + (f" ({left_out} costlier ones are left out)" if left_out else ""))
    return ax.figure
