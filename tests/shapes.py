"""Shapes of arguments and results, checked at run time: what `conftest.py` puts around the package's functions."""

import functools
import inspect
import operator
import types
from typing import Any, Self, get_args, get_origin

import jax
import numpy as np
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

CHECKED = ("designs", "duality", "linalg", "losses", "objectives")  # rooms
MODULES = [f"sparsehtp.{room}" for room in CHECKED]
ANY_ARRAY = jax.Array | np.ndarray | np.generic

_with_checks = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float


def checked(function):
    """The function with its annotations checked, unless it is made anew in every call of another one."""
    if "<locals>" in function.__qualname__:
        return function

    @functools.cache
    def with_checks():  # made at the first call: most functions are never called by a process
        function.__annotations__ = {name: _either(hint) for name, hint in function.__annotations__.items()}
        return _with_checks(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        return with_checks()(*args, **kwargs)

    return call


def _either(hint):
    """The annotation, with NumPy's arrays where it says JAX's: JAX takes both alike."""
    if hint is Self:  # which beartype knows in whole classes only
        return Any
    if hint is jax.Array:
        return ANY_ARRAY
    if inspect.isclass(hint) and issubclass(hint, AbstractArray) and hint.array_type is jax.Array:
        return hint.dtype[ANY_ARRAY, hint.dim_str]
    if isinstance(hint, types.UnionType):
        return functools.reduce(operator.or_, map(_either, get_args(hint)))
    if get_origin(hint) in (tuple, list):
        return get_origin(hint)[tuple(map(_either, get_args(hint)))]
    return hint
