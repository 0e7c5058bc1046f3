"""Fits over a grid where rows are many: searched in one quadratic model a fold, around its fit with all features.

The model of a fold and an l2 is exact to second order at that fit, from where dropping features that hardly matter is a
short way when rows are many. It costs a few passes over the rows, and whatever k is, a search takes p x p numbers. What
it finds is fitted to the rows, all sizes in the same passes: the model's H takes the place of a Hessian of their own,
scaled to the mean curvature of their losses, which is what changes most from one size to another.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._programs import program
from .._progress import Callback, reporting
from .._threads import one_blas_thread
from .._types import Support, host, replace
from ..columns import scatter
from ..designs import DenseDesign
from ..iteration.results import RESULTS
from ..linalg import MaskedFactor, dot, masked_factor, one_by_one
from ..objectives import LinearModel
from ..solvers import BestSubset
from . import grid as _grid

ROWS_PER_FEATURE = 50
LEAST = 2**18  # numbers of the data, below which exact fits take no time worth saving
WIDEST = 512  # features
ROWS = 2048  # of a pass at once, so that the predictions of all sizes stay in the cache
STEPS = 60  # of a fit at most; few are needed near the model's centre
ENOUGH = 1e-10  # what a further step would gain, as a part of the mean curvature: predictions that move by 1e-5
TURNS, TURN = 20, 15  # Hessians of a fit with all features, and steps with each
FLAT = 1e-2  # curvature of a saturated loss at least, relative to its slope
TOGETHER = 10  # sizes at most that are scored in one product
FARTHEST = 10.0  # mean curvature of a fit at most, in that of the model: labels that all features nearly separate


class Around(NamedTuple):
    """The quadratic model 1/2 w'(H + ridge) w - rhs'w of F around a fit x of all features; H is of the mean loss."""

    x: Float[Array, "d"]
    H: Float[Array, "d d"]
    curvature: Float[Array, ""]  # mean second derivative of the loss of a row
    rhs: Float[Array, "d"]
    solved: Bool[Array, ""]


class Pull(NamedTuple):
    """The gradient of F at every lane's point, and the mean second derivative of the loss of a row."""

    grad: Float[Array, "K d"]
    curvature: Float[Array, "K"]


class Fitting(NamedTuple):
    """Of every lane the best point so far, half its squared slope in the metric of the model, the mean curvature there,
    and the point that is tried."""

    x: Float[Array, "K d"]
    slope: Float[Array, "K"]
    curvature: Float[Array, "K"]
    trial: Float[Array, "K d"]
    steps: Int[Array, ""]


def suits(grid: _grid.Grid) -> bool:
    """Whether rows are so many, and the problem one that a quadratic model can stand for."""
    objective = grid.objective
    if not isinstance(objective, LinearModel) or objective.sparse or not grid.threshold.plain:
        return False
    loss, (n, p) = objective.loss, objective.columns.design.shape
    smooth = loss.twice_differentiable and not (loss.kinked or loss.quadratic)
    alone = len(objective.y.devices()) == 1 and all(np.ndim(part) == 0 for part in jax.tree.leaves(loss))  # not by row
    return smooth and alone and p <= WIDEST and n >= ROWS_PER_FEATURE * p and n * p >= LEAST


def tall_fits(grid: _grid.Grid, progress: Callback | bool | None = None) -> _grid.Fits | None:
    """As `grid.run` of a grid with weights, the last row those of all data, which is not scored; None where a fit with
    all features is not found, or its model leads to none of a smaller size."""
    objective, levels = grid.objective, [None] if grid.l2s is None else list(host(grid.l2s))
    assert isinstance(objective, LinearModel) and grid.weights is not None  # as `suits` says
    weights, found = jax.tree.map(host, grid.weights), []
    rows = len(weights.fit)
    with reporting(progress) as report, one_blas_thread():
        models = [objective.reweighted(part) for part in weights.fit]
        scorers = [model.scorer(part) for model, part in zip(models, weights.score, strict=True)]
        around = [_before(model) for model in models]
        for l2 in levels:
            models = [model.reweighted(l2=l2) for model in models]
            # Of folds only what is scored counts, of all data only what is kept.
            scored = models if grid.refit is None else [model.weakened(grid.refit) for model in models]
            around = [_around(model, before) for model, before in zip(scored, around, strict=True)]
            about = [jax.tree.map(host, one) for one in around]
            if not all(one.solved and np.isfinite(one.H).all() for one in about):
                return None
            supports, results = _searched(grid, about, [host(model.columns.ridge()) for model in models])
            for row, one in enumerate(around):
                fitted = models[row] if row == rows - 1 else scored[row]
                support = jax.tree.map(lambda a, row=row: a[row], supports)
                fits = jax.tree.map(host, _kept(grid, fitted, scorers[row], one, support, results[row]))
                if np.any(fits.result == RESULTS.max_steps):
                    return None
                found.append(fits)
                report(len(found) * grid.ks.size, rows * len(levels) * grid.ks.size)
    whole = jax.tree.map(lambda *parts: np.stack(parts).reshape(len(levels), rows, *parts[0].shape), *found)
    return jax.tree.map(lambda a: np.moveaxis(a, 1, 0).reshape(rows, -1, *a.shape[3:]), whole)


