"""Functions as people write them: traced values by closure, modules and partials are data, with derivatives."""

import copy
import functools
import pickle
import sys
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.io.checkpoint import fingerprint
from sparsehtp.objectives.captured import of_closure, of_tree

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 6))
Y = X[:, 1] - X[:, 3] + 0.1 * RNG.standard_normal(30)
TRACES = []
TIMES = 2.0


def loss(c, w):
    TRACES.append(1)
    return jnp.mean((X @ w - c * Y) ** 2) + 0.05 * w @ w


def term(c, w, sample):
    x, y = sample
    return (x @ w - c * y) ** 2 + 0.05 * w @ w


class Module(eqx.Module):
    c: jax.Array
    fun: object = eqx.field(static=True)

    def __call__(self, *args):
        return self.fun(self.c, *args)


KINDS = {
    "closure": lambda fun, c: lambda *args: fun(c, *args),
    "closure in a closure": lambda fun, c: (lambda inner: lambda *args: inner(*args))(lambda *args: fun(c, *args)),
    "module": lambda fun, c: Module(jnp.asarray(c), fun),
    "partial": lambda fun, c: jax.tree_util.Partial(fun, c),
}
OBJECTIVES = {
    "custom": lambda make, c: sht.Custom(make(loss, c), like=np.zeros(6)),
    "sum": lambda make, c: sht.CustomSum(make(term, c), (X, Y)),
}


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_function_holds_is_data(kind, objective, x64):
    """x(c) is linear in c while the support stays, so that dx/dc = x(1)."""

    def x(c):
        return sht.solve(OBJECTIVES[objective](KINDS[kind], c), sht.Sparsity(2), sht.solvers.HTP()).x

    one = np.asarray(x(1.0))
    assert set(np.flatnonzero(one)) == {1, 3}
    np.testing.assert_allclose(jax.jacrev(x)(1.0), one, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(x))(2.0), one, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(x)(jnp.arange(1.0, 4.0)), np.arange(1.0, 4.0)[:, None] * one, rtol=1e-6)


def test_a_closure_has_derivatives(x64):
    """Of one compiled program: the quick part of the law above."""

    def entry(c):
        return sht.solve(OBJECTIVES["custom"](KINDS["closure"], c), sht.Sparsity(2), sht.solvers.HTP()).x[1]

    value, slope = jax.jit(jax.vmap(jax.value_and_grad(entry)))(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(slope, value[0], rtol=1e-6)
    np.testing.assert_allclose(value[1], 2 * value[0], rtol=1e-6)


def test_a_closure_with_other_values_is_that_of_them():
    held = jnp.arange(3.0)

    @jax.jit
    def found(a):
        closed, values = of_closure(lambda x, y: {"v": a * x + held, "w": y}, jnp.ones(3), jnp.ones(()))
        others = [10 * value if isinstance(value, jax.core.Tracer) else value for value in values]
        return closed.with_arrays(others)(jnp.arange(3.0), jnp.float32(7))

    np.testing.assert_array_equal(found(2.0)["v"], 21 * np.arange(3))
    assert found(2.0)["w"] == 7 and of_closure(lambda x: x + held, jnp.ones(3)) is None


def test_new_values_of_a_module_compile_nothing(x64):
    def x(c):
        return sht.solve(OBJECTIVES["custom"](KINDS["module"], c), sht.Sparsity(2), sht.solvers.HTP()).x

    first = x(1.0)
    x(2.0)
    before = len(TRACES)
    np.testing.assert_allclose(x(3.0), 3 * first, rtol=1e-6)
    assert len(TRACES) - before <= 2  # the check of its shape


@pytest.mark.parametrize("arrays", [1, 2])
def test_a_callable_pytree_is_split_into_its_arrays(arrays):
    given = [np.arange(3.0), np.ones(2)][:arrays]
    held, found = of_tree(jax.tree_util.Partial(lambda *args: args, *map(jnp.asarray, given)))
    jax.tree.map(np.testing.assert_array_equal, found, given)
    jax.tree.map(np.testing.assert_array_equal, held.with_arrays(found)(), tuple(given))
    assert of_tree(len) is None
    assert held == held != of_tree(jax.tree_util.Partial(loss, *map(jnp.asarray, given)))[0]


class Power(eqx.Module):
    scale: float
    power: int = eqx.field(static=True)
    c: jax.Array

    def __call__(self, w, x):
        return self.scale * jnp.sum(jnp.abs(w - self.c) ** self.power) + 0 * x.sum()


def like_a_twin(method):
    """Of classes of one name, whose methods differ."""
    return type("Twin", (eqx.Module,), {"__call__": method, "__module__": __name__})()


def test_a_checkpoint_knows_what_a_function_names(monkeypatch):
    fun = sht.CustomSum(lambda w, x: jnp.sum(TIMES * w), np.ones((5, 4)), like=np.zeros(4))
    before = fingerprint(fun)
    assert fingerprint(fun) == before
    monkeypatch.setattr(sys.modules[__name__], "TIMES", 3.0)
    assert fingerprint(fun) != before
    kinds = [np.zeros(4, np.float32), np.zeros(4, np.int32), np.zeros(2), np.zeros((2, 2), np.float32)]
    assert len({fingerprint(each) for each in kinds}) == 4


def endless(w, x):
    return endless(w, x)


def test_what_holds_itself_has_a_fingerprint():
    ring = SimpleNamespace(size=1.0)
    ring.next = ring
    assert len({fingerprint(fun) for fun in (endless, lambda w, x, ring=ring: w, lambda w, x: endless(w, x) + 1)}) == 3


class Scaled:  # no pytree
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, w, x):
        return self.scale * w @ w


