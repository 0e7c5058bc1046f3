"""Precision matrices as heat maps and graphs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..estimators.graph import partial_correlations
from .style import LABEL_SIZE, PALETTE, names_of, new_figure

MAX_TICKS = 60  # variables whose names fit beside a heat map
MAX_NODES = 80  # variables whose names fit into a graph
POSITIVE, NEGATIVE = PALETTE[0], PALETTE[1]


def as_graph(precision: Any, feature_names: Sequence[str] | None = None) -> Any:
    """The graph of a precision matrix: a `networkx.Graph` with the partial correlation as `weight` of every edge.

    Args:
        precision: (p, p) matrix.
        feature_names: one name per variable, distinct; None: their numbers.

    Raises:
        ImportError: without networkx.
        ValueError: for another matrix, or the wrong number of names.
    """
    networkx = _networkx()
    partial = partial_correlations(precision)
    p = partial.shape[0]
    names = list(range(p)) if feature_names is None else [str(name) for name in feature_names]
    if len(set(names)) != p:
        raise ValueError(f"feature_names: needs {p} distinct names, one per variable.")
    graph = networkx.Graph()
    graph.add_nodes_from(names)
    rows, columns = np.nonzero(np.triu(partial, 1))
    graph.add_weighted_edges_from(
        (names[i], names[j], float(partial[i, j])) for i, j in zip(rows, columns, strict=True)
    )
    return graph


def plot_precision(precision: Any, feature_names: Sequence[str] | None = None, ax: Any = None) -> Any:
    """Heat map of partial correlations; pairs that are zero stay white.

    Args:
        precision: (p, p) matrix, for example `model.precision_`.
        feature_names: one name per variable; None: their numbers. Shown for up to 60 variables.
        ax: axes to draw into; None: a new figure.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for another matrix, or the wrong number of names.
    """
    partial = partial_correlations(precision)
    p = partial.shape[0]
    names = names_of(feature_names, p) if feature_names is not None else [str(j) for j in range(p)]
    size = float(np.clip(0.16 * p, 5, 10))
    ax = new_figure(size + 1.4, size).subplots() if ax is None else ax
    shown = np.where(np.eye(p, dtype=bool), np.nan, partial)
    limit = np.nanmax(np.abs(shown)) or 1.0
    from matplotlib import colormaps

    colours = colormaps["RdBu"].with_extremes(bad="#DDDDDD")  # bad: the diagonal
    image = ax.imshow(shown, cmap=colours, vmin=-limit, vmax=limit, interpolation="nearest")
    if p <= MAX_TICKS:
        ax.set_xticks(range(p), names, rotation=90, fontsize=LABEL_SIZE - 1, parse_math=False)
        ax.set_yticks(range(p), names, fontsize=LABEL_SIZE - 1, parse_math=False)
    edges = np.count_nonzero(np.triu(partial, 1))
    ax.set_title(f"Partial correlations: {edges} edges among {p} variables", fontsize=11)
    ax.figure.colorbar(image, ax=ax, shrink=0.7, label="partial correlation")
    return ax.figure


def plot_graph(
    precision: Any, feature_names: Sequence[str] | None = None, ax: Any = None, *, groups: Any = None
) -> Any:
    """The graph of a precision matrix: blue edges for positive partial correlations, orange ones for negative.

    Edges are the wider the stronger. Variables without an edge are left out and counted in the title; of more than 80
    with edges only those with the most are named.

    Args:
        precision: (p, p) matrix, for example `model.precision_`.
        feature_names: one name per variable; None: their numbers.
        ax: axes to draw into; None: a new figure.
        groups: (p,) label of every variable, shown as the colour of its node (up to seven labels; the rest are grey).

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib or networkx.
        ValueError: for another matrix, or the wrong number of names or labels.
    """
    networkx = _networkx()
    partial = partial_correlations(precision)
    p = partial.shape[0]
    names = names_of(feature_names, p) if feature_names is not None else [str(j) for j in range(p)]
    if groups is not None and np.shape(groups) != (p,):
        raise ValueError(f"groups: needs shape ({p},), one label per variable, got {np.shape(groups)}.")
    graph = as_graph(precision)
    alone = list(networkx.isolates(graph))
    graph.remove_nodes_from(alone)
    size = float(np.clip(4 + 0.08 * len(graph), 6, 13))
    ax = new_figure(1.25 * size, size).subplots() if ax is None else ax
    ax.set_axis_off()
    place = _layout(networkx, graph)
    weights = np.array([weight for _, _, weight in graph.edges.data("weight")])
    strongest = np.abs(weights).max(initial=0) or 1.0
    # Weak edges first, so that strong ones lie on top.
    order = np.argsort(np.abs(weights), kind="stable")
    edges = list(graph.edges)
    networkx.draw_networkx_edges(
        graph,
        place,
        [edges[i] for i in order],
        width=list(0.4 + 3 * np.abs(weights[order]) / strongest),
        edge_color=[POSITIVE if weights[i] > 0 else NEGATIVE for i in order],
        alpha=0.7,
        ax=ax,
    )
    colours, legend = _colours(groups, p)
    dense = len(graph) > MAX_NODES
    networkx.draw_networkx_nodes(
        graph, place, node_size=25 if dense else 60, node_color=[colours[j] for j in graph], linewidths=0, ax=ax
    )
    from matplotlib.patheffects import withStroke

    named = sorted(graph, key=lambda j: -graph.degree[j])[:MAX_NODES]
    for j in named:
        x, y = place[j]
        ax.annotate(
            names[j],
            (x, y),
            xytext=(0, 4 if dense else 5),
            textcoords="offset points",
            ha="center",
            fontsize=LABEL_SIZE - (2 if dense else 0),
            parse_math=False,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )
    title = f"{graph.number_of_edges()} edges among {p} variables"
    title += f"; {len(alone)} without an edge are not shown" if alone else ""
    ax.set_title(title, fontsize=11)
    _legend(ax, weights, legend)
    return ax.figure


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise ImportError("plot: graphs need networkx; run `pip install sparsehtp[plot]`.") from error
    return networkx


def _layout(networkx: Any, graph: Any) -> dict[Any, tuple[float, float]]:
    """Places of the nodes: every component by itself, side by side in rows, so that none runs into another."""
    components = sorted(networkx.connected_components(graph), key=len, reverse=True)
    place, x, y, height, width = {}, 0.0, 0.0, 0.0, 0.0
    for component in components:
        part = graph.subgraph(component)
        radius = np.sqrt(len(part))
        width = max(width, 2.4 * radius, 1.3 * np.sqrt(4 * len(graph)))
        if x + 2 * radius > width:
            x, y, height = 0.0, y - height, 0.0
        own = networkx.kamada_kawai_layout(part, weight=None) if len(part) > 2 else networkx.circular_layout(part)
        for node, (u, v) in own.items():
            place[node] = (x + radius * (1 + u), y - radius * (1 - v))
        x += 2 * radius + 1.5
        height = max(height, 2 * radius + 1.2)
    return place


def _colours(groups: Sequence[Any] | None, p: int) -> tuple[list[str], dict[str, str]]:
    if groups is None:
        return ["#333333"] * p, {}
    labels, counts = np.unique(np.asarray(groups).astype(str), return_counts=True)
    largest = labels[np.argsort(-counts, kind="stable")][: len(PALETTE) - 1]
    legend = dict(zip(largest.tolist(), PALETTE[2:7] + PALETTE[:2], strict=False))
    return [legend.get(str(label), "#999999") for label in groups], legend


def _legend(ax: Any, weights: np.ndarray, groups: dict[str, str]) -> None:
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=colour, linewidth=2, label=f"{name} partial correlation")
        for colour, name, present in (
            (POSITIVE, "positive", (weights > 0).any()),
            (NEGATIVE, "negative", (weights < 0).any()),
        )
        if present
    ]
    dots = [Line2D([], [], color=c, marker="o", linestyle="", label=name) for name, c in groups.items()]
    if lines or dots:
        ax.legend(handles=lines + dots, fontsize=LABEL_SIZE, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
