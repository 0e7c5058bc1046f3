"""Precision matrices as heat maps and graphs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..estimators.graph import partial_correlations
from ..io.text import printable
from .style import LABEL_SIZE, PALETTE, names_of, new_figure, set_title

MAX_TICKS = 60  # variables whose names fit beside a heat map
MAX_NODES = 80  # variables whose names fit into a graph
ASPECT = 1.25  # of a graph's canvas, width to height
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
    names = list(range(p)) if feature_names is None else [printable(str(name)) for name in feature_names]
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
    ax.figure.colorbar(image, ax=ax, shrink=0.7, label="partial correlation")
    set_title(ax, f"{edges} edges link {p} variables; pairs without an edge are white")
    return ax.figure


def plot_graph(
    precision: Any, feature_names: Sequence[str] | None = None, ax: Any = None, *, groups: Any = None
) -> Any:
    """The graph of a precision matrix: blue edges for positive partial correlations, orange ones for negative.

    Edges are the wider the stronger; the legend shows how wide. Variables without an edge are left out and
    counted in the title; of more than 80 with edges only those with the most are named.

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
    ax = new_figure(ASPECT * size, size).subplots() if ax is None else ax
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
        width=list(_width(weights[order], strongest)),
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
    _legend(ax, weights, legend)
    title = f"{graph.number_of_edges()} edges link {p} variables"
    set_title(
        ax, title + (f"; {len(alone)} without an edge {'is' if len(alone) == 1 else 'are'} not shown" if alone else "")
    )
    return ax.figure


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise ImportError("plot: graphs need networkx; run `pip install networkx`.") from error
    return networkx


def _layout(networkx: Any, graph: Any) -> dict[Any, tuple[float, float]]:
    """Places of the nodes: every component by itself, lying on its longer side, in rows that fill the canvas."""
    parts = []
    for component in networkx.connected_components(graph):
        part = graph.subgraph(component)
        own = networkx.kamada_kawai_layout(part, weight=None) if len(part) > 2 else networkx.circular_layout(part)
        points = np.array(list(own.values()))
        points = (points - points.mean(0)) @ np.linalg.svd(points - points.mean(0))[2].T
        points /= np.mean([np.linalg.norm(own[i] - own[j]) for i, j in part.edges])
        parts.append((list(own), points - points.min(0), np.ptp(points, axis=0) + np.array((1.5, 1.0))))
    parts.sort(key=lambda part: -part[2][1])
    area = sum(float(np.prod(size)) for *_, size in parts)
    width = max([np.sqrt(ASPECT * area), *(float(size[0]) for *_, size in parts)])
    rows: list[list[Any]] = []
    for part in parts:
        if not rows or sum(size[0] for *_, size in rows[-1]) + part[2][0] > 1.05 * width:
            rows.append([])
        rows[-1].append(part)
    place, y = {}, 0.0
    for row in rows:
        gap = max(width - sum(size[0] for *_, size in row), 0) / len(row)
        height, x = max(size[1] for *_, size in row), gap / 2
        for nodes, points, size in row:
            for node, (u, v) in zip(nodes, points, strict=True):
                place[node] = (x + float(u), y - float(v + (height - size[1]) / 2))
            x += size[0] + gap
        y -= height
    return place


def _colours(groups: Sequence[Any] | None, p: int) -> tuple[list[str], dict[str, str]]:
    if groups is None:
        return ["#333333"] * p, {}
    labels, counts = np.unique(np.asarray(groups).astype(str), return_counts=True)
    largest = labels[np.argsort(-counts, kind="stable")][: len(PALETTE) - 1]
    legend = dict(zip(largest.tolist(), PALETTE[2:7] + PALETTE[:2], strict=False))
    return [legend.get(str(label), "#999999") for label in groups], legend


def _width(weights: Any, strongest: float) -> Any:
    """Width of the edges in points."""
    return 0.4 + 3 * np.abs(weights) / strongest


def _legend(ax: Any, weights: np.ndarray, groups: dict[str, str]) -> None:
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=colour, linewidth=2, label=name)
        for colour, name, present in (
            (POSITIVE, "positive", (weights > 0).any()),
            (NEGATIVE, "negative", (weights < 0).any()),
        )
        if present
    ]
    strongest = np.abs(weights).max(initial=0)
    lines += [
        Line2D([], [], color="#777777", linewidth=_width(size, strongest), label=f"{size:.2g}")
        for size in strongest * np.array([1, 0.5, 0.1] if strongest else [])
    ]
    dots = [Line2D([], [], color=c, marker="o", linestyle="", label=name) for name, c in groups.items()]
    if lines or dots:
        ax.legend(
            handles=lines + dots,
            title="partial correlation: its sign as colour, its size as width" if lines else None,
            fontsize=LABEL_SIZE,
            title_fontsize=LABEL_SIZE,
            loc="upper center",
            bbox_to_anchor=(0.5, 0),
            ncols=5,
            frameon=False,
        )
