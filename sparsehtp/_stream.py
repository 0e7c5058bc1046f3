"""Fits to data that do not fit in memory: a stochastic sweep over shards, then exact steps on sums over shards."""

import hashlib
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._checkpoint import Checkpoint
from ._programs import program
from ._progress import Callback, reporting
from ._solve import _check_kind, solve
from ._threads import one_blas_thread
from ._tolerances import tolerance
from ._types import Support, replace, seeded
from .datasets.shards import Shards
from .losses import AbstractLoss, Squared
from .objectives import LinearModel
from .objectives.base import DENSE_HESSIAN_LIMIT
from .solvers import AbstractSolver, StochasticHT
from .thresholds import AbstractUnitThreshold

HALVINGS = 20
HASH_BYTES = 32
NEWTON_PASSES = 30


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
    """Minimise the mean loss over all rows of all shards, with two shards in memory at a time.

        min (1/n) sum_i l(x_i'w + b, y_i) + (l2/2) ||w||^2   subject to the threshold

    One sweep of a stochastic solver over the shards finds a start; then come steps of hard thresholding pursuit on the
    whole data: a pass for the gradient, a threshold, and passes for Newton steps on the support (one for the squared
    loss). Sums are kept in double precision. Columns are used as they are: scale them before.

    Args:
        shards: the files; all of one target in the loss's domain.
        threshold: for example `Sparsity(k)`.
        loss: with a second derivative. None: `Squared()`.
        l2: ridge strength >= 0, in units of the mean loss.
        fit_intercept: add an unpenalised intercept.
        solver: a stochastic solver for the sweep, one of its steps per shard. None: `StochasticHT(batch_size=64)`.
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

    Guarantee: where it says converged, x is the minimiser over its support to the table's `newton` tolerance (to the
    rounding of single precision for float32 rows), and a step of HTP with the step size 1/L, or what was left of it
    after halvings, keeps the support: a fixed point as in [GraHTP].

    Source: [GraHTP] Algorithm 1, with the start by [HSG].
    """
    _check_kind("shards", shards, Shards, "sht.datasets.Shards('data/*.npz')")
    _check_kind("threshold", threshold, AbstractUnitThreshold, "sht.Sparsity(k)")
    loss = Squared() if loss is None else loss
    if not loss.twice_differentiable:
        raise TypeError(f"loss: {type(loss).__name__} is not smooth, so its refits are no sums; use a smooth one.")
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
        data = _Passes(shards, loss, fit_intercept, dtype, problem, checkpoint, max_passes, report)
        first = data.model(*shards.read(0, dtype))
        bound: Any = threshold.bind(first)
        if bound.k_max + threshold.keep.shape[0] > DENSE_HESSIAN_LIMIT:
            raise ValueError(f"k: streamed refits are limited to {DENSE_HESSIAN_LIMIT} features; lower k.")
        ridge = np.append(np.full(shards.n_features, float(l2)), np.zeros(first.n_free))
        size = 1 / float(first.lipschitz() + l2)
        solver = StochasticHT(batch_size=min(64, max(shards.rows))) if solver is None else solver
        found = _fit(data, bound, threshold, ridge, size, solver, key, l2)
        data.compare_the_rest()
    return found._replace(seconds=time.monotonic() - began)


def _fit(data, bound, threshold, ridge, size, solver, key, l2):
    zero = np.zeros(ridge.size)
    start = data.sweep(zero, threshold, solver, key, l2)
    # A sweep that went astray is forgotten.
    (at_zero, at_start), grads = data.sums(np.stack([zero, start]), ridge)
    swept = bool(np.isfinite(at_start) and at_start < at_zero)
    x, value, grad = (start, at_start, grads[1]) if swept else (zero, at_zero, grads[0])
    old, values, converged, halvings = None, [value], False, 0
    while data.passes < data.max_passes and halvings < HALVINGS:
        z, support = jax.device_get(_threshold(bound, x - size * grad, size))
        chosen = np.sort(support.idx[support.mask])
        if old is not None and np.array_equal(chosen, old):
            converged = True
            break
        new, new_value = data.refit(x if old is None else z, support, ridge)
        if new_value > value + 1e-12 * abs(value):  # too long a step
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
        passes=data.passes,
        values=np.asarray(values),
        seconds=0.0,
    )


