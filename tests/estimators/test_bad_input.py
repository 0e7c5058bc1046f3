"""Bad input raises one sentence that names the argument; degenerate input gives a finite fit."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

import sparsehtp as sht
from sparsehtp.estimators.fitting import all_or_nothing

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 3))
Y = X[:, 0] + 0.1 * RNG.standard_normal(20)
LABELS = Y > np.median(Y)
ESTIMATORS = [(sht.SparseRegressor, Y), (sht.SparseClassifier, LABELS)]


def spoiled(array, value):
    array = np.array(array, float)
    array.flat[1] = value
    return array


@pytest.mark.parametrize(("estimator", "y"), ESTIMATORS)
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (dict(k=-1), "k"),
        (dict(k=4), "k"),
        (dict(k=2.5), "k"),
        (dict(k="3"), "k"),
        (dict(k=True), "k"),
        (dict(k=None), "k"),
        (dict(k="gcv"), "k"),
        (dict(cv=1), "cv"),
        (dict(cv="many"), "cv"),
        (dict(cv=[([0, 1], [20])]), "cv"),
        (dict(cv=[(range(10), range(5, 10))]), "cv"),
        (dict(cv=[(range(10), [])]), "cv"),
        (dict(random_state="x"), "random_state"),
        (dict(k=1, keep=[0, 1, 2]), "k"),
        (dict(bounds=(0, 0)), "bounds"),
        (dict(bounds=(0, np.zeros(3))), "bounds"),
        (dict(l2=-1), "l2"),
        (dict(l2=np.nan), "l2"),
        (dict(l2="big"), "l2"),
        (dict(l2=np.array([1.0, 2.0])), "l2"),
        (dict(loss="cubic"), "loss"),
        (dict(loss=None), "loss"),
        (dict(solver="newton"), "solver"),
        (dict(solver=None), "solver"),
        (dict(max_iter=0), "max_iter"),
        (dict(max_iter=1.5), "max_iter"),
        (dict(tol=0.0), "tol"),
        (dict(tol="small"), "tol"),
        (dict(groups=[0, 1]), "groups"),
        (dict(positive=True, bounds=(0, 1)), "positive"),
        (dict(bounds=1), "bounds"),
        (dict(bounds=(1, 2)), "lower"),
        (dict(bounds=(None, [1.0, 2.0])), "upper"),
        (dict(keep=[3]), "keep"),
        (dict(keep=[0, 0]), "keep"),
        (dict(keep=[0.5]), "keep"),
        (dict(keep=[True, False]), "keep"),
        (dict(keep=["age"]), "keep"),
    ],
)
def test_parameters(estimator, y, arguments, name):
    with pytest.raises(ValueError, match=rf"^{name}\b") as error:
        estimator(**arguments).fit(X, y)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("estimator", "y"), ESTIMATORS)
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (spoiled(np.ones(20), np.nan), "sample_weight contains NaN"),
        (spoiled(np.ones(20), np.inf), "sample_weight contains infinity"),
        (spoiled(np.ones(20), -1), "sample_weight: must be >= 0"),
        (np.zeros(20), "sample_weight: all weights are zero"),
        (np.ones(19), "sample_weight"),
    ],
)
def test_weights(estimator, y, weights, message):
    with pytest.raises(ValueError, match=message):
        estimator().fit(X, y, weights)


@pytest.mark.parametrize(("estimator", "y"), ESTIMATORS)
@pytest.mark.parametrize(
    ("X", "n", "message"),
    [
        (spoiled(X, np.nan), 20, "X contains NaN"),
        (spoiled(X, np.inf), 20, "X contains infinity"),
        (X[:, 0], 20, "Expected 2D array"),
        (X, 19, "inconsistent numbers of samples"),
        (X[:0], 0, "0 sample"),
        (X[:, :0], 20, "0 feature"),
        (X.astype(str), 20, None),
        (np.array([["a", "b"]] * 20), 20, "could not convert string"),
    ],
)
def test_data(estimator, y, X, n, message):
    if message is None:  # numbers written as text are read
        estimator(k=1, solver="htp").fit(X, y[:n])
        return
    with pytest.raises(ValueError, match=message):
        estimator().fit(X, y[:n])


@pytest.mark.parametrize(
    ("estimator", "y", "message"),
    [
        (sht.SparseRegressor(), spoiled(Y, np.nan), "y contains NaN"),
        (sht.SparseRegressor(), spoiled(Y, np.inf), "y contains infinity"),
        (sht.SparseRegressor(loss="poisson"), Y, "^y: Poisson needs counts >= 0"),
        (sht.SparseRegressor(loss="logistic"), Y, "^loss:"),
        (sht.SparseRegressor(loss=sht.Logistic()), Y, "^loss:"),
        (sht.SparseClassifier(loss=sht.Squared()), LABELS, "^loss:"),
        (sht.SparseClassifier(), spoiled(LABELS, np.nan), "y contains NaN"),
        (sht.SparseClassifier(), Y, "^y: .*Unknown label type"),
        (sht.SparseClassifier(), np.array(["a", None] * 10, object), "^y: "),
        (sht.SparseClassifier(), np.zeros(20), "^y: .*one class"),
        (
            sht.SparseClassifier(class_weight={0: 0, 1: 1, 2: 1}),
            np.arange(20) % 3,
            "^y: class .*0.* no positive weight",
        ),
        (sht.SparseClassifier(class_weight={0: 1, 1: -1}), LABELS.astype(int), "^class_weight"),
        (
            sht.SparseClassifier(class_weight={0: 1, 1: 0}),
            LABELS.astype(int),
            "^y: only one class has positive",
        ),
    ],
)
def test_targets(estimator, y, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y)


def test_hinge_needs_a_solver_without_refits():
    with pytest.raises(TypeError, match="solver"):
        sht.SparseClassifier(loss="hinge", solver="htp").fit(X, LABELS)


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
    assert len(warned) == 1 and "add l2" in str(warned[0].message)
    assert finite(model) and model.result_ == "singular"
    np.testing.assert_allclose(model.coef_[0], model.coef_[1], rtol=1e-9)
    noisy = LABELS ^ (np.arange(20) == X[:, 0].argmax())
    with pytest.warns(ConvergenceWarning, match="singular"):
        assert finite(sht.SparseClassifier(k=2, l2=0, solver="htp").fit(duplicated, noisy))


def test_one_sample():
    model = sht.SparseRegressor(k=1, solver="htp").fit([[1.0, 2.0]], [3.0])
    assert finite(model)
    np.testing.assert_allclose(model.predict([[1.0, 2.0]]), 3.0)
    with pytest.raises(ValueError, match="class"):
        sht.SparseClassifier().fit([[1.0, 2.0]], ["a"])


def test_a_whole_number_is_an_integer():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4)).astype(np.float32)
    y = X[:, 0] - X[:, 2]
    fits = [sht.SparseRegressor(k=k, solver="htp").fit(X, y) for k in (2, 2.0, np.float32(2))]
    assert all(fit.k_ == 2 and np.array_equal(fit.coef_, fits[0].coef_) for fit in fits)
    assert int(sht.Sparsity(2.0).k) == 2 and sht.Sparsity(2.0).k.dtype == np.int32
    for k in (np.inf, np.nan, -1.0):
        for bad in (lambda k=k: sht.SparseRegressor(k=k).fit(X, y), lambda k=k: sht.Sparsity(k)):
            with pytest.raises(ValueError, match="k: must be"):
                bad()


COUNTS = np.arange(20) % 3
SURVIVAL = np.column_stack([np.arange(1.0, 21.0), np.arange(20) % 2])


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


TOO_MANY = [
    (sht.SparseRegressor(2, solver="htp"), Y, {"k": 6}),
    slow(sht.SparseRegressor(2, loss="negative_binomial", solver="htp"), COUNTS, {"keep": [7]}),
    slow(sht.SparseRegressor(2), np.column_stack([Y, -Y]), {"k": 6}),
    (sht.SparseClassifier(2, solver="htp"), LABELS, {"k": 6}),
    slow(sht.SparseOrdinal(2), COUNTS, {"k": 6}),
    slow(sht.SparseCox(2), SURVIVAL, {"k": 6}),
    (sht.LowRankRegressor(1), np.column_stack([Y, -Y]), {"r": 6}),
    (sht.SparsePrecision(2), None, {"k": 12}),
    slow(sht.SparseLDA(2), COUNTS, {"k": 12}),
    (sht.SparsePCA(1, 2), None, {"k": 6}),
    slow(sht.RobustPCA(1, 2), None, {"rank": 6}),
]


@pytest.mark.parametrize(("model", "y", "wrong"), TOO_MANY, ids=lambda value: type(value).__name__)
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(model, y, wrong):
    names = ["a", "b", "c"]
    model.fit(pd.DataFrame(X, columns=names), y)
    model.set_params(**wrong)
    before = dict(vars(model))
    wide = pd.DataFrame(np.column_stack([X, X[:, 0] ** 2]), columns=[*names, "d"])
    with pytest.raises(ValueError):
        model.fit(wide, y)
    assert vars(model).keys() == before.keys() and all(vars(model)[name] is before[name] for name in before)


def test_all_estimators_take_back_a_fit_that_fails():
    kinds = [getattr(sht, name) for name in sht.__all__]
    kinds = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseEstimator)]
    assert len(kinds) >= 9
    for kind in kinds:
        assert kind.fit.__code__ is all_or_nothing(lambda self: self).__code__, kind


def test_a_warning_that_is_an_error_is_a_fit_that_fails_and_warnings_name_the_line():
    model = sht.SparseRegressor(1, solver="htp").fit(X, Y)
    coef, statement = model.coef_, sht.SparseRegressor(1, solver="htp").fit(X, Y).certificate_.statement
    duplicated = np.column_stack([X[:, 0], X[:, 0]])
    model.set_params(k=2, l2=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises(ConvergenceWarning, match="singular"):
            model.fit(duplicated, Y)
    assert model.coef_ is coef and model.certificate_.statement == statement
    with pytest.warns(ConvergenceWarning, match="singular") as warned:
        model.fit(duplicated, Y)
    with pytest.warns(UserWarning, match="cv: 4 folds") as fewer:
        sht.SparseRegressor([1], l2=[0.1, 1], cv=5).fit(X[:4], Y[:4])
    assert {each.filename for each in (*warned, *fewer)} == {__file__}
