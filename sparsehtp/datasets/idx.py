"""IDX files, the format of MNIST."""

import gzip
import zlib
from pathlib import Path

import numpy as np

from .data import Data, NumberedNames


def load_idx(paths: list[Path], shape: tuple[int, int]) -> Data:
    """Images and labels, alternating, as rows of numbers from 0 to 255.

    Raises:
        ValueError: for files that are damaged or of another shape.
    """
    n, p = shape
    images = np.concatenate([_read(path, 3, n * p).reshape(-1, p) for path in paths[::2]])
    labels = np.concatenate([_read(path, 1, n) for path in paths[1::2]])
    if len(images) != len(labels):
        raise ValueError(f"path: there are {len(images)} images but {len(labels)} labels; download the files again.")
    return Data(images.astype(np.float64), labels.astype(np.float64), NumberedNames(p), "digit")


def _read(path: Path, dimensions: int, largest: int) -> np.ndarray:
    try:
        with gzip.open(path, "rb") as file:
            magic = file.read(4)
            sizes = np.frombuffer(file.read(4 * dimensions), ">i4")
            total = int(np.prod(sizes, dtype=object))
            if magic != bytes((0, 0, 8, dimensions)) or not 0 < total <= largest:
                raise ValueError(f"path: {path.name} is not the IDX file that was expected; download it again.")
            data = file.read(total + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"path: {path.name} is damaged or cut off ({error}); download it again.") from error
    if len(data) != total:
        raise ValueError(f"path: {path.name} has {len(data)} bytes of data where {total} are due; download it again.")
    return np.frombuffer(data, np.uint8)
