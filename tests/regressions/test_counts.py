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


def two(k):
    return sht.Sparsity(k, k_max=2)


CASES = {
    "sparsity": (MODEL, two, None),
    "kept": (MODEL, lambda k: sht.Sparsity(k, k_max=2, keep=[4]), sht.solvers.HTP()),
    "nonnegative": (MODEL, lambda k: sht.Sparsity(k, k_max=2, lower=0), None),
    "group": (MODEL, lambda k: sht.GroupSparsity(cases.GROUPS, k, k_max=2), None),
    "rows": (MULTI, lambda k: sht.RowSparsity(k, k_max=2), None),
    "rank": (MULTI, lambda r: sht.Rank(r, r_max=1), None),
    "off_diagonal": (sht.Precision(np.eye(4), 10), lambda k: sht.OffDiagonal(k, k_max=2), None),
    "leaf": (sht.Custom(cases.squares, X, Y), lambda k: sht.LeafSparsity(k, k_max=2), sht.solvers.HTP()),
    **{name: (MODEL, two, cases.ALL_SOLVERS[name]) for name in ("iht", "forward", "foba", "svrg", "diht")},
}


@pytest.mark.parametrize("name", CASES)
def test_a_traced_count_out_of_range_is_not_called_converged(name):
    objective, make, solver = CASES[name]
    run = cases.jit(jax.vmap(lambda k: sht.solve(objective, make(k), solver, throw=False)))
    found = run(jnp.array([-1, -(2**31), 0, 3]))
    assert [int(found.result[i]) for i in (0, 1, 3)] == [RESULTS.invalid, RESULTS.invalid, RESULTS.support_overflow]
    assert np.isfinite(found.value).all()
    # A negative count gives the answer of zero.
    np.testing.assert_array_equal(found.x[:2], np.broadcast_to(found.x[2], found.x[:2].shape))
    cases.refused(ValueError, "must be >= 0", lambda: make(-1))


def test_each_of_several_counts_is_looked_at():
    def counted(k):
        threshold, sound = sht.LeafSparsity({"a": k, "b": k + 1, "c": 7}).counted()
        return [*jax.tree.leaves(threshold.ks), sound]

    for k, expected in ((-2, [0, 0, 7, False]), (-1, [0, 0, 7, False]), (0, [0, 1, 7, True])):
        assert cases.jit(counted)(jnp.int32(k)) == expected
