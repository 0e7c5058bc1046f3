"""Every solver, objective and threshold lowers for GPUs and TPUs, on a machine that has neither."""

import cases
import jax
import numpy as np
import pytest

import sparsehtp as sht

X, Y, _ = cases.data(sht.losses.Squared(), n=30, p=6, seed=3)
X, Y = X.astype(np.float32), Y.astype(np.float32)
SOLVERS = {
    name: solver
    for table in (cases.SOLVERS, cases.SWAP_SOLVERS, cases.GREEDY_SOLVERS, cases.STOCHASTIC_SOLVERS)
    for name, solver in table.items()
}


def lowers(objective, threshold, solver=None):
    def fit(objective):
        return sht.solve(objective, threshold, solver, max_steps=3, record=None).x

    exported = jax.export.export(jax.jit(fit), platforms=("cuda", "tpu"))(objective)
    assert exported.platforms == ("cuda", "tpu") and "stablehlo" in exported.mlir_module()


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers(name):
    lowers(sht.LinearModel(X, Y, l2=0.1), sht.Sparsity(2), SOLVERS[name])


@pytest.mark.parametrize("solver", [sht.solvers.DIHT(), sht.solvers.SDIHT()])
def test_dual_solvers(solver):
    lowers(sht.LinearModel(X, Y, l2=0.1), sht.Sparsity(2), solver)


@pytest.mark.parametrize("solver", [sht.solvers.PricedSubset(), sht.solvers.PrimalDual(), sht.solvers.CDSS()])
def test_solvers_of_a_penalty(solver):
    lowers(sht.LinearModel(X, Y, l2=0.1), sht.L0L1L2(0.1), solver)


@pytest.mark.parametrize("name", cases.OBJECTIVES)
def test_objectives(name):
    objective = cases.OBJECTIVES[name](X, Y)
    lowers(objective, sht.OffDiagonal(2) if name == "precision" else sht.Sparsity(2))


@pytest.mark.parametrize("name", cases.THRESHOLDS)
def test_thresholds(name):
    threshold = cases.THRESHOLDS[name]
    lowers(cases.bound_to(threshold) or sht.LinearModel(X, Y, l2=0.1), threshold)
