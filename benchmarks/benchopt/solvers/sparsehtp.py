"""This library's, by their number of steps; programs are compiled before the clock starts."""

import jax
from benchopt import BaseSolver

import sparsehtp as sht


class Solver(BaseSolver):
    name = "sparsehtp"
    parameters = {"solver": ["BestSubset", "HTP", "FoBa"]}
    sampling_strategy = "iteration"

    def set_objective(self, X, y, k):
        jax.config.update("jax_enable_x64", True)
        self.model, self.threshold = sht.LinearModel(X, y), sht.Sparsity(k)
        self.method = getattr(sht.solvers, self.solver)()

    def pre_run_hook(self, steps):
        self.run(steps)  # compiles

    def run(self, steps):
        options = {"max_steps": max(steps, 1), "record": None, "throw": False}
        self.w = jax.block_until_ready(sht.solve(self.model, self.threshold, self.method, **options).x)

    def get_result(self):
        return {"w": jax.device_get(self.w)}
