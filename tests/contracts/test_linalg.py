"""Kernels by themselves, against NumPy: conjugate gradients, truncated Newton steps, power iteration, draws."""

import itertools
from typing import NamedTuple

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparsehtp import linalg as la
from sparsehtp.linalg.truncated_newton import conjugate_gradients

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(0)
B, b, SCALE = RNG.standard_normal((8, 5)), RNG.standard_normal(5), RNG.uniform(0.5, 2, 5)
A = B.T @ B


def test_conjugate_gradients_are_best_among_powers_and_stop_at_the_tolerance():
    run = cases.jit(lambda tol, most: conjugate_gradients(lambda v: A @ v, jnp.asarray(b), SCALE, tol, most))
    powers = np.linalg.qr(np.stack([np.linalg.matrix_power(A / SCALE[:, None], i) @ (b / SCALE) for i in range(5)]).T)[
        0
    ]
    best = [V @ np.linalg.solve(V.T @ A @ V, V.T @ b) for V in (powers[:, :most] for most in range(6))]
    for most, x in enumerate(best):
        np.testing.assert_allclose(run(0.0, most), x, rtol=1e-8, err_msg="after so many products")
    left = np.sqrt([(b - A @ x) ** 2 @ (1 / SCALE) for x in best])
    for tol in (0.9, 0.4, 0.05, 1e-3):
        np.testing.assert_allclose(run(tol, 500), best[np.argmax(left <= tol * left[0])], rtol=1e-8)


class Far(NamedTuple):
    """sqrt(1 + (z - c)^2), whose Newton steps overshoot from farther than one."""

    c: object
    mask = np.ones(1, bool)
    quadratic = kinked = False

    def value(self, z):
        return ((1 + (z - self.c) ** 2) ** 0.5).sum()

    def grad(self, z):
        return (z - self.c) / (1 + (z - self.c) ** 2) ** 0.5

    def scale(self, z):
        return (1 + (z - self.c) ** 2) ** -1.5

    def hessian_product(self, z):
        return lambda v: self.scale(z) * v


def test_truncated_steps_are_halved_and_damped():
    run = cases.jit(lambda c, most: la.truncated_newton(Far(c), jnp.zeros(1), most))
    for c in (0.8, 5.0, 40.0):
        f, z, damping = Far(c), np.zeros(()), 1e-3
        for most in range(1, 12):
            slope, size = float(f.grad(z)), 1.0
            direction = -slope / float(f.scale(z) + damping * f.scale(0.0))
            while f.value(z + size * direction) > f.value(z) + 1e-4 * size * slope * direction:
                size /= 2
            z, damping = z + size * direction, damping / 10 if size == 1 else min(10 * damping, 1)
            np.testing.assert_allclose(run(c, most).z, z, rtol=1e-6, atol=1e-6, err_msg=f"{c}, {most} steps")
        assert run(c, None).solved and abs(run(c, None).z - c) < 1e-6


def test_the_largest_eigenvalue_in_any_units():
    run = cases.jit(lambda A, start: la.largest_eigenvalue(lambda v: A @ v, start))
    exact = np.linalg.eigvalsh(A)[-1]
    for unit in np.float32(2.0) ** np.arange(-100, 60, 4):  # squares of most are no numbers
        found = run(jnp.asarray(A * unit, jnp.float32), jnp.ones(5, jnp.float32))
        np.testing.assert_allclose(found, exact * unit, rtol=1e-5)
    assert run(jnp.zeros((5, 5), jnp.float32), jnp.ones(5, jnp.float32)) == 0


def test_draws_are_those_of_murmur_hash():
    def scrambled(word):
        word = (word ^ word >> 16) * 0x85EBCA6B % 2**32
        word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
        return word ^ word >> 16

    seed = 0
    for word in (7, 2**31 + 1, 3):
        seed = scrambled(seed * 0x01000193 % 2**32 ^ word)
    run = cases.jit(
        lambda words, counter, places: (la.mixed(words, counter), la.uniform(la.mixed(words, counter), places))
    )
    found, drawn = run(jnp.array([7, 2**31 + 1], jnp.uint32), jnp.int32(3), jnp.arange(9))
    assert found == seed
    draws = [(scrambled((scrambled(i ^ seed) + seed) % 2**32) >> 8) * 2.0**-24 for i in range(9)]
    np.testing.assert_array_equal(drawn, draws)


