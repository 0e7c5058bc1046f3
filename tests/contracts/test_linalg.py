"""Kernels by themselves, against NumPy."""

import itertools
from typing import NamedTuple

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp import linalg as la
from sparsehtp.linalg import tableau
from sparsehtp.linalg.restricted_newton import newton
from sparsehtp.linalg.truncated_newton import conjugate_gradients
from sparsehtp.objectives import GramEquations

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(0)
B, b, SCALE = RNG.standard_normal((8, 5)), RNG.standard_normal(5), RNG.uniform(0.5, 2, 5)
A = B.T @ B


def test_conjugate_gradients_are_best_among_powers_and_stop_at_the_tolerance_or_where_nothing_curves():
    run = cases.jit(lambda A, b, tol, most: conjugate_gradients(lambda v: A @ v, b, SCALE, tol, most))
    powers = np.stack([np.linalg.matrix_power(A / SCALE[:, None], i) @ (b / SCALE) for i in range(5)], 1)
    powers = np.linalg.qr(powers)[0]
    best = [V @ np.linalg.solve(V.T @ A @ V, V.T @ b) for V in (powers[:, :most] for most in range(6))]
    left = np.sqrt([(b - A @ x) ** 2 @ (1 / SCALE) for x in best])
    for most, x in enumerate(best):
        np.testing.assert_allclose(run(A, b, 0.0, most), x, rtol=1e-8, err_msg="after so many products")
    for tol in (0.9, 0.4, 0.05, 1e-3):
        np.testing.assert_allclose(run(A, b, tol, 500), best[np.argmax(left <= tol * left[0])], rtol=1e-8)
    flat = A[:, :1] @ A[:1]
    np.testing.assert_allclose(flat @ run(flat, A[0], 0.0, 500), A[0], rtol=1e-9)


class Hill(NamedTuple):
    """sqrt(1 + (z - c)^2), from whose sides steps of Newton's overshoot, of the first of two coordinates."""

    c: object
    mask, intercept, quadratic, kinked = np.ones(2, bool), None, False, False

    def height(self, z):
        return (1 + (z[0] - self.c) ** 2) ** 0.5

    value = height

    def grad(self, z):
        return jnp.array([(z[0] - self.c) / self.height(z), 0.0])

    def scale(self, z):
        return jnp.array([self.height(z) ** -3, 0.0])

    def hessian_product(self, z):
        return lambda v: jnp.array([self.height(z) ** -3 * v[0], 0.0])

    def derivatives(self, z):
        return self.grad(z), jnp.ones(2), lambda damping: jnp.diag(self.scale(z) + damping)


def test_truncated_steps_are_halved_and_damped():
    """Transcribed; a coordinate on which nothing depends stays at zero."""
    run = cases.jit(lambda c, most: la.truncated_newton(Hill(c), jnp.zeros(2), most))
    for c in (0.8, 5.0, 40.0):
        z, damping = 0.0, 1e-3
        for most in range(1, 12):
            value = Hill(c).value([z])
            slope, size = (z - c) / value, 1.0
            direction = -slope / (value**-3 + damping * Hill(c).value([0.0]) ** -3)
            while Hill(c).value([z + size * direction]) > value + 1e-4 * size * slope * direction:
                size /= 2
            z, damping = z + size * direction, damping / 10 if size == 1 else min(10 * damping, 1)
            np.testing.assert_allclose(run(c, most).z, [z, 0], rtol=1e-6, atol=1e-6, err_msg=f"{c}, {most} steps")
        assert run(c, None).solved and abs(run(c, None).z[0] - c) < 1e-6


def test_every_step_of_newton_lowers_the_value():
    run = cases.jit(lambda c, start, most: newton(Hill(c), jnp.array([start, 0.0]), max_steps=most))
    for c in (0.8, 5.0, 40.0):
        values = [float(Hill(c).value(run(c, 0.0, most).z)) for most in range(8)]
        assert all(b < a - 1e-3 or b < 1 + 1e-9 for a, b in itertools.pairwise(values)), values
        assert values[0] == Hill(c).value([0.0]) and not run(c, -c, 0).z.any(), "from zero, where that is lower"
        fit = run(c, c, 1)
        assert fit.solved and fit.z[0] == c


