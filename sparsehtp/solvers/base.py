"""The interface of a solver, and what the batch solvers share."""

import abc
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .. import objectives
from .._types import Factors, Info, Support
from ..columns import gather
from ..iteration.results import RESULTS
from ..iteration.termination import AbstractTermination, State
from ..linalg import shrink_until
from ..objectives import AbstractObjective
from ..steps import AbstractStep
from ..thresholds import AbstractThreshold

Tried = TypeVar("Tried")


def _public(kind: type[AbstractObjective]) -> str:
    """The names of the objectives of a kind."""
    named = (each for each in vars(objectives).values() if isinstance(each, type) and issubclass(each, kind))
    return ", ".join(sorted(each.__name__ for each in named if not inspect.isabstract(each)))


class AbstractSolver(eqx.Module):
    """An iteration on (objective, threshold), run by the driver.

    A state is a NamedTuple with at least `x`, `support` and `step_size`. One `step` is one iteration (one stage or
    epoch of a stochastic solver); `t` counts steps and is shared by all lanes of a batch. x holds the coefficients as
    the objective's gradient does, in its own units and as one vector (a matrix row by row), and behind them its
    `n_free` entries that are never thresholded, such as an intercept. A threshold comes bound to the objective: called
    on such a vector it returns the nearest one that it allows, and its support.

    "Adding a solver" in the contributing guide is an example; `sparsehtp.testing.check_solver` says what is wrong.
    """

    requires: ClassVar[type[AbstractObjective]]
    needs_curvature: ClassVar[bool] = False  # refits on a support, so the loss must have a second derivative
    needs_smoothness: ClassVar[bool] = False  # takes steps by a Lipschitz constant of the loss's derivative
    lanes_in_turn: ClassVar[bool] = False  # as for an objective
    by_path: ClassVar[bool] = False  # has a `path`, where one run gives a solution for every k

    if TYPE_CHECKING:  # what some hold as a field, which a property could not be

        @property
        def step_rule(self) -> AbstractStep | None:
            """Where step sizes come from; None: there are none to choose."""

    else:
        step_rule = None

    @classmethod
    def takes(cls, threshold: AbstractThreshold) -> bool:
        """True if the solver knows such a structure."""
        return True

    def check(self, objective: AbstractObjective, threshold: AbstractThreshold) -> None:
        """Raise TypeError if the solver does not take this objective, loss or threshold."""
        name = type(self).__name__
        if not isinstance(objective, self.requires):
            raise TypeError(
                f"solver: {name} takes {_public(self.requires)}, not {type(objective).__name__}; leave the solver out, "
                "or use IHT, which takes all."
            )
        if not isinstance(threshold, objective.thresholds):
            raise TypeError(
                f"threshold: {type(objective).__name__} takes {objective.thresholds[0].__name__}(k), got a "
                f"{type(threshold).__name__}."
            )
        if not self.takes(threshold):
            bounds = " with bounds" if threshold.bounded else ""
            raise TypeError(
                f"solver: {name} does not take the threshold {type(threshold).__name__}{bounds}; leave the solver out, "
                "or use IHT, which takes all."
            )
        if self.needs_curvature and not objective.twice_differentiable:
            raise TypeError(
                f"solver: {name} refits on a support, which {objective.loss_name} is not smooth enough for; "
                "use IHT(ScheduleStep(...)) or a smoothed loss."
            )

        if self.needs_smoothness and not objective.smooth:
            raise TypeError(f"loss: {name} needs a smooth loss, and {objective.loss_name} is not; use IHT.")

    @property
    @abc.abstractmethod
    def default_termination(self) -> AbstractTermination:
        """Stopping criteria used when the caller names none."""

    @property
    @abc.abstractmethod
    def default_max_steps(self) -> int:
        """Step limit used when the caller names none."""

    @property
    def returns_best(self) -> bool:
        """True if the iterate with the lowest `score` is returned, False for the last one."""
        return False

    @property
    def unrollable(self) -> bool:
        """True if JAX can differentiate a step in both modes: no inner loop of unknown length, no factorisation."""
        return False

    def score(self, info: Info) -> Array:
        """The score that the returned iterate minimises, where the best one is returned."""
        return info.value

    @abc.abstractmethod
    def init(
        self, objective: AbstractObjective, threshold: AbstractThreshold, x0: Float[Array, "d"], key: Array
    ) -> State:
        """State before the first step."""

    @abc.abstractmethod
    def step(
        self, objective: AbstractObjective, threshold: AbstractThreshold, state: State, t: Array
    ) -> tuple[State, Info]:
        """The next state, and what the step did."""

    def path(self, objective: AbstractObjective, threshold: AbstractThreshold, key: Array) -> "Trail":
        """Solutions for k = 0..threshold.k_max, if the solver is `by_path`; the threshold is bound to the objective.

        Pure and traceable; run it under `jax.vmap(..., axis_name=lane_axis())`.
        """
        raise NotImplementedError(f"solver: {type(self).__name__} solves one k at a time; use solve_path.")


