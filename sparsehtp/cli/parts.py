"""Data in many files, a part in memory at a time: least squares reads them once, other losses in every pass."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from rich import filesize
from rich.table import Table
from sklearn.pipeline import Pipeline

import sparsehtp as sht

from ..datasets import Data, Shards
from ..datasets.parquet import numbers_of
from ..datasets.shards import in_parts
from ..datasets.tables import NEEDED
from ..io import memory
from ..linalg import mean_and_deviation, merged
from ..statistics import too_wide
from .caveats import EXACT, caveat
from .common import loss_of, one_sentence, progress_bar
from .files import Writer, as_csv
from .fit import Fit, make_estimator
from .flow import WRONG, Flow
from .options import FitOptions, PathOptions
from .path import Subsets, check_path
from .report import Console, Sheet, on_terminal, print_warning, signed

DEFAULT_L2 = 1e-4
FOLDS = 5
MOST_FEATURES = 20  # of a path, where none is named


def opened(options: FitOptions | PathOptions) -> Shards | None:
    """The parts of data that are not read whole: files that together hold the rows, and a Parquet file that memory is
    too small for; None for others."""
    path = Path(options.file)
    with one_sentence(Console(stderr=True), *WRONG):
        large = path.suffix == ".parquet" and path.is_file() and numbers_of(path) * 8 > memory.default_limit(NEEDED)
        return Shards(path, options.target, drop=options.drop or ()) if large or in_parts(path) else None


def read_once(options: FitOptions | PathOptions, shards: Shards) -> bool:
    """Whether one pass over the rows is enough: of least squares, whose triangles have room in memory."""
    return options.model == "squared" and not too_wide(shards.n_features, 1, options.cv or FOLDS)


class _OfParts(Flow):
    """A command on parts that together hold the rows."""

    def __init__(self, options: FitOptions | PathOptions, shards: Shards) -> None:
        super().__init__(options)
        self.shards = shards

    @property
    def source(self) -> str:
        return str(self.options.file)


class _Once(_OfParts):
    """One pass over the rows, which makes all that least squares needs of them."""

    def read_rows(self) -> sht.SufficientStatistics:
        options, shards = self.options, self.shards
        folds = min(options.cv or FOLDS, shards.n_samples)
        checkpoint = None if options.checkpoint is None else options.checkpoint / f"rows-{folds}-folds"
        known = checkpoint is not None and checkpoint.exists()
        how = f"what {options.checkpoint} holds of them is not read again" if known else "they are read once"
        _print_size(self.errors, shards, how)
        with progress_bar(self.errors, "rows") as progress:
            return sht.SufficientStatistics.from_files(shards, folds=folds, checkpoint=checkpoint, progress=progress)

    def feature_names(self) -> list[str]:
        return [str(name) for name in self.shards.feature_names()]

    @property
    def target_name(self) -> str:
        return str(self.options.target or "y")


class Gathered(_Once, Fit):
    """`sparsehtp fit` of least squares on the parts of many files: choice, certificate and proof are of all rows."""

    def load(self) -> None:
        self.names = self.units = self.feature_names()

    def work(self) -> None:
        self.statistics = self.read_rows()
        super().work()

    def fit(self) -> Any:
        return make_estimator(self.options, None).fit(self.statistics)

    def saved(self) -> Any:
        names = self.statistics.feature_names
        if names is None:
            return self.fitted
        table = pd.DataFrame(np.zeros((1, len(names))), columns=names)  # of which the names are learned
        return Pipeline([("table", sht.TablePreprocessor().fit(table)), ("model", self.fitted)])

    def rows(self) -> dict[str, Any]:
        numbers = self.statistics
        told = {"n": numbers.n_samples, "n_test": 0, "p": numbers.n_features, "n_units": numbers.n_features}
        return {"file": self.source, "target": self.target_name, "classes": None, "reference_levels": {}} | told

    def deviations(self, chosen: np.ndarray) -> np.ndarray:
        return _deviations(self.statistics)[chosen]

    def scores(self) -> dict[str, Any]:
        A, weights, _ = self.statistics.stand_ins(self.options.intercept)
        error = A[:, -1] - A[:, :-1] @ self.fitted.coef_
        if self.options.intercept:  # the best one
            error -= weights @ error / weights.sum()
        spread = weights.sum() * _deviations(self.statistics)[-1] ** 2
        score = None if spread == 0 else 1 - float(weights @ error**2 / spread)
        return {"metric": "R2", "train_score": score, "test_score": None}

    def caveat(self, model: dict[str, Any]) -> dict[str, Any]:
        score = model["train_score"]
        return caveat(self.fitted, model["n"], lambda: score is not None and score > 1 - EXACT)

    def draw_rows(self, figures: dict[str, Any], model: dict[str, Any]) -> None:
        pass  # there are none left


class GatheredSubsets(_Once, Subsets):
    """`sparsehtp path` of least squares on the parts of many files."""

    @property
    def chunks(self) -> None:
        """Of what takes seconds none is kept: another question has other parts."""
        return None

    def load(self) -> None:
        options, shards = self.options, self.shards
        names = self.feature_names()
        check_path(options, shards.n_samples, len(names))
        self.table = self.classes = None
        self.data, self.units = Data(np.empty((0, len(names))), np.empty(0), names, self.target_name), names

    def work(self) -> None:
        options = self.options
        self.statistics = numbers = self.read_rows()
        self.n_samples = numbers.n_samples
        self.most = min(MOST_FEATURES, numbers.n_features, numbers.n_samples // 2)
        with jax.enable_x64(True):
            self.objective = numbers.model(
                options.l2[0], fit_intercept=options.intercept, standardize=options.standardize
            )
        super().work()

    def folds(self) -> Any:
        return self.statistics.folds

    def deviations(self) -> np.ndarray:
        return _deviations(self.statistics)[:-1]


class Stream(_OfParts):
    """`sparsehtp fit` of other losses on the parts of many files."""

    def load(self) -> None:
        options, shards = self.options, self.shards
        if not options.k.isdecimal():
            raise ValueError("k: where the files are read in every pass it must be a number, for example --k 10.")
        if options.model == "negative-binomial" and options.loss_parameter is None:
            raise ValueError(
                "loss-parameter: where the files are read in every pass the dispersion is not estimated; give it, for "
                "example --loss-parameter 0.5."
            )
        self.l2, self.loss = DEFAULT_L2 if options.l2 is None else options.l2, loss_of(options)
        self.names = shards.feature_names()
        if self.loss.classification:
            shards.labels = _labels(shards.read(0).y)
        else:
            shards.check_targets()
        _print_size(self.errors, shards, "every pass reads all of them, and there are some ten")

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
            "files": list(dict.fromkeys(path.name for path in shards.paths)),
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
        rows = [[str(row["name"]), signed(row["coefficient"])] for row in model["coefficients"]]
        sheet = Sheet("", ["feature", "coefficient"], rows, foot=[["intercept", signed(model["intercept"])]])
        return [on_terminal(sheet, "coefficients.csv")]

    def facts(self, model: dict[str, Any]) -> dict[str, str]:
        ended = "the support repeated itself after an exact refit"
        ended = ended if model["converged"] else "stopped at the limit of passes"
        return {
            "data": f"{self.source}: {len(model['files'])} files, {model['n']:,} rows",
            "model": f"{model['loss']} loss, k = {model['k']}, l2 = {model['l2']:g}",
            "objective": f"{model['objective']:.6g}",
            "result": f"{ended}, after {model['passes']} passes over the data",
            "speed": f"{model['passes'] * model['n'] / model['seconds']:,.0f} rows a second",
        }

    def ended(self, model: dict[str, Any]) -> bool:
        if not model["converged"]:
            print_warning(self.errors, "The fit did not converge; use a larger --l2.")
        return True


def _deviations(statistics: sht.SufficientStatistics) -> np.ndarray:
    """Standard deviations of the features and the target."""
    return mean_and_deviation(merged(statistics.triangles[:, None])[0])[1]


def _print_size(errors: Console, shards: Shards, how: str) -> None:
    files = len(set(shards.paths))
    errors.print(
        f"{files} {'file' if files == 1 else 'files'}, {shards.n_samples:,} rows, {shards.n_features:,} features, "
        f"{filesize.decimal(shards.n_bytes)}: {how}. Columns are used as they are.",
        soft_wrap=True,
    )


def _labels(y: np.ndarray) -> tuple[Any, Any]:
    """The two labels of the first file, in sorted order."""
    if any(label is None or label != label for label in y.tolist()):
        raise ValueError("target: a label of the first file is missing; leave such rows out.")
    labels = np.unique(y)
    if labels.size != 2:
        raise ValueError(f"target: the first file must hold both of two labels, but it has {labels.size}.")
    return labels[0], labels[1]
