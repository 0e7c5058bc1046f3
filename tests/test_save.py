"""Models and results survive a file, bit for bit, and bad files say what is wrong."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import sparsehtp as sht

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 5))
Y = X[:, 1] - 2 * X[:, 3] + 0.1 * RNG.standard_normal(40)
LABELS = {
    "strings": np.array(["no", "yes"]),
    "objects": np.array(["nein", "já"], object),
    "integers": np.array([3, 7]),
    "booleans": np.array([False, True]),
}


def assert_same(a, b):
    """Equal in type, dtype and value, through all that can be saved."""
    assert type(a) is type(b)
    if isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        assert jax.random.key_impl(a) == jax.random.key_impl(b)
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    if isinstance(a, np.ndarray | np.generic | jax.Array):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, tuple | list):
        assert len(a) == len(b)
        for first, second in zip(a, b, strict=True):
            assert_same(first, second)
    elif hasattr(a, "__dict__"):
        first, second = (dict(sorted(vars(each).items())) for each in (a, b))
        assert_same(first, second)
    else:
        assert a == b or a != a


def trip(value, tmp_path):
    path = tmp_path / "model.npz"
    assert sht.save(value, path) == path
    assert [each.name for each in tmp_path.iterdir()] == ["model.npz"]
    return sht.load(path)


def test_a_regressor_predicts_the_same_in_another_process(tmp_path):
    frame = pd.DataFrame(X, columns=["age", "Größe", "b mi", "bp", "s1"])
    model = sht.SparseRegressor(k=2, solver=sht.HTP()).fit(frame, Y)
    again = trip(model, tmp_path)
    assert_same(model, again)
    np.testing.assert_array_equal(model.predict(frame), again.predict(frame))
    assert again.get_feature_names_out().tolist() == model.get_feature_names_out().tolist()
    code = "import sys, sparsehtp as sht; print(sht.load(sys.argv[1]).coef_.tolist())"
    path = str(tmp_path / "model.npz")
    out = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == model.coef_.tolist()


@pytest.mark.parametrize("name", LABELS)
def test_a_classifier_keeps_its_labels(tmp_path, name):
    y = LABELS[name][(Y > 0).astype(int)]
    weight = {LABELS[name].tolist()[0]: 2.0, LABELS[name].tolist()[1]: 1.0}
    model = sht.SparseClassifier(k=2, class_weight=weight).fit(X.astype(np.float32), y)
    again = trip(model, tmp_path)
    assert_same(model, again)
    assert again.predict(X).tolist() == model.predict(X).tolist()
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_solution_without_its_state(tmp_path):
    with jax.enable_x64(True):
        model = sht.LinearModel(X, Y, l2=0.1)
        solution = sht.solve(model, sht.Sparsity(2), sht.HTP())
    again = trip(solution, tmp_path)
    assert again.state is None and again.x.dtype == jnp.float64
    assert_same(solution._replace(state=None), again)
    with jax.enable_x64(True):
        warm = sht.solve(model, sht.Sparsity(2), sht.HTP(), x0=again)
        np.testing.assert_allclose(warm.x, solution.x, rtol=1e-5)


def test_results_and_plain_data(tmp_path):
    values = {
        "support": sht.Support(np.arange(3), np.array([True, False, True])),
        "parts": [sht.LinearModel(X, Y), sht.Sparsity(2, keep=[1]), sht.SparseRegressor(loss=sht.Huber(0.5))],
        "certificate": sht.Certificate(1.0, None, None, 0.5, (None, 3), True, None, "a sentence"),
        2: (None, True, 7, 0.1, float("inf"), float("nan"), "text", np.float32(0.1), np.zeros((0, 3))),
        "key": jax.random.split(jax.random.key(3, impl="rbg"), 2),
        "dates": np.array(["2020-01-01"], "datetime64[D]"),
    }
    assert_same(values, trip(values, tmp_path))


def test_a_path_and_its_scores(tmp_path):
    m = sht.LinearModel(X, Y, fit_intercept=True)
    result = sht.cross_validate(m, ks=[0, 1, 2], folds=2, solver=sht.BestSubset("fast"))
    again = trip(result, tmp_path)
    assert_same(result, again)
    np.testing.assert_array_equal(again.path.x, result.path.x)


def test_what_cannot_be_saved(tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(b"precious")
    model = sht.SparseRegressor(solver=sht.IHT(sht.ScheduleStep(np.sqrt)))
    with pytest.raises(TypeError, match=r"^model\.solver\.step_rule\.\w+: cannot save"):
        sht.save(model, path)
    with pytest.raises(TypeError, match=r"^model\['a'\]\[1\]: cannot save a DataFrame"):
        sht.save({"a": [1, pd.DataFrame()]}, path)
    with pytest.raises(TypeError, match="cannot save Squared"):
        sht.save(sht.Squared, path)
    with pytest.raises(ValueError, match=r"^model\['x'\]: is traced"):
        jax.jit(lambda x: sht.save({"x": x}, path))(1.0)
    with pytest.raises(OSError, match="path: cannot write"):
        sht.save(1, tmp_path / "none" / "model.npz")
    with pytest.raises(OSError, match="path: cannot write"):
        sht.save(1, path / "model.npz")
    assert path.read_bytes() == b"precious" and len(list(tmp_path.iterdir())) == 1


def manifest(path, **changes):
    content = {"format": "sparsehtp", "version": 1, "model": 1, **changes}
    with path.open("wb") as file:
        np.savez(file, manifest=np.frombuffer(json.dumps(content).encode(), np.uint8))


def test_bad_files(tmp_path):
    path = tmp_path / "model.npz"
    with pytest.raises(FileNotFoundError, match="path: there is no file"):
        sht.load(path)
    sht.save({"a": np.arange(1000.0)}, path)
    good = path.read_bytes()
    damaged = bytearray(good)
    damaged[len(good) // 3] ^= 0xFF
    for content in (b"", b"text", good[: len(good) // 2], bytes(damaged)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="damaged, or was not written"):
            sht.load(path)
    for array in (np.arange(3), np.array([{}], object)):
        np.save(path.with_suffix(".npy"), array)
        with pytest.raises(ValueError, match="damaged"):
            sht.load(path.with_suffix(".npy"))
    np.savez(path, x=1)
    with pytest.raises(ValueError, match="damaged"):
        sht.load(path)
    calls = [{"object": [name, {}]} for name in ("solve", "np", "SolveError", "nothing", "Support")]
    for changes in ({"format": "other"}, *({"model": call} for call in calls)):
        manifest(path, **changes)
        with pytest.raises(ValueError, match="damaged"):
            sht.load(path)
    manifest(path, version=2, model={"unheard": "of"})
    with pytest.raises(ValueError, match="newer version"):
        sht.load(path)
    manifest(path)
    assert sht.load(path) == 1
