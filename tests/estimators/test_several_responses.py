"""SparseRegressor with targets (n, t): the same features for all responses."""

import itertools
import pickle

import numpy as np
import pytest
from sklearn.linear_model import MultiTaskLasso
from sklearn.metrics import d2_tweedie_score

import sparsehtp as sht

RNG = np.random.default_rng(11)
N, P, T = 60, 6, 3
X = RNG.standard_normal((N, P)) * [1, 5, 1, 0.2, 1, 1] + 3
B = np.zeros((P, T))
B[[1, 4]] = RNG.standard_normal((2, T))
Y = X @ B + 0.7 * RNG.standard_normal((N, T)) + [0, 10, -5]


def least_squares(chosen):
    A = np.column_stack([np.ones(N), X[:, chosen]])
    found = np.linalg.lstsq(A, Y, rcond=None)[0]
    return found, np.sum((Y - A @ found) ** 2)


def test_the_features_and_coefficients_of_exhaustive_search():
    best = min(itertools.combinations(range(P), 3), key=lambda chosen: least_squares(chosen)[1])
    model = sht.SparseRegressor(k=3, l2=0).fit(X, Y)
    np.testing.assert_array_equal(np.flatnonzero(model.support_), best)
    found, _ = least_squares(best)
    np.testing.assert_allclose(model.intercept_, found[0], rtol=1e-7)
    np.testing.assert_allclose(model.coef_[:, list(best)], found[1:].T, rtol=1e-7)
    peer = MultiTaskLasso().fit(X, Y)
    assert model.coef_.shape == peer.coef_.shape and model.intercept_.shape == peer.intercept_.shape
    np.testing.assert_allclose(model.predict(X), X @ model.coef_.T + model.intercept_)
    assert model.swaps_ is None and model.exchangeable_ is None
    certificate = model.certificate_  # of all exchanges, by refits
    np.testing.assert_allclose(certificate.upper_bound, least_squares(list(best))[1] / (2 * N), rtol=1e-7)
    assert certificate.swap_gain == 0 and certificate.stationary
    assert model.certificate_ is certificate and pickle.loads(pickle.dumps(model)).certificate_ == certificate


@pytest.mark.slow
def test_one_column_is_one_response():
    flat, column = (sht.SparseRegressor(k=2).fit(X, y) for y in (Y[:, 0], Y[:, :1]))
    np.testing.assert_array_equal(column.coef_, flat.coef_[None])
    np.testing.assert_array_equal(column.predict(X), flat.predict(X)[:, None])
    assert column.certificate_.statement == flat.certificate_.statement


def test_the_score_of_counts_is_the_mean_over_the_responses():
    counts = RNG.poisson(np.exp(0.3 * X @ B / np.abs(X @ B).max() + 1))
    model = sht.SparseRegressor(k=2, loss="poisson", solver="htp").fit(X, counts)
    means = model.predict(X)
    each = [d2_tweedie_score(counts[:, r], means[:, r], power=1) for r in range(T)]
    np.testing.assert_allclose(model.score(X, counts), np.mean(each), rtol=1e-6)


def test_predictions_take_offsets():
    """One for every response, or one for all; that fits take them from the targets is a law."""
    offset = RNG.standard_normal((N, T)) + np.array([0, 0, 100])
    for each, column in ((offset, offset), (offset[:, 0], offset[:, :1])):
        moved, plain = (sht.SparseRegressor(k=2, l2=0.1, solver="htp") for _ in range(2))
        predicted = moved.fit(X, Y, offset=each).predict(X, each)
        np.testing.assert_allclose(predicted, plain.fit(X, Y - column).predict(X) + column, rtol=1e-9)
