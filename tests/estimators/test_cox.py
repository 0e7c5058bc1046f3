"""SparseCox: forms of y, other implementations, choices, strata, survival functions, errors."""

import cases
import numpy as np
import pandas as pd
import pytest

import sparsehtp as sht
from sparsehtp.estimators import cox
from sparsehtp.estimators.cox import concordance, survival

RNG = np.random.default_rng(0)
N, P = 120, 8
X = RNG.standard_normal((N, P)) + 3
HAZARD = np.exp(X[:, 2] - X[:, 5])
TIME = np.ceil(20 * RNG.exponential(1 / HAZARD)) / 20  # with ties
LAST = RNG.exponential(5, N)
EVENT = TIME <= LAST
TIME = np.minimum(TIME, LAST)
Y = np.column_stack([TIME, EVENT])
FORMS = {
    "structured": np.array(list(zip(EVENT, TIME, strict=True)), [("status", bool), ("days", float)]),
    "other order": np.array(list(zip(TIME, EVENT, strict=True)), [("days", float), ("status", bool)]),
    "columns": Y,
    "frame": pd.DataFrame({"days": TIME, "status": EVENT}),
}


def fit(k=2, **options):
    return sht.SparseCox(k, solver="htp", **options)


@pytest.fixture
def unfitted(monkeypatch):
    """Fits have known coefficients: what is made of them is tested."""

    def fit(self, X, *_, **__):
        coef = np.where(np.arange(X.shape[1]) == 0, 40, 1)
        self.coef_, self.intercept_ = coef[None].astype(X.dtype), np.zeros(1)
        return []

    monkeypatch.setattr(sht.SparseCox, "_fit", fit)


def test_every_form_of_y_is_the_same_fit():
    for y in FORMS.values():
        for found, expected in zip(survival(y, N), (TIME, EVENT), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_scikit_survival(ties):
    linear_model = pytest.importorskip("sksurv.linear_model")
    metrics = pytest.importorskip("sksurv.metrics")
    model = fit(P, l2=0.0, ties=ties).fit(X, Y)
    other = linear_model.CoxPHSurvivalAnalysis(ties=ties, n_iter=100, tol=1e-14).fit(X, FORMS["structured"])
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-6)
    for risk in (model.predict(X), np.round(model.predict(X))):  # the last with ties
        expected = metrics.concordance_index_censored(EVENT, TIME, risk)[0]
        np.testing.assert_allclose(concordance(TIME, EVENT, risk, np.ones(N)), expected, rtol=1e-12)


def test_concordance_is_the_share_of_pairs(unfitted, monkeypatch):
    """Of rows of one stratum: another one has another baseline; half of the pairs with equal predictions."""
    monkeypatch.setattr(cox, "PAIRS_AT_ONCE", 7 * N)
    few, offset = np.round(X / 2), np.arange(N) % 3
    model, weights, labels = fit().fit(X, Y), RNG.integers(0, 3, N), np.arange(N) % 2
    risk = few @ model.coef_ + offset
    for strata in (None, labels):
        right = known = 0
        for i in range(N):
            for j in np.flatnonzero((labels == labels[i]) | (strata is None)):
                if EVENT[i] and (TIME[i] < TIME[j] or (TIME[i] == TIME[j] and not EVENT[j])):
                    known += weights[i] * weights[j]
                    right += weights[i] * weights[j] * ((risk[i] > risk[j]) + (risk[i] == risk[j]) / 2)
        np.testing.assert_allclose(model.score(few, Y, weights, offset, strata), right / known, rtol=1e-12)


