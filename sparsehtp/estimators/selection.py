"""What the estimators choose k from: sparsity levels in buckets, and folds of the rows that count."""

import dataclasses
import numbers
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils import check_consistent_length, column_or_1d

from .._types import replace
from ..grids.cross_validation import CrossValidation, by_number, moments
from ..grids.path import Path
from ..thresholds.base import default_k_max
from .fitting import warn
from .padding import Padding, bucket
from .parameters import check_count

KS = (*range(11), 12, 14, 16, 18, 20, 25, 30, 40, 50)
ROWS = ("ks", "l2s", "support", "features", "coefficients", "intercept", "value", "result", "loss")  # of a path


def default_ks(samples: float, available: int) -> np.ndarray:
    """0, 1, ..., 10 and then wider steps up to 50, a quarter of the samples (5 of few), or the units to choose from."""
    most = min(max(5, samples // 4), samples // 2, available)
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

    def table(self, cv: CrossValidation) -> dict[str, Any]:
        """The table of a cross-validation over the levels alone."""
        return dataclasses.replace(cv, scores=self.cut(cv.scores.T).T, path=self.cut_path(cv.path)).table


def make_levels(
    samples: float, available: int, padding: Padding, threshold: Any, ks: np.ndarray | None = None
) -> Levels:
    """Levels for a sum of weights and the units to choose from; the threshold is the padded one. ks: None: default."""
    room = available
    if padding.active and threshold.unit == "entries":
        room += padding.size[1] - padding.p
    if ks is None:
        ks = padded = default_ks(samples, available)
        if padding.active:
            padded = default_ks(padding.size[0] if samples == padding.n else bucket(int(samples)), room)
    else:
        if ks.max() > available:
            raise ValueError(f"k: the largest candidate is {ks.max()}, but there are only {available} to choose from.")
        padded = np.pad(ks, (0, bucket(ks.size) - ks.size), mode="edge") if padding.active else ks
    k_max = default_k_max(padded, room, threshold.least_k_max)
    return Levels(ks, np.pad(ks, (0, padded.size - ks.size), mode="edge"), k_max)


def split_triples(cv: Any, X: Any) -> tuple[Any, list[np.ndarray]]:
    """Pairs (train, test) and the features that each fold sees, of a list of triples; anything else and no features."""
    if not (isinstance(cv, list) and cv and all(isinstance(fold, tuple) and len(fold) == 3 for fold in cv)):
        return cv, []
    seen = [np.asfortranarray(part, X.dtype) for *_, part in cv]
    for part in seen:
        if part.shape != X.shape or not np.isfinite(part).all():
            raise ValueError(f"cv: the features of a fold need the shape of X, {X.shape}, and finite values.")
    return [(train, test) for train, test, _ in cv], seen


def view(model: Any) -> Callable[[Any], Any]:
    """What puts the targets of another objective, where it has any, on the features of this one."""
    return lambda other: replace(model, y=other.y) if hasattr(other, "y") else model


def check_total(estimator: Any, total: float, samples: int, ks: np.ndarray) -> None:
    """ValueError, about what the user passed, where a criterion has too few samples to choose among several k."""
    if total > np.e or np.ptp(ks) == 0:
        return
    if total == samples:
        raise ValueError(f"k: {samples} samples (events) are too few to choose k by a criterion; pass an integer.")
    name = "sample_weight" if getattr(estimator, "class_weight", None) is None else "class_weight"
    raise ValueError(
        f"{name}: the sum of the weights, {total:g}, counts as the number of samples of a criterion, which is too few; "
        "scale the weights so that they sum to it."
    )


def noise_of_choice(results: dict[str, Any]) -> float | None:
    """The standard error over the folds of the difference in score between the chosen row and the next smaller size at
    its l2; None where there is no smaller one, or a score is infinite."""
    row, l2s, sizes = results["row"], results["l2s"], results["ks"]
    same = np.all(np.reshape(l2s, (sizes.size, -1)) == np.reshape(l2s[row], -1), axis=1)
    smaller = np.flatnonzero(same & (sizes < sizes[row]))
    if smaller.size == 0:
        return None
    _, error = moments(results["scores"][:, [row]] - results["scores"][:, [smaller[-1]]], results["fold_weight"])
    return float(error[0]) if np.isfinite(error[0]) else None


def make_folds(
    cv: Any, y: np.ndarray, counted: np.ndarray, classification: bool, seed: int, groups: Any = None
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """(train, test) among the rows that count; None where an integer cv leaves fewer than two folds.

    A splitter, pairs (train, test) and fold numbers refer to all rows: y, `counted` and the groups, whose rows stay
    together, must be those of before any were dropped. A boolean y of no classes says which rows have an event, of
    which folds get equal shares.
    """
    n, events = len(y), y.dtype == bool and not classification
    if groups is not None:
        groups = column_or_1d(groups)
        check_consistent_length(y, groups)
    if isinstance(cv, numbers.Integral):
        rows = y[counted]
        most = int(rows.sum()) if events else len(rows)
        if classification:
            most = np.unique(rows, return_counts=True)[1].min()
        if groups is not None:
            groups = groups[counted]
            most = min(most, np.unique(groups[rows] if events else groups).size)
        wanted = check_count("cv", cv, 2)
        number = min(wanted, int(most))
        if number < 2:
            return None
        if number < wanted:
            of = "events" if events else "samples"
            reason = f"the rarest class has {most} samples" if classification else f"there are {most} {of}"
            if groups is not None and most == np.unique(groups[rows] if events else groups).size:
                reason = f"there are {most} groups{' with an event' if events else ''}"
            warn(f"cv: {number} folds are used instead of {wanted}, since {reason}.")
        kinds = (KFold, StratifiedKFold) if groups is None else (GroupKFold, StratifiedGroupKFold)
        splitter = kinds[classification or events](number, shuffle=True, random_state=seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The least populated class")  # of rows without an event
            folds = list(splitter.split(np.zeros((len(rows), 1)), rows, groups))
        return _check_events(folds, rows) if events else folds
    if isinstance(cv, str) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise ValueError(f"cv: needs an integer, a scikit-learn splitter or pairs (train, test), got {cv!r}.")
    place, rows = np.cumsum(counted) - 1, y[counted]

    def among_counted(part: Any) -> np.ndarray:
        part = np.asarray(part)
        part = np.flatnonzero(part) if part.dtype == bool and part.shape == (n,) else part
        if part.size and (part.dtype.kind not in "iu" or part.min() < 0 or part.max() >= n):
            raise ValueError(f"cv: needs row indices in 0..{n - 1} or masks of length {n}, got {part!r}.")
        part = part.astype(int)
        return place[part[counted[part]]]

    folds = [
        (among_counted(train), among_counted(test))
        for train, test in check_cv(by_number("cv", cv, n)).split(np.zeros((n, 1)), y, groups)
    ]
    if not folds:
        raise ValueError("cv: there are no folds; pass at least one pair (train, test).")
    for number, (train, test) in enumerate(folds):
        if not train.size or not test.size:
            raise ValueError(f"cv: a part of fold {number} has no row with a positive weight; use other folds.")
        if classification and np.unique(rows[train]).size < np.unique(rows).size:
            raise ValueError(f"cv: fold {number} trains without one of the classes; use stratified or fewer folds.")
        if np.intersect1d(train, test).size:
            raise ValueError(f"cv: fold {number} tests on rows it is trained on; make the two parts disjoint.")
    return _check_events(folds, rows) if events else folds


def _check_events(folds: list[tuple[np.ndarray, np.ndarray]], event: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    for number, (train, test) in enumerate(folds):
        if not (event[train].any() and event[test].any()):
            raise ValueError(f"cv: a part of fold {number} has no event; use fewer or other folds.")
    return folds
