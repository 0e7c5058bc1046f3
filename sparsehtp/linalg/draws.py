"""Random numbers for choices that need no statistics: a hash of counters, which compiles in a tenth of the time of
`jax.random`'s and gives each index its number whatever else is drawn."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer, UInt32


def mixed(words: UInt32[Array, "w"], *counters: Int[Array, ""] | int) -> UInt32[Array, ""]:
    """One word from several."""
    seed = jnp.uint32(0)
    for word in [*words, *(jnp.asarray(counter).astype(jnp.uint32) for counter in counters)]:
        seed = _scrambled(seed * jnp.uint32(0x01000193) ^ word)
    return seed


def uniform(seed: UInt32[Array, ""], index: Integer[Array, "..."]) -> Float[Array, "..."]:
    """A number in [0, 1) for every index, float32."""
    index = jnp.asarray(index).astype(jnp.uint32)
    return (_scrambled(_scrambled(index ^ seed) + seed) >> 8).astype(jnp.float32) * 2.0**-24


def _scrambled(word: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """The finaliser of MurmurHash3 by Appleby, a bijection in which every bit of the word moves half of the others."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)
