"""Every loss: derivatives, smoothness, convexity, conjugate. References: finite differences, grids, the table."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht

pytestmark = pytest.mark.usefixtures("x64")
LOSSES = pytest.mark.parametrize("loss", cases.LOSSES.values(), ids=cases.LOSSES)
rng = np.random.default_rng(0)
ETA = rng.uniform(-3, 3, 200)  # random, so away from kinks


def labels(loss):
    if loss.classification:
        return np.where(np.arange(200) % 2, 1.0, -1.0)
    if isinstance(loss, sht.Poisson):
        return np.arange(200.0) % 5
    return np.random.default_rng(1).uniform(-2, 2, 200)


def feasible(loss, a, y, slack=1e-12):
    """The range of the derivative's closure, from the table in MATH.md section 2."""
    if isinstance(loss, sht.Squared):
        return np.full(np.broadcast(a, y).shape, True)
    if isinstance(loss, sht.Huber):
        return np.abs(a) <= loss.delta + slack
    if isinstance(loss, sht.Poisson):
        return a + y >= -slack
    u = -a * y / getattr(loss, "margin_scale", 1.0)
    return (u >= -slack) & (u <= 1 + slack)


def written_out(loss, eta, y):
    """The loss as the table in MATH.md section 2 prints it."""
    m = y * eta
    if isinstance(loss, sht.Squared):
        return (eta - y) ** 2 / 2
    if isinstance(loss, sht.Logistic):
        return np.log1p(np.exp(-loss.margin_scale * m))
    if isinstance(loss, sht.Hinge):
        return np.maximum(0, 1 - m)
    if isinstance(loss, sht.SmoothedHinge):
        g = loss.gamma
        return np.where(m >= 1, 0, np.where(m < 1 - g, 1 - m - g / 2, (1 - m) ** 2 / (2 * g)))
    if isinstance(loss, sht.Huber):
        r, d = np.abs(eta - y), loss.delta
        return np.where(r <= d, r**2 / 2, d * r - d**2 / 2)
    assert isinstance(loss, sht.Poisson), f"write {type(loss).__name__} out here"
    return np.exp(eta) - y * eta


@LOSSES
def test_value_is_the_one_in_the_table(loss):
    y = labels(loss)
    np.testing.assert_allclose(loss.value(ETA, y), written_out(loss, ETA, y), rtol=1e-12, atol=1e-14)


