"""What every batch solver promises, against NumPy and SciPy."""

import functools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import Loss
from scipy.optimize import lsq_linear, minimize

import sparsehtp as sht
from sparsehtp.results import FIRED, RESULTS

pytestmark = pytest.mark.usefixtures("x64")

FOUR = pytest.mark.parametrize("name", ["iht", "htp", "grasp", "subspace_pursuit"])
N, P, K = 100, 30, 3
PLANTED = {loss: cases.planted(cases.LOSSES[loss]) for loss in ("squared", "logistic")}
# approximate refits or steps that only fade: stationary to this tolerance, else 1e-6
LOOSE = {"iht_schedule": 5e-2, "htp_newton": 1e-2, "cosamp": 0.2}


def gradient(loss, X, y, w, l2=0.0):
    return X.T @ Loss(loss, 1.0).parts(X @ w, y)[2] / len(y) + l2 * w


def value(loss, X, y, w, l2=0.0):
    return Loss(loss, 1.0).value(X @ w, y).mean() + 0.5 * l2 * w @ w


def fit(name, loss="squared", k=K, k_max=P, l2=0.01, x0=None, **rest):
    """All problems of this file share shapes and k_max, so that a solver is compiled once per loss."""
    X, y, _ = PLANTED[loss]
    objective = sht.LinearModel(X, y, cases.LOSSES[loss], l2=l2)
    return sht.solve(objective, sht.Sparsity(k, k_max), cases.ALL_SOLVERS[name], x0=x0, **rest)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        pytest.param(name, loss, marks=() if loss == "squared" or name in ("iht", "htp") else pytest.mark.slow)
        for loss in PLANTED
        for name in cases.SOLVERS
    ],
)
def test_planted_support_stationarity_and_history(name, loss):
    X, y, support = PLANTED[loss]
    solution = fit(name, loss)
    np.testing.assert_array_equal(cases.members(solution.support), support)
    w = np.asarray(solution.x)
    assert set(np.flatnonzero(w)) == set(support)
    np.testing.assert_allclose(solution.value, value(loss, X, y, w, l2=0.01), rtol=1e-10)
    scale = np.linalg.norm(gradient(loss, X, y, np.zeros(P)))
    slope = np.linalg.norm(gradient(loss, X, y, w, l2=0.01)[support])
    assert slope <= LOOSE.get(name, 1e-6) * scale
    if name != "iht_schedule":
        assert int(solution.result) == RESULTS.converged and int(solution.fired) != FIRED.none

    steps, best = int(solution.num_steps), int(solution.best_step)
    history = jax.tree.map(lambda h: np.asarray(h)[:steps], solution.history)
    assert history.value[best] == solution.value
    assert best == (np.argmin(history.value) if cases.SOLVERS[name].returns_best else steps - 1)
    np.testing.assert_allclose(history.grad_norm[best], slope, rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(history.support_size, K)
    assert np.all(history.status == 0) and np.all(history.gap == np.inf) and np.all(history.step_size > 0)


@pytest.mark.parametrize("name", ["iht", "iht_constant", "htp", "htp_backtracking", "htp_newton"])
def test_the_objective_never_rises(name):
    X, y, _ = PLANTED["logistic"]
    rng = np.random.default_rng(1)
    w0 = np.where(np.arange(P) < K, rng.standard_normal(P), 0)
    for k, x0 in ((K, None), (8, None), (K, w0)):
        solution = fit(name, "logistic", k=k, x0=x0)
        values = np.asarray(solution.history.value)[: int(solution.num_steps)]
        first = value("logistic", X, y, np.zeros(P) if x0 is None else w0, l2=0.01)
        assert np.all(np.diff([first, *values]) <= 1e-12), name


def test_rounding_refuses_no_step():
    """At a solution, where F is large beside all that a step changes, sizes stay what the curvature allows."""
    X, y, _ = PLANTED["squared"]
    model = sht.LinearModel(X, y + 1e5, l2=0.01)
    curvature = np.linalg.eigvalsh(X.T @ X / N)[-1] + 0.01
    solution = sht.solve(
        model, sht.Sparsity(K, P), cases.SOLVERS["iht_backtracking"], termination=sht.stopping.Never(), max_steps=100
    )
    sizes = np.asarray(solution.history.step_size)
    assert sizes.shape == (100,) and sizes.min() >= 0.5 / curvature


@pytest.mark.parametrize(
    "name", [pytest.param(a, marks=[pytest.mark.later] * ("iht" not in a)) for a in (*cases.SOLVERS, "best_subset")]
)
def test_no_features_and_all(name):
    X, y, _ = PLANTED["squared"]
    none, every = fit(name, k=0), fit(name, k=P, l2=0.0)
    np.testing.assert_array_equal(none.x, 0)
    assert cases.members(none.support).size == 0
    np.testing.assert_allclose(none.value, 0.5 * np.mean(y**2))
    assert int(none.result) in (RESULTS.converged, RESULTS.max_steps)
    tol = 1e-2 if name == "iht_schedule" else 1e-6
    np.testing.assert_allclose(every.x, np.linalg.lstsq(X, y, rcond=None)[0], atol=tol)
    np.testing.assert_array_equal(cases.members(every.support), np.arange(P))


BOUNDS = {"box": (-0.4, 0.5), "nonnegative": (0.0, np.inf)}


@pytest.mark.parametrize("kind", BOUNDS)
@FOUR
def test_bounds_match_scipy_on_the_support(name, kind):
    X, y, _ = cases.data(sht.losses.Squared(), seed=3)
    lower, upper = BOUNDS[kind]
    solution = sht.solve(sht.LinearModel(X, y), sht.Sparsity(4, lower=lower, upper=upper), cases.SOLVERS[name])
    assert int(solution.result) == RESULTS.converged
    support = cases.members(solution.support)
    assert support.size == 4
    found, expected = np.asarray(solution.x)[support], lsq_linear(X[:, support], y, (lower, upper), tol=1e-14).x
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.any((found == lower) | (found == upper)), "a bound is active, or this test shows nothing"


def test_a_start_without_features_has_the_support_of_the_steepest_descent():
    """Whatever its intercept is; among what may not be negative that of what rises."""
    bound = sht.Sparsity(1, lower=0).bind(sht.LinearModel(np.eye(3), np.ones(3), fit_intercept=True))
    first = cases.jit(lambda x: sht.solvers.first_support(bound, x, jnp.array([3.0, -1, 2, 0.5])))
    for x, chosen in (([0.0, 0, 0, 5], 1), ([0.0, 0, 1, 5], 2)):
        support = first(jnp.array(x))
        assert cases.members(support).tolist() == [chosen, 3]


@FOUR
def test_groups(name):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 12))
    groups = np.arange(12) // 3
    w = np.where((groups == 1) | (groups == 3), 1.0, 0.0) * rng.choice([-1, 1], 12)
    y = X @ w + 0.1 * rng.standard_normal(60)
    within = 2 if name == "iht" else None  # of the three in a group
    solution = sht.solve(sht.LinearModel(X, y), sht.GroupSparsity(groups, 2, within=within), cases.SOLVERS[name])
    where = np.flatnonzero(solution.x)
    np.testing.assert_array_equal(groups[where], np.repeat([1, 3], within or 3))
    np.testing.assert_allclose(np.asarray(solution.x)[where], np.linalg.lstsq(X[:, where], y)[0], atol=1e-6)


