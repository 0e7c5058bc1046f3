"""Triangles of rows: all that least squares knows of them.

R of the QR factorisation of the weighted rows [1, A] has the sums and products of all of these, R'R, without having
squared anything, and two of them merge by factorising [R1; R2] (TSQR). One row more than columns is then a data set
with the same sums, whatever the number of rows was.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import lapack

from .._threads import one_blas_thread
from .._tolerances import tolerance
from .._types import HostArray

BLOCK_ROWS = 2048  # that are factorised at once: they stay in the cache
BLOCKS = 8  # of every triangle in a task
MANY = 4  # times as many rows as columns
PANEL = 32  # columns
ROUNDING = 3e-14  # of a column of equal numbers, beside them, after it was factorised


class Source(Protocol):
    """Columns and weights of the rows from one number up to another."""

    def __call__(self, first: int, stop: int, /) -> tuple[Float[HostArray, "n m"], Float[HostArray, "n"]]: ...


def triangles_of(
    rows: Source,
    roles: Int[HostArray, "n"],
    count: int,
    width: int,
) -> Float[HostArray, "count m m"]:
    """A triangle of the rows of every role: 0, 1, ..., count - 1.

    Rows come in blocks of fixed sizes that merge in a fixed order, so that any number of threads gives the same bits.

    Args:
        rows: (A, weights) of the rows from one number up to another, A of this width.
        roles: of every row.
    """
    n, many = len(roles), BLOCKS * count * BLOCK_ROWS
    tasks = [range(first, min(first + many, n)) for first in range(0, n, many)]
    with one_blas_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
        return merged(pool.map(partial(_task, rows, roles, count, width + 1), tasks))


def _task(rows: Source, roles: Int[HostArray, "n"], count: int, m: int, task: range) -> Float[HostArray, "count m m"]:
    found, step = empty_triangles(count, m), count * BLOCK_ROWS
    for first in range(task.start, task.stop, step):
        stop = min(first + step, task.stop)
        extend(found, *rows(first, stop), roles[first:stop])
    return found


def empty_triangles(count: int, m: int) -> Float[HostArray, "count m m"]:
    """Triangles of no rows, each contiguous by column."""
    return np.zeros((count, m, m)).transpose(0, 2, 1)


def extend(
    triangles: Float[HostArray, "count m m"],
    A: Float[HostArray, "n columns"],
    weights: Float[HostArray, "n"],
    roles: Int[HostArray, "n"],
) -> None:
    """Take n more rows into the triangles of their roles."""
    m = triangles.shape[-1]
    for role in range(len(triangles)):
        own = np.flatnonzero(roles == role)
        for low in range(0, own.size, BLOCK_ROWS):
            block = own[low : low + BLOCK_ROWS]
            Z = np.empty((block.size, m), order="F")
            Z[:, 0], Z[:, 1:] = 1, A[block]
            Z *= np.sqrt(weights[block])[:, None]
            triangles[role] = _taken_in(triangles[role], Z)


def _taken_in(R: Float[HostArray, "m m"], Z: Float[HostArray, "n m"]) -> Float[HostArray, "m m"]:
    """The triangle of the rows of R and of Z, which is overwritten."""
    n, m = Z.shape
    if n < MANY * m:  # half of the work, but SciPy's call keeps other threads waiting
        return lapack.dtpqrt(0, min(PANEL, m), R, Z, overwrite_a=True, overwrite_b=True)[0]
    both = np.asfortranarray(np.concatenate([Z, R]))
    # The default workspace is that of single columns.
    return np.triu(lapack.dgeqrf(both, lwork=64 * m, overwrite_a=True)[0][:m])


def merged(triangles: Iterable[Float[HostArray, "count m m"]]) -> Float[HostArray, "count m m"]:
    """The triangles of the rows of all, in the order in which they come."""
    found = iter(triangles)
    total = next(found).copy(order="K")
    m = total.shape[-1]
    for more in found:
        for R, S in zip(total, more, strict=True):
            R[:] = lapack.dtpqrt(m, min(PANEL, m), R, S)[0]
    return total


def few_rows(
    triangles: Float[HostArray, "count m m"], centre: Float[HostArray, "columns"], features: int, centred: bool
) -> tuple[Float[HostArray, "n columns"], Float[HostArray, "n"], Float[HostArray, "columns"]]:
    """m rows for every triangle, less a centre that is returned too (zeros unless `centred`), and their weights, with
    the same sums.

    A column that is constant but for rounding is constant, and zero where it is centred: of the features, which come
    first, where its deviation beside an intercept is none to a model in columns; of all, where it is the rounding of a
    factorisation.
    """
    parts, each = zip(*(rows_of(R) for R in triangles), strict=True)
    A = np.asfortranarray(np.vstack(parts))
    mean, deviation = mean_and_deviation(merged(triangles[:, None])[0])
    constant = deviation <= ROUNDING * np.abs(mean)
    if centred:
        far = np.arange(centre.size) < features
        constant |= far & (deviation <= tolerance("constant", np.float64) * np.abs(mean + centre))
    A[:, constant] = np.where(centred, 0, mean[constant])
    centre = np.where(constant & centred, centre + mean, centre)
    if not centred:
        A, centre = A + centre, np.zeros(centre.size)
    return A, np.repeat(each, triangles.shape[1]), centre


def rows_of(R: Float[HostArray, "m m"]) -> tuple[Float[HostArray, "m columns"], float]:
    """m rows A with the same sums as those of a triangle, and the weight of each.

    With Q a reflection that takes the first unit vector to equal numbers, W / m of the rows of sqrt(m / W) Q R is R'R,
    and their first entries are ones.
    """
    m, total = len(R), R[0, 0] ** 2
    normal = np.full(m, -1 / np.sqrt(m))
    normal[0] += 1
    rows = R - np.outer(normal, (2 / (normal @ normal)) * (normal @ R))
    return np.sqrt(m) / R[0, 0] * rows[:, 1:], total / m


def mean_and_deviation(R: Float[HostArray, "m m"]) -> tuple[Float[HostArray, "columns"], Float[HostArray, "columns"]]:
    """Mean and deviation of every column."""
    spread = R[1:, 1:]
    size = np.max(np.abs(spread), axis=0)
    part = spread / np.where(size > 0, size, 1)  # squares of columns of an extreme size are no numbers
    return R[0, 1:] / R[0, 0], size * (np.linalg.norm(part, axis=0) / abs(R[0, 0]))
