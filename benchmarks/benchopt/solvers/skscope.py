"""skscope: splicing on JAX's derivatives."""

import jax.numpy as jnp
from benchopt import BaseSolver
from skscope import ScopeSolver


class Solver(BaseSolver):
    name = "skscope"
    requirements = ["pip::skscope"]
    sampling_strategy = "run_once"

    def set_objective(self, X, y, k):
        self.X, self.y, self.k = jnp.asarray(X), jnp.asarray(y), k

    def warm_up(self):
        self.run_once()

    def run(self, _):
        solver = ScopeSolver(self.X.shape[1], self.k)
        self.w = solver.solve(lambda w: jnp.mean((self.y - self.X @ w) ** 2), jit=True)

    def get_result(self):
        return {"w": self.w}
