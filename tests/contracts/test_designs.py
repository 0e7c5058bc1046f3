"""Every design against NumPy, in any memory order and dtype."""

import itertools
from fractions import Fraction

import cases
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.sparse import BCOO
from scipy import sparse

import sparsehtp as sht
from sparsehtp._types import replace
from sparsehtp.columns import Columns, moments
from sparsehtp.designs.dense import subtracts_exactly
from sparsehtp.designs.sparse import as_design

ARRAY = np.random.default_rng(0).standard_normal((7, 5))
ARRAY[[0, 2, 2, 4, 5, 6, 6], [1, 0, 3, 3, 2, 0, 4]] = 0
ARRAY[:, 4] = -np.abs(ARRAY[:, 4])  # none of it is large but in magnitude
WEIGHTS = np.random.default_rng(1).random(7)
WEIGHTS /= WEIGHTS.sum()


@cases.jit
def products(design, w, r, s, idx, rows):
    columns, norms = design.columns(idx), (design.column_norms(s), design.column_norms(s, w))
    return design.mv(w), design.rmv(r), columns, design.rows(rows), norms, design.moments(s), design.magnitudes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", cases.DESIGNS)
def test_products_match_numpy(x64, name, dtype):
    X = ARRAY.astype(dtype)
    design = cases.DESIGNS[name](X)
    tol = 1e-5 if dtype == np.float32 else 1e-12
    rng = np.random.default_rng(2)
    w, r = rng.standard_normal(5).astype(dtype), rng.standard_normal(7).astype(dtype)
    s = WEIGHTS.astype(dtype)
    idx, rows = np.array([3, 0, 3, 4]), np.array([6, 1, 1])
    assert design.shape == (7, 5) and design.dtype == dtype
    forward, backward, columns, picked, norms, (mean, deviation), largest = products(design, w, r, s, idx, rows)
    chex.assert_type([forward, backward, columns, *norms], dtype)
    np.testing.assert_allclose(forward, ARRAY @ w, rtol=tol, atol=tol)
    np.testing.assert_allclose(backward, ARRAY.T @ r, rtol=tol, atol=tol)
    np.testing.assert_allclose(np.dot(forward, r), np.dot(w, backward), rtol=10 * tol)
    np.testing.assert_array_equal(columns, X[:, idx])
    np.testing.assert_array_equal(picked, X[rows])
    np.testing.assert_allclose(norms[0], np.sqrt(s @ ARRAY**2), rtol=tol)
    np.testing.assert_allclose(norms[1], np.sqrt(s @ (ARRAY * w) ** 2), rtol=tol)
    expected = WEIGHTS @ ARRAY
    np.testing.assert_allclose(mean, expected, rtol=tol, atol=tol)
    np.testing.assert_allclose(deviation, np.sqrt(WEIGHTS @ (ARRAY - expected) ** 2), rtol=10 * tol)
    np.testing.assert_array_equal(largest, np.abs(X).max(0))
    for power in (-600, 600) if dtype == np.float64 else (-100, 100):  # where squares are no numbers
        found = np.ldexp(products(cases.DESIGNS[name](np.ldexp(X, power)), w, r, s, idx, rows)[5], -power)
        np.testing.assert_allclose(found, [mean, deviation], rtol=tol)


@cases.jit
def weighted(design, s):
    ones = jnp.ones(5, s.dtype)
    columns = Columns(design, s, np.zeros(()), ones, 0 * ones, n_free=1)
    facts = design.column_norms(s, jnp.full(5, 2.0)), design.moments(s), design.magnitudes(s), design.rmv(s)
    return facts, columns.row_sizes(), columns.gram_diagonal(s), columns.moments(), columns.norms()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", cases.DESIGNS)
