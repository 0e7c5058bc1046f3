"""Compiled programs on disk, so that a second process need not compile.

The estimators and the command line keep their programs in the user's cache folder, through JAX's persistent cache.
JAX has one such cache for the process: it is ours only inside `disk_cache`, and every setting is put back afterwards.
"""

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from filelock import FileLock
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from platformdirs import user_cache_path

MAX_BYTES = 256 * 2**20

_lock = threading.Lock()
_users = 0
_before: dict[str, Any] = {}


def configured() -> str | None:
    """The folder of a cache that the user gave JAX, by `jax.config` or the environment."""
    return _read("jax_compilation_cache_dir")


def folder() -> Path | None:
    """Where programs are kept unless the user configured a cache: SPARSEHTP_CACHE, None where that is "off"."""
    chosen = os.environ.get("SPARSEHTP_CACHE", "")
    if chosen.lower() == "off":
        return None
    return Path(chosen).expanduser().absolute() if chosen else user_cache_path("sparsehtp", appauthor=False)


@contextlib.contextmanager
def disk_cache() -> Iterator[None]:
    """Keep what is compiled inside the block in our folder; nested and concurrent blocks share it.

    JAX's settings belong to the process, so that what other threads compile meanwhile is kept there as well.
    """
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _enter()
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _leave()


def programs(folder: Path) -> list[Path]:
    """The files of the programs in a folder."""
    return list(folder.glob("*-cache"))


def clear(folder: Path) -> None:
    """Remove the programs in a folder, and nothing else; OSError where that is not allowed."""
    if folder.is_dir():
        with _locked(folder):
            for path in programs(folder):
                path.unlink()
                _last_use(path).unlink(missing_ok=True)


def _enter() -> None:
    where = folder()
    enabled = _read("jax_enable_compilation_cache")
    if where is None or configured() is not None or not enabled or not _usable(where):
        return
    ours = {
        "jax_compilation_cache_dir": str(where),
        "jax_compilation_cache_max_size": MAX_BYTES,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_persistent_cache_enable_xla_caches": None,  # they have no limit
    }
    for name, value in ours.items():
        _before[name] = _read(name), value
        jax.config.update(name, value)


def _leave() -> None:
    if not _before:
        return
    for name, (before, ours) in _before.items():
        if _read(name) == ours:  # else the user set it meanwhile
            jax.config.update(name, before)
    _before.clear()
    reset_cache()  # JAX goes on using the folder that it has opened, whatever the settings are


def _read(name: str) -> Any:
    return getattr(jax.config, name)


@functools.cache
def _usable(folder: Path) -> bool:
    """Whether programs can be kept in a folder; the program that a killed process left unfinished is removed.

    JAX writes the time of last use after the program, and reads all of these times before it makes room.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder):
            for path in programs(folder):
                if not _last_use(path).exists():
                    path.unlink()
    except (OSError, NotImplementedError):  # not writable, or a file system without locks
        return False
    return True


def _locked(folder: Path) -> Any:
    """The lock that JAX takes to read or write a program."""
    return FileLock(folder / ".lockfile", timeout=10)


def _last_use(program: Path) -> Path:
    return program.with_name(program.name.removesuffix("-cache") + "-atime")
