"""Solves inside scans, shard_map, checkpoint, exported and ahead-of-time compiled programs; why something retraced."""

import contextlib
import linecache
from pathlib import Path

import cases
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import sparsehtp as sht
from sparsehtp import _programs

X, Y, _ = cases.data(sht.losses.Squared(), n=24, p=6, seed=2)
X, Y = X.astype(np.float32), Y.astype(np.float32)
L2S = jnp.array([0.01, 0.1, 1.0], jnp.float32)
SOLVER = sht.solvers.IHT(sht.steps.ConstantStep(0.3))  # quick to compile


def fit(l2, X=X, Y=Y):
    return sht.solve(sht.LinearModel(X, Y, l2=l2), sht.Sparsity(2, k_max=4), SOLVER, record=None).x


def total(l2):
    return fit(l2).sum()


def test_a_gradient_through_a_scan_and_a_checkpoint():
    def body(l2):
        return 0.1 + 0.05 * total(l2) ** 2

    def chained(l2):
        return jax.lax.scan(lambda carry, _: (jax.checkpoint(body)(carry), None), l2, length=2)[0]

    first, second = jax.grad(body)(jnp.float32(0.1)), jax.grad(body)(body(jnp.float32(0.1)))
    np.testing.assert_allclose(jax.jit(jax.grad(chained))(jnp.float32(0.1)), first * second, rtol=1e-4)
    assert abs(first * second) > 1e-6


def test_inside_shard_map():
    mesh = Mesh(np.array(jax.devices()[:1]), ("lanes",))
    each = PartitionSpec("lanes")
    sharded = jax.jit(jax.shard_map(jax.vmap(fit), mesh=mesh, in_specs=each, out_specs=each, check_vma=False))
    np.testing.assert_allclose(sharded(L2S), jnp.stack([fit(l2) for l2 in L2S]), rtol=1e-5, atol=1e-6)


def test_exported_and_compiled_ahead_of_time():
    both = jax.value_and_grad(total)
    compiled = jax.jit(both).lower(jnp.float32(0.1)).compile()
    exported = jax.export.export(jax.jit(both))(jnp.float32(0.1))
    for l2 in (0.1, 0.3):
        expected = both(jnp.float32(l2))
        np.testing.assert_allclose(compiled(jnp.float32(l2)), expected, rtol=1e-5)
        np.testing.assert_allclose(exported.call(jnp.float32(l2)), expected, rtol=1e-5)


def test_a_whole_solution_goes_through_a_file():
    pytest.importorskip("flatbuffers", reason="jax.export writes through flatbuffers: pip install flatbuffers")

    def whole(l2):
        return sht.solve(sht.LinearModel(X, Y, l2=l2), sht.Sparsity(2), SOLVER)._replace(state=None)

    written = jax.export.export(jax.jit(whole))(jnp.float32(0.1)).serialize()
    read = jax.export.deserialize(written).call(jnp.float32(0.3))
    expected = jax.jit(whole)(jnp.float32(0.3))
    chex.assert_trees_all_close(read._replace(key=None), expected._replace(key=None), rtol=1e-5)
    assert read.describe() == expected.describe()


def test_jax_explains_that_a_function_was_made_anew(caplog):
    def run():
        objective = sht.Custom(lambda x, X, y: jnp.mean((X @ x - y) ** 2), X, Y)
        jax.eval_shape(lambda: sht.solve(objective, sht.Sparsity(1), SOLVER, max_steps=2, record=None).x)

    _programs.clear()  # it compares with the nearest of all that came before
    run()
    with jax.explain_cache_misses(True):
        run()
    assert "sparsehtp.objectives.custom.Custom" in caplog.text and "run.<locals>.<lambda>" in caplog.text


def test_options_that_the_compiler_does_not_know_are_left_out():
    assert not _programs._known("xla_no_such_option", True)
    assert _programs.compiler_options("gpu") is None
    assert _programs.compiler_options("cpu").items() <= _programs.CPU_OPTIONS.items()


@pytest.mark.gpu
def test_derivatives_on_a_gpu():
    slopes = jax.vmap(jax.grad(total))
    with jax.default_device(jax.devices("cpu")[0]):
        expected = slopes(L2S)
    np.testing.assert_allclose(slopes(L2S), expected, rtol=1e-4)


def test_a_product_of_the_package_with_the_usual_precision_is_seen(monkeypatch):
    for name, code, seen in (("part.py", "a @ b", 1), ("part.py", "run(a, b)", 0), ("../part.py", "a @ b", 0)):
        scope, text = {"run": jnp.matmul}, f"def product(a, b): return {code}"
        file = str((Path(_programs.__file__).parent / name).resolve())
        monkeypatch.setitem(linecache.cache, file, (len(text), None, [text], file))
        exec(compile(text, file, "exec"), scope)
        traced = jax.make_jaxpr(jax.jit(scope["product"]))(X.T, Y).jaxpr
        with pytest.raises(AssertionError, match=r"part\.py, line 1") if seen else contextlib.nullcontext():
            _programs.expected_work(traced)
