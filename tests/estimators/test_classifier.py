"""SparseClassifier against references and laws."""

from contextlib import nullcontext

import jax
import numpy as np
import pytest
from scipy.special import expit
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils import compute_sample_weight

import sparsehtp as sht
from sparsehtp.estimators.scoring import make_scoring

N, P = 60, 8
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, P)) + RNG.standard_normal(P)
ETA = 3 * (X[:, 2] - X[:, 2].mean()) - 2 * (X[:, 5] - X[:, 5].mean())
Y = np.where(ETA + RNG.logistic(size=N) > 0, "yes", "no")


@pytest.mark.parametrize(
    ("solver", "class_weight"),
    [
        ("iht", None),
        *(pytest.param(*each, marks=pytest.mark.later) for each in (("foba", "balanced"), ("htp", "balanced"))),
        pytest.param("htp", {"no": 3.0, "yes": 0.5}, marks=pytest.mark.later),
        pytest.param("auto", None, marks=pytest.mark.slow),
    ],
)
def test_equals_scikit_learn_on_the_chosen_features(solver, class_weight):
    l2 = 0.02
    options = dict(k=2, l2=l2, standardize=False, class_weight=class_weight, solver=solver)
    model = sht.SparseClassifier(**options).fit(X, Y)
    assert list(np.flatnonzero(model.support_)) == [2, 5] and model.refit_l2_ == model.l2_ == l2
    chosen = model.transform(X)
    C = 1 / (l2 * compute_sample_weight(class_weight, Y).sum())
    reference = LogisticRegression(C=C, class_weight=class_weight, tol=1e-10, max_iter=1000)
    reference.fit(chosen, Y)
    np.testing.assert_allclose(model.coef_[:, model.support_], reference.coef_, rtol=1e-5)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, rtol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(chosen), rtol=1e-5)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), reference.predict(chosen))


def test_null_model_predicts_the_log_odds():
    weights = np.random.default_rng(1).uniform(size=N)
    model = sht.SparseClassifier(k=0, solver="htp").fit(X, Y, weights)
    odds = weights[Y == "yes"].sum() / weights[Y == "no"].sum()
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
        ("softmax", lambda eta: np.exp(eta) if eta.ndim > 1 else expit(eta)),
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


@pytest.mark.parametrize("class_weight", [None, "balanced", {"no": 3.0, "yes": 0.5}])
def test_weights_of_classes_multiply_those_of_rows(class_weight):
    """As in scikit-learn; a scorer sees the rows' own, and labels."""
    model, code, own = sht.SparseClassifier(class_weight=class_weight), (Y == "yes") * 1, 1.0 + np.arange(N) % 2
    model.classes_ = np.array(["no", "yes"])
    np.testing.assert_allclose(model._class_weights(Y, code, np.ones(N))[0], compute_sample_weight(class_weight, Y))
    weights, factor = model._class_weights(Y, code, own)
    np.testing.assert_allclose(weights, own * factor[code])
    if class_weight == "balanced":
        np.testing.assert_allclose(np.bincount(code, weights), own.sum() / 2)

    def scorer(estimator, X, y, sample_weight):
        np.testing.assert_array_equal(estimator.decision_function(X), ETA)
        np.testing.assert_allclose(sample_weight, own)
        return float(np.mean(y == Y) * X.shape[1])

    assert make_scoring(scorer, model, lambda y: y > 0, factor)(2.0 * code - 1, ETA, weights) == -1


@pytest.mark.parametrize("loss", ["smoothed_hinge", "hinge"])
def test_hinges_classify_without_probabilities(loss):
    model = sht.SparseClassifier(k=2, loss=loss, solver="auto" if loss == "hinge" else "htp")
    assert not hasattr(model, "predict_proba")
    warns = pytest.warns(ConvergenceWarning, match="step limit")
    with warns if loss == "hinge" else nullcontext():  # its subgradients do not vanish at the minimum
        model.fit(X, Y)
    assert list(np.flatnonzero(model.support_)) == [2, 5]
    assert model.score(X, Y) > 0.8


