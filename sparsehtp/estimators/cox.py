"""Sparse proportional hazards with the scikit-learn interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from .._types import ArrayLike, TableLike, check_finite
from ..losses import AbstractLoss, AbstractVectorLoss
from ..objectives import CoxModel
from .arrays import validated
from .base import SparseLinearModel, check_offset, checked_weights, linear
from .failures import all_or_nothing

PAIRS_AT_ONCE = 2**22


@dataclass(eq=False, repr=False, kw_only=True)
class SparseCox(SparseLinearModel):
    """Cox regression on the best k features, with k chosen from the data by default.

        min_w F(w)   subject to ||w||_0 <= k,    F the partial likelihood of `CoxModel`, with l2 sum_j (sd_j w_j)^2 / 2

    and sd_j = 1 unless `standardize`. Coefficients are logarithms of hazard ratios, in original units.

    Args:
        k: number of features (of groups, with `groups`), beside those in `keep`; 0 gives the null model. "cv": chosen
            by the held-out partial likelihood, of the rows of every fold alone, among 0, 1, ..., 10, 12, ..., 50, up to
            a quarter of the events (of few: 5, or half of them). "aic", "bic", "ebic", "sic": chosen among these by the
            criterion, whose samples are the events; see `information_criterion`. A list or range: chosen among these
            by `rule`.
        l2: ridge strength >= 0 in units of the mean loss of an event, a number or (p,); "auto": as in
            `SparseRegressor`.
        ties: "efron" or "breslow", see `CoxModel`.
        solver, standardize, groups, keep, positive, bounds, rule, random_state, max_iter, tol: as in `SparseRegressor`.
        cv: as in `SparseRegressor`; every fold gets its share of the events.

    Attributes:
        coef_: (p,) coefficients; zero outside `support_`.
        event_times_: (m,) the times at which a row of the fit had an event.
        strata_: (strata,) the labels of the strata, one without; those of rows with a positive weight.
        reference_: the mean linear predictor of the fit, x'w + o under the sample weights.
        log_baseline_: (strata, m) the logarithm of Breslow's estimate of the cumulative hazard at event_times_, for a
            row whose linear predictor is reference_; -inf before a stratum's first event.
        support_, k_, l2_, refit_l2_, n_iter_, path_, cv_results_, certificate_, swaps_, result_, fired_,
        objective_value_, history_, n_features_in_, feature_names_in_: as in `SparseRegressor`.

    Raises:
        ValueError: in `fit`, for data or parameters out of range, or no event; the message names the argument.
        TypeError: if the solver does not take the structure; by `prove`, as there are no proofs for this model.

    Warns:
        ConvergenceWarning: where the steps did not converge or the chosen features are collinear without l2.

    The choice of features is a local solution, see `certificate_`. Hazards are assumed to be proportional: a feature
    whose effect changes with time gets some mean of it. P-values computed for the chosen features as if they had been
    given beforehand are wrong.

    Source: as `CoxModel`; Breslow (1974) for the baseline; Harrell et al. (1982) for the concordance.

    Example:
        >>> model = SparseCox().fit(X, np.column_stack([time, event]))
        >>> model.k_, model.score(X_test, y_test), model.predict_survival_function(X_test, times=[365, 730])
    """

    ties: str = "efron"
    coef_: Float[np.ndarray, "p"] = field(init=False)
    event_times_: Float[np.ndarray, "times"] = field(init=False)
    strata_: Shaped[np.ndarray, "strata"] = field(init=False)
    reference_: float = field(init=False)
    log_baseline_: Float[np.ndarray, "strata times"] = field(init=False)
    _default_l2 = 1e-6
    _counted = "events"
    _l2_grid = (1e-6, 1e-2, 1e-1, 1.0)

    @all_or_nothing
    def fit(
        self,
        X: TableLike,
        y: TableLike,
        sample_weight: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        folds: Any = None,
    ) -> Self:
        """Choose the features and fit them.

        Args:
            X: (n, p) array, data frame or sparse matrix, float32 or float64.
            y: a structured array with a boolean field, True where the event was seen, and a field of times, as in
                scikit-survival; or an (n, 2) array or data frame with the columns time and event (1 or 0).
            sample_weight: (n,) weights >= 0, see `CoxModel`; None: one.
            strata: (n,) labels; every stratum has a baseline of its own. None: one stratum.
            offset: (n,) known part of the linear predictor. None: zero.
            groups: (n,) labels; rows with equal labels stay together in the folds. (Groups of features are a parameter
                of the constructor.) None: none.
            folds: in place of `cv`, where they are made of these data: all that it takes. None: `cv`.
        """
        X = validated(self, X, order="F", accept_sparse="csr", ensure_min_samples=2)
        n = X.shape[0]
        time, event = survival(y, n)
        weights = checked_weights(sample_weight, X)
        offset = check_offset(offset, X)
        labels = _labels(strata, n)
        self.strata_ = np.unique(labels[weights > 0])
        stratum = np.searchsorted(self.strata_, labels)  # of rows without weight any number
        if not event[weights > 0].any():
            raise ValueError("y: no row with a positive weight has an event; at least one must be seen.")
        options: dict[str, Any] = {"offset": offset, "groups": groups, "folds": folds}
        results = self._fit(X, event, [time, event, stratum], weights, None, **options)
        del self.intercept_  # there is none
        self.coef_ = self.coef_[0]
        self._set_baseline(linear(X, self.coef_, offset=offset), time, event, stratum, weights)
        self._warn_results(results)
        return self

    def _models(
        self, X: Any, targets: list[np.ndarray], loss: AbstractLoss | AbstractVectorLoss | None, **options: Any
    ) -> list[Any]:
        time, event, stratum = targets
        return [CoxModel(X, time, event, strata=stratum, ties=self.ties, **options)]

    def _set_baseline(
        self,
        eta: Float[np.ndarray, "n"],
        time: Float[np.ndarray, "n"],
        event: Bool[np.ndarray, "n"],
        stratum: Int[np.ndarray, "n"],
        weights: Float[np.ndarray, "n"],
    ) -> None:
        some = weights > 0
        eta, time, event, stratum, weights = (each[some] for each in (eta, time, event, stratum, weights))
        self.reference_ = float(np.average(eta, weights=weights))
        self.event_times_ = np.unique(time[event])
        # In logarithms: hazards of rows that a feature orders exactly leave the range of numbers.
        steps = np.full((self.strata_.size, self.event_times_.size), -np.inf)
        for row, own in zip(steps, (stratum == label for label in range(self.strata_.size)), strict=True):
            order = np.flatnonzero(own)[np.argsort(-time[own], kind="stable")]
            log_risk = np.logaddexp.accumulate(np.log(weights[order]) + (eta[order] - self.reference_))
            last = np.searchsorted(-time[order], -time[order], side="right") - 1
            seen = event[order]
            log_step = (np.log(weights[order]) - log_risk[last])[seen]
            np.logaddexp.at(row, np.searchsorted(self.event_times_, time[order][seen]), log_step)
        self.log_baseline_ = np.logaddexp.accumulate(steps, axis=1)

    def predict(self, X: TableLike, offset: ArrayLike | None = None) -> Float[np.ndarray, "n"]:
        """(n,) linear predictors x'w + o, the logarithms of relative hazards: the larger, the sooner an event."""
        return self._predictor(X, offset)

    def predict_cumulative_hazard_function(
        self,
        X: TableLike,
        times: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Float[np.ndarray, "n times"]:
        """(n, times) cumulative hazards H(t | x) = H_0(t) exp(x'w + o - reference_).

        Args:
            X: (n, p) features.
            times: (times,) None: `event_times_`. H is 0 before the first event and stays as it is after the last.
            strata: (n,) labels among those of the fit; needed if there were any.
            offset: (n,) as in `fit`.

        Raises:
            ValueError: for times that are NaN, unknown strata, or wrong shapes.
        """
        eta = self.predict(X, offset)
        times = self.event_times_ if times is None else np.atleast_1d(np.asarray(times, float))
        if times.ndim != 1 or np.isnan(times).any():
            raise ValueError(f"times: needs a list of numbers, got {times!r}.")
        labels = self._strata(strata, eta.size)
        known = np.isin(labels, self.strata_) | (strata is None)
        if not known.all():
            raise ValueError(f"strata: {labels[~known][0]} is no stratum of the fit; pass labels of those.")
        place = np.searchsorted(self.strata_, labels) if strata is not None else 0
        steps = np.pad(self.log_baseline_, ((0, 0), (1, 0)), constant_values=-np.inf)
        baseline = steps[:, np.searchsorted(self.event_times_, times, side="right")]
        with np.errstate(over="ignore"):  # infinite hazards are survival functions of zero
            return np.exp(baseline[np.broadcast_to(place, eta.size)] + (eta - self.reference_)[:, None])

    def predict_survival_function(
        self,
        X: TableLike,
        times: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Float[np.ndarray, "n times"]:
        """(n, times) probabilities exp(-H(t | x)) of no event up to t; see `predict_cumulative_hazard_function`."""
        return np.exp(-self.predict_cumulative_hazard_function(X, times, strata, offset))

    def _strata(self, strata: ArrayLike | None, n: int) -> np.ndarray:
        """The labels of n rows, which a stratified model needs."""
        if strata is None and self.strata_.size > 1:
            raise ValueError("strata: the model was fitted with strata; pass the label of every row.")
        return _labels(strata, n)

    def score(
        self,
        X: TableLike,
        y: TableLike,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        strata: ArrayLike | None = None,
    ) -> float:
        """Harrell's concordance: of the pairs whose order in time is known, the share that `predict` orders so.

        A pair is two rows of one stratum, since baselines of others differ; it is known where the earlier time is an
        event (a censored row at the same time counts as later). Equal predictions count one half. 0.5 is chance.

        Args:
            X: (n, p) features.
            y: as in `fit`.
            sample_weight: (n,) weights; a pair has the product of its two.
            offset: (n,) as in `fit`.
            strata: (n,) labels, of the fit or not; needed if there were any.

        Raises:
            ValueError: if there is no such pair, or the strata of a stratified fit are not passed.
        """
        eta = self.predict(X, offset)
        labels = self._strata(strata, eta.size)
        return concordance(*survival(y, eta.size), eta, checked_weights(sample_weight, eta), labels)


def concordance(
    time: Float[np.ndarray, "n"],
    event: Bool[np.ndarray, "n"],
    risk: Float[np.ndarray, "n"],
    weights: Float[np.ndarray, "n"],
    strata: Shaped[np.ndarray, "n"] | None = None,
) -> float:
    """See `SparseCox.score`."""
    right = known = 0.0
    first = np.flatnonzero(event & (weights > 0))
    for part in np.array_split(first, 1 + first.size * time.size // PAIRS_AT_ONCE):
        later = (time > time[part, None]) | ((time == time[part, None]) & ~event)
        if strata is not None:
            later &= strata == strata[part, None]
        pairs = later * weights * weights[part, None]
        known += pairs.sum()
        right += (pairs * ((risk[part, None] > risk) + 0.5 * (risk[part, None] == risk))).sum()
    if not known:
        raise ValueError("y: no two rows can be compared, as no event comes before another time; pass more rows.")
    return float(right / known)


def survival(y: Any, n: int) -> tuple[Float[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
    """Times and events of n rows, or ValueError."""
    form = "y: needs a structured array with a boolean and a numeric field, or two columns (time, event)"
    names = getattr(getattr(y, "dtype", None), "names", None)
    if names:
        kinds = {name: y.dtype[name].kind for name in names}
        if sorted(kind == "b" for kind in kinds.values()) != [False, True]:
            raise ValueError(f"{form}, got the fields {', '.join(names)}.")
        time, event = (y[next(name for name in names if (kinds[name] == "b") == flag)] for flag in (False, True))
    else:
        pair = np.asarray(y)
        if pair.ndim != 2 or pair.shape[1] != 2:
            raise ValueError(f"{form}, got shape {pair.shape}.")
        time, event = pair.T
    if time.shape != (n,):
        raise ValueError(f"y: has {len(time)} rows, but X has {n}; they must be the same.")
    if time.dtype.kind in "mM":
        raise ValueError("y: times must be numbers, not dates or spans; count them from the start of observation.")
    whole = time if time.dtype.kind in "iu" else None
    try:
        time, event = time.astype(float), event.astype(float)
    except (TypeError, ValueError):
        raise ValueError(f"{form}, got entries that are no numbers.") from None
    if whole is not None and np.unique(whole).size > np.unique(time).size:
        raise ValueError("y: times beyond 2^53 cannot be told apart; count them from the start of observation.")
    check_finite("y", time, event)
    if not np.isin(event, (0, 1)).all():
        odd = event[~np.isin(event, (0, 1))][0]
        raise ValueError(f"y: events must be 1 (seen) or 0 (censored), got {odd:g}; the time is the first column.")
    if time.min() < 0:
        raise ValueError(f"y: times must be >= 0, got {time.min():g}; count them from the start of observation.")
    return time, event.astype(bool)


def _labels(strata: Any, n: int) -> np.ndarray:
    labels = np.zeros(n, int) if strata is None else np.asarray(strata)
    if labels.shape != (n,):
        raise ValueError(f"strata: needs one label for each of the {n} rows, got shape {labels.shape}.")
    if labels.dtype == object:
        missing = [label is None or type(label).__name__ in ("NAType", "NaTType") or label != label for label in labels]
        labels = np.array(["" if gone else label for label, gone in zip(labels, missing, strict=True)])
        labels = labels.astype(str) if labels.dtype == object else labels
    else:
        missing = np.isnat(labels) if labels.dtype.kind in "mM" else labels != labels
    if np.any(missing):
        raise ValueError(f"strata: the label of row {np.argmax(missing)} is missing; give such rows one of their own.")
    return labels
