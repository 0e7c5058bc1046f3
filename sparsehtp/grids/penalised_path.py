"""Fits over a grid of l0, each from the one before."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._programs import program
from .._progress import Callback, reporting
from .._solve import default_solver, solve
from .._threads import one_blas_thread
from .._tolerances import tolerance
from .._types import ArrayLike, Support, check_kind, host, is_concrete, replace, seeded
from ..duality import Dual
from ..iteration.results import Solution
from ..objectives import AbstractObjective, LinearModel
from ..solvers import AbstractSolver
from ..solvers.cdss import entry_gains
from ..thresholds import L0L1L2, AbstractThreshold
from .grid import DEFAULT_K, score_of

BELOW = 0.999  # the next l0 over the largest gain of a feature that would enter
ROUNDS = 3  # in which rows of a path learn from one another


class Row(NamedTuple):
    """A fit at one l0."""

    l0: float
    l2: np.ndarray
    k: int  # features that pay
    chosen: Int[np.ndarray, "chosen"]  # these and the free ones
    loss: np.ndarray
    x: Float[Array, "d"]
    found: Solution


def over_l0(l0s: ArrayLike | None, threshold: AbstractThreshold | None) -> bool:
    """Whether a grid is one of prices."""
    return l0s is not None or isinstance(threshold, L0L1L2)


def penalised_parts(objective: AbstractObjective, threshold: AbstractThreshold | None) -> tuple[LinearModel, L0L1L2]:
    """The objective and the penalty of a path over l0, or TypeError."""
    model = check_kind("objective", objective, LinearModel, "sht.LinearModel(X, y)")
    given = L0L1L2(0.0) if threshold is None else threshold
    return model, check_kind("threshold", given, L0L1L2, "sht.L0L1L2(0.0, l1)")


def penalised_path(
    objective: AbstractObjective,
    threshold: AbstractThreshold | None,
    ks: ArrayLike | None,
    l2s: ArrayLike | None,
    l0s: ArrayLike | None,
    solver: AbstractSolver | None,
    key: jax.Array | None,
    checkpoint: Any,
    progress: Callback | bool | None,
) -> dict[str, Any]:
    """The fields of a `Path`: fits for every l2 (outer) and for l0s in falling order, or, where l0s is None, for l0s
    that add one feature at a time.

    The first of these is just above the most that any feature gains alone, and the next one just below the most that
    any outside the support would gain, so that the support must change; a size is skipped only where features enter
    together.
    """
    if ks is not None and l0s is not None:
        raise ValueError("ks: a path over l0s finds its own sizes; pass one of the two.")
    if checkpoint is not None:
        raise ValueError("checkpoint: a path over l0 is one chain of warm starts and keeps none; leave it None.")
    model, template = penalised_parts(objective, threshold)
    if not is_concrete(model, l0s, l2s, template):
        raise TypeError("objective: a whole path needs concrete arrays; under jit or vmap use sht.solve.")
    solver = default_solver(model, template) if solver is None else solver
    key = seeded(0) if key is None else key
    given, free = None if l0s is None else _checked(l0s), free_of_charge(template).size
    limit = min(DEFAULT_K, max(model.columns.n // 2, 1)) if ks is None else int(np.max(np.asarray(ks)))
    limit = min(limit, model.n_coefficients - free)
    levels = [model] if l2s is None else [model.reweighted(l2=l2) for l2 in np.asarray(l2s)]
    total = len(levels) * (limit if given is None else given.size)
    rows: list[Row] = []
    with one_blas_thread(), reporting(progress) as report:
        for number, level in enumerate(levels):
            chain, found = Chain(level, template, solver, key), []
            for row in chain.rows(given, limit):
                found.append(row)
                done = min(row.k, limit) if given is None else len(found)
                report(min(number * total // len(levels) + done, total), total)
            if given is None:
                first, rest = found[0], chain.exchanged(found[1:])
                found = [row for row in chain.between([chain.above(first, rest), *rest], limit) if row.k <= limit]
            else:
                found = chain.exchanged(found)
            rows += found
    fields, more_loss, dispersion = _fields(rows), None, None
    if model.free_dispersion:
        more_loss, dispersion = spreads(model, lambda i: rows[i].x, fields["loss"])
    return fields | {
        "n_features": model.n_coefficients,
        "n_units": model.n_coefficients,
        "n_kept": free,
        "total_weight": float(np.sum(host(model.sample_weight), dtype=float)),
        "pieces": jax.tree.map(float, model.pieces),
        "more_loss": more_loss,
        "dispersion": dispersion,
        "key": key,
    }


def spreads(
    objective: AbstractObjective, point: Callable[[int], Float[Array, "d"]], loss: Float[np.ndarray, "grid"]
) -> tuple[Float[np.ndarray, "grid"], Float[np.ndarray, "grid"]]:
    """By how much the loss of every point is above the least of them, and the dispersion about it."""
    best = point(int(np.argmin(np.where(np.isnan(loss), np.inf, loss))))
    more_loss, dispersion = zip(*(objective.excess(point(i), best) for i in range(len(loss))), strict=True)
    return np.asarray(more_loss, float), np.asarray(dispersion, float)


def penalised_scores(
    objective: LinearModel,
    threshold: L0L1L2,
    path: Any,
    train: Float[np.ndarray, "folds n"],
    test: Float[np.ndarray, "folds n"],
    solver: AbstractSolver,
    score: str | None,
    key: jax.Array,
    progress: Callback | bool | None,
) -> tuple[np.ndarray, Int[np.ndarray, "folds grid"]]:
    """Scores by held-out rows of the fits of a path with the weights of the others, (folds, grid, ...), and how these
    ended: the mean loss, or what `score_of` asks for."""
    l0s, l2s = path.l0s, path.l2s
    starts = 1 + np.flatnonzero((l2s[1:] != l2s[:-1]).any(axis=tuple(range(1, l2s.ndim))))
    scores: list[list[np.ndarray]] = []
    results: list[list[np.ndarray]] = []
    with one_blas_thread(), reporting(progress) as report:
        for fold, (inside, outside) in enumerate(zip(train, test, strict=True)):
            scores.append([])
            results.append([])
            for chain in np.split(np.arange(len(l0s)), starts):
                model = objective.reweighted(jnp.asarray(inside, objective.dtype), l2s[chain[0]])
                held_out = jnp.asarray(outside, objective.dtype)
                for row in Chain(model, threshold, solver, key).rows(l0s[chain], 0):
                    scores[-1].append(np.asarray(_score(model, held_out, row.x, score)))
                    results[-1].append(np.asarray(row.found.result))
                    report(fold * len(l0s) + len(scores[-1]), len(train) * len(l0s))
    return np.array(scores), np.array(results, np.int32)


def _checked(l0s: ArrayLike) -> Float[np.ndarray, "grid"]:
    l0s = np.atleast_1d(np.asarray(l0s, float))
    if l0s.ndim != 1 or l0s.size == 0 or not np.isfinite(l0s).all() or l0s.min() < 0:
        raise ValueError(f"l0s: needs finite numbers >= 0, for example np.geomspace(1, 1e-3, 20), got {l0s}.")
    return np.sort(l0s)[::-1]


class Chain(NamedTuple):
    """The fits at one l2, each from the one before."""

    model: LinearModel
    threshold: L0L1L2
    solver: AbstractSolver
    key: jax.Array

    def solved(self, l0: float, start: Any) -> Solution:
        """The solution at one l0 from a start; None: zero."""
        threshold = replace(self.threshold, l0=l0)
        return solve(self.model, threshold, self.solver, x0=start, key=self.key, record=None, throw=False)

    def row(self, l0: float, start: Any) -> Row:
        """The fit at one l0 from a start."""
        model, kept, found = self.model, free_of_charge(self.threshold), self.solved(l0, start)
        x = model.to_internal(found.x, found.intercept)
        chosen = np.union1d(np.flatnonzero(np.asarray(found.x)), kept)
        loss = np.asarray(_score(model, model.sample_weight, x, None))
        return Row(l0, np.asarray(model.l2), chosen.size - kept.size, chosen, loss, x, found)

    def rows(self, given: Float[np.ndarray, "grid"] | None, k_limit: int) -> Iterator[Row]:
        """The fits at given l0s in falling order, or at l0s that add features up to a limit."""
        model, threshold = self.model, self.threshold
        nobody, noise = float(np.finfo(model.dtype).max ** 0.5), _noise(model)
        if given is not None:
            found = self.solved(nobody, None) if free_of_charge(threshold).size else None
            for price in given:
                row = self.row(float(price), found)
                found = row.found
                yield row
            return
        row = self.row(nobody, None)  # those that pay nothing, alone
        gain, value = map(float, jax.device_get(_largest_gain(model, threshold, row.x)))
        last = max(gain, 0.0) / BELOW
        yield row._replace(l0=last)
        while row.k < k_limit:
            last = BELOW * min(last, gain)
            if not last > 1e-9 * abs(value) + noise:  # nothing enters but noise
                return
            row = self.row(last, row.found)
            yield row
            gain, value = map(float, jax.device_get(_largest_gain(model, threshold, row.x)))

    def exchanged(self, rows: list[Row]) -> list[Row]:
        """The rows, each fitted again from another's point where that is lower at its own l0, until none is."""
        rows, tol = list(rows), tolerance("swap", np.dtype(self.model.dtype))
        for _ in range(ROUNDS if rows else 0):
            l0s = np.array([float(row.l0) for row in rows])
            values, costs = np.transpose([self.parts(row) for row in rows])
            table = values + l0s[:, None] * costs  # of every row's point (second) at every row's l0
            best = np.argmin(table, axis=1)
            gain = np.diagonal(table) - table[np.arange(len(rows)), best]
            worse = np.flatnonzero(gain > tol * np.abs(np.diagonal(table)))
            points = [row.found for row in rows]  # as they were compared
            for r in worse:
                row = self.row(float(l0s[r]), points[best[r]])
                if row.found.value < rows[r].found.value:
                    rows[r] = row
            if not worse.size:
                break
        return rows

    def above(self, first: Row, rows: list[Row]) -> Row:
        """The first row, which pays nothing, at an l0 from which on it is the best."""
        value, _ = self.parts(first)
        gains = [(value - lower) / cost for lower, cost in map(self.parts, rows) if cost]
        return first._replace(l0=max([first.l0, *(gain / BELOW for gain in gains)]))

    def between(self, rows: list[Row], k_limit: int) -> list[Row]:
        """The rows, and those of sizes between: at the l0 where two neighbours are equally good, a third may be
        better."""
        tol = tolerance("swap", np.dtype(self.model.dtype))
        done, waiting = rows[:1], rows[:0:-1]
        while waiting:
            left, right = done[-1], waiting[-1]
            (value, cost), (lower, more) = self.parts(left), self.parts(right)
            if left.k + 1 < right.k and left.k < k_limit and more > cost:
                price = (value - lower) / (more - cost)
                row = self.row(price, left.found)
                if left.k < row.k < right.k and row.found.value < (value + price * cost) * (1 - tol):
                    waiting.append(row)
                    continue
            done.append(waiting.pop())
        return done

    def parts(self, row: Row) -> tuple[float, float]:
        """The objective of a row without l0, and what l0 is multiplied with."""
        w = np.asarray(row.found.x)
        prices = np.ones(w.size) if self.threshold.prices is None else np.array(self.threshold.prices, float)
        prices[np.asarray(self.threshold.keep, int)] = 0
        cost = float(np.sum(prices[w != 0]))
        return float(row.found.value) - (float(row.l0) * cost if cost else 0.0), cost


