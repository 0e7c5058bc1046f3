"""Multi-response regression of low rank with the scikit-learn interface."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from .._programs import program
from .._solve import solve
from .._types import ArrayLike, TableLike
from ..grids.cross_validation import decide
from ..grids.folds import Pair, weights_of
from ..iteration.results import RESULTS
from ..linalg import dot
from ..objectives import MultiResponse
from ..solvers import AbstractSolver
from ..solvers.reduced_rank import ReducedRank, reduced_rank
from ..statistics import SufficientStatistics
from ..thresholds import Rank
from . import parameters, selection
from .arrays import as_numpy, validated
from .base import checked_weights, linear
from .failures import all_or_nothing, warn, warn_result
from .fit import check_alone, checked_folds, take_names

CRITERIA = ("aic", "bic")


@dataclass(eq=False, repr=False)
class LowRankRegressor(RegressorMixin, BaseEstimator):
    """Regression of several responses with coefficients of rank r: reduced-rank, or multi-task, regression.

        min_{B, b} (1/2W) sum_i s_i ||B'x_i + b - y_i||^2 + (1/2) l2 sum_j (sd_j)^2 ||B_j.||^2   subject to rank B <= r

    with the sample weights s_i, their sum W, and sd_j = 1 unless `standardize`. The responses share r linear
    combinations of the features. Coefficients are in original units.

    Args:
        r: rank, an integer >= 0. "cv": chosen by cross-validation among 0, 1, ..., the most that the data allow.
            "aic", "bic": chosen by the criterion W c ln(RSS / (W c)) + (2 or ln(W c)) r (p + c - r), for one noise
            variance.
        l2: ridge strength >= 0 in units of the mean loss, a number or (p,). The default is enough to make collinear
            features determined, and too small to be seen otherwise.
        solver: "auto": the global minimiser in closed form, for all ranks at once (`reduced_rank`); "htp", "iht" or a
            solver instance: that solver under `Rank`, at the chosen r.
        fit_intercept: add an intercept per response, never penalised.
        standardize: penalise coefficients times the standard deviations of their columns; in a fold, those of its
            training rows.
        cv: number of folds, made of the data alone (fewer, with a warning, where there are fewer samples), any
            scikit-learn splitter, pairs (train, test), or fold numbers (n,).
        one_se: take the lowest rank whose mean held-out loss is within one standard error of the least; False: the
            least loss itself.
        max_iter: step limit of a solver.

    Attributes:
        coef_: (c, p) coefficients, B', or (p,) for a one-dimensional y.
        intercept_: (c,), or a float.
        rank_: the rank used.
        singular_values_: (rank_,) of the standardised coefficients, largest first.
        x_rotation_: (p, rank_) the shared combinations of features, `X @ x_rotation_`, in original units, and
        y_loadings_: (c, rank_) orthonormal, so that B = x_rotation_ y_loadings_'.
        cv_results_: with r="cv", a dict of arrays over the ranks: ranks, mean_loss, se, scores (folds, ranks), and the
            rows best_index and best_1se_index. Else None.
        result_: how the fit ended, a name in `RESULTS`.
        n_iter_: steps of a solver; 1 for the closed form.
        objective_value_: the minimum found.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Raises:
        ValueError: in `fit`, for data or parameters out of range; the message names the argument.

    Warns:
        ConvergenceWarning: if a solver did not converge, or the features are collinear and l2 is 0.

    The closed form is a global optimum, and all ranks cost no more than one. It factorises the smaller of (p, p) and
    (n, n). The held-out loss of the chosen r is optimistic, as it is a minimum. Computes in the dtype of
    X; intercepts and predictions are in float64.

    Example:
        >>> model = LowRankRegressor().fit(X, Y)
        >>> model.rank_, model.predict(X)

    Source: Izenman (1975); cross-validated rank with the one-standard-error rule as in Breiman et al. (1984).
    """

    r: int | str = "cv"
    _: KW_ONLY
    l2: ArrayLike | str = 1e-6
    solver: AbstractSolver | str = "auto"
    fit_intercept: bool = True
    standardize: bool = True
    cv: Any = 5
    one_se: bool = True
    max_iter: int | None = None
    # What `fit` sets, and `sht.load` takes: nothing else, in these types and shapes.
    rank_: int = field(init=False)
    singular_values_: Float[np.ndarray, "rank"] = field(init=False)
    y_loadings_: Float[np.ndarray, "c rank"] = field(init=False)
    x_rotation_: Float[np.ndarray, "p rank"] = field(init=False)
    # One dimension for a y of one.
    coef_: Float[np.ndarray, "c p"] | Float[np.ndarray, "p*(c==1)"] = field(init=False)
    intercept_: Float[np.ndarray, "c"] | float = field(init=False)
    cv_results_: dict | None = field(init=False)  # type: ignore[type-arg]  # for isinstance
    n_iter_: int = field(init=False)
    objective_value_: float = field(init=False)
    result_: str = field(init=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @all_or_nothing
    def fit(
        self,
        X: TableLike | SufficientStatistics,
        y: TableLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Choose the rank and fit.

        Args:
            X: (n, p) array or data frame, float32 or float64; or `SufficientStatistics` with several targets.
            y: (n, c) responses, or (n,); None beside statistics.
            sample_weight: (n,) weights >= 0. None: one.
        """
        if isinstance(X, SufficientStatistics):
            return self._fit_statistics(X, y, sample_weight)
        X, y = validated(self, X, y, multi_output=True, y_numeric=True)
        weights = checked_weights(sample_weight, X)
        flat = y.ndim == 1
        Y = np.asarray(y.reshape(len(y), -1), X.dtype)
        counted = weights > 0
        r, folds = self._check_r(min(X.shape[1], Y.shape[1])), None
        if r == "cv":
            folds = selection.make_folds(self.cv, X, Y, weights)
            if folds is None:
                warn("LowRankRegressor: a single sample leaves no folds, so that r is 0.")
                r = 0
        X, Y, weights = X[counted], Y[counted], weights[counted]
        with jax.enable_x64(X.dtype == np.float64):
            self._fit_rank(
                MultiResponse(X, Y, sample_weight=weights / weights.max(), **self._settings()), folds, r, weights.sum()
            )
        if flat:
            self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])  # type: ignore[index]
        return self

    def _fit_statistics(self, statistics: SufficientStatistics, y: Any, sample_weight: Any) -> Self:
        """`fit` of rows that were read before."""
        check_alone({"y": y, "sample_weight": sample_weight})
        if not statistics.n_targets:
            raise ValueError("X: these statistics have one target, and no rank; make them of several.")
        r = self._check_r(min(statistics.n_features, statistics.n_targets))
        folds = checked_folds(statistics, self.cv) if r == "cv" else None
        take_names(self, statistics)
        with jax.enable_x64(True):
            model = cast(MultiResponse, statistics.model(**self._settings()))  # of several targets
            self._fit_rank(model, folds, r, statistics.total_weight)
        return self

    def _settings(self) -> dict[str, Any]:
        l2 = parameters.make_l2(self.l2)
        shared = {"fit_intercept": self.fit_intercept, "standardize": self.standardize}
        return {"l2": 1e-6 if l2 is None else l2, **shared}

    def _fit_rank(self, objective: MultiResponse, folds: list[Pair] | None, r: int | str, total: float) -> None:
        max_iter, solver = parameters.make_limit(self.max_iter), parameters.make_solver(self.solver)
        fits = _closed(objective)
        self.cv_results_ = None
        if folds is not None:
            r = self._by_cross_validation(objective, folds)
        elif isinstance(r, str):
            r = _by_criterion(objective, fits, r, total)
        if solver is None:
            W, free, value = _at_rank(objective, fits, np.int32(r))
            singular, steps = bool(fits.singular) and r > 0, 1
            result = RESULTS.singular if singular else RESULTS.converged
        else:
            solution = solve(objective, Rank(r), solver, max_steps=max_iter, throw=False)
            W, free, value, steps = solution.x, solution.free, solution.value, int(solution.num_steps)
            result = RESULTS(int(solution.result))
        W, intercept = np.asarray(W), objective.intercept_of(np.asarray(W), np.asarray(free))
        scale = np.asarray(objective.columns.internal_scale())
        _, s, Vt = np.linalg.svd(W * scale[:, None], full_matrices=False)
        self.singular_values_ = s[:r]
        self.y_loadings_ = Vt[:r].T
        self.x_rotation_ = W @ self.y_loadings_
        self.coef_, self.intercept_ = W.T, intercept
        self.rank_, self.n_iter_, self.result_, self.objective_value_ = int(r), steps, result.name, float(value)
        warn_result(self, result)

    def _check_r(self, most: int) -> int | str:
        if isinstance(self.r, str):
            if self.r not in ("cv", *CRITERIA):
                raise ValueError(f"r: needs an integer >= 0, 'cv', or one of {', '.join(CRITERIA)}, got {self.r!r}.")
            return self.r
        r = parameters.checked_count("r", self.r, 0)
        if r > most:
            raise ValueError(f"r: is {r}, but the coefficients have rank {most} at most; lower r.")
        return r

    def _by_cross_validation(self, objective: MultiResponse, folds: list[tuple[np.ndarray, np.ndarray]]) -> int:
        train, test = weights_of(folds, np.asarray(objective.sample_weight))
        scores = np.asarray(
            _fold_scores(objective, jnp.asarray(train, objective.dtype), jnp.asarray(test, objective.dtype))
        )
        scores = scores[:, : min(objective.external_shape) + 1]
        ranks = np.arange(scores.shape[1])
        self.cv_results_ = {"ranks": ranks, **decide(scores, test.sum(1), ranks)}
        return self.cv_results_["best_1se_index" if self.one_se else "best_index"]

    def predict(self, X: TableLike) -> Float[np.ndarray, "n"] | Float[np.ndarray, "n c"]:
        """(n, c) predicted responses, or (n,)."""
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        return linear(X, self.coef_, self.intercept_)

    def score(self, X: TableLike, y: TableLike, sample_weight: ArrayLike | None = None) -> float:
        """R2, the mean over the responses."""
        return float(super().score(X, as_numpy(y), as_numpy(sample_weight)))


