"""The device does not decide the answer: a GPU finds what the CPU finds; and a solve stays on its device."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.linalg import dot

X, Y, SUPPORT = cases.planted(cases.LOSSES["squared"])


def fit(name, loss):
    objective = sht.LinearModel(X, Y if loss == "squared" else np.sign(Y), cases.LOSSES[loss], l2=0.01)
    return sht.solve(objective, sht.Sparsity(3, k_max=8), cases.ALL_SOLVERS[name], record=None)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "loss", "wide"),
    [(name, "squared", False) for name in ("iht", "iht_backtracking", "grasp", "subspace_pursuit", "forward", "foba")]
    + [("htp", "squared", wide) for wide in (False, True)]
    + [("best_subset", *case) for case in (("squared", False), ("squared", True), ("logistic", False))],
)
def test_a_gpu_finds_what_the_cpu_finds(name, loss, wide):
    with jax.enable_x64(wide):
        ours = fit(name, loss)
        with jax.default_device(jax.devices("cpu")[0]):
            expected = fit(name, loss)
    assert ours.x.device.platform != "cpu" and expected.x.device.platform == "cpu"
    np.testing.assert_array_equal(cases.members(ours.support), cases.members(expected.support))
    np.testing.assert_allclose(ours.value, expected.value, rtol=1e-9 if wide else 1e-5)


@pytest.mark.gpu
def test_products_that_decide_a_support_keep_single_precision():
    A = np.random.default_rng(0).standard_normal((2000, 300)).astype(np.float32)
    wide = A.astype(float)
    exact = wide.T @ wide
    scale = np.linalg.norm(wide, axis=0)
    for ours in (dot(jnp.asarray(A).T, jnp.asarray(A)), jax.vmap(lambda a: dot(a, A))(A.T)):
        assert np.max(np.abs(ours - exact) / scale / scale[:, None]) < 1e-5  # tf32: 1e-4 and more
    objective = sht.LinearModel(A, A[:, 0])
    w = np.zeros(300)
    w[:5] = 1.0
    expected = wide.T @ (wide @ w - wide[:, 0]) / len(A)
    gradient = jax.grad(lambda w: objective.value(w))(jnp.asarray(w, jnp.float32))
    np.testing.assert_allclose(gradient, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.gpu
def test_a_batch_on_a_gpu_is_its_lanes():
    objective = sht.LinearModel(X, Y)
    ks = np.arange(1, 6)

    def value(k):
        return sht.solve(objective, sht.Sparsity(k, k_max=8), sht.solvers.BestSubset(), record=None).value

    single = jax.jit(value)
    np.testing.assert_allclose(jax.vmap(value)(ks), [single(k) for k in ks], rtol=1e-5)


@pytest.mark.parametrize("name", ["iht", "htp", "svrg", "best_subset", "forward"])
def test_data_from_outside_of_a_transformation_are_looked_at_on_any_device(name, monkeypatch):
    """As on a GPU, where data stay on the device while they are checked."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    data = jnp.asarray(X), jnp.asarray(Y)

    def run(scale, X=data[0], y=data[1]):
        threshold = sht.Sparsity(3, k_max=8)
        return sht.solve(sht.LinearModel(X, scale * y, l2=0.01), threshold, cases.ALL_SOLVERS[name], record=None).x

    expected = run(1.0)
    for transformed in (jax.jit(run)(1.0), jax.vmap(run)(jnp.ones(2))[1]):
        np.testing.assert_allclose(transformed, expected, rtol=1e-5, atol=1e-7)
    damaged = data[0].at[0, 0].set(jnp.nan)
    cases.refused(ValueError, "X: holds NaN", lambda: jax.jit(lambda scale: run(scale, damaged))(1.0))


@pytest.mark.parametrize("name", ["iht", "htp", "best_subset", "forward"])
def test_nothing_in_a_solve_returns_to_the_host(name):
    """Else a GPU waits for the host at every turn of the loop."""

    def run(X, y, k):
        return sht.solve(sht.LinearModel(X, y), sht.Sparsity(k, k_max=8), cases.ALL_SOLVERS[name], record=None).x

    text = jax.jit(run).lower(X, Y, 3).as_text()
    assert "while" in text
    assert "callback" not in text and "infeed" not in text and "outfeed" not in text