def test_the_largest_eigenvalue_in_any_units():
    run = cases.jit(lambda A: la.largest_eigenvalue(lambda v: A @ v, jnp.ones(5, A.dtype)))
    exact = np.linalg.eigvalsh(A)[-1]
    for unit in (0, *np.float32(2.0) ** np.arange(-100, 60, 4)):  # squares of most are no numbers
        np.testing.assert_allclose(run(jnp.asarray(A * unit, jnp.float32)), exact * unit, rtol=1e-5)


def test_draws_are_those_of_murmur_hash():
    def scrambled(word):
        word = (word ^ word >> 16) * 0x85EBCA6B % 2**32
        word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
        return word ^ word >> 16

    seed, words = 0, [7, 2**31 + 1]
    for word in (*words, 3):
        seed = scrambled(seed * 0x01000193 % 2**32 ^ word)
    draws = [(scrambled((scrambled(i ^ seed) + seed) % 2**32) >> 8) * 2.0**-24 for i in range(9)]
    found = cases.jit(lambda words, counter, places: la.uniform(la.mixed(words, counter), places))
    np.testing.assert_array_equal(found(jnp.array(words, jnp.uint32), jnp.int32(3), jnp.arange(9)), draws)


def test_what_holds_in_any_lane_holds_in_all():
    for axes in ([], [la.START], [la.START, la.lane_axis(), la.lane_axis(1)]):
        flags, run = np.zeros((2,) * len(axes), bool), la.any_lane
        for axis in axes:
            run = jax.vmap(run, axis_name=axis)
        assert not np.any(run(flags))
        flags.flat[-1] = True
        assert np.all(run(flags))


@pytest.mark.parametrize("kind", [la.Plane, la.SignedPlane])
def test_coordinates_of_a_plane(kind):
    """A move of the others is a move on the plane; slopes, curvatures and magnitudes are those along it. What no plane
    holds stays, and has no multiplier."""
    z, d, grad = RNG.uniform(0.1, 1, 5), RNG.standard_normal(5), jnp.asarray(RNG.standard_normal(5))

    @cases.jit
    def all_of(normal, z, d):
        chart = la.Box(plane=kind(normal, jnp.where(normal.any(), jnp.vdot(normal, z), 1))).around(z)
        own, slope = chart.own(jnp.ones(5, bool)), chart.slope(grad)
        move = chart.move(jnp.where(own, d, 0))
        return own, move, slope, chart.curvature(jnp.asarray(A), slope), chart.filled(z + move), chart.terms(grad**2)

    # A linear F has a minimum on a small simplex too, and the curvature of what is not on it stays.
    small = la.Box(plane=kind(jnp.array([1.0, 0, 2, 0.5, 3]), jnp.asarray(1e-20))).around(jnp.asarray(z))
    curvature = np.asarray(small.curvature(jnp.asarray(A), small.slope(grad)))
    assert np.isclose(curvature[1, 1], A[1, 1], rtol=1e-12) and (curvature.max() < 1e3) == (kind is la.SignedPlane)
    for normal in (np.ones(5), np.array([1.0, 0, 2, 0.5, 3]) * (-1 if kind is la.SignedPlane else 1), np.zeros(5)):
        own, move, slope, curvature, filled, terms = map(np.asarray, all_of(normal, z, d))
        assert own.sum() == 5 - normal.any() and np.array_equal(move[own], d[own])
        found = normal @ move, *filled, slope[own] @ d[own], d[own] @ curvature[np.ix_(own, own)] @ d[own]
        np.testing.assert_allclose(found, [0, *(z + move), grad @ move, move @ A @ move], rtol=1e-12, atol=1e-14)
        share = np.abs(normal) / max(np.abs(normal)[np.argmin(own)], 1e-9)
        np.testing.assert_allclose(terms[own], (grad**2 + share * grad[np.argmin(own)] ** 2)[own], rtol=1e-12)

    @cases.jit
    def run(normal, z, grad):
        return kind(normal, jnp.ones(())).nearest(z), kind(normal, 1.0).multiplier(z, grad)

    for normal in (np.zeros(5), np.array([1.0, 0, 2, 0, 3])):
        held = normal != 0
        for point in (z - 0.5, np.zeros(5), np.where(held, 0, z)):
            near, multiplier = run(normal, point, np.where(held, 3 * normal, grad))
            np.testing.assert_array_equal(near[~held], point[~held])
            np.testing.assert_allclose([normal @ near, multiplier], [held.any(), 3 * held.any()], rtol=1e-12)


