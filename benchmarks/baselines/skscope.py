"""skscope's splicing solver, with exact least squares on each support instead of its iterative default."""

import numpy as np

SETTINGS = {"skscope": {}, "skscope, tapered": {"splicing_type": "taper"}}


def best_subset(X, y, k, **settings):
    """Support of size k for ||y - Xw||^2."""
    import jax
    from skscope import ScopeSolver

    def residual(w, data):
        support = np.flatnonzero(w)
        return y - X[:, support] @ w[support]

    def objective(w, data):
        r = residual(w, data)
        return float(r @ r)

    def gradient(w, data):
        return -2 * (residual(w, data) @ X)

    def refit(objective, value_and_grad, w, support, data):
        A = X[:, support]
        w[support] = np.linalg.lstsq(A, y, rcond=None)[0]
        r = y - A @ w[support]
        return float(r @ r), w

    platform = jax.config.values["jax_platform_name"]  # solve() sets it to "cpu"
    try:
        solver = ScopeSolver(X.shape[1], sparsity=k, numeric_solver=refit, **settings)
        solver.solve(objective, gradient=gradient)
    finally:
        jax.config.update("jax_platform_name", platform)
    return np.sort(solver.get_support())
