"""Models and results survive a file, bit for bit, and bad files say what is wrong."""

import json
import pathlib
import re
import subprocess
import sys
import tracemalloc
import zipfile

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import sparsehtp as sht
from sparsehtp import _save

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 5))
Y = X[:, 1] - 2 * X[:, 3] + 0.1 * RNG.standard_normal(40)
MANIFEST = {"format": "sparsehtp", "version": 1, "model": 1}


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
        first, second = (dict(sorted((each.__getstate__() or {}).items())) for each in (a, b))
        assert_same(first, second)
    else:
        assert a == b or a != a


def trip(value, tmp_path):
    path = tmp_path / "model.npz"
    assert sht.save(value, path) == path
    assert [each.name for each in tmp_path.iterdir()] == ["model.npz"]
    return sht.load(path)


def unpack(path):
    """The manifest and the arrays of a file."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(arrays.pop("manifest").tobytes()), arrays


def pack(path, content, arrays):
    with path.open("wb") as file:
        np.savez_compressed(file, manifest=np.frombuffer(json.dumps(content).encode(), np.uint8), **arrays)


def test_a_regressor_predicts_the_same_in_another_process(tmp_path):
    frame = pd.DataFrame(X, columns=["age", "Größe", "b mi", "bp", "s1"])
    model = sht.SparseRegressor(k=2, solver=sht.solvers.HTP()).fit(frame, Y)
    again = trip(model, tmp_path)
    assert_same(model, again)
    assert again.get_feature_names_out().tolist() == model.get_feature_names_out().tolist()
    code = "import sys, sparsehtp as sht; print(sht.load(sys.argv[1]).coef_.tolist())"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "model.npz"], capture_output=True, check=True)
    assert json.loads(done.stdout) == model.coef_.tolist()


def test_a_solution_without_its_state(tmp_path):
    with jax.enable_x64(True):
        model = sht.LinearModel(X, Y, l2=0.1)
        solution = sht.solve(model, sht.Sparsity(2), sht.solvers.HTP())
    again = trip(solution, tmp_path)
    assert again.state is None and again.x.dtype == jnp.float64
    assert_same(solution._replace(state=None), again)
    with jax.enable_x64(True):
        warm = sht.solve(model, sht.Sparsity(2), sht.solvers.HTP(), x0=again)
        np.testing.assert_allclose(warm.x, solution.x, rtol=1e-5)


def test_results_and_plain_data(tmp_path):
    values = {
        "support": sht.results.Support(np.arange(3), np.array([True, False, True])),
        "parts": [sht.LinearModel(X, Y), sht.Sparsity(2, keep=[1]), sht.SparseRegressor(loss=sht.losses.Huber(0.5))],
        "certificate": sht.results.Certificate(1.0, None, None, 0.5, (None, 3), True, None, "a sentence"),
        2: (None, True, 7, 0.1, float("inf"), float("nan"), "text", np.float32(0.1), np.zeros((0, 3))),
        "scores": sht.cross_validate(sht.LinearModel(X, Y), ks=[0, 1, 2], folds=2, solver=sht.solvers.HTP()),
        "key": jax.random.split(jax.random.key(3, impl="rbg"), 2),
        "dates": np.array(["2020-01-01"], "datetime64[D]"),
    }
    assert_same(values, trip(values, tmp_path))


def test_what_cannot_be_saved(tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(b"precious")
    model = sht.SparseRegressor(solver=sht.solvers.IHT(sht.steps.ScheduleStep(np.sqrt)))
    cases.refused(TypeError, r"^model\.solver\.step_rule\.\w+: cannot save", lambda: sht.save(model, path))
    with pytest.raises(TypeError, match=r"^model\['a'\]\[1\]: cannot save a DataFrame"):
        sht.save({"a": [1, pd.DataFrame()]}, path)
    cases.refused(TypeError, "cannot save Squared", lambda: sht.save(sht.losses.Squared, path))
    cases.refused(ValueError, r"^model\['x'\]: is traced", lambda: jax.jit(lambda x: sht.save({"x": x}, path))(1.0))
    cases.refused(OSError, "path: cannot write", lambda: sht.save(1, tmp_path / "none" / "model.npz"))
    cases.refused(OSError, "path: cannot write", lambda: sht.save(1, path / "model.npz"))
    assert path.read_bytes() == b"precious" and len(list(tmp_path.iterdir())) == 1


def test_bad_files(tmp_path):
    path = tmp_path / "model.npz"
    cases.refused(FileNotFoundError, "path: there is no file", lambda: sht.load(path))
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
    cases.refused(ValueError, "damaged", lambda: sht.load(path))
    calls = [{"object": [name, {}]} for name in ("solve", "np", "SolveError", "nothing", "Support")]
    for changes in ({"format": "other"}, *({"model": call} for call in calls)):
        pack(path, MANIFEST | changes, {})
        with pytest.raises(ValueError, match="damaged"):
            sht.load(path)
    pack(path, MANIFEST | {"version": 2, "model": {"unheard": "of"}}, {})
    cases.refused(ValueError, "newer version", lambda: sht.load(path))
    pack(path, MANIFEST, {})
    assert sht.load(path) == 1


# --- files by others -------------------------------------------------------------------------------------------------
THREE = np.digitize(Y, [-1, 1])
MANY = np.column_stack([Y, -Y, X[:, 0]])


def labelled(labels):
    """A classifier that knows its labels by name, in its weights too."""
    model = sht.SparseClassifier(2, class_weight=dict(zip(labels.tolist(), (2.0, 1.0), strict=True)), solver="htp")
    return model.fit(X.astype(np.float32), labels[(Y > 0).astype(int)])


ESTIMATORS = {
    "regressor": lambda: sht.SparseRegressor(2, solver="htp").fit(X, Y),
    "ridge": lambda: sht.SparseRegressor(2, l2=np.full(5, 0.1), solver="htp").fit(X, Y),
    "pandas": lambda: (
        sht.SparseRegressor(2, solver="htp")
        .fit(pd.DataFrame(X, columns=list("abcde")), Y)
        .set_output(transform="pandas")
    ),
    "prices": lambda: sht.SparseRegressor(l0=0.05, l1=0.01).fit(X, Y),
    "path": lambda: sht.SparseRegressor("ebic", solver="htp").fit(X, Y),
    "classifier": lambda: sht.SparseClassifier(2, solver="htp").fit(X, Y > 0),
    "objects": lambda: labelled(np.array(["nein", "já"], object)),
    "integers": lambda: labelled(np.array([3, 7])),
    "classes": lambda: sht.SparseClassifier(2, solver="htp").fit(
        X.astype(np.float32), np.array(["a", "b", "c"])[THREE]
    ),
    "softmax": lambda: sht.SparseClassifier(2, loss="softmax").fit(X, THREE),
    "no intercepts": lambda: sht.SparseClassifier(2, loss="softmax", fit_intercept=False).fit(X, THREE),
    "lda": lambda: sht.SparseLDA(2).fit(X, THREE),
    "lda of two classes": lambda: sht.SparseLDA(2).fit(X, Y > 0),
    "precision": lambda: sht.SparsePrecision(2).fit(X),
    "precomputed": lambda: sht.SparsePrecision(2, covariance="precomputed").fit(np.cov(X.T)),
    "low rank": lambda: sht.LowRankRegressor(1).fit(X, MANY),
    "one response": lambda: sht.LowRankRegressor(1, fit_intercept=False).fit(X, Y),
    "sparse components": lambda: sht.SparsePCA(2, 3).fit(X),
    "low rank and sparse": lambda: sht.RobustPCA(2, 6).fit(X),
    "cox": lambda: sht.SparseCox(2, solver="htp").fit(X, np.column_stack([np.abs(Y), Y > -1])),
    "ordinal": lambda: sht.SparseOrdinal(2, solver="htp").fit(X, THREE),
    "rank 0": lambda: sht.LowRankRegressor(0).fit(X, MANY),
}


def refused(path):
    """One sentence, whatever is in the file."""
    with pytest.raises(ValueError, match=r"^path: [^\n]*\.$") as caught:
        sht.load(path)
    return str(caught.value)


SLOW = ("no intercepts", "classes", "lda of two classes", "cox")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in ESTIMATORS]
)
def test_an_estimator_is_taken_as_it_was_fitted_and_in_no_other_shape(tmp_path, name):
    path = tmp_path / "model.npz"
    model = ESTIMATORS[name]()
    again = trip(model, tmp_path)
    assert_same(model, again)
    for predicting in ("predict", "predict_proba"):
        if hasattr(model, predicting):
            np.testing.assert_array_equal(getattr(again, predicting)(X), getattr(model, predicting)(X))
    assert_same(type(model)(), trip(type(model)(), tmp_path))
    sht.save(model, path)
    content, arrays = unpack(path)
    kind, fields = content["model"]["object"]

    def message(changed, arrays=arrays):
        pack(path, {**content, "model": {"object": [kind, changed]}}, arrays)
        return refused(path)

    for field in ("predict", "__dict__", "__class__", "_decision", "coefs_"):
        assert f"has no attribute '{field}'" in message({**fields, field: 1})
    fitted = {field: value for field, value in fields.items() if field.endswith("_")}
    declared = {name for name in _save._fitted_attributes(type(model)) if name.endswith("_")}
    assert declared - _save._OPTIONAL <= fitted.keys()
    for field, value in fitted.items():
        assert f"'{field}' of {kind} is tuple, which does not suit" in message({**fields, field: {"tuple": []}})
        if field != "feature_names_in_":
            rest = {other: fields[other] for other in fields if other != field}
            assert f"'{field}' of {kind} is missing" in message(rest)
        if isinstance(value, dict) and "numpy" in value:
            array = arrays[value["numpy"]]
            others = {
                "axis": array[..., None],
                "axes": array[None, None],
                "text": array.astype("U9"),
                "length": np.concatenate([array, array[:1]]),
            }
            fine = {"text"} if field in ("classes_", "levels_", "strata_") else {"length"} if array.size == 0 else set()
            for what in others.keys() - fine:
                assert "which does not suit" in message(fields, {**arrays, value["numpy"]: others[what]}), what
    model.note = "mine"
    with pytest.raises(TypeError, match=r"^model: cannot be saved, since \w+ has no attribute 'note'; remove it"):
        sht.save(model, path)


def test_fields_of_results_are_theirs(tmp_path):
    path = tmp_path / "model.npz"
    for value in (sht.Sparsity(2), sht.results.Support(np.arange(2), np.ones(2, bool)), sht.losses.Huber(0.5)):
        sht.save(value, path)
        content, arrays = unpack(path)
        kind, fields = content["model"]["object"]
        for name in ("__class__", "value", "__init__", "k_"):
            pack(path, {**content, "model": {"object": [kind, {**fields, name: 1}]}}, arrays)
            assert f"has no attribute '{name}'" in refused(path)
        fields.pop(next(iter(fields)))
        pack(path, content, arrays)
        refused(path)


def test_a_small_file_takes_little_memory(tmp_path):
    path = tmp_path / "model.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("a0.npy", "w", force_zip64=True) as member:
            header = {"descr": "|u1", "fortran_order": False, "shape": (2**30 + 1,)}
            np.lib.format.write_array_header_1_0(member, header)
            for _ in range(2**6):
                member.write(bytes(2**24))
            member.write(b"0")
    assert path.stat().st_size < 2**23
    tracemalloc.start()
    assert "1024 MiB, more than the limit of 1024 MiB; raise max_bytes" in refused(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("a0.npy", "w") as member:  # a header that claims gigabytes for itself
            member.write(b"\x93NUMPY\x02\x00\xff\xff\xff\xff")
            for _ in range(2**4):
                member.write(bytes(2**24))
    assert "damaged" in refused(path)
    np.savez_compressed(path, manifest=np.zeros(2**25 + 1, np.uint8))
    assert "more than the limit of 32 MiB" in refused(path)
    assert tracemalloc.get_traced_memory()[1] < 2**27
    tracemalloc.stop()
    pack(path, MANIFEST | {"model": {"list": [{"jax": "a0"}] * 9}}, {"a0": np.zeros(9)})  # one array, many copies
    assert "damaged" in refused(path)
    sht.save(np.zeros(1000), path)
    cases.refused(ValueError, "raise max_bytes", lambda: sht.load(path, max_bytes=1000))


@pytest.mark.parametrize("seed", [2, *(pytest.param(each, marks=pytest.mark.later) for each in {*range(10)} - {2})])
def test_damaged_manifests(tmp_path, seed):
    """Whatever a manifest holds, the file is loaded or refused in one sentence."""
    rng = np.random.default_rng(seed)
    path = tmp_path / "model.npz"
    classifier = sht.SparseClassifier(2, solver="htp").fit(X, Y > 0)
    sht.save([classifier, sht.Sparsity(2), jax.random.key(0), {1: (np.float32(2),)}], path)
    content, arrays = unpack(path)
    text = json.dumps(content).encode()
    for _ in range(100):
        bad = bytearray(text)
        for place in rng.integers(len(text), size=rng.integers(1, 4)):
            bad[place] = rng.choice(list(b'0123456789"[]{},:aep_ null'))
        np.savez(path, manifest=np.frombuffer(bytes(bad), np.uint8), **arrays)
        try:
            sht.load(path)
        except ValueError as error:
            assert re.fullmatch(r"path: .*\.", str(error))


def test_npz_files_have_one_reader():
    package = pathlib.Path(sht.__file__).parent
    readers = {path.name for path in package.rglob("*.py") if "np.load(" in path.read_text(encoding="utf-8")}
    assert readers == {"npz.py"}
