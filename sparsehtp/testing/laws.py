"""How a law that does not hold is reported."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np


def name_of(part: Any) -> str:
    """A part as a message names it: with its parameters where these are a few numbers."""
    text = repr(part)
    return text if "[" not in text and len(text) <= 60 else type(part).__name__


@contextlib.contextmanager
def traced(part: Any) -> Iterator[None]:
    """The law that JAX can trace what is called inside."""
    try:
        yield
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        reason = str(error).splitlines()[0].rstrip(".:")
        raise AssertionError(
            f"{name_of(part)}: is traced by jax.jit and jax.vmap, but {type(error).__name__}: {reason}."
        ) from error


def law(part: Any, sentence: str, holds: Any, **numbers: Any) -> None:
    """AssertionError unless `holds` everywhere.

    The message names the part, the law in words, and the numbers at the first place where it does not hold: arrays
    are taken there along their leading axes, as far as these are those of `holds`.
    """
    holds = np.asarray(holds)
    if holds.all():
        return
    place = np.unravel_index(np.argmin(holds), holds.shape)
    found = []
    for name, value in numbers.items():
        if not isinstance(value, str | tuple | list):
            value = np.array2string(_at(np.asarray(value), place, holds.shape), precision=8, separator=", ")
        found.append(f"{name.replace('_', ' ')} = {value}")
    raise AssertionError(f"{name_of(part)}: {sentence}" + (f", but {', '.join(found)}." if found else "."))


def _at(value: np.ndarray, place: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    """The entry at a place of an array of some shape; axes of length one belong to all places."""
    for at, size in zip(place, shape, strict=True):
        if not value.ndim or value.shape[0] not in (1, size):
            break
        value = value[at if value.shape[0] == size else 0]
    return value


def equal(part: Any, sentence: str, found: Any, expected: Any, rtol: float, atol: Any = 0.0, **numbers: Any) -> None:
    """The law that two arrays agree: abs(found - expected) <= atol + rtol abs(expected)."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    law(part, f"{sentence}: shapes agree", found.shape == expected.shape, found=found.shape, expected=expected.shape)
    with np.errstate(invalid="ignore"):
        same = (np.abs(found - expected) <= atol + rtol * np.abs(expected)) | (found == expected)
    law(part, sentence, same, found=found, expected=expected, **numbers)
