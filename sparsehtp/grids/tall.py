"""Fits over a grid where rows are many: searched in one quadratic model a fold, around its fit with all features.

The model of a fold and an l2 is exact to second order at that fit, from where dropping features that hardly matter is a
short way when rows are many. It costs a few passes over the rows, and whatever k is, a search takes p x p numbers. What
it finds is fitted to the rows, by steps with the model's curvature in place of a Hessian of its own, which cost two
products with the data each.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._programs import program
from .._progress import Callback, reporting
from .._threads import one_blas_thread
from .._types import Support, host, replace
from ..iteration.results import RESULTS
from ..linalg import dot, masked_factor
from ..objectives import LinearModel
from ..solvers import BestSubset
from ..solvers.refit import refit
from . import grid as _grid

ROWS_PER_FEATURE = 50
LEAST = 2**18  # numbers of the data, below which exact fits take no time worth saving
WIDEST = 512  # features
STEPS = 60  # of a fit at most; few are needed near the model's centre
ENOUGH = 1e-10  # part of F that a further step would gain
TOGETHER = 8  # sizes that are scored in one product


class Around(NamedTuple):
    """The quadratic model 1/2 w'A w - rhs'w of F around its minimiser x over all coefficients, the free entry minimised
    out: it moves by -mean'(w - x) with the others, and has the curvature `steepness`. `refits` is A at the part of l2
    for refits."""

    x: Float[Array, "d"]
    mean: Float[Array, "p"]
    steepness: Float[Array, ""]
    A: Float[Array, "p p"]
    refits: Float[Array, "p p"]
    rhs: Float[Array, "p"]
    fault: Int[Array, ""]


class Fitting(NamedTuple):
    """The best point so far, its value and what the next step from there would gain, and the point that is tried."""

    x: Float[Array, "d"]
    value: Float[Array, ""]
    gain: Float[Array, ""]
    trial: Float[Array, "d"]
    steps: Int[Array, ""]


def suits(grid: _grid.Grid) -> bool:
    """Whether rows are so many, and the problem one that a quadratic model can stand for."""
    objective = grid.objective
    if not isinstance(objective, LinearModel) or objective.sparse or not grid.threshold.plain:
        return False
    loss, (n, p) = objective.loss, objective.columns.design.shape
    smooth = loss.twice_differentiable and not (loss.kinked or loss.quadratic)
    alone = len(objective.y.devices()) == 1
    return smooth and alone and p <= WIDEST and n >= ROWS_PER_FEATURE * p and n * p >= LEAST


def tall_fits(grid: _grid.Grid, progress: Callback | bool | None = None) -> _grid.Fits | None:
    """As `grid.run` of a grid with weights, the last row those of all data, which is not scored; None where a fit with
    all features is not found."""
    objective, levels = grid.objective, [None] if grid.l2s is None else list(host(grid.l2s))
    assert isinstance(objective, LinearModel) and grid.weights is not None  # as `suits` says
    weights, found = jax.tree.map(host, grid.weights), []
    rows = len(weights.fit)
    with reporting(progress) as report, one_blas_thread():
        models = [objective.reweighted(part) for part in weights.fit]
        scorers = [model.scorer(part) for model, part in zip(models, weights.score, strict=True)]
        starts = [model.origin() for model in models]
        for l2 in levels:
            models = [model.reweighted(l2=l2) for model in models]
            around = [_around(model, start, grid.refit) for model, start in zip(models, starts, strict=True)]
            starts = [one.x for one in around]  # of the next l2
            about = [jax.tree.map(host, one) for one in around]
            if any(one.fault != 0 or not np.isfinite(one.A).all() for one in about):
                return None
            supports, results = _searched(grid, about)
            for row, (model, one) in enumerate(zip(models, around, strict=True)):
                support = jax.tree.map(lambda a, row=row: a[row], supports)
                # Of folds only what is scored counts, of all data only what is kept.
                kept = row == rows - 1 or grid.refit is None
                fits = _kept(grid, model, scorers[row], one, support, results[row], np.bool_(kept))
                found.append(jax.tree.map(host, fits))
                report(len(found) * grid.ks.size, rows * len(levels) * grid.ks.size)
    whole = jax.tree.map(lambda *parts: np.stack(parts).reshape(len(levels), rows, *parts[0].shape), *found)
    return jax.tree.map(lambda a: np.moveaxis(a, 1, 0).reshape(rows, -1, *a.shape[3:]), whole)


@program
def _around(model: LinearModel, start: Float[Array, "d"], part: Float[Array, ""] | None) -> Around:
    p, threshold = model.n_coefficients, model.thresholds[0](model.n_coefficients).bind(model)
    at = model if part is None else model.weakened(part)
    idx = jnp.concatenate([p + jnp.arange(model.n_free), jnp.arange(p)]).astype(jnp.int32)
    x, fault = refit(at, threshold, Support(idx, jnp.ones(idx.shape, bool)), start)
    equations = at.normal_equations(x)
    A = equations.rows(jnp.arange(p, dtype=jnp.int32))
    A = (A + A.T) / 2
    mean = jnp.zeros(p, x.dtype) if equations.mean is None else equations.mean
    more = jnp.diag(model.columns.ridge()[:p] - at.columns.ridge()[:p])
    steepness = jnp.sum(equations.weights)
    return Around(x, mean, steepness, A + more, A, equations.rhs, fault)


def _searched(grid: _grid.Grid, about: list[Around]) -> tuple[Support, Int[np.ndarray, "rows K"]]:
    """The supports of every row of weights and size, and how their search ended.

    Least squares on p rows, root(A) w - root(A)^-1 rhs, has each model; those of the others have no weight.
    """
    p, dtype = about[0].rhs.size, grid.objective.dtype
    X, y = [], []
    for one in about:
        size = np.sqrt(np.where(np.diag(one.A) > 0, np.diag(one.A), 1).astype(float))  # columns may be of any
        values, vectors = np.linalg.eigh(one.A / size / size[:, None])
        root = np.sqrt(np.where(values > p * np.finfo(dtype).eps * values[-1], values, np.inf))
        y.append(vectors.T @ (one.rhs / size) / root * np.sqrt(p))
        X.append(np.where(np.isfinite(root), root, 0)[:, None] * vectors.T * np.sqrt(p))
    own = np.repeat(np.eye(len(about), dtype=dtype), p, axis=1)
    quadratic = LinearModel(np.concatenate(X).astype(dtype), np.concatenate(y).astype(dtype))
    fields = {"objective": quadratic, "l2s": None, "weights": _grid.Weights(jnp.asarray(own), jnp.asarray(own))}
    fits = _grid.run(replace(grid, solver=BestSubset("fast"), refit=None, score=None, **fields))
    return fits.support, fits.result


@program
def _kept(
    grid: _grid.Grid,
    model: LinearModel,
    scorer: LinearModel,
    one: Around,
    supports: Support,
    results: Int[Array, "K"],
    kept: Bool[Array, ""],
) -> _grid.Fits:
    """The kept parts of the fits of one row of weights and one l2; a single step is made of the fits that count for
    nothing: of the refits where the fits themselves are `kept`, else of the fits."""
    threshold: Any = grid.threshold.bind(model)

    def fit(each: tuple[Array, Support, Array]) -> _grid.Fits:
        k, support, result = each
        found = scored = _fitted(model, one, one.A, support, jnp.where(kept, STEPS, 1))
        if grid.refit is not None:
            scored = _fitted(model.weakened(grid.refit), one, one.refits, support, jnp.where(kept, 1, STEPS))
        ended = jnp.where(kept, _settled(found), _settled(scored))
        result = jnp.where(ended | (result != RESULTS.converged), result, RESULTS.max_steps)
        result = jnp.where(jnp.isfinite(found.value + scored.value), result, RESULTS.nonfinite)
        support = threshold.with_free(support, model.n_coefficients)
        result = model.judged(replace(threshold, k=k), found.x, support, result)
        return _grid.kept_of(grid, model, scorer, found.x, scored.x, support, threshold, found.value, result)

    return lax.map(fit, (grid.ks, supports, results), batch_size=TOGETHER)


def _settled(found: Fitting) -> Bool[Array, ""]:
    enough = jnp.maximum(ENOUGH, 8 * jnp.finfo(found.x.dtype).eps) * jnp.abs(found.value)
    return jnp.isfinite(found.value) & (found.gain <= enough)


def _fitted(
    model: LinearModel, one: Around, A: Float[Array, "p p"], support: Support, limit: Int[Array, ""]
) -> Fitting:
    """The minimiser on a support, from that of the quadratic model on; a step that does not lower F is halved."""
    (S, mask), p = support, one.rhs.size
    factor = masked_factor(A[S][:, S], mask)

    def whole(z: Float[Array, "m"]) -> Float[Array, "p"]:
        return jnp.zeros(p, z.dtype).at[S].add(jnp.where(mask, z, 0))

    def going(c: Fitting) -> Array:
        return (c.steps < limit) & ~_settled(c)

    def body(c: Fitting) -> Fitting:
        value, grad = model.value_and_grad(c.trial)
        free = grad[p:]
        slope = jnp.where(mask, grad[S] - one.mean[S] * jnp.sum(free), 0)
        step = -factor.solve(slope)
        ahead = whole(step)
        ahead = jnp.append(ahead, -free / one.steepness - dot(one.mean, ahead))
        gain = (jnp.sum(free * free) / one.steepness - dot(slope, step)) / 2
        lower = value < c.value
        best = jnp.where(lower, c.trial, c.x)
        return Fitting(
            x=best,
            value=jnp.where(lower, value, c.value),
            gain=jnp.where(lower, gain, c.gain),
            trial=jnp.where(lower, best + ahead, (best + c.trial) / 2),
            steps=c.steps + 1,
        )

    first = whole(factor.solve(jnp.where(mask, one.rhs[S], 0)))
    first = jnp.append(first, one.x[p:] - dot(one.mean, first - one.x[:p]))
    infinite = jnp.asarray(jnp.inf, first.dtype)
    return lax.while_loop(going, body, Fitting(jnp.zeros_like(first), infinite, infinite, first, jnp.int32(0)))