@pytest.mark.parametrize("axes", [[la.START], [la.lane_axis()], [la.START, la.lane_axis(), la.lane_axis(1)]])
def test_what_holds_in_any_lane_holds_in_all(axes):
    flags, run = np.zeros((2,) * len(axes), bool), la.any_lane
    for axis in axes:
        run = jax.vmap(run, axis_name=axis)
    assert not np.any(run(flags))
    flags.flat[-1] = True
    assert np.all(run(flags)) and bool(la.any_lane(flags.ravel()[-1])) and not la.any_lane(flags.ravel()[0])


@pytest.mark.parametrize("kind", [la.Plane, la.SignedPlane])
def test_coordinates_of_a_plane(kind):
    """A move of the others is a move on the plane; slopes, curvatures and magnitudes are those along it."""
    z, d, grad = RNG.uniform(0.1, 1, 5), RNG.standard_normal(5), jnp.asarray(RNG.standard_normal(5))

    @cases.jit
    def all_of(normal, z, d):
        plane = kind(normal, jnp.where(normal.any(), jnp.vdot(normal, z), 1))
        chart = la.Box(plane=plane).around(z)
        own = chart.own(jnp.ones(5, bool))
        move, terms = chart.move(jnp.where(own, d, 0)), chart.terms(jnp.abs(grad))
        return (
            own,
            move,
            chart.slope(grad),
            chart.curvature(jnp.asarray(A), chart.slope(grad)),
            chart.filled(z + move),
            terms,
        )

    for normal in (np.ones(5), np.array([1.0, 0, 2, 0.5, 3]), np.zeros(5)):
        own, move, slope, curvature, filled, terms = map(np.asarray, all_of(normal, z, d))
        assert own.sum() == 5 - normal.any() and np.array_equal(move[own], d[own])
        np.testing.assert_allclose(normal @ move, 0, atol=1e-14)
        np.testing.assert_allclose(filled, z + move, rtol=1e-12)
        np.testing.assert_allclose(slope[own] @ d[own], grad @ move, rtol=1e-12)
        np.testing.assert_allclose(d[own] @ curvature[np.ix_(own, own)] @ d[own], move @ A @ move, rtol=1e-12)
        spare = np.argmin(own)
        share = normal / normal[spare] if normal.any() else normal
        np.testing.assert_allclose(terms[own], (np.abs(grad) + share * np.abs(grad[spare]))[own], rtol=1e-12)


class Quadratic(NamedTuple):
    """1/2 z'Hz - r'z."""

    H: object
    r: object
    mask = np.ones(5, bool)

    def value(self, z):
        return 0.5 * jnp.vdot(z, self.H @ z) - jnp.vdot(self.r, z)

    def grad(self, z):
        return self.H @ z - self.r

    def hess(self, z):
        return self.H


def test_of_equal_minima_the_one_of_least_norm_is_taken():
    C = RNG.standard_normal((3, 5))
    H, run = C.T @ C, cases.jit(lambda H, r, start: la.solve_quadratic(Quadratic(H, r), start))
    least = np.linalg.pinv(H / np.sqrt(np.outer(np.diag(H), np.diag(H)))) / np.sqrt(np.outer(np.diag(H), np.diag(H)))
    nothing = np.linalg.svd(C)[2][3:]  # moves nothing
    for _ in range(12):
        r = H @ RNG.standard_normal(5)
        fit = run(H, r, least @ r + RNG.standard_normal(2) @ nothing)
        np.testing.assert_allclose(fit.z, least @ r, atol=1e-8)
        assert fit.singular
    fit = cases.jit(la.solve_quadratic)(Quadratic(A, b), jnp.zeros(5), 1.001 * A)
    np.testing.assert_allclose(fit.z, np.linalg.solve(A, b), rtol=1e-5)  # rounding of a matrix is refined away
    assert not fit.singular


