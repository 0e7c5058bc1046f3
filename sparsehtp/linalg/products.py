"""Matrix products whose results decide a support, at full precision on every device."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array


def dot(a: Array, b: Array) -> Array:
    """`a @ b` at the highest precision of the dtype (a GPU's tf32 default silently changes supports)."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
