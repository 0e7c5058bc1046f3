"""Shapes of arguments and results, checked at run time: what `conftest.py` puts around the package's functions."""

import functools
import inspect
import operator
import types
from typing import Any, get_args, get_origin

import jax
import numpy as np
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

CHECKED = ("columns", "designs", "duality", "linalg", "losses", "objectives")  # rooms
MODULES = [f"sparsehtp.{room}" for room in CHECKED]
ANY_ARRAY = jax.Array | np.ndarray | np.generic

_with_checks = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float


def checked(function):
    """The function with its arrays checked, unless it is made anew in every call of another one."""
    hints = {name: _of_arrays(hint) for name, hint in function.__annotations__.items()}
    if "<locals>" in function.__qualname__ or all(hint is Any for hint in hints.values()):
        return function

    @functools.cache
    def with_checks():  # made at the first call: most functions are never called by a process
        function.__annotations__ = hints
        return _with_checks(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        return with_checks()(*args, **kwargs)

    return call


def _of_arrays(hint):
    """What an annotation says of arrays, NumPy's being as good as JAX's; Any for all else, which is left to mypy.

    What is wrong with other arguments the package's own errors say, in a sentence.
    """
    if hint is jax.Array:
        return ANY_ARRAY
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return hint.dtype[ANY_ARRAY, hint.dim_str] if hint.array_type is jax.Array else hint
    parts = [part if part in (float, types.NoneType) else _of_arrays(part) for part in get_args(hint)]
    if Any in parts:
        return Any
    if isinstance(hint, types.UnionType):
        return functools.reduce(operator.or_, parts)
    return tuple[tuple(parts)] if get_origin(hint) is tuple else Any
