"""Solves inside scans, shard_map, checkpoint, exported and ahead-of-time compiled programs; why something retraced."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import sparsehtp as sht

X, Y, _ = cases.data(sht.Squared(), n=24, p=6, seed=2)
X, Y = X.astype(np.float32), Y.astype(np.float32)
L2S = jnp.array([0.01, 0.1, 1.0], jnp.float32)


def fit(l2, X=X, Y=Y):
    return sht.solve(sht.LinearModel(X, Y, l2=l2), sht.Sparsity(2, k_max=4), sht.HTP(), record=None).x


def total(l2):
    return fit(l2).sum()


def test_inside_a_scan_with_a_gradient():
    def descend(l2, _):
        value, slope = jax.value_and_grad(total)(l2)
        return l2 - 0.01 * slope, value

    l2, values = jax.jit(lambda l2: jax.lax.scan(descend, l2, length=3))(jnp.float32(0.1))
    expected = jnp.float32(0.1)
    step = jax.jit(descend)
    for value in values:
        expected, single = step(expected, None)
        np.testing.assert_allclose(value, single, rtol=1e-5)
    np.testing.assert_allclose(l2, expected, rtol=1e-5)


def test_a_gradient_through_a_scan_and_a_checkpoint():
    def chained(l2, body):
        return jax.lax.scan(lambda carry, _: (0.1 + 0.05 * body(carry) ** 2, None), l2, length=2)[0]

    plain = jax.jit(jax.grad(lambda l2: chained(l2, total)))(jnp.float32(0.1))
    saved = jax.jit(jax.grad(lambda l2: chained(l2, jax.checkpoint(total))))(jnp.float32(0.1))
    difference = (chained(jnp.float32(0.12), total) - chained(jnp.float32(0.08), total)) / 0.04
    np.testing.assert_allclose(plain, saved, rtol=1e-5)
    np.testing.assert_allclose(plain, difference, rtol=2e-2)


def test_inside_shard_map():
    mesh = jax.make_mesh((1,), ("lanes",))
    each = PartitionSpec("lanes")
    sharded = jax.jit(jax.shard_map(jax.vmap(fit), mesh=mesh, in_specs=each, out_specs=each, check_vma=False))
    np.testing.assert_allclose(sharded(L2S), jax.vmap(fit)(L2S), rtol=1e-6)


def test_exported_and_compiled_ahead_of_time():
    both = jax.jit(jax.value_and_grad(total))
    compiled = both.lower(jnp.float32(0.1)).compile()
    exported = jax.export.deserialize(jax.export.export(both)(jnp.float32(0.1)).serialize())
    for l2 in (0.1, 0.3):
        expected = both(jnp.float32(l2))
        np.testing.assert_allclose(compiled(jnp.float32(l2)), expected, rtol=1e-6)
        np.testing.assert_allclose(exported.call(jnp.float32(l2)), expected, rtol=1e-6)


def test_debug_names_what_caused_a_retrace(capsys):
    def run(k_max=4, n=24, solver=sht.HTP(), max_steps=None):  # noqa: B008
        model = sht.LinearModel(X[:n], Y[:n], l2=0.1)
        sht.solve(model, sht.Sparsity(2, k_max=k_max), solver, max_steps=max_steps)

    run()
    with sht.debug() as log:
        run()
        assert log == []
        run(k_max=5)
        run(n=23)
        run(solver=sht.HTP(newton_steps=2))
        run(max_steps=3)
    assert len(log) == 4 and capsys.readouterr().out.splitlines() == log
    assert "threshold.k_max: 4 -> 5" in log[0]
    assert "objective.design.array: float32[24,6] -> float32[23,6]" in log[1] and "k_max" not in log[1]
    assert "solver.newton_steps: None -> 2" in log[2]
    assert "max_steps: 100 -> 3" in log[3]
    run(k_max=6)
    assert len(log) == 4, "outside the block nothing is logged"


def test_debug_names_a_function_that_is_made_anew():
    def run():
        objective = sht.Custom(lambda x, X, y: jnp.mean((X @ x - y) ** 2), X, Y)
        sht.solve(objective, sht.Sparsity(1), sht.IHT(sht.ConstantStep(0.1)), max_steps=2, record=None)

    with sht.debug(None) as log:
        run()
        run()
    assert "objective.fun: <function" in log[1]


@pytest.mark.gpu
def test_derivatives_on_a_gpu():
    def slope(l2):
        return jax.grad(total)(l2)

    with jax.default_device(jax.devices("cpu")[0]):
        expected = jax.vmap(slope)(L2S)
    np.testing.assert_allclose(jax.vmap(slope)(L2S), expected, rtol=1e-4)