def test_a_row_without_weight_may_hold_any_number(x64, name, dtype):
    X, s = ARRAY.astype(dtype), WEIGHTS.astype(dtype)
    s[2], X[:, 4] = 0, 1 / 3
    far = X.copy()
    far[2, [1, 3]] = np.finfo(dtype).max / 4, -np.finfo(dtype).max / 4  # its square overflows
    assert X[2, 3] == 0  # and sparse columns get a nonzero more
    near = weighted(cases.DESIGNS[name](X), s / s.sum())
    assert near[0][1][1][4] <= 10 * np.finfo(dtype).eps, "a column of equal numbers has no deviation"
    chex.assert_trees_all_close(weighted(cases.DESIGNS[name](far), s / s.sum()), near, rtol=10 * np.finfo(dtype).eps)


def test_zeros_of_a_sparse_column_count_by_their_weight(x64):
    """None, hardly any, or nearly all: what rounding leaves of their share is no deviation, and no root of less."""
    found = cases.jit(lambda design, weights: design.moments(weights))
    for seed in range(8):
        weights = np.random.default_rng(seed).random(300)
        weights[:2] = 0, 1e-25
        weights /= weights.sum()
        Z = np.full((300, 4), 1 / 3)
        Z[1, 1], Z[1:, 2], Z[:150, 3] = 0, 0, 0
        mean, deviation = map(np.asarray, found(sht.designs.SparseDesign(sparse.csr_array(Z)), weights))
        share = weights[150:].sum()
        np.testing.assert_allclose(mean, [1 / 3, 1 / 3, 0, share / 3], rtol=1e-14)
        assert (deviation[:2] <= [1e-14, 1e-7]).all() and deviation[2] == 0, seed
        np.testing.assert_allclose(deviation[3], np.sqrt(share * (1 - share)) / 3, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_facts_on_the_host_are_those_of_a_program_and_of_float64(x64, dtype, order, monkeypatch):
    monkeypatch.setattr(moments, "PIECE", 256)  # pieces of a few rows, and of a few columns
    rng, (small, large) = np.random.default_rng(3), (np.finfo(dtype).tiny / 8, np.finfo(dtype).max / 4)
    X = np.asarray(rng.standard_normal((70, 9)) * 10.0 ** rng.integers(-9, 9, 9) + 100, dtype, order)
    X[:, 1], X[:, 2], X[:, 3] = small, 7, X[:, 3] * dtype(1e25)
    weights = rng.random(70).astype(dtype)
    weights[[4, 60]] = 0
    X[4] = large
    design = sht.designs.DenseDesign(X)
    assert design.by_feature == (order == "F")
    host, program = (np.array(f(design, weights, True)) for f in (moments.spread_of, moments._by_program))
    live, V = weights.astype(float) / weights.sum(dtype=float), np.delete(X.astype(float), 1, axis=1)
    V[4] = 0
    mean = live @ V
    exact = np.abs(V).max(0), mean, np.sqrt(live @ (V - mean) ** 2)
    size, eps = exact[0], np.finfo(dtype).eps
    for found in (host, program):
        assert not found[:, 1].any()  # what programs flush to zero
        for part, reference in zip(np.delete(found, 1, axis=1), exact, strict=True):
            assert np.all(np.abs(part - reference) <= 30 * eps * size)
    alone, *_ = moments.spread_of(design, weights, False)
    np.testing.assert_array_equal(alone, host[0])


@pytest.mark.parametrize("name", cases.DESIGNS)
def test_nonfinite_entries_are_seen(name):
    X = ARRAY.copy()
    X[[2, 0, 5], [3, 0, 1]] = np.nan, np.inf, -np.inf
    found = np.isfinite(cases.DESIGNS[name](X).magnitudes())
    np.testing.assert_array_equal(found, np.isfinite(X).all(0))


def test_a_difference_is_exact_where_undoing_it_gives_both_back():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(2**24), 2**24, (2, 4000)) * 2.0 ** rng.integers(-9, 9, (2, 4000))).astype(np.float32)
    exact = [Fraction(float(x)) - Fraction(float(y)) == Fraction(float(x - y)) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(subtracts_exactly(a, b, a - b), exact)
    assert 0.1 < np.mean(exact) < 0.9


def test_centred_columns_and_what_was_subtracted_are_the_data(x64):
    """Where nothing is rounded, in rows with a weight: there by multiples of a grain; constant columns become zero."""
    grain, weights = np.full(4, 2.0**-10), np.arange(7.0) % 3
    X = np.round(ARRAY[:, :4] / grain) * grain + [0, 100, 1 / 3, 5]
    X[:, 3], X[weights == 0, 1], X[1, 2] = 5, 1e-9, 1e-30
    facts, centred = (grain, np.arange(4) == 3, weights), cases.jit(lambda design, *facts: design.centred(*facts))
    for make, far in itertools.product((cases.DESIGNS["dense"], cases.DESIGNS["dense_fortran"]), (5, 60)):  # either way
        moved, shift = centred(make(X), X.mean(0) + far * (np.arange(4) == 1), *facts)
        Z, shift, live = np.asarray(moved.array.T if moved.by_feature else moved.array), np.asarray(shift), weights > 0
        np.testing.assert_array_equal((Z[:, :3] + shift[:3])[live], X[live, :3])
        assert shift[2] == 0 and not Z[:, 3].any() and np.array_equal(np.round(shift / grain), shift / grain)
        mean = np.average(Z[:, :2], 0, weights)
        assert np.all(np.abs(mean) <= Z[live, :2].std(0)), "and what is left of the mean is corrected"


def test_columns_of_zeros_at_the_end_are_left_out():
    X = np.array([[1.0, 0, 2, 0, 0], [0, 3, 1, 0, 0], [0, 0, 5, 0, 0]], np.float32)
    for make in (cases.DESIGNS[name] for name in ("dense", "dense_fortran", "csr")):
        chex.assert_trees_all_equal((make(X).narrowed(3), make(X).magnitudes()), (make(X[:, :3]), X.max(0)))
        np.testing.assert_array_equal(make(X).subset(jnp.array([2, 0])).columns(jnp.arange(2)), X[:, [2, 0]])
    by_column = make(X).by_column  # a chunk of zeros that fills a bucket belongs to the last column, here and there
    more = {name: jnp.pad(getattr(by_column, name), ((0, 1), (0, 0))) for name in ("data", "indices")}
    filled = by_column._replace(**more, owner=jnp.append(by_column.owner, 4))
    few = replace(make(X), by_column=filled).narrowed(3)
    np.testing.assert_array_equal(few.by_column.owner, np.append(by_column.owner, 2))
    np.testing.assert_array_equal(few.rmv(jnp.ones(3)), X[:, :3].sum(0))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
@pytest.mark.parametrize("name", ["dense", "dense_fortran", "dense_jax", "csr"])
def test_integers_become_floats(dtype, name):
    X = np.array([[1, 0, 2], [0, 3, 1]]).astype(dtype)
    with jax.enable_x64(True):
        design = cases.DESIGNS[name](X)
        assert design.dtype == jnp.float64
        np.testing.assert_array_equal(design.mv(jnp.array([1.0, 2.0, 3.0])), X.astype(float) @ [1, 2, 3])
    assert cases.DESIGNS[name](X).dtype == jnp.float32


def test_every_table_becomes_a_design_of_its_kind():
    dense = [[1.0, 0.0]], np.eye(2, dtype=np.float16), jnp.eye(2)
    others = sparse.csr_array(np.eye(2)), sparse.coo_matrix(np.eye(2)), BCOO.fromdense(np.eye(2))
    for kind, tables in ((sht.designs.DenseDesign, dense), (sht.designs.SparseDesign, others)):
        for table in tables:
            design = as_design(table)
            assert isinstance(design, kind) and as_design(design) is design and design.dtype == np.float32
