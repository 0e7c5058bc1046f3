"""The fit of the estimators, of one response or several: rows and a plan in, solutions and their evidence out."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import issparse

from .._solve import solve
from .._types import DType, replace, seeded
from ..grids.choose import BY_FOLDS, Choice, choose
from ..grids.cross_validation import Scoring
from ..grids.folds import Pair
from ..grids.path import Path
from ..iteration.results import RESULTS, Solution
from ..objectives import AbstractObjective
from ..solvers import AbstractSolver
from ..statistics import SufficientStatistics
from ..thresholds import AbstractThreshold
from . import parameters, selection
from .condense import StandIn, condensed
from .padding import LARGE, Padding, Start, Structure
from .parameters import Plan


def check_alone(given: dict[str, Any]) -> None:
    """ValueError for arguments beside statistics."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name}: the statistics hold all that is known of the rows; leave it out.")


def checked_folds(statistics: SufficientStatistics, cv: Any) -> list[Pair]:
    """The folds of statistics, or ValueError where others are asked for."""
    if not isinstance(cv, int | np.integer) or cv != statistics.n_folds:
        raise ValueError(
            f"cv: is {cv}, but the statistics have {statistics.n_folds} folds; pass that number, or make them with "
            "others."
        )
    return statistics.folds


def take_names(estimator: Any, statistics: SufficientStatistics) -> None:
    """Set the attributes that scikit-learn's checks of data set, for an estimator of statistics."""
    estimator.n_features_in_ = statistics.n_features
    if statistics.feature_names is not None:
        estimator.feature_names_in_ = np.array(statistics.feature_names, object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


class Rows(NamedTuple):
    """The data of a fit.

    Attributes:
        X: (n, p) features.
        targets: (n,) of every model; of several responses, which are one model, (n, t).
        weights: (n,) of the rows.
        offset: (n,) or (n, t); None: zero.
        event: (n,) the rows that count where k is chosen; None: all.
        seen: (n, p) features as each fold sees them; none: X.
        responses: how many share the features; None: every target has a model of its own.
        stand_in: what rows that stand for others stand for; None: they stand for themselves.
    """

    X: Any
    targets: list[np.ndarray]
    weights: Float[np.ndarray, "n"]
    offset: np.ndarray | None = None
    event: Bool[np.ndarray, "n"] | None = None
    seen: list[np.ndarray] = []
    responses: int | None = None
    stand_in: StandIn | None = None

    @classmethod
    def of(cls, statistics: SufficientStatistics, intercept: bool, shared: bool) -> "Rows":
        """Rows that stand for all that statistics are of; several targets share their features, or not."""
        A, weights, centre = statistics.stand_ins(intercept)
        p, responses = statistics.n_features, statistics.n_targets if statistics.n_targets > 1 and shared else None
        level = centre[p:]
        targets, levels = ([A[:, p:]], [level]) if responses else (list(A[:, p:].T), list(level))
        n, total = statistics.n_samples, statistics.total_weight
        about = centre[:p] if intercept else None
        stand_in = StandIn((n, total), (n, 1.0), about, levels, statistics.largest_weight, A.dtype)
        return cls(A[:, :p], targets, weights, responses=responses, stand_in=stand_in)

    def counted(self) -> "Rows":
        """Those with a weight: a row without one must not count, even where its loss is infinite."""
        some = self.weights > 0
        if some.all():
            return self
        X, *seen = (part[some] if issparse(part) else np.asfortranarray(part[some]) for part in (self.X, *self.seen))
        offset, event = (None if each is None else each[some] for each in (self.offset, self.event))
        return Rows(X, [each[some] for each in self.targets], self.weights[some], offset, event, seen, self.responses)

    def condensed(self, pairs: list[Pair] | None, intercept: bool) -> tuple["Rows", list[Pair] | None]:
        """Fewer rows with the same sums of squares, and folds of them, where that saves work."""
        if issparse(self.X) or self.X.size <= LARGE or self.seen or self.offset is not None:
            return self, pairs
        few = condensed(self.X, self.targets, self.weights, pairs, intercept)
        if few is None:
            return self, pairs
        return Rows(few.X, few.targets, few.weights, responses=self.responses, stand_in=few.stand_in), few.pairs

    @property
    def dtype(self) -> DType:
        """Of the data."""
        return self.X.dtype if self.stand_in is None else self.stand_in.dtype

    @property
    def top(self) -> float:
        """The largest weight, which counts as one in a fit."""
        return float(self.weights.max()) if self.stand_in is None else self.stand_in.top

    @property
    def samples(self) -> tuple[int, float]:
        """How many rows there are where k is chosen, and their weight."""
        if self.stand_in is not None:
            return self.stand_in.samples
        weights = self.weights if self.event is None else self.weights[self.event]
        return weights.size, float(weights.sum())


class Evidence(NamedTuple):
    """The training data and what was chosen from them: (model, threshold, solution at l2) of every target."""

    padding: Padding
    fits: list[tuple[Any, Any, Any]]


class Fitted(NamedTuple):
    """A fit: its solutions, at refit times l2, the threshold that they keep to, how many units they hold beside those
    that are kept, the prices (l0, l1) of features, and what all this was chosen from: the paths of all data, and the
    table of a cross-validation (None without)."""

    solutions: list[Solution]
    threshold: Any
    k: int
    prices: tuple[float | None, float | None]
    l2: Any
    refit: float
    paths: list[Path] | None
    results: dict[str, Any] | None
    evidence: Evidence


class Problem(NamedTuple):
    """The data, and how to fit them.

    Attributes:
        rows: of the data, those that count.
        plan: how to choose and solve.
        threshold: the structure of the data's columns.
        build: the objectives of (X, targets, l2=..., sample_weight=..., offset=...).
    """

    rows: Rows
    plan: Plan
    threshold: Structure
    build: Callable[..., list[Any]]

    @property
    def padding(self) -> Padding:
        """The buckets of the data's shape."""
        n, p = self.rows.X.shape
        pads = self.plan.prices is None and parameters.pads(self.plan.solver)
        return Padding(n, p, pads, self.plan.l2.ndim == 1)

    @property
    def ending(self) -> dict[str, Any]:
        """How a solve ends."""
        plan, key = self.plan, seeded(self.plan.seed)
        return {"key": key, "max_steps": plan.max_steps, "termination": plan.termination, "throw": False}

    def models(self, X: Any) -> list[Any]:
        """The padded objectives of all targets on the features X of the rows."""
        padding, rows, stand_in = self.padding, self.rows, self.rows.stand_in
        models = self.build(
            padding.design(X),
            [padding.targets(target) for target in rows.targets],
            l2=padding.l2(self.plan.l2),
            sample_weight=padding.of_rows(rows.weights / rows.top),
            offset=None if rows.offset is None else padding.of_rows(rows.offset),
        )
        if stand_in is None or stand_in.centre is None:
            return models
        centre = padding.of_columns(stand_in.centre)
        return [model.about(centre, level) for model, level in zip(models, stand_in.levels, strict=True)]


def fit_targets(
    problem: Problem, folds: Any, scoring: Scoring | None, last: tuple[np.ndarray, np.ndarray] | None
) -> Fitted:
    """Choose k and l2 for all targets together where the plan says so, and fit each.

    Args:
        problem: the data, and how to fit them.
        folds: pairs (train, test) of the rows; None: a criterion chooses, if anything does.
        scoring: as in `cross_validate`.
        last: coefficients and intercepts, a row per model or response, to start a fit of a given k from.
    """
    rows, plan, padding = problem.rows, problem.plan, problem.padding
    sizes = plan.sizes
    threshold = replace(problem.threshold, **sizes)
    padded = padding.threshold(threshold, rows.responses)
    with jax.enable_x64(rows.X.dtype == np.float64):  # accuracy follows the data's dtype, whatever JAX's setting is
        models, refit = problem.models(rows.X), 1.0
        paths = results = None
        solutions: Any
        selected: Any
        if plan.rule is None:
            starts = [None] * len(models) if last is None else _starts(rows, padding, *last)
            selected = solutions = [
                _solve_from(model, padded, plan.solver, start, **problem.ending)
                for model, start in zip(models, starts, strict=True)
            ]
        else:
            if folds is not None and rows.seen:
                views = [selection.view(problem.models(part)[0]) for part in rows.seen]
                folds = [(*fold, see) for fold, see in zip(folds, views, strict=True)]
            choice, paths, results, l1 = _choose(problem, models, padded, folds, scoring)
            refit, solutions, selected = choice.refit, choice.solution, choice.selected
            sizes = {"l0": float(choice.l0), "l1": l1} if plan.prices else {"k": np.int32(choice.k)}
            threshold = replace(threshold, **sizes)
            models = [model.reweighted(l2=choice.l2) for model in models] if plan.searches_l2 else models
        solutions, selected = (
            [padding.solution(_on_host(model, each, rows.dtype)) for model, each in zip(models, fits, strict=True)]
            for fits in (solutions, selected)
        )
        l2 = padding.user_l2(np.asarray(models[0].l2))[()]
    prices = sizes.get("l0"), sizes.get("l1")
    held = [np.setdiff1d(each.support.idx[each.support.mask], threshold.keep).size for each in solutions]
    k = int(sizes.get("k", max(held)))
    evidence = Evidence(padding, [(model, threshold, each) for model, each in zip(models, selected, strict=True)])
    return Fitted(solutions, threshold, k, prices, l2, refit, paths, results, evidence)


def _choose(
    problem: Problem, models: list[Any], padded: Any, folds: Any, scoring: Scoring | None
) -> tuple[Choice, list[Path], dict[str, Any] | None, float]:
    """The choice of k and l2, the paths of the data's columns, the table of the folds, and l1."""
    plan, padding = problem.plan, problem.padding
    units = parameters.unit_total(problem.threshold, padding.p)
    n, total = problem.rows.samples
    # A weight counts as that many rows; weights of another scale must not shorten the grid of folds, nor add to that of
    # a criterion, where a saturated least-squares fit would win.
    samples = n if folds is None else max(total, n)
    priced, available = plan.prices is not None, units - len(padded.keep)
    if priced:  # sizes are found; nothing is padded
        levels = selection.Levels(ks := selection.default_ks(samples, available), ks, 0)
    else:
        levels = selection.make_levels(samples, available, padding, padded, plan.ks)
    if folds is None:
        selection.check_total(plan.weighted_by, total, n, levels.ks)

    own: dict[str, Any] = {"n_units": units, "total_weight": total}  # weights are scaled, columns may be padded
    # One program for whatever k is chosen, where room for more costs less than a second one.
    shared = padding.active and not padding.large
    l0s = plan.prices.l0s if plan.prices is not None else None
    options: dict[str, Any] = {
        "ks": levels.padded if l0s is None else None,
        "l0s": l0s,
        "l2s": padding.l2s(plan.l2s) if plan.searches_l2 else None,
        "scoring": scoring,
        "rule": plan.rule,
        "refit": 1.0 if priced else plan.refit,
        "folds": folds,
        "solver": plan.solver,
        "samples": own,
        "held": None if problem.rows.stand_in is None else problem.rows.stand_in.held,
    }
    choices: list[Any] = [
        choose(models, template, **options, **problem.ending)
        for template in (
            [replace(padded, l1=float(l1)) for l1 in plan.prices.l1s]
            if plan.prices is not None
            else [replace(padded, k_max=levels.k_max) if shared else padded]
        )
    ]
    least = [float(np.min(each.scores.mean if plan.by_folds else each.scores.values)) for each in choices]
    choice = choices[(at := int(np.argmin(least)))]
    l1 = 0.0 if plan.prices is None else float(plan.prices.l1s[at])
    cut = (lambda each: each) if priced else levels.cut_path
    paths = [dataclasses.replace(padding.path(cut(path)), **own) for path in choice.path]
    if folds is None:
        return choice, paths, None, l1
    scores = choice.scores if priced else levels.cut_scores(choice.scores)
    row = scores.table[BY_FOLDS[str(plan.rule)]]
    results = scores.table | {"l2s": paths[0].l2s, "l0s": paths[0].l0s, "rule": plan.rule, "row": row}
    return choice, paths, results | {"shares": scores.shares(row), "as_good": scores.as_good(row)}, l1


def _starts(rows: Rows, padding: Padding, coef: np.ndarray, intercept: np.ndarray) -> list[Any]:
    """Where each model starts."""
    if rows.responses is not None:
        return [Start(padding.of_columns(coef.T), intercept)]
    return [Start(padding.of_columns(x), level) for x, level in zip(coef, intercept, strict=True)]


def _solve_from(
    objective: AbstractObjective,
    threshold: AbstractThreshold,
    solver: AbstractSolver | None,
    start: Start | None,
    **ending: Any,
) -> Solution:
    """`solve` from a start, and from zero too where that does not converge: it may be far out of what data can tell."""
    solution = solve(objective, threshold, solver, start, **ending)
    if start is None or int(solution.result) == RESULTS.converged:
        return solution
    cold = solve(objective, threshold, solver, **ending)
    return solution if solution.value <= cold.value else cold


def _on_host(objective: AbstractObjective, solution: Solution, dtype: DType) -> Solution:
    """A solution in NumPy without its key and state, its coefficients in the data's dtype, and with an intercept that
    suits them in float64."""
    solution = jax.tree.map(np.asarray, solution._replace(key=None, state=None))  # type: ignore[arg-type]
    x = np.asarray(solution.x, dtype)
    intercept: Any = objective.intercept_of(x, np.asarray(solution.free))
    return solution._replace(x=x, intercept=intercept)
