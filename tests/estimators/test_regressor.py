"""SparseRegressor against references and laws."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

import sparsehtp as sht

N, P = 60, 8


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)) * np.logspace(-2, 2, P) + rng.standard_normal(P)
    y = X @ (np.isin(np.arange(P), (1, 4, 6)) * [3.0, -2, 1, 1, 2, 1, -1, 1] / X.std(axis=0)) + 7
    return X, y + 0.1 * rng.standard_normal(N)


def least_squares(X, y, weights):
    A = np.column_stack([X, np.ones(len(X))]) * np.sqrt(weights)[:, None]
    return np.linalg.lstsq(A, y * np.sqrt(weights), rcond=None)[0]


@pytest.mark.parametrize("solver", ["auto", "htp", "iht", sht.solvers.GraSP()])
def test_least_squares_on_the_chosen_features(data, solver):
    X, y = data
    weights = np.random.default_rng(1).uniform(0, 2, N)
    model = sht.SparseRegressor(k=3, l2=0, solver=solver).fit(X, y, weights)
    assert list(np.flatnonzero(model.support_)) == [1, 4, 6]
    reference = least_squares(X[:, model.support_], y, weights)
    np.testing.assert_allclose(np.append(model.coef_[model.support_], model.intercept_), reference, rtol=1e-7)
    assert not model.coef_[~model.support_].any()
    assert model.result_ == "converged" and model.k_ == 3 and model.l2_ == 0
    assert all(len(column) == model.n_iter_ for column in model.history_.values())
    mean_loss = 0.5 * np.average((y - model.predict(X)) ** 2, weights=weights)
    np.testing.assert_allclose(model.objective_value_, mean_loss, rtol=1e-9)


def test_null_model_keep_and_groups(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    null = sht.SparseRegressor(k=0, solver="htp").fit(X, y)
    assert not null.coef_.any() and not null.support_.any()
    np.testing.assert_allclose(null.intercept_, y.mean())

    for keep in (["h"], [7], np.arange(P) == 7, 7):
        kept = sht.SparseRegressor(k=2, keep=keep, solver="htp").fit(frame, y)
        assert kept.support_[7] and kept.support_.sum() == 3
    assert list(kept.feature_names_in_) == list("abcdefgh")
    assert list(kept.get_feature_names_out()) == list(np.array(list("abcdefgh"))[kept.support_])
    assert sht.SparseRegressor(k=1, keep=[], groups=np.arange(P) // 2, solver="htp").fit(X, y).support_.sum() == 2
    assert sht.SparseRegressor(k=0, keep=np.ones(P, bool), solver="htp").fit(X, y).support_.all()

    labels = np.array(list("uvuvwwwv"))
    grouped = sht.SparseRegressor(k=1, groups=labels, keep=[2], solver="htp").fit(X, y)
    assert grouped.support_[labels == "u"].all()
    assert np.unique(labels[grouped.support_]).size == 2


def test_parameters_that_are_parts_are_cloned_and_pickled(data):
    X, y = data
    model = sht.SparseRegressor(k=3, loss=sht.losses.Huber(2.0), solver=sht.solvers.HTP()).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(model).fit(X, y).coef_, model.coef_)
    repr(model)


def test_limits_of_the_iteration(data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        model = sht.SparseRegressor(k=3, solver="iht", max_iter=1).fit(X, y)
    assert model.n_iter_ == 1 and model.result_ == "max_steps"
    loose = sht.SparseRegressor(k=3, solver="iht", tol=1e-2).fit(X, y)
    tight = sht.SparseRegressor(k=3, solver="iht", tol=1e-8).fit(X, y)
    assert loose.n_iter_ < tight.n_iter_


def test_booleans_are_targets_and_no_events():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3)), np.arange(30) == 4  # "events" would be too few for two folds
    model, same = (sht.SparseRegressor([0, 1], solver="htp", cv=3).fit(X, each) for each in (y, y.astype(float)))
    np.testing.assert_array_equal(model.cv_results_["scores"], same.cv_results_["scores"])


@pytest.mark.filterwarnings("error:X does not have valid feature names")
def test_the_dispersion_is_found_whatever_may_be_passed(data):
    """Names of columns, a generator of folds, rows without weight whatever they hold, one offset of all responses."""
    X = data[0][:, :4]
    rng = np.random.default_rng(0)
    y = rng.poisson(rng.gamma(2, np.exp((X[:, 0] - X[:, 0].mean()) / X[:, 0].std()) / 2)).astype(float)
    model, weights = sht.SparseRegressor(1, l2=1e-3, loss="negative_binomial", solver="htp"), np.ones(len(y))
    plain, weights[0] = clone(model).fit(X[1:], y[1:]), 0
    spoiled = clone(model).fit(pd.DataFrame(X, columns=list("abcd")), np.append(-1, y[1:]), weights)
    np.testing.assert_allclose(spoiled.dispersion_, plain.dispersion_, rtol=1e-3)
    both = clone(model).set_params(shared=False).fit(X, np.column_stack([y, y]), offset=np.full(len(y), 0.5))
    one = clone(model).fit(X, y, offset=np.full(len(y), 0.5))
    np.testing.assert_allclose(both.dispersion_, one.dispersion_, rtol=1e-3)
    folds = KFold(3).split(X)
    chosen = clone(model).set_params(k=[0, 1], cv=folds).fit(X, y)
    assert chosen.k_ == 1 and chosen.dispersion_ == clone(model).set_params(k=[0, 1], cv=KFold(3)).fit(X, y).dispersion_
