"""NumPy's .npy files, mapped into memory: nothing is read before it is used, and nothing is copied."""

from pathlib import Path

import numpy as np


def map_npy(path: Path) -> np.ndarray:
    """The array of real numbers in a .npy file, mapped read-only.

    A file must not be cut while it is mapped: the system then ends the process.

    Raises:
        FileNotFoundError: if there is no such file.
        OSError: if the system cannot map it.
        ValueError: if it is damaged, longer or shorter than its header says, empty, or holds anything but numbers.
    """
    if not path.is_file():
        raise FileNotFoundError(f"paths: there is no file {path}.")
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except MemoryError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise OSError(
            f"path: {path} cannot be mapped into memory ({reason}); copy it to a disk of this computer."
        ) from error
    except Exception as error:  # crafted bytes make the parser of the header raise nearly anything
        raise ValueError(f"path: {path.name} is damaged or no .npy file; write it again with numpy.save.") from error
    if array.offset + array.nbytes != path.stat().st_size:
        raise ValueError(f"path: {path.name} holds more than its header says; write it again with numpy.save.")
    if array.dtype.kind not in "fiub" or not array.size:
        raise ValueError(
            f"path: {path.name} needs real numbers, got dtype {array.dtype} and shape {array.shape}; write them again "
            "with numpy.save."
        )
    return array