def test_the_terms_of_a_spare_coordinate_count_where_it_moves():
    plane = la.Plane(jnp.array([1.0, 0, 2, 0.5, 3]), jnp.ones(()))
    chart, terms = la.Box(plane=plane).around(jnp.array([0.1, 1, 0.1, 0.1, 0.2])), jnp.ones(5).at[4].set(jnp.inf)
    np.testing.assert_array_equal(chart.terms(terms)[:4], [np.inf, 1, np.inf, np.inf])
    # A linear F has a minimum on the simplex: its Newton step is long and finite.
    slope = chart.slope(jnp.array([1.0, 0, 2, 0, 0]))
    own = np.array([0, 2, 3])
    curvature = np.asarray(chart.curvature(jnp.zeros((5, 5)), slope))[np.ix_(own, own)]
    step = np.linalg.solve(curvature, -np.asarray(slope)[own])
    assert np.isfinite(step).all() and np.abs(step).max() > 1e10


class Unvalued(Hill):
    """No value at zero, and a second coordinate that is padding, whose terms and scale are no numbers."""

    mask = np.array([True, False])

    def value(self, z):
        return jnp.where(z[0] == 0, jnp.nan, self.height(z))

    def scale(self, z):
        return jnp.array([self.height(z) ** -3, np.nan])

    def derivatives(self, z):
        grad, terms, hess = super().derivatives(z)
        return grad, terms.at[1].set(jnp.inf), lambda damping: jnp.diag(jnp.array([1.0, 0])) * hess(damping)


class Rounded(Hill):
    """Values that are sums of large terms, and wrong by some of their roundings."""

    def value(self, z):
        return self.height(z) + 1e12 * (jnp.sin(1e3 * z[0]) ** 2 + jnp.cos(1e3 * z[0]) ** 2)


class Spike(Hill):
    """A slope, and no value but at one point."""

    def value(self, z):
        return jnp.where(z[0] == 5.8, self.height(z), jnp.nan)


@pytest.mark.parametrize("minimise", [newton, la.truncated_newton])
def test_what_newton_cannot_value_stops_no_step(minimise):
    """A start stays where zero has no value, and last steps are taken whose gain is less than a value's rounding; but a
    step that is refused leaves the point."""
    assert cases.jit(lambda start: minimise(Spike(5.0), jnp.array([start, 0.0])))(5.8).z[0] == 5.8
    fit = cases.jit(lambda start: minimise(Unvalued(5.0), jnp.array([start, 0.0])))(5.8)
    assert fit.solved and abs(fit.z[0] - 5) < 1e-6
    run = cases.jit(lambda c: minimise(Rounded(c), jnp.array([c + 0.5, 0.0])))
    for c in np.linspace(1, 2, 60):
        fit = run(c)
        assert fit.solved and abs(fit.z[0] - c) < 1e-6


def test_of_equal_minima_the_one_of_least_norm_is_taken():
    C = RNG.standard_normal((3, 5))
    H, every = C.T @ C, sht.results.Support(jnp.arange(5), jnp.ones(5, bool))
    run = cases.jit(lambda H, r, start, H2: la.solve_quadratic(sht.QuadraticForm(H, r).restrict(every), start, H2))
    unit = np.sqrt(np.outer(np.diag(H), np.diag(H)))
    least, nothing = np.linalg.pinv(H / unit) / unit, np.linalg.svd(C)[2][3:]  # which moves nothing
    for _ in range(12):
        r = H @ RNG.standard_normal(5)
        fit = run(H, r, least @ r + RNG.standard_normal(2) @ nothing, H)
        np.testing.assert_allclose(fit.z, least @ r, atol=1e-8)
        assert fit.singular
    fit = run(A, b, np.zeros(5), 1.001 * A)
    np.testing.assert_allclose(fit.z, np.linalg.solve(A, b), rtol=1e-5)  # rounding of a matrix is refined away
    assert not fit.singular


