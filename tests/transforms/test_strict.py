"""A user's strictness about dtypes, ranks and NaN is about a user's code: fits, grids and derivatives work under it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht

RNG = np.random.default_rng(0)
X = RNG.standard_normal((50, 6)).astype(np.float32)
Y = X[:, 0] - X[:, 4] + 0.1 * RNG.standard_normal(50).astype(np.float32)
HTP = sht.solvers.HTP()


def model(y=Y, **options):
    return sht.LinearModel(X, y, l2=0.1, **options)


def fitted(y):
    return sht.solve(model(y), sht.Sparsity(2), HTP, record=None).x


WORK = {
    "a fit": lambda: sht.solve(model(fit_intercept=True, standardize=True), sht.Sparsity(2)).x,
    "lanes in a program": lambda: jax.jit(jax.vmap(lambda k: sht.solve(model(), sht.Sparsity(k, 3), HTP).x))(
        jnp.arange(4)
    ),
    "derivatives": lambda: jax.jacrev(fitted)(jnp.asarray(Y)),
    "a path": lambda: sht.solve_path(model(), ks=range(3)).x,
    "folds": lambda: sht.cross_validate(model(), ks=range(3), folds=3).scores,
    "a certificate": lambda: sht.certificate(model(), sht.Sparsity(2), sht.solve(model(), sht.Sparsity(2))).gap,
}


@pytest.mark.parametrize("name", WORK)
def test_strict_settings_change_nothing(name):
    expected = WORK[name]()
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"), jax.debug_nans(True):
        found = WORK[name]()
        with pytest.raises(Exception, match="promotion"):
            jnp.ones((2, 3)) + jnp.ones(3, jnp.int32)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5, atol=1e-6)  # compiled differently
