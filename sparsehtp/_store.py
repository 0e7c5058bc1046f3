"""Compiled programs on disk, which a second process calls without tracing, lowering or compiling them.

A program is found by a text: the function's name, what its arguments are (shapes, dtypes, types and static values,
never the numbers), JAX's settings, and the machine, versions and source that it was compiled by and for. What has no
name that says what it is, such as a function, class or loss of the user's, is compiled in each process and not stored.

The folder is the user's alone, since what is read from it is run. A file is its digest and a pickle, written under
another name and moved into place; anything else counts as absent. The least recently used files make room.
"""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import os
import pickle
import platform
import sys
import tempfile
import time
import warnings
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jaxlib.lapack import prepare_lapack_call
from platformdirs import user_cache_path

CPU = Path("/proc/cpuinfo")
MAX_BYTES = 256 * 2**20
NAMED = frozenset({"sparsehtp", "jax", "jaxlib", "numpy", "equinox", "optax", "builtins", "functools", "ml_dtypes"})
NUMBERS = (bool, int, float, complex)
SUFFIX = ".program"
STALE = 3600.0  # seconds after which a file that is still being written was left by a killed process


class NamelessError(Exception):
    """Something has no name that says what it is."""


def folder() -> Path | None:
    """Where programs are kept: SPARSEHTP_CACHE, else the user's cache folder; None where that is "off", or no user has
    a home."""
    chosen = os.environ.get("SPARSEHTP_CACHE", "")
    if chosen.lower() == "off":
        return None
    if chosen:
        return Path(os.path.expanduser(chosen)).absolute()
    try:
        usual = user_cache_path("sparsehtp", appauthor=False)
    except RuntimeError:  # as a container's user may have no home
        return None
    return usual if usual.is_absolute() else None  # older versions give a folder named "~"


def programs(folder: Path) -> list[Path]:
    """The files of the programs in a folder."""
    return list(folder.glob(f"*{SUFFIX}"))


def remove_programs(folder: Path) -> None:
    """Remove the programs in a folder, and nothing else; OSError where that is not allowed."""
    for path in (*programs(folder), *folder.glob("*.part")):
        path.unlink(missing_ok=True)


def place(function: Any, arguments: Any, static: Any, context: Any) -> Path | None:
    """The file of a function's program for such arguments; None where it has no name or nothing is kept."""
    where = folder()
    if where is None or not _ours(where):
        return None
    try:
        text = "\n".join([describe(function), _describe(arguments, static=False), describe(static), repr(context)])
    except NamelessError:
        return None
    if " at 0x" in text:  # an address says nothing
        return None
    return where / (hashlib.sha256((text + _origin()).encode()).hexdigest() + SUFFIX)


