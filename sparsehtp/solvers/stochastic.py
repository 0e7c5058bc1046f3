"""The base of the stochastic solvers, and stochastic hard thresholding.

One step of the driver is one epoch or stage. Value and gradient norm at its end come from one product with the data
that is not counted in `ifo`, except where the next stage starts from it.
"""

from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, UInt

from .._types import Factors, Info, Support
from ..iteration.termination import SmallGradient, SmallStep
from ..losses.base import positive
from ..objectives import AbstractFiniteSum
from ..steps import AbstractStep, At, SampleStep
from ..steps.sample import usual_batch
from ..thresholds import AbstractThreshold
from .base import AbstractSolver, first_support, report

SORTED = 2**12  # as many are permuted by sorting
ROUNDS = 4

Kept: TypeAlias = tuple[Array, Support | Factors]  # an iterate and its support
Sweep: TypeAlias = tuple[Array, Support | Factors, Array, Array]  # and SAGA's table with its mean


class StochasticState(NamedTuple):
    """x with its support, forward product and gradient; `memory` is what the solver carries between epochs."""

    x: Array
    support: Support | Factors
    forward: Array
    grad: Array
    step_size: Array
    memory: PyTree
    key: Array


Epoch: TypeAlias = tuple[StochasticState, Info]  # what a step gives


class AbstractStochastic(AbstractSolver):
    """A solver that draws samples; batches follow from the key and the step number alone."""

    step_rule: eqx.AbstractVar[AbstractStep]

    batch_size: eqx.AbstractVar[int | None]

    requires = AbstractFiniteSum
    default_termination = SmallStep() & SmallGradient()
    default_max_steps = 200

    @classmethod
    def takes(cls, threshold: AbstractThreshold) -> bool:
        return not threshold.penalises

    def batch(self, objective: AbstractFiniteSum) -> int:
        """Samples of a mini-batch."""
        usual = usual_batch(objective.n_samples, objective.n_coefficients)
        return usual if self.batch_size is None else self.batch_size

    def check(self, objective: AbstractFiniteSum, threshold: AbstractThreshold) -> None:
        super().check(objective, threshold)
        if self.batch_size is not None and self.batch_size > objective.n_samples:
            raise ValueError(
                f"batch_size: is {self.batch_size}, but there are only {objective.n_samples} samples; lower it."
            )
        if isinstance(self.step_rule, SampleStep) and not objective.smooth:
            raise TypeError(
                f"step: {objective.loss_name} has no finite smoothness to take a step size from; pass "
                "ConstantStep(size) or ScheduleStep(...)."
            )

    def init(
        self, objective: AbstractFiniteSum, threshold: AbstractThreshold, x0: Array, key: Array
    ) -> StochasticState:
        x, _ = threshold(x0)
        forward = objective.forward(x)
        grad = objective.grad_at(forward, x)
        size = self._rule(objective).init(objective).astype(x.dtype)
        memory = self.remember(objective, x, forward)
        return StochasticState(x, first_support(threshold, x, grad), forward, grad, size, memory, key)

    def start_ifo(self, objective: AbstractFiniteSum) -> int:
        """Gradients of single samples that the step's size costs."""
        return self._rule(objective).start_ifo(objective)

    def _rule(self, objective: AbstractFiniteSum) -> AbstractStep:
        return self.step_rule.for_batch(self.batch(objective))

    def remember(self, objective: AbstractFiniteSum, x: Array, forward: Array) -> PyTree:
        """The memory at the start."""
        return ()

    def size(self, objective: AbstractFiniteSum, state: StochasticState, t: Int[Array, ""]) -> Float[Array, ""]:
        """Step size of epoch t."""
        return self.step_rule.propose(objective, At(state.forward, state.grad, None, state.step_size, t))

    def finish(
        self,
        objective: AbstractFiniteSum,
        threshold: AbstractThreshold,
        old: StochasticState,
        new: StochasticState,
        t: Array,
        ifo: Array | float,
        thresholds: Array | int,
    ) -> Epoch:
        """The state, with its product and gradient, and the Info after an epoch that ends at `new`."""
        forward = objective.forward(new.x, threshold.entries(new.x, new.support))
        value = objective.value_at(forward, new.x)
        new = new._replace(forward=forward, grad=objective.grad_at(forward, new.x))
        info = report(objective, threshold, old, new, value=value, hard_thresholds=thresholds)
        start = jnp.where(t == 0, float(self.start_ifo(objective)), 0)
        return new, info._replace(ifo=jnp.asarray(ifo + start, value.dtype))


