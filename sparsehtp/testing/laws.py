"""How a law that does not hold is reported."""

from typing import Any

import numpy as np


def name_of(part: Any) -> str:
    """A part as a message names it: with its parameters where these are a few numbers."""
    text = repr(part)
    return text if "[" not in text and len(text) <= 60 else type(part).__name__


def law(part: Any, sentence: str, holds: Any, **numbers: Any) -> None:
    """AssertionError unless `holds` everywhere.

    The message names the part, the law in words, and the numbers at the first place where it does not hold.
    """
    holds = np.asarray(holds)
    if holds.all():
        return
    place = np.unravel_index(np.argmin(holds), holds.shape)
    found = []
    for name, value in numbers.items():
        value = value if isinstance(value, str | tuple | list) else np.asarray(value)
        if isinstance(value, np.ndarray):
            one = value[place[: value.ndim]] if value.shape[: len(place)] == holds.shape[: value.ndim] else value
            value = np.array2string(np.asarray(one), precision=8, separator=", ")
        found.append(f"{name.replace('_', ' ')} = {value}")
    raise AssertionError(f"{name_of(part)}: {sentence}" + (f", but {', '.join(found)}." if found else "."))


def equal(part: Any, sentence: str, found: Any, expected: Any, rtol: float, atol: Any = 0.0, **numbers: Any) -> None:
    """The law that two arrays agree: abs(found - expected) <= atol + rtol abs(expected)."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    law(part, f"{sentence}: shapes agree", found.shape == expected.shape, found=found.shape, expected=expected.shape)
    with np.errstate(invalid="ignore"):
        same = (np.abs(found - expected) <= atol + rtol * np.abs(expected)) | (found == expected)
    law(part, sentence, same, found=found, expected=expected, **numbers)
