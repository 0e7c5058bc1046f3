"""Perturbed starts: what they leave out and let in, and the one loop that they share with the search itself."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from ..linalg import START, any_lane, either, mixed, one_by_one, uniform

# What the next step does where the last one failed: nothing else, try swaps one by one, start from perturbed supports.
DESCEND, SINGLE, PERTURB = 0, 1, 2
RAREST = 5  # a perturbed start offers 2^-1 to 2^-(1 + RAREST) of what is not chosen


def parts(
    key: Array, t: Any, i: Any, units: Int[Array, "w"], may_leave: Bool[Array, "w"]
) -> tuple[Bool[Array, "w"], Bool[Array, "w"]]:
    """Which units stay, where they may leave (one at least does), and which are offered; the same for a unit whatever
    the working set holds beside it."""
    seed = mixed(jax.random.key_data(key).ravel(), t, i)
    leave, part = uniform(seed, jnp.uint32(2**32 - 1)), 0.5 ** (1 + RAREST * uniform(seed, jnp.uint32(2**32 - 2)))
    draws = uniform(seed, units)
    first = draws == jnp.min(jnp.where(may_leave, draws, 1))
    return may_leave & ~((draws < leave) | first), draws < part


def from_starts(search: Callable[[Any], Any], end_of: Callable[[Any], Any], starts: int, far: Array) -> tuple[Any, Any]:
    """`search(0)`, from the support itself, and `end_of` the searches 1, 2, ... from perturbed ones (with `far` alone).

    In one loop, one after the other on a CPU and side by side elsewhere, so that the search is compiled once.
    """
    if not starts:
        own = search(jnp.int32(0))
        return own, jax.tree.map(lambda a: a[None][:0], end_of(own))
    if not one_by_one():
        every = jax.vmap(search, axis_name=START)(jnp.arange(starts + 1))
        return jax.tree.map(lambda a: a[0], every), jax.tree.map(lambda a: a[1:], jax.vmap(end_of)(every))
    shapes = jax.eval_shape(search, jnp.int32(0))
    own = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    ends = jax.tree.map(lambda a: jnp.zeros((starts, *a.shape), a.dtype), jax.eval_shape(end_of, shapes))

    def body(i: Any, carry: Any) -> Any:
        own, ends = carry
        end = search(i)
        ends = jax.tree.map(lambda all_, one: all_.at[i - 1].set(one), ends, end_of(end))  # i = 0: overwritten
        return either(i == 0, end, own), ends

    return lax.fori_loop(0, jnp.where(any_lane(far), starts + 1, 1), body, (own, ends))
