"""Searches over supports on a tableau: forward growth, descent by best swaps, perturbed starts."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from .._tolerances import tolerance
from ..linalg import START, any_lane, top_k
from ..linalg.tableau import Tableau, add, addition_gains, subtableau, swap, swap_gains

MAX_SWAPS = 10  # per descent and feature


def grow(equations: Any, t: Tableau, target: Array, level: Array | int = 0) -> Tableau:
    """Add the best feature of the highest level again and again, until `target` features are in."""

    def candidates(t):
        gains = addition_gains(t)
        usable = (gains > -jnp.inf) & (t.size < target)
        top = jnp.max(jnp.where(usable, level, -1))
        return jnp.where(usable & (level == top), gains, -jnp.inf)

    def unfinished(carry):
        _, gains = carry
        return any_lane(jnp.max(gains) > -jnp.inf)

    def body(carry):
        t, gains = carry
        t = add(equations.columns, t, jnp.argmax(gains).astype(jnp.int32), gains, jnp.max(gains) > -jnp.inf)
        return t, candidates(t)

    return lax.while_loop(unfinished, body, (t, candidates(t)))[0]


def best_swap(t: Tableau, locked: int) -> tuple[Array, Array, Array, Float[Array, "p"]]:
    """Gain, row and feature of the best swap, and the best gain of every feature."""
    gains = swap_gains(t, locked)
    best = jnp.max(gains, axis=0)
    j = jnp.argmax(best).astype(jnp.int32)
    return best[j], jnp.argmax(gains[:, j]).astype(jnp.int32), j, best


def swap_noise(equations: Any) -> Array:
    """Gain of a tableau's value that is below the rounding of the sums of squares."""
    return 10 * jnp.finfo(equations.constant.dtype).eps * equations.constant


def descend(equations: Any, t: Tableau, locked: int, scale: Array | None = None) -> Tableau:
    """Make the best swap until none lowers the tableau's value by more than the tolerance times `scale`.

    `scale` defaults to the value itself.
    """
    dtype, noise = t.c.dtype, swap_noise(equations)
    cap = MAX_SWAPS * t.idx.shape[0]

    def improves(t, gain):
        return gain > tolerance("swap", dtype) * (t.value if scale is None else scale) + noise

    def going(carry):
        t, (gain, *_), count = carry
        return any_lane(improves(t, gain)) & (count < cap)

    def body(carry):
        t, (gain, i, j, best), count = carry
        t = swap(equations.columns, t, i, j, best, improves(t, gain))
        return t, best_swap(t, locked), count + 1

    return lax.while_loop(going, body, (t, best_swap(t, locked), jnp.int32(0)))[0]


def working_set(t: Tableau, locked: int, width: int) -> Int[Array, "w"]:
    """The chosen features and those of the best swaps."""
    return top_k(jnp.where(t.chosen, jnp.inf, best_swap(t, locked)[3]), width)


def perturbed(
    equations: Any, t: Tableau, features: Int[Array, "w"], locked: int, starts: int, strength: Array, key: Array
) -> Int[Array, "starts m"]:
    """Supports found by descents from randomly perturbed copies of t, within a working set of features.

    `equations` are those of the working set, and the supports index it. A perturbation forces up to `strength` swaps:
    a random feature out, and in the best one of a random part of the others, between a half and a few of them.
    """
    small = subtableau(t, features)

    def start(key):
        count_key, part_key, key = jax.random.split(key, 3)
        count = jax.random.randint(count_key, (), 1, strength + 1, dtype=jnp.int32)
        part = 0.5 ** jax.random.uniform(part_key, (), minval=1, maxval=max(math.log2(features.shape[0]) - 1, 1.5))

        def force(number, carry):
            t, barred = carry
            row_key, column_key = jax.random.split(jax.random.fold_in(key, number))
            i = jax.random.randint(row_key, (), locked, jnp.maximum(t.size, locked + 1), dtype=jnp.int32)
            barred = barred.at[t.idx[i]].set(True)
            gains = swap_gains(t, locked)[i]
            open_ = ~barred & jax.random.bernoulli(column_key, part, gains.shape)
            gains = jnp.where(open_, gains, -jnp.inf)
            j = jnp.argmax(gains).astype(jnp.int32)
            usable = (number < count) & (t.size > locked) & (gains[j] > -jnp.inf)
            return swap(equations.columns, t, i, j, gains, usable), barred

        forced = lax.while_loop(
            lambda c: any_lane(c[0] < count),
            lambda c: (c[0] + 1, force(c[0], c[1])),
            (jnp.int32(0), (small, jnp.zeros(features.shape[0], bool))),
        )[1][0]
        return descend(equations, forced, locked).idx

    return jax.vmap(start, axis_name=START)(jax.random.split(key, starts))
