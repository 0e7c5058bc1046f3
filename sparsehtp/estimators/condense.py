"""Least squares on many rows: a few that stand for all of them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..grids.folds import Pair
from ..linalg import few_rows, triangles_of

WORTH = 4  # times as many rows as would stand for them
SPREAD = 1e8  # of weights: rows of smaller ones would be rounded off
FEW_CODES = 2**31
BLOCK = 2**16


class StandIn(NamedTuple):
    """The rows that others stand for.

    Attributes:
        samples: how many rows, and their weight.
        held: how many are ever held out by folds, and how often on average.
        centre, levels: what was taken off the columns, and off the targets of every model; None: nothing.
        top: the largest of their weights.
        dtype: of the data; rows that stand for others are in float64.
    """

    samples: tuple[int, float]
    held: tuple[int, float]
    centre: Float[np.ndarray, "p"] | None
    levels: list[np.ndarray]
    top: float
    dtype: np.dtype


class Condensed(NamedTuple):
    """Features, targets and weights of rows with the same sums of squares and products, in all and in every part of
    every fold; these folds; and what the rows stand for."""

    X: Float[np.ndarray, "m p"]
    targets: list[np.ndarray]
    weights: Float[np.ndarray, "m"]
    pairs: list[Pair] | None
    stand_in: StandIn


def condensed(
    X: Float[np.ndarray, "n p"],
    targets: list[np.ndarray],
    weights: Float[np.ndarray, "n"],
    pairs: list[Pair] | None,
    intercept: bool,
) -> Condensed | None:
    """Rows that stand for these in every sum of squares, where there are far fewer of them; None: there are not.

    Rows that are in the same parts of all folds have a triangle together, whose rows take their place.

    Args:
        targets: (n,) each, or (n, c).
        weights: > 0.
        pairs: the rows of the two parts of every fold.
        intercept: of the model; then columns and targets are taken about their means.
    """
    (n, p), Y = X.shape, np.column_stack(targets).astype(float)
    m = p + Y.shape[1] + 1
    if n < WORTH * m or weights.max() > SPREAD * weights.min():
        return None
    first, roles = _roles(n, [] if pairs is None else [part for pair in pairs for part in pair])
    if n < WORTH * first.size * m:
        return None
    centre = _means(X, Y, weights) if intercept else np.zeros(m - 1)

    def rows(first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        return np.hstack([X[first:stop], Y[first:stop]]) - centre, weights[first:stop]

    triangles = triangles_of(rows, roles, first.size, m - 1)
    A, few, centre = few_rows(triangles, centre, p, intercept)
    times = np.zeros(n, int)
    for _, test in pairs or []:
        times[np.unique(test)] += 1
    held = times[times > 0]
    if pairs is not None:
        places = np.arange(len(A)).reshape(first.size, m)

        def stands(part: np.ndarray) -> np.ndarray:
            return np.repeat(places, np.bincount(part, minlength=n)[first], axis=0).ravel()

        pairs = [(stands(train), stands(test)) for train, test in pairs]
    levels = _like(centre[None, p:], targets)
    stand_in = StandIn(
        samples=(n, float(weights.sum())),
        held=(held.size, float(held.mean()) if held.size else 1.0),
        centre=centre[:p] if intercept else None,
        levels=[level[0] for level in levels],
        top=float(weights.max()),
        dtype=X.dtype,
    )
    return Condensed(A[:, :p], _like(A[:, p:], targets), few, pairs, stand_in)


def _roles(n: int, parts: list[np.ndarray]) -> tuple[Int[np.ndarray, "roles"], Int[np.ndarray, "n"]]:
    """A row of every role, and the role of every row: equal for rows that are equally often in each part."""
    code = np.zeros(n, np.int64)
    for part in parts:
        times = np.bincount(part, minlength=n)
        code = code * (int(times.max()) + 1) + times
        if code.max() > FEW_CODES:
            code = np.unique(code, return_inverse=True)[1]
    _, first, roles = np.unique(code, return_index=True, return_inverse=True)
    return first, roles


def _means(
    X: Float[np.ndarray, "n p"], Y: Float[np.ndarray, "n c"], weights: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "m"]:
    """Means of all columns; a block is in double precision at a time."""
    total, n = np.zeros(X.shape[1]), len(X)
    for low in range(0, n, BLOCK):
        block = slice(low, low + BLOCK)
        total += weights[block] @ X[block].astype(float)
    return np.append(total, weights @ Y) / weights.sum()


def _like(columns: Float[np.ndarray, "m c"], targets: list[np.ndarray]) -> list[np.ndarray]:
    """The columns of every target, in its shape."""
    if targets[0].ndim == 2:
        return [columns]
    return list(columns.T)
