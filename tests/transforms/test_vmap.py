"""`vmap` (nested too) equals the loop, over everything traced; histories too."""

import itertools

import cases
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.iteration import driver

pytestmark = pytest.mark.usefixtures("x64")

X, Y, _ = cases.data(sht.losses.Squared(), seed=1)
Y = Y + 0.8 * X[:, 4] - 0.5 * X[:, 5]
N, P = X.shape
KS = jnp.arange(P + 1)
L2S = jnp.array([0.0, 0.1, 1.0])
SOLVERS = cases.solvers("htp", "iht", "grasp", "subspace_pursuit")


def solve(k, l2=0.1, weights=None, y=Y, design=X, key=None, solver=SOLVERS["htp"]):
    objective = sht.LinearModel(design, y, l2=l2, sample_weight=weights, fit_intercept=True, standardize=True)
    return sht.solve(objective, sht.Sparsity(k, k_max=P), solver, key=key)


def visible(solution):
    """Everything that does not depend on the layout: padding of supports and histories is blanked."""
    member = np.zeros(P, bool)
    member[cases.members(solution.support)] = True
    live = np.arange(solution.history.value.shape[0]) < int(solution.num_steps)
    history = jax.tree.map(lambda h: np.where(live, h, 0), solution.history)
    # a ratio of tiny numbers towards the end, so compared apart
    sizes, history = history.step_size, history._replace(step_size=None)
    assert np.array_equal(sizes > 0, live)
    # not best_step: rows whose values agree to rounding may tie either way
    fields = ("x", "intercept", "value", "result", "fired", "num_steps")
    return {name: np.asarray(getattr(solution, name)) for name in fields}, member, history


def row(batch, *index):
    return jax.tree.map(lambda a: a[index], batch._replace(state=None))


def assert_same(lane, single):
    moving = np.asarray(single.history.step_norm) > 1e-6  # else the size is a ratio of rounding errors
    np.testing.assert_allclose(lane.history.step_size[moving], single.history.step_size[moving], rtol=1e-4)
    best = int(lane.best_step)
    np.testing.assert_allclose(lane.history.value[best], lane.value, rtol=1e-12)
    lane, single = visible(lane), visible(single)
    chex.assert_trees_all_equal_shapes_and_dtypes(lane, single)
    chex.assert_trees_all_close(lane, single, rtol=1e-9, atol=1e-11)


def test_two_levels_of_lanes_are_one_where_no_matrix_is_repeated():
    """A matrix that has an axis for both, or for neither, is not."""
    leaf = np.arange(24).reshape(2, 3, 4)
    for outer, inner in itertools.product([True, False], repeat=2):
        given = leaf[(slice(None) if outer else 0, slice(None) if inner else 0)]
        shape = (2 if outer else 1, 3 if inner else 1, 4)
        expected = np.broadcast_to(given.reshape(shape), leaf.shape).reshape(6, 4) if outer or inner else given
        np.testing.assert_array_equal(driver._flattened(jnp.asarray(given), (2, 3), (outer, inner)), expected)
        for own, lanes in itertools.product((0, 1, 2), [0, 1]):  # and any number of levels before
            task = np.zeros((1,) * (own + outer + inner + lanes)), np.zeros(2)
            levels = [driver._Level(5, (bool(lanes), False)), driver._Level(3, (inner, False))]
            assert driver._alike(levels, driver._Level(2, (outer, False)), task) == (own < 2 or outer == inner)


@pytest.mark.parametrize("name", SOLVERS)
def test_over_l2_and_k(name):
    batch = jax.vmap(lambda l2: jax.vmap(lambda k: solve(k, l2, solver=SOLVERS[name]))(KS))(L2S)
    assert batch.x.shape == (3, P + 1, P) and batch.history.value.shape[:2] == (3, P + 1)
    if name in ("htp", "iht"):
        assert len({int(steps) for steps in batch.num_steps[1]}) > 1, "lanes stop at different steps"
    for j, k in enumerate(KS):
        assert_same(row(batch, j % 3, j), solve(k, L2S[j % 3], solver=SOLVERS[name]))


