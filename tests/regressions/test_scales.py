"""Faults that were found once: extreme scales, weightless rows, minima at infinity."""

import itertools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import Loss
from scipy.optimize import minimize

import sparsehtp as sht
from sparsehtp.objectives.model import in_double
from sparsehtp.results import Support

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 6))
Y = X[:, 0] - 2 * X[:, 4]


def later(quick, others):
    return pytest.mark.parametrize("seed", [*quick, *(pytest.param(each, marks=pytest.mark.later) for each in others)])


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_standardisation_survives_extreme_column_scales(x64, scale):
    model = sht.LinearModel(X * scale, Y, fit_intercept=True, standardize=True)
    solution = sht.solve(model, sht.Sparsity(2), sht.solvers.HTP())
    np.testing.assert_allclose(np.asarray(solution.x)[[0, 4]] * scale, [1, -2], rtol=1e-9)


def test_a_minimum_at_infinity_is_not_called_converged(x64):
    model = sht.LinearModel(X, np.zeros(40), sht.losses.Poisson(), fit_intercept=True)
    solution = sht.solve(model, sht.Sparsity(0), sht.solvers.HTP())
    assert solution.result == sht.results.RESULTS.max_steps
    assert np.isfinite(solution.intercept)


def refit(model, members, start=None):
    """The minimiser over some features and the intercept, and F there."""
    entries = np.append(model.n_coefficients, members).astype(np.int32)
    part = model.restrict(Support(jnp.asarray(entries), jnp.ones(entries.size, bool)))
    z0 = jnp.zeros(entries.size, model.dtype) if start is None else jnp.asarray(start, model.dtype)
    fit = cases.jit(lambda part, z: part.minimise(z))(part, z0)
    return fit, float(part.value(fit.z))


def test_a_column_is_not_constant_because_one_row_has_nearly_all_the_weight():
    shifted = (1e6 + X).astype(np.float32)
    weights = np.where(np.arange(40) == 3, 1.0, 1e-18)
    for standardize in (False, True):
        model = sht.LinearModel(shifted, Y, sample_weight=weights, fit_intercept=True, standardize=standardize)
        rows = np.asarray(model.columns.design.rows(np.arange(40)), float)
        np.testing.assert_allclose(rows - rows[3], shifted.astype(float) - shifted[3].astype(float), rtol=1e-6)
        assert np.abs(rows[3]).max() < 1e-12  # else its part of every square hides those of the others
        assert np.all(np.asarray(model.columns.inverse_scale) > 0)
    flat = sht.LinearModel(np.full((40, 1), 1e6 / 3), Y, sample_weight=weights, fit_intercept=True, standardize=True)
    assert not np.any(flat.columns.inverse_scale)


def test_the_conjugate_of_the_logistic_loss_keeps_its_digits_near_zero(x64):
    u = 10.0 ** -np.arange(1, 30)
    exact = u * np.log(u) + (1 - u) * np.log1p(-u)
    np.testing.assert_allclose(sht.losses.Logistic().conjugate(-u, np.ones(29)), exact, rtol=1e-14)


def test_an_intercept_comes_back_from_the_flat_part_of_a_hinge(x64):
    y = np.where(np.arange(40) == 0, -1.0, 1.0)
    weights = np.where(y > 0, 1.0, 1e-17)
    model = sht.LinearModel(X, y, sht.losses.SmoothedHinge(0.25), sample_weight=weights, fit_intercept=True)
    _, value = refit(model, [])
    assert value < 2e-17 * (1 + 1e-3) / 39  # at b = 1 within rounding, not at the 1000 of a first step


def test_a_refit_from_far_out_is_no_worse_than_one_from_zero():
    y = np.where(np.arange(40) % 2 == 0, -1.0, 1.0)
    weights = np.where(np.arange(40) == 0, 1.0, 1e-7)
    loss, single = sht.losses.SmoothedHinge(1.0), X.astype(np.float32)
    model = sht.LinearModel(single, y, loss, sample_weight=weights, fit_intercept=True)
    assert refit(model, [0, 1], [-3e7, 7e8, -3.5e8])[1] <= refit(model, [])[1]


