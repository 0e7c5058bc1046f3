"""Several responses, one low rank: the path of `lowrank`."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.markup import escape
from rich.table import Table

import sparsehtp as sht

from ..datasets import load_file
from ..datasets.arrays import pick
from ..datasets.numerals import AS_IT_SAYS, Written
from ..io import describe_device, versions
from ..plot import plot_ranks
from .common import AfterFit, check_outputs, dense_table, fitting, one_sentence, plotting
from .files import as_csv, as_json, write_files
from .options import LowRankOptions
from .report import Console, facts_table, print_facts, print_warnings
from .tables import print_notes, written


def run(file: Path, targets: Sequence[str], options: LowRankOptions, out: Path, save: Path | None = None) -> None:
    """Fit a file and report it; exits with 2 for bad input, and with 1 where something that follows failed."""
    console, errors = Console(), Console(stderr=True)
    with one_sentence(errors, ValueError, OSError, ImportError), errors.status("1/3 Loading data"):
        check_outputs(out, save)
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            X, Y = load(file, targets, written(options.decimal, options.thousands))
        print_notes(errors, [str(note.message).rstrip(".") for note in notes if note.category is UserWarning])
        X, Y = X.astype(options.dtype), Y.astype(options.dtype)
    with fitting(errors, ValueError, TypeError) as (timing, caught):
        estimator = sht.LowRankRegressor(
            int(options.rank) if options.rank.isdecimal() else options.rank,
            l2=options.l2,
            fit_intercept=options.intercept,
            standardize=options.standardize,
            cv=options.cv,
            one_se=options.one_se,
            random_state=options.seed,
        ).fit(X, Y)
    after = AfterFit()
    with plotting(errors, "3/3 Plotting"):
        model, figures = describe(X, Y, estimator, options, file.name), dict[str, Any]()
        after.draw(figures, "ranks", plot_ranks, estimator)
        files = after.images(figures)
        paths = [] if save is None else after("save", lambda: [sht.save(estimator, save).absolute()], [])
        files |= {
            "model.json": as_json(after.told(model)),
            "coefficients.csv": as_csv(
                ["feature", *Y.columns], [(name, *row) for name, row in zip(X.columns, estimator.coef_.T, strict=True)]
            ),
        }
        paths = [*after("files", lambda: write_files(out, files), []), *paths]
    if model["cv"] is not None:
        console.print(_table(model))
    facts = facts_table()
    facts.add_row("data", escape(f"{file.name}, {len(X)} rows, {X.shape[1]} features, {Y.shape[1]} responses"))
    how = {"cv": " (by cross-validation)"}.get(
        options.rank, "" if options.rank.isdecimal() else f" (by {options.rank})"
    )
    facts.add_row("rank", f"{model['rank']}{how}, l2 = {options.l2:g}")
    shown = ", ".join(f"{value:.4g}" for value in model["singular_values"]) or "none"
    facts.add_row("singular values", f"{shown} (of coefficients per standard deviation)")
    facts.add_row("train R2", f"{model['r2']:.4f}, the mean over the responses")
    facts.add_row("result", f"{model['result']}, the global minimum for this rank")
    facts.add_row("time", f"{timing} on {model['device']['kind']}")
    print_facts(console, facts, paths)
    print_warnings(errors, caught, "LowRankRegressor")
    after.say(errors)


def load(file: Path, targets: Sequence[str], given: Written = AS_IT_SAYS) -> tuple[pd.DataFrame, pd.DataFrame]:
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
    Y = pick(file, arrays, "targets", name)
    if Y.ndim not in (1, 2) or len(Y) != len(X) or Y.dtype.kind not in "fiub":
        raise ValueError(
            f"targets: {name!r} in {file.name} needs numbers of shape ({len(X)}, responses), got shape {Y.shape} and "
            f"dtype {Y.dtype}; correct it."
        )
    Y = Y.reshape(len(Y), -1)
    names = [name] if Y.shape[1] == 1 else [f"{name}{j}" for j in range(Y.shape[1])]
    return X, pd.DataFrame(Y.astype(float), columns=names)


def describe(X: Any, Y: Any, estimator: Any, options: LowRankOptions, source: str) -> dict[str, Any]:
    """Everything about a fit that is worth keeping, as JSON can hold it."""
    table = estimator.cv_results_
    return {
        "file": source,
        "n": len(X),
        "features": list(X.columns),
        "responses": list(Y.columns),
        "rank": estimator.rank_,
        "chosen_by": None if options.rank.isdecimal() else options.rank,
        "l2": options.l2,
        "standardize": options.standardize,
        "fit_intercept": options.intercept,
        "dtype": options.dtype,
        "seed": options.seed,
        "coefficients": estimator.coef_.astype(float).tolist(),
        "intercept": np.asarray(estimator.intercept_, float).tolist(),
        "singular_values": estimator.singular_values_.astype(float).tolist(),
        "result": estimator.result_,
        "objective": estimator.objective_value_,
        "r2": float(estimator.score(X, Y)),
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
        "versions": versions(),
        "device": describe_device(),
    }


def _table(model: dict[str, Any]) -> Table:
    cv = model["cv"]
    notes = {cv["one_standard_error"]: "within one std. error", cv["best"]: "best"}
    if cv["best"] == cv["one_standard_error"]:
        notes[cv["best"]] = "best, and within one std. error"
    table = Table(title=f"Cross-validation, {cv['folds']} folds", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("rank", "held-out loss", "std. error"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for row in cv["table"]:
        taken = row["rank"] == model["rank"]
        numbers = (f"{row['rank']}", f"{row['mean_loss']:#.5g}", f"{row['se']:.3g}")
        note = notes.get(row["rank"], "") + (" (chosen)" if taken else "")
        table.add_row(*numbers, note, style="bold" if taken else None)
    return table
