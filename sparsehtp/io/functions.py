"""Texts of a user's functions: their code, and the data that they hold or name."""

import dataclasses
import functools
import hashlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

OTHERS = {*sys.stdlib_module_names, "sparsehtp", "jax", "jaxlib", "equinox", "numpy", "optax", "scipy"}  # by version


def functions_in(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """The functions of a user's in a nest of settings, and what else of a user's may hold data, each once, in their
    order."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, jax.Array | np.ndarray | str | bytes | int | float | None):
        return
    seen.add(id(value))
    parts: Any
    if isinstance(value, types.FunctionType):
        if _of_a_user(value):
            yield value
        return
    if isinstance(value, type | types.ModuleType):
        return
    if isinstance(value, functools.partial) or _of_a_user(type(value)):
        yield value
    if isinstance(value, functools.partial):
        parts = value.func, value.args, value.keywords
    elif isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, tuple | list):
        parts = value
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    else:  # a method, a compiled function, a value of a class of one's own
        parts = [getattr(value, name, None) for name in ("__func__", "__self__", "__wrapped__")]
        parts += list(getattr(value, "__dict__", {}).values())
    for part in parts:
        yield from functions_in(part, seen)
    if _of_a_user(type(value)):  # its methods
        for part in vars(type(value)).values():
            yield from functions_in(part, seen)


def _of_a_user(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").partition(".")[0] not in OTHERS


def described(function: Any, seen: set[int] | None = None) -> str:
    """A text that differs where the code of a function does, or what it closes over, its defaults, or the numbers,
    arrays and functions that it names: not where it stands. Of what is no function, where its data do."""
    seen = set() if seen is None else seen
    if not isinstance(function, types.FunctionType):
        return _text(function, seen)
    if id(function) in seen:
        return "again"
    seen.add(id(function))
    held: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not yet given
            continue
    held += [function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__]
    return f"{_code(function.__code__)} {[_text(value, seen) for value in held]}"


def _text(value: Any, seen: set[int]) -> str:
    if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(value, jax.Array | np.ndarray | np.generic) and not isinstance(value, jax.core.Tracer):
        array = np.asarray(value)
        numbers = b"" if array.dtype.kind == "O" else array.tobytes()
        return f"{array.dtype}{array.shape}{hashlib.sha256(numbers).hexdigest()}"
    if isinstance(value, str | bytes | int | float | complex | range | None):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(_text(each, seen) for each in value)}]"
    if isinstance(value, set | frozenset):
        return f"{sorted(_text(each, seen) for each in value)}"
    parts = _parts(value)
    if parts and id(value) in seen:
        return "again"
    seen.update([id(value)] if parts else [])
    held = [(_text(name, seen), _text(part, seen)) for name, part in parts.items()]
    named = isinstance(value, type | types.ModuleType) or not _of_a_user(value)  # a function of a library is its name
    name = getattr(value, "__name__", "") if named else ""
    inner = [described(each, seen) for each in functions_in(value) if each is not value]
    return f"{type(value).__name__} {name} {held} {inner}"


def _parts(value: Any) -> dict[Any, Any]:
    """Parts that decide a value, by their names; empty where they are not known."""
    if isinstance(value, dict):
        return value
    if isinstance(value, functools.partial):
        return {"args": value.args, **value.keywords}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    own = isinstance(value, types.SimpleNamespace) or _of_a_user(type(value))
    return dict(getattr(value, "__dict__", {})) if own else {}


def _names(code: types.CodeType) -> list[str]:
    inner = [name for each in code.co_consts if isinstance(each, types.CodeType) for name in _names(each)]
    return [*code.co_names, *inner]


def _code(code: types.CodeType) -> str:
    return f"{code.co_code.hex()} {[_constant(each) for each in code.co_consts]} {code.co_names} {code.co_varnames}"


def _constant(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return _code(value)
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)  # its order is another each time
