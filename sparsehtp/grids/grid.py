"""Many fits of one kind as one batch: sparsity x ridge x sample weights, in memory-bounded chunks.

A lane is one problem: one (weights, l2, k), or one (weights, l2) with all k where one run of the solver gives them all.
Folds and resamples are rows of sample weights; a chunk computes the standardisation of each of its rows once, and all
lanes share the data.
"""

import math
import numbers
from concurrent.futures import Executor
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from .._chunks import DEFAULT_MEMORY, chunk_width
from .._executors import in_order
from .._programs import program
from .._progress import Callback, reporting
from .._solve import default_solver
from .._threads import one_blas_thread
from .._types import ArrayLike, Support, check_finite, check_kind, check_precision, host, is_concrete, replace, seeded
from ..columns import gather, scatter
from ..io.checkpoint import Checkpoint
from ..iteration import driver
from ..linalg import lane_axis, one_by_one
from ..objectives import AbstractObjective
from ..solvers import AbstractSolver
from ..solvers.base import Trail
from ..solvers.refit import refit
from ..thresholds import AbstractThreshold, AbstractUnitThreshold

DEFAULT_K = 20
CACHE = 2**21  # bytes of the tables of all lanes of a chunk on a CPU
PAIR_COPIES = 60  # vectors of all pairs that one fit of a precision matrix takes


class Weights(NamedTuple):
    """Sample weights to fit with and to score with, one row per fold or resample."""

    fit: Float[Array, "rows n"]
    score: Float[Array, "rows n"]


class Fits(NamedTuple):
    """The kept part of every fit: traced inside a chunk, NumPy outside.

    Attributes:
        support: units in the support.
        features: entries in the support; None where they are the units.
        coefficients: of the features, in original units.
        intercept, value, result: as in a Solution.
        loss: mean loss without l2 under the scoring weights.
        score: the loss of the refit, the share of wrong labels, or the predictors of all rows; None where none of them
            was asked for.
    """

    support: Support
    features: Support | None
    coefficients: Any
    intercept: Any
    value: Any
    result: Any
    loss: Any
    score: Any


class Grid(eqx.Module):
    """Everything that the lanes share."""

    objective: AbstractObjective
    threshold: AbstractUnitThreshold
    solver: AbstractSolver
    key: Array
    ks: Int[Array, "K"]
    l2s: Float[Array, "L *p"] | None
    weights: Weights | None
    refit: Float[Array, ""] | None  # what is scored is refitted on its support at this part of l2; None: the fit itself
    score: str | None = eqx.field(static=True)  # "error", or "predictors": (n,) of all rows in place of a score

    @property
    def axes(self) -> tuple[int, ...]:
        """Numbers of rows of weights, of l2, and of k unless one run gives all of them."""
        rows = 1 if self.weights is None else self.weights.fit.shape[0]
        levels = 1 if self.l2s is None else self.l2s.shape[0]
        return (rows, levels) if self.solver.by_path else (rows, levels, self.ks.shape[0])

    @property
    def lanes(self) -> "Lane":
        """All of them."""
        return Lane(*np.indices(self.axes, np.int32).reshape(len(self.axes), -1))


class Lane(NamedTuple):
    """Indices into the grid's tables; k is None where one run gives all k."""

    row: Int[Array, ""]
    l2: Int[Array, ""]
    k: Int[Array, ""] | None = None


def template_of(objective: AbstractObjective, threshold: AbstractThreshold | None) -> AbstractUnitThreshold:
    """The threshold of a grid, whose k is not used; None: the objective's own."""
    given = objective.thresholds[0](0) if threshold is None else threshold
    template = check_kind("threshold", given, AbstractUnitThreshold, "sht.Sparsity(0)")
    if "k" not in template.counts:
        raise TypeError(
            f"threshold: {type(template).__name__} has a number for every leaf, and no path over one; call solve for "
            "each."
        )
    return template


