"""Largest eigenvalues by power iteration."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .products import dot

POWER_STEPS = 100


def largest_eigenvalue(
    matvec: Callable[[Array], Array], start: Float[Array, "p"], num_steps: int = POWER_STEPS
) -> Float[Array, ""]:
    """Largest eigenvalue of a positive semidefinite operator by power iteration: an estimate from below."""

    def normalise(v: Float[Array, "p"]) -> Float[Array, "p"]:
        largest = jnp.max(jnp.abs(v))  # squares of what is small are less than any number
        v = jnp.where(largest > 0, v / jnp.where(largest > 0, largest, 1), 1)
        return v / jnp.linalg.norm(v)

    v = lax.fori_loop(0, num_steps, lambda _, v: normalise(matvec(v)), normalise(start))
    return dot(v, matvec(v))


def random_start(p: int, dtype: DTypeLike) -> Float[Array, "p"]:
    """A fixed random starting vector: not orthogonal to any given eigenvector, and the same in every run."""
    return jax.random.normal(jax.random.key(0), (p,), dtype)
