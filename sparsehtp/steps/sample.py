"""Step sizes for gradients of single samples and mini-batches."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._types import Scalar
from ..losses.base import positive
from ..objectives import AbstractObjective
from ..objectives.finite_sum import AbstractFiniteSum, Smoothness
from .base import AbstractStep

BATCHES = 256  # of a pass, at least
MOST = 256  # samples of a batch, unless they are so narrow
ENOUGH = 2**17  # that so many numbers are more: below, a step costs more than its products


def usual_batch(n: int, p: int) -> int:
    """Samples of a mini-batch of n with p numbers each."""
    return min(max(n // BATCHES, 1), max(MOST, ENOUGH // p))


class SampleStep(AbstractStep):
    """`scale / L(b)` with the smoothness that the gradient of b samples out of n, drawn without replacement, has.

        L(b) = n (b - 1) / (b (n - 1)) L_F + (n - b) / (b (n - 1)) max_i L_i

    L(1) is the largest smoothness L_i of a single sample, which the theorems on stochastic hard thresholding are about
    ([Tight] assumption A2, [HSG] assumption 2), and L(n) that of F. Both cost about a pass over many dense samples at
    the start, for L_F is estimated from some, drawn by their size; ten products with the data where rows are sparse,
    and 200 where there are at most 512. Solvers count it.

    Args:
        scale: multiple of 1/L, positive.
        batch_size: b; one for the theorems. None: that of the solver.

    Raises:
        TypeError: if the objective has no samples.
        ValueError: for a scale that is not positive, or a batch below 1.

    Source: Gower et al. (2019), expected smoothness of b-nice sampling.
    """

    scale: Scalar = 1.0
    batch_size: int | None = eqx.field(static=True, default=None)
    searches = False
    grows_with_batches = True

    def __check_init__(self) -> None:
        positive("scale", self.scale)
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size: must be at least 1, got {self.batch_size}.")

    def init(self, objective: AbstractObjective) -> Float[Array, ""]:
        if not isinstance(objective, AbstractFiniteSum):
            raise TypeError(f"step: SampleStep needs samples, and {type(objective).__name__} has none.")
        n = objective.n_samples
        b = self._batch(n)
        return jnp.asarray(self.scale / _of(self._found(objective), n, b), objective.dtype)

    def _batch(self, n: int) -> int:
        return 1 if self.batch_size is None else min(self.batch_size, n)

    def _single(self, n: int) -> bool:
        return self._batch(n) == 1 < n

    def _found(self, objective: AbstractFiniteSum) -> Smoothness:
        if not self._single(objective.n_samples):
            return objective.smoothness()
        largest = objective.sample_smoothness()
        return Smoothness(largest, largest)  # which counts for nothing

    def for_batch(self, batch_size: int) -> "SampleStep":
        return SampleStep(self.scale, batch_size) if self.batch_size is None else self

    def factor(self, smoothness: Smoothness, n: int, batch_size: Int[Array, ""]) -> Float[Array, ""]:
        return _of(smoothness, n, self._batch(n)) / _of(smoothness, n, batch_size)

    def start_ifo(self, objective: AbstractFiniteSum) -> int:
        return objective.n_samples if self._single(objective.n_samples) else objective.smoothness_ifo


def _of(smoothness: Smoothness, n: int, batch_size: Int[Array, ""] | int) -> Float[Array, ""]:
    """L(b)."""
    b = jnp.asarray(batch_size, smoothness.largest.dtype)
    single = (n - b) / (b * max(n - 1, 1))
    return single * smoothness.largest + (1 - single) * smoothness.whole
