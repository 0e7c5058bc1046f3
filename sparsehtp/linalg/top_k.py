"""The only call site of `lax.top_k`."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int


def top_k(scores: Float[Array, "p"], k_max: int) -> Int[Array, "k_max"]:
    """Indices of the `k_max` largest scores, largest first; ties take the lower index.

    NaN counts as infinite, so that it stays in what is kept: by itself `lax.top_k` ranks it by its sign, and that of
    infinity minus infinity is negative.
    """
    return lax.top_k(jnp.where(jnp.isnan(scores), jnp.inf, scores), k_max)[1].astype(jnp.int32)
