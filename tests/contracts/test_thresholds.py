"""Thresholds are projections: brute force over all supports, ties, kept and free entries, the tight bound."""

import itertools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsehtp as sht

P = 6
LOWER, UPPER = np.array([-0.5, 0, -1, -2, -np.inf, -0.1]), np.array([0.1, 2, 0, 1, 2, np.inf])
GROUPS = cases.GROUPS  # three groups, of 3, 1 and 2 features
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, database=None)

# name -> (function of (k, k_max), number of units to choose from, function of a set of units giving the projection)
ENTRIES = {
    "plain": (lambda k, m: sht.Sparsity(k, m), set(), -np.inf, np.inf),
    "box": (lambda k, m: sht.Sparsity(k, m, lower=LOWER, upper=UPPER), set(), LOWER, UPPER),
    "nonnegative": (lambda k, m: sht.NonNegativeSparsity(k, m), set(), 0, np.inf),
    "keep": (lambda k, m: sht.Sparsity(k, m, keep=[4, 1]), {4, 1}, -np.inf, np.inf),
    "keep_box": (lambda k, m: sht.NonNegativeSparsity(k, m, keep=[2], upper=0.7), {2}, 0, 0.7),
}
GROUPED = {
    "groups": (lambda k, m: sht.GroupSparsity(GROUPS, k, m), set(), 6),
    "groups_within": (lambda k, m: sht.GroupSparsity(GROUPS, k, m, within=2), set(), 2),
    "groups_keep": (lambda k, m: sht.GroupSparsity(GROUPS, k, m, keep=[1]), {1}, 6),
    "groups_keep_within": (lambda k, m: sht.GroupSparsity(GROUPS, k, m, keep=[0], within=1), {0}, 1),
}
BUILD = {name: case[0] for name, case in (ENTRIES | GROUPED).items()}
COMPILED = {}


def project(name, z, k, k_max=None, dtype=np.float64):
    """The threshold `name` on z for a traced k, so that one program serves all examples."""
    threshold = BUILD[name](0, None)
    units = 3 if name in GROUPED else P
    k_max = units - threshold.keep.shape[0] if k_max is None else k_max
    if (name, k_max) not in COMPILED:
        COMPILED[name, k_max] = jax.jit(lambda z, k: BUILD[name](k, k_max)(z))
    with jax.enable_x64(dtype == np.float64):
        x, support = COMPILED[name, k_max](jnp.asarray(z, dtype), jnp.int32(k))
        return np.asarray(x), jax.tree.map(np.asarray, support)


def nearest_entries(z, k, keep, lower, upper):
    """Smallest squared distance from z to the set, over all supports."""
    clipped = np.clip(z, lower, upper)
    best = np.inf
    for chosen in itertools.combinations(sorted(set(range(P)) - set(keep)), k):
        x = np.zeros(P)
        where = [*chosen, *keep]
        x[where] = clipped[where]
        best = min(best, np.sum((x - z) ** 2))
    return best


def nearest_groups(z, k, keep, within):
    best = np.inf
    for chosen in itertools.combinations(sorted(set(range(3)) - keep), k):
        x = np.zeros(P)
        for group in {*chosen, *keep}:
            where = np.flatnonzero(group == GROUPS)
            where = where[np.argsort(-np.abs(z[where]), kind="stable")][:within]
            x[where] = z[where]
        best = min(best, np.sum((x - z) ** 2))
    return best


# small integers over 2 give ties and zeros; the others give magnitudes far apart
vectors = st.lists(st.integers(-4, 4).map(lambda i: i / 2), min_size=P, max_size=P).map(np.array) | st.lists(
    st.floats(-1e3, 1e3, allow_subnormal=False), min_size=P, max_size=P
).map(np.array)


@pytest.mark.parametrize("name", ENTRIES)
@SETTINGS
@given(z=vectors, k=st.integers(0, P))
def test_entry_projection_is_nearest(name, z, k):
    _, keep, lower, upper = ENTRIES[name]
    k = min(k, P - len(keep))
    x, support = project(name, z, k)
    best = nearest_entries(z, k, keep, lower, upper)
    assert np.sum((x - z) ** 2) <= best * (1 + 1e-12) + 1e-14
    chosen = cases.members(support)
    assert len(set(chosen)) == len(chosen) == k + len(keep) and keep == {*keep} & {*chosen.tolist()}
    assert set(np.flatnonzero(x)) <= set(chosen)
    assert np.all(x >= lower) and np.all(x <= upper)
    again, _ = project(name, x, k)
    np.testing.assert_array_equal(again, x)


@pytest.mark.parametrize("name", GROUPED)
@SETTINGS
@given(z=vectors, k=st.integers(0, 3))
def test_group_projection_is_nearest(name, z, k):
    _, keep, within = GROUPED[name]
    k = min(k, 3 - len(keep))
    x, support = project(name, z, k)
    assert np.sum((x - z) ** 2) <= nearest_groups(z, k, keep, within) * (1 + 1e-12) + 1e-14
    chosen = set(cases.members(support).tolist())
    assert len(chosen) == k + len(keep) and keep <= chosen
    for group in range(3):
        assert np.count_nonzero(x[group == GROUPS]) <= (within if group in chosen else 0)


@SETTINGS
@given(z=vectors, k=st.integers(0, P))
def test_ties_take_the_lower_index(z, k):
    expected = np.sort(np.argsort(-np.abs(z), kind="stable")[:k])
    np.testing.assert_array_equal(cases.members(project("plain", z, k)[1]), expected)


