"""More than two classes: one against the rest, with one k and one l2 for all."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

import sparsehtp as sht

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])


@pytest.fixture(scope="module")
def model():
    return sht.SparseClassifier(solver="forward").fit(X, NAMES[Y])


def test_iris(model):
    assert model.score(X, NAMES[Y]) > 0.9
    assert list(model.classes_) == list(NAMES)
    assert model.coef_.shape == (3, 4) and model.intercept_.shape == (3,)
    assert (np.count_nonzero(model.coef_, axis=1) <= model.k_).all()
    np.testing.assert_array_equal(model.support_, model.coef_.any(axis=0))
    assert len(model.path_) == len(model.history_) == len(model.certificate_) == 3
    assert model.result_ == ["converged"] * 3
    assert model.cv_results_["scores"].shape == (4 * 5, len(model.path_[0]))


def test_scores_and_probabilities(model):
    scores, probabilities = model.decision_function(X), model.predict_proba(X)
    assert scores.shape == probabilities.shape == (150, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), scores.argmax(axis=1))
    single = 1 / (1 + np.exp(-scores))
    np.testing.assert_allclose(probabilities, single / single.sum(axis=1, keepdims=True))
    far = model.predict_proba(-1e4 * X)
    assert np.isfinite(far).all()


def test_each_class_is_a_binary_fit(model):
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


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = sht.SparseClassifier(k=1, solver="htp", keep=["d"]).set_output(transform="pandas").fit(frame, NAMES[Y])
    chosen = model.transform(frame)
    assert list(chosen.columns) == list(model.get_feature_names_out()) and "d" in chosen.columns
    assert set(model.predict(frame)) <= set(NAMES)
