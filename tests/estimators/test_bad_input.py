"""Bad input raises one sentence that names the argument; degenerate input gives a finite fit.

NaN and infinity in any argument of any estimator: regressions/test_nan.py.
"""

import re
import warnings
from types import SimpleNamespace

import cases
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

import sparsehtp as sht
from sparsehtp.estimators.failures import all_or_nothing

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 3))
Y = X[:, 0] + 0.1 * RNG.standard_normal(20)
LABELS = Y > np.median(Y)
ESTIMATORS = [(sht.SparseRegressor, Y), (sht.SparseClassifier, LABELS)]

PARAMETERS = {
    "k": [-1, 4, 2.5, "3", True, None, "gcv", np.array(2), np.inf, np.nan],
    "cv": [1, "many", [([0, 1], [20])], [(range(10), range(5, 10))], [(range(10), [])], [(range(20), [0])]],
    "random_state": ["x"],
    "bounds": [(0, 0), (0, np.zeros(3)), 1],
    "l2": [-1, np.nan, "big", np.array([1.0, 2.0]), [], [0.1, -1]],
    "loss": ["cubic", None],
    "solver": ["newton", None],
    "max_iter": [0, 1.5],
    "tol": [0.0, "small"],
    "groups": [[0, 1]],
    "keep": [[3], [0, 0], [0.5], [True, False], ["age"]],
    "rule": ["two_se"],
    "scoring": ["accuracy?", 3],
}
BOTH = [({name: value}, name) for name, values in PARAMETERS.items() for value in values] + [
    ({"k": 1, "keep": [0, 1, 2]}, "k"),
    ({"positive": True, "bounds": (0, 1)}, "positive"),
    ({"groups": [0, 1, 1], "keep": [-1]}, "keep"),
    ({"bounds": (1, 2)}, "lower"),
    ({"bounds": (None, [1.0, 2.0])}, "upper"),
    ({"k": [1, 9]}, "k: the largest candidate is 9, but there are only 3"),
    ({"k": []}, "k: there are no candidates"),
    ({"cv": [([True, False], [19])]}, "cv: needs row indices in 0..19 or masks of length 20"),
    ({"k": [1, -2]}, "k: must be an integer >= 0"),
]
WEIGHTS = [
    (cases.spoiled(np.ones(20), -1), "sample_weight: must be >= 0"),
    (np.zeros(20), "sample_weight: all weights are zero"),
    (np.ones(19), "sample_weight"),
]
DAY = pd.Timestamp("2024-01-01")
DATA = [
    (pd.DataFrame(cases.spoiled(X, np.nan)).add_prefix("c"), 20, "the first in 'c"),
    (pd.DataFrame(X).astype(object).replace(X[0, 0], "nan").add_prefix("c"), 20, "contains NaN"),
    (pd.Series(X[:, 0]), 20, "2-dimensional"),
    (sparse.csr_array(cases.spoiled(X, np.nan)), 20, "X contains NaN"),
    (X, 19, "inconsistent numbers of samples"),
    (np.array([["a", "b"]] * 20), 20, "^X: holds text where numbers are needed"),
    (
        pd.DataFrame({"a": range(20), "city": "Ulm", "day": DAY}),
        20,
        r"^X: 'city' \(text\), 'day' \(date\): columns must be",
    ),
]


@pytest.mark.parametrize(("estimator", "y"), ESTIMATORS)
@pytest.mark.parametrize(
    ("arguments", "features", "n", "weights", "message"),
    [
        *((arguments, X, 20, None, rf"^{name}\b") for arguments, name in BOTH),
        *(({}, X, 20, weights, message) for weights, message in WEIGHTS),
        *(({}, features, n, None, message) for features, n, message in DATA),
    ],
)
def test_regressor_and_classifier(estimator, y, arguments, features, n, weights, message):
    with pytest.raises(ValueError, match=message) as error:
        estimator(**arguments).fit(features, y[:n], weights)
    assert not arguments or "\n" not in str(error.value)


COUNTS = np.arange(20) % 3
SURVIVAL = np.column_stack([np.arange(1.0, 21.0), np.arange(20) % 2])
SEVERAL = np.column_stack([Y, -Y])


def lives(times, kind):
    return np.array([*zip(times.astype(kind), np.arange(20) % 2 > 0, strict=True)], [("t", kind), ("e", bool)])


