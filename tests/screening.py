"""A path solver that compiles quickly: the k features with the steepest gradient at zero, refitted by Newton steps."""

import jax.numpy as jnp
import numpy as np
from jax import lax

import sparsehtp as sht
from sparsehtp._types import replace
from sparsehtp.objectives import AbstractRestrictable
from sparsehtp.solvers.base import AbstractSolver, Trail


class Screening(AbstractSolver):
    requires = AbstractRestrictable
    by_path = True
    default_termination = sht.stopping.StableSupport()
    default_max_steps = 1

    @classmethod
    def takes(cls, threshold):
        return threshold.plain

    def init(self, objective, threshold, x0, key):
        raise AssertionError("grids run `path` alone")

    def step(self, objective, threshold, state, t):
        raise AssertionError("grids run `path` alone")

    def path(self, objective, threshold, key):
        _, slope = objective.value_and_grad(jnp.zeros(objective.n_coefficients + objective.n_free, objective.dtype))

        def at(k):
            support = replace(threshold, k=jnp.minimum(k, threshold.k)).select(threshold.scores(slope))
            restricted = objective.restrict(support)
            padding = jnp.diag(jnp.where(support.mask, 0.0, 1.0).astype(objective.dtype))

            def newton(_, z):
                return z - jnp.linalg.solve(restricted.hess(z) + padding, restricted.grad(z))

            z = lax.fori_loop(0, 8, newton, jnp.zeros(support.idx.shape, objective.dtype))
            return Trail(support, z, restricted.value(z), jnp.int32(sht.results.RESULTS.converged))

        return lax.map(at, jnp.arange(threshold.k_max + 1))


def data(n=40, p=8, seed=0, labels=False):
    """(X, y): three features with a signal, means and scales that need standardisation."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, p)) * (1 + np.arange(p) % 3) + np.arange(p)).astype(np.float32)
    eta = X[:, :3] @ np.array([1.0, -1.0, 0.5]) + 1.0
    y = eta + rng.standard_normal(n)
    return X, (np.where(y > np.median(y), 1.0, -1.0) if labels else y).astype(np.float32)


def model(labels=False, **options):
    X, y = data(labels=labels)
    options = {"fit_intercept": True, "standardize": True, **options}
    return sht.LinearModel(X, y, sht.losses.Logistic() if labels else sht.losses.Squared(), **options)
