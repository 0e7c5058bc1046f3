"""The experiments on stochastic solvers, on problems so small that the verdicts are known."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import sparsehtp as sht
from benchmarks.papers import hsg, reproduce
from benchmarks.papers.hsg import Curves, climb, decades_below, times_fewer
from benchmarks.papers.run import Run

FIG2 = """
[settings]
seed = 0
d = 32
K = 1
ns = [2, 32]
n = 32
Ks = [1]
matrices = 1
signals = 4
nonzeros = "normal"
stages = 400
"""
HSG = """
[settings]
seed = 0
data = { a9a = 3 }
rows = { a9a = 60 }
l2 = 1e-3
passes = 2
long_passes = 4
points = 20
copies = 2
limit_steps = 50
first_gradient_free = false
svrg_inner = [0.25]
growth = [1.3]
momentum = [0.3]
"""


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("best", [-7, 0, 2, 9])
def test_a_search_ends_with_both_neighbours_worse(best):
    tried = []

    def value(power):
        tried.append(power)
        return np.nan if power > best + 2 else abs(power - best)

    assert climb(value, 2) == best
    assert {best - 1, best + 1} <= set(tried) and len(tried) == len(set(tried))


def test_distances_of_made_up_curves():
    slow = Curves(np.array([0, 1, 2.0]), np.array([0, 10, 20]), np.array([[1, 0.1, 0.01], [1, 0.1, 0.02]]))
    fast = Curves(np.array([0, 0.5, 2.0]), np.array([0, 1, 2]), np.array([[1, 0.01, 0.001]]))
    np.testing.assert_allclose(decades_below(fast, slow, [1.0, 2.0]).draws, [1, 1 + np.log10(2) / 2])
    np.testing.assert_allclose(decades_below(slow, fast, [0.4]).draws, [0, 0])
    # To 0.01: one thresholding of the fast, 20 of the slow one; to 0.02 its line is at log(50) / log(100) of the first.
    np.testing.assert_allclose(times_fewer(fast, slow).draws, np.log([20, 20]))
    np.testing.assert_allclose(times_fewer(slow, fast).draws, -np.log([20, 20]))


@pytest.mark.parametrize(
    ("hybrid", "outcome"), [([1e-4, 2e-4, 1e-4], "holds"), ([0.5, 0.6, 0.5], "fails"), ([1e-4, 0.9, 0.01], "open")]
)
def test_one_pass_is_decided_by_all_copies(tmp_path, hybrid, outcome):
    run = Run("x", {"settings": {"seed": 0, "passes": 1, "copies": 12}}, tmp_path)

    def curve(ends, thresholds):
        gap = np.column_stack([np.ones(len(ends)), ends])
        return Curves(np.array([0, 1.0]), np.array([0, thresholds]), gap)

    rivals = {a: curve([0.01, 0.011, 0.01] * 4, 1000) for a in ("FG-HT", "SG-HT", "SVRG-HT", "SVRG-HT stored")}
    hybrids = {a: curve(hybrid * 4, 30) for a in hsg.HYBRIDS}
    hsg._decide_pass(run, {"data": {**rivals, **hybrids, hsg.LONG: curve([1e-5], 20)}})
    assert [each["outcome"] for each in run.claims[0].findings.values()] == [outcome] * 2
    assert "all give the same" in run.claims[2].findings[""]["need"]  # the two hybrids are the same curve


def test_ifo_calls_are_those_of_the_definition(tmp_path):
    """One component's gradient at one point: n + 2m a stage, or n + m with the scores of the full gradient stored."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 5), np.float32), np.sign(rng.standard_normal(20)).astype(np.float32)
    problem = hsg.Problem("small", sht.LinearModel(X, y, sht.losses.Logistic(), l2=0.1), sht.Sparsity(2))
    settings = {"seed": 0, "passes": 4, "svrg_inner": [0.25], "first_gradient_free": False}
    for free, stages, by_definition, stored in ((False, 2, 1.5, 1.25), (True, 3, 0.5, 0.25)):
        run = Run("x", {"settings": {**settings, "first_gradient_free": free}}, tmp_path)
        for algorithm, first, step in (("SVRG-HT", by_definition, 1.5), ("SVRG-HT stored", stored, 1.25)):
            (trial,) = hsg._trials(run, algorithm, 20)
            found = hsg.trace(run, problem, algorithm, trial, 0, 0)
            np.testing.assert_allclose(np.diff(found.ifo), [first, *[step] * (trial.steps - 1)])
            assert found.ifo[-1] <= 4 and found.ifo[-1] + step > 4 and trial.steps >= stages
            np.testing.assert_array_equal(np.diff(found.thresholds), 5)


def test_success_needs_measurements(tmp_path):
    result = reproduce("tight-fig2", tmp_path, config=write(tmp_path / "c.toml", FIG2))
    hits = {(cell["n"], cell["K"]): cell["hits"] for cell in result["cells"] if cell["algorithm"] == "HT-SVRG"}
    assert hits[32, 1] == 4 and hits[2, 1] < 4
    assert {each["outcome"] for claim in result["claims"] for each in claim["findings"].values()} == {"open"}


@pytest.mark.slow
def test_the_five_algorithms_are_traced_within_their_budget(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8)).astype(np.float32)
    y = np.where(X[:, 0] - X[:, 3] + 0.3 * rng.standard_normal(60) > 0, 1, -1)
    A = csr_array(X)
    np.savez(tmp_path / "a9a.npz", data=A.data, indices=A.indices, indptr=A.indptr, shape=A.shape, y=y)
    result = reproduce("hsg-fig1", tmp_path / "out", config=write(tmp_path / "c.toml", HSG), data=tmp_path)
    curves = {cell["algorithm"]: cell for cell in result["cells"]}
    assert set(curves) == {*hsg.ALGORITHMS, hsg.LONG}
    for name, curve in curves.items():
        assert curve["ifo"][-1] <= (4 if name == hsg.LONG else 2) + 1e-6 and np.min(curve["value"]) < np.log(2)
        assert len(curve["value"]) == (1 if name.startswith("FG-HT") else 2)
    assert curves["FG-HT"]["thresholds"] == [0, 1, 2] and curves["SG-HT"]["thresholds"][-1] == 120
    assert [claim["letter"] for claim in result["claims"]] == ["a", "b", "c"]