def check_sampling(step: AbstractStep, batch_size: int | None, steps: int | None, name: str) -> None:
    """ValueError unless a step rule and sizes suit a stochastic solver."""
    if step.searches:
        raise ValueError(
            f"step: {type(step).__name__} searches, which the noise of samples misleads; use ConstantStep, SampleStep "
            "or ScheduleStep."
        )
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size: must be at least 1, got {batch_size}.")
    if steps is not None and steps < 1:
        raise ValueError(f"{name}: must be at least 1, got {steps}.")


def draw(key: Array, n: int, batch_size: int, steps: int, replacement: bool) -> Int[Array, "steps b"]:
    """Mini-batches of samples.

    With replacement every index is uniform and independent. Without it, random permutations are cut into batches (the
    remainder of each is left out): a batch holds no sample twice, nor does a pass.
    """
    if replacement:
        return jax.random.randint(key, (steps, batch_size), 0, n, dtype=jnp.int32)
    per_pass = n // batch_size
    passes = -(-steps // per_pass)
    permutations = jax.vmap(permuted, (0, None))(jax.random.split(key, passes), n)
    return permutations[:, : per_pass * batch_size].reshape(-1, batch_size)[:steps]


def permuted(key: Array, n: int) -> Int[Array, "n"]:
    """A random permutation of 0, ..., n - 1.

    Many are not sorted, which takes most of a pass over the data: their bits are mixed, by bijections of all numbers of
    so many bits, until they are below n.
    """
    if n <= SORTED:
        return jax.random.permutation(key, jnp.arange(n, dtype=jnp.int32))
    bits = (n - 1).bit_length()
    mask = jnp.uint32(2**bits - 1)
    drawn = jax.random.bits(key, (ROUNDS, 2), jnp.uint32)

    def mix(x: UInt[Array, "n"]) -> UInt[Array, "n"]:
        for odd, more in drawn:
            x = (x * (odd | 1) + more) & mask
            x = x ^ (x >> (bits // 2))
        return x

    def outside(x: UInt[Array, "n"]) -> Bool[Array, "n"]:
        return x >= n

    start = mix(jnp.arange(n, dtype=jnp.uint32))
    x = lax.while_loop(lambda x: jnp.any(outside(x)), lambda x: jnp.where(outside(x), mix(x), x), start)
    return x.astype(jnp.int32)


def into_ball(x: Float[Array, "d"], radius: Float[Array, ""] | float | None, n_free: int) -> Float[Array, "d"]:
    """x with its coefficients scaled into the ball of a radius (None: no ball)."""
    if radius is None:
        return x
    p = x.shape[0] - n_free
    scale = 1 / jnp.maximum(1, jnp.linalg.norm(x[:p]) / jnp.asarray(radius, x.dtype))
    return x.at[:p].multiply(scale) if n_free else x * scale


class StochasticHT(AbstractStochastic):
    """Stochastic hard thresholding: x <- H_k(x - eta grad f_B(x)) for random mini-batches B.

    Also known as SG-HT [HSG] and StoIHT. One step is an epoch of `epoch` mini-batches, with as many thresholdings and
    `epoch * batch_size` calls of the incremental first-order oracle (IFO).

    Args:
        step: a `ConstantStep`, `SampleStep` or `ScheduleStep` (of the epoch). None: `SampleStep(0.5)`.
        batch_size: samples per mini-batch; the papers have 1. None: n // 256, at least 1, and at most 256 or
            2^17 / p, whichever is more.
        epoch: mini-batches per epoch. None: n // batch_size.
        replacement: draw with replacement; False: random permutations cut into batches.

    Returns the best epoch's end. Work per mini-batch: two products with its rows, and a top-k over p.

    Guarantee: linear convergence in expectation to within the noise of single gradients at the solution, for restricted
    condition numbers up to 4/3 (Nguyen et al., in [HSG] table 1). A constant step does not converge below that noise:
    use a `ScheduleStep` or a solver that reduces variance.

    Raises:
        ValueError: for a searching step or sizes below one; for more than n samples in a batch, when solving.
        TypeError: when solving, if the default step meets a loss without finite smoothness.

    Source: Nguyen, Needell and Woolf (2017); SG-HT in [HSG].
    """

    step_rule: AbstractStep
    batch_size: int | None = eqx.field(static=True)
    epoch: int | None = eqx.field(static=True)
    replacement: bool = eqx.field(static=True)

    returns_best = True

    def __init__(
        self,
        step: AbstractStep | None = None,
        batch_size: int | None = None,
        epoch: int | None = None,
        replacement: bool = True,
    ) -> None:
        self.step_rule = SampleStep(0.5) if step is None else step
        self.batch_size, self.epoch, self.replacement = batch_size, epoch, replacement

    def __check_init__(self) -> None:
        check_sampling(self.step_rule, self.batch_size, self.epoch, "epoch")

    def step(
        self, objective: AbstractFiniteSum, threshold: AbstractThreshold, state: StochasticState, t: Array
    ) -> Epoch:
        n, samples = objective.n_samples, objective.samples()
        b = self.batch(objective)
        steps = n // b if self.epoch is None else self.epoch
        size = self.size(objective, state, t)
        batches = draw(jax.random.fold_in(state.key, t), n, b, steps, self.replacement)

        def inner(carry: Kept, i: Int[Array, "b"]) -> tuple[Kept, None]:
            x, _ = carry
            return threshold(x - size * samples.grad(x, i), size), None

        (x, support), _ = lax.scan(inner, (state.x, state.support), batches)
        new = state._replace(x=x, support=support, step_size=size)
        return self.finish(objective, threshold, state, new, t, steps * b, steps)


class SVRGHT(AbstractStochastic):
    """Hard-thresholded SVRG: stages of x <- H_k(x - eta (grad f_B(x) - grad f_B(x~) + grad F(x~))).

    Also known as HT-SVRG [Tight] and SVR-GHT. x~ is the point where the stage starts. One step is a stage: one full
    gradient, whose n scores are kept, and m mini-batches, so n + m `batch_size` IFO calls (implementations that compute
    grad f_B(x~) again count n + 2 m `batch_size`) and m thresholdings. With a random iterate a stage ends at the
    drawn one, since the later ones would not be used, and the counts are those of what was done; it may also stay where
    it is, so stop such a run by its gradient (as the default does), never by `SmallStep` alone.

    Args:
        step: a `ConstantStep`, `SampleStep` or `ScheduleStep` (of the stage). None: `SampleStep(1/8)`.
            [Tight]'s experiments take 2 / lam_max(X X'), which is `ConstantStep(scale=2 / n)` for the squared loss
            without l2; it suits n < p and is about p / n too small for n much larger than p.
        inner_steps: m. None: 3 n // batch_size, as in the experiments of [Tight].
        batch_size: samples per mini-batch, as in `StochasticHT`.
        random_iterate: start the next stage from an inner iterate drawn uniformly from x^0, ..., x^(m-1), as in
            Algorithm 1; False: from the last one, x^m.
        radius: omega; coefficients are scaled into the ball of this radius after each thresholding. None: no ball.
        replacement: draw with replacement; False: random permutations cut into batches.

    Guarantee: with eta = 1/(8L), m = 4(8c - 1), k = 8c(8c - 1)K and a random iterate, linear convergence to the best
    K-sparse point up to the gradient there, c = L/alpha with L the restricted smoothness of single samples
    ([Tight] Corollary 15); see `theory`. Any eta < 1/(4L) with m large enough ([Tight] Theorem 10).

    Raises:
        ValueError: for a searching step, sizes below one or a radius that is not positive; for more than n samples in a
            batch, when solving.
        TypeError: when solving, if the default step meets a loss without finite smoothness.

    Source: [Tight] Algorithm 1; Li et al. (2016).
    """

    step_rule: AbstractStep
    radius: Float[Array, ""] | float | None
    inner_steps: int | None = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)
    random_iterate: bool = eqx.field(static=True)
    replacement: bool = eqx.field(static=True)

    def __init__(
        self,
        step: AbstractStep | None = None,
        inner_steps: int | None = None,
        batch_size: int | None = None,
        random_iterate: bool = False,
        radius: float | None = None,
        replacement: bool = True,
    ) -> None:
        self.step_rule = SampleStep(0.125) if step is None else step
        self.inner_steps, self.batch_size = inner_steps, batch_size
        self.random_iterate, self.radius, self.replacement = random_iterate, radius, replacement

    def __check_init__(self) -> None:
        check_sampling(self.step_rule, self.batch_size, self.inner_steps, "inner_steps")
        if self.radius is not None:
            positive("radius", self.radius)

    @classmethod
    def theory(cls, objective: AbstractFiniteSum, K: int, strong_convexity: float) -> tuple["SVRGHT", int]:
        """The solver and the k of [Tight] Corollary 15.

        eta = 1/(8L), m = 4(8c - 1), k = 8c(8c - 1)K with c = L/alpha and L = max_i L_i over all directions, an upper
        bound of the restricted constant. These are sufficient, and far from what works in practice: k is often > p.

        Args:
            objective: concrete.
            K: sparsity of the target.
            strong_convexity: alpha > 0, restricted to k + K coefficients.
        """
        positive("strong_convexity", strong_convexity)
        c = max(float(objective.sample_smoothness()) / float(strong_convexity), 1.0)
        m = int(np.ceil(4 * (8 * c - 1)))
        solver = cls(SampleStep(0.125), inner_steps=m, batch_size=1, random_iterate=True)
        return solver, int(np.ceil(8 * c * (8 * c - 1) * K))

    def step(
        self, objective: AbstractFiniteSum, threshold: AbstractThreshold, state: StochasticState, t: Array
    ) -> Epoch:
        n, samples = objective.n_samples, objective.samples()
        b = self.batch(objective)
        m = 3 * n // b if self.inner_steps is None else self.inner_steps
        size = self.size(objective, state, t)
        batch_key, stop_key = jax.random.split(jax.random.fold_in(state.key, t))
        batches = draw(batch_key, n, b, m, self.replacement)
        anchor = samples.scores_at(state.forward)
        constant = state.grad - samples.penalty_grad(state.x)

        def inner(j: Int[Array, ""], carry: Kept) -> Kept:
            x, _ = carry
            i = batches[j]
            change = samples.mean_gradient(samples.scores(x, i) - anchor[i], i)
            x, support = threshold(x - size * (change + samples.penalty_grad(x) + constant), size)
            return into_ball(x, self.radius, objective.n_free), support

        stop = jax.random.randint(stop_key, (), 0, m, dtype=jnp.int32) if self.random_iterate else m
        x, support = lax.fori_loop(0, stop, inner, (state.x, state.support))
        new = state._replace(x=x, support=support, step_size=size)
        return self.finish(objective, threshold, state, new, t, n + stop * float(b), stop)


class SAGAHT(AbstractStochastic):
    """Hard-thresholded SAGA: x <- H_k(x - eta (grad f_B(x) - table_B + mean of the table)), and the table renewed in B.

    Also known as HT-SAGA [Tight]. The mean is over the table before its update. The table holds one score per sample
    (per sample and response), not gradients; l2 is never stored. One step is an epoch of n // batch_size mini-batches,
    with n IFO calls more in the first for the table; the mean is renewed from the table at every epoch, so that its
    rounding does not build up.

    Args:
        step: a `ConstantStep`, `SampleStep` or `ScheduleStep` (of the epoch). None: `SampleStep(1/3)`.
        batch_size: samples per mini-batch, as in `StochasticHT`.
        replacement: draw with replacement, for batches of one sample; False: random permutations cut into batches.
            None: True for batches of one sample, else False.

    Guarantee: linear convergence if the minimiser without the constraint is k-sparse, for k large enough and
    eta = 1/(2(alpha n + L)) ([Tight] Theorem 22).

    Raises:
        ValueError: for a searching step, sizes below one, or larger batches drawn with replacement (a sample met twice
            would enter the mean twice); for more than n samples in a batch, when solving.
        TypeError: when solving, if the default step meets a loss without finite smoothness.

    Source: [Tight] Algorithm 2.
    """

    step_rule: AbstractStep
    batch_size: int | None = eqx.field(static=True)
    replacement: bool | None = eqx.field(static=True)

    def __init__(
        self, step: AbstractStep | None = None, batch_size: int | None = None, replacement: bool | None = None
    ) -> None:
        self.step_rule = SampleStep(1 / 3) if step is None else step
        self.batch_size, self.replacement = batch_size, replacement

    def __check_init__(self) -> None:
        check_sampling(self.step_rule, self.batch_size, None, "epoch")
        if self.replacement and self.batch_size != 1:
            raise ValueError(
                "replacement: mini-batches of SAGAHT are drawn without; leave it None, or pass batch_size=1."
            )

    def remember(self, objective: AbstractFiniteSum, x: Array, forward: Array) -> Array:
        return objective.samples().scores_at(forward)

    def step(
        self, objective: AbstractFiniteSum, threshold: AbstractThreshold, state: StochasticState, t: Array
    ) -> Epoch:
        n, samples = objective.n_samples, objective.samples()
        b = self.batch(objective)
        steps, replacement = n // b, b == 1 if self.replacement is None else self.replacement
        size = self.size(objective, state, t)
        batches = draw(jax.random.fold_in(state.key, t), n, b, steps, replacement)

        def inner(carry: Sweep, i: Int[Array, "b"]) -> tuple[Sweep, Array | None]:
            x, _, table, mean = carry
            scores = samples.scores(x, i)
            change = samples.mean_gradient(scores - table[i], i)
            kept = threshold(x - size * (change + mean + samples.penalty_grad(x)), size)
            # A sample that comes once an epoch may be written at its end: within, the table would be copied each time.
            written = (table.at[i].set(scores), None) if replacement else (table, scores)
            return (*kept, written[0], mean + change * (b / n)), written[1]

        carry = (state.x, state.support, state.memory, samples.mean_gradient(state.memory))
        (x, support, table, _), scores = lax.scan(inner, carry, batches)
        if scores is not None:
            table = table.at[batches.ravel()].set(scores.reshape(-1, *table.shape[1:]))
        ifo = steps * b + jnp.where(t == 0, float(n), 0)
        new = state._replace(x=x, support=support, step_size=size, memory=table)
        return self.finish(objective, threshold, state, new, t, ifo, steps)