def test_nearly_collinear_columns_are_singular_for_a_loss_with_kinks_too(x64):
    twins = np.column_stack([X, X[:, 0] + 1e-7 * X[:, 1]])
    for loss in (sht.losses.Squared(), sht.losses.Huber(0.5)):
        model = sht.LinearModel(twins, Y, loss, fit_intercept=True)
        assert refit(model, [0, 6])[0].singular
        assert not refit(model, [0, 1])[0].singular


def test_nothing_is_proved_of_an_infinite_value(x64):
    model = sht.LinearModel(X, RNG.poisson(np.exp(X[:, 0])), sht.losses.Poisson(), l2=0.1)
    solution = sht.solve(model, sht.Sparsity(1), sht.solvers.HTP())
    far = solution._replace(x=1e6 * np.sign(solution.x))
    c = sht.certificate(model, sht.Sparsity(1), far)
    assert c.upper_bound == np.inf and c.gap is None and c.swap_gain is None
    assert "Proved" not in c.statement and "inf " not in c.statement


def test_a_poisson_fit_starts_where_the_exponential_of_its_offset_is_a_number():
    offset, y = np.linspace(-100, 100, 40).astype(np.float32), np.ones(40)
    model = sht.LinearModel(X.astype(np.float32), y, sht.losses.Poisson(), offset=offset, fit_intercept=True)
    assert np.isfinite(model.value(model.origin()))
    w, b = np.float32([0.1, 0, 0, 0, 0, 0]), np.float32(-90.0)
    eta = X @ w + b + offset
    np.testing.assert_allclose(model.value(model.to_internal(w, b)), np.mean(np.exp(eta) - eta), rtol=1e-4)


@pytest.mark.parametrize(("scale", "l2", "size"), [(1e-15, 1e-30, 1e22), (1e-25, 0.1, 1e12)])
def test_a_ridge_penalty_of_a_small_column_is_a_number(scale, l2, size):
    """None overflows before its coefficient is small, nor is a column scaled further than its ridge can follow."""
    model = sht.LinearModel(scale * X.astype(np.float32), np.sign(Y), sht.losses.Logistic(), l2=l2)
    x = model.to_internal(np.float32([size, 0, 0, 0, 0, 0]))
    np.testing.assert_allclose(model.value(x), l2 / 2 * size**2, rtol=1e-5)  # beside it the loss is nothing


def test_the_ridge_of_a_far_point_does_not_underflow():
    Z, x = (X * 2.0**66).astype(np.float32), np.array([1e16, -2e16, 0, 0, 0, 0], np.float32)
    model = sht.LinearModel(Z, np.sign(Y).astype(np.float32), sht.losses.Logistic(), l2=1.0)
    eta = Z.astype(float) @ x.astype(float)
    expected = np.mean(np.maximum(-np.sign(Y) * eta, 0)) + 0.5 * np.sum(x.astype(float) ** 2)
    np.testing.assert_allclose(model.value(model.to_internal(x)), expected, rtol=1e-5)


def test_a_start_beyond_the_range_comes_back_as_a_number():
    columns = (X * 2e16).astype(np.float32)
    model = sht.LinearModel(columns, np.sign(Y).astype(np.float32), sht.losses.SmoothedHinge(), l2=1.0)
    start = np.zeros(6, np.float32)
    start[1] = 2.6e25  # its predictions are 5e41
    solution = sht.solve(model, sht.Sparsity(1), sht.solvers.IHT(), start, throw=False)
    assert np.isfinite(solution.x).all()


@later([6, 7, 8, 9], range(6))
def test_a_loss_with_kinks_is_not_called_solved_before_its_slope_is_gone(seed):
    # Means a hundred times the deviations, no intercept: what is left of the slope cancels.
    rng = np.random.default_rng(seed)
    Z = (rng.standard_normal((20, 4)) + 100 * rng.uniform(-1, 1, 4)).astype(np.float32)
    y = np.where(Z[:, 0] - Z[:, 0].mean() + rng.logistic(size=20) > 0, 1, -1).astype(np.float32)
    model = sht.LinearModel(Z, y, sht.losses.SmoothedHinge(0.25), l2=np.float32(1e-12))
    solution = sht.solve(model, sht.Sparsity(4), throw=False)

    def double(w):
        """The mean loss and its gradient in double precision."""
        value, _, slope, *_ = Loss("smoothed_hinge", 0.25).parts(Z.astype(float) @ w, y.astype(float))
        return value.mean(), slope @ Z / y.size

    found, options = np.asarray(solution.x, float), {"maxiter": 10**5, "maxfun": 10**6, "ftol": 1e-15, "gtol": 1e-13}
    exact = minimize(double, found, jac=True, method="L-BFGS-B", options=options)
    assert solution.result != sht.results.RESULTS.converged or double(found)[0] <= exact.fun + 1e-4


