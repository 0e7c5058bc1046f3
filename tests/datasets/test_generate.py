"""The generators plant what they say; those of texts have the density and the power law that they promise."""

import inspect
import itertools

import numpy as np
import pytest
from scipy import optimize, stats

from sparsehtp.datasets import (
    make_classification,
    make_news20_like,
    make_precision,
    make_rcv1_like,
    make_regression,
    make_text,
)


def test_regression_has_the_planted_truth_noise_and_correlation():
    X, y, w = make_regression(20000, 12, 4, snr=5, rho=0.6, seed=3)
    magnitudes = np.abs(w[w != 0])
    assert magnitudes.size == 4 and magnitudes.min() >= 0.5 and magnitudes.max() <= 1.5
    np.testing.assert_allclose(np.var(X @ w) / np.var(y - X @ w), 5, rtol=0.05)
    lags = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    np.testing.assert_allclose(np.cov(X.T), 0.6**lags, atol=0.05)


def test_classification_is_the_sign_of_the_regression():
    X, labels, _ = make_classification(50, 6, 2, seed=1)
    regression = make_regression(50, 6, 2, seed=1)
    np.testing.assert_array_equal(X, regression[0])
    np.testing.assert_array_equal(labels, np.where(regression[1] >= 0, 1, -1))


VARIANCES = {"poisson": lambda mean: mean, "negative_binomial": lambda mean: mean + mean**2}
VARIANCES |= {"gamma": lambda mean: mean**2 / 2, "tweedie": lambda mean: mean**1.5}


@pytest.mark.parametrize("loss", VARIANCES)
def test_draws_have_the_mean_and_variance_of_their_loss(loss):
    coef = np.array([0.5, 0.0, -0.4])
    X, y, w = make_regression(200_000, 3, 1, loss=loss, coef=coef)
    np.testing.assert_array_equal(w, coef)
    mean = np.exp(X @ coef)
    error = (y - mean) / np.sqrt(VARIANCES[loss](mean))
    for part in np.array_split(np.argsort(mean), 4):
        np.testing.assert_allclose([error[part].mean(), error[part].var()], [0, 1], atol=0.1)


@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_heavy_tails_have_the_asked_for_noise(loss):
    X, y, w = make_regression(200_000, 3, 2, loss=loss, snr=4)
    np.testing.assert_allclose(np.var(y - X @ w) / np.var(X @ w), 1 / 4, rtol=0.1)
    assert np.mean((y - X @ w) ** 4) > 5 * np.var(y - X @ w) ** 2  # 3 of a Gaussian


def test_a_precision_matrix_has_its_edges_and_its_condition():
    for seed, (value, condition) in enumerate(itertools.product((-0.4, 0.4, 1e-160), (1 + 1e-3, 8.0, 1e3))):
        _, A = make_precision(2, 12, probability=0.3, value=value, condition=condition, seed=seed)
        edges = A[np.triu_indices(12, 1)]
        np.testing.assert_array_equal(edges, np.where(edges != 0, value, 0))
        assert 5 < np.count_nonzero(edges) < 40 and np.array_equal(A, A.T) and np.ptp(np.diag(A)) == 0
        np.testing.assert_allclose(np.linalg.cond(A), condition, rtol=1e-9)
        np.testing.assert_array_equal(make_precision(1, 3, probability=0, value=value)[1], abs(value) * np.eye(3))
    assert make_precision(1, 2)[0].shape == (1, 2) and np.all(make_precision(1, 5, probability=1)[1])
    assert make_regression(1, 1, 1)[0].shape == (1, 1) and make_text(1, 50, 25, shift=0.0, k=9)[0].shape == (1, 50)


LINEAR, TEXT, SMALL = {"n": 10, "p": 6, "k": 2}, {"n": 10, "p": 50, "words": 5, "k": 2}, {"n": 2, "p": 3}
WRONG = [
    (make_regression, LINEAR, [{"k": 7}, {"snr": 0}, {"rho": 1}, {"rho": -1}, {"n": 0}, {"p": 0, "k": 0}]),
    (make_regression, LINEAR, [{"loss": "cubic"}, {"coef": [1]}]),
    (make_text, TEXT, [{"k": 99}, {"words": 0}, {"words": 26}, {"n": 0}, {"snr": 0}, {"exponent": 0}, {"shift": -1}]),
    (make_precision, SMALL, [{"value": 0.0}, {"value": np.inf}, {"value": np.nan}, {"n": 0}, {"p": 1}]),
    (make_precision, SMALL, [{"condition": 1.0}, {"condition": np.nan}, {"probability": -0.1}, {"probability": 1.1}]),
]


