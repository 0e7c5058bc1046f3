"""LIBSVM files, plain or compressed, as CSR matrices, read by scikit-learn."""

import bz2
import gzip
import io
import itertools
import lzma
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..io.memory import too_large
from .data import Data, NumberedNames

LIBSVM_SUFFIXES = (".libsvm", ".svm", ".svmlight", ".txt", ".binary", ".t", ".scale")
MAX_FEATURES = 2**27  # a vector of so many numbers takes 1 GiB
MAX_LINE = 2**26  # bytes
NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
_LINE = re.compile(rf"{NUMBER}(\s+(\d+|qid):{NUMBER})*\s*")
_DAMAGED = (EOFError, OSError, lzma.LZMAError, zlib.error)
PACKED = 2**16  # bytes at a time


class _Streams(io.RawIOBase):
    """A .bz2 file, stream after stream: `bz2.open` takes one whose later stream is damaged for a whole one."""

    def __init__(self, path: Path) -> None:
        self._file, self._stream, self._packed, self._whole = path.open("rb"), bz2.BZ2Decompressor(), b"", False

    def close(self) -> None:
        self._file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._stream.eof:
                self._packed, self._stream, self._whole = self._stream.unused_data, bz2.BZ2Decompressor(), True
            if self._stream.needs_input and not self._packed:
                self._packed = self._file.read(PACKED)
                if not self._packed and self._whole:
                    return 0
                if not self._packed:
                    raise EOFError("the last stream has no end")
            part = self._stream.decompress(self._packed, len(buffer))
            self._packed, self._whole = b"", False
            if part:
                buffer[: len(part)] = part
                return len(part)


def _open_bz2(path: Path, mode: str = "rb", **text: Any) -> Any:
    file = io.BufferedReader(_Streams(path))
    return io.TextIOWrapper(file, **text) if "t" in mode else file


OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": _open_bz2}


class Lines(io.BufferedIOBase):
    """The lines of a file, decompressed by its name, within limits of size; what scikit-learn reads as a file."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self.max_bytes = max_bytes

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        with OPENERS.get(self.path.suffix.lower(), open)(self.path, "rb") as file:
            while line := file.readline(MAX_LINE):
                size += len(line)
                if len(line) == MAX_LINE:
                    raise ValueError(
                        f"path: a line of {self.path.name} has more than {MAX_LINE >> 20} MiB; correct it."
                    )
                if size > self.max_bytes:
                    raise too_large(self.path, size, self.max_bytes)
                yield line


def load_libsvm(
    path: Path,
    target: str | None,
    n_features: int | None,
    dtype: np.dtype,
    max_bytes: int,
    zero_based: bool | None = None,
) -> Data:
    """A LIBSVM file; arguments as in `load_file`."""
    from sklearn.datasets import load_svmlight_file

    if target is not None:
        raise ValueError(
            "target: a LIBSVM file holds its own target as the first number of a line; leave target out, or name a "
            "table .csv or .tsv."
        )
    try:
        X, y = load_svmlight_file(Lines(path, max_bytes), dtype=dtype, zero_based=True)
    except _DAMAGED as error:
        raise ValueError(f"path: {path.name} is damaged or cut off ({error}); download or write it again.") from error
    except (ValueError, IndexError, OverflowError) as error:
        # A corrupted block shows up as nonsense before its checksum is reached.
        _check_compression(path, max_bytes)
        if str(error).startswith("path:"):
            raise
        raise _malformed(path, error) from error
    lowest, highest = (int(X.indices.min()), int(X.indices.max())) if X.nnz else (1, 0)
    first = (int(lowest > 0) if zero_based is None else int(not zero_based)) if X.nnz else 1
    if lowest < first:
        raise ValueError(f"zero_based: is False, but {path.name} has a feature with index {lowest}; omit it.")
    p = highest + 1 - first if n_features is None else n_features
    if highest - first >= p:
        raise ValueError(f"n_features: is {p}, but {path.name} has a feature with index {highest}; raise or omit it.")
    if p > MAX_FEATURES:
        for number, line in enumerate(Lines(path, max_bytes), 1):
            problem = _problem(line.split(b"#")[0].decode(errors="replace"))
            if problem is not None:
                raise _wrong_line(path, number, problem)
        raise ValueError(
            f"path: {path.name} would have {p} features, more than the limit of {MAX_FEATURES}; have fewer."
        )
    index = np.int32 if max(p, X.nnz) < np.iinfo(np.int32).max else np.int64
    arrays = X.data, (X.indices - first).astype(index), X.indptr.astype(index)
    X = sparse.csr_array(arrays, shape=(X.shape[0], p))
    return Data(X, y, NumberedNames(p, first), "y")


def _check_compression(path: Path, max_bytes: int) -> None:
    try:
        for _ in Lines(path, max_bytes):
            pass
    except _DAMAGED as error:
        raise ValueError(f"path: {path.name} is damaged or cut off ({error}); download or write it again.") from error


def _malformed(path: Path, error: Exception) -> ValueError:
    """The error for a file that scikit-learn refused, with the first line that is wrong."""
    with OPENERS.get(path.suffix.lower(), open)(path, "rt", encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            text = line.split("#")[0].strip()
            if text and not _LINE.fullmatch(text):
                return ValueError(
                    f"path: line {number} of {path.name} is not 'label index:value ...' ({text[-20:]!r}), "
                    "perhaps cut off; correct that line."
                )
            problem = _problem(text)
            if problem is not None:
                return _wrong_line(path, number, problem)
    return ValueError(f"path: {path.name} is not a valid LIBSVM file ({str(error).rstrip('.')}); correct it.")


def _problem(text: str) -> str | None:
    """The fault of the indices of a line, as a clause; None if there is none."""
    indices = [index.lstrip("0") for index in re.findall(r"(\d+):", text)]
    # By their length first: Python refuses to convert numbers of thousands of digits.
    large = [index for index in indices if len(index) > len(str(MAX_FEATURES)) or int(index or 0) > MAX_FEATURES]
    if large:
        shown = large[0] if len(large[0]) < 40 else f"{large[0][:40]}..."
        return f"has a feature with index {shown}, more than the limit of {MAX_FEATURES} features"
    unsorted = any(int(later or 0) <= int(index or 0) for index, later in itertools.pairwise(indices))
    return "has indices that do not increase" if unsorted else None


def _wrong_line(path: Path, number: int, problem: str) -> ValueError:
    return ValueError(f"path: {path.name} is not a valid LIBSVM file (line {number} {problem}); correct that line.")
