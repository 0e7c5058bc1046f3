"""The mean of models of parts of the rows, against fits of these parts."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import sparsehtp as sht

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(100, 12)) @ (np.eye(12) + 0.4)
Y = X @ np.array([1.0, -1, 0.7, *[0] * 9]) + 2 * RANDOM.normal(size=100)
LABELS = np.where(Y > 0, "yes", "no")
PARTS = np.arange(100) % 4  # as groups they are the folds
WEIGHTS = RANDOM.integers(0, 3, 100)


def parts():
    return [np.flatnonzero(PARTS != part) for part in range(4)]


def alike(members, expected, **tolerances):
    """The same models in any order."""
    members, expected = (np.reshape(each, (len(each), -1)) for each in (members, expected))
    for member in members:
        nearest = expected[np.argmin(np.abs(expected - member).sum(axis=1))]
        np.testing.assert_allclose(member, nearest, **tolerances)
    assert len(np.unique(np.round(members, 6), axis=0)) == len(expected)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    ("kind", "y", "options"),
    [
        (sht.SparseRegressor, Y, {"k": 3, "l2": 0.1}),
        (sht.SparseRegressor, np.column_stack([Y, X[:, 5] - Y]), {"k": 2}),
        (sht.SparseRegressor, Y, {"l0": 0.03, "l2": 0.1}),
        (sht.SparseClassifier, LABELS, {"k": 3, "l2": 0.1}),
        (sht.SparseClassifier, np.digitize(Y, [-1, 1]), {"k": 2, "l2": 0.1}),
    ],
    ids=["squared", "responses", "priced", "logistic", "classes"],
)
def test_members_are_the_fits_of_all_rows_but_one_part(kind, y, options, weights):
    model = kind(**options, ensemble=4).fit(X, y, weights, groups=PARTS)
    fits = [kind(**options).fit(X[rows], y[rows], None if weights is None else weights[rows]) for rows in parts()]
    alike(model.members_, [fit.coef_ for fit in fits], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.coef_, np.mean([fit.coef_ for fit in fits], axis=0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.intercept_, np.mean([fit.intercept_ for fit in fits], axis=0), rtol=1e-5)
    np.testing.assert_array_equal(model.support_, np.any([fit.support_ for fit in fits], axis=0))
    one = kind(**options).fit(X, y, weights)
    assert one.members_ is None and (one.k_, one.l2_) == (model.k_, model.l2_)
    np.testing.assert_allclose(one.objective_value_, model.objective_value_)


@pytest.mark.parametrize("kind", [sht.SparseRegressor, sht.SparseClassifier])
def test_members_are_fitted_again_as_the_chosen_model_is(kind):
    y = Y if kind is sht.SparseRegressor else LABELS
    model = kind(ensemble=4, cv=4).fit(X, y, groups=PARTS)
    assert model.refit_l2_ < model.l2_
    expected = []
    for rows in parts():
        chosen = np.flatnonzero(kind(k=model.k_, l2=model.l2_).fit(X[rows], y[rows]).support_)
        scale = X[rows][:, chosen].std(axis=0)
        Z, strength = X[rows][:, chosen] / scale, model.refit_l2_ * len(rows)
        ridge = Ridge(strength, tol=1e-12) if y is Y else LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000)
        expected.append(np.bincount(chosen, np.ravel(ridge.fit(Z, y[rows]).coef_) / scale, X.shape[1]))
    alike(model.members_, expected, rtol=1e-4, atol=1e-5)


def test_neither_the_order_of_rows_nor_rows_without_weight_count():
    model = sht.SparseRegressor(k=3, ensemble=5).fit(X, Y)
    order = RANDOM.permutation(100)
    again = sht.SparseRegressor(k=3, ensemble=5).fit(X[order], Y[order])
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-6, atol=1e-9)
    far = np.vstack([X, 100 + X[:7]]), np.append(Y, np.full(7, -50.0)), np.append(np.ones(100), np.zeros(7))
    np.testing.assert_allclose(sht.SparseRegressor(k=3, ensemble=5).fit(*far).coef_, model.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.predict(X), X @ model.members_.mean(axis=0) + model.intercept_)


def test_a_proof_is_of_the_model_of_all_rows():
    model = sht.SparseRegressor(k=3, l2=0.1, ensemble=4, solver="forward").fit(X, Y)
    before = model.coef_.copy()
    assert model.prove().proved
    np.testing.assert_array_equal(model.coef_, before)


def test_members_are_kept_in_files(tmp_path):
    model = sht.SparseRegressor(k=2, ensemble=3).fit(X, Y)
    sht.save(model, tmp_path / "model.npz")
    loaded = sht.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.members_, model.members_)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_numbers_of_members_that_cannot_be():
    for number in (1, 2.5, "five"):
        with pytest.raises(ValueError, match="ensemble: must be an integer >= 2"):
            sht.SparseRegressor(k=2, ensemble=number).fit(X, Y)
    with pytest.raises(ValueError, match="ensemble: needs two samples"):
        sht.SparseClassifier(k=2, ensemble=2).fit(X[:5], [0, 0, 0, 0, 1])
    with pytest.warns(UserWarning, match="ensemble: 3 folds are used instead of 5, since the rarest class has 3"):
        model = sht.SparseClassifier(k=1, ensemble=5).fit(X[:9], [0, 0, 0, 0, 0, 0, 1, 1, 1])
    assert len(model.members_) == 3
