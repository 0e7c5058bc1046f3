"""The laws on cases that Hypothesis draws; SPARSEHTP_CASES sets their number (2,000).

A failing case is a `Case`: `violations(setting, case)` repeats it.
"""

import os

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from laws import SETTINGS, Case, name_of, violations

NUMBER = int(os.environ.get("SPARSEHTP_CASES", 2000))
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


def size(most, least=0.0):
    return st.one_of(st.just(0.0), st.sampled_from([least or -most, most]), st.floats(least or -most, most))


CASES = st.builds(
    Case,
    seed=st.integers(0, 10**6),
    k=st.integers(0, 6),
    l2=st.sampled_from([0.0, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 10.0]),
    parameter=st.integers(0, 2),
    noise=st.sampled_from([0.0, 0.1, 1.0]),
    x_mean=st.sampled_from([0.0, 0.0, 1.0, 1e2, 2e3, 1e4, 1e6]),
    x_scale=size(25.0),
    x_spread=st.sampled_from([0.0, 0.0, 1.0, 5.0, 25.0]),
    y_mean=st.sampled_from([0.0, 0.0, 1.0, 1e2, 1e4, 1e5, 1e6]),
    y_scale=size(25.0),
    weight_scale=size(30.0),
    weight_spread=st.sampled_from([0.0, 0.0, 0.5, 5.0, 30.0]),
    fold=st.booleans(),
    offset=st.sampled_from([0.0, 0.0, 1.0, 10.0, 30.0, 100.0]),
    offset_varies=st.booleans(),
    twin=st.sampled_from([None, None, 0.0, 1e-12, 1e-7, 1e-4, 1e-2]),
    start=st.sampled_from([None, None, 0.0, 1.0, 1e4, -1e8]),
    start_intercept=st.sampled_from([0.0, 50.0, -1e4, 1e6]),
)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=name_of)
def test_laws(setting):
    @settings(max_examples=-(-NUMBER // len(SETTINGS)), deadline=None, suppress_health_check=CHECKS, database=None)
    @given(CASES)
    def holds(case):
        assert violations(setting, case) == []

    holds()
