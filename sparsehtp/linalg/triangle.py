"""Triangles of rows: all that least squares knows of them.

R of the QR factorisation of the weighted rows [1, A] has the sums and products of all of these, R'R, without having
squared anything, and two of them merge by factorising [R1; R2] (TSQR). A dozen rows more than columns are then a data
set with the same sums, whatever the number of rows was.
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

BLOCK_ROWS = 2048  # that are factorised at once, or eight for every column: they stay in the cache
BLOCKS = 8  # of every triangle in a task


class Source(Protocol):
    """Columns and weights of the rows from one number up to another."""

    def __call__(self, first: int, stop: int, /) -> tuple[Float[HostArray, "n m"], Float[HostArray, "n"]]: ...


def block_rows(width: int) -> int:
    """Rows that are factorised together, for triangles of a width."""
    return max(BLOCK_ROWS, 8 * width)


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
    n, many = len(roles), BLOCKS * count * block_rows(width + 1)
    tasks = [range(first, min(first + many, n)) for first in range(0, n, many)]
    with one_blas_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
        return merged(pool.map(partial(_task, rows, roles, count, width + 1), tasks))


def _task(rows: Source, roles: Int[HostArray, "n"], count: int, m: int, task: range) -> Float[HostArray, "count m m"]:
    found = np.zeros((count, m, m))
    step = count * block_rows(m)
    for first in range(task.start, task.stop, step):
        stop = min(first + step, task.stop)
        found = extended(found, *rows(first, stop), roles[first:stop])
    return found


def merged(triangles: Iterable[Float[HostArray, "count m m"]]) -> Float[HostArray, "count m m"]:
    """The triangles of the rows of all, in the order in which they come."""
    found = iter(triangles)
    total = next(found)
    for more in found:
        total = np.stack([_upper(np.concatenate(pair)) for pair in zip(total, more, strict=True)])
    return total


def extended(
    triangles: Float[HostArray, "count m m"],
    A: Float[HostArray, "n columns"],
    weights: Float[HostArray, "n"],
    roles: Int[HostArray, "n"],
) -> Float[HostArray, "count m m"]:
    """The triangles of every role with n more rows."""
    found, m = np.empty_like(triangles), triangles.shape[-1]
    for role, R in enumerate(triangles):
        own = np.flatnonzero(roles == role)
        Z = np.empty((own.size + m, m), order="F")
        Z[: own.size, 0], Z[: own.size, 1:], Z[own.size :] = 1, A[own], R
        Z[: own.size] *= np.sqrt(weights[own])[:, None]
        found[role] = _upper(Z)
    return found


def _upper(Z: Float[HostArray, "n m"]) -> Float[HostArray, "m m"]:
    Z = np.asfortranarray(Z)
    # The default workspace is that of single columns.
    return np.triu(lapack.dgeqrf(Z, lwork=64 * Z.shape[1], overwrite_a=True)[0][: Z.shape[1]])


def few_rows(
    triangles: Float[HostArray, "count m m"], centre: Float[HostArray, "columns"]
) -> tuple[Float[HostArray, "n columns"], Float[HostArray, "n"]]:
    """m rows for every triangle and their weights, with the same sums; a column that is constant but for rounding is
    constant. `centre` was taken off the columns, of those alone whose rounding is beside it."""
    parts, each = zip(*(rows_of(R) for R in triangles), strict=True)
    A = np.asfortranarray(np.vstack(parts))
    mean, deviation = mean_and_deviation(merged(triangles[:, None])[0])
    constant = deviation <= tolerance("constant", np.float64) * np.abs(mean + centre)
    A[:, constant] = mean[constant]
    return A, np.repeat(each, triangles.shape[1])


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
    return R[0, 1:] / R[0, 0], np.linalg.norm(R[1:, 1:], axis=0) / abs(R[0, 0])
