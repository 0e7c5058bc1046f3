"""Simplex: feasible points, refits, and the best support of all, against SciPy over every support."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import Loss
from exhaustive import best_of_all
from scipy.optimize import minimize

import sparsehtp as sht
from sparsehtp.linalg import Box, Plane
from sparsehtp.linalg.restricted_newton import newton
from sparsehtp.results import RESULTS

pytestmark = pytest.mark.usefixtures("x64")
P, K = 7, 3


def least(fun, n_weights, n_free=0, total=1.0):
    """The least value of a function (value and gradient) of weights >= 0 with a given sum, and of free numbers."""
    normal = np.append(np.ones(n_weights), np.zeros(n_free))
    return minimize(
        fun,
        np.append(np.full(n_weights, total / n_weights), np.zeros(n_free)),
        jac=True,
        method="SLSQP",
        bounds=[(0, None)] * n_weights + [(None, None)] * n_free,
        constraints={"type": "eq", "fun": lambda z: normal @ z - total, "jac": lambda z: normal},
        options={"ftol": 1e-15, "maxiter": 1000},
    ).fun


def feasible(x, k, total, tol=4e-16):
    x = np.asarray(x)
    assert np.all(x >= 0) and np.count_nonzero(x) <= k
    assert abs(x.sum() - total) <= tol * x.size * total


def markets(seed, p=P):
    """A covariance with a common factor, and returns."""
    rng = np.random.default_rng(seed)
    R = rng.standard_normal((30, p)) * rng.uniform(0.5, 1.5, p) + 0.7 * rng.standard_normal((30, 1))
    return R.T @ R / 30, 0.1 * rng.standard_normal(p)


@pytest.mark.parametrize("seed", range(12))
def test_best_subset_is_the_best_portfolio(seed):
    A, b = markets(seed)
    total = [1.0, 5.0, 0.1][seed % 3]

    def value(S):
        part = A[np.ix_(S, S)]
        return least(lambda z: (0.5 * z @ part @ z - b[S] @ z, part @ z - b[S]), S.size, total=total)

    solution = sht.solve(sht.QuadraticForm(A, b), sht.Simplex(K, total))
    assert solution.result == RESULTS.converged
    feasible(solution.x, K, total)
    best = best_of_all(value, P, K)
    assert float(solution.value) <= best + 1e-8 * abs(best)


@pytest.mark.parametrize(
    ("name", "intercept", "standardize", "keep"),
    [
        pytest.param("squared", True, True, [], marks=pytest.mark.slow),
        ("logistic", False, False, [3]),
        pytest.param("poisson", True, False, [], marks=pytest.mark.slow),
    ],
)
def test_best_subset_is_the_best_mixture(name, intercept, standardize, keep):
    loss, exact = cases.LOSSES[name], Loss(name, 1.0)
    rng = np.random.default_rng(1)
    n, total, l2 = 60, 2.0, 0.01
    X = (0.6 * rng.standard_normal((n, P)) + 0.5 * rng.standard_normal((n, 1))) * [1, 2, 0.5, 1, 1, 0.3, 1]
    y = loss.draw_targets(X @ [0, 0.6, 0, 0, 0.4, 1, 0], rng)
    ridge = l2 * (X.var(0) if standardize else np.ones(P))

    def value(S):
        columns = np.column_stack([X[:, S], np.ones(n)]) if intercept else X[:, S]
        penalty = np.append(ridge[S], np.zeros(int(intercept)))

        def fun(z):
            value, _, slope, *_ = exact.parts(columns @ z, y)
            return value.mean() + 0.5 * penalty @ z**2, slope @ columns / n + penalty * z

        return least(fun, S.size, int(intercept), total)

    model = sht.LinearModel(X, y, loss, l2, fit_intercept=intercept, standardize=standardize)
    solution = sht.solve(model, sht.Simplex(K - len(keep), total, keep=keep))
    feasible(solution.x, K, total, 1e-15)
    assert {*keep} <= {*cases.members(solution.support)}
    best = best_of_all(value, P, K - len(keep), keep)
    assert float(solution.value) <= best + 1e-8 * abs(best)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", ["iht", "htp", "grasp", "subspace_pursuit"])
def test_other_solvers_end_where_the_gradient_is_along_the_weights(name, signed):
    (A, b), a, tol = markets(3), np.ones(P), 1e-6 if name == "iht" else 1e-10
    if signed:
        a = np.array([1.0, -1, 2, 0.5, 1, -1, 1])
    threshold = sht.Simplex(K, 0.5, positive=False, weights=a) if signed else sht.Simplex(K)
    solution = sht.solve(sht.QuadraticForm(A, b), threshold, cases.SOLVERS[name])
    assert solution.result == RESULTS.converged
    x, S = np.asarray(solution.x), cases.members(solution.support)
    if not signed:
        feasible(x, K, 1.0)
    np.testing.assert_allclose(a @ x, 0.5 if signed else 1, atol=1e-12)
    grad, work = A @ x - b, S if signed else np.flatnonzero(x)
    along = grad[work] @ a[work] / (a[work] @ a[work]) * a
    np.testing.assert_allclose(grad[work], along[work], atol=tol)
    assert signed or np.all(grad[S] >= along[S] - tol)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("start", ["zero", "far", "corner"])
def test_refits_of_many_weights_satisfy_the_conditions(dtype, start):
    m = 200
    rng = np.random.default_rng(1)
    R = rng.standard_normal((2 * m, m)) + rng.standard_normal((2 * m, 1))
    A, b = R.T @ R / (2 * m), 0.3 * rng.standard_normal(m)
    everything = sht.results.Support(jnp.arange(m), jnp.arange(m) < m - 1)  # the last place is padding
    problem = sht.QuadraticForm(A.astype(dtype), b.astype(dtype)).restrict(everything)
    box = Box(jnp.zeros(m, dtype), None, Plane(jnp.asarray(everything.mask, dtype), jnp.asarray(2, dtype)))
    z0 = {"zero": np.zeros(m), "far": 10 * rng.standard_normal(m), "corner": 2 * np.eye(m)[0]}[start]
    fit = cases.jit(lambda z0: newton(problem, z0, box))(jnp.asarray(z0 * everything.mask, dtype))
    z = np.asarray(fit.z, float)
    assert fit.solved and not fit.singular and np.all(z >= 0) and z[-1] == 0
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(z.sum(), 2, rtol=4 * eps)
    grad = (A @ z - b)[:-1]
    level = z @ (A @ z - b) / 2
    assert 1 < np.count_nonzero(z) < m / 2
    np.testing.assert_allclose(grad[z[:-1] > 0], level, atol=20 * eps)
    assert grad.min() >= level - 20 * eps


def of_equality(A, b, a, total):
    """The least 1/2 z'Az - b'z with a'z = total, from the linear system of the multiplier."""
    system = np.block([[A, a[:, None]], [a[None], np.zeros((1, 1))]])
    z = np.linalg.solve(system, np.append(b, total))[:-1]
    return 0.5 * z @ A @ z - b @ z, z


