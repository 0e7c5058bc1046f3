"""Rows of Parquet files, a group of them or a part of one at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NUMBERS = ("int", "uint", "float", "double", "halffloat", "bool")
BUFFER = 2**16  # bytes of a column that are read at once, else a row group is read whole


class ParquetColumns(NamedTuple):
    """The names of features, targets (`several`: an array of them, even of one) and the weights, None: one each."""

    features: list[str]
    targets: list[str]
    several: bool
    weights: str | None

    @property
    def all(self) -> list[str]:
        """The names in the order in which they are read."""
        return [*self.features, *self.targets, *([] if self.weights is None else [self.weights])]


class RowGroup(NamedTuple):
    """Rows of a file that were written together."""

    path: Path
    number: int
    rows: int


def parquet_columns(
    path: Path, target: str | Sequence[str] | None, weights: str | None, drop: Sequence[str]
) -> ParquetColumns:
    """The columns of a file, of which all that have no other use are features.

    Raises:
        ValueError: if no target is named, or a column that is named is not there.
    """
    if target is None:
        raise ValueError("target: name the column of a Parquet file that is to be predicted.")
    targets = [target] if isinstance(target, str) else [str(name) for name in target]
    kinds = _kinds(path)
    for name in drop:
        if name not in kinds:
            raise ValueError(f"drop: {path.name} has no column {name!r}; correct or omit it.")
    features = [name for name in kinds if name not in (*targets, weights, *drop)]
    return ParquetColumns(features, targets, not isinstance(target, str), weights)


def row_groups(path: Path, columns: ParquetColumns) -> list[RowGroup]:
    """The row groups of a file.

    Raises:
        ValueError: if a column is missing, or one but a single target holds no numbers.
    """
    check_numbers(path, columns.all, but=() if columns.several else columns.targets)
    with _opened(path) as file:
        counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    return [RowGroup(path, number, rows) for number, rows in enumerate(counts) if rows]


def numbers_of(path: Path) -> int:
    """Rows times columns of a file."""
    with _opened(path) as file:
        return int(file.metadata.num_rows * file.metadata.num_columns)


def check_numbers(path: Path, names: Sequence[str], but: Sequence[str] = ()) -> None:
    """ValueError for columns of a file that are missing or, `but` for some, hold something else than numbers."""
    kinds = _kinds(path)
    for name in names:
        if name not in kinds:
            raise ValueError(f"paths: {path.name} has no column {name!r}; correct the file or leave it out.")
        if name not in but and not kinds[name].startswith(NUMBERS):
            raise ValueError(
                f"paths: column {name!r} of {path.name} holds {kinds[name]}, no numbers; encode it first, or drop it."
            )


def read_rows(
    group: RowGroup, columns: ParquetColumns, size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Features in columns of float64, targets and weights of at most `size` rows at a time."""
    wanted, p = columns.all, len(columns.features)
    with _opened(group.path) as file:
        for batch in file.iter_batches(size, row_groups=[group.number], columns=wanted, use_threads=False):
            A = np.empty((batch.num_rows, p), order="F")
            for j, name in enumerate(columns.features):
                A[:, j] = batch.column(name).to_numpy(zero_copy_only=False)
            targets = [batch.column(name).to_numpy(zero_copy_only=False) for name in columns.targets]
            weights = np.ones(len(A)) if columns.weights is None else batch.column(columns.weights).to_numpy(False)
            yield A, np.column_stack(targets) if columns.several else targets[0], weights


def _kinds(path: Path) -> dict[str, str]:
    """The type of every column."""
    with _opened(path) as file:
        kinds = {field.name: str(field.type) for field in file.schema_arrow}
        if len(kinds) < len(file.schema_arrow):
            raise ValueError(f"paths: two columns of {path.name} have the same name; rename one.")
    return kinds


def _opened(path: Path) -> Any:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("paths: Parquet files need pyarrow; pip install 'sparsehtp[parquet]'.") from error
    try:
        return parquet.ParquetFile(path, buffer_size=BUFFER)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"paths: {path.name} is damaged or no Parquet file ({error}); write it again.") from error
