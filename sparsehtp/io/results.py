"""Write a fit into a folder so that nothing half-written stays."""

import csv
import json
import math
import os
import platform
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    packages = {name: version(name) for name in ("sparsehtp", "jax", "jaxlib", "numpy")}
    return {**packages, "python": platform.python_version()}


def describe_device() -> dict[str, str]:
    """Platform and kind of JAX's default device."""
    import jax

    device = jax.devices()[0]
    return {"platform": device.platform, "kind": device.device_kind}


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


def write_results(
    out_dir: str | Path, model: dict[str, Any], history: dict[str, np.ndarray], figure: Any
) -> list[Path]:
    """Write model.json, history.csv, fit.png and fit.svg; all are complete before the first takes its name.

    Args:
        out_dir: created if missing; other files in it are left alone.
        model: what JSON can hold; numbers that are not finite become null.
        history: arrays of the same length, the columns of history.csv, one row per step.
        figure: a `matplotlib.figure.Figure`.

    Returns:
        The paths written.

    Raises:
        OSError: if the folder cannot be written.
    """
    out_dir = Path(out_dir).absolute()
    check_output(out_dir)
    fresh = not out_dir.exists()
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    # Beside the results' final place, so that renaming never crosses a file system.
    staging = (out_dir.parent if fresh else out_dir) / f".{out_dir.name}-{os.getpid()}.partial"
    staging.mkdir()
    try:
        text = json.dumps(_finite(model), indent=2, ensure_ascii=False, allow_nan=False)
        (staging / "model.json").write_text(text + "\n", encoding="utf-8")
        with (staging / "history.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", *history])
            columns = (np.asarray(column).tolist() for column in history.values())
            writer.writerows((t, *row) for t, row in enumerate(zip(*columns, strict=True), 1))
        figure.savefig(staging / "fit.png", dpi=150)
        figure.savefig(staging / "fit.svg")
        names = sorted(path.name for path in staging.iterdir())
        if fresh:
            staging.rename(out_dir)
        else:
            for name in names:
                os.replace(staging / name, out_dir / name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [out_dir / name for name in names]


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
