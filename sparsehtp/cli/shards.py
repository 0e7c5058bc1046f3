"""Data in many files, a few in memory at a time: the flow of `fit --shards`."""

from typing import Any

import jax
import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

import sparsehtp as sht

from ..datasets import Shards
from .common import loss_of, progress_bar
from .files import Writer, as_csv
from .flow import Flow
from .report import MAX_ROWS, print_warning

DEFAULT_L2 = 1e-4


class Stream(Flow):
    """`sparsehtp fit --shards`."""

    @property
    def source(self) -> str:
        return str(self.options.shards)

    def load(self) -> None:
        options = self.options
        if not options.k.isdecimal():
            raise ValueError("k: with --shards the number of features must be given, for example --k 10.")
        self.l2, self.loss = DEFAULT_L2 if options.l2 is None else options.l2, loss_of(options)
        self.shards = shards = Shards(options.shards, options.target)
        self.names = shards.feature_names()
        if self.loss.classification:
            shards.labels = _labels(shards.read(0).y)
        size = f"{shards.n_bytes / 1e9:.2f} GB" if shards.n_bytes > 5e7 else f"{shards.n_bytes / 1e6:.2f} MB"
        self.errors.print(
            f"{len(shards)} files, {shards.n_samples:,} rows, {shards.n_features:,} features, {size}: every pass reads "
            "all of them; a few passes for squared loss, some ten for others. Columns are used as they are.",
            soft_wrap=True,
        )

    def work(self) -> None:
        options = self.options
        with jax.enable_x64(options.dtype == "float64"), progress_bar(self.errors, "shards") as progress:
            self.found = sht.solve_stream(
                self.shards,
                sht.Sparsity(int(options.k)),
                self.loss,
                l2=self.l2,
                fit_intercept=options.intercept,
                dtype=np.dtype(options.dtype),
                key=jax.random.key(options.seed),
                checkpoint=options.checkpoint,
                progress=lambda done, total: progress(done, total or 0),
            )

    def describe(self) -> dict[str, Any]:
        shards, found, options = self.shards, self.found, self.options
        order = found.support[np.argsort(-np.abs(found.x[found.support]), kind="stable")]
        return {
            "files": [path.name for path in shards.paths],
            "n": shards.n_samples,
            "p": shards.n_features,
            "k": int(options.k),
            "loss": options.loss,
            "loss_parameter": options.loss_parameter,
            "l2": self.l2,
            "fit_intercept": options.intercept,
            "classes": None if shards.labels is None else {"-1": str(shards.labels[0]), "+1": str(shards.labels[1])},
            "dtype": options.dtype,
            "seed": options.seed,
            "coefficients": [{"name": self.names[j], "index": int(j), "coefficient": float(found.x[j])} for j in order],
            "intercept": found.intercept,
            "objective": found.value,
            "converged": found.converged,
            "passes": found.passes,
            "values": found.values.tolist(),
            "seconds": found.seconds,
        }

    def files(self, model: dict[str, Any]) -> dict[str, Writer]:
        rows = [(row["name"], row["index"], row["coefficient"]) for row in model["coefficients"]]
        return {"coefficients.csv": as_csv(["name", "index", "coefficient"], rows)}

    def tables(self, model: dict[str, Any]) -> list[Table]:
        return [_table(model)]

    def facts(self, model: dict[str, Any]) -> dict[str, str]:
        ended = "the support repeated itself after an exact refit"
        ended = ended if model["converged"] else "stopped at the limit of passes"
        return {
            "data": f"{self.source}: {len(self.shards)} files, {model['n']:,} rows",
            "model": f"{model['loss']} loss, k = {model['k']}, l2 = {model['l2']:g}",
            "objective": f"{model['objective']:.6g}",
            "result": f"{ended}, after {model['passes']} passes over the data",
            "speed": f"{model['passes'] * model['n'] / model['seconds']:,.0f} rows a second",
        }

    def ended(self, model: dict[str, Any]) -> bool:
        if not model["converged"]:
            print_warning(self.errors, "The fit did not converge; use a larger --l2.")
        return True


def _labels(y: np.ndarray) -> tuple[Any, Any]:
    """The two labels of the first file, in sorted order."""
    labels = np.unique(y)
    if labels.size != 2:
        raise ValueError(f"target: the first file must hold both of two labels, but it has {labels.size}.")
    return labels[0], labels[1]


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