R, C, L = sht.SparseRegressor, sht.SparseClassifier, sht.LowRankRegressor
P, LDA, PCA, ROBUST = sht.SparsePrecision, sht.SparseLDA, sht.SparsePCA, sht.RobustPCA
S = np.cov(X.T)
COX, ORDINAL = sht.SparseCox(2, solver="htp"), sht.SparseOrdinal(2, solver="htp")
# estimator, targets, other arguments of fit, sentence
REFUSALS = [
    (R(), np.where(Y > 0, "a", "b"), {}, "^y: holds text, such as '[ab]'; a classifier takes it"),
    (R(), np.where(Y > 0, "a", "b").astype(object), {}, "^y: holds text, such as '[ab]'; a classifier takes it"),
    (R(), np.append("1", np.where(Y[1:] > 0, "2", "b")).astype(object), {}, "^y: holds text, such as 'b'"),
    (R(loss="poisson"), Y, {}, "^y: Poisson needs counts >= 0"),
    (R(loss="logistic"), Y, {}, "^loss:"),
    (R(loss=sht.losses.Logistic()), Y, {}, "^loss:"),
    (C(loss=sht.losses.Squared()), LABELS, {}, "^loss:"),
    (C(), Y, {}, "^y: .*Unknown label type"),
    (C(), np.array(["a", None] * 10, object), {}, "^y: "),
    (C(), np.zeros(20), {}, "^y: .*one class"),
    (C(class_weight={0: 0, 1: 1, 2: 1}), COUNTS, {}, "^y: class .*0.* no positive weight"),
    (C(class_weight={0: 1, 1: -1}), LABELS.astype(int), {}, "^class_weight"),
    (C(class_weight={0: 1, 1: 0}), LABELS.astype(int), {}, "^y: only one class has positive"),
    (C(scoring="accuracy"), COUNTS, {}, "scoring: one class against the rest"),
    (C(9, loss="softmax"), COUNTS, {}, "k: is 9"),
    (R(9), SEVERAL, {}, "k: is 9"),
    (R(3, groups=[0, 1, 0]), SEVERAL, {}, "k: is 3, but there are only 2 groups"),
    (R(1), Y, {"offset": Y[1:]}, "offset"),
    (R(1), Y, {"offset": SEVERAL}, r"^offset: needs shape \(20,\).*got \(20, 2\)"),
    (R(1), SEVERAL, {"offset": X}, r"offset: needs shape \(20,\).*or \(20, 2\).*got \(20, 3\)"),
    (R(1, shared=False), SEVERAL, {"offset": SEVERAL}, r"^offset: needs shape \(20,\), one value per row of X, got"),
    (C(1), COUNTS, {"offset": Y}, "offset: is for two classes, but y has 3"),
    *((R(l1=l1), Y, {}, "^l1: stands beside a price") for l1 in (0.1, [0.0, 0.1])),
    *((R(l0=0.1, k=k), Y, {}, "^k: a price l0 stands in its place") for k in (3, "bic", np.arange(3))),
    *((R(l0=l0), Y, {}, "^l0: needs a number") for l0 in (-1.0, "bic", True, [[0.1, 0.2]])),
    (R(l0=0.1, l1=[np.nan]), Y, {}, "^l1: needs a number"),
    (R(l0=0.1, groups=[0, 0, 1]), Y, {}, "^groups: features are paid for one by one"),
    (R(l0=0.1), SEVERAL, {}, "^l0: features are paid for in models of one response"),
    (R(l0="cv", shared=False), SEVERAL, {}, "l0s: several objectives share prices"),
    (C("bic"), LABELS, {"sample_weight": np.full(20, 0.1)}, "^sample_weight: the sum of the weights, 2, "),
    (C("bic", class_weight={0: 0.05, 1: 0.05}), LABELS.astype(int), {}, "^class_weight: the sum of the weights, 1, "),
    (R("bic"), SEVERAL[:2], {"X": X[:2]}, r"^k: 2 samples \(events\) are too few"),
    (L(6), SEVERAL, {}, "^r: is 6"),
    (L("ebic"), SEVERAL, {}, "^r:"),
    (L(l2=-1.0), SEVERAL, {}, "^l2"),
    (L(solver="best"), SEVERAL, {}, "^solver"),
    (ROBUST(21), None, {}, "^rank: is 21, but a"),
    (ROBUST(k=61), None, {}, "^k: is 61, but X has 60 entries"),
    (ROBUST(k=1.5), None, {}, "^k: must be an integer >= 0"),
    (ROBUST(tol=0), None, {}, "^tol: needs a positive number"),
    (PCA(5), None, {}, "^n_components: is 5, but 20 samples of 3 features have 3"),
    (PCA(3), None, {"X": X[:3]}, "^n_components: is 3, but 3 samples of 3 features have 2"),
    (PCA(k=7), None, {}, "^k: is 7, but X has 3 features"),
    *((PCA(2, k=k), None, {}, "^k: needs one number, or one for each of 2") for k in ([1, 2, 3], [[1, 2]])),
    *((P(k), None, {}, "^k: ") for k in (-1, 2.5, "aic", 4)),
    (P(2, solver="newton"), None, {}, "^solver: "),
    *((P(2, keep=[pair]), None, {}, "^keep: ") for pair in [("gene 0", "gene 1"), (0, 3), (1, 1)]),
    (P(2, covariance="correlation"), None, {}, "^covariance: "),
    (P(2, covariance="precomputed"), None, {}, "^S: "),
    (P(2, bounds="none"), None, {}, "^bounds: "),
    (P(2, random_state="no"), None, {}, "^random_state: "),
    *((P(2, shrinkage=g), None, {}, "^shrinkage: needs a number from 0 up to but not 1") for g in (1.0, -0.1, "lw")),
    (P(2), None, {"X": np.c_[X, np.full(20, 7.0)]}, "variable 3 is constant"),
    (P("bic", covariance="precomputed"), None, {"X": S}, "n_samples"),
    (P(covariance="precomputed"), None, {"X": S}, "cross-validation needs data"),
    (P(1, covariance="precomputed"), None, {"X": np.triu(np.ones((3, 3))) + np.eye(3)}, "not symmetric"),
    *((LDA(2, priors=priors), COUNTS, {}, "^priors: ") for priors in ([0.5, 0.6, 0.1], [1.0])),
    *((LDA(k), COUNTS, {}, "^k: ") for k in ("aic", 16)),
    (LDA(2), COUNTS, {"X": np.c_[X, np.ones(20)]}, "variable 3 is constant"),
    (LDA(2), COUNTS, {"sample_weight": COUNTS < 1}, "^y: needs two classes with positive weight, got 1 class"),
    (COX, SURVIVAL * [1, 0], {}, "^y: no row with a positive weight has an event"),
    (COX, SURVIVAL - [2, 0], {}, "^y: times must be >= 0"),
    (COX, Y, {}, r"^y: needs a structured array .* got shape \(20,\)"),
    (COX, np.zeros(20, [("a", float), ("b", float)]), {}, "^y: needs a structured array .* got the fields"),
    (COX, SURVIVAL[:3], {}, "^y: has 3 rows"),
    *(
        (COX, lives(2**60 + np.arange(20), kind), {}, text)
        for kind, text in (("i8", "^y: times beyond"), ("m8[s]", "dates"))
    ),
    (COX, SURVIVAL[:, ::-1] + 2, {}, "^y: events must be 1"),
    (COX, SURVIVAL, {"strata": ["a"]}, "^strata: needs one label"),
    (COX, SURVIVAL, {"sample_weight": -np.ones(20)}, "^sample_weight: must be >= 0"),
    (sht.SparseCox(2, ties="exact"), SURVIVAL, {}, "^ties: must be one of"),
    (ORDINAL, np.full(20, "a"), {}, "^y: needs two classes"),
    (ORDINAL, Y, {}, "^y: needs labels of classes"),
    (ORDINAL, COUNTS, {"sample_weight": COUNTS < 2}, "^y: class .*2.* has no positive weight"),
    (ORDINAL, COUNTS, {"sample_weight": COUNTS < 1}, "^y: only one class has positive weight"),
    (ORDINAL, COUNTS, {"offset": np.zeros(3)}, "^offset: needs shape .*, one value per row"),
    (LDA(2), Y, {}, "Unknown label type"),
]


