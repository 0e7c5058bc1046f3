"""The public entry: checks what can be checked, runs the driver, returns a solution in original units."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from ._meshes import check_axes
from ._programs import program
from ._threads import one_blas_thread
from ._tolerances import tolerance
from ._types import (
    ArrayLike,
    answer_where,
    check_finite,
    check_kind,
    check_precision,
    host,
    is_concrete,
    is_sound,
    seeded,
)
from .derivatives import drive_implicit, support_margin
from .iteration import driver
from .iteration.record import Record
from .iteration.results import RESULTS, Solution, SolveError
from .iteration.termination import AbstractTermination
from .objectives import AbstractObjective, AbstractRefittable
from .objectives.base import in_columns
from .solvers import HTP, IHT, AbstractSolver, BestSubset, FoBa, PricedSubset
from .solvers.refit import refit
from .steps import ScheduleStep, inverse_sqrt
from .thresholds import AbstractThreshold, AbstractUnitThreshold

FOLD_WORKING_SET = 128  # features


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
    implicit: bool = True,
) -> Solution:
    """Minimise an objective under a structural constraint or penalty.

        min_x F(x) + threshold.value(x)   subject to the threshold's structure

    Composes with `jax.jit` and `jax.vmap` (nested too) over anything traced: k, l2, weights, data, keys. Nothing is
    recompiled for a new k, l2, seed or data of the same shape.

    Differentiable in everything that F and the bounds depend on, forwards and backwards, as often as F is: `x`,
    `intercept` and `value` carry derivatives, `history` and `state` none. They are those of the minimiser of F on the
    solution's support, from one linear system in the support's size, whatever the number of steps; a point that is not
    stationary there is polished first, for its derivatives only.

    Args:
        objective: for example `LinearModel(X, y)`.
        threshold: for example `Sparsity(k)`.
        solver: None: `BestSubset` for entries (with bounds or a sum, too), groups, rows and leaves, `HTP` for pairs,
            parts of groups, and supports of more than 2048 coefficients (256 with bounds or a sum), `IHT` for `Rank`,
            `PricedSubset` for `L0L1L2`, and `IHT` with a decreasing step for losses without a second derivative.
        x0: starting coefficients in original units, (p,), (p, c) for `MultiResponse`, (p, p) for `Precision`, or an
            earlier Solution; None: zeros, or the diagonal minimiser.
        key: PRNG key of a stochastic solver; None: `jax.random.key(0)`, the same for all lanes.
        max_steps: step limit, static; None: the solver's.
        termination: stopping criteria, for example `SmallStep(1e-4) | Cycle()`; None: the solver's.
        record: what the history keeps; None: no history.
        throw: raise `SolveError` if a concrete result is nonfinite or singular. Ignored under tracing, where
            `solution.checked()` raises.
        implicit: False: differentiate through the steps instead, all `max_steps` of them (the loop becomes a scan), at
            a cost in time and, in reverse mode, memory that grows with their number; for `IHT` with a `ConstantStep` or
            a `ScheduleStep`.

    Returns:
        A `Solution`; every field has a leading axis under `vmap`. It is never NaN: after a nonfinite step the last
        finite iterate is returned and `result` says so. Traced data, weights, l2, bounds or starts with NaN or infinite
        values, which cannot raise, are not fitted: `result` is `nonfinite`, the coefficients are zero and `value` is
        infinite; other lanes of a batch are what they would be without.

    Where derivatives hold: the solution map is differentiable where its support is locally constant, that is with a
    strict gap between the k-th and the next unit, the Hessian of F on the support is positive definite, F'' is
    continuous there (no kink of Huber or smoothed hinge), and no coefficient changes between free and bounded. At a
    change of support the map jumps, and what is returned is the derivative of the minimiser on the support that was
    chosen; on a singular support (`result` says so) it is of minimum norm. Under `Rank` it is the derivative of a
    stationary point among the matrices of the solution's rank, with a strict gap between the r-th and the next singular
    value of the last step. The derivative in x0 and in the solver's
    parameters is zero. `support_margin` tells how near a change is: 1 - (largest score outside) / (smallest score
    chosen) at x - eta grad F(x), where 1/eta is the curvature of F in the steepest coordinate outside; kept units do
    not count.

    Raises:
        TypeError: if the solver does not take this objective, loss or threshold; when differentiated, if the solution
            has no derivative (`Hinge`), rather than a zero.
        ValueError: for a misshapen or nonfinite x0, or max_steps below 1; nonfinite data raise where the objective is
            made.
        SolveError: see `throw`.

    Warns:
        UserWarning: with `throw`, where rounding of the intercept in original units may cost more than 1e-5 of F (1e-10
            in float64), since columns are too far from zero; inside `jit`, `intercept_rounding` says so.

    A traced k cannot raise: where it is negative the solution is that of k = 0, and `result` is `invalid` (under
    `Simplex` where it is below 1); above k_max, `support_overflow`.
    """
    ending: dict[str, Any] = {"key": key, "max_steps": max_steps, "termination": termination, "record": record}
    return solve_and_refit(objective, threshold, solver, x0, None, throw=throw, implicit=implicit, **ending)[0]


def solve_and_refit(
    objective: AbstractObjective,
    threshold: AbstractThreshold,
    solver: AbstractSolver | None,
    x0: PyTree,
    part: ArrayLike | None,
    *,
    key: jax.Array | None = None,
    max_steps: int | None = None,
    termination: AbstractTermination | None = None,
    record: Record | None = Record(),  # noqa: B008 (immutable)
    throw: bool = True,
    implicit: bool = True,
) -> tuple[Solution, Solution | None]:
    """As `solve`, and the same with its coefficients fitted again on their support at a part of l2 (None: nothing)."""
    check_kind("objective", objective, AbstractObjective, "sht.LinearModel(X, y)")
    check_kind("threshold", threshold, AbstractThreshold, "sht.Sparsity(k)")
    objective = objective.started(getattr(x0, "x", x0))
    solver = default_solver(objective, threshold) if solver is None else solver
    check_kind("solver", solver, AbstractSolver, "sht.solvers.HTP()")
    solver.check(objective, threshold)
    max_steps = solver.default_max_steps if max_steps is None else max_steps
    if max_steps < 1:
        raise ValueError(f"max_steps: must be at least 1, got {max_steps}.")
    if not implicit and not solver.unrollable:
        raise TypeError(
            f"implicit: {type(solver).__name__} has inner loops that JAX cannot differentiate; leave implicit=True, "
            "or use IHT(ConstantStep()) or IHT(ScheduleStep(...))."
        )
    termination = solver.default_termination if termination is None else termination
    check_axes("objective", objective)
    check_precision("objective", objective)
    for name, settings in (("solver", solver), ("termination", termination)):
        check_finite(name, settings, remedy="pass finite numbers")
    key = seeded(0) if key is None else key
    start = _start(objective, x0)
    bound, countable = threshold.bind(objective).counted()
    given = (x0.x, x0.intercept) if hasattr(x0, "intercept") else x0  # not clipped yet
    sound = is_sound((objective, given), (bound, solver, termination))
    task = driver.Task(objective, bound, solver, termination, start, key, sound)
    with one_blas_thread():
        solution, refitted = _solution(task, countable, part, max_steps, record, implicit)
        if throw and is_concrete(solution.result):
            solution.result.block_until_ready()
    if throw and is_concrete(solution.result):
        result = RESULTS(int(solution.result))
        if result in (RESULTS.nonfinite, RESULTS.singular):
            raise SolveError(
                f"{type(solver).__name__}: {result.sentence} Pass throw=False to get the iterate nevertheless."
            )
        rounding = solution.intercept_rounding
        if rounding is not None and is_concrete(solution.value, rounding):  # not within jax.grad
            _warn_of_rounding(float(rounding), float(solution.value), objective.dtype)
    return solution, refitted


@program(static_argnums=(3, 4, 5))
def _solution(
    task: driver.Task,
    countable: Bool[Array, ""],
    part: ArrayLike | None,
    max_steps: int,
    record: Record | None,
    implicit: bool,
) -> tuple[Solution, Solution | None]:
    """The run, what is told about it, and the refit at a part of l2, as one program."""
    objective, threshold = task.objective, task.threshold
    task = task if task.x0 is not None else task._replace(x0=objective.origin())
    outcome = (drive_implicit if implicit else driver.unrolled)(task, max_steps, record)
    x, intercept = answer_where(task.sound, 0, objective.to_external(outcome.x))
    end = lax.stop_gradient((objective, threshold, outcome.x, outcome.support))
    margin, rounding = support_margin(*end), _intercept_rounding(*end)
    solution = Solution(
        x=x,
        intercept=intercept,
        support=threshold.visible(outcome.support),
        value=answer_where(task.sound, jnp.inf, outcome.value),
        result=jnp.where(countable, outcome.result, RESULTS.invalid),
        fired=outcome.fired,
        num_steps=outcome.num_steps,
        best_step=outcome.best_step,
        history=outcome.history,
        state=jax.tree.map(lax.stop_gradient, outcome.state),
        key=task.key,
        support_margin=answer_where(task.sound, 0, margin),
        free=answer_where(task.sound, 0, outcome.x[objective.n_coefficients :]),
        intercept_rounding=answer_where(task.sound, jnp.inf, rounding),
        start_value=answer_where(task.sound, jnp.inf, lax.stop_gradient(outcome.start_value)),
    )
    if part is None:
        return solution, None
    weaker = objective.weakened(part)
    entries = threshold.entries(outcome.x, outcome.support)
    refitted, fault = refit(weaker, threshold, entries, outcome.x)
    free = refitted[objective.n_coefficients :]
    x, intercept, free = answer_where(task.sound, 0, (*weaker.to_external(refitted), free))
    value = answer_where(task.sound, jnp.inf, weaker.value(refitted, entries))
    result = jnp.where((fault == 0) | ~task.sound, solution.result, fault)
    return solution, solution._replace(x=x, intercept=intercept, free=free, value=value, result=result)


def _warn_of_rounding(rise: float, value: float, dtype: np.dtype) -> None:
    if rise > tolerance("swap", dtype) * abs(value):
        warnings.warn(
            f"X, y: {dtype} cannot hold an intercept so far from zero: at the x and intercept that are returned the "
            f"objective may be {rise:.1e} above its value ({value:.1e}); subtract the means of columns and targets "
            "first, or compute in float64.",
            stacklevel=4,
        )


def _intercept_rounding(
    objective: AbstractObjective, threshold: AbstractThreshold, x: Float[Array, "d"], support: Any
) -> Float[Array, ""]:
    entries = threshold.entries(x, support) if isinstance(threshold, AbstractUnitThreshold) else None
    return objective.intercept_rounding(x, entries)


def default_solver(
    objective: AbstractObjective, threshold: AbstractThreshold, search: str | None = None
) -> AbstractSolver:
    """The solver that is used when the caller names none.

    `search` is None for a fit or a path, "folds" for those of parts of the samples, "criterion" for a path of which a
    criterion takes a row: supports of folds need not be swap-optimal, and a criterion compares objectives.
    """
    if not objective.twice_differentiable:
        return IHT(ScheduleStep(inverse_sqrt))
    if threshold.penalises:
        return PricedSubset("fast" if search == "folds" else "default")
    if threshold.kind == "rank":
        return IHT()
    if not (
        isinstance(objective, AbstractRefittable)
        and BestSubset.takes(threshold)
        and BestSubset.holds(objective, threshold)
    ):
        return HTP()
    if search is None:
        return BestSubset()
    plain = in_columns(objective, threshold)
    if plain and not objective.quadratic:
        return FoBa()  # one refit a step, where BestSubset tries a batch of swaps for every k
    if search == "criterion":
        return BestSubset()
    return BestSubset("fast", working_set=FOLD_WORKING_SET if plain else None)


def _start(objective: AbstractObjective, x0: Any) -> Any:
    if x0 is None:  # an array of NumPy as any x0 is, so the same program, unless the start is to be computed
        size = objective.n_coefficients + objective.n_free
        return np.zeros(size, objective.dtype) if objective.starts_at_zero else None
    solved = hasattr(x0, "intercept")  # a Solution
    given = (x0.x, x0.intercept) if solved else objective.coefficients(x0)
    check_finite("x0", given, remedy="start from finite coefficients")
    with np.errstate(over="ignore"):  # a start beyond the range has an F that is
        start = objective.to_internal(*given) if solved else objective.to_internal(given)
    return host(start) if is_concrete(start) else start
