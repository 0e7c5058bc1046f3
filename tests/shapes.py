"""Shapes of arguments and results, checked at run time: what `conftest.py` puts around the package's functions."""

import functools
import inspect
import operator
import threading
import types
from typing import Any, get_args, get_origin

import jax
import jaxtyping
import numpy as np
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

CHECKED = ("columns", "designs", "duality", "linalg", "losses", "objectives")  # rooms
MODULES = [f"sparsehtp.{room}" for room in CHECKED]
JAXTYPED = jaxtyping.jaxtyped
GIVEN = threading.local()  # what came of the call that is being checked: its result, or its error
ANY_ARRAY = jax.Array | np.ndarray | np.generic

_with_checks = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float


def jaxtyped(*args, **kwargs):
    """jaxtyping's decorator for what says something of arrays; shapes that have passed are not checked again.

    Checking every call anew took a tenth of the time of all tests.
    """
    with_checks = JAXTYPED(*args, **kwargs)
    if args:  # another library's use
        return with_checks

    def decorate(one):
        if inspect.isclass(one):
            return with_checks(one)
        made_anew = "<locals>" in one.__qualname__  # in every call of another function
        if made_anew or all(_of_arrays(hint) is Any for hint in one.__annotations__.values()):
            return one
        passed = set()

        @functools.cache
        def check():  # made at the first call: most functions are never called by a process
            return with_checks(functools.wraps(one)(_outcome))

        @functools.wraps(one)
        def call(*args, **kwargs):
            try:
                result = one(*args, **kwargs)
            except Exception as error:  # because of a shape, or for a reason of its own
                GIVEN.outcome = error
                return check()(*args, **kwargs)
            shapes = _shapes((*args, *kwargs, *kwargs.values(), result))
            if shapes not in passed:
                GIVEN.outcome = result
                check()(*args, **kwargs)
                passed.add(shapes)
            return result

        return call

    return decorate


def _outcome(*args, **kwargs):
    if isinstance(GIVEN.outcome, Exception):
        raise GIVEN.outcome
    return GIVEN.outcome


def _shapes(value):
    if type(value) is tuple:
        return tuple(map(_shapes, value))
    return (value.shape, value.dtype) if isinstance(value, ANY_ARRAY) else type(value)


def checked(function):
    """The function with what is said of arrays checked, and nothing else."""
    function.__annotations__ = {name: _of_arrays(hint) for name, hint in function.__annotations__.items()}
    return _with_checks(function)


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
