"""Sparse binary classification with the scikit-learn interface."""

import numpy as np
from scipy.special import expit, log_expit
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target

from ..losses import Logistic
from .base import SparseLinearModel


def _is_logistic(model):
    return isinstance(model.loss, Logistic) or model.loss == "logistic"


class SparseClassifier(ClassifierMixin, SparseLinearModel):
    """Binary classification by a linear score on at most k features, chosen and fitted by hard thresholding.

        min_{w, b} (1/W) sum_i s_i l(x_i'w + b, y_i) + (1/2) l2 sum_j (sd_j w_j)^2   subject to ||w||_0 <= k

    with the sample weights s_i, their sum W, sd_j = 1 unless `standardize`, and the two classes, in sorted order,
    coded as y_i = -1 and +1. Coefficients are in original units.

    Args:
        k: number of features (of groups, with `groups`), beside those in `keep`; 0 gives the null model.
        l2: ridge strength >= 0 in units of the mean loss, a number or (p,); "auto": 1e-3, so that coefficients
            are determined where the classes can be separated. Scikit-learn's C is 1 / (n l2).
        loss: "logistic", "smoothed_hinge", "hinge", or a loss instance.
        solver: "auto" ("htp", or "iht" with decreasing steps for the hinge), "htp", "iht", "grasp",
            "subspace_pursuit", or a solver instance.
        fit_intercept: add an intercept, never penalised or counted in k.
        standardize: rank and penalise coefficients times the standard deviations of their columns.
        groups: (p,) labels; features with equal labels enter together and k counts groups.
        keep: indices, boolean mask or column names of features that are always in the model, beside the k. With
            `groups` a kept feature keeps its group.
        positive: all coefficients >= 0.
        bounds: (lower, upper), each None, a number or (p,), in original units, with lower <= 0 <= upper.
        class_weight: None, "balanced" (equal total weight), or {label: weight}; multiplies `sample_weight`.
        max_iter: step limit; None: 100, or 2000 for "iht".
        tol: relative tolerance of step and gradient for "iht"; the other solvers are exact on their support and
            ignore it. None: by dtype, see `SmallStep` and `SmallGradient`.

    Attributes:
        coef_: (1, p) coefficients, zero outside `support_`; scores grow towards classes_[1].
        intercept_: (1,).
        classes_: the two labels, sorted.
        support_: (p,) mask of the chosen features, whose coefficients may be zero.
        k_, l2_: the values used.
        n_iter_: steps taken.
        result_: how the run ended, a name in `RESULTS`.
        objective_value_: the minimum found.
        history_: dict of arrays with one entry per step, see `Info`.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Raises:
        ValueError: in `fit`, for data or parameters out of range, or y without exactly two classes; the message
            names the argument.

    Warns:
        ConvergenceWarning: where the steps did not converge (the plain hinge rarely does), or where without l2
            the chosen features separate the classes or are collinear.

    The result is a local solution: on strongly correlated features a better set of k may exist. P-values
    computed for the chosen features as if they had been given beforehand are wrong. Computes in the dtype of X.
    """

    def __init__(
        self,
        k=1,
        *,
        l2="auto",
        loss="logistic",
        solver="auto",
        fit_intercept=True,
        standardize=True,
        groups=None,
        keep=None,
        positive=False,
        bounds=None,
        class_weight=None,
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
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X, y, sample_weight=None):
        """Choose k features and fit them.

        Args:
            X: (n, p) array or data frame, float32 or float64.
            y: (n,) labels of two classes, of any sortable type.
            sample_weight: (n,) weights >= 0; an integer weight acts as that many equal rows. None: all one.
        """
        loss = self._loss(("logistic", "smoothed_hinge", "hinge"), classification=True)
        X, y, weights = self._validate(X, y, sample_weight)
        code = self._encode(y)
        weights = self._class_weights(y, code, weights)
        sign = 2.0 * code - 1.0
        result = self._fit(X, sign, weights, loss, default_l2=1e-3)
        self.coef_ = self.coef_[None, :]
        self.intercept_ = np.array([self.intercept_], X.dtype)
        counts = weights > 0
        margin = sign[counts] * (X[counts] @ self.coef_[0] + self.intercept_)
        if np.max(self.l2_) == 0 and margin.min() > 0:
            self._warn(
                "The chosen features separate the classes perfectly, so the coefficients are not determined "
                "without l2; set l2 > 0."
            )
        else:
            self._warn_result(result)
        return self

    def _encode(self, y):
        """0 and 1 for the two classes; sets `classes_`."""
        try:
            kind = type_of_target(y, input_name="y", raise_unknown=True)
            classes, code = np.unique(y, return_inverse=True)
        except TypeError:
            raise ValueError("y: needs labels of one sortable type, without missing values.") from None
        if kind not in ("binary", "multiclass"):
            raise ValueError(f"y: needs labels of two classes, got '{kind}' values. Unknown label type.")
        if classes.size > 2:
            raise ValueError(
                f"y: Only binary classification is supported. y has {classes.size} classes; "
                "wrap the estimator in sklearn.multiclass.OneVsRestClassifier."
            )
        if classes.size < 2:
            raise ValueError(f"y: needs two classes, got only one class, {classes[0]!r}.")
        self.classes_ = classes
        return code

    def _class_weights(self, y, code, weights):
        balanced = isinstance(self.class_weight, str) and self.class_weight == "balanced"
        if not balanced:
            weights = weights * compute_class_weight(self.class_weight, classes=self.classes_, y=y)[code]
            if not np.isfinite(weights).all() or weights.min() < 0:
                raise ValueError(f"class_weight: needs finite weights >= 0, got {self.class_weight!r}.")
        total = np.bincount(code, weights, minlength=2)
        if total.min() == 0:
            raise ValueError(f"y: only one class has positive weight, {self.classes_[total.argmax()]!r}.")
        return weights / total[code] if balanced else weights

    def decision_function(self, X):
        """(n,) linear scores; positive means classes_[1]."""
        return self._predictor(X)

    def predict(self, X):
        """(n,) predicted labels."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    @available_if(_is_logistic)
    def predict_proba(self, X):
        """(n, 2) probabilities of the classes (logistic loss only)."""
        return expit(self._logits(X))

    @available_if(_is_logistic)
    def predict_log_proba(self, X):
        """(n, 2) logarithms of the probabilities (logistic loss only)."""
        return log_expit(self._logits(X))

    def _logits(self, X):
        scale = 1.0 if isinstance(self.loss, str) else float(self.loss.margin_scale)
        eta = scale * self.decision_function(X)
        return np.column_stack([-eta, eta])
