"""Sparse classification with the scikit-learn interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.special import log_expit, log_softmax, logsumexp
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target

from .._types import ArrayLike, TableLike
from ..losses import AbstractLoss, Logistic, Softmax
from ..losses.deviance import predicted
from .arrays import as_numpy
from .base import SparseLinearModel, check_offset, linear
from .failures import all_or_nothing
from .parameters import make_loss
from .scoring import make_scoring


def _has_probabilities(model: "SparseClassifier") -> bool:
    if isinstance(model.loss, AbstractLoss):
        return type(model.loss).mean is not AbstractLoss.mean
    return model.loss in ("logistic", "softmax")


@dataclass(eq=False, repr=False, kw_only=True)
class SparseClassifier(ClassifierMixin, SparseLinearModel):
    """Classification by linear scores on the best k features, with k chosen from the data by default.

        min_{w, b} (1/W) sum_i s_i l(x_i'w + b + o_i, y_i) + (1/2) l2 sum_j (sd_j w_j)^2   subject to ||w||_0 <= k

    with the sample weights s_i, their sum W, the offsets o_i, sd_j = 1 unless `standardize`, and the two classes, in
    sorted order, coded as y_i = -1 and +1. More than two classes are fitted one against the rest: the same k and l2 for
    all, chosen by the mean of their scores, each with its own k features. With loss="softmax" they are fitted together
    instead, as a multinomial logistic regression on k features that all classes share. Coefficients are in original
    units.

    Args:
        k: number of features (of groups, with `groups`), beside those in `keep`; 0 gives the null model. "cv": chosen
            by cross-validation among 0, 1, ..., 10, 12, ..., 20, 25, 30, 40, 50, up to a quarter of the samples (of
            fewer than 20, up to 5). "aic", "bic", "ebic", "sic": chosen among these by the criterion, see
            `information_criterion`; a weight counts as that many rows; or by a function as it takes. Candidates, for
            example range(20): chosen among these by `rule`.
        l2: ridge strength >= 0 in units of the mean loss, a number or (p,) array. A list: candidates, chosen together
            with k. "auto": chosen together with k from 0.01, 0.1, 1 if k="cv", since shrinkage helps to find
            features in noise; else, and with l0, 0.001, so that coefficients are determined where the classes can be
            separated. Scikit-learn's C is 1 / (n l2).
        l0, l1: prices in place of k, as in `SparseRegressor`. For more than two classes l0 is a number or candidates.
        loss: "logistic", "smoothed_hinge", "squared_hinge", "hinge", "softmax", or a loss instance. "softmax" is for
            more than two classes (two are the logistic loss).
        solver: "auto" (`BestSubset`, `IHT` with decreasing steps where the loss is not smooth, `HTP` for more
            coefficients than `BestSubset` takes), "best_subset", "forward", "foba", "htp", "iht", "grasp",
            "subspace_pursuit", or a solver instance. Where "auto" means `BestSubset`, k is chosen from quicker fits:
            `BestSubset("fast")` for folds, and `FoBa` for entries and a loss that is not squared.
        fit_intercept: add an intercept, never penalised or counted in k.
        standardize: rank and penalise coefficients times the standard deviations of their columns; in a fold, those of
            its training rows.
        groups: (p,) labels; features with equal labels enter together and k counts groups.
        keep: indices, boolean mask or column names of features that are always in the model, beside the k. With
            `groups` a kept feature keeps its group.
        positive: all coefficients >= 0.
        bounds: (lower, upper), each None, a number or (p,), in original units, with lower <= 0 <= upper.
        class_weight: None, "balanced" (equal total weight), or {label: weight}; multiplies `sample_weight`.
        cv: number of folds, made of the data alone and stratified, four times over where n >= 4 p and n p <= 16384
            (fewer folds, with a warning, where a class has fewer samples); any scikit-learn splitter; pairs (train,
            test); (n,) integers that number the fold of each row (-1: never held out); or a list of triples (train,
            test, X) with the (n, p) features as that fold sees them, such as with missing values filled from its
            training rows. A class with a single sample leaves no folds: then ebic takes over, with a warning.
        scoring: what is compared on held-out rows: None (the mean loss), the name of a scikit-learn scorer such as
            "roc_auc", or a scorer. It is called with columns of zeros for X, since predictions are known.
        rule: as in `SparseRegressor`.
        random_state: seed or RandomState for perturbed starts and stochastic solvers; folds do not depend on it. None:
            a fixed seed.
        max_iter: step limit of the final fit; None: the solver's.
        tol: relative tolerance of step and gradient of the final fit for "iht"; the other solvers are exact on their
            support and ignore it. None: by dtype, see `SmallStep` and `SmallGradient`.
        warm_start: start from the coefficients of the last fit, where there are as many of them, if k is an integer;
            where k is chosen it has no effect. A local solver may end at other features than from zero.

    Attributes:
        coef_: (1, p), or (classes, p) for more than two, zero outside the support. Scores of two classes grow towards
            classes_[1].
        intercept_: (1,) or (classes,).
        classes_: the labels, sorted.
        support_: (p,) mask of the chosen features, whose coefficients may be zero; for several classes, of any of them.
        k_, l2_: the values that the features were chosen with; with l0 the number that it left.
        l0_, l1_: the prices; None without l0.
        refit_l2_: the ridge strength of the coefficients; less than l2_ after "strong-ridge".
        n_iter_: steps of the final fit, the most of any class.
        path_: the `Path` of fits to all data that k was chosen from; None for an integer k.
        cv_results_: where folds decided, a dict of arrays over the grid (of several l1 that of the best): ks, l2s, l0s
            (None without), mean_loss (minus the score, with `scoring`), se, and scores (folds, grid); the rows
            best_index, best_1se_index and strong_ridge_index;
            contenders, the row of every l2 that "strong-ridge" looks at, with its difference to the best row and the
            difference_se; rule, and row, the one taken; as_good, the sizes at its l2 that no more than one standard
            error of the difference separates from the best; shares (p,), in how many of the folds' fits at the row each
            feature (or group) is; times, how often a row is held out on average. Else None.
        certificate_: `Certificate` of the chosen features at l2_, computed when it is first read, from the training
            data, which the estimator keeps: X once more (twice if sparse), beside y and the weights. Copies, pickles
            and saved files leave them out, and have what was read before, else None.
        swaps_: for each chosen feature its best substitute and what that would cost, see `plot.best_swaps`; computed
            at every access, and None without the training data and where there is none.
        result_: how the final fit ended, a name in `RESULTS`.
        fired_: names of the stopping criteria that held, "none" if none did.
        objective_value_: the objective at coef_ and refit_l2_.
        history_: dict of arrays with one entry per step, see `Info`.
        n_features_in_, feature_names_in_: as in scikit-learn.

    With several classes, path_, certificate_, swaps_, result_, fired_, objective_value_ and history_ are lists with an
    item for each (but not with loss="softmax").

    Raises:
        ValueError: in `fit`, for data or parameters out of range, or y with fewer than two classes; the message names
            the argument.
        TypeError: if the solver does not take the loss or the structure.

    Warns:
        ConvergenceWarning: where the steps did not converge (the plain hinge rarely does), or where without l2
            the chosen features separate the classes or are collinear.

    The choice of features is a local solution, since a better set of k may exist on strongly correlated features; see
    `certificate_`. The held-out loss of the chosen k is optimistic, as it is a minimum: judge a model on other data.
    P-values computed for the chosen features as if they had been given beforehand are wrong.
    Computes in the dtype of X; the intercept and predictions are in float64, which far columns need.

    Example:
        >>> model = SparseClassifier().fit(X, y)
        >>> model.k_, model.get_feature_names_out(), model.predict_proba(X)
    """

    l0: ArrayLike | str | None = None
    l1: ArrayLike = 0.0
    loss: AbstractLoss | str = "logistic"
    fit_intercept: bool = True
    class_weight: dict[Any, float] | str | None = None
    scoring: Any = None
    warm_start: bool = False
    classes_: Shaped[np.ndarray, "classes"] = field(init=False)
    # One row for two classes, else one for each.
    coef_: Float[np.ndarray, "1+(classes-1)*(classes>2) p"] = field(init=False)
    intercept_: Float[np.ndarray, "1+(classes-1)*(classes>2)"] = field(init=False)
    _default_l2 = 1e-3
    _l2_grid = (1e-2, 1e-1, 1.0)
    _counted = "classes"

    @all_or_nothing
    def fit(
        self,
        X: TableLike,
        y: TableLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        folds: Any = None,
    ) -> Self:
        """Choose the features and fit them.

        Args:
            X: (n, p) array, data frame or sparse matrix, float32 or float64; a dense one that is contiguous by feature
                avoids a copy, a sparse one stays sparse (standardised implicitly).
            y: (n,) labels of at least two classes, of any sortable type.
            sample_weight: (n,) weights >= 0; an integer weight acts as that many equal rows, but for folds and the
                default candidates of k. None: one.
            groups: (n,) labels; rows with equal labels stay together in the folds. (Groups of features are a parameter
                of the constructor.) None: none.
            offset: (n,) known part of the linear score, for two classes only. None: zero.
            folds: in place of `cv`, where they are made of these data: all that it takes. None: `cv`.
        """
        name = "logistic" if self._is_softmax() else self.loss
        loss = make_loss(name, classification=True)
        X, y, weights = self._validate(X, y, sample_weight)
        self.classes_, code = encode_labels(y)
        if offset is not None and self.classes_.size > 2:
            raise ValueError(f"offset: is for two classes, but y has {self.classes_.size}; leave it out.")
        offset = check_offset(offset, X)
        weights, factor = self._class_weights(y, code, weights)
        options: dict[str, Any] = {"offset": offset, "groups": groups, "folds": folds}
        if self._is_softmax() and self.classes_.size > 2:
            classes, code = self.classes_.size, code.astype(np.int32)
            options["scoring"] = make_scoring(self.scoring, self, lambda y: y, factor)
            self._warn_results(self._fit(X, code, [code], weights, Softmax(classes), responses=classes, **options))
            return self
        against = [1] if self.classes_.size == 2 else range(self.classes_.size)
        signs = [np.where(code == one, 1.0, -1.0) for one in against]
        if self.scoring is not None and len(signs) > 1:
            raise ValueError('scoring: one class against the rest is scored by its loss; use loss="softmax".')
        scoring = make_scoring(self.scoring, self, lambda y: y > 0, factor)
        results = self._fit(X, code, signs, weights, loss, scoring=scoring, **options)
        counted = weights > 0
        scores = linear(X[counted], self.coef_, self.intercept_, None if offset is None else offset[counted])
        margins = np.stack(signs, axis=1)[counted] * scores
        if np.max(self.refit_l2_) == 0 and margins.min(axis=0).max() > 0:
            self._warn(
                "The chosen features separate the classes perfectly, so the coefficients are not determined "
                "without l2; set l2 > 0."
            )
        else:
            self._warn_results(results)
        return self

    def score(
        self,
        X: TableLike,
        y: TableLike,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> float:
        """The (weighted) share of right labels."""
        weights = as_numpy(sample_weight)
        return float(accuracy_score(as_numpy(y), self.predict(X, offset), sample_weight=weights))

    def _is_softmax(self) -> bool:
        return isinstance(self.loss, str) and self.loss == "softmax"

    def _class_weights(
        self, y: np.ndarray, code: Int[np.ndarray, "n"], weights: Float[np.ndarray, "n"]
    ) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "classes"]]:
        """The weights times those of the classes, and these."""
        balanced = isinstance(self.class_weight, str) and self.class_weight == "balanced"
        factor = np.ones(self.classes_.size)
        if not balanced:
            factor = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
            weights = weights * factor[code]
            if not np.isfinite(weights).all() or weights.min() < 0:
                raise ValueError(f"class_weight: needs finite weights >= 0, got {self.class_weight!r}.")
        total = class_totals(self.classes_, code, weights)
        if balanced:
            factor = total.mean() / total
            weights = weights * factor[code]
        return weights, factor

    def decision_function(
        self, X: TableLike, offset: ArrayLike | None = None
    ) -> Float[np.ndarray, "n"] | Float[np.ndarray, "n classes"]:
        """(n,) linear scores, where positive means classes_[1]; (n, classes) for more than two classes.

        Here and below `offset` (n,) is that of `fit`; None: zero.
        """
        scores = self._predictor(X, offset)
        return scores[:, 0] if self.classes_.size == 2 else scores

    def predict(self, X: TableLike, offset: ArrayLike | None = None) -> Shaped[np.ndarray, "n"]:
        """(n,) predicted labels: the class with the largest score."""
        scores = self.decision_function(X, offset)
        return self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)]

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def predict_proba(self, X: TableLike, offset: ArrayLike | None = None) -> Float[np.ndarray, "n classes"]:
        """(n, classes) probabilities (of losses with a `mean`); one against the rest, scaled to the sum one."""
        return np.exp(self.predict_log_proba(X, offset))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def predict_log_proba(self, X: TableLike, offset: ArrayLike | None = None) -> Float[np.ndarray, "n classes"]:
        """(n, classes) logarithms of the probabilities (of losses with a `mean`)."""
        eta = self.decision_function(X, offset)
        if self._is_softmax() and eta.ndim == 2:
            return log_softmax(eta, axis=1)
        if isinstance(self.loss, AbstractLoss) and not isinstance(self.loss, Logistic):
            with np.errstate(divide="ignore"):
                probability = predicted(self.loss, eta.ravel()).reshape(eta.shape)
                other, logs = np.log1p(-probability), np.log(probability)
        else:
            scaled = eta * (float(self.loss.margin_scale) if isinstance(self.loss, Logistic) else 1.0)
            other, logs = log_expit(-scaled), log_expit(scaled)
        if eta.ndim == 1:
            return np.column_stack([other, logs])
        return logs - logsumexp(logs, axis=1, keepdims=True)


def encode_labels(y: np.ndarray) -> tuple[Shaped[np.ndarray, "classes"], Int[np.ndarray, "n"]]:
    """The classes, sorted, and the number of that of every row, or ValueError."""
    try:
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        classes, code = np.unique(y, return_inverse=True)
    except TypeError:
        raise ValueError("y: needs labels of one sortable type, without missing values.") from None
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"y: needs labels of classes, got '{kind}' values. Unknown label type.")
    if classes.size < 2:
        raise ValueError(f"y: needs two classes, got only one class, {classes.tolist()[0]!r}.")
    return classes, code


def class_totals(
    classes: Shaped[np.ndarray, "classes"], code: Int[np.ndarray, "n"], weights: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "classes"]:
    """The weight of every class, or ValueError where one has none."""
    total = np.bincount(code, weights)
    if total.min() == 0:
        if np.count_nonzero(total) == 1:
            raise ValueError(f"y: only one class has positive weight, {classes[total.argmax()]!r}.")
        raise ValueError(f"y: class {classes[total.argmin()]!r} has no positive weight; leave its rows out.")
    return total
