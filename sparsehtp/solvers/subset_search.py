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
from ..objectives import GramEquations

MAX_SWAPS = 10  # per descent and feature
STRONGEST = 12  # swaps of a perturbation


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
        j = jnp.argmax(gains).astype(jnp.int32)
        t = add(equations.columns, t, j, _priority(equations, gains), jnp.max(gains) > -jnp.inf)
        return t, candidates(t)

    return lax.while_loop(unfinished, body, (t, candidates(t)))[0]


def _priority(equations, gains):
    """Which columns to fetch beside the one that is needed; None where they are at hand."""
    return None if isinstance(equations, GramEquations) else gains


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
        t = swap(equations.columns, t, i, j, _priority(equations, best), improves(t, gain))
        return t, best_swap(t, locked), count + 1

    return lax.while_loop(going, body, (t, best_swap(t, locked), jnp.int32(0)))[0]


def working_set(t: Tableau, locked: int, width: int) -> Int[Array, "w"]:
    """The chosen features and those of the best swaps."""
    return top_k(jnp.where(t.chosen, jnp.inf, best_swap(t, locked)[3]), width)


def perturbed(
    equations: GramEquations,
    t: Tableau,
    features: Int[Array, "w"],
    locked: int,
    starts: int,
    strength: Array,
    key: Array,
) -> Int[Array, "starts m"]:
    """Supports found by descents from randomly perturbed copies of t, within a working set of features.

    `equations` are those of the working set, and the supports index it. A perturbation forces up to `strength` swaps:
    a random feature out, and in the best one of a random part of the others, between a half and a few of them.
    """
    small, width = subtableau(t, features), features.shape[0]
    noise = swap_noise(equations)
    cap = MAX_SWAPS * t.idx.shape[0]
    # All draws in one call: generators are slow to compile.
    draws = jax.random.uniform(key, (starts, STRONGEST, width + 1))

    def start(draws):
        count = 1 + (draws[0, 0] * strength).astype(jnp.int32)
        part = 0.5 ** (1 + draws[1, 0] * max(math.log2(width) - 2, 0))
        barred = jnp.zeros(width, bool)

        def move(number, t, barred):
            """The next swap, whether it is made, and the features that may not come back."""
            draw = draws[jnp.minimum(number, STRONGEST - 1)]
            gains = swap_gains(t, locked)
            forced = number < count
            out = locked + (draw[0] * (t.size - locked)).astype(jnp.int32)
            barred = barred.at[t.idx[out]].set(barred[t.idx[out]] | forced)
            allowed = jnp.where(barred | (draw[1:] >= part), -jnp.inf, gains[out])
            best = jnp.where(forced, allowed, jnp.max(gains, axis=0))
            j = jnp.argmax(best).astype(jnp.int32)
            i = jnp.where(forced, out, jnp.argmax(gains[:, j]).astype(jnp.int32))
            least = jnp.where(forced, -jnp.inf, tolerance("swap", t.c.dtype) * t.value + noise)
            return i, j, best[j] > least, forced, barred

        def going(carry):
            number, _, _, made = carry
            return any_lane(made) & (number < cap)

        def body(carry):
            number, t, barred, _ = carry
            i, j, made, forced, barred = move(number, t, barred)
            return number + 1, swap(equations.columns, t, i, j, None, made), barred, made | forced

        first = jnp.int32(0), small, barred, t.size > locked
        return lax.while_loop(going, body, first)[1].idx

    return jax.vmap(start, axis_name=START)(draws)
