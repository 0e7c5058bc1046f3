"""Sparse designs: odd matrices, transforms, derivatives, and the same iterates as dense ones."""

import dataclasses
import itertools
from types import SimpleNamespace

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.sparse import BCOO
from scipy import sparse

import sparsehtp as sht
from sparsehtp._solve import default_solver
from sparsehtp.linalg import lane_axis, truncated_newton
from sparsehtp.linalg import sparse as kernels
from sparsehtp.linalg.tableau import swap_gains, tableau_at
from sparsehtp.objectives import base, linear_model
from sparsehtp.objectives.model import PartInPlace
from sparsehtp.solvers import working_set
from sparsehtp.solvers.refit import refit

pytestmark = pytest.mark.usefixtures("x64")

RNG = np.random.default_rng(0)
N, P = 60, 16


def thinned(X, share=0.4, seed=5):
    return np.where(np.random.default_rng(seed).random(X.shape) < share, X, 0)


X = thinned(RNG.standard_normal((N, P)) + 0.5)
W = np.where(np.arange(P) < 3, [2.0, -2.5, 3.0] + [0.0] * (P - 3), 0)
TARGETS = {"squared": X @ W + 0.3 * RNG.standard_normal(N)}
TARGETS["logistic"] = np.where(X @ W + RNG.logistic(size=N) > 0, 1.0, -1)


def drawn(seed):
    """A COO array with duplicates, explicit zeros and no order, and what it adds up to."""
    rng, shape = np.random.default_rng(seed), [(6, 9), (1, 6), (5, 1)][seed % 3]
    place = tuple(rng.integers(most, size=5 * seed) for most in shape)
    value, dense = rng.choice([0.0, 1.0, -2.5, 1e-3, 7.0], 5 * seed), np.zeros(shape)
    np.add.at(dense, place, value)
    return dense, sparse.coo_array((value, place), shape=shape)


def stored_badly(X):
    """CSR with 64-bit indices in falling order, duplicates and explicit zeros kept."""
    order = np.lexsort((-X.col, X.row))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(X.row, minlength=X.shape[0]))]).astype(np.int64)
    return sparse.csr_array((X.data[order], X.col[order].astype(np.int64), indptr), shape=X.shape)


@cases.jit
def everything(design, w, r, weights):
    n, p = design.shape
    entries, static = eqx.partition(design, eqx.is_inexact_array)
    of_entries = jax.jvp(lambda entries: eqx.combine(entries, static).mv(w), (entries,), (entries,))[1]
    products = design.mv(w), jax.jvp(design.mv, (w,), (w,))[1], of_entries, design.rmv(r), design.column_norms(weights)
    return products, design.columns(jnp.arange(p)), design.rows(jnp.arange(n)), design.moments(weights)


@pytest.mark.parametrize("seed", range(6))
def test_any_matrix_acts_as_its_sum(seed):
    dense, X = drawn(seed)
    n, p = dense.shape
    bad = stored_badly(X)
    before = bad.copy()
    rng = np.random.default_rng(1)
    w, r, weights = rng.standard_normal(p), rng.standard_normal(n), rng.random(n)
    weights /= weights.sum()
    for design in (sht.designs.SparseDesign(X), sht.designs.SparseDesign(bad)):
        products, columns, rows, (mean, deviation) = everything(design, w, r, weights)
        found = *products, columns, rows, mean, deviation**2
        expected = *[dense @ w] * 3, dense.T @ r, np.sqrt(weights @ dense**2), dense, dense, weights @ dense
        expected = *expected, weights @ (dense - weights @ dense) ** 2
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)
    assert bad.nnz == before.nnz and np.array_equal(bad.indices, before.indices), "the caller's matrix is unchanged"
    plain = sht.designs.SparseDesign(sparse.csr_array(dense))
    assert jax.tree.map(jnp.shape, design) == jax.tree.map(jnp.shape, plain), "zeros that are stored cost nothing"


