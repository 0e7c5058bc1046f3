"""Several responses, one low rank: the flow of `lowrank`."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

import sparsehtp as sht

from ..datasets import load_file
from ..datasets.arrays import pick
from ..datasets.numerals import AS_IT_SAYS, Written
from ..plot import plot_ranks
from .common import dense_table
from .files import Writer, as_csv
from .flow import Flow
from .report import Number, Sheet, on_terminal
from .tables import print_notes, written


class LowRank(Flow):
    """`sparsehtp lowrank`."""

    estimator = "LowRankRegressor"

    def load(self) -> None:
        options, targets = self.options, [name.strip() for name in self.options.targets.split(",") if name.strip()]
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            X, Y = load_responses(options.file, targets, written(options))
        print_notes(self.errors, [str(note.message).rstrip(".") for note in notes if note.category is UserWarning])
        self.X, self.Y = X.astype(options.dtype), Y.astype(options.dtype)

    def work(self) -> None:
        options = self.options
        with self.errors.status("2/3 Compiling and fitting"):
            self.fitted = sht.LowRankRegressor(
                int(options.rank) if options.rank.isdecimal() else options.rank,
                l2=options.l2,
                fit_intercept=options.intercept,
                standardize=options.standardize,
                cv=options.cv,
                one_se=options.one_se,
            ).fit(self.X, self.Y)

    def saved(self) -> Any:
        return self.fitted

    def describe(self) -> dict[str, Any]:
        X, Y, fitted, options = self.X, self.Y, self.fitted, self.options
        table = fitted.cv_results_
        return {
            "file": self.source,
            "n": len(X),
            "features": list(X.columns),
            "responses": list(Y.columns),
            "rank": fitted.rank_,
            "chosen_by": None if options.rank.isdecimal() else options.rank,
            "l2": options.l2,
            "standardize": options.standardize,
            "fit_intercept": options.intercept,
            "dtype": options.dtype,
            "coefficients": fitted.coef_.astype(float).tolist(),
            "intercept": np.asarray(fitted.intercept_, float).tolist(),
            "singular_values": fitted.singular_values_.astype(float).tolist(),
            "result": fitted.result_,
            "objective": fitted.objective_value_,
            "r2": float(fitted.score(X, Y)),
            "cv": None
            if table is None
            else {
                "folds": len(table["scores"]),
                "best": int(table["best_index"]),
                "one_standard_error": int(table["best_1se_index"]),
                "table": [
                    {"rank": int(r), "mean_loss": float(m), "se": float(s)}
                    for r, m, s in zip(table["ranks"], table["mean_loss"], table["se"], strict=True)
                ],
            },
        }

    def draw(self, model: dict[str, Any]) -> dict[str, Any]:
        figures: dict[str, Any] = {}
        self.after.draw(figures, "ranks", plot_ranks, self.fitted)
        return figures

    def files(self, model: dict[str, Any]) -> dict[str, Writer]:
        rows = [(name, *row) for name, row in zip(self.X.columns, self.fitted.coef_.T, strict=True)]
        return {"coefficients.csv": as_csv(["feature", *self.Y.columns], rows)}

    def tables(self, model: dict[str, Any]) -> list[Table]:
        return [] if model["cv"] is None else [on_terminal(_sheet(model))]

    def facts(self, model: dict[str, Any]) -> dict[str, str]:
        how = {None: "", "cv": " (by cross-validation)"}.get(model["chosen_by"], f" (by {model['chosen_by']})")
        p, responses = len(model["features"]), len(model["responses"])
        shown = ", ".join(f"{value:.4g}" for value in model["singular_values"]) or "none"
        return {
            "data": f"{model['file']}, {model['n']} rows, {p} features, {responses} responses",
            "rank": f"{model['rank']}{how}, l2 = {model['l2']:g}",
            "singular values": f"{shown} (of coefficients per standard deviation)",
            "train R2": f"{model['r2']:.4f}, the mean over the responses",
            "result": f"{model['result']}, the global minimum for this rank",
        }


def load_responses(
    file: Path, targets: Sequence[str], given: Written = AS_IT_SAYS
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Features and responses as data frames.

    Raises:
        ValueError: for unknown or non-numeric targets, and as `load_file`.
    """
    if not targets:
        raise ValueError("targets: name at least one response, for example --targets heart,lung.")
    if len(set(targets)) < len(targets):
        raise ValueError("targets: a column is named twice; name each once.")
    if file.suffix.lower() == ".npz" and len(targets) == 1:
        return _load_arrays(file, targets[0])
    data = load_file(file, targets[0], **given._asdict())
    table = pd.DataFrame(data.X, columns=data.feature_names)
    missing = [name for name in targets[1:] if name not in table.columns]
    if missing:
        raise ValueError(f"targets: there is no column {missing[0]!r} in {file.name}; name columns, joined by commas.")
    if data.y.dtype.kind != "f":
        raise ValueError(f"targets: {targets[0]!r} is not numeric; low-rank regression needs numbers.")
    if len(targets) > table.shape[1]:
        raise ValueError("targets: no column is left as a feature; name fewer.")
    first = pd.Series(data.y, name=targets[0])
    return table.drop(columns=list(targets[1:])), pd.concat([first, table[list(targets[1:])]], axis=1)


def _load_arrays(file: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    if not file.is_file():
        raise FileNotFoundError(f"path: there is no file {file}; check its name and the working directory.")
    arrays, X = dense_table(file)
    if name == "X":
        raise ValueError(f"targets: 'X' are the features in {file.name}; name another array.")
    Y = pick(file, arrays, "targets", name)
    if Y.ndim not in (1, 2) or len(Y) != len(X) or Y.dtype.kind not in "fiub":
        raise ValueError(
            f"targets: {name!r} in {file.name} needs numbers of shape ({len(X)}, responses), got shape {Y.shape} and "
            f"dtype {Y.dtype}; correct it."
        )
    Y = Y.reshape(len(Y), -1)
    names = [name] if Y.shape[1] == 1 else [f"{name}{j}" for j in range(Y.shape[1])]
    return X, pd.DataFrame(Y.astype(float), columns=names)


def _sheet(model: dict[str, Any]) -> Sheet:
    cv = model["cv"]
    notes = {cv["one_standard_error"]: "within one std. error", cv["best"]: "best"}
    if cv["best"] == cv["one_standard_error"]:
        notes[cv["best"]] = "best, and within one std. error"
    rows = []
    for row in cv["table"]:
        loss, se = Number(row["mean_loss"], f"{row['mean_loss']:#.5g}"), Number(row["se"], f"{row['se']:.3g}")
        note = notes.get(row["rank"], "") + (" (chosen)" if row["rank"] == model["rank"] else "")
        rows.append([Number(row["rank"]), loss, se, note])
    chosen = [i for i, row in enumerate(cv["table"]) if row["rank"] == model["rank"]]
    return Sheet(f"Cross-validation, {cv['folds']} folds", ["rank", "held-out loss", "std. error", ""], rows, chosen)