def test_survival_functions_by_hand():
    """Breslow's estimate under weights, strata and an offset, and its values between and outside of the events."""
    weights, strata = RNG.choice([0.0, 1, 2], N), RNG.choice(["a", "b"], N)
    offset = RNG.standard_normal(N)
    model = fit(2).fit(X, Y, weights, strata, offset)
    np.testing.assert_array_equal(np.flatnonzero(model.support_), [2, 5])
    cases.refused(TypeError, "LinearModel", lambda: model.prove(1))
    times = np.array([-1.0, 0.0, 0.31, 1.0, 1e9])
    found = model.predict_cumulative_hazard_function(X[:4], times, strata[:4], offset[:4])
    eta = X @ model.coef_ + offset
    for i in range(4):
        own = strata == strata[i]
        for number, t in enumerate(times):
            expected = sum(
                weights[j] / (weights * np.exp(eta))[own & (TIME[j] <= TIME)].sum()
                for j in np.flatnonzero(own & EVENT & (t >= TIME) & (weights > 0))
            )
            np.testing.assert_allclose(found[i, number], expected * np.exp(eta[i]), rtol=1e-9)
    survival = model.predict_survival_function(X, times, strata, offset)
    assert (survival[:, :2] == 1).all() and (np.diff(survival, axis=1) <= 0).all()
    model.strata_, model.log_baseline_ = model.strata_[:1], model.log_baseline_[:1]  # one alone needs no label
    alone = model.predict_survival_function(X, times, offset=offset)
    np.testing.assert_array_equal(alone[strata == "a"], survival[strata == "a"])


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_survival_of_rows_that_a_feature_orders_nearly(dtype, noise, unfitted):
    """Hazards out of the range of numbers, against sums in logarithms: no NaN, and no digits lost."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((100, 3)).astype(dtype)
    time, event = np.exp(-(rows[:, 0] + noise * rng.standard_normal(100))), np.arange(100) % 4 > 0
    model = fit(1).fit(rows, np.column_stack([time, event]))
    eta = rows.astype(float) @ model.coef_.astype(float)
    steps = [-np.logaddexp.reduce(eta[time >= t]) for t in model.event_times_]
    expected = np.exp(-np.exp(np.minimum(np.logaddexp.accumulate(steps) + eta[:, None], 700)))
    found = model.predict_survival_function(rows)
    np.testing.assert_allclose(found, expected, atol=1e-9 if dtype == np.float64 else 2e-4)
    far = model.predict_survival_function(1e3 * rows, [0.0, *model.event_times_])
    assert not np.isnan(far).any() and (far[:, 0] == 1).all() and (np.diff(far, axis=1) <= 0).all()


def test_labels_of_strata(unfitted):
    labels = np.array([1, 2] * (N // 2))
    first = fit().fit(X, Y, strata=labels)
    for form in (labels.astype(object), labels.astype(float), pd.Series(labels, dtype="Int64")):
        other = fit().fit(X, Y, strata=form)
        for told in (labels, form):
            expected = first.predict_survival_function(X, [0.5], strata=labels)
            np.testing.assert_array_equal(other.predict_survival_function(X, [0.5], strata=told), expected)
    thin = fit().fit(X, Y, sample_weight=labels == 1, strata=labels)
    assert list(thin.strata_) == [1]
    for missing in (None, np.nan, pd.NA, pd.NaT):
        with pytest.raises(ValueError, match="strata: the label of row 1 is missing"):
            fit().fit(X, Y, strata=np.array(["a", missing] * (N // 2), object))
    dates = pd.Series(pd.to_datetime(["2020-01-01", None] * (N // 2)))
    cases.refused(ValueError, "strata: the label of row 1 is missing", lambda: fit().fit(X, Y, strata=dates))
    for call in (first.predict_survival_function, lambda X: first.score(X, Y)):
        cases.refused(ValueError, "^strata: the model was fitted with strata", lambda call=call: call(X))
    with pytest.raises(ValueError, match="strata: 7 is no stratum"):
        first.predict_survival_function(X, strata=np.where(np.arange(N) == 5, 7, 1))
    cases.refused(ValueError, "y: no two rows can be compared", lambda: first.score(X[:1], Y[:1], strata=[0]))
    cases.refused(ValueError, "times: needs a list", lambda: first.predict_survival_function(X, [np.nan], labels))


def test_folds_and_criteria_have_events():
    rows = np.arange(N)
    few = np.column_stack([TIME, rows % 40 < 12])
    groups = rows // 12  # of ten groups those with an event are fewer
    with pytest.warns(UserWarning, match="groups with an event"):
        chosen = fit([1, 2], cv=9).fit(X, few, groups=groups)
    assert (chosen.cv_results_["fold_weight"] > 0).all()
    with pytest.raises(ValueError, match="cv: a part of fold 1 has no event"):
        fit([1], cv=[(rows[:60], rows[60:]), (rows[40:], rows[20:28])]).fit(X, few)
    with pytest.raises(ValueError, match="sample_weight: the sum of the weights"):
        fit("bic").fit(X, Y, sample_weight=np.full(N, 0.02))


@pytest.mark.slow
def test_criteria_and_folds_count_events():
    model = sht.SparseCox("cv", rule="one-se").fit(X, Y)
    assert model.path_.total_weight == model.cv_results_["fold_weight"].sum() / 4 == EVENT.sum()  # four times
    assert np.ptp(model.cv_results_["fold_weight"]) <= 1 and model.certificate_.swap_gain == 0  # equal shares
