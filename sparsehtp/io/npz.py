"""The one reader of NumPy archives: pickles are never loaded, and no file takes more memory than it is allowed."""

import io
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from .memory import too_large

MAX_MEMBERS = 2**13  # each takes a quarter of a millisecond
MAX_HEADER = 2**14  # bytes of an array's header; NumPy's own limit is 10,000 characters


def read_npz(path: Path, max_bytes: int, advice: str) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file.

    Args:
        path: the file; read in place, so that no path in the archive is ever written to.
        max_bytes: limit for what the arrays may take together, by their headers, before memory is taken for them.
        advice: what a damaged file may be, and what to do: the end of the sentence.

    Raises:
        OSError: if the file cannot be opened.
        ValueError: if it is damaged, too large, of too many arrays, or no archive of plain arrays.
    """
    with path.open("rb") as file:
        # Crafted bytes make the parsers of the archive and of its headers raise nearly anything.
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                few = len(members) <= MAX_MEMBERS
                size = sum(_claimed(archive, member) for member in members) if few else 0
            if few and size <= max_bytes:
                file.seek(0)
                with np.load(file, allow_pickle=False) as arrays:
                    return {name: arrays[name] for name in arrays.files}
        except MemoryError:
            raise
        except Exception as error:
            raise ValueError(f"path: {path.name} is damaged, {advice}") from error
    if not few:
        raise ValueError(
            f"path: {path.name} holds {len(members)} arrays, more than the limit of {MAX_MEMBERS}; write fewer and "
            "larger ones."
        )
    raise too_large(path, size, max_bytes)


def member_shape(path: Path, name: str) -> tuple[int, ...] | None:
    """The shape of one array by its header alone; None for a file that does not hold it or is damaged."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
            return _header(member)[0]
    except Exception:  # as above; whoever reads the file says what is wrong
        return None


def member(path: Path, name: str) -> np.ndarray | None:
    """One array without the others; None for a file that does not hold it or is damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays[name]) if member_shape(path, name) is not None else None
    except Exception:  # as above
        return None


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape, dtype and where the data begin."""
    start = io.BytesIO(member.read(MAX_HEADER))  # a header may claim gigabytes for itself
    version = np.lib.format.read_magic(start)
    read: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(start)
    return tuple(int(length) for length in shape), dtype, start.tell()


def _claimed(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Bytes that an array says it has; ValueError where the member holds fewer or more."""
    with archive.open(member) as file:
        shape, dtype, begin = _header(file)
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if min(shape, default=0) < 0 or size != member.file_size - begin:
        raise ValueError("the header of an array does not match its data")
    return size
