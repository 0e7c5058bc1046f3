"""How the lanes of a batch run: branches that all take together, and kernels that take them one by one."""

import contextlib
import functools
import itertools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from .._programs import platform

P = ParamSpec("P")
T = TypeVar("T")

START = "start"  # the perturbed starts of one problem


def lane_axis(level: int = 0) -> str:
    """The name of an axis of lanes in the driver's batch: that of the innermost `vmap` is at level 0."""
    return f"lane {level}"


def max_lane(number: Int[Array, ""]) -> Int[Array, ""]:
    """The largest of a number over the driver's lanes (and any start); the number itself outside of both."""
    with contextlib.suppress(NameError):  # where it is not bound
        number = lax.pmax(number, START)
    with contextlib.suppress(NameError):  # further out no lanes are bound
        for level in itertools.count():
            number = lax.pmax(number, lane_axis(level))
    return number


def any_lane(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """True if `flag` holds in any lane of the driver's batch (and any start); the flag itself outside of both.

    A predicate that is the same for all lanes keeps `lax.cond` a branch; a per-lane one would become a select that
    pays for both sides at every step.
    """
    return max_lane(flag.astype(jnp.int32)) > 0


def one_by_one() -> bool:
    """True where lanes share no hardware, so that they had better run one after the other: on a CPU."""
    return platform() == "cpu"


_sequential = functools.cache(jax.custom_batching.sequential_vmap)


def lane_by_lane(function: Callable[P, T]) -> Callable[P, T]:
    """The function of arrays, which under `vmap` takes one lane after the other on a CPU."""
    return _sequential(function) if one_by_one() else function


def either(flag: Bool[Array, ""], new: T, old: T) -> T:
    """One of two pytrees of the same shapes; on a CPU copied by a branch, where a select of every leaf is a kernel."""
    if not one_by_one():
        return jax.tree.map(lambda a, b: jnp.where(flag, a, b), new, old)
    new = jax.tree.map(lambda a, b: jnp.asarray(a, jnp.result_type(a, b)), new, old)
    old = jax.tree.map(lambda a, b: jnp.asarray(b, a.dtype), new, old)
    return lax.cond(flag, lambda: lax.optimization_barrier(new), lambda: lax.optimization_barrier(old))
