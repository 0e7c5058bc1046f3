"""SparseRegressor against references and laws."""

import itertools
import pickle

import cases
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import d2_tweedie_score
from sklearn.model_selection import GroupKFold, KFold, cross_validate

import sparsehtp as sht

N, P = 60, 8
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, P)) * np.logspace(-2, 2, P) + RNG.standard_normal(P)
Y = X @ (np.isin(np.arange(P), (1, 4, 6)) * [3.0, -2, 1, 1, 2, 1, -1, 1] / X.std(axis=0)) + 7
Y += 0.1 * RNG.standard_normal(N)


@pytest.mark.parametrize(
    "solver", ["iht", *(pytest.param(each, marks=pytest.mark.later) for each in ("auto", "htp", sht.solvers.GraSP()))]
)
def test_least_squares_on_the_chosen_features(solver):
    weights = np.random.default_rng(1).uniform(0, 2, N)
    model = sht.SparseRegressor(k=3, l2=0, solver=solver).fit(X, Y, weights)
    assert list(np.flatnonzero(model.support_)) == [1, 4, 6]
    A = np.column_stack([X[:, model.support_], np.ones(N)]) * np.sqrt(weights)[:, None]
    reference = np.linalg.lstsq(A, Y * np.sqrt(weights), rcond=None)[0]
    np.testing.assert_allclose(np.append(model.coef_[model.support_], model.intercept_), reference, rtol=1e-7)
    assert not model.coef_[~model.support_].any()
    assert model.result_ == "converged" and model.k_ == 3 and model.l2_ == 0
    assert all(len(column) == model.n_iter_ for column in model.history_.values())
    mean_loss = 0.5 * np.average((Y - model.predict(X)) ** 2, weights=weights)
    np.testing.assert_allclose(model.objective_value_, mean_loss, rtol=1e-9)


def test_null_model_keep_and_groups():
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    null = sht.SparseRegressor(k=0, solver="htp").fit(X, Y)
    assert not null.coef_.any() and not null.support_.any()
    np.testing.assert_allclose(null.intercept_, Y.mean())

    kept = sht.SparseRegressor(k=2, keep=["h"], solver="htp").fit(frame, Y)
    assert kept.support_[7] and kept.support_.sum() == 3
    assert list(kept.feature_names_in_) == list("abcdefgh")
    assert list(kept.get_feature_names_out()) == list(np.array(list("abcdefgh"))[kept.support_])
    assert sht.SparseRegressor(k=0, keep=np.ones(P, bool), solver="htp").fit(X, Y).support_.all()

    labels = np.array(list("uvuvwwwv"))
    grouped = sht.SparseRegressor(k=1, groups=labels, keep=[2], solver="htp").fit(X, Y)
    assert grouped.support_[labels == "u"].all()
    assert np.unique(labels[grouped.support_]).size == 2


def test_parameters_that_are_parts_are_cloned_and_pickled():
    model = sht.SparseRegressor(k=3, loss=sht.losses.Huber(2.0), solver=sht.solvers.HTP()).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(model).fit(X, Y).coef_, model.coef_)
    repr(model)


def test_limits_of_the_iteration():
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        model = sht.SparseRegressor(k=3, solver="iht", max_iter=1).fit(X, Y)
        assert model.n_iter_ == 1 and model.result_ == "max_steps"
        values = [model.set_params(warm_start=each).fit(X, Y).objective_value_ for each in (False, True, True)]
    assert (np.diff(values) < 0).all(), "each goes on where the last one was cut short"
    loose = sht.SparseRegressor(k=3, solver="iht", tol=1e-2).fit(X, Y)
    tight = sht.SparseRegressor(k=3, solver="iht", tol=1e-8).fit(X, Y)
    assert loose.n_iter_ < tight.n_iter_
    far = sht.SparseRegressor(k=3, solver=sht.solvers.IHT(sht.steps.ConstantStep(1e60)))
    with pytest.warns(ConvergenceWarning, match="infinite"):  # by a step that is not taken
        values = far.fit(X, Y).history_["value"]
    assert far.result_ == "nonfinite" and np.isfinite(values).all() and len(values) == far.n_iter_ - 1 > 0