def test_tied_groups_take_the_lower_group():
    z = np.array([3.0, 5.0, 0.0, 3.0, -4.0, 4.0])  # all three groups have norm 5
    assert cases.members(project("groups", z, 1)[1]).tolist() == [0]
    assert cases.members(project("groups", z, 2)[1]).tolist() == [0, 1]


@pytest.mark.parametrize("name", BUILD)
def test_the_answer_does_not_depend_on_k_max(name):
    z = np.array([0.5, -1.5, 0.5, 2.0, -0.25, 1.5])
    full, reference = project(name, z, 1)
    for k_max in (1, 2):
        x, support = project(name, z, 1, k_max)
        np.testing.assert_array_equal(x, full)
        np.testing.assert_array_equal(cases.members(support), cases.members(reference))


@pytest.mark.parametrize("name", BUILD)
def test_float32_takes_the_same_support(name):
    z = np.array([0.5, -1.5, 0.75, 2.0, -0.25, 1.0])
    x, support = project(name, z, 1, dtype=np.float32)
    fine, reference = project(name, z, 1)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(cases.members(support), cases.members(reference))
    np.testing.assert_allclose(x, fine, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
@pytest.mark.parametrize("name", ["plain", "nonnegative", "groups", "groups_within"])
def test_extreme_scales_in_float32(name, scale):
    z = np.array([0.5, 0.25, 0.75, 2.0, 0.125, 1.0]) * scale
    _, support = project(name, z, 1, dtype=np.float32)
    np.testing.assert_array_equal(cases.members(support), cases.members(project(name, z / scale, 1)[1]))


@pytest.mark.parametrize("name", BUILD)
def test_free_entries_are_never_thresholded(name):
    objective = sht.LinearModel(np.ones((2, P), np.float32), np.ones(2), fit_intercept=True)
    z = jnp.array([5.0, 4.0, 3.0, 2.0, 1.0, 0.5, -1e-3])
    for k in (0, 1):
        x, support = BUILD[name](k, None).bind(objective)(z)
        assert x[-1] == z[-1]
        units = 3 if name in GROUPED else P
        assert support.idx[0] == units and bool(support.mask[0])
        assert np.array_equal(x[:P], project(name, z[:P], k, dtype=np.float32)[0])


def test_bounds_are_in_original_units_under_standardisation():
    X = np.array([[0.0, 1.0], [2.0, 5.0], [4.0, 3.0]])
    with jax.enable_x64(True):
        objective = sht.LinearModel(X, np.ones(3), standardize=True, fit_intercept=True)
        bound = sht.Sparsity(2, lower=-0.5, upper=0.25).bind(objective)
        w, _ = objective.to_external(bound(jnp.array([9.0, -9.0, 0.0]))[0])
        np.testing.assert_allclose(w, [0.25, -0.5], rtol=1e-12)


def hard_threshold(b, k):
    x = np.zeros_like(b)
    top = np.argsort(-np.abs(b), kind="stable")[:k]
    x[top] = b[top]
    return x


SIZES = [(1, 1, 2), (3, 3, 6), (3, 2, 9), (5, 2, 6), (4, 4, 5), (9, 1, 30), (8, 5, 10)]


@pytest.mark.parametrize(("k", "K", "p"), SIZES)
def test_tight_bound_holds(k, K, p):
    rng = np.random.default_rng(0)
    nu, worst = sht.hard_threshold_bound(k, K, p), 0.0
    for _ in range(500):
        b, x = rng.standard_normal(p), np.zeros(p)
        x[rng.choice(p, K, replace=False)] = rng.standard_normal(K)
        x = np.where(x != 0, x + rng.choice([0, 2]) * b, 0)  # also near the bad direction
        worst = max(worst, np.sum((hard_threshold(b, k) - x) ** 2) / np.sum((b - x) ** 2))
    assert 1 <= nu <= (3 + np.sqrt(5)) / 2 + 1e-12
    assert worst <= nu * (1 + 1e-12)


@pytest.mark.parametrize(("k", "K", "p"), SIZES)
def test_tight_bound_is_attained(k, K, p):
    # Remark 5: b of equal magnitudes, so that ||b4||^2 = rho ||b1||^2; x = nu/(nu - 1) b on min(K, p-k) dropped
    # entries (b4) and x = b on K - min(K, p-k) kept ones (b2).
    nu, m = sht.hard_threshold_bound(k, K, p), min(K, p - k)
    b, x = np.zeros(p), np.zeros(p)
    b[: k + m] = 1
    x[k : k + m] = nu / (nu - 1)
    x[: K - m] = 1
    kept = hard_threshold(b, k)
    assert np.count_nonzero(x) <= K and np.array_equal(np.flatnonzero(kept), np.arange(k))
    np.testing.assert_allclose(np.sum((kept - x) ** 2), nu * np.sum((b - x) ** 2), rtol=1e-12)
    np.testing.assert_allclose(nu, sht.hard_threshold_bound(k, K, p, r=k + m), rtol=1e-12)


def test_tight_bound_without_dropped_entries_is_one():
    assert sht.hard_threshold_bound(4, 2, 4) == 1 and sht.hard_threshold_bound(4, 2, 9, r=4) == 1
    np.testing.assert_allclose(sht.hard_threshold_bound(3, 3, 6), (3 + np.sqrt(5)) / 2)
    with pytest.raises(ValueError, match="k, K, p"):
        sht.hard_threshold_bound(1, 2, 4)
