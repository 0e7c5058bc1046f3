"""Sparse regression with the scikit-learn interface."""

import numpy as np
from sklearn.base import RegressorMixin

from ..losses import Poisson
from .base import SparseLinearModel


class SparseRegressor(RegressorMixin, SparseLinearModel):
    """Linear regression on at most k features, chosen and fitted by hard thresholding.

        min_{w, b} (1/W) sum_i s_i l(x_i'w + b, y_i) + (1/2) l2 sum_j (sd_j w_j)^2   subject to ||w||_0 <= k

    with the sample weights s_i, their sum W, and sd_j = 1 unless `standardize`. Coefficients are in original
    units.

    Args:
        k: number of features (of groups, with `groups`), beside those in `keep`; 0 gives the null model.
        l2: ridge strength >= 0 in units of the mean loss, a number or (p,); "auto": 1e-6, enough to make
            collinear features determined and too small to be seen otherwise.
        loss: "squared", "huber" (delta 1, in units of y), "poisson" (log link, y >= 0), or a loss instance.
        solver: "auto" ("htp", or "iht" for losses that are not smooth), "htp", "iht", "grasp",
            "subspace_pursuit", or a solver instance.
        fit_intercept: add an intercept, never penalised or counted in k.
        standardize: rank and penalise coefficients times the standard deviations of their columns.
        groups: (p,) labels; features with equal labels enter together and k counts groups.
        keep: indices, boolean mask or column names of features that are always in the model, beside the k. With
            `groups` a kept feature keeps its group.
        positive: all coefficients >= 0.
        bounds: (lower, upper), each None, a number or (p,), in original units, with lower <= 0 <= upper.
        max_iter: step limit; None: 100, or 2000 for "iht".
        tol: relative tolerance of step and gradient for "iht"; the other solvers are exact on their support and
            ignore it. None: by dtype, see `SmallStep` and `SmallGradient`.

    Attributes:
        coef_: (p,) coefficients; zero outside `support_`.
        intercept_: float.
        support_: (p,) mask of the chosen features, whose coefficients may be zero.
        k_, l2_: the values used.
        n_iter_: steps taken.
        result_: how the run ended, a name in `RESULTS`.
        objective_value_: the minimum found.
        history_: dict of arrays with one entry per step, see `Info`.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Raises:
        ValueError: in `fit`, for data or parameters out of range; the message names the argument.

    Warns:
        ConvergenceWarning: where the steps did not converge or the chosen features are collinear without l2.

    The result is a local solution: on strongly correlated features a better set of k may exist. P-values
    computed for the chosen features as if they had been given beforehand are wrong. Computes in the dtype of X.
    """

    def __init__(
        self,
        k=1,
        *,
        l2="auto",
        loss="squared",
        solver="auto",
        fit_intercept=True,
        standardize=True,
        groups=None,
        keep=None,
        positive=False,
        bounds=None,
        max_iter=None,
        tol=None,
    ):
        self.k = k
        self.l2 = l2
        self.loss = loss
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.groups = groups
        self.keep = keep
        self.positive = positive
        self.bounds = bounds
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X, y, sample_weight=None):
        """Choose k features and fit them.

        Args:
            X: (n, p) array or data frame, float32 or float64.
            y: (n,) targets.
            sample_weight: (n,) weights >= 0; an integer weight acts as that many equal rows. None: all one.
        """
        loss = self._loss(("squared", "huber", "poisson"), classification=False)
        X, y, weights = self._validate(X, y, sample_weight, y_numeric=True)
        self._warn_result(self._fit(X, y, weights, loss, default_l2=1e-6))
        return self

    def predict(self, X):
        """(n,) predicted means: the linear predictor, or its exponential for the Poisson loss."""
        eta = self._predictor(X)
        return np.exp(eta) if self.loss == "poisson" or isinstance(self.loss, Poisson) else eta
