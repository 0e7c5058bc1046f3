"""Compressed sensing for many signals at once against loops over one, written as in the paper, and the library."""

import numpy as np
import pytest
from scipy.stats import linregress

import sparsehtp as sht
from benchmarks.papers import tight
from benchmarks.papers.compressed_sensing import ht_svrg, projected_gradient, threshold
from benchmarks.papers.run import Run
from benchmarks.papers.tight import problem
from benchmarks.papers.verdicts import Undecided

D, N, K = 24, 16, 2


def data():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((N, D)) / np.sqrt(N)
    signals = np.zeros((4, D))
    for row in signals:
        row[rng.choice(D, K, replace=False)] = rng.standard_normal(K)
    return A, signals


def kept(z, k):
    out = np.zeros_like(z)
    best = np.argsort(-np.abs(z))[:k]
    out[best] = z[best]
    return out


def test_the_threshold_keeps_the_largest_of_every_row_whatever_it_is_begun_at():
    rng = np.random.default_rng(1)
    for scale in (1e-300, 1e-9, 1.0, 1e140):
        z = scale * rng.standard_normal((5, 9))
        z[0, :3] = 0.0
        for guess in (0.0, 1e-200, 1.0, 1e150):
            for k in (1, 4, 6, 9):
                new = z.copy()
                threshold(new, k, np.full(5, guess))
                np.testing.assert_array_equal(new, [kept(row, k) for row in z])
    tied = np.array([[1.0, 2.0, -2.0, 0.5], [np.nan, 1.0, 2.0, 3.0]])
    threshold(tied, 1, np.ones(2))
    np.testing.assert_array_equal(tied[0], [0.0, 2.0, -2.0, 0.0])  # both, as no order parts them


@pytest.mark.parametrize("random_iterate", [False, True])
def test_ht_svrg_is_the_loop_of_the_paper(random_iterate):
    A, signals = data()
    k, m, step, stages = 6, 20, 0.3, 7
    found = ht_svrg(A, signals, k, m, step, stages, np.random.default_rng(3), random_iterate=random_iterate, trace=True)
    rng, drawn = np.random.default_rng(3), []
    for _ in range(stages):
        number = int(rng.integers(m)) if random_iterate else m
        drawn.append(rng.integers(N, size=number))
    for s, signal in enumerate(signals):
        y, x = A @ signal, np.zeros(D)
        for stage in range(stages):
            snapshot, mu = x.copy(), A.T @ (A @ x - y) / N
            for i in drawn[stage]:
                v = A[i] * (A[i] @ x - y[i]) - A[i] * (A[i] @ snapshot - y[i]) + mu
                x = kept(x - step * v, k)
            np.testing.assert_allclose(found.values[stage, s], 0.5 * np.sum((A @ x - y) ** 2), rtol=1e-9)


@pytest.mark.usefixtures("x64")
def test_projected_gradients_are_those_of_the_library():
    A, signals = data()
    found = projected_gradient(A, signals, 6, 0.4, 300)
    step = sht.solvers.IHT(sht.steps.ConstantStep(0.4 * N))
    for s, signal in enumerate(signals):
        solution = sht.solve(sht.LinearModel(A, A @ signal), sht.Sparsity(6), step, max_steps=300, throw=False)
        assert (np.linalg.norm(solution.x - signal) < 1e-3) == found.success[s]
    assert 0 < found.success.sum()


def test_what_diverges_is_neither_found_nor_a_number_of_the_trace():
    A, signals = data()
    found = ht_svrg(A, signals, 6, 30, 50.0, 20, np.random.default_rng(0), random_iterate=False, trace=True)
    assert found.diverged.all() and not found.success.any() and np.isnan(found.values[-1]).all()


def test_ht_svrg_comes_near_enough_to_a_signal_to_count(tmp_path):
    """Rounding in single precision stops one of these about a thousandth from its signal."""
    run = Run("x", {"settings": {"seed": 0, "d": 128, "signals": 5, "nonzeros": "normal"}}, tmp_path)
    A, signals = problem(run, 100, 6)
    step = 2 / np.linalg.norm(A, 2) ** 2
    found = ht_svrg(A, signals, 54, 300, step, 400, np.random.default_rng(1), random_iterate=True)
    assert found.success.all()


def test_the_least_measurements_are_found_to_within_the_resolution(tmp_path, monkeypatch):
    """With success from the paper's line on, which the fitted lines then are."""
    asked = []

    def recovered(run, n, K, algorithm, count=None):
        asked.append(count)
        count = run["signals"] if count is None else count
        return {"hits": count * (n >= 1.7 * np.log(256) * K + 33)}

    monkeypatch.setattr(tight, "recovered", recovered)
    Ks, resolution = list(range(1, 11)), 1
    settings = {"seed": 0, "d": 256, "Ks": Ks, "resolution": resolution, "signals": 100, "stages": tight.STAGES}
    run = Run("tight-fig3", {"settings": settings}, tmp_path)
    tight.fig3(run)
    for row in run.cells:
        np.testing.assert_array_equal(row["needed"], np.ceil(1.7 * np.log(256) * row["K"] + 33))
    assert {len(row["tried"]) for row in run.cells} <= {7, 8, 9}  # what 95% has tried is not tried again
    assert asked.count(None) < asked.count(tight.FEW)  # where ten are lost, no more are


def test_a_line_is_the_printed_one_where_its_interval_is_within_the_digits():
    K = np.arange(1, 21)

    def found(slope, intercept, noise):
        line = linregress(K, slope * np.log(256) * K + intercept + noise * np.random.default_rng(0).standard_normal(20))
        return tight._printed(line, 20, 33).found

    assert found(1.7, 33, 0) == found(1.74, 33.4, 1e-3) == (True, True)
    assert found(1.8, 33, 1e-3) == (False, True) and found(1.7, 40, 1e-3) == (True, False)
    assert all(isinstance(one, Undecided) for one in found(1.7, 33, 20))
    assert all(isinstance(one, Undecided) for one in tight._printed(None, 2, 33).found)
