"""Fits to data that do not fit in memory: a stochastic sweep over shards, then exact steps on sums over shards."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._programs import program
from ._progress import Callback, reporting
from ._solve import solve
from ._threads import one_blas_thread
from ._tolerances import tolerance
from ._types import Scalar, Support, check_kind, replace, seeded
from .columns import Columns, bounded
from .datasets.data import nonfinite
from .datasets.passes import Passes, joined
from .datasets.shards import ShardRows, Shards
from .linalg import dot
from .losses import AbstractLoss, Squared
from .objectives import LinearModel
from .objectives.base import DENSE_HESSIAN_LIMIT
from .objectives.likelihood import MeanLoss, Part
from .objectives.model import Restricted
from .solvers import AbstractSolver, StochasticHT
from .steps import ConstantStep, SampleStep
from .thresholds import AbstractUnitThreshold

ALIGNED_ROWS = 16  # of a block: it then begins at a multiple of 64 bytes, so that XLA uses it in place
BATCH_SIZE = 64
BLOCK_BYTES = 2**24
HALVINGS = 20
NEWTON_PASSES = 30
SAMPLE_ROWS = 4096  # of a shard, for a step of the sweep: it costs far more a row than a pass


class Streamed(NamedTuple):
    """The result of a streamed fit.

    Attributes:
        x: (p,) coefficients.
        intercept: intercept, 0.0 if the model has none.
        support: indices of the chosen features.
        value: F(x) over all rows.
        converged: True if the support repeated itself after an exact refit (a fixed point of HTP).
        passes: how often all data were read.
        values: F after every step.
        seconds: time of this run, without that of the runs that it goes on from.
    """

    x: Float[np.ndarray, "p"]
    intercept: float
    support: Int[np.ndarray, "k"]
    value: float
    converged: bool
    passes: int
    values: Float[np.ndarray, "steps"]
    seconds: float


def solve_stream(
    shards: Shards,
    threshold: AbstractUnitThreshold,
    loss: AbstractLoss | None = None,
    *,
    l2: float = 0.0,
    fit_intercept: bool = True,
    solver: AbstractSolver | None = None,
    max_passes: int = 100,
    dtype: Any = np.float32,
    key: jax.Array | None = None,
    checkpoint: str | Path | None = None,
    progress: Callback | bool | None = None,
) -> Streamed:
    """Minimise the mean loss over all rows of all shards, with a few shards in memory at a time.

        min (1/S) sum_i s_i l(x_i'w + b, y_i) + (l2/2) ||w||^2   subject to the threshold,    S = sum_i s_i

    One sweep of a stochastic solver over the shards finds a start; then come steps of hard thresholding pursuit on the
    whole data: a pass for the gradient, a threshold, and passes for Newton steps on the support (one for the squared
    loss). Sums are kept in double precision. Columns are used as they are: scale them before. The next shard is read,
    and hashed for a checkpoint, in threads while one is used.

    In a job of several JAX processes (`jax.distributed`) all call this with the same arguments but for `shards`: each
    with the files that it is to read, for example `Shards(sorted(paths)[jax.process_index()::jax.process_count()])`.
    Each sweeps its own shards, and the start is their mean; after that one all-reduce a pass joins the sums, and all
    return the same. With a checkpoint every process keeps a folder of its own in it, and a job that lost a process is
    started again whole.

    Args:
        shards: the files; all of one target in the loss's domain.
        threshold: for example `Sparsity(k)`.
        loss: with a second derivative. None: `Squared()`.
        l2: ridge strength >= 0, in units of the mean loss.
        fit_intercept: add an unpenalised intercept.
        solver: a stochastic solver for the sweep, one of its steps per shard, on a sample of at most max(4096, p) of
            its rows. None: `StochasticHT(batch_size=64)` with the step of the first shard.
        max_passes: limit of passes over the data.
        dtype: of the rows in memory.
        key: randomness of the sweep.
        checkpoint: folder in which a killed run goes on from the last finished shard, to the same bits. It holds a hash
            of the rows of every shard, taken when they were first read; a run that goes on reads every shard at least
            once and compares.
        progress: a function of (shards read, None), or True for a bar on stderr.

    Returns:
        `Streamed`.

    Raises:
        TypeError: for a loss without a second derivative.
        ValueError: for supports too large to refit, bad targets, a checkpoint of another problem, or a shard whose rows
            are not those that the checkpoint was made from.
        RuntimeError: if another process of the job failed.

    Guarantee: where it says converged, x is the minimiser over its support up to a Newton decrement of 1e-14 |F| (to
    the rounding of single precision for float32 rows), and a step of HTP with the step size 1/L, L that of a sample of
    the first shard, or what was left of it after halvings, keeps the support: a fixed point as in [GraHTP].

    Source: [GraHTP] Algorithm 1, with the start by [HSG].
    """
    check_kind("shards", shards, Shards, "sht.datasets.Shards('data/*.npz')")
    check_kind("threshold", threshold, AbstractUnitThreshold, "sht.Sparsity(k)")
    loss = Squared() if loss is None else loss
    if not (shards.target is None or isinstance(shards.target, str)):
        raise ValueError(f"shards: need one target, got {shards.target}; name one, or use sht.SufficientStatistics.")
    if not loss.twice_differentiable:
        raise TypeError(f"loss: {type(loss).__name__} is not smooth, so its refits are no sums; use a smooth one.")
    if not 0 <= l2 < np.inf:
        raise ValueError(f"l2: must be a finite number >= 0, got {l2}.")
    key = seeded(0) if key is None else key
    began = time.monotonic()
    problem = (
        str([path.name for path in shards.paths]),
        np.asarray(shards.rows),
        l2,
        fit_intercept,
        loss,
        threshold,
        solver,
        key,
        str(np.dtype(dtype)),
    )
    with reporting(progress, "shards", "shards") as report, one_blas_thread():
        data = _Stream(Passes(shards, dtype, problem, checkpoint, report), loss, fit_intercept, l2, max_passes)
        bound, size, sample_step = data.begin(threshold)
        if bound.room > DENSE_HESSIAN_LIMIT:
            raise ValueError(f"k: streamed refits are limited to {DENSE_HESSIAN_LIMIT} features; lower k.")
        solver = StochasticHT(sample_step, data.batch_size) if solver is None else solver
        start = data.sweep(threshold, solver, key)
        if jax.process_count() > 1:  # a mean of several
            start = np.asarray(_threshold(bound, start, size)[0], float)
        found = _fit(data, bound, size, start)
        data.passes.compare_the_rest()
    return found._replace(seconds=time.monotonic() - began)


def _fit(data: "_Stream", bound: AbstractUnitThreshold, size: float, start: Float[np.ndarray, "d"]) -> Streamed:
    ridge = np.append(np.full(data.p, float(data.l2)), np.zeros(int(data.fit_intercept)))
    zero = np.zeros(ridge.size)
    # A sweep that went astray is forgotten.
    (at_zero, at_start), grads = data.sums(np.stack([zero, start]), ridge)
    swept = bool(np.isfinite(at_start) and at_start < at_zero)
    x, value, grad = (start, at_start, grads[1]) if swept else (zero, at_zero, grads[0])
    old, values, converged, halvings = None, [value], False, 0
    while data.passes.done < data.max_passes and halvings < HALVINGS:
        z, support = jax.device_get(_threshold(bound, x - size * grad, size))
        chosen = np.sort(support.idx[support.mask])
        if old is not None and np.array_equal(chosen, old):
            converged = True
            break
        new, new_value = data.refit(x if old is None else z, support, ridge)
        if new_value > value + data.rounding * abs(value):  # too long a step
            size, halvings = size / 2, halvings + 1
            continue
        x, old = new, chosen
        (value,), (grad,) = data.sums(x[None], ridge)
        values.append(value)
    w, free = x[: data.p], x[data.p :]
    return Streamed(
        x=w,
        intercept=float(free[0] - data.shift @ w + data.base) if free.size else 0.0,
        support=np.flatnonzero(w),
        value=value,
        converged=converged,
        passes=data.passes.done,
        values=np.asarray(values),
        seconds=0.0,
    )


class _Stream:
    """The sums that a fit needs, each from passes over the shards."""

    def __init__(self, passes: Passes, loss: AbstractLoss, fit_intercept: bool, l2: float, max_passes: int) -> None:
        self.passes, self.shards, self.dtype = passes, passes.shards, np.dtype(passes.dtype)
        self.loss = jax.tree.map(lambda leaf: np.asarray(leaf, self.dtype), loss)
        self.rounding = max(1e-12, 8 * float(np.finfo(self.dtype).eps))  # of F beside it: its parts have the dtype
        self.fit_intercept, self.l2, self.max_passes = fit_intercept, l2, max_passes
        self.p, longest = self.shards.n_features, max(self.shards.rows)
        self.sample_size = min(longest, max(SAMPLE_ROWS, self.p))
        self.batch_size = min(BATCH_SIZE, longest)
        self.block = -(-longest // -(-longest * self.p * self.dtype.itemsize // BLOCK_BYTES))
        self.block += -self.block % ALIGNED_ROWS
        self.shift, self.base = np.zeros(self.p, self.dtype), self.dtype.type(0)  # of columns and targets

    def begin(self, threshold: AbstractUnitThreshold) -> tuple[AbstractUnitThreshold, float, ConstantStep | None]:
        """The threshold for this problem, the size of a step, and the step of a sweep; the first two for all processes.

        Columns and targets are centred by the means of the first shards.
        """
        processes, widths = jax.process_count(), np.zeros(jax.process_count())
        widths[jax.process_index()] = self.p
        widths = joined(lambda: widths, widths)
        if np.any(widths != self.p):
            raise ValueError(f"shards: the processes have {widths.astype(int).tolist()} features; correct the files.")

        first = self.sample(0, self.shards.read(0, self.dtype), ())
        shift = first.X.mean(0, dtype=float) * self.fit_intercept
        base = first.y.mean() * (self.fit_intercept and self.loss.location)
        shift, base = joined(lambda: (shift, base), (shift, base))
        self.shift, self.base = (shift / processes).astype(self.dtype), self.dtype.type(base / processes)
        model = self.model(first)
        curvature, sample_size = jax.device_get(_curvature(model, self.batch_size))
        curvature = joined(lambda: np.asarray(curvature, float), np.zeros(())) / processes
        # Without a finite curvature the solver says what to pass.
        sample_step = ConstantStep(sample_size) if sample_size > 0 else None
        return threshold.bind(model), 1 / float(curvature + self.l2), sample_step

    def sample(self, i: int, rows: ShardRows, seed: Sequence[int]) -> ShardRows:
        """At most `sample_size` rows of a shard, all with a weight."""
        drawn = np.flatnonzero(rows.weights)
        if drawn.size > self.sample_size:
            drawn = np.random.default_rng([*seed, i]).choice(drawn, self.sample_size, replace=False, shuffle=False)
        rows = ShardRows(*(array[drawn] for array in rows))
        self.check_finite(i, rows.X)
        self.loss.check_targets(rows.y)
        return rows

    def check_finite(self, i: int, X: Float[np.ndarray, "n p"]) -> None:
        """ValueError, which names the first column with such an entry, unless all are finite."""
        bad = np.flatnonzero(~np.isfinite(X).all(axis=0))
        if bad.size:
            raise nonfinite(self.shards.paths[i], "column", self.shards.feature_names()[bad[0]])

    def model(self, sample: ShardRows) -> LinearModel:
        """The model of a sample of a shard, padded with rows of weight zero so that all shards share their programs."""
        X, y, weights = sample
        padding = [(0, self.sample_size - len(y))]
        model = LinearModel(
            np.pad(X - self.shift, [*padding, (0, 0)]),
            np.pad(y - self.base, padding, mode="edge"),
            self.loss,
            sample_weight=np.pad(weights, padding),
        )
        # Sums over shards need one intercept for all, where each shard's own means would shift its own.
        own, free = model.columns, self.fit_intercept
        scale, shift = jnp.asarray(np.ones(self.p, self.dtype)), jnp.asarray(self.shift)
        columns = Columns(own.design, own.sample_weight, own.l2, scale, shift, centred=free, n_free=int(free))
        return replace(model, columns=columns, target_mean=jnp.asarray(self.base))

    def sweep(self, threshold: AbstractUnitThreshold, solver: AbstractSolver, key: Array) -> Float[np.ndarray, "d"]:
        """One stochastic step per shard, on a sample of its rows; the mean over processes, each with its own shards."""
        seed = np.asarray(jax.random.key_data(key)).ravel().tolist()

        def step(x: Float[np.ndarray, "d"], rows: ShardRows, i: int) -> Float[np.ndarray, "d"]:
            model = self.model(self.sample(i, rows, seed)).reweighted(l2=self.l2)
            start = LinearStart(*model.to_external(jnp.asarray(x, self.dtype)))
            own = jax.random.fold_in(key, i)
            solution = solve(model, threshold, solver, x0=start, max_steps=1, key=own, record=None, throw=False)
            return np.asarray(model.to_internal(solution.x, solution.intercept), float)

        return self.passes.fold(np.zeros(self.p + int(self.fit_intercept)), step) / jax.process_count()

    def total(self, zeros: tuple[np.ndarray, ...], part: Callable[..., Any], *at: Any) -> tuple[np.ndarray, ...]:
        """The sums part(block, loss, *at) over all rows, block by block, in double precision."""
        shift = self.shift if self.fit_intercept else None

        def step(totals: tuple[np.ndarray, ...], rows: ShardRows, i: int) -> tuple[np.ndarray, ...]:
            self.loss.check_targets(rows.y)
            rows = rows._replace(y=(rows.y - self.base).astype(self.dtype))
            for low in range(0, len(rows.y), self.block):
                X, y, weights = (array[low : low + self.block] for array in rows)
                missing = self.block - len(y)
                if missing:  # rows of weight zero
                    X, weights = np.pad(X, [(0, missing), (0, 0)]), np.pad(weights, (0, missing))
                    y = np.pad(y, (0, missing), mode="edge")
                sums = jax.device_get(part((X, y, weights, shift), self.loss, *at))
                if not all(np.isfinite(each).all() for each in sums):
                    self.check_finite(i, X)
                totals = tuple(old + np.asarray(new, float) for old, new in zip(totals, sums, strict=True))
            return totals

        return self.passes.fold(zeros, step)

    def sums(
        self, points: Float[np.ndarray, "m d"], ridge: Float[np.ndarray, "d"]
    ) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m d"]]:
        """F and its gradient at every point (a row)."""
        zeros = (np.zeros(()), np.zeros(len(points)), np.zeros(points.shape))
        weight, values, grads = self.total(zeros, _sums, points.astype(self.dtype))
        return values / weight + 0.5 * points**2 @ ridge, grads / weight + ridge * points

    def refit(
        self, x: Float[np.ndarray, "d"], support: Support, ridge: Float[np.ndarray, "d"]
    ) -> tuple[Float[np.ndarray, "d"], float]:
        """The minimiser over a support, and F there."""
        mask = np.asarray(support.mask)
        penalty = np.where(mask, ridge[support.idx], 0)
        z = np.where(mask, x[support.idx], 0)
        quadratic = self.loss.quadratic
        tol, best, decrement = tolerance("newton", np.float64), None, 0.0
        for _ in range(NEWTON_PASSES):
            zeros = (np.zeros(()), np.zeros(()), np.zeros(z.size), np.zeros((z.size, z.size)))
            weight, *parts = self.total(zeros, _newton, support, z.astype(self.dtype))
            value, grad, hessian = (part / weight for part in parts)
            value = float(value) + 0.5 * float(penalty @ z**2)
            if best is not None and value > best[1] + abs(best[1]) * 1e-6:  # too long a Newton step
                z = (z + best[0]) / 2
                continue
            grad, hessian = np.where(mask, grad + penalty * z, 0), hessian + np.diag(penalty)
            hessian = np.where(mask[:, None] & mask, hessian, 0) + np.diag(~mask)
            direction = -np.linalg.lstsq(hessian, grad, rcond=None)[0]
            decrement = float(-grad @ direction)
            best = z, value
            z = z + direction
            # Sums of single-precision parts do not resolve less than their rounding.
            floor = max(tol, float(np.finfo(self.dtype).eps)) * max(abs(value), 1e-300)
            if quadratic or decrement <= floor:
                break
            if self.passes.done >= self.max_passes:
                break
        whole = np.zeros(x.size)
        whole[support.idx[mask]] = z[mask]
        return whole, value - 0.5 * decrement


class LinearStart(NamedTuple):
    """Coefficients and intercept to start from."""

    x: Array
    intercept: Array


@program
def _threshold(bound: AbstractUnitThreshold, z: Float[Array, "d"], size: Scalar) -> tuple[Array, Support]:
    return bound(z, size)


@program(static_argnames="batch_size")
def _curvature(model: LinearModel, batch_size: int) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The curvature of a model, and the size of a stochastic step."""
    return model.lipschitz(), SampleStep(0.5, batch_size).init(model)


@program
def _sums(
    block: Any, loss: AbstractLoss, points: Float[Array, "m d"]
) -> tuple[Float[Array, ""], Float[Array, "m"], Float[Array, "m d"]]:
    """The weight of a block of rows, and of every point the sums of the loss and of its gradient."""
    X, y, weights, shift = block
    X = X if shift is None else X - shift
    p = X.shape[1]

    def at(x: Float[Array, "d"]) -> tuple[Float[Array, ""], Float[Array, "d"]]:
        eta = bounded(dot(X, x[:p]) + jnp.sum(x[p:]), weights > 0)
        slopes = weights * loss.derivative(eta, y)
        free = jnp.full(x[p:].shape, jnp.sum(slopes))
        return dot(weights, loss.value(eta, y)), jnp.append(dot(slopes, X), free)

    return jnp.sum(weights), *jax.vmap(at)(points)


@program
def _newton(
    block: Any, loss: AbstractLoss, support: Support, z: Float[Array, "m"]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, "m"], Float[Array, "m m"]]:
    """The weight of a block of rows, and the sums of the loss, its gradient and Hessian over a support."""
    X, y, weights, shift = block
    p = X.shape[1]
    j = jnp.minimum(support.idx, p - 1)
    A = X[:, j] if shift is None else X[:, j] - shift[j]
    A = jnp.where(support.mask, jnp.where(support.idx == p, 1, A), 0)
    part = Part(A, None, weights > 0, jnp.zeros(z.shape, z.dtype), support.mask, None)
    rows = Restricted(part, MeanLoss(loss, y, weights))
    return jnp.sum(weights), rows.value(z), rows.grad(z), rows.hess(z)
