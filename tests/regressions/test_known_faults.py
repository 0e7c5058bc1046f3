"""Kinds of data on which an answer or a claim was once wrong, ten draws each: every law holds on them."""

import pytest
from laws import Case, Setting, violations

DRAWS = 10
SQUARED, LOGISTIC, POISSON, HUBER = "squared", "logistic", "poisson", "huber"

KINDS = {
    "constant offset": (LOGISTIC, Case(l2=1e-3, offset=30.0)),
    "large constant offset": (LOGISTIC, Case(l2=1e-3, offset=100.0)),
    "offsets that vary": (LOGISTIC, Case(k=3, l2=1e-3, noise=1.0, offset=100.0, offset_varies=True)),
    "saturated start": (LOGISTIC, Case(l2=1e-3, start=0.0, start_intercept=50.0)),
    "Poisson far below": (POISSON, Case(l2=1e-3, start=0.0, start_intercept=-1e4)),
    "Poisson, shifted columns": (POISSON, Case(k=3, l2=1e-3, x_mean=2e3)),
    "shifted columns, GLM": (LOGISTIC, Case(l2=1e-3, x_mean=2e3)),
    "shifted columns": (SQUARED, Case(x_mean=2e3)),
    "shifted targets": (SQUARED, Case(l2=0.1, y_mean=1e4)),
    "far shifted targets": (SQUARED, Case(l2=0.1, y_mean=1e5, x_mean=1e3)),
    "near-collinear columns": (SQUARED, Case(k=3, twin=1e-4)),
    "twins": (SQUARED, Case(k=3, twin=0.0)),
    "small columns": (SQUARED, Case(x_scale=-20.0)),
    "tiny columns": (SQUARED, Case(x_scale=-25.0)),
    "columns of all sizes": (POISSON, Case(k=1, x_spread=25.0)),
    "huge weights": (SQUARED, Case(weight_scale=30.0)),
    "tiny weights": (SQUARED, Case(weight_scale=-30.0)),
    "absolute loss nearly": (HUBER, Case(k=4, parameter=1, y_scale=9.0, start=1e4, start_intercept=-1e4)),
}


def check(setting, draws):
    for name, (of, case) in KINDS.items():
        for seed in range(draws if of == setting.loss else 0):
            assert violations(setting, case._replace(seed=seed)) == [], name


@pytest.mark.parametrize("loss", [SQUARED, pytest.param(LOGISTIC, marks=pytest.mark.slow)])
def test_kinds_in_single_precision(loss):
    check(Setting(loss, "default", False, True, False, (12, 4)), 2)


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC, POISSON, HUBER])
def test_kinds(loss, double):
    check(Setting(loss, "default", double, True, False, (30, 6)), DRAWS)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["grasp", "subspace_pursuit", "htp"])
def test_pursuits_leave_saturated_points(solver):
    setting = Setting(LOGISTIC, solver, False, True, False, (30, 6))
    for case in (Case(k=1, noise=1.0), Case(start=0.0, start_intercept=100.0)):
        for seed in range(DRAWS):
            assert violations(setting, case._replace(seed=seed)) == [], case


STARTS = {
    "far below": (
        Setting("tweedie", "iht", True, True, False, (12, 4)),
        [Case(k=k, start=0.0, start_intercept=b) for k, b in ((1, -1e4), (0, -1e4), (0, 1e6))],
    ),
    "coefficients of all sizes": (
        Setting("tweedie", "default", False, True, True, (20, 5)),
        [Case(k=0, x_spread=25.0, twin=0.0, start=1.0)],
    ),
    "hinge": (
        Setting("smoothed_hinge", "iht", False, False, False, (12, 4)),
        [Case(k=1, l2=1e-3, x_spread=25.0, start=1.0)],
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_starts_beyond_the_range(name):
    """An F that is no number of the dtype is said to be none, in values and in certificates."""
    setting, cases = STARTS[name]
    for case in cases:
        for seed in range(2):
            assert violations(setting, case._replace(seed=seed)) == [], case
