"""Bounds that leave out zero: exactly k coefficients within them, the best of all choices by SciPy."""

import cases
import jax
import numpy as np
import pytest
from exact import Loss
from exhaustive import best_of_all
from scipy.optimize import minimize

import sparsehtp as sht
from sparsehtp.results import RESULTS

pytestmark = pytest.mark.usefixtures("x64")
N, P, L2 = 40, 8, 1e-3


def problem(seed):
    """Correlated columns, targets of strong and weak effects, and bounds of which half leave out zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) @ (np.eye(P) + 0.3)
    y = X @ [1, 0.3, 0.05, -0.6, 0, 0, 0, 0] + 0.5 * rng.normal(size=N)
    lower, upper = np.where(rng.random(P) < 0.5, 0.3, -1.0), np.full(P, 1.2)
    lower[3], upper[3] = -1.0, -0.2
    return X, y, lower, upper


def least(loss, X, y, lower, upper, intercept=False):
    """The least of the objective with all columns of X, and a constant beside them if there is an intercept."""
    A, free = np.column_stack([X, np.ones((N, int(intercept)))]), [(None, None)] * intercept
    ridge = L2 * (np.arange(A.shape[1]) < X.shape[1])

    def value(w):
        each, _, slope, *_ = Loss(loss, 1.0).parts(A @ w, y)
        return each.mean() + ridge @ w**2 / 2, A.T @ slope / N + ridge * w

    start, bounds = np.append(np.clip(0, lower, upper), np.zeros(len(free))), [*zip(lower, upper, strict=True), *free]
    return minimize(value, start, jac=True, bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10}).fun


def within(x, k, lower, upper):
    x = np.asarray(x)
    some = x != 0
    assert some.sum() == k and (x[some] >= lower[some]).all() and (x[some] <= upper[some]).all()


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_all_choices(seed, intercept):
    X, y, lower, upper = problem(seed)
    model = sht.LinearModel(X, y, l2=L2, fit_intercept=intercept)
    for k in (1, 2, 4):
        solution = sht.solve(model, sht.Sparsity(k, k_max=4, lower=lower, upper=upper))
        best = best_of_all(lambda S: least("squared", X[:, S], y, lower[S], upper[S], intercept), P, k)
        assert solution.result == RESULTS.converged
        within(solution.x, k, lower, upper)
        np.testing.assert_allclose(solution.value, best, rtol=1e-7)


def test_standardised_columns_keep_to_bounds_in_original_units():
    X, y, lower, upper = problem(7)
    X = X * [1, 3, 0.2, 1, 5, 1, 1, 0.1]
    model = sht.LinearModel(X, y, fit_intercept=True, standardize=True)
    for k in (1, 3, 8):
        within(sht.solve(model, sht.Sparsity(k, lower=lower, upper=upper)).x, k, lower, upper)


def test_another_loss_and_a_kept_feature():
    X, y, lower, upper = problem(1)
    labels = np.where(y > 0, 1.0, -1.0)
    model = sht.LinearModel(X, labels, sht.losses.Logistic(), L2)
    solution = sht.solve(model, sht.Sparsity(2, keep=[4], lower=lower, upper=upper))
    within(solution.x, 3, lower, upper)
    assert solution.x[4] != 0
    best = best_of_all(lambda S: least("logistic", X[:, S], labels, lower[S], upper[S]), P, 2, [4])
    np.testing.assert_allclose(solution.value, best, rtol=1e-6)


def test_rows_of_a_path_and_lanes_are_solutions():
    X, y, lower, upper = problem(2)
    model, bounds = sht.LinearModel(X, y, l2=L2), {"lower": lower, "upper": upper}
    path = sht.solve_path(model, ks=[1, 2, 3], threshold=sht.Sparsity(1, **bounds))
    lanes = jax.vmap(lambda k: sht.solve(model, sht.Sparsity(k, k_max=3, **bounds)).x)(np.arange(1, 4))
    for i, k in enumerate((1, 2, 3)):
        one = sht.solve(model, sht.Sparsity(k, **bounds))
        np.testing.assert_allclose(path.value[i], one.value, rtol=1e-8)
        np.testing.assert_allclose(lanes[i], one.x, rtol=1e-6, atol=1e-9)
    certificate = sht.certificate(model, sht.Sparsity(3, **bounds), one)
    assert certificate.swap_gain == 0 and certificate.lower_bound <= one.value


@pytest.mark.parametrize("any_sign", [False, True])
def test_a_solution_is_a_start_of_its_own_size(any_sign):
    X, y, lower, upper = problem(5)
    model = sht.LinearModel(X, y, l2=L2)
    threshold = sht.Simplex(3, 0.5, positive=False) if any_sign else sht.Sparsity(3, lower=lower, upper=upper)
    once = sht.solve(model, threshold)
    bound = threshold.bind(model)
    np.testing.assert_array_equal(bound.occupied(once.x), once.x != 0)
    np.testing.assert_allclose(sht.solve(model, threshold, None, once).x, once.x, rtol=1e-8)


def test_traced_bounds_may_leave_out_zero_too():
    X, y, _, _ = problem(6)
    model = sht.LinearModel(X, y, l2=L2)
    for solver in (None, sht.solvers.HTP()):
        traced = jax.jit(lambda low, s=solver: sht.solve(model, sht.Sparsity(2, k_max=2, lower=low), s, record=None).x)
        given = sht.solve(model, sht.Sparsity(2, k_max=2, lower=0.3), solver, record=None).x
        np.testing.assert_allclose(traced(0.3), given, rtol=1e-8)


@pytest.mark.parametrize("name", ["iht", "htp", "grasp", "subspace_pursuit", "foba"])
def test_other_solvers_keep_to_the_bounds(name):
    X, y, lower, upper = problem(3)
    threshold = sht.Sparsity(3, lower=lower, upper=upper)
    solution = sht.solve(sht.LinearModel(X, y, l2=L2), threshold, cases.ALL_SOLVERS[name])
    within(solution.x, 3, lower, upper)


def test_elsewhere_zero_is_within_the_bounds():
    for lower in (0.3, [0.0, 1.1]):
        cases.refused(ValueError, "lower: needs lower <", lambda a=lower: sht.Sparsity(2, lower=a, upper=[0.2, 1]))
    for make in (
        lambda: sht.GroupSparsity([0, 1], 1, lower=0.1),
        lambda: sht.L0L1L2(0.1, lower=0.1),
        lambda: sht.SparseRegressor(k=1, bounds=(0.1, None)).fit(np.eye(4), np.arange(4)),
    ):
        cases.refused(ValueError, "lower: needs lower <= 0 <= upper", make)
