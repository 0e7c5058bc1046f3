"""A dense design that keeps the orientation of the array it is given."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import ArrayLike, replace
from ..linalg import dot
from .base import AbstractDesign


class DenseDesign(AbstractDesign):
    """A dense matrix X of shape (n, p).

    JAX arrays are row-major; a Fortran-ordered NumPy array is kept as its row-major transpose, so neither is copied
    into the other order. Integers and booleans become the default floating dtype.

    Args:
        X: (n, p) NumPy or JAX array, float32 or float64 (float64 needs `jax.enable_x64`); half precision becomes
            float32.

    Raises:
        ValueError: if X is not two-dimensional, has no rows or columns, or is not numeric.
    """

    array: Float[Array, "n p"]  # (p, n) if by_feature
    by_feature: bool = eqx.field(static=True)

    def __init__(self, X: ArrayLike):
        if not hasattr(X, "ndim"):
            X = np.asarray(X)
        if X.ndim != 2:
            raise ValueError(
                f"X: needs two dimensions (samples, features), got shape {X.shape}; X.reshape(-1, 1) makes one feature."
            )
        if 0 in X.shape:
            raise ValueError(f"X: is empty, got shape {X.shape}; pass at least one sample and feature.")
        if isinstance(X, np.ndarray) and X.dtype.kind not in "fiub":
            raise ValueError(f"X: needs real numbers, got dtype {X.dtype}; encode other columns as numbers first.")
        self.by_feature = isinstance(X, np.ndarray) and X.flags.f_contiguous and not X.flags.c_contiguous
        if isinstance(X, np.ndarray):  # copied on the host: JAX would compile a program to copy, or share the memory
            X = jax.device_put(np.array(X.T if self.by_feature else X, order="C"))
        array = jnp.asarray(X)
        if not jnp.issubdtype(array.dtype, jnp.floating):
            array = array.astype(float)
        self.array = array if jnp.finfo(array.dtype).bits >= 32 else array.astype(jnp.float32)

    @property
    def shape(self):
        return self.array.shape[::-1] if self.by_feature else self.array.shape

    @property
    def dtype(self):
        return self.array.dtype

    def mv(self, w):
        return dot(w, self.array) if self.by_feature else dot(self.array, w)

    def rmv(self, r):
        # `r @ X`, never `X.T @ r`: the second is lowered to a strided product, over ten times slower on a CPU.
        return dot(self.array, r) if self.by_feature else dot(r, self.array)

    def columns(self, idx):
        return self.array[idx].T if self.by_feature else self.array[:, idx]

    def subset(self, idx):  # by feature: what is chosen once is read column by column many times
        return replace(self, array=self.array[idx] if self.by_feature else self.array[:, idx].T, by_feature=True)

    def rows(self, i):
        return self.array[:, i].T if self.by_feature else self.array[i]

    def column_norms(self, weights, scale=None):
        array = self.array if scale is None else self.array * (scale[:, None] if self.by_feature else scale)
        return jnp.sqrt(self._reduce(weights, array**2))

    def moments(self, weights):
        # Scaled by the largest magnitude, so that squares neither overflow nor underflow.
        samples = 1 if self.by_feature else 0
        live, array = self._live(weights)
        largest = jnp.max(jnp.abs(array), axis=samples)
        largest = jnp.where(largest > 0, largest, 1)
        scaled = array / jnp.expand_dims(largest, samples)
        mean = self._reduce(weights, scaled)
        around = jnp.where(live, scaled - jnp.expand_dims(mean, samples), 0)
        error = self._reduce(weights, around)  # what rounding left in the mean
        variance = self._reduce(weights, (around - jnp.expand_dims(error, samples)) ** 2)
        return largest * (mean + error), largest * jnp.sqrt(variance)

    def _live(self, weights):
        """Which entries are of rows with a weight, and the array with zeros elsewhere."""
        live = jnp.expand_dims(weights > 0, 0 if self.by_feature else 1)
        return live, jnp.where(live, self.array, 0)

    def magnitudes(self, weights=None):
        array = self.array if weights is None else self._live(weights)[1]
        return jnp.max(jnp.abs(array), axis=1 if self.by_feature else 0)

    def centred(self, shift, constant, weights):
        samples = 1 if self.by_feature else 0

        def less(design, shift):
            return replace(design, array=design.array - jnp.expand_dims(shift, samples))

        once = less(self, shift)
        mean, deviation = once.moments(weights / jnp.sum(weights))
        twice = less(once, jnp.where(jnp.abs(mean) > deviation, mean, 0))
        return replace(twice, array=jnp.where(jnp.expand_dims(constant, samples), 0, twice.array))

    def _reduce(self, weights, array):
        return dot(array, weights) if self.by_feature else dot(weights, array)
