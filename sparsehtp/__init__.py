"""Sparsity- and rank-constrained learning by hard thresholding, on JAX."""

import importlib
import pathlib
import re
from typing import Any

from ._uncollected import uncollected

__version__ = "0.1.0"

# The public names are the imports of __init__.pyi, where type checkers and editors read them. Each is imported at its
# first use, so that nobody waits for what they do not use: the command's help for JAX, `solve` for scikit-learn.
_STUB = pathlib.Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULES = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", _STUB, re.MULTILINE)}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with uncollected():
        if _MODULES[name] == ".":
            return importlib.import_module(f".{name}", __name__)
        value = globals()[name] = getattr(importlib.import_module(_MODULES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
