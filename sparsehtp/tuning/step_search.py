"""Step sizes by a grid search, all sizes as one batch."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._solve import solve
from .._types import ArrayLike, replace
from ..iteration.results import RESULTS, Solution
from ..iteration.termination import Never
from ..objectives import AbstractObjective
from ..solvers import AbstractSolver
from ..steps import ConstantStep
from ..thresholds import AbstractThreshold

FACTORS = 2.0 ** np.arange(-3, 8)  # of the step that the solver would take


class StepSearch(NamedTuple):
    """Runs with several constant step sizes.

    Attributes:
        solver: the solver with the best step size.
        sizes: (s,) step sizes.
        values: (s,) value after the last step; infinity where the run diverged.
        best: row of the lowest value.
    """

    solver: AbstractSolver
    sizes: Float[np.ndarray, "s"]
    values: Float[np.ndarray, "s"]
    best: int


def tune_step(
    objective: AbstractObjective,
    threshold: AbstractThreshold,
    solver: AbstractSolver,
    sizes: ArrayLike | None = None,
    *,
    max_steps: int = 5,
    key: jax.Array | None = None,
) -> StepSearch:
    """The constant step size with the lowest F after a few steps, all sizes as one batch on the same samples.

    Theory's steps for stochastic hard thresholding are safe and small; the largest one that does not diverge is often
    ten times as fast. Judge the tuned solver with the cost of this search, `len(sizes) * max_steps` steps, in mind.

    Args:
        objective, threshold: the problem.
        solver: a solver with a step rule: `IHT`, `HTP`, `StochasticHT`, `SVRGHT`, `SAGAHT`, `HybridHT`.
        sizes: (s,) step sizes > 0. None: 2^-3, ..., 2^7 times the solver's own first step.
        max_steps: steps (epochs, stages) of each run.
        key: PRNG key, the same for all runs.

    Raises:
        TypeError: if the solver has no step rule.
        ValueError: if sizes are not positive numbers, or all of them diverge.
    """
    if solver.step_rule is None:
        raise TypeError(f"solver: {type(solver).__name__} has no step size to tune.")
    if sizes is None:
        sizes = FACTORS * float(solver.step_rule.init(objective))
    sizes = np.atleast_1d(np.asarray(sizes, float))
    if sizes.ndim != 1 or not (np.isfinite(sizes) & (sizes > 0)).all():
        raise ValueError(f"sizes: needs positive numbers, got {sizes}.")

    def run(size: Float[Array, ""]) -> Solution:
        tuned = replace(solver, step_rule=ConstantStep(size))
        return solve(
            objective, threshold, tuned, key=key, max_steps=max_steps, termination=Never(), record=None, throw=False
        )

    solutions = jax.vmap(run)(jnp.asarray(sizes, objective.dtype))
    values = np.where(solutions.result == RESULTS.nonfinite, np.inf, solutions.value)
    best = int(np.argmin(values))
    if not np.isfinite(values[best]):
        raise ValueError(f"sizes: every one diverges, from {sizes.min():.3g} on; try smaller ones.")
    return StepSearch(replace(solver, step_rule=ConstantStep(float(sizes[best]))), sizes, values, best)
