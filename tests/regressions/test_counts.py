"""A count that leaves its range inside jit cannot raise; the result says so, whatever the threshold and solver."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.results import RESULTS

pytestmark = pytest.mark.usefixtures("x64")

X, Y, _ = cases.data(sht.losses.Squared())
MODEL = sht.LinearModel(X, Y, l2=0.1, fit_intercept=True)
MULTI = cases.OBJECTIVES["multi_response"](X, Y)
STEP = sht.steps.ConstantStep(0.1)
CASES = {
    "sparsity": (MODEL, lambda k: sht.Sparsity(k, k_max=2), None),
    "kept": (MODEL, lambda k: sht.Sparsity(k, k_max=2, keep=[4]), sht.solvers.HTP()),
    "nonnegative": (MODEL, lambda k: sht.Sparsity(k, k_max=2, lower=0), None),
    "group": (MODEL, lambda k: sht.GroupSparsity(cases.GROUPS, k, k_max=2), None),
    "rows": (MULTI, lambda k: sht.RowSparsity(k, k_max=2), None),
    "rank": (MULTI, lambda r: sht.Rank(r, r_max=1), None),
    "off_diagonal": (sht.Precision(np.eye(4), 10), lambda k: sht.OffDiagonal(k, k_max=2), None),
    "leaf": (sht.Custom(cases.squares, X, Y), lambda k: sht.LeafSparsity(k, k_max=2), sht.solvers.HTP()),
    "iht": (MODEL, lambda k: sht.Sparsity(k, k_max=2), sht.solvers.IHT()),
    "forward": (MODEL, lambda k: sht.Sparsity(k, k_max=2), sht.solvers.ForwardSelection()),
    "foba": (MODEL, lambda k: sht.Sparsity(k, k_max=2), sht.solvers.FoBa()),
    "svrg": (MODEL, lambda k: sht.Sparsity(k, k_max=2), sht.solvers.SVRGHT(STEP, inner_steps=20)),
    "diht": (MODEL, lambda k: sht.Sparsity(k, k_max=2), sht.solvers.DIHT()),
}


QUICK = {"kept", "group", "rank", "leaf", "forward", "diht"}


@pytest.mark.parametrize(
    ("objective", "make", "solver"),
    [pytest.param(*case, id=name, marks=[] if name in QUICK else pytest.mark.slow) for name, case in CASES.items()],
)
def test_a_traced_count_out_of_range_is_not_called_converged(objective, make, solver):
    counts = jnp.array([-1, -(2**31), 0, 3])

    def run(k):
        solution = sht.solve(objective, make(k), solver, throw=False)
        return solution.x, solution.value, solution.result

    x, value, result = cases.jit(jax.vmap(run))(counts)
    assert [int(each) for each in result[:2]] == [RESULTS.invalid] * 2
    assert int(result[3]) == RESULTS.support_overflow
    assert np.isfinite(value).all()
    # A negative count gives the answer of zero.
    np.testing.assert_array_equal(x[:2], np.broadcast_to(x[2], x[:2].shape))
    cases.refused(ValueError, "must be >= 0", lambda: make(-1))


def test_each_of_several_counts_is_looked_at():
    def counted(k):
        threshold, sound = sht.LeafSparsity({"a": k, "b": k + 1, "c": 7}).counted()
        return [*jax.tree.leaves(threshold.ks), sound]

    for k, expected in ((-2, [0, 0, 7, False]), (-1, [0, 0, 7, False]), (0, [0, 1, 7, True])):
        assert cases.jit(counted)(jnp.int32(k)) == expected