def test_skewed_columns_use_whole_chunks():
    wide = sparse.random_array((50, 400), density=0.02, rng=np.random.default_rng(0), format="lil")
    wide[:, 7] = np.arange(1, 51)[:, None]
    wide[3] = np.arange(400)
    wide = wide.tocsr()
    design = sht.designs.SparseDesign(wide)
    for side in (design.by_row, design.by_column):
        assert side.data.size <= kernels.PADDING * (wide.nnz + 1)
    np.testing.assert_allclose(design.mv(np.arange(400.0)), wide @ np.arange(400.0), rtol=1e-12)
    np.testing.assert_allclose(design.rmv(np.arange(50.0)), wide.T @ np.arange(50.0), rtol=1e-12)
    idx = np.array([7, 399, 7, 0])
    np.testing.assert_array_equal(design.columns(idx), wide.toarray()[:, idx])


BEYOND = (np.ones(3), [0, 40, 2], np.arange(4))  # a place that there is not
BAD = {
    "complex": (lambda: sparse.csr_array(np.eye(2) * 1j), ValueError, "real numbers"),
    "empty": (lambda: sparse.csr_array((0, 3)), ValueError, "is empty"),
    "dense": (lambda: np.eye(2), TypeError, "use DenseDesign"),
    "one dimension": (lambda: sparse.coo_array(np.ones(3)), ValueError, "two dimensions"),
    "batched": (lambda: BCOO.fromdense(jnp.ones((2, 3, 4)), n_batch=1), ValueError, "without batch"),
    "huge": (lambda: sparse.coo_array((2, 2**31)), ValueError, "32-bit"),
    "many": (lambda: type("Many", (sparse.coo_array,), {"nnz": 2**30})(np.eye(2)), ValueError, "32-bit"),
    "csr beyond": (lambda: sparse.csr_array(BEYOND, shape=(3, 3)), ValueError, "not a valid sparse matrix"),
    "csc beyond": (lambda: sparse.csc_array(BEYOND, shape=(3, 3)), ValueError, "not a valid sparse matrix"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_matrices(name):
    make, kind, message = BAD[name]
    cases.refused(kind, f"^X: .*{message}", lambda: sht.designs.SparseDesign(make()))


def test_a_dense_block_that_does_not_fit():
    design = sht.designs.SparseDesign(sparse.coo_array((20_000, 60_000)))
    with pytest.raises(ValueError, match=r"40000 dense columns of 20000 rows would take 6.0 GiB.*use"):
        jax.eval_shape(design.columns, jnp.arange(40_000))
    cases.refused(ValueError, "GiB", lambda: jax.eval_shape(jax.vmap(design.columns), jnp.zeros((40, 1000), int)))


@pytest.fixture(scope="module")
def design():
    with jax.enable_x64(True):
        return sht.designs.SparseDesign(sparse.csr_array(X))


def test_batches_are_loops(design):
    W2, R = RNG.standard_normal((9, P)), RNG.standard_normal((2, 5, N))  # enough for products of blocks
    np.testing.assert_allclose(jax.vmap(design.mv)(W2), W2 @ X.T, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(design.mv)(W2[:1]), W2[:1] @ X.T, rtol=1e-12)
    np.testing.assert_allclose(cases.jit(jax.vmap(jax.vmap(design.rmv)))(R), R @ X, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(design.mv, 1, 1)(W2.T), X @ W2.T, rtol=1e-12)
    idx = np.array([[3, 1, 3], [0, 0, 15]])
    np.testing.assert_array_equal(jax.vmap(design.columns)(idx), np.moveaxis(X[:, idx], 1, 0))
    np.testing.assert_allclose(jax.vmap(design.column_norms)(R[0] ** 2), np.sqrt(R[0] ** 2 @ X**2), rtol=1e-12)


def test_batches_of_designs_are_loops(design):
    """Of their entries alone: the places of these are shared."""
    W2, idx, units = jnp.asarray(RNG.standard_normal((9, P))), np.array([3, 1, 3]), jnp.array([1.0, 2.0])

    def scaled(s):
        return jax.tree.map(lambda a: a * s if a.dtype == X.dtype else a, design)

    both = cases.jit(jax.vmap(lambda s, w: (scaled(s).mv(w), scaled(s).columns(idx))))(units, W2[:2])
    np.testing.assert_allclose(both[0], [X @ W2[0], 2 * X @ W2[1]], rtol=1e-12)
    np.testing.assert_allclose(both[1][1], 2 * X[:, idx], rtol=1e-12)
    nested = cases.jit(jax.vmap(lambda s: jax.vmap(scaled(s).mv)(W2)))(units)
    np.testing.assert_allclose(nested, [W2 @ X.T, 2 * W2 @ X.T], rtol=1e-12)


@pytest.mark.parametrize(
    "of", [jax.grad, *(pytest.param(d, marks=pytest.mark.slow) for d in (jax.jacfwd, jax.hessian))]
)
def test_derivatives_are_those_of_a_dense_design(design, of):
    """Along a random change of all entries, and of coefficients: backwards, forwards and twice."""
    D = np.where(X != 0, RNG.standard_normal(X.shape), 0)
    w, r, c, idx = RNG.standard_normal(P), RNG.standard_normal(N), RNG.standard_normal((N, 3)), np.array([2, 9, 2])
    change = sht.designs.SparseDesign(sparse.csr_array(D))

    def total(forward, backward, columns):
        return jnp.sum(jnp.tanh(forward)) + jnp.sum(jnp.sin(backward)) + jnp.sum(c * columns**2)

    def dense(t, w):
        Z = X + t * D
        return total(Z @ w, r @ Z, Z[:, idx])

    def thin(t, w):
        Z = jax.tree.map(lambda a, b: a + t * b if a.dtype == X.dtype else a, design, change)
        return total(Z.mv(w), Z.rmv(r), Z.columns(idx))

    found, expected = ((f(0.5, w), cases.jit(of(f, (0, 1)))(0.5, w)) for f in (thin, dense))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), found, expected)