@pytest.mark.parametrize(
    ("total", "weighted", "keep"), [(1.0, False, []), (-2.0, True, [3]), (0.0, False, [3]), (0.0, True, [])]
)
def test_best_subset_is_the_best_of_any_sign_with_a_given_sum(total, weighted, keep):
    for seed in range(5):
        A, b = markets(seed)
        rng = np.random.default_rng(seed)
        a = rng.normal(size=P) if weighted else np.ones(P)
        if weighted and total == 0:
            a[:2] = 0  # features without a part in it

        def value(S, A=A, b=b, a=a):
            return of_equality(A[np.ix_(S, S)], b[S], a[S], total)[0] if np.any(a[S]) else np.inf

        best = best_of_all(value, P, K - len(keep), keep)
        threshold = sht.Simplex(K - len(keep), total, keep=keep, positive=False, weights=a if weighted else None)
        solution = sht.solve(sht.QuadraticForm(A, b), threshold)
        x = np.asarray(solution.x)
        assert solution.result == RESULTS.converged and np.count_nonzero(x) <= K
        np.testing.assert_allclose(a @ x, total, atol=1e-12)
        assert float(solution.value) <= best + 1e-8 * abs(best)
        assert sht.certificate(sht.QuadraticForm(A, b), threshold, solution).swap_gain == 0