def test_booleans_are_targets_and_no_events():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3)), np.arange(30) == 4  # "events" would be too few for two folds
    model, same = (sht.SparseRegressor([0, 1], solver="htp", cv=3).fit(X, each) for each in (y, y.astype(float)))
    np.testing.assert_array_equal(model.cv_results_["scores"], same.cv_results_["scores"])


@pytest.mark.filterwarnings("error:X does not have valid feature names")
def test_the_dispersion_is_found_whatever_may_be_passed():
    """Names of columns, a generator of folds, rows without weight whatever they hold, one offset of all responses."""
    few, rng = X[:, :4], np.random.default_rng(0)
    y = rng.poisson(rng.gamma(2, np.exp((few[:, 0] - few[:, 0].mean()) / few[:, 0].std()) / 2)).astype(float)
    model, weights = sht.SparseRegressor(1, l2=1e-3, loss="negative_binomial", solver="htp"), np.ones(len(y))
    plain, weights[0] = clone(model).fit(few[1:], y[1:]), 0
    spoiled = clone(model).fit(pd.DataFrame(few, columns=list("abcd")), np.append(-1, y[1:]), weights)
    np.testing.assert_allclose(spoiled.dispersion_, plain.dispersion_, rtol=1e-3)
    both = clone(model).set_params(shared=False).fit(few, np.column_stack([y, y]), offset=np.full(len(y), 0.5))
    one = clone(model).fit(few, y, offset=np.full(len(y), 0.5))
    np.testing.assert_allclose(both.dispersion_, one.dispersion_, rtol=1e-3)
    chosen, same = (clone(model).set_params(k=[0, 1], cv=cv).fit(few, y) for cv in (KFold(3).split(few), KFold(3)))
    assert chosen.k_ == 1 and chosen.dispersion_ == same.dispersion_


# --- offsets: exposures, and scikit-learn's routing of metadata -------------------------------------------------------
K = [1, 3, 4]


def rates(n=150, p=6):
    """(X, counts, exposures) of a Poisson model with three features."""
    rng = np.random.default_rng(0)
    X, exposure = rng.standard_normal((n, p)), rng.uniform(0.2, 5, n)
    return X, rng.poisson(exposure * np.exp(0.3 + X[:, K] @ [0.7, -0.6, 0.5])).astype(float), exposure


def test_an_exposure_is_a_rate_weighted_by_it():
    """y ~ Poisson(e exp(eta)) has the likelihood of y / e with weights e; their sums differ, hence the ridge."""
    X, y, exposure = rates()
    model = sht.SparseRegressor(k=3, l2=0.02, loss="poisson", standardize=False, solver="htp")
    model.fit(X, y, offset=np.log(exposure))
    np.testing.assert_array_equal(np.flatnonzero(model.support_), K)
    reference = PoissonRegressor(alpha=0.02 * len(y) / exposure.sum(), tol=1e-12, solver="newton-cholesky")
    reference.fit(X[:, K], y / exposure, sample_weight=exposure)
    np.testing.assert_allclose(model.coef_[K], reference.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=1e-6)
    np.testing.assert_allclose(model.predict(X), reference.predict(X[:, K]), rtol=1e-5)
    np.testing.assert_allclose(model.predict(X, np.log(exposure)), exposure * model.predict(X), rtol=1e-9)
    expected = d2_tweedie_score(y, exposure * model.predict(X), power=1)
    np.testing.assert_allclose(model.score(X, y, offset=np.log(exposure)), expected, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X, exposure[:, None]), model.predict(X, exposure))
    for call in (lambda: model.predict(X, exposure[:-1]), lambda: model.score(X, y, offset=exposure[:-1])):
        cases.refused(ValueError, "^offset: needs shape", call)
    cases.refused(ValueError, "^y: Poisson needs counts", lambda: model.score(X, -1 - y))


