"""Verdicts: intervals against their published values, error rates of decisions, the logic of parts and readings."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

import benchmarks.papers.verdicts as v

OPEN = v.Undecided("more")


def test_the_intervals_are_the_published_ones():
    # Newcombe (1998): 81 of 263 by Wilson's score; 56/70 - 48/80 by its method 10.
    np.testing.assert_allclose(v.Share(81, 263).interval(0.05), (0.2553, 0.3662), atol=5e-5)
    np.testing.assert_allclose(v.Lead(v.Share(56, 70), v.Share(48, 80)).interval(0.05), (0.0524, 0.3339), atol=5e-5)
    draws = np.random.default_rng(0).standard_normal(9)
    np.testing.assert_allclose(v.Mean(draws).interval(0.1), ttest_1samp(draws, 0).confidence_interval(0.9))


@pytest.mark.parametrize("truth", [0.05, 0.5, 0.8, 0.97])
def test_a_true_statement_is_seldom_refuted_and_a_false_one_seldom_confirmed(truth):
    hits = np.random.default_rng(1).binomial(100, truth, 1500)
    at_truth = [v.at_least(v.Share(h, 100), truth) for h in hits]
    assert np.mean([one is False for one in at_truth]) < 0.06
    just_above = [v.at_least(v.Share(h, 100), truth + 1e-9) for h in hits]
    assert np.mean([one is True for one in just_above]) < 0.06


def test_one_copy_of_a_hundred_decides_nothing_and_many_do():
    assert isinstance(v.at_least(v.Lead(v.Share(80, 100), v.Share(81, 100))), v.Undecided)
    assert v.at_least(v.Lead(v.Share(40, 100), v.Share(81, 100))) is False
    assert v.at_least(v.Lead(v.Share(81, 100), v.Share(40, 100))) is True
    assert v.at_least(v.Lead(v.Share(800, 1000), v.Share(801, 1000)), -0.05) is True
    assert isinstance(v.at_least(v.Mean([1.0])), v.Undecided)


def test_more_is_the_mirror_of_less_and_says_what_it_would_take():
    share = v.Share(60, 100)
    assert v.at_least(share, 0.4) is v.at_most(share, 0.8) is True
    assert v.at_least(share, 0.8) is v.at_most(share, 0.4) is False
    need = v.at_least(share, 0.55).need
    times = int(need.split()[1])
    assert 1 < times < 10
    assert v.at_least(v.Share(60 * times, 100 * times), 0.55) is True
    assert "more copies" in v.at_least(v.Share(50, 100), 0.5).need


def test_many_comparisons_of_equals_are_seldom_refuted_or_confirmed():
    rng = np.random.default_rng(2)
    found = []
    for _ in range(30):
        pairs = [v.Lead(v.Share(a, 100), v.Share(b, 100)) for a, b in rng.binomial(100, 0.5, (20, 2))]
        found += v.every(pairs).found
    assert np.mean([one is False for one in found]) < 0.01  # a part fails by Bonferroni's interval
    assert np.mean([one is True for one in found]) < 0.06
    far, level = v.Lead(v.Share(10, 100), v.Share(90, 100)), v.Lead(v.Share(90, 100), v.Share(10, 100))
    assert v.every([level, far]).outcome() == v.IN_PART and v.every([far, far]).outcome() is False
    assert v.every([level, level]).outcome() is True


def test_parts_are_counted_and_none_alone_turns_a_sentence():
    assert v.all_of(True, OPEN).outcome() == OPEN and v.all_of(True, True).outcome() is True
    assert v.all_of(True, False, OPEN).outcome() == v.IN_PART and v.all_of(False, OPEN).outcome() == v.SHORT
    assert v.all_of(v.Parts((True, False), 1), [OPEN]).counted() == "1 of 3, 1 undecided"
    assert v.most([True, True, OPEN]).outcome() is True and v.most([False, False, OPEN]).outcome() is False
    assert v.most([True, False, OPEN]).outcome() == OPEN
    assert v.most([True, False]).outcome() is False


def test_a_curve_moves_as_a_whole_and_never_back():
    rng = np.random.default_rng(0)
    up = [i + 0.01 * rng.standard_normal(8) for i in range(4)]
    assert v.moves(up) is True and v.moves(up, -1) is False
    assert v.moves([*up, up[1]]) is False  # it ends higher, but comes down on the way
    assert isinstance(v.moves([100 * rng.standard_normal(8) for _ in range(2)]), v.Undecided)
    assert isinstance(v.moves([np.zeros(8)] * 3), v.Undecided)


def test_methods_that_always_do_the_same_say_nothing_of_which_is_ahead():
    assert isinstance(v.at_least(v.Mean([0.0] * 9)), v.Undecided) and isinstance(
        v.at_most(v.Ratio([0.0] * 9)), v.Undecided
    )
    assert v.every([v.Mean([0.0] * 9), v.Mean([-1.0, -1.1, -0.9])]).outcome() != v.IN_PART
    assert v.at_least(v.Exact(0.0)) is True


def test_trials_in_one_draw_are_not_independent():
    alike, apart = v.Clustered([v.Share(9, 10)] * 10), v.Clustered([v.Share(10, 10)] * 9 + [v.Share(0, 10)])
    assert alike.value == apart.value == pytest.approx(0.9)
    assert alike.interval(0.05) == v.Share(90, 100).interval(0.05)
    assert apart.interval(0.05)[0] < v.Share(90, 100).interval(0.05)[0]
    assert v.Clustered([v.Share(50, 50)]).interval(0.05) == (0, 1)


def test_at_most_two_numbers_are_shown():
    numbers = {name: v.Mean([value, value + 1]) for name, value in (("A", 2.0), ("B", 0.0), ("C", 1.0))}
    found = v.finding(True, numbers)
    assert found.outcome == v.HOLDS and [text.split()[:2] for text in found.by] == [["least:", "B"], ["most:", "A"]]
    assert len(v.extremes({"A": v.Exact(1.0)})) == 1
    assert v.shown(v.Ratio([0.0, 0.0])) == "1 (1 to 1)" and v.shown(v.Exact(2.0)) == "2"
    assert v.finding(None, {}, "data").need == "data" and v.finding(OPEN, {}).need == "more"
    assert v.finding(v.all_of(False, OPEN), {})[:3] == (v.SHORT, "0 of 2, 1 undecided", "more")


def test_a_ratio_with_a_run_that_was_stopped_is_known_from_one_side():
    draws = np.log([2.0, 2.1, 1.9])
    less, more = v.Ratio(draws, may_be_less=True), v.Ratio(draws, may_be_more=True)
    assert isinstance(v.at_least(less), v.Undecided) and v.at_least(more) is True
    assert v.at_least(v.Ratio(-draws, may_be_less=True)) is False
    assert isinstance(v.at_least(v.Ratio(-draws, may_be_more=True)), v.Undecided)
    assert v.shown(less).startswith("2 (0 to ") and v.shown(more).endswith(" to inf)")


def test_a_claim_stands_where_its_readings_let_it():
    stands = {"other_data": False, "all_read": True}
    assert v.stand([v.HOLDS, v.HOLDS], **stands) == v.CONFIRMED
    assert v.stand([v.FAILS, v.FAILS], **stands) == v.REFUTED
    assert v.stand([v.FAILS], other_data=False, all_read=False) == v.UNDECIDED
    assert v.stand([v.FAILS, v.HOLDS, "open"], **stands) == v.BY_READING
    assert v.stand([v.HOLDS, "open"], **stands) == v.CONFIRMED and v.stand([v.FAILS, "open"], **stands) == v.UNDECIDED
    assert (
        v.stand([v.HOLDS, v.SHORT], **stands) == v.BY_READING and v.stand([v.SHORT, v.FAILS], **stands) == v.UNDECIDED
    )
    assert v.stand([v.IN_PART, v.SHORT], **stands) == v.IN_PART and v.stand([v.SHORT], **stands) == v.UNDECIDED
    assert v.stand(["open"], **stands) == v.stand([], **stands) == v.UNDECIDED
    assert v.stand([v.IN_PART, v.IN_PART], **stands) == v.IN_PART
    for outcome, words in v.OTHER.items():
        assert v.stand([outcome], other_data=True, all_read=True) == words
