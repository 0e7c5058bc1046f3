"""A dense design that keeps the orientation of the array it is given."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._meshes import check_axes
from .._types import AnyArray, DType, TableLike, owned, replace
from ..linalg import dot
from .base import AbstractDesign


def subtracts_exactly(a: AnyArray, b: AnyArray, difference: AnyArray) -> AnyArray:
    """Whether a - b was rounded nowhere: where it was, undoing it by the larger of a and b tells."""
    return (difference + b == a) & (a - difference == b)


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

    def __init__(self, X: TableLike) -> None:
        if not hasattr(X, "ndim"):
            X = np.asarray(X)
        check_axes("X", X)
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
            array = owned(X.T if self.by_feature else X, X.dtype if X.dtype.kind == "f" else float)
        else:
            array = jnp.asarray(X)
        if not jnp.issubdtype(array.dtype, jnp.floating):
            array = array.astype(float)
        self.array = array if jnp.finfo(array.dtype).bits >= 32 else array.astype(jnp.float32)

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.array.shape
        return (columns, rows) if self.by_feature else (rows, columns)

    @property
    def dtype(self) -> DType:
        return self.array.dtype

    def mv(self, w: Float[Array, "p"]) -> Float[Array, "n"]:
        return dot(w, self.array) if self.by_feature else dot(self.array, w)

    def rmv(self, r: Float[Array, "n"]) -> Float[Array, "p"]:
        # `r @ X`, never `X.T @ r`: the second is lowered to a strided product, over ten times slower on a CPU.
        return dot(self.array, r) if self.by_feature else dot(r, self.array)

    def columns(self, idx: Int[Array, "m"]) -> Float[Array, "n m"]:
        return self.array[idx].T if self.by_feature else self.array[:, idx]

    def subset(
        self, idx: Int[Array, "m"]
    ) -> "DenseDesign":  # by feature: what is chosen once is read column by column many times
        return replace(self, array=self.array[idx] if self.by_feature else self.array[:, idx].T, by_feature=True)

    def narrowed(self, p: int) -> "DenseDesign":
        array = np.asarray(self.array)
        return replace(self, array=jnp.asarray(array[:p] if self.by_feature else array[:, :p]))

    def rows(self, i: Int[Array, "b"]) -> Float[Array, "b p"]:
        return self.array[:, i].T if self.by_feature else self.array[i]

    def column_norms(self, weights: Float[Array, "n"], scale: Float[Array, "p"] | None = None) -> Float[Array, "p"]:
        array = self._live(weights)[1]  # squares of what has no weight may overflow
        array = array if scale is None else array * (scale[:, None] if self.by_feature else scale)
        return jnp.sqrt(self._reduce(weights, array**2))

    def moments(self, weights: Float[Array, "n"]) -> tuple[Float[Array, "p"], Float[Array, "p"]]:
        # Scaled by the largest magnitude, so that squares neither overflow nor underflow.
        samples = 1 if self.by_feature else 0
        array = self._live(weights)[1]
        largest = jnp.max(jnp.abs(array), axis=samples)
        largest = jnp.where(largest > 0, largest, 1)
        scaled = array / jnp.expand_dims(largest, samples)
        mean = self._reduce(weights, scaled)
        around = scaled - jnp.expand_dims(mean, samples)
        error = self._reduce(weights, around)  # what rounding left in the mean
        variance = self._reduce(weights, (around - jnp.expand_dims(error, samples)) ** 2)
        return largest * (mean + error), largest * jnp.sqrt(variance)

    def _live(self, weights: Float[Array, "n"]) -> tuple[Array, Array]:
        """Which entries are of rows with a weight, and the array with zeros elsewhere."""
        live = jnp.expand_dims(weights > 0, 0 if self.by_feature else 1)
        return live, jnp.where(live, self.array, 0)

    def magnitudes(self, weights: Float[Array, "n"] | None = None) -> Float[Array, "p"]:
        array = self.array if weights is None else self._live(weights)[1]
        return jnp.max(jnp.abs(array), axis=1 if self.by_feature else 0)

    def centred(
        self, shift: Float[Array, "p"], grain: Float[Array, "p"], constant: Bool[Array, "p"], weights: Float[Array, "n"]
    ) -> tuple["DenseDesign", Float[Array, "p"]]:
        samples = 1 if self.by_feature else 0

        def wide(a: Array) -> Array:
            return jnp.expand_dims(a, samples)

        once = replace(self, array=self.array - wide(shift))
        mean, deviation = once.moments(weights / jnp.sum(weights))
        shift = jnp.round(jnp.where(jnp.abs(mean) > deviation, shift + mean, shift) / grain) * grain
        moved = self.array - wide(shift)
        exact = subtracts_exactly(self.array, wide(shift), moved)
        exact = jnp.all(exact | ~self._live(weights)[0], axis=samples) | constant
        array = jnp.where(wide(constant), 0, jnp.where(wide(exact), moved, self.array))
        return replace(self, array=array), jnp.where(exact, shift, 0)

    def _reduce(self, weights: Float[Array, "n"], array: Array) -> Float[Array, "p"]:
        return dot(array, weights) if self.by_feature else dot(weights, array)
