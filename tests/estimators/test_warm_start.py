"""warm_start: a fit that starts from the coefficients of the last one."""

import warnings

import numpy as np
import pytest
from counting import programs
from sklearn.exceptions import ConvergenceWarning

import sparsehtp as sht

N, P, K = 80, 24, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, P)) + 0.8 * RNG.standard_normal((N, 1)) + 3  # correlated, and some matter
ETA = X[:, ::6] @ [2.0, -1.0, 1.5, 1.0] + 5
Y = ETA + 0.3 * RNG.standard_normal(N)
LABELS = np.where(ETA + RNG.logistic(size=N) > np.median(ETA), "yes", "no")
CLASSES, FOURTH = np.digitize(ETA, np.quantile(ETA, [0.3, 0.7])), np.arange(N) == 3
OTHER = Y + 0.01 * RNG.standard_normal(N)
IHT = sht.SparseRegressor(K, l2=0.1, solver="iht")
CASES = {
    "regressor": (sht.SparseRegressor(K, l2=0.01), Y, OTHER),
    "regressor_iht": (IHT, Y, OTHER),
    "responses": (IHT, np.column_stack([Y, -Y]), np.column_stack([Y, 0.1 - Y])),
    "two_classes": (sht.SparseClassifier(K, l2=0.1), LABELS, np.where(FOURTH, "yes", LABELS)),
    "one_against_rest": (sht.SparseClassifier(K, l2=0.1), CLASSES, np.where(FOURTH, 1, CLASSES)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_answer_in_no_more_steps(name):
    model, y, other = CASES[name]
    cold = model.set_params(warm_start=False).fit(X, y)
    coef, steps = cold.coef_, cold.n_iter_
    warm = cold.set_params(warm_start=True).fit(X, y)
    iht = model.solver == "iht"
    np.testing.assert_allclose(warm.coef_, coef, **dict(rtol=1e-4, atol=1e-5) if iht else dict(rtol=1e-6, atol=1e-8))
    assert warm.n_iter_ + iht <= steps
    value = np.mean(warm.fit(X, other).objective_value_)
    assert value <= np.mean(model.set_params(warm_start=False).fit(X, other).objective_value_) * (1 + 1e-4)


def test_it_needs_no_other_program_than_a_cold_start():
    model = CASES["regressor"][0].set_params(warm_start=False).fit(X, Y)
    assert programs(lambda: model.set_params(warm_start=True).fit(X, Y).fit(X, OTHER)) == 0
    other_solver = sht.SparseRegressor(K, l2=0.01, solver="htp", warm_start=True, max_iter=7)
    assert programs(lambda: other_solver.fit(X, Y)), "the listener hears of programs"


def test_it_has_no_effect_where_k_is_chosen():
    chosen = sht.SparseRegressor(range(4), l2=0.01, warm_start=True).fit(X, Y)
    coef = chosen.coef_
    np.testing.assert_array_equal(chosen.fit(X, Y).coef_, coef)


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
