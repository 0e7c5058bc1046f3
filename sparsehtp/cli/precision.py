"""Graphs from tables: the flow of `precision`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from rich.table import Table

import sparsehtp as sht

from ..datasets import load_file
from ..datasets.files import TABLES, check_file, format_of
from ..datasets.numerals import AS_IT_SAYS, Written
from ..datasets.tables import check_target, read_table
from ..plot import as_graph, plot_graph, plot_precision
from ..thresholds import OffDiagonal, pair_index
from .common import dense_table, progress_bar
from .files import Writer, as_csv
from .flow import Flow
from .options import GraphOptions
from .report import Number, Sheet, on_terminal
from .tables import print_notes, written

STABLE = 0.75  # selection probability from which an edge is called stable


def load_variables(path: Path, drop: str | None, given: Written = AS_IT_SAYS) -> tuple[pd.DataFrame, Sequence[str]]:
    """The columns of a file, but for one that is left out, and how they were read.

    Raises:
        ValueError, FileNotFoundError: as `load_file`; for a column that is to be left out and does not exist.
    """
    if path.suffix.lower() == ".npz" and path.is_file():
        table = dense_table(path)[1]
        if drop is not None:
            check_target(path, list(table.columns), drop, option="drop")
        return table.drop(columns=[] if drop is None else drop), []
    check_file(path)
    if format_of(path) not in TABLES:
        data = load_file(path, drop)
        return pd.DataFrame(data.X, columns=data.feature_names), []
    left_out = [] if drop is None else [drop]
    read = read_table(path, given, as_is=left_out)
    if drop is not None:
        check_target(path, list(read.frame.columns), drop, option="drop")
    read.check(path, read.unclear)
    try:
        return sht.TablePreprocessor(drop=left_out).fit_transform(read.frame), read.notes
    except ValueError as error:
        raise ValueError(f"path: {path.name}{str(error).removeprefix('X')}") from error


def split_pairs(keep: Sequence[str] | None) -> list[list[str]] | None:
    """Pairs of names from A,B.

    Raises:
        ValueError: for anything else.
    """
    pairs = [[name.strip() for name in pair.split(",")] for pair in keep or ()]
    for pair in pairs:
        if len(pair) != 2:
            raise ValueError(f"keep: needs two column names as A,B, got {','.join(pair)!r}.")
    return pairs or None


class Graph(Flow):
    """`sparsehtp precision`."""

    json, estimator = "precision.json", "SparsePrecision"

    def load(self) -> None:
        options = self.options
        as_graph(np.eye(2))
        if options.stability % 2:
            raise ValueError(f"stability: subsamples come as pairs, so it must be even, got {options.stability}.")
        self.keep = split_pairs(options.keep)
        X, notes = load_variables(options.file, options.drop, written(options))
        print_notes(self.errors, notes)
        self.X = X.astype(options.dtype)
        if X.columns.has_duplicates:
            raise ValueError(f"path: {self.source} has two columns of one name; rename one of them.")

    def work(self) -> None:
        with self.errors.status("2/3 Compiling and fitting"):
            self.fitted = make_graph(self.options, self.keep).fit(self.X)
        asked = self.options.stability and self.fitted.k_
        self.chances = self.after("stability", self._stability) if asked else None

    def saved(self) -> Any:
        return self.fitted

    def _stability(self) -> np.ndarray:
        """(p, p) share of the subsamples that hold each edge."""
        options, X, keep = self.options, self.X, self.keep
        place = {name: j for j, name in enumerate(X.columns)}
        threshold = OffDiagonal(0, keep=None if keep is None else [[place[a], place[b]] for a, b in keep])
        with jax.enable_x64(options.dtype == "float64"), progress_bar(self.errors, "stability") as progress:
            stability = sht.stability_selection(
                sht.Precision.from_data(X.to_numpy(), standardize=options.standardize, shrinkage=self.fitted.shrinkage),
                ks=[self.fitted.k_],
                n_resamples=options.stability,
                threshold=threshold,
                key=jax.random.key(options.seed),
                progress=progress,
            )
        p = X.shape[1]
        chances = np.zeros((p, p))
        rows, columns = np.triu_indices(p, 1)
        chances[rows, columns] = stability.probabilities[0][pair_index(rows, columns, p)]
        return chances + chances.T

    def describe(self) -> dict[str, Any]:
        X, fitted, chances, options = self.X, self.fitted, self.chances, self.options
        place = {name: j for j, name in enumerate(X.columns)}
        edges = []
        for first, second, partial in fitted.edges():
            i, j = place[first], place[second]
            edge = {"source": first, "target": second, "partial_correlation": partial}
            edge["precision"] = float(fitted.precision_[i, j])
            edges.append(edge if chances is None else {**edge, "probability": float(chances[i, j])})
        results = fitted.cv_results_
        return {
            "file": self.source,
            "n": X.shape[0],
            "variables": list(X.columns),
            "k": fitted.k_,
            **{name: getattr(options, name) for name in ("solver", "standardize", "cv", "stability", "seed", "dtype")},
            "shrinkage": fitted.shrinkage_,
            "chosen_by": None if options.k.isdecimal() else options.k,
            "edges": edges,
            "choice": None
            if results is None
            else {name: np.asarray(column).tolist() for name, column in results.items()},
            "log_likelihood": float(fitted.score(X)),
            "objective": fitted.objective_value_,
            "num_steps": fitted.n_iter_,
            "result": {"name": fitted.result_, "sentence": sht.results.RESULTS[fitted.result_].sentence},
        }

    def draw(self, model: dict[str, Any]) -> dict[str, Any]:
        figures: dict[str, Any] = {}
        self.after.draw(figures, "heatmap", plot_precision, self.fitted.precision_, model["variables"])
        self.after.draw(figures, "graph", plot_graph, self.fitted.precision_, model["variables"])
        return figures

    def files(self, model: dict[str, Any]) -> dict[str, Writer]:
        import networkx

        names, edges = model["variables"], model["edges"]
        graph = as_graph(self.fitted.precision_, names)
        for edge in edges:
            numbers = {name: value for name, value in edge.items() if name not in ("source", "target")}
            graph.add_edge(edge["source"], edge["target"], **numbers)
        header = list(edges[0]) if edges else ["source", "target", "partial_correlation", "precision"]
        rows = zip(names, self.fitted.precision_.tolist(), strict=True)
        return {
            "precision.csv": as_csv(["variable", *names], ([name, *row] for name, row in rows)),
            "edges.csv": as_csv(header, (edge.values() for edge in edges)),
            "graph.graphml": lambda path: networkx.write_graphml(graph, path),
        }

    def tables(self, model: dict[str, Any]) -> list[Table]:
        return [on_terminal(_sheet(model), "edges.csv")]

    def facts(self, model: dict[str, Any]) -> dict[str, str]:
        how = {None: "given", "cv": "by cross-validation"}.get(model["chosen_by"], f"by {model['chosen_by']}")
        facts = {
            "data": f"{model['file']}, {model['n']} rows, {len(model['variables'])} variables",
            "k": f"{model['k']} ({how})",
            "likelihood": f"{model['log_likelihood']:.6g} (mean log-likelihood of these rows)",
        }
        if model["edges"] and "probability" in model["edges"][0]:
            stable = sum(edge["probability"] >= STABLE for edge in model["edges"])
            facts["stable"] = f"{stable} edges are in {STABLE:.0%} or more of {model['stability']} subsamples"
        return facts | {"result": f"{model['result']['name']} after {model['num_steps']} steps"}


def make_graph(options: GraphOptions, keep: list[list[str]] | None) -> sht.SparsePrecision:
    """The estimator of these settings, not fitted."""
    return sht.SparsePrecision(
        k=int(options.k) if options.k.isdecimal() else options.k,
        solver=options.solver,
        standardize=options.standardize,
        shrinkage="oas" if options.shrinkage is None else options.shrinkage,
        keep=keep,
        cv=options.cv,
        random_state=options.seed,
    )


def _sheet(answer: dict[str, Any]) -> Sheet:
    edges = answer["edges"]
    likely = bool(edges) and "probability" in edges[0]
    head = ["edge", "partial\ncorrelation", *(["selected in"] if likely else [])]
    rows = []
    for edge in edges:
        partial = edge["partial_correlation"]
        share = [Number(edge["probability"], f"{edge['probability']:.0%}")] if likely else []
        rows.append([f"{edge['source']} - {edge['target']}", Number(partial, f"{partial:+.3f}"), *share])
    return Sheet(f"{len(edges)} edges among {len(answer['variables'])} variables", head, rows)
