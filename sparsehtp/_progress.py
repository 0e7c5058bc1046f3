"""How far a long run has come."""

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

Callback: TypeAlias = Callable[[int, int], None]


@contextlib.contextmanager
def reporting(progress: Callback | bool | None, title: str = "fits", unit: str = "fits") -> Iterator[Callback]:
    """A function of (done, in all, 0 if that is unknown), from what a caller may pass as `progress`.

    True shows a bar on stderr where rich is installed, and lines of text elsewhere.

    Raises:
        TypeError: for anything but a callable, a bool or None.
    """
    if progress is None or progress is False:
        yield lambda done, total: None
    elif callable(progress):
        yield progress
    elif progress is not True:
        raise TypeError(f"progress: needs a function of (done, total), True or None, got {progress!r}.")
    elif importlib.util.find_spec("rich") is None:
        yield lambda done, total: print(f"{done} of {total} {unit}", file=sys.stderr, flush=True)
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total or None)
