"""Models and results in one file, without pickle: a NumPy archive of arrays with a JSON description of the rest.

Only public classes of this package are written and rebuilt (named tuples, dataclasses and modules, estimators), by
name and field by field, so that reading a file runs none of its content.
"""

import dataclasses
import importlib
import json
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._results import Solution
from .results import versions, write_whole

FORMAT = "sparsehtp"
VERSION = 1
_MANIFEST = "manifest"
# What reading a file of another kind, or a damaged one, may raise.
_FOREIGN = (ValueError, LookupError, TypeError, AttributeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


def save(model: Any, path: str | os.PathLike) -> Path:
    """Write a model or a result into one file, which appears under its name only when it is complete.

    Args:
        model: a fitted estimator, a `Solution` or another result such as a `Path`, or a tuple, list or dict of them.
            The solver's state in a Solution is not written; it is None after `load`.
        path: file to write, replaced if it exists; the name is taken as it is, `.npz` is customary.

    Returns:
        The path.

    Raises:
        TypeError: if the model holds something that is not data of this package, NumPy or JAX: a function, or an
            object of another package. The message says where.
        ValueError: under `jit` or `vmap`.
        OSError: if the file cannot be written.
    """
    arrays: dict[str, Any] = {}
    manifest = {"format": FORMAT, "version": VERSION, "versions": versions(), "model": _encode(model, "model", arrays)}
    arrays[_MANIFEST] = np.frombuffer(json.dumps(manifest, allow_nan=False).encode(), np.uint8)
    path = Path(path)
    try:
        write_whole(path, lambda file: np.savez_compressed(file, **arrays))
    except OSError as error:
        raise OSError(f"path: cannot write {path} ({error.strerror or error}); choose another place.") from error
    return path


def load(path: str | os.PathLike) -> Any:
    """Read what `save` has written: arrays bit for bit, NumPy as NumPy and JAX as JAX, with their dtypes.

    Args:
        path: the file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, was not written by `save`, or by a newer version of it.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path: there is no file {path}.")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            manifest = json.loads(archive[_MANIFEST].tobytes())
            if manifest["format"] != FORMAT:
                raise ValueError
            newer = manifest["version"] > VERSION
            arrays = {} if newer else {name: archive[name] for name in archive.files if name != _MANIFEST}
        if not newer:
            return _decode(manifest["model"], arrays)
    except _FOREIGN as error:
        raise ValueError(f"path: {path} is damaged, or was not written by sht.save.") from error
    raise ValueError(f"path: {path} was written by a newer version of sparsehtp; update the package to read it.")


def _public(name: str) -> type:
    """The public class of this package with a name."""
    found = getattr(importlib.import_module("sparsehtp"), name)
    if not isinstance(found, type):
        raise TypeError(f"{name} is no class.")
    return found


def _is_public(kind: type) -> bool:
    return getattr(importlib.import_module("sparsehtp"), kind.__name__, None) is kind


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a named tuple, dataclass (module) or estimator; None for anything else."""
    if isinstance(value, Solution):
        value = value._replace(state=None)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(vars(value)) if hasattr(value, "get_params") else None


def _encode(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    """JSON for a value, {tag: content} but for what JSON has itself; arrays go into `arrays`."""

    def each(values):
        return [_encode(item, f"{where}[{i}]", arrays) for i, item in enumerate(values)]

    def stored(array):
        arrays[f"a{len(arrays)}"] = array
        return f"a{len(arrays) - 1}"

    if isinstance(value, jax.core.Tracer):
        raise ValueError(
            f"{where}: is traced, and only concrete values can be saved; save outside jax.jit and jax.vmap."
        )
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return {"key": [stored(np.asarray(jax.random.key_data(value))), str(jax.random.key_impl(value))]}
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind in "OT":
            return {"objects": [each(array.ravel().tolist()), array.shape]}
        if array.dtype.kind in "biufcUSmM":
            kind = "jax" if isinstance(value, jax.Array) else "numpy" if isinstance(value, np.ndarray) else "scalar"
            return {kind: stored(array)}
        raise TypeError(f"{where}: cannot save an array of dtype {array.dtype}.")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) in (tuple, list):
        return {type(value).__name__: each(value)}
    if type(value) is dict:
        pairs = [[_encode(k, where, arrays), _encode(v, f"{where}[{k!r}]", arrays)] for k, v in value.items()]
        return {"dict": pairs}
    fields = _fields(value) if _is_public(type(value)) else None
    if fields is None:
        what = getattr(value, "__name__", f"a {type(value).__name__}")
        raise TypeError(f"{where}: cannot save {what}, which is no public class of sparsehtp nor plain data.")
    return {"object": [type(value).__name__, {k: _encode(v, f"{where}.{k}", arrays) for k, v in fields.items()}]}


def _decode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "numpy":
        return arrays[content]
    if tag == "scalar":
        return arrays[content][()]
    if tag == "jax":
        with jax.enable_x64(True):  # or float64 would become float32
            return jnp.asarray(arrays[content])
    if tag == "key":
        return jax.random.wrap_key_data(jnp.asarray(arrays[content[0]]), impl=content[1])
    if tag == "objects":
        items, shape = content
        array = np.empty(len(items), object)
        for i, item in enumerate(items):
            array[i] = _decode(item, arrays)
        return array.reshape(shape)
    if tag == "float":
        return float(content)
    if tag in ("tuple", "list"):
        items = [_decode(item, arrays) for item in content]
        return tuple(items) if tag == "tuple" else items
    if tag == "dict":
        return {_decode(k, arrays): _decode(v, arrays) for k, v in content}
    if tag != "object":
        raise ValueError(f"unknown tag {tag}")
    name, fields = content
    return _rebuild(_public(name), {k: _decode(v, arrays) for k, v in fields.items()})


def _rebuild(kind: type, fields: dict[str, Any]) -> Any:
    if issubclass(kind, tuple):
        return kind(**fields)
    if not (dataclasses.is_dataclass(kind) or hasattr(kind, "get_params")):
        raise TypeError(f"{kind.__name__} is no class that can be saved.")
    # Field by field: a module's __init__ takes other arguments, and would convert or check again.
    new = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(new, name, value)
    return new
