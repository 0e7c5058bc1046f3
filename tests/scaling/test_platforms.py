"""Every solver, objective and threshold lowers for GPUs and TPUs, on a machine that has neither."""

import re

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht

X, Y, _ = cases.data(sht.losses.Squared(), n=30, p=6, seed=3)
X, Y = X.astype(np.float32), Y.astype(np.float32)


def lowers(objective, threshold, solver=None):
    def fit(objective):
        return sht.solve(objective, threshold, solver, max_steps=3, record=None).x

    exported = jax.export.export(jax.jit(fit), platforms=("cuda", "tpu"))(objective)
    assert exported.platforms == ("cuda", "tpu") and "stablehlo" in exported.mlir_module()


@pytest.mark.parametrize("name", cases.ALL_SOLVERS)
def test_solvers(name):
    solver, threshold = cases.ALL_SOLVERS[name], sht.Sparsity(2)
    lowers(sht.LinearModel(X, Y, l2=0.1), threshold if solver.takes(threshold) else sht.L0L1L2(0.1), solver)


@pytest.mark.parametrize("solver", [None, sht.solvers.IHT()], ids=["default", "iht"])
@pytest.mark.parametrize("name", cases.OBJECTIVES)
def test_objectives(name, solver):
    objective = cases.OBJECTIVES[name](X, Y)
    lowers(objective, sht.OffDiagonal(2) if name == "precision" else sht.Sparsity(2), solver)


@pytest.mark.parametrize("solver", [None, sht.solvers.IHT()], ids=["default", "iht"])
@pytest.mark.parametrize("name", cases.THRESHOLDS)
def test_thresholds(name, solver):
    threshold = cases.THRESHOLDS[name]
    lowers(cases.bound_to(threshold) or sht.LinearModel(X, Y, l2=0.1), threshold, solver)


LANES = jnp.arange(1, 8)


def batch(solver):
    def fit(k):
        return sht.solve(sht.LinearModel(X, Y, l2=0.1), sht.Sparsity(k, k_max=4), solver, max_steps=3, record=None).x

    return jax.vmap(fit)


@pytest.mark.parametrize("solver", [sht.solvers.HTP(), sht.solvers.BestSubset()], ids=["htp", "best_subset"])
def test_lanes_are_side_by_side_where_an_export_will_run(solver):
    def factorised(platform):
        with sht.traced_for(platform):
            text = jax.export.export(jax.jit(batch(solver)), platforms=[platform])(LANES).mlir_module()
        matrices = re.findall(r"cholesky[^\n]*?(tensor<[0-9x]+xf64>)", text, re.IGNORECASE)
        return text.count("stablehlo.while"), set(matrices)

    loops, matrices = factorised("cpu")
    loops_of_a_gpu, matrices_of_a_gpu = factorised("cuda")
    assert matrices == {"tensor<4x4xf64>"} and matrices_of_a_gpu == {"tensor<7x4x4xf64>"}
    assert loops_of_a_gpu < loops  # no loop over the lanes


@pytest.mark.parametrize("solver", [sht.solvers.HTP(), sht.solvers.BestSubset()], ids=["htp", "best_subset"])
def test_answers_do_not_depend_on_what_a_program_was_traced_for(solver):
    expected = batch(solver)(LANES)
    with sht.traced_for("cuda"):
        np.testing.assert_allclose(batch(solver)(LANES), expected, rtol=1e-5, atol=1e-6)
        single = sht.solve(sht.LinearModel(X, Y, l2=0.1), sht.Sparsity(2, k_max=4), solver, max_steps=3).x
    np.testing.assert_allclose(single, expected[1], rtol=1e-5, atol=1e-6)


def test_other_platforms_are_refused():
    with pytest.raises(ValueError, match=r"platform: 'gpu' is none of 'cpu', 'cuda', 'rocm', 'tpu'\."):
        sht.traced_for("gpu")
