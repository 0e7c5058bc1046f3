"""CSV and Parquet files, read by pandas."""

import csv
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..io.npz import too_large
from .data import Data, nonfinite
from .libsvm import _NUMBER


def load_csv(path: Path, target: str | None, n_features: int | None, dtype: np.dtype, max_bytes: int) -> Data:
    """A CSV file; arguments as in `load_file`."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("path: reading CSV files needs pandas; run `pip install sparsehtp[cli]`.") from error

    if path.stat().st_size > max_bytes:
        raise too_large(path, path.stat().st_size, max_bytes)
    options = {"encoding": "utf-8-sig", "index_col": False, "low_memory": False}
    try:
        header, lines = _check_csv(path)
        X = _numbers(path, header, lines, target, dtype)
        table = pd.read_csv(path, usecols=None if X is None else [target], **options)
    except UnicodeDecodeError as error:
        raise ValueError(f"path: {path.name} is not UTF-8 text; save it as UTF-8 first.") from error
    except csv.Error as error:
        raise ValueError(f"path: {path.name} is not well-formed CSV ({error}); export it again.") from error
    if X is None or target is None:
        return _from_table(path, table, target, "CSV", dtype)
    return Data(X, _target(path, table[target]), [name for name in header if name != target], target)


def _numbers(path: Path, header: list[str], lines: int, target: str | None, dtype: np.dtype) -> np.ndarray | None:
    """All columns but the target, many times faster than by pandas where there are thousands; None if not numbers."""
    columns = [j for j, name in enumerate(header) if name != target]
    if len(set(header)) < len(header) or "" in header or len(columns) != len(header) - 1 or not columns:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no rows
            X = np.loadtxt(
                path,
                dtype,
                comments=None,
                delimiter=",",
                skiprows=lines,
                usecols=columns,
                ndmin=2,
                encoding="utf-8-sig",
                quotechar='"',
            )
    except ValueError:
        return None
    return X if len(X) else None


def load_parquet(path: Path, target: str | None, n_features: int | None, dtype: np.dtype, max_bytes: int) -> Data:
    """A Parquet file; arguments as in `load_file`."""
    try:
        import pandas as pd
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            "path: reading Parquet files needs pandas and pyarrow; run `pip install sparsehtp[cli,parquet]`."
        ) from error

    try:
        with pq.ParquetFile(path) as file:
            size = 8 * file.metadata.num_rows * file.metadata.num_columns
            if size > max_bytes:
                raise too_large(path, size, max_bytes)
        table = pd.read_parquet(path, engine="pyarrow")
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"path: {path.name} is damaged or no Parquet file ({error}); write it again.") from error
    return _from_table(path, table, target, "Parquet", dtype)


def _from_table(path: Path, table: Any, target: str | None, kind: str, dtype: np.dtype) -> Data:
    import pandas as pd

    names = [str(name) for name in table.columns]
    if target not in names:
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        problem = f"is needed for a {kind} file" if target is None else f"there is no column {target!r} in {path.name}"
        raise ValueError(f"target: {problem}; choose one of {shown}.")
    if table.empty:
        raise ValueError(f"path: {path.name} has 0 rows of data below its header; at least one is needed.")
    table.columns = names
    y = _target(path, table[target])
    features = table.drop(columns=target)
    for j, kind in enumerate(features.dtypes):
        if not pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_complex_dtype(kind):
            name, example = features.columns[j], features.iloc[:, j].dropna().astype(str)
            example = f" (for example {example.iloc[0]!r})" if len(example) else ""
            raise ValueError(
                f"path: the column {name!r} of {path.name} is not numeric{example}; encode it as numbers, "
                "for example with pandas.get_dummies, or remove it."
            )
    names.remove(target)
    return Data(np.ascontiguousarray(features.to_numpy(dtype)), y, names, target)


def _target(path: Path, column: Any) -> np.ndarray:
    import pandas as pd

    if column.isna().any():
        raise nonfinite(path, "target", column.name)
    return column.to_numpy(np.float64) if pd.api.types.is_numeric_dtype(column) else column.to_numpy(str)


def _check_csv(path: Path) -> tuple[list[str], int]:
    """The header and the lines that it takes.

    ValueError where it is missing, or for a ragged line, which pandas would pad with NaN or cut.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = next((row for row in reader if row), [])
        if not header:
            raise ValueError(f"path: {path.name} is empty; give a file with at least one row of data.")
        if all(re.fullmatch(_NUMBER, name.strip()) for name in header):
            raise ValueError(f"path: {path.name} starts with numbers; add a header line with the column names.")
        lines = reader.line_num
        for row in reader:
            if row and len(row) != len(header):
                raise ValueError(
                    f"path: line {reader.line_num} of {path.name} has {len(row)} fields where the header has "
                    f"{len(header)}; correct that line."
                )
    return header, lines
