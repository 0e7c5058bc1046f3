"""warm_start: a fit that starts from the coefficients of the last one."""

import warnings

import numpy as np
import pytest
from counting import programs
from sklearn.exceptions import ConvergenceWarning

import sparsehtp as sht

N, P, K = 80, 24, 4


def problem(seed=0):
    """Correlated features, of which some matter."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 0.8 * rng.standard_normal((N, 1)) + 3
    eta = X[:, ::6] @ [2.0, -1.0, 1.5, 1.0] + 5
    return X, eta, rng


def estimators():
    X, eta, rng = problem()
    y = eta + 0.3 * rng.standard_normal(N)
    labels = np.where(eta + rng.logistic(size=N) > np.median(eta), "yes", "no")
    classes = np.digitize(eta, np.quantile(eta, [0.3, 0.7]))
    return {
        "regressor": (sht.SparseRegressor(K, l2=0.01), X, y, y + 0.01 * rng.standard_normal(N)),
        "regressor_iht": (sht.SparseRegressor(K, l2=0.1, solver="iht"), X, y, y + 0.01 * rng.standard_normal(N)),
        "responses": (
            sht.SparseRegressor(K, l2=0.1, solver="iht"),
            X,
            np.column_stack([y, -y]),
            np.column_stack([y, 0.1 - y]),
        ),
        "two_classes": (sht.SparseClassifier(K, l2=0.1), X, labels, np.where(np.arange(N) == 3, "yes", labels)),
        "one_against_rest": (sht.SparseClassifier(K, l2=0.1), X, classes, np.where(np.arange(N) == 3, 1, classes)),
    }


CASES = estimators()


@pytest.mark.parametrize("name", CASES)
def test_the_same_answer_in_no_more_steps(name):
    model, X, y, other = CASES[name]
    cold = model.set_params(warm_start=False).fit(X, y)
    coef, steps = cold.coef_, cold.n_iter_
    warm = cold.set_params(warm_start=True).fit(X, y)
    iht = model.solver == "iht"
    np.testing.assert_allclose(warm.coef_, coef, **dict(rtol=1e-4, atol=1e-5) if iht else dict(rtol=1e-6, atol=1e-8))
    assert warm.n_iter_ + iht <= steps
    value = np.mean(warm.fit(X, other).objective_value_)
    assert value <= np.mean(model.set_params(warm_start=False).fit(X, other).objective_value_) * (1 + 1e-4)


def test_it_starts_from_the_old_support():
    model, X, y, other = CASES["regressor_iht"]
    cold = model.set_params(warm_start=False).fit(X, other).n_iter_
    warm = model.set_params(warm_start=True).fit(X, y).fit(X, other)
    assert warm.n_iter_ < cold
    assert not warm.history_["support_changed"].any()


def test_it_needs_no_other_program_than_a_cold_start():
    model, X, y, other = CASES["regressor"]
    model.set_params(warm_start=False).fit(X, y)
    assert programs(lambda: model.set_params(warm_start=True).fit(X, y).fit(X, other)) == 0
    other_solver = sht.SparseRegressor(K, l2=0.01, solver="htp", warm_start=True, max_iter=7)
    assert programs(lambda: other_solver.fit(X, y)), "the listener hears of programs"


def test_where_it_has_no_effect():
    model, X, y, _ = CASES["regressor"]
    model.set_params(warm_start=True).fit(X, y)
    wide = np.column_stack([X, X[:, :2] ** 2])
    cold = sht.SparseRegressor(K, l2=0.01).fit(wide, y)
    np.testing.assert_array_equal(model.fit(wide, y).coef_, cold.coef_)  # of another number of features
    chosen = sht.SparseRegressor(range(4), l2=0.01, warm_start=True).fit(X, y)
    coef = chosen.coef_
    np.testing.assert_array_equal(chosen.fit(X, y).coef_, coef)


@pytest.mark.parametrize("loss", ["poisson", "hinge"])
def test_a_start_that_is_far_out_is_no_worse_than_none(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8))
    eta = X[:, 1] - 0.5 * X[:, 0] + 0.25 * X[:, 4]
    labels = np.where(eta + rng.logistic(size=60) > 0, "yes", "no")
    kind, y = (sht.SparseRegressor, rng.poisson(np.exp(eta))) if loss == "poisson" else (sht.SparseClassifier, labels)
    model = kind(2, loss=loss, solver="iht", l2=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the hinge has no gradient to vanish
        cold = model.fit(X, y).objective_value_
        for factor in (1e3, -300, 1e4):
            model.coef_ = model.coef_ * factor
            assert model.set_params(warm_start=True).fit(X, y).objective_value_ <= cold * (1 + 1e-6)
        model.coef_ = model.coef_ * np.nan
        np.testing.assert_array_equal(model.fit(X, y).coef_, kind(2, loss=loss, solver="iht", l2=0.1).fit(X, y).coef_)