def read(path: Path) -> tuple[Any, Any] | None:
    """The executable in a file and the structure of what it returns; None where there is none, or no whole one."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        executable, skeleton = pickle.loads(zlib.decompress(content[32:]))
        _register()
        serialized, given, returned = executable
        loaded = deserialize_and_load(serialized, given, returned, execution_devices=jax.local_devices()[:1])
    except Exception:  # written by another version, say: it is compiled again
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the time of last use
    return loaded, jax.tree.structure(skeleton)


def write(path: Path, compiled: Any, structure: Any) -> None:
    """Keep a program, where it can be pickled and the disk has room for it."""
    if jax.config.values["jax_compilation_cache_dir"]:  # what JAX read from there cannot be run once it is kept again
        return
    try:
        # A structure cannot be pickled; what has that structure, with numbers for arrays, can.
        skeleton = jax.tree.unflatten(structure, range(structure.num_leaves))
        content = zlib.compress(pickle.dumps((serialize(compiled), skeleton)), 1)
    except Exception:  # a backend whose executables stay in the process
        return
    with contextlib.suppress(OSError):
        _make_room(path.parent, len(content) + 32)
        number, part = tempfile.mkstemp(suffix=".part", dir=path.parent)
        try:
            with open(number, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise


def describe(value: Any) -> str:
    """A text that only values have that mean the same, in any process; `NamelessError` where there is none."""
    return _describe(value, static=True)


def kind(leaf: Any) -> tuple[Any, ...]:
    """All of a leaf that a program depends on: not its numbers."""
    if isinstance(leaf, jax.Array):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), leaf.sharding  # a key has none
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.shape, leaf.dtype
    return (type(leaf),)


def _describe(value: Any, static: bool) -> str:
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        if static:
            value = np.asarray(value)
            return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
        if isinstance(value, jax.Array) and not _usual(value):
            raise NamelessError
        return f"{value.dtype}{value.shape}{getattr(value, 'weak_type', False)}{isinstance(value, jax.Array)}"
    if type(value) in NUMBERS:
        return f"{type(value).__name__} {value!r}" if static else type(value).__name__
    if value is None or type(value) in (str, bytes) or isinstance(value, np.dtype):
        return repr(value)
    if hasattr(value, "__qualname__"):  # a class or a function
        return _name(value)
    part = functools.partial(_describe, static=static)
    if isinstance(value, enum.Enum):
        parts = [value.name]
    elif isinstance(value, tuple | list):
        parts = [part(each) for each in value]
    elif isinstance(value, dict):
        parts = [f"{describe(name)}: {part(each)}" for name, each in value.items()]
    elif isinstance(value, set | frozenset):
        parts = sorted(part(each) for each in value)
    elif isinstance(value, functools.partial):
        parts = [part(each) for each in (value.func, value.args, value.keywords)]
    elif dataclasses.is_dataclass(value):
        parts = [
            f"{field.name}: {_describe(getattr(value, field.name, None), static or bool(field.metadata.get('static')))}"
            for field in dataclasses.fields(value)
        ]
    else:
        level = jax.tree_util.default_registry.flatten_one_level(value)
        if level is None:
            raise NamelessError
        parts = [*(part(each) for each in level[0]), describe(level[1])]
    return f"{_name(type(value))}({', '.join(parts)})"


def _name(value: Any) -> str:
    """The name by which a class or a function of the packages in `NAMED` is found."""
    module = getattr(value, "__module__", None) or ""
    found: Any = sys.modules.get(module) if module.partition(".")[0] in NAMED else None
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not value and getattr(found, "__wrapped__", None) is not value:  # a program has its function's name
        raise NamelessError
    return f"{module}.{value.__qualname__}"


def _usual(array: jax.Array) -> bool:
    """Whether an array lies where JAX puts arrays if nothing is said."""
    return array.sharding.device_set == {jax.local_devices()[0]} and jax.process_count() == 1


@functools.cache
def _ours(folder: Path) -> bool:
    """Whether nobody else can have written into the folder, which is made if it can be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
    except OSError:
        return False
    if hasattr(os, "getuid") and (facts.st_uid != os.getuid() or facts.st_mode & 0o022):
        warnings.warn(
            f"SPARSEHTP_CACHE: {folder} belongs to another user or can be written by others, so that no program is "
            "read from it or kept; use a folder that is yours alone (chmod 700), or SPARSEHTP_CACHE=off.",
            stacklevel=2,
        )
        return False
    return True


def _make_room(folder: Path, size: int) -> None:
    now = time.time()
    for path in folder.glob("*.part"):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > STALE:
                path.unlink()
    facts = {path: path.stat() for path in programs(folder)}
    total = size + sum(each.st_size for each in facts.values())
    for path in sorted(facts, key=lambda path: facts[path].st_mtime):
        if total <= MAX_BYTES:
            break
        path.unlink(missing_ok=True)
        total -= facts[path].st_size


@functools.cache
def _origin() -> str:
    """The source, the versions and the machine that a program is compiled by and for."""
    package = Path(__file__).parent
    source = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        source.update(path.read_bytes())
    device = jax.local_devices()[0]
    versions = [version(name) for name in ("jax", "jaxlib", "equinox", "optax", "numpy")]
    flags = [os.environ.get(name) for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    backend = [device.platform, device.device_kind, device.client.platform_version]
    return repr([source.hexdigest(), versions, sys.version, backend, _processor(), flags])


def _processor() -> list[str]:
    """The CPU's abilities, as Linux tells them, else the computer's name: an executable may use all of them."""
    facts = [platform.machine(), platform.processor()]
    try:
        lines = CPU.read_text().splitlines()
    except OSError:
        return [*facts, platform.node()]
    return facts + sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})


@functools.cache
def _register() -> None:
    """LAPACK's kernels register when a program that calls them is lowered; who only loads dies without this."""
    prepare_lapack_call("potrf_ffi", np.dtype(np.float32))  # type: ignore[no-untyped-call]
