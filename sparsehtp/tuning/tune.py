"""Hyper-parameters by gradient descent on a validation loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from .._programs import program
from .._progress import Callback, reporting
from .._solve import solve
from .._types import ArrayLike, check_kind, replace, seeded
from ..iteration.results import Solution
from ..objectives import AbstractObjective, LinearModel
from ..solvers import AbstractSolver
from ..thresholds import AbstractThreshold, AbstractUnitThreshold

ADAM = optax.adam(0.2)  # one object, so that its steps are compiled once


class Tuned(NamedTuple):
    """The best hyper-parameters that were met, and the way there.

    Attributes:
        l2: as they were given (scalar, (groups,) or (p,)); None if they were not tuned.
        weights: (n,) sample weights in (0, 1); None if they were not tuned.
        solution: the fit with them.
        value: its validation loss.
        values: (steps + 1,) validation losses in the order they were met.
        best_step: the row of `values` that was kept.
    """

    l2: Array | None
    weights: Array | None
    solution: Solution
    value: Float[Array, ""]
    values: Float[np.ndarray, "steps"]
    best_step: int


def tune(
    objective: LinearModel,
    threshold: AbstractThreshold,
    *,
    val: Any,
    l2: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    optimiser: optax.GradientTransformation | None = None,
    steps: int = 50,
    solver: AbstractSolver | None = None,
    key: jax.Array | None = None,
    progress: Callback | bool | None = None,
) -> Tuned:
    """Choose l2, sample weights, or both, by gradient descent on the validation loss of the sparse fit.

        min over l2 > 0, s in (0, 1)^n of V(x(l2, s)),    x(l2, s) = argmin F(x; l2, s) under the threshold

    The gradient is the implicit derivative of `solve`: one step costs about one fit, however many parameters there are.
    They are moved on the scales log(l2) and logit(s).

    Args:
        objective: the training objective; what is not tuned stays as it is there.
        threshold: for example `Sparsity(k)`.
        val: what V is: a `LinearModel` of validation data (its own weights and offset; its l2 is not counted), or a
            pair (X, y), scored with the objective's loss.
        l2: starting values > 0: a scalar, one per feature, or with `groups` one per group (a scalar: the same for all).
            None: not tuned.
        weights: (n,) starting sample weights in (0, 1), or one for all. None: not tuned.
        groups: (p,) group label of every feature; the features of a group share one l2.
        optimiser: an optax optimiser of the logarithms. None: `optax.adam(0.2)`.
        steps: gradient steps.
        solver, key: as in `solve`.
        progress: a function of (steps done, steps in all), or True for a bar on stderr.

    Returns:
        The best parameters met, `Tuned`.

    Raises:
        ValueError: if neither l2 nor weights are given, or they are out of range or misshapen.
        TypeError: for a loss without derivatives, or an objective without l2 and weights.

    When it fails: V jumps where the support changes, and has local minima; what is found depends on the start.
    """
    check_kind("objective", objective, AbstractObjective, "sht.LinearModel(X, y)")
    validation = val if isinstance(val, AbstractObjective) else _scored(objective, val)
    index, params = _parameters(objective, l2, weights, groups)
    if isinstance(threshold, AbstractUnitThreshold):  # k is traced from here on, so its limit is fixed now
        threshold = replace(threshold, k_max=threshold.bind(objective).k_max)
    optimiser = ADAM if optimiser is None else optimiser
    key = seeded(0) if key is None else key
    best: Any = None
    values: list[float] = []
    state = optimiser.init(params)
    with reporting(progress) as report:
        for number in range(steps + 1):
            value, solution, following, state = _step(
                params, state, objective, threshold, validation, solver, index, key, optimiser
            )
            values.append(float(value))
            if best is None or values[-1] < values[best[0]]:
                best = number, params, solution
            params = following
            report(number, steps)
    number, params, solution = best
    return Tuned(
        l2=None if l2 is None else jnp.exp(params["l2"]),
        weights=None if weights is None else jax.nn.sigmoid(params["weights"]),
        solution=solution,
        value=jnp.asarray(values[number], objective.dtype),
        values=np.asarray(values),
        best_step=number,
    )


@program(static_argnums=8)
def _step(
    params: dict[str, Array],
    state: Any,
    objective: LinearModel,
    threshold: AbstractThreshold,
    validation: LinearModel,
    solver: AbstractSolver,
    index: Int[np.ndarray, "p"] | None,
    key: Array,
    optimiser: optax.GradientTransformation,
) -> tuple[Float[Array, ""], Solution, dict[str, Array], Any]:
    """Validation loss and fit at the parameters, and the parameters and the optimiser's state after the step."""

    def loss(params: dict[str, Array]) -> tuple[Float[Array, ""], Solution]:
        solution = solve(_with(objective, params, index), threshold, solver, key=key, record=None)
        scorer = validation.scorer()
        return scorer.value(scorer.to_internal(solution.x, solution.intercept)), solution

    (value, solution), grad = jax.value_and_grad(loss, has_aux=True)(params)
    updates, state = optimiser.update(grad, state, params)
    return value, solution, optax.apply_updates(params, updates), state


def _scored(objective: LinearModel, val: Any) -> LinearModel:
    try:
        X, y = val
    except (TypeError, ValueError):
        raise ValueError("val: needs a LinearModel of validation data, or a pair (X, y).") from None
    return LinearModel(X, y, objective.loss, fit_intercept=bool(objective.n_free))


def _with(objective: LinearModel, params: dict[str, Array], index: np.ndarray | None) -> LinearModel:
    l2, weights = params.get("l2"), params.get("weights")
    if l2 is not None:
        l2 = jnp.exp(l2) if index is None else jnp.exp(l2)[index]
    return objective.reweighted(None if weights is None else jax.nn.sigmoid(weights), l2)


def _parameters(
    objective: LinearModel, l2: ArrayLike | None, weights: ArrayLike | None, groups: ArrayLike | None
) -> tuple[Int[np.ndarray, "p"] | None, dict[str, Array]]:
    """Group number of every feature (None: no groups), and the starting parameters on their scales."""
    if l2 is None and weights is None:
        raise ValueError("l2, weights: give starting values for at least one of them.")
    index = None
    params: dict[str, Array] = {}
    if groups is not None:
        if l2 is None:
            raise ValueError("groups: only l2 is shared by groups; give l2 too.")
        if np.shape(groups) != (objective.n_coefficients,):
            raise ValueError(
                f"groups: needs one label per feature ({objective.n_coefficients}), got {np.shape(groups)}."
            )
        labels, index = np.unique(np.asarray(groups), return_inverse=True)
    if l2 is not None:
        l2 = np.asarray(l2, float)
        l2 = l2 if index is None else np.broadcast_to(l2, labels.shape)
        if not (np.isfinite(l2).all() and l2.min() > 0):
            raise ValueError(f"l2: needs starting values > 0, since their logarithms are tuned; got {l2.min()}.")
        params["l2"] = jnp.log(jnp.asarray(l2, objective.dtype))
    if weights is not None:
        n = objective.ifo_per_gradient
        s = np.broadcast_to(np.asarray(weights, float), (n,))
        if not (s.min() > 0 and s.max() < 1):
            raise ValueError("weights: need starting values between 0 and 1, both excluded; try 0.5.")
        params["weights"] = jnp.log(jnp.asarray(s / (1 - s), objective.dtype))
    return index, params
