"""Verdicts: intervals against their published values, error rates of decisions, the logic of parts and readings."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from benchmarks.papers.verdicts import (
    BY_READING,
    CONFIRMED,
    FAILS,
    HOLDS,
    IN_PART,
    OTHER,
    REFUTED,
    SHORT,
    UNDECIDED,
    Clustered,
    Exact,
    Lead,
    Mean,
    Parts,
    Ratio,
    Share,
    Undecided,
    all_of,
    at_least,
    at_most,
    every,
    extremes,
    finding,
    most,
    moves,
    shown,
    stand,
)

OPEN = Undecided("more")


def test_the_intervals_are_the_published_ones():
    # Newcombe (1998): 81 of 263 by Wilson's score; 56/70 - 48/80 by its method 10.
    np.testing.assert_allclose(Share(81, 263).interval(0.05), (0.2553, 0.3662), atol=5e-5)
    np.testing.assert_allclose(Lead(Share(56, 70), Share(48, 80)).interval(0.05), (0.0524, 0.3339), atol=5e-5)
    draws = np.random.default_rng(0).standard_normal(9)
    np.testing.assert_allclose(Mean(draws).interval(0.1), ttest_1samp(draws, 0).confidence_interval(0.9))


@pytest.mark.parametrize("truth", [0.05, 0.5, 0.8, 0.97])
def test_a_true_statement_is_seldom_refuted_and_a_false_one_seldom_confirmed(truth):
    hits = np.random.default_rng(1).binomial(100, truth, 1500)
    at_truth = [at_least(Share(h, 100), truth) for h in hits]
    assert np.mean([one is False for one in at_truth]) < 0.06
    just_above = [at_least(Share(h, 100), truth + 1e-9) for h in hits]
    assert np.mean([one is True for one in just_above]) < 0.06


def test_one_copy_of_a_hundred_decides_nothing_and_many_do():
    assert isinstance(at_least(Lead(Share(80, 100), Share(81, 100))), Undecided)
    assert at_least(Lead(Share(40, 100), Share(81, 100))) is False
    assert at_least(Lead(Share(81, 100), Share(40, 100))) is True
    assert at_least(Lead(Share(800, 1000), Share(801, 1000)), -0.05) is True
    assert isinstance(at_least(Mean([1.0])), Undecided)


def test_more_is_the_mirror_of_less_and_says_what_it_would_take():
    share = Share(60, 100)
    assert at_least(share, 0.4) is at_most(share, 0.8) is True
    assert at_least(share, 0.8) is at_most(share, 0.4) is False
    need = at_least(share, 0.55).need
    times = int(need.split()[1])
    assert 1 < times < 10
    assert at_least(Share(60 * times, 100 * times), 0.55) is True
    assert "more copies" in at_least(Share(50, 100), 0.5).need


def test_many_comparisons_of_equals_are_seldom_refuted_or_confirmed():
    rng = np.random.default_rng(2)
    found = []
    for _ in range(30):
        pairs = [Lead(Share(a, 100), Share(b, 100)) for a, b in rng.binomial(100, 0.5, (20, 2))]
        found += every(pairs).found
    assert np.mean([one is False for one in found]) < 0.01  # a part fails by Bonferroni's interval
    assert np.mean([one is True for one in found]) < 0.06
    far, level = Lead(Share(10, 100), Share(90, 100)), Lead(Share(90, 100), Share(10, 100))
    assert every([level, far]).outcome() == IN_PART and every([far, far]).outcome() is False
    assert every([level, level]).outcome() is True


def test_parts_are_counted_and_none_alone_turns_a_sentence():
    assert all_of(True, OPEN).outcome() == OPEN and all_of(True, True).outcome() is True
    assert all_of(True, False, OPEN).outcome() == IN_PART and all_of(False, OPEN).outcome() == SHORT
    assert all_of(Parts((True, False), 1), [OPEN]).counted() == "1 of 3, 1 undecided"
    assert most([True, True, OPEN]).outcome() is True and most([False, False, OPEN]).outcome() is False
    assert most([True, False, OPEN]).outcome() == OPEN
    assert most([True, False]).outcome() is False


def test_a_curve_moves_as_a_whole_and_never_back():
    rng = np.random.default_rng(0)
    up = [i + 0.01 * rng.standard_normal(8) for i in range(4)]
    assert moves(up) is True and moves(up, -1) is False
    assert moves([*up, up[1]]) is False  # it ends higher, but comes down on the way
    assert isinstance(moves([100 * rng.standard_normal(8) for _ in range(2)]), Undecided)
    assert isinstance(moves([np.zeros(8)] * 3), Undecided)


def test_methods_that_always_do_the_same_say_nothing_of_which_is_ahead():
    assert isinstance(at_least(Mean([0.0] * 9)), Undecided) and isinstance(at_most(Ratio([0.0] * 9)), Undecided)
    assert every([Mean([0.0] * 9), Mean([-1.0, -1.1, -0.9])]).outcome() != IN_PART
    assert at_least(Exact(0.0)) is True


def test_trials_in_one_draw_are_not_independent():
    alike, apart = Clustered([Share(9, 10)] * 10), Clustered([Share(10, 10)] * 9 + [Share(0, 10)])
    assert alike.value == apart.value == pytest.approx(0.9)
    assert alike.interval(0.05) == Share(90, 100).interval(0.05)
    assert apart.interval(0.05)[0] < Share(90, 100).interval(0.05)[0]
    assert Clustered([Share(50, 50)]).interval(0.05) == (0, 1)


def test_at_most_two_numbers_are_shown():
    numbers = {name: Mean([value, value + 1]) for name, value in (("A", 2.0), ("B", 0.0), ("C", 1.0))}
    found = finding(True, numbers)
    assert found.outcome == HOLDS and [text.split()[:2] for text in found.by] == [["least:", "B"], ["most:", "A"]]
    assert len(extremes({"A": Exact(1.0)})) == 1
    assert shown(Ratio([0.0, 0.0])) == "1 (1 to 1)" and shown(Exact(2.0)) == "2"
    assert finding(None, {}, "data").need == "data" and finding(OPEN, {}).need == "more"
    assert finding(all_of(False, OPEN), {})[:3] == (SHORT, "0 of 2, 1 undecided", "more")


def test_a_ratio_with_a_run_that_was_stopped_is_known_from_one_side():
    draws = np.log([2.0, 2.1, 1.9])
    less, more = Ratio(draws, may_be_less=True), Ratio(draws, may_be_more=True)
    assert isinstance(at_least(less), Undecided) and at_least(more) is True
    assert at_least(Ratio(-draws, may_be_less=True)) is False
    assert isinstance(at_least(Ratio(-draws, may_be_more=True)), Undecided)
    assert shown(less).startswith("2 (0 to ") and shown(more).endswith(" to inf)")


def test_a_claim_stands_where_its_readings_let_it():
    stands = {"other_data": False, "all_read": True}
    assert stand([HOLDS, HOLDS], **stands) == CONFIRMED
    assert stand([FAILS, FAILS], **stands) == REFUTED
    assert stand([FAILS], other_data=False, all_read=False) == UNDECIDED
    assert stand([FAILS, HOLDS, "open"], **stands) == BY_READING
    assert stand([HOLDS, "open"], **stands) == CONFIRMED and stand([FAILS, "open"], **stands) == UNDECIDED
    assert stand([HOLDS, SHORT], **stands) == BY_READING and stand([SHORT, FAILS], **stands) == UNDECIDED
    assert stand([IN_PART, SHORT], **stands) == IN_PART and stand([SHORT], **stands) == UNDECIDED
    assert stand(["open"], **stands) == stand([], **stands) == UNDECIDED
    assert stand([IN_PART, IN_PART], **stands) == IN_PART
    for outcome, words in OTHER.items():
        assert stand([outcome], other_data=True, all_read=True) == words
