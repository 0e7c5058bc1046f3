"""Linear discriminant analysis with a sparse precision matrix."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import jax
import numpy as np
from jaxtyping import Float, Shaped
from scipy.special import log_softmax
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from .._types import ArrayLike, TableLike
from ..objectives import Precision
from .arrays import validated
from .base import checked_weights
from .failures import all_or_nothing
from .graph import SparseGraphModel


@dataclass(eq=False, repr=False, kw_only=True)
class SparseLDA(LinearClassifierMixin, SparseGraphModel):
    """Linear discriminant analysis with a precision matrix of at most k pairs, k chosen from the data by default.

        delta_c(x) = x' O m_c - m_c' O m_c / 2 + log pi_c,   the predicted class is the one with the largest delta_c

    with the class means m_c, class shares pi_c, and O the sparse precision matrix within classes, see
    `SparsePrecision`. It can be used with more variables than samples, where plain discriminant analysis cannot.

    Args:
        k: number of pairs, beside those in `keep`; 0 gives a diagonal matrix. "cv": by the held-out likelihood within
            classes; "ebic", "bic": by the criterion. See `SparsePrecision`.
        priors: (classes,) class probabilities, with sum one; None: the shares of the training weights.
        solver, standardize, keep, shrinkage, bounds: as in `SparsePrecision`.
        cv: number of folds, made of the data alone, stratified; any scikit-learn splitter; pairs (train, test); or fold
            numbers (n,).
        random_state: seed or RandomState for a stochastic solver. None: a fixed seed.
        max_iter: step limit of the final fit; None: the solver's.

    Attributes:
        coef_, intercept_: (classes, p) and (classes,), or (1, p) and (1,) for two classes, whose score is that of
            classes_[1].
        classes_, priors_: (classes,) sorted labels and their probabilities.
        means_: (classes, p).
        precision_: (p, p) sparse precision matrix within classes.
        support_: (p, p) mask of its pairs; the diagonal is False.
        shrinkage_, k_, path_, cv_results_, n_iter_, result_, objective_value_: as in `SparsePrecision`.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Raises:
        ValueError: in `fit`, for data or parameters out of range, fewer than two classes, or a variable that is
            constant.

    A variable that is constant within every class, but not overall, separates classes without error; it gets a tiny
    variance, so that it decides.

    Warns:
        ConvergenceWarning: where the step limit was reached.

    Source: [GraHTP] section 6.3.2, after Cai, Liu and Luo (2011).
    """

    priors: ArrayLike | None = None
    classes_: Shaped[np.ndarray, "classes"] = field(init=False)
    priors_: Float[np.ndarray, "classes"] = field(init=False)
    means_: Float[np.ndarray, "classes p"] = field(init=False)
    # One row for two classes, else one for each.
    coef_: Float[np.ndarray, "1+(classes-1)*(classes>2) p"] = field(init=False)
    intercept_: Float[np.ndarray, "1+(classes-1)*(classes>2)"] = field(init=False)

    @all_or_nothing
    def fit(self, X: TableLike, y: TableLike, sample_weight: ArrayLike | None = None) -> Self:
        """Estimate the class means, and the sparse precision matrix within classes.

        Args:
            X: (n, p) array or data frame, float32 or float64, p >= 2.
            y: (n,) labels of at least two classes, of any sortable type.
            sample_weight: (n,) weights >= 0; an integer weight acts as that many equal rows, but for folds and the
                default candidates of k. None: one.
        """
        X, y = validated(self, X, y, ensure_min_features=2, ensure_min_samples=2)
        check_classification_targets(y)
        weights = checked_weights(sample_weight, X)
        counted, every = weights > 0, weights
        data = X
        X, labels, weights = X[counted], y[counted], weights[counted]
        present, code = np.unique(labels, return_inverse=True)
        if present.size < 2:
            raise ValueError(f"y: needs two classes with positive weight, got {present.size} class.")
        self.classes_ = present
        k = self._checked_k()
        totals = np.bincount(code, weights)
        self.priors_ = self._check_priors(totals / totals.sum())
        folds = self._folds(data, y, every, "classes") if k == "cv" else None
        with jax.enable_x64(X.dtype == np.float64):
            self._fit_graph(Precision.from_data(X, weights, labels=code, **self._scaling), k, folds)
        # About the mean of all, in float64: far from zero scores are large, and their differences small.
        shares = np.eye(present.size)[code] * weights[:, None] / totals[code, None]
        self.means_ = shares.T @ X.astype(float)
        centre = self.priors_ @ self.means_
        self.coef_ = (self.means_ - centre) @ self.precision_
        self.intercept_ = np.log(self.priors_) - np.sum(self.coef_ * (self.means_ + centre), axis=1) / 2
        if present.size == 2:
            self.coef_ = self.coef_[1:] - self.coef_[:1]
            self.intercept_ = self.intercept_[1:] - self.intercept_[:1]
        return self

    def _check_priors(self, shares: Float[np.ndarray, "classes"]) -> Float[np.ndarray, "classes"]:
        if self.priors is None:
            return shares
        priors = np.asarray(self.priors, float)
        if priors.shape != shares.shape or not (priors > 0).all() or abs(priors.sum() - 1) > 1e-6:
            raise ValueError(f"priors: needs {shares.size} positive numbers with sum one, got {self.priors!r}.")
        return priors

    def predict_proba(self, X: TableLike) -> Float[np.ndarray, "n classes"]:
        """(n, classes) probabilities of the classes under the Gaussian model."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: TableLike) -> Float[np.ndarray, "n classes"]:
        """(n, classes) logarithms of the probabilities."""
        scores = self.decision_function(X)
        return log_softmax(np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores, axis=1)
