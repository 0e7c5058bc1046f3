"""Work that makes many objects that live, such as imports and tracing, without garbage collections."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No collection of garbage inside: each would look through all that was made, a sixth of a first fit."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