def _cut(model: LinearModel, first: Int[Array, ""]) -> LinearModel:
    """Some rows of a model from the first on; those before it have no weight."""
    columns, design = model.columns, model.columns.design
    assert isinstance(design, DenseDesign)  # as `suits` says
    size = min(ROWS, columns.n)
    at = jnp.minimum(first, columns.n - size)

    def some(a: Array, axis: int = 0) -> Array:
        return lax.dynamic_slice_in_dim(a, at, size, axis)

    weights = jnp.where(at + jnp.arange(size) >= first, some(columns.sample_weight), 0)
    design = replace(design, array=some(design.array, int(design.by_feature)))
    offset = None if columns.offset is None else some(columns.offset)
    return replace(
        model, columns=replace(columns, design=design, sample_weight=weights, offset=offset), y=some(model.y)
    )


def _summed(model: LinearModel, of_rows: Callable[[LinearModel], PyTree]) -> PyTree:
    """The sum of what some rows after the other have, so that no table has a row for each of all."""
    starts = jnp.arange(0, model.columns.n, min(ROWS, model.columns.n))
    model = replace(model, columns=replace(model.columns, sample_weight=model.columns.weights))  # shares of all
    zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(of_rows, _cut(model, starts[0])))

    def add(total: PyTree, first: Int[Array, ""]) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, total, of_rows(_cut(model, first))), None

    return lax.scan(add, zero, starts)[0]


def _curvature(model: LinearModel, eta: Float[Array, "n"]) -> Float[Array, "n"]:
    """Weighted second derivatives, nowhere so small that a step by the slope of a row would be far too long."""
    loss, y = model.loss, model.y
    curvature = jnp.maximum(loss.second_derivative(eta, y), FLAT * jnp.abs(loss.derivative(eta, y)))
    return model.columns.sample_weight * curvature


def _pull(model: LinearModel, x: Float[Array, "K d"]) -> Pull:
    def lane(rows: LinearModel, x: Float[Array, "d"]) -> Pull:
        columns = rows.columns
        eta = columns.predict(x)
        slope = columns.sample_weight * rows.loss.derivative(eta, rows.y)
        return Pull(columns.transpose_product(slope), jnp.sum(_curvature(rows, eta)))

    pull: Pull = _summed(model, lambda rows: jax.vmap(lambda x: lane(rows, x))(x))
    return pull._replace(grad=pull.grad + jax.vmap(model.columns.ridge_product)(x))


def _hessian(model: LinearModel, x: Float[Array, "d"]) -> tuple[Float[Array, "d d"], Float[Array, ""]]:
    """H of the mean loss, and the mean second derivative."""

    def gram(rows: LinearModel) -> tuple[Array, Array]:
        columns = rows.columns
        weights = _curvature(rows, columns.predict(x))
        A = columns.dense_rows(jnp.arange(columns.n))
        A = jnp.pad(A, ((0, 0), (0, columns.n_free)), constant_values=1)
        return dot((A * weights[:, None]).T, A), jnp.sum(weights)

    H, curvature = _summed(model, gram)
    return (H + H.T) / 2, curvature


@program
def _before(model: LinearModel) -> Around:
    """The model around where a fit starts."""
    x = model.origin()
    return Around(x, *_hessian(model, x), rhs=x, solved=jnp.asarray(False))


@program
def _around(model: LinearModel, before: Around) -> Around:
    """The model around the fit, by steps with the H of another one, renewed where many are taken."""
    d, ridge = before.x.size, jnp.diag(model.columns.ridge())
    every = Support(jnp.arange(d, dtype=jnp.int32)[None], jnp.ones((1, d), bool))

    def turn(c: tuple[Around, Array]) -> tuple[Around, Array]:
        fit = _fitted(model, c[0], every, c[0].x[None], TURN)
        x = fit.x[0]
        H, curvature = _hessian(model, x)
        return Around(x, H, curvature, dot(H + ridge, x), _settled(c[0], fit)[0]), c[1] + 1

    begin = before._replace(solved=jnp.asarray(False)), jnp.int32(0)
    one, _ = lax.while_loop(lambda c: ~c[0].solved & (c[1] < TURNS), turn, begin)
    return one._replace(solved=one.solved & ~masked_factor(one.H + ridge, every.mask[0]).singular)


