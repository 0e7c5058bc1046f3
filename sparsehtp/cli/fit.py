"""Load, fit, score, plot, write: the path of `fit` and `demo`."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from scipy import sparse
from sklearn.base import is_classifier

import sparsehtp as sht

from ..datasets import Data
from ..estimators.parameters import make_seed
from ..io import describe_device, versions
from ..plot import (
    plot_coefficients,
    plot_cv,
    plot_history,
    plot_predictions,
    plot_proof,
    plot_survival,
    plot_swap_gains,
)
from ..plot.style import STANDARDIZED
from .caveats import add_substitutes, caveat, comparable
from .common import (
    AfterFit,
    check_outputs,
    check_provable,
    encode,
    features,
    fitting,
    loss_of,
    name_of,
    one_sentence,
    plotting,
)
from .files import Writer, as_csv, as_json, write_files
from .html import fit_report
from .options import Options
from .report import Console, print_report, print_warnings
from .tables import Numbers, TableData, numbers, show

DRAWN = ("coefficients", "predictions", "survival", "swaps", "cv", "proof", "history")
OWN = ["report.html", "history.csv", *(f"{name}.{kind}" for name in DRAWN for kind in ("png", "svg"))]


class Split(NamedTuple):
    """Rows to fit and rows held out (None without), as (features, target, offset), and what -1 and +1 stand for.

    `table` says how the features were made of a table, None for other data.
    """

    train: tuple[pd.DataFrame, np.ndarray, np.ndarray | None]
    test: tuple[pd.DataFrame, np.ndarray, np.ndarray | None] | None
    classes: dict[str, Any] | None
    table: Numbers | None


def run(
    load: Callable[[], Data | TableData],
    options: Options,
    out: Path,
    source: str,
    save: Path | None = None,
    diagnostics: bool = False,
    command: str | None = None,
) -> None:
    """Fit what `load` returns and report it; exits with 2 for bad input, and with 1 for a nonfinite result or where
    something that follows the fit failed.

    With diagnostics the solver's history is written too, and with the command that the report names, a report.
    """
    console, errors = Console(), Console(stderr=True)
    with one_sentence(errors, ValueError, OSError, ImportError), errors.status("1/3 Loading data"):
        check_outputs(out, save)
        data = load()
        show(errors, data)
        split = prepare(data, options)
        units = data.feature_names if split.table is None else split.table.unit_names
        if isinstance(data, TableData):
            data = data._replace(feature_names=list(split.train[0].columns))
    after = AfterFit()
    with fitting(errors, ValueError, TypeError) as (timing, caught):
        estimator = fit_estimator(split, options)
        # A proof comes first: better features that it finds are those that all else is about.
        proof = after("proof", lambda: estimator.prove(options.prove)) if options.prove else None
        swaps = after("substitutes", lambda: estimator.swaps_)
        near = after("exchanges within the noise", lambda: estimator.exchangeable_)
        statement = after("certificate", lambda: with_names(estimator.certificate_.statement, units))
    with plotting(errors, "3/3 Plotting"):
        model = {**describe(data, split, estimator, options, source, after), "certificate": statement}
        model |= after("caveat", lambda: caveat(estimator, *split.train), {"caveat": None, "drawn": True})
        after("table of substitutes", lambda: add_substitutes(model, swaps, near, data.feature_names))
        if proof is not None:
            model["proof"] = {name: getattr(proof, name) for name in ("statement", "lower", "gap", "proved", "nodes")}
        figures = draw(model, split, estimator, swaps, proof, data.feature_names, after)
        files: dict[str, Writer] = {}
        if diagnostics:
            history = estimator.history_
            after.draw(figures, "history", plot_history, history)
            steps = zip(*(np.asarray(column).tolist() for column in history.values()), strict=True)
            files["history.csv"] = as_csv(["step", *history], [(t, *row) for t, row in enumerate(steps, 1)])
        files |= after.images(figures)
        saved = estimator if split.table is None else split.table.pipeline(estimator)
        paths = [] if save is None else after("save", lambda: [sht.save(saved, save).absolute()], [])
        if command is not None:
            files |= after(
                "report", lambda: {"report.html": fit_report(after.told(model), figures, timing, command)}, {}
            )
        files["model.json"] = as_json(after.told(model))
        paths = [*after("files", lambda: write_files(out, files, OWN), []), *paths]
    print_report(console, model, timing, paths)
    print_warnings(errors, caught, type(estimator).__name__)
    after.say(errors)
    if model["result"]["name"] == "nonfinite":
        raise typer.Exit(1)


def prepare(data: Data | TableData, options: Options) -> Split:
    """Check the target, split the rows, and make numbers of a table by what the rows to fit hold."""
    if options.prove:
        check_provable(options.problem.loss, options.l2)
    y, classes = encode(data, options.problem)
    y = y if classes is None else data.y
    special = options.problem.loss in ("cox", "ordinal")
    of = y[:, 1] if options.problem.loss == "cox" else y
    train, test = _split(np.arange(len(y)), of, special or classes is not None, options)
    dtype = options.problem.dtype
    if isinstance(data, TableData):
        table = numbers(data, train, dtype)
        if options.prove:
            check_provable(options.problem.loss, options.l2, table.wide_texts)
        of_train, of_test = (
            None if data.offset is None or rows is None else data.offset[rows] for rows in (train, test)
        )
        held_out = None
        if test is not None:
            held_out = table.preprocessor.transform(data.X.iloc[test]).astype(dtype), y[test], of_test
        return Split((table.X, y[train], of_train), held_out, classes, table)
    X = features(data, dtype)
    X = X if sparse.issparse(X) else pd.DataFrame(X, columns=data.feature_names)
    if test is None:
        return Split((X, y, None), None, classes, None)
    of_train, of_test = ((X[rows] if sparse.issparse(X) else X.iloc[rows], y[rows], None) for rows in (train, test))
    return Split(of_train, of_test, classes, None)


def _split(rows: np.ndarray, y: np.ndarray, stratified: bool, options: Options) -> tuple[np.ndarray, np.ndarray | None]:
    if not options.test_size:
        return rows, None
    if options.test_size >= 1:
        raise ValueError(f"test-size: is a fraction of the rows, below 1, got {options.test_size}.")
    from sklearn.model_selection import train_test_split

    try:
        train, test = train_test_split(
            rows,
            test_size=options.test_size,
            random_state=options.problem.seed,
            stratify=y if stratified else None,
        )
    except ValueError as error:
        raise ValueError(f"test-size: {options.test_size} does not suit these data: {error}") from error
    return train, test


def fit_estimator(split: Split, options: Options) -> Any:
    """The fitted estimator; columns made of one are chosen together, and missing values filled anew in every fold."""
    estimator = make_estimator(options)
    (X, y, offset), table, folds = split.train, split.table, None
    if table is not None:
        estimator.set_params(groups=table.groups)
        if options.k == "cv":
            folds = table.triples(options.cv, y, is_classifier(estimator), make_seed(options.problem.seed))
    return estimator.fit(X, y, offset=offset, folds=folds)


def make_estimator(options: Options) -> Any:
    """The estimator of these settings, not fitted."""
    problem = options.problem
    if problem.loss in ("cox", "ordinal"):
        return {"cox": sht.SparseCox, "ordinal": sht.SparseOrdinal}[problem.loss](
            solver=name_of(problem.solver),
            standardize=problem.standardize,
            random_state=problem.seed,
            **_choice(options),
        )
    loss = loss_of(problem)
    kind = sht.SparseClassifier if loss.classification else sht.SparseRegressor
    return kind(
        loss=name_of(problem.loss) if problem.loss_parameter is None else loss,
        solver=name_of(problem.solver),
        fit_intercept=problem.intercept,
        standardize=problem.standardize,
        random_state=problem.seed,
        **_choice(options),
    )


def _choice(options: Options) -> dict[str, Any]:
    """The parameters that all estimators share."""
    return {
        "k": int(options.k) if options.k.isdecimal() else options.k,
        "l2": "auto" if options.l2 is None else options.l2,
        "cv": options.cv,
        "rule": "one_se" if options.rule == "one-se" else options.rule,
        "max_iter": options.max_steps,
    }


def with_names(statement: str, names: Sequence[str]) -> str:
    """A certificate's statement with names for the numbers of features."""
    return re.sub(r"(?:feature|group) (\d+)", lambda match: repr(names[int(match[1])]), statement)


