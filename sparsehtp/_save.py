"""Models and results in one file, without pickle: a NumPy archive of arrays with a JSON description of the rest.

Only public classes of this package are written and rebuilt (named tuples, dataclasses and modules, estimators), by
name and field by field, so that reading a file runs none of its content.
"""

import dataclasses
import importlib
import inspect
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped, jaxtyped

from ._types import check_finite
from .io.memory import too_large
from .io.npz import MAX_MEMBERS, read_npz
from .io.results import versions, write_whole
from .iteration.results import Solution
from .objectives import AbstractObjective

FORMAT = "sparsehtp"
VERSION = 1
MAX_BYTES = 2**30
MAX_RATIO = 4  # a file of plain numbers hardly shrinks: larger models than MAX_BYTES are read where the file is large
MAX_MANIFEST = 2**25  # bytes; as Python objects it takes up to twenty times as many
_MANIFEST = "manifest"
# Modules whose classes can be saved.
_PLACES = [
    f"sparsehtp{room}"
    for room in ("", ".columns", ".designs", ".losses", ".results", ".solvers", ".steps", ".stopping")
]
_ADVICE = "or was not written by sht.save"
# What scikit-learn adds to the attributes that an estimator declares.
_ANY_P: Any = Shaped[np.ndarray, "p"]
_ADDED = {
    "n_features_in_": int,
    "feature_names_in_": _ANY_P,
    "_sklearn_output_config": dict,
}
_OPTIONAL = {"feature_names_in_", "_sklearn_output_config"}
_NUMBERS = {"x", "intercept", "coefficients", "coef_", "intercept_"}  # fields of results, finite whatever was fitted


def save(model: object, path: str | os.PathLike[str]) -> Path:
    """Write a model or a result into one file, which appears under its name only when it is complete.

    Args:
        model: a fitted estimator, a scikit-learn Pipeline of this package's estimators, a `Solution` or another result
            such as a `Path`, or a tuple, list or dict of them. The solver's state in a Solution is not written; it is
            None after `load`.
        path: file to write, replaced if it exists; the name is taken as it is, `.npz` is customary.

    Returns:
        The path.

    Raises:
        TypeError: if the model holds something that is not data of this package, NumPy or JAX: a function, an object
            of another package, or an attribute that its class does not declare. The message says where.
        ValueError: under `jit` or `vmap`, or if there are too many arrays, or names and numbers outside them.
        OSError: if the file cannot be written.
    """
    arrays: dict[str, Any] = {}
    manifest = {"format": FORMAT, "version": VERSION, "versions": versions(), "model": _encode(model, "model", arrays)}
    arrays[_MANIFEST] = np.frombuffer(json.dumps(manifest, allow_nan=False).encode(), np.uint8)
    path = Path(path)
    if arrays[_MANIFEST].size > MAX_MANIFEST:
        raise ValueError(f"model: holds more than {MAX_MANIFEST >> 20} MiB beside its arrays; save parts of it.")
    if len(arrays) > MAX_MEMBERS:
        raise ValueError(f"model: holds more than {MAX_MEMBERS} arrays; save parts of it.")
    try:
        write_whole(path, lambda file: np.savez_compressed(file, **arrays))
    except OSError as error:
        raise OSError(f"path: cannot write {path} ({error.strerror or error}); choose another place.") from error
    return path


