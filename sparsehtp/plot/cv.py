"""The held-out loss over a grid."""

from typing import Any

import numpy as np

from ..grids.cross_validation import CrossValidation
from .style import PALETTE, REST, k_axis, new_figure, tidy

MAX_LINES = 8  # values of l2 with a colour of their own


def plot_cv(cv: CrossValidation | dict[str, Any], ax: Any = None) -> Any:
    """Mean held-out loss against k, one line per l2, with the best row and the one-standard-error choice.

    Bands of one standard error are drawn for the l2 of these two rows only.

    Args:
        cv: from `cross_validate`, or an estimator's `cv_results_`.
        ax: axes to draw into; None: a new figure.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
    """
    ax = new_figure(9, 5).subplots() if ax is None else ax
    if isinstance(cv, dict):
        ks, l2s, mean, se, best, simple = (
            cv[name] for name in ("ks", "l2s", "mean_loss", "se", "best_index", "best_1se_index")
        )
        folds = cv["scores"].shape[0]
    else:
        ks, l2s, mean, se, best, simple = cv.path.ks, cv.path.l2s, cv.mean, cv.se, cv.best, cv.best_1se
        folds = cv.scores.shape[0]
    n_k = ks.size // np.unique(l2s, axis=0).shape[0]
    blocks = np.arange(ks.size).reshape(-1, n_k)  # l2 major
    marked = {best // n_k, simple // n_k}
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
    bound = mean[best] + se[best]
    ax.axhline(bound, color="black", linestyle="--", linewidth=0.8, label="best + 1 standard error")
    for row, marker, size, name in ((simple, "D", 9, "one-standard-error choice"), (best, "o", 8, "best mean")):
        if np.isfinite(mean[row]):
            colour = PALETTE[row // n_k % len(PALETTE)]
            ax.plot(
                ks[row],
                mean[row],
                linestyle="none",
                marker=marker,
                markersize=size,
                markerfacecolor="white" if marker == "D" else colour,
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
    ax.set_title(f"Cross-validation, {folds} folds")
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
