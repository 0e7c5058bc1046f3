"""Data sets from files; every error is one sentence that says what to do.

No file executes code: pickles are never loaded. A file that claims more than it holds, or more than `max_bytes`, is
refused before memory is taken for it; archives are read in place, so that no path in one is ever written to. Names and
labels lose their control characters.
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..io import memory
from .arrays import load_npz
from .data import Data, nonfinite
from .libsvm import LIBSVM_SUFFIXES, load_libsvm
from .numerals import check_written
from .tables import NEEDED, load_table

COMPRESSED = (".gz", ".bz2")
LOADERS: dict[str, Any] = {
    "csv": load_table,
    "excel": load_table,
    "libsvm": load_libsvm,
    "npz": load_npz,
    "parquet": load_table,
}
SUFFIXES = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".xlsx": "excel", ".xlsm": "excel", ".npz": "npz"}
TABLES = ("csv", "excel", "parquet")  # what pandas reads


def load_file(
    path: str | Path,
    target: str | None = None,
    n_features: int | None = None,
    *,
    format: str | None = None,
    zero_based: bool | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    dtype: Any = np.float64,
    max_bytes: int | None = None,
) -> Data:
    """Load a data set.

    Args:
        path: .csv or .tsv (also .gz, .bz2, .zst after it): a header line, then rows, with a comma, semicolon, tab or
            bar between the cells, in UTF-8, UTF-16, cp1252 or Latin-1; .parquet; .xlsx (the first sheet); .npz; or
            LIBSVM (.libsvm, .svm, .svmlight, .txt, .binary, .t, .scale, and any other name that ends in .gz or .bz2
            after it). An NPZ file holds arrays X and y and optionally feature_names, or in place of X the arrays data,
            indices, indptr and shape of a CSR matrix.
        target: name of the target's column (tables, needed) or array (NPZ, default y); not for LIBSVM.
        n_features: number of features, for LIBSVM files whose last features never occur; checked elsewhere.
        format: "csv", "excel", "libsvm", "npz" or "parquet", whatever the name says. None: by the name.
        zero_based: whether LIBSVM indices count from zero. None: from zero if index 0 occurs, else from one.
        decimal, thousands: "." or "," before the decimals of a table's numbers, and ".", ",", " " or "'" between
            groups of three digits; None: as the cells say together. A warning tells what separates thousands.
        dtype: of the features, float32 or float64.
        max_bytes: limit for what the loaded arrays, and any decompressed file, may take. None: a quarter of the free
            memory, for tables an eighth, since these take so many times their size while they are read.

    Returns:
        A `Data`; X is a CSR matrix for LIBSVM and sparse NPZ files, else a dense array.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for an unknown extension, a wrong target, or a malformed, empty, damaged, non-numeric or too large
            file, and for numbers that could be others, such as 12.345 where nothing says what the point is.
        ImportError: without the package that reads the file: pandas, pyarrow, openpyxl or zstandard.
    """
    path = Path(path)
    check_file(path)
    load = LOADERS[format_of(path, format)]
    written = check_written(decimal, thousands)
    own: dict[Any, dict[str, Any]] = {load_libsvm: {"zero_based": zero_based}, load_table: {"given": written}}
    options = own.get(load, {})
    needed = NEEDED if load is load_table else memory.NEEDED
    limit = memory.default_limit(needed) if max_bytes is None else max_bytes
    data = load(path, target, n_features, np.dtype(dtype), limit, **options)
    rows, p = data.X.shape
    if rows == 0 or p == 0:
        raise ValueError(f"path: {path.name} has {rows} rows and {p} features; at least one of each is needed.")
    if n_features is not None and p != n_features:
        raise ValueError(f"n_features: is {n_features}, but {path.name} has {p} features; correct or omit it.")
    bad = _nonfinite_columns(data.X)
    if bad.size:
        raise nonfinite(path, "column", data.feature_names[bad[0]])
    if data.y.dtype.kind == "f" and not np.isfinite(data.y).all():
        raise nonfinite(path, "target", data.target_name)
    return data


def check_file(path: Path) -> None:
    """FileNotFoundError without such a file, ValueError if it is a folder or empty."""
    if path.is_dir():
        raise ValueError(f"path: {path} is a folder; name a file in it.")
    if not path.is_file():
        raise FileNotFoundError(f"path: there is no file {path}; check its name and the working directory.")
    if path.stat().st_size == 0:
        raise ValueError(f"path: {path.name} is empty; give a file with at least one row of data.")


def format_of(path: Path, wanted: str | None = None) -> str:
    """The format that a name says, a key of `LOADERS`, unless one is given; ValueError for an unknown one."""
    if wanted is not None:
        if wanted not in LOADERS:
            raise ValueError(f"format: must be one of {', '.join(LOADERS)}, got {wanted!r}.")
        return wanted
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if suffix in LIBSVM_SUFFIXES:
        return "libsvm"
    inner = path.with_suffix("").suffix.lower()
    if suffix in (*COMPRESSED, ".zst") and SUFFIXES.get(inner) == "csv":
        return "csv"
    if suffix in COMPRESSED and inner not in SUFFIXES | {".tar": None}:
        return "libsvm"
    raise ValueError(
        f"path: the extension {suffix!r} of {path.name} is unknown; use .csv, .tsv (also with .gz, .bz2 or .zst), "
        f".parquet, .xlsx, .npz, {', '.join(LIBSVM_SUFFIXES)} (LIBSVM, also with .gz or .bz2), or name a format."
    )


def _nonfinite_columns(X: Any) -> np.ndarray:
    if sparse.issparse(X):
        return np.sort(X.indices[~np.isfinite(X.data)])
    return np.flatnonzero(~np.isfinite(X).all(axis=0))
