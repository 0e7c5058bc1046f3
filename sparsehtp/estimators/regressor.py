"""Sparse regression with the scikit-learn interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_array, check_consistent_length

from .._types import ArrayLike, TableLike
from ..iteration.results import RESULTS
from ..losses import AbstractLoss, NegativeBinomial
from ..losses.deviance import d2_score, predicted
from ..statistics import SufficientStatistics
from .arrays import as_numpy
from .base import SparseLinearModel, check_offset, checked_weights, linear
from .failures import all_or_nothing
from .fit import Rows, check_alone, checked_folds, take_names
from .parameters import make_loss, make_plan
from .scoring import make_scoring

DISPERSION_ROUNDS, DISPERSION_MOVE = 20, 1e-4  # fits at most, and the relative move that ends them


@dataclass(eq=False, repr=False, kw_only=True)
class SparseRegressor(RegressorMixin, SparseLinearModel):
    """Linear regression on the best k features, with k chosen from the data by default.

        min_{w, b} (1/W) sum_i s_i l(x_i'w + b + o_i, y_i) + (1/2) l2 sum_j (sd_j w_j)^2   subject to ||w||_0 <= k

    with the sample weights s_i, their sum W, the offsets o_i, and sd_j = 1 unless `standardize`. Coefficients are in
    original units. With y of shape (n, t) the loss is summed over t responses and w_j is the vector of a feature's
    coefficients: all responses share the k features, unless `shared` is False.

    Args:
        k: number of features (of groups, with `groups`), beside those in `keep`; 0 gives the null model. "cv": chosen
            by cross-validation among 0, 1, ..., 10, 12, ..., 20, 25, 30, 40, 50, up to a quarter of the samples (of
            fewer than 20, up to 5). "aic", "bic", "ebic", "sic": chosen among these by the criterion, see
            `information_criterion`; a weight counts as that many rows; or by a function as it takes. Candidates, for
            example range(20): chosen among these by `rule`.
        l2: ridge strength >= 0 in units of the mean loss, a number or (p,) array. A list: candidates, chosen together
            with k. "auto": chosen together with k from 1e-6, 0.01, 0.1, 1 if k="cv", since shrinkage helps to
            find features in noise; else, and with l0, 1e-6, enough to make collinear features determined and too small
            to be seen otherwise.
        l0: price of a feature in place of k, which stays "cv", see `L0L1L2`; features cost F + l0 ||v||_0 + l1 ||v||_1
            in the units v_j = sd_j w_j of the ridge. Candidates, or "cv" for those of a path that adds one feature at a
            time: chosen by `rule` together with l1 and l2. None: k counts.
        l1: price of magnitude beside l0, a number or a list of candidates.
        loss: "squared", "huber" (delta 1, in units of y), "quantile" (the median, gamma 0.1), with a log link "poisson"
            (y >= 0), "negative_binomial" (y >= 0, the dispersion estimated by maximum likelihood, in turn with fits),
            "gamma" (y > 0) and "tweedie" (y >= 0, power 1.5), or a loss instance such as `Quantile(0.9)`, or one of
            your own (`predict` gives its `mean`).
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
        bounds: (lower, upper), each None, a number, (p,), or (p, t) for t responses, in original units, with
            lower <= 0 <= upper.
        cv: number of folds, made of the data alone, four times over where n >= 4 p and n p <= 16384 (fewer folds, with
            a warning, where there are fewer samples); any scikit-learn splitter; pairs (train, test); (n,) integers
            that number the fold of each row (-1: never held out); or a list of triples (train, test, X) with the (n, p)
            features as that fold sees them, such as with missing values filled from its training rows. A single sample
            leaves no folds: then ebic takes over, with a warning.
        scoring: what is compared on held-out rows: None (the mean loss), the name of a scikit-learn scorer such as
            "neg_mean_absolute_error", or a scorer. It is called with columns of zeros for X, since predictions are
            known.
        rule: how k="cv" and candidates are chosen. "strong-ridge": features are searched at every l2, their
            coefficients fitted again at a tenth of it, and these scored on the folds; of the best k of every l2 the one
            with the largest l2 whose score is not clearly worse than the best, and there the fewest features that are
            nearly as good, see `choose` (at an l2 that is given there is no refit). "one-se": the fewest features whose
            mean held-out loss is within one standard error of the least, and the largest l2 among those. "best": the
            least loss itself. For candidates of k also the name of a criterion, or a function as
            `information_criterion` takes it.
        random_state: seed or RandomState for perturbed starts and stochastic solvers; folds do not depend on it. None:
            a fixed seed.
        max_iter: step limit of the final fit; None: the solver's.
        tol: relative tolerance of step and gradient of the final fit for "iht"; the other solvers are exact on their
            support and ignore it. None: by dtype, see `SmallStep` and `SmallGradient`.
        shared: of several responses, True: they share their features; False: each has k features of its own (a price
            of its own), with one k and l2 for all.
        warm_start: start from the coefficients of the last fit, where there are as many of them, if k is an integer;
            where k is chosen it has no effect. A local solver may end at other features than from zero.

    Attributes:
        coef_: (p,) coefficients, or (t, p) of t responses; zero outside `support_`.
        intercept_: float, or (t,).
        support_: (p,) mask of the chosen features, whose coefficients may be zero.
        k_, l2_: the values that the features were chosen with; with l0 the number that it left.
        l0_, l1_: the prices; None without l0.
        refit_l2_: the ridge strength of the coefficients; less than l2_ after "strong-ridge".
        n_iter_: steps of the final fit.
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
        dispersion_: of "negative_binomial", from all rows: where folds choose k, this one number knows those that are
            held out. None for other losses, and where it is given.
        result_: how the final fit ended, a name in `RESULTS`.
        fired_: names of the stopping criteria that held, "none" if none did.
        objective_value_: the objective at coef_ and refit_l2_.
        history_: dict of arrays with one entry per step, see `Info`.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Raises:
        ValueError: in `fit`, for data or parameters out of range; the message names the argument.
        TypeError: if the solver does not take the loss or the structure.

    Warns:
        ConvergenceWarning: where the steps did not converge or the chosen features are collinear without l2.

    The choice of features is a local solution, since a better set of k may exist on strongly correlated features; see
    `certificate_`. The held-out loss of the chosen k is optimistic, as it is a minimum: judge a model on other data.
    P-values computed for the chosen features as if they had been given beforehand are wrong.
    Computes in the dtype of X; the intercept and predictions are in float64, which far columns need. Dense data of many
    more rows than columns are condensed, for the squared loss and the default solver, without a scorer or an offset: to
    rows in float64 with the same sums of squares, in all and in every fold, so that the answer is that of all rows.

    Example:
        >>> model = SparseRegressor().fit(X, y)
        >>> model.k_, model.get_feature_names_out(), model.certificate_.statement
    """

    l0: ArrayLike | str | None = None
    l1: ArrayLike = 0.0
    loss: AbstractLoss | str = "squared"
    fit_intercept: bool = True
    scoring: Any = None
    shared: bool = True
    warm_start: bool = False
    coef_: Float[np.ndarray, "p"] | Float[np.ndarray, "t p"] = field(init=False)
    intercept_: float | Float[np.ndarray, "t"] = field(init=False)
    dispersion_: float | None = field(init=False)
    _default_l2 = 1e-6
    _l2_grid = (1e-6, 1e-2, 1e-1, 1.0)

    @all_or_nothing
    def fit(
        self,
        X: TableLike | SufficientStatistics,
        y: TableLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        folds: Any = None,
    ) -> Self:
        """Choose the features and fit them.

        Args:
            X: (n, p) array, data frame or sparse matrix, float32 or float64; a dense one that is contiguous by feature
                avoids a copy, a sparse one stays sparse (standardised implicitly). Or `SufficientStatistics`, for the
                squared loss, and nothing beside them: they hold targets, weights and folds.
            y: (n,) targets, or (n, t) for t responses; None beside statistics.
            sample_weight: (n,) weights >= 0; an integer weight acts as that many equal rows, but for folds and the
                default candidates of k. None: one.
            groups: (n,) labels; rows with equal labels stay together in the folds. (Groups of features are a parameter
                of the constructor.) None: none.
            offset: (n,) known part o_i of the linear predictor, x_i'w + b + o_i: with a log link the logarithm of the
                exposure; (n,) or (n, t) for t responses. None: zero.
            folds: in place of `cv`, where they are made of these data: all that it takes. None: `cv`.
        """
        self.dispersion_ = None
        loss = self._loss()
        if isinstance(X, SufficientStatistics):
            given = {"y": y, "sample_weight": sample_weight, "groups": groups, "offset": offset, "folds": folds}
            return self._fit_statistics(X, loss, given)
        X, y, weights = self._validate(X, y, sample_weight, y_numeric=True, multi_output=True)
        scoring = make_scoring(self.scoring, self, lambda y: y)
        known = check_offset(offset, X, 1 if y.ndim == 1 or not self.shared else y.shape[1])

        target = y.reshape(len(y), -1)
        responses = target.shape[1] if target.shape[1] > 1 and self.shared else None
        targets = [target] if responses else list(target.T)
        target = target if target.shape[1] > 1 else target[:, 0]
        options: dict[str, Any] = {"offset": known, "groups": groups, "folds": folds, "scoring": scoring}

        def fitted(loss: AbstractLoss) -> list[RESULTS]:
            results = self._fit(X, target, targets, weights, loss, responses=responses, **options)
            if y.ndim == 1:
                self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])  # type: ignore[index]
            return results

        if self.loss == "negative_binomial":
            loss.check_targets(y[weights > 0])
            chosen = self.cv if folds is None else folds
            if isinstance(chosen, Iterator):  # for every round
                options["folds"] = list(chosen)
            results = self._with_dispersion(fitted, X, y, weights, known)
        else:
            results = fitted(loss)
        self._warn_results(results)
        return self

    def _fit_statistics(self, statistics: SufficientStatistics, loss: AbstractLoss, given: dict[str, Any]) -> Self:
        """`fit` of rows that were read before."""
        check_alone(given)
        for name, bad in (("loss", not loss.quadratic), ("scoring", self.scoring is not None)):
            if bad:
                raise ValueError(
                    f"{name}: {getattr(self, name)} needs the rows, and statistics have none; pass X and y."
                )
        plan, pairs = make_plan(self, loss), None
        if plan.by_folds:
            pairs = checked_folds(statistics, self.cv)
        take_names(self, statistics)
        self._warn_results(self._fit_rows(Rows.of(statistics, self.fit_intercept, self.shared), pairs, plan, loss))
        if not statistics.n_targets:
            self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])  # type: ignore[index]
        return self

    def _with_dispersion(
        self,
        fitted: Callable[[AbstractLoss], list[RESULTS]],
        X: Any,
        y: np.ndarray,
        weights: Float[np.ndarray, "n"],
        offset: Float[np.ndarray, "n *t"] | None,
    ) -> list[RESULTS]:
        """Fits, and the dispersion of the largest likelihood at each, in turn until it moves no more."""
        live = weights > 0
        each = np.broadcast_to(weights.reshape(-1, *[1] * (y.ndim - 1)), y.shape)
        if offset is not None and y.ndim > 1:
            offset = np.broadcast_to(offset.reshape(len(y), -1), y.shape)
        last, eta = np.inf, without_features(y, each, offset)
        for _ in range(DISPERSION_ROUNDS):
            self.dispersion_ = NegativeBinomial.estimate(y[live].astype(float), eta[live], each[live])
            if abs(self.dispersion_ / last - 1) < DISPERSION_MOVE:
                break
            last = self.dispersion_
            results = fitted(self._loss())
            eta = linear(X, self.coef_, self.intercept_, offset)
        return results

    def predict(self, X: TableLike, offset: ArrayLike | None = None) -> Float[np.ndarray, "n *t"]:
        """(n,) or (n, t) predicted means: the loss's `mean` of the linear predictor (for Poisson its exponential).

        Args:
            X: (n, p) features.
            offset: (n,) or (n, t) as in `fit`; None: zero, which with a log link is an exposure of one.
        """
        eta = self._predictor(X, offset)
        return predicted(self._loss(), eta.ravel()).reshape(eta.shape)

    def score(
        self,
        X: TableLike,
        y: TableLike,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> float:
        """R2 of the predictions, or for another loss than the squared one D2, the share of its deviance explained.

            1 - D(predictions) / D(best constant),    D(eta) = sum_i s_i (l(eta_i, y_i) - min_t l(t, y_i))

        Args:
            X: (n, p) features.
            y: (n,) targets, or (n, t): the mean over the responses is taken.
            sample_weight: (n,) weights s_i >= 0; None: one.
            offset: as in `predict`.

        Returns:
            At most 1; 0 for the constant that suits y best, without an offset. As in scikit-learn, constant targets
            score 1 if they are predicted exactly and 0 otherwise.

        Raises:
            ValueError: for targets outside the loss's domain, wrong lengths, or weights that are negative or all zero.
        """
        loss, y = self._loss(), as_numpy(y)
        if loss.quadratic:
            return float(r2_score(y, self.predict(X, offset), sample_weight=as_numpy(sample_weight)))
        eta = self._predictor(X, offset)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(eta, y)
        loss.check_targets(y)
        weights = checked_weights(sample_weight, eta)
        pairs = zip(eta.reshape(len(eta), -1).T, y.reshape(len(eta), -1).T, strict=True)
        return float(np.mean([d2_score(loss, *pair, weights) for pair in pairs]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        try:
            self._loss().check_targets(-np.ones(1))
        except ValueError:  # or the loss is none, which `fit` says
            tags.target_tags.positive_only = True
        return tags

    def _loss(self) -> AbstractLoss:
        dispersion = getattr(self, "dispersion_", None)
        if self.loss == "negative_binomial" and dispersion is not None:
            return NegativeBinomial(dispersion)
        return make_loss(self.loss, classification=False)


def without_features(
    y: Float[np.ndarray, "n *t"], weights: Float[np.ndarray, "n *t"], offset: Float[np.ndarray, "n *t"] | None
) -> Float[np.ndarray, "n *t"]:
    """The linear predictors of a log link with an intercept alone."""
    rate = 1.0 if offset is None else np.exp(offset)
    total = np.maximum(np.sum(weights * rate, axis=0), np.finfo(float).tiny)
    return np.log(np.sum(weights * y, axis=0) / total + 1e-12) + np.log(rate) + np.zeros(y.shape)
