"""Data as neighbouring libraries have them: array libraries, sparse arrays, polars, and routed metadata."""

import itertools
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import sklearn
from scipy import sparse

import sparsehtp as sht

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 6))
Y = 2 * X[:, 1] - X[:, 4] + 0.5 * RNG.standard_normal(60)
LABELS = (Y > 0).astype(int)
WEIGHTS = RNG.uniform(0.5, 2, 60)
ROWS = np.arange(60) % 6


class Foreign:
    """An array of another library, of which nothing is known but that it follows DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


QUICK = {"k": 2, "solver": "htp"}
ESTIMATORS = {
    "regressor": (sht.SparseRegressor(**QUICK), Y),
    "several responses": (sht.SparseRegressor(**QUICK), np.stack([Y, X[:, 1]], axis=1)),
    "poisson": (sht.SparseRegressor(**QUICK, loss="poisson"), LABELS),
    "classifier": (sht.SparseClassifier(**QUICK), LABELS),
    "low rank": (sht.LowRankRegressor(1), np.stack([Y, X[:, 1]], axis=1)),
    "components": (sht.SparsePCA(1, k=2), None),
}


def answers(estimator, X, y, weights=None):
    """All that an estimator gives for these data, as arrays."""
    options = {} if weights is None else {"sample_weight": weights}
    fitted = sklearn.base.clone(estimator).fit(X, y, **options)
    calls = [fitted.predict(X), fitted.score(X, y, **options)] if hasattr(fitted, "predict") else []
    calls += [fitted.transform(X)] if hasattr(fitted, "transform") else []
    return [*calls, fitted.predict_proba(X)] if hasattr(fitted, "predict_proba") else calls


@pytest.mark.parametrize("name", ESTIMATORS)
def test_arrays_of_another_library(name, x64):
    estimator, y = ESTIMATORS[name]
    data = (X, y, None if name == "components" else WEIGHTS)
    expected = answers(estimator, *data)
    for kind in (Foreign, jnp.asarray):
        given = [each if each is None else kind(each) for each in data]
        for theirs, ours in zip(answers(estimator, *given), expected, strict=True):
            assert isinstance(theirs, np.ndarray | float)
            np.testing.assert_array_equal(theirs, ours)


def test_models_take_arrays_of_another_library(x64):
    given = sht.LinearModel(Foreign(X), Foreign(Y), sample_weight=Foreign(WEIGHTS), offset=Foreign(X[:, 0]))
    ours = sht.LinearModel(X, Y, sample_weight=WEIGHTS, offset=X[:, 0])
    found, expected = (sht.solve(model, sht.Sparsity(2), sht.solvers.HTP()) for model in (given, ours))
    np.testing.assert_array_equal(found.x, expected.x)


DISPATCHED = """
import numpy as np, sklearn, sys, jax
jax.config.update("jax_enable_x64", True)
sklearn.set_config(array_api_dispatch=True)
import jax.numpy as jnp
try:
    import array_api_strict
except ImportError:
    array_api_strict = jnp
sys.path[:0] = sys.argv[1:]
import test_neighbours as t
for name in ("regressor", "classifier"):
    estimator, y = t.ESTIMATORS[name]
    expected = t.answers(estimator, t.X, y, t.WEIGHTS)
    for xp in (jnp, array_api_strict):
        found = t.answers(estimator, xp.asarray(t.X), xp.asarray(y), xp.asarray(t.WEIGHTS))
        [np.testing.assert_array_equal(*pair) for pair in zip(found, expected, strict=True)]