RNG = np.random.default_rng(0)
WEIGHTS = RNG.multinomial(N, np.ones(N) / N, size=3).astype(float)
VARIED = Y + RNG.standard_normal((3, N)), X + 0.5 * RNG.standard_normal((3, N, P))
TWINS = np.stack([X, X[:, [0, 0, 2, 3, 4, 5]], X])
_, LABELS, _ = cases.data(sht.losses.Logistic(), seed=1)


def from_start(x0):
    return sht.solve(sht.LinearModel(X, LABELS, sht.losses.Logistic(), l2=0.1), sht.Sparsity(2), SOLVERS["htp"], x0=x0)


# name -> (a fit, what its lanes are given)
LANES = {
    "weights, targets and designs": (lambda s, y, Z: solve(2, weights=s, y=y, design=Z), (WEIGHTS, *VARIED)),
    "keys": (lambda key: solve(2, key=key), (jax.random.split(jax.random.key(1), 3),)),
    "a singular one": (
        lambda Z: sht.solve(sht.LinearModel(Z, Y), sht.Sparsity(P), SOLVERS["htp"], throw=False),
        [TWINS],
    ),
    "starts": (from_start, (RNG.standard_normal((3, P)),)),
}


@pytest.mark.parametrize("name", LANES)
def test_over(name):
    run, given = LANES[name]
    batch = jax.vmap(run)(*given)
    for i in range(3):
        assert_same(row(batch, i), run(*(each[i] for each in given)))
    if name == "keys":  # of which a batch solver makes nothing
        assert_same(row(batch, 2), solve(2))
        np.testing.assert_array_equal(jax.random.key_data(batch.key), jax.random.key_data(*given))


def fit(X, y, k, l2, solver):
    return sht.solve(sht.LinearModel(X, y, l2=l2), sht.Sparsity(k, k_max=4), solver, max_steps=3, record=None).x


def data_outside(Z, y, ks, l2s, solver):
    return jax.vmap(lambda Z, y: jax.vmap(lambda l2: fit(Z, y, 2, l2, solver))(l2s))(Z, y)


def data_inside(Z, y, ks, l2s, solver):
    return jax.vmap(lambda l2: jax.vmap(lambda Z, y: fit(Z, y, 2, l2, solver))(Z, y), out_axes=1)(l2s)


def data_between(Z, y, ks, l2s, solver):
    def of(k):
        return jax.vmap(lambda Z, y: jax.vmap(lambda l2: fit(Z, y, k, l2, solver))(l2s), out_axes=1)(Z, y)

    return jax.vmap(of)(ks)


NESTED = {f.__name__: f for f in (data_outside, data_inside, data_between)}
SHARING = {
    "htp": sht.solvers.HTP(),
    "iht": sht.solvers.IHT(),
    "svrg": sht.solvers.SVRGHT(sht.steps.ConstantStep(0.1), batch_size=20),
}


@pytest.mark.parametrize("nesting", NESTED)
@pytest.mark.parametrize("name", SHARING)
def test_lanes_share_data_however_vmaps_are_nested(name, nesting):
    solver, rng = SHARING[name], np.random.default_rng(5)
    Z, y = rng.standard_normal((3, 300, 300)), rng.standard_normal((3, 300))
    ks, l2s = jnp.arange(1, 4), jnp.linspace(0.1, 1, 24)
    compiled = jax.jit(NESTED[nesting], static_argnums=4).lower(Z, y, ks, l2s, solver).compile()
    found = compiled(Z, y, ks, l2s)
    lanes = found.size // 300
    assert compiled.memory_analysis().temp_size_in_bytes < lanes * Z[0].nbytes / 5, "no lane has a copy of its own"
    found = found[1, 5, 2] if nesting == "data_between" else found[2, 5]
    np.testing.assert_allclose(found, fit(Z[2], y[2], ks[1], l2s[5], solver), rtol=1e-8, atol=1e-12)
