"""Where a run on a function of a user's own ended: nothing is known of it that would tell a minimum."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._tolerances import tolerance
from .._types import Factors, Support
from ..columns import gather
from ..iteration.results import RESULTS
from ..linalg import dot, lane_by_lane, random_start
from ..thresholds import AbstractThreshold, AbstractUnitThreshold
from ..thresholds.base import members
from .custom_restricted import eigen

if TYPE_CHECKING:
    from .custom import AbstractCustom

FEW = 64  # entries of a support whose Hessian is looked at whole
SMALL = 1e-3  # what a step may gain, or its length, where a run has converged


def judged_at(
    objective: "AbstractCustom",
    threshold: AbstractThreshold,
    x: Float[Array, "d"],
    support: PyTree,
    result: Int[Array, ""],
) -> Int[Array, ""]:
    """Converged only where all that may move has a small gradient, and no downward curvature.

    Small: a step against the gradient to the lowest point of F's parabola gains at most 1e-3 of |F(x)| + |F(0)|, or
    is at most 1e-3 of |x| long; solvers that are not told to stop early do much better.
    """
    entries = threshold.entries(x, support)
    value, grad = objective.value_and_grad(x)
    slope = threshold.tangent(threshold.free_gradient(x, grad), support)
    movable = jnp.ones(x.shape, bool) if entries is None else _movable(threshold, x, entries)
    slope = jnp.where(movable, slope, 0)
    steepest = jnp.max(jnp.abs(slope), initial=0)
    slope = slope / jnp.where(steepest > 0, steepest, 1)
    length, bend = dot(slope, slope), dot(slope, objective.hvp(x, slope))
    step = steepest * length / jnp.where(bend > 0, bend, 1)
    origin = objective.value(jnp.zeros_like(x))
    size = jnp.abs(value) + jnp.where(jnp.isfinite(origin), jnp.abs(origin), 0)
    near = step * jnp.sqrt(length) <= SMALL * jnp.linalg.norm(x)
    small = (steepest == 0) | ((bend > 0) & (near | (step * steepest * length / 2 <= SMALL * size)))
    if entries is None:  # of a rank
        found = small & _curves_upwards_in_rank(objective, x, support)
    else:
        found = small & _curves_upwards(objective, threshold, x, entries, movable)
    finite = jnp.isfinite(value) & jnp.isfinite(grad).all()
    fault = jnp.where(finite, jnp.where(found, result, RESULTS.stalled), RESULTS.nonfinite)
    claimed = (result == RESULTS.converged) | (result == RESULTS.singular)
    return jnp.where(claimed, fault, result).astype(jnp.int32)


def _curves_upwards(
    objective: "AbstractCustom",
    threshold: AbstractThreshold,
    x: Float[Array, "d"],
    entries: Support,
    movable: Bool[Array, "d"],
) -> Bool[Array, ""]:
    """Whether F at x curves downwards neither along one direction of all that may move both ways, nor, unless there
    are too many, along any of a support."""
    both = [threshold.free_gradient(x, jnp.full_like(x, side)) != 0 for side in (-1, 1)]
    either, slack = both[0] & both[1], tolerance("pivot", x.dtype) ** 0.5
    direction = jnp.where(movable & either, random_start(x.shape[0], x.dtype), 0)
    along = objective.hvp(x, direction)
    along = jnp.where(movable & either, along, 0)
    upwards = dot(direction, along) >= -slack * jnp.linalg.norm(direction) * jnp.linalg.norm(along)
    if entries.idx.shape[0] > FEW:
        return upwards
    free = entries.mask & either[entries.idx]
    H = objective.restrict(entries).hess(gather(x, entries))
    diagonal = jnp.abs(jnp.diagonal(H))
    free &= diagonal != 0
    scale = jnp.where(free, lax.rsqrt(jnp.where(free, diagonal, 1)), 0)
    H = jnp.where(free[:, None] & free, (H + H.T) / 2, 0) * scale[:, None] * scale
    return upwards & (lane_by_lane(eigen)(H)[0][0] >= -slack)


def _curves_upwards_in_rank(objective: "AbstractCustom", x: Float[Array, "d"], factors: Factors) -> Bool[Array, ""]:
    """Whether F curves downwards along a matrix of rank one, which may be added where the rank is not used up."""
    room = jnp.any(factors.mask & ~(factors.values > 0))
    left, right = (random_start(side.shape[0], x.dtype) for side in (factors.left, factors.right))
    direction = jnp.outer(left, right).ravel()
    along = objective.hvp(x, direction)
    slack = tolerance("pivot", x.dtype) ** 0.5 * jnp.linalg.norm(direction) * jnp.linalg.norm(along)
    return ~room | (dot(direction, along) >= -slack)


def _movable(threshold: AbstractThreshold, x: Float[Array, "d"], entries: Support) -> Bool[Array, "d"]:
    """The entries of a support, and all others while fewer units than allowed are not zero."""
    inside = members(entries, x.shape[0])
    if not isinstance(threshold, AbstractUnitThreshold) or not threshold.exchangeable:
        return inside
    used = threshold.occupied(x)
    pools, counts = threshold.pools(used.shape[0])
    used &= ~threshold.locked(used.shape[0])
    room = (jnp.zeros(counts.shape, jnp.int32).at[pools].add(used.astype(jnp.int32)) < counts)[pools]
    others = threshold.entries(x, Support(jnp.arange(used.shape[0], dtype=jnp.int32), room))
    return inside | members(others, x.shape[0])
