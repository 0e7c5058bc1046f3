"""Thresholds: the laws of `sparsehtp.testing`, brute force over units in NumPy, and the tight bound."""

import itertools
import re

import cases
import jax
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.testing import check_threshold
from sparsehtp.thresholds import AbstractUnitThreshold
from sparsehtp.thresholds.base import Unscaled, next_power_of_two

P = 6
LOWER, UPPER = np.array([-0.5, 0, -1, -2, -np.inf, -0.1]), np.array([0.1, 2, 0, 1, 2, np.inf])
ABOVE = np.array([-0.5, 0.5, 0.2, -2, 0.3, -0.1])
GROUPS = cases.GROUPS  # three groups, of 3, 1 and 2 features
THRESHOLDS = {
    **cases.THRESHOLDS,
    "box": sht.Sparsity(3, lower=LOWER, upper=UPPER),
    "gaps": sht.Sparsity(2, keep=[1], lower=ABOVE, upper=2.0),
    "groups_all": sht.GroupSparsity(GROUPS, 3),
    "groups_keep_within": sht.GroupSparsity(GROUPS, 1, keep=[0], within=1),
    "groups_box_within": sht.GroupSparsity(GROUPS, 2, within=2, lower=LOWER, upper=UPPER),
    "leaf_dense": sht.LeafSparsity({"a": 2, "b": None}),
}


def nearest(z, k, units, keep=(), lower=-np.inf, upper=np.inf, within=P):
    """The nearest point to z with at most k units beside those to keep, over all choices."""
    best = np.full(P, np.inf)
    for chosen in itertools.combinations(sorted({*units} - {*keep}), k):
        x = np.zeros(P)
        for unit in {*chosen, *keep}:
            where = np.flatnonzero(units == unit)
            x_near = np.clip(z, lower, upper)
            gain = z**2 - (z - x_near) ** 2
            where = where[np.argsort(-gain[where], kind="stable")][:within]
            x[where] = x_near[where]
        best = min(best, x, key=lambda x: np.sum((x - z) ** 2))
    return best


def nearest_of_signed_sum(z, k, total):
    """The nearest point to z with a given sum and at most k entries of any sign."""
    best = np.full(P, np.inf)
    for some in map(np.array, itertools.combinations(EACH, k)):
        x = np.zeros(P)
        x[some] = z[some] + (total - z[some].sum()) / some.size
        best = min(best, x, key=lambda x: np.sum((x - z) ** 2))
    return best


def leading(z, r, shape):
    U, s, Vt = np.linalg.svd(z.reshape(shape), full_matrices=False)
    return ((U[:, :r] * s[:r]) @ Vt[:r]).ravel()


def proximal(z, step_size, prices, lower, upper):
    """Entry by entry: the best point of either sign, or zero."""
    u = np.sign(z) * np.maximum(np.abs(z) - 0.05 * step_size * prices, 0)
    u = np.clip(u, lower, upper)
    gain = 0.5 * z**2 - (0.5 * (u - z) ** 2 + step_size * prices * (0.05 * np.abs(u) + 0.1))
    return np.where(gain >= 0, u, 0)


EACH, ROWS = np.arange(P), np.repeat(np.arange(3), 2)
PAIR = 4  # the number of (1, 3) among four variables
# name -> function of (z, k, step size)
NEAREST = {
    "leaf": lambda z, k, t: np.r_[nearest(z * (EACH < 2), min(k, 2), EACH)[:2], nearest(z * (EACH >= 2), k, EACH)[2:]],
    "leaf_dense": lambda z, k, t: np.append(nearest(z * (EACH < 2), k, EACH)[:2], z[2:]),
    "rank": lambda z, k, t: leading(z, k, (3, 2)),
    "off_diagonal": lambda z, k, t: nearest(z, k, EACH, [PAIR]),
}


