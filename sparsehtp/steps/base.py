"""The interface of a step-size rule."""

import abc
from typing import TYPE_CHECKING, ClassVar

import equinox as eqx
from jaxtyping import Array, Float, Int

from .._types import Support
from ..objectives import AbstractObjective


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

    @abc.abstractmethod
    def propose(
        self,
        objective: AbstractObjective,
        forward: Float[Array, "m"],
        grad: Float[Array, "d"],
        entries: Support | None,
        previous: Float[Array, ""],
        t: Int[Array, ""] | int,
    ) -> Float[Array, ""]:
        """Step size to try at step t, from the forward product and the gradient at the current point.

        `entries` holds the coordinates along which the step is expected to move; None: along all of `grad`.
        """
