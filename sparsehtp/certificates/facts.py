"""Facts about a solution, and the sentences that say them."""

from collections.abc import Callable
from typing import NamedTuple

from .dual_bound import NOTHING, DualBound

EXCHANGE = "exchanging one chosen {0} for another"
UNDECIDED = "Whether the coefficients are optimal for the chosen {0}s cannot be told at this precision."


class Facts(NamedTuple):
    """Facts about a solution; None where unknown.

    Attributes:
        value: F at the solution, plus the penalty of `L0L1L2`.
        sentences: what says the facts in words.
        proof: what the dual proves.
        gain, swap, stationary, necessary: see `Certificate`.
        why: why the gain is unknown, as a clause.
        noun: what a unit is called.
        tol: share of the value that does not count as a gain.
        enough: what an exchange must gain to count.
        slack: what a refit, or the move of one coefficient alone, must gain to count.
        rounding: what rounding may do to the value.
        digit: what rounding of the intercept in original units may have added to the value.
        every_subset: the exchanges lead to all the subsets there are.
        convex: a refit finds the least objective of a subset, wherever it starts.
    """

    value: float
    sentences: "Callable[[Facts], list[str]]"
    proof: DualBound = NOTHING
    gain: float | None = None
    swap: tuple[int | None, int | None] | None = None
    stationary: bool | None = None
    necessary: bool | None = None
    why: str = ""
    noun: str = "feature"
    tol: float = 0.0
    enough: float = 0.0
    slack: float = 0.0
    rounding: float = 0.0
    digit: float = 0.0
    every_subset: bool = False
    convex: bool = True


def of_a_value(facts: Facts) -> list[str]:
    """The sentence where the coefficients cannot be refitted."""
    return [_unknown(facts), facts.proof.sentence]


def of_a_penalised_point(facts: Facts) -> list[str]:
    """The sentence under `L0L1L2`, where an exchange holds the other coefficients."""
    parts = []
    if facts.stationary is None:
        parts.append(UNDECIDED.format(facts.noun))
    elif not facts.stationary:
        parts.append(
            "The coefficients are not optimal for the chosen features: fitting them again lowers the objective."
        )
    if facts.swap is not None:
        parts.append(f"{_change(facts.noun, *facts.swap)}, the others held, lowers the objective by {facts.gain:.3g}.")
    elif facts.gain is None:
        parts.append(_unknown(facts))
    elif not facts.proof.optimal:
        parts.append(
            f"{'Locally optimal: no' if facts.stationary else 'No'} feature that is added, left out or exchanged for "
            f"another, the others held, lowers the objective (by more than {_margin(facts)})."
        )
    return [*parts, facts.proof.sentence or "The dual gives no bound: it needs l2 > 0 and a conjugate loss."]


def of_refits(facts: Facts) -> list[str]:
    """The sentence where an exchange fits all coefficients again."""
    parts, proof = _of_coefficients(facts), facts.proof
    if facts.gain is None:
        parts.append(_unknown(facts))
    elif facts.swap is not None:
        parts.append(_of_a_gain(facts, facts.gain, *facts.swap))
    elif facts.every_subset and facts.stationary and facts.convex:
        parts.append(
            f"This is the best subset of its size: none of the others, all of them tried, lowers the objective "
            f"(by more than {_margin(facts)})."
        )
    else:
        parts.append(
            f"No exchange of one chosen {facts.noun} for another lowers the objective (by more than "
            f"{_margin(facts)}), with all coefficients fitted again."
            if facts.convex
            else f"No refit from here with one chosen {facts.noun} exchanged for another lowers the objective (by more "
            f"than {_margin(facts)}); from elsewhere one may, unless the objective is convex."
        )
        if not proof.optimal:
            parts.append("This does not prove that it is the best subset.")
    if facts.necessary is False and not facts.gain:
        least = min(facts.enough, facts.slack / 2)
        parts.append(
            f"A necessary condition of the best subset fails (by more than {least:.1e}), so a better one exists."
        )
    elif facts.gain is None and not proof.optimal:
        parts.append("Nothing here proves that it is the best subset.")
    return [*parts, (facts.gain and proof.beside_a_gain) or proof.sentence]


def _margin(facts: Facts) -> str:
    """The least gain of an exchange that counts, rounded up."""
    if facts.enough <= facts.tol * abs(facts.value) * (1 + 1e-9):
        return f"{facts.tol:.0e} of its value"
    return f"{1.05 * facts.enough:.1e}, the rounding of the objective without features"


def _unknown(facts: Facts) -> str:
    return f"Whether {EXCHANGE.format(facts.noun)} would lower the objective is unknown, since {facts.why}."


def _of_coefficients(facts: Facts) -> list[str]:
    noun = facts.noun
    if facts.stationary is None:
        return [UNDECIDED.format(noun)]
    if facts.stationary:
        return []
    if facts.proof.optimal:
        return [f"Refitting the coefficients on the chosen {noun}s lowers the objective a little more."]
    parts = [f"The coefficients are not optimal for the chosen {noun}s: refitting them lowers the objective."]
    if facts.digit > facts.slack:
        parts.append(
            f"Rounding of the intercept alone may cost {facts.digit:.1g}: subtract the columns' means, or use float64."
        )
    return parts


def _change(noun: str, out: int | None, new: int | None) -> str:
    if new is None:
        return f"Leaving out {noun} {out}"
    return f"Adding {noun} {new}" if out is None else f"Exchanging {noun} {out} for {noun} {new}"


def _of_a_gain(facts: Facts, gain: float, out: int | None, new: int | None) -> str:
    size, change = abs(facts.value), _change(facts.noun, out, new)
    share = f" ({gain / size:.2g} of its value)" if gain < 1e3 * size else ""
    return (
        f"{change}, with all coefficients fitted again, lowers the objective by {gain:.3g}{share}, "
        "so this is not the best subset."
    )
