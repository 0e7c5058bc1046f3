"""NPZ files with dense or sparse features."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..io.npz import read_npz
from ..io.text import printable
from .data import Data, NumberedNames
from .libsvm import MAX_FEATURES

PARTS = ("data", "indices", "indptr", "shape")  # of a CSR matrix
ADVICE = "no NPZ file, or holds pickled objects, which are never loaded; write plain numeric arrays with numpy.savez."


def load_npz(path: Path, target: str | None, n_features: int | None, dtype: np.dtype, max_bytes: int) -> Data:
    """An NPZ file; arguments as in `load_file`."""
    arrays, X, names = load_features(path, max_bytes)
    target_name = "y" if target is None else target
    if target_name in ("X", *PARTS):
        raise ValueError(f"target: {target_name} holds the features; name another array.")
    y = pick(path, arrays, "target", target_name)
    if y.shape != X.shape[:1] or y.dtype.kind not in "fiubU":
        raise ValueError(
            f"target: {target_name!r} in {path.name} needs shape ({X.shape[0]},), one number or text label "
            f"per row of X, got shape {y.shape} and dtype {y.dtype}; correct it."
        )
    y = np.array([printable(label) for label in y.tolist()]) if y.dtype.kind == "U" else y.astype(np.float64)
    X = X.astype(dtype) if sparse.issparse(X) else np.ascontiguousarray(X, dtype)
    return Data(X, y, names, target_name)


def load_features(path: Path, max_bytes: int) -> tuple[dict[str, np.ndarray], Any, Sequence[str]]:
    """All arrays of an NPZ file, its features (dense or CSR), and their names."""
    arrays = read_npz(path, max_bytes, ADVICE)
    stored = all(part in arrays for part in PARTS) and "X" not in arrays
    X = _csr(path, *(arrays[part] for part in PARTS)) if stored else pick(path, arrays, "path", "X")
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(
            f"path: X in {path.name} needs two dimensions and real numbers, got shape {X.shape} and dtype "
            f"{X.dtype}; reshape or encode it."
        )
    stored_names = arrays.get("feature_names")
    names = (
        NumberedNames(X.shape[1]) if stored_names is None else [printable(str(name)) for name in stored_names.ravel()]
    )
    if len(names) != X.shape[1]:
        raise ValueError(
            f"path: feature_names in {path.name} has {len(names)} names for {X.shape[1]} columns of X; give one each."
        )
    return arrays, X, names


def pick(path: Path, arrays: dict[str, np.ndarray], argument: str, name: str) -> np.ndarray:
    """An array by its name; ValueError, which names the argument, if there is none."""
    if name not in arrays:
        raise ValueError(
            f"{argument}: there is no array {name!r} in {path.name}; it has {', '.join(list(arrays)[:8])}."
        )
    return arrays[name]


def _csr(path: Path, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: Any) -> Any:
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
        X = sparse.csr_array((data, indices, indptr), shape=tuple(int(length) for length in shape))
        X.check_format(full_check=True)  # before anything trusts the indices
    except ValueError as error:
        raise ValueError(
            f"path: {path.name} does not hold a valid CSR matrix ({str(error).rstrip('.')}); write it again."
        ) from error
    X.sum_duplicates()
    return X
