"""Derivatives of solutions: finite differences, the adjoint, second derivatives, batches, and clear refusals."""

from typing import NamedTuple

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.derivatives.implicit import Tilted, _linear_solve, equations
from sparsehtp.derivatives.margin import support_margin

pytestmark = pytest.mark.usefixtures("x64")

N, P = 40, 8
STEP = 1e-5


def problem(loss, seed=0, coefficients=(1.2, -0.9, 0.7)):
    """Parameters of a linear model whose three planted coefficients are clear."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P))
    w = np.zeros(P)
    w[[1, 4, 6]] = coefficients
    y = loss.draw_targets(X @ w, rng)
    weights, l2 = rng.uniform(0.5, 1.5, N), rng.uniform(0.02, 0.1, P)
    return {"X": X, "y": y, "sample_weight": weights, "l2": l2, "offset": 0.1 * rng.standard_normal(N)}


OF_OTHERS = ("parameter", "upper", "l0", "l1", "prices")  # of the loss and of the threshold


def linear(loss, **options):
    def make(params):
        own = {name: value for name, value in params.items() if name not in OF_OTHERS}
        given = type(loss)(params["parameter"]) if "parameter" in params else loss
        return sht.LinearModel(own.pop("X"), own.pop("y"), given, **own, **options)

    return make


def quadratic(params):
    A = params["A"] @ params["A"].T / P + jnp.eye(P)
    return sht.QuadraticForm(A, params["b"], params["constant"])


def poisson_like(x, X, y, l2):
    return jnp.mean(jnp.exp(X @ x) - y * (X @ x)) + 0.5 * l2 * x @ x


def custom(params):
    return sht.Custom(poisson_like, params["X"], params["y"], params["l2"])


def multi_problem():
    """Three responses that depend on a matrix of rank two."""
    rng = np.random.default_rng(5)
    X, A = rng.standard_normal((N, 6)), rng.standard_normal((6, 2))
    Y = X @ A @ rng.standard_normal((2, 3)) + rng.standard_normal((N, 3))
    return {"X": X, "Y": Y, "sample_weight": rng.uniform(0.5, 1.5, N), "l2": 0.1}


GROUPS = np.array([0, 1, 0, 2, 1, 2, 1, 0])
TIGHT = sht.stopping.SmallStep(1e-13) & sht.stopping.SmallGradient(1e-12)
SPARSE, HTP, IHT = sht.Sparsity(3, k_max=4), sht.solvers.HTP(), sht.solvers.IHT(sht.steps.ConstantStep())
COUNTS = problem(sht.losses.Poisson(), coefficients=(0.6, -0.5, 0.4))
ROWS = multi_problem()
CLASSES = ROWS["Y"].argmax(1)
LABELLED = {name: value for name, value in ROWS.items() if name != "Y"}
RNG = np.random.default_rng(3)
FORM = {"A": RNG.standard_normal((P, P)), "b": 3.0 * RNG.standard_normal(P), "constant": 0.3}
DATA = np.random.default_rng(6).standard_normal((N, 5)) @ (np.eye(5) + np.diag(np.full(4, 0.8), 1))
TIMES, EVENTS = np.random.default_rng(7).integers(1, 9, N), np.random.default_rng(8).random(N) < 0.6
UNLABELLED = {name: value for name, value in problem(sht.losses.Squared()).items() if name != "y"}
PRICED = {name: value for name, value in problem(sht.losses.Logistic()).items() if name in ("X", "y")} | {"l2": 0.05}


def several(params):
    return sht.MultiResponse(**params, fit_intercept=True)


def softmax(params):
    return sht.MultiResponse(**params, Y=CLASSES, loss=sht.losses.Softmax(3))


def precision(params):
    return sht.Precision(params["data"].T @ params["data"] / N, N)


def cox(params):
    return sht.CoxModel(time=TIMES, event=EVENTS, **params)


def ordinal(params):
    return sht.OrdinalModel(y=CLASSES, n_classes=3, **params)


def glm(loss, parameter=None, solver=HTP, termination=None, threshold=lambda _: SPARSE, **options):
    """A case of a linear model, with the derivative in a parameter of its loss."""
    params = problem(loss) | ({} if parameter is None else {"parameter": parameter})
    return linear(loss, **options), params, threshold, solver, termination


CENTRED, KEPT = dict(fit_intercept=True, standardize=True), sht.Sparsity(3, k_max=5, keep=[2])
LOGIT, GENTLE = linear(sht.losses.Logistic()), sht.solvers.IHT(sht.steps.ConstantStep(0.3))
COUNTED, CAPPED = linear(sht.losses.Poisson(), fit_intercept=True), COUNTS | {"upper": np.full(P, 0.35)}


def priced(params):
    return sht.L0L1L2(0.005, 0.02, prices=params["prices"], lower=-0.9, upper=0.9)


# name -> (objective from parameters, parameters, threshold from parameters, solver, termination)
CASES = {
    "rank": (several, ROWS, lambda _: sht.Rank(2, r_max=3), IHT, TIGHT),
    "rank_softmax": (softmax, LABELLED, lambda _: sht.Rank(1, r_max=2), IHT, TIGHT),
    "rows": (several, ROWS, lambda _: sht.RowSparsity(3, k_max=4, keep=[1]), HTP, None),
    "precision": (precision, {"data": DATA}, lambda _: sht.OffDiagonal(3, k_max=5), HTP, None),
    "squared": (linear(sht.losses.Squared(), **CENTRED), problem(sht.losses.Squared()), lambda _: KEPT, HTP, None),
    "logistic": glm(sht.losses.Logistic(), 1.3, IHT, TIGHT, fit_intercept=True),
    "huber": glm(sht.losses.Huber(), 0.4, IHT, TIGHT),
    "poisson_box": (COUNTED, CAPPED, lambda p: sht.Sparsity(3, 4, lower=-2.0, upper=p["upper"]), GENTLE, TIGHT),
    "tweedie": glm(sht.losses.Tweedie(), 1.4, fit_intercept=True),
    "negative_binomial": glm(sht.losses.NegativeBinomial(0.5), 0.5, standardize=True),
    "gamma": glm(sht.losses.Gamma()),
    "squared_hinge": glm(sht.losses.SquaredHinge()),
    "quantile": glm(sht.losses.Quantile(), 0.6),
    "smoothed_hinge_group": glm(
        sht.losses.SmoothedHinge(), 1.1, IHT, TIGHT, lambda _: sht.GroupSparsity(GROUPS, 2, k_max=3, within=2)
    ),
    "quadratic_form": (quadratic, FORM, lambda _: sht.Sparsity(4, lower=0), HTP, None),
    "simplex": (quadratic, FORM | {"total": 4.0}, lambda p: sht.Simplex(4, p["total"], k_max=5), HTP, None),
    "custom": (custom, {"X": COUNTS["X"], "y": COUNTS["y"], "l2": 0.1}, lambda _: SPARSE, GENTLE, TIGHT),
    "cox": (cox, UNLABELLED, lambda _: SPARSE, HTP, None),
    "ordinal": (ordinal, UNLABELLED, lambda _: SPARSE, HTP, None),
    "penalty": (LOGIT, PRICED | {"l0": 0.005, "l1": 0.02}, lambda p: sht.L0L1L2(p["l0"], p["l1"]), IHT, TIGHT),
    "prices_box": (LOGIT, PRICED | {"prices": np.linspace(0.5, 2, P)}, priced, IHT, TIGHT),
}
QUICK = ("logistic", "simplex", "cox", "penalty")


def maps(name):
    """The solution as a function of its parameters, its forward derivative, and its value with the reverse one."""
    make, params, threshold, solver, termination = CASES[name]
    params = jax.tree.map(jnp.asarray, params)
    make = jax.jit(make)  # where labels between -1 and 1 are not refused

    def fit(params):
        solution = sht.solve(make(params), threshold(params), solver, termination=termination, record=None)
        return {"x": solution.x, "intercept": solution.intercept, "value": solution.value}

    # Not jitted as a whole, so that the solver is compiled once for all three.
    return params, fit, lambda params, v: jax.jvp(fit, (params,), (v,))[1], jax.vjp(fit, params)


def random_like(tree, rng):
    return jax.tree.map(lambda a: jnp.asarray(rng.standard_normal(a.shape)), tree)


def inner(a, b):
    return sum(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.sum(a * b), a, b)))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in CASES])
def test_finite_differences_and_adjoint(name):
    params, fit, forward, (out, reverse) = maps(name)
    rng = np.random.default_rng(1)
    u = random_like(out, rng)
    (pulled,) = reverse(u)
    assert np.count_nonzero(out["x"]) >= (2 if "l0" in params else 3)
    for key in params:
        v = jax.tree.map(jnp.zeros_like, params) | {key: jnp.asarray(rng.standard_normal(params[key].shape))}
        pushed = forward(params, v)
        ahead, behind = (fit({other: params[other] + s * STEP * v[other] for other in params}) for s in (1, -1))
        for field in out:
            expected = (ahead[field] - behind[field]) / (2 * STEP)
            scale = np.abs(expected).max() + 1e-3
            assert np.abs(pushed[field] - expected).max() <= 1e-5 * scale, (key, field)
        if key not in ("constant", "l0"):
            assert np.abs(pushed["x"]).max() > 1e-5, f"{key} moves the coefficients"
        np.testing.assert_allclose(inner(u, pushed), inner(pulled[key], v[key]), rtol=1e-10, atol=1e-12)
    if name == "poisson_box":
        active = out["x"] == params["upper"]
        assert 0 < active.sum() < 3, "a bound is active, and another one is not"
    if name == "prices_box":
        assert np.isclose(np.abs(out["x"]), 0.9).any()
    if name == "simplex":
        np.testing.assert_allclose(out["x"].sum(), params["total"], rtol=1e-14)
    if name == "quadratic_form":
        assert out["x"].min() == 0 and (out["x"] > 0).sum() >= 3


LOGISTIC = problem(sht.losses.Logistic())


def logistic(l2, k=3, **options):
    """A fit whose programs most tests share: eager derivatives compile the solver once."""
    model = sht.LinearModel(LOGISTIC["X"], LOGISTIC["y"], sht.losses.Logistic(), l2=l2, fit_intercept=True)
    return sht.solve(model, sht.Sparsity(k, k_max=4), IHT, record=None, termination=TIGHT, **options)


def test_batches_of_derivatives_equal_the_loop():
    def slope(l2, k):
        return jax.grad(lambda l2: logistic(l2, k).x.sum())(l2)

    l2s, ks = jnp.array([0.05, 0.2]), jnp.array([1, 2, 4])
    batch = jax.jit(jax.vmap(jax.vmap(slope, (None, 0)), (0, None)))(l2s, ks)
    for i, l2 in enumerate(l2s):
        for j, k in enumerate(ks):
            np.testing.assert_allclose(batch[i, j], slope(l2, k), rtol=1e-8)
    assert np.abs(batch).min() > 1e-3


def test_second_derivatives():
    def total(l2):
        return logistic(l2).x @ jnp.arange(1.0, P + 1)

    first = jax.grad(total)
    expected = (first(0.1 + STEP) - first(0.1 - STEP)) / (2 * STEP)
    np.testing.assert_allclose(jax.grad(first)(0.1), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(first, (0.1,), (1.0,))[1], expected, rtol=1e-6)


def test_a_solution_that_has_not_converged_is_polished_first():
    def slope(max_steps):
        def total(l2):
            solution = logistic(l2, max_steps=max_steps)
            return solution.x.sum(), solution

        return jax.grad(total, has_aux=True)(0.1)

    right = jax.grad(lambda l2: logistic(l2).x.sum())(0.1)
    got, rough = slope(3)
    exact = logistic(0.1)
    np.testing.assert_array_equal(cases.members(rough.support), cases.members(exact.support))
    assert int(rough.result) == sht.results.RESULTS.max_steps
    assert np.abs(rough.x - exact.x).max() > 0.02, "the returned x itself is the solver's, as without a derivative"
    np.testing.assert_allclose(got, right, rtol=1e-8)


def test_unrolled_derivatives_agree():
    def total(l2, **options):
        return logistic(l2, **options).x @ jnp.arange(1.0, P + 1)

    def through(l2):
        return total(l2, implicit=False, max_steps=400)

    implicit = jax.grad(total)(0.1)
    batch = jax.jit(jax.vmap(jax.grad(through)))(jnp.array([0.05, 0.1]))
    np.testing.assert_allclose(batch[1], implicit, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(through, (0.1,), (1.0,))[1], implicit, rtol=1e-6)


def test_history_and_state_carry_no_derivative_and_the_start_has_none():
    def parts(l2, x0):
        model = sht.LinearModel(LOGISTIC["X"], LOGISTIC["y"], l2=l2)
        solution = sht.solve(model, SPARSE, HTP, x0=x0)
        return solution.history.value.sum() + solution.state.x.sum() + solution.support_margin, solution.x.sum()

    (aside, start_aside), (_, start) = jax.jacrev(parts, (0, 1))(0.1, jnp.ones(P))
    assert aside == 0 and not start_aside.any() and not start.any()


def test_coefficients_at_bounds_move_with_them():
    """F is separable: each coefficient is its own minimiser, clipped. One step leads to bounds that do not hold it."""
    curvature, b, b_dot = jnp.linspace(1, 2, P), jnp.array([2.0, 0.3, -2.0, -0.4, 0.2, -0.1, 4.0, -3.0]), jnp.arange(P)
    lower, upper = -jnp.linspace(0.5, 0.7, P), jnp.linspace(0.4, 0.8, P)

    def fit(b, lower, upper):
        form, threshold = sht.QuadraticForm(jnp.diag(curvature), b), sht.Sparsity(P, k_max=P, lower=lower, upper=upper)
        return sht.solve(form, threshold, sht.solvers.IHT(sht.steps.ConstantStep(9.0)), max_steps=1).x

    dots = b_dot.astype(float), jnp.full(P, 0.2), jnp.full(P, -0.3)
    x, x_dot = jax.jvp(fit, (b, lower, upper), dots)
    best = b / curvature
    expected = np.select([best > upper, best < lower], dots[:0:-1], dots[0] / curvature)
    np.testing.assert_allclose(x_dot, expected, rtol=1e-12)
    held = (best > upper) | (best < lower)
    assert held.sum() == 4 and not ((x > lower) & (x < upper)).any()


# --- refusals ------------------------------------------------------------------------------------------------------
def differentiate(loss, k, solver=None, **options):
    def total(y):
        model = sht.LinearModel(LOGISTIC["X"], y, loss)
        return sht.solve(model, sht.Sparsity(k), solver, max_steps=2, record=None, **options).x.sum()

    return jax.grad(total)(jnp.asarray(LOGISTIC["y"]))


def test_a_hinge_has_no_derivative_and_unrolling_needs_a_step_without_inner_loops():
    """Else it differentiates the steps that were taken, here two of them."""
    cases.refused(TypeError, "loss: Hinge has no second deriv", lambda: differentiate(sht.losses.Hinge(), 3))
    for solver in (HTP, sht.solvers.IHT(), sht.solvers.BestSubset()):
        cases.refused(TypeError, "implicit: ", lambda s=solver: differentiate(None, 3, s, implicit=False))
    found = differentiate(None, P, sht.solvers.IHT(sht.steps.ConstantStep(0.25)), implicit=False)
    X = LOGISTIC["X"]
    np.testing.assert_allclose(found, X @ (np.full(P, 0.5) - 0.25**2 * (X.T @ X / N).sum(1)) / N, rtol=1e-9)


def test_the_chart_of_matrices_of_a_rank():
    """It keeps the rank, is x at its coordinates, and depends on the tangent space alone, along which it starts."""
    rng, size = np.random.default_rng(0), 1e-20  # in any units
    W, Z = size * rng.standard_normal((4, 2)) @ rng.standard_normal((2, 3)), size * rng.standard_normal((4, 3))
    objective = sht.MultiResponse(np.ones((2, 4)), np.ones((2, 3)), fit_intercept=True)
    x, free = np.append(W, np.arange(3.0)), rng.standard_normal(3)
    here = equations(sht.Rank(2, r_max=3).bind(objective), objective, jnp.asarray(x), None)
    lift, start = cases.jit(lambda z: here.lift(z)), here.point(x)
    np.testing.assert_allclose(lift(start), x, rtol=1e-12)
    left, _, right = np.linalg.svd(W)
    along = Z - left[:, 2:] @ left[:, 2:].T @ Z @ right[2:].T @ right[2:]
    moved = lift(start + np.append(Z, free))
    np.testing.assert_allclose(moved, lift(start + np.append(along, free)), rtol=1e-10)
    values = np.linalg.svd(moved[:12].reshape(4, 3))[1]
    assert values[2] < 1e-12 * values[1] and int(here.factors.mask.sum()) == 2
    assert not equations(here.threshold, objective, 0 * here.x, None).factors.mask.any()
    nearly = jnp.asarray(x + 1e-12 * size * rng.standard_normal(15))  # of rank two
    assert equations(sht.Rank(3).bind(objective), objective, nearly, None).factors.mask.sum() == 2
    slope = (lift(start + STEP * np.append(Z, free)) - lift(start - STEP * np.append(Z, free))) / (2 * STEP)
    np.testing.assert_allclose(slope[:12].reshape(4, 3), along, rtol=1e-6)
    np.testing.assert_allclose(slope[12:], free, rtol=1e-6)


def test_equations_of_a_rank_are_those_of_the_lifted_function():
    """Its Jacobian on the tangent space, and the identity across it, where the chart is constant."""
    rng = np.random.default_rng(2)
    objective = sht.MultiResponse(rng.standard_normal((9, 4)), rng.standard_normal((9, 3)), l2=0.1)
    W, (v, b) = rng.standard_normal((4, 2)) @ rng.standard_normal((2, 3)), rng.standard_normal((2, 12))
    here = equations(sht.Rank(2, r_max=2).bind(objective), objective, jnp.asarray(W.ravel()), None)

    @cases.jit
    def facts(here, z, v, b):
        slope, H_v = jax.jvp(jax.grad(lambda z: objective.value(here.lift(z))), (z,), (v,))
        solved = here.inverse(z, here.mask)(b)
        return here.value(z), here.residual(z), slope, here.product(z, v), H_v, here.hessian_product(z)(solved)

    value, residual, slope, product, H_v, again = jax.device_get(facts(here, here.point(here.x), v, b))
    left, _, right = np.linalg.svd(W)
    across = left[:, 2:] @ left[:, 2:].T @ v.reshape(4, 3) @ right[2:].T @ right[2:]
    np.testing.assert_allclose(value, objective.value(here.x), rtol=1e-12)
    np.testing.assert_allclose(residual, slope, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(product, H_v + across.ravel(), rtol=1e-9)
    np.testing.assert_allclose(again, b, atol=1e-6)
    np.testing.assert_array_equal(here.scale(here.x), np.ones(12))


def test_a_tilt_is_a_linear_function():
    rng = np.random.default_rng(1)
    A, (b, tilt, z, v) = rng.standard_normal((4, 4)), rng.standard_normal((4, 4))
    support = sht.results.Support(jnp.array([2, 0, 3, 1]), jnp.ones(4, bool))
    base = sht.QuadraticForm(A @ A.T, b, 0.3).restrict(support)
    found = Tilted(base, jnp.asarray(tilt))
    moved = sht.QuadraticForm(A @ A.T, b - tilt[[1, 3, 0, 2]], 0.3).restrict(support)
    for method, at in (("value", (z,)), ("grad", (z,)), ("hvp", (z, v)), ("hess", (z,))):
        np.testing.assert_allclose(getattr(found, method)(*at), getattr(moved, method)(*at), rtol=1e-12)
    assert found.quadratic and not found.kinked and found.mask.all()
    np.testing.assert_allclose(base.scale(z), np.diag(A @ A.T)[[2, 0, 3, 1]])


# --- margins -------------------------------------------------------------------------------------------------------
def test_support_margin_on_an_orthonormal_design():
    """That of a step in the steepest coordinate, which leads there to the minimum; without curvature a step of one."""
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((N, 5)))[0] * np.sqrt(N)
    y, l2, x = 9 * rng.standard_normal(N), np.array([0.1, 8, 0.3, 1, 4]), np.array([3.0, 0, 0, -1, 0])
    model, support = sht.LinearModel(X, y, l2=l2), sht.results.Support(jnp.array([3, 0, 0]), jnp.arange(3) < 2)
    slope = x - X.T @ y / N + l2 * x
    j = np.argmax(np.where(x == 0, np.abs(slope), 0))
    after = np.abs(x - slope / (1 + l2[j]))
    for threshold, least in ((sht.Sparsity(2, k_max=3), after[[0, 3]].min()), (sht.Sparsity(1, keep=[3]), after[0])):
        found = support_margin(model, threshold.bind(model), jnp.asarray(x), support)
        np.testing.assert_allclose(found, 1 - after[[1, 2, 4]].max() / least, rtol=1e-10)
    model = sht.LinearModel(np.ones((1, 2)), np.ones(1), sht.losses.SmoothedHinge(0.5))
    bound, first = sht.Sparsity(1, k_max=1).bind(model), sht.results.Support(jnp.zeros(1, jnp.int32), jnp.ones(1, bool))
    assert support_margin(model, bound, jnp.array([-5.0, 0]), first) == 1 - 1 / 4


# --- paths ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "solver", [pytest.param(sht.solvers.BestSubset("fast"), marks=pytest.mark.slow), HTP], ids=["path", "htp"]
)
def test_rows_of_a_path(solver):
    ks, l2s = [3, 1], jnp.array([0.05, 0.2])
    X, y = jnp.asarray(LOGISTIC["X"]), jnp.asarray(problem(sht.losses.Squared())["y"])

    def model(y):
        return sht.LinearModel(X, y, fit_intercept=True, standardize=True)

    @jax.jit
    def along(y, l2s, y_dot, l2_dot):
        def rows(y, l2s):
            path = sht.solve_path(model(y), ks=ks, l2s=l2s, solver=solver)
            return path.x, path.intercept, path.value, path.loss

        return jax.jvp(rows, (y, l2s), (y_dot, l2_dot))

    y_dot, l2_dot = jnp.asarray(np.random.default_rng(0).standard_normal(N)), jnp.array([0.3, -1.0])
    out, dots = along(y, l2s, y_dot, l2_dot)
    plain, ahead, behind = (
        sht.solve_path(model(y + s * STEP * y_dot), ks=ks, l2s=l2s + s * STEP * l2_dot, solver=solver)
        for s in (0, 1, -1)
    )
    np.testing.assert_array_equal(np.count_nonzero(out[0], axis=1), plain.ks)
    for field, value, dot in zip(("x", "intercept", "value", "loss"), out, dots, strict=True):
        np.testing.assert_allclose(value, getattr(plain, field), rtol=1e-9, atol=1e-12)
        expected = (getattr(ahead, field) - getattr(behind, field)) / (2 * STEP)
        np.testing.assert_allclose(dot, expected, rtol=1e-5, atol=1e-7)


class Poor(NamedTuple):
    """Equations whose inverse is wrong by a hundredth."""

    A: jax.Array

    def product(self, z, v):
        return self.A @ v

    def inverse(self, point, free):
        return lambda b: 1.01 * jnp.linalg.solve(self.A, b)


def test_a_solution_of_equations_is_refined():
    A, b = jnp.array([[2.0, 0.5], [0.5, 1.0]]), jnp.array([1.0, -2.0])
    found = _linear_solve(Poor(A), jnp.zeros(2), jnp.ones(2, bool), b)
    np.testing.assert_allclose(found, (1 - 1e-4) * np.linalg.solve(A, b), rtol=1e-12)
