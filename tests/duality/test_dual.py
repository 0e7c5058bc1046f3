"""Weak duality, the link and the supergradient, on random points and at the edges of the feasible sets."""

import functools
import itertools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import sparsehtp as sht
from sparsehtp.duality import Fixed, dual_of
from sparsehtp.duality.dual import best_shift
from sparsehtp.losses import AbstractConjugateLoss
from sparsehtp.solvers.dual_ascent import _same_sum

pytestmark = pytest.mark.usefixtures("x64")
CONJUGATE = {name: loss for name, loss in cases.LOSSES.items() if isinstance(loss, AbstractConjugateLoss)}
LOSSES = pytest.mark.parametrize("loss", CONJUGATE.values(), ids=CONJUGATE)
N, P, KEPT, PAIRS = 12, 6, [4], 500
INTERCEPTS = pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])


@functools.cache
def values(loss, intercept):
    """Primal values at feasible w and dual values at feasible a, many pairs at once, for both thresholds."""

    def one(X, y, weights, ridge, k, l0, l1, w, b, a):
        objective = sht.LinearModel(X, y, loss, l2=ridge, sample_weight=weights, fit_intercept=intercept)
        x = jnp.append(w, b) if intercept else w
        out = []
        for threshold in (sht.Sparsity(k, P, keep=KEPT), sht.L0L1L2(l0, l1)):
            dual = dual_of(objective, threshold)
            feasible = dual.project(a)
            point = x if isinstance(threshold, sht.L0L1L2) else dual.threshold(x)[0]
            primal = objective.value(point) + dual.threshold.value(point)
            out.append((primal, dual.point(feasible).value, jnp.vdot(dual.weights, feasible)))
        return out

    return cases.jit(jax.vmap(one, in_axes=(None,) * 7 + (0, 0, 0)))


def problem(loss, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) * rng.choice([0.1, 1, 10], P) + rng.choice([0, 1])
    y = loss.draw_targets(X @ rng.standard_normal(P), rng)
    weights = rng.integers(0, 3, N) * rng.uniform(0.5, 2, N)
    weights[0] = 1
    return X, y, weights, rng


@INTERCEPTS
@LOSSES
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), k=st.integers(0, P - 1), scale=st.sampled_from([1e-3, 1.0, 30.0]))
def test_weak_duality(loss, intercept, seed, k, scale):
    X, y, weights, rng = problem(loss, seed)
    w = rng.standard_normal((PAIRS, P)) * rng.choice([0, 1], (PAIRS, P)) * scale
    w, b = np.clip(w / (1 + np.abs(X @ w.T).max() / 300), -1e3, 1e3), rng.standard_normal(PAIRS)
    # Far away points are projected on the edges of the feasible set.
    a = rng.standard_normal((PAIRS, N)) * 10.0 ** rng.uniform(-3, 3, (PAIRS, 1))
    ridge = 10.0 ** rng.uniform(-3, 1, P)
    l0, l1 = 10.0 ** rng.uniform(-4, 0, 2)
    for primal, dual, sums in values(loss, intercept)(X, y, weights, ridge, k, l0, l1, w, b, a):
        assert np.isfinite(dual).all()
        room = 1e-9 * (1 + np.abs(primal) + np.abs(dual))
        assert np.all(np.asarray(dual) <= np.asarray(primal) + room)
        assert not intercept or np.abs(sums).max() <= 1e-9 * max(1, np.abs(a).max())


@LOSSES
def test_the_best_shift_is_the_least(loss):
    """Far away too, where predictors or targets are."""
    rng = np.random.default_rng(0)
    near, weights = rng.standard_normal(N), rng.uniform(0.5, 2, N) * (np.arange(N) > 0)
    drawn = loss.draw_targets(near, rng)
    far = drawn if loss.classification else drawn + 1e3 if loss.location else 1e8 * drawn
    for eta, y in ((near, drawn), (near - 1e3, drawn), (near, far)):
        b = best_shift(loss, np.append(np.inf, eta[1:]), y, weights)  # a row without a weight may overflow
        sums = [jnp.vdot(weights, loss.value(eta + b + c, y)) for c in (-1e-2, 0, 1e-2)]
        assert sums[1] <= min(sums) + 1e-12 * abs(sums[1]), (loss, sums)


