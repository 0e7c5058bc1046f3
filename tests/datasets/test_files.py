"""Every format loads, and every malformed file gets one sentence."""

import bz2
import gzip
import io
import itertools
import pickle
import sys
import time
import zipfile

import cases
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from sparsehtp.cli import lowrank, precision
from sparsehtp.datasets import Shards, load_file, tables

X = np.array([[1.5, 0.0, -2.0], [0.0, 3.25, 1e-3]])
Y = np.array([1.0, -1.0])


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("suffix", [".libsvm", ".svm", ".svmlight", ".txt"])
def test_libsvm(tmp_path, first, suffix):
    text = f"1 {first}:1.5 {first + 2}:-2 # note\n-1 {first + 1}:3.25 {first + 2}:1e-3\n"
    path = write(tmp_path / f"a{suffix}", text)
    data = load_file(path)
    assert data.X.format == "csr" and data.X.indices.dtype == np.int32
    np.testing.assert_array_equal(data.X.toarray(), X)
    np.testing.assert_array_equal(data.y, Y)
    assert data.feature_names[0] == f"x{first}" and list(data.feature_names[1:]) == [f"x{first + 1}", f"x{first + 2}"]
    zero, names = load_file(path, zero_based=True), [f"x{j}" for j in range(3 + first)]
    np.testing.assert_array_equal(zero.X.toarray(), np.pad(X, ((0, 0), (first, 0))))
    assert zero.feature_names == names and zero.feature_names[1:] == names[1:]
    assert all(zero.feature_names != other for other in (names[:-1], [*names[:-1], "x9"], 3))
    assert load_file(path, n_features=5).X.shape == (2, 5)
    assert load_file(path, dtype=np.float32).X.dtype == np.float32


def sparse_arrays(**changes):
    X_sparse = sparse.csr_array(X)
    arrays = {name: getattr(X_sparse, name) for name in ("data", "indices", "indptr")}
    return {**arrays, "shape": np.array(X.shape), "y": Y, **changes}


# An entry is there in two parts.
TWICE = sparse_arrays(data=[1.0, 0.5, -2, 3.25, 1e-3], indices=[0, 0, 2, 1, 2], indptr=[0, 3, 5])


@pytest.mark.parametrize("target", [None, "z"])
@pytest.mark.parametrize("arrays", [sparse_arrays(X=X.astype(np.float32)), TWICE], ids=["dense", "sparse"])
def test_npz(tmp_path, arrays, target):
    escaped = {"../escaped": Y, "scalar": 3.0}  # never written to, and not looked at
    np.savez(tmp_path / "a.npz", **arrays, z=Y, feature_names=["a", "b", "c"], **escaped)
    data = load_file(tmp_path / "a.npz", target)
    assert not list(tmp_path.parent.glob("escaped*"))
    assert sparse.issparse(data.X) == ("X" not in arrays) and sparse.csr_array(data.X).nnz == 4
    np.testing.assert_allclose(sparse.csr_array(data.X).toarray(), X, rtol=1e-7)
    np.testing.assert_array_equal(data.y, Y)
    assert data.feature_names == ["a", "b", "c"]