def away_from(d):
    return lambda w, x: jnp.sum(jnp.abs(w - d) ** 2)


def term_of_four(c, w, x):
    return jnp.sum((w - c) ** 4)


def test_what_is_not_an_array_tells_functions_apart(tmp_path, x64):
    """In a checkpoint, which must not take one function for another; and it can be copied and pickled."""
    c = jnp.arange(4.0)
    own = [Power(1.0, 2, c), Power(3.0, 2, c), Power(1.0, 4, c), Power(1.0, 2, c + 1)]
    own += [jax.tree_util.Partial(fun, c) for fun in (lambda c, w, x: (w - c) @ (w - c), term_of_four)]
    own += [lambda w, x: w @ w, lambda w, x: 2 * w @ w, lambda w, x: w @ w + c.sum() + 0]
    own += [lambda w, x, *, s=s: s[0] * w @ w for s in ([1.0], [2.0])]
    own += [like_a_twin(lambda self, w, x: w @ w), like_a_twin(lambda self, w, x: 2 * w @ w)]
    own += [away_from(d) for d in (c, 2 * c, 3.0, 1j, 2j)]
    own += [jax.jit(lambda w, x: jnp.sum(w**4)), functools.partial(term_of_four, c), Power(1.0, 2, c).__call__]
    own += [lambda w, x: jnp.sum(w * TIMES), lambda w, x: term_of_four(w, c, x)]
    long = (jnp.zeros(2000).at[place].set(1) for place in (999, 1000))
    own += [functools.partial(lambda held, w, x: w @ w + held.sum(), each) for each in long]
    kinds = (lambda s: {"a": s}, lambda s: {s}, range, sht.losses.Huber, lambda s: SimpleNamespace(a=s), Scaled)
    held = [jnp.sin, jnp.cos, np.exp, np.log, jnp.float32, jnp.int32, *(kind(s) for kind in kinds for s in (1, 2))]
    own += [*held[-2:], *(lambda w, x, *, s=s: w @ w for s in held)]
    texts = {fingerprint(sht.CustomSum(fun, np.ones((5, 4)), like=np.zeros(4))) for fun in own}
    assert len(texts) == len(own)
    objective = sht.CustomSum(own[0], np.ones((5, 4)), like=np.zeros(4))
    x = sht.solve(objective, sht.Sparsity(2), sht.solvers.IHT()).x
    for other in (pickle.loads(pickle.dumps(objective)), copy.deepcopy(objective)):
        np.testing.assert_array_equal(sht.solve(other, sht.Sparsity(2), sht.solvers.IHT()).x, x)


def test_a_closure_takes_the_shape_of_x0(x64):
    """Its shape was first guessed from args, which the function takes too."""

    def value(c):
        objective = sht.Custom(lambda w, A: jnp.sum((w - c) ** 2) + 0 * A.sum(), np.ones((3, 4)))
        return sht.solve(objective, sht.Sparsity(2), sht.solvers.IHT(), x0=np.zeros(5)).x

    found = jax.jit(jax.vmap(value))(jnp.array([1.0, 2.0]))
    assert found.shape == (2, 5)
    np.testing.assert_allclose(found.sum(1), [2.0, 4.0], rtol=1e-6)
