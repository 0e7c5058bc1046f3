"""One data set in many files, read one at a time."""

import glob
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..io.npz import member_shape
from .files import load_file


class Shards:
    """The rows of one data set, in files of any kind that `load_file` reads.

    Nothing is kept in memory. NPZ files are looked at through their headers; other files are read once to learn their
    shapes.

    Args:
        paths: the files, or a pattern such as "data/*.npz"; read in sorted order.
        target: as in `load_file`.
        n_features: as in `load_file`, for LIBSVM files whose last features never occur.

    Attributes:
        paths: the files.
        rows: rows of every file.
        n_features: the same for all.
        n_bytes: size of the files.
        labels: two labels that `read` turns into -1 and +1; None: targets are as they are in the files.

    Raises:
        FileNotFoundError: if the pattern matches nothing, or a file is not there.
        ValueError: if the files differ in their features, or one is malformed.
    """

    def __init__(self, paths: str | Path | Sequence[str | Path], target: str | None = None, n_features=None):
        given = sorted(glob.glob(str(paths))) if isinstance(paths, str | Path) else list(paths)
        if not given:
            raise FileNotFoundError(f"paths: no file matches {paths}; quote the pattern, for example 'data/*.npz'.")
        self.paths = [Path(path) for path in given]
        self.target = target
        self.labels: tuple[Any, Any] | None = None
        self._given = n_features
        shapes = [self._shape(path) for path in self.paths]
        widths = {p for _, p in shapes}
        if len(widths) > 1:
            raise ValueError(f"paths: the files have different numbers of features, {sorted(widths)}; correct them.")
        self.rows = [n for n, _ in shapes]
        self.n_features = widths.pop()
        self.n_bytes = sum(path.stat().st_size for path in self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def n_samples(self) -> int:
        """Rows of all files."""
        return sum(self.rows)

    def _shape(self, path):
        if not path.is_file():
            raise FileNotFoundError(f"paths: there is no file {path}.")
        if path.suffix == ".npz":
            shape = member_shape(path, "X")
            if shape is not None and len(shape) == 2:
                return shape
            # a sparse or a damaged file: read below, which says what is wrong
        return load_file(path, self.target, self._given).X.shape

    def read(self, i: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
        """X and y of one file; a sparse X is made dense."""
        data = load_file(self.paths[i], self.target, self._given, dtype=dtype)
        X = data.X.toarray() if sparse.issparse(data.X) else data.X
        if X.shape != (self.rows[i], self.n_features):
            raise ValueError(f"paths: {self.paths[i]} has changed since it was looked at; start anew.")
        if self.labels is None:
            return X, data.y
        if not np.isin(data.y, self.labels).all():
            raise ValueError(
                f"target: {self.paths[i].name} has other labels than {self.labels[0]} and {self.labels[1]}."
            )
        return X, np.where(data.y == self.labels[1], 1.0, -1.0)

    def each(
        self, start: int = 0, dtype: Any = np.float32, look: Callable[[int, np.ndarray, np.ndarray], Any] | None = None
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(number, X, y) of every file from `start` on; the next is read, and shown to `look`, while one is used."""

        def read(i):
            X, y = self.read(i, dtype)
            if look is not None:
                look(i, X, y)
            return X, y

        with ThreadPoolExecutor(1) as pool:
            waiting = [pool.submit(read, i) for i in range(start, len(self))[:1]]
            for i in range(start, len(self)):
                X, y = waiting.pop().result()
                waiting = [pool.submit(read, j) for j in range(i + 1, len(self))[:1]]
                yield i, X, y
