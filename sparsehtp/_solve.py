"""The public entry: checks what can be checked, runs the driver, returns a solution in original units."""

import jax
import jax.numpy as jnp
import numpy as np

from . import _driver
from ._record import Record
from ._results import RESULTS, Solution, SolveError
from ._termination import AbstractTermination
from ._types import ArrayLike, Support, is_concrete
from .objectives import AbstractObjective, AbstractRestrictable
from .solvers import HTP, IHT, AbstractSolver, BestSubset, PrimalDual
from .steps import ScheduleStep, inverse_sqrt
from .thresholds import L0L1L2, AbstractThreshold, Sparsity


def solve(
    objective: AbstractObjective,
    threshold: AbstractThreshold,
    solver: AbstractSolver | None = None,
    x0: ArrayLike | Solution | None = None,
    *,
    key: jax.Array | None = None,
    max_steps: int | None = None,
    termination: AbstractTermination | None = None,
    record: Record | None = Record(),  # noqa: B008 (immutable)
    throw: bool = True,
) -> Solution:
    """Minimise an objective under a structural constraint or penalty.

        min_x F(x) + threshold.value(x)   subject to the threshold's structure

    Composes with `jax.jit` and `jax.vmap` (nested too) over anything traced: k, l2, weights, data, keys. Nothing is
    recompiled for a new k, l2, seed or data of the same shape.

    Args:
        objective: for example `LinearModel(X, y)`.
        threshold: for example `Sparsity(k)`.
        solver: None: `BestSubset` for `Sparsity` without bounds, `HTP` for other structures,
            `PrimalDual` for `L0L1L2`, `IHT` with a decreasing step for losses without a second derivative.
        x0: (p,) starting coefficients in original units, or an earlier Solution; None: zeros.
        key: PRNG key of a stochastic solver; None: `jax.random.key(0)`, the same for all lanes.
        max_steps: step limit, static; None: the solver's.
        termination: stopping criteria, for example `SmallStep(1e-4) | Cycle()`; None: the solver's.
        record: what the history keeps; None: no history.
        throw: raise `SolveError` if a concrete result is nonfinite or singular. Ignored under tracing.

    Returns:
        A `Solution`; every field has a leading axis under `vmap`. It is never NaN: after a nonfinite step the last
        finite iterate is returned and `result` says so.

    Raises:
        TypeError: if the solver does not take this objective, loss or threshold.
        ValueError: for a misshapen or nonfinite x0, or max_steps below 1.
        SolveError: see `throw`.
    """
    _check_kind("objective", objective, AbstractObjective, "sht.LinearModel(X, y)")
    _check_kind("threshold", threshold, AbstractThreshold, "sht.Sparsity(k)")
    solver = default_solver(objective, threshold) if solver is None else solver
    _check_kind("solver", solver, AbstractSolver, "sht.HTP()")
    solver.check(objective, threshold)
    max_steps = solver.default_max_steps if max_steps is None else max_steps
    if max_steps < 1:
        raise ValueError(f"max_steps: must be at least 1, got {max_steps}.")
    termination = solver.default_termination if termination is None else termination
    key = jax.random.key(0) if key is None else key
    start = _start(objective, x0)
    outcome = _driver.run(
        _driver.Problem(objective, threshold.bind(objective), solver, termination, start, key), max_steps, record
    )
    x, intercept = objective.to_external(outcome.x)
    n_free = objective.n_free
    solution = Solution(
        x=x,
        intercept=intercept,
        support=Support(outcome.support.idx[n_free:], outcome.support.mask[n_free:]),
        value=outcome.value,
        result=outcome.result,
        fired=outcome.fired,
        num_steps=outcome.num_steps,
        best_step=outcome.best_step,
        history=outcome.history,
        state=outcome.state,
        key=key,
    )
    if throw and is_concrete(solution.result):
        result = RESULTS(int(solution.result))
        if result in (RESULTS.nonfinite, RESULTS.singular):
            raise SolveError(
                f"{type(solver).__name__}: {result.sentence} Pass throw=False to get the iterate nevertheless."
            )
    return solution


def default_solver(objective: AbstractObjective, threshold: AbstractThreshold) -> AbstractSolver:
    """The solver that is used when the caller names none."""
    loss = getattr(objective, "loss", None)
    if loss is not None and not loss.twice_differentiable:
        return IHT(ScheduleStep(inverse_sqrt))
    if isinstance(threshold, L0L1L2):
        return PrimalDual()
    free = isinstance(threshold, Sparsity) and threshold.lower is None and threshold.upper is None
    return BestSubset() if free and isinstance(objective, AbstractRestrictable) else HTP()


def _check_kind(name, value, kind, example):
    if not isinstance(value, kind):
        raise TypeError(f"{name}: needs an instance such as {example}, got {_name(value)}.")


def _name(value):
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _start(objective, x0):
    p = objective.n_coefficients
    if x0 is None:
        return jnp.zeros(p + objective.n_free, objective.dtype)
    if isinstance(x0, Solution):
        return objective.to_internal(x0.x, x0.intercept)
    x0 = jnp.asarray(x0, objective.dtype)
    if x0.shape != (p,):
        raise ValueError(f"x0: needs shape ({p},), one coefficient per feature, got {x0.shape}.")
    if is_concrete(x0) and not np.isfinite(x0).all():
        raise ValueError("x0: holds NaN or infinite values; start from finite coefficients.")
    return objective.to_internal(x0)
