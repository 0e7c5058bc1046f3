"""Several files in a folder, all or none."""

import csv
import io
import json
import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..io import check_output
from ..io.text import quoted

APOSTROPHES = (
    "Texts that begin with =, +, - or @ have an apostrophe before them in CSV files, so that no spreadsheet runs them."
)
Writer = Callable[[Path], None]


def as_json(value: Any) -> Writer:
    """Write what JSON can hold; numbers that are not finite become null."""
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    return as_text(text)


def as_text(text: str) -> Writer:
    """Write a text and an end of line."""
    return as_bytes(_encoded(f"{text}\n"))


def as_bytes(content: bytes) -> Writer:
    """Write what is known already."""

    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def as_csv(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> Writer:
    """Write a table."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(for_csv(row) for row in (header, *rows))
    return as_bytes(_encoded(text.getvalue()))


def for_csv(cells: Iterable[Any]) -> list[Any]:
    """Cells of a CSV file; a warning says where an apostrophe keeps a spreadsheet from running a text."""
    cells = list(cells)
    safe = [quoted(cell) if isinstance(cell, str) else cell for cell in cells]
    if any(isinstance(cell, str) and new[:1] == "'" != cell[:1] for cell, new in zip(cells, safe, strict=True)):
        warnings.warn(APOSTROPHES, stacklevel=2)
    return safe


def as_images(name: str, figure: Any) -> dict[str, Writer]:
    """Write a figure, drawn now, as NAME.png and NAME.svg."""
    files: dict[str, Writer] = {}
    for kind in ("png", "svg"):
        buffer = io.BytesIO()
        figure.savefig(buffer, dpi=150, format=kind)
        files[f"{name}.{kind}"] = as_bytes(buffer.getvalue())
    return files


def write_files(out_dir: Path, files: Mapping[str, Writer], own: Iterable[str] = ()) -> list[Path]:
    """Write files into a folder; all are complete before the first takes its name.

    Args:
        out_dir: created if missing; other files in it are left alone.
        files: what writes each file, by its name.
        own: names that are removed where they are not written, since they would show an earlier run.

    Returns:
        The paths written.

    Raises:
        OSError: if the folder cannot be written.
    """
    out_dir = out_dir.absolute()
    check_output(out_dir)
    fresh = not out_dir.exists()
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    # Beside the files' final place, so that renaming never crosses a file system.
    staging = (out_dir.parent if fresh else out_dir) / f".{out_dir.name}-{os.getpid()}.partial"
    staging.mkdir()
    try:
        for name, write in files.items():
            write(staging / name)
        if fresh:
            staging.rename(out_dir)
        else:
            for name in files:
                os.replace(staging / name, out_dir / name)
            for name in set(own) - files.keys():
                (out_dir / name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [out_dir / name for name in files]


def _encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _finite(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
