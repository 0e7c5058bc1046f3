"""What a sample says of a statement: estimates with intervals, and decisions that only an interval makes."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.stats import binomtest, t

ALPHA = 0.05  # of every interval: 95%


class Undecided(NamedTuple):
    """Neither confirmed nor refuted.

    Attributes:
        need: what it would take to decide, as a phrase.
    """

    need: str


Decision = bool | Undecided


class Estimate(Protocol):
    """A number known up to sampling."""

    @property
    def value(self) -> float:
        """Its estimate."""

    def interval(self, alpha: float) -> tuple[float, float]:
        """Bounds that hold it with probability 1 - alpha."""


class Share(NamedTuple):
    """A probability, from `hits` of `trials`, independent; Wilson's interval."""

    hits: float
    trials: int

    @property
    def value(self) -> float:
        """The share of hits."""
        return self.hits / self.trials

    def interval(self, alpha: float) -> tuple[float, float]:
        """Wilson's interval."""
        found = binomtest(round(self.hits), self.trials).proportion_ci(1 - alpha, "wilson")
        return float(found.low), float(found.high)


class Lead(NamedTuple):
    """The difference of two probabilities; Newcombe's interval, too wide if anything where the trials are shared."""

    first: Share
    second: Share

    @property
    def value(self) -> float:
        """The difference of the shares."""
        return self.first.value - self.second.value

    def interval(self, alpha: float) -> tuple[float, float]:
        """Newcombe's interval: the distances of both Wilson intervals, added as squares."""
        (a, b), (c, d) = self.first.interval(alpha), self.second.interval(alpha)
        p, q = self.first.value, self.second.value
        return self.value - float(np.hypot(p - a, d - q)), self.value + float(np.hypot(b - p, q - c))


class Mean(NamedTuple):
    """The mean of independent draws, one for each copy; Student's interval.

    Of paired differences for two methods on the same copies, of log ratios for times.
    """

    draws: Sequence[float] | np.ndarray

    @property
    def value(self) -> float:
        """The mean of the draws."""
        return float(np.mean(self.draws))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Student's interval; of one draw the whole line."""
        draws = np.asarray(self.draws, float)
        if draws.size < 2:
            return -np.inf, np.inf
        reach = t.ppf(1 - alpha / 2, draws.size - 1) * draws.std(ddof=1) / np.sqrt(draws.size)
        return self.value - float(reach), self.value + float(reach)


def shown(estimate: Estimate) -> str:
    """The estimate with its interval, as text."""
    low, high = estimate.interval(ALPHA)
    return f"{estimate.value:.3g} ({low:.3g} to {high:.3g})"


def ratio(logarithms: Estimate) -> str:
    """The geometric mean of ratios, given by their logarithms, with its interval, as text."""
    low, high = np.exp(logarithms.interval(ALPHA))
    return f"{np.exp(logarithms.value):.3g} ({low:.3g} to {high:.3g})"


def at_least(estimate: Estimate, level: float = 0.0, *, alpha: float = ALPHA) -> Decision:
    """Whether the number is at least `level`: the interval's lower end is, or its upper end is not."""
    low, high = estimate.interval(alpha)
    return True if low >= level else False if high < level else _more_copies(estimate, level, low, high)


def at_most(estimate: Estimate, level: float = 0.0, *, alpha: float = ALPHA) -> Decision:
    """Whether the number is at most `level`."""
    low, high = estimate.interval(alpha)
    return True if high <= level else False if low > level else _more_copies(estimate, level, low, high)


def _more_copies(estimate: Estimate, level: float, low: float, high: float) -> Undecided:
    away = abs(estimate.value - level)
    reach = (high - estimate.value) if estimate.value < level else (estimate.value - low)
    times = (reach / away) ** 2 if away > 0 else np.inf
    return Undecided(
        f"about {np.ceil(times):.0f} times as many copies" if times < 1e4 else "more copies than can be computed"
    )


def every(estimates: Iterable[Estimate], level: float = 0.0) -> Decision:
    """Whether all the numbers are at least `level`.

    All have to be shown to be (no correction is needed for that); one that is shown to be less refutes, by an interval
    that is wide enough for the number of chances (Bonferroni).
    """
    estimates = list(estimates)
    if any(at_least(one, level, alpha=ALPHA / len(estimates)) is False for one in estimates):
        return False
    # What Bonferroni does not grant is left open.
    open_ = [found for one in estimates if (found := at_least(one, level)) is not True]
    return next((found for found in open_ if found), Undecided("more copies")) if open_ else True


def some(estimates: Iterable[Estimate], level: float = 0.0) -> Decision:
    """Whether one of the numbers is at least `level`: the mirror of `every`."""
    estimates = list(estimates)
    if any(at_least(one, level, alpha=ALPHA / len(estimates)) is True for one in estimates):
        return True
    found = [at_least(one, level) for one in estimates]
    return False if all(one is False for one in found) else Undecided("more copies")


def both(*decisions: Decision) -> Decision:
    """Whether all of some decisions hold: one that does not refutes, whatever the others."""
    if any(one is False for one in decisions):
        return False
    return next((one for one in decisions if isinstance(one, Undecided)), True)


def either(*decisions: Decision) -> Decision:
    """Whether one of some decisions holds: one that does confirms, whatever the others."""
    if any(one is True for one in decisions):
        return True
    return next((one for one in decisions if isinstance(one, Undecided)), False)


def most(decisions: Iterable[Decision]) -> Decision:
    """Whether more than half of some decisions hold; open ones may fall either way."""
    found = list(decisions)
    yes, no = (sum(one is answer for one in found) for answer in (True, False))
    half = len(found) / 2
    return True if yes > half else False if no >= half else next(one for one in found if isinstance(one, Undecided))


def plain(decision: Any) -> Any:
    """A decision as Python's own bool, from NumPy's too."""
    return decision if decision is None or isinstance(decision, Undecided) else bool(decision)
