"""The text experiments: what a search minimises, what one thresholding solves, and what comes sooner."""

import numpy as np
import pytest

import sparsehtp as sht
from benchmarks.papers.diht_text import Split, Text, Trace, _lead, _leads
from benchmarks.papers.run import Run

N, P, K = 60, 12, 4


@pytest.fixture
def text(tmp_path):
    """A function of (lam0, smooth) that makes a problem with N = 100 in lam."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.sign(X[:, 0] + 0.5 * X[:, 1]).astype(np.float32)
    settings = {"seed": 0, "seconds": 0.02, "paper_rows": {"made up": 100}}
    run = Run("x", {"settings": settings}, tmp_path)
    return lambda l0, smooth=True: Text(run, Split(X, y, X[:20], y[:20]), "made up", K, l0, smooth)


@pytest.mark.parametrize("smooth", [True, False])
def test_where_lam_is_large_one_thresholding_solves_the_problem(text, smooth):
    for l0, solved in ((20.0, True), (0.05, False)):
        problem = text(l0, smooth)
        best = sht.solve(problem.model, sht.Sparsity(K), sht.solvers.DIHT(), max_steps=3000)
        left = (problem.one_threshold() - float(best.value)) / (problem.start - float(best.value))
        assert (left < 1e-3) == solved


@pytest.mark.parametrize(
    ("algorithm", "smooth"), [("IHT", True), ("HTP", True), ("SVRGHT", False), ("DIHT", False), ("SDIHT", True)]
)
def test_a_trace_tells_the_loss_and_the_error_of_every_step(text, algorithm, smooth):
    problem = text(1.0, smooth)
    trace = problem.trace(algorithm, -2)
    assert trace.seconds[-1] >= problem.budget > trace.seconds[-2]
    assert np.all(np.diff(trace.seconds) >= 0)
    assert trace.value.min() < problem.start
    assert np.all((trace.error >= 0) & (trace.error <= 1))
    dual = algorithm in ("DIHT", "SDIHT")
    assert np.isfinite(trace.gap).all() == dual
    per_step = trace.epochs[-1] / len(trace.epochs)
    assert per_step == (2 if algorithm == "SVRGHT" else 1)


def test_the_search_minimises_the_mean_over_time_of_the_least_loss_so_far(text):
    problem = text(1.0)
    problem.budget = 4.0
    steady = Trace(np.array([1.0, 2, 5]), None, np.array([0.5, 0.7, 0.1]), None, None)
    np.testing.assert_allclose(problem.mean_loss(steady), (0.875 + 3 * 0.5) / 4)  # the last step ends too late
    assert problem.mean_loss(steady._replace(seconds=np.array([1.0, 2, 3]))) == np.inf  # it stopped early: it diverged


def test_methods_are_compared_at_the_lowest_level_that_both_reach():
    seconds = np.array([1.0, 2, 4, 8])
    deep = Trace(seconds, 3 * seconds, np.array([5.0, 3, 2, 1]), None, np.array([0.4, 0.1, 0.3, 0.2]))
    flat = Trace(seconds, 3 * seconds, np.array([4.0, 2, 2, 2]), None, np.array([0.2, 0.1, 0.1, 0.1]))
    assert _lead(deep, flat, "value") == np.log(2 / 4) == -_lead(flat, deep, "value")
    assert _lead(deep, flat, "error") == 0
    assert _lead(deep, flat, "value", "epochs") == np.log(6 / 12)
    assert _lead(deep, Trace(*np.empty((5, 0))), "value") == np.inf  # it diverged at once

    rows = [{"data": "d", "k": 1, "l0": 1.0, "value": {"A over B": lead}} for lead in (0.5, 0.25)]
    assert list(_leads(rows, "value", ("A", "B"))["d k = 1 lam0 = 1 A over B"].draws) == [0.5, 0.25]
