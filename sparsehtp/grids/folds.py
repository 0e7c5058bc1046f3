"""Folds: which rows a fit trains on and is judged by, in every form that users give them."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.model_selection import (
    GroupKFold,
    PredefinedSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    check_cv,
)

from ..objectives.base import Counted

REPEATS = 4
SMALL = 2**14  # numbers: their folds take some hundredths of a second
Pair = tuple[Int[np.ndarray, "train"], Int[np.ndarray, "test"]]


def folds_of(
    folds: Any,
    y: np.ndarray,
    weights: Float[np.ndarray, "n"],
    counted: Counted = "rows",
    groups: Any = None,
    content: Sequence[np.ndarray] = (),
    repeats: int = 1,
    name: str = "folds",
) -> list[Pair]:
    """The rows with a positive weight that every fold trains on and holds out.

    Args:
        folds: a number of folds of these rows, made of y and `content` alone, so that rows in another order get the
            same ones where these tell them apart; or what refers to all rows: a scikit-learn splitter, pairs of indices
            or masks, or (n,) fold numbers.
        y: (n,) targets, classes, or booleans that say which rows have an event.
        weights: (n,) >= 0.
        counted: what y holds, and equal shares of classes or events for a number of folds.
        groups: (n,) labels; rows with equal labels stay together.
        content: (n,) each, what orders the rows of equal y, the first most: Z Z'r for their `residuals` r and features
            Z of unit deviation, which knows no order of rows or columns, and no units of features; then others.
        repeats: of a number of folds.
        name: of the argument, in errors.
    """
    n, some = len(y), weights > 0
    groups = check_groups(groups, n)
    if isinstance(folds, int | np.integer) and not isinstance(folds, bool):
        rows = np.flatnonzero(some)
        keys = [_numbers(y)] * (y.ndim == 1) + [np.round(each / (np.max(np.abs(each)) or 1), 9) for each in content]
        rows = rows[np.lexsort([each[rows] for each in keys[::-1]])] if keys else rows
        if not 2 <= folds <= rows.size:
            raise ValueError(f"{name}: needs from 2 to {rows.size} (the number of samples), got {folds}.")
        strata, repeats = y[rows], repeats if folds < rows.size else 1
        kind: Any = StratifiedKFold if counted != "rows" else _Blocks
        if groups is not None:
            kind = GroupKFold if counted == "rows" else StratifiedGroupKFold
        splitters = [kind(int(folds), shuffle=True, random_state=number) for number in range(repeats)]
    elif isinstance(folds, str) or not (hasattr(folds, "split") or isinstance(folds, Iterable)):
        raise ValueError(f"{name}: needs an integer, a scikit-learn splitter or pairs (train, test), got {folds!r}.")
    else:
        rows, splitters, strata = np.arange(n), [check_cv(_by_number(name, folds, n))], y
    of_rows = strata, None if groups is None else groups[rows]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")  # of rows without an event, or the last block
        found = [pair for splitter in splitters for pair in splitter.split(np.zeros((rows.size, 1)), *of_rows)]

    def kept(part: Any) -> Int[np.ndarray, "part"]:
        part = rows[_indices(name, part, rows.size)]
        return part[some[part]]

    pairs = [(kept(train), kept(test)) for train, test in found]
    _check(name, pairs, y, some, counted, groups is not None)
    return pairs


class _Blocks:
    """Folds that have one row of each block of as many rows as there are folds.

    They are those of `StratifiedKFold` for blocks as strata, which takes a pass over all rows for each.
    """

    def __init__(self, folds: int, shuffle: bool, random_state: int) -> None:
        self.folds, self.seed = folds, random_state

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Pair]:
        rng, fold = np.random.RandomState(self.seed), np.empty(len(X), int)
        for first in range(0, len(X), self.folds):
            block = np.arange(min(self.folds, len(X) - first))
            rng.shuffle(block)
            fold[first : first + self.folds] = block
        for number in range(self.folds):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def repeats_of(rows: int, features: int) -> int:
    """How often a number of folds is made: repeats steady the choice, and cost little where data are small."""
    return REPEATS if 4 * features <= rows and rows * features <= SMALL else 1


def tied(y: np.ndarray, weights: Float[np.ndarray, "n"]) -> bool:
    """True if rows that count are not told apart by y alone."""
    rows = weights > 0
    return y.ndim > 1 or np.unique(y[rows]).size < int(np.count_nonzero(rows))


def residuals(y: np.ndarray, weights: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Weighted targets less their mean; labels count as 0, 1, ..., and of several responses a sum is taken."""
    y = _numbers(y)
    y = y @ np.arange(1.0, y.shape[1] + 1) if y.ndim == 2 else y
    return weights * (y - np.average(y, weights=weights)) if weights.any() else weights