def describe(
    data: Data | TableData, split: Split, estimator: Any, options: Options, source: str, after: AfterFit
) -> dict[str, Any]:
    """Everything about a fit that is worth keeping, as JSON can hold it."""
    X, y = split.train[:2]
    w, intercept = estimator.coef_.ravel().astype(float), float(np.ravel(getattr(estimator, "intercept_", 0.0))[0])
    chosen = np.flatnonzero(estimator.support_)
    columns = X[:, chosen].toarray().astype(float) if sparse.issparse(X) else X.iloc[:, chosen].to_numpy(float)
    standardized = w[chosen] * columns.std(axis=0)
    order = np.argsort(-np.abs(standardized), kind="stable")
    metric, score = _metric(options.problem.loss, estimator)
    return {
        "file": source,
        "target": data.target_name,
        "classes": split.classes,
        "n": X.shape[0],
        "n_test": 0 if split.test is None else len(split.test[1]),
        "p": X.shape[1],
        **({"events": int(y[:, 1].sum())} if y.ndim == 2 else {}),
        **(_levels(estimator) if isinstance(estimator, sht.SparseOrdinal) else {}),
        "k": estimator.k_,
        "chosen_by": None if options.k.isdecimal() else options.k,
        "loss": options.problem.loss,
        "loss_parameter": getattr(estimator, "dispersion_", None) or options.problem.loss_parameter,
        "solver": options.problem.solver,
        "l2": float(estimator.l2_),
        "refit_l2": float(estimator.refit_l2_),
        "standardize": options.problem.standardize,
        "fit_intercept": options.problem.intercept,
        "dtype": options.problem.dtype,
        "seed": options.problem.seed,
        "coefficients": [
            {
                "name": data.feature_names[chosen[i]],
                "index": int(chosen[i]),
                "coefficient": w[chosen[i]],
                "standardized": standardized[i],
            }
            for i in order
        ],
        "intercept": intercept,
        "result": {
            "name": estimator.result_,
            "fired": estimator.fired_,
            "sentence": sht.RESULTS[estimator.result_].sentence,
        },
        "num_steps": estimator.n_iter_,
        "objective": float(estimator.objective_value_),
        "metric": metric,
        "train_score": after("score", lambda: score(*split.train), np.nan),
        "test_score": after("test score", lambda: None if split.test is None else score(*split.test), np.nan),
        "cv": _describe_cv(estimator.cv_results_),
        "versions": versions(),
        "device": describe_device(),
    }


