"""The choice of k and l2, by cross-validation or by an information criterion, and the model there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path as Folder
from typing import Any, NamedTuple

import jax
import numpy as np

from .._progress import Callback
from .._solve import default_solver, solve_and_refit
from .._types import ArrayLike, replace
from ..iteration.results import Solution
from ..iteration.termination import AbstractTermination
from ..objectives import AbstractObjective
from ..solvers import AbstractSolver
from ..thresholds import AbstractThreshold
from . import grid as _grid
from .criteria import NAMES, Criterion, Rule, information_criterion
from .cross_validation import CrossValidation, Scoring, cross_validate, shared_folds
from .path import Path, solve_path
from .penalised_path import over_l0, penalised_parts

BY_FOLDS = {"strong-ridge": "strong_ridge_index", "one-se": "best_1se_index", "best": "best_index"}
REFIT = 0.1  # of l2, where features are chosen by "strong-ridge"


class Choice(NamedTuple):
    """A chosen (k, l2) and the model there; of several objectives, tuples of solutions and paths.

    Attributes:
        solution: the model: the fit to all data at the chosen row, its coefficients fitted again at `refit` times l2.
        selected: the same at l2 itself, as its features were chosen; `solution` where there was no refit.
        path: the fits to all data over the grid.
        refit: the part of l2 that the model's coefficients are fitted at.
        row: the chosen row of the path.
        scores: what decided: the `CrossValidation`, or the values of the `Criterion`, the mean (for a criterion: the
            sum) over several objectives.
        rule: the rule that was asked for.
    """

    solution: Solution | tuple[Solution, ...]
    selected: Solution | tuple[Solution, ...]
    path: Path | tuple[Path, ...]
    refit: float
    row: int
    scores: CrossValidation | Criterion
    rule: Rule

    @property
    def k(self) -> int:
        """The chosen number of units."""
        return int(self._first.ks[self.row])

    @property
    def l2(self) -> Any:
        """The chosen ridge strength."""
        return self._first.l2s[self.row]

    @property
    def l0(self) -> Any:
        """The chosen price of a nonzero; None where the grid has none."""
        return None if self._first.l0s is None else self._first.l0s[self.row]

    @property
    def _first(self) -> Path:
        return self.path[0] if isinstance(self.path, tuple) else self.path


def choose(
    objective: AbstractObjective | Sequence[AbstractObjective],
    threshold: AbstractThreshold | None = None,
    *,
    ks: ArrayLike | None = None,
    l2s: ArrayLike | None = None,
    l0s: ArrayLike | None = None,
    rule: Rule = "strong-ridge",
    refit: float | None = None,
    folds: Any = 5,
    solver: AbstractSolver | None = None,
    key: jax.Array | None = None,
    scoring: str | Scoring | None = None,
    max_steps: int | None = None,
    termination: AbstractTermination | None = None,
    throw: bool = True,
    checkpoint: str | Folder | None = None,
    progress: Callback | bool | None = None,
    memory: int | None = None,
    samples: Mapping[str, Any] | None = None,
    held: tuple[int, float] | None = None,
) -> Choice:
    """Choose k and l2 from a grid and fit all data there.

    The grid is fitted to all data (and to the training part of every fold) as one batch, a row of it is chosen, and
    `solve` goes on from the fit of that row.

    Args:
        objective: as in `solve_path` (`Precision.from_data` without l2). A sequence of objectives over the same
            samples, such as one class against the rest: one (k, l2) for all.
        threshold: a template as in `solve_path`; its k_max, if any, is that of the final fit too.
        ks, l2s, l0s, key, checkpoint, progress, memory: as in `solve_path`. Over l0 nothing is refitted, and several
            objectives need l0s.
        rule: "strong-ridge": see below; "best": the least mean held-out loss; "one-se" (or "one_se"): the fewest units
            whose mean is within one standard error of it, and the largest l2 among those; "aic", "bic", "ebic", "sic":
            the least value of that `information_criterion`, without folds, or a function as it takes.
        refit: the part of l2 that the coefficients of the chosen features are fitted at, in folds as in the model.
            None: 0.1 for "strong-ridge" over a grid of l2 (1 for losses without a second derivative), else 1.
        folds, scoring: as in `cross_validate`; several objectives share the folds.
        solver: of the grid and the final fit. None: the default one for the final fit, and for the grid a quicker one,
            as in `cross_validate` (for a criterion, except for entries and a loss that is not squared, the same).
        max_steps, termination, throw: of the final fit, as in `solve`.
        samples: `n_units` and `total_weight` that a rule sees in place of a path's, where its units or weights do not
            count as they are.
        held: how many rows are ever held out, and how often on average, where rows stand for others. None: as they are.

    Returns:
        A `Choice`.

    Raises:
        ValueError: for another rule, and as in `cross_validate`, `solve_path` and `information_criterion`.
        TypeError: as there.
        SolveError: as in `solve`.

    "strong-ridge": a ridge steadies the search for features in noise, but shrinks the coefficients more than prediction
    wants. So features are searched at every l2 of the grid, all supports are fitted again at a tenth of it, and these
    refits are scored. Every l2 has its best k; of those rows the one with the largest l2 is taken whose mean difference
    to the best row over the folds is at most two standard errors of that difference; and there the fewest units whose
    mean is at most half a standard error of the difference above it. Where there are more than n / 4 units (n rows),
    this half shrinks by n / (4 units): many weak features vote there. The rule stands on relaxed fits after selection
    (Meinshausen 2007; Hazimeh and Mazumder 2020) and on shrinkage in noisy subset selection (Mazumder, Radchenko and
    Dedieu 2023).

    The score of the chosen row is optimistic, as it is a minimum over the grid: judge the model on data that had no
    part in the choice. Standard errors and p-values of the chosen model are too optimistic.

    Example:
        >>> choice = sht.choose(sht.LinearModel(X, y, fit_intercept=True), l2s=[1e-6, 0.1])
        >>> choice.k, choice.l2, choice.solution.x
    """
    rule = checked_rule(rule)
    objectives = tuple(objective) if isinstance(objective, Sequence) else (objective,)
    if not objectives:
        raise ValueError("objective: needs at least one objective, got none.")
    several = objectives[0] is not objective
    template: Any
    if over_l0(l0s, threshold):
        template, refit = penalised_parts(objectives[0], threshold)[1], 1.0 if refit is None else refit
        if len(objectives) > 1 and l0s is None:
            raise ValueError("l0s: several objectives share prices; pass candidates.")
    else:
        template = _grid.template_of(objectives[0], threshold)
    refit = default_refit(objectives[0], rule, l2s) if refit is None else refit
    search: dict[str, Any] = {
        "l0s": l0s,
        "threshold": template,
        "solver": solver,
        "key": key,
        "progress": progress,
        "memory": memory,
    }
    scores: CrossValidation | Criterion
    if isinstance(rule, str) and rule in BY_FOLDS:
        if several and isinstance(folds, int | np.integer):
            folds = shared_folds(int(folds), objectives)
        search |= {"folds": folds, "scoring": scoring, "refit": refit}
        runs = [
            cross_validate(each, ks=ks, l2s=l2s, checkpoint=_part(checkpoint, several, i), **search)
            for i, each in enumerate(objectives)
        ]
        paths = tuple(run.path for run in runs)
        n_rows, times = (runs[0].n_rows, runs[0].times) if held is None else held
        scores = dataclasses.replace(
            runs[0],
            n_rows=n_rows,
            times=times,
            scores=np.mean([run.scores for run in runs], axis=0),
            path=dataclasses.replace(paths[0], **(samples or {})),
            support=jax.tree.map(lambda *parts: np.concatenate(parts, axis=2), *(run.support for run in runs)),
        )
        row = scores.table[BY_FOLDS[rule]]
    else:
        search["solver"] = default_solver(objectives[0], template, "criterion") if solver is None else solver
        paths = tuple(
            solve_path(each, ks=ks, l2s=l2s, checkpoint=_part(checkpoint, several, i), **search)
            for i, each in enumerate(objectives)
        )
        seen = [dataclasses.replace(path, **(samples or {})) for path in paths]
        each = np.array([information_criterion(path, rule).values for path in seen])
        with np.errstate(invalid="ignore"):  # a row that is out of the question for one of them is
            values = np.where(np.isposinf(each).any(axis=0), np.inf, each.sum(axis=0))
        scores = Criterion(values, int(np.argmin(values)))
        row = scores.best
    first = paths[0]
    l2, size = first.l2s[row], {"k": first.ks[row]} if first.l0s is None else {"l0": first.l0s[row]}
    ending: dict[str, Any] = {"key": key, "max_steps": max_steps, "termination": termination, "throw": throw}
    models = objectives if l2s is None else tuple(each.reweighted(l2=l2) for each in objectives)
    part = None if refit == 1 else np.asarray(_grid.checked_refit(refit, models[0]), models[0].dtype)
    fits = [
        solve_and_refit(model, replace(template, **size), solver, path.at(row), part, **ending)
        for model, path in zip(models, paths, strict=True)
    ]
    selected = tuple(fit for fit, _ in fits)
    solutions = tuple(fit if refitted is None else refitted for fit, refitted in fits)
    if several:
        return Choice(solutions, selected, paths, refit, row, scores, rule)
    return Choice(solutions[0], selected[0], paths[0], refit, row, scores, rule)


def checked_rule(rule: Any) -> Rule:
    """A rule in the one spelling of its name, or ValueError."""
    rule = "one-se" if isinstance(rule, str) and rule == "one_se" else rule
    if not callable(rule) and rule not in (*BY_FOLDS, *NAMES):
        raise ValueError(f"rule: must be one of {', '.join((*BY_FOLDS, *NAMES))}, or a function, got {rule!r}.")
    return rule


def default_refit(objective: AbstractObjective, rule: Rule, l2s: ArrayLike | None) -> float:
    """The part of l2 that a rule refits at, of a grid of l2 (None: no grid)."""
    return REFIT if rule == "strong-ridge" and l2s is not None and _grid.refittable(objective) else 1.0


def _part(checkpoint: str | Folder | None, several: bool, number: int) -> str | Folder | None:
    return Folder(checkpoint) / str(number) if several and checkpoint is not None else checkpoint