ALL = dict(fit_intercept=True, standardize=True, sample_weight=np.arange(N) % 3, offset=np.linspace(-1, 1, N))
OPTIONS = {"plain": {}, "all": ALL}


def pair(loss="squared", options="all", l2=0.05):
    y, loss = TARGETS.get(loss, TARGETS["squared"]), cases.LOSSES[loss]
    return [sht.LinearModel(make(X), y, loss, l2=l2, **OPTIONS[options]) for make in (np.asarray, sparse.csr_array)]


def assert_same(a, b, steps=True):
    np.testing.assert_array_equal(cases.members(a.support), cases.members(b.support))
    np.testing.assert_allclose(a.x, b.x, atol=1e-7)
    np.testing.assert_allclose(a.intercept, b.intercept, atol=1e-7)
    np.testing.assert_allclose(a.value, b.value, rtol=1e-9)
    assert int(a.result) == int(b.result)
    if steps:
        assert int(a.num_steps) == int(b.num_steps)
        rows = slice(int(a.num_steps))
        np.testing.assert_allclose(a.history.value[rows], b.history.value[rows], rtol=1e-8)
        np.testing.assert_array_equal(a.history.support_changed[rows], b.history.support_changed[rows])


DETERMINISTIC = cases.SOLVERS | cases.SWAP_SOLVERS | cases.GREEDY_SOLVERS
QUICK = {(name, "squared", "all") for name in ("iht_constant", "grasp", "forward")}
EVERY = itertools.product(DETERMINISTIC, TARGETS, OPTIONS)
RUNS = [pytest.param(*run, marks=[] if run in QUICK else pytest.mark.slow) for run in EVERY]


@pytest.mark.parametrize(("name", "loss", "options"), RUNS)
def test_same_iterates_as_dense_for_every_solver(name, loss, options):
    models = pair(loss, options)
    a, b = (sht.solve(each, sht.Sparsity(3, k_max=4), cases.ALL_SOLVERS[name], max_steps=30) for each in models)
    # With a refit at every move, a perturbed start can be better by rounding alone, which costs one more step.
    assert_same(a, b, steps=name not in cases.SWAP_SOLVERS or loss == "squared")


