"""Stability selection."""

from __future__ import annotations

import dataclasses
import numbers
from concurrent.futures import Executor
from pathlib import Path as Folder
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from .._progress import Callback
from .._types import ArrayLike, host
from ..objectives import AbstractObjective
from ..solvers import AbstractSolver
from ..thresholds import AbstractThreshold
from . import grid as _grid
from .cross_validation import seed_from
from .folds import check_groups


class ErrorBound(NamedTuple):
    """Bounds on the expected number of falsely selected units, one per k; infinite where one does not apply."""

    meinshausen_buhlmann: Float[np.ndarray, "k"]
    shah_samworth: Float[np.ndarray, "k"]


@dataclasses.dataclass(frozen=True, eq=False)
class Stability:
    """How often every unit was selected over subsamples. NumPy arrays.

    Attributes:
        ks: (k,) sparsity levels.
        probabilities: (k, p) share of the subsamples whose support holds the unit (a feature, or a group).
        n_resamples: number of subsamples.
        in_pairs: True if they come as disjoint pairs.
        n_kept: number of units that are always in the support.
    """

    ks: Int[np.ndarray, "k"]
    probabilities: Float[np.ndarray, "k p"]
    n_resamples: int
    in_pairs: bool
    n_kept: int

    def selected(self, threshold: float = 0.75) -> Bool[np.ndarray, "k p"]:
        """True for the units with a selection probability of at least `threshold`."""
        # Half a count: a threshold of 0.6 must not miss 60 of 100 by rounding.
        return self.probabilities * self.n_resamples >= _check_share(threshold, 0) * self.n_resamples - 0.5e-6

    def error_bound(self, threshold: float = 0.75) -> ErrorBound:
        """Bounds on the expected number V of unimportant units in `selected(threshold)`, for every k on its own.

            Meinshausen-Buhlmann   E V <= q^2 / ((2 t - 1) p)
            Shah-Samworth          E V <= C(t, B) q^2 / p,   B the number of complementary pairs,
                C = 1 / (2 (2 t - 1 - 1/(2B)))              for t in (min(1/2 + a^2, 1/2 + 1/(2B) + 3 a^2 / 4), 3/4]
                C = 4 (1 - t + 1/(2B)) / (1 + 1/B)          for t in (3/4, 1],   a = q / p <= 1 / sqrt(3)

        Here t is the threshold, q = k the units that a subsample selects among p, kept ones left out of both.

        The first counts noise variables, and assumes that they are exchangeable and that selection is no worse than
        guessing; it takes probabilities over all subsamples. The second counts units with selection probability at
        most q/p on a subsample, needs neither assumption, and assumes that the share of pairs that select such a unit
        in both halves has a unimodal distribution. Both need subsamples of at most half the rows, and both hold for
        one k that was fixed in advance: not for the k that looks best, nor for a union over k.

        Args:
            threshold: in (1/2, 1].

        Raises:
            ValueError: if the threshold is outside of (1/2, 1].

        Source: Meinshausen and Buhlmann (2010) Theorem 1; Shah and Samworth (2013) Theorems 1 and 2.
        """
        t = _check_share(threshold, 0.5)
        q, p = self.ks.astype(float), self.probabilities.shape[1] - self.n_kept
        if not self.in_pairs or p == 0:
            return ErrorBound(*np.full((2, q.size), np.inf))
        B = self.n_resamples // 2
        # Probabilities are multiples of 1/(2B), so that the threshold can as well be the next one.
        t_grid = np.ceil(2 * B * t - 1e-6) / (2 * B)
        a = q / p
        least = np.minimum(0.5 + a**2, 0.5 + 1 / (2 * B) + 0.75 * a**2)
        low = 1 / (2 * (2 * t_grid - 1 - 1 / (2 * B))) if t_grid >= 0.5 + 1 / B else np.inf
        high = 4 * (1 - t_grid + 1 / (2 * B)) / (1 + 1 / B)
        applies = (a <= 1 / np.sqrt(3)) & (t_grid > least)
        constant = np.where(applies, low if t_grid <= 0.75 else high, np.inf)
        return ErrorBound(q * a / (2 * t - 1), np.where(q > 0, constant, 0.0) * q * a)