TEXTS = {
    "extension": ("a.ods", "a,t\n1,2\n", {"target": "t"}, r"'\.ods'.*use \.csv"),
    "no target": ("a.csv", "a,t\n1,2\n", {}, "target: is needed.*a, t"),
    "missing target": ("a.csv", "a,price\n1,2\n", {"target": "Prize"}, "'Prize'.*did you mean 'price'.*a, price"),
    "eight names": ("a.csv", "a,b,c,d,e,f,g,h\n", {}, r"one of a, b, c, d, e, f, g, h\.$"),
    "nine names": ("a.csv", "a,b,c,d,e,f,g,h,i\n", {}, r"one of a, b, c, d, e, f, g, h and 1 more\.$"),
    "text column": ("a.csv", "a,t\n,1\nred,2\n", {"target": "t"}, "'a'.*not numeric.*'red'.*encode"),
    "NaN": ("a.csv", "a,b,t\n1,,2\n3,4,5\n", {"target": "t"}, "'b'.*missing"),
    "NaN target": ("a.csv", "a,t\n1,\n3,4\n", {"target": "t"}, "target 't'.*missing"),
    "long line": ("a.csv", "a,t\n1,2\n1,2,3\n", {"target": "t"}, "line 3 .*3 fields.*has 2"),
    "short line": ("a.csv", "a,t\n1\n", {"target": "t"}, "line 2 .*1 fields.*has 2"),
    "no header": ("a.csv", "1,2\n3,4\n", {"target": "t"}, "header"),
    "no rows": ("a.csv", "a,t\n", {"target": "t"}, "0 rows"),
    "no features": ("a.csv", "t\n1\n", {"target": "t"}, "0 features"),
    "empty": ("a.csv", "", {"target": "t"}, "is empty"),
    "blank": ("a.csv", "\n\n", {"target": "t"}, "is empty"),
    "a zero byte": ("a.csv", "\0", {"target": "t"}, "no column 't'"),
    "feature count": ("a.csv", "a,t\n1,2\n", {"target": "t", "n_features": 3}, "n_features: is 3"),
    "libsvm labels alone": ("a.svm", "1\n-1\n", {}, "2 rows and 0 features"),
    "libsvm target": ("a.svm", "1 1:2\n", {"target": "t"}, "target: .*leave target out"),
    "libsvm no value": ("a.svm", "1 1:2\n1 1:2 3:\n", {}, "line 2 .*'label index:value.*perhaps cut off"),
    "libsvm order": ("a.svm", f"1 {2**27}:2 1:3\n", {}, "indices that do not increase"),
    "libsvm NaN": ("a.svm", "1 1:2 3:nan\n1 2:nan\n", {}, "'x2'.*missing"),
    "libsvm width": ("a.svm", "1 1:2 4:1\n", {"n_features": 3}, "n_features: is 3.*index 4"),
    "libsvm huge dimension": ("a.svm", "1 1:2 999999999:1\n", {}, "index 999999999, more than the limit"),
    "libsvm negative": ("a.svm", "1 -3:2\n", {}, "line 1 "),
    "libsvm size": ("a.svm", "1 1:2\n", {"max_bytes": 5}, "more than the limit"),
    "csv size": ("a.csv", "a,t\n1,2\n", {"target": "t", "max_bytes": 7}, "more than the limit"),
    "libsvm base": ("a.svm", "1 0:2 1:1\n", {"zero_based": False}, "zero_based: is False.*index 0"),
    "ends in another": ("a.csv.bak", "a,t\n1,2\n", {"target": "t"}, r"'\.bak'.*use \.csv"),
    "format": ("a.csv", "a,t\n1,2\n", {"format": "xlsx"}, "format: must be one of csv"),
    "archive": ("a.tar.gz", "x", {}, "extension"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_bad_text(tmp_path, name):
    file, text, arguments, message = TEXTS[name]
    with pytest.raises(ValueError, match=message) as caught:
        load_file(write(tmp_path / file, text), **arguments)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "latin-1"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_and_encodings(tmp_path, separator, encoding):
    """The same table, however it is written; where cells are not cut by commas, a comma may be the decimal sign."""
    for point in "." if separator == "," else ".,":
        rows = [["größe", "b c", "t"], ["1.5", "0", "é"], ["-2e3", "3.25", "no"]]
        text = "\n".join(separator.join(row) for row in rows) + "\n"
        (tmp_path / "a.csv").write_bytes(text.replace(".", point).encode(encoding))
        data = load_file(tmp_path / "a.csv", "t")
        np.testing.assert_array_equal(data.X, [[1.5, 0], [-2000, 3.25]])
        assert data.feature_names == ["größe", "b c"] and data.y.tolist() == ["é", "no"]
        read = {"utf-8": [], "utf-8-sig": [], "latin-1": ["encoding cp1252"]}.get(encoding, [f"encoding {encoding}"])
        assert [note for note in tables.read_table(tmp_path / "a.csv").notes if "encoding" in note] == read


def test_what_cuts_lines_into_cells(tmp_path):
    """All lines into as many, then into most; the usual one of two; spaces beside a tab are part of a cell."""
    for name, text, header, cell in (
        ("a.csv", "2020,b\nx,2\n", ["2020", "b"], "x"),
        ("a.csv", "a,b;c,d\n1;2\n", ["a,b", "c,d"], 1),
        ("a.csv", "a,b\tc\nx,2\t3\n", ["a", "b c"], "x"),
        ("a.tsv", "a,b\tc\nx,2\t3\n", ["a,b", "c"], "x,2"),
        ("a.tsv", "a\t b\n x\t1\n", ["a", " b"], " x"),
    ):
        frame = tables.read_table(write(tmp_path / name, text)).frame
        assert list(frame) == header and frame.iloc[0, 0] == cell


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.bz2", ".csv.zst", ".tsv.gz", ".scale.gz", ".scale.bz2"])
def test_compressed_files(tmp_path, suffix):
    """Tables, and LIBSVM files with labels of any kind; in one block and in several, the last of them damaged."""
    opens, of_libsvm = {".gz": gzip.open, ".bz2": bz2.open}, "scale" in suffix
    if suffix.endswith("zst"):
        opens[".zst"] = pytest.importorskip("zstandard", reason=".zst files need zstandard, an option").open
    path, target = tmp_path / f"a{suffix}", None if of_libsvm else "t"
    for rows in (np.array([[1.5, 3], [0, 7]]), np.random.default_rng(0).random((500, 2))):
        lines = [f"{t} 1:{a}" if a else f"{t}" for a, t in rows] if of_libsvm else [f"{a},{t}" for a, t in rows]
        texts = [*["a,t"][of_libsvm:], *lines]
        for mode, part in [("wb", texts[:2]), ("ab", texts[2:])] if len(rows) == 2 else [("wb", texts)]:
            with opens[path.suffix](path, mode) as file:
                file.write("".join(f"{line}\n" for line in part).encode())
        data = load_file(path, target)
        np.testing.assert_array_equal(sparse.csr_array(data.X).toarray(), rows[:, :1])
        np.testing.assert_array_equal(data.y, rows[:, 1])
        whole = path.read_bytes()
        flipped = whole[:-9] + bytes([whole[-9] ^ 255]) + whole[-8:]
        half = [whole[: len(whole) // 2]] * (len(rows) > 2)  # of two blocks that may be the first
        for damaged in (*half, whole[:-4], *([] if suffix.endswith("zst") else [flipped])):  # without checksums
            path.write_bytes(damaged)
            cases.refused(ValueError, "damaged or cut off", lambda: load_file(path, target))


@pytest.mark.parametrize(("suffix", "package"), [("xlsx", "openpyxl"), ("parquet", "pyarrow")])
def test_tables_in_binary(tmp_path, suffix, package):
    pytest.importorskip(package, reason=f"{suffix} files need it, an option")
    path, frame = tmp_path / f"a.{suffix}", pd.DataFrame({"a": X[:, 0], "t": ["u", "v"], "b": X[:, 1]})
    frame.to_parquet(path) if suffix == "parquet" else frame.to_excel(path, index=False)
    data = load_file(path, "t")
    np.testing.assert_array_equal(data.X, X[:, :2])
    assert data.y.tolist() == ["u", "v"] and data.feature_names == ["a", "b"]
    cases.refused(ValueError, r"target: .*choose one of a, t, b", lambda: load_file(path))
    cases.refused(ValueError, "more than the limit", lambda: load_file(path, "t", max_bytes=47))
    assert suffix == "xlsx" or load_file(path, "t", max_bytes=48).X.shape == (2, 2)  # eight bytes a cell
    path.write_bytes(path.read_bytes()[:40])
    cases.refused(ValueError, "damaged or no (Excel|Parquet)", lambda: load_file(path, "t"))


def test_a_parquet_file_may_hold_truth_values(tmp_path):
    pytest.importorskip("pyarrow", reason="Parquet files need it, an option")
    frame = pd.DataFrame({"a": [True, False], "t": [False, True], "w": [True, True]})
    frame.to_parquet(tmp_path / "a.parquet")
    rows = Shards(tmp_path, "t", weights="w").read(0)
    assert [each.tolist() for each in rows] == [[[1], [0]], [0, 1], [1, 1]]
    frame.assign(t=[1.0, np.nan]).to_parquet(tmp_path / "a.parquet")
    cases.refused(ValueError, "t in a.parquet has missing", lambda: Shards(tmp_path, "t", drop=["w"]).read(0))


def test_excel(tmp_path):
    """The first sheet, without the rows and columns that are empty."""
    pytest.importorskip("openpyxl", reason="Excel files need openpyxl, which is an optional dependency")
    path, frame = tmp_path / "a.xlsx", pd.DataFrame({"a": X[:, 0], " b ": X[:, 1]})
    with pd.ExcelWriter(path) as book:
        frame.to_excel(book, sheet_name="first", index=False, startrow=1, startcol=1)
        frame[:1].to_excel(book, sheet_name="second", index=False)
    table = tables.read_table(path)
    np.testing.assert_array_equal(table.frame.to_numpy(float), X[:, :2])
    assert list(table.frame) == ["a", "b"] and table.notes == ["sheet 'first', the first of 2"]
    frame.to_excel(path)
    table = tables.read_table(path)
    assert table.notes == [] and list(table.frame) == ["column 1", "a", "b"]
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    assert len(tables.read_table(path, max_bytes=size).frame) == 2, "the limit itself is within it"
    cases.refused(ValueError, "more than the limit", lambda: tables.read_table(path, max_bytes=size - 1))


@pytest.mark.parametrize("name, package", [("xlsx", "openpyxl"), ("csv.zst", "zstandard"), ("parquet", "pyarrow")])
def test_without_a_package_one_sentence_names_it(tmp_path, monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs .*{package}; run `pip install .*{package}`\.$"):
        load_file(write(tmp_path / f"a.{name}", "x"), "t")


def test_a_cell_far_below_makes_texts_of_all(tmp_path):
    path = write(tmp_path / "a.csv", "a,t\n" + "7777777,1\n" * 40_000 + "x,1\n")
    assert {type(cell) for cell in tables.read_table(path).frame["a"]} == {str}


def test_a_path_is_a_file(tmp_path):
    cases.refused(ValueError, "is a folder", lambda: load_file(tmp_path, "t"))
    cases.refused(FileNotFoundError, r"path: there is no file .*b\.csv", lambda: load_file(tmp_path / "b.csv", "t"))


NO_CSR = "^path: data, indices, .* not those of"
ARRAYS = {
    "part of a CSR matrix": ({"data": Y, "shape": [2, 3], "y": Y}, None, "path: .*'X'"),
    "no y": ({"X": X, "z": Y}, None, "target: .*'y'.*it has X, z"),
    "shape of X": ({"X": X[0], "y": Y}, None, "two dimensions"),
    "complex X": ({"X": X + 1j, "y": Y}, None, "real numbers"),
    "length of y": ({"X": X, "y": Y[:1]}, None, r"needs shape \(2,\)"),
    "complex y": ({"X": X, "y": 1j * Y}, None, "one number or text label"),
    "a part of X as y": (sparse_arrays(), "indptr", "^target: indptr holds the features"),
    "names": ({"X": X, "y": Y, "feature_names": ["a"]}, None, "1 names for 3"),
    "NaN": ({"X": X * [1, np.nan, 1], "y": Y}, None, "'x1'.*missing"),
    "empty": ({"X": X[:0], "y": Y[:0]}, None, "0 rows"),
    "index": (sparse_arrays(indices=np.array([0, 99, 1, 2], np.int32)), None, r"path: a\.npz"),
    "row pointers": (sparse_arrays(indptr=np.array([0, 2, 400], np.int32)), None, r"path: a\.npz"),
    "columns": (sparse_arrays(shape=np.array([2, 2**27 + 1])), None, "claims 134217729 features"),
    "pickle": (sparse_arrays(data=np.array([1, 2, 3, "x"], object)), None, r"path: a\.npz"),
    "floats": (sparse_arrays(indices=np.array([0.0, 2, 1, 2])), None, NO_CSR),
    "shape of three": (sparse_arrays(shape=np.array([2, 3, 1])), None, NO_CSR),
    "negative shape": (sparse_arrays(shape=np.array([2, -3])), None, NO_CSR),
    "table of a shape": (sparse_arrays(shape=np.array([[2, 3]])), None, NO_CSR),
    "table of indices": (sparse_arrays(indices=np.array([[0, 2, 1, 2]])), None, NO_CSR),
    "table of entries": (sparse_arrays(data=np.ones((4, 1))), None, NO_CSR),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_bad_arrays(tmp_path, name):
    arrays, target, message = ARRAYS[name]
    np.savez(tmp_path / "a.npz", **arrays)
    cases.refused(ValueError, message, lambda: load_file(tmp_path / "a.npz", target))


def test_a_line_without_end_is_refused(tmp_path):
    path = tmp_path / "a.svm.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"1 1:2 #" + 70 * 2**20 * b" ")
    cases.refused(ValueError, r"a line of .* 64 MiB", lambda: load_file(path))


def test_a_mark_of_utf_16_before_other_bytes(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xff\xfea,t\n1,2")
    assert list(tables.read_table(tmp_path / "a.csv").frame) == ["\xff\xfea", "t"]


def test_lines_are_measured_over_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 4)
    monkeypatch.setattr(tables, "MAX_LINE", 6)
    for text in (b"abcdef\nabcdef\rabcdef", b"ab\n" * 9):
        assert b"".join(tables._blocks(tmp_path, io.BytesIO(text))) == text
    for text in (b"abcdefgh", b"a\nabcdefgh", b"ab\rcdefghijk", b"abcdefgh\na"):
        cases.refused(ValueError, "^path: a", lambda text=text: list(tables._blocks(tmp_path, io.BytesIO(text))))


class Marker(str):
    """Unpickled, it would leave a file behind."""

    def __reduce__(self):
        return open, (str(self), "w")


def test_pickles_do_not_run(tmp_path):
    proof = tmp_path / "proof"
    np.savez(tmp_path / "a.npz", X=X, y=np.array([Marker(str(proof)), 1], object))
    cases.refused(ValueError, "never loaded", lambda: load_file(tmp_path / "a.npz"))
    payload = pickle.dumps(Marker(str(proof)))
    (tmp_path / "b.npz").write_bytes(payload)
    cases.refused(ValueError, "never loaded", lambda: load_file(tmp_path / "b.npz"))
    header, plain = io.BytesIO(), io.BytesIO()  # as long as it claims to be
    facts = {"descr": "|O", "fortran_order": False, "shape": (len(payload) // 8 + 1,)}
    np.lib.format.write_array_header_1_0(header, facts)
    np.save(plain, X)
    for bad in ("X", "feature_names"):
        with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
            archive.writestr(f"{bad}.npy", header.getvalue() + payload.ljust(8 * facts["shape"][0]))
            if bad != "X":
                archive.writestr("X.npy", plain.getvalue())
        cases.refused(ValueError, "never loaded", lambda: load_file(tmp_path / "c.npz"))
        cases.refused(ValueError, "never loaded", lambda: Shards(tmp_path / "c.npz").read(0))
    assert not proof.exists()


def test_a_wide_csv_takes_a_few_times_what_pandas_takes(tmp_path):
    """Work for each column in turn adds up to a multiple of pandas' own; work that grows as p^2 would not."""
    p = 100_000
    row = ",".join(f"{j % 1000}.25" for j in range(p))
    header = ",".join(f"g{j}" for j in range(p))
    path = write(tmp_path / "a.csv", f"t,{header}\n" + "".join(f"{i % 2},{row}\n" for i in range(10)))
    start = time.process_time()
    pd.read_csv(path)
    half = time.process_time()
    data = load_file(path, "t", dtype=np.float32)
    assert time.process_time() - half < 8 * (half - start)
    np.testing.assert_array_equal(data.X, np.tile(np.arange(p) % 1000 + 0.25, (10, 1)))
    assert data.feature_names[-1] == f"g{p - 1}" and data.y[:2].tolist() == [0, 1]


@pytest.mark.parametrize("seed", range(10))
def test_a_csv_is_what_pandas_reads(tmp_path, seed):
    """The same numbers, or one sentence, whatever the cells look like."""
    rng = np.random.default_rng(seed)
    odd = ["", "NA", "True", "1_0", "0x1", "1d5", " 7 ", '"8"', "-inf", "1e999", "1,5", "+3.", ".5", "2+1j", "1e-400"]
    for _ in range(20):
        rows = [[f"{value:.{rng.integers(1, 18)}g}" for value in rng.standard_normal(4)] for _ in range(3)]
        for _ in range(rng.integers(3)):
            rows[rng.integers(3)][rng.integers(4)] = odd[rng.integers(len(odd))]
        names = [["a", "b", "t", "c"], ["a", "a", "t", "c"], ["", "b", "t", "é,"]][rng.integers(3)]
        header = ",".join(f'"{name}"' for name in names)
        lines = [header, *(",".join(row) for row in rows)]
        path = write(tmp_path / "a.csv", "\n" * rng.integers(3) + ("\n" * rng.integers(1, 3)).join(lines) + "\n")
        try:
            data = load_file(path, "t")
        except ValueError as error:
            assert str(error).endswith(".") and "\n" not in str(error)
            continue
        table = pd.read_csv(path)
        np.testing.assert_allclose(data.X, table.drop(columns="t").to_numpy(float), rtol=1e-15)
        np.testing.assert_array_equal(data.y, table["t"].to_numpy(data.y.dtype))
        assert list(data.feature_names) == [name for name in table.columns if name != "t"]


@pytest.mark.parametrize("number", ["18446744073709551617", "-99999999999999999999"])
def test_whole_numbers_of_more_than_64_bits_are_numbers(tmp_path, number):
    data = load_file(write(tmp_path / "a.csv", f"a,b,t\n{number},7,1\n3,{number},5\n"), "t")
    np.testing.assert_array_equal(data.X, [[float(number), 7], [3, float(number)]])
    np.testing.assert_array_equal(data.y, [1, 5])


@pytest.mark.parametrize("seed", range(10))
def test_a_wrong_libsvm_line_is_named(tmp_path, seed):
    rng = np.random.default_rng(seed)
    wrong = [f"1 2:1 {10**12}:1", f"1 {10**30}:1", "1 " + "9" * 5000 + ":1", f"1 {2**31 + 5}:1", "1 999999999:1"]
    wrong += ["1 2:1 1:1", "1 2:1 2:1", "1 0:1 0:2", "1 1", "x 1:1", "1 1:2:3"]
    for line in wrong:
        lines = ["1 1:2 3:4"] * 12
        number = int(rng.integers(12))
        lines[number] = line
        lines.insert(int(rng.integers(number + 1)), "# a comment, with 9999999999:1")
        with pytest.raises(ValueError, match=rf"^path: .*line {number + 2} .*\.$") as caught:
            load_file(write(tmp_path / "a.svm", "\n".join(lines) + "\n"))
        assert len(str(caught.value)) < 300


READERS = [  # that models are read by the same reader is told in test_save.py
    lambda path: load_file(path).X,
    lambda path: precision.load_variables(path, None)[0].to_numpy(),
    lambda path: lowrank.load_responses(path, ["y"])[0].to_numpy(),
    lambda path: Shards([path]).read(0, np.float64)[0],
]


@pytest.mark.parametrize("seed", range(10))
def test_damaged_npz(tmp_path, seed):
    """A damaged file is refused in one sentence, or holds what was written; by every reader."""
    rng = np.random.default_rng(seed)
    path = tmp_path / "a.npz"
    save = [np.savez, np.savez_compressed][seed % 2]
    save(path, X=rng.standard_normal((30, 4)), y=rng.standard_normal(30), feature_names=["a", "b", "c", "d"])
    good, original = path.read_bytes(), load_file(path)
    for _, read in itertools.product(range(10), READERS):
        bad = bytearray(good[: rng.integers(1, len(good))] if rng.random() < 0.3 else good)
        for place in rng.integers(len(bad), size=rng.integers(1, 4)):
            bad[place] ^= rng.integers(1, 256)
        path.write_bytes(bytes(bad))
        try:
            np.testing.assert_array_equal(read(path), original.X)
        except ValueError as error:
            assert str(error).startswith("path") and str(error).endswith(".") and "\n" not in str(error)


@pytest.mark.parametrize("shape", [(10**13,), (10**7, 10**6), (2**70,), (-1, -1), (-1, -1, 1), (0, 10**30)])
@pytest.mark.parametrize("honest", [False, True])
def test_every_reader_refuses_an_array_that_claims_more_than_it_holds(tmp_path, shape, honest):
    path, header = tmp_path / "a.npz", io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("X.npy", "y.npy", "../../escaped.npy"):
            archive.writestr(name, header.getvalue() + bytes(8))
        if not honest:  # the archive claims as much as the array
            archive.filelist[0].file_size = min(8 * int(np.prod(shape, dtype=object)) + len(header.getvalue()), 2**62)
    for read in READERS:
        with pytest.raises(ValueError, match=r"^path: a\.npz .*(damaged|more than the limit)[^\n]*\.$"):
            read(path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
