"""Paths, folds and criteria of several responses: rows against exhaustive search and least squares in NumPy."""

import itertools

import numpy as np
import pytest

import sparsehtp as sht

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(5)
N, P, C = 50, 6, 3
X = 0.7 * RNG.standard_normal((N, P)) + 0.7 * RNG.standard_normal((N, 1))
B = np.zeros((P, C))
B[[1, 4]] = RNG.standard_normal((2, C))
Y = X @ B + 0.7 * RNG.standard_normal((N, C))
KS = [0, 1, 2, 3]


def model(**options):
    return sht.MultiResponse(X, Y, fit_intercept=True, **options)


def fitted(rows, chosen):
    """(W, b) by least squares on some features, of some samples."""
    W = np.zeros((P, C))
    mean, y_mean = X[rows].mean(0), Y[rows].mean(0)
    W[list(chosen)] = np.linalg.lstsq((X[rows] - mean)[:, list(chosen)], Y[rows] - y_mean, rcond=None)[0]
    return W, y_mean - mean @ W


def best(rows, k):
    fits = (fitted(rows, chosen) for chosen in itertools.combinations(range(P), k))
    return min(fits, key=lambda fit: np.sum((Y[rows] - X[rows] @ fit[0] - fit[1]) ** 2))


def test_a_path_of_rows_is_that_of_exhaustive_search():
    path = sht.solve_path(model(), ks=KS, threshold=sht.RowSparsity(0))
    assert path.x.shape == (4, P, C) and path.intercept.shape == (4, C) and path.n_responses == C
    for row, k in enumerate(KS):
        W, b = best(np.arange(N), k)
        np.testing.assert_allclose(path.x[row], W, atol=1e-7)
        np.testing.assert_allclose(path.intercept[row], b, atol=1e-7)
        np.testing.assert_allclose(path.value[row], 0.5 * np.sum((Y - X @ W - b) ** 2) / N, rtol=1e-9)
        one = path.at(row)
        np.testing.assert_allclose(one.x, W, atol=1e-7)
        np.testing.assert_allclose(path.predict(X[:5])[row], X[:5] @ W + b, atol=1e-7)


def test_entries_of_a_matrix():
    path = sht.solve_path(model(), ks=[3], threshold=sht.Sparsity(0))
    assert np.count_nonzero(path.x[0]) == 3
    left = {}  # (response, features) -> sum of squares
    for chosen in (chosen for k in range(4) for chosen in itertools.combinations(range(P), k)):
        W, b = fitted(np.arange(N), chosen)
        left.update(zip(itertools.product(range(C), [chosen]), np.sum((Y - X @ W - b) ** 2, axis=0), strict=True))
    sets = itertools.combinations(range(P * C), 3)
    best_three = min(sum(left[r, tuple(e // C for e in s if e % C == r)] for r in range(C)) for s in sets)
    np.testing.assert_allclose(path.value[0], 0.5 * best_three / N, rtol=1e-9)
