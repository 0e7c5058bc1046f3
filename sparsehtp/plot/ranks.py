"""How much every rank explains."""

from typing import Any

import numpy as np

from .style import PALETTE, STANDARDIZED, new_figure, set_title, tidy


def plot_ranks(estimator: Any) -> Any:
    """Held-out loss against the rank of a fitted `LowRankRegressor` (where r was cross-validated), and singular values.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
    """
    table = estimator.cv_results_
    figure = new_figure(5 if table is None else 9, 4)
    axes = np.atleast_1d(figure.subplots(1, 1 if table is None else 2))
    values = estimator.singular_values_
    ax = axes[-1]
    ax.bar(np.arange(1, values.size + 1), values, color=PALETTE[0], width=0.6)
    ax.set(xlabel="component", ylabel="singular value")
    ax.set_xticks(np.arange(1, values.size + 1)[:: max(values.size // 10, 1)])
    tidy(ax)
    if table is not None:
        ax, ranks, mean, se = axes[0], table["ranks"], table["mean_loss"], table["se"]
        best, one = table["best_index"], table["best_1se_index"]
        ax.plot(ranks, mean, color=PALETTE[0], linewidth=1.5)
        ax.fill_between(ranks, mean - se, mean + se, color=PALETTE[0], alpha=0.15, linewidth=0)
        ax.axhline(mean[best] + se[best], color="black", linestyle="--", linewidth=0.8, label="best + 1 standard error")
        ax.plot(ranks[one], mean[one], "D", color=PALETTE[1], markersize=9, label="one-standard-error choice")
        ax.plot(ranks[best], mean[best], "o", color=PALETTE[0], markersize=7, label="best mean")
        ax.set(xlabel="rank", ylabel="mean held-out loss")
        ax.set_xticks(ranks[:: max(ranks.size // 10, 1)])
        ax.legend(frameon=False)
        tidy(ax)
        set_title(ax, f"Cross-validation in {len(table['scores'])} folds takes rank {estimator.rank_}")
    set_title(axes[-1], f"Singular values of the {STANDARDIZED}")
    return figure
