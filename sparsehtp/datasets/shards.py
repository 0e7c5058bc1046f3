"""One data set in many files, read one at a time."""

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ..io.npy import map_npy
from ..io.npz import member, member_shape
from ..io.read_ahead import bring_in, read_ahead
from .data import NumberedNames
from .files import load_file
from .parquet import ParquetColumns, RowGroup, check_numbers, parquet_columns, read_rows, row_groups

FEATURES, TARGETS, WEIGHTS = ".X.npy", ".y.npy", ".weights.npy"
KINDS = (f"*{FEATURES}", "*.npz", "*.parquet")  # that a folder stands for


class ShardRows(NamedTuple):
    """The rows of one part: X (n, p), y (n,) or (n, t), and their weights (n,)."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray


class Shards:
    """The rows of one data set, in files of any kind that `load_file` reads, or in .npy files.

    Nothing is kept in memory. Parquet, NPZ and .npy files are looked at through their headers; other files are read
    once to learn their shapes. A part is a file, of Parquet a row group.

    The .npy files of a shard are NAME.X.npy, NAME.y.npy and, if its rows have weights, NAME.weights.npy, each written
    by `numpy.save`. They are mapped into memory, so that an X of the dtype of the fit is neither copied nor converted:
    the fastest kind. They must not be cut while they are used.

    Args:
        paths: the files (of a .npy shard its NAME.X.npy), a pattern such as "data/*.parquet" or "data/*.npy", or a
            folder, which stands for all its .npy shards, NPZ and Parquet files; read in sorted order.
        target: as in `load_file`, of Parquet files also several names; not for .npy.
        n_features: as in `load_file`, for LIBSVM files whose last features never occur.
        weights: name of the column of weights in Parquet files; .npy shards have them beside them.
        drop: columns of Parquet files that are no features.

    Attributes:
        paths: the file of every part.
        rows: rows of every part.
        n_features: the same for all.
        n_bytes: size of the files.
        target, weights: as they were given.
        labels: two labels that `read` turns into -1 and +1; None: targets are as they are in the files.

    Raises:
        FileNotFoundError: if the pattern matches nothing, or a file is not there.
        ValueError: if the files differ in their features, or one is malformed.
        ImportError: without pyarrow, for Parquet files.
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        target: str | Sequence[str] | None = None,
        n_features: int | None = None,
        *,
        weights: str | None = None,
        drop: Sequence[str] = (),
    ) -> None:
        if isinstance(paths, str | Path):
            kinds = KINDS if Path(paths).is_dir() else ("",)
            found = [path for kind in kinds for path in glob.glob(str(Path(paths, kind) if kind else paths))]
            given = sorted(path for path in found if not path.endswith((TARGETS, WEIGHTS)))
        else:
            given = [str(path) for path in paths]
        if not given and isinstance(paths, str | Path) and Path(paths).is_dir():
            raise FileNotFoundError(
                f"paths: {paths} holds no .npy shards, NPZ or Parquet files; for others name a pattern: {paths}/*.csv."
            )
        if not given:
            raise FileNotFoundError(f"paths: no file matches {paths}; quote the pattern, for example 'data/*.npz'.")
        files = [Path(path) for path in given]
        self.target, self.weights = target, weights
        self.labels: tuple[Any, Any] | None = None
        self._given = n_features
        self._columns: ParquetColumns | None = None
        self._groups: list[RowGroup] | None = None
        if all(path.suffix == ".parquet" for path in files):
            self._columns = parquet_columns(_there(files[0]), target, weights, drop)
            self._groups = [group for path in files for group in row_groups(_there(path), self._columns)]
            if not self._groups:
                raise ValueError("paths: the files have no rows; name others.")
            self.paths, self.rows = [group.path for group in self._groups], [group.rows for group in self._groups]
            self.n_features = len(self._columns.features)
        else:
            for name, value in (("weights", weights), ("drop", drop or None)):
                if value is not None:
                    raise ValueError(
                        f"{name}: names columns of Parquet files, and other files are used whole; omit it."
                    )
            if not (target is None or isinstance(target, str)):
                raise ValueError(f"target: needs one name for files other than Parquet, got {target!r}.")
            self._target = target
            if any(path.suffix == ".parquet" for path in files):
                raise ValueError("paths: hold Parquet files and others, which do not go together; name one kind.")
            shapes, names = zip(*(self._shape(path) for path in files), strict=True)
            widths = {p for _, p in shapes}
            if len(widths) > 1:
                raise ValueError(
                    f"paths: the files have different numbers of features, {sorted(widths)}; correct them."
                )
            told = [(path, each) for path, each in zip(files, names, strict=True) if each is not None]
            for path, each in told[1:]:
                if each != told[0][1]:
                    raise ValueError(
                        f"paths: {path.name} has other columns than {told[0][0].name}, or in another order; make them "
                        "alike."
                    )
            self.paths, self.rows, self.n_features = files, [n for n, _ in shapes], widths.pop()
        self.n_bytes = sum(path.stat().st_size for path in {path for i in range(len(self)) for path in self.files(i)})

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def n_samples(self) -> int:
        """Rows of all parts."""
        return sum(self.rows)

    def files(self, i: int) -> list[Path]:
        """The files of one part: one, or those of a .npy shard."""
        path = self.paths[i]
        if path.suffix != ".npy":
            return [path]
        weights = _beside(path, WEIGHTS)
        return [path, _beside(path, TARGETS), *([weights] if weights.exists() else [])]

    def feature_names(self) -> Sequence[str]:
        """The names in the first file."""
        if self._columns is not None:
            return self._columns.features
        path = self.paths[0]
        if path.suffix == ".npy":
            return NumberedNames(self.n_features)
        return load_file(path, self._target, self._given).feature_names

    def check_targets(self) -> None:
        """ValueError for Parquet files whose targets are no numbers."""
        if self._columns is not None:
            for path in dict.fromkeys(self.paths):
                check_numbers(path, self._columns.targets)

    def _shape(self, path: Path) -> tuple[tuple[int, int], list[str] | None]:
        """The shape of X, and the names of its columns where a file has some."""
        if _there(path).suffix == ".npy":
            return self._map(path)[0].shape, None
        if path.suffix == ".npz":
            shape = member_shape(path, "X")
            if shape is not None and len(shape) == 2:
                given = member(path, "feature_names")
                return shape, None if given is None else [str(name) for name in given.tolist()]
            # a sparse or a damaged file: read below, which says what is wrong
        data = load_file(path, self._target, self._given)
        names = data.feature_names
        return data.X.shape, None if isinstance(names, NumberedNames) else [str(name) for name in names]

    def _map(self, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X, y and the weights of a .npy shard, mapped."""
        if not path.name.endswith(FEATURES):
            raise ValueError(f"paths: {path.name} is no NAME{FEATURES} with a NAME{TARGETS} beside it; rename it.")
        if self.target is not None:
            raise ValueError(f"target: is {self.target}, but the targets of {path.name} are in its {TARGETS}; omit it.")
        X, y = map_npy(path), map_npy(_beside(path, TARGETS))
        weights = map_npy(_beside(path, WEIGHTS)) if _beside(path, WEIGHTS).exists() else np.ones(len(X), np.float32)
        if X.ndim != 2:
            raise ValueError(f"path: X in {path.name} needs two dimensions, got shape {X.shape}; reshape it.")
        if self._given is not None and X.shape[1] != self._given:
            raise ValueError(
                f"n_features: is {self._given}, but {path.name} has {X.shape[1]} features; correct or omit it."
            )
        for name, vector in ((TARGETS, y), (WEIGHTS, weights)):
            if vector.shape != X.shape[:1]:
                raise ValueError(
                    f"path: {_beside(path, name).name} needs shape ({len(X)},), one number per row of X, got shape "
                    f"{vector.shape}; correct it."
                )
        return X, y, weights

    def batches(self, i: int, size: int) -> Iterator[ShardRows]:
        """The rows of one part in float64 (.npy shards as they are), of Parquet at most `size` at a time, else all."""
        if self._groups is None or self._columns is None:
            yield self.read(i, None if self.paths[i].suffix == ".npy" else np.float64)
        else:
            for rows in read_rows(self._groups[i], self._columns, size):
                yield ShardRows(*rows)

    def read(self, i: int, dtype: Any = np.float32) -> ShardRows:
        """The rows of one part, X in contiguous rows of the dtype; a sparse X is made dense.

        Whether a mapped X is finite is not looked at here, which would be another pass over it.
        """
        path = self.paths[i]
        if path.suffix == ".npy":
            X, y, weights = self._map(path)
            X, y, weights = np.ascontiguousarray(X, dtype), np.asarray(y, np.float64), np.asarray(weights, dtype)
            _check_rows(_beside(path, TARGETS).name, y, _beside(path, WEIGHTS).name, weights)
        elif self._groups is not None and self._columns is not None:
            X, y, weights = next(read_rows(self._groups[i], self._columns, self.rows[i]))
            X, weights = np.ascontiguousarray(X, dtype), np.asarray(weights, dtype)
            targets = f"{', '.join(self._columns.targets)} in {path.name}"
            _check_rows(targets, y, f"{self._columns.weights} in {path.name}", weights)
        else:
            data = load_file(path, self._target, self._given, dtype=dtype)
            X, y = data.X.toarray() if sparse.issparse(data.X) else data.X, data.y
            weights = np.ones(len(y), dtype)
        if X.shape != (self.rows[i], self.n_features):
            raise ValueError(f"paths: {path} has changed since it was looked at; start anew.")
        if self.labels is not None:
            if not np.isin(y, self.labels).all():
                raise ValueError(f"target: {path.name} has other labels than {self.labels[0]} and {self.labels[1]}.")
            y = np.where(y == self.labels[1], 1.0, -1.0)
        return ShardRows(X, y, weights)

    def each(self, start: int = 0, dtype: Any = np.float32, look: Any = None) -> Iterator[tuple[int, ShardRows, Any]]:
        """(number, rows, wait) of every part from `start` on, as in `read_ahead`."""

        def read(i: int) -> ShardRows:
            rows = self.read(i, dtype)
            bring_in(rows.X)
            return rows

        return read_ahead(range(start, len(self)), read, look)


def in_parts(path: str | Path) -> bool:
    """Whether a name is that of files that together hold the rows: a folder, a pattern, or a .npy shard."""
    path = Path(path)
    return path.is_dir() or path.suffix == ".npy" or (glob.has_magic(str(path)) and not path.exists())


def _check_rows(of_y: str, y: np.ndarray, of_weights: str, weights: np.ndarray) -> None:
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(f"path: {of_y} has missing or infinite values; correct them.")
    if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.max() > 0):
        raise ValueError(f"path: {of_weights} needs finite weights >= 0, not all zero; correct them.")


def _there(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"paths: there is no file {path}.")
    return path


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(path.name.removesuffix(FEATURES) + kind)