def test_scikit_learn_routes_it_to_folds_with_weights_and_groups():
    X, y, exposure = rates()
    more = {"offset": np.log(exposure), "sample_weight": 1.0 + np.arange(len(y)) % 2}
    groups, folds = np.arange(len(y)) // 13, GroupKFold(3)
    model = sht.SparseRegressor(k=[1, 3], l2=0.02, loss="poisson", solver="htp", cv=folds)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(model).set_fit_request(offset=True, sample_weight=True, groups=True)
        routed.set_score_request(offset=True, sample_weight=True)
        params = more | {"groups": groups}
        scores = cross_validate(routed, X, y, cv=folds, params=params, error_score="raise")["test_score"]
    for score, (train, test) in zip(scores, folds.split(X, y, groups), strict=True):
        fitted, held = ({name: each[rows] for name, each in more.items()} for rows in (train, test))
        model.fit(X[train], y[train], groups=groups[train], **fitted)
        np.testing.assert_allclose(score, model.score(X[test], y[test], **held), rtol=1e-6)


# --- several responses, with the same features for all ---------------------------------------------------------------
B = np.zeros((P, 3))
B[[1, 4]] = RNG.standard_normal((2, 3)) / X.std(axis=0)[[1, 4], None]
SEVERAL = X @ B + 0.7 * RNG.standard_normal((N, 3)) + [0, 10, -5]


def test_the_features_and_coefficients_of_exhaustive_search():
    def least_squares(chosen):
        A = np.column_stack([np.ones(N), X[:, chosen]])
        found = np.linalg.lstsq(A, SEVERAL, rcond=None)[0]
        return np.sum((SEVERAL - A @ found) ** 2), found

    best = min(itertools.combinations(range(P), 3), key=lambda chosen: least_squares(chosen)[0])
    model, (least, found) = sht.SparseRegressor(k=3, l2=0).fit(X, SEVERAL), least_squares(best)
    np.testing.assert_array_equal(np.flatnonzero(model.support_), best)
    np.testing.assert_allclose(model.intercept_, found[0], rtol=1e-7)
    np.testing.assert_allclose(model.coef_[:, list(best)], found[1:].T, rtol=1e-7)
    np.testing.assert_allclose(model.predict(X), X @ model.coef_.T + model.intercept_)
    assert model.swaps_ is None and model.exchangeable_ is None
    certificate = model.certificate_  # of all exchanges, by refits
    np.testing.assert_allclose(certificate.upper_bound, least / (2 * N), rtol=1e-7)
    assert certificate.swap_gain == 0 and certificate.stationary and model.certificate_ is certificate


@pytest.mark.slow
def test_one_column_is_one_response():
    flat, column = (sht.SparseRegressor(k=2).fit(X, y) for y in (SEVERAL[:, 0], SEVERAL[:, :1]))
    np.testing.assert_array_equal(column.coef_, flat.coef_[None])
    np.testing.assert_array_equal(column.predict(X), flat.predict(X)[:, None])
    assert column.certificate_.statement == flat.certificate_.statement


def test_the_score_of_counts_is_the_mean_over_the_responses():
    counts = RNG.poisson(np.exp(0.3 * X @ B / np.abs(X @ B).max() + 1))
    model = sht.SparseRegressor(k=2, loss="poisson", solver="htp").fit(X, counts)
    each = [d2_tweedie_score(y, mean, power=1) for y, mean in zip(counts.T, model.predict(X).T, strict=True)]
    np.testing.assert_allclose(model.score(X, counts), np.mean(each), rtol=1e-6)


def test_predictions_take_offsets():
    """One for every response, or one for all; that fits take them from the targets is a law."""
    offset = RNG.standard_normal((N, 3)) + np.array([0, 0, 100])
    for each, column in ((offset, offset), (offset[:, 0], offset[:, :1])):
        moved, plain = (sht.SparseRegressor(k=2, l2=0.1, solver="htp") for _ in range(2))
        predicted = moved.fit(X, SEVERAL, offset=each).predict(X, each)
        np.testing.assert_allclose(predicted, plain.fit(X, SEVERAL - column).predict(X) + column, rtol=1e-9)
