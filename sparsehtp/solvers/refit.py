"""Refits on a support, and what went wrong in them."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Factors, Support
from ..columns import gather, scatter
from ..iteration.results import RESULTS
from ..linalg import Refit, dot, solve_quadratic
from ..objectives import AbstractRefittable, AbstractRestricted
from ..thresholds import AbstractThreshold
from ..thresholds.rank import triplets


def refit(
    objective: AbstractRefittable,
    threshold: AbstractThreshold,
    entries: Support,
    start: Array,
    max_steps: int | None = None,
    target: Array | None = None,
    gram: Array | None = None,
) -> tuple[Array, Array]:
    """argmin of F over the entries of a support (and the threshold's box), and the `RESULTS` code of a fault, or 0.

    Reaching a step limit that the caller has set is no fault. A minimum above the target need not be found. Of a
    quadratic F without a box `gram` is the matrix of its normal equations at these entries, where it is known: the
    Hessian with the free entries minimised out.
    """
    restricted = objective.restrict(entries)
    restricted = restricted if target is None else restricted.unless_above(target)
    if gram is not None:
        begin = jnp.where(entries.mask, gather(start, entries), 0)
        fit = solve_quadratic(restricted, begin, with_free(restricted, gram, objective.n_free))
        return scatter(fit.z, entries, start.shape[0]), _fault(fit, max_steps)
    fit = restricted.minimise(gather(start, entries), threshold.box(entries), max_steps)
    return scatter(fit.z, entries, start.shape[0]), _fault(fit, max_steps)


def with_free(restricted: AbstractRestricted, gram: Float[Array, "m m"], n_free: int) -> Float[Array, "d d"]:
    """The Hessian whose Schur complement of the first entries, the free ones, is known."""
    if not n_free:
        return gram
    unit = jnp.zeros(restricted.mask.shape, gram.dtype).at[0].set(1)
    border = restricted.hvp(jnp.zeros_like(unit), unit)
    return (border[:, None] * (border / border[0])).at[1:, 1:].add(gram)


def refit_left(
    objective: AbstractRefittable, x: Array, factors: Factors, max_steps: int | None = None
) -> tuple[Array, Factors, Array]:
    """argmin of F over the matrices whose columns lie in the span of `factors.left`, its factors, and a fault or 0."""
    p, c = factors.left.shape[0], factors.right.shape[0]
    start = jnp.concatenate([dot(factors.left.T, x[: p * c].reshape(p, c)).ravel(), x[p * c :]])
    fit = objective.restrict_left(factors.left, factors.mask).minimise(start, max_steps=max_steps)
    n_left = factors.mask.shape[0] * c
    inside = triplets(fit.z[:n_left].reshape(-1, c), factors.mask)
    left = dot(factors.left, inside.left)
    W = dot(left * inside.values, inside.right.T)
    return jnp.concatenate([W.ravel(), fit.z[n_left:]]), inside._replace(left=left), _fault(fit, max_steps)


def _fault(fit: Refit, max_steps: int | None) -> Array:
    unsolved = jnp.where(fit.solved | (max_steps is not None), 0, RESULTS.max_steps)
    return jnp.where(fit.singular, RESULTS.singular, unsolved).astype(jnp.int32)
