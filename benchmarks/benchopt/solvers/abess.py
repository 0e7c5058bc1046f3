"""abess: splicing, by its number of iterations."""

from abess.linear import LinearRegression
from benchopt import BaseSolver


class Solver(BaseSolver):
    name = "abess"
    parameters = {"path": [False, True]}
    requirements = ["pip::abess"]
    sampling_strategy = "iteration"

    def set_objective(self, X, y, k):
        self.X, self.y, self.sizes = X, y, list(range(1, k + 1)) if self.path else k

    def run(self, steps):
        self.model = LinearRegression(
            support_size=self.sizes, fit_intercept=False, ic_type="loss", max_iter=max(steps, 1)
        ).fit(self.X, self.y)

    def get_result(self):
        return {"w": self.model.coef_}