"""


def test_scikit_learn_dispatches_to_array_libraries():
    """SciPy reads at its import whether it may."""
    settings = os.environ | {"SCIPY_ARRAY_API": "1"}
    code = (sys.executable, "-c", DISPATCHED, os.path.dirname(__file__))
    done = subprocess.run(code, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("kind", "index", "options"),
    [
        ("csr", np.int32, {"k": 2, "l2": 1e-2}),
        *itertools.product(["csr", "csc", "coo"], [np.int32, np.int64], [{"k": [1, 2], "cv": 3}]),
    ],
)
def test_sparse_arrays_are_sparse_matrices_and_dense_data(kind, index, options):
    entries = np.where(np.abs(X) > 0.5, X, 0)
    array = getattr(sparse, f"{kind}_array")(entries)
    for name in ("indices", "indptr"):
        if hasattr(array, name):
            setattr(array, name, getattr(array, name).astype(index))
    given = [array, getattr(sparse, f"{kind}_matrix")(entries), entries]
    fits = [sht.SparseRegressor(**options, solver="htp").fit(each, Y, ROWS) for each in given]
    predictions = [fit.predict(each) for fit, each in zip(fits, given, strict=True)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    np.testing.assert_array_equal(*predictions[:2])
    dense = fits[2]
    assert (fits[0].k_, fits[0].l2_) == (dense.k_, dense.l2_)
    np.testing.assert_allclose(fits[0].coef_, dense.coef_, atol=1e-8)
    np.testing.assert_allclose(predictions[0], predictions[2], atol=1e-7)
    if "cv" in options:
        np.testing.assert_allclose(fits[0].cv_results_["scores"], dense.cv_results_["scores"], rtol=1e-7)
    assert fits[0].score(array, Y) == pytest.approx(dense.score(entries, Y), rel=1e-9)
    assert isinstance(fits[0].transform(array), sparse.sparray)


def test_polars_frames():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(X, schema=list("abcdef"))
    model = sht.SparseRegressor(**QUICK).set_output(transform="polars")
    model.fit(frame, pl.Series("y", Y), pl.Series(WEIGHTS))
    ours = sht.SparseRegressor(**QUICK).fit(X, Y, WEIGHTS)
    np.testing.assert_array_equal(model.predict(frame), ours.predict(X))
    assert list(model.get_feature_names_out()) == ["b", "e"]
    assert model.transform(frame).equals(frame.select("b", "e"))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.select(list("fedcba")))
    classes = sht.SparseClassifier(**QUICK).fit(frame, pl.Series("y", np.where(Y > 0, "yes", "no")))
    assert set(classes.predict(frame)) == {"yes", "no"}


def test_a_lazy_frame_is_to_be_collected():
    lazy = pytest.importorskip("polars").LazyFrame(X, schema=list("abcdef"))
    fitted = sht.SparseRegressor(**QUICK).fit(lazy.collect(), Y)
    for what in (
        lambda: sht.SparseRegressor(k=2).fit(lazy, Y),
        lambda: sht.SparseClassifier(k=2).fit(lazy, LABELS),
        lambda: sht.SparsePCA(2).fit(lazy),
        lambda: sht.TablePreprocessor().fit(lazy),
        lambda: sht.LinearModel(lazy, Y),
        lambda: fitted.predict(lazy),
        lambda: fitted.transform(lazy),
    ):
        with pytest.raises(ValueError, match=r"^X: a LazyFrame holds no rows yet; pass its \.collect\(\)\.$"):
            what()
    with pytest.raises(ValueError, match=r"^y: a LazyFrame"):
        fitted.fit(X, lazy.select("a"))


def test_polars_tables_with_texts_and_gaps():
    pl = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    frame = pl.DataFrame({"a": [1.0, None, 3.0, 5.0], "b": ["x", "y", None, "x"]})
    table = sht.TablePreprocessor(missing="mean", dummies=True).set_output(transform="polars")
    made = table.fit_transform(frame)
    assert isinstance(made, pl.DataFrame)
    assert made.to_dict(as_series=False) == {
        "a": [1.0, 3.0, 3.0, 5.0],
        "b=x": [1.0, 0.0, 0.0, 1.0],
        "b=y": [0.0, 1.0, 0.0, 0.0],
    }
