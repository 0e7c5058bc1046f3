"""The interface of a step-size rule."""

import abc
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Int

from .._types import Support
from ..objectives import AbstractFiniteSum, AbstractObjective
from ..objectives.finite_sum import Smoothness


class At(NamedTuple):
    """Where a step starts.

    Attributes:
        forward: the forward product there.
        grad: the gradient there.
        entries: the coordinates along which the step is expected to move; None: all.
        size: the last step's size.
        t: number of the step.
    """

    forward: Float[Array, "m"]
    grad: Float[Array, "d"]
    entries: Support | None
    size: Float[Array, ""]
    t: Int[Array, ""] | int


class AbstractStep(eqx.Module):
    """A rule for the step size of a gradient step.

    A searching rule proposes a size that the solver shrinks by `shrink` until the step is accepted; the others are
    taken as they are.
    """

    searches: ClassVar[bool]
    descends: ClassVar[bool] = True  # False for a subgradient method, whose steps may raise the objective
    grows: ClassVar[bool] = False  # proposes more than the last accepted size without a look at the curvature

    if TYPE_CHECKING:  # fields of a searching rule

        @property
        def shrink(self) -> Float[Array, ""] | float:
            """Factor on a size that is refused."""

    @abc.abstractmethod
    def init(self, objective: AbstractObjective) -> Float[Array, ""]:
        """Step size before the first step."""

    grows_with_batches: ClassVar[bool] = False  # has a `factor` of its own

    def for_batch(self, batch_size: int) -> "AbstractStep":
        """The rule for mini-batches of so many samples, where it has not been told."""
        return self

    def factor(self, smoothness: Smoothness, n: int, batch_size: Int[Array, ""]) -> Float[Array, ""] | float:
        """Multiple of the size, for a batch of so many of n samples."""
        return 1.0

    def start_ifo(self, objective: AbstractFiniteSum) -> int:
        """Gradients of single samples that `init` costs, where a solver counts them."""
        return 0

    def propose(self, objective: AbstractObjective, at: At) -> Float[Array, ""]:
        """Step size to try next; the last one, unless a rule says another."""
        return at.size
