"""Work on any executor of `concurrent.futures`, or of another package with `submit`."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

from ._types import T

AHEAD = 2  # tasks for each processor here that are sent before their results are taken


def in_order(executor: Executor, function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """function(*task) of every task, in their order; a few are under way at a time, and none where the caller ends.

    Raises:
        TypeError: for something else than an executor.
        ValueError: for forked processes.
        RuntimeError: if a worker died, or the executor takes no work.
    """
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(f"executor: needs an executor of concurrent.futures, or one with `submit`, got {executor!r}.")
    context = getattr(executor, "_mp_context", None)  # of a ProcessPoolExecutor; forks are Linux's default up to 3.13
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "executor: its processes are forked, which hang where JAX has computed before; make it with "
            "mp_context=multiprocessing.get_context('spawn')."
        )
    waiting: deque[Future[T]] = deque()
    taken = 0
    try:
        for task in tasks:
            try:
                waiting.append(executor.submit(function, *task))
            except BrokenExecutor as error:
                raise RuntimeError(_died(taken)) from error
            except RuntimeError as error:
                raise RuntimeError(f"executor: it takes no more work ({error}); start another one.") from error
            if len(waiting) > AHEAD * (os.cpu_count() or 1):
                yield _result(waiting.popleft(), taken)
                taken += 1
        while waiting:
            yield _result(waiting.popleft(), taken)
            taken += 1
    finally:
        for future in waiting:
            future.cancel()


def _result(future: "Future[T]", number: int) -> T:
    try:
        return future.result()
    except BrokenExecutor as error:
        raise RuntimeError(_died(number)) from error


def _died(number: int) -> str:
    return f"executor: a worker died at part {number}; start another one, with checkpoint= to keep what is done."
