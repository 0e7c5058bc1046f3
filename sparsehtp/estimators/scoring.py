"""Scikit-learn's scorers, for predictors that are computed already."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer, get_scorer_names

from ..grids.cross_validation import Scoring


def make_scoring(
    scoring: Any, estimator: Any, codes: Callable[[np.ndarray], np.ndarray], factor: np.ndarray | None = None
) -> Scoring | None:
    """Minus a scorer's value, of the estimator's predictions; None for its own loss.

    Args:
        scoring: None, a scorer's name, or a scorer (estimator, X, y, sample_weight=...) -> float, larger is better. It
            is called with an X of one column of zeros, since the estimator knows its predictors.
        estimator: an estimator whose predictions are functions of `_predictor(X)`.
        codes: the targets, or the classes' numbers, of the targets that a model holds.
        factor: (classes,) class weights that a model's weights hold and a scorer must not see; None for numbers.
    """
    if scoring is None:
        return None
    if isinstance(scoring, str):
        if scoring not in get_scorer_names():
            raise ValueError(
                f"scoring: {scoring!r} is no scorer's name; sklearn.metrics.get_scorer_names() lists them."
            )
        scoring = get_scorer(scoring)
    if not callable(scoring):
        raise ValueError(f"scoring: needs None, the name of a scorer, or a scorer, got {scoring!r}.")

    def score(y: np.ndarray, eta: np.ndarray, weights: np.ndarray) -> float:
        known, y, weights = copy.copy(estimator), codes(y), weights.astype(float)
        # A classifier's predictors have a column for two classes too.
        known._predictor = lambda X, offset=None: eta if factor is None else eta.reshape(len(y), -1)
        if factor is not None:
            y = y.astype(int)
            y, weights = estimator.classes_[y], weights / factor[y]
        alike = np.ptp(weights) <= 1e-5 * weights.max()  # but for rounding
        if not alike and not _takes_weights(scoring):
            raise ValueError(f"scoring: {scoring!r} takes no sample_weight; leave one of the two out.")
        return -float(scoring(known, np.zeros((len(y), 1)), y, **({} if alike else {"sample_weight": weights})))

    return score


def _takes_weights(scoring: Callable[..., float]) -> bool:
    taken = inspect.signature(getattr(scoring, "_score_func", scoring)).parameters
    return "sample_weight" in taken or any(each.kind is each.VAR_KEYWORD for each in taken.values())
