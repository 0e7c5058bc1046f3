"""Sparse precision matrices with the interface of scikit-learn's covariance estimators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import jax
import numpy as np
from jaxtyping import Float
from sklearn.covariance import EmpiricalCovariance
from sklearn.utils.validation import check_is_fitted

from .._types import ArrayLike, TableLike
from ..objectives import Precision
from . import parameters
from .arrays import validated
from .base import checked_weights
from .failures import all_or_nothing
from .graph import SparseGraphModel, partial_correlations


@dataclass(eq=False, repr=False, kw_only=True)
class SparsePrecision(SparseGraphModel, EmpiricalCovariance):
    """Gaussian graphical model with at most k edges, with k chosen from the data by default.

        min_O -logdet O + <S, O>   subject to at most k nonzero pairs O_ij = O_ji, i < j, and alpha I <= O <= beta I

    with the empirical covariance S. A pair that is zero means that two variables are independent given all others.
    S is shrunk towards its diagonal, as much as its number of samples calls for; with many samples that is hardly at
    all. Unlike the graphical lasso's, the entries that are chosen are not thinned further.

    Args:
        k: number of edges, beside those in `keep`; 0 gives a diagonal matrix. "cv": the number with the largest
            held-out likelihood; "ebic" or "bic": the least criterion, with the deviance n L and one degree of freedom
            per edge (ebic adds 2 ln C(pairs, k)). Searched are 0 and 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8 and 12
            times the number of variables, up to a third of the samples per variable (every k for few variables).
        solver: "auto" (`HTP`, the modified GraHTP), "htp", "iht", "grasp", "forward", "foba", or a solver instance.
        standardize: choose edges on the scale of correlations; in a fold, that of its training rows.
        keep: edges that are always in the graph: pairs (i, j), pairs of column names, or a boolean (p, p) matrix.
        assume_centered: the mean is zero.
        covariance: None: `fit` takes data; "precomputed": it takes a covariance or correlation matrix (k is then a
            number, or "ebic" or "bic" with `n_samples`).
        n_samples: samples behind a precomputed matrix.
        shrinkage: g in [0, 1) of `Precision`; "oas": the rule for the number of samples, in a fold that of its training
            rows (no shrinkage for a precomputed matrix without `n_samples`); 0: maximum likelihood on the support.
        bounds: rule or numbers for alpha and beta, see `Precision`; read on the scale of correlations if `standardize`.
        cv: number of folds, made of the data alone; any scikit-learn splitter; pairs (train, test); or fold numbers
            (n,).
        random_state: seed or RandomState for a stochastic solver. None: a fixed seed.
        max_iter: step limit of the final fit; None: the solver's.

    Attributes:
        precision_: (p, p) the sparse matrix O, symmetric and positive definite.
        covariance_: (p, p) its inverse; equal to the shrunk S on the edges and the diagonal where no bound is active.
        shrinkage_: g.
        location_: (p,) mean.
        support_: (p, p) mask of the edges; the diagonal is False.
        k_: the number of edges, kept ones left out.
        path_: the `Path` of fits that k was chosen from; None for an integer k.
        cv_results_: dict of arrays over the grid, `ks` and mean_loss, se and scores (folds, grid) of the held-out loss
            -logdet O + <S_test, O>, or the criterion; and the row best_index. None for an integer k.
        n_iter_, result_, objective_value_: of the final fit: steps, how it ended (a name in `RESULTS`), L(O) with the
            shrunk S.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Methods of scikit-learn's `EmpiricalCovariance`: score (mean log-likelihood), error_norm, mahalanobis.

    Raises:
        ValueError: in `fit`, for data or parameters out of range, or a constant variable; the message names it.

    Warns:
        ConvergenceWarning: where the step limit was reached.

    The graph is a local solution; edges of strongly correlated variables exchange easily: ask
    `stability_selection(Precision.from_data(X, standardize=True), ks=[k])` which ones persist. With fewer samples than
    variables a large k has no finite optimum, see `Precision`.

    Example:
        >>> model = SparsePrecision(k="ebic").fit(X)
        >>> model.edges(), model.partial_correlations()
    """

    assume_centered: bool = False
    covariance: str | None = None
    n_samples: int | None = None
    # Checked in fit, with sentences that name the argument.
    _parameter_constraints: ClassVar[dict[str, Any]] = {}
    location_: Float[np.ndarray, "p"] = field(init=False)
    covariance_: Float[np.ndarray, "p p"] = field(init=False)
    store_precision: bool = field(default_factory=lambda: True, init=False)  # of scikit-learn's; kept with each

    @all_or_nothing
    def fit(self, X: TableLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Choose the edges and fit the matrix.

        Args:
            X: (n, p) array or data frame, float32 or float64, p >= 2; or the matrix (p, p) if it is precomputed.
            y: ignored.
            sample_weight: (n,) weights >= 0; an integer weight acts as that many equal rows, but for folds and the
                default candidates of k. None: one.
        """
        X = validated(self, X, ensure_min_features=2, ensure_min_samples=2)
        k = self._checked_k()
        if self.covariance not in (None, "precomputed"):
            raise ValueError(f"covariance: must be None or 'precomputed', got {self.covariance!r}.")
        precomputed, folds = self.covariance == "precomputed", None
        # Accuracy follows the data's dtype, whatever JAX's own setting is.
        with jax.enable_x64(X.dtype == np.float64):
            if precomputed:
                objective = self._precomputed(X, k, sample_weight)
            else:
                weights = checked_weights(sample_weight, X)
                counted = weights > 0
                if k == "cv":
                    folds = self._folds(X, np.sum(X**2, axis=1), weights, "rows")
                objective = Precision.from_data(
                    X[counted], weights[counted], assume_centered=self.assume_centered, **self._scaling
                )
            self._fit_graph(objective, k, folds)
            self.location_ = np.zeros(X.shape[1]) if precomputed else np.asarray(objective.location)[0]
        # Inverted on the scale of partial correlations: units may differ by many powers of ten.
        scale = np.sqrt(np.diagonal(self.precision_))
        covariance = np.linalg.inv(self.precision_ / (scale[:, None] * scale)) / (scale[:, None] * scale)
        self.covariance_ = (covariance + covariance.T) / 2
        return self

    def _precomputed(self, S: np.ndarray, k: int | str, sample_weight: ArrayLike | None) -> Precision:
        if sample_weight is not None:
            raise ValueError("sample_weight: a precomputed matrix has no rows to weight; leave it out.")
        if k == "cv":
            raise ValueError("k: cross-validation needs data; pass a number, or 'ebic' with n_samples.")
        if self.n_samples is None and isinstance(k, str):
            raise ValueError(f"n_samples: {k} needs the number of samples behind the matrix.")
        if self.n_samples is None:
            return Precision(S, 2, **self._scaling | ({"shrinkage": 0.0} if self.shrinkage == "oas" else {}))
        return Precision(S, parameters.checked_count("n_samples", self.n_samples, 2), **self._scaling)

    def partial_correlations(self) -> Float[np.ndarray, "p p"]:
        """(p, p) correlations of two variables given all others, -O_ij / sqrt(O_ii O_jj); ones on the diagonal."""
        check_is_fitted(self)
        return partial_correlations(self.precision_)

    def edges(self) -> list[tuple[Any, Any, float]]:
        """List of (variable, variable, partial correlation), strongest first; names where the data had some."""
        partial = self.partial_correlations()
        rows, columns = np.nonzero(np.triu(self.support_))
        order = np.argsort(-np.abs(partial[rows, columns]), kind="stable")
        names = getattr(self, "feature_names_in_", np.arange(self.n_features_in_)).tolist()
        return [(names[i], names[j], float(partial[i, j])) for i, j in zip(rows[order], columns[order], strict=True)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.covariance == "precomputed"
        return tags
