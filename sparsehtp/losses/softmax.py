"""The softmax (multinomial logistic) loss."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import AnyArray, ArrayLike, DType, HostArray, is_concrete
from .base import AbstractVectorLoss


class Softmax(AbstractVectorLoss):
    """l(eta, y) = log sum_j exp(eta_j) - eta_y for class labels y in 0, ..., c - 1 and one prediction per class.

    For `MultiResponse`. The gradient is Lipschitz with constant 1/2. A constant added to all predictions changes
    nothing, so that coefficients are determined up to that without l2.

    Args:
        n_classes: c, at least 2; static.

    Raises:
        ValueError: if n_classes is below 2.
    """

    n_classes: int = eqx.field(static=True)
    classification = True
    shift_invariant = True
    smoothness = 0.5

    def __check_init__(self) -> None:
        if self.n_classes < 2:
            raise ValueError(f"n_classes: must be at least 2, got {self.n_classes}.")

    def n_responses(self, y: AnyArray) -> int:
        return self.n_classes

    def targets(self, y: ArrayLike, n: int, dtype: DType) -> Array:
        y = y if isinstance(y, jax.Array) else np.asarray(y)
        if y.shape != (n,):
            raise ValueError(f"Y: Softmax needs shape ({n},), one class per row of X, got {y.shape}.")
        return jnp.asarray(y) if not is_concrete(y) or y.dtype.kind not in "iub" else jnp.asarray(y, jnp.int32)

    def check_targets(self, y: HostArray) -> None:
        if y.dtype.kind not in "iu" or np.any((y < 0) | (y >= self.n_classes)):
            raise ValueError(
                f"Y: Softmax({self.n_classes}) needs integer classes 0 to {self.n_classes - 1}; recode the labels, or "
                'use SparseClassifier(loss="softmax"), which takes any.'
            )

    def draw_targets(self, eta: Float[HostArray, "n c"], rng: np.random.Generator) -> HostArray:
        return np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)

    def value(self, eta: Float[Array, "n c"], y: Array) -> Float[Array, "n"]:
        own = jnp.take_along_axis(eta, y[:, None], axis=1)[:, 0]
        return jax.nn.logsumexp(eta, axis=1) - own

    def derivative(self, eta: Float[Array, "n c"], y: Array) -> Float[Array, "n c"]:
        return jax.nn.softmax(eta, axis=1) - jax.nn.one_hot(y, self.n_classes, dtype=eta.dtype)

    def mean(self, eta: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """The probabilities of the classes."""
        return jax.nn.softmax(eta, axis=1)

    def curvature(self, eta: Float[Array, "n c"], y: Array) -> tuple[Float[Array, "n c"], Float[Array, "n c"] | None]:
        p = jax.nn.softmax(eta, axis=1)
        return p, p
