"""Sentences that say what a lower bound proves about a solution."""

import decimal
import math
from typing import NamedTuple

import numpy as np

from .._tolerances import tolerance
from ..duality import no_dual
from ..objectives import AbstractObjective
from ..screening import lower_bound
from ..thresholds import AbstractThreshold

USEFUL = 1.0  # a bound that leaves more than this share of itself open is not worth stating as a percentage


class DualBound(NamedTuple):
    """A lower bound (None: unknown), whether it proves optimality, and a sentence (empty where there is no dual).

    `beside_a_gain` takes the sentence's place where a change is known that gains less than the proof's tolerance.
    """

    lower: float | None
    optimal: bool
    sentence: str
    beside_a_gain: str = ""


NOTHING = DualBound(None, False, "")


def dual_bound(objective: AbstractObjective, threshold: AbstractThreshold, upper: float, dtype: np.dtype) -> DualBound:
    """The lower bound of an objective's dual, and what it says about a feasible value at the tolerance of a dtype."""
    if no_dual(objective, threshold) is not None:
        return NOTHING
    lower = lower_bound(objective, threshold, upper, tolerance("gap", dtype)).lower
    if not math.isfinite(lower):
        return DualBound(None, False, "No useful bound was found: raise l2.")
    gap, tol = upper - lower, 10 * tolerance("gap", dtype)
    if gap <= tol * abs(upper):
        known = f"no other choice lowers the objective by more than {tol:.0e} of its value."
        return DualBound(lower, True, f"Proved optimal: {known}", f"Proved: {known}")
    least = min(abs(lower), abs(upper)) if lower * upper > 0 else 0.0  # that the best can be, either side of zero
    share = gap / least if least else math.inf
    if share <= USEFUL:
        return DualBound(lower, False, f"Its objective is within {in_percent(share)} of the best possible.")
    return DualBound(lower, False, "No useful bound of the best possible objective was found: raise l2.")


def in_percent(share: float) -> str:
    """A share as a percentage of two digits, rounded up so that the claim is never more than is true."""
    two_digits = decimal.Context(prec=2, rounding=decimal.ROUND_CEILING)
    return f"{float(two_digits.create_decimal(100 * share * (1 - 1e-9))):.2g}%"
