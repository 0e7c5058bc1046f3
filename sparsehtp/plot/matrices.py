"""Sparse principal components, and a matrix in its low-rank and sparse parts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .style import LABEL_SIZE, MAX_BARS, names_of, new_figure, set_title, signed_bars

MOST = 6  # components drawn
ACROSS = 3  # in a row


def plot_components(estimator: Any, feature_names: Sequence[str] | None = None) -> Any:
    """The entries of a fitted `SparsePCA`'s components as bars, the largest first.

    Six components and thirty entries of each at most are drawn.

    Args:
        estimator: a fitted `SparsePCA`.
        feature_names: (p,) None: those that it was fitted with, else numbers.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for the wrong number of names.
    """
    components = np.asarray(estimator.components_)
    known = getattr(estimator, "feature_names_in_", None) if feature_names is None else feature_names
    names = names_of(known, components.shape[1])
    shown = min(len(components), MOST)
    orders = [np.argsort(-np.abs(row), kind="stable")[: min(np.count_nonzero(row), MAX_BARS)] for row in components]
    across, down = min(shown, ACROSS), -(-shown // ACROSS)
    longest = max(order.size for order in orders[:shown])
    figure = new_figure(max(4.2 * across, 5), down * (1.3 + 0.26 * longest))
    for ax in figure.subplots(down, across, squeeze=False).ravel()[shown:]:
        ax.remove()
    for number, ax in enumerate(figure.axes):
        order = orders[number]
        signed_bars(ax, components[number, order], [names[j] for j in order], ".2f")
        ax.tick_params(axis="y", labelsize=LABEL_SIZE)
        share = estimator.explained_variance_ratio_[number]
        set_title(ax, f"Component {number + 1}: {share:.1%} of the variance")
    return figure


def plot_parts(estimator: Any, X: Any) -> Any:
    """The matrix that a `RobustPCA` was fitted to beside its low-rank and its sparse part, on one scale of colours.

    Args:
        estimator: a fitted `RobustPCA`.
        X: the matrix.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for X of another shape.
    """
    X, low_rank, sparse = (np.asarray(part, float) for part in (X, estimator.low_rank_, estimator.sparse_))
    if X.shape != low_rank.shape:
        raise ValueError(f"X: needs the shape {low_rank.shape} of the fit, got {X.shape}.")
    titles = {
        "The matrix": X,
        f"Low rank ({np.linalg.matrix_rank(low_rank)})": low_rank,
        f"Sparse ({np.count_nonzero(sparse):,} of {X.size:,} entries)": sparse,
    }
    # A few huge entries must not leave the others without colour.
    largest = np.quantile(np.abs(low_rank), 0.99) or np.abs(X).max() or 1.0
    figure = new_figure(12, 4.2)
    axes = figure.subplots(1, len(titles))
    for ax, (title, part) in zip(axes, titles.items(), strict=True):
        image = ax.imshow(part, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest")
        ax.set(xlabel="column", ylabel="row" if ax is axes[0] else "")
        set_title(ax, title)
    figure.colorbar(image, ax=axes, shrink=0.8, extend="both")
    return figure
