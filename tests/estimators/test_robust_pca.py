"""RobustPCA on planted matrices, and where it ends."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import sparsehtp as sht


def planted(n, p, r, share, size, seed=0, condition=1.0):
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((n, r)) * np.geomspace(1, 1 / condition, r) @ rng.standard_normal((r, p))
    corrupted = rng.random((n, p)) < share
    return L, np.where(corrupted, size * rng.choice([-1, 1], (n, p)) * rng.uniform(0.5, 1.5, (n, p)), 0)


@pytest.mark.parametrize("condition", [1, 10])
@pytest.mark.parametrize("size", [1, 10])
@pytest.mark.parametrize("share", [0.05, 0.1])
def test_planted_matrices_are_recovered_exactly(share, size, condition):
    L, S = planted(120, 100, 3, share, size, condition=condition)
    model = sht.RobustPCA(3, int(np.count_nonzero(S))).fit(L + S)
    assert np.array_equal(model.support_, S != 0)
    np.testing.assert_allclose(model.low_rank_, L, atol=1e-6)
    np.testing.assert_allclose(model.sparse_, S, atol=1e-6)
    np.testing.assert_allclose(model.singular_values_, np.linalg.svd(L)[1][:3], rtol=1e-6)
    assert model.objective_value_ <= 1e-10


NOISY = sum(planted(40, 30, 2, 0.1, 5)) + 0.3 * np.random.default_rng(2).standard_normal((40, 30))


def test_at_the_end_both_parts_are_best_given_the_other():
    model = sht.RobustPCA(2, k=0.1).fit(NOISY)
    assert model.support_.sum() == 120
    residual = np.abs(NOISY - model.low_rank_)
    assert residual[model.support_].min() >= residual[~model.support_].max()
    np.testing.assert_allclose(model.sparse_, np.where(model.support_, NOISY - model.low_rank_, 0), atol=1e-12)
    U, s, Vt = np.linalg.svd(NOISY - model.sparse_)
    np.testing.assert_allclose(model.low_rank_, (U[:, :2] * s[:2]) @ Vt[:2], atol=1e-6)
    np.testing.assert_allclose(np.abs(model.components_ @ Vt[:2].T), np.eye(2), atol=1e-6)
    value = 0.5 * np.sum((NOISY - model.low_rank_ - model.sparse_) ** 2)
    np.testing.assert_allclose(model.objective_value_, value, rtol=1e-9)


def test_a_tolerance_below_rounding_is_that_of_rounding():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        exact, near = sht.RobustPCA(2, k=0.1, tol=1e-300).fit(NOISY), sht.RobustPCA(2, k=0.1).fit(NOISY)
    assert exact.n_iter_ > near.n_iter_ and np.array_equal(exact.support_, near.support_)


def test_scales_transposes_and_extremes():
    L, S = planted(30, 20, 2, 0.05, 3)
    k = int(np.count_nonzero(S))
    M = L + S
    model = sht.RobustPCA(2, k).fit(M)
    for factor in (2.0**40, -(2.0**-600), 3.0):
        scaled = sht.RobustPCA(2, k).fit(factor * M)
        np.testing.assert_allclose(scaled.low_rank_, factor * model.low_rank_, atol=1e-7 * abs(factor))
        assert np.array_equal(scaled.support_, model.support_)
    np.testing.assert_allclose(sht.RobustPCA(2, k).fit(M.T).low_rank_, L.T, atol=1e-6)
    none = sht.RobustPCA(2, 0).fit(M)
    U, s, Vt = np.linalg.svd(M)
    np.testing.assert_allclose(none.low_rank_, (U[:, :2] * s[:2]) @ Vt[:2], atol=1e-6)
    everything = sht.RobustPCA(0, M.size).fit(M)
    assert not everything.low_rank_.any() and np.array_equal(everything.sparse_, M)
    assert sht.RobustPCA(2, k).fit(M.astype(np.float32)).low_rank_.dtype == np.float32
    assert not sht.RobustPCA(1, 3).fit(np.zeros((4, 5))).low_rank_.any()


def test_a_share_of_the_entries_is_rounded():
    shares = {0.0: 0, 0.05: 60, 0.9999: 1190, 1.0: 1, 7: 7}
    assert {k: sht.RobustPCA(k=k)._check_k(1190) for k in shares} == shares
    assert sht.RobustPCA()._check_k(1190) == 60


def test_a_step_limit_is_told():
    L, S = planted(20, 20, 2, 0.1, 3)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        model = sht.RobustPCA(2, 0.1, max_iter=1).fit(L + S)
    assert model.n_iter_ == 1 and model.low_rank_.any()
