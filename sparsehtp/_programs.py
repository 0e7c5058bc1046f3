"""Compiled programs that a long-lived process can afford.

Every compiled program stays mapped in its process, and Linux limits the memory maps of a process (65,530 by default):
past that a compilation ends it with a segmentation fault. So the programs of this package's own functions, least
recently used ones first, are dropped before the maps run out; those that are called again are compiled again. Only
where that is not enough, since the maps belong to programs of others, are all of JAX's caches cleared.
"""

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

MAPS = Path("/proc/self/maps")
SHARE = 0.5  # of the maps that the system allows
MOST_COMPILED = 400  # programs, where maps cannot be counted
EVERY = 16  # compilations between two counts

_programs: list["Program"] = []
_clock = itertools.count(1)


class _Compiled:
    """How many programs this process has compiled since the last count, and since the last drop."""

    since_count = 0
    since_drop = 0


def _on_duration(event: str, *_: Any, **__: Any) -> None:
    if event.endswith("backend_compile_duration"):
        _Compiled.since_count += 1
        _Compiled.since_drop += 1


jax.monitoring.register_event_duration_secs_listener(_on_duration)


class Program:
    """A `jax.jit` of a function of this package, whose compiled programs `make_room` may drop."""

    def __init__(self, function: Callable, **options: Any):
        self.jitted: Any = jax.jit(function, **options)
        self.last_use = 0
        functools.update_wrapper(self, function)
        _programs.append(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.last_use = next(_clock)
        return self.jitted(*args, **kwargs)


def program(function: Callable | None = None, **options: Any) -> Any:
    """`jax.jit`, plain or with options, for this package's functions."""
    return (lambda f: Program(f, **options)) if function is None else Program(function, **options)


def make_room() -> None:
    """Drop programs if the process nears its limit; cheap where nothing was compiled."""
    if _Compiled.since_count < EVERY:
        return
    _Compiled.since_count = 0
    if not _crowded():
        return
    for each in sorted(_programs, key=lambda p: p.last_use):
        each.jitted.clear_cache()
        if MAPS.exists() and not _crowded():
            break
    else:
        if MAPS.exists():
            jax.clear_caches()
    _Compiled.since_drop = 0


def _crowded():
    if not MAPS.exists():
        return _Compiled.since_drop > MOST_COMPILED
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    return MAPS.read_bytes().count(b"\n") > SHARE * limit
