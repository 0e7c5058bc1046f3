"""What an estimator says of its fit does not depend on what was read before, and no copy of it holds the data."""

import copy
import pickle

import cases
import joblib
import numpy as np
import pytest
from sklearn.base import clone

import sparsehtp as sht
from sparsehtp.estimators.base import _rounded

RNG = np.random.default_rng(3)
X = RNG.standard_normal((60, 6))
X[:, 2] = X[:, 0] + X[:, 1] + 0.3 * RNG.standard_normal(60)  # what a greedy search takes first
Y = X[:, 0] + X[:, 1] + 0.05 * RNG.standard_normal(60)
TIME = np.column_stack([np.exp(-Y + 0.3 * RNG.standard_normal(60)), RNG.random(60) < 0.8])
CLASS = np.digitize(Y, [-0.5, 0.5])
SETTINGS = {"k": 2, "l2": 1e-3, "solver": "forward"}
FITS = {
    "one response": (sht.SparseRegressor(**SETTINGS), Y),
    "k by folds": (sht.SparseRegressor([1, 2], l2=1e-3, solver="forward", cv=3, rule="best"), Y),
    "several responses": (sht.SparseRegressor(2, l2=1e-3, solver="htp"), np.column_stack([Y, X[:, 3] - Y])),
    "several classes": (sht.SparseClassifier(**SETTINGS), CLASS),
    "softmax": (sht.SparseClassifier(2, l2=1e-3, solver="htp", loss="softmax"), CLASS),
    "Cox": (sht.SparseCox(**SETTINGS), TIME),
    "ordinal": (sht.SparseOrdinal(**SETTINGS), CLASS),
}
READ = ("certificate_", "swaps_", "exchangeable_")


def ask(model, name):
    """What the model says, without times."""
    if name != "prove":
        return getattr(model, name)
    try:
        proofs = model.prove(30)
    except TypeError as error:
        return str(error)
    proofs = proofs if isinstance(proofs, list) else [proofs]
    return [(each.x, each.intercept, each.upper) for each in proofs]


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow] * (each in ("softmax", "Cox", "ordinal"))) for each in FITS],
)
def test_answers_in_any_order(name):
    model, y = FITS[name]
    model = clone(model).fit(X, y)
    fitted = dict(vars(model))

    def fresh(state=fitted):
        vars(model).clear()
        vars(model).update(state)
        return model

    chosen = {each: ask(fresh(), each) for each in READ}  # of the chosen features, each read alone
    proof = ask(fresh(), "prove")
    proved = dict(vars(model))
    if name in ("one response", "several classes"):  # and what was proved is the model
        for i, each in enumerate(("coef_", "intercept_")):
            assert np.shape(proved[each]) == np.shape(fitted[each])
            np.testing.assert_allclose(np.ravel(proved[each]), np.ravel([row[i] for row in proof]), 1e-4, 1e-5)
    # A proof that finds better features makes them the model's, and what is read then is about those.
    of_proved = {each: ask(fresh(proved), each) for each in READ} | {"prove": proof}
    assert chosen["certificate_"] is not None
    assert (name == "k by folds") == (chosen["exchangeable_"] is not None)
    if name == "one response":  # the proof does change something
        assert chosen["certificate_"].swap_gain > 0 == of_proved["certificate_"].swap_gain
        assert fitted["support_"][2] and not model.support_[2]
    asked = [*READ, "prove"]
    for order in ([*asked[i:], *asked[:i]] for i in range(len(asked))):
        model, now = fresh(), chosen
        for each in (*order, *order[::-1], *order):  # twice in a row, and again after all the others
            now = of_proved if each == "prove" else now
            np.testing.assert_equal(ask(model, each), now[each], err_msg=f"{each} of {order}")


TWO = np.where(60 * Y + RNG.logistic(size=60) > 0, "b", "a")


@pytest.mark.parametrize("y", [Y, pytest.param(TWO, marks=pytest.mark.slow)], ids=["one response", "two classes"])
def test_prove_replaces_what_is_not_the_best(y):
    kind = sht.SparseRegressor if y is Y else sht.SparseClassifier
    model = kind(**SETTINGS).fit(X, y)
    assert model.support_[2]  # the greedy choice
    assert model.prove(30).proved
    np.testing.assert_array_equal(np.flatnonzero(model.support_), [0, 1])
    best, tol = kind(2, l2=1e-3).fit(X, y), 1e-8 if y is Y else 1e-4
    for name in ("coef_", "intercept_", "objective_value_"):
        np.testing.assert_allclose(getattr(model, name), getattr(best, name), tol, atol=tol / 100, err_msg=name)
    assert model.certificate_.swap_gain == 0 and model.certificate_.stationary
    again = best.prove(20, collect=1.5)
    assert again.proved and again.collected is not None and best.certificate_.swap_gain == 0
    if y is Y:
        chosen = sht.SparseRegressor(**SETTINGS).fit(X, y)
        chosen.refit_l2_ = 0.1  # as where l2 is chosen too
        assert chosen.prove(20).proved
        refitted = sht.SparseRegressor(k=2, l2=0.1).fit(X[:, :2], y)
        np.testing.assert_allclose(chosen.coef_, [*refitted.coef_, 0, 0, 0, 0], atol=1e-12)
        positive = sht.SparseRegressor(k=2, positive=True).fit(X, y)
        cases.refused(TypeError, "threshold: a proof needs", lambda: positive.prove(1))
        cases.refused(ValueError, "time_limit: must be a positive number", lambda: chosen.prove(0))


def test_an_intercept_makes_up_for_rounded_coefficients(x64):
    """At the means of the columns: far from zero, what rounding moves there is large."""
    far, x = X + 1e4, np.linspace(0.1, 0.7, 6)
    w, intercept = _rounded(sht.LinearModel(far, Y, fit_intercept=True), x, 2.0, np.float32)
    assert w.dtype == np.float32
    np.testing.assert_allclose(far.mean(0) @ w.astype(float) + intercept, far.mean(0) @ x + 2, rtol=1e-10)


def test_copies_pickles_and_files_leave_out_the_data(tmp_path):
    model, y = FITS["one response"]
    model = clone(model).fit(X, y)
    column = np.asarray(model._evidence.fits[0][0].columns.design.array)[0].copy()
    assert column.tobytes() in pickle.dumps(column) and column.tobytes() not in pickle.dumps(model)
    sht.save(model, tmp_path / "model.npz")
    joblib.dump(model, tmp_path / "model.joblib")
    copies = copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    for each in (*copies, joblib.load(tmp_path / "model.joblib"), sht.load(tmp_path / "model.npz")):
        assert vars(each).keys() == vars(model).keys() - {"_evidence"}
        assert each.certificate_ is each.swaps_ is each.exchangeable_ is None
        np.testing.assert_array_equal(each.predict(X), model.predict(X))
        with pytest.raises(ValueError, match="prove: copies, pickles and files of an estimator leave out the training"):
            each.prove()
    assert model.swaps_ is not None and model.certificate_ is not None
    np.testing.assert_equal(copy.copy(model).certificate_, model.certificate_)
    assert clone(model)._evidence is None


def test_a_copy_is_not_changed_by_a_proof():
    model, y = FITS["several classes"]
    model = clone(model).fit(X, y)
    twin = copy.copy(model)
    before = copy.deepcopy(vars(twin))
    model.prove(30)
    np.testing.assert_equal(vars(twin), before)
