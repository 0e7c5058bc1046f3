"""One BLAS thread while XLA computes on a CPU.

XLA calls LAPACK (SciPy's OpenBLAS) from threads of its own. OpenBLAS's threads compete with those, and a factorisation
of 150 rows takes several times as long.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import jax
import scipy.linalg  # noqa: F401 (loads the library that XLA calls)
from threadpoolctl import ThreadpoolController

from ._programs import make_room

_lock = threading.Lock()
_users = 0
_limit: Any = None
_libraries = functools.cache(ThreadpoolController)  # to look for them takes 6 ms


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the block, for the whole process; nested and concurrent blocks share it.

    Every computation of the package runs in such a block, so that this is also where old programs are dropped.
    """
    global _users, _limit
    make_room()
    if jax.default_backend() != "cpu":
        yield
        return
    with _lock:
        _users += 1
        if _users == 1:
            _limit = _libraries().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _limit.restore_original_limits()