def test_systems_of_single_precision_keep_their_digits():
    """The mask leaves rows out, whatever they hold, and zeros are out; squared pivots down to 3e-5 count."""
    X = RNG.standard_normal((20, 6)) * np.geomspace(1e-6, 1e6, 6)
    X[:, 1] = X[:, 0] * (1 + 0.01 * RNG.standard_normal(20))
    H, r, mask = X.T @ X, (X.T @ (X / np.abs(X).max(0)).sum(1)).astype(np.float32), np.arange(6) != 4
    own = np.ix_(mask, mask)
    H[4], H[:, 4] = np.nan, np.nan
    H = H.astype(np.float32)
    found = np.asarray(cases.jit(lambda H: la.masked_factor(H, mask).solve(r))(H))
    assert found.dtype == np.float32 and found[4] == 0
    np.testing.assert_allclose(found[mask], np.linalg.solve(H[own].astype(float), r[mask]), rtol=1e-5)
    H = np.diag([2.0, 0, 4, 5, 1, 1])
    system = cases.jit(lambda H: la.masked_factor(H, np.ones(6, bool)))(H)
    np.testing.assert_allclose(system.solve(jnp.asarray([2.0, 5, 4, 5, 1, 1])), [1, 0, 1, 1, 1, 1], rtol=1e-12)
    assert not system.singular


def test_matrices_within_an_interval():
    """Those at its ends are; others come there by halves of what is off the diagonal."""
    V, interval = np.linalg.qr(RNG.standard_normal((4, 4)))[0], la.Interval(0.5, 2.0)
    for low, high, inside in ((0.5, 2, True), (0.49998, 1, False), (1, 2.0001, False)):
        values = np.array([low, 1, 1, high])
        factor = la.factorise(jnp.asarray(V * values @ V.T), interval)
        np.testing.assert_allclose(factor.logdet, np.log(values).sum() if inside else -np.inf, atol=1e-12)
        np.testing.assert_allclose(factor.inverse, V / values @ V.T, atol=1e-12)
    M, D = np.diag([0.7, 1, 1.2, 1.5]), np.eye(4) + V + V.T
    below, above = (la.factorise(jnp.asarray(M + move * D), interval) for move in (-1e-6, 1e-6))
    slopes = jax.jvp(lambda M: la.factorise(M, interval), (jnp.asarray(M),), (jnp.asarray(D),))[1]
    for slope, a, b in zip(slopes, above, below, strict=True):
        np.testing.assert_allclose(slope, (a - b) / 2e-6, atol=1e-8)
    for size, ends in ((0, [0.1, 9]), (0.1, [0.7, 1.5]), (1, [0.7, 1.5]), (30, [0.7, 1.5])):
        M = size * RNG.standard_normal((4, 4))
        M = np.where(np.eye(4), [*ends, 1, 1], M + M.T)
        halves = [np.where(np.eye(4), np.clip(M, *interval), M / 2**i) for i in range(20)]
        within = [values[0] >= 0.5 and values[3] <= 2 for values in map(np.linalg.eigvalsh, halves)]
        np.testing.assert_allclose(la.shrunk(jnp.asarray(M), interval), halves[np.argmax(within)], rtol=1e-12)


