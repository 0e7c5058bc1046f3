"""The certificate of a point under `L0L1L2`, whose exchanges hold the other coefficients."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._programs import program
from .._tolerances import tolerance
from .._types import Scalar, Support, check_kind
from ..columns import gather
from ..duality import Dual
from ..linalg import either
from ..objectives import AbstractObjective, LinearModel
from ..objectives.base import DENSE_HESSIAN_LIMIT
from ..solvers.cdss import CDSSState, Swap, best_swap, entry_gains, state_at
from ..thresholds import L0L1L2
from ..thresholds.base import next_power_of_two
from .facts import Facts, of_a_penalised_point, of_a_value
from .placed import null_value

LEAST_CURVATURE = 1e-14  # of columns of norm one: less is rounding
NOTHING = -1  # for the feature of a move that no feature leaves, or none enters


class _Point(NamedTuple):
    """The point within its bounds, its value and F without features, its slope along moves that keep its nonzeros and
    the curvature there, and the best move that changes them, which gains what `found` says at least, `most` at most."""

    within: Float[Array, "d"]
    value: Float[Array, ""]
    value0: Float[Array, ""]
    slope: Float[Array, "m"]
    curvature: Float[Array, "m m"]
    found: Swap
    most: Float[Array, ""]


def penalised_facts(objective: AbstractObjective, threshold: L0L1L2, x: Float[Array, "d"], dtype: np.dtype) -> Facts:
    """Value, stationarity and best move of a point in the solver's units, at the tolerance of a dtype."""
    model = check_kind("objective", objective, LinearModel, "sht.LinearModel(X, y)")
    p, here = model.n_coefficients, np.asarray(x)
    nonzero = np.append(np.flatnonzero(here[:p]), p + np.arange(model.n_free))
    dense = nonzero.size <= DENSE_HESSIAN_LIMIT
    count = nonzero.size if dense else 0
    width = max(next_power_of_two(count), 1)
    padded: Any = np.pad(nonzero[:count], (0, width - count)).astype(np.int32)
    mask: Any = np.arange(width) < count
    point = jax.device_get(_penalised(model, threshold, x, Support(padded, mask)))
    if np.any(np.abs(here - point.within) > 64 * np.finfo(dtype).eps * np.maximum(np.abs(here), np.abs(point.within))):
        raise ValueError("solution: x violates the threshold's bounds.")
    tol, value = tolerance("swap", dtype), float(point.value)
    enough, slack = tol * abs(value), tolerance("stationary", dtype) * (abs(value) + abs(float(point.value0)))
    if not np.isfinite(value):
        return Facts(value, of_a_value, why="the objective is not finite here")
    facts = Facts(
        value,
        of_a_penalised_point,
        stationary=_stationary(point.slope[:count], point.curvature[:count, :count], slack) if dense else None,
        tol=tol,
        enough=enough,
    )
    if point.found.gain > enough:
        out, new = (None if j == NOTHING else int(j) for j in (point.found.out, point.found.new))
        return facts._replace(gain=float(point.found.gain), swap=(out, new))
    if point.most > enough:
        return facts._replace(why="the loss is not squared, and the bounds of what that would gain are too wide")
    if not np.isfinite([point.found.gain, point.most]).all():
        return facts._replace(why="what that would gain is not finite")
    return facts._replace(gain=0.0)


def _stationary(slope: Float[np.ndarray, "m"], curvature: Float[np.ndarray, "m m"], slack: float) -> bool | None:
    """Whether a refit gains at most the slack by the quadratic model: half the slope in the metric of the curvature.

    None where that lies in directions whose curvature is lost in rounding.
    """
    if not slope.size:
        return True
    if not (np.isfinite(slope).all() and np.isfinite(curvature).all() and np.isfinite(slack)):
        return None
    size = np.sqrt(np.maximum(np.diag(curvature), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(curvature / size / size[:, None])
    along, known = (vectors.T @ (slope / size)) ** 2 / 2, LEAST_CURVATURE * slope.size
    if np.sum(along / np.maximum(values, known)) <= slack:
        return True
    return False if np.sum((along / np.maximum(values, known))[values > known]) > slack else None


@program
def _penalised(objective: LinearModel, threshold: L0L1L2, x: Float[Array, "d"], entries: Support) -> _Point:
    dual = Dual(objective, threshold)
    state = state_at(dual, x, threshold.support(x[: objective.n_coefficients]))
    found = _best_move(dual, state, None)
    most = found.gain if objective.quadratic else _best_move(dual, state, 0.0).gain
    curvature = objective.restrict(entries).hess(gather(x, entries))
    slope, within = gather(_projected(dual, state), entries), threshold.clip(x)
    return _Point(within, state.value, null_value(objective), slope, curvature, found, most)


def _projected(dual: Dual, state: CDSSState) -> Float[Array, "d"]:
    """The gradient where x is not zero, as far as the bounds let a step along it go."""
    x, p = state.x, state.energies.shape[0]
    size = dual.objective.loss.smoothness * state.energies + dual.columns.ridge()[:p]
    size = dual.lift(jnp.where(jnp.isfinite(size) & (size > 0), size, 1), 1.0)
    grad = state.grad.at[:p].add(dual.prices[1] * jnp.sign(x[:p]))
    return size * (x - dual.threshold.clip(x - grad / size))


def _best_move(dual: Dual, state: CDSSState, smoothness: Scalar | None) -> Swap:
    """The best of all features to add, to leave out or to exchange, with a gain as that of `best_swap`."""
    objective, p = dual.objective, state.energies.shape[0]
    w, grad, ridge = state.x[:p], state.grad[:p], objective.columns.ridge()[:p]
    if state.centres is not None:  # the intercept follows, as in `best_swap`, and need not be the best one here
        grad = grad - state.centres * state.grad[p]
    l0, l1 = dual.prices
    entering, _ = entry_gains(dual, state.energies, grad, w, smoothness)
    curvature = (objective.loss.smoothness if smoothness is None else smoothness) * state.energies + ridge
    leaving = l0 + l1 * jnp.abs(w) + w * grad - 0.5 * curvature * w**2
    alone = jnp.where(w != 0, leaving, entering - l0)
    j = jnp.argmax(alone).astype(jnp.int32)
    here, zero = w[j] != 0, jnp.zeros((), w.dtype)
    move = Swap(alone[j], jnp.where(here, j, NOTHING), jnp.where(here, NOTHING, j), zero)
    swap = best_swap(dual, state, smoothness)
    return either(swap.gain > move.gain, swap, move)
