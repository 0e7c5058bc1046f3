"""Every loss: the laws of `sparsehtp.testing`, and the table of formulas."""

import contextlib
import math

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import nbinom

import sparsehtp as sht
from sparsehtp.losses.base import damping_scale
from sparsehtp.testing import check_loss

pytestmark = pytest.mark.usefixtures("x64")
LOSSES = pytest.mark.parametrize("loss", cases.LOSSES.values(), ids=repr)
rng = np.random.default_rng(0)
ETA = np.append(rng.uniform(-3, 3, 197), [0, 1e-4, -2e-4])


@LOSSES
def test_value_is_the_one_in_the_table(loss):
    """MATH.md, section 2, which `exact.Loss` has written out."""
    y = loss.draw_targets(ETA, rng)
    value, reference = loss.value(ETA, y), cases.exact(loss).value
    np.testing.assert_allclose(value, reference(ETA, y), rtol=1e-12, atol=1e-14)
    own = [*vars(loss).values()]
    jax.eval_shape(lambda own: type(loss)(*own).check_targets(y), own)  # they may be traced
    drawn = loss.draw_targets(np.full(20_000, 0.3), np.random.default_rng(0))
    if not loss.classification:
        m = loss.mean(jnp.asarray(0.3))
        np.testing.assert_allclose(drawn.mean(), m, atol=0.05)
        q, d = getattr(loss, "power", 2), getattr(loss, "dispersion", 0)
        variance = 0.09 if loss.location else 0.5 * m**q if loss.free_dispersion and q != 1 else m + d * m**2
        np.testing.assert_allclose(drawn.var(), variance, rtol=0.1)
    else:
        np.testing.assert_allclose(np.mean(drawn > 0), 1 / (1 + np.exp(-1)), atol=0.02)
    if loss.kinked:  # a quadratic that touches the loss lies above it, of a loss of eta - y the least that does
        eta, y, other = ETA[:40], y[:40], np.linspace(-20, 20, 2001)[:, None]
        move, majorant = other - eta, np.asarray(loss.majorant(eta, y))
        above = value[:40] + loss.derivative(eta, y) * move + majorant * move**2 / 2 - reference(other, y)
        assert np.all(above > -1e-9), above.min()
        assert np.all(np.min(above - 0.05 * majorant * move**2, axis=0) < 0) or not loss.location


@pytest.mark.parametrize("loss", [*cases.LOSSES.values(), *cases.VECTOR_LOSSES.values()], ids=repr)
def test_laws(loss):
    check_loss(loss)


def test_drawn_classes_have_their_probabilities():
    loss, eta = sht.losses.Softmax(3), np.array([[0.3, -0.2, 1.0]])
    drawn = loss.draw_targets(np.tile(eta, (20_000, 1)), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn) / 20_000, loss.mean(eta)[0], atol=0.02)


@LOSSES
def test_pieces_are_the_slopes_between_which_a_loss_is_quadratic(loss):
    assert (loss.pieces is not None) == loss.location
    if loss.location:
        a, b, w = loss.pieces
        r = np.linspace(-9, 9, 500)
        np.testing.assert_allclose(loss.derivative(r, 0 * r), np.clip(r / w, -a, b), rtol=1e-12)


