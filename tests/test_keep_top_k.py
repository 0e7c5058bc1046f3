"""Sparse parameters inside an optax chain."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sparsehtp as sht
from sparsehtp.linalg import largest

PARAMS = {"a": jnp.arange(-6.0, 6.0).reshape(3, 4), "b": jnp.array([10.0, -0.5])}


def nonzeros(tree):
    return [int(jnp.count_nonzero(leaf)) for leaf in jax.tree.leaves(tree)]


def test_largest_is_a_stable_sort():
    """In every dtype, to the ends of its range."""
    ends = np.array([0.0, 1e-45, 1e-38, 3e38, np.inf, 1.0, 1.0, 0.0], np.float32)
    for scores in (*np.random.default_rng(0).integers(0, 4, (20, 8)).astype(np.float32), ends):
        order = np.argsort(-scores, kind="stable")
        for k in (0, 1, 3, 5, 9):
            assert set(np.flatnonzero(largest(jnp.asarray(scores), k))) == set(order[:k])
    with jax.enable_x64(True):
        double = jnp.array([1.0, 1.0 + 1e-15, 1.0 + 3e-16], jnp.float64)
        np.testing.assert_array_equal(largest(double, 2), [False, True, True])
    np.testing.assert_array_equal(largest(jnp.array([1, 3, 2], jnp.bfloat16), 1), [False, True, False])


@pytest.mark.parametrize(
    ("k", "per_leaf", "expected"),
    [(3, False, [2, 1]), (2, True, [2, 2]), ({"a": 4, "b": None}, True, [4, 2]), (100, False, [11, 2])],
)
def test_the_largest_entries_are_kept(k, per_leaf, expected):
    transform = sht.keep_top_k(k, per_leaf)
    before, given = jax.tree.map(lambda a: a - 7, PARAMS), jax.tree.map(lambda a: jnp.full_like(a, 7), PARAMS)
    updates, _ = transform.update(given, transform.init(before), before)
    kept = optax.apply_updates(before, updates)
    assert nonzeros(kept) == expected and kept["b"][0] == 10 and kept["a"][0, 0] == -6


def test_gradient_descent_with_keep_top_k_is_iht():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((30, 8)).astype(np.float32), rng.standard_normal(30).astype(np.float32)
    model = sht.LinearModel(X, y)
    optimiser = optax.chain(optax.sgd(0.3), sht.keep_top_k(3))
    w = jnp.zeros(8, jnp.float32)
    state = optimiser.init(w)
    for _ in range(7):
        updates, state = optimiser.update(jax.grad(model.value)(w), state, w)
        w = optax.apply_updates(w, updates)
    iht = sht.solve(model, sht.Sparsity(3), sht.solvers.IHT(sht.steps.ConstantStep(0.3)), max_steps=7)
    np.testing.assert_allclose(w, iht.x, atol=1e-6)


def test_gradual_schedules():
    schedule = optax.polynomial_schedule(0.0, 1.0, power=3, transition_steps=10)
    transform = sht.keep_top_k(3, schedule=schedule)
    params = jnp.linspace(1, 2, 23)
    state = transform.init(params)
    kept = []
    for _ in range(13):
        updates, state = transform.update(jnp.zeros(23), state, params)
        params = optax.apply_updates(params, updates)
        kept.append(int(jnp.count_nonzero(params)))
    np.testing.assert_array_equal(kept, [23 - round(20 * float(schedule(t))) for t in range(13)])
    assert kept[0] == 23 and kept[10] == kept[-1] == 3


def test_masked_leaves_stay_dense():
    optimiser = optax.masked(sht.keep_top_k(2), {"a": True, "b": False})
    updates, _ = optimiser.update(PARAMS, optimiser.init(PARAMS), PARAMS)
    assert nonzeros(optax.apply_updates(PARAMS, updates)) == [2, 2]


def test_bad_input():
    cases.refused(ValueError, "k: must be >= 0", lambda: sht.keep_top_k(-1))
    cases.refused(ValueError, "per_leaf=True", lambda: sht.keep_top_k({"a": 1, "b": 2}))
    with pytest.raises(ValueError, match="params: keep_top_k needs them"):
        sht.keep_top_k(1).update(PARAMS, sht.results.KeepTopKState(jnp.int32(0)))
