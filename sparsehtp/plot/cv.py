"""The held-out loss over a grid."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._types import ArrayLike
from ..grids.choose import Choice
from ..grids.cross_validation import CrossValidation, folds_told, sizes_told
from .stability import draw_shares
from .style import LABEL_SIZE, MAX_BARS, PALETTE, REST, k_axis, mark_k, names_of, new_figure, set_title, tidy

NAMES = {
    "strong-ridge": "chosen under a strong ridge",
    "one-se": "one-standard-error choice",
    "best": "chosen: the best mean",
}
MAX_LINES = 8  # values of l2 with a colour of their own


def plot_cv(cv: CrossValidation | Choice | dict[str, Any], ax: Any = None) -> Any:
    """Mean held-out loss against k, one line per l2, with the best row and the one that the rule takes.

    Bands of one standard error are drawn for the l2 of these two rows only. Where the rule is "strong-ridge", the best
    k of every l2 is marked too, hollow where it is clearly worse than the best row. The axes show the region of the
    choice; where that is not everything, an inset shows the whole curves.

    Args:
        cv: from `cross_validate`, or from `choose` by folds, or an estimator's `cv_results_`.
        ax: axes to draw into; None: a new figure.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for a choice by a criterion.
        TypeError: for all else.
    """
    if isinstance(cv, Choice):
        if not isinstance(cv.scores, CrossValidation):
            raise ValueError(f"cv: was chosen by {cv.rule}, without folds; draw its path by plot_path.")
        cv = cv.scores.table | {"rule": cv.rule, "row": cv.row}
    if not isinstance(cv, CrossValidation | dict):
        raise TypeError("cv: needs what cross_validate gives, or an estimator's cv_results_, where folds chose its k.")
    own_figure = ax is None
    ax = new_figure(9, 5).subplots() if ax is None else ax
    curves: list[Any] = []
    table = cv if isinstance(cv, dict) else cv.table
    ks, l2s, mean, se, best = (table[name] for name in ("ks", "l2s", "mean_loss", "se", "best_index"))
    rule, taken = table.get("rule", "one-se"), table.get("row", table["best_1se_index"])
    n_k = ks.size // np.unique(l2s, axis=0).shape[0]
    blocks = np.arange(ks.size).reshape(-1, n_k)  # l2 major
    marked = {best // n_k, taken // n_k}
    own_colour = set(range(len(blocks))) if len(blocks) <= MAX_LINES else marked
    for number, rows in enumerate(blocks):
        rows = rows[np.argsort(ks[rows], kind="stable")]
        seen = rows[np.isfinite(mean[rows])]
        if number not in own_colour:
            curves += ax.plot(ks[seen], mean[seen], color=REST, linewidth=0.8, zorder=1.5)
            continue
        colour = PALETTE[number % len(PALETTE)]
        l2 = l2s[rows[0]]
        name = f"l2 = {l2:.3g}" if np.ndim(l2) == 0 else f"l2 no. {number + 1}"
        curves += ax.plot(ks[seen], mean[seen], color=colour, linewidth=1.5, label=name, zorder=2 + (number in marked))
        if number in marked:
            band = se[seen]
            ax.fill_between(ks[seen], mean[seen] - band, mean[seen] + band, color=colour, alpha=0.15, linewidth=0)
    if len(own_colour) < len(blocks):
        ax.plot([], [], color=REST, linewidth=0.8, label=f"{len(blocks) - len(own_colour)} other l2")
    name = "chosen, fewest as good" if rule == "strong-ridge" and len(blocks) == 1 else NAMES[rule]
    points = [(taken, "D", 9, name), (best, "o", 8, "best mean")]
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
    if np.isfinite(mean[taken]):
        mark_k(ax, int(ks[taken]))
    ax.set_ylabel("mean held-out loss")
    left_out = _zoom(ax, mean, se, ks, l2s, [row for row, *_ in points], best)
    tidy(ax)
    legend = ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9)
    if own_figure:
        ax.figure.set_figheight(max(5, 0.21 * len(legend.get_texts()) + 3 * left_out))
    if left_out:
        _draw_inset(ax, curves, mean, se, best, ks)
    folds = folds_told(len(table["scores"]), table["times"])
    set_title(ax, f"Cross-validation takes k = {ks[taken]} ({folds})")
    return ax.figure


def plot_shares(
    results: dict[str, Any], support: ArrayLike, feature_names: Sequence[str] | None = None, ax: Any = None
) -> Any:
    """How often the folds took each feature at the chosen k and l2, as bars; those of the model are coloured.

    The features of the model come first, then others by their shares, 30 in all. The sizes that the folds could not
    tell from the best one stand below.

    Args:
        results: the `cv_results_` of an estimator that chooses features.
        support: (units,) True for the features (or groups) of the model.
        feature_names: one name per unit; None: their numbers.
        ax: axes to draw into; None: a new figure.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for the wrong number of names.
    """
    shares, chosen = results["shares"], np.asarray(support, bool)
    names = names_of(feature_names, shares.size)
    order = np.lexsort((-shares, ~chosen))
    order = order[chosen[order] | (shares[order] > 0)][:MAX_BARS]
    ax = new_figure(9, 2 + 0.26 * order.size).subplots() if ax is None else ax
    draw_shares(ax, [names[j] for j in order], shares[order], chosen[order], ("in the model", "not in the model"))
    row, l2s = results["row"], results["l2s"]
    k, l2 = results["ks"][row], float(l2s[row]) if np.ndim(l2s) == 1 and np.unique(l2s).size > 1 else None
    good = sizes_told(results["as_good"], results["ks"], l2)
    folds = folds_told(len(results["scores"]), results["times"])
    ax.set_xlabel(f"share of the folds ({folds})\nk = {k}; {good}", fontsize=9)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9)
    always = int(np.count_nonzero(shares[chosen] == 1))
    set_title(ax, f"{always} of the {np.count_nonzero(chosen)} chosen features are in the fits of all folds")
    return ax.figure


def _zoom(ax: Any, mean: np.ndarray, se: np.ndarray, ks: np.ndarray, l2s: np.ndarray, marked: Any, best: Any) -> bool:
    """Show the k up to twice those that are marked, and losses near theirs; whether anything is left out."""
    k_axis(ax, ks)
    seen, taken, marked = np.isfinite(mean), marked[0], [row for row in marked if np.isfinite(mean[row])]
    if not marked:
        return False
    end = ks[ks >= min(2 * ks[marked].max() + 2, ks.max())].min()
    if end > 0.75 * ks.max():
        end = ks.max()
    inside = seen & (ks <= end)
    low = min(mean[inside].min(), np.min(mean[best] - 1.3 * se[best]))
    beside = np.abs(ks - ks[taken]) == np.min(np.abs(ks - ks[taken])[ks != ks[taken]], initial=ks.max())
    beside &= seen & (l2s == l2s[taken]).reshape(ks.size, -1).all(1)
    step = np.min(mean[beside], initial=mean[seen].max()) - mean[best]  # the choice is seen to be one
    top = mean[best] + max(4 * se[best], 2 * (mean[marked].max() - mean[best]), 1.5 * step)
    if not top > low:
        return False
    if mean[inside].max() <= mean[best] + 2 * (top - mean[best]):
        top = mean[inside].max()
    left_out = bool(end < ks.max() or mean[seen].max() > top or not seen.all())
    if left_out:
        ax.set_xlim(ks.min(), end)
        ax.set_ylim(low - 0.05 * (top - low), top + 0.05 * (top - low))
    return left_out


def _draw_inset(ax: Any, curves: list[Any], mean: np.ndarray, se: np.ndarray, best: Any, ks: np.ndarray) -> None:
    """The whole curves beside the axes, with the region that these show as a box.

    Left out is what is far above the fit without features: overfitted rows can have any loss.
    """
    height = 2.1 / ax.figure.get_figheight()
    from matplotlib.patches import Rectangle

    inset = ax.inset_axes((1.08, 0, 0.34, height))
    for line in curves:
        inset.plot(*line.get_data(), color=line.get_color(), linewidth=0.8, zorder=line.get_zorder())
    seen = np.isfinite(mean)
    null = np.nanmin(np.where(seen & (ks == ks.min()), mean, np.nan), initial=np.inf)
    top = mean[best] + max(1.5 * (null - mean[best]) if np.isfinite(null) else 0, 4 * se[best])
    low, high = mean[seen].min(), mean[seen].max()
    high = min(top, high) if top > low else high
    inset.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    inset.set_xlim(ks.min(), ks.max())
    inset.xaxis.get_major_locator().set_params(integer=True, nbins=5)
    inset.yaxis.get_major_locator().set_params(nbins=4)
    (left, right), (below, above) = ax.get_xlim(), ax.get_ylim()
    inset.add_patch(Rectangle((left, below), right - left, above - below, facecolor="#00000018", edgecolor="none"))
    inset.tick_params(labelsize=LABEL_SIZE - 1)
    inset.set_title("all k" if right < ks.max() else "all losses", fontsize=LABEL_SIZE)