def prepare(
    objective: AbstractObjective,
    ks: ArrayLike | None,
    l2s: ArrayLike | None,
    threshold: AbstractThreshold | None,
    solver: AbstractSolver | None,
    key: Array | None,
    *,
    search: str | None = None,
    refit: float = 1.0,
    score: str | None = None,
    traced: bool = False,
) -> Grid:
    """A grid from what the public functions take, checked; with `traced`, all but ks may be traced.

    `search` is what the default solver is for, see `default_solver`.
    """
    check_kind("objective", objective, AbstractObjective, "sht.LinearModel(X, y)")
    if not is_concrete(ks) or not (traced or is_concrete(objective, l2s, threshold)):
        raise TypeError("objective: a whole grid needs concrete arrays; under jit or vmap use sht.solve.")
    check_precision("objective", objective)
    check_finite("objective", objective)
    template = template_of(objective, threshold)
    levels = checked_ks(objective, template, ks)
    largest = replace(template, k=levels.max()).bind(objective)
    strengths = None if l2s is None else _checked_l2s(objective, l2s)
    solver = default_solver(objective, template, search) if solver is None else solver
    check_kind("solver", solver, AbstractSolver, "sht.solvers.HTP()")
    solver.check(objective, template)
    check_finite("solver", solver, remedy="pass finite numbers")
    # The template keeps its bounds in original units: every lane binds it to its own standardisation.
    template = replace(template, k=levels.max(), k_max=largest.k_max)
    key = seeded(0) if key is None else key
    part: Any = None if refit == 1 else np.asarray(checked_refit(refit, objective), objective.dtype)
    return Grid(objective, template, solver, key, jnp.asarray(levels, jnp.int32), strengths, None, part, score)


def _checked_l2s(objective: AbstractObjective, l2s: ArrayLike) -> Float[Array, "L *p"]:
    l2s = np.atleast_1d(np.asarray(l2s, float)) if is_concrete(l2s) else jnp.atleast_1d(jnp.asarray(l2s))
    p = objective.external_shape[0]
    bad = is_concrete(l2s) and not (np.isfinite(l2s).all() and np.min(l2s, initial=0) >= 0)
    if l2s.size == 0 or l2s.shape[1:] not in ((), (p,)) or bad:
        raise ValueError(f"l2s: needs finite numbers >= 0, one per grid point (or ({p},) for each), got {l2s}.")
    objective.reweighted(l2=l2s[0])
    return jnp.asarray(l2s, objective.dtype)


def refittable(objective: AbstractObjective) -> bool:
    """True if minima on a support can be found for another l2."""
    return objective.l2 is not None and objective.twice_differentiable


def checked_refit(refit: float, objective: AbstractObjective) -> float:
    """The part of l2 that supports are refitted at, or an error."""
    if not isinstance(refit, numbers.Real) or not 0 < float(refit) < math.inf:
        raise ValueError(f"refit: needs a positive part of l2, such as 0.1, got {refit!r}.")
    if not refittable(objective):
        raise TypeError("refit: needs an objective with l2 and a loss with a second derivative; leave it at 1.")
    return float(refit)


