"""A solution bound to its problem, in float64: what certificates and exchanges are about."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._programs import program
from .._types import AnyArray, Support, check_finite
from ..columns import gather, scatter
from ..iteration.results import RESULTS
from ..linalg import dot, lane_axis
from ..objectives import AbstractObjective, AbstractRefittable, AbstractRestricted
from ..thresholds import AbstractUnitThreshold
from ..thresholds.base import default_k_max

BATCH = 32  # refits at a time among them
ROUNDINGS = 4  # of a value, in units of its terms


class Placed(NamedTuple):
    """A solution and its problem, in float64.

    Attributes:
        objective, threshold: bound to each other.
        x: in the solver's units.
        units: the support in the solver's order: free, kept, chosen, padding.
        chosen: the units that may leave, sorted.
        intercept_error: what rounding may have done to the intercept in original units.
        dtype: of the user's data.
    """

    objective: AbstractRefittable
    threshold: AbstractUnitThreshold
    x: Float[Array, "d"]
    units: Support
    chosen: np.ndarray
    intercept_error: float
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Coefficients that a refit fits."""
        return int(jax.eval_shape(self.threshold.entries, self.x, self.units).idx.shape[0])

    @property
    def places(self) -> np.ndarray:
        """Places of the support that a unit may leave; a free one counts as a place that nothing leaves."""
        first = self.objective.n_free + _always(self.objective, self.threshold).size
        return np.arange(first, first + self.chosen.size + (self.chosen.size < int(self.threshold.k)), dtype=np.int32)

    @property
    def others(self) -> np.ndarray:
        """Units that may enter."""
        units = np.arange(self.threshold.n_units(self.objective), dtype=np.int32)
        return np.setdiff1d(units, np.concatenate([_always(self.objective, self.threshold), self.chosen]))

    @property
    def swaps(self) -> tuple[np.ndarray, np.ndarray]:
        """Every exchange, as a place and a unit: within a pool that shares a count, or into one that has room."""
        pools, counts = map(np.asarray, self.threshold.pools(self.threshold.n_units(self.objective)))
        room = np.bincount(pools[self.chosen], minlength=counts.size) < counts
        places, new = np.repeat(self.places, self.others.size), np.tile(self.others, self.places.size)
        leaving = np.asarray(self.units.idx)[places]
        allowed = np.where(np.asarray(self.units.mask)[places], pools[leaving] == pools[new], room[pools[new]])
        return places[allowed], new[allowed]


class RefittedPoint(NamedTuple):
    """F and its gradient at a solution, and its refit on the support."""

    value: Float[Array, ""]
    value0: Float[Array, ""]  # at x = 0, the intercept refitted
    rounding: Float[Array, ""]  # what rounding of the predictor may do to the value
    grad: Float[Array, "d"]
    refit: Float[Array, "d"]  # x refitted
    refit_value: Float[Array, ""]
    refit_grad: Float[Array, "d"]
    removable: Float[Array, ""]  # at least what the refit can gain
    curvature: Float[Array, ""]  # along the free entries together: the trace of their block
    singular: Bool[Array, ""]
    solved: Bool[Array, ""]
    judged: Int[Array, ""]  # what the objective makes of a run that converged here


def coefficients_of(objective: AbstractObjective, solution: Any) -> tuple[np.ndarray, Array]:
    """Coefficients and intercept of a solution, which fit the objective."""
    shape, x = objective.external_shape, solution.x
    if not hasattr(x, "shape"):  # a pytree
        x = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(x)])
    w = np.asarray(x, objective.dtype)
    if w.shape != shape:
        raise ValueError(f"solution: needs one solution with coefficients of shape {shape}, got {w.shape}.")
    check_finite("solution", w, solution.intercept, remedy="solve again")
    return w, jnp.asarray(solution.intercept, objective.dtype)


def onto_support(
    objective: AbstractObjective, threshold: AbstractUnitThreshold, w: np.ndarray, intercept: Array, support: Support
) -> tuple[Array, Support, np.ndarray, Array]:
    """x in the solver's units, moved onto its support and into the bounds; the support in the solver's order (free,
    kept, chosen, padding), and the chosen units; and whether x was there up to rounding."""
    members = np.unique(np.asarray(support.idx)[np.asarray(support.mask)])
    number, keep, k = threshold.n_units(objective), _always(objective, threshold), int(threshold.k)
    chosen = np.setdiff1d(members, keep).astype(np.int32)
    pools, counts = map(np.asarray, threshold.pools(number))
    held = np.bincount(pools[chosen], minlength=counts.size)
    if np.any(held > counts):
        most = int(np.argmax(held - counts))
        where = f"of leaf {most}" if counts.size > 1 else "besides those in keep"
        raise ValueError(f"solution: its support holds {held[most]} units {where}; k allows {counts[most]}.")
    free = number + np.arange(objective.n_free)
    places = default_k_max(k, number - keep.size, threshold.least_k_max)
    idx: Any = np.concatenate([free, keep, chosen, np.zeros(places - chosen.size)]).astype(np.int32)
    mask: Any = np.arange(idx.size) < idx.size - places + chosen.size
    units = Support(idx, mask)
    x, covered = _internal(objective, threshold, w, intercept, units)
    return x, units, chosen, covered


