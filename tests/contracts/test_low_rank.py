"""The rank threshold and its singular triplets, against NumPy's SVD."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp._types import replace
from sparsehtp.linalg import leading_triplets, low_rank
from sparsehtp.thresholds.base import Unscaled

SHAPES = [(7, 4), (4, 7), pytest.param((6, 1), marks=pytest.mark.slow)]


def best(A, r):
    U, s, Vt = np.linalg.svd(np.asarray(A, float), full_matrices=False)
    return (U[:, :r] * s[:r]) @ Vt[:r]


def matrices(shape, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal(shape)
    U, _, Vt = np.linalg.svd(A, full_matrices=False)
    graded = (U * 10.0 ** -np.arange(min(shape))) @ Vt  # condition number 10^(small side - 1)
    rank_one = np.outer(rng.standard_normal(shape[0]), rng.standard_normal(shape[1]))
    return {"random": A, "graded": graded, "rank_one": rank_one, "zero": np.zeros(shape), "huge": 1e18 * A}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_projection_is_nearest(shape, dtype):
    r_max = min(3, *shape)
    with jax.enable_x64(dtype == np.float64):
        objective = sht.MultiResponse(np.ones((2, shape[0]), dtype), np.ones((2, shape[1]), dtype))
        project = cases.jit(lambda z, r: sht.Rank(r, r_max=r_max).bind(objective)(z))
        for name, A in matrices(shape).items():
            A = A.astype(dtype)
            for r in range(r_max + 1):
                x, factors = project(jnp.asarray(A.ravel()), jnp.int32(r))
                assert x.dtype == dtype
                tol = 1e-12 if dtype == np.float64 else 1e-5
                error = np.linalg.norm(np.asarray(x, float).reshape(shape) - best(A, r))
                assert error <= tol * np.linalg.norm(np.asarray(A, float)), (name, r)
                joined = (factors.left * factors.values) @ factors.right.T
                np.testing.assert_allclose(joined.ravel(), x, atol=tol * max(1e-30, np.abs(A).max()))
                assert np.array_equal(factors.mask, np.arange(r_max) < r)
                np.testing.assert_allclose(factors.values[r:], 0)
                live = int(np.sum(np.asarray(factors.values) > 0))
                for basis in (factors.left, factors.right):
                    np.testing.assert_allclose((basis.T @ basis)[:live, :live], np.eye(live), atol=1e-4)


def test_float32_resolves_small_singular_values():
    """A Gram matrix in float32 would lose all singular values below 3e-4 of the largest."""
    rng = np.random.default_rng(0)
    U, V = np.linalg.qr(rng.standard_normal((50, 3)))[0], np.linalg.qr(rng.standard_normal((6, 3)))[0]
    A = ((U * [1, 1e-4, 1e-5]) @ V.T).astype(np.float32)
    triplets = leading_triplets(jnp.asarray(A), 2)
    exact = np.linalg.svd(A.astype(float))[1][:2]
    np.testing.assert_allclose(triplets.values, exact, rtol=1e-3)
    left, values, right = (np.asarray(part, float) for part in triplets)  # a GPU's product would round to tf32
    np.testing.assert_allclose(left * values @ right.T, best(A, 2), atol=2e-7)


@pytest.mark.parametrize("x64", [False, True])
def test_inside_a_loop_in_lanes_of_lanes(x64):
    """Branches and loop bodies are batched late, after the float64 context has closed."""

    def run(A):
        def body(_, A):
            t = leading_triplets(A, 2)
            return t.left * t.values @ t.right.T

        return jax.lax.fori_loop(0, 2, body, A)

    with jax.enable_x64(x64):
        A = np.random.default_rng(1).standard_normal((2, 3, 6, 4)).astype(np.float64 if x64 else np.float32)
        ours = cases.jit(jax.vmap(jax.vmap(run)))(jnp.asarray(A))
    for i in np.ndindex(2, 3):
        np.testing.assert_allclose(ours[i], best(A[i], 2), atol=1e-12 if x64 else 3e-6)


def test_two_large_sides(x64, monkeypatch):
    monkeypatch.setattr(low_rank, "SMALL_SIDE", 20)
    rng = np.random.default_rng(3)
    U, V = np.linalg.qr(rng.standard_normal((60, 40)))[0], np.linalg.qr(rng.standard_normal((50, 40)))[0]
    A = (U * 0.7 ** np.arange(40)) @ V.T
    for matrix, room in ((A, 1e-6), (A.T, 1e-6), (rng.standard_normal((60, 18)), 1e-12)):  # the last is exact
        t = low_rank.leading_triplets(jnp.asarray(matrix), 5)
        np.testing.assert_allclose(t.left * t.values @ t.right.T, best(matrix, 5), atol=room)
    low_rank._batched.cache_clear()


def test_tangents_are_an_orthogonal_projection(x64):
    rng = np.random.default_rng(5)
    objective = sht.MultiResponse(np.ones((2, 6)), np.ones((2, 4)), fit_intercept=True)
    threshold = sht.Rank(2).bind(objective)
    project = cases.jit(lambda z, g: threshold.tangent(g, threshold(z)[1]))
    z, g = jnp.asarray(rng.standard_normal((2, 28)))
    along = project(z, g)
    np.testing.assert_allclose(project(z, along), along, atol=1e-12)
    np.testing.assert_array_equal(along[24:], g[24:])
    U, _, Vt = np.linalg.svd(np.asarray(z[:24]).reshape(6, 4))
    U, V = U[:, :2], Vt[:2].T
    moves = U @ rng.standard_normal((2, 4)) + rng.standard_normal((6, 2)) @ V.T  # keep the rank to first order
    np.testing.assert_allclose(np.sum((g - along)[:24] * moves.ravel()), 0, atol=1e-12)
    left = np.asarray(along[:24]).reshape(6, 4)
    np.testing.assert_allclose((np.eye(6) - U @ U.T) @ left @ (np.eye(4) - V @ V.T), 0, atol=1e-12)


def test_factors_differ_where_their_spaces_or_ranks_do():
    threshold = sht.Rank(2, r_max=3).bind(Unscaled((5, 4)))
    one = np.outer(np.arange(5.0), np.ones(4)).astype(np.float32)
    two = one + np.outer([5, 1, 1, 0, 0], [1, -1, 1, -1]).astype(np.float32)
    factors = cases.jit(lambda W, r: replace(threshold, r=r).factors(W))
    a, b, c = factors(one, 2), factors(two, 2), factors(one, 1)
    differs = cases.jit(lambda first, second: threshold.differs(first, second))
    assert [bool(differs(*pair)) for pair in ((a, b), (b, a), (a, c))] == [True] * 3
    assert not differs(a, a) and not differs(b, factors(-2 * two, 2))
    assert [int(threshold.size(each)) for each in (a, c)] == [2, 1]
    assert [bool(replace(threshold, r=np.int32(r)).overflow(jnp.zeros(20))) for r in (3, 4)] == [False, True]


def test_directional_derivatives_are_those_of_the_best_approximation(x64):
    """And numbers where a triplet is zero."""
    A, D = np.random.default_rng(2).standard_normal((2, 6, 4))

    def project(A):
        t = leading_triplets(A, 2)
        return t.left * t.values @ t.right.T

    slope = cases.jit(lambda A: jax.jvp(project, (A,), (jnp.asarray(D),))[1])
    for matrix in (A, A[:, :2] @ D[:2]):
        expected = (best(matrix + 1e-6 * D, 2) - best(matrix - 1e-6 * D, 2)) / 2e-6
        np.testing.assert_allclose(slope(matrix), expected, atol=1e-6)
    for matrix in (np.outer(A[:, 0], D[0]), np.zeros((6, 4))):
        assert np.isfinite(slope(matrix)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("x64", [False, True])
def test_nonfinite_matrices_stay_nonfinite(bad, x64):
    with jax.enable_x64(x64):
        for A in (jnp.ones((5, 3)).at[1, 1].set(bad), jnp.full((5, 3), bad), jnp.full((3, 5), bad)):
            t = cases.jit(lambda A: leading_triplets(A, 2))(A)
            assert not np.isfinite(t.values).any()
            assert not np.isfinite(t.left * t.values @ t.right.T).any()


@pytest.mark.parametrize("x64", [False, True])
def test_triplets_do_not_depend_on_the_scale(x64):
    """No finite matrix overflows or underflows to zero on the way."""
    with jax.enable_x64(x64):
        A = -np.random.default_rng(7).exponential(size=(6, 4)).astype(np.float64 if x64 else np.float32)
        project = cases.jit(lambda A: leading_triplets(A, 2))
        t = project(jnp.asarray(A))
        for power in (1000, 600, -600, -1000) if x64 else (120, 80, -80, -110):
            scaled = project(jnp.asarray(np.ldexp(A, power)))
            np.testing.assert_allclose(np.ldexp(scaled.values, -power), t.values, rtol=1e-5)
            np.testing.assert_allclose(scaled.left * scaled.right[0], t.left * t.right[0], atol=1e-5)


def test_a_step_that_diverges_under_a_rank_is_nonfinite_and_never_the_best():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 5), np.float32), rng.standard_normal((20, 3), np.float32)
    for solver in (
        sht.solvers.IHT(sht.steps.ConstantStep(1e6)),
        sht.solvers.SVRGHT(sht.steps.ConstantStep(1e6), inner_steps=40),
    ):
        solution = sht.solve(sht.MultiResponse(X, Y), sht.Rank(2), solver, throw=False, max_steps=100)
        assert solution.result == sht.results.RESULTS.nonfinite
        values = np.asarray(solution.history.value)[: int(solution.num_steps)]
        # The values rise until one is infinite: none falls back to that of zero.
        assert np.all(np.diff(values[:-1]) > 0) and np.isfinite(solution.value)
