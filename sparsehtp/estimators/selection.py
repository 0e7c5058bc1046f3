"""Candidates for k, padded to one of a few numbers of them, and folds of the rows that count."""

import dataclasses
import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from sklearn.preprocessing import StandardScaler

from .._types import replace
from ..grids.cross_validation import CrossValidation, moments
from ..grids.folds import Pair, check_groups, folds_of, residuals, tied
from ..grids.path import Path
from ..objectives import AbstractModel
from ..objectives.base import Counted
from ..thresholds import AbstractUnitThreshold
from ..thresholds.base import default_k_max
from .failures import warn
from .padding import Padding, bucket
from .parameters import checked_count

BLOCK = 256  # columns in double precision at once
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
        padded: the levels, the last one repeated, up to a number that tables of nearly the same size share.
        k_max: enough for the largest level of such tables.
    """

    ks: np.ndarray
    padded: np.ndarray
    k_max: int

    def cut(self, a: Any) -> Any:
        """The rows of (grid, ...), l2 major, of levels that are not padding."""
        l2s, rest = a.shape[0] // self.padded.size, a.shape[1:]
        return a.reshape(l2s, self.padded.size, *rest)[:, : self.ks.size].reshape(l2s * self.ks.size, *rest)

    def cut_path(self, path: Path) -> Path:
        """A path over the levels alone."""
        return dataclasses.replace(path, **{name: jax.tree.map(self.cut, getattr(path, name)) for name in ROWS})

    def cut_scores(self, cv: CrossValidation) -> CrossValidation:
        """A cross-validation over the levels alone."""
        support = jax.tree.map(lambda a: np.moveaxis(self.cut(np.moveaxis(a, 1, 0)), 0, 1), cv.support)
        return dataclasses.replace(cv, scores=self.cut(cv.scores.T).T, path=self.cut_path(cv.path), support=support)


def make_levels(
    samples: float, available: int, padding: Padding, threshold: AbstractUnitThreshold, ks: np.ndarray | None = None
) -> Levels:
    """Levels for a sum of weights and the units to choose from; the threshold is the padded one. ks: None: default."""
    room = available
    if padding.active and threshold.kind == "entries":
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
    if not (isinstance(cv, list) and all(isinstance(fold, tuple) and len(fold) == 3 for fold in cv)):
        return cv, []
    seen = [np.asfortranarray(part, X.dtype) for *_, part in cv]
    for part in seen:
        if part.shape != X.shape or not np.isfinite(part).all():
            raise ValueError(f"cv: the features of a fold need the shape of X, {X.shape}, and finite values.")
    return [(train, test) for train, test, _ in cv], seen


def view(model: AbstractModel) -> Callable[[Any], Any]:
    """A function that puts the targets of another objective, where it has any, on the features of this one."""
    return lambda other: replace(model, y=other.y) if hasattr(other, "y") else model


def check_total(name: str, total: float, samples: int, ks: np.ndarray) -> None:
    """ValueError, about what the user passed, where a criterion has too few samples to choose among several k."""
    if total > np.e or np.ptp(ks) == 0:
        return
    if total == samples:
        raise ValueError(f"k: {samples} samples (events) are too few to choose k by a criterion; pass an integer.")
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
    with np.errstate(invalid="ignore"):  # where both are infinite
        difference = results["scores"][:, [row]] - results["scores"][:, [smaller[-1]]]
    _, error = moments(difference, results["fold_weight"], results["times"])
    return float(error[0]) if np.isfinite(error[0]) else None


def make_folds(
    cv: Any,
    X: Any,
    y: np.ndarray,
    weights: np.ndarray,
    counted: Counted = "rows",
    groups: Any = None,
    repeats: int = 1,
    others: Sequence[np.ndarray] = (),
) -> list[Pair] | None:
    """`folds_of` the parameter cv, as indices among the rows with a positive weight.

    A number of folds that the rows do not allow is lowered, with a warning; None where it would be one. `others`, (n,)
    or (n, c) numbers, tell rows apart that have the same features and y.
    """
    some, groups = weights > 0, check_groups(groups, len(y))
    if isinstance(cv, numbers.Integral):
        cv = _possible(checked_count("cv", cv, 2), y[some], counted, groups if groups is None else groups[some])
        if cv < 2:
            return None
    content: list[np.ndarray] = []
    if isinstance(cv, int) and tied(y, weights):
        own = [column for each in (*others, weights) for column in np.atleast_2d(np.asarray(each, float).T)]
        content = [*_content(X, residuals(y, weights), weights), *own]
    among = np.cumsum(some) - 1
    pairs = folds_of(cv, y, weights, counted, groups, content, repeats, "cv")
    return [(among[train], among[test]) for train, test in pairs]


def _content(X: Any, r: Float[np.ndarray, "n"], weights: Float[np.ndarray, "n"]) -> list[Float[np.ndarray, "n"]]:
    """Z Z'r, and the same of its square, in double precision: equal rows are equal, however they are ordered."""
    found = []
    with np.errstate(all="ignore"):  # squares of huge numbers: then other things order the rows
        scale = StandardScaler(with_mean=False).fit(X, sample_weight=weights).scale_
        for _ in range(2):
            place = np.zeros(len(r))
            for j in range(0, X.shape[1], BLOCK):
                part = X[:, j : j + BLOCK].astype(float, copy=False)
                place += part @ ((part.T @ r) / scale[j : j + BLOCK] / scale[j : j + BLOCK])
            place = np.nan_to_num(place, posinf=0, neginf=0)
            found.append(place)
            square = (place / (np.max(np.abs(place)) or 1)) ** 2
            r = weights * (square - np.average(square, weights=weights))
    return found


def _possible(wanted: int, y: np.ndarray, counted: Counted, groups: np.ndarray | None) -> int:
    """The number of folds, or what the rows allow."""
    there = y if counted == "events" else np.ones(len(y), bool)
    limits = [(int(there.sum()), "there are {} " + ("events" if counted == "events" else "samples"))]
    if counted == "classes":
        limits = [(int(np.unique(y, return_counts=True)[1].min()), "the rarest class has {} samples")]
    if groups is not None:
        of = "groups with an event" if counted == "events" else "groups"
        limits.insert(0, (np.unique(groups[there]).size, f"there are {{}} {of}"))
    most, reason = min(limits, key=lambda limit: limit[0])
    if 2 <= most < wanted:
        warn(f"cv: {most} folds are used instead of {wanted}, since {reason.format(most)}.")
    return min(most, wanted)
