"""Synthetic text data: sparse rows of unit norm, columns with a power law of frequencies."""

import numpy as np
from scipy import sparse


def make_text(
    n: int,
    p: int,
    words: float,
    k: int = 100,
    *,
    exponent: float = 1.1,
    shift: float = 30.0,
    snr: float = 5.0,
    seed: int = 0,
) -> tuple[sparse.csr_array, np.ndarray, np.ndarray]:
    """Documents as tf-idf vectors, with labels from k planted words.

    Words follow a Zipf-Mandelbrot law, P(rank r) proportional to (r + shift)^-exponent, the ranks scattered over
    the columns. Document lengths are log-normal. An entry is (1 + log count) log(1 + n / documents with the word), and
    rows are scaled to unit norm. Labels are sign(X w + noise), with w on words that a hundredth to a third of the
    documents have (or the most frequent ones, if those are too few).

    Args:
        n: documents.
        p: words of the vocabulary; many never occur if n is small.
        words: mean number of distinct words in a document, roughly.
        k: planted words, <= p.
        exponent: of the power law, positive.
        shift: of the power law, >= 0; a larger one makes the most frequent words rarer.
        snr: var(Xw) / var(noise), positive; infinity for no noise.
        seed: of NumPy's default generator.

    Returns:
        X (n, p), a float32 CSR array with int32 indices; y (n,) of -1 and +1; w (p,).

    Raises:
        ValueError: for an argument outside its range.
    """
    if n < 1 or p < 1 or not 0 <= k <= p:
        raise ValueError(f"n, p, k: need n >= 1, p >= 1 and 0 <= k <= p, got n={n}, p={p}, k={k}.")
    if not 0 < words <= p / 2:
        raise ValueError(f"words: must be positive and at most half of p, got {words}.")
    if not (exponent > 0 and shift >= 0 and snr > 0):
        raise ValueError(f"exponent, shift, snr: need positive numbers (shift >= 0), got {exponent}, {shift}, {snr}.")
    rng = np.random.default_rng(seed)
    law = (np.arange(1, p + 1) + shift) ** -exponent
    law /= law.sum()
    mean = _draws(law, words) * rng.lognormal(-0.125, 0.5, n)
    length = np.maximum(rng.poisson(mean), 1)
    rank = np.searchsorted(np.cumsum(law)[:-1], rng.random(length.sum()))
    column = rng.permutation(p)[np.minimum(rank, p - 1)]
    entry, count = np.unique(np.repeat(np.arange(n), length) * p + column, return_counts=True)
    row, column = np.divmod(entry, p)
    frequency = np.bincount(column, minlength=p)
    value = (1 + np.log(count)) * np.log1p(n / np.maximum(frequency[column], 1))
    norm = np.sqrt(np.bincount(row, value**2, minlength=n))
    value = (value / norm[row]).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int32)
    X = sparse.csr_array((value, column.astype(np.int32), indptr), shape=(n, p))
    w = np.zeros(p)
    w[_planted(frequency, n, k, rng)] = rng.choice([-1.0, 1.0], k) * rng.uniform(0.5, 1.5, k)
    eta = X @ w
    noise = rng.standard_normal(n) * np.sqrt(np.var(eta) / snr)
    return X, np.where(eta - np.median(eta) + noise >= 0, 1.0, -1.0), w


def make_rcv1_like(n: int = 20242, k: int = 500, seed: int = 0) -> tuple[sparse.csr_array, np.ndarray, np.ndarray]:
    """`make_text` with the shape and density of RCV1 (rcv1_train.binary: 20,242 x 47,236, 73 words a document)."""
    return make_text(n, 47236, 73.0, k, seed=seed)


def make_news20_like(n: int = 19996, k: int = 1000, seed: int = 0) -> tuple[sparse.csr_array, np.ndarray, np.ndarray]:
    """`make_text` with the shape and density of news20.binary (19,996 x 1,355,191, 455 words a document)."""
    return make_text(n, 1355191, 455.0, k, seed=seed)


def _draws(law: np.ndarray, words: float) -> float:
    """The number of draws that have so many distinct words on average."""
    low, high = words, 2 * words

    def distinct(draws: float) -> float:
        return -np.expm1(draws * np.log1p(-law)).sum()

    while distinct(high) < words:
        high *= 2
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if distinct(middle) < words else (low, middle)
    return high


def _planted(frequency: np.ndarray, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    share = frequency / n
    middling = np.flatnonzero((share >= 0.01) & (share <= 1 / 3))
    if middling.size >= k:
        return rng.choice(middling, k, replace=False)
    return np.argsort(-frequency, kind="stable")[:k]
