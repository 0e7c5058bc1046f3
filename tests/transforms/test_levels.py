"""Programs that are compiled plainly: which ones are, and that their answers are those of full compiling."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp import _programs
from sparsehtp._tolerances import tolerance
from sparsehtp.linalg import either

X = jnp.ones((5, 3))


def work(function, *arguments):
    return _programs.expected_work(jax.make_jaxpr(function)(*arguments).jaxpr)


def test_work_counts_numbers_and_rounds():
    once = work(jnp.sin, X)
    assert once == 15
    assert work(lambda x: jnp.sin(x) + 1, X) == 30
    assert work(jnp.sum, X) == 15  # what is summed
    assert work(lambda x: jnp.broadcast_to(x[0], (1000, 3)), X) < 10
    scan = work(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, length=7)[0], X)
    assert scan == 7 * once
    loop = work(lambda x: jax.lax.while_loop(lambda c: c[0, 0] > 0, jnp.sin, x), X)
    assert _programs.ROUNDS * once <= loop <= _programs.ROUNDS * (once + 5)
    assert work(jax.jit(jnp.sin), X) == once
    assert work(jax.vmap(jnp.sin), X) == once
    branches = work(lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, lambda x: jnp.cos(jnp.sin(x)), x), X)
    assert branches >= 3 * once


@pytest.mark.parametrize(("limit", "plain"), [(44, False), (45, True)])
def test_the_level_depends_on_the_work_alone(monkeypatch, limit, plain):
    given = []
    compile_ = jax.stages.Lowered.compile
    monkeypatch.setattr(_programs, "LITTLE_WORK", limit)
    monkeypatch.setattr(
        jax.stages.Lowered,
        "compile",
        lambda self, compiler_options=None: given.append(compiler_options) or compile_(self, compiler_options),
    )
    _programs.compiler_options(jax.default_backend())  # not the check which options are known
    given.clear()
    for x in (X, 2 * X):
        np.testing.assert_allclose(_programs.Program(lambda x: jnp.sin(x) + jnp.cos(x))(x), jnp.sin(x) + jnp.cos(x))
    if jax.default_backend() == "cpu":
        assert [options.get("xla_backend_optimization_level") for options in given] == [0 if plain else None] * 2


@pytest.mark.parametrize("solver", [sht.solvers.BestSubset(), sht.solvers.FoBa()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("loss", [sht.losses.Squared(), sht.losses.Logistic()], ids=lambda loss: type(loss).__name__)
def test_a_users_program_that_is_compiled_in_full_finds_what_a_plain_one_does(solver, loss):
    def solution(X, y, k):
        model = sht.LinearModel(X, y, loss, l2=0.01, fit_intercept=True)
        return sht.solve(model, sht.Sparsity(k, k_max=8), solver, record=None)

    full = jax.jit(lambda *data: (lambda s: (s.x, s.value))(solution(*data)))
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = (rng.standard_normal((60, 40)) + rng.uniform(0, 1.5) * rng.standard_normal((60, 1))).astype(np.float32)
        k = int(rng.integers(1, 9))
        y = X[:, :k] @ rng.uniform(0.3, 1, k) + rng.standard_normal(60)
        y = (np.sign(y) if loss.classification else y).astype(np.float32)
        plain = solution(X, y, k)
        x, value = full(X, y, k)
        small = tolerance("swap", np.float32) * abs(float(value))
        assert abs(float(plain.value) - float(value)) <= 2 * small, f"{solver}, {loss}, seed {seed}"
        if abs(float(plain.value) - float(value)) < 1e-7 * abs(float(value)):
            np.testing.assert_array_equal(np.flatnonzero(plain.x), np.flatnonzero(x), err_msg=f"seed {seed}")


def test_either_is_a_select_of_every_leaf():
    new = {"a": jnp.arange(3.0), "b": jnp.int32(1), "c": jnp.zeros((), bool)}
    old = {"a": jnp.ones(3), "b": 5, "c": jnp.ones((), bool)}
    selected = lambda flag: jax.tree.map(lambda a, b: jnp.where(flag, a, b), new, old)  # noqa: E731
    for flag in (True, False):
        for one in (either(jnp.asarray(flag), new, old), jax.jit(either)(flag, new, old)):
            jax.tree.map(np.testing.assert_array_equal, one, selected(flag))
            assert jax.tree.map(jnp.shape, one) == jax.tree.map(jnp.shape, selected(flag))
    flags = jnp.array([True, False, True])
    lanes = jax.vmap(lambda flag: either(flag, new, old))(flags)
    jax.tree.map(np.testing.assert_array_equal, lanes, jax.vmap(selected)(flags))
    slope = jax.grad(lambda a: jnp.sum(either(a[0] > 0, {"a": a**2}, {"a": a})["a"]))
    np.testing.assert_array_equal(slope(jnp.array([1.0, 2.0])), [2, 4])
    np.testing.assert_array_equal(slope(jnp.array([-1.0, 2.0])), [1, 1])


@pytest.mark.parametrize("on", [True, False])
def test_collections_are_off_while_a_program_is_made_and_then_as_before(on):
    seen = []

    def traced(x, fails):
        seen.append(gc.isenabled())
        if fails:
            raise ZeroDivisionError
        return x + 1

    before = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        program = _programs.Program(traced, static_argnames="fails")
        program(X, fails=False)
        with pytest.raises(ZeroDivisionError):
            program(X, fails=True)
        assert gc.isenabled() == on and seen == [False, False]
    finally:
        (gc.enable if before else gc.disable)()
