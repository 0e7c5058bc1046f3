"""What a sample says of a statement: estimates with intervals, decisions that only an interval makes, and verdicts."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.stats import binomtest, t

ALPHA = 0.05  # of every interval: 95%
LEAST_DRAWS = 10  # of something random: fewer decide nothing
NO_MARGIN = "a margin: the paper says how near is near in no number"

HOLDS, FAILS, IN_PART, OPEN = "holds", "fails", "in part", "open"
SHORT = "fails or in part"  # some part fails, and the others are open
LEFT_OPEN = (OPEN, SHORT)
CONFIRMED, REFUTED, BY_READING, UNDECIDED, WITHDRAWN = (
    "confirmed",
    "refuted",
    "depends on the reading",
    "not decided",
    "withdrawn",
)
OTHER = {HOLDS: "as claimed on other data", FAILS: "not as claimed on other data", IN_PART: "in part on other data"}
SAME = {HOLDS: CONFIRMED, FAILS: REFUTED, IN_PART: IN_PART}
VERDICTS = (CONFIRMED, REFUTED, IN_PART, BY_READING, *OTHER.values(), UNDECIDED, WITHDRAWN)


class Undecided(NamedTuple):
    """Neither so nor otherwise.

    Attributes:
        need: what it would take to decide, as a phrase.
        times: how many times as many copies, if these would.
    """

    need: str
    times: float = 0.0


Decision = bool | Undecided
TIED = Undecided("draws that differ")


class Estimate(Protocol):
    """A number known up to sampling."""

    @property
    def value(self) -> float:
        """Its estimate."""

    def interval(self, alpha: float) -> tuple[float, float]:
        """Bounds that hold it with probability 1 - alpha."""


class Exact(NamedTuple):
    """A number that is computed, not sampled."""

    value: float

    def interval(self, alpha: float) -> tuple[float, float]:
        """The number itself."""
        return self.value, self.value


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

    Of paired differences for two methods on the same copies.
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


class Ratio(NamedTuple):
    """As `Mean`, of the logarithms of ratios: shown as their geometric mean.

    Attributes:
        draws: the logarithms.
        may_be_less, may_be_more: whether they are bounds from one side, since a run that is in them was stopped.
    """

    draws: Sequence[float] | np.ndarray
    may_be_less: bool = False
    may_be_more: bool = False

    @property
    def value(self) -> float:
        """The mean of the draws."""
        return Mean(self.draws).value

    def interval(self, alpha: float) -> tuple[float, float]:
        """Student's interval; without an end on the side to which the number is not known."""
        low, high = Mean(self.draws).interval(alpha)
        return -np.inf if self.may_be_less else low, np.inf if self.may_be_more else high


class Clustered(NamedTuple):
    """A probability from trials in several draws of something random: (hits, trials) of each.

    The wider one of Student's interval over the draws and Wilson's over the trials: the former is empty where all draws
    agree, the latter takes trials in one draw for independent.
    """

    clusters: Sequence[Share]

    @property
    def value(self) -> float:
        """The mean of the draws' shares."""
        return float(np.mean([each.value for each in self.clusters]))

    def interval(self, alpha: float) -> tuple[float, float]:
        """The wider interval at each end."""
        over = Mean([each.value for each in self.clusters]).interval(alpha)
        pooled = Share(sum(each.hits for each in self.clusters), sum(each.trials for each in self.clusters))
        within = pooled.interval(alpha)
        return max(min(over[0], within[0]), 0.0), min(max(over[1], within[1]), 1.0)


def shown(estimate: Estimate) -> str:
    """The estimate with its interval, as text."""
    if isinstance(estimate, Exact):
        return f"{estimate.value:.3g}"
    numbers = np.array([estimate.value, *estimate.interval(ALPHA)])
    value, low, high = np.exp(numbers) if isinstance(estimate, Ratio) else numbers
    return f"{value:.3g} ({low:.3g} to {high:.3g})"


def extremes(estimates: Mapping[str, Estimate]) -> list[str]:
    """The least and the largest of some estimates, with their names, as text."""
    ordered = sorted(estimates, key=lambda name: estimates[name].value)
    if len(ordered) <= 2:
        return [f"{name} {shown(estimates[name])}" for name in estimates]
    return [f"{word}: {at} {shown(estimates[at])}" for word, at in (("least", ordered[0]), ("most", ordered[-1]))]


def at_least(estimate: Estimate, level: float = 0.0, *, alpha: float = ALPHA) -> Decision:
    """Whether the number is at least `level`: the interval's lower end is, or its upper end is not."""
    low, high = estimate.interval(alpha)
    if _tied(estimate, level, low, high):
        return TIED
    return True if low >= level else False if high < level else _more_copies(estimate, level, low, high)


def at_most(estimate: Estimate, level: float = 0.0, *, alpha: float = ALPHA) -> Decision:
    """Whether the number is at most `level`."""
    low, high = estimate.interval(alpha)
    if _tied(estimate, level, low, high):
        return TIED
    return True if high <= level else False if low > level else _more_copies(estimate, level, low, high)


def _tied(estimate: Estimate, level: float, low: float, high: float) -> bool:
    """Whether every draw is at the level: two methods that never succeed say nothing of which succeeds more often."""
    return low == high == level and not isinstance(estimate, Exact)


def _more_copies(estimate: Estimate, level: float, low: float, high: float) -> Undecided:
    if isinstance(estimate, Ratio) and (estimate.may_be_less or estimate.may_be_more):
        return Undecided("runs to their end")
    away = abs(estimate.value - level)
    reach = (high - estimate.value) if estimate.value < level else (estimate.value - low)
    times = (reach / away) ** 2 if away > 0 else np.inf
    need = f"about {np.ceil(times):.0f} times as many copies" if times < 1e4 else "more copies than can be computed"
    return Undecided(need, times)


