"""Prices in place of k, and criteria of the user's own."""

import numpy as np
import pytest
from exhaustive import Problem, fits, masks

import sparsehtp as sht

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(60, 6)) @ (np.eye(6) + 0.5)
Y = X @ [1, -1, 0, 0.5, 0, 0] + RANDOM.normal(size=60)
LABELS = np.where(Y > 0, "yes", "no")


@pytest.mark.parametrize(("l0", "l1"), [(0.01, 0.0), (0.05, 0.0), (0.02, 0.1)])
def test_a_price_is_paid_where_it_is_worth_it(l0, l1):
    model = sht.SparseRegressor(l0=l0, l1=l1, l2=0.01).fit(X, Y)
    Z, every = (X - X.mean(0)) / X.std(0), masks(6)
    w, _, values = fits(Problem(Z, Y, np.ones(60), l0, l1, 0.01, True, "squared"), every)
    values += l0 * (w != 0).sum(1)
    value, w = values.min(), w[values.argmin()] / X.std(0)
    np.testing.assert_allclose(model.objective_value_, value, rtol=1e-8)
    np.testing.assert_allclose(model.coef_, w, rtol=1e-4, atol=1e-6)
    assert (model.k_, model.l0_, model.l1_) == (np.count_nonzero(w), l0, l1)
    found = model.certificate_
    assert found.stationary and found.lower_bound <= value * (1 + 1e-9) and "no bound" not in found.statement


@pytest.mark.parametrize(
    ("kind", "y", "options"),
    [
        (sht.SparseRegressor, Y, {"l0": "cv", "l2": [1e-3, 0.1], "l1": [0.0, 0.05]}),
        (sht.SparseRegressor, Y, {"l0": [0.5, 0.02], "rule": "bic"}),
        (sht.SparseClassifier, LABELS, {"l0": "cv", "rule": "best"}),
        (sht.SparseClassifier, np.digitize(Y, [-1, 1]), {"l0": [0.5, 0.02, 0.01], "l2": 0.01}),
    ],
    ids=["cv", "criterion", "classes", "three"],
)
def test_a_chosen_price_gives_the_fit_at_this_price(kind, y, options):
    chosen = kind(**options).fit(X, y)
    given = kind(l0=chosen.l0_, l1=chosen.l1_, l2=float(chosen.l2_)).fit(X, y)
    np.testing.assert_array_equal(chosen.support_, given.support_)
    np.testing.assert_allclose(chosen.coef_, given.coef_, rtol=1e-4, atol=1e-6)
    assert chosen.k_ == np.count_nonzero(np.atleast_2d(chosen.coef_), axis=1).max()
    assert chosen.l0_ in np.concatenate([path.l0s for path in np.atleast_1d(chosen.path_)])
    if chosen.cv_results_ is not None:
        table = chosen.cv_results_
        assert table["mean_loss"][table["row"]] <= table["mean_loss"][table["best_index"]] + table["se"].max()
        assert table["l2s"][table["row"]] == chosen.l2_
        if "l2" not in options:  # a price is chosen under the ridge that a fit without choices has
            assert np.unique(table["l2s"]) == kind._default_l2


def test_kept_features_pay_nothing_and_signs_hold():
    kept = [1, 5]  # the first at its bound
    model = sht.SparseRegressor(l0=0.05, keep=kept, positive=True).fit(X, Y)
    assert model.support_[kept].all() and model.coef_.min() == model.coef_[1] == 0
    assert model.k_ == model.support_.sum() - 2 == np.count_nonzero(np.delete(model.coef_, kept)) > 0


def test_a_function_is_a_criterion():
    named = sht.SparseRegressor("bic").fit(X, Y)
    own = sht.SparseRegressor(lambda loss, k, p, W: W * np.log(2 * loss) + k * np.log(W)).fit(X, Y)
    np.testing.assert_array_equal(named.coef_, own.coef_)
    with pytest.raises(ValueError, match="name: the function must give"):
        sht.SparseRegressor(lambda loss, k, p, W: np.full(k.shape, np.inf)).fit(X, Y)


@pytest.mark.later
def test_a_criterion_compares_a_list_of_l2():
    grid = [1e-6, 0.1, 1.0]
    model = sht.SparseRegressor("aic", l2=grid).fit(X, Y)
    each = [sht.SparseRegressor("aic", l2=l2).fit(X, Y) for l2 in grid]
    values = [sht.information_criterion(one.path_, "aic").values.min() for one in each]
    best = each[int(np.argmin(values))]
    assert model.l2_ == best.l2_ and model.refit_l2_ == model.l2_
    np.testing.assert_allclose(model.coef_, best.coef_, rtol=1e-6)


def test_folds_with_features_of_their_own_share_prices():
    triples = [(np.arange(60) % 3 != fold, np.arange(60) % 3 == fold, X + fold) for fold in range(3)]
    seen = sht.SparseRegressor(l0=[0.1, 0.02], l2=0.01, cv=triples, rule="best").fit(X, Y)
    plain = sht.SparseRegressor(l0=[0.1, 0.02], l2=0.01, cv=[(a, b) for a, b, _ in triples], rule="best").fit(X, Y)
    # A shift of the columns moves nothing.
    np.testing.assert_allclose(seen.cv_results_["scores"], plain.cv_results_["scores"], rtol=1e-6)
    with pytest.raises(ValueError, match="l0s: where every fold has data of its own"):
        sht.SparseRegressor(l0="cv", cv=triples).fit(X, Y)
