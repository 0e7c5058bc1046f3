"""SparsePCA against all supports, ordinary PCA, and scikit-learn's and abess's sparse components."""

import itertools
from fractions import Fraction

import jax
import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.decomposition import SparsePCA as Penalised

import sparsehtp as sht
from sparsehtp.estimators import sparse_pca
from sparsehtp.linalg import sparse_eigenvector
from sparsehtp.linalg.sparse_eigenvector import _swap


def correlated(n, p, seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) @ rng.standard_normal((p, p)) + 3


def best_of_all(S, k):
    blocks = (S[np.ix_(F, F)] for F in itertools.combinations(range(len(S)), k))
    return max(np.linalg.eigvalsh(block)[-1] for block in blocks)


def test_starts_and_swaps_find_the_best_support_nearly_always():
    search = jax.jit(sparse_eigenvector, static_argnames="k_max")
    found = []
    with jax.enable_x64(True):
        for seed in range(60):
            rng = np.random.default_rng(seed)
            n, p, k = rng.integers(3, 30), 11, rng.integers(1, 11)
            A = np.zeros((30, p))  # one program for all
            A[:n] = correlated(n, p, seed) - 3
            S = A.T @ A
            out = search(A, np.int32(k), p, rng.standard_normal((8, p)))
            v, value = np.asarray(out.vector), float(out.value)
            assert np.count_nonzero(v) <= k and not v[~np.asarray(out.support)].any()
            np.testing.assert_allclose([v @ v, v @ S @ v], [1, value], rtol=1e-9)
            found.append(value >= best_of_all(S, k) * (1 - 1e-9))
        A, starts = np.zeros((30, p)), np.zeros((8, p))  # two blocks, from neither of which an exchange leads
        A[0, 3:6], A[1, 6:9] = 1, 1.1
        starts[1:3] = A[:2]
        np.testing.assert_allclose(search(A, np.int32(3), p, starts).value, 3 * 1.1**2, err_msg="the best of its ends")
    assert np.mean(found) >= 0.95


def test_where_exchanges_end_none_raises_the_largest_eigenvalue():
    """From any support, of fewer features than there are slots."""
    swap, p = jax.jit(_swap), 9
    with jax.enable_x64(True):
        for seed in range(24):
            rng = np.random.default_rng(seed)
            A, k = rng.standard_normal((12, p)) * rng.uniform(0.2, 2, p), int(rng.integers(2, 8))
            S = A.T @ A
            end = np.asarray(swap(A, np.diag(S), rng.permutation(p)[:8], np.int32(k)))[:k]
            near = [[*np.setdiff1d(end, i), j] for i in end for j in np.setdiff1d(np.arange(p), end)]
            here, *others = (np.linalg.eigvalsh(S[np.ix_(F, F)])[-1] for F in (end, *near))
            assert max(others) <= here * (1 + 1e-9), f"seed {seed}, k {k}"


@pytest.mark.parametrize(("n", "p"), [(40, 9), (6, 12)])
def test_each_component_is_best_for_the_deflated_covariance(n, p):
    X = correlated(n, p, 0)
    model = sht.SparsePCA(3, k=[3, 4, 2]).fit(X)
    assert model.get_feature_names_out().tolist() == ["sparsepca0", "sparsepca1", "sparsepca2"]
    assert model.optimal_.all() and list(model.support_.sum(1)) == [3, 4, 2]
    assert (np.take_along_axis(model.components_, np.abs(model.components_).argmax(1)[:, None], 1) > 0).all()
    S, basis = np.cov(X.T), np.zeros((0, p))
    for t, v in enumerate(model.components_):
        P = np.eye(p) - basis.T @ basis
        np.testing.assert_allclose(model.variance_[t], best_of_all(P @ S @ P, model.support_[t].sum()), rtol=1e-8)
        np.testing.assert_allclose(v @ P @ S @ P @ v, model.variance_[t], rtol=1e-8)
        basis = np.vstack([basis, P @ v / np.linalg.norm(P @ v)])
        np.testing.assert_allclose(model.explained_variance_[t], basis[t] @ S @ basis[t], rtol=1e-8)
    near = model.inverse_transform(model.transform(X))
    np.testing.assert_allclose(np.trace(np.cov(near.T)), model.explained_variance_.sum(), rtol=1e-8)
    np.testing.assert_allclose(
        model.explained_variance_ratio_.sum(), 1 - np.var(X - near, 0).sum() / np.var(X, 0).sum()
    )
    np.testing.assert_allclose(model.transform(near), model.transform(X), atol=1e-8)


