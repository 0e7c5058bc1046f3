"""What a lower bound proves, in words; and the certificate of a penalised problem."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._programs import program
from .._tolerances import tolerance
from ..duality import Dual, no_dual
from ..objectives.base import gather
from ..screening import lower_bound
from ..solvers.cdss import CDSSState, best_swap

USEFUL = 1.0  # a bound that leaves more than this share of itself open is not worth stating as a percentage


class Proof(NamedTuple):
    """A lower bound (None: unknown), whether it proves optimality, and a sentence (empty where there is no dual).

    `beside_a_gain` takes the sentence's place where a change is known that gains less than the proof's tolerance.
    """

    lower: float | None
    optimal: bool
    sentence: str
    beside_a_gain: str = ""


NOTHING = Proof(None, False, "")


def proof_of(objective: Any, threshold: Any, upper: float, dtype: Any) -> Proof:
    """The lower bound of an objective's dual, and what it says about a feasible value at the tolerance of a dtype."""
    if no_dual(objective, threshold) is not None:
        return NOTHING
    lower = lower_bound(objective, threshold, upper, tolerance("gap", dtype)).lower
    if not math.isfinite(lower):
        return Proof(None, False, "No useful bound was found: raise l2.")
    gap, tol = upper - lower, 10 * tolerance("gap", dtype)
    if gap <= tol * abs(upper):
        known = f"no other choice lowers the objective by more than {tol:.0e} of its value."
        return Proof(lower, True, f"Proved optimal: {known}", f"Proved: {known}")
    share = gap / abs(lower) if lower else math.inf
    if share <= USEFUL:
        return Proof(lower, False, f"Its objective is within {_percent(share)} of the best possible.")
    return Proof(lower, False, "No useful bound of the best possible objective was found: raise l2.")


def _percent(share):
    rounded = float(f"{100 * share:.1e}")
    # Up, so that the claim is never more than is true.
    rounded = rounded if rounded >= 100 * share else rounded + 10.0 ** (math.floor(math.log10(rounded)) - 1)
    return f"{rounded:.2g}%"


class Penalised(NamedTuple):
    """A point under `L0L1L2`: its value, and how much one swap (the others held) gains."""

    value: float
    stationary: bool
    gain: float
    swap: tuple[int, int] | None


def penalised_point(objective: Any, threshold: Any, x: Any, dtype: Any) -> Penalised:
    """Value, stationarity and best swap of a point in the solver's units, at the tolerance of a dtype."""
    value, slope, scale, found = jax.device_get(_penalised(objective, threshold, jnp.asarray(x)))
    enough = tolerance("swap", dtype) * abs(float(value))
    improves = float(found.gain) > enough
    stationary = float(slope) <= tolerance("gradient", dtype) * 10 * float(scale)
    gain = float(found.gain) if improves else 0.0
    return Penalised(float(value), stationary, gain, (int(found.out), int(found.new)) if improves else None)


@program
def _penalised(objective, threshold, x):
    dual = Dual(objective, threshold)
    eta = objective.forward(x)
    grad = objective.grad_at(eta, x)
    support = threshold.support(x[: objective.n_coefficients])
    value = dual.primal(eta, x)
    no, one = jnp.zeros((), bool), jnp.ones((), x.dtype)
    state = CDSSState(x, support, value, grad, dual.energies(), dual.centres(), no, no, one)
    zero = jnp.zeros_like(x)
    scale = jnp.linalg.norm(objective.grad_at(objective.forward(zero), zero))
    slope = jnp.linalg.norm(gather(threshold.free_gradient(x, grad), support))
    return value, slope, scale, best_swap(dual, state)


def penalised_statement(point: Penalised, proof: Proof) -> str:
    """What is known about a penalised point, in words."""
    parts = []
    if not point.stationary:
        parts.append(
            "The coefficients are not optimal for the chosen features: fitting them again lowers the objective."
        )
    if point.swap is not None:
        out, new = point.swap
        parts.append(f"Exchanging feature {out} for feature {new} lowers the objective by {point.gain:.3g}.")
    elif not proof.optimal:
        parts.append("Locally optimal: no exchange of one feature for another, the others held, lowers the objective.")
    return " ".join([*parts, proof.sentence or "The dual gives no bound: it needs l2 > 0 and a conjugate loss."])
