"""Step sizes for gradients of single samples and mini-batches."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Scalar
from ..losses.base import positive
from ..objectives import AbstractObjective
from ..objectives.finite_sum import AbstractFiniteSum
from .base import AbstractStep


class SampleStep(AbstractStep):
    """`scale / L(b)` with the smoothness that the gradient of b samples out of n, drawn without replacement, has.

        L(b) = n (b - 1) / (b (n - 1)) L_F + (n - b) / (b (n - 1)) max_i L_i

    L(1) is the largest smoothness L_i of a single sample, which the theorems on stochastic hard thresholding are about
    ([Tight] assumption A2, [HSG] assumption 2), and L(n) that of F. L_i takes one pass over the data, L_F about 200
    products at the start.

    Args:
        scale: multiple of 1/L, positive.
        batch_size: b; one for the theorems.

    Raises:
        TypeError: if the objective has no samples.

    Source: Gower et al. (2019), expected smoothness of b-nice sampling.
    """

    scale: Float[Array, ""] | float
    batch_size: int = eqx.field(static=True)
    searches = False

    def __init__(self, scale: Scalar = 1.0, batch_size: int = 1) -> None:
        self.scale, self.batch_size = scale, batch_size

    def __check_init__(self) -> None:
        positive("scale", self.scale)

    def init(self, objective: AbstractObjective) -> Float[Array, ""]:
        if not isinstance(objective, AbstractFiniteSum):
            raise TypeError(f"step: SampleStep needs samples, and {type(objective).__name__} has none.")
        n = objective.n_samples
        b = min(self.batch_size, n)
        single = (n - b) / (b * (n - 1)) if n > 1 else 0.0
        largest = single * objective.sample_smoothness() if single else 0.0
        mean = (1 - single) * objective.lipschitz() if single < 1 else 0.0
        return jnp.asarray(self.scale / (largest + mean), objective.dtype)