def test_a_step_of_newton_for_a_log_determinant(monkeypatch):
    """From the minimum none is needed; on a mask it solves its system."""
    fails = la.log_determinant.LogDetFit(jnp.eye(5), jnp.zeros((), bool))
    monkeypatch.setattr(la.log_determinant, "_admm", lambda *_: fails)  # it takes long to compile
    ones, wide, best = jnp.ones((5, 5), bool), la.Interval(1e-6, 1e6), np.linalg.inv(A)
    run = cases.jit(lambda start: la.minimise_log_det(A, ones, start, wide, max_steps=1))
    assert run(best).solved and not run(np.eye(5)).solved
    # A start that is no matrix of the cone is as good as none.
    diagonal = run(np.diag(1 / np.diag(A))).matrix
    far = np.where(np.eye(5), np.diag(1 / np.diag(A)), 1e30)  # and what is no part of it off its diagonal is none
    for start in (far, *(np.diag(np.append(np.ones(4), bad)) for bad in (np.inf, np.nan, 0, -1))):
        np.testing.assert_array_equal(run(start).matrix, diagonal)
    near = 1.1 * best
    np.testing.assert_allclose(run(near).matrix, 2 * near - near @ A @ near, rtol=1e-6)
    la.log_determinant._minimiser.cache_clear()
    M, gradient = np.abs(np.subtract.outer(range(5), range(5))) != 2, 1e-4 * A
    D = np.asarray(cases.jit(la.log_determinant._newton_direction)(A, best, M.astype(float), M * gradient))
    assert not D[~M].any()
    np.testing.assert_allclose(M * (best @ D @ best), -(M * gradient), atol=1e-2 * np.abs(gradient).max())


def test_alternating_directions_end_within_an_interval_of_one_number():
    ends, S = la.Interval(jnp.asarray(2.0), jnp.asarray(2.0)), jnp.diag(jnp.arange(1.0, 6))
    found = cases.jit(lambda S: la.log_determinant._admm(S, jnp.ones((5, 5)), jnp.eye(5), ends))(S)
    assert found.solved
    np.testing.assert_allclose(found.matrix, 2 * np.eye(5), atol=1e-6)


def test_no_exchange_raises_the_largest_eigenvalue_of_whole_numbers():
    """Many columns are orthogonal, zero or copies, where a block has the value that a larger one has."""
    search = cases.jit(lambda A, k, starts: la.sparse_eigenvector(A, k, 4, starts))
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows, k = rng.integers(-1, 2, (4, 7)) * (rng.random((4, 7)) < 0.4), 1 + seed % 4
        out = search(np.float32(rows), np.int32(k), np.float32(rng.standard_normal((1, 7))))
        S, inside = rows.T @ rows, np.flatnonzero(out.support)
        least = np.linalg.eigvalsh(S[np.ix_(inside, inside)])[-1]
        np.testing.assert_allclose([out.value, out.vector @ S @ out.vector], least, rtol=1e-5, atol=1e-6)
        for i, j in itertools.product(inside, np.setdiff1d(range(7), inside)):
            F = np.append(np.setdiff1d(inside, i), j)
            assert np.linalg.eigvalsh(S[np.ix_(F, F)])[-1] <= least + 1e-5, (seed, i, j)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_lies_in_the_span_of_chosen_features_gains_nothing(dtype):
    """Nor has a coefficient turned where prices are less than what g is rounded by."""

    @cases.jit
    def gains(Z, y, l1):
        G = Z.T @ Z
        equations = GramEquations(G, Z.T @ y, jnp.diagonal(G), y @ y)
        t = tableau.tableau_at(equations, jnp.arange(2), jnp.ones(2, bool), l1)
        t = tableau.pivot(equations.rows, t, *map(jnp.asarray, (0, 2, True, True)), None)
        return tableau.addition_gains(t), tableau.swap_gains(t, jnp.ones(2, bool)), tableau.turned(t)

    for seed in range(20):
        rng = np.random.default_rng(seed)
        Z = rng.standard_normal((20, 6)) * 10 ** rng.uniform(-2, 2)
        Z[:, 3], Z[:, 4], Z[:, 5] = Z[:, 2], Z[:, 1] - Z[:, 2], 0
        y = Z[:, :3] @ rng.standard_normal(3) + rng.standard_normal(20)
        adds, swaps, turned = gains(Z.astype(dtype), y.astype(dtype), np.full((2, 6), 1e-20, dtype))
        assert (adds[jnp.array([1, 2, 3, 4, 5])] == -np.inf).all() and np.isfinite(adds[0]), seed
        assert (swaps[1, jnp.array([3, 5])] == -np.inf).all() and swaps[0, 5] == -np.inf, seed
        assert not turned.any(), seed
