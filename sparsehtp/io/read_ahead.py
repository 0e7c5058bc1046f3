"""Reading in threads, while what was read before is used."""

import mmap
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np


def read_ahead(
    numbers: Iterable[int], read: Callable[[int], Any], look: Callable[[int, Any], Any] | None = None
) -> Iterator[tuple[int, Any, Callable[[], Any]]]:
    """(number, what was read, a function that waits until it was looked at) for every number, one read ahead.

    Reading has one thread, and `look` another: a file is looked at while it is used, and while the next one is read.
    """
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as looker:
        ahead = None
        for number in numbers:
            reading = reader.submit(read, number)
            looking = None if look is None else looker.submit(lambda i, part: look(i, part.result()), number, reading)
            if ahead is not None:
                yield _ready(*ahead)
            ahead = number, reading, looking
        if ahead is not None:
            yield _ready(*ahead)


def _ready(number: int, reading: Future[Any], looking: Future[Any] | None) -> tuple[int, Any, Callable[[], Any]]:
    return number, reading.result(), (lambda: None) if looking is None else looking.result


def bring_in(array: np.ndarray) -> np.ndarray:
    """Let a mapped, contiguous array be read from the disk: one byte of every page is enough."""
    array.reshape(-1).view(np.uint8)[:: mmap.PAGESIZE].max()
    return array