@pytest.mark.parametrize("intercept", [False, True])
def test_a_contrast_is_in_original_units(intercept):
    """Log-contrasts: coefficients of compositions sum to zero."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((50, P)) * [1, 2, 0.5, 1, 1, 0.3, 1] + 1
    y = X[:, 1] - X[:, 4] + 0.1 * rng.standard_normal(50) + intercept
    model = sht.LinearModel(X, y, l2=0.01, fit_intercept=intercept, standardize=True)
    solution = sht.solve(model, sht.Simplex(2, 0.0, positive=False))
    Z = X - X.mean(0) * intercept
    A, b = Z.T @ Z / 50 + 0.01 * np.diag(X.var(0)), Z.T @ (y - y.mean() * intercept) / 50
    S = np.array([1, 4])
    np.testing.assert_array_equal(cases.members(solution.support), S)
    np.testing.assert_allclose(solution.x[S], of_equality(A[np.ix_(S, S)], b[S], np.ones(2), 0.0)[1], rtol=1e-6)
    assert not np.any(sht.solve(model, sht.Simplex(0, 0.0, positive=False)).x)


def test_the_support_of_any_sign_knows_no_common_part_and_no_unit():
    z, scores = np.random.default_rng(2).standard_normal((20, 8)), cases.jit(lambda each, z: jax.vmap(each.scores)(z))
    for k in (1, 2, 3, 5):
        first, *others = (
            np.sort(np.argsort(-np.asarray(scores(sht.Simplex(k, total, positive=False), points)), axis=1)[:, :k])
            for points, total in ((z, 2.0), (z + 1e7, 2.0), (1e200 * z, 2e200))
        )
        for other in others:
            np.testing.assert_array_equal(other, first)


def test_a_common_part_of_the_gradient_changes_nothing():
    A, b = markets(0)
    plain, moved = (sht.solve(sht.QuadraticForm(A, b + c), sht.Simplex(K)) for c in (0.0, 1e6))
    np.testing.assert_array_equal(cases.members(plain.support), cases.members(moved.support))
    np.testing.assert_allclose(plain.x, moved.x, atol=1e-8)


@pytest.mark.parametrize("name", ["best_subset", "htp", "iht"])
def test_a_constant_column_beside_an_intercept_has_no_part_in_the_sum(name):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.full(40, 2.0), rng.standard_normal((40, 3))])
    model = sht.LinearModel(X, -X[:, 2], l2=0.1, fit_intercept=True, standardize=True)
    for k in (1, 3):
        solution = sht.solve(model, sht.Simplex(k), cases.ALL_SOLVERS[name])
        feasible(solution.x, k, 1.0, 1e-15)
        assert solution.x[0] == 0
    _, support = sht.Simplex(3, weights=np.ones(4)).bind(model)(jnp.array([9.0, 0, 0, 0, 0]))
    assert cases.members(support).tolist() == [1, 2, 3, 4]


@pytest.mark.slow
def test_lanes_and_rows_of_a_path_are_solutions():
    form, own = sht.QuadraticForm(*markets(6)), sht.solvers.BestSubset("thorough")
    lanes = jax.vmap(lambda k: sht.solve(form, sht.Simplex(k, 2.0, k_max=4)))(jnp.arange(5))
    path = sht.solve_path(form, ks=[1, 2, 3, 4], threshold=sht.Simplex(1, 2.0), solver=own)
    assert lanes.result[0] == RESULTS.invalid
    for k in (1, 2, 3, 4):
        one = sht.solve(form, sht.Simplex(k, 2.0))
        np.testing.assert_allclose(lanes.x[k], one.x, atol=1e-10)
        feasible(path.x[k - 1], k, 2.0)
        np.testing.assert_allclose(path.value[k - 1], one.value, rtol=1e-9)


def test_certificates_refit_every_exchange():
    A, b = markets(7)
    form, threshold = sht.QuadraticForm(A, b), sht.Simplex(K)
    best = sht.solve(form, threshold)
    assert sht.certificate(form, threshold, best).swap_gain == 0
    worst = sht.results.Support(np.argsort(-np.diag(A))[:K].astype(np.int32), np.ones(K, bool))
    x = np.asarray(form.restrict(worst).minimise(jnp.zeros(K), threshold.bind(form).box(worst)).z)
    other = best._replace(x=jnp.zeros(P).at[worst.idx].set(x), support=worst)
    found = sht.certificate(form, threshold, other)
    assert found.stationary and found.swap_gain > 0
    cases.refused(ValueError, "violates the threshold", lambda: sht.certificate(form, sht.Simplex(K, 2.0), best))


BAD = {
    "k: a sum of 1.0 needs at least one coefficient": lambda: sht.Simplex(0),
    "k: a sum of 1.0 needs at least": lambda: sht.Simplex(0, positive=False),
    "total: needs a number > 0": lambda: sht.Simplex(2, 0.0),
    "total: needs a finite number": lambda: sht.Simplex(2, np.nan),
    "total: needs a number, got shape": lambda: sht.Simplex(2, [1.0, 2.0]),
    "weights: needs numbers > 0": lambda: sht.Simplex(2, weights=[1.0, 0.0, 2.0]),
    "weights: a weight of 0 needs total=0": lambda: sht.Simplex(2, positive=False, weights=[1.0, 0, 2]),
    "weights: needs finite numbers": lambda: sht.Simplex(2, positive=False, weights=[1.0, np.inf]),
    "weights: needs one number per feature, got": lambda: sht.Simplex(2, positive=False, weights=2.0),
    "weights: needs one number per feature .3": lambda: sht.solve(FORM, sht.Simplex(1, weights=[1.0, 2])),
}
WRONG_KIND = {
    "solver: FoBa does not take .* Simplex": lambda: sht.solve(FORM, sht.Simplex(2), sht.solvers.FoBa()),
    "threshold: a proof needs .* got Simplex": lambda: sht.prove(MODEL, sht.Simplex(2)),
    "threshold: the dual needs .* got a Simplex": lambda: sht.lower_bound(MODEL, sht.Simplex(2), 1.0),
}


@pytest.mark.parametrize("sentence", [*BAD, *WRONG_KIND])
def test_what_it_does_not_take(sentence):
    cases.refused(ValueError if sentence in BAD else TypeError, sentence, (BAD | WRONG_KIND)[sentence])


FORM = sht.QuadraticForm(np.eye(3, dtype=np.float32), np.ones(3, np.float32))
MODEL = sht.LinearModel(np.eye(3, dtype=np.float32), np.ones(3, np.float32), l2=1.0)
