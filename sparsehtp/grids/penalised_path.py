"""Fits over a grid of l0, each from the one before."""

from collections.abc import Iterator
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
from .._types import ArrayLike, Support, check_kind, host, is_concrete, replace
from ..duality import Dual
from ..objectives import AbstractObjective, LinearModel
from ..solvers import AbstractSolver
from ..solvers.cdss import entry_gains
from ..thresholds import L0L1L2, AbstractThreshold
from .grid import score_of

BELOW = 0.999  # the next l0 over the largest gain of a feature that would enter
DEFAULT_K = 20
ROUNDS = 3  # in which rows of a path learn from one another


class PenalisedFits(NamedTuple):
    """Fits over l2 (outer) and l0 (inner, falling): fields of a `Path`."""

    l0s: np.ndarray
    l2s: np.ndarray
    ks: np.ndarray
    support: Support
    coefficients: np.ndarray
    intercept: np.ndarray
    value: np.ndarray
    result: np.ndarray
    loss: np.ndarray


def over_l0(l0s: ArrayLike | None, threshold: AbstractThreshold | None) -> bool:
    """Whether a grid is one of prices."""
    return l0s is not None or isinstance(threshold, L0L1L2)


def penalised_parts(objective: AbstractObjective, threshold: AbstractThreshold | None) -> tuple[LinearModel, L0L1L2]:
    """The objective and the penalty of a path over l0, or TypeError."""
    model = check_kind("objective", objective, LinearModel, "sht.LinearModel(X, y)")
    given = L0L1L2(0.0) if threshold is None else threshold
    return model, check_kind("threshold", given, L0L1L2, "sht.L0L1L2(0.0, l1)")


