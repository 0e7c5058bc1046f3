"""The coefficients along a path."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from .._types import ArrayLike
from ..grids.path import Path
from ..io.text import printable
from .style import (
    MAX_LABELS,
    PALETTE,
    REST,
    STANDARDIZED,
    k_axis,
    label_ends,
    line_style,
    mark_k,
    names_of,
    new_figure,
    set_title,
    short_name,
    tidy,
)


def plot_path(
    path: Path,
    feature_names: Sequence[str] | None = None,
    ax: Any = None,
    *,
    chosen: int | None = None,
    scale: ArrayLike | None = None,
    columns: Sequence[str] | None = None,
) -> Any:
    """Coefficients against k, for one l2: the features that matter most are named, the rest are grey.

    Of several responses, or the classes of a softmax: the norm of each feature's coefficients over them. Features that
    were made of one column, such as the levels of a category, are one line: the norm of their coefficients.

    Named are 16 features, those with the largest coefficients in the row with the largest k; with a chosen row, its
    own, up to 16 of them, and then others until there are 8.

    Args:
        path: from `solve_path`, or the `.path` of a `CrossValidation`.
        feature_names: p names; None: their numbers.
        ax: axes to draw into; None: a new figure.
        chosen: row of the path whose k is marked and whose l2 is drawn; None: no mark, and the first l2.
        scale: (p,) the features' standard deviations, which make coefficients in different units comparable; None: the
            coefficients as they are.
        columns: p names of the columns that the features are made of; None: each of its own.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        TypeError: for a path of matrices.
        ValueError: for the wrong number of names or columns, or a row that is not in the path.
    """
    if path.n_variables is not None:
        raise TypeError("path: holds matrices; draw one by plot_graph or plot_precision.")
    responses = path.n_responses or 1
    names = names_of(feature_names, path.n_features // responses)
    if columns is not None and len(columns) != len(names):
        raise ValueError(f"columns: needs {len(names)} names, one per feature, got {len(columns)}.")
    if chosen is not None and not 0 <= chosen < len(path):
        raise ValueError(f"chosen: needs a row of the path, 0..{len(path) - 1}, got {chosen}.")
    ax = new_figure(9, 5.5).subplots() if ax is None else ax
    l2 = path.l2s[0 if chosen is None else chosen]
    rows = np.flatnonzero((path.l2s == l2).reshape(len(path), -1).all(1))
    rows = rows[np.argsort(path.ks[rows], kind="stable")]
    used = np.unique(path.features.idx[rows][path.features.mask[rows]] // responses)
    ks = path.ks[rows]
    w = path.x[np.append(rows, rows[-1] if chosen is None else chosen)][:, used]
    w = w if path.n_responses is None else np.linalg.norm(w, axis=2)
    w = np.where(np.isfinite(w), w, 0) * (1 if scale is None else np.asarray(scale)[used])
    labels, categories = [names[j] for j in used], False
    if columns is not None:
        w, labels, categories = _one_line_each(w, labels, [columns[j] for j in used], Counter(columns))
    w, at_choice = w[:-1], w[-1]
    own = MAX_LABELS if chosen is None else min(np.count_nonzero(at_choice), MAX_LABELS)
    number = max(own, len(PALETTE))
    named = np.lexsort((-np.abs(w[-1]), -np.abs(at_choice)))[:number]

    drawn = w != 0
    drawn[:-1] |= w[1:] != 0  # a line starts at the zero before a feature enters, and ends at the one after it
    drawn[1:] |= w[:-1] != 0
    lines = np.where(drawn, w, np.nan)
    markers = {"marker": "o", "markersize": 3} if ks.size <= 40 else {}
    ax.axhline(0, color="black", linewidth=0.8)
    ax.plot(ks, np.delete(lines, named, axis=1), color=REST, linewidth=0.8, zorder=1.5)
    for place, j in enumerate(named):
        ax.plot(ks, lines[:, j], **line_style(place), linewidth=1.5, clip_on=False, **markers)
    reach = 1.05 * np.array([w.min(initial=0), w.max(initial=0)])
    ax.set_ylim(reach if np.ptp(reach) else (-1, 1))
    k_axis(ax, ks)
    tidy(ax)
    what = "coefficient" if scale is None else STANDARDIZED
    if path.n_responses is not None:
        what = f"norm over the responses of the {what}"
    ax.set_ylabel(what + ("\n(of a category: the norm over its levels)" if categories else ""))
    several = np.any(path.l2s != path.l2s[:1])
    if chosen is not None:
        mark_k(ax, int(path.ks[chosen]))
    label_ends(ax, ks[-1], w[-1, named], [labels[j] for j in named])
    if more := len(labels) - named.size:
        ax.set_xlabel(f"{ax.get_xlabel()}\n(grey: {more} more feature{'s' * (more > 1)})")
    at = f" at l2 = {l2:.3g}" if several and not np.ndim(l2) else ""
    set_title(ax, f"Coefficients of the features that are chosen for each k{at}")
    return ax.figure


def _one_line_each(
    w: Float[np.ndarray, "rows used"], labels: list[str], columns: Sequence[str], sizes: Mapping[str, int]
) -> tuple[Float[np.ndarray, "rows lines"], list[str], bool]:
    """The lines and labels of features that were made of columns of so many features; whether some are norms."""
    lines: dict[str, list[int]] = {}
    for j, column in enumerate(columns):
        lines.setdefault(column, []).append(j)
    each, names = [], []
    for column, own in lines.items():
        alone = sizes[column] == 1
        each.append(w[:, own[0]] if alone else np.linalg.norm(w[:, own], axis=1))
        names.append(labels[own[0]] if alone else short_name(printable(column)))
    return np.reshape(each, (-1, len(w))).T, names, any(sizes[column] > 1 for column in lines)
