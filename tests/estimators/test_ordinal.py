"""SparseOrdinal: forms of y, probabilities, scorers."""

import cases
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.model_selection import cross_val_score

import sparsehtp as sht
from sparsehtp.estimators.ordinal import _categories, _sorting

RNG = np.random.default_rng(0)
N, P = 150, 8
X = RNG.standard_normal((N, P)) + 3
LATENT = 2 * X[:, 2] - 1.5 * X[:, 5] + RNG.logistic(size=N)
CODE = np.digitize(LATENT, np.quantile(LATENT, [0.3, 0.6, 0.9]))
NAMES = np.array(["bad", "fair", "good", "superb"])  # sorted
Y = NAMES[CODE]


def make(k=2, **options):
    return sht.SparseOrdinal(k, solver="htp", **options)


@pytest.fixture(scope="module")
def fitted():
    return make().fit(X, Y)


def test_scores_and_probabilities_of_coefficients_by_hand():
    """Of levels in an order of their own, with an offset and weights."""
    model = sht.SparseOrdinal()
    model.coef_, model.thresholds_, model.n_features_in_ = np.array([1.0, 0, -2.0]), np.array([-1.0, 0.5]), 3
    model.levels_, model.classes_ = np.array(["low", "middle", "high"]), np.array(["high", "low", "middle"])
    offset, weights = np.linspace(-1, 1, N), np.arange(N) % 3.0
    eta = (X[:, 0] - 2 * X[:, 2] + 3 + offset)[:, None]
    below = np.column_stack([np.zeros(N), expit([[-1, 0.5]] - eta), np.ones(N)])
    expected = np.diff(below, axis=1)
    np.testing.assert_allclose(model.linear_predictor(X[:, :3], offset + 3), eta[:, 0], rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X[:, :3], offset + 3), expected[:, [2, 0, 1]], rtol=1e-9)
    assert np.isfinite(model.predict_log_proba(1e6 * X[:, :3])).all()  # where the probabilities themselves are zero
    hits = model.levels_[expected.argmax(1)] == model.levels_[np.arange(N) % 3]
    y = model.levels_[np.arange(N) % 3]
    assert 0 < hits.mean() < 1 and model.score(X[:, :3], y, offset=offset + 3) == hits.mean()
    assert model.score(X[:, :3], pd.Categorical(y), weights, offset + 3) == pytest.approx(
        weights @ hits / weights.sum()
    )
    cases.refused(ValueError, "inconsistent numbers of samples", lambda: model.score(X[:, :3], y[1:]))
    model.thresholds_ = np.array([0.5, 0.5])
    with np.errstate(divide="raise"):  # between equal thresholds is nothing
        assert not model.predict_proba(X[:, :3])[:, 2].any()


def test_labels_and_their_order(fitted):
    """Numbers, and categories in an order of their own, of which some have no row."""
    assert list(np.flatnonzero(fitted.support_)) == [2, 5] and not hasattr(fitted, "intercept_")
    numbers = make().fit(X, 10 * CODE - 7)
    np.testing.assert_array_equal(numbers.levels_, [-7, 3, 13, 23])
    np.testing.assert_array_equal(numbers.coef_, fitted.coef_)
    order = ["superb", "sublime", "good", "fair", "bad"]
    for form in (pd.Categorical, lambda *a, **b: pd.Series(pd.Categorical(*a, **b), index=range(5, 5 + N))):
        turned = make().fit(X, form(Y, order, ordered=True))
        assert list(turned.levels_) == ["superb", "good", "fair", "bad"]
        assert list(turned.classes_) == sorted(turned.levels_)
        np.testing.assert_allclose(turned.coef_, -fitted.coef_, atol=1e-9)
        np.testing.assert_allclose(turned.thresholds_, -fitted.thresholds_[::-1], atol=1e-9)
        np.testing.assert_array_equal(turned.predict(X), fitted.predict(X))
        np.testing.assert_allclose(turned.predict_proba(X), fitted.predict_proba(X), atol=1e-9)
    for kinds in (pd.cut(CODE, [-1, 0.5, 1.5, 2.5, 4]).categories, [0.5, 1.5, 2.5, 3.5], ["none", 1, 2, (3, 4)]):
        other = make().fit(X, y := pd.Categorical.from_codes(CODE, kinds, ordered=True))
        assert list(other.levels_) == list(other.classes_) == list(kinds)
        np.testing.assert_allclose(other.coef_, fitted.coef_)
        assert kinds[0] == "none" or other.score(X, y) == fitted.score(X, Y)
    unordered = make().fit(X, pd.Categorical(Y, order))
    assert list(unordered.classes_) == list(NAMES)


def test_forms_of_ordered_labels():
    """Texts, numbers, intervals and mixed ones, in a column, a frame or alone; all else is taken as it is."""
    intervals = pd.cut(CODE, [-1, 0.5, 1.5, 2.5, 4]).categories
    for kinds in (["d", "c", "b", "a"], [0.5, 1.5, 2.5, 3.5], intervals, ["none", 1, 2, (3, 4)]):
        column = pd.Series(pd.Categorical.from_codes(CODE, kinds, ordered=True), index=range(5, 5 + N))
        for form in (column, column.to_frame(), column.array):
            categories, codes = _categories(form)
            assert list(categories) == list(kinds) and codes.tolist() == CODE.tolist()
        assert _sorting(categories).tolist() == ([3, 2, 1, 0] if kinds[0] == "d" else [0, 1, 2, 3])
    for plain in (Y, pd.Series(Y), pd.Categorical(Y, NAMES), pd.concat([column, column], axis=1)):
        assert _categories(plain)[0] is None and _categories(plain)[1] is plain
    cases.refused(ValueError, "missing values", lambda: _categories(column.where(CODE > 0)))
    cases.refused(ValueError, "1d array", lambda: make().fit(X, pd.concat([column, column], axis=1)))


def test_scorers_of_scikit_learn_see_the_right_classes():
    """Whatever the names of the classes are, and their order."""
    names = pd.Series(pd.Categorical.from_codes(CODE, ["poor", "fair", "good", "best"], ordered=True))
    for scoring in ("neg_log_loss", "roc_auc_ovr", "accuracy"):
        found, expected = (cross_val_score(make(), X, y, scoring=scoring, cv=3) for y in (names, CODE))
        np.testing.assert_allclose(found, expected, rtol=1e-6)