@pytest.mark.parametrize(("make", "fine", "wrong"), [(make, fine, each) for make, fine, all_ in WRONG for each in all_])
def test_arguments_out_of_range(make, fine, wrong):
    with pytest.raises(ValueError, match=rf"^[\w, ]*\b{next(iter(wrong))}\b.*: "):
        make(**fine | wrong)


def test_arguments_by_default_are_those_that_are_told():
    planted = {"coef": None, "snr": 5.0, "rho": 0.0, "seed": 0}
    for make, told in {
        make_regression: {"loss": "squared", **planted},
        make_classification: planted,
        make_precision: {"probability": 0.1, "value": 1.0, "condition": None, "seed": 0},
        make_text: {"k": 100, "exponent": 1.1, "shift": 30.0, "snr": 5.0, "seed": 0},
        make_rcv1_like: {"n": 20242, "k": 500, "seed": 0},
        make_news20_like: {"n": 19996, "k": 1000, "seed": 0},
    }.items():
        arguments = inspect.signature(make).parameters.values()
        assert {each.name: each.default for each in arguments if each.default is not each.empty} == told
    np.testing.assert_array_equal(make_precision(9, 12)[1], make_precision(9, 12, condition=12)[1])


def test_documents():
    """Words are as frequent as draws by the law make them, entries are as defined, and labels as often right as noise
    of that size lets them be."""
    n, p = 2000, 5000
    X, y, w = make_text(n, p, 40, 30, seed=3)
    assert X.shape == (n, p) and X.dtype == np.float32 and X.indices.dtype == np.int32 and X.has_canonical_format
    law = (np.arange(p) + 31.0) ** -1.1
    law /= law.sum()
    draws = optimize.brentq(lambda draws: -np.expm1(draws * np.log1p(-law)).sum() - 40, 40, 4000)
    lengths = draws * np.exp(0.5 * stats.norm.ppf((np.arange(200) + 0.5) / 200) - 0.125)  # their mean is `draws`
    often, expected = np.bincount(X.indices, minlength=p), -n * np.expm1(np.outer(-lengths, law)).mean(0)
    for part in (slice(20), slice(20, 500), slice(None)):
        np.testing.assert_allclose(np.sort(often)[::-1][part].sum(), expected[part].sum(), rtol=0.035)
    np.testing.assert_allclose(np.sqrt((X.multiply(X)).sum(axis=1)), 1, rtol=1e-5)
    shares = X.data / np.log1p(n / often[X.indices])
    least = np.minimum.reduceat(shares, X.indptr[:-1])  # of a word that stands there once
    counts = np.exp(shares / np.repeat(least, np.diff(X.indptr)) - 1)
    np.testing.assert_allclose(counts, np.round(counts), rtol=1e-5)
    planted = w[w != 0]
    assert planted.size == 30 and n / 100 <= often[w != 0].min() and often[w != 0].max() <= n / 3
    assert often[w != 0].min() < np.sort(often)[-30]  # drawn, where enough words are neither rare nor frequent
    assert 0.5 <= np.abs(planted).min() and np.abs(planted).max() <= 1.5 and 5 < np.sum(planted > 0) < 25
    eta = X @ w - np.median(X @ w)
    right = stats.norm.cdf(np.abs(eta) / np.sqrt(np.var(eta) / 5)).mean()
    np.testing.assert_allclose(np.mean(np.where(eta >= 0, 1, -1) == y), right, atol=0.025)
    few, _, planted = make_text(500, 50, 0.5, 49)
    often = np.bincount(few.indices, minlength=50)
    assert np.diff(few.indptr).min() == 1 and often[planted != 0].min() >= often[planted == 0].max()
    without_noise = make_text(n, p, 40, 30, snr=np.inf, seed=3)
    assert (without_noise[0] != X).nnz == 0 and set(without_noise[1] * np.where(eta >= 0, 1, -1)) == {1}


@pytest.mark.parametrize(("make", "p", "words"), [(make_rcv1_like, 47236, 73), (make_news20_like, 1355191, 455)])
def test_presets_have_the_sizes_of_their_data(make, p, words):
    X, _, w = make(300, k=20)
    assert X.shape == (300, p) and np.count_nonzero(w) == 20
    assert 0.8 * words < X.nnz / 300 < 1.2 * words