@pytest.mark.parametrize("loss", ["squared", pytest.param("logistic", marks=pytest.mark.slow)])
def test_working_sets_on_sparse_data_score_every_swap(loss, monkeypatch):
    """All swaps from one block of Gram columns are those of the full tableau; a lane that grows scores additions."""
    monkeypatch.setattr(working_set, "BLOCK", 7)
    dense, thin = pair(loss)
    threshold = sht.Sparsity(3, k_max=4, keep=[5]).bind(thin)
    idx, mask = jnp.array([5, 1, 9, 12, 0]), jnp.arange(5) < 4
    kept = jnp.zeros(P, bool).at[5].set(True)

    @cases.jit
    def both(dense, thin):
        support = sht.results.Support(jnp.append(P, idx), jnp.append(True, mask))
        x, _ = refit(dense, threshold, support, jnp.zeros(P + 1))
        equations = dense.normal_equations(x)
        value, grad = dense.value_and_grad(x)
        state = SimpleNamespace(x=x, value=value, grad=grad, support=support)
        promises = jax.vmap(lambda new: working_set.promises(thin, threshold, state, new), axis_name=lane_axis())
        t = tableau_at(equations, idx, mask)
        gains = grad[:P] ** 2 / equations.diagonal, swap_gains(t, mask & ~kept[idx]).max(axis=0)
        return *promises(jnp.array([True, False])), *gains

    single, found, decreases, expected = map(np.asarray, both(dense, thin))
    np.testing.assert_allclose(single, decreases, rtol=1e-8, atol=1e-20)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    live = np.isfinite(expected)
    assert live.sum() == P - 4
    np.testing.assert_allclose(found[live], expected[live], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("loss", "kinds"), [("squared", "s"), ("logistic", "sd"), ("huber", "s")])
def test_large_supports_by_conjugate_gradients(loss, kinds, monkeypatch):
    support = sht.results.Support(jnp.array([P, 3, 0, 7, 11, 0], jnp.int32), jnp.arange(6) < 5)
    models = dict(zip("ds", pair(loss, l2=0.01), strict=True))
    expected = cases.jit(lambda model: model.restrict(support).minimise(jnp.zeros(6)).z)(models["d"])
    dense = models["d"].restrict(support)
    monkeypatch.setattr(base, "DENSE_HESSIAN_LIMIT", 4)
    monkeypatch.setattr(linear_model, "DENSE_HESSIAN_LIMIT", 4)
    for kind in kinds:
        large = models[kind].restrict(support)
        assert isinstance(large.part, PartInPlace) == (kind == "s")
        found = cases.jit(lambda large: large.minimise(jnp.zeros(6)))(large)
        assert bool(found.solved) and not bool(found.singular)
        np.testing.assert_allclose(found.z, expected, atol=1e-6)
        assert found.z[5] == 0
        facts = cases.jit(lambda part, z: (part.hess(z), part.hvp(z, z), part.grad(z), part.value(z), part.scale(z)))
        for ours, theirs in zip(facts(large, jnp.full(6, 0.1)), facts(dense, jnp.full(6, 0.1)), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
        assert kind != "s" or np.isinf(large.grad_terms(jnp.zeros(6))).all()


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_units_of_columns_cost_conjugate_gradients_no_steps(loss):
    units = jnp.append(jnp.geomspace(1e-3, 1e3, P), 1.0)
    model = sht.LinearModel(X, TARGETS[loss], cases.LOSSES[loss], l2=0.01, fit_intercept=True)
    every = sht.results.Support(jnp.arange(P + 1, dtype=jnp.int32), jnp.ones(P + 1, bool))
    plain = model.restrict(every)
    part = dataclasses.replace(plain.part, A=plain.part.A * units, ridge=plain.part.ridge * units**2)
    scaled = dataclasses.replace(plain, part=part)
    run = cases.jit(lambda part, most: truncated_newton(part, jnp.zeros(P + 1), most))
    for most in (*range(1, 8), 100):
        first, second = (run(each, most) for each in (plain, scaled))
        np.testing.assert_allclose(second.z * units, first.z, atol=1e-5)


def test_a_large_k_takes_another_solver():
    model = sht.LinearModel(sparse.random_array((30, 3000), density=0.01, rng=RNG, format="csr"), np.arange(30.0))
    for k, kind in ((2000, sht.solvers.BestSubset), (2500, sht.solvers.HTP)):
        assert isinstance(default_solver(model, sht.Sparsity(k)), kind)


def test_entries_are_no_part_of_a_program():
    models = (sht.LinearModel(sparse.csr_array(scale * X), TARGETS["squared"], l2=0.1) for scale in (1.0, 2.0))
    first, second = (jax.tree.map(jnp.shape, each) for each in models)
    assert first == second