class _Passes:
    """Folds over the shards, each of which a checkpoint can take up again."""

    def __init__(self, shards, loss, fit_intercept, dtype, problem, checkpoint, max_passes, report):
        self.shards, self.loss, self.fit_intercept, self.dtype = shards, loss, fit_intercept, dtype
        self.store = None if checkpoint is None else Checkpoint(checkpoint, problem, len(shards), 1)
        self.max_passes, self.report = max_passes, report
        self.passes, self.p = 0, shards.n_features
        self.shift, self.base = (
            None,
            0.0,
        )  # of columns and targets: the first shard's means, where there is an intercept
        self.hashes = np.zeros((len(shards), HASH_BYTES), np.uint8)  # zeros: not known yet
        self.stamps = [None] * len(shards)  # of the files whose rows this process has compared

    def model(self, X, y):
        """The model of a shard, padded with rows of weight zero so that all shards share their programs."""
        missing = max(self.shards.rows) - len(y)
        self.loss.check_targets(np.asarray(y))
        if self.shift is None:
            self.shift = X.mean(0, dtype=float).astype(X.dtype) * self.fit_intercept
            self.base = y.dtype.type(y.mean(dtype=float) * (self.fit_intercept and self.loss.location))
        X, y = X - self.shift, y - self.base
        weights = np.append(np.ones(len(y)), np.zeros(missing))
        model = LinearModel(
            np.pad(X, ((0, missing), (0, 0))) if missing else X,
            np.append(y, np.full(missing, y[0])),
            self.loss,
            sample_weight=weights,
        )
        # Sums over shards need one intercept for all, where each shard's own means would shift its own.
        own = {"shift": jnp.asarray(self.shift), "base": jnp.asarray(self.base, model.dtype)}
        return replace(
            model, fit_intercept=self.fit_intercept, inverse_scale=None, **(own if self.fit_intercept else {})
        )

    def fold(self, start, step):
        """step(..., model, number) over all shards; one pass."""
        number, n = self.passes, len(self.shards)
        self.passes += 1
        stored = None if self.store is None else self.store.load(number, jax.tree.structure((0, start, self.hashes)))
        first, total, hashes = (0, start, self.hashes) if stored is None else stored
        for i in np.flatnonzero(hashes.any(1)):
            self._agree(i, hashes[i])
        look = None if self.store is None else self.look
        for i, X, y in self.shards.each(int(first), self.dtype, look):
            total = step(total, self.model(X, y), i)
            if self.store is not None:
                self.store.store(number, (i + 1, total, self.hashes.copy()))
            self.report(number * n + i + 1, None)
        return total

    def look(self, i, X, y):
        """Hash the rows of a shard where this process has not, and compare with the hash in the checkpoint."""
        file = self.shards.paths[i].stat()
        stamp = file.st_mtime_ns, file.st_size
        if self.stamps[i] != stamp:
            digest = hashlib.sha256(f"{X.dtype}{X.shape}".encode())
            digest.update(np.ascontiguousarray(X).data)
            digest.update(y.tobytes())
            self._agree(i, np.frombuffer(digest.digest(), np.uint8))
            self.stamps[i] = stamp

    def _agree(self, i, digest):
        if self.hashes[i].any() and not np.array_equal(self.hashes[i], digest):
            raise ValueError(
                f"checkpoint: {self.shards.paths[i]} holds other rows than when this run began; put the old file back, "
                "or start anew in an empty folder."
            )
        self.hashes[i] = digest

    def compare_the_rest(self):
        """Compare the shards that this process has not read: a result is that of the files as they are."""
        if self.store is not None:
            for i in [i for i, stamp in enumerate(self.stamps) if stamp is None]:
                self.look(i, *self.shards.read(i, self.dtype))

    def sweep(self, x, threshold, solver, key, l2):
        """One stochastic step per shard."""

        def step(x, model, i):
            model = model.reweighted(l2=l2)
            start = LinearStart(*model.to_external(jnp.asarray(x, self.dtype)))
            new = _stochastic(model, threshold, solver, start, jax.random.fold_in(key, i))
            return np.asarray(new, float)

        return self.fold(x, step)

    def sums(self, points, ridge):
        """F and its gradient at every point (a row)."""

        def step(total, model, i):
            parts = jax.device_get(_sums(model, jnp.asarray(points, self.dtype)))
            return tuple(old + self.shards.rows[i] * part.astype(float) for old, part in zip(total, parts, strict=True))

        values, grads = self.fold((np.zeros(len(points)), np.zeros(points.shape)), step)
        n = self.shards.n_samples
        return values / n + 0.5 * points**2 @ ridge, grads / n + ridge * points

    def refit(self, x, support, ridge):
        """The minimiser over a support, and F there."""
        n, mask = self.shards.n_samples, np.asarray(support.mask)
        penalty = np.where(mask, ridge[support.idx], 0)
        z = np.where(mask, x[support.idx], 0)
        quadratic = isinstance(self.loss, Squared)
        tol, best, decrement = tolerance("newton", np.float64), None, 0.0
        for _ in range(NEWTON_PASSES):

            def step(total, model, i, z=z):
                parts = jax.device_get(_newton(model, support, jnp.asarray(z, self.dtype)))
                return tuple(
                    old + self.shards.rows[i] * np.asarray(part, float) for old, part in zip(total, parts, strict=True)
                )

            zeros = (np.zeros(()), np.zeros(z.size), np.zeros((z.size, z.size)))
            value, grad, hessian = (np.asarray(part) / n for part in self.fold(zeros, step))
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
            if self.passes >= self.max_passes:
                break
        whole = np.zeros(x.size)
        whole[support.idx[mask]] = z[mask]
        return whole, value - 0.5 * decrement


class LinearStart(NamedTuple):
    """Coefficients and intercept to start from."""

    x: Array
    intercept: Array


@program
def _threshold(bound, z, size):
    return bound(z, size)


@program
def _sums(model, points):
    return jax.vmap(model.value_and_grad)(points)


@program
def _newton(model, support, z):
    restricted = model.restrict(Support(*support))
    return restricted.value(z), restricted.grad(z), restricted.hess(z)


def _stochastic(model, threshold, solver, start, key):
    solution = solve(model, threshold, solver, x0=start, max_steps=1, key=key, record=None, throw=False)
    return model.to_internal(solution.x, solution.intercept)
