"""Load, fit, score, plot, write: the flow of `fit` and `demo`."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import is_classifier

import sparsehtp as sht

from ..datasets import Data
from ..objectives.base import Counted
from ..plot import (
    plot_coefficients,
    plot_cv,
    plot_history,
    plot_predictions,
    plot_proof,
    plot_shares,
    plot_survival,
    plot_swap_gains,
)
from ..plot.style import STANDARDIZED, class_name
from .caveats import add_substitutes, caveat, comparable, without_error
from .common import check_provable, encode, features, loss_of, plain_labels, plain_name
from .files import Writer, as_csv
from .flow import Flow
from .html import fit_report
from .numbers import Numbers, folds_of_rows, numbers
from .options import FitOptions
from .report import choice_sheet, chosen_told, feature_sheet, fit_facts, level_of, on_terminal
from .tables import TableData, left_out, load_data, print_remarks

DRAWN = ("coefficients", "predictions", "survival", "swaps", "cv", "shares", "proof", "history")
OWN = ["report.html", "history.csv", *(f"{name}.{kind}" for name in DRAWN for kind in ("png", "svg"))]


class Split(NamedTuple):
    """Rows to fit and rows held out (None without), as (features, target, offset), and what -1 and +1 stand for.

    `table` says how the features were made of a table, None for other data, and `groups` which of the rows to fit are
    held out together.
    """

    train: tuple[pd.DataFrame, np.ndarray, np.ndarray | None]
    test: tuple[pd.DataFrame, np.ndarray, np.ndarray | None] | None
    classes: dict[str, Any] | None
    table: Numbers | None
    groups: np.ndarray | None = None


class Fit(Flow):
    """`sparsehtp fit`."""

    own = OWN

    def read(self) -> Data | TableData:
        """The data of the file; a demonstration has others."""
        return load_data(self.options.file, self.options)

    def load(self) -> None:
        self.data = self.read()
        self.remarks = print_remarks(self.errors, self.data)
        self.split = make_split(self.data, self.options)
        self.names = self.units = self.data.feature_names
        if self.split.table is not None:
            self.names, self.units = list(self.split.train[0].columns), self.split.table.unit_names

    def fit(self) -> Any:
        """The fitted estimator."""
        return fit_estimator(self.split, self.options)

    def work(self) -> None:
        after = self.after
        with self.errors.status("2/3 Compiling and fitting"):
            self.fitted = fitted = self.fit()
            self.estimator = type(fitted).__name__
            # A proof comes first: better features that it finds are those that all else is about.
            prove = self.options.prove
            self.proof = after("proof", lambda: fitted.prove(prove)) if prove else None
            self.swaps = after("substitutes", lambda: fitted.swaps_)
            self.near = after("exchanges within the noise", lambda: fitted.exchangeable_)
            self.statement = after("certificate", lambda: with_names(fitted.certificate_.statement, self.units))

    def saved(self) -> Any:
        return self.fitted if self.split.table is None else self.split.table.pipeline(self.fitted)

    def describe(self) -> dict[str, Any]:
        options, fitted = self.options, self.fitted
        model = {
            **self.rows(),
            **(
                {"levels": fitted.levels_.tolist(), "thresholds": fitted.thresholds_.astype(float).tolist()}
                if isinstance(fitted, sht.SparseOrdinal)
                else {}
            ),
            "k": fitted.k_,
            "chosen_by": None if options.k.isdecimal() else self.chosen_by,
            "loss": options.model,
            "loss_parameter": getattr(fitted, "dispersion_", None) or options.loss_parameter,
            "solver": options.solver,
            "l2": float(fitted.l2_),
            "refit_l2": float(fitted.refit_l2_),
            "standardize": options.standardize,
            "fit_intercept": options.fit_intercept,
            "dtype": options.dtype,
            "seed": options.seed,
            "coefficients": self._coefficients(),
            "intercept": float(np.ravel(getattr(fitted, "intercept_", 0.0))[0]),
            "result": {
                "name": fitted.result_,
                "fired": fitted.fired_,
                "sentence": sht.results.RESULTS[fitted.result_].sentence,
            },
            "num_steps": fitted.n_iter_,
            "objective": float(fitted.objective_value_),
            **self.scores(),
            "cv": _describe_cv(fitted.cv_results_),
        }
        model["certificate"] = self.statement
        model |= self.after("caveat", lambda: self.caveat(model), {"caveat": None, "drawn": True})
        self.after("table of substitutes", lambda: add_substitutes(model, self.swaps, self.near, self.units))
        if self.proof is not None:
            told = ("statement", "lower", "gap", "proved", "nodes")
            model["proof"] = {name: getattr(self.proof, name) for name in told}
        return model

    @property
    def chosen_by(self) -> str:
        """The rule that chose k: ebic where the rows allow no folds."""
        return "ebic" if self.options.k == "cv" and self.fitted.cv_results_ is None else self.options.k

    def rows(self) -> dict[str, Any]:
        """The data, and how many rows there are of what."""
        X, y = self.split.train[:2]
        return {
            "file": self.source,
            "target": self.data.target_name,
            "classes": self.split.classes,
            "n": X.shape[0],
            "n_test": 0 if self.split.test is None else len(self.split.test[1]),
            "p": X.shape[1],
            "n_units": len(self.units),
            "reference_levels": {} if self.split.table is None else self.split.table.reference_levels,
            **({"events": int(y[:, 1].sum())} if y.ndim == 2 else {}),
        }

    def deviations(self, chosen: np.ndarray) -> np.ndarray:
        """Standard deviations of some features."""
        X = self.split.train[0]
        columns = X[:, chosen].toarray().astype(float) if sparse.issparse(X) else X.iloc[:, chosen].to_numpy(float)
        return np.asarray(columns.std(axis=0))

    def scores(self) -> dict[str, Any]:
        """The score on the rows of the fit and on those held out, and its name."""
        metric, score = _metric(self.options.model, self.fitted)
        train, test = self.split.train, self.split.test
        return {
            "metric": metric,
            "train_score": self.after("score", lambda: score(*train), np.nan),
            "test_score": self.after("test score", lambda: None if test is None else score(*test), np.nan),
        }

    def caveat(self, model: dict[str, Any]) -> dict[str, Any]:
        """A sentence where the fit means less than it looks like, and whether a picture helps."""
        return caveat(self.fitted, model["n"], lambda: without_error(self.fitted, *self.split.train))

    def _coefficients(self) -> list[dict[str, Any]]:
        """The chosen features, the most important first, and columns made of one text together."""
        w, chosen, unit = self.fitted.coef_.ravel().astype(float), np.flatnonzero(self.fitted.support_), self._unit_of()
        standardized = w[chosen] * self.deviations(chosen)
        results = self.fitted.cv_results_
        shares = None if results is None or results["shares"] is None else results["shares"][unit]
        size, of_unit = np.abs(standardized), np.zeros(len(self.units))
        np.maximum.at(of_unit, unit[chosen], size)
        order = np.lexsort((-size, unit[chosen], -of_unit[unit[chosen]]))
        return [
            {
                "name": self.names[chosen[i]],
                "column": self.units[unit[chosen[i]]],
                "index": int(chosen[i]),
                "coefficient": w[chosen[i]],
                "standardized": standardized[i],
                **({} if shares is None else {"share_of_folds": float(shares[chosen[i]])}),
            }
            for i in order
        ]

    def _unit_of(self) -> np.ndarray:
        """The number of the unit of every feature."""
        groups = self.fitted.groups
        return np.arange(len(self.names)) if groups is None else np.unique(groups, return_inverse=True)[1]

    def draw(self, model: dict[str, Any]) -> dict[str, Any]:
        """The figures; of a fit that means nothing only how k was chosen."""
        fitted = self.fitted
        figures: dict[str, Any] = {}

        if model["drawn"]:
            features, target = model["coefficients"], model["target"]
            classes = model["classes"]
            highest = classes["+1"] if classes else model.get("levels", [None])[-1]
            towards = "" if highest is None else f" (positive: towards {class_name(highest, target)})"
            self.after.draw(
                figures,
                "coefficients",
                plot_coefficients,
                [feature["column"] for feature in features],
                [feature["standardized"] for feature in features],
                levels=[level_of(feature) for feature in features],
                title=chosen_told(model, f"predict {target}"),
                caption=STANDARDIZED + towards,
            )
            self.draw_rows(figures, model)
            if self.swaps is not None and self.swaps.features.size:
                self.after.draw(figures, "swaps", plot_swap_gains, self.swaps, self.units)
            if self.proof is not None:
                self.after.draw(figures, "proof", plot_proof, self.proof)
        if model["cv"] is not None:
            self.after.draw(figures, "cv", plot_cv, fitted.cv_results_)
            support = np.bincount(self._unit_of(), fitted.support_) > 0
            if np.any(fitted.cv_results_["shares"]):
                self.after.draw(figures, "shares", plot_shares, fitted.cv_results_, support, self.units)
        if self.options.diagnostics:
            self.after.draw(figures, "history", plot_history, fitted.history_)
        return figures

    def draw_rows(self, figures: dict[str, Any], model: dict[str, Any]) -> None:
        """The picture of the predictions for the held-out rows, or those of the fit."""
        fitted, (X, y, offset) = self.fitted, self.split.train if self.split.test is None else self.split.test
        outputs = fitted.linear_predictor if isinstance(fitted, sht.SparseOrdinal) else fitted.predict
        outputs = outputs if model["classes"] is None else fitted.decision_function
        if self.after("predictions", lambda: np.isfinite(outputs(X, offset)).all(), False):
            rows = "rows of the fit" if self.split.test is None else "held-out rows"
            name, plot = ("survival", plot_survival) if y.ndim == 2 else ("predictions", plot_predictions)
            self.after.draw(figures, name, plot, fitted, X, y, rows=rows, target=model["target"], offset=offset)

    def files(self, model: dict[str, Any]) -> dict[str, Writer]:
        if not self.options.diagnostics:
            return {}
        history = self.fitted.history_
        steps = zip(*(np.asarray(column).tolist() for column in history.values()), strict=True)
        return {"history.csv": as_csv(["step", *history], [(t, *row) for t, row in enumerate(steps, 1)])}

    def page(self, model: dict[str, Any], facts: Mapping[str, str], figures: dict[str, Any], command: str) -> Writer:
        return fit_report(model, facts, figures, command)

    def tables(self, model: dict[str, Any]) -> list[Any]:
        choice = [] if model["cv"] is None else [on_terminal(choice_sheet(model))]
        return [on_terminal(feature_sheet(model), "model.json"), *choice]

    def facts(self, model: dict[str, Any]) -> dict[str, str]:
        facts = fit_facts(model)
        return {"data": facts.pop("data"), **left_out(self.options), **facts}

    def ended(self, model: dict[str, Any]) -> bool:
        return bool(model["result"]["name"] != "nonfinite")


def make_split(data: Data | TableData, options: FitOptions) -> Split:
    """Check the target, split the rows, and make numbers of a table by what the rows to fit hold."""
    if options.prove and not isinstance(data, TableData):
        check_provable(options.model, options.l2)
    if options.groups and options.k != "cv" and not options.test_size:
        raise ValueError("groups: nothing is held out; add --k cv or --test-size, or set the column aside by --drop.")
    y, classes = encode(data, options)
    y = y if classes is None else plain_labels(data.y)
    special = options.model in ("cox", "ordinal")
    of = y[:, 1] if options.model == "cox" else y
    groups = data.groups if isinstance(data, TableData) else None
    train, test = _split(np.arange(len(y)), of, special or classes is not None, options, groups)
    dtype = options.dtype
    if isinstance(data, TableData):
        table = numbers(data, train, dtype)
        if options.k.isdecimal() and table.groups is not None and int(options.k) > len(table.unit_names):
            most = f"only {len(table.unit_names)} features, where a text counts as one"
            raise ValueError(f"k: is {options.k}, but there are {most}; lower k.")
        if options.prove:
            check_provable(options.model, options.l2, table.wide_texts)
        of_train, of_test = (
            None if data.offset is None or rows is None else data.offset[rows] for rows in (train, test)
        )
        held_out = None
        if test is not None:
            held_out = table.preprocessor.transform(data.X.iloc[test]).astype(dtype), y[test], of_test
        return Split((table.X, y[train], of_train), held_out, classes, table, None if groups is None else groups[train])
    X = features(data, dtype)
    X = X if sparse.issparse(X) else pd.DataFrame(X, columns=data.feature_names)
    if test is None:
        return Split((X, y, None), None, classes, None)
    of_train, of_test = ((X[rows] if sparse.issparse(X) else X.iloc[rows], y[rows], None) for rows in (train, test))
    return Split(of_train, of_test, classes, None)


def _split(
    rows: np.ndarray, y: np.ndarray, stratified: bool, options: FitOptions, groups: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    if not options.test_size:
        return rows, None
    if options.test_size >= 1:
        raise ValueError(f"test-size: is a fraction of the rows, below 1, got {options.test_size}.")
    from sklearn.model_selection import GroupShuffleSplit, train_test_split

    drawn: dict[str, Any] = {"test_size": options.test_size, "random_state": options.seed}
    try:
        if groups is not None:
            train, test = next(GroupShuffleSplit(1, **drawn).split(rows, groups=groups))
        else:
            train, test = train_test_split(rows, stratify=y if stratified else None, **drawn)
    except ValueError as error:
        if groups is not None:
            left = f"leaves none of the {np.unique(groups).size} groups of --groups to fit; give a smaller one"
            raise ValueError(f"test-size: {options.test_size} {left}.") from error
        raise ValueError(f"test-size: {options.test_size} does not suit these data: {error}") from error
    return train, test


def fit_estimator(split: Split, options: FitOptions) -> Any:
    """The fitted estimator; columns made of one are chosen together, and missing values filled anew in every fold."""
    (X, y, offset), table, folds = split.train, split.table, None
    estimator = make_estimator(options, None if table is None else table.groups)
    if options.k == "cv":
        counted: Counted = "classes" if is_classifier(estimator) else "events" if options.model == "cox" else "rows"
        folds = folds_of_rows(options, X, y, counted, table, split.groups)
    return estimator.fit(X, y, offset=offset, groups=split.groups, folds=folds)


def make_estimator(options: FitOptions, groups: np.ndarray | None) -> Any:
    """The estimator of these settings, not fitted."""
    shared: dict[str, Any] = {
        "k": int(options.k) if options.k.isdecimal() else options.k,
        "l2": "auto" if options.l2 is None else options.l2,
        "solver": plain_name(options.solver),
        "standardize": options.standardize,
        "groups": groups,
        "cv": options.cv,
        "rule": options.rule,
        "random_state": options.seed,
        "max_iter": options.max_steps,
    }
    if options.model in ("cox", "ordinal"):
        return {"cox": sht.SparseCox, "ordinal": sht.SparseOrdinal}[options.model](**shared)
    loss = loss_of(options)
    kind = sht.SparseClassifier if loss.classification else sht.SparseRegressor
    named = plain_name(options.loss) if options.loss_parameter is None else loss
    return kind(loss=named, fit_intercept=options.intercept, **shared)


def with_names(statement: str, names: Sequence[str]) -> str:
    """A certificate's statement with names for the numbers of features."""
    statement = statement.replace("one chosen group", "one chosen feature")  # a text, which counts as one
    return re.sub(r"(?:feature|group) (\d+)", lambda match: repr(names[int(match[1])]), statement)


def _describe_cv(results: dict[str, Any] | None) -> dict[str, Any] | None:
    if results is None:
        return None
    columns = {"k": "ks", "l2": "l2s", "mean_loss": "mean_loss", "se": "se"}
    table = zip(*(results[name].tolist() for name in columns.values()), strict=True)
    return {
        "folds": len(results["scores"]),
        "repeats": results["times"],
        "as_good": results["as_good"].tolist(),
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
