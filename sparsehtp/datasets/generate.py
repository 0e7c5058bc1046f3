"""Synthetic linear models with a planted k-sparse truth."""

import numpy as np


def make_regression(
    n: int, p: int, k: int, *, snr: float = 5.0, rho: float = 0.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gaussian regression y = Xw + noise with k planted coefficients.

    Args:
        n: rows.
        p: features.
        k: nonzeros of w, of random place and sign and magnitude U(0.5, 1.5).
        snr: var(Xw) / var(noise), positive; infinity for no noise.
        rho: correlation rho^|i-j| between features i and j, -1 < rho < 1.
        seed: of NumPy's default generator.

    Returns:
        X (n, p), y (n,) and w (p,), float64.

    Raises:
        ValueError: for an argument outside its range.
    """
    X, w, eta, noise = _planted(n, p, k, snr, rho, seed)
    return X, eta + noise, w


def make_classification(
    n: int, p: int, k: int, *, snr: float = 5.0, rho: float = 0.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels sign(Xw + noise) in {-1, +1}; arguments and return values are those of `make_regression`."""
    X, w, eta, noise = _planted(n, p, k, snr, rho, seed)
    return X, np.where(eta + noise >= 0, 1.0, -1.0), w


def _planted(
    n: int, p: int, k: int, snr: float, rho: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    if n < 1 or p < 1 or not 0 <= k <= p:
        raise ValueError(f"n, p, k: need n >= 1, p >= 1 and 0 <= k <= p, got n={n}, p={p}, k={k}.")
    if not snr > 0:
        raise ValueError(f"snr: must be positive, got {snr}.")
    if not -1 < rho < 1:
        raise ValueError(f"rho: must lie between -1 and 1, got {rho}.")
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    innovation = np.sqrt(1 - rho**2)
    for j in range(1, p if rho else 0):
        X[:, j] = rho * X[:, j - 1] + innovation * X[:, j]
    w = np.zeros(p)
    w[rng.choice(p, k, replace=False)] = rng.choice([-1.0, 1.0], k) * rng.uniform(0.5, 1.5, k)
    eta = X @ w
    return X, w, eta, rng.standard_normal(n) * np.sqrt(np.var(eta) / snr)
