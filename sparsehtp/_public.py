"""Public names that are imported at their first use.

They are the imports of a stub beside the module, where type checkers and editors read them, so that nobody waits for
what they do not use: the command's help for JAX, `solve` for scikit-learn.
"""

import importlib
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

from ._uncollected import uncollected


def public(module: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a module, from its name and file."""
    stub = pathlib.Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    places = {name: place for place, name in re.findall(r"^from (\S+) import (\w+) as", stub, re.MULTILINE)}
    package = module.partition(".")[0]

    def getattribute(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        with uncollected():
            if places[name] == ".":
                return importlib.import_module(f".{name}", package)
            value = getattr(importlib.import_module(places[name], package), name)
        setattr(sys.modules[module], name, value)
        return value

    return getattribute, lambda: sorted({*vars(sys.modules[module]), *places}), sorted(places)
