"""The needs of a result on disk: a folder that can be written, versions and the device."""

import os
import platform
import tempfile
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    packages = {name: version(name) for name in ("sparsehtp", "jax", "jaxlib", "numpy")}
    return {**packages, "python": platform.python_version()}


def describe_device() -> dict[str, str]:
    """Platform and kind of JAX's default device."""
    import jax

    device = jax.devices()[0]
    return {"platform": device.platform, "kind": device.device_kind}


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let `write` fill a file beside `path`, then rename it: a killed run leaves whole files only."""
    partial = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def check_output(out_dir: str | Path) -> None:
    """Raise OSError unless `out_dir` is, or can become, a writable folder; leaves nothing behind."""
    existing = Path(out_dir).absolute()
    while not (existing.exists() or existing.is_symlink()):
        existing = existing.parent
    if not existing.is_dir():
        raise OSError(f"out: cannot write to {out_dir}, since {existing} is not a folder; choose another folder.")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"out: cannot write to {out_dir} ({reason}); choose another folder.") from error
