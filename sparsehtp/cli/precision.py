"""Graphs from tables: the path of `precision`."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from rich import box
from rich.markup import escape
from rich.table import Table

import sparsehtp as sht

from ..datasets import load_file
from ..datasets.files import TABLES, check_file, format_of
from ..datasets.tables import check_target, read_table
from ..io import describe_device, versions
from ..plot import as_graph, plot_graph, plot_precision
from ..thresholds import OffDiagonal, pair_index
from .common import AfterFit, Stopwatch, check_outputs, dense_table, one_sentence, plotting, progress_bar
from .files import Writer, as_csv, as_json, write_files
from .options import DecimalName, GraphOptions, ThousandsName
from .report import MAX_ROWS, Console, facts_table, print_facts, print_warnings
from .tables import print_notes, written

STABLE = 0.75  # selection probability from which an edge is called stable


def load_table(
    path: Path, drop: str | None, decimal: DecimalName | None = None, thousands: ThousandsName | None = None
) -> tuple[pd.DataFrame, Sequence[str]]:
    """The columns of a file, but for one that is left out, and how they were read.

    Raises:
        ValueError, FileNotFoundError: as `load_file`; for a column that is to be left out and does not exist.
    """
    if path.suffix.lower() == ".npz" and path.is_file():
        return _load_npz(path, drop), []
    check_file(path)
    if format_of(path) not in TABLES:
        data = load_file(path, drop)
        return pd.DataFrame(data.X, columns=data.feature_names), []
    left_out = [] if drop is None else [drop]
    table = read_table(path, [], written(decimal, thousands), as_is=left_out)
    if drop is not None:
        check_target(path, list(table.frame.columns), drop, option="drop")
    table.check(path, table.unclear)
    try:
        return sht.TablePreprocessor(drop=left_out).fit_transform(table.frame), table.notes
    except ValueError as error:
        raise ValueError(f"path: {path.name}{str(error).removeprefix('X')}") from error


def _load_npz(path: Path, drop: str | None) -> pd.DataFrame:
    table = dense_table(path)[1]
    if drop is not None and drop not in table.columns:
        raise ValueError(
            f"drop: there is no column {drop!r} in {path.name}; choose one of {', '.join(table.columns[:8])}."
        )
    return table if drop is None else table.drop(columns=drop)


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


def run(
    load: Callable[[], tuple[pd.DataFrame, Sequence[str]]],
    load_keep: Callable[[], list[list[str]] | None],
    options: GraphOptions,
    out: Path,
    source: str,
    save: Path | None = None,
) -> None:
    """Estimate the matrix of what `load` returns and report it; exits with 2 for bad input, and with 1 where something
    that follows failed."""
    console, errors = Console(), Console(stderr=True)
    wrong = (ValueError, TypeError, OSError, ImportError)
    with one_sentence(errors, *wrong), errors.status("1/3 Loading data"):
        check_outputs(out, save)
        as_graph(np.eye(2))
        if options.stability % 2:
            raise ValueError(f"stability: subsamples come as pairs, so it must be even, got {options.stability}.")
        keep = load_keep()
        X, notes = load()
        print_notes(errors, notes)
        X = X.astype(options.dtype)
        if X.columns.has_duplicates:
            raise ValueError(f"path: {source} has two columns of one name; rename one of them.")
    after = AfterFit()
    with one_sentence(errors, *wrong), Stopwatch() as timing, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with errors.status("2/3 Compiling and fitting"):
            model = make_estimator(options, keep).fit(X)
        asked = options.stability and model.k_
        chances = after("stability", lambda: _stability(model, X, options, errors)) if asked else None
    with plotting(errors, "3/3 Plotting"):
        answer = describe(model, X, chances, options, source)
        paths = [] if save is None else after("save", lambda: [sht.save(model, save).absolute()], [])
        files = _files(model, X, answer, after)
        paths = [*after("files", lambda: write_files(out, files), []), *paths]
    console.print(_table(answer))
    _print_facts(console, answer, timing, paths)
    print_warnings(errors, caught, "SparsePrecision")
    after.say(errors)


def make_estimator(options: GraphOptions, keep: list[list[str]] | None) -> sht.SparsePrecision:
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


def _stability(model: Any, X: pd.DataFrame, options: GraphOptions, errors: Console) -> np.ndarray:
    """(p, p) share of the subsamples that hold each edge."""
    place = {name: j for j, name in enumerate(X.columns)}
    keep = None if model.keep is None else [[place[a], place[b]] for a, b in model.keep]
    with jax.enable_x64(options.dtype == "float64"), progress_bar(errors, "stability") as progress:
        stability = sht.stability_selection(
            sht.Precision.from_data(X.to_numpy(), standardize=options.standardize, shrinkage=model.shrinkage),
            [model.k_],
            options.stability,
            OffDiagonal(0, keep=keep),
            key=jax.random.key(options.seed),
            progress=progress,
        )
    p = X.shape[1]
    chances = np.zeros((p, p))
    rows, columns = np.triu_indices(p, 1)
    chances[rows, columns] = stability.probabilities[0][pair_index(rows, columns, p)]
    return chances + chances.T


def describe(
    model: sht.SparsePrecision, X: pd.DataFrame, chances: np.ndarray | None, options: GraphOptions, source: str
) -> dict[str, Any]:
    """Everything about a graph that is worth keeping, as JSON can hold it."""
    place = {name: j for j, name in enumerate(X.columns)}
    edges = []
    for first, second, partial in model.edges():
        i, j = place[first], place[second]
        edge = {"source": first, "target": second, "partial_correlation": partial}
        edge["precision"] = float(model.precision_[i, j])
        edges.append(edge if chances is None else {**edge, "probability": float(chances[i, j])})
    results = model.cv_results_
    return {
        "file": source,
        "n": X.shape[0],
        "variables": list(X.columns),
        **dataclasses.asdict(options),
        "k": model.k_,
        "shrinkage": model.shrinkage_,
        "chosen_by": None if options.k.isdecimal() else options.k,
        "edges": edges,
        "choice": None if results is None else {name: np.asarray(column).tolist() for name, column in results.items()},
        "log_likelihood": float(model.score(X)),
        "objective": model.objective_value_,
        "num_steps": model.n_iter_,
        "result": {"name": model.result_, "sentence": sht.RESULTS[model.result_].sentence},
        "versions": versions(),
        "device": describe_device(),
    }


def _files(model: Any, X: pd.DataFrame, answer: dict[str, Any], after: AfterFit) -> dict[str, Writer]:
    import networkx

    names = list(X.columns)
    graph = as_graph(model.precision_, names)
    for edge in answer["edges"]:
        numbers = {name: value for name, value in edge.items() if name not in ("source", "target")}
        graph.add_edge(edge["source"], edge["target"], **numbers)
    header = list(answer["edges"][0]) if answer["edges"] else ["source", "target", "partial_correlation", "precision"]
    rows = zip(names, model.precision_.tolist(), strict=True)
    figures: dict[str, Any] = {}
    after.draw(figures, "heatmap", plot_precision, model.precision_, names)
    after.draw(figures, "graph", plot_graph, model.precision_, names)
    images = after.images(figures)
    return {
        "precision.json": as_json(after.told(answer)),
        "precision.csv": as_csv(["variable", *names], ([name, *row] for name, row in rows)),
        "edges.csv": as_csv(header, (edge.values() for edge in answer["edges"])),
        "graph.graphml": lambda path: networkx.write_graphml(graph, path),
        **images,
    }


def _table(answer: dict[str, Any]) -> Table:
    edges = answer["edges"]
    title = f"{len(edges)} edges among {len(answer['variables'])} variables"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("edge", overflow="fold")
    table.add_column("partial\ncorrelation", justify="right", no_wrap=True)
    likely = bool(edges) and "probability" in edges[0]
    if likely:
        table.add_column("selected in", justify="right", no_wrap=True)
    for edge in edges[:MAX_ROWS]:
        numbers = [f"{edge['partial_correlation']:+.3f}"] + ([f"{edge['probability']:.0%}"] if likely else [])
        table.add_row(escape(f"{edge['source']} - {edge['target']}"), *numbers)
    if len(edges) > MAX_ROWS:
        table.caption = f"... and {len(edges) - MAX_ROWS} more in edges.csv"
    return table


def _print_facts(console: Console, answer: dict[str, Any], timing: Stopwatch, paths: list[Path]) -> None:
    facts = facts_table()
    p = len(answer["variables"])
    facts.add_row("data", escape(f"{answer['file']}, {answer['n']} rows, {p} variables"))
    how = {None: "given", "cv": "by cross-validation"}.get(answer["chosen_by"], f"by {answer['chosen_by']}")
    facts.add_row("k", f"{answer['k']} ({how})")
    facts.add_row("likelihood", f"{answer['log_likelihood']:.6g} (mean log-likelihood of these rows)")
    if answer["edges"] and "probability" in answer["edges"][0]:
        stable = sum(edge["probability"] >= STABLE for edge in answer["edges"])
        facts.add_row("stable", f"{stable} edges are in {STABLE:.0%} or more of {answer['stability']} subsamples")
    facts.add_row("result", f"{answer['result']['name']} after {answer['num_steps']} steps")
    facts.add_row("time", f"{timing} on {answer['device']['kind']}")
    print_facts(console, facts, paths)
