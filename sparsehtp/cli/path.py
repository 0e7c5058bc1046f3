"""All k at once: the flow of `path`."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from rich.table import Table
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis

import sparsehtp as sht

from .._types import T
from ..certificates.dual_bound import in_percent
from ..datasets import Data
from ..estimators.parameters import SOLVERS
from ..estimators.regressor import without_features
from ..estimators.selection import view
from ..grids.choose import BY_FOLDS, default_refit
from ..plot import plot_cv, plot_path, plot_stability
from .common import check_provable, encode, features, loss_of, plain_name, progress_bar
from .files import Writer, as_csv
from .flow import Flow
from .html import path_report
from .numbers import folds_of_rows, numbers
from .options import PathOptions
from .report import Number, Sheet, digits, moves_told, on_terminal, print_warning
from .tables import TableData, left_out, load_data, print_remarks

PROVED = 1.1e-4  # of the objective: the gap of a proof, and what the path's own rounding may add
STABLE = 0.75  # selection probability from which a feature is called stable


class Proved(NamedTuple):
    """Of the objective of every row from below, and by what share of itself it could be improved; NaN where unknown."""

    lower: Float[np.ndarray, "rows"]
    gaps: Float[np.ndarray, "rows"]


class Subsets(Flow):
    """`sparsehtp path`: `chosen` is a row of the path, and `units` are the names of what k counts."""

    json, own = "path.json", ("report.html",)
    groups: Any = None  # of rows that are held out together
    parameter: float | None = None  # of the loss
    most: int | None = None  # features of the path by default; None: the library's

    @property
    def chunks(self) -> Path | None:
        """The folder of the finished parts of the grids."""
        return self.options.checkpoint

    def load(self) -> None:
        options = self.options
        if options.groups and not (options.cv or options.stability):
            raise ValueError("groups: nothing is held out; add --cv or --stability, or set the column aside by --drop.")
        data, self.table, self.offset = load_data(options.file, options), None, None
        self.remarks = print_remarks(self.errors, data)
        with jax.enable_x64(options.dtype == "float64"):
            if isinstance(data, TableData):
                self.table, self.offset = numbers(data, None, options.dtype), data.offset
                self.groups = data.groups
                X = self.table.X
                data = Data(X.to_numpy(), data.y, list(X.columns), data.target_name)
            self.data, self.units = data, data.feature_names if self.table is None else self.table.unit_names
            if options.prove:
                check_provable(options.model, min(options.l2), [] if self.table is None else self.table.wide_texts)
            self.y, self.classes = encode(data, options)
            self.n_samples = data.X.shape[0]
            check_path(options, self.n_samples, len(self.units))
            self.objective = self._objective(features(data, options.dtype))

    def _objective(self, X: Any) -> Any:
        options, l2 = self.options, self.options.l2[0]
        y: Any = self.y
        X = X if sparse.issparse(X) else np.asfortranarray(X)  # a sparse iterate touches few columns
        shared: dict[str, Any] = {"standardize": options.standardize, "offset": self.offset}
        if options.model == "cox":
            return sht.CoxModel(X, y[:, 0], y[:, 1], l2, **shared)
        if options.model == "ordinal":
            return sht.OrdinalModel(X, y.codes, y.categories.size, l2, **shared)
        loss, self.parameter = loss_of(options), options.loss_parameter
        if options.model == "negative-binomial" and self.parameter is None:
            ones, dispersed = np.ones(len(y)), sht.losses.NegativeBinomial
            self.parameter = dispersed.estimate(y, without_features(y, ones, self.offset), ones)
            loss = dispersed(self.parameter)
        return sht.LinearModel(X, y, loss, l2, fit_intercept=options.intercept, **shared)

    def work(self) -> None:
        options, after, table = self.options, self.after, self.table
        self.cv = self.stability = self.bounds = None
        groups = None if table is None else table.groups
        name = plain_name(options.solver)
        most = self.most if options.k_max is None else options.k_max
        self.shared = {
            "ks": None if most is None else range(most + 1),
            "threshold": None if groups is None else sht.GroupSparsity(groups, 0),
            "solver": None if name == "auto" else SOLVERS[name](),
            "key": jax.random.key(options.seed),
        }
        with jax.enable_x64(options.dtype == "float64"):
            self.path = self._computed("path", sht.solve_path, l2s=options.l2)
            self.criterion = sht.information_criterion(self.path, options.criterion)
            self.chosen = self.criterion.best
            if options.cv:
                self.cv = after("cross-validation", self._scored)
            if self.cv is not None:
                self.chosen = self.cv.table[BY_FOLDS[options.rule]]
            if options.stability:
                self.stability = after(
                    "stability",
                    lambda: self._computed(
                        "subsamples", sht.stability_selection, n_resamples=options.stability, groups=self.groups
                    ),
                )
            if options.prove:
                self.bounds = after("proof", self._proved)

    def _computed(self, what: str, function: Callable[..., T], **more: Any) -> T:
        """The result of a function of the objective and the grid, with a bar of progress."""
        folder = {"cross-validation": "cv", "subsamples": "stability"}.get(what, what)
        checkpoint = None if self.chunks is None else self.chunks / folder
        with progress_bar(self.errors, what) as progress:
            return function(self.objective, **self.shared, checkpoint=checkpoint, progress=progress, **more)

    def _scored(self) -> sht.results.CrossValidation:
        """The scores of `fit`, on its folds: of several l2 by the rule for those."""
        options = self.options
        refit = default_refit(self.objective, options.rule, options.l2 if len(options.l2) > 1 else None)
        return self._computed("cross-validation", sht.cross_validate, l2s=options.l2, folds=self.folds(), refit=refit)

    def folds(self) -> Any:
        """The folds of `fit`."""
        options, counted = self.options, self.objective.counted
        X = features(self.data, options.dtype)
        folds: Any = folds_of_rows(options, X, self.y, counted, self.table, self.groups)
        if folds is None:
            apart = "" if self.groups is None else ", in two of the groups"
            raise ValueError(f"cv: folds need two rows (of every class, or with an event){apart}; leave it out.")
        if len(folds[0]) == 3:  # with what is missing filled from the training rows
            folds = [(train, test, view(self._objective(X.to_numpy()))) for train, test, X in folds]
        return folds

    def deviations(self) -> np.ndarray:
        """Standard deviations of the features."""
        X = self.data.X
        return np.sqrt(mean_variance_axis(X, axis=0)[1] if sparse.issparse(X) else X.var(axis=0))

    def _proved(self) -> Proved:
        """Bounds for the rows with the chosen l2, the small k first, each with its share of the time that is left."""
        path, seconds = self.path, self.options.prove
        lower, gaps = np.full((2, len(path)), np.nan)
        rows = np.flatnonzero(path.l2s == path.l2s[self.chosen])
        rows = rows[np.argsort(path.ks[rows], kind="stable")]
        model, end = self.objective.reweighted(l2=path.l2s[self.chosen]), time.monotonic() + seconds
        with progress_bar(self.errors, "proofs") as progress:
            for _ in range(
                2
            ):  # the first proof compiles for all, which may take its share: what is open has another try
                rows = rows[~(gaps[rows] <= PROVED)]
                for done, i in enumerate(rows):
                    progress(done, rows.size)
                    share = max((end - time.monotonic()) / (rows.size - done), 1e-3)
                    start = SimpleNamespace(x=path.x[i])
                    proof = sht.prove(model, sht.Sparsity(int(path.ks[i])), start, time_limit=share)
                    value = float(path.value[i])
                    lower[i], room = np.fmax(lower[i], proof.lower), value - proof.floor
                    gaps[i] = (value - lower[i]) / room if room > 0 else 0.0
                if time.monotonic() > end:
                    break
        return Proved(lower, gaps)

    def describe(self) -> dict[str, Any]:
        options, path, cv, chosen = self.options, self.path, self.cv, self.chosen
        return {
            "file": self.source,
            "target": self.data.target_name,
            "classes": self.classes,
            "n": self.n_samples,
            "p": self.data.X.shape[1],
            "reference_levels": {} if self.table is None else self.table.reference_levels,
            "loss": options.model,
            "loss_parameter": self.parameter,
            **({"levels": options.classes} if options.levels else {}),
            "solver": options.solver,
            "standardize": options.standardize,
            "fit_intercept": options.fit_intercept,
            "dtype": options.dtype,
            "seed": options.seed,
            "chosen": {
                "row": int(chosen),
                "k": int(path.ks[chosen]),
                "l2": float(path.l2s[chosen]),
                "by": options.criterion if cv is None else options.rule,
            },
            "criterion": {"name": options.criterion, "best": self.criterion.best},
            "cv": None if cv is None else {"folds": len(cv.scores), "best": cv.best, "one_standard_error": cv.best_1se},
            "stability": None if self.stability is None else _describe_stability(self.stability, self.units),
            "rows": [
                {**row, "coefficients": _coefficients(path, i, self.data.feature_names, self._columns())}
                for i, row in enumerate(self._rows())
            ],
        }

    def _columns(self) -> Sequence[str]:
        """The column that each feature is made of."""
        groups = None if self.table is None else self.table.groups
        return self.units if groups is None else [self.units[g] for g in np.unique(groups, return_inverse=True)[1]]

    def _rows(self) -> list[dict[str, Any]]:
        """A row for every grid point, without coefficients."""
        path, cv, bounds = self.path, self.cv, self.bounds
        columns = {
            "k": path.ks,
            "l2": path.l2s,
            "loss": path.loss,
            "objective": path.value,
            self.options.criterion: self.criterion.values,
            **({} if cv is None else {"cv_mean": cv.mean, "cv_se": cv.se}),
            **({} if bounds is None else {"lower_bound": bounds.lower, "proved": bounds.gaps <= PROVED}),
            "result": np.array([sht.results.RESULTS(code).name for code in path.result]),
            "intercept": path.intercept,
        }
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in values]

    def draw(self, model: dict[str, Any]) -> dict[str, Any]:
        path, chosen, after = self.path, self.chosen, self.after
        figures: dict[str, Any] = {}
        shown = {"chosen": chosen, "scale": self.deviations(), "columns": self._columns()}
        after.draw(figures, "path", plot_path, path, self.data.feature_names, **shown)
        if self.cv is not None:
            rule = {"rule": self.options.rule, "row": chosen}
            after.draw(figures, "cv", plot_cv, self.cv.table | rule)
        if self.stability is not None:
            shown = {"k": int(path.ks[chosen]), "threshold": STABLE}
            after.draw(figures, "probabilities", plot_stability, self.stability, self.units, **shown)
        return figures

    def page(self, model: dict[str, Any], facts: Mapping[str, str], figures: dict[str, Any], command: str) -> Writer:
        return path_report(model, self.sheet(model), facts, figures, command)

    def files(self, model: dict[str, Any]) -> dict[str, Writer]:
        path = self.path
        used = np.unique(path.features.idx[path.features.mask])
        rows = [{name: row[name] for name in row if name != "coefficients"} for row in model["rows"]]
        files = {
            "path.csv": as_csv(
                # A feature may be called k or loss.
                [*rows[0], *(f"coef:{self.data.feature_names[j]}" for j in used)],
                [[*row.values(), *w] for row, w in zip(rows, path.x[:, used].tolist(), strict=True)],
            ),
        }
        if self.stability is not None:
            table = model["stability"]
            files["probabilities.csv"] = as_csv(
                ["feature", *(f"k={k}" for k in table["ks"])],
                [[row["name"], *row["probabilities"]] for row in table["probabilities"]],
            )
        return files

    def _bests(self) -> dict[str, int]:
        """The rows that rules take, by their names in the table."""
        found = {self.options.criterion: self.criterion.best}
        if self.cv is not None:
            found |= {"CV": self.cv.best, "1 se": self.cv.best_1se}
            found["ridge" if len(self.options.l2) > 1 else "as good"] = self.cv.strong_ridge
        return found

    def sheet(self, model: dict[str, Any]) -> Sheet:
        """One row per k, at the chosen l2."""
        path, cv, bounds, criterion = self.path, self.cv, self.bounds, self.criterion.values
        l2 = path.l2s[self.chosen]
        head = ["k", "objective", self.options.criterion]
        head += [] if cv is None else ["CV loss", "± se"]
        head += [] if bounds is None else ["proved"]
        moves = moves_told([row["coefficients"] for row in model["rows"]], np.flatnonzero(path.l2s == l2).tolist())
        rows = []
        for i, moved in moves.items():
            row: list[object] = [Number(path.ks[i]), Number(path.value[i], digits(path.value[i]))]
            row.append(Number(criterion[i], f"{criterion[i]:.1f}"))
            if cv is not None:
                row += [Number(cv.mean[i], digits(cv.mean[i])), Number(cv.se[i], f"{cv.se[i]:.3g}")]
            if bounds is not None:
                gap = bounds.gaps[i]
                row.append("best" if gap <= PROVED else f"within {in_percent(gap)}" if gap < 1 else "-")
            by = ", ".join(name for name, row in self._bests().items() if i == row)
            rows.append([*row, by, moved])
        chosen = [place for place, i in enumerate(moves) if i == self.chosen]
        return Sheet(f"Best subsets at l2 = {l2:g}", [*head, "best by", "enters\n(-leaves)"], rows, chosen)

    def tables(self, model: dict[str, Any]) -> list[Table]:
        return [on_terminal(self.sheet(model))]

    def facts(self, model: dict[str, Any]) -> dict[str, str]:
        path, chosen, stability = self.path, self.chosen, self.stability
        facts = {"data": f"{model['file']}, {model['n']} rows, {len(self.units)} features, target {model['target']}"}
        facts |= left_out(self.options)
        if model["classes"]:
            facts["predicts"] = "{+1} (positive side) against {-1}".format_map(model["classes"])
        if self.options.levels:
            facts["predicts"] = " < ".join(self.options.classes)
        called = {"CV": "best CV loss", "1 se": "within 1 se", "ridge": "strong ridge", "as good": "fewest as good"}
        for name, row in self._bests().items():
            mark = " (chosen)" if row == chosen else ""
            facts[called.get(name, f"best {name}")] = f"k = {path.ks[row]}, l2 = {path.l2s[row]:g}{mark}"
        if self.cv is not None and len(self.options.l2) == 1:
            facts["l2"] = "`fit` chooses it too; so does `path` of several, as in --l2 0.01 --l2 0.1 --l2 1"
        features = dict.fromkeys(feature["column"] for feature in model["rows"][chosen]["coefficients"])
        facts["features"] = ", ".join(features) or "none"
        if stability is not None:
            k = path.ks[chosen]
            stable = np.flatnonzero(stability.selected(STABLE)[stability.ks == k].any(0))
            found = ", ".join(self.units[j] for j in stable.tolist()) or "none"
            facts["stable"] = (
                f"{found} (among the best {k} in {STABLE:.0%} or more of {stability.n_resamples} subsamples)"
            )
        return facts

    def ended(self, model: dict[str, Any]) -> bool:
        failed = int(np.sum(self.path.result != sht.results.RESULTS.converged))
        if failed:
            print_warning(
                self.errors,
                f"{failed} of {len(self.path)} fits did not converge; see `result` in path.csv for which and how.",
            )
        return True


def check_path(options: PathOptions, n: int, p: int) -> None:
    """ValueError for what n rows and p features do not allow."""
    if options.k_max is not None and options.k_max > p:
        raise ValueError(f"k-max: {options.k_max} is more than the {p} features; choose at most {p}.")
    if options.cv == 1 or options.cv > n:
        raise ValueError(f"cv: needs from 2 to {n} folds (the number of rows), or 0 for none, got {options.cv}.")
    if options.stability % 2:
        raise ValueError(f"stability: subsamples come as pairs, so their number must be even, got {options.stability}.")


def _coefficients(
    path: sht.results.Path, row: int, names: Sequence[str], columns: Sequence[str]
) -> list[dict[str, Any]]:
    mask = path.features.mask[row]
    features, values = path.features.idx[row][mask], path.coefficients[row][mask]
    return [
        {"name": names[j], "column": columns[j], "index": int(j), "coefficient": float(value)}
        for j, value in sorted(zip(features, values, strict=True))
    ]


def _describe_stability(stability: sht.results.Stability, names: Sequence[str]) -> dict[str, Any]:
    bound = stability.error_bound(STABLE)
    seen = np.flatnonzero(stability.probabilities.any(0))
    order = seen[np.argsort(-stability.probabilities[:, seen].max(0), kind="stable")]
    return {
        "n_resamples": stability.n_resamples,
        "threshold": STABLE,
        "ks": stability.ks.tolist(),
        "expected_false_selections": {name: values.tolist() for name, values in bound._asdict().items()},
        "probabilities": [
            {"name": names[j], "index": int(j), "probabilities": stability.probabilities[:, j].tolist()} for j in order
        ],
    }
