"""SparseClassifier(loss="softmax"): multinomial logistic regression on k features that all classes share."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
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
    groups, n = np.array([0, 1, 2, 1]), len(Y)

    def refitted(chosen):
        columns = np.flatnonzero(np.isin(groups, chosen))

        def F(z):
            eta = X[:, columns] @ z[3:].reshape(-1, 3) + z[:3]
            slope = softmax(eta, axis=1) - np.eye(3)[Y]
            value = np.mean(logsumexp(eta, axis=1) - eta[np.arange(n), Y]) + 0.05 * np.sum(z[3:] ** 2)
            return value, np.append(slope.mean(0), (X[:, columns].T @ slope / n).ravel() + 0.1 * z[3:])

        size = 3 * columns.size
        bounds = [(None, None)] * 3 + [(-0.4, 0.6)] * size
        return minimize(F, np.zeros(3 + size), jac=True, method="L-BFGS-B", bounds=bounds, tol=1e-14).fun

    options = dict(groups=groups, bounds=(-0.4, 0.6), l2=0.1, standardize=False)
    model = sht.SparseClassifier(k=2, loss="softmax", **options).fit(X, Y)
    values = {chosen: refitted(chosen) for chosen in itertools.combinations(range(3), 2)}
    best = min(values, key=values.get)
    np.testing.assert_array_equal(model.support_, np.isin(groups, best))
    np.testing.assert_allclose(model.objective_value_, values[best], rtol=1e-7)


@pytest.mark.slow
def test_a_criterion_finds_the_features():
    model = sht.SparseClassifier(k="bic", loss="softmax", l2=0.01).fit(NOISY, NAMES[Y])
    assert model.support_[[2, 3]].all() and not model.support_[4:].any()
    assert model.path_.x[0].shape == (8, 3)


@pytest.mark.slow
def test_cross_validation_chooses_the_features():
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((300, 12))
    W = np.zeros((12, 3))
    W[[1, 5, 8]] = 2 * rng.standard_normal((3, 3))
    y = np.argmax(Z @ W + rng.gumbel(size=(300, 3)), axis=1)
    model = sht.SparseClassifier(loss="softmax").fit(Z, y)
    np.testing.assert_array_equal(np.flatnonzero(model.support_), [1, 5, 8])
    table = model.cv_results_
    assert table["scores"].shape == (4 * 5, len(table["ks"])) and model.k_ == 3
    # one cell by hand, through the estimator itself
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedKFold

    folds = list(StratifiedKFold(5, shuffle=True, random_state=3).split(Z, y))
    model = sht.SparseClassifier(loss="softmax", cv=folds, l2=0.01).fit(Z, y)
    fit, held = folds[2]
    one = sht.SparseClassifier(k=2, loss="softmax", l2=0.01).fit(Z[fit], y[fit])
    row = np.flatnonzero(model.cv_results_["ks"] == 2)[0]
    np.testing.assert_allclose(
        model.cv_results_["scores"][2, row], log_loss(y[held], one.predict_proba(Z[held])), rtol=1e-6
    )
