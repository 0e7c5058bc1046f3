"""At most k nonzero pairs off the diagonal of a symmetric matrix."""

from __future__ import annotations

from typing import Self

import numpy as np
from jaxtyping import Int

from .._types import AnyArray, ArrayLike, HostArray, is_concrete, replace
from .base import Bindable, check_keep, check_keep_range
from .sparsity import AbstractSparsity


class OffDiagonal(AbstractSparsity):
    """At most k nonzero pairs off the diagonal: symmetric A with #{i < j : A_ij != 0} <= k; the diagonal is free.

    Called on the x of an objective it keeps the diagonal and the k pairs of largest magnitude: the projection in the
    Frobenius norm. Pairs (i, j) with i < j are numbered row by row: (0, 1), (0, 2), ..., (1, 2), ...; `pair_index` and
    `pairs_of` translate. [GraHTP] counts 2k entries.

    Args:
        k: number of pairs, 0 <= k <= p (p - 1) / 2 - len(keep); an integer or a traced integer.
        k_max: static upper limit of k; one compiled program serves every k up to it. Default: the next power
            of two, at least 16.
        keep: pairs that are always in the support and not counted in k: a sequence of (i, j) in any order, or a
            symmetric boolean (p, p) matrix, whose diagonal is not looked at.

    Raises:
        ValueError: if k is negative, not an integer or too large, or keep holds no distinct pairs i != j below p.
    """

    kind = "pairs"
    exchangeable = False

    def __init__(self, k: ArrayLike, k_max: int | None = None, keep: ArrayLike | None = None):
        self._fill(k, k_max, None)
        self.keep = _pairs(keep)

    def bind(self, objective: Bindable) -> Self:
        p = objective.n_variables
        if p is None:
            raise TypeError(
                f"threshold: OffDiagonal needs an objective over symmetric matrices such as sht.Precision(S, n), got a "
                f"{type(objective).__name__}."
            )
        keep = self.keep
        if keep.ndim == 2:
            check_keep_range(keep, p, "variables")
            keep = pair_index(keep[:, 0], keep[:, 1], p)
        return replace(self, keep=keep)._bound_to(objective, objective.n_coefficients, "pairs")


def pair_index(i: AnyArray, j: AnyArray, p: int) -> AnyArray:
    """Numbers of the pairs (i, j), i < j, of p variables; traced if i or j are."""
    if is_concrete(i, j):
        i, j = np.asarray(i), np.asarray(j)
    return (i * (2 * p - i - 1) // 2 + j - i - 1).astype(np.int32)


def pairs_of(index: ArrayLike, p: int) -> HostArray:
    """(..., 2) pairs i < j with given numbers, among p variables."""
    rows, columns = np.triu_indices(p, 1)
    index = np.asarray(index)
    return np.stack([rows[index], columns[index]], axis=-1)


def _pairs(keep: ArrayLike | None) -> Int[HostArray, "n_keep 2"]:
    if keep is None:
        return np.zeros((0, 2), np.int32)
    if not is_concrete(keep):
        raise ValueError("keep: needs concrete pairs, not traced ones.")
    keep = np.asarray(keep)
    if keep.dtype == bool:
        if keep.ndim != 2 or keep.shape[0] != keep.shape[1] or (keep != keep.T).any():
            raise ValueError(f"keep: a boolean mask needs to be a symmetric (p, p) matrix, got shape {keep.shape}.")
        keep = np.argwhere(np.triu(keep, 1))
    if keep.size == 0:
        return np.zeros((0, 2), np.int32)
    if keep.ndim != 2 or keep.shape[1] != 2 or keep.dtype.kind not in "iu" or (keep[:, 0] == keep[:, 1]).any():
        raise ValueError("keep: needs pairs (i, j) of different variables, or a symmetric boolean matrix.")
    keep = np.sort(keep, axis=1)
    check_keep(keep[:, 0] * (1 + keep.max()) + keep[:, 1])
    return keep.astype(np.int32)