def penalised_path(
    objective: LinearModel,
    threshold: L0L1L2,
    l0s: ArrayLike | None,
    l2s: ArrayLike | None,
    k_limit: int | None,
    solver: AbstractSolver | None,
    key: jax.Array,
    progress: Callback | bool | None,
) -> PenalisedFits:
    """Fits for every l2 and for l0s in falling order, or, where l0s is None, for l0s that add one feature at a time.

    The next l0 is just below the most that any feature outside the support would gain, so that the support must change;
    a size is skipped only where features enter together.
    """
    if not is_concrete(objective, l0s, l2s, threshold):
        raise TypeError("objective: a whole path needs concrete arrays; under jit or vmap use sht.solve.")
    solver = default_solver(objective, threshold) if solver is None else solver
    given = None if l0s is None else _checked(l0s)
    n, p = objective.columns.n, objective.n_coefficients - free_of_charge(threshold).size
    k_limit = min(DEFAULT_K, p, max(n // 2, 1)) if k_limit is None else min(k_limit, p)
    models = [objective] if l2s is None else [objective.reweighted(l2=l2) for l2 in np.asarray(l2s)]
    rows: list[dict[str, Any]] = []
    with one_blas_thread(), reporting(progress) as report:
        for number, model in enumerate(models):
            total = len(models) * (k_limit if given is None else given.size)
            first = len(rows)
            for row in _chain(model, threshold, solver, given, k_limit, key):
                rows.append(row)
                done = min(row["k"], k_limit) if given is None else len(rows) - number * given.size
                report(min(number * total // len(models) + done, total), total)
            found = _exchanged(rows[first:], model, threshold, solver, key)
            if given is None:
                found = [row for row in _between(found, model, threshold, solver, k_limit, key) if row["k"] <= k_limit]
            rows[first:] = found
    return _collected(rows)


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
                for row in _chain(model, threshold, solver, l0s[chain], 0, key):
                    scores[-1].append(np.asarray(_score(model, held_out, row["x"], score)))
                    results[-1].append(row["result"])
                    report(fold * len(l0s) + len(scores[-1]), len(train) * len(l0s))
    return np.array(scores), np.array(results, np.int32)


def _checked(l0s: ArrayLike) -> Float[np.ndarray, "grid"]:
    l0s = np.atleast_1d(np.asarray(l0s, float))
    if l0s.ndim != 1 or l0s.size == 0 or not np.isfinite(l0s).all() or l0s.min() < 0:
        raise ValueError(f"l0s: needs finite numbers >= 0, for example np.geomspace(1, 1e-3, 20), got {l0s}.")
    return np.sort(l0s)[::-1]


def _chain(
    model: LinearModel,
    threshold: L0L1L2,
    solver: AbstractSolver,
    given: Float[np.ndarray, "grid"] | None,
    k_limit: int,
    key: jax.Array,
) -> Iterator[dict[str, Any]]:
    x = jnp.zeros(model.n_coefficients + model.n_free, model.dtype)
    found, last, place, kept = None, np.inf, 0, free_of_charge(threshold)
    nobody, noise = float(np.finfo(model.dtype).max ** 0.5), _noise(model)
    if kept.size:  # a path begins where these alone are in
        found = solve(model, replace(threshold, l0=nobody), solver, key=key, record=None, throw=False)
        x = model.to_internal(found.x, found.intercept)
    while True:
        price = last
        if given is None:
            gain, value = map(float, jax.device_get(_largest_gain(model, threshold, x)))
            price = last = min(BELOW * last, BELOW * gain)
            if not last > 1e-9 * abs(value) + noise:  # nothing enters but noise
                if place:
                    return
                price, last = nobody, max(gain, 0.0)  # a path has a row
        elif place == given.size:
            return
        else:
            price = last = given[place]
        place += 1
        row = _row(model, threshold, solver, float(price), found, key) | {"l0": last}
        found, x = row["found"], row["x"]
        yield row
        if given is None and (row["k"] >= k_limit or price == nobody):
            return


def _row(
    model: LinearModel, threshold: L0L1L2, solver: AbstractSolver, price: float, start: Any, key: jax.Array
) -> dict[str, Any]:
    """The fit at one l0 from a start."""
    kept = free_of_charge(threshold)
    found = solve(model, replace(threshold, l0=price), solver, x0=start, key=key, record=None, throw=False)
    x, w = model.to_internal(found.x, found.intercept), np.asarray(found.x)
    chosen = np.union1d(np.flatnonzero(w), kept)
    return {
        "l0": price,
        "l2": np.asarray(model.l2),
        "k": chosen.size - kept.size,
        "idx": chosen.astype(np.int32),
        "z": w[chosen],
        "intercept": np.asarray(found.intercept),
        "value": np.asarray(found.value),
        "result": np.asarray(found.result),
        "loss": np.asarray(_score(model, model.sample_weight, x, None)),
        "x": x,
        "found": found,
    }


def _exchanged(
    rows: list[dict[str, Any]], model: LinearModel, threshold: L0L1L2, solver: AbstractSolver, key: jax.Array
) -> list[dict[str, Any]]:
    """The rows, each fitted again from another's point where that is lower at its own l0, until none is."""
    rows, tol = list(rows), tolerance("swap", np.dtype(model.dtype))
    for _ in range(ROUNDS):
        l0s = np.array([float(row["l0"]) for row in rows])
        values, costs = np.transpose([_parts(row, threshold) for row in rows])
        table = values + l0s[:, None] * costs  # of every row's point (second) at every row's l0
        best = np.argmin(table, axis=1)
        gain = np.diagonal(table) - table[np.arange(len(rows)), best]
        worse = np.flatnonzero(gain > tol * np.abs(np.diagonal(table)))
        for r in worse:
            row = _row(model, threshold, solver, float(l0s[r]), rows[best[r]]["found"], key)
            if row["value"] < rows[r]["value"]:
                rows[r] = row
        if not worse.size:
            break
    return rows


def _between(
    rows: list[dict[str, Any]],
    model: LinearModel,
    threshold: L0L1L2,
    solver: AbstractSolver,
    k_limit: int,
    key: jax.Array,
) -> list[dict[str, Any]]:
    """The rows, and those of sizes between: at the l0 where two neighbours are equally good, a third may be better."""
    tol = tolerance("swap", np.dtype(model.dtype))
    done, waiting = rows[:1], rows[:0:-1]
    while waiting:
        left, right = done[-1], waiting[-1]
        (value, cost), (lower, more) = (_parts(row, threshold) for row in (left, right))
        if left["k"] + 1 < right["k"] and left["k"] < k_limit and more > cost:
            price = (value - lower) / (more - cost)
            row = _row(model, threshold, solver, price, left["found"], key)
            if left["k"] < row["k"] < right["k"] and row["value"] < (value + price * cost) * (1 - tol):
                waiting.append(row)
                continue
        done.append(waiting.pop())
    return done


def _parts(row: dict[str, Any], threshold: L0L1L2) -> tuple[float, float]:
    """The objective of a row without l0, and what l0 is multiplied with."""
    w = np.asarray(row["found"].x)
    prices = np.ones(w.size) if threshold.prices is None else np.array(threshold.prices, float)
    prices[np.asarray(threshold.keep, int)] = 0
    cost = float(np.sum(prices[w != 0]))
    return float(row["value"]) - (float(row["l0"]) * cost if cost else 0.0), cost


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


def _collected(rows: list[dict[str, Any]]) -> PenalisedFits:
    width = max([row["idx"].size for row in rows], default=0)
    idx: Any = np.zeros((len(rows), width), np.int32)
    z = np.zeros((len(rows), width), rows[0]["z"].dtype if rows else float)
    mask: Any = np.zeros((len(rows), width), bool)
    for i, row in enumerate(rows):
        size = row["idx"].size
        idx[i, :size], z[i, :size], mask[i, :size] = row["idx"], row["z"], True

    def column(name: str, dtype: Any = None) -> np.ndarray:
        return np.array([row[name] for row in rows], dtype)

    return PenalisedFits(
        l0s=column("l0", float),
        l2s=column("l2"),
        ks=column("k", np.int32),
        support=Support(idx, mask),
        coefficients=z,
        intercept=column("intercept"),
        value=column("value"),
        result=column("result", np.int32),
        loss=column("loss"),
    )
