"""SparseClassifier(loss="softmax"): multinomial logistic regression on k features that all classes share."""

import itertools

import numpy as np
import pytest
from exhaustive import of_matrices
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import sparsehtp as sht

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
RNG = np.random.default_rng(0)
NOISY = np.column_stack([X, RNG.standard_normal((150, 4))])


@pytest.fixture(scope="module")
def model():
    return sht.SparseClassifier(k=2, loss="softmax", l2=0.01).fit(NOISY, NAMES[Y])


def test_shared_features_are_those_of_a_multinomial_fit(model):
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


def test_groups_within_bounds_against_all_sets():
    """The four features as three groups, of which the best two are found, with SciPy's refits."""
    groups = np.array([0, 1, 2, 1])
    options = dict(groups=groups, bounds=(-0.4, 0.6), l2=0.1, standardize=False)
    model = sht.SparseClassifier(k=2, loss="softmax", **options).fit(X, Y)
    parts = {chosen: X[:, np.isin(groups, chosen)] for chosen in itertools.combinations(range(3), 2)}
    values = {chosen: of_matrices(part, Y, 0.1, (-0.4, 0.6))[0] for chosen, part in parts.items()}
    best = min(values, key=values.get)
    np.testing.assert_array_equal(model.support_, np.isin(groups, best))
    np.testing.assert_allclose(model.objective_value_, values[best], rtol=1e-7)
