"""The experiments of [GraHTP]: their rules on made-up outcomes, their formulas against others."""

import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from benchmarks.papers.data import DataSet
from benchmarks.papers.grahtp import Recovery, rises, sparse_eigenvalue, theory_steps, trade_off
from benchmarks.papers.grahtp_rates import fig1, hard_threshold_bound, relaxed, theorem2, theorem5
from benchmarks.papers.grahtp_real import Problem, best, errors
from benchmarks.papers.run import Run
from benchmarks.papers.verdicts import FAILS, HOLDS, IN_PART, Undecided, enough, every

OPEN = Undecided("more")
SETTINGS = {"seed": 0, "ks": [5, 7], "ns": [10, 20, 30], "k_true": 5}


def table(curves, copies=100):
    """A `Recovery` whose methods succeed in these shares of the copies, at every k."""
    rows = [
        {"k": k, "n": n, "algorithm": a, "exact": outcome, "relaxed": outcome}
        for k in SETTINGS["ks"]
        for n, place in zip(SETTINGS["ns"], range(3), strict=True)
        for a, curve in curves.items()
        for outcome in ["1" * round(copies * curve[place]) + "0" * round(copies * (1 - curve[place]))]
    ]
    return Recovery(SETTINGS, rows)


def test_curves_rise_fall_or_leave_it_open():
    assert rises(table({"A": [0, 0.5, 0.9]})).outcome() is True
    assert rises(table({"A": [0, 0.9, 0.88]})).outcome() is True  # a fall within sampling error
    assert rises(table({"A": [0, 0.5, 0.9], "B": [0, 0.9, 0.4]})).outcome() == IN_PART
    assert rises(table({"A": [0.6, 0.5, 0.3]})).outcome() is False
    assert isinstance(rises(table({"A": [0.5, 0.55, 0.6]}, copies=20)).outcome(), Undecided)


def test_the_trade_off_is_won_against_every_other_method():
    curves = {"A": [0.1, 0.6, 0.9], "B": [0, 0.3, 0.7], "C": [0.3, 0.8, 1]}
    for ours, others, outcome in (("C", "AB", True), ("B", "AC", False), ("A", "BC", IN_PART)):
        for leads in trade_off(table(curves), ours, others).values():
            assert every(leads.values()).outcome() == outcome
    assert table(curves).lead([5, 7], "A", "B").value == pytest.approx(0.2)


def test_counts_of_decisions():
    assert enough([True, True, OPEN], 2).outcome() is True
    assert enough([True, False, False], 2).outcome() is False
    assert enough([True, False, OPEN], 2).outcome() is OPEN


def test_a_fit_that_diverged_is_not_the_best():
    rows = [{"objective": None}, {"objective": 3.0}, {"objective": 2.0}]
    assert best(rows) == {"objective": 2.0}


def test_the_factors_are_those_of_the_best_step_and_the_tight_bound():
    for condition in (1.01, 1.1, 1.25):
        eta = np.linspace(1e-3, 2, 20_000) / condition
        rho = np.sqrt(1 - 2 * eta + eta**2 * condition**2).min()  # m = 1
        np.testing.assert_allclose(theorem2(condition), (rho / (1 - rho), 1.62 * rho), rtol=1e-5)
        gamma = np.sqrt(hard_threshold_bound(3 / 60))
        np.testing.assert_allclose(theorem5(condition, 3 / 60)[1], gamma * rho, rtol=1e-5)
        eta = 1 / (2 * condition)
        np.testing.assert_allclose(theorem5(condition, 0.1)[0], 1 - eta * (1 - eta * condition) / 2)
        assert relaxed(condition) == pytest.approx(2 + 4 / eta**2)


def test_the_theorems_hold_and_their_claims_can_fail(tmp_path, monkeypatch):
    conditions = {part: [1.1] for part in ("2a", "2b", "5a", "5b")}
    settings = {"seed": 0, "p": 60, "copies": 10, "steps": 3, "noise": 0.01, "conditions": conditions}
    run = Run("x", {"settings": settings}, tmp_path / "a")
    fig1(run)
    # (0.65, 1) is had with neither step.
    assert {each["parts"] for each in run.claims[1].findings.values()} == {"2 of 3"}
    assert [next(iter(claim.findings.values()))["outcome"] for claim in run.claims] == [HOLDS, IN_PART, *[HOLDS] * 4]
    assert all(0 < claim.evidence["largest_error_over_bound"] <= 1 for claim in run.claims[2:])
    slow = sht.solvers.IHT(sht.steps.ConstantStep(1e-3))
    monkeypatch.setattr("benchmarks.papers.grahtp_rates.HTP", lambda step: slow)
    run = Run("x", {"settings": settings}, tmp_path / "b")
    fig1(run)
    found = {claim.letter: claim.findings[""]["outcome"] for claim in run.claims if claim.letter != "b"}
    assert found["c"] == FAILS and found["d"] == HOLDS


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 12)).astype(np.float32)
    y = np.where(X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(60) > 0, 1.0, -1.0).astype(np.float32)
    settings = {"seed": 0, "l2": 1e-2, "max_steps": 50, "grasp_steps": 5, "l1_steps": 2000}
    X[50:55] = 0  # test rows without any feature
    data = DataSet(X[:40], y[:40], X[40:], y[40:])
    return Problem(Run("x", {"settings": settings}, tmp_path_factory.mktemp("run")), data)


