"""Step sizes for gradients of single samples and mini-batches."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._types import Scalar
from ..losses.base import positive
from ..objectives import AbstractObjective
from ..objectives.finite_sum import AbstractFiniteSum
from .base import AbstractStep

MOST = 256  # samples of a batch, and batches of a pass


class Smoothness(NamedTuple):
    """The largest smoothness L_i of a sample, and that of the whole, L_F."""

    largest: Float[Array, ""]
    whole: Float[Array, ""]

    def of(self, n: int, batch_size: Int[Array, ""] | int) -> Float[Array, ""]:
        """L(b)."""
        b = jnp.asarray(batch_size, self.largest.dtype)
        single = (n - b) / (b * max(n - 1, 1))
        return single * self.largest + (1 - single) * self.whole


def usual_batch(n: int) -> int:
    """Samples of a mini-batch of n: 256 batches are a pass, until they hold 256."""
    return min(max(n // MOST, 1), MOST)


class SampleStep(AbstractStep):
    """`scale / L(b)` with the smoothness that the gradient of b samples out of n, drawn without replacement, has.

        L(b) = n (b - 1) / (b (n - 1)) L_F + (n - b) / (b (n - 1)) max_i L_i

    L(1) is the largest smoothness L_i of a single sample, which the theorems on stochastic hard thresholding are about
    ([Tight] assumption A2, [HSG] assumption 2), and L(n) that of F. Both together cost a pass over the data at the
    start, which solvers count: L_F is that of some samples if there are more than 512, above the whole's in expectation
    but for a power iteration that may stop early.

    Args:
        scale: multiple of 1/L, positive.
        batch_size: b; one for the theorems. None: `usual_batch` of n, which the solvers take as well.

    Raises:
        TypeError: if the objective has no samples.

    Source: Gower et al. (2019), expected smoothness of b-nice sampling.
    """

    scale: Float[Array, ""] | float
    batch_size: int | None = eqx.field(static=True)
    searches = False

    def __init__(self, scale: Scalar = 1.0, batch_size: int | None = 1) -> None:
        self.scale, self.batch_size = scale, batch_size

    def __check_init__(self) -> None:
        positive("scale", self.scale)

    def init(self, objective: AbstractObjective) -> Float[Array, ""]:
        if not isinstance(objective, AbstractFiniteSum):
            raise TypeError(f"step: SampleStep needs samples, and {type(objective).__name__} has none.")
        n = objective.n_samples
        b = min(usual_batch(n) if self.batch_size is None else self.batch_size, n)
        largest = objective.sample_smoothness() if b < n else jnp.zeros((), objective.dtype)
        found = Smoothness(largest, objective.rough_lipschitz() if b > 1 else largest)
        return jnp.asarray(self.scale / found.of(n, b), objective.dtype)

    def smoothness(self, objective: AbstractFiniteSum) -> Smoothness:
        return Smoothness(objective.sample_smoothness(), objective.rough_lipschitz())

    def factor(self, smoothness: Smoothness, n: int, batch_size: Int[Array, ""]) -> Float[Array, ""]:
        own = usual_batch(n) if self.batch_size is None else min(self.batch_size, n)
        return smoothness.of(n, own) / smoothness.of(n, batch_size)

    def start_ifo(self, objective: AbstractObjective) -> int:
        return objective.n_samples if isinstance(objective, AbstractFiniteSum) else 0