def test_a_few_newton_steps_nearly_minimise():
    exact, few = fit("htp", "logistic"), fit("htp_newton", "logistic")
    assert exact.value <= few.value <= exact.value * (1 + 1e-3)
    assert few.history.value[0] > exact.history.value[0], "the first refit, from zero, is cut short"


@FOUR
def test_a_warm_start_is_in_original_units_and_stays(name):
    first = fit(name)
    for x0 in (first, first.x):
        again = fit(name, x0=x0)
        np.testing.assert_allclose(again.x, first.x, atol=1e-7)
        assert int(again.num_steps) <= min(4, int(first.num_steps) + 1)


def test_singular_supports_are_reported():
    """And solved by the least of their minimisers; a ridge makes them regular."""
    X, y, _ = cases.data(sht.losses.Squared())
    X[:, 1] = X[:, 0]
    objective, six = sht.LinearModel(X, y), sht.Sparsity(6)
    for solver in (sht.solvers.HTP(), sht.solvers.GraSP(), sht.solvers.SubspacePursuit()):
        solution = sht.solve(objective, six, solver, throw=False)
        assert int(solution.result) == RESULTS.singular
        np.testing.assert_allclose(solution.x, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-8)
        cases.refused(sht.results.SolveError, "singular", lambda s=solver: sht.solve(objective, six, s))
    assert int(sht.solve(sht.LinearModel(X, y, l2=0.1), six, sht.solvers.HTP()).result) == RESULTS.converged


