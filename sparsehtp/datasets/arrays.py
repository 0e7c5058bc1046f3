"""NPZ files with dense or sparse features; pickles are never loaded."""

import zipfile
from pathlib import Path

import numpy as np
from scipy import sparse

from .data import Data, NumberedNames, too_large
from .libsvm import MAX_FEATURES

PARTS = ("data", "indices", "indptr", "shape")  # of a CSR matrix


def load_npz(path: Path, target: str | None, n_features: int | None, dtype: np.dtype, max_bytes: int) -> Data:
    """An NPZ file; arguments as in `load_file`."""
    arrays = _read(path, max_bytes)
    target_name = "y" if target is None else target
    if target_name in ("X", *PARTS):
        raise ValueError(f"target: {target_name} holds the features; name another array.")
    stored = all(part in arrays for part in PARTS) and "X" not in arrays
    for argument, name in (("path", "X"), ("target", target_name)):
        if name not in arrays and not (stored and name == "X"):
            raise ValueError(
                f"{argument}: there is no array {name!r} in {path.name}; it has {', '.join(list(arrays)[:8])}."
            )
    X = _csr(path, *(arrays[part] for part in PARTS)) if stored else arrays["X"]
    y = arrays[target_name]
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
    names = [str(name) for name in arrays["feature_names"]] if "feature_names" in arrays else NumberedNames(X.shape[1])
    if len(names) != X.shape[1]:
        raise ValueError(
            f"path: feature_names in {path.name} has {len(names)} names for {X.shape[1]} columns of X; give one each."
        )
    y = y if y.dtype.kind == "U" else y.astype(np.float64)
    X = X.astype(dtype) if stored else np.ascontiguousarray(X, dtype)
    return Data(X, y, names, target_name)


def _read(path, max_bytes):
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(_claimed(archive, member) for member in archive.infolist())
        if size > max_bytes:
            raise too_large(path, size, max_bytes)
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, TypeError, MemoryError, zipfile.BadZipFile) as error:
        if str(error).startswith("path:"):
            raise
        raise ValueError(
            f"path: {path.name} is damaged, no NPZ file, or holds pickled objects, which are never loaded; "
            "write plain numeric arrays with numpy.savez."
        ) from error


def _claimed(archive, member):
    """Bytes that an array says it has; ValueError where the member holds fewer or more."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        size = int(np.prod([int(length) for length in shape], dtype=object)) * dtype.itemsize
        if dtype.hasobject or size != member.file_size - file.tell():
            raise ValueError("the header of an array does not match its data")
    return size


def _csr(path, data, indices, indptr, shape):
    plain = data.ndim == indices.ndim == indptr.ndim == shape.ndim == 1 and shape.size == 2
    if not plain or {indices.dtype.kind, indptr.dtype.kind, shape.dtype.kind} - {"i", "u"} or shape.min() < 0:
        raise ValueError(
            f"path: data, indices, indptr and shape in {path.name} are not those of a CSR matrix; write them again, "
            "or store a dense X."
        )
    if shape[1] > MAX_FEATURES:
        raise ValueError(
            f"path: {path.name} claims {shape[1]} features, more than the limit of {MAX_FEATURES}; correct its shape."
        )
    try:
        X = sparse.csr_array((data, indices, indptr), shape=tuple(int(length) for length in shape), copy=True)
        X.check_format(full_check=True)  # before anything trusts the indices
    except ValueError as error:
        raise ValueError(
            f"path: {path.name} does not hold a valid CSR matrix ({str(error).rstrip('.')}); write it again."
        ) from error
    X.sum_duplicates()
    return X
