"""Verdicts: intervals against their published values, error rates of decisions, and the logic of open ones."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from benchmarks.papers.verdicts import Lead, Mean, Share, Undecided, at_least, at_most, both, either, every, most, some

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
    for _ in range(60):
        pairs = [Lead(Share(a, 100), Share(b, 100)) for a, b in rng.binomial(100, 0.5, (20, 2))]
        found.append((every(pairs), some(pairs)))
    assert np.mean([one is False for one, _ in found]) < 0.06
    assert np.mean([one is True for _, one in found]) < 0.06
    far, level = Lead(Share(10, 100), Share(90, 100)), Lead(Share(90, 100), Share(10, 100))
    assert every([level, far]) is False and some([level, far]) is True
    assert every([level, level]) is True and some([far, far]) is False


def test_open_decisions_leave_open_only_what_they_could_turn():
    assert both(True, False, OPEN) is False and both(True, OPEN) == OPEN and both(True, True) is True
    assert either(OPEN, True, False) is True and either(False, OPEN) == OPEN and either(False, False) is False
    assert most([True, True, OPEN]) is True and most([False, False, OPEN]) is False
    assert most([True, False, OPEN]) == OPEN
    assert most([True, False]) is False
