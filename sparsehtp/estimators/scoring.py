"""Scikit-learn's scorers, for predictors that are computed already."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import get_scorer, get_scorer_names

from ..grids.cross_validation import Scoring


def make_scoring(scoring: Any, estimator: Any, labels: Callable[[np.ndarray], np.ndarray]) -> Scoring | None:
    """Minus a scorer's value, of the estimator's predictions; None for its own loss.

    Args:
        scoring: None, a scorer's name, or a scorer (estimator, X, y, sample_weight=...) -> float, larger is better. It
            is called with an X of one column of zeros, since the estimator knows its predictors.
        estimator: an estimator whose predictions are functions of `_predictor(X)`.
        labels: the targets that the user knows, of those that a model holds.
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

    flat = not is_classifier(estimator)  # a classifier's predictors have a column for two classes too

    def score(y: np.ndarray, eta: np.ndarray, weights: np.ndarray) -> float:
        known = copy.copy(estimator)
        known._predictor = lambda X, offset=None: eta if flat else eta.reshape(len(y), -1)
        weighted = {} if np.ptp(weights) == 0 else {"sample_weight": weights}
        return -float(scoring(known, np.zeros((len(y), 1)), labels(y), **weighted))

    return score
