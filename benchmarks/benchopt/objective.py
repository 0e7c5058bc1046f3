"""min |y - Xw|^2 / |y|^2 over all w with at most k nonzero entries."""

import numpy as np
from benchopt import BaseObjective


class Objective(BaseObjective):
    """The value is of the k largest entries, with their coefficients fitted again: of the choice of features alone, so
    that what penalties shrink does not count against them."""

    name = "Best subset"
    min_benchopt_version = "1.8"

    def set_data(self, X, y, k):
        self.X, self.y, self.k = X, y, k

    def get_objective(self):
        return {"X": self.X, "y": self.y, "k": self.k}

    def evaluate_result(self, w):
        chosen = np.argsort(-np.abs(w))[: self.k]
        chosen = chosen[w[chosen] != 0]
        A = self.X[:, chosen]
        r = self.y - A @ np.linalg.lstsq(A, self.y, rcond=None)[0]
        return {"value": float(r @ r) / float(self.y @ self.y), "features": int(np.count_nonzero(w))}

    def get_one_result(self):
        return {"w": np.zeros(self.X.shape[1])}