def checked_ks(
    objective: AbstractObjective, threshold: AbstractUnitThreshold, ks: ArrayLike | None
) -> Int[np.ndarray, "K"]:
    """The sparsity levels of a grid, or ValueError; None: the default ones."""
    if ks is None:
        rows = objective.sample_weight
        available = n_units(objective, threshold) - threshold.keep.shape[0]
        most = min(DEFAULT_K, available, DEFAULT_K if rows is None else len(rows) // 2)
        return np.arange(threshold.fewest, max(most, threshold.fewest) + 1, dtype=np.int32)
    ks = np.atleast_1d(np.asarray(ks))
    if ks.ndim != 1 or ks.size == 0 or ks.dtype.kind not in "iu" or ks.min() < 0:
        raise ValueError(f"ks: needs nonnegative integers, for example range(11), got {ks.tolist()}.")
    if ks.min() < threshold.fewest:
        raise ValueError(f"ks: {type(threshold).__name__} needs at least {threshold.fewest}, got {ks.min()}; raise ks.")
    units, n_keep = n_units(objective, threshold), threshold.keep.shape[0]
    if ks.max() > units - n_keep:
        kept = f" beside {n_keep} always kept" if n_keep else ""
        what = threshold.kind if threshold.kind != "entries" else "features"
        raise ValueError(f"ks: the largest is {ks.max()}{kept}, but there are only {units} {what}; lower ks.")
    return ks.astype(np.int32)


def n_units(objective: AbstractObjective, threshold: AbstractUnitThreshold) -> int:
    """Number of units that the threshold chooses from, kept ones included."""
    return replace(threshold, k=np.int32(0), k_max=0).bind(objective).n_units(objective)


def run(
    grid: Grid,
    memory: int | None = None,
    progress: Callback | bool | None = None,
    checkpoint: str | Path | None = None,
    executor: Executor | None = None,
) -> Fits:
    """All fits as NumPy arrays, leading axes (rows of weights, l2 x k with l2 major).

    A chunk's working arrays take about `memory` bytes at most; what is kept of a fit takes 13 bytes (17 in float64) per
    place in its support and about 30 beside.
    """
    (rows, levels, *_), lanes, n_k = grid.axes, grid.lanes, grid.ks.shape[0]
    total, by_path = math.prod(grid.axes), grid.solver.by_path
    per_lane = n_k if by_path else 1
    width = _width(grid, total, memory)
    store = None if checkpoint is None else Checkpoint(checkpoint, grid, total, width)
    width = width if store is None else store.width
    shapes = None if store is None else jax.eval_shape(batch, grid, _chunk(lanes, 0, width, total))
    starts = range(0, total, width)
    stored = [None if store is None else store.load(i, jax.tree.structure(shapes)) for i in range(len(starts))]
    x64 = bool(jax.config.read("jax_enable_x64"))
    sent = grid if executor is None else jax.tree.map(_portable, grid)
    tasks = ((x64, sent, _chunk(lanes, starts[i], width, total)) for i, piece in enumerate(stored) if piece is None)
    pieces = []
    with reporting(progress) as report, one_blas_thread():
        found = iter(starmap(_fitted, tasks) if executor is None else in_order(executor, _fitted, tasks))
        for number, (start, piece) in enumerate(zip(starts, stored, strict=True)):
            if piece is None:
                piece = jax.tree.map(lambda a, used=total - start: a[:used], next(found))
                if store is not None:
                    store.store(number, piece)
            pieces.append(piece)
            report(min(start + width, total) * per_lane, total * per_lane)
    whole = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
    dims = 2 if by_path else 1
    return jax.tree.map(lambda a: a.reshape(rows, levels * n_k, *a.shape[dims:]), whole)


def _portable(leaf: Any) -> Any:
    """An array as one of NumPy, which keeps its precision on the way to another process; a key of JAX as it is."""
    plain = isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return host(leaf) if plain else leaf


def _fitted(x64: bool, grid: Grid, lanes: Lane) -> Fits:
    """The fits of a chunk, wherever it is computed."""
    with jax.enable_x64(x64):
        return jax.tree.map(host, batch(grid, lanes))


def _width(grid: Grid, lanes: int, memory: int | None) -> int:
    memory = DEFAULT_MEMORY if memory is None else memory
    if not isinstance(memory, numbers.Real) or not 0 < float(memory) < math.inf:
        raise ValueError(f"memory: needs a positive number of bytes, got {memory!r}.")
    objective, threshold = grid.objective, grid.threshold
    units, vector = objective.n_free + threshold.room, jnp.dtype(objective.dtype).itemsize * objective.n_coefficients
    width = chunk_width(objective, units * threshold.entries_per_unit, lanes, memory)
    if objective.n_variables is not None:  # matrices of all pairs, whatever the support
        width = int(np.clip(memory // (PAIR_COPIES * vector), 1, lanes))
    if grid.solver.by_path:
        # Its tables hold a few blocks of (units, coefficients); centring under weights of its own copies the data.
        copies = objective.ifo_per_gradient if objective.copies_columns else 0
        table = vector * (6 * units + copies)
        # On a CPU the lanes take turns, and tables that fit in its cache are several times faster.
        room = min(memory, CACHE) if jax.default_backend() == "cpu" else memory
        width = int(np.clip(room // table, 1, width))
    return width


def _chunk(lanes: Lane, start: int, width: int, total: int) -> Lane:
    index = np.minimum(np.arange(start, start + width), total - 1)  # the last chunk repeats its last lane
    return jax.tree.map(lambda a: a[index], lanes)


def _own_parts(grid: Grid, lanes: Lane) -> Any:
    """The parts of the objective that depend on the sample weights, for those rows of them that some lanes have.

    None for what is shared.
    """
    if grid.weights is None:
        return None
    rows = grid.weights.fit
    number = min(rows.shape[0], 1 + -(-(lanes.row.shape[0] - 1) // math.prod(grid.axes[1:])))

    def parts(row: Int[Array, ""]) -> Any:
        weights = rows[jnp.minimum(row, rows.shape[0] - 1)]
        objective = grid.objective
        return jax.tree.map(lambda new, old: None if new is old else new, objective.reweighted(weights), objective)

    # One row at a time: the moments take a copy of the data.
    return lax.map(parts, lanes.row[0] + jnp.arange(number))


@program
def batch(grid: Grid, lanes: Lane) -> Fits:
    """Fits of some lanes, in their order, traced."""
    own = _own_parts(grid, lanes)
    place = lanes.row - lanes.row[0]  # among the chunk's rows of weights
    if not grid.solver.by_path:  # the driver names its lanes itself
        return jax.vmap(_single_lane, in_axes=(None, None, 0, 0))(grid, own, place, lanes)
    if one_by_one():
        return lax.map(lambda each: _path_lane(grid, own, *each), (place, lanes))
    return jax.vmap(_path_lane, in_axes=(None, None, 0, 0), axis_name=lane_axis())(grid, own, place, lanes)


def _lane_objective(
    grid: Grid, own: Any, place: Int[Array, ""], lane: Lane
) -> tuple[AbstractObjective, AbstractObjective]:
    objective, score = grid.objective, None
    if grid.weights is not None:
        objective = eqx.combine(jax.tree.map(lambda a: a[place], own), objective)
        score = grid.weights.score[lane.row]
    scorer = objective.scorer(score)
    return objective if grid.l2s is None else objective.reweighted(l2=grid.l2s[lane.l2]), scorer


def _single_lane(grid: Grid, own: Any, place: Int[Array, ""], lane: Lane) -> Fits:
    objective, scorer = _lane_objective(grid, own, place, lane)
    threshold = replace(grid.threshold, k=grid.ks[lane.k]).bind(objective)
    solver = grid.solver
    x0 = objective.origin()
    task = driver.Task(objective, threshold, solver, solver.default_termination, x0, grid.key)
    outcome = driver.drive(task, solver.default_max_steps, None)
    entries = threshold.entries(outcome.x, outcome.support)
    x, support, value, result = outcome.x, outcome.support, outcome.value, outcome.result
    return kept_of(grid, objective, scorer, threshold, x, support, value, result, entries)


def _path_lane(grid: Grid, own: Any, place: Int[Array, ""], lane: Lane) -> Fits:
    objective, scorer = _lane_objective(grid, own, place, lane)
    threshold = grid.threshold.bind(objective)
    trail = jax.tree.map(lambda a: a[grid.ks], grid.solver.path(objective, threshold, grid.key))
    origin = objective.origin()

    def fit(k: Int[Array, ""], row: Trail) -> Fits:
        entries = threshold.entries(origin, row.support)
        x = scatter(row.z, entries, origin.size)
        result = objective.judged(replace(threshold, k=k), x, row.support, row.result)
        return kept_of(grid, objective, scorer, threshold, x, row.support, row.value, result, entries)

    return lax.map(lambda each: fit(*each), (grid.ks, trail))


def score_of(scorer: AbstractObjective, kind: str, x: Float[Array, "d"], entries: Support | None = None) -> Array:
    """The share of wrong labels ("error"), or the linear predictors of all rows ("predictors")."""
    eta = scorer.forward(x, entries)
    if kind == "predictors":
        return eta
    # The strict side is that of the classifier: a predictor of zero means -1.
    label = jnp.where(eta > 0, 1, -1) if eta.ndim == 1 else jnp.argmax(eta, axis=1)
    return jnp.average(label != scorer.labels, weights=scorer.sample_weight)


def kept_of(
    grid: Grid,
    objective: AbstractObjective,
    scorer: AbstractObjective,
    threshold: AbstractUnitThreshold,
    x: Float[Array, "d"],
    support: Support,
    value: Float[Array, ""],
    result: Int[Array, ""],
    entries: Support | None = None,
) -> Fits:
    """The kept part of a fit, by products with the columns of the entries alone where they are given; None: x is scored
    where the grid asks for a refit, too."""
    scored, score = x, None
    if grid.refit is not None:
        if entries is not None:
            scored, _ = refit(objective.weakened(grid.refit), threshold, entries, x)
        score = scorer.value(scored, entries)
    if grid.score is not None:
        score = score_of(scorer, grid.score, scored, entries)
    loss = scorer.value(x, entries)
    entries = threshold.entries(x, support) if entries is None else entries
    w, intercept = objective.parts(x)
    n_free, p = objective.n_free, objective.n_coefficients
    features = Support(jnp.minimum(entries.idx, p - 1), entries.mask)
    per_unit = entries.idx.shape[0] // max(support.idx.shape[0], 1)
    features = jax.tree.map(lambda a: a[n_free * per_unit :], features)
    return Fits(
        support=threshold.visible(support),
        features=None if entries is support else features,
        coefficients=gather(w, features),
        intercept=intercept,
        value=value,
        result=result,
        loss=loss,
        score=score,
    )
