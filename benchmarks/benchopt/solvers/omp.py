"""Scikit-learn's orthogonal matching pursuit."""

from benchopt import BaseSolver
from sklearn.linear_model import OrthogonalMatchingPursuit


class Solver(BaseSolver):
    name = "OMP"
    sampling_strategy = "run_once"

    def set_objective(self, X, y, k):
        self.X, self.y, self.k = X, y, k

    def run(self, _):
        self.model = OrthogonalMatchingPursuit(n_nonzero_coefs=self.k, fit_intercept=False).fit(self.X, self.y)

    def get_result(self):
        return {"w": self.model.coef_}