def stability_selection(
    objective: AbstractObjective,
    threshold: AbstractThreshold | None = None,
    *,
    ks: ArrayLike | None = None,
    n_resamples: int = 100,
    solver: AbstractSolver | None = None,
    key: jax.Array | None = None,
    sample_fraction: float = 0.5,
    groups: ArrayLike | None = None,
    checkpoint: str | Folder | None = None,
    progress: Callback | bool | None = None,
    memory: int | None = None,
    executor: Executor | None = None,
) -> Stability:
    """Fit random subsamples for every k, in one batch, and count how often each unit is selected.

    Subsamples are sample weights: floor(sample_fraction m) of the m rows (or groups) with a positive weight, drawn
    without replacement; standardisation and intercept are those of the subsample. Up to a fraction of one half they
    come as complementary pairs, two disjoint subsamples of one permutation, which the bounds on errors rest on.

    Args:
        objective: a `LinearModel`, `MultiResponse`, `CoxModel`, `OrdinalModel`, `CustomSum`, or `Precision.from_data`,
            whose units are pairs.
        ks, threshold, checkpoint, progress, memory, executor: as in `solve_path`; l2 is the objective's.
        solver: as in `cross_validate`.
        n_resamples: number of subsamples; even where they come as pairs.
        key: draws the subsamples, and is the key of all fits. None: `jax.random.key(0)`.
        sample_fraction: in (0, 1).
        groups: (n,) labels of rows that are drawn together, such as those of one person, or the blocks that
            `SufficientStatistics.blocks` tells; then m counts the groups. None: each row alone.

    Returns:
        A `Stability`.

    Raises:
        TypeError: if the objective has no samples, and as in `solve_path`.
        ValueError: for a bad number or fraction of subsamples, or a subsample with one class only.

    A selection probability is not a p-value, and naive p-values or confidence intervals of the selected features,
    computed on the same data, are wrong: selection makes them far too small.

    Source: Meinshausen and Buhlmann (2010); complementary pairs from Shah and Samworth (2013).
    """
    if objective.sample_weight is None:
        kind = type(objective).__name__
        raise TypeError(f"objective: subsamples are sample weights; {kind} has none, and a CustomSum has them.")
    if not isinstance(sample_fraction, numbers.Real) or not 0 < sample_fraction < 1:
        raise ValueError(f"sample_fraction: needs a number between 0 and 1, got {sample_fraction!r}.")
    in_pairs = sample_fraction <= 0.5
    if isinstance(n_resamples, bool) or not isinstance(n_resamples, (int, np.integer)) or n_resamples < 1:
        raise ValueError(f"n_resamples: needs a positive integer, got {n_resamples!r}.")
    if in_pairs and n_resamples % 2:
        raise ValueError(f"n_resamples: subsamples come as pairs, so it must be even, got {n_resamples}.")
    grid = _grid.prepare(objective, ks, None, threshold, solver, key, search="folds")
    weights = np.asarray(objective.sample_weight)
    labels = np.arange(weights.size) if groups is None else _numbered(groups, weights.size)
    drawn = _subsamples(np.unique(labels[weights > 0]), labels.max() + 1, n_resamples, sample_fraction, grid.key)
    rows = weights * drawn[:, labels]
    _check_rows(rows, objective)
    rows = jnp.asarray(rows, objective.dtype)
    grid = dataclasses.replace(grid, weights=_grid.Weights(rows, rows))
    support = _grid.run(grid, memory, progress, checkpoint, executor).support
    counts = np.zeros((grid.ks.size, _grid.n_units(objective, grid.threshold)))
    row = np.nonzero(support.mask)[1]
    np.add.at(counts, (row, support.idx[support.mask]), 1)
    return Stability(np.asarray(grid.ks), counts / n_resamples, int(n_resamples), in_pairs, grid.threshold.keep.size)


def _numbered(groups: ArrayLike, n: int) -> Int[np.ndarray, "n"]:
    """The number of the group of every row, or ValueError."""
    given: Any = check_groups(groups, n)
    names, numbers = np.unique(given, return_inverse=True)
    if names.size < 2:
        raise ValueError("groups: all rows have one label, so that nothing can be drawn; name two groups or more.")
    return numbers


def _subsamples(
    rows: Int[np.ndarray, "m"], n: int, number: int, fraction: float, key: jax.Array
) -> Bool[np.ndarray, "number n"]:
    """(number, n) membership of subsamples of the given rows or groups, of n."""
    size = int(fraction * rows.size + 1e-9)
    rng = np.random.default_rng(seed_from(key))
    members = np.zeros((number, n), bool)
    per_draw = 2 if fraction <= 0.5 else 1
    for first in range(0, number, per_draw):
        order = rng.permutation(rows)
        for half in range(per_draw):
            members[first + half, order[half * size : (half + 1) * size]] = True
    return members


def _check_rows(rows: np.ndarray, objective: AbstractObjective) -> None:
    """ValueError if a subsample leaves nothing, or one class, to train on."""
    y = host(objective.labels) if objective.counted == "classes" else None
    what = "event" if objective.counted == "events" else "row"
    for number, row in enumerate(rows):
        if not objective.total_weight(row):
            raise ValueError(f"sample_fraction: number {number} trains on no {what} with a positive weight; raise it.")
        if y is not None and np.unique(y[row > 0]).size < 2:
            raise ValueError(f"sample_fraction: number {number} trains on one class only; raise it.")


def _check_share(threshold: float, least: float) -> float:
    if not isinstance(threshold, numbers.Real) or not least < threshold <= 1:
        raise ValueError(f"threshold: needs a probability above {least:g} and at most 1, got {threshold!r}.")
    return float(threshold)
