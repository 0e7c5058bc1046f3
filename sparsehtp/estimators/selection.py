"""How the estimators choose k and l2: cross-validation, or an information criterion."""

import dataclasses
import numbers
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold, check_cv

from .._solve import default_solver
from ..grids.criteria import information_criterion
from ..grids.cross_validation import cross_validate
from ..grids.path import Path, solve_path
from ..objectives import LinearModel
from ..solvers import AbstractSolver, BestSubset, FoBa
from ..thresholds.base import default_k_max
from .padding import Padding, bucket
from .parameters import check_count

KS = (*range(11), 12, 14, 16, 18, 20, 25, 30, 40, 50)
WORKING_SET = 128
ROWS = ("ks", "l2s", "support", "features", "coefficients", "intercept", "value", "result", "loss")  # of a path


class Choice(NamedTuple):
    """The chosen k and l2, the paths of all problems, the chosen row in them, and the table of scores."""

    k: int
    l2: Any
    paths: list[Path]
    row: int
    results: dict[str, Any] | None


def default_ks(samples: float, available: int) -> np.ndarray:
    """0, 1, ..., 10 and then wider steps up to 50, half the samples, or the units to choose from."""
    most = min(samples // 2, available)
    return np.array([k for k in KS if k <= most])


class Levels(NamedTuple):
    """Sparsity levels of a grid.

    Attributes:
        ks: the levels.
        padded: as many as tables of nearly the same size have, the last level repeated.
        k_max: the largest of all those tables.
    """

    ks: np.ndarray
    padded: np.ndarray
    k_max: int

    def cut(self, a: Any) -> Any:
        """What (grid, ...) of the padded levels, l2 major, belongs to the levels."""
        l2s, rest = a.shape[0] // self.padded.size, a.shape[1:]
        return a.reshape(l2s, self.padded.size, *rest)[:, : self.ks.size].reshape(l2s * self.ks.size, *rest)

    def cut_path(self, path: Path) -> Path:
        """A path over the levels alone."""
        return dataclasses.replace(path, **{name: jax.tree.map(self.cut, getattr(path, name)) for name in ROWS})


def make_levels(samples: float, available: int, padding: Padding, threshold: Any) -> Levels:
    """The default levels for a sum of weights and the units to choose from; the threshold is the padded one."""
    ks = padded = default_ks(samples, available)
    room = available
    if padding.active:
        if threshold.unit == "entries":
            room += padding.size[1] - padding.p
        padded = default_ks(padding.size[0] if samples == padding.n else bucket(int(samples)), room)
    k_max = default_k_max(padded, room, threshold.least_k_max)
    return Levels(ks, np.pad(ks, (0, padded.size - ks.size), mode="edge"), k_max)


def search_solver(solver: AbstractSolver | None, model: LinearModel, threshold: Any, folds: bool) -> Any:
    """The solver of a search over k; None: the grid's own default."""
    if solver is not None or not isinstance(default_solver(model, threshold), BestSubset):
        return solver
    if not model.quadratic:
        return FoBa()  # one refit a step, where BestSubset tries a batch of swaps for every k
    # Folds need good supports fast; a criterion compares objectives, so it deserves better ones.
    return BestSubset("fast", working_set=WORKING_SET) if folds else None


def make_folds(
    cv: Any, y: np.ndarray, counted: np.ndarray, classification: bool, seed: int
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """(train, test) among the rows that count; None where an integer cv leaves fewer than two folds.

    A splitter, and pairs (train, test), refer to all rows: y and `counted` must be those of before any were dropped.
    """
    n = y.size
    if isinstance(cv, numbers.Integral):
        rows = y[counted]
        most = np.unique(rows, return_counts=True)[1].min() if classification else rows.size
        wanted = check_count("cv", cv, 2)
        number = min(wanted, int(most))
        if number < 2:
            return None
        if number < wanted:
            reason = f"the rarest class has {most} samples" if classification else f"there are {most} samples"
            warnings.warn(f"cv: {number} folds are used instead of {wanted}, since {reason}.", stacklevel=4)
        splitter = (StratifiedKFold if classification else KFold)(number, shuffle=True, random_state=seed)
        return list(splitter.split(np.zeros((rows.size, 1)), rows))
    if isinstance(cv, str) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise ValueError(f"cv: needs an integer, a scikit-learn splitter or pairs (train, test), got {cv!r}.")
    place = np.cumsum(counted) - 1

    def among_counted(part):
        part = np.asarray(part)
        part = np.flatnonzero(part) if part.dtype == bool and part.shape == (n,) else part
        if part.size and (part.dtype.kind not in "iu" or part.min() < 0 or part.max() >= n):
            raise ValueError(f"cv: needs row indices in 0..{n - 1} or masks of length {n}, got {part!r}.")
        part = part.astype(int)
        return place[part[counted[part]]]

    folds = [(among_counted(train), among_counted(test)) for train, test in check_cv(cv).split(np.zeros((n, 1)), y)]
    if not folds:
        raise ValueError("cv: there are no folds; pass at least one pair (train, test).")
    for number, (train, test) in enumerate(folds):
        if not train.size or not test.size:
            raise ValueError(f"cv: a part of fold {number} has no row with a positive weight; use other folds.")
        if np.intersect1d(train, test).size:
            raise ValueError(f"cv: fold {number} tests on rows it is trained on; make the two parts disjoint.")
    return folds


def by_cross_validation(
    models: list[LinearModel],
    threshold: Any,
    solver: Any,
    levels: Levels,
    l2s: np.ndarray,
    folds: Any,
    key: jax.Array,
    one_se: bool,
) -> Choice:
    """The (k, l2) with the best mean held-out loss over all problems, or with the fewest units nearly as good."""
    try:
        runs = [
            cross_validate(model, levels.padded, l2s, folds=folds, threshold=threshold, solver=solver, key=key)
            for model in models
        ]
    except ValueError as fault:
        if not str(fault).startswith("folds:"):
            raise
        raise ValueError(f"cv{str(fault)[5:]}") from None
    paths = [levels.cut_path(run.path) for run in runs]
    scores = np.mean([run.scores for run in runs], axis=0)
    joint = dataclasses.replace(runs[0], scores=levels.cut(scores.T).T, path=paths[0])
    best, best_1se = joint.best, joint.best_1se
    path = joint.path
    results = {
        "ks": path.ks,
        "l2s": path.l2s,
        "mean_loss": joint.mean,
        "se": joint.se,
        "scores": joint.scores,
        "best_index": best,
        "best_1se_index": best_1se,
    }
    row = best_1se if one_se else best
    return Choice(int(path.ks[row]), path.l2s[row], paths, row, results)


def by_criterion(
    models: list[LinearModel],
    threshold: Any,
    solver: Any,
    name: str,
    levels: Levels,
    units: int,
    total_weight: float,
    key: jax.Array,
) -> Choice:
    """The k with the least sum of a criterion, for a number of units and a sum of weights, over all problems."""
    paths = [
        levels.cut_path(solve_path(model, levels.padded, threshold=threshold, solver=solver, key=key))
        for model in models
    ]
    # The models' weights are scaled, and their columns may be padded.
    paths = [dataclasses.replace(path, n_units=units, total_weight=total_weight) for path in paths]
    try:
        row = int(np.argmin(np.sum([information_criterion(path, name).values for path in paths], axis=0)))
    except ValueError as fault:
        raise ValueError(f"k{str(fault).removeprefix('name')}") from None
    return Choice(int(paths[0].ks[row]), paths[0].l2s[row], paths, row, None)