@pytest.mark.parametrize(("estimator", "y", "more", "sentence"), REFUSALS)
def test_every_estimator(estimator, y, more, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        clone(estimator).fit(**{"X": X, "y": y, **more})
    assert not sentence.startswith("^") or "\n" not in str(error.value)


LEAST = [
    (R(0, solver="htp", max_iter=1), Y, {"k": 0, "max_iter": 1}),
    (L(0, max_iter=1), SEVERAL, {"r": 0, "max_iter": 1}),
    (LDA(0, max_iter=1), COUNTS, {"max_iter": 1}),
    (P(0, covariance="precomputed", n_samples=2, max_iter=1), None, {"k": 0, "n_samples": 2, "max_iter": 1}),
    (PCA(1, 1, n_init=1), None, {"n_components": 1, "k": 1, "n_init": 1}),
    (ROBUST(0, 0, max_iter=1), None, {"rank": 0, "k": 0, "max_iter": 1}),
]


@pytest.mark.parametrize(("estimator", "y", "least"), LEAST, ids=lambda value: type(value).__name__)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_counts_are_taken_from_the_least_on(estimator, y, least):
    Z = S if isinstance(estimator, P) else X
    clone(estimator).fit(Z, y)
    for name, count in least.items():
        with pytest.raises(ValueError, match=f"^{name}: must be an integer >= {count}"):
            clone(estimator).set_params(**{name: count - 1}).fit(Z, y)


def test_numbers_may_be_text_and_whole_numbers_of_any_type():
    expected = R(k=1, solver="htp").fit(X, Y)
    for Z, k in ((X.astype(str), 1), (X, 1.0), (X, np.float32(1))):
        found = R(k=k, solver="htp").fit(Z, Y)
        assert found.k_ == 1
        np.testing.assert_array_equal(found.coef_, expected.coef_)
    assert sht.Sparsity(2.0).k.dtype == np.int32
    for k in (np.inf, np.nan):
        cases.refused(ValueError, "k: must be", lambda k=k: sht.Sparsity(k))


def finite(model):
    for name, value in vars(model).items():
        if name.endswith("_"):
            for array in value.values() if isinstance(value, dict) else [value]:
                array = np.asarray(array)
                assert array.dtype.kind != "f" or not np.isnan(array).any(), name
    return True


@pytest.mark.parametrize(("estimator", "y"), ESTIMATORS)
@pytest.mark.parametrize("standardize", [True, False])
def test_degenerate_columns(estimator, y, standardize):
    duplicated = np.column_stack([X[:, 0], X[:, 0], np.full(20, 3.7)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for k in range(4):
            assert finite(estimator(k=k, standardize=standardize, solver="htp").fit(duplicated, y))
    constant = estimator(k=1, standardize=True, solver="htp").fit(np.full((20, 1), 3.7), y)
    assert finite(constant) and constant.coef_.ravel()[0] == 0


def test_collinear_features_without_l2_are_named():
    duplicated = np.column_stack([X[:, 0], X[:, 0]])
    with pytest.warns(ConvergenceWarning, match="singular") as warned:
        model = sht.SparseRegressor(k=2, l2=0, solver="htp").fit(duplicated, Y)
    assert len(warned) == 1 and "add l2" in str(warned[0].message) and warned[0].filename == __file__
    assert finite(model) and model.result_ == "singular"
    np.testing.assert_allclose(model.coef_[0], model.coef_[1], rtol=1e-9)
    noisy = LABELS ^ (np.arange(20) == X[:, 0].argmax())
    with pytest.warns(ConvergenceWarning, match="singular"):
        assert finite(sht.SparseClassifier(k=2, l2=0, solver="htp").fit(duplicated, noisy))
    coef = model.coef_
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)  # which is a fit that fails, and changes nothing
        cases.refused(ConvergenceWarning, "singular", lambda: model.fit(duplicated, -Y))
    assert model.coef_ is coef
    with pytest.warns(UserWarning, match="cv: 4 folds") as fewer:
        sht.SparseRegressor([1], l2=[0.1, 1], cv=5, solver="htp").fit(X[:4], Y[:4])
    assert {each.filename for each in fewer} == {__file__}


def test_all_estimators_take_back_a_fit_that_fails():
    @all_or_nothing
    def fit(model):
        model.k_, model.l2_ = 2, 0.1
        raise KeyboardInterrupt

    model = SimpleNamespace(k_=1)
    with pytest.raises(KeyboardInterrupt):
        fit(model)
    assert vars(model) == {"k_": 1}
    kinds = [getattr(sht, name) for name in sht.__all__]
    kinds = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseEstimator)]
    assert len(kinds) >= 9
    for kind in kinds:
        assert kind.fit.__code__ is all_or_nothing(lambda self: self).__code__, kind


UNPASSED = re.compile("sample_weight|class_weight|groups|offset|strata|bounds|l2|keep")


def targets(kind, n):
    if kind is sht.SparseCox:
        return [np.column_stack([np.arange(1.0, n + 1), np.arange(n) % 2 == first]) for first in (0, 1)]
    return [np.zeros(n), np.arange(n) % 2]


@pytest.mark.parametrize("kind", (R, C, sht.SparseOrdinal, sht.SparseCox))
def test_messages_name_what_was_passed(kind):
    said = []
    for n in (1, 2):
        for y in targets(kind, n):
            for settings in ({"solver": "htp"}, {"k": "bic", "solver": "htp"}):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    try:
                        kind(**settings).fit(np.random.default_rng(n).standard_normal((n, 3)), y)
                    except ValueError as error:
                        said.append(str(error))
                said += [str(each.message) for each in caught]
    assert said and not [each for each in said if UNPASSED.search(each)]