@LOSSES
def test_derivatives_match_finite_differences(loss):
    y, h = labels(loss), 1e-6
    first = (loss.value(ETA + h, y) - loss.value(ETA - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(ETA, y), first, rtol=1e-6, atol=1e-8)
    second = (loss.derivative(ETA + h, y) - loss.derivative(ETA - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.second_derivative(jnp.asarray(ETA), y), second, rtol=1e-6, atol=1e-8)


@LOSSES
def test_smoothness_is_the_lipschitz_constant(loss):
    y = labels(loss)
    grid = np.linspace(-3, 3, 4001)[:, None]
    slope = np.abs(np.diff(loss.derivative(grid, y[:20]), axis=0)) / np.diff(grid, axis=0)
    bound = float(loss.smoothness)
    if np.isinf(bound):  # no bound holds: the slope grows without limit
        assert slope.max() > (100 if isinstance(loss, sht.Hinge) else np.exp(2.9))
    else:
        assert slope.max() <= bound * (1 + 1e-6)
        assert slope.max() >= bound * (1 - 1e-3), "the bound is attained"
    assert loss.strong_convexity == (0 if np.isinf(bound) else pytest.approx(1 / bound))


@LOSSES
def test_convex(loss):
    y = labels(loss)
    other = np.random.default_rng(2).uniform(-3, 3, 200)
    middle = loss.value((ETA + other) / 2, y)
    assert np.all(middle <= (loss.value(ETA, y) + loss.value(other, y)) / 2 + 1e-12)
    assert np.all(np.asarray(loss.second_derivative(jnp.asarray(ETA), y)) >= 0)
    tangent = loss.value(ETA, y) + loss.derivative(ETA, y) * (other - ETA)
    assert np.all(loss.value(other, y) >= tangent - 1e-12)


@LOSSES
def test_fenchel_young(loss):
    y = labels(loss)
    a = loss.derivative(ETA, y)
    tight = loss.value(ETA, y) + loss.conjugate(a, y) - a * ETA
    np.testing.assert_allclose(tight, 0, atol=1e-10)
    for other in np.random.default_rng(3).uniform(-3, 3, (5, 200)):
        assert np.all(loss.value(other, y) + loss.conjugate(a, y) >= a * other - 1e-10)


@LOSSES
def test_conjugate_is_the_supremum_on_a_grid(loss):
    y = labels(loss)[:6]
    inside = 0.5 * (loss.derivative(ETA[:6], y) + loss.derivative(ETA[6:12], y))  # the range is an interval
    grid = np.linspace(-12, 12, 240_001)[:, None]
    best = (inside * grid - written_out(loss, grid, y)).max(0)
    np.testing.assert_allclose(loss.conjugate(inside, y), best, atol=1e-6)


@LOSSES
def test_conjugate_derivative_matches_finite_differences(loss):
    y, h = labels(loss), 1e-7
    mix = np.random.default_rng(4).uniform(0.3, 0.7, 200)
    low, high = loss.derivative(np.full(200, -2.5), y), loss.derivative(np.full(200, 2.5), y)
    a = (1 - mix) * low + mix * high  # interior points of the range
    difference = (loss.conjugate(a + h, y) - loss.conjugate(a - h, y)) / (2 * h)
    moving = np.asarray(high - low) > 1e-6  # at kinks-only losses the range may be a point
    assert moving.sum() >= 100
    np.testing.assert_allclose(loss.conjugate_derivative(a, y)[moving], difference[moving], rtol=1e-5, atol=1e-6)


@LOSSES
def test_project_dual(loss):
    y = labels(loss)
    a = np.random.default_rng(5).uniform(-4, 4, 200)
    projected = np.asarray(loss.project_dual(a, y))
    assert feasible(loss, projected, y).all()
    assert np.isfinite(loss.conjugate(projected, y)).all()
    np.testing.assert_array_equal(loss.project_dual(projected, y), projected)
    grid = np.linspace(-6, 6, 12_001)[:, None]
    distance = np.where(feasible(loss, grid, y), np.abs(grid - a), np.inf).min(0)
    assert np.all(np.abs(projected - a) <= distance + 1e-9)
    outside = ~feasible(loss, a, y)
    assert np.isinf(loss.conjugate(a, y)[outside]).all()
    assert outside.any() != isinstance(loss, sht.Squared)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_logistic_at_the_ends_of_its_range(dtype, scale):
    loss = sht.Logistic(np.asarray(scale, dtype))
    eta = np.array([-1e4, -50, 0, 50, 1e4], dtype)
    for y in (np.full(5, 1, dtype), np.full(5, -1, dtype)):
        m = scale * y.astype(float) * eta
        np.testing.assert_allclose(loss.value(eta, y), np.logaddexp(0, -m), rtol=1e-6, atol=1e-37)
        for method in (loss.derivative, loss.second_derivative):
            assert np.isfinite(method(jnp.asarray(eta), y)).all()
        ends = np.array([0, -scale], dtype) * y[:2]
        np.testing.assert_array_equal(loss.conjugate(ends, y[:2]), 0)
        slopes = np.asarray(loss.conjugate_derivative(ends, y[:2]))
        assert np.isfinite(slopes).all() and slopes[0] * y[0] > 50 / scale and slopes[1] * y[0] < -50 / scale
        beyond = loss.project_dual(np.array([5, -5], dtype), y[:2])
        assert np.isfinite(loss.conjugate(beyond, y[:2])).all()


def test_poisson_at_the_end_of_its_range():
    loss, y = sht.Poisson(), np.array([0.0, 3.0])
    np.testing.assert_array_equal(loss.conjugate(-y, y), 0)
    assert np.isfinite(loss.conjugate_derivative(-y, y)).all()


@LOSSES
def test_float32_agrees_with_float64(loss):
    y = labels(loss)
    single = jax.tree.map(np.float32, loss)
    for method in ("value", "derivative"):
        fine = getattr(loss, method)(ETA, y)
        coarse = getattr(single, method)(ETA.astype(np.float32), y.astype(np.float32))
        assert coarse.dtype == jnp.float32
        np.testing.assert_allclose(coarse, fine, rtol=1e-5, atol=2e-6)
