"""Gaussian data with a planted sparse precision matrix."""

import numpy as np


def make_precision(
    n: int,
    p: int,
    *,
    probability: float = 0.1,
    value: float = 1.0,
    condition: float | None = None,
    seed: int | np.random.Generator = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Samples of N(0, O^{-1}), with O = A + sigma I and A_ij = value with the given probability, else 0.

    sigma makes the condition number of O equal to `condition` (without edges O = value I).

    Args:
        n: samples.
        p: variables, at least 2.
        probability: of an edge, in [0, 1].
        value: of the nonzero entries, not zero.
        condition: above 1; None: p, as in the experiments of [GraHTP] section 6.3.1.
        seed: of NumPy's default generator, or a generator.

    Returns:
        X (n, p) and the precision matrix (p, p), float64.

    Raises:
        ValueError: for an argument outside its range.
    """
    condition = p if condition is None else condition
    if n < 1 or p < 2:
        raise ValueError(f"n, p: need n >= 1 and p >= 2, got n={n}, p={p}.")
    if not 0 <= probability <= 1:
        raise ValueError(f"probability: must lie in [0, 1], got {probability}.")
    if not (np.isfinite(value) and value) or not condition > 1:
        raise ValueError(f"value, condition: need value != 0 and condition > 1, got {value} and {condition}.")
    rng = np.random.default_rng(seed)
    A = np.triu(value * (rng.random((p, p)) < probability), 1)
    A = A + A.T
    spectrum = np.linalg.eigvalsh(A)
    sigma = (spectrum[-1] - condition * spectrum[0]) / (condition - 1)
    precision = A + (sigma or abs(value)) * np.eye(p)
    # x = L'^{-1} z has covariance (L L')^{-1}.
    L = np.linalg.cholesky(precision)
    return np.linalg.solve(L.T, rng.standard_normal((p, n))).T, precision