def _levels(estimator: sht.SparseOrdinal) -> dict[str, Any]:
    """The ordered classes, and the thresholds between them."""
    return {"levels": estimator.levels_.tolist(), "thresholds": estimator.thresholds_.astype(float).tolist()}


def _describe_cv(results: dict[str, Any] | None) -> dict[str, Any] | None:
    if results is None:
        return None
    columns = {"k": "ks", "l2": "l2s", "mean_loss": "mean_loss", "se": "se"}
    table = zip(*(results[name].tolist() for name in columns.values()), strict=True)
    return {
        "folds": len(results["scores"]),
        "best": int(results["best_index"]),
        "one_standard_error": int(results["best_1se_index"]),
        "rule": results["rule"],
        "chosen": int(results["row"]),
        "contenders": [
            {"row": int(row), "difference": float(d), "standard_error": float(se)}
            for row, d, se in zip(results["contenders"], results["difference"], results["difference_se"], strict=True)
        ],
        "table": [dict(zip(columns, row, strict=True)) for row in table],
    }


def _metric(loss: str, estimator: Any) -> tuple[str, Callable[..., float | None]]:
    """Name of the score, and the score of features, targets and offsets (None where it is undefined)."""
    if isinstance(estimator, sht.SparseClassifier | sht.SparseOrdinal):
        return "accuracy", lambda X, y, offset: float(estimator.score(X, y, offset=offset))
    if isinstance(estimator, sht.SparseCox):
        return (
            "concordance",
            lambda X, y, offset: float(estimator.score(X, y, offset=offset)) if comparable(y) else None,
        )
    name = "R2" if loss == "squared" else "D2"
    return name, lambda X, y, offset: None if np.ptp(y) == 0 else float(estimator.score(X, y, offset=offset))


def draw(
    model: dict[str, Any],
    split: Split,
    estimator: Any,
    swaps: Any,
    proof: sht.Proof | None,
    names: Sequence[str],
    after: AfterFit,
) -> dict[str, Any]:
    """The figures of a fit by their names; of a fit that means nothing only how k was chosen."""
    figures: dict[str, Any] = {}

    if model["drawn"]:
        features, target = model["coefficients"], model["target"]
        classes = model["classes"]
        highest = classes["+1"] if classes else model.get("levels", [None])[-1]
        towards = "" if highest is None else f" (positive: towards {highest})"
        after.draw(
            figures,
            "coefficients",
            plot_coefficients,
            [feature["name"] for feature in features],
            [feature["standardized"] for feature in features],
            title=f"{len(features)} of {model['p']} features predict {target}",
            caption=STANDARDIZED + towards,
        )
        X, y, offset = split.train if split.test is None else split.test
        ordinal = isinstance(estimator, sht.SparseOrdinal)
        outputs = estimator.linear_predictor if ordinal else estimator.predict
        outputs = outputs if classes is None else estimator.decision_function
        if after("predictions", lambda: np.isfinite(outputs(X, offset)).all(), False):
            rows = "rows of the fit" if split.test is None else "held-out rows"
            name, plot = ("survival", plot_survival) if y.ndim == 2 else ("predictions", plot_predictions)
            after.draw(figures, name, plot, estimator, X, y, rows=rows, target=target, offset=offset)
        if swaps is not None and swaps.features.size:
            after.draw(figures, "swaps", plot_swap_gains, swaps, names)
        if proof is not None:
            after.draw(figures, "proof", plot_proof, proof)
    if model["cv"] is not None:
        after.draw(figures, "cv", plot_cv, estimator.cv_results_)
    return figures
