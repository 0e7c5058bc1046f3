"""More than two classes: a softmax on k features that all classes share, or one against the rest."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import sparsehtp as sht

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
RNG = np.random.default_rng(0)
NOISY = np.column_stack([X, RNG.standard_normal((150, 4))])


def test_shared_features_are_those_of_a_multinomial_fit():
    model = sht.SparseClassifier(k=2, loss="softmax", l2=0.01).fit(NOISY, NAMES[Y])
    assert model.coef_.shape == (3, 8) and model.intercept_.shape == (3,)
    np.testing.assert_array_equal(np.flatnonzero(model.support_), [2, 3])
    np.testing.assert_array_equal(model.support_, model.coef_.any(axis=0))
    A = (X[:, 2:] - X[:, 2:].mean(0)) / X[:, 2:].std(0)
    peer = LogisticRegression(C=1 / (0.01 * 150), tol=1e-10, max_iter=10_000).fit(A, Y)
    np.testing.assert_allclose(model.coef_[:, 2:4] * X[:, 2:].std(0), peer.coef_, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(NOISY), peer.predict_proba(A), atol=1e-4)
    assert model.score(NOISY, NAMES[Y]) > 0.9 and list(model.classes_) == list(NAMES)
    assert model.result_ == "converged" and model.path_ is None


def test_two_classes_are_logistic():
    rows = Y < 2
    a, b = (
        sht.SparseClassifier(k=1, loss=loss, solver="htp").fit(X[rows], Y[rows]) for loss in ("softmax", "logistic")
    )
    np.testing.assert_array_equal(a.coef_, b.coef_)
    np.testing.assert_array_equal(a.predict_proba(X[rows]), b.predict_proba(X[rows]))


def test_one_against_the_rest_is_a_binary_fit_of_each_class():
    """With one k and one l2 for all."""
    model = sht.SparseClassifier(solver="forward").fit(X, NAMES[Y])
    assert model.score(X, NAMES[Y]) > 0.9 and list(model.classes_) == list(NAMES)
    assert model.coef_.shape == (3, 4) and model.intercept_.shape == (3,) and model.result_ == ["converged"] * 3
    np.testing.assert_array_equal(model.support_, model.coef_.any(axis=0))
    assert len(model.path_) == len(model.history_) == len(model.certificate_) == 3
    assert model.cv_results_["scores"].shape == (4 * 5, len(model.path_[0]))
    one = sht.SparseClassifier(k=model.k_, l2=model.l2_, solver="forward").fit(X, Y == 1)
    assert list(one.support_) == list(model.coef_[1] != 0)
    one = sht.SparseClassifier(k=0, keep=one.support_, l2=model.refit_l2_, solver="forward").fit(X, Y == 1)
    np.testing.assert_allclose(one.coef_[0], model.coef_[1], rtol=1e-6)


@pytest.mark.slow
def test_class_weights_are_sample_weights():
    options = dict(k=2, solver="forward", l2=0.01)
    weighted = sht.SparseClassifier(class_weight={0: 1, 1: 2, 2: 3}, **options).fit(X, Y)
    repeated = sht.SparseClassifier(**options).fit(np.repeat(X, Y + 1, axis=0), np.repeat(Y, Y + 1))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)
    balanced = sht.SparseClassifier(class_weight="balanced", **options).fit(X[40:], Y[40:])
    by_hand = sht.SparseClassifier(class_weight={0: 5, 1: 1, 2: 1}, **options).fit(X[40:], Y[40:])
    np.testing.assert_allclose(balanced.coef_, by_hand.coef_, rtol=1e-6)
