"""Rows, weights and l2 as users give them: arrays of the right shape, or one sentence."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._meshes import check_axes
from .._types import ArrayLike, DType, check_finite, host, imported, is_concrete


def vector(name: str, value: ArrayLike, n: int, dtype: DType, c: int | None = None) -> Array:
    """(n,) finite numbers, or (n, c), or ValueError."""
    value = imported(value)
    check_axes(name, value)
    value = jnp.asarray(value, dtype)
    shape, each = ((n,), "one per row of the data") if c is None else ((n, c), "one value per row of X and response")
    if value.shape != shape:
        raise ValueError(f"{name}: needs shape {shape}, {each}, got {value.shape}.")
    check_finite(name, value)
    return value


def weight_vector(value: ArrayLike, n: int, dtype: DType) -> Array:
    """Weights whose sum the dtype can hold: those of an extreme size are divided by a power of two."""
    if is_concrete(value):
        value = host(imported(value))
        largest = np.max(value, initial=0) if value.dtype.kind == "f" else 1.0
        if np.isfinite(largest) and largest > 0 and not 1e-20 < largest < 1e20:
            value = np.ldexp(value, -np.frexp(largest)[1])
    return vector("sample_weight", value, n, dtype)


def check_l2(l2: Array, p: int) -> None:
    """ValueError for an l2 of another shape, or one that is known and not finite and >= 0."""
    if l2.shape not in ((), (p,)):
        raise ValueError(f"l2: needs a scalar or one value per feature ({p}), got shape {l2.shape}.")
    check_finite("l2", l2)
    if is_concrete(l2) and np.min(host(l2)) < 0:
        raise ValueError(f"l2: must be >= 0, got {np.min(host(l2))}.")


def check_weights(sample_weight: Array) -> None:
    """ValueError for weights that are known and not >= 0 and somewhere positive."""
    if is_concrete(sample_weight):
        weights = host(sample_weight)
        if np.min(weights) < 0:
            raise ValueError(f"sample_weight: must be >= 0, got {np.min(weights)}.")
        if np.max(weights) == 0:
            raise ValueError("sample_weight: all weights are zero; at least one sample must count.")
