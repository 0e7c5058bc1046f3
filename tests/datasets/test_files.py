"""Every format loads, and every malformed file gets one sentence."""

import numpy as np
import pytest

from sparsehtp.datasets import load_file

X = np.array([[1.5, 0.0, -2.0], [0.0, 3.25, 1e-3]])
Y = np.array([1.0, -1.0])


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_csv(tmp_path):
    path = write(tmp_path / "a.csv", 'a,t,"b,1",c\n1.5,1,0,-2\n\n0,-1,3.25,1e-3\n')
    data = load_file(path, "t")
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, Y)
    assert (data.feature_names, data.target_name) == (["a", "b,1", "c"], "t")
    assert data.X.dtype == np.float64


def test_csv_with_text_labels_and_byte_order_mark(tmp_path):
    data = load_file(write(tmp_path / "a.csv", "\ufefft,a\nyes,1\nno,2\n"), "t")
    assert data.y.tolist() == ["yes", "no"]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("suffix", [".libsvm", ".svm", ".svmlight", ".txt"])
def test_libsvm(tmp_path, first, suffix):
    text = f"1 {first}:1.5 {first + 2}:-2 # note\n-1 {first + 1}:3.25 {first + 2}:1e-3\n"
    path = write(tmp_path / f"a{suffix}", text)
    data = load_file(path)
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, Y)
    assert data.feature_names[0] == f"x{first}"
    assert load_file(path, n_features=5).X.shape == (2, 5)


@pytest.mark.parametrize("target", [None, "z"])
def test_npz(tmp_path, target):
    np.savez(tmp_path / "a.npz", X=X.astype(np.float32), y=Y, z=Y, feature_names=["a", "b", "c"])
    data = load_file(tmp_path / "a.npz", target)
    np.testing.assert_allclose(data.X, X, rtol=1e-7)
    np.testing.assert_array_equal(data.y, Y)
    assert data.feature_names == ["a", "b", "c"]


TEXTS = {
    "extension": ("a.xlsx", "a,t\n1,2\n", {"target": "t"}, r"'\.xlsx'.*use \.csv"),
    "no target": ("a.csv", "a,t\n1,2\n", {}, "target: is needed.*a, t"),
    "missing target": (
        "a.csv",
        ",".join(f"c{i}" for i in range(12)) + "\n" + ",".join("1" * 12) + "\n",
        {"target": "t"},
        "'t'.*c0, .*c7 and 4 more",
    ),
    "text column": ("a.csv", "a,t\nred,2\n", {"target": "t"}, "'a'.*not numeric.*'red'.*encode"),
    "NaN": ("a.csv", "a,b,t\n1,,2\n3,4,5\n", {"target": "t"}, "'b'.*missing"),
    "infinite": ("a.csv", "a,b,t\n1,inf,2\n3,4,5\n", {"target": "t"}, "'b'.*infinite"),
    "NaN target": ("a.csv", "a,t\n1,\n3,4\n", {"target": "t"}, "target 't'.*missing"),
    "long line": ("a.csv", "a,t\n1,2\n1,2,3\n", {"target": "t"}, "line 3 .*3 fields.*has 2"),
    "all lines long": ("a.csv", "a,t\n1,2,3\n", {"target": "t"}, "line 2 .*3 fields.*has 2"),
    "short line": ("a.csv", "a,t\n1\n", {"target": "t"}, "line 2 .*1 fields.*has 2"),
    "no header": ("a.csv", "1,2\n3,4\n", {"target": "t"}, "header"),
    "no rows": ("a.csv", "a,t\n", {"target": "t"}, "0 rows"),
    "no features": ("a.csv", "t\n1\n", {"target": "t"}, "0 features"),
    "empty": ("a.csv", "", {"target": "t"}, "is empty"),
    "blank": ("a.csv", "\n\n", {"target": "t"}, "is empty"),
    "feature count": ("a.csv", "a,t\n1,2\n", {"target": "t", "n_features": 3}, "n_features: is 3"),
    "libsvm empty": ("a.svm", "", {}, "is empty"),
    "libsvm target": ("a.svm", "1 1:2\n", {"target": "t"}, "target: .*leave target out"),
    "libsvm no colon": ("a.svm", "1 1:2 3\n", {}, "line 1 .*'label index:value"),
    "libsvm no value": ("a.svm", "1 1:2\n1 1:2 3:\n", {}, "line 2 .*perhaps cut off"),
    "libsvm label": ("a.svm", "spam 1:2\n", {}, "line 1 "),
    "libsvm order": ("a.svm", "1 2:2 1:3\n", {}, "not a valid LIBSVM file"),
    "libsvm NaN": ("a.svm", "1 1:2 2:nan\n", {}, "'x2'.*missing"),
    "libsvm width": ("a.svm", "1 1:2 9:1\n", {"n_features": 3}, "n_features: is 3.*index 9"),
    "libsvm dense": ("a.svm", "1 1:2 99999999:1\n", {}, "763 MiB.*256 MiB"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_bad_text(tmp_path, name):
    file, text, arguments, message = TEXTS[name]
    with pytest.raises(ValueError, match=message) as caught:
        load_file(write(tmp_path / file, text), **arguments)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_not_utf8(tmp_path):
    (tmp_path / "a.csv").write_bytes("größe,t\n1,2\n".encode("latin-1"))
    with pytest.raises(ValueError, match="UTF-8"):
        load_file(tmp_path / "a.csv", "t")


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path: there is no file .*a\.csv"):
        load_file(tmp_path / "a.csv", "t")


ARRAYS = {
    "pickled": ({"X": X, "y": np.array([1, "a"], object)}, None, "pickled"),
    "no X": ({"y": Y}, None, "path: .*'X'"),
    "no y": ({"X": X, "z": Y}, None, "target: .*'y'.*it has X, z"),
    "no target": ({"X": X, "y": Y}, "t", "target: .*'t'"),
    "shape of X": ({"X": X[0], "y": Y}, None, "two dimensions"),
    "complex X": ({"X": X + 1j, "y": Y}, None, "real numbers"),
    "length of y": ({"X": X, "y": Y[:1]}, None, r"needs shape \(2,\)"),
    "names": ({"X": X, "y": Y, "feature_names": ["a"]}, None, "1 names for 3"),
    "NaN": ({"X": X * [1, np.nan, 1], "y": Y}, None, "'x1'.*missing"),
    "empty": ({"X": X[:0], "y": Y[:0]}, None, "0 rows"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_bad_arrays(tmp_path, name):
    arrays, target, message = ARRAYS[name]
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load_file(tmp_path / "a.npz", target)


def test_truncated_npz(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:200])
    with pytest.raises(ValueError, match="damaged"):
        load_file(tmp_path / "b.npz")
