"""SparseOrdinal: forms of y, probabilities, choices, weights, offset, saving, errors."""

import pickle

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import sparsehtp as sht

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


def test_it_is_the_model_of_its_objective(fitted):
    with jax.enable_x64(True):  # the estimator pads its arrays, the model does not
        model = sht.OrdinalModel(X, CODE, l2=1e-3, standardize=True)
        solution = sht.solve(model, sht.Sparsity(2), sht.HTP())
    np.testing.assert_allclose(fitted.coef_, solution.x, atol=1e-9)
    np.testing.assert_allclose(fitted.thresholds_, solution.intercept, atol=1e-9)
    np.testing.assert_array_equal(np.flatnonzero(fitted.support_), [2, 5])
    assert not hasattr(fitted, "intercept_") and fitted.result_ == "converged"


def test_probabilities_are_differences_of_sigmoids(fitted):
    eta = fitted.linear_predictor(X)
    np.testing.assert_allclose(eta, X @ fitted.coef_, rtol=1e-12)
    below = np.column_stack([np.zeros(N), expit(fitted.thresholds_ - eta[:, None]), np.ones(N)])
    probability = fitted.predict_proba(X)
    np.testing.assert_allclose(probability, np.diff(below, axis=1), atol=1e-12)
    np.testing.assert_array_equal(fitted.predict(X), NAMES[probability.argmax(axis=1)])
    assert fitted.score(X, Y) == np.mean(fitted.predict(X) == Y) > 0.5
    far = fitted.predict_log_proba(X * 1e6)
    assert np.isfinite(far).all()  # where the probabilities themselves are zero


def test_labels_and_their_order(fitted):
    """Numbers, and categories in an order of their own, of which some have no row."""
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
    unordered = make().fit(X, pd.Categorical(Y, order))
    assert list(unordered.classes_) == list(NAMES)


def test_categories_of_any_kind(fitted):
    """Intervals of `cut`, numbers, mixed types, and a frame of one column."""
    latent = CODE + np.linspace(0, 0.5, N)
    cut = pd.cut(latent, [-1, 0.7, 1.7, 2.7, 4])
    for y in (cut, pd.Categorical.from_codes(CODE, [0.5, 1.5, 2.5, 3.5], ordered=True)):
        model = make().fit(X, y)
        assert list(model.levels_) == list(model.classes_) == list(y.categories)
        np.testing.assert_allclose(model.coef_, fitted.coef_)
        assert model.score(X, y) == fitted.score(X, Y)
    mixed = make().fit(X, pd.Categorical.from_codes(CODE, ["none", 1, 2, (3, 4)], ordered=True))
    assert list(mixed.levels_) == list(mixed.classes_) == ["none", 1, 2, (3, 4)]
    names = pd.Series(pd.Categorical.from_codes(CODE, ["poor", "fair", "good", "best"], ordered=True))
    assert list(make().fit(X, names.to_frame()).levels_) == ["poor", "fair", "good", "best"]
    with pytest.raises(ValueError, match="without missing values"):
        make().fit(X, names.where(CODE > 0))


def test_scorers_of_scikit_learn_see_the_right_classes():
    """Whatever the names of the classes are, and their order."""
    names = pd.Series(pd.Categorical.from_codes(CODE, ["poor", "fair", "good", "best"], ordered=True))
    for scoring in ("neg_log_loss", "roc_auc_ovr", "accuracy"):
        found, expected = (cross_val_score(make(), X, y, scoring=scoring, cv=3) for y in (names, CODE))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_predictions_take_an_offset(fitted):
    moved = make().fit(X, Y, offset=np.full(N, 2.0))
    np.testing.assert_allclose(moved.coef_, fitted.coef_, atol=1e-9)
    np.testing.assert_allclose(moved.predict_proba(X, np.full(N, 2.0)), fitted.predict_proba(X), atol=1e-9)
    assert moved.score(X, Y, offset=np.full(N, 2.0)) == fitted.score(X, Y)


@pytest.mark.slow
def test_single_precision_stays(fitted):
    model = make().fit(X.astype(np.float32), Y)
    assert model.coef_.dtype == np.float32 and model.thresholds_.dtype == np.float64
    np.testing.assert_allclose(model.coef_, fitted.coef_, atol=1e-4)


@pytest.mark.slow
def test_k_is_chosen_on_folds():
    model = sht.SparseOrdinal("cv", solver="htp", rule="one_se").fit(X, Y)
    assert model.k_ == 2 and set(np.flatnonzero(model.support_)) == {2, 5}
    assert model.path_.total_weight == model.cv_results_["fold_weight"].sum() == N


@pytest.mark.slow
def test_k_is_chosen():
    for k in ("ebic", "cv"):
        model = sht.SparseOrdinal(k).fit(X, Y)
        assert model.k_ == 2 and set(np.flatnonzero(model.support_)) == {2, 5}, k
    swaps = model.swaps_
    assert list(swaps.features) == [2, 5] and (swaps.gains < 0).all()
    assert model.certificate_.swap_gain == 0
    with pytest.raises(TypeError, match="LinearModel"):
        sht.SparseOrdinal(2).fit(X, Y).prove(1)


@pytest.mark.slow
def test_structures():
    groups = np.arange(P) // 2
    model = sht.SparseOrdinal(1, groups=groups).fit(X, Y)
    assert len(set(groups[model.support_])) == 1 and model.support_.sum() == 2
    assert 0 in np.flatnonzero(sht.SparseOrdinal(1, keep=[0]).fit(X, Y).support_)
    assert (sht.SparseOrdinal(2, positive=True).fit(X, Y).coef_ >= 0).all()
    bounded = sht.SparseOrdinal(2, bounds=(-0.5, 0.5)).fit(X, Y)
    assert (np.abs(bounded.coef_) <= 0.5).all() and (np.diff(bounded.thresholds_) > 0).all()
    null = sht.SparseOrdinal(0).fit(X, Y)
    np.testing.assert_allclose(null.predict_proba(X[:1])[0], np.bincount(CODE) / N, atol=1e-6)


def test_it_travels(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    model = make().fit(frame, Y)
    sht.save(model, tmp_path / "model.npz")
    for other in (sht.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict_proba(frame), model.predict_proba(frame))
    assert list(model.get_feature_names_out()) == ["c", "f"]


BAD = {
    "y: needs two classes": dict(y=np.full(N, "a")),
    "y: needs labels of classes": dict(y=LATENT),
    "y: class .*'superb'.* has no positive weight": dict(sample_weight=(CODE < 3).astype(float)),
    "y: only one class has positive weight": dict(sample_weight=(CODE < 1).astype(float)),
    "Input offset contains NaN": dict(offset=np.full(N, np.nan)),
    "offset: needs shape .*, one value per row": dict(offset=np.zeros(3)),
    "sample_weight: must be >= 0": dict(sample_weight=-np.ones(N)),
}


@pytest.mark.parametrize("sentence", BAD)
def test_errors_name_the_argument(sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        make().fit(**{"X": X, "y": Y, **BAD[sentence]})


@pytest.mark.slow
@parametrize_with_checks([sht.SparseOrdinal(k=1, solver="htp")])
def test_check_estimator(estimator, check):
    check(estimator)
