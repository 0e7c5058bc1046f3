"""Sparse ordinal regression with the scikit-learn interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Shaped
from scipy.special import log_expit
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_consistent_length

from .._types import ArrayLike, TableLike
from ..losses import AbstractLoss, AbstractVectorLoss
from ..objectives import OrdinalModel
from .base import SparseLinearModel, check_offset
from .classifier import class_totals, encode_labels
from .failures import all_or_nothing


@dataclass(eq=False, repr=False)
class SparseOrdinal(ClassifierMixin, SparseLinearModel):
    """Regression of ordered classes on the best k features, with k chosen from the data by default.

        min_{w, theta} -(1/W) sum_i s_i log P(y_i | x_i) + (1/2) l2 sum_j (sd_j w_j)^2   subject to ||w||_0 <= k,
        P(y <= c | x_i) = sigmoid(theta_c - x_i'w - o_i)

    with increasing thresholds theta, one between each two neighbouring classes, the sample weights s_i, their sum W,
    the offsets o_i and sd_j = 1 unless `standardize`. For grades, stages and answers from "never" to "always": the
    order counts, distances between classes do not. Coefficients and thresholds are in original units.

    Args:
        k: number of features (of groups, with `groups`), beside those in `keep`; 0 gives the null model. "cv", "aic",
            "bic", "ebic", "sic", candidates: as in `SparseClassifier`, with the mean held-out log-likelihood.
        l2: ridge strength >= 0 in units of the mean loss, a number or (p,), a list of candidates, or "auto", as in
            `SparseClassifier`.
        solver, standardize, groups, keep, positive, bounds, cv, rule, random_state, max_iter, tol: as in
            `SparseClassifier`.

    Attributes:
        coef_: (p,) coefficients; zero outside `support_`. A positive one makes higher classes more likely: it is the
            logarithm of the odds ratio of y > c for a unit of the feature, the same at every c.
        thresholds_: (classes - 1,) theta, increasing.
        levels_: (classes,) the classes from the lowest to the highest: sorted, or the categories of an ordered pandas
            Categorical that have a row.
        classes_: (classes,) the same, sorted: the columns of `predict_proba`, as scikit-learn's scorers expect them.
        support_, k_, l2_, refit_l2_, n_iter_, path_, cv_results_, certificate_, swaps_, result_, fired_,
        objective_value_, history_, n_features_in_, feature_names_in_: as in `SparseRegressor`.

    Raises:
        ValueError: in `fit`, for data or parameters out of range, or y with fewer than two classes; the message names
            the argument.
        TypeError: if the solver does not take the structure; by `prove`, as there are no proofs for this model.

    Warns:
        ConvergenceWarning: where the steps did not converge, or where without l2 the chosen features are collinear or
            order the classes perfectly.

    The choice of features is a local solution, see `certificate_`. A feature is assumed to have the same odds ratio at
    every threshold (proportional odds). P-values computed for the chosen features as if they had been given beforehand
    are wrong.

    Source: as `OrdinalModel`.

    Example:
        >>> model = SparseOrdinal().fit(X, pd.Categorical(y, ["low", "middle", "high"], ordered=True))
        >>> model.k_, model.predict(X_test), model.predict_proba(X_test)
    """

    levels_: Shaped[np.ndarray, "classes"] = field(init=False)
    classes_: Shaped[np.ndarray, "classes"] = field(init=False)
    coef_: Float[np.ndarray, "p"] = field(init=False)
    thresholds_: Float[np.ndarray, "classes-1"] = field(init=False)
    _default_l2 = 1e-3
    _l2_grid = (1e-2, 1e-1, 1.0)
    _counted = "classes"

    @all_or_nothing
    def fit(
        self,
        X: TableLike,
        y: TableLike,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        folds: Any = None,
    ) -> Self:
        """Choose the features and fit them.

        Args:
            X: (n, p) array, data frame or sparse matrix, float32 or float64.
            y: (n,) labels of at least two classes, of any sortable type, or an ordered pandas Categorical, which
                scikit-learn's `cross_val_predict` does not pass on: give it numbers.
            sample_weight: (n,) weights >= 0; an integer weight acts as that many equal rows, but for folds and the
                default candidates of k. None: one.
            offset: (n,) known part of the linear predictor. None: zero.
            groups: (n,) labels; rows with equal labels stay together in the folds. (Groups of features are a parameter
                of the constructor.) None: none.
            folds: in place of `cv`, where they are made of these data: all that it takes. None: `cv`.
        """
        categories, y = _categories(y)
        X, y, weights = self._validate(X, y, sample_weight)
        self.levels_, code = encode_labels(y)
        if categories is not None:
            self.levels_ = categories[self.levels_]
        class_totals(self.levels_, code, weights)
        self.classes_ = self.levels_[_sorting(self.levels_)]
        options: dict[str, Any] = {"offset": check_offset(offset, X), "groups": groups, "folds": folds}
        results = self._fit(X, code, [code], weights, None, **options)
        self.coef_, self.thresholds_ = self.coef_[0], self.intercept_[0]
        del self.intercept_  # thresholds are one
        self._warn_results(results)
        return self

    def _models(
        self, X: Any, targets: list[np.ndarray], loss: AbstractLoss | AbstractVectorLoss | None, **options: Any
    ) -> list[Any]:
        return [OrdinalModel(X, targets[0], self.levels_.size, **options)]

    def linear_predictor(self, X: TableLike, offset: ArrayLike | None = None) -> Float[np.ndarray, "n"]:
        """(n,) linear predictors x'w + o: the larger, the higher the class. Here and below `offset` (n,) is that of
        `fit`; None: zero."""
        return self._predictor(X, offset)

    def predict_log_proba(self, X: TableLike, offset: ArrayLike | None = None) -> Float[np.ndarray, "n classes"]:
        """(n, classes) logarithms of the probabilities of `classes_`."""
        eta = self.linear_predictor(X, offset)[:, None]
        ends = np.pad(self.thresholds_, 1, constant_values=(-np.inf, np.inf))
        with np.errstate(divide="ignore"):  # log(sigmoid(b - eta) - sigmoid(a - eta)), no difference taken
            width = np.log(-np.expm1(ends[:-1] - ends[1:]))
        each = log_expit(ends[1:] - eta) + log_expit(eta - ends[:-1]) + width
        return each[:, _sorting(self.levels_)]

    def predict_proba(self, X: TableLike, offset: ArrayLike | None = None) -> Float[np.ndarray, "n classes"]:
        """(n, classes) probabilities of `classes_`."""
        return np.exp(self.predict_log_proba(X, offset))

    def predict(self, X: TableLike, offset: ArrayLike | None = None) -> Shaped[np.ndarray, "n"]:
        """(n,) predicted labels: the most probable class."""
        place = self.predict_log_proba(X, offset).argmax(axis=1)
        return self.classes_[place]

    def score(
        self,
        X: TableLike,
        y: TableLike,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> float:
        """The (weighted) share of right labels."""
        y, predicted = np.asarray(y).reshape(-1), self.predict(X, offset)
        check_consistent_length(y, predicted)
        return float(np.average(y == predicted, weights=None if sample_weight is None else np.asarray(sample_weight)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # of classes that are in no order
        return tags


def _categories(y: Any) -> tuple[np.ndarray | None, Any]:
    """The categories of an ordered pandas Categorical and the number of that of every row; else None and y."""
    column = y.iloc[:, 0] if hasattr(y, "iloc") and np.shape(y)[1:] == (1,) else y
    kind: Any = getattr(column, "dtype", None)
    if not getattr(kind, "ordered", False):
        return None, y
    codes = np.asarray(getattr(column, "cat", column).codes)
    if codes.size and codes.min() < 0:
        raise ValueError("y: needs labels of one sortable type, without missing values.")
    return np.asarray(kind.categories), codes


def _sorting(labels: np.ndarray) -> np.ndarray:
    """The order that sorts the labels; the one they have, where there is no other."""
    try:
        return np.argsort(labels, kind="stable")
    except TypeError:
        return np.arange(labels.size)
