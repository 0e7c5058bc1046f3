"""When to stop: criteria that name themselves when they fire, joined by `|` and `&`."""

import abc
from typing import ClassVar, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._tolerances import tolerance
from .._types import Info
from .results import FIRED

State: TypeAlias = PyTree  # a solver's own NamedTuple; what a criterion reads of it, the solvers that it is for have
Memory: TypeAlias = PyTree  # what a criterion carries from step to step


class AbstractTermination(eqx.Module):
    """A stopping criterion with a memory.

    `__call__` returns the new memory and a code: 0 to go on, else the `FIRED` bits of the criteria that hold.
    """

    @abc.abstractmethod
    def init(self, state: State) -> Memory:
        """Memory before the first step, from the solver's first state."""

    @abc.abstractmethod
    def __call__(
        self, memory: Memory, previous: State, state: State, info: Info, t: Int[Array, ""]
    ) -> tuple[Memory, Int[Array, ""]]:
        """New memory, and 0 or the criteria that fired."""

    def __or__(self, other: "AbstractTermination") -> "AbstractTermination":
        return Either(self, other)

    def __and__(self, other: "AbstractTermination") -> "AbstractTermination":
        return Both(self, other)


class _Pair(AbstractTermination):
    together: ClassVar[bool]
    first: AbstractTermination
    second: AbstractTermination

    def init(self, state: State) -> Memory:
        return self.first.init(state), self.second.init(state)

    def __call__(
        self, memory: Memory, previous: State, state: State, info: Info, t: Int[Array, ""]
    ) -> tuple[Memory, Int[Array, ""]]:
        first, a = self.first(memory[0], previous, state, info, t)
        second, b = self.second(memory[1], previous, state, info, t)
        return (first, second), jnp.where((a > 0) & (b > 0), a | b, 0) if self.together else a | b


class Either(_Pair):
    """Fires when at least one of two criteria fires."""

    together = False


class Both(_Pair):
    """Fires when two criteria fire at the same step."""

    together = True


class _Criterion(AbstractTermination):
    fires: ClassVar[FIRED]

    def init(self, state: State) -> Memory:
        return ()

    def __call__(
        self, memory: Memory, previous: State, state: State, info: Info, t: Int[Array, ""]
    ) -> tuple[Memory, Int[Array, ""]]:
        holds = self._holds(memory, state, info, t)
        return self._renewed(memory, state, t), jnp.where(holds, jnp.int32(self.fires), 0)

    @abc.abstractmethod
    def _holds(self, memory: Memory, state: State, info: Info, t: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether it is met after step t."""

    def _renewed(self, memory: Memory, state: State, t: Int[Array, ""]) -> Memory:
        return memory


class _Relative(_Criterion):
    tol: Float[Array, ""] | float | None = None

    def _tol(self, name: str, dtype: DTypeLike) -> Float[Array, ""] | float:
        return tolerance(name, dtype) if self.tol is None else self.tol


class Never(_Criterion):
    """Never fires: a run takes all of its `max_steps`."""

    fires = FIRED.none

    def _holds(self, memory: Memory, state: State, info: Info, t: Int[Array, ""]) -> Bool[Array, ""]:
        return jnp.zeros((), bool)


class StableSupport(_Criterion):
    """The support is the same after two steps in a row; only for solvers that minimise exactly on the support."""

    fires = FIRED.StableSupport

    def _holds(self, memory: Memory, state: State, info: Info, t: Int[Array, ""]) -> Bool[Array, ""]:
        return (info.support_changed == 0) & (t > 0)


class SmallStep(_Relative):
    """||x_t - x_{t-1}|| <= tol ||x_t||.

    Args:
        tol: relative tolerance; None: 1e-6 in float32, 1e-10 in float64.
    """

    fires = FIRED.SmallStep

    def _holds(self, memory: Memory, state: State, info: Info, t: Int[Array, ""]) -> Bool[Array, ""]:
        tol = self._tol("step", state.x.dtype)
        return info.step_norm <= tol * jnp.linalg.norm(state.x)


class SmallGradient(_Relative):
    """The gradient on the support is at most `tol` times the full gradient at the start.

    Args:
        tol: relative tolerance; None: 1e-5 in float32, 1e-8 in float64.
    """

    fires = FIRED.SmallGradient

    def init(self, state: State) -> Memory:
        return jnp.linalg.norm(state.grad)

    def _holds(self, memory: Memory, state: State, info: Info, t: Int[Array, ""]) -> Bool[Array, ""]:
        return info.grad_norm <= self._tol("gradient", state.x.dtype) * memory


class DualGap(_Relative):
    """Primal minus dual value at most `tol` times the absolute value.

    Args:
        tol: relative tolerance; None: 1e-5 in float32, 1e-8 in float64.
    """

    fires = FIRED.DualGap

    def _holds(self, memory: Memory, state: State, info: Info, t: Int[Array, ""]) -> Bool[Array, ""]:
        return info.gap <= self._tol("gap", state.x.dtype) * jnp.abs(info.value)


class SwapOptimal(_Criterion):
    """No single swap of two features improves, and no restarts are left; for solvers that search by swaps."""

    fires = FIRED.SwapOptimal

    def _holds(self, memory: Memory, state: State, info: Info, t: Int[Array, ""]) -> Bool[Array, ""]:
        return state.optimal


class Complete(_Criterion):
    """The support is full, or no other feature helps; for solvers that grow a support from nothing."""

    fires = FIRED.Complete

    def _holds(self, memory: Memory, state: State, info: Info, t: Int[Array, ""]) -> Bool[Array, ""]:
        return state.complete


class Cycle(_Relative):
    """The iterate returns to an earlier one while steps stay large: a cycle of any period of at least two.

    Brent's method: the iterates are compared with one stored at a power of two, so a cycle of period r is found within
    about 3 max(r, start) steps. "Returns" means a distance below `tol` times the step norm.

    Args:
        tol: relative tolerance; None: 1e-4 in float32, 1e-7 in float64.
    """

    fires = FIRED.Cycle

    def init(self, state: State) -> Memory:
        return state.x, jnp.int32(1)

    def _holds(self, memory: Memory, state: State, info: Info, t: Int[Array, ""]) -> Bool[Array, ""]:
        distance = jnp.linalg.norm(state.x - memory[0])
        # A step to the stored iterate itself is a fixed point, not a cycle: its step norm is the distance.
        return (distance <= self._tol("cycle", state.x.dtype) * info.step_norm) & (info.step_norm > 0)

    def _renewed(self, memory: Memory, state: State, t: Int[Array, ""]) -> Memory:
        reference, due = memory
        renew = t + 1 >= due
        return jnp.where(renew, state.x, reference), jnp.where(renew, 2 * due, due)
