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


DRAWN = 200  # designs of `correlated`
DRAWN_SHAPES = ((50, 50), (100, 50), (200, 80), (80, 100), (200, 120), (100, 150), (60, 200), (200, 200))


def correlated(seed):
    """Return X (n, p) with standardised columns and centred y (n,), float64: correlations that decay, blocks, factors,
    near copies or random mixtures, drawn in strength; 3 to 20 nonzeros and a signal of 0.5 to 20 times the noise."""
    rng = np.random.default_rng([seed, 7])
    n, p = DRAWN_SHAPES[seed % len(DRAWN_SHAPES)]
    X, kind = rng.standard_normal((n, p)), seed // len(DRAWN_SHAPES) % 5
    if kind == 0:
        rho = rng.uniform(0.5, 0.95)
        for j in range(1, p):
            X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    elif kind == 1:
        size, rho = rng.integers(4, 20), rng.uniform(0.5, 0.95)
        common = rng.standard_normal((n, p // size + 1))
        X = np.sqrt(1 - rho) * X + np.sqrt(rho) * common[:, np.arange(p) // size]
    elif kind == 2:
        factors, own = rng.integers(2, 10), rng.uniform(0.2, 1)
        X = own * X + rng.standard_normal((n, factors)) @ rng.standard_normal((factors, p)) / np.sqrt(factors)
    elif kind == 3:
        X = X[:, : p // 4][:, np.arange(p) % (p // 4)] + rng.uniform(0.05, 0.5) * X
    else:
        X = X @ rng.standard_normal((p, p)) / np.sqrt(p) + rng.standard_normal((n, 3)) @ rng.standard_normal((3, p))
    X = X[:, rng.permutation(p)]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    k, w = rng.integers(3, 21), np.zeros(p)
    w[rng.choice(p, k, replace=False)] = rng.choice([-1, 1], k) * rng.uniform(0.5, 1.5, k)
    signal, snr = X @ w, rng.choice([0.5, 1, 2, 5, 20])
    y = signal + rng.standard_normal(n) * np.sqrt(signal.var() / snr)
    return X, y - y.mean()