@INTERCEPTS
def test_the_projection_is_nearest(intercept):
    """Against SciPy's bounded least squares with an equality constraint."""
    loss = sht.losses.SmoothedHinge()
    X, y, weights, rng = problem(loss, 0)
    weights = weights + 0.5
    dual = dual_of(sht.LinearModel(X, y, loss, l2=1.0, sample_weight=weights, fit_intercept=intercept), sht.Sparsity(2))
    a = 2 * rng.standard_normal(N)
    rules = [{"type": "eq", "fun": lambda v: weights @ v}] if intercept else []
    bounds = [(-1, 0) if label > 0 else (0, 1) for label in y]
    best = minimize(lambda v: weights @ (v - a) ** 2, 0 * a, bounds=bounds, constraints=rules, tol=1e-14)
    np.testing.assert_allclose(dual.project(jnp.asarray(a)), best.x, atol=1e-5)
    Z = (X - intercept * weights @ X / weights.sum()) * np.sqrt(weights / weights.sum())[:, None]
    np.testing.assert_allclose(dual.gram_norm(), np.linalg.norm(Z, 2) ** 2, rtol=1e-6)


@INTERCEPTS
def test_the_direction_is_the_gradient_of_the_dual(intercept):
    loss = sht.losses.Huber(3.0)
    X, y, weights, rng = problem(loss, 1)
    model = sht.LinearModel(X, y, loss, l2=0.5, sample_weight=weights, fit_intercept=intercept, offset=0.1 * X[:, 0])
    for threshold in (sht.Sparsity(2, keep=KEPT), sht.Sparsity(0, 3), sht.L0L1L2(0.01, 0.02)):
        dual = dual_of(model, threshold)
        a = dual.project(0.3 * rng.standard_normal(N))
        point = dual.point(a)
        assert threshold.penalises or np.count_nonzero(point.x[:P]) == threshold.k + dual.threshold.keep.size
        x, eta = dual.predict(point)
        omega = weights / weights.sum()
        # Inside the hyperplane of an intercept: the best one of w(a) is a constant that the projection removes.
        directions = np.eye(N) - intercept * np.outer(omega, weights > 0)
        above, below = (np.array([dual.point(a + h * d).value for d in directions]) for h in (1e-7, -1e-7))
        expected = (above - below) / 2e-7
        np.testing.assert_allclose(directions @ (omega * dual.supergradient(point, eta)), expected, atol=1e-6)
        np.testing.assert_allclose(dual.primal(eta, x), model.value(x) + dual.threshold.value(x), rtol=1e-12)


@LOSSES
def test_samples_of_no_weight_move_no_sum(loss):
    """The projection of a block keeps its weighted sum, and is finite where the whole block weighs nothing."""
    project = cases.jit(functools.partial(_same_sum, loss))
    for seed in range(6):
        rng = np.random.default_rng(seed)
        weights = rng.integers(0, 2, N) * rng.random(N) * (seed > 0) * 10.0 ** -rng.integers(0, 200, 1)
        y = loss.draw_targets(rng.standard_normal(N), rng)
        old = loss.project_dual(rng.standard_normal(N), y)
        new = project(rng.standard_normal(N), old, y, weights)
        assert np.isfinite(new).all()
        np.testing.assert_allclose(weights @ new, weights @ old, atol=1e-9 * weights.max())


@pytest.mark.parametrize("priced", [False, True])
def test_rounding_is_that_of_every_sum(priced):
    """Transcribed: a sum's terms in ulp of their magnitudes, twice for what is exchanged; no row without weight."""
    loss, threshold = sht.losses.Huber(3.0), sht.Sparsity(2, keep=KEPT)
    if priced:
        loss, threshold = sht.losses.Logistic(), sht.L0L1L2(1e-4, 1e-4)
    X, y, weights, rng = problem(loss, 1)
    omega, offset = np.where(np.arange(N) > 0, weights, 0) / weights[1:].sum(), None if priced else X[:, 0]
    model = sht.LinearModel(X, y, loss, l2=0.5, sample_weight=omega, fit_intercept=not priced, offset=offset)
    fixed = Fixed(*(jnp.arange(P) == j for j in (0, 1)))
    dual, eps = dual_of(model, threshold, fixed), (N + 64) * np.finfo(float).eps
    own, start = omega > 0, 0.3 * rng.standard_normal(N)

    @cases.jit
    def run(norms):  # at a point that is not balanced, and no number where there is no weight
        point = dual.point(jnp.where(own, dual.project(start) + (0 if priced else 1e-12), 100))
        return point, dual.rounding(point._replace(a=jnp.where(own, point.a, jnp.inf)), norms)

    for unit in (0.0, 1e13):
        norms = unit * rng.uniform(1, 2, P)
        point, found = run(norms)
        a = np.asarray(point.a)
        of_loss, eta = (np.abs(f(a, y)[own]) for f in (loss.conjugate, loss.conjugate_derivative))
        size = np.abs(y) + (1 if priced else np.abs(offset))
        expected = eps * omega[own] @ (of_loss + np.abs(a[own]) * (size[own] + eta))
        expected += 0 if priced else np.abs(omega[own] @ a[own]) * (omega[own] @ eta)
        moved = eps * np.sqrt(omega[own] @ a[own] ** 2) * norms
        each = (np.abs(point.tau) * moved + moved**2) / 0.5 + eps * np.abs(point.terms)
        inside = (np.asarray(point.x[:P]) != 0) | fixed.nonzero
        np.testing.assert_allclose(found, expected + each[inside].sum() + 2 * each[~fixed.zero].max(), rtol=1e-4)


