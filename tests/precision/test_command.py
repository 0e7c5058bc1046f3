"""`sparsehtp precision`, and the pictures of a graph."""

import csv
import sys

import cases
import numpy as np
import pytest
from commands import invoke, made

import sparsehtp as sht
from sparsehtp.datasets import make_precision
from sparsehtp.plot import as_graph, plot_graph, plot_precision

networkx = pytest.importorskip("networkx", reason="graphs are drawn by networkx")
X, TRUTH = make_precision(200, 6, probability=0.3, value=0.4, condition=6, seed=4)
NAMES = ["alpha", "beta", "$x_1$", "[red]", "ε", "long " * 12]
FILES = ["precision.json", "precision.csv", "edges.csv", "graph.graphml", "heatmap.png", "heatmap.svg", "graph.png"]
FILES = sorted([*FILES, "graph.svg"])


def save_csv(path, first=(), names=NAMES):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(["date"] if first else []), *names])
        writer.writerows([*first, *row] for row in X.tolist())
    return path


def test_files_hold_the_matrix_and_the_graph(tmp_path):
    out = tmp_path / "deep" / "out"
    path = save_csv(tmp_path / "data.csv", first=("2020-01-01",))
    arguments = ("--drop", "date", "--k", 5, "--stability", 10, "--keep", "alpha, ε", "--save", tmp_path / "model.npz")
    result, answer = made(out, "precision", path, *arguments)
    assert sorted(each.name for each in out.iterdir()) == FILES
    model = sht.load(tmp_path / "model.npz")
    with (out / "precision.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header[1:] == NAMES == [row[0] for row in rows]
    np.testing.assert_array_equal(np.array([row[1:] for row in rows], float), model.precision_)
    with (out / "edges.csv").open(newline="", encoding="utf-8") as file:
        edges = list(csv.DictReader(file))
    assert len(edges) == 6 and list(edges[0]) == ["source", "target", "partial_correlation", "precision", "probability"]
    graph = networkx.read_graphml(out / "graph.graphml")
    assert sorted(graph.nodes) == sorted(NAMES) and graph.number_of_edges() == 6
    partial = model.partial_correlations()
    for edge in edges:
        i, j = NAMES.index(edge["source"]), NAMES.index(edge["target"])
        np.testing.assert_allclose(float(edge["partial_correlation"]), partial[i, j])
        np.testing.assert_allclose(graph.edges[edge["source"], edge["target"]]["weight"], partial[i, j])
        assert 0 <= float(edge["probability"]) <= 1
    kept = next(edge for edge in edges if {edge["source"], edge["target"]} == {"alpha", "ε"})
    assert kept["probability"] == "1.0"
    assert answer["k"] == 5 and answer["chosen_by"] is None and len(answer["edges"]) == 6
    assert "alpha - ε" in result.stdout and "[red]" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("k", ["cv", "ebic"])
def test_a_table_without_other_columns(tmp_path, k):
    _, answer = made(tmp_path / "out", "precision", save_csv(tmp_path / "data.csv"), "--k", k)
    direct = sht.SparsePrecision(k=k, random_state=0).fit(X)
    assert answer["k"] == direct.k_ and answer["chosen_by"] == k
    assert answer["variables"] == NAMES and answer["shrinkage"] == pytest.approx(direct.shrinkage_)
    np.savez(tmp_path / "data.npz", X=X, feature_names=NAMES)
    _, again = made(tmp_path / "npz", "precision", tmp_path / "data.npz", "--k", direct.k_)
    ends = [[(edge["source"], edge["target"]) for edge in each["edges"]] for each in (answer, again)]
    assert ends[0] == ends[1]


def test_the_graph_has_the_partial_correlations():
    precision = TRUTH
    graph = as_graph(precision, NAMES)
    rows, columns = np.nonzero(np.triu(precision, 1))
    assert graph.number_of_edges() == rows.size and list(graph.nodes) == NAMES
    for i, j in zip(rows, columns, strict=True):
        expected = -precision[i, j] / np.sqrt(precision[i, i] * precision[j, j])
        np.testing.assert_allclose(graph.edges[NAMES[i], NAMES[j]]["weight"], expected)
    cases.refused(ValueError, "feature_names", lambda: as_graph(precision, NAMES[:-1]))


def test_pictures_show_what_they_are_given():
    ax = plot_precision(TRUTH, NAMES).axes[0]
    shown = np.ma.filled(ax.images[0].get_array(), np.nan)
    partial = -TRUTH / np.sqrt(np.outer(np.diag(TRUTH), np.diag(TRUTH)))
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(shown[off], partial[off])
    assert np.isnan(shown[~off]).all()
    figure = plot_graph(TRUTH, NAMES, groups=list("aabbcc"))
    linked = np.flatnonzero((TRUTH != 0).sum(0) > 1)
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert len(texts) == linked.size
    assert f"{np.count_nonzero(np.triu(TRUTH, 1))} edges" in figure.axes[0].get_title()
    for empty in (plot_graph(np.eye(3)), plot_precision(np.eye(3))):
        assert "0 edges" in empty.axes[0].get_title()
    cases.refused(ValueError, "groups", lambda: plot_graph(TRUTH, NAMES, groups=[1, 2]))
    cases.refused(ValueError, "precision", lambda: plot_graph(np.ones((2, 3))))


def test_without_networkx_the_error_says_what_to_install(monkeypatch, tmp_path):
    """A command says it before it fits anything."""
    monkeypatch.setitem(sys.modules, "networkx", None)
    refused = invoke("precision", save_csv(tmp_path / "a.csv"), "--k", 1, "--out", tmp_path / "out")
    assert refused.exit_code == 2 and "networkx" in refused.stderr
    cases.refused(ImportError, "networkx", lambda: plot_graph(np.eye(3)))