def value(data, w, l2):
    return np.mean(np.logaddexp(0, -2 * data.y * (data.X @ w))) + l2 / 2 * w @ w


def test_a_row_without_features_is_half_an_error(problem):
    w = np.zeros(12)
    w[:2] = 1, -1
    scores, y = problem.data.X_test @ w, problem.data.y_test
    found = errors({"wrong": problem.wrong(w)})
    np.testing.assert_array_equal(found[scores != 0], (scores * y < 0)[scores != 0])
    assert (found[scores == 0] == 0.5).all() and (scores == 0).sum() == 5


def test_the_papers_step_is_that_of_the_mean_loss(problem):
    X = problem.data.X
    for weights in np.stack([np.ones(40), np.linspace(0.1, 2, 40)]).astype(np.float32):
        step = theory_steps(X[None], weights, 1e-2, 1.0, k=6)[0]
        steepest = np.linalg.eigvalsh(X.T * weights @ X / weights.sum())[-1]
        np.testing.assert_allclose(step, 0.5 / (steepest + 1e-2), rtol=1e-2)
        if weights[0] == 1:
            np.testing.assert_allclose(problem.paper_step(6), step, rtol=1e-5)


def test_every_fit_gives_its_objective_and_takes_the_features_that_it_says(problem):
    data = problem.data
    gradient = np.abs(data.X.T @ data.y)  # at zero, times n
    first = problem.fit("FBS", 1)
    j = np.argmax(gradient)
    grid = np.linspace(-5, 5, 20_001)
    least = min(value(data, w * np.eye(12)[j], 1e-2) for w in grid[np.sign(grid) == np.sign((data.X.T @ data.y)[j])])
    assert first["objective"] == pytest.approx(least, abs=1e-5)
    assert problem.fit("GraHTP", 1, 1e-3)["objective"] == pytest.approx(least, abs=1e-5)
    assert problem.fit("FGraHTP", 4)["objective"] > problem.fit("GraHTP", 4)["objective"] - 1e-6


def test_l1_by_accelerated_gradients_is_optimal(problem):
    data, l1 = problem.data, 0.05
    x, outcome = problem.accelerated(l1)
    gradient = -2 * data.X.T @ (data.y / (1 + np.exp(2 * data.y * (data.X @ x)))) / 40
    on = x != 0
    assert 0 < on.sum() < 12 and outcome["steps"] < 2000
    np.testing.assert_allclose(gradient[on], -l1 * np.sign(x[on]), atol=2e-3)
    assert np.abs(gradient[~on]).max() <= l1 + 2e-3


def test_the_sparse_eigenvalue_is_a_lower_bound(x64):
    A = np.cov(np.random.default_rng(0).standard_normal((6, 40)))
    best = max(np.linalg.eigvalsh(A[np.ix_(s, s)])[-1] for s in np.array(np.triu_indices(6, 1)).T)
    found = sparse_eigenvalue(lambda v: jnp.asarray(A) @ v, jnp.asarray(np.diag(A)), 2)
    assert np.diag(A).max() - 1e-12 <= found <= best + 1e-12


def kept(b, k):
    x = np.zeros_like(b)
    top = np.argsort(-np.abs(b), kind="stable")[:k]
    x[top] = b[top]
    return x


@pytest.mark.parametrize(
    ("k", "K", "p"), [(1, 1, 2), (3, 3, 6), (3, 2, 9), (5, 2, 6), (4, 4, 5), (9, 1, 30), (8, 5, 10)]
)
def test_tight_bound_holds_and_is_attained(k, K, p):
    rng, m, worst = np.random.default_rng(0), min(K, p - k), 0.0
    nu = hard_threshold_bound(m / (k - K + m))
    for _ in range(500):
        b, x = rng.standard_normal(p), np.zeros(p)
        x[rng.choice(p, K, replace=False)] = rng.standard_normal(K)
        x = np.where(x != 0, x + rng.choice([0, 2]) * b, 0)  # also near the bad direction
        worst = max(worst, np.sum((kept(b, k) - x) ** 2) / np.sum((b - x) ** 2))
    assert 1 <= nu <= (3 + np.sqrt(5)) / 2 + 1e-12
    assert worst <= nu * (1 + 1e-12)
    # Remark 5: b of equal magnitudes, so that ||b4||^2 = rho ||b1||^2; x = nu/(nu - 1) b on min(K, p-k) dropped
    # entries (b4) and x = b on K - min(K, p-k) kept ones (b2).
    b, x = (np.arange(p) < k + m).astype(float), np.zeros(p)
    x[k : k + m] = nu / (nu - 1)
    x[: K - m] = 1
    best = kept(b, k)
    assert np.count_nonzero(x) <= K and np.array_equal(np.flatnonzero(best), np.arange(k))
    np.testing.assert_allclose(np.sum((best - x) ** 2), nu * np.sum((b - x) ** 2), rtol=1e-12)
