"""CSV, LIBSVM and NPZ files as dense arrays; every error is one sentence that says what to do."""

import csv
import re
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

MAX_DENSE_BYTES = 2**28
LIBSVM_SUFFIXES = (".libsvm", ".svm", ".svmlight", ".txt")
_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
_LIBSVM_LINE = re.compile(rf"{_NUMBER}(\s+(\d+|qid):{_NUMBER})*\s*")


class Data(NamedTuple):
    """A data set; y holds numbers, or strings for a target of text labels."""

    X: np.ndarray
    y: np.ndarray
    feature_names: list[str]
    target_name: str


def load_file(path: str | Path, target: str | None = None, n_features: int | None = None) -> Data:
    """Load a data set; the format follows from the extension.

    Args:
        path: .csv (a header line and commas), .libsvm, .svm, .svmlight or .txt (LIBSVM), or .npz (arrays
            X and y, and optionally feature_names).
        target: name of the target's column (CSV, needed) or array (NPZ, default y); not for LIBSVM.
        n_features: number of features, for LIBSVM files whose last features never occur; checked elsewhere.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for an unknown extension, a wrong target, or a malformed, empty or non-numeric file.
        ImportError: for a CSV file without pandas.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if not path.is_file():
        raise FileNotFoundError(f"path: there is no file {path}; check its name and the working directory.")
    if suffix == ".csv":
        load = _load_csv
    elif suffix == ".npz":
        load = _load_npz
    elif suffix in LIBSVM_SUFFIXES:
        load = _load_libsvm
    else:
        raise ValueError(
            f"path: the extension {suffix!r} of {path.name} is unknown; use .csv, .npz or "
            f"{', '.join(LIBSVM_SUFFIXES)} (LIBSVM)."
        )
    if path.stat().st_size == 0:
        raise ValueError(f"path: {path.name} is empty; give a file with at least one row of data.")
    data = load(path, target, n_features)
    rows, p = data.X.shape
    if rows == 0 or p == 0:
        raise ValueError(f"path: {path.name} has {rows} rows and {p} features; at least one of each is needed.")
    if n_features is not None and p != n_features:
        raise ValueError(f"n_features: is {n_features}, but {path.name} has {p} features; correct or omit it.")
    for j in np.flatnonzero(~np.isfinite(data.X).all(axis=0))[:1]:
        raise _nonfinite(path, "column", data.feature_names[j])
    if data.y.dtype.kind == "f" and not np.isfinite(data.y).all():
        raise _nonfinite(path, "target", data.target_name)
    return data


def _nonfinite(path, kind, name):
    return ValueError(
        f"path: the {kind} {name!r} of {path.name} has missing or infinite values; remove or impute them first."
    )


# --- CSV ---
def _load_csv(path, target, n_features):
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("path: reading CSV files needs pandas; run `pip install sparsehtp[cli]`.") from error

    try:
        _check_csv(path)
        table = pd.read_csv(path, encoding="utf-8-sig", index_col=False)
    except UnicodeDecodeError as error:
        raise ValueError(f"path: {path.name} is not UTF-8 text; save it as UTF-8 first.") from error
    except csv.Error as error:
        raise ValueError(f"path: {path.name} is not well-formed CSV ({error}); export it again.") from error
    names = [str(name) for name in table.columns]
    if target not in names:
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        problem = "is needed for a CSV file" if target is None else f"there is no column {target!r} in {path.name}"
        raise ValueError(f"target: {problem}; choose one of {shown}.")
    if table.empty:
        raise ValueError(f"path: {path.name} has 0 rows of data below its header; at least one is needed.")
    y = table[target]
    if y.isna().any():
        raise _nonfinite(path, "target", target)
    features = table.drop(columns=target)
    for name, column in features.items():
        if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_complex_dtype(column):
            example = column.dropna().astype(str)
            example = f" (for example {example.iloc[0]!r})" if len(example) else ""
            raise ValueError(
                f"path: the column {name!r} of {path.name} is not numeric{example}; encode it as numbers, "
                "for example with pandas.get_dummies, or remove it."
            )
    y = y.to_numpy(np.float64) if pd.api.types.is_numeric_dtype(y) else y.to_numpy(str)
    names.remove(target)
    return Data(np.ascontiguousarray(features.to_numpy(np.float64)), y, names, target)


def _check_csv(path):
    """ValueError for a missing header or a ragged line, which pandas would pad with NaN or cut."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = next((row for row in reader if row), [])
        if not header:
            raise ValueError(f"path: {path.name} is empty; give a file with at least one row of data.")
        if all(re.fullmatch(_NUMBER, name.strip()) for name in header):
            raise ValueError(f"path: {path.name} starts with numbers; add a header line with the column names.")
        for row in reader:
            if row and len(row) != len(header):
                raise ValueError(
                    f"path: line {reader.line_num} of {path.name} has {len(row)} fields where the header has "
                    f"{len(header)}; correct that line."
                )