def _numbers(y: np.ndarray) -> np.ndarray:
    return y.astype(float) if y.dtype.kind in "biuf" else np.unique(y, return_inverse=True)[1].astype(float)


def weights_of(
    pairs: Iterable[tuple[Any, ...]], weights: Float[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "folds n"], Float[np.ndarray, "folds n"]]:
    """(folds, n) weights of the training and the test rows of every fold: a row counts as often as it is there."""
    train, test = (
        np.stack([np.bincount(part, minlength=weights.size) for part in parts]) * weights
        for parts in zip(*pairs, strict=True)
    )
    return train, test


def check_groups(groups: Any, n: int) -> np.ndarray | None:
    """Labels of n rows, or ValueError."""
    if groups is None:
        return None
    groups = np.asarray(groups)
    if groups.shape != (n,):
        raise ValueError(f"groups: needs shape ({n},), one label per sample, got {groups.shape}.")
    if groups.dtype.kind in "fO":
        if any(label is None or label != label for label in groups.tolist()):
            raise ValueError("groups: a label is missing; name a group for every row.")
        try:
            np.unique(groups)
        except TypeError as error:
            raise ValueError(
                f"groups: labels of different kinds cannot be told apart ({error}); make them texts."
            ) from error
    return groups


def _by_number(name: str, folds: Any, n: int) -> Any:
    """A splitter for (n,) fold numbers, -1 for a row that is never held out; folds of other kinds as they are."""
    listed = isinstance(folds, (list, tuple)) and folds and all(map(np.isscalar, folds))
    numbers = np.asarray(folds) if listed or hasattr(folds, "__array__") else None
    if numbers is None or numbers.ndim > 2 or numbers.dtype == object:
        return folds
    if numbers.shape != (n,) or numbers.dtype.kind not in "iu" or numbers.min() < -1:
        raise ValueError(
            f"{name}: fold numbers are {n} integers >= 0, one per sample (-1: never held out), got {folds!r}."
        )
    return PredefinedSplit(numbers)


def _indices(name: str, part: Any, n: int) -> Int[np.ndarray, "part"]:
    part = np.asarray(part)
    if part.dtype == bool and part.shape == (n,):
        return np.flatnonzero(part)
    if part.size and (part.ndim != 1 or part.dtype.kind not in "iu" or not 0 <= part.min() <= part.max() < n):
        given = f"{part.dtype} values of shape {part.shape}"
        given += f" from {part.min()} to {part.max()}" if part.dtype.kind in "iuf" else ""
        raise ValueError(f"{name}: needs row indices in 0..{n - 1} or masks of length {n}, got {given}.")
    return part.ravel().astype(int)


def _check(name: str, pairs: list[Pair], y: np.ndarray, some: np.ndarray, counted: Counted, grouped: bool) -> None:
    """ValueError where a fold cannot train or be judged."""
    if not pairs:
        raise ValueError(f"{name}: there are no folds; pass at least one pair (train, test).")
    what, there = ("event", y) if counted == "events" else ("row", some)
    for number, (train, test) in enumerate(pairs):
        if not (there[train].any() and there[test].any()):
            raise ValueError(
                f"{name}: a part of fold {number} has no {what} with a positive weight; use fewer or other folds."
            )
        if counted == "classes" and np.unique(y[train]).size < np.unique(y[some]).size:
            advice = "use stratified or fewer folds"
            if grouped:
                advice = "every class needs rows in two groups or more, not all of them in one fold"
            raise ValueError(f"{name}: fold {number} trains without one of the classes; {advice}.")
        seen = np.zeros(some.size, bool)
        seen[train] = True
        if seen[test].any():
            raise ValueError(f"{name}: fold {number} tests on rows it is trained on; make the two parts disjoint.")
