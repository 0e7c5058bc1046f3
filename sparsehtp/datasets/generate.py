"""Synthetic linear models with a planted k-sparse truth."""

from collections.abc import Callable

import numpy as np

from .._types import ArrayLike


def make_regression(
    n: int,
    p: int,
    k: int,
    *,
    loss: str = "squared",
    coef: ArrayLike | None = None,
    snr: float = 5.0,
    rho: float = 0.0,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Regression on k planted coefficients: y = Xw + noise, or draws with the mean exp(Xw).

    Args:
        n: rows.
        p: features.
        k: nonzeros of w, of random place and sign and magnitude U(0.5, 1.5).
        loss: whose targets are drawn, by the names of `SparseRegressor`: Gaussian noise for "squared", Student's with 3
            degrees of freedom, as often above as below, for "huber" and "quantile"; of mean exp(Xw) "poisson",
            "negative_binomial" (dispersion 1), "gamma" (shape 2) and "tweedie" (a Poisson number of exponential
            amounts, of power 1.5).
        coef: (p,) w itself, in place of k nonzeros; None: they are drawn.
        snr: var(Xw) / var(noise), positive; infinity for no noise. Without a part in draws of mean exp(Xw).
        rho: correlation rho^|i-j| between features i and j, -1 < rho < 1.
        seed: of NumPy's default generator.

    Returns:
        X (n, p), y (n,) and w (p,), float64.

    Raises:
        ValueError: for an argument outside its range.
    """
    X, w, eta, noise = _planted(n, p, k, snr, rho, seed, coef)
    rng, mean = np.random.default_rng([seed, 1]), np.exp(eta)
    if loss in ("huber", "quantile"):
        noise = np.std(noise) * rng.standard_t(3, n) / np.sqrt(3)

    def amounts() -> np.ndarray:  # a Poisson number of them, each of mean sqrt(mean) / 2
        count = rng.poisson(2 * np.sqrt(mean))
        return np.where(count > 0, rng.gamma(np.maximum(count, 1), np.sqrt(mean) / 2), 0.0)

    draws: dict[str, Callable[[], np.ndarray]] = {
        "squared": lambda: eta + noise,
        "huber": lambda: eta + noise,
        "quantile": lambda: eta + noise,
        "poisson": lambda: rng.poisson(mean).astype(float),
        "negative_binomial": lambda: rng.poisson(mean * rng.exponential(size=n)).astype(float),
        "gamma": lambda: rng.gamma(2.0, mean / 2),
        "tweedie": amounts,
    }
    if loss not in draws:
        raise ValueError(f"loss: must be one of {', '.join(draws)}, got {loss!r}.")
    return X, draws[loss](), w


def make_classification(
    n: int,
    p: int,
    k: int,
    *,
    coef: ArrayLike | None = None,
    snr: float = 5.0,
    rho: float = 0.0,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels sign(Xw + noise) in {-1, +1}; arguments and return values are those of `make_regression`."""
    X, w, eta, noise = _planted(n, p, k, snr, rho, seed, coef)
    return X, np.where(eta + noise >= 0, 1.0, -1.0), w


def _planted(
    n: int, p: int, k: int, snr: float, rho: float, seed: int, coef: ArrayLike | None
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
    if coef is not None:
        w = np.array(coef, float)
        if w.shape != (p,) or not np.isfinite(w).all():
            raise ValueError(f"coef: needs {p} finite numbers, got {coef}.")
    eta = X @ w
    return X, w, eta, rng.standard_normal(n) * np.sqrt(np.var(eta) / snr)
