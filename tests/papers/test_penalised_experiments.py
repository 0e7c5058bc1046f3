"""The experiments of [DIHT] and [DIOM]: their gaps, a stopping rule, and what is found in made-up rows."""

import itertools

import jax
import numpy as np
import pytest

import sparsehtp as sht
from benchmarks.papers import diom
from benchmarks.papers.diht import gap_of
from benchmarks.papers.run import Run
from sparsehtp.duality import dual_of


def small(n=12, p=6):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    X /= np.linalg.norm(X, axis=0)
    return X, X[:, 0] - 2 * X[:, 3] + 0.2 * rng.standard_normal(n)


def test_the_gap_is_the_librarys_and_a_bound():
    X, y = small()
    n, lam, rng = len(y), (0.05, 0.03, 0.4), np.random.default_rng(1)
    points = [np.where(rng.random(6) < 0.5, rng.standard_normal(6), 0) for _ in range(20)]
    found = [diom.duality_gap(X, y, lam, x) for x in points]
    with jax.enable_x64(True):
        model, threshold = sht.LinearModel(X, y, l2=2 * lam[2] / n), sht.L0L1L2(lam[0] / n, lam[1] / n)
        dual = dual_of(model, threshold)
        for x, (value, gap) in zip(points, found, strict=True):
            np.testing.assert_allclose(n * (model.value(x) + threshold.value(x)), value)
            np.testing.assert_allclose(value - gap, n * dual.point(X @ x - y).value)
    assert max(value - gap for value, gap in found) <= min(value for value, _ in found)


def test_an_ascent_stops_by_the_change_of_its_gap():
    X, y = small()
    lam = (0.05, 0.03, 0.4)
    with jax.enable_x64(True):
        _, taken, ended = diom.fitted(X, y, lam, "DualAst", 2, 60_000)
        assert 1000 < taken < 60_000 and ended  # at a step of 5e-4
        assert diom.fitted(X, y, lam, "DualAst", 2, 60_000, 7)[1:] == (7, False)


RIVAL = {"recovery": 0.5, "error": 0.7, "nonzeros": 10, "objective": 1.0, "gap": 1.0, "time": 1.0, "ended": True}


def decided(folder, decide, ns, name, places, **own):
    """Outcomes and parts of claims about made-up rows: every method is `RIVAL` but for what is its own."""
    run = Run("x", {"settings": {"seed": 0, "ns": ns, f"{name}s": places, "copies": 10}}, folder)
    rng, rows = np.random.default_rng(0), []
    for place, n, copy in itertools.product(places, ns, range(10)):
        values = {a: RIVAL | own.get(a.replace(" ", "_"), {}) for a in diom.ALGORITHMS}
        for each in values.values():
            each |= {m: v * (1 + 0.01 * rng.random()) for m, v in each.items() if m != "ended"}
        rows.append({"n": n, name: place, "copy": copy, **values})
    decide(run, diom.Table(rows, ("n", name)))
    claims = {claim.letter: claim.findings.values() for claim in run.claims}
    return [{a: [each[key] for each in found] for a, found in claims.items()} for key in ("outcome", "parts")]


@pytest.mark.parametrize(("own", "outcome"), [(0.1, "holds"), (3.0, "fails")])
def test_simulated_data_are_decided_by_time_form_by_form(tmp_path, own, outcome):
    def decide(run, table):
        diom._decide_simulated(run, table, 10)

    own = {"PrimDual": {"time": own}, "PrimDual_convex": {"time": 0.5}}
    assert decided(tmp_path, decide, [1, 2], "snr", [20, 5], **own)[0] == {"a": [outcome, "holds"]}


def test_text_is_decided_form_by_form(tmp_path):
    own = {"PrimDual": {"time": 9.0}, "PrimDual_convex": {"time": 0.2}, "CDSS": {"gap": 0.2, "time": 5.0}}
    outcomes, _ = decided(tmp_path, diom._decide_words, [1, 2, 3], "p", [5, 9], **own)
    assert outcomes == {"a": ["fails", "holds"], "b": ["fails", "holds"], "c": ["in part", "holds"], "d": ["holds"] * 2}


def test_a_run_that_was_stopped_decides_only_what_a_longer_one_could_not_turn(tmp_path):
    own = {
        "DIHT": {"time": 9.0, "ended": False},
        "PrimDual": {"gap": 5.0, "time": 0.1, "ended": False},  # in the lead, but not at its end
        "PrimDual_convex": {"time": 20.0},  # behind a rival's that would take longer
    }
    outcomes, parts = decided(tmp_path, diom._decide_words, [1, 2], "p", [5, 9], **own)
    assert parts["a"] == ["0 of 2, 2 undecided", "0 of 2, 1 undecided"]
    assert outcomes.pop("c")
    assert outcomes == {"a": ["open", "fails or in part"], "b": ["open", "fails"], "d": ["open", "open"]}


def ridge_instance(seed):
    rng = np.random.default_rng(seed)
    X, w = rng.standard_normal((30, 30)), np.zeros(30)
    w[rng.choice(30, 5, replace=False)] = rng.standard_normal(5)
    return X, X @ w + 0.1 * rng.standard_normal(30)


@pytest.mark.slow
def test_the_gap_curve_of_sparse_ridge_regression():
    """N = d = 30, k = 5, noise 0.1, exhaustive optimum: gaps of some 1e-3, and falling relative to F."""
    scales = (0.01, 0.1, 1, 10, 20)
    expected = np.array([2.2e-3, 1.5e-3, 1.7e-3, 1.6e-3, 2.3e-4])  # of one instance
    found = [[gap_of(*ridge_instance(seed), scale / np.sqrt(30), 5) for scale in scales] for seed in range(5)]
    gaps = np.array([[each["gap"] for each in row] for row in found])
    assert np.all((gaps.min(0) / 3 < expected) & (expected < 3 * gaps.max(0)))
    relative = np.median([[each["gap"] / each["primal"] for each in row] for row in found], axis=0)
    assert np.all(np.diff(relative) < 0) and 0.1 < relative[0] < 1 and relative[-1] < 5e-3