# --- LIBSVM ---
def _load_libsvm(path, target, n_features):
    from sklearn.datasets import load_svmlight_file

    if target is not None:
        raise ValueError("target: a LIBSVM file holds its own target as the first number of a line; leave target out.")
    try:
        X, y = load_svmlight_file(str(path), dtype=np.float64, zero_based=True)
    except (ValueError, IndexError) as error:
        raise _libsvm_error(path, error) from error
    first = 1 - int((X.indices == 0).any())  # indices count from one unless index 0 occurs
    p = X.shape[1] - first if n_features is None else n_features
    if X.shape[1] - first > p:
        raise ValueError(
            f"n_features: is {p}, but {path.name} has a feature with index {X.shape[1] - 1}; raise or omit it."
        )
    size = 8 * X.shape[0] * p
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"path: {path.name} would take {size / 2**20:.0f} MiB as a dense array, more than the limit of "
            f"{MAX_DENSE_BYTES / 2**20:.0f} MiB; select rows or features first."
        )
    X = sparse.csr_array((X.data, X.indices - first, X.indptr), shape=(X.shape[0], p))
    return Data(X.toarray(), y, [f"x{j + first}" for j in range(p)], "y")


def _libsvm_error(path, error):
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            text = line.split("#")[0].strip()
            if text and not _LIBSVM_LINE.fullmatch(text):
                return ValueError(
                    f"path: line {number} of {path.name} is not 'label index:value ...' ({text[-20:]!r}), "
                    "perhaps cut off; correct that line."
                )
    return ValueError(f"path: {path.name} is not a valid LIBSVM file ({str(error).rstrip('.')}); correct it.")


# --- NPZ ---
def _load_npz(path, target, n_features):
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"path: {path.name} is damaged, no NPZ file, or holds pickled objects, which are never loaded; "
            "write plain numeric arrays with numpy.savez."
        ) from error
    target_name = "y" if target is None else target
    if target_name == "X":
        raise ValueError("target: X holds the features; name another array.")
    for argument, name in (("path", "X"), ("target", target_name)):
        if name not in arrays:
            raise ValueError(
                f"{argument}: there is no array {name!r} in {path.name}; it has {', '.join(list(arrays)[:8])}."
            )
    X, y = arrays["X"], arrays[target_name]
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(
            f"path: X in {path.name} needs two dimensions and real numbers, got shape {X.shape} and dtype "
            f"{X.dtype}; reshape or encode it."
        )
    if y.shape != X.shape[:1] or y.dtype.kind not in "fiubU":
        raise ValueError(
            f"target: {target_name!r} in {path.name} needs shape ({X.shape[0]},), one number or text label "
            f"per row of X, got shape {y.shape} and dtype {y.dtype}; correct it."
        )
    names = [str(name) for name in arrays.get("feature_names", [f"x{j}" for j in range(X.shape[1])])]
    if len(names) != X.shape[1]:
        raise ValueError(
            f"path: feature_names in {path.name} has {len(names)} names for {X.shape[1]} columns of X; give one each."
        )
    y = y if y.dtype.kind == "U" else y.astype(np.float64)
    return Data(np.ascontiguousarray(X, np.float64), y, names, target_name)
