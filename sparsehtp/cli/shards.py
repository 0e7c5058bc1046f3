"""Data in many files, a few in memory at a time: the path of `fit --shards`."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

import sparsehtp as sht

from ..datasets import Shards
from ..io import describe_device, versions
from .common import check_outputs, loss_of, one_sentence, plotting, progress_bar
from .files import as_csv, as_json, write_files
from .options import Options
from .report import Console, facts_table, print_facts, print_warning

DEFAULT_L2 = 1e-4
MAX_ROWS = 30


def run(pattern: str, target: str | None, options: Options, out: Path, checkpoint: Path | None = None) -> None:
    """Fit the rows of all files of a pattern and report it; exits with 2 for bad input."""
    console, errors = Console(), Console(stderr=True)
    problem, wrong = options.problem, (ValueError, TypeError, OSError, ImportError)
    with one_sentence(errors, *wrong):
        check_outputs(out)
        if not options.k.isdecimal():
            raise ValueError("k: with --shards the number of features must be given, for example --k 10.")
        loss = loss_of(problem)
        with errors.status("Looking at the files"):
            shards = Shards(pattern, target)
            names = shards.feature_names()
            if loss.classification:
                shards.labels = _labels(shards.read(0).y)
    l2 = DEFAULT_L2 if options.l2 is None else options.l2
    size = f"{shards.n_bytes / 1e9:.2f} GB" if shards.n_bytes > 5e7 else f"{shards.n_bytes / 1e6:.2f} MB"
    errors.print(
        f"{len(shards)} files, {shards.n_samples:,} rows, {shards.n_features:,} features, {size}: every pass reads "
        "all of them; a few passes for squared loss, some ten for others. Columns are used as they are.",
        soft_wrap=True,
    )
    double = problem.dtype == "float64"
    with one_sentence(errors, *wrong), jax.enable_x64(double), progress_bar(errors, "shards") as progress:
        found = sht.solve_stream(
            shards,
            sht.Sparsity(int(options.k)),
            loss,
            l2=l2,
            fit_intercept=problem.intercept,
            dtype=np.dtype(problem.dtype),
            key=jax.random.key(problem.seed),
            checkpoint=checkpoint,
            progress=lambda done, total: progress(done, total or 0),
        )
    model = _model(shards, names, found, options, l2)
    rows = [(row["name"], row["index"], row["coefficient"]) for row in model["coefficients"]]
    with plotting(errors, "Writing"):
        files = {"model.json": as_json(model), "coefficients.csv": as_csv(["name", "index", "coefficient"], rows)}
        paths = write_files(out, files)
    console.print(_table(model))
    facts = facts_table()
    facts.add_row("data", escape(f"{pattern}: {len(shards)} files, {shards.n_samples:,} rows"))
    facts.add_row("model", f"{problem.loss} loss, k = {options.k}, l2 = {l2:g}")
    facts.add_row("objective", f"{found.value:.6g}")
    how = "the support repeated itself after an exact refit" if found.converged else "stopped at the limit of passes"
    facts.add_row("result", f"{how}, after {found.passes} passes over the data")
    facts.add_row(
        "time", f"{found.seconds:.1f} s, {found.passes * shards.n_samples / found.seconds:,.0f} rows a second"
    )
    print_facts(console, facts, paths)
    if not found.converged:
        print_warning(errors, "The fit did not converge; use a larger --l2.")


def _labels(y: Any) -> tuple[Any, Any]:
    """The two labels of the first file, in sorted order."""
    labels = np.unique(y)
    if labels.size != 2:
        raise ValueError(f"target: the first file must hold both of two labels, but it has {labels.size}.")
    return labels[0], labels[1]


def _model(shards: Shards, names: Any, found: sht.Streamed, options: Options, l2: float) -> dict[str, Any]:
    """Everything about a streamed fit that is worth keeping, as JSON can hold it."""
    order = found.support[np.argsort(-np.abs(found.x[found.support]), kind="stable")]
    return {
        "files": [path.name for path in shards.paths],
        "n": shards.n_samples,
        "p": shards.n_features,
        "k": int(options.k),
        "loss": options.problem.loss,
        "loss_parameter": options.problem.loss_parameter,
        "l2": l2,
        "fit_intercept": options.problem.intercept,
        "classes": None if shards.labels is None else {"-1": str(shards.labels[0]), "+1": str(shards.labels[1])},
        "dtype": options.problem.dtype,
        "seed": options.problem.seed,
        "coefficients": [{"name": names[j], "index": int(j), "coefficient": float(found.x[j])} for j in order],
        "intercept": found.intercept,
        "objective": found.value,
        "converged": found.converged,
        "passes": found.passes,
        "values": found.values.tolist(),
        "seconds": found.seconds,
        "versions": versions(),
        "device": describe_device(),
    }


def _table(model: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("feature", overflow="fold")
    table.add_column("coefficient", justify="right", no_wrap=True)
    for row in model["coefficients"][:MAX_ROWS]:
        table.add_row(escape(str(row["name"])), f"{row['coefficient']:+.5g}")
    if len(model["coefficients"]) > MAX_ROWS:
        table.caption = f"... and {len(model['coefficients']) - MAX_ROWS} more in coefficients.csv"
    table.add_section()
    table.add_row("intercept", f"{model['intercept']:+.5g}")
    return table
