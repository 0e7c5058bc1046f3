"""How a run ended: result codes with their sentences, criteria that fired, and the solution itself."""

import enum
from typing import NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .._types import Info, is_concrete, serialised


class RESULTS(enum.IntEnum):
    """How a run ended. `solution.result` is an int32 array that compares equal to these members."""

    running = 0
    converged = 1
    max_steps = 2
    cycle = 3
    nonfinite = 4
    singular = 5
    support_overflow = 6
    invalid = 7
    stalled = 8

    @property
    def sentence(self) -> str:
        """One sentence for a person."""
        return _SENTENCES[self]


_SENTENCES = {
    RESULTS.running: "The solver was still running.",
    RESULTS.converged: "The stopping criteria were met.",
    RESULTS.max_steps: (
        "The step limit was reached before the stopping criteria were met, in the solver or in a refit on its support; "
        "raise max_steps, loosen the tolerances, smooth the kinks of a loss, or add l2 if the minimum may lie at "
        "infinity."
    ),
    RESULTS.cycle: "The iterates repeat in a cycle; use a smaller step size or another solver.",
    RESULTS.nonfinite: (
        "The objective, its gradient or the iterate became infinite or NaN, and the last finite iterate is returned; "
        "use a smaller step size, scale the data, add l2, or start from another x0."
    ),
    RESULTS.singular: (
        "The problem restricted to the chosen support is singular (collinear or too many features), "
        "and its minimum-norm solution is returned; add l2 or lower k."
    ),
    RESULTS.support_overflow: "More units survive the threshold than k_max allows; raise k_max.",
    RESULTS.stalled: (
        "The search ended where your function has no minimum: its gradient is not small (a kink, or no curvature), or "
        "it curves downwards; use a smooth function that has a minimum, another start x0, or IHT; to maximise F, "
        "minimise -F."
    ),
    RESULTS.invalid: "The traced k is below the smallest (0; 1 of a Simplex), whose solution this is; pass a larger k.",
}


class FIRED(enum.IntFlag):
    """Stopping criteria that held when the run stopped, as a set of bits."""

    none = 0
    StableSupport = 1
    SmallStep = 2
    SmallGradient = 4
    DualGap = 8
    Cycle = 16
    SwapOptimal = 32
    Complete = 64

    @property
    def sentence(self) -> str:
        """Names of the criteria, joined by 'and'."""
        return " and ".join(member.name or "" for member in FIRED if member in self) or "none"


FAULTS = (RESULTS.nonfinite, RESULTS.singular, RESULTS.support_overflow, RESULTS.invalid)


SETTLED = FIRED.StableSupport | FIRED.SwapOptimal | FIRED.Complete  # supports that were looked at


class SolveError(RuntimeError):
    """A concrete solve ended in a nonfinite or singular state; raised only with `throw=True`."""


@serialised
class Solution(NamedTuple):
    """The result of `solve`; under `vmap` each field has a leading axis.

    Attributes:
        x: (p,) coefficients in original units ((p, c) for `MultiResponse`, a pytree for `Custom`).
        intercept: scalar, or (c,); 0 without an intercept; never penalised, thresholded or counted in k.
        support: units that the threshold kept, free entries left out; padded, see `Support`. For `Rank`, `Factors` of
            the (standardised) coefficients.
        value: F(x) + threshold.value(x).
        result: int32, one of `RESULTS`.
        fired: int32, the stopping criteria that held, see `FIRED`.
        num_steps: int32, steps taken.
        best_step: int32, step (from 0) that produced `x`, which is its row in a history with `every=1`; -1: the start.
        history: `Info` with one row per recorded step, or None. Rows past num_steps are padding.
        state: the solver's last state, in the solver's own units; what `jax.export` is to write leaves it out
            (`solution._replace(state=None)`).
        key: the PRNG key the run used.
        support_margin: how near a change of the support is, as a share of the smallest chosen score: 1 if no other unit
            would come in, 0 at a tie, negative if a gradient step would change the support; see `solve`.
        free: (n_free,) the free entries of the solver's x: the intercept of a predictor about the means of the columns,
            from which `intercept` is made.
        intercept_rounding: what rounding of `intercept` adds to F at most, about: F at `x` and `intercept` as they are
            may be that much above `value`. 0 where it is less than the rounding of F itself.
        start_value: F(x) + threshold.value(x) before the first row of `history`: at x0, which most solvers threshold,
            and local searches take as it is, or fit first.
    """

    x: PyTree
    intercept: Float[Array, "..."]
    support: PyTree  # a Support, or Factors
    value: Float[Array, ""]
    result: Int[Array, ""]
    fired: Int[Array, ""]
    num_steps: Int[Array, ""]
    best_step: Int[Array, ""]
    history: Info | None
    state: PyTree
    key: Array
    support_margin: Float[Array, ""] | None = None
    free: Float[Array, "n_free"] | None = None
    intercept_rounding: Float[Array, ""] | None = None
    start_value: Float[Array, ""] | None = None

    def checked(self) -> Self:
        """This solution, which raises where `result` is nonfinite, singular, support_overflow or invalid.

        Inside `jit` too, when the compiled program runs, and under `vmap` if any lane has such a fault; use what is
        returned, or the check is compiled away.

        Raises:
            RuntimeError: with the sentence of the first fault. Inside `jax.jit` it is an error of JAX's runtime, of a
                type that depends on the device, and holds the sentence; `eqx.filter_jit` makes a RuntimeError of it.
        """
        sentences = [f"{fault.name}: {fault.sentence}" for fault in FAULTS]
        if is_concrete(self.result):  # float64 too, wherever it was computed
            for fault, sentence in zip(FAULTS, sentences, strict=True):
                if np.any(np.asarray(self.result) == fault):
                    raise RuntimeError(sentence)
            return self
        failed = jnp.stack([jnp.any(self.result == fault) for fault in FAULTS])
        # Typed keys do not go through callbacks.
        fields = {name: value for name, value in self._asdict().items() if name not in ("key", "state")}
        return self._replace(**eqx.branched_error_if(fields, failed.any(), jnp.argmax(failed), sentences))

    def describe(self) -> str:
        """One sentence on how the run ended (concrete, single solutions only)."""
        result = RESULTS(int(self.result))
        fired = FIRED(int(self.fired)).sentence
        criteria = f" ({fired})" if result is RESULTS.converged else ""
        text = f"{result.name} after {int(self.num_steps)} steps{criteria}: {result.sentence}"
        margin = 0.0 if self.support_margin is None else float(self.support_margin)
        if result is RESULTS.converged and not int(self.fired) & SETTLED and margin < 0:
            text += (
                f" Its steps were too short to leave this support, which a step by the curvature of F would "
                f"(support_margin {margin:.2g}): go on from here (x0) with HTP or BestSubset."
            )
        return text