_closed = program(reduced_rank)


@program
def _at_rank(objective: MultiResponse, fits: ReducedRank, r: Any) -> Any:
    """Coefficients in original units, the free entries of x, and F."""
    x = fits.at(r)
    return objective.to_external(x)[0], x[objective.n_coefficients :], objective.value(x)


@program
def _fold_scores(objective: MultiResponse, train: Any, test: Any) -> Any:
    """(folds, c + 1) held-out mean losses at ranks 0, ..., c of fits with other weights."""
    return jax.vmap(lambda a, b: held_out(objective, reduced_rank(objective.reweighted(a)), a, b))(train, test)


def held_out(objective: MultiResponse, fits: ReducedRank, train: Any, test: Any) -> Any:
    """(c + 1,) mean losses at ranks 0, ..., c under the weights `test` of a fit with the weights `train`."""
    fold = objective.reweighted(train)
    # In the basis of the responses every rank adds one coordinate.
    centre = 0 if fits.response_mean is None else fits.response_mean
    predicted = fold.forward(fits.join(fits.W)) - centre
    errors = objective.y - centre
    with_it = dot(errors - predicted, fits.basis) ** 2
    without = dot(errors, fits.basis) ** 2
    share = test / jnp.sum(test)
    with_it, without = (0.5 * dot(share, part) for part in (with_it, without))
    zero = jnp.zeros(1, with_it.dtype)
    head = jnp.concatenate([zero, jnp.cumsum(with_it)])
    tail = jnp.concatenate([jnp.cumsum(without[::-1])[::-1], zero])
    return head + tail


def _by_criterion(objective: MultiResponse, fits: ReducedRank, name: str, total: float) -> int:
    p, c = objective.external_shape
    least = float(objective.scorer().value(fits.join(fits.W)))
    losses = np.asarray(fits.losses, float)
    ranks = np.arange(min(p, c) + 1)
    df = ranks * (p + c - ranks)
    loss = least + np.array([losses[r:].sum() for r in ranks])
    size = total * c
    saturated = df >= size
    with np.errstate(divide="ignore"):
        criterion = size * np.log(loss) + (2.0 if name == "aic" else np.log(size)) * df
    return int(np.argmin(np.where(saturated, np.inf, criterion)))