def test_bounds_with_the_logistic_loss_and_standardisation():
    X, y, _ = cases.data(sht.losses.Logistic(), seed=5)
    X = X * [1, 2, 0.5, 1, 3, 1] + 1
    objective = sht.LinearModel(X, y, sht.losses.Logistic(), fit_intercept=True, standardize=True, l2=0.05)
    solution = sht.solve(objective, sht.Sparsity(3, lower=-0.3, upper=0.3), sht.solvers.HTP())
    support = cases.members(solution.support)
    sd = X.std(0)[support]

    def fun(z):
        eta = X[:, support] @ z[:3] + z[3]
        return np.log1p(np.exp(-y * eta)).mean() + 0.025 * np.sum((z[:3] * sd) ** 2)

    box = [(-0.3, 0.3)] * 3 + [(None, None)]
    best = minimize(fun, np.zeros(4), bounds=box, method="L-BFGS-B", options=dict(ftol=1e-15, gtol=1e-10))
    np.testing.assert_allclose([*np.asarray(solution.x)[support], solution.intercept], best.x, atol=1e-5)
    np.testing.assert_allclose(solution.value, best.fun, rtol=1e-9)
    assert np.any(np.abs(solution.x) >= 0.3 - 1e-12)


DIVERGING = {
    "iht": sht.solvers.IHT(sht.steps.ConstantStep(1e6)),
    "svrg": sht.solvers.SVRGHT(sht.steps.ConstantStep(1e4), inner_steps=40),
}


@pytest.mark.parametrize("name", DIVERGING)
def test_nonfinite_steps_are_refused_and_reported(name):
    X, y, _ = cases.data(sht.losses.Squared())
    with jax.enable_x64(False):
        run = functools.partial(sht.solve, sht.LinearModel(np.float32(X), np.float32(y)), sht.Sparsity(2))
        solution = run(DIVERGING[name], throw=False)
        assert int(solution.result) == RESULTS.nonfinite
        assert np.isfinite(solution.x).all() and np.isfinite(solution.value)
        values = solution.history.value[: int(solution.num_steps)]
        assert not np.isfinite(values[-1]) and int(solution.best_step) == len(values) - 2
        assert len(values) == 1 or solution.value == values[-2]
        cases.refused(sht.results.SolveError, "infinite", lambda: run(DIVERGING[name]))


def test_a_quadratic_form_counts_one_gradient_and_its_support_need_not_be_its_nonzeros():
    for b, best in ((np.arange(6.0), [0, 0, 0, 0, 4, 5]), (np.zeros(6), np.zeros(6))):
        solution = sht.solve(sht.QuadraticForm(np.eye(6), b), sht.Sparsity(2), sht.solvers.HTP())
        np.testing.assert_array_equal(solution.history.ifo[: int(solution.num_steps)], 1)
        np.testing.assert_allclose(solution.x, best)
        assert cases.members(solution.support).size == 2
