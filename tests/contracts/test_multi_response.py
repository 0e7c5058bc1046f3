"""Several responses: formulas, finite differences, restriction, units, structures and solvers."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import Loss
from scipy.optimize import minimize
from scipy.special import softmax

import sparsehtp as sht
from sparsehtp.results import RESULTS
from sparsehtp.solvers.reduced_rank import _solve
from sparsehtp.testing import check_objective

pytestmark = pytest.mark.usefixtures("x64")

N, P, C = 40, 6, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, P)) * [1, 3, 0.5, 1, 1, 2] + [0, 1, 2, 0, -1, 0]
B = np.outer([1.0, 0, -1, 0, 0.5, 0], [1.0, -1, 0.5])
Y = X @ B + 0.3 * RNG.standard_normal((N, C)) + [1, 0, -1]
CLASSES = np.argmax(((X - X.mean(0)) / X.std(0))[:, [0, 2, 4]] + 0.5 * RNG.gumbel(size=(N, C)), axis=1)
WEIGHTS = RNG.integers(0, 3, N).astype(float)
VECTOR = np.linspace(0.05, 0.3, P)
OFFSET = RNG.standard_normal((N, C)) + np.array([0, 30, 0])  # one is centred
FULL = dict(sample_weight=WEIGHTS, l2=VECTOR, fit_intercept=True, standardize=True, offset=OFFSET)
CASES = pytest.mark.parametrize("loss", ["squared", "softmax", pytest.param("huber", marks=pytest.mark.slow)])


def make(loss):
    instance = {"squared": sht.losses.Squared(), "softmax": sht.losses.Softmax(C), "huber": sht.losses.Huber()}[loss]
    return sht.MultiResponse(X, CLASSES if loss == "softmax" else Y, instance, **FULL)


def formula(loss, W, b, sample_weight=None, l2=0.0, standardize=False, fit_intercept=False, offset=0.0):
    s = np.ones(N) if sample_weight is None else sample_weight
    s = s / s.sum()
    eta = X @ W + b + offset
    if loss == "softmax":
        each = np.log(np.sum(np.exp(eta), 1)) - eta[np.arange(N), CLASSES]
    else:
        each = Loss(loss, 1.0).value(eta, Y).sum(1)
    sd = np.sqrt(s @ (X - s @ X) ** 2) if standardize else np.ones(P)
    return s @ each + 0.5 * np.sum(np.broadcast_to(l2, P)[:, None] * (W * sd[:, None]) ** 2)


@CASES
def test_value_and_units(loss):
    objective = make(loss)
    assert objective.external_shape == (P, C) and objective.n_coefficients == P * C
    W = np.random.default_rng(3).standard_normal((P, C))
    b = np.array([0.4, -0.2, 0.1]) * bool(objective.n_free)
    x = objective.to_internal(jnp.asarray(W), b)
    np.testing.assert_allclose(objective.value(x), formula(loss, W, b, **FULL), rtol=1e-12)
    assert objective.alike == (C if objective.quadratic else 1) and objective.shift_invariant == (loss == "softmax")
    back, intercept = objective.to_external(x)
    np.testing.assert_allclose(back, W, rtol=1e-12)
    np.testing.assert_allclose(intercept, b, atol=1e-12)


@CASES
def test_laws(loss):
    check_objective(make(loss))


@CASES
def test_matrices_with_given_columns(loss):
    objective = make(loss)
    left = np.linalg.qr(np.random.default_rng(6).standard_normal((P, 2)))[0]
    mask = jnp.array([True, True])
    restricted = objective.restrict_left(jnp.asarray(left), mask)
    z, v = np.random.default_rng(7).standard_normal((2, 2 * C + objective.n_free))

    def full(z):
        return jnp.concatenate([(left @ z[: 2 * C].reshape(2, C)).ravel(), z[2 * C :]])

    def at(z):
        return objective.value(full(z))

    value = cases.jit(at)
    gradient = cases.jit(lambda z: restricted.grad(z))
    np.testing.assert_allclose(cases.jit(lambda z: restricted.value(z))(z), value(z), rtol=1e-12)
    np.testing.assert_allclose(gradient(z), cases.central_difference(value, z), rtol=1e-6, atol=1e-7)
    fit = cases.jit(lambda z: restricted.minimise(z))(jnp.zeros_like(z))
    slope = cases.jit(jax.grad(at))
    start = np.zeros(z.size)
    best = minimize(lambda z: float(value(z)), start, jac=lambda z: np.asarray(slope(z)), options=dict(gtol=1e-10)).fun
    np.testing.assert_allclose(value(fit.z), best, rtol=1e-9)
    assert not fit.singular and np.linalg.norm(gradient(fit.z)) < 1e-8
    hessian = cases.central_difference(gradient, z)
    np.testing.assert_allclose(cases.jit(lambda z, v: restricted.hvp(z, v))(z, v), hessian @ v, rtol=1e-6, atol=1e-7)
    if objective.quadratic:  # else L has no curvature along equal intercepts, and any is given to it
        np.testing.assert_allclose(cases.jit(lambda z: restricted.hess(z))(z), hessian, rtol=1e-6, atol=1e-7)


def test_terms_of_a_gradient_add_magnitudes_of_a_ridge_of_both_signs():
    rng = np.random.default_rng(6)
    left, z = rng.standard_normal((P, 2)) * [1, -1], rng.standard_normal(2 * C)

    @cases.jit
    def terms(l2):
        objective = sht.MultiResponse(X, CLASSES, sht.losses.Softmax(C), l2=l2)
        return objective.restrict_left(jnp.asarray(left), jnp.ones(2, bool)).grad_terms(jnp.asarray(z))

    slope = np.abs(softmax(X @ left @ z.reshape(2, C), axis=1) - np.eye(C)[CLASSES]) / N
    np.testing.assert_allclose(terms(0.0), (np.abs(X @ left).T @ slope).ravel(), rtol=1e-12)
    ridge = left.T @ (VECTOR[:, None] * left)
    assert ridge.min() < 0
    np.testing.assert_allclose(terms(VECTOR) - terms(0.0), (np.abs(ridge) @ np.abs(z.reshape(2, C))).ravel())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_singular_system_is_said_to_be_one_and_solved(dtype):
    """By a solution no larger than others: of copies and sums of columns, not of zeros or units."""
    solve = cases.jit(_solve)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        A, target, units = X.copy(), Y.copy(), 10.0 ** rng.uniform(-3, 3, P)
        A[:, 4] = A[:, 0] * 3 if seed % 4 == 1 else A[:, 0] + A[:, 1] if seed % 4 == 2 else A[:, 4] * (seed % 4 != 3)
        least = np.linalg.lstsq(A, target, rcond=None)[0]
        A = A * units
        Z, singular = solve((A.T @ A).astype(dtype), (A.T @ target).astype(dtype))
        assert bool(singular) == (seed % 4 in (1, 2)), seed
        room = 1e-3 if dtype == np.float32 else 1e-6
        np.testing.assert_allclose(A @ Z, A / units @ least, atol=room * np.abs(target).max())
        assert np.abs(Z * units[:, None]).max() <= 3 * np.abs(least).max(), seed


# --- rank ------------------------------------------------------------------------------------------------------------
def reduced_rank(r):
    """Closed form with an intercept and no l2: the rank-r projection of the fitted values."""
    s = WEIGHTS / WEIGHTS.sum()
    A, T, root = X - s @ X, Y - s @ Y, np.sqrt(s)[:, None]
    W = np.linalg.lstsq(A * root, T * root, rcond=None)[0]
    V = np.linalg.svd(root * (A @ W), full_matrices=False)[2][:r].T
    return W @ V @ V.T


@pytest.mark.parametrize("solver", [sht.solvers.HTP(), sht.solvers.IHT()], ids=["htp", "iht"])
def test_rank_is_reduced_rank_regression(solver):
    objective = sht.MultiResponse(X, Y, fit_intercept=True, standardize=True, sample_weight=WEIGHTS)
    for r in (1, 2, 3):
        solution = sht.solve(objective, sht.Rank(r, r_max=3), solver, max_steps=400)
        assert int(solution.result) == RESULTS.converged, solution.describe()
        np.testing.assert_allclose(solution.x, reduced_rank(r), atol=2e-5)
        assert int(solution.support.mask.sum()) == r == np.linalg.matrix_rank(np.asarray(solution.x), tol=1e-8)
        np.testing.assert_array_equal(solution.history.support_size[: int(solution.num_steps)], r)


def test_errors():
    model = sht.MultiResponse(X, Y)
    cases.refused(ValueError, "r_max", lambda: sht.solve(model, sht.Rank(3, r_max=2)))
    cases.refused(ValueError, "Y: needs shape", lambda: sht.MultiResponse(X, Y[:, 0]))
    cases.refused(ValueError, "offset: needs shape", lambda: sht.MultiResponse(X, Y, offset=OFFSET[:, 0]))
    cases.refused(ValueError, "Y: Softmax", lambda: sht.MultiResponse(X, Y, sht.losses.Softmax(3)))
    cases.refused(ValueError, "classes 0 to 1", lambda: sht.MultiResponse(X, CLASSES, sht.losses.Softmax(2)))
    cases.refused(ValueError, "integer classes", lambda: sht.MultiResponse(X, 1.0 * CLASSES, sht.losses.Softmax(C)))
    cases.refused(ValueError, "n_classes", lambda: sht.losses.Softmax(1))
    cases.refused(TypeError, "loss", lambda: sht.MultiResponse(X, Y, "squared"))
    cases.refused(ValueError, "x0", lambda: sht.solve(model, sht.Rank(1), x0=np.zeros(P)))
    fit = sht.solve(model, sht.Sparsity(1))._replace(x=np.zeros(P))
    cases.refused(ValueError, "coefficients of shape", lambda: sht.certificate(model, sht.Sparsity(1), fit))
    solver = sht.solvers.FoBa()
    cases.refused(TypeError, r"FoBa takes .*, not MultiResponse", lambda: sht.solve(model, sht.Sparsity(1), solver))


@pytest.mark.slow
def test_rank_with_softmax():
    objective = sht.MultiResponse(X, CLASSES, sht.losses.Softmax(C), l2=0.05, fit_intercept=True, standardize=True)
    values = []
    for solver in (sht.solvers.IHT(), sht.solvers.HTP()):
        solution = sht.solve(objective, sht.Rank(1), solver, max_steps=500)
        assert int(solution.result) == RESULTS.converged
        assert np.linalg.matrix_rank(np.asarray(solution.x), tol=1e-9) == 1
        values.append(float(solution.value))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-8)

    def outer(v):  # the same problem over factors
        W = np.outer(v[:P], v[P : P + C]) / X.std(0)[:, None]
        return formula("softmax", W, v[P + C :], l2=0.05, standardize=True)

    rng = np.random.default_rng(0)
    best = min(minimize(outer, 0.3 * rng.standard_normal(P + 2 * C)).fun for _ in range(5))
    np.testing.assert_allclose(values[0], best, rtol=1e-6)


def test_lanes_of_ranks_and_data_equal_the_loop():
    targets = jnp.asarray(Y + np.random.default_rng(1).standard_normal((2, N, C)))
    ranks = jnp.array([1, 2])

    def run(Y, r):
        model = sht.MultiResponse(X, Y, fit_intercept=True)
        return sht.solve(model, sht.Rank(r, r_max=2), sht.solvers.IHT(), max_steps=60)

    batch = jax.vmap(run)(targets, ranks)
    for i in range(2):
        single = run(targets[i], ranks[i])
        np.testing.assert_allclose(batch.x[i], single.x, atol=1e-9)
        np.testing.assert_allclose(batch.value[i], single.value, rtol=1e-12)
