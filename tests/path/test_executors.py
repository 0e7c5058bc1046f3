"""Chunks of grids on executors: the same numbers wherever they are computed."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import jax
import numpy as np
import pytest

import sparsehtp as sht

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 8))
Y = X[:, 1] - X[:, 4] + RNG.standard_normal(40)
HTP = sht.solvers.HTP()
CALLS = {
    "path": lambda model, **more: sht.solve_path(model, ks=range(4), l2s=[0.1, 1.0], solver=HTP, memory=1, **more),
    "folds": lambda model, **more: sht.cross_validate(model, ks=range(4), folds=3, solver=HTP, memory=1, **more),
    "subsamples": lambda model, **more: sht.stability_selection(
        model, ks=range(4), n_resamples=6, solver=HTP, memory=1, **more
    ),
}


def numbers(result):
    return jax.tree.map(
        np.asarray, {name: value for name, value in vars(result).items() if name not in ("path", "key")}
    )


@pytest.mark.parametrize("call", CALLS)
def test_threads_change_nothing(call, x64):
    seen = []
    model = sht.LinearModel(X, Y)
    with ThreadPoolExecutor(2) as pool:
        found = CALLS[call](model, executor=pool, progress=lambda *done: seen.append(done))
    jax.tree.map(np.testing.assert_array_equal, numbers(found), numbers(CALLS[call](model)))
    assert len(seen) > 4 and seen[-1][0] == seen[-1][1] and seen == sorted(seen)


def test_other_processes_compute_in_the_same_precision(x64, tmp_path):
    """A process knows nothing of the precision here; a grid that was stopped goes on elsewhere."""
    model = sht.LinearModel(X, Y)

    def stop(done, total):
        if done >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CALLS["path"](model, checkpoint=tmp_path, progress=stop)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = CALLS["path"](model, executor=pool, checkpoint=tmp_path)
    assert found.coefficients.dtype == np.float64
    jax.tree.map(np.testing.assert_array_equal, numbers(found), numbers(CALLS["path"](model)))


def test_what_an_executor_cannot_do_is_one_sentence(x64):
    model, pool = sht.LinearModel(X, Y), ThreadPoolExecutor(1)
    with pytest.raises(ValueError, match=r"^executor: over l0"):
        sht.solve_path(model, l0s=[0.1], executor=pool)
    with pytest.raises(ValueError, match=r"^executor: over l0"):
        sht.cross_validate(model, l0s=[0.1], folds=3, executor=pool)
    with pytest.raises(TypeError, match="executor: a path inside jit"):
        jax.jit(lambda X: sht.solve_path(sht.LinearModel(X, Y), ks=[1], executor=pool).value)(X)
    with pytest.raises(TypeError, match=r"^executor: needs an executor"):
        CALLS["path"](model, executor=3)
    pool.shutdown()
    with pytest.raises(RuntimeError, match=r"^executor: it takes no more work .*; start another one\.$"):
        CALLS["path"](model, executor=pool)
