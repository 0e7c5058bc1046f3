"""Generated problems with known answers."""

import numpy as np


def generate(n, p, k, snr=5.0, rho=0.0, seed=0):
    """Return X (n, p), y (n,), w (p,), float64: AR(rho) Gaussian rows, k nonzeros of random sign and magnitude
    U(0.5, 1.5), noise variance var(Xw) / snr."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    if rho:
        for j in range(1, p):
            X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    w = np.zeros(p)
    support = rng.choice(p, k, replace=False)
    w[support] = rng.choice([-1, 1], k) * rng.uniform(0.5, 1.5, k)
    signal = X @ w
    return X, signal + rng.standard_normal(n) * np.sqrt(signal.var() / snr), w
