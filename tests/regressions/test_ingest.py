"""What a linear model does with its data before anything is squared: laws of shifts, scales and weights."""

import warnings

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht

RNG = np.random.default_rng(7)
X = RNG.standard_normal((40, 5)).astype(np.float32)
Y = (X @ np.array([1, 0, -2, 0, 0]) + 0.3 * RNG.standard_normal(40)).astype(np.float32)
SOLVER = sht.solvers.HTP()


def fit(X, y, loss=None, **options):
    model = sht.LinearModel(X, y, loss, fit_intercept=True, l2=1e-2, **options)
    return sht.solve(model, sht.Sparsity(2), SOLVER, record=None)


@pytest.mark.parametrize("loss", ["squared", "huber", "logistic", "poisson"])
def test_shifts_move_the_intercept_alone(loss):
    """Of offsets, and of targets where the difference is all that counts."""
    loss = cases.LOSSES[loss]
    y = np.round(64 * Y) / np.float32(64) if loss.location else np.sign(Y) if loss.classification else np.round(abs(Y))
    plain, moved = fit(X, y, loss), fit(X, y, loss, offset=np.full(40, 64, np.float32))
    np.testing.assert_allclose(moved.x, plain.x, rtol=1e-5)
    np.testing.assert_allclose(moved.intercept, plain.intercept - 64, rtol=1e-5)
    if loss.location:
        moved = fit(X, y + np.float32(1e5), loss)
        np.testing.assert_allclose(moved.x, plain.x, rtol=1e-4)
        np.testing.assert_allclose(moved.value, plain.value, rtol=1e-5)


def test_the_means_of_targets_and_offsets_have_an_exact_difference_whatever_has_no_weight():
    live, far = np.arange(40) != 3, np.float32(1e12) * (np.arange(40) == 3)
    for seed in range(20):
        level, other = np.random.default_rng(seed).uniform(5e4, 1e5, 2).astype(np.float32)
        first, second = (
            sht.LinearModel(X, Y + level + more, offset=Y[::-1] - other - more, sample_weight=live, fit_intercept=True)
            for more in (0 * far, far)
        )
        target, offset = float(second.target_mean), float(second.columns.offset_mean)
        assert float(second.columns.base(second.target_mean)) == target - offset > 1e5
        found = [(m.y[live], m.columns.offset[live], m.target_mean, m.columns.offset_mean) for m in (first, second)]
        jax.tree.map(np.testing.assert_array_equal, *found)
    y = np.pi * Y.astype(float) + 1e9  # of more digits than are kept: rounded once
    deep = sht.LinearModel(X, y, fit_intercept=True)
    np.testing.assert_allclose(np.asarray(deep.y, float) + float(deep.target_mean), y, rtol=1e-15)
    y = np.where(live, Y + np.float32(1e5), np.float32(1e-12))  # of which one, that hardly counts, keeps its digits
    of_more_digits = np.where(np.arange(40) == 4, np.pi * 1e5, y.astype(float))
    for targets, s in ((y, 1.0), (of_more_digits, 1.0 * (np.arange(40) != 4))):  # beside others without weight, too
        weights = s * np.where(live, 1, 0.1)
        assert sht.LinearModel(X, targets, sample_weight=weights, fit_intercept=True).y[3] == y[3]


@pytest.mark.parametrize("exponent", [-84, -66, 66, 84])
def test_powers_of_two_are_undone_exactly(exponent):
    scale = np.float32(2.0) ** exponent
    for options in ({"fit_intercept": True, "l2": 1e-2, "standardize": True}, {}):
        models = (sht.LinearModel(Z, Y, **options) for Z in (X * scale, X))
        found, expected = (sht.solve(model, sht.Sparsity(2), SOLVER, record=None) for model in models)
        np.testing.assert_allclose(found.x * scale, expected.x, rtol=1e-5)
        np.testing.assert_allclose(found.value, expected.value, rtol=1e-5)


@pytest.mark.parametrize("scale", [3e38, 1e-39, 1e-30, 1e30])
def test_a_scale_of_all_weights_does_nothing(scale):
    weights = RNG.uniform(0.1, 1, 40)
    expected, found = (fit(X, Y, sample_weight=each) for each in (weights, weights * scale))
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-4)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-4)


def test_the_data_do_not_decide_what_is_traced():
    def structure(X, y, **options):
        leaves, tree = jax.tree.flatten(sht.LinearModel(X, y, **options))
        return tree, [(leaf.shape, leaf.dtype) for leaf in leaves]

    for options in ({}, {"fit_intercept": True}, {"fit_intercept": True, "standardize": True}):
        plain = structure(X, Y, **options)
        for other in (X + 2000, X * np.float32(1e-25), X * 0 + 3):
            assert structure(other, Y, **options) == plain
        both = (sht.LinearModel(Z, Y, **options).rescaled for Z in (X, X * np.float32(1e-25)))
        assert [*both] == [False, "standardize" not in options]  # which a price of l1 asks


def test_derivatives_pass_through_the_centring():
    def total(y, l2, X):
        model = sht.LinearModel(X, y, fit_intercept=True, l2=l2)
        return jnp.sum(sht.solve(model, sht.Sparsity(2), SOLVER, record=None).x)

    with jax.enable_x64(True):
        A, y = X.astype(float), Y.astype(float)
        plain, moved = (jax.grad(total, (0, 1))(y, 0.1, data) for data in (A, A + 2000))
        for one, other in zip(plain, moved, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_computed_in_single(dtype):
    half = jnp.asarray(X, dtype)
    found, expected = fit(half, Y), fit(np.asarray(half, np.float32), Y)
    assert found.x.dtype == np.float32
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-5)


def test_double_data_in_single_precision_are_announced():
    with pytest.warns(UserWarning, match=r"computed in float32.*jax.enable_x64"):
        sht.LinearModel(X.astype(float), Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sht.LinearModel(X, Y)
        with jax.enable_x64(True):
            sht.LinearModel(X.astype(float), Y)


@pytest.mark.parametrize("size", [1e25, 1e-30])
def test_targets_whose_squares_leave_the_range_are_refused(size):
    with pytest.raises(ValueError, match=r"y: float32 cannot hold the squares"):
        sht.LinearModel(X, Y * np.float32(size))
    with jax.enable_x64(True):
        found = fit(X.astype(float), Y.astype(float) * size)
        np.testing.assert_allclose(found.x / size, fit(X.astype(float), Y.astype(float)).x, rtol=1e-8)
