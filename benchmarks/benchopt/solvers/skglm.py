"""skglm: along a path of its penalty, down to the last strength with at most k features."""

import warnings

import numpy as np
from benchopt import BaseSolver
from skglm import GeneralizedLinearEstimator
from skglm.datafits import Quadratic
from skglm.penalties import SCAD, MCPenalty
from skglm.solvers import AndersonCD

SHAPES = {"MCP": (MCPenalty, 3.0), "SCAD": (SCAD, 3.7)}


class Solver(BaseSolver):
    name = "skglm"
    parameters = {"penalty": ["MCP", "SCAD"]}
    requirements = ["pip::skglm"]
    sampling_strategy = "run_once"

    def set_objective(self, X, y, k):
        self.X, self.y, self.k = np.asfortranarray(X), y, k
        self.largest = np.abs(X.T @ y).max() / len(y)

    def warm_up(self):
        self.run_once()  # compiles

    def run(self, _):
        kind, gamma = SHAPES[self.penalty]
        self.w = np.zeros(self.X.shape[1])
        model = GeneralizedLinearEstimator(
            Quadratic(), kind(self.largest, gamma), AndersonCD(warm_start=True, fit_intercept=False)
        )
        for alpha in self.largest * np.geomspace(1, 1e-3, 100)[1:]:
            model.penalty = kind(alpha, gamma)
            with warnings.catch_warnings(action="ignore"):
                model.fit(self.X, self.y)
            if np.count_nonzero(model.coef_) > self.k:
                break
            self.w = np.array(model.coef_)

    def get_result(self):
        return {"w": self.w}
