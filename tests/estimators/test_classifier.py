"""SparseClassifier against references and laws."""

import jax
import numpy as np
import pytest
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import sparsehtp as sht

N, P = 60, 8


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)) + rng.standard_normal(P)
    eta = 3 * (X[:, 2] - X[:, 2].mean()) - 2 * (X[:, 5] - X[:, 5].mean())
    return X, np.where(eta + rng.logistic(size=N) > 0, "yes", "no")


@pytest.mark.parametrize(
    ("solver", "class_weight"),
    [
        ("iht", None),
        ("foba", "balanced"),
        ("htp", "balanced"),
        ("htp", {"no": 3.0, "yes": 0.5}),
        pytest.param("auto", None, marks=pytest.mark.slow),
    ],
)
def test_equals_scikit_learn_on_the_chosen_features(data, solver, class_weight):
    X, y = data
    l2 = 0.02
    options = dict(k=2, l2=l2, standardize=False, class_weight=class_weight, solver=solver)
    model = sht.SparseClassifier(**options).fit(X, y)
    assert list(np.flatnonzero(model.support_)) == [2, 5]
    chosen = model.transform(X)
    label_weight = {None: {}, "balanced": {c: N / 2 / np.sum(y == c) for c in ("no", "yes")}}
    by_label = class_weight if isinstance(class_weight, dict) else label_weight[class_weight]
    total = sum(by_label.get(label, 1.0) for label in y)
    reference = LogisticRegression(C=1 / (l2 * total), class_weight=class_weight, tol=1e-10, max_iter=1000)
    reference.fit(chosen, y)
    np.testing.assert_allclose(model.coef_[:, model.support_], reference.coef_, rtol=1e-5)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, rtol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(chosen), rtol=1e-5)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), reference.predict(chosen))


def test_null_model_predicts_the_log_odds(data):
    X, y = data
    weights = np.random.default_rng(1).uniform(size=N)
    model = sht.SparseClassifier(k=0, solver="htp").fit(X, y, weights)
    odds = weights[y == "yes"].sum() / weights[y == "no"].sum()
    np.testing.assert_allclose(model.intercept_, [np.log(odds)], rtol=1e-6)
    assert model.coef_.shape == (1, P) and not model.coef_.any()


class Cauchit(sht.losses.SmoothedHinge):
    """A loss that has a mean, which alone is used here."""

    def mean(self, eta):
        return 0.5 + jax.numpy.arctan(eta) / np.pi


@pytest.mark.parametrize(
    ("loss", "mean"),
    [
        ("logistic", expit),
        (sht.losses.Logistic(2.0), lambda eta: expit(2 * eta)),
        (Cauchit(), lambda eta: 0.5 + np.arctan(eta) / np.pi),
    ],
)
def test_probabilities_are_means_of_the_loss(loss, mean):
    model, X = sht.SparseClassifier(loss=loss), np.linspace(-3, 3, 7)[:, None]
    model.coef_, model.intercept_, model.n_features_in_ = np.array([[1.0], [0.5], [-1]]), np.array([0.5, 0, 1]), 1
    model.classes_, each = np.arange(3), mean(X @ model.coef_.T + model.intercept_)
    np.testing.assert_allclose(model.predict_proba(X), each / each.sum(1, keepdims=True), rtol=1e-6)
    assert isinstance(loss, Cauchit) or np.isfinite(model.predict_log_proba(1e5 * X)).all()
    model.coef_, model.intercept_, model.classes_ = model.coef_[:1], model.intercept_[:1], np.arange(2)
    offset = np.linspace(1, -2, 7)
    one = mean(X[:, 0] + 0.5 + offset)
    np.testing.assert_allclose(model.predict_proba(X, offset), np.column_stack([1 - one, one]), rtol=1e-6)
    assert model.score(X, one > 0.5, offset=offset) == 1 > model.score(X, one > 0.5)


@pytest.mark.parametrize("loss", ["smoothed_hinge", "hinge"])
def test_hinges_classify_without_probabilities(data, loss):
    X, y = data
    model = sht.SparseClassifier(k=2, loss=loss, solver="auto" if loss == "hinge" else "htp")
    assert not hasattr(model, "predict_proba")
    if loss == "hinge":  # its subgradients do not vanish at the minimum
        with pytest.warns(ConvergenceWarning, match="step limit"):
            model.fit(X, y)
    else:
        model.fit(X, y)
    assert list(np.flatnonzero(model.support_)) == [2, 5]
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge"])
@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.slow), np.float64])
def test_separated_classes_without_l2_are_named(data, loss, dtype):
    X, _ = data
    y, weights = X[:, 3] > 1.5 * X[:, 4], np.append(0, np.ones(N - 1))
    spoiled = np.append(not y[0], y[1:])  # what has no weight hides nothing
    with pytest.warns(ConvergenceWarning, match="separate the classes perfectly") as warned:
        model = sht.SparseClassifier(k=P, l2=0, loss=loss, solver="htp").fit(X.astype(dtype), spoiled, weights)
    assert len(warned) == 1
    assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
    assert model.score(X, y, weights) == 1
    assert model.coef_.dtype == dtype
    if loss == "logistic":  # of three, one of which is separated from the others
        three = np.where(y, 2, (np.random.default_rng(0).random(N) > 0.5).astype(int))
        with pytest.warns(ConvergenceWarning, match="separate the classes perfectly"):
            sht.SparseClassifier(k=P, l2=0, loss=loss, solver="htp").fit(X.astype(dtype), three, weights)
