"""Shared by the searches over subsets: their state, how large a model is, when it is renewed, the best of refits."""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, PyTree

from .._types import Support
from ..linalg import any_lane, either, one_by_one
from ..objectives import AbstractObjective

Model = TypeVar("Model")

# What the next step does where the last one failed: nothing else, try swaps one by one, start from perturbed supports.
DESCEND, SINGLE, PERTURB = 0, 1, 2
SWAPS = 8  # of a local model that are refitted one by one in a step
GRAM_PRODUCTS = 2**33  # at most, for the matrix of a model, unless it has FEWEST entries
FEWEST = 128


class SearchState(NamedTuple):
    """The best point so far with its gradient, the units chosen there, and how the search for a better one stands."""

    x: Array
    support: Support
    value: Array
    grad: Array
    step_size: Array
    fault: Array
    chosen: Bool[Array, "units"]
    stage: Array  # DESCEND, SINGLE or PERTURB
    failures: Array  # steps of perturbed starts since the last improvement
    optimal: Array
    model: PyTree  # of F, that moves are made in
    stale: Array  # the point has left the model's
    key: Array

    def progressed(self, improved: Array, moved: Array, far: Array, sure: Array, patience: int) -> "SearchState":
        """The state for the step after one that moved in the model, or improved F; with `far` from perturbed starts.
        The search ends after `patience` of these, where the model is sure that no swap gains."""
        failures = jnp.where(improved, 0, self.failures + far)
        stage = jnp.where(improved, DESCEND, jnp.where(moved, SINGLE, PERTURB)).astype(jnp.int32)
        return self._replace(stage=stage, failures=failures, optimal=sure & ~moved & ~improved & (failures >= patience))


def first_state(
    objective: AbstractObjective, x0: Array, support: Support, chosen: Bool[Array, "units"], model: PyTree, key: Array
) -> SearchState:
    """The state before the first step, which refits the units chosen."""
    zero, no = jnp.zeros((), objective.dtype), jnp.zeros((), bool)
    return SearchState(
        x=x0,
        support=support,
        value=zero + jnp.inf,
        grad=jnp.zeros_like(x0),
        step_size=zero + 1,
        fault=jnp.int32(0),
        chosen=chosen,
        stage=jnp.int32(DESCEND),
        failures=jnp.int32(0),
        optimal=no,
        model=model,
        stale=~no,
        key=key,
    )


def renewed(stale: Array, build: Callable[[], Model], model: Model) -> Model:
    """The model, built anew where it is stale."""
    return lax.cond(any_lane(stale), lambda: either(stale, build(), model), lambda: model)


def affordable(width: int, rows: int) -> int:
    """The entries, `width` at most, whose Gram matrix over so many rows is soon computed."""
    return min(width, max(FEWEST, math.isqrt(GRAM_PRODUCTS // max(rows, 1))))


class Point(NamedTuple):
    """A refit of F on the units `where`, which every search names in its own way."""

    where: PyTree
    x: Array
    value: Array
    fault: Array


def best_of(fitted: Callable[[Array], Point], candidates: Array) -> Point:
    """The best of the refits of several candidates."""
    if candidates.shape[0] == 1:
        return fitted(candidates[0])
    # Where lanes share no hardware refits of one after the other take their columns through the cache once.
    points = lax.map(fitted, candidates) if one_by_one() else jax.vmap(fitted)(candidates)
    i = jnp.argmin(jnp.where(jnp.isfinite(points.value), points.value, jnp.inf))
    return jax.tree.map(lambda a: a[i], points)
