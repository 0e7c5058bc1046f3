"""Fits over a grid of sparsity and ridge."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Executor
from pathlib import Path as Folder
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import sparse

from .._meshes import check_axes
from .._progress import Callback
from .._types import ArrayLike, Support, TableLike, check_finite, host, is_concrete
from ..iteration.results import FIRED, Solution
from ..objectives import AbstractObjective
from ..solvers import AbstractSolver
from ..thresholds import AbstractThreshold
from . import grid as _grid
from .penalised_path import over_l0, penalised_path, spreads
from .traced_path import traced_dense, traced_fits


@dataclasses.dataclass(frozen=True, eq=False)
class Path:
    """Fits over a grid, one row per grid point, l2 major: row i * len(ks) + j has l2s[i] and ks[j]. NumPy arrays.

    Coefficients are stored on their supports only.

    Attributes:
        ks: (grid,) sparsity; of a path over l0, the number of nonzeros found.
        l2s: (grid,) ridge, or (grid, p); zeros if the objective has none of its own.
        l0s: (grid,) price of a nonzero where the path is over l0, one row per l0 in falling order; else None.
        support: units that the threshold kept, (grid, m) each, see `Support`.
        features: features in the support, the same as `support` unless units are groups.
        coefficients: (grid, m) of `features` in original units, zero on padding.
        intercept: (grid,); (grid, c); thresholds (grid, classes - 1); for matrices their diagonals (grid, n_variables).
        value, result: (grid,), as in a `Solution`.
        loss: (grid,) weighted mean loss without l2, F0.
        n_features: p, or p c of several responses, whose feature j c + r is feature j of response r.
        n_units: number of units that can be in a support: p, or the number of groups.
        n_kept: number of units that are always kept.
        total_weight: W, the sum of the sample weights (of `CoxModel`: of those with an event); None for an objective
            without samples.
        pieces: (a, b, w) of a loss of eta - y alone with the curvature 1/w between its slopes -a and b, linear
            elsewhere, whose scale is not known: the squared, Huber and quantile losses; else None.
        more_loss: (grid,) for gamma and Tweedie losses what the loss is above the least of the path, to its own digits;
            else, and inside `jax.jit`, None.
        dispersion: (grid,) for these losses that of the samples about each fit.
        key: the PRNG key of the fits.
        n_variables: order of the matrices, where units are pairs of variables; else None.
        n_responses: c, where the coefficients are (p, c); else None.
        shift_invariant: True where one constant for all c coefficients of a feature changes no loss, as for softmax.
    """

    ks: Int[np.ndarray, "grid"]
    l2s: Float[np.ndarray, "grid *p"]
    l0s: Float[np.ndarray, "grid"] | None
    support: Support
    features: Support
    coefficients: Float[np.ndarray, "grid m"]
    intercept: Float[np.ndarray, "grid *variables"]
    value: Float[np.ndarray, "grid"]
    result: Int[np.ndarray, "grid"]
    loss: Float[np.ndarray, "grid"]
    n_features: int
    n_units: int
    n_kept: int
    total_weight: Any
    pieces: tuple[Any, Any, Any] | None
    more_loss: Float[np.ndarray, "grid"] | None
    dispersion: Float[np.ndarray, "grid"] | None
    key: jax.Array
    n_variables: int | None = None
    n_responses: int | None = None
    shift_invariant: bool = False

    def __len__(self) -> int:
        return self.ks.shape[0]

    def __str__(self) -> str:
        """A table with a line for each row; `repr` has the arrays."""
        if not is_concrete(self.ks, self.value):
            return repr(self)
        columns = {"k": self.ks, "l2": self.l2s, "l0": self.l0s, "objective": self.value, "loss": self.loss}
        shown = {name: host(each) for name, each in columns.items() if each is not None and each.ndim == 1}
        rows = [list(shown), *([f"{each:.6g}" for each in row] for row in zip(*shown.values(), strict=True))]
        return "\n".join(" ".join(f"{cell:>12}" for cell in row) for row in rows)

    @property
    def x(self) -> Float[np.ndarray, "grid p"] | Float[Array, "grid p"]:
        """(grid, p) coefficients in original units, (grid, p, c), or (grid, n_variables, n_variables); built anew at
        every access."""
        if not is_concrete(self.features, self.coefficients):
            x = traced_dense(self.features, jnp.asarray(self.coefficients), self.n_features)
            return x if self.n_responses is None else x.reshape(len(x), -1, self.n_responses)
        return self._dense(self.features, self.coefficients, self.intercept)

    def _dense(self, features: Support, coefficients: np.ndarray, diagonals: np.ndarray) -> np.ndarray:
        x = _dense(features, coefficients, self.n_features)
        if self.n_responses is not None:
            return x.reshape(len(x), -1, self.n_responses)
        if self.n_variables is None:
            return x
        matrices = np.empty((len(x), self.n_variables, self.n_variables), x.dtype)
        rows, columns = np.triu_indices(self.n_variables, 1)
        matrices[:, rows, columns] = matrices[:, columns, rows] = x
        matrices[:, range(self.n_variables), range(self.n_variables)] = diagonals
        return matrices

    def at(self, i: int) -> Solution:
        """Row i as a `Solution` (without history and state), for `solve(x0=...)` or `certificate`."""
        features = Support(self.features.idx[[i]], self.features.mask[[i]])
        fields: dict[str, Any] = {
            "x": self._dense(features, self.coefficients[[i]], self.intercept[[i]])[0],
            "intercept": self.intercept[i] if self.n_variables is None else np.zeros((), self.intercept.dtype),
            "support": Support(self.support.idx[i], self.support.mask[i]),
            "value": self.value[i],
            "result": self.result[i],
            "fired": np.int32(FIRED.none),
            "num_steps": np.int32(0),
            "best_step": np.int32(-1),
        }
        return Solution(**fields, history=None, state=None, key=self.key)

    def predict(self, X: TableLike) -> Float[np.ndarray, "grid samples *c"]:
        """Linear predictors x'w + b of every row of the grid (no offset), (grid, samples, c) of several responses.

        Those of an `OrdinalModel` are x'w; its thresholds are `intercept`.

        Args:
            X: (samples, p) array or scipy sparse matrix, in original units.

        Raises:
            ValueError: for a wrong shape.
            TypeError: for a path of matrices.
        """
        if self.n_variables is not None:
            raise TypeError("path: a precision matrix predicts nothing by itself; see SparseLDA.")
        X = X if hasattr(X, "shape") else np.asarray(X)
        p = self.n_features // (self.n_responses or 1)
        if len(X.shape) != 2 or X.shape[1] != p:
            raise ValueError(f"X: needs shape (samples, {p}), got {X.shape}.")
        check_finite("X", X.data if sparse.issparse(X) else X)
        if self.n_responses is not None:
            return np.stack([np.asarray(X @ w) + b for w, b in zip(self.x, self.intercept, strict=True)])
        used = np.unique(self.features.idx[self.features.mask])
        idx: Any = np.searchsorted(used, self.features.idx)
        columns = _dense(Support(idx, self.features.mask), self.coefficients, used.size)
        eta = np.asarray(X[:, used] @ columns.T).T
        return eta if self.intercept.ndim > 1 else eta + self.intercept[:, None]


def solve_path(
    objective: AbstractObjective,
    threshold: AbstractThreshold | None = None,
    *,
    ks: ArrayLike | None = None,
    l2s: ArrayLike | None = None,
    l0s: ArrayLike | None = None,
    solver: AbstractSolver | None = None,
    key: jax.Array | None = None,
    checkpoint: str | Folder | None = None,
    progress: Callback | bool | None = None,
    memory: int | None = None,
    executor: Executor | None = None,
) -> Path:
    """Minimise F(w) + (l2/2) ||w||^2 subject to ||w||_0 <= k over a whole grid of k and l2, as one batched program.

    A solver that gives all k in one run is run once per l2; any other once per (k, l2), all from zero.

    With l0s, or an `L0L1L2` as threshold, the path is over the price l0 instead: F(w) + l0 ||w||_0 + l1 ||w||_1 for
    every l2, each fit from the one before in falling order of l0. Without l0s the next l0 is just below the gain of the
    best feature outside, so that few sizes are skipped, up to the largest of ks (default: the least of 20 and half
    the samples).

    Args:
        objective: for example `LinearModel(X, y)`, `MultiResponse`, `CoxModel`, `OrdinalModel` or
            `Precision.from_data`; concrete arrays.
        ks: sparsity levels in any order. None: 0, 1, ... up to the least of 20, half the samples and the units.
        l2s: ridge strengths, (L,), or (L, p) with one per feature. None: the objective's own.
        l0s: prices of a nonzero coefficient, in any order.
        threshold: a template for kept units, bounds and groups, whose k is not used; or `L0L1L2` with l1, whose l0 is
            not used. None: `Sparsity`; `OffDiagonal` for `Precision`.
        solver: None: as in `solve`.
        key: PRNG key, the same for all fits. None: `jax.random.key(0)`.
        checkpoint: folder for finished chunks; the same call with it goes on where a killed one stopped, with results
            of the same bits.
        progress: a function of (fits done, fits in all), or True for a bar on stderr.
        executor: computes the chunks of the grid: any executor of `concurrent.futures`, or of another package with
            `submit`. Each chunk is sent the objective with its data, so that a process compiles the program once (or
            loads it, `SPARSEHTP_CACHE`), and a loss of your own must be one that `pickle` takes. The results do not
            depend on it. `memory` sets the size of a chunk. None: here, one after the other.
        memory: bytes that the working arrays of a chunk may take beside the data. None: 1 GiB.

    Returns:
        A `Path`; compact, about 17 bytes per place in a support and 40 per fit. Inside `jax.jit` or `jax.grad` it holds
        JAX arrays, whose coefficients, intercepts, values and losses have the derivatives described in `solve`.

    Raises:
        TypeError: if the solver does not take this objective, loss or threshold, or ks are traced.
        ValueError: for a bad grid, or a checkpoint of another problem.
    """
    if over_l0(l0s, threshold):
        if executor is not None:
            raise ValueError("executor: over l0 every fit starts from the last one, so there are no chunks; omit it.")
        return Path(**penalised_path(objective, threshold, ks, l2s, l0s, solver, key, checkpoint, progress))
    if not is_concrete(objective, l2s, threshold):
        if any(each is not None for each in (checkpoint, progress, memory, executor)):
            raise TypeError(
                "checkpoint, progress, memory, executor: a path inside jit or grad is one batch; omit them."
            )
        check_axes("objective", objective)
        grid = _grid.prepare(objective, ks, l2s, threshold, solver, key, traced=True)
        levels = _grid.checked_ks(objective, grid.threshold, ks)
        return path_of(grid, traced_fits(grid, levels), levels)
    grid = _grid.prepare(objective, ks, l2s, threshold, solver, key)
    fits = _grid.run(grid, memory, progress, checkpoint, executor)
    return path_of(grid, jax.tree.map(lambda a: a[0], fits), np.asarray(grid.ks))


def path_of(grid: _grid.Grid, fits: _grid.Fits, ks: np.ndarray) -> Path:
    """The path from the fits of one row of weights; JAX arrays where the grid is traced."""
    objective = grid.objective
    xp: Any = np if is_concrete(grid) else jnp
    l2s = xp.asarray(0.0 if objective.l2 is None else objective.l2)[None] if grid.l2s is None else xp.asarray(grid.l2s)
    n_kept = grid.threshold.keep.shape[0]
    # The program's padding goes up to the next power of two.
    used = n_kept + int(ks.max())
    features = fits.support if fits.features is None else fits.features
    per_unit = features.idx.shape[1] // max(fits.support.idx.shape[1], 1)
    compact: Any = np.ascontiguousarray if xp is np else jnp.asarray
    support = jax.tree.map(lambda a: compact(a[:, :used]), fits.support)
    cut = jax.tree.map(lambda a: compact(a[:, : used * per_unit]), (features, fits.coefficients))
    path = Path(
        ks=np.tile(ks, l2s.shape[0]),
        l2s=xp.repeat(l2s, ks.size, axis=0),
        l0s=None,
        support=support,
        features=support if fits.features is None else cut[0],
        coefficients=cut[1],
        intercept=fits.intercept,
        value=fits.value,
        result=fits.result,
        loss=fits.loss,
        n_features=objective.n_coefficients,
        n_units=_grid.n_units(objective, grid.threshold),
        n_kept=n_kept,
        total_weight=_total(objective, xp),
        pieces=jax.tree.map(float, objective.pieces) if xp is np else objective.pieces,
        more_loss=None,
        dispersion=None,
        key=grid.key,
        n_variables=objective.n_variables,
        n_responses=objective.n_responses,
        shift_invariant=objective.shift_invariant,
    )
    if xp is jnp or not objective.free_dispersion:
        return path
    more_loss, dispersion = spreads(objective, lambda i: objective.to_internal(*path.at(i)[:2]), path.loss)
    return dataclasses.replace(path, more_loss=more_loss, dispersion=dispersion)


def _total(objective: AbstractObjective, xp: Any) -> Any:
    """The total that the mean loss is a mean over; None without samples."""
    weights = objective.sample_weight
    if weights is None:
        n = objective.n
        return n if n is None or xp is jnp else float(n)
    return objective.total_weight(weights if xp is jnp else host(weights).astype(float))


def _dense(features: Support, coefficients: np.ndarray, p: int) -> Float[np.ndarray, "grid p"]:
    x = np.zeros((coefficients.shape[0], p), coefficients.dtype)
    row, place = np.nonzero(features.mask)
    x[row, features.idx[row, place]] = coefficients[row, place]
    return x
