"""Perturbed starts: what they leave out and let in, and the one loop that they share with the search itself."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, UInt32

from ..linalg import START, any_lane, either, max_lane, mixed, one_by_one, uniform

Found = TypeVar("Found")
End = TypeVar("End")

RAREST = 4  # a perturbed start offers 2^-1 to 2^-(1 + RAREST) of what is not chosen
LEAST = 0.3  # of what is chosen is left out on the average, up to all of it


def seed_of(key: Array, t: Array, i: Array) -> UInt32[Array, ""]:
    """The seed of start i in step t."""
    return mixed(jax.random.key_data(key).ravel(), t, i)


def parts(
    seed: UInt32[Array, ""], units: Int[Array, "w"], may_leave: Bool[Array, "w"]
) -> tuple[Bool[Array, "w"], Bool[Array, "w"]]:
    """Which units stay, where they may leave (one at least does), and which are offered; the same for a unit whatever
    the working set holds beside it."""
    leave = LEAST + (1 - LEAST) * uniform(seed, jnp.uint32(2**32 - 1))
    part = 0.5 ** (1 + RAREST * uniform(seed, jnp.uint32(2**32 - 2)))
    draws = uniform(seed, units)
    first = draws == jnp.min(jnp.where(may_leave, draws, 1))
    return may_leave & ~((draws < leave) | first), draws < part


def from_starts(
    search: Callable[[Array], Found],
    end_of: Callable[[Found], End],
    starts: int,
    far: Array,
    count: Array | None = None,
) -> tuple[Found, End]:
    """`search(0)`, from the support itself, and `end_of` the searches 1, 2, ... from perturbed ones (with `far` alone).

    Only the first `count` of them (None: all) need be made. In one loop, one after the other on a CPU and side by side
    elsewhere, so that the search is compiled once.
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

    def body(i: Array, carry: tuple[Found, End]) -> tuple[Found, End]:
        own, ends = carry
        end = search(i)
        ends = jax.tree.map(lambda all_, one: all_.at[i - 1].set(one), ends, end_of(end))  # i = 0: overwritten
        return either(i == 0, end, own), ends

    number = max_lane(jnp.asarray(starts if count is None else count))
    return lax.fori_loop(0, jnp.where(any_lane(far), 1 + number, 1), body, (own, ends))
