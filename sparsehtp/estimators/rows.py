"""The rows of a fit, and those of statistics, which stand for others."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import issparse

from .._types import DType
from ..grids.folds import Pair
from ..statistics import SufficientStatistics


class StandIn(NamedTuple):
    """The rows that others stand for.

    Attributes:
        samples: how many rows, and their weight.
        held: how many are ever held out by folds, and how often on average.
        centre, levels: what was taken off the columns, and off the targets of every model; None: nothing.
        top: the largest of their weights.
        dtype: of the data; rows that stand for others are in float64.
    """

    samples: tuple[int, float]
    held: tuple[int, float]
    centre: Float[np.ndarray, "p"] | None
    levels: list[np.ndarray]
    top: float
    dtype: np.dtype


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