@LOSSES
def test_no_prediction_is_too_far(loss):
    """In single precision, of targets of zero too: infinite at most."""
    y = loss.draw_targets(ETA, rng)
    least = np.where(np.arange(y.size) == 0, 0.0, y)
    with contextlib.suppress(ValueError):
        loss.check_targets(least)
        y = least
    for eta in np.outer([1, -1], [88, 89, 200, 1e3, 1e10]).ravel().astype(np.float32):
        for function in (loss.value, loss.derivative, loss.second_derivative):
            assert not np.isnan(function(jnp.full(y.size, eta), y.astype(np.float32))).any(), (eta, function)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_logistic_at_the_ends_of_its_range(dtype, scale):
    loss, y = sht.losses.Logistic(np.asarray(scale, dtype)), np.array([1, -1], dtype)
    for end, side in ((np.zeros(2, dtype), 1), (-scale * y, -1)):
        np.testing.assert_array_equal(loss.conjugate(end, y), 0)
        assert (side * y * loss.conjugate_derivative(end, y) > 50 / scale).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_the_slopes_have_a_conjugate_and_a_number_for_its_slope(dtype):
    """Also an ulp beyond the end where the range is given by a division, which rounds; but not far beyond."""
    y = np.array([1, -1], dtype)
    for loss in cases.LOSSES.values():
        if isinstance(loss, sht.losses.AbstractConjugateLoss):
            for far in (-1e30, 1e30):
                end = loss.project_dual(jnp.full(2, far, dtype), y if loss.classification else np.abs(y))
                with_y = (end, y if loss.classification else np.abs(y))
                if np.abs(end).max() < 1e30:
                    assert np.isfinite(loss.conjugate(*with_y)).all(), loss
                    assert np.isfinite(loss.conjugate_derivative(*with_y)).all(), loss
    for loss, ends in ((sht.losses.Logistic(3.0), (-3 * y, 0 * y)), (sht.losses.NegativeBinomial(0.3), (1 / 0.3, -1))):
        loss, (upper, lower) = jax.tree.map(lambda a: np.asarray(a, dtype), loss), np.asarray(ends, dtype)
        target = y if loss.classification else np.ones_like(y)
        for size, finite in ((np.finfo(dtype).eps / 2, True), (1e-3, False)):
            beyond = np.array([upper + (upper - lower) * dtype(size), lower - (upper - lower) * dtype(size)], dtype)
            for point in beyond:
                found = loss.conjugate(np.broadcast_to(point, y.shape), target)
                assert np.isfinite(found).all() if finite else np.isinf(found).all(), (loss, size)


def test_the_unit_of_a_damping_is_positive():
    """The smoothness of a kinked loss, known or traced; else the largest curvature, and one where that is zero."""
    curvature = jnp.array([0.0, 3, 2])
    for smooth in (lambda loss: damping_scale(loss, curvature), jax.jit(lambda loss: damping_scale(loss, curvature))):
        assert smooth(sht.losses.SmoothedHinge(0.25)) == 4
    assert damping_scale(sht.losses.Poisson(), curvature) == 3
    assert damping_scale(sht.losses.Poisson(), 0 * curvature) == 1


def test_a_rate_of_nearly_zero_has_its_derivative():
    """In the power of the Tweedie loss: (exp(r eta) - 1) / r loses its digits before r is zero."""
    for eta, rate in ((1.0, 1e-4), (1.0, 1e-5), (0.02, 1e-3), (2.0, 1e-6), (0.5, 0.0), (1.0, 1e-2)):
        slope = jax.grad(lambda power, eta=eta: sht.losses.Tweedie(power).value(jnp.asarray(eta), jnp.asarray(0.0)))
        found, terms = slope(2 - rate), [eta**2 * (rate * eta) ** n / ((n + 2) * math.factorial(n)) for n in range(6)]
        np.testing.assert_allclose(found, -sum(terms), rtol=3e-13)


def test_an_estimated_dispersion_has_the_largest_likelihood():
    rng = np.random.default_rng(0)
    eta, weights = rng.uniform(0, 3, 400), rng.integers(0, 3, 400).astype(float)
    y = rng.negative_binomial(1 / 0.4, 1 / (1 + 0.4 * np.exp(eta))).astype(float)

    def likelihood(dispersion):
        return weights @ nbinom.logpmf(y, 1 / dispersion, 1 / (1 + dispersion * np.exp(eta)))

    found = sht.losses.NegativeBinomial.estimate(y, eta, weights)
    assert all(likelihood(found) > likelihood(found * factor) for factor in (0.99, 1.01))