def test_where_all_supports_are_tried_the_search_decides_nothing(monkeypatch):
    monkeypatch.setattr(sparse_pca, "AT_ONCE", 180)  # twenty at a time
    monkeypatch.setattr(sht.SparsePCA, "_component", lambda self, A, *_: (np.eye(9)[0], float(A[:, 0] @ A[:, 0])))
    X = correlated(40, 9, 0)
    model, best = sht.SparsePCA(1, k=3).fit(X), best_of_all(np.cov(X.T), 3)
    np.testing.assert_allclose([model.variance_[0], model.upper_bound_[0]], best, rtol=1e-8)


def test_with_all_features_it_is_pca():
    X = correlated(30, 8, 1)
    model, peer = sht.SparsePCA(8).fit(X), PCA().fit(X)
    np.testing.assert_allclose(model.explained_variance_, peer.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(np.abs(model.components_ @ peer.components_.T), np.eye(8), atol=1e-6)
    np.testing.assert_allclose(model.upper_bound_, peer.explained_variance_, rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_at_least_as_much_variance_as_peers_with_as_many_features(seed):
    X = correlated(60, 40, seed)
    S = np.cov(X.T)
    v = Penalised(1, alpha=40, random_state=0).fit(X - X.mean(0)).components_[0]
    k = np.count_nonzero(v)
    assert 0 < k < 40
    model = sht.SparsePCA(1, k=k).fit(X)
    assert v @ S @ v / (v @ v) <= model.variance_[0] * (1 + 1e-9) <= model.upper_bound_[0] * (1 + 2e-9)


@pytest.mark.parametrize(("n", "p", "k"), [(50, 30, 10), (10, 60, 5)])
def test_upper_bounds_hold(n, p, k, monkeypatch):
    monkeypatch.setattr(sparse_pca, "AT_ONCE", 7 * p)  # rows
    X = correlated(n, p, 2)
    model, S = sht.SparsePCA(1, k=k).fit(X), np.cov(X.T)
    assert not model.optimal_.any() and model.upper_bound_[0] >= model.variance_[0]
    assert model.upper_bound_[0] <= np.linalg.eigvalsh(S)[-1] * (1 + 1e-6)
    rng = np.random.default_rng(0)
    near_diagonal = rng.standard_normal((400, 30))  # where Gershgorin's bound is below the largest eigenvalue
    model, S = sht.SparsePCA(1, k=5).fit(near_diagonal), np.cov(near_diagonal.T)
    sizes = np.sort(np.abs(S - np.diag(np.diag(S))), axis=1)[:, -4:].sum(1) + np.diag(S)
    bounds = sizes.max(), np.linalg.eigvalsh(S)[-1], np.sort(np.diag(S))[-5:].sum()
    np.testing.assert_allclose(model.upper_bound_, min(bounds), rtol=1e-6)


@pytest.mark.parametrize("tried", [True, False])
def test_no_bound_is_below_the_exact_variance(tried, monkeypatch):
    """Of one row, where the best vector has its k largest entries, in exact fractions."""
    monkeypatch.setattr(sparse_pca, "MOST_SUBSETS", sparse_pca.MOST_SUBSETS if tried else 0)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        A, k = rng.standard_normal((1, 6)), 1 + seed % 6
        best = sum(sorted(Fraction(a) ** 2 for a in A[0].tolist())[-k:])
        _, upper, exact = sparse_pca._bound(A, k)
        assert exact == tried and best <= Fraction(upper) <= best * (1 + Fraction(1, 10**12) if tried else 6), seed


def test_a_covariance_of_single_precision_has_a_root():
    """Of two rows: what should be zero eigenvalues are rounded to either side of it, in any unit."""
    for seed, unit in itertools.product(range(3), (1e-12, 1.0, 1e12)):
        X = correlated(2, 6, seed) * [1, 1, 1, 1, 1, 1e-3]
        S = np.cov(X.T).astype(np.float32) * np.float32(unit)
        S[0, 1] *= np.float32(1 + 2e-7)
        A = sparse_pca._root(S.astype(float))
        np.testing.assert_allclose(A.T @ A, S, atol=1e-6 * np.abs(S).max())
        for wrong in (S - 1e-3 * np.abs(S).max() * np.eye(6), S + 1e-3 * np.abs(S).max() * np.eye(6, k=1)):
            with pytest.raises(ValueError, match="X: a covariance is symmetric"):
                sparse_pca._root(wrong.astype(float))


def test_scales_and_what_is_past_the_rank():
    X = np.column_stack([correlated(20, 6, 3), np.ones(20)])
    model = sht.SparsePCA(2, k=2).fit(X)
    for factor in (2.0**500, 2.0**-530):  # the squares of the last ones are less than any number
        scaled = sht.SparsePCA(2, k=2).fit(factor * X)
        np.testing.assert_allclose(scaled.components_, model.components_, atol=1e-9)
        np.testing.assert_allclose(scaled.explained_variance_ratio_, model.explained_variance_ratio_, rtol=1e-9)
    flat = np.column_stack([X[:, 0], X[:, 0], np.full(20, 0.1)])
    model = sht.SparsePCA(3, k=2).fit(flat)
    assert not model.components_[1:].any() and not model.support_[1:].any() and not model.explained_variance_[1:].any()
    np.testing.assert_allclose(model.explained_variance_ratio_, [1, 0, 0], rtol=1e-9)
    np.testing.assert_allclose(model.inverse_transform(model.transform(flat)), flat, atol=1e-9)
    assert not sht.SparsePCA().fit(np.ones((3, 2))).explained_variance_ratio_.any()


def test_what_single_precision_rounds_is_no_component():
    X = np.outer(correlated(20, 1, 3), np.arange(1.0, 7) / 3)  # of rank one before it is rounded
    model = sht.SparsePCA(2).fit(X.astype(np.float32))
    assert model.components_[0].any() and not model.support_[1].any() and model.explained_variance_[1] == 0


def test_a_covariance_and_a_sparse_matrix_have_the_components_of_the_data():
    X = correlated(40, 6, 2) * (np.random.default_rng(0).random((40, 6)) < 0.4)
    dense = sht.SparsePCA(2, k=3).fit(X)
    thin = sht.SparsePCA(2, k=3).fit(sparse.csr_array(X))
    matrix = sht.SparsePCA(2, k=3, covariance=True).fit(np.cov(X.T))
    for other in (thin, matrix):
        for name in ("components_", "explained_variance_", "explained_variance_ratio_", "variance_", "upper_bound_"):
            np.testing.assert_allclose(getattr(other, name), getattr(dense, name), rtol=1e-8, atol=1e-10)
    for kind in (sparse.csr_array, sparse.csr_matrix):
        scores = thin.transform(kind(X))
        assert type(scores) is np.ndarray
        np.testing.assert_allclose(scores, dense.transform(X), atol=1e-10)
    np.testing.assert_array_equal(matrix.mean_, 0)
    for wrong in (X, -np.eye(3), np.array([[1.0, 2.0], [0.0, 1.0]])):
        with pytest.raises(ValueError, match="X: a covariance is symmetric"):
            sht.SparsePCA(covariance=True).fit(wrong)