class Parts(NamedTuple):
    """A sentence about several places (data sets, sizes, rivals), and what the sample says of each.

    Attributes:
        found: the decision of each part.
        quorum: how many have to hold for the sentence to, where it says "most" or a number; None: all of them.
    """

    found: tuple[Decision, ...]
    quorum: int | None = None

    def outcome(self) -> Decision | str:
        """True, False, `IN_PART`, `SHORT` or Undecided: of a sentence about all of its parts none alone turns it."""
        yes, no = (sum(one is answer for one in self.found) for answer in (True, False))
        size = len(self.found)
        if yes >= (size if self.quorum is None else self.quorum):
            return True
        if no == size or (self.quorum is not None and size - no < self.quorum):
            return False
        if self.quorum is None and no:
            return IN_PART if yes else SHORT
        return self.undecided()

    def undecided(self) -> Undecided:
        """The part that takes the most copies, of several the first."""
        parts = [one for one in self.found if isinstance(one, Undecided)]
        return max(parts, key=lambda one: one.times, default=Undecided("more copies"))

    def counted(self) -> str:
        """How many parts hold, as text."""
        yes, unknown = (
            sum(one is True for one in self.found),
            sum(isinstance(one, Undecided) for one in self.found),
        )
        return f"{yes} of {len(self.found)}" + (f", {unknown} undecided" if unknown else "")


def every(estimates: Iterable[Estimate], level: float = 0.0) -> Parts:
    """Whether all the numbers are at least `level`, each of them a part.

    A part fails by an interval that is wide enough for the number of chances (Bonferroni).
    """
    estimates = list(estimates)
    found = [at_least(one, level) for one in estimates]
    sure = [at_least(one, level, alpha=ALPHA / len(estimates)) for one in estimates]
    return all_of(each if each is not False or wide is False else wide for each, wide in zip(found, sure, strict=True))


def all_of(*decisions: Decision | Parts | Iterable[Decision]) -> Parts:
    """A sentence that says all of several things; those of `Parts` are taken one by one."""
    found: list[Decision] = []
    for each in decisions:
        if isinstance(each, Parts):
            found += each.found
        elif isinstance(each, Iterable) and not isinstance(each, Undecided):
            found += each
        else:
            found.append(each)
    return Parts(tuple(map(_plain, found)))


def most(decisions: Iterable[Decision]) -> Parts:
    """A sentence that says "in most cases": more than half of some decisions have to hold."""
    found = tuple(map(_plain, decisions))
    return Parts(found, len(found) // 2 + 1)


def enough(decisions: Iterable[Decision], number: int) -> Parts:
    """A sentence that says in how many cases."""
    return Parts(tuple(map(_plain, decisions)), number)


def moves(draws: Sequence[np.ndarray], sign: int = 1) -> Decision:
    """Whether a curve, of the same copies at each of its places, rises (sign 1) or falls (-1).

    From its first place to the last by an interval, with no step the other way that an interval shows (Bonferroni).
    """
    steps = [Mean(sign * (after - before)) for before, after in itertools.pairwise(draws)]
    if any(at_least(step, alpha=ALPHA / len(steps)) is False for step in steps):
        return False
    return at_least(Mean(sign * (draws[-1] - draws[0])))


def _plain(decision: Any) -> Any:
    """A decision as Python's own bool, from NumPy's too."""
    return decision if decision is None or isinstance(decision, Undecided) else bool(decision)


class Finding(NamedTuple):
    """What one run, under one reading, says of a claim.

    Attributes:
        outcome: "holds", "fails", "in part", "open" or "fails or in part".
        parts: how many parts of the sentence hold; empty for one that has none.
        need: what it would take, where it is open.
        by: at most two numbers that decide it, with their intervals.
    """

    outcome: str
    parts: str
    need: str
    by: list[str]


def finding(holds: Decision | Parts | None, numbers: Mapping[str, Estimate], need: str = "") -> Finding:
    """The finding of a decision; None where the numbers cannot test it, and `need` says what could."""
    result = holds.outcome() if isinstance(holds, Parts) else _plain(holds)
    parts = holds.counted() if isinstance(holds, Parts) and len(holds.found) > 1 else ""
    if isinstance(holds, Parts) and result == SHORT:
        return Finding(SHORT, parts, need or holds.undecided().need, extremes(numbers))
    if result is None or isinstance(result, Undecided):
        return Finding(OPEN, parts, need or (result.need if result else ""), extremes(numbers))
    return Finding(result if result == IN_PART else HOLDS if result else FAILS, parts, "", extremes(numbers))


def stand(outcomes: Iterable[str], *, other_data: bool, all_read: bool) -> str:
    """Where a claim stands, from what was found under each of its readings.

    What holds, or holds in part, does under the readings that tell; what fails has to under all of them. Where some
    part fails under one reading, the whole does not hold under all.

    Args:
        outcomes: of the findings.
        other_data: whether any of the data stand in for those of the paper.
        all_read: whether every reading that the paper leaves open was run: what fails needs them all.
    """
    found = set(outcomes)
    told = found - set(LEFT_OPEN)
    if len(told) > 1 or (told == {HOLDS} and SHORT in found):
        return BY_READING
    if not told or (told == {FAILS} and (told != found or not all_read)):
        return UNDECIDED
    return (OTHER if other_data else SAME)[told.pop()]
