"""k features of p count; neighbours are correlated by rho."""

import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "simulated"
    parameters = {"n, p, k": [(500, 1000, 10), (200, 500, 20)], "rho": [0.5, 0.9], "snr": [5.0]}
    test_parameters = {"n, p, k": [(50, 20, 3)]}

    def get_data(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((self.n, self.p))
        for j in range(1, self.p):
            X[:, j] = self.rho * X[:, j - 1] + np.sqrt(1 - self.rho**2) * X[:, j]
        signal = X[:, :: self.p // self.k][:, : self.k] @ rng.choice([-1.0, 1.0], self.k)
        y = signal + rng.standard_normal(self.n) * signal.std() / np.sqrt(self.snr)
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        return {"X": X, "y": y - y.mean(), "k": self.k}