@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge"])
@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.slow), np.float64])
def test_separated_classes_without_l2_are_named(loss, dtype):
    y, weights = X[:, 3] > 1.5 * X[:, 4], np.append(0, np.ones(N - 1))
    spoiled = np.append(not y[0], y[1:])  # what has no weight hides nothing
    with pytest.warns(ConvergenceWarning, match="separate the classes perfectly") as warned:
        model = sht.SparseClassifier(k=P, l2=0, loss=loss, solver="htp").fit(X.astype(dtype), spoiled, weights)
        sht.SparseClassifier(k=P, l2=1e-4, loss=loss, solver="htp").fit(X.astype(dtype), spoiled, weights)  # none
        assert sht.SparseClassifier(k=0, l2=0, loss=loss, solver="htp").fit(X, np.arange(N) % 2).intercept_ == 0  # none
    assert len(warned) == 1
    assert model.score(X, y, weights) == 1
    assert model.coef_.dtype == dtype
    if loss == "logistic":  # of three, one of which is separated from the others
        three = np.where(y, 2, (np.random.default_rng(0).random(N) > 0.5).astype(int))
        with pytest.warns(ConvergenceWarning, match="separate the classes perfectly"):
            sht.SparseClassifier(k=P, l2=0, loss=loss, solver="htp").fit(X.astype(dtype), three, weights)


# --- more than two classes: a softmax on k features that all share, or one against the rest --------------------------
IRIS, SPECIES = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
NOISY = np.column_stack([IRIS, np.random.default_rng(0).standard_normal((150, 4))])


def test_shared_features_are_those_of_a_multinomial_fit():
    model = sht.SparseClassifier(k=2, loss="softmax", l2=0.01).fit(NOISY, NAMES[SPECIES])
    assert model.coef_.shape == (3, 8) and model.intercept_.shape == (3,)
    np.testing.assert_array_equal(np.flatnonzero(model.support_), [2, 3])
    np.testing.assert_array_equal(model.support_, model.coef_.any(axis=0))
    A = (IRIS[:, 2:] - IRIS[:, 2:].mean(0)) / IRIS[:, 2:].std(0)
    peer = LogisticRegression(C=1 / (0.01 * 150), tol=1e-10, max_iter=10_000).fit(A, SPECIES)
    np.testing.assert_allclose(model.coef_[:, 2:4] * IRIS[:, 2:].std(0), peer.coef_, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(NOISY), peer.predict_proba(A), atol=1e-4)
    assert model.score(NOISY, NAMES[SPECIES]) > 0.9 and list(model.classes_) == list(NAMES)
    assert model.result_ == "converged" and model.path_ is None


def test_one_against_the_rest_is_a_binary_fit_of_each_class():
    """With one k and one l2 for all."""
    model = sht.SparseClassifier(solver="forward").fit(IRIS, NAMES[SPECIES])
    assert model.score(IRIS, NAMES[SPECIES]) > 0.9 and list(model.classes_) == list(NAMES)
    assert model.coef_.shape == (3, 4) and model.intercept_.shape == (3,) and model.result_ == ["converged"] * 3
    np.testing.assert_array_equal(model.support_, model.coef_.any(axis=0))
    assert len(model.path_) == len(model.history_) == len(model.certificate_) == 3
    assert model.cv_results_["scores"].shape == (4 * 5, len(model.path_[0]))
    one = sht.SparseClassifier(k=model.k_, l2=model.l2_, solver="forward").fit(IRIS, SPECIES == 1)
    assert list(one.support_) == list(model.coef_[1] != 0)
    one = sht.SparseClassifier(k=0, keep=one.support_, l2=model.refit_l2_, solver="forward").fit(IRIS, SPECIES == 1)
    np.testing.assert_allclose(one.coef_[0], model.coef_[1], rtol=1e-6)


@pytest.mark.slow
def test_class_weights_are_sample_weights():
    options, times = dict(k=2, solver="forward", l2=0.01), SPECIES + 1
    weighted = sht.SparseClassifier(class_weight={0: 1, 1: 2, 2: 3}, **options).fit(IRIS, SPECIES)
    repeated = sht.SparseClassifier(**options).fit(np.repeat(IRIS, times, axis=0), np.repeat(SPECIES, times))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)
    balanced = sht.SparseClassifier(class_weight="balanced", **options).fit(IRIS[40:], SPECIES[40:])
    by_hand = sht.SparseClassifier(class_weight={0: 5, 1: 1, 2: 1}, **options).fit(IRIS[40:], SPECIES[40:])
    np.testing.assert_allclose(balanced.coef_, by_hand.coef_, rtol=1e-6)
