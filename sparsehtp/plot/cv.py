"""The held-out loss over a grid."""

from typing import Any

import numpy as np

from ..grids.cross_validation import CrossValidation
from .style import PALETTE, REST, k_axis, new_figure, tidy

NAMES = {
    "strong-ridge": "chosen under a strong ridge",
    "one_se": "one-standard-error choice",
    "best": "chosen: the best mean",
}
MAX_LINES = 8  # values of l2 with a colour of their own


def plot_cv(cv: CrossValidation | dict[str, Any], ax: Any = None) -> Any:
    """Mean held-out loss against k, one line per l2, with the best row and the one that the rule takes.

    Bands of one standard error are drawn for the l2 of these two rows only. Where the rule is "strong-ridge", the best
    k of every l2 is marked too, hollow where it is clearly worse than the best row.

    Args:
        cv: from `cross_validate`, or an estimator's `cv_results_`.
        ax: axes to draw into; None: a new figure.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
    """
    ax = new_figure(9, 5).subplots() if ax is None else ax
    table = cv if isinstance(cv, dict) else cv.table
    ks, l2s, mean, se, best = (table[name] for name in ("ks", "l2s", "mean_loss", "se", "best_index"))
    rule, taken = table.get("rule", "one_se"), table.get("row", table["best_1se_index"])
    n_k = ks.size // np.unique(l2s, axis=0).shape[0]
    blocks = np.arange(ks.size).reshape(-1, n_k)  # l2 major
    marked = {best // n_k, taken // n_k}
    own_colour = set(range(len(blocks))) if len(blocks) <= MAX_LINES else marked
    for number, rows in enumerate(blocks):
        rows = rows[np.argsort(ks[rows], kind="stable")]
        seen = rows[np.isfinite(mean[rows])]
        if number not in own_colour:
            ax.plot(ks[seen], mean[seen], color=REST, linewidth=0.8, zorder=1.5)
            continue
        colour = PALETTE[number % len(PALETTE)]
        l2 = l2s[rows[0]]
        name = f"l2 = {l2:.3g}" if np.ndim(l2) == 0 else f"l2 no. {number + 1}"
        ax.plot(ks[seen], mean[seen], color=colour, linewidth=1.5, label=name, zorder=2 + (number in marked))
        if number in marked:
            band = se[seen]
            ax.fill_between(ks[seen], mean[seen] - band, mean[seen] + band, color=colour, alpha=0.15, linewidth=0)
    if len(own_colour) < len(blocks):
        ax.plot([], [], color=REST, linewidth=0.8, label=f"{len(blocks) - len(own_colour)} other l2")
    points = [(taken, "D", 9, NAMES[rule]), (best, "o", 8, "best mean")]
    if rule == "strong-ridge":
        near = table["difference"] <= 2 * table["difference_se"]
        others = [(row, ok) for row, ok in zip(table["contenders"], near, strict=True) if row not in (taken, best)]
        points += [(row, "s", 6, "best k of its l2" + ("" if ok else ", clearly worse")) for row, ok in others]
    else:
        ax.axhline(mean[best] + se[best], color="black", linestyle="--", linewidth=0.8, label="best + 1 standard error")
    for row, marker, size, name in points:
        if np.isfinite(mean[row]):
            colour = PALETTE[row // n_k % len(PALETTE)]
            ax.plot(
                ks[row],
                mean[row],
                linestyle="none",
                marker=marker,
                markersize=size,
                markerfacecolor="white" if marker == "D" or name.endswith("worse") else colour,
                markeredgecolor=colour,
                markeredgewidth=1.5,
                label=f"{name}: k = {ks[row]}",
                zorder=5,
                clip_on=False,
            )
    _limit(ax, mean, se, best, ks)
    k_axis(ax, ks)
    tidy(ax)
    ax.set_ylabel("mean held-out loss")
    ax.set_title(f"Cross-validation, {table['scores'].shape[0]} folds")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9)
    return ax.figure


def _limit(ax: Any, mean: np.ndarray, se: np.ndarray, best: Any, ks: np.ndarray) -> None:
    """Leave out what is far above the fit without features: overfitted rows can have any loss."""
    if not np.isfinite(mean[best]):
        return
    shown = mean[np.isfinite(mean)]
    null = np.nanmin(np.where(np.isfinite(mean) & (ks == ks.min()), mean, np.nan), initial=np.inf)
    top = mean[best] + max(1.5 * (null - mean[best]) if np.isfinite(null) else 0, 4 * se[best])
    if shown.max() > top > mean[best]:
        low = np.min(mean[best] - 1.3 * se[best])
        ax.set_ylim(low - 0.05 * (top - low), top)