@later([37, 45, 51, 52], [10, 11, 16, 28, 31, 35, 59, *range(60, 70)])
def test_no_refit_ends_above_the_null_model(seed):
    # Nearly all the weight is on a row or two, so that standardised columns are far off and collinear.
    rng = np.random.default_rng(seed)
    columns = (rng.standard_normal((12, 4)) + 100 * rng.uniform(-1, 1, 4)).astype(np.float32)
    y = np.where(rng.random(12) < 0.5, -1, 1).astype(np.float32)
    weights = (10.0 ** rng.uniform(-30, 30, 12)).astype(np.float32)
    offset = (100 * rng.uniform(-1, 1, 12)).astype(np.float32)
    options = dict(sample_weight=weights, offset=offset, fit_intercept=True, standardize=True)
    model = sht.LinearModel(columns, y, sht.losses.SmoothedHinge(1.0), **options)
    start = rng.standard_normal(4).astype(np.float32)
    null = sht.solve(model, sht.Sparsity(0, k_max=4), sht.solvers.HTP(), throw=False)
    full = sht.solve(model, sht.Sparsity(3, k_max=4), sht.solvers.HTP(), start, throw=False)
    zero = 1e-7 * model.value(model.origin())  # what is zero but for rounding
    assert full.value <= null.value + 1e-6 * abs(null.value) + zero


def test_coefficients_that_the_dtype_cannot_hold_are_refused():
    columns, y = X.astype(np.float32) * np.array([1, 1, 1, 1e30, 1, 1], np.float32), (1e-10 * Y).astype(np.float32)
    for loss in (sht.losses.Squared(), sht.losses.Huber(0.5)):
        with pytest.raises(ValueError, match=r"X: float32 cannot hold the coefficients of columns of size .*e\+30"):
            sht.LinearModel(columns, y, loss)
    model = sht.LinearModel(columns / np.float32(1e9), y)
    solution = sht.solve(model, sht.Sparsity(3), throw=False)
    assert np.isfinite(solution.x).all()


@cases.jit
def least(model, pair):
    """F of the best coefficients on two of four features, with an intercept."""
    restricted = model.restrict(Support(jnp.append(jnp.int32(4), pair.astype(jnp.int32)), jnp.ones(3, bool)))
    return restricted.value(restricted.minimise(jnp.zeros(3)).z)


@pytest.mark.parametrize("seed", range(10))
def test_a_swap_is_not_denied_because_the_intercept_starts_far_off(seed):
    # With an intercept of zero F is astronomic, and no measure of what a gain is worth.
    rng = np.random.default_rng(seed)
    columns, offset = rng.standard_normal((12, 4)), rng.uniform(-25, 25, 12)
    y, weights = rng.poisson(5e4 * np.exp(columns[:, 0])).astype(float), 10.0 ** rng.uniform(-6, 0, 12)
    columns, y, weights, offset = (each.astype(np.float32) for each in (columns, y, weights, offset))
    options = dict(sample_weight=weights, offset=offset, fit_intercept=True)
    model = sht.LinearModel(columns, y, sht.losses.Poisson(), **options)
    with jax.enable_x64(True):
        exact = in_double(model)
        values = {pair: float(least(exact, jnp.array(pair))) for pair in itertools.combinations(range(4), 2)}
    worst = max(values, key=values.get)
    start = np.where(np.isin(np.arange(4), worst), 1.0, 0).astype(np.float32)
    found = sht.solve(model, sht.Sparsity(2), sht.solvers.HTP(sht.steps.ConstantStep(1e-30)), start, throw=False)
    members = tuple(cases.members(found.support).tolist())
    certificate = sht.certificate(model, sht.Sparsity(2), found)
    gain = certificate.upper_bound - min(v for pair, v in values.items() if len({*pair, *members}) == 3)
    assert certificate.swap_gain is None or abs(certificate.swap_gain - max(gain, 0)) <= 1e-4 * abs(values[members])
