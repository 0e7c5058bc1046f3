"""Fits over a grid where rows are many: searched in one quadratic model a fold, around its fit with all features.

The model of a fold and an l2 is exact to second order at that fit, from where dropping features that hardly matter is a
short way when rows are many. It costs a few passes over the rows; whatever k is, search and refits take p x p numbers.
Scores are those of the loss itself on the rows.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._programs import program
from .._progress import Callback, reporting
from .._threads import one_blas_thread
from .._types import Support, host, replace
from ..iteration.results import RESULTS
from ..objectives import LinearModel
from ..solvers import BestSubset
from ..solvers.refit import refit
from . import grid as _grid

ROWS_PER_FEATURE = 50
LEAST = 2**21  # numbers of the data, below which exact fits take no time worth saving
WIDEST = 512  # features
STEPS = 4  # of Newton's method to the fit with all features
TOGETHER = 8  # sizes that are scored in one product


class Around(NamedTuple):
    """The quadratic model 1/2 w'A w - rhs'w of F near its minimiser over all coefficients, the free entry, here
    `level`, minimised out: it is level - mean'(w - x). `refits` is A at the part of l2 for refits."""

    x: Float[Array, "p"]
    level: Float[Array, "_"]
    mean: Float[Array, "p"]
    A: Float[Array, "p p"]
    refits: Float[Array, "p p"]
    rhs: Float[Array, "p"]
    fault: Int[Array, ""]


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
    """As `grid.run` of a grid with weights; None where a fit with all features is not found."""
    objective, weights, levels = grid.objective, grid.weights, grid.axes[1]
    assert isinstance(objective, LinearModel) and weights is not None  # as `suits` says
    rows, found = weights.fit.shape[0], []
    with reporting(progress) as report, one_blas_thread():
        models = [objective.reweighted(part) for part in weights.fit]
        scorers = [model.scorer(part) for model, part in zip(models, weights.score, strict=True)]
        starts = [model.origin() for model in models]
        for level in range(levels):
            l2 = objective.l2 if grid.l2s is None else grid.l2s[level]
            models = [model.reweighted(l2=l2) for model in models]
            around = [_around(model, start, grid.refit) for model, start in zip(models, starts, strict=True)]
            starts = [jnp.append(one.x, one.level) for one in around]  # of the next l2
            about = [jax.tree.map(host, one) for one in around]
            if any(one.fault != 0 or not np.isfinite(one.A).all() for one in about):
                return None
            supports, results = _searched(grid, about)
            for row, (model, one) in enumerate(zip(models, about, strict=True)):
                support = jax.tree.map(lambda a, row=row: a[row], supports)
                fits = [_restricted(one, A, support) for A in (one.A, one.refits)]
                found.append(jax.tree.map(host, _kept(grid, model, scorers[row], support, *fits, results[row])))
                report((level * rows + row + 1) * grid.ks.size, rows * levels * grid.ks.size)
    whole = jax.tree.map(lambda *parts: np.stack(parts).reshape(levels, rows, *parts[0].shape), *found)
    return jax.tree.map(lambda a: np.moveaxis(a, 1, 0).reshape(rows, -1, *a.shape[3:]), whole)


@program
def _around(model: LinearModel, start: Float[Array, "d"], part: Float[Array, ""] | None) -> Around:
    p, threshold = model.n_coefficients, model.thresholds[0](model.n_coefficients).bind(model)
    at = model if part is None else model.weakened(part)
    idx = jnp.concatenate([p + jnp.arange(model.n_free), jnp.arange(p)]).astype(jnp.int32)
    # The model holds the slope that these steps leave.
    x, fault = refit(at, threshold, Support(idx, jnp.ones(idx.shape, bool)), start, STEPS)
    equations = at.normal_equations(x)
    A = equations.rows(jnp.arange(p, dtype=jnp.int32))
    A = (A + A.T) / 2
    mean = jnp.zeros(p, x.dtype) if equations.mean is None else equations.mean
    more = jnp.diag(model.columns.ridge()[:p] - at.columns.ridge()[:p])
    return Around(x[:p], x[p:], mean, A + more, A, equations.rhs, fault)


def _searched(grid: _grid.Grid, about: list[Around]) -> tuple[Support, Int[np.ndarray, "rows K"]]:
    """The supports of every row of weights and size, and how their search ended.

    Least squares on p rows, root(A) w - root(A)^-1 rhs, has each model; those of the others have no weight.
    """
    p, dtype = about[0].x.size, grid.objective.dtype
    X, y = [], []
    for one in about:
        values, vectors = np.linalg.eigh(one.A.astype(float))
        root = np.sqrt(np.where(values > p * np.finfo(dtype).eps * values[-1], values, np.inf))
        y.append(vectors.T @ one.rhs / root * np.sqrt(p))
        X.append(np.where(np.isfinite(root), root, 0)[:, None] * vectors.T * np.sqrt(p))
    own = np.repeat(np.eye(len(about), dtype=dtype), p, axis=1)
    quadratic = LinearModel(np.concatenate(X).astype(dtype), np.concatenate(y).astype(dtype))
    fields = {"objective": quadratic, "l2s": None, "weights": _grid.Weights(jnp.asarray(own), jnp.asarray(own))}
    fits = _grid.run(replace(grid, solver=BestSubset("fast"), refit=None, score=None, **fields))
    return fits.support, fits.result


def _restricted(one: Around, A: Float[np.ndarray, "p p"], support: Support) -> Float[np.ndarray, "K d"]:
    """Minimisers of a quadratic on supports, with their free entry."""
    w = np.zeros((len(support.idx), one.x.size), A.dtype)
    for row, idx, mask in zip(w, *support, strict=True):
        S = idx[mask]
        row[S] = np.linalg.lstsq(A[np.ix_(S, S)], one.rhs[S], rcond=None)[0]
    return np.hstack([w, (one.level - ((w - one.x) @ one.mean)[:, None])[:, : one.level.size]]).astype(A.dtype)


@program
def _kept(
    grid: _grid.Grid,
    model: LinearModel,
    scorer: LinearModel,
    supports: Support,
    x: Float[Array, "K d"],
    refits: Float[Array, "K d"],
    results: Int[Array, "K"],
) -> _grid.Fits:
    """The kept parts of the fits of one row of weights and one l2."""
    threshold: Any = grid.threshold.bind(model)

    def fit(each: tuple[Array, Support, Array, Array, Array]) -> _grid.Fits:
        k, support, x, scored, result = each
        support = threshold.with_free(support, model.n_coefficients)
        value = model.value(x)
        result = jnp.where(jnp.isfinite(value), result, RESULTS.nonfinite)
        result = model.judged(replace(threshold, k=k), x, support, result)
        return _grid.kept_of(grid, model, scorer, x, scored, support, threshold, value, result)

    return jax.lax.map(fit, (grid.ks, supports, x, refits, results), batch_size=TOGETHER)