def _searched(
    grid: _grid.Grid, about: list[Around], ridges: list[Float[np.ndarray, "d"]]
) -> tuple[Support, Int[np.ndarray, "rows K"]]:
    """The supports of every row of weights and size, and how their search ended.

    Least squares on p rows, root(A) w - root(A)^-1 rhs, has each model, the intercept minimised out; those of the
    others have no weight.
    """
    dtype, p = grid.objective.dtype, grid.objective.n_coefficients
    X, y = [], []
    for one, ridge in zip(about, ridges, strict=True):
        A, rhs = one.H.astype(float) + np.diag(ridge), one.rhs.astype(float)
        if grid.objective.n_free:
            A, rhs = A[:p, :p] - np.outer(A[:p, p], A[p, :p]) / A[p, p], rhs[:p] - A[:p, p] * rhs[p] / A[p, p]
        size = np.sqrt(np.where(np.diag(A) > 0, np.diag(A), 1))  # columns may be of any
        values, vectors = np.linalg.eigh(A / size / size[:, None])
        root = np.sqrt(np.where(values > p * np.finfo(dtype).eps * values[-1], values, np.inf))
        y.append(vectors.T @ (rhs / size) / root * np.sqrt(p))
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
) -> _grid.Fits:
    """The kept parts of the fits of one row of weights and one l2, that count as the refits too."""
    threshold: Any = grid.threshold.bind(model)
    supports = jax.vmap(lambda support: threshold.with_free(support, model.n_coefficients))(supports)
    ridge = model.columns.ridge()

    def first(support: Support) -> Float[Array, "d"]:
        S, mask = support
        factor = masked_factor(one.H[S][:, S] + jnp.diag(ridge[S]), mask)
        return scatter(factor.solve(jnp.where(mask, one.rhs[S], 0)), support, one.x.size)

    found = _fitted(model, one, supports, jax.vmap(first)(supports), STEPS)
    known = _settled(one, found) & (found.curvature <= FARTHEST * one.curvature)
    ended = jnp.where(known, results, RESULTS.max_steps)

    def kept(each: tuple[Support, Array, Array]) -> _grid.Fits:
        support, x, result = each
        return _grid.kept_of(grid, model, scorer, threshold, x, support, model.value(x), result)

    K = grid.ks.shape[0]
    # A CPU sums the losses of several sizes row after row, which single precision does not stand.
    most = 1 if one_by_one() and model.dtype == jnp.float32 else TOGETHER
    together = max(size for size in range(1, most + 1) if K % size == 0)  # a rest would be compiled apart
    return lax.map(kept, (supports, found.x, ended), batch_size=together)


def _settled(one: Around, found: Fitting) -> Bool[Array, "K"]:
    """Not where numbers are too small to tell, as far out where labels are separated."""
    enough = max(ENOUGH, float(jnp.finfo(found.x.dtype).eps) / 8)
    most = enough * found.curvature * (found.curvature / one.curvature)
    return (found.slope <= most) & (most > 0)


def _fitted(model: LinearModel, one: Around, entries: Support, starts: Float[Array, "K d"], limit: int) -> Fitting:
    """The minimisers on the entries of every lane, by steps in the model's metric over the ratio of mean curvatures.

    A step that does not shorten the slope in this metric is halved, for which no value of F is needed: some do.
    """
    ridge, d = model.columns.ridge(), one.x.size

    def factored(support: Support) -> MaskedFactor:
        S, mask = support
        return masked_factor(one.H[S][:, S] + jnp.diag(ridge[S]), mask)

    def downhill(factor: MaskedFactor, support: Support, grad: Float[Array, "d"]) -> tuple[Array, Array]:
        slope = jnp.where(support.mask, grad[support.idx], 0)
        step = factor.solve(slope)
        return scatter(-step, support, d), dot(slope, step) / 2

    factors = jax.vmap(factored)(entries)

    def body(c: Fitting) -> Fitting:
        pull, done = _pull(model, c.trial), _settled(one, c)
        ahead, slope = jax.vmap(downhill)(factors, entries, pull.grad)
        nearer = (slope < c.slope) & ~done
        wide = nearer[:, None]
        best = jnp.where(wide, c.trial, c.x)
        step = ahead * (one.curvature / pull.curvature)[:, None]
        return Fitting(
            x=best,
            slope=jnp.where(nearer, slope, c.slope),
            curvature=jnp.where(nearer, pull.curvature, c.curvature),
            trial=jnp.where(wide, best + step, jnp.where(done[:, None], best, (best + c.trial) / 2)),
            steps=c.steps + 1,
        )

    origin = jnp.broadcast_to(model.origin(), starts.shape)  # halved steps lead there where a start is out of range
    far = jnp.full(starts.shape[0], jnp.inf, starts.dtype)
    begin = Fitting(origin, far, jnp.ones_like(far), starts, jnp.int32(0))
    return lax.while_loop(lambda c: (c.steps < limit) & ~jnp.all(_settled(one, c)), body, begin)