def _noise(model: LinearModel) -> float:
    """The gain that rounding of the targets alone can feign: targets without variance have no other scale."""
    if not model.loss.location:
        return 0.0
    size = np.max(np.abs(host(model.y))) + (0.0 if model.target_mean is None else abs(float(host(model.target_mean))))
    return float(100 * np.finfo(model.dtype).eps * size) ** 2


def free_of_charge(threshold: L0L1L2) -> Int[np.ndarray, "n_keep"]:
    """The features that pay no l0."""
    keep = np.asarray(threshold.keep, np.int32)
    return keep if threshold.prices is None else np.union1d(keep, np.flatnonzero(np.asarray(threshold.prices) == 0))


@program
def _largest_gain(
    model: LinearModel, threshold: L0L1L2, x: Float[Array, "d"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    threshold = threshold.bind(model)
    dual, p = Dual(model, threshold), model.n_coefficients
    if model.n_free:  # the intercept is optimal before features are compared
        x = jnp.where(jnp.any(x[:p] != 0), x, dual.predict(dual.point(dual.zero()))[0])
    value, grad = model.value_and_grad(x)
    gains, _ = entry_gains(dual, dual.columns.moments()[1], grad, x)
    prices = threshold.prices
    if prices is not None:  # a feature enters where its gain is more than its price
        gains = jnp.where(prices > 0, gains / jnp.where(prices > 0, prices, 1), -jnp.inf)
    return jnp.max(gains), value


@program(static_argnames="kind")
def _score(model: LinearModel, weights: Float[Array, "n"], x: Float[Array, "d"], kind: str | None) -> Array:
    scorer = model.scorer(weights)
    return scorer.value(x) if kind is None else score_of(scorer, kind, x)


def _fields(rows: list[Row]) -> dict[str, Any]:
    """The fields of a `Path` that have a row for each fit."""
    width = max(row.chosen.size for row in rows)
    idx: Any = np.zeros((len(rows), width), np.int32)
    z = np.zeros((len(rows), width), np.asarray(rows[0].found.x).dtype)
    mask: Any = np.zeros((len(rows), width), bool)
    for i, row in enumerate(rows):
        size = row.chosen.size
        idx[i, :size], z[i, :size], mask[i, :size] = row.chosen, np.asarray(row.found.x)[row.chosen], True
    return {
        "l0s": np.array([row.l0 for row in rows], float),
        "l2s": np.array([row.l2 for row in rows]),
        "ks": np.array([row.k for row in rows], np.int32),
        "support": Support(idx, mask),
        "features": Support(idx, mask),
        "coefficients": z,
        "intercept": np.array([np.asarray(row.found.intercept) for row in rows]),
        "value": np.array([np.asarray(row.found.value) for row in rows]),
        "result": np.array([np.asarray(row.found.result) for row in rows], np.int32),
        "loss": np.array([row.loss for row in rows]),
    }