def reference_of(name, threshold):
    """The same from what the threshold was given; None for sums, of which its own law knows all points."""
    if name in NEAREST or isinstance(threshold, sht.Simplex):
        return NEAREST.get(name)
    units = {sht.GroupSparsity: GROUPS, sht.RowSparsity: ROWS}.get(type(threshold), EACH)
    edges = (end if edge is None else edge for edge, end in ((threshold.lower, -np.inf), (threshold.upper, np.inf)))
    lower, upper = (np.repeat(edge, P // np.size(edge)) for edge in edges)
    if isinstance(threshold, sht.L0L1L2):
        prices = np.ones(P) if threshold.prices is None else threshold.prices
        return lambda z, k, t: proximal(z, t, np.where(np.isin(EACH, threshold.keep), 0, prices), lower, upper)
    within = getattr(threshold, "within", None) or P
    return lambda z, k, t: nearest(z, k, units, threshold.keep, lower, upper, within)


QUICK = "box gaps group_keep groups_all l0l1l2 l0l1l2_prices leaf_dense rows rows_keep sparsity".split()


@pytest.mark.parametrize("name", [pytest.param(a, marks=[pytest.mark.later] * (a not in QUICK)) for a in THRESHOLDS])
def test_laws(name):
    threshold = THRESHOLDS[name]
    with jax.enable_x64(True):
        objective = cases.bound_to(threshold)

    of = reference_of(name, threshold)

    def reference(z, bound, step_size):
        counts = jax.tree.leaves([getattr(bound, name) for name in bound.counts])
        return of(z, int(counts[0]) if counts else 0, step_size)

    check_threshold(threshold, objective, of and reference)


def test_static_limits():
    """The next power of two, 16 at least but for groups and ranks, and not above what there is; or what is given."""
    assert [next_power_of_two(k) for k in range(10)] == [1, 1, 2, 4, 4, 8, 8, 8, 8, 16]
    tens = np.arange(100) // 10
    for threshold, most in (
        (sht.Sparsity(5), 16), (sht.Sparsity(17), 32), (sht.Sparsity(70), 100), (sht.Sparsity(17, keep=range(80)), 20),
        (sht.Sparsity(5, k_max=9), 9), (sht.Sparsity(5, k_max=300), 100), (sht.GroupSparsity(tens, 3), 4),
        (sht.GroupSparsity(tens, 3, k_max=20), 10), (sht.L0L1L2(1.0), 100), (sht.L0L1L2(1.0, k_max=7), 7),
    ):  # fmt: skip
        assert threshold.bind(Unscaled((100,))).k_max == most
    assert [sht.Rank(*args).bind(Unscaled((9, 8))).r_max for args in ((3,), (5,), (5, 6), (5, 20))] == [4, 8, 6, 8]
    leaves = cases.bound_to(sht.LeafSparsity(2))  # of 2 and 4 entries
    for limit, blocks in ((None, (2, 4)), (3, (2, 3)), ({"a": 1, "b": 9}, (1, 4))):
        bound = sht.LeafSparsity(1, limit).bind(leaves)
        assert tuple(most for *_, most in bound.blocks) == blocks and bound.select(np.zeros(6)).idx.size == sum(blocks)
    cases.refused(ValueError, "r: is 9, but a .* has rank 8", lambda: sht.Rank(9).bind(Unscaled((9, 8))))
    extreme = Unscaled((3,), rescaled=True)
    assert sht.L0L1L2(0.1).bind(extreme).k_max == 3
    cases.refused(ValueError, "l1: columns of X are of an extreme size", lambda: sht.L0L1L2(0.1, 0.1).bind(extreme))
    few = sht.L0L1L2(0.1, k_max=1).bind(Unscaled((4,)))
    assert sht.L0L1L2(0.1, keep=[0]).bind(Unscaled((3,))).prices.tolist() == [0, 1, 1]
    kept = sht.L0L1L2(0.1, prices=[0.1, 2, 3], keep=[1]).bind(Unscaled((3,))).prices
    assert kept.tolist() == [0.1, 0, 3] and few.l0.dtype == kept.dtype == float  # outside of x64 too
    x, support = cases.jit(lambda z: few(z))(np.array([1.0, -4.0, 0.0, 3.0], np.float32))
    assert few.overflow(x) and sorted(cases.members(support)) == [1, 3]  # one more shows it
    np.testing.assert_array_equal(x, [0, -4, 0, 3])
    np.testing.assert_array_equal(sht.L0L1L2(0.5)(jax.numpy.array([0.9, -2, 1.1]))[0], np.float32([0, -2, 1.1]))


def test_what_a_threshold_says_of_itself():
    for name, threshold in THRESHOLDS.items():
        objective = cases.bound_to(threshold) or Unscaled((P,), dtype=np.dtype(np.float32))
        bound = threshold.bind(objective)
        assert {leaf.dtype for leaf in jax.tree.leaves(bound)} <= {np.dtype(bool), np.dtype(np.int32), objective.dtype}
        found = bound.bounded, bound.exchangeable, bound.plain, bound.entries_per_unit, bound.n_free, threshold.n_free
        words = "box|nonnegative|simplex|gaps", "^(?!.*(within|rank|off|l0))", "^sparsity(_keep)?$"
        sizes = 3 if "group" in name else 2 if "rows" in name else 1, objective.n_free, 0
        assert found == (*(bool(re.search(word, name)) for word in words), *sizes), name
        if isinstance(bound, AbstractUnitThreshold):
            x = jax.numpy.zeros(objective.n_coefficients + objective.n_free, objective.dtype).at[2].set(-1)
            unit = GROUPS[2] if "group" in name else 1 if "rows" in name else 2
            assert np.flatnonzero(bound.occupied(x)).tolist() == [unit], name


def test_prices_in_any_units():
    """Also where squares of entries and products with a price are no numbers."""
    z = np.random.default_rng(0).integers(-2, 3, (40, P)).astype(np.float32)
    priced = cases.jit(lambda z, unit: jax.vmap(lambda z: sht.L0L1L2(1.5 * unit)(z, unit)[0])(z))
    for unit in np.float32(2.0) ** [-80, 0, 80]:
        np.testing.assert_array_equal(priced(z * unit, unit), np.where(np.abs(z) > 3**0.5, z, 0) * unit)


def test_the_nearest_of_a_sum_among_equal_entries():
    """Where z is one number everywhere, too."""
    z = np.random.default_rng(1).integers(-2, 3, (40, P)).astype(np.float32)
    z[0], z[1] = 0, 2
    each = cases.jit(lambda threshold, z: jax.vmap(lambda z: threshold(z)[0])(z))
    for k, total in itertools.product((1, 2, 3), (0.0, 3.0)):
        found = each(sht.Simplex(k, total, k_max=4, positive=False), z)
        np.testing.assert_allclose(found.sum(1), total, atol=1e-5)
        assert (np.count_nonzero(found, axis=1) <= k).all()
        best = np.array([nearest_of_signed_sum(row, k, total) for row in z])
        np.testing.assert_allclose(((found - z) ** 2).sum(1), ((best - z) ** 2).sum(1), rtol=1e-5)


def test_a_margin_where_scores_are_zero():
    two, support = sht.Sparsity(2, k_max=2), sht.results.Support(np.arange(2), np.ones(2, bool))
    margin = cases.jit(lambda z: two.margin(z, support))
    for z, expected in (([4, 2, -1, 0], 0.5), ([4, 2, 0, 0], 1), ([4, 0, 0, 0], 0), ([4, 0, 1, 0], -np.inf)):
        for unit in np.float32(2.0) ** [-100, 0, 100]:
            assert margin(np.float32(z) * unit) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_hold_in_original_units_whatever_is_rounded(dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((9, 200)) * 10 ** rng.uniform(-3, 3, 200)
    near, far = rng.uniform([[0.1], [1.1]], [[1], [2]], (2, 200))
    X[:, 0], far[:2] = 1, np.inf  # a constant column has no scale
    with jax.enable_x64(dtype == np.float64):
        model = sht.LinearModel(X.astype(dtype), X[:, 1].astype(dtype), fit_intercept=True, standardize=True)
        for lower, upper in ((near, far), (-far, -near), (-near, far)):
            bound = sht.Sparsity(200, lower=lower, upper=upper).bind(model)
            for each in (bound.lower, bound.upper):
                x = np.asarray(model.to_external(np.append(each, 0).astype(dtype))[0], float)[1:]
                assert (lower[1:] <= x).all() and (x <= upper[1:]).all() and not np.isnan(each[0])
                outer = lower if each is bound.lower else upper
                np.testing.assert_allclose(x, outer[1:], rtol=5 * np.finfo(dtype).eps)


class InOwnUnits(Unscaled):
    """Three coefficients, of which the second counts in halves, and the last one has no unit."""

    def internal_scale(self):
        return np.array([1.0, 2.0, 0.0])


def test_bounds_are_exact_where_units_are_the_same():
    bound = sht.Sparsity(2, lower=-0.3, upper=[0.7, 0.7, -0.3]).bind(InOwnUnits((3,)))  # which may meet
    assert bound.lower[::2].tolist() == [-0.3, -0.3] and bound.upper[::2].tolist() == [0.7, -0.3]
    assert 1.4 * (1 - 1e-15) < bound.upper[1] < 1.4 and -0.6 < bound.lower[1] < -0.6 * (1 - 1e-15)


def test_matrices_are_asked_for():
    for threshold in (sht.Rank(1), sht.RowSparsity(1)):
        for objective in (Unscaled((4,)), sht.Precision(np.eye(4), 10)):  # whose matrices are symmetric
            with pytest.raises(TypeError, match=f"{type(threshold).__name__} needs an objective over matrices"):
                threshold.bind(objective)