def load(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Any:
    """Read what `save` has written: arrays bit for bit, NumPy as NumPy and JAX as JAX, with their dtypes.

    Args:
        path: the file.
        max_bytes: limit for what its arrays may take, by their headers, before memory is taken for them. None: 1 GiB,
            or four times the size of the file where that is more.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, was not written by `save`, or by a newer version of it; if it would take
            more than `max_bytes`, or has more than 8192 arrays; or if a class has other fields than in the file, a
            fitted attribute another shape, or coefficients or an objective's data are not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path: there is no file {path}.")
    limit = max(MAX_BYTES, MAX_RATIO * path.stat().st_size) if max_bytes is None else max_bytes
    arrays = read_npz(path, limit, f"{_ADVICE}.")
    if _MANIFEST in arrays and arrays[_MANIFEST].nbytes > MAX_MANIFEST:
        raise too_large(path, arrays[_MANIFEST].nbytes, MAX_MANIFEST)
    # A crafted manifest makes the parser, or the rebuilt classes, raise nearly anything.
    try:
        manifest = json.loads(arrays.pop(_MANIFEST).tobytes())
        if manifest["format"] != FORMAT:
            raise ValueError("another format")
        newer = manifest["version"] > VERSION
        model = None if newer else _decode(manifest["model"], arrays)
        if arrays and not newer:
            raise ValueError("arrays that no field names")
    except _Misfit as error:
        raise ValueError(f"path: {path.name} is damaged, {_ADVICE} as it is: {error}.") from error
    except Exception as error:
        raise ValueError(f"path: {path.name} is damaged, {_ADVICE}.") from error
    if newer:
        raise ValueError(f"path: {path} was written by a newer version of sparsehtp; update the package to read it.")
    return model


class _Misfit(Exception):
    """Fields that a class does not have or that do not suit it, as a clause."""


def _public(name: str) -> type | None:
    """The class of this package with a name that can be saved; None: there is none."""
    for place in _PLACES:
        found = getattr(importlib.import_module(place), name, None)
        if isinstance(found, type):
            return found
    return None


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a named tuple, dataclass (module) or estimator; None for anything else."""
    if isinstance(value, Solution):
        value = value._replace(state=None)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if hasattr(value, "get_params"):
        return dict(value.__getstate__())
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _check_fields(kind: Any, fields: dict[str, Any]) -> None:
    """_Misfit unless these are the fields of the class, with the types and shapes that an estimator declares."""
    fitted: dict[str, Any] = {}
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = set(kind._fields)
    elif hasattr(kind, "get_params"):
        names, fitted = set(kind._get_param_names()), _fitted_attributes(kind)
    elif dataclasses.is_dataclass(kind):
        names = {field.name for field in dataclasses.fields(kind)}
    else:
        raise _Misfit(f"{kind.__name__} is no class that can be saved")
    is_fitted = any(name in fitted and name.endswith("_") for name in fields)
    required = names - set(getattr(kind, "_field_defaults", ())) | (fitted.keys() - _OPTIONAL if is_fitted else set())
    for name in sorted(fields.keys() - names - fitted.keys()):
        raise _Misfit(f"{kind.__name__} has no attribute {name!r}")
    for name in sorted(required - fields.keys()):
        raise _Misfit(f"the attribute {name!r} of {kind.__name__} is missing")
    with jaxtyped("context"):  # equal letters in shapes stand for equal numbers
        for name in [name for name in fitted if name in fields]:
            value = fields[name]
            if not isinstance(value, fitted[name]):
                what = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
                raise _Misfit(f"{name!r} of {kind.__name__} is {what}, which does not suit its other attributes")
            if name == "n_features_in_":
                isinstance(np.broadcast_to(0, value), _ANY_P)  # from here on p is this number


def _fitted_attributes(kind: type) -> dict[str, Any]:
    """The attributes that an estimator declares to have after `fit`: fields that are no parameters."""
    fitted, names = dict(_ADDED), {field.name for field in dataclasses.fields(kind) if not field.init}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith(f"{FORMAT}."):
            declared = inspect.get_annotations(base, eval_str=True)
            fitted |= {name: hint for name, hint in declared.items() if name in names}
    return fitted


def _encode(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    """JSON for a value, {tag: content} but for what JSON has itself; arrays go into `arrays`."""

    def each(values: Iterable[Any]) -> list[Any]:
        return [_encode(item, f"{where}[{i}]", arrays) for i, item in enumerate(values)]

    def stored(array: np.ndarray) -> str:
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
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if type(value) is dict:
        pairs = [[_encode(k, where, arrays), _encode(v, f"{where}[{k!r}]", arrays)] for k, v in value.items()]
        return {"dict": pairs}
    if (type(value).__module__, type(value).__name__) == ("sklearn.pipeline", "Pipeline"):
        return {"pipeline": each(value.steps)}
    fields = _fields(value) if _public(type(value).__name__) is type(value) else None
    if fields is None:
        what = getattr(value, "__name__", f"a {type(value).__name__}")
        raise TypeError(f"{where}: cannot save {what}, which is no public class of sparsehtp nor plain data.")
    try:
        _check_fields(type(value), fields)
    except _Misfit as error:
        raise TypeError(f"{where}: cannot be saved, since {error}; remove it or fit again.") from error
    return {"object": [type(value).__name__, {k: _encode(v, f"{where}.{k}", arrays) for k, v in fields.items()}]}


def _decode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The value of a piece of JSON; takes every array out of `arrays`, so that none is used (and copied) twice."""
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "numpy":
        return arrays.pop(content)
    if tag == "scalar":
        return arrays.pop(content)[()]
    if tag == "jax":
        with jax.enable_x64(True):  # or float64 would become float32
            return jnp.asarray(arrays.pop(content))
    if tag == "key":
        return jax.random.wrap_key_data(jnp.asarray(arrays.pop(content[0])), impl=content[1])
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
    if tag == "range":
        return range(*content)
    if tag == "dict":
        return {_decode(k, arrays): _decode(v, arrays) for k, v in content}
    if tag == "pipeline":
        from sklearn.pipeline import Pipeline

        return Pipeline([_decode(step, arrays) for step in content])
    if tag != "object":
        raise ValueError(f"unknown tag {tag}")
    name, fields = content
    kind = _public(name)
    if kind is None:
        raise TypeError(f"{name} is no class that can be saved.")
    return _rebuild(kind, {k: _decode(v, arrays) for k, v in fields.items()})


def _rebuild(kind: type, fields: dict[str, Any]) -> Any:
    _check_fields(kind, fields)
    for name in fields if issubclass(kind, AbstractObjective) else _NUMBERS & fields.keys():
        try:
            check_finite(f"{name!r} of {kind.__name__}", fields[name])
        except ValueError as error:
            raise _Misfit(str(error).rstrip(".")) from error
    if issubclass(kind, tuple):
        return kind(**fields)
    # Field by field: a module's __init__ takes other arguments, and would convert or check again.
    new = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(new, name, value)
    return new