def test_a_start_that_is_too_far_out_is_none():
    """Its slopes have no finite value; others, but zero, begin at their slopes."""
    X, y, _, _ = problem(sht.losses.Squared(), 0)
    objective, threshold = sht.LinearModel(X, y, l2=0.1), sht.Sparsity(2)
    start = cases.jit(lambda x0: sht.solvers.DIHT().init(objective, threshold.bind(objective), x0, jax.random.key(0)))
    for x0 in (np.ones(P), np.zeros(P), np.full(P, 1e160), np.full(P, np.inf), np.full(P, np.nan)):
        expected = X @ x0 - y if x0[0] == 1 else np.zeros(N)
        np.testing.assert_allclose(start(x0).point.a, expected, rtol=1e-9)


@pytest.mark.parametrize("loss", [sht.losses.Squared(), sht.losses.Hinge()], ids=["squared", "hinge"])
def test_steps_of_blocks_fall_as_those_of_epochs(loss):
    dual = dual_of(sht.LinearModel(np.eye(N), np.ones(N), loss, l2=1.0), sht.Sparsity(2))
    for rule, epoch, blocks in itertools.product(("capped", "theorem15"), (0, 1, 7), (1, 5)):
        size = sht.solvers.SDIHT(step=rule, scale=0.5).size(dual, jnp.zeros(()), blocks * (epoch + 2) - 2, blocks)
        np.testing.assert_allclose(size, 0.5 / (epoch + 2) ** (0.5 if rule == "capped" and not loss.quadratic else 1))


@pytest.mark.parametrize("k", [1, 2])
def test_the_gap_closes_on_the_separable_example(k):
    """[DIHT] Remark 4: X = I, squared loss; it closes if and only if l2 >= y_(k+1) / (N (y_(k) - y_(k+1)))."""
    y = np.array([3.0, -2.0, 1.0, 0.5])
    least = np.abs(y[k]) / (4 * (np.abs(y[k - 1]) - np.abs(y[k])))
    for l2, closes in ((0.9 * least, False), (1.01 * least, True), (10 * least, True)):
        model = sht.LinearModel(np.eye(4), y, l2=l2)
        x = np.where(np.arange(4) < k, y / (1 + 4 * l2), 0)
        point = dual_of(model, sht.Sparsity(k)).point(jnp.asarray(x - y))
        gap = float(model.value(jnp.asarray(x)) - point.value)
        assert abs(gap) <= 1e-12 if closes else gap > 1e-3
        if closes:
            np.testing.assert_allclose(point.x, x, rtol=1e-12)


def test_the_counter_example_of_the_paper():
    """[DIHT] gives 7/6 as its largest dual value; it is 55/42, and the gap to the primal 4/3 stays open."""
    model = sht.LinearModel(np.eye(3), [2.0, 2.0, 1.0], l2=1.0)
    dual = dual_of(model, sht.Sparsity(1))
    np.testing.assert_allclose(dual.point(jnp.array([-12 / 7, -12 / 7, -1])).value, 55 / 42, rtol=1e-14)
    np.testing.assert_allclose(dual.point(jnp.array([-1.5, -1.5, -1])).value, 31 / 24, rtol=1e-14)
    np.testing.assert_allclose(model.value(jnp.array([0.5, 0.0, 0.0])), 4 / 3, rtol=1e-14)


def test_bad_input():
    cases.refused(TypeError, "LinearModel", lambda: dual_of(sht.QuadraticForm(np.eye(2), np.ones(2)), sht.Sparsity(1)))
    groups, model = sht.GroupSparsity([0, 1], 1), sht.LinearModel(np.eye(3, 2), np.ones(3), l2=1.0)
    cases.refused(TypeError, "threshold", lambda: dual_of(model, groups))