def test_matrices_within_an_interval(monkeypatch):
    """Those at its ends are; others come there by halves of what is off the diagonal; a minimum takes one step."""
    fails = la.log_determinant.LogDetFit(jnp.eye(4), jnp.zeros((), bool))
    monkeypatch.setattr(la.log_determinant, "_admm", lambda *_: fails)  # it takes long to compile
    V, interval = np.linalg.qr(RNG.standard_normal((4, 4)))[0], la.Interval(0.5, 2.0)
    for low, high, inside in ((0.5, 2, True), (0.49, 1, False), (1, 2.01, False)):
        values = np.array([low, 1, 1, high])
        factor = la.factorise(jnp.asarray(V * values @ V.T), interval)
        np.testing.assert_allclose(factor.logdet, np.log(values).sum() if inside else -np.inf, atol=1e-12)
        np.testing.assert_allclose(factor.inverse, V / values @ V.T, atol=1e-12)
    for size, ends in ((0, [0.1, 9]), (0.1, [0.7, 1.5]), (1, [0.7, 1.5]), (30, [0.7, 1.5])):
        M = size * RNG.standard_normal((4, 4))
        M = np.where(np.eye(4), [*ends, 1, 1], M + M.T)
        halves = [np.where(np.eye(4), np.clip(M, *interval), M / 2**i) for i in range(20)]
        spectra = [np.linalg.eigvalsh(B) for B in halves]
        first = halves[np.argmax([values[0] >= 0.5 and values[3] <= 2 for values in spectra])]
        np.testing.assert_allclose(la.shrunk(jnp.asarray(M), interval), first, rtol=1e-12)
    S = A[:4, :4]
    run = cases.jit(
        lambda start: la.minimise_log_det(S, jnp.ones((4, 4), bool), start, la.Interval(1e-6, 1e6), max_steps=1)
    )
    best = np.linalg.inv(S)
    assert run(best).solved and not run(np.eye(4)).solved
    near = 1.1 * best
    np.testing.assert_allclose(run(near).matrix, 2 * near - near @ S @ near, rtol=1e-6)  # a step of Newton's
    la.log_determinant._minimiser.cache_clear()


def test_a_direction_solves_the_system_of_newton():
    M, gradient = np.abs(np.subtract.outer(range(5), range(5))) != 2, 1e-4 * A
    W = np.linalg.inv(A)
    D = np.asarray(cases.jit(la.log_determinant._newton_direction)(A, W, M.astype(float), M * gradient))
    assert not D[~M].any()
    np.testing.assert_allclose(M * (W @ D @ W), -(M * gradient), atol=1e-2 * np.abs(gradient).max())


def test_systems_of_single_precision_keep_their_digits():
    """The mask leaves rows out, whatever they hold; squared pivots down to 3e-5 count."""
    X = RNG.standard_normal((20, 6)) * np.geomspace(1e-6, 1e6, 6)
    X[:, 1] = X[:, 0] * (1 + 0.01 * RNG.standard_normal(20))
    H, r, mask = (
        (X.T @ X).astype(np.float32),
        (X.T @ (X / np.abs(X).max(0)).sum(1)).astype(np.float32),
        np.arange(6) != 4,
    )
    own = np.ix_(mask, mask)
    for _ in range(2):
        found = np.asarray(cases.jit(lambda H: la.masked_factor(H, mask).solve(r))(H))
        assert found.dtype == np.float32 and found[4] == 0
        np.testing.assert_allclose(found[mask], np.linalg.solve(H[own].astype(float), r[mask]), rtol=1e-5)
        H[4], H[:, 4] = np.nan, np.nan


class Hill(Far):
    """The same with its Hessian, which is damped by a multiple of the identity."""

    intercept = None

    def hess(self, z, damping=0.0):
        return jnp.diag(self.scale(z) + damping)

    def derivatives(self, z):
        grad = self.grad(z)
        return grad, jnp.abs(grad), lambda damping: self.hess(z, damping)


def test_every_step_of_newton_lowers_the_value():
    run = cases.jit(lambda c, z0, most: la.restricted_newton.newton(Hill(c), z0, max_steps=most))
    for c in (0.8, 5.0, 40.0):
        values = [float(Hill(c).value(run(c, jnp.zeros(1), most).z)) for most in range(8)]
        assert all(b < a - 1e-3 or b < 1 + 1e-9 for a, b in itertools.pairwise(values)), values
        assert values[0] == Hill(c).value(np.zeros(1)) and run(c, jnp.full(1, -c), 0).z == 0
        fit = run(c, jnp.full(1, c), 1)
        assert fit.solved and fit.z == c