def _always(objective: AbstractObjective, threshold: AbstractUnitThreshold) -> np.ndarray:
    """The units that are in every support: those in keep, and dense leaves."""
    return np.flatnonzero(threshold.locked(threshold.n_units(objective))).astype(np.int32)


@program
def _internal(
    objective: AbstractObjective, threshold: AbstractUnitThreshold, w: AnyArray, intercept: Array, units: Support
) -> tuple[Float[Array, "d"], Bool[Array, ""]]:
    x = objective.to_internal(w, intercept)
    inside = threshold.placed(x, units)
    return inside, jnp.all(jnp.abs(inside - x) <= 1e-5 * jnp.max(jnp.abs(x)))


def rounding_of(restricted: AbstractRestricted, z: Float[Array, "m"]) -> Float[Array, ""]:
    """The error of F(z) by rounding the terms of the predictor: eps sum_j |z_j| times the gradient's terms."""
    terms = restricted.grad_terms(z)
    return ROUNDINGS * jnp.finfo(z.dtype).eps * dot(jnp.where(jnp.isfinite(terms), terms, 0), jnp.abs(z))


@program
def refitted_point(
    objective: AbstractRefittable, threshold: AbstractUnitThreshold, x: Float[Array, "d"], units: Support
) -> RefittedPoint:
    entries = threshold.entries(x, units)
    restricted = objective.restrict(entries)
    z = gather(x, entries)
    fit = restricted.minimise(z, threshold.box(entries))
    refit, free = scatter(fit.z, entries, x.shape[0]), entries.mask & (entries.idx >= objective.n_coefficients)
    free = jax.nn.one_hot(jnp.nonzero(free, size=objective.n_free)[0], z.shape[0], dtype=z.dtype)
    grad = objective.value_and_grad(x, entries)[1]
    return RefittedPoint(
        value=restricted.value(z),
        value0=null_value(objective),
        rounding=rounding_of(restricted, z),
        grad=grad,
        refit=refit,
        refit_value=restricted.value(fit.z),
        refit_grad=objective.value_and_grad(refit, entries)[1],
        removable=dot(gather(grad, entries), z - fit.z),  # F is convex
        curvature=jnp.trace(jax.vmap(restricted.hessian_product(z))(free)) if objective.n_free else jnp.zeros(()),
        singular=fit.singular,
        solved=fit.solved,
        judged=objective.judged(threshold, x, units, jnp.int32(RESULTS.converged)),
    )


def null_value(objective: AbstractRefittable) -> Float[Array, ""]:
    """F without coefficients: far from it, an intercept of zero may have any value."""
    origin = objective.origin()
    if not objective.n_free:
        return objective.value(origin)
    free = objective.n_coefficients + jnp.arange(objective.n_free)
    restricted = objective.restrict(Support(free, jnp.ones(free.shape, bool)))
    return restricted.value(restricted.minimise(origin[free]).z)


@program
def refit_values(
    objective: AbstractRefittable,
    threshold: AbstractUnitThreshold,
    x: Float[Array, "d"],
    units: Support,
    places: Int[Array, "swaps"],
    new: Int[Array, "swaps"],
) -> tuple[Float[Array, "swaps"], Float[Array, "swaps"], Bool[Array, "swaps"], Bool[Array, "swaps"]]:
    """F after each swap, what rounding may do to it, whether the refit ended, and whether its system was singular."""

    def one(place: Int[Array, ""], j: Int[Array, ""]) -> tuple[Array, Array, Array, Array]:
        entries = threshold.entries(x, exchanged(units, place, j))
        restricted = objective.restrict(entries)
        fit = restricted.minimise(gather(x, entries), threshold.box(entries))
        return restricted.value(fit.z), rounding_of(restricted, fit.z), fit.solved, fit.singular

    return jax.vmap(one, axis_name=lane_axis())(places, new)


def exchanged(units: Support, place: Int[Array, ""] | int, j: Int[Array, ""] | int) -> Support:
    idx, mask = jnp.asarray(units.idx), jnp.asarray(units.mask)
    return Support(idx.at[place].set(j), mask.at[place].set(True))