class Trail(NamedTuple):
    """Solutions of one run for every k = 0..k_max, in the solver's units; the leading axis is k.

    Attributes:
        support: entries, in the order free, kept, chosen; all of one length.
        z: the coefficients on the support, zero on padding.
        value: F at the solution.
        result: int32, one of `RESULTS`. Rows past the threshold's k repeat the last solution.
    """

    support: Support
    z: Float[Array, "k m"]
    value: Float[Array, "k"]
    result: Int[Array, "k"]


def first_support(threshold: AbstractThreshold, x: Float[Array, "d"], grad: Float[Array, "d"]) -> Support | Factors:
    """Support of a starting point x: its own, or that of the steepest descent direction -grad where x is zero."""
    chosen = x[: x.shape[0] - threshold.n_free]
    _, support = threshold(jnp.where(jnp.any(chosen != 0), x, -grad))
    return support


def search(
    trial: Callable[[Array], Tried],
    accepted: Callable[[Array, Tried], Array],
    rule: AbstractStep,
    size: Array,
    placeholder: Tried,
    max_tries: int,
) -> tuple[Array, Tried, Array]:
    """The size that a rule ends with, what was tried with it, and the number of tries; see `shrink_until`."""
    if not rule.searches:
        return size, trial(size), jnp.int32(1)
    return shrink_until(accepted, trial, size, placeholder, rule.shrink, max_tries)


def report(
    objective: AbstractObjective,
    threshold: AbstractThreshold,
    old: State,
    new: State,
    *,
    value: Array | None = None,
    grad: Array | None = None,
    entries: Support | None = None,
    fault: Array | int = 0,
    hard_thresholds: Array | int = 1,
    design_products: Array | int = 1,
    gradients: Array | int = 1,
) -> Info:
    """The row of a history for a step from state `old` to `new`.

    Args:
        objective: as `step` has it, and `threshold`.
        value: F at `new.x`, and `grad`, its gradient there; None: those that `new` holds.
        entries: of `new.x`, where they are known.
        fault: one of `RESULTS`, if something went wrong at `new`, or 0.
        hard_thresholds: how often the threshold was called, `design_products` how many products with the data were
            taken, and `gradients` how many full gradients.
    """

    def count(c: Array | int) -> Array:
        return jnp.asarray(c, jnp.int32)

    value, grad = new.value if value is None else value, new.grad if grad is None else grad
    entries = threshold.entries(new.x, new.support) if entries is None else entries
    projected = threshold.tangent(threshold.free_gradient(new.x, grad), new.support)
    projected = projected if entries is None else gather(projected, entries)
    status = jnp.where(threshold.overflow(new.x), RESULTS.support_overflow, fault)
    return Info(
        value=value + threshold.value(new.x),
        grad_norm=jnp.linalg.norm(projected),
        step_norm=jnp.linalg.norm(new.x - old.x),
        step_size=new.step_size,
        support_size=threshold.size(new.support),
        support_changed=threshold.differs(old.support, new.support).astype(jnp.int32),
        ifo=jnp.asarray(gradients, value.dtype) * objective.ifo_per_gradient,
        hard_thresholds=count(hard_thresholds),
        design_products=count(design_products),
        gap=jnp.asarray(jnp.inf, value.dtype),
        status=count(status),
    )
