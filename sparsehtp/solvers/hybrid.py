"""Hybrid stochastic hard thresholding: mini-batches that grow into the full gradient."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from .._types import Factors, HostArray, Support
from ..losses.base import positive
from ..objectives import AbstractFiniteSum
from ..steps import AbstractStep, ConstantStep, SampleStep
from ..thresholds import AbstractThreshold
from ..thresholds.base import next_power_of_two
from .stochastic import AbstractStochastic, Epoch, StochasticState, check_sampling, permuted

LONGEST = 10**7  # iterations until the batch holds all samples: a table of this length is kept

Gradient: TypeAlias = Callable[[Array, Support | Factors, Array, Array], Array]  # at (x, its support, start, size)
Moved: TypeAlias = tuple[Array, Array, Support | Factors]  # an iterate, the one before it, its support


class Batches(NamedTuple):
    """The batch of every iteration until it holds all n samples; static.

    Attributes:
        sizes: s_t = min(n, ceil(first growth^t)).
        starts: where batch t starts in its stage's permutation, modulo n.
        branch: which of `widths` it is padded to.
        widths: powers of two, and n.
    """

    sizes: Int[HostArray, "T"]
    starts: Int[HostArray, "T"]
    branch: Int[HostArray, "T"]
    widths: tuple[int, ...]


class HybridHT(AbstractStochastic):
    """Hybrid stochastic hard thresholding: x <- H_k(x - eta grad f_B(x) + nu (x - x_previous)), with growing batches.

    Also known as HSG-HT, and AHSG-HT with momentum nu > 0 [HSG]. Iteration t draws s_t = ceil(first growth^t) samples
    without replacement, up to all n, from where on it is the full gradient. One step is a stage of `iterations`, which
    share one random permutation: each batch is a window of it, so that a sample comes again only after all others.

    Args:
        step: a `ConstantStep`, `SampleStep` or `ScheduleStep` (of the stage). None: `SampleStep(1/2)`, which grows with
            the batch: at first it is the step of Theorem 2, 1/2 over the smoothness of a single sample, at last 1/2
            over that of F.
        momentum: nu in [0, 1); 0 is HSG-HT.
        growth: factor between batch sizes, above 1 (1/omega in [HSG]). Theory's is so close to 1 that it takes 552,614
            iterations to reach n = 1e5 at a condition number of 100; the paper's experiments use a small one too.
        first: size of the first batch (tau), a number of at least 1.
        iterations: iterations per step; value and stopping criteria are looked at after each step.

    Batches are padded to a power of two, so that an iteration costs less than 2 s_t rows and compiles once per power.

    Guarantee: linear convergence of F to a k*-sparse target with a number of IFO calls that does not depend on n,
    and as many thresholdings as iterations ([HSG] Theorem 2; Theorem 1 for the distance; Theorem 3 with momentum for
    quadratic F, with the square root of the condition number); see `theory`.

    Raises:
        ValueError: for a searching step, a growth of at most 1 or too near to it for n samples, first below 1, momentum
            outside [0, 1), or iterations below 1.
        TypeError: when solving, if the default step meets a loss without finite smoothness.

    Source: [HSG] Algorithm 1.
    """

    step_rule: AbstractStep
    momentum: Float[Array, ""] | float
    batch_size = 1  # the first, of a size of its own
    growth: float = eqx.field(static=True)
    first: float = eqx.field(static=True)
    iterations: int = eqx.field(static=True)

    def __init__(
        self,
        step: AbstractStep | None = None,
        momentum: float = 0.0,
        growth: float = 1.05,
        first: float = 1.0,
        iterations: int = 10,
    ) -> None:
        self.step_rule = SampleStep(0.5) if step is None else step
        self.momentum, self.growth, self.first, self.iterations = momentum, float(growth), float(first), iterations

    def __check_init__(self) -> None:
        check_sampling(self.step_rule, 1, self.iterations, "iterations")
        if not self.growth > 1:
            raise ValueError(f"growth: must be above 1, got {self.growth}; StochasticHT has batches of one size.")
        if not self.first >= 1:
            raise ValueError(f"first: must be at least 1, got {self.first}.")
        if isinstance(self.momentum, float | int) and not 0 <= self.momentum < 1:
            raise ValueError(f"momentum: must be in [0, 1), got {self.momentum}.")

    @classmethod
    def theory(
        cls, objective: AbstractFiniteSum, K: int, strong_convexity: float, theorem: int = 2, first: float = 1.0
    ) -> tuple["HybridHT", int]:
        """The solver and the k of a theorem of [HSG], kappa = ell / rho.

        1: k >= (1 + 712 kappa^2) K, step 1/(6 ell), growth 1/(1 - 1/(480 kappa)); about the distance.
        2: k >= (1 + 64 kappa^2) K, step 1/(2 ell), growth 1/(1 - 1/(16 kappa)); about F, for sparse x.
        3: k >= (1 + 16 kappa) K, step 4/(sqrt ell + sqrt rho)^2, growth (1 - 1/(18 sqrt kappa))^-2, momentum
        ((sqrt kappa - 1)/(sqrt kappa + 1))^2; about the distance, for quadratic F.

        The constants were reconstructed from a damaged text and are consistent with each other; they are sufficient,
        and far from what works in practice. ell = max_i L_i over all directions, an upper bound of the restricted
        constant.

        Args:
            objective: concrete.
            K: sparsity k* of the target.
            strong_convexity: rho > 0, restricted.
            theorem: 1, 2 or 3.
            first: tau; the theorems ask for a multiple of the largest squared deviation of a sample's gradient.
        """
        positive("strong_convexity", strong_convexity)
        rho, ell = float(strong_convexity), float(objective.sample_smoothness())
        kappa = max(ell / rho, 1.0)
        if theorem == 1:
            step, growth, momentum, k = 1 / (6 * ell), 1 / (1 - 1 / (480 * kappa)), 0.0, (1 + 712 * kappa**2) * K
        elif theorem == 2:
            step, growth, momentum, k = 1 / (2 * ell), 1 / (1 - 1 / (16 * kappa)), 0.0, (1 + 64 * kappa**2) * K
        elif theorem == 3:
            root = kappa**0.5
            step, growth = 4 / (ell**0.5 + rho**0.5) ** 2, (1 - 1 / (18 * root)) ** -2
            momentum, k = ((root - 1) / (root + 1)) ** 2, (1 + 16 * kappa) * K
        else:
            raise ValueError(f"theorem: must be 1, 2 or 3, got {theorem}.")
        return cls(ConstantStep(step), momentum, growth, first), int(np.ceil(k))

    def check(self, objective: AbstractFiniteSum, threshold: AbstractThreshold) -> None:
        super().check(objective, threshold)
        self.batches(objective.n_samples)

    def batches(self, n: int) -> Batches:
        """The batches for n samples."""
        steps = np.log(max(n / self.first, 1)) / np.log(self.growth)
        if steps > LONGEST:
            raise ValueError(
                f"growth: {self.growth} takes {steps:.2g} iterations to reach all {n} samples; use a larger one."
            )
        t = np.arange(int(np.ceil(steps)) + 1)
        # The exponential's rounding must not push a whole number over the edge.
        exact = np.minimum(self.first * self.growth**t, n)
        sizes = np.minimum(np.ceil(exact * (1 - 1e-12)), n).astype(np.int32)
        sizes[-1] = n
        padded = np.array([n if s == n else min(next_power_of_two(int(s)), n - 1) for s in sizes])
        widths, branch = np.unique(padded, return_inverse=True)
        stage = t // self.iterations * self.iterations
        before = np.cumsum(sizes, dtype=np.int64) - sizes
        starts = ((before - before[stage]) % n).astype(np.int32)
        return Batches(sizes, starts, branch.astype(np.int32), tuple(int(w) for w in widths))

    def draws(self, key: Array, n: int, iteration: int) -> Int[HostArray, "s"]:
        """The samples of an iteration of the run with this key (concrete)."""
        batches = self.batches(n)
        at = min(iteration, batches.sizes.size - 1)
        order = np.asarray(permuted(jax.random.fold_in(key, iteration // self.iterations), n))
        return order[(batches.starts[at] + np.arange(batches.sizes[at])) % n]

    def start_ifo(self, objective: AbstractFiniteSum) -> int:
        again = objective.smoothness_ifo if self.step_rule.grows_with_batches else 0
        return super().start_ifo(objective) + again

    def remember(self, objective: AbstractFiniteSum, x: Array, forward: Array) -> tuple[Array, PyTree]:
        return x, objective.smoothness() if self.step_rule.grows_with_batches else ()  # the previous iterate

    def step(
        self, objective: AbstractFiniteSum, threshold: AbstractThreshold, state: StochasticState, t: Array
    ) -> Epoch:
        n, samples = objective.n_samples, objective.samples()
        table = self.batches(n)
        sizes, starts, branch = (jnp.asarray(column) for column in table[:3])
        size, momentum = self.size(objective, state, t), jnp.asarray(self.momentum, state.x.dtype)
        order = permuted(jax.random.fold_in(state.key, t), n)
        before, smoothness = state.memory

        def sampled(width: int) -> Gradient:
            def grad(x: Array, support: Support | Factors, start: Array, s: Array) -> Array:
                place = jnp.arange(width, dtype=jnp.int32)
                i = order[(start + place) % n]
                scores = samples.scores(x, i)
                share = jnp.where(place < s, (width / s).astype(x.dtype), 0)
                shared = scores * share.reshape((-1,) + (1,) * (scores.ndim - 1))
                return samples.mean_gradient(shared, i) + samples.penalty_grad(x)

            return grad

        def full(x: Array, support: Support | Factors, start: Array, s: Array) -> Array:
            return objective.grad_at(objective.forward(x, threshold.entries(x, support)), x)

        branches = [full if width == n else sampled(width) for width in table.widths]

        def iterate(carry: Moved, j: Int[Array, ""]) -> tuple[Moved, tuple[Array, Array]]:
            x, previous, support = carry
            at = jnp.minimum(t * self.iterations + j, sizes.shape[0] - 1)
            grad = lax.switch(branch[at], branches, x, support, starts[at], sizes[at])
            eta = jnp.asarray(size * self.step_rule.factor(smoothness, n, sizes[at]), x.dtype)
            new, support = threshold(x - eta * grad + momentum * (x - previous), eta)
            return (new, x, support), (sizes[at], eta)

        carry = (state.x, before, state.support)
        (x, previous, support), (used, etas) = lax.scan(iterate, carry, jnp.arange(self.iterations, dtype=jnp.int32))
        new = state._replace(x=x, support=support, step_size=size, memory=(previous, smoothness))
        count = jnp.sum(used, dtype=x.dtype)
        new, info = self.finish(objective, threshold, state, new, t, count, self.iterations)
        return new, info._replace(step_size=etas[-1])
