"""All k at once: the path of `path`."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from rich import box
from rich.markup import escape
from rich.table import Table
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis

import sparsehtp as sht

from ..certificates.proof import in_percent
from ..datasets import Data
from ..estimators.parameters import SOLVERS
from ..estimators.selection import view
from ..io import describe_device, versions
from ..plot import plot_cv, plot_path, plot_stability
from .common import (
    AfterFit,
    Stopwatch,
    check_outputs,
    check_provable,
    encode,
    features,
    loss_of,
    name_of,
    one_sentence,
    plotting,
    progress_bar,
)
from .files import Writer, as_csv, as_json, write_files
from .html import path_report
from .options import PathOptions
from .report import Console, facts_table, print_facts, print_warning
from .tables import Numbers, TableData, numbers, show

PROVED = 1.1e-4  # of the objective: the gap of a proof, and what the path's own rounding may add
OWN = ["report.html"]
STABLE = 0.75  # selection probability from which a feature is called stable


class Bounds(NamedTuple):
    """Of the objective of every row from below, and by what share of itself it could be improved; NaN where unknown."""

    lower: Float[np.ndarray, "rows"]
    gaps: Float[np.ndarray, "rows"]


class Answers(NamedTuple):
    """Everything that was computed; None where not asked for.

    `chosen` is a row of the path, and `units` are the names of what k counts.
    """

    path: sht.Path
    criterion: sht.Criterion
    cv: sht.CrossValidation | None
    stability: sht.Stability | None
    chosen: int
    units: Sequence[str]
    bounds: Bounds | None


def run(
    load: Callable[[], Data | TableData],
    options: PathOptions,
    out: Path,
    source: str,
    checkpoint: Path | None = None,
    command: str | None = None,
) -> None:
    """Solve the path on what `load` returns and report it, also as a page that names the command if that is given.

    Exits with 2 for bad input, and with 1 where something that follows the path failed.
    """
    console, errors = Console(), Console(stderr=True)
    wrong = (ValueError, TypeError, OSError, ImportError)
    with jax.enable_x64(options.problem.dtype == "float64"):
        with one_sentence(errors, *wrong), errors.status("Loading data"):
            check_outputs(out)
            data, table = load(), None
            show(errors, data)
            if isinstance(data, TableData):
                table = numbers(data, None, options.problem.dtype)
                if options.prove:
                    check_provable(options.problem.loss, min(options.l2), table.wide_texts)
                data = Data(table.X.to_numpy(), data.y, list(table.X.columns), data.target_name)
            objective, y, classes = prepare(data, options, table)
        after = AfterFit()
        with one_sentence(errors, *wrong), Stopwatch() as timing:
            answers = solve(objective, y, options, checkpoint, errors, data.feature_names, after, table)
    with plotting(errors, "Plotting"):
        model = describe(data, classes, answers, options, source)
        facts = _facts(data, answers, options, model, timing)
        figures = draw(data, answers, after)
        files = after.images(figures)
        if command is not None:
            files |= after("report", lambda: {"report.html": path_report(model, facts, figures, command)}, {})
        files |= _files(data, answers, after.told(model))
        paths = after("files", lambda: write_files(out, files, OWN), [])
    console.print(_table(data.feature_names, answers, options))
    listed = facts_table()
    for name, text in facts.items():
        listed.add_row(name, escape(text))
    print_facts(console, listed, paths)
    failed = int(np.sum(answers.path.result != sht.RESULTS.converged))
    if failed:
        print_warning(
            errors,
            f"{failed} of {len(answers.path)} fits did not converge; see `result` in path.csv for which and how.",
        )
    after.say(errors)


def prepare(data: Data, options: PathOptions, table: Numbers | None = None) -> tuple[Any, Any, dict[str, Any] | None]:
    """The objective, its targets, and what -1 and +1 stand for."""
    problem = options.problem
    if options.prove:
        check_provable(problem.loss, min(options.l2))
    y, classes = encode(data, problem)
    n, p = data.X.shape[0], data.X.shape[1] if table is None else len(table.unit_names)
    if options.k_max is not None and options.k_max > p:
        raise ValueError(f"k-max: {options.k_max} is more than the {p} features; choose at most {p}.")
    if options.cv == 1 or options.cv > n:
        raise ValueError(f"cv: needs from 2 to {n} folds (the number of rows), or 0 for none, got {options.cv}.")
    if options.stability % 2:
        raise ValueError(f"stability: subsamples come as pairs, so their number must be even, got {options.stability}.")
    return _objective(features(data, problem.dtype), y, options), y, classes


def _objective(X: Any, y: Any, options: PathOptions) -> Any:
    problem, l2 = options.problem, options.l2[0]
    X = X if sparse.issparse(X) else np.asfortranarray(X)  # a sparse iterate touches few columns
    standardize = problem.standardize
    if problem.loss == "cox":
        return sht.CoxModel(X, y[:, 0], y[:, 1], l2, standardize=standardize)
    if problem.loss == "ordinal":
        return sht.OrdinalModel(X, y.codes, y.categories.size, l2, standardize=standardize)
    return sht.LinearModel(X, y, loss_of(problem), l2, fit_intercept=problem.intercept, standardize=standardize)


def solve(
    objective: Any,
    y: Any,
    options: PathOptions,
    checkpoint: Path | None,
    errors: Console,
    names: Sequence[str],
    after: AfterFit,
    table: Numbers | None = None,
) -> Answers:
    """The path, and what was asked for beside it."""
    groups = None if table is None else table.groups
    threshold = None if groups is None else sht.GroupSparsity(groups, 0)
    ks = None if options.k_max is None else range(options.k_max + 1)
    key = jax.random.key(options.problem.seed)
    name = name_of(options.problem.solver)
    solver = None if name == "auto" else SOLVERS[name]()

    def settings(part: str, progress: Any) -> dict[str, Any]:
        folder = None if checkpoint is None else checkpoint / part
        return {"threshold": threshold, "solver": solver, "key": key, "checkpoint": folder, "progress": progress}

    with progress_bar(errors, "path") as progress:
        path = sht.solve_path(objective, ks, options.l2, **settings("path", progress))
    criterion = sht.information_criterion(path, options.criterion)

    def scored() -> sht.CrossValidation:
        with progress_bar(errors, "cross-validation") as progress:
            folds = _folds(objective, y, options, table)
            return sht.cross_validate(objective, ks, options.l2, folds, **settings("cv", progress))

    def subsampled() -> sht.Stability:
        with progress_bar(errors, "subsamples") as progress:
            return sht.stability_selection(objective, ks, options.stability, **settings("stability", progress))

    cv = after("cross-validation", scored) if options.cv else None
    stability = after("stability", subsampled) if options.stability else None
    units = names if table is None else table.unit_names
    chosen = criterion.best if cv is None else cv.best_1se
    bounds = (
        after("proof", lambda: prove(objective, path, chosen, options.prove, errors), None) if options.prove else None
    )
    return Answers(path, criterion, cv, stability, chosen, units, bounds)


def prove(objective: sht.LinearModel, path: sht.Path, chosen: int, seconds: float, errors: Console) -> Bounds:
    """Bounds for the rows with the chosen l2, the small k first, each with its share of the time that is left."""
    lower, gaps = np.full((2, len(path)), np.nan)
    rows = np.flatnonzero(path.l2s == path.l2s[chosen])
    rows = rows[np.argsort(path.ks[rows], kind="stable")]
    model, end = objective.reweighted(l2=path.l2s[chosen]), time.monotonic() + seconds
    with progress_bar(errors, "proofs") as progress:
        for done, i in enumerate(rows):
            progress(done, rows.size)
            share = max((end - time.monotonic()) / (rows.size - done), 1e-3)
            start = SimpleNamespace(x=path.x[i])
            proof = sht.prove(model, sht.Sparsity(int(path.ks[i])), start, time_limit=share)
            value = float(path.value[i])
            lower[i], room = proof.lower, value - proof.floor
            gaps[i] = (value - proof.lower) / room if room > 0 else 0.0
    return Bounds(lower, gaps)


def _folds(objective: Any, y: Any, options: PathOptions, table: Numbers | None) -> Any:
    """The number of folds; or folds in each of which missing values are filled from its training rows."""
    if table is None or table.preprocessor.fill_ is None:
        return options.cv
    triples = table.triples(options.cv, y, objective.counted == "classes", options.problem.seed)
    if triples is None:
        return options.cv
    models = [_objective(X.to_numpy(), y, options) for *_, X in triples]
    return [(train, test, view(model)) for (train, test, _), model in zip(triples, models, strict=True)]


def describe(
    data: Data, classes: dict[str, Any] | None, answers: Answers, options: PathOptions, source: str
) -> dict[str, Any]:
    """Everything about a path that is worth keeping, as JSON can hold it."""
    path, criterion, cv, stability, chosen, units, _ = answers
    problem = options.problem
    return {
        "file": source,
        "target": data.target_name,
        "classes": classes,
        "n": data.X.shape[0],
        "p": data.X.shape[1],
        "loss": problem.loss,
        "loss_parameter": problem.loss_parameter,
        **({"levels": list(problem.levels)} if problem.levels else {}),
        "solver": problem.solver,
        "standardize": problem.standardize,
        "fit_intercept": problem.intercept,
        "dtype": problem.dtype,
        "seed": problem.seed,
        "chosen": {
            "row": chosen,
            "k": int(path.ks[chosen]),
            "l2": float(path.l2s[chosen]),
            "by": _rule(answers, options),
        },
        "criterion": {"name": options.criterion, "best": criterion.best},
        "cv": None if cv is None else {"folds": options.cv, "best": cv.best, "one_standard_error": cv.best_1se},
        "stability": None if stability is None else _describe_stability(stability, units),
        "rows": [
            {**row, "coefficients": _coefficients(path, i, data.feature_names)}
            for i, row in enumerate(_rows(answers, options))
        ],
        "versions": versions(),
        "device": describe_device(),
    }


def _rule(answers: Answers, options: PathOptions) -> str:
    return options.criterion if answers.cv is None else "one standard error"


def _rows(answers: Answers, options: PathOptions) -> list[dict[str, Any]]:
    """What there is to say about every grid point, coefficients apart."""
    path, cv = answers.path, answers.cv
    columns = {
        "k": path.ks,
        "l2": path.l2s,
        "loss": path.loss,
        "objective": path.value,
        options.criterion: answers.criterion.values,
        **({} if cv is None else {"cv_mean": cv.mean, "cv_se": cv.se}),
        **({} if answers.bounds is None else _proved(answers.bounds)),
        "result": np.array([sht.RESULTS(code).name for code in path.result]),
        "intercept": path.intercept,
    }
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]


def _proved(bounds: Bounds) -> dict[str, Any]:
    return {"lower_bound": bounds.lower, "proved": bounds.gaps <= PROVED}


def _coefficients(path: Any, row: int, names: Sequence[str]) -> list[dict[str, Any]]:
    mask = path.features.mask[row]
    features, values = path.features.idx[row][mask], path.coefficients[row][mask]
    return [
        {"name": names[j], "index": int(j), "coefficient": float(value)}
        for j, value in sorted(zip(features, values, strict=True))
    ]


def _describe_stability(stability: Any, names: Sequence[str]) -> dict[str, Any]:
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


def draw(data: Data, answers: Answers, after: AfterFit) -> dict[str, Any]:
    """The figures of a path, by their names."""
    path, _, cv, stability, chosen, units, _ = answers
    figures: dict[str, Any] = {}

    variance = mean_variance_axis(data.X, axis=0)[1] if sparse.issparse(data.X) else data.X.var(axis=0)
    after.draw(figures, "path", plot_path, path, data.feature_names, chosen=chosen, scale=np.sqrt(variance))
    if cv is not None:
        after.draw(figures, "cv", plot_cv, cv)
    if stability is not None:
        after.draw(figures, "probabilities", plot_stability, stability, units, k=int(path.ks[chosen]), threshold=STABLE)
    return figures


def _files(data: Data, answers: Answers, model: dict[str, Any]) -> dict[str, Writer]:
    path = answers.path
    used = np.unique(path.features.idx[path.features.mask])
    rows = [[value for name, value in row.items() if name != "coefficients"] for row in model["rows"]]
    header = [name for name in model["rows"][0] if name != "coefficients"]
    files = {
        "path.json": as_json(model),
        "path.csv": as_csv(
            # A feature may be called k or loss.
            [*header, *(f"coef:{data.feature_names[j]}" for j in used)],
            [[*row, *w] for row, w in zip(rows, path.x[:, used].tolist(), strict=True)],
        ),
    }
    if answers.stability is not None:
        table = model["stability"]
        files["probabilities.csv"] = as_csv(
            ["feature", *(f"k={k}" for k in table["ks"])],
            [[row["name"], *row["probabilities"]] for row in table["probabilities"]],
        )
    return files


def _table(names: Sequence[str], answers: Answers, options: PathOptions) -> Table:
    """One row per k, at the chosen l2."""
    path, criterion, cv, _, chosen, _, bounds = answers
    l2 = path.l2s[chosen]
    rows = np.flatnonzero(path.l2s == l2)
    table = Table(title=f"Best subsets at l2 = {l2:g}", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("k", "objective", options.criterion, *(["CV loss", "± se"] if cv is not None else [])):
        table.add_column(name, justify="right", no_wrap=True)
    if bounds is not None:
        table.add_column("proved", justify="right", no_wrap=True)
    table.add_column("best by", no_wrap=True)
    table.add_column("enters (-leaves)", overflow="fold")
    before: set[int] = set()
    for i in rows:
        members = set(path.features.idx[i][path.features.mask[i]].tolist())
        moves = [names[j] for j in sorted(members - before)] + [f"-{names[j]}" for j in sorted(before - members)]
        before = members
        by: list[str] = [options.criterion] if i == criterion.best else []
        numbers = [f"{path.ks[i]}", f"{path.value[i]:#.5g}", f"{criterion.values[i]:.1f}"]
        if cv is not None:
            numbers += [f"{cv.mean[i]:#.5g}", f"{cv.se[i]:.3g}"]
            by += [name for name, row in (("CV", cv.best), ("1 se", cv.best_1se)) if i == row]
        if bounds is not None:
            gap = bounds.gaps[i]
            numbers.append("best" if gap <= PROVED else f"within {in_percent(gap)}" if gap < 1 else "-")
        table.add_row(*numbers, ", ".join(by), escape(", ".join(moves)), style="bold" if i == chosen else None)
    return table


def _facts(
    data: Data, answers: Answers, options: PathOptions, model: dict[str, Any], timing: Stopwatch
) -> dict[str, str]:
    """What was chosen of which data, by names."""
    path, chosen, stability = answers.path, answers.chosen, answers.stability
    facts = {"data": f"{model['file']}, {model['n']} rows, {model['p']} features, target {model['target']}"}
    if model["classes"]:
        facts["predicts"] = "{+1} (positive side) against {-1}".format_map(model["classes"])
    if options.problem.levels:
        facts["predicts"] = " < ".join(options.problem.levels)
    rows = {f"best {options.criterion}": answers.criterion.best}
    if answers.cv is not None:
        rows |= {"best CV loss": answers.cv.best, "within 1 se": answers.cv.best_1se}
    for name, row in rows.items():
        facts[name] = f"k = {path.ks[row]}, l2 = {path.l2s[row]:g}" + (" (chosen)" if row == chosen else "")
    features = [data.feature_names[j] for j in path.features.idx[chosen][path.features.mask[chosen]]]
    facts["features"] = ", ".join(features) or "none"
    if stability is not None:
        k = path.ks[chosen]
        stable = np.flatnonzero(stability.selected(STABLE)[stability.ks == k].any(0))
        names = ", ".join(answers.units[j] for j in stable.tolist()) or "none"
        facts["stable"] = f"{names} (among the best {k} in {STABLE:.0%} or more of {stability.n_resamples} subsamples)"
    return facts | {"time": f"{timing} on {model['device']['kind']}"}
