"""The text generators have the shape, density and power law that they promise."""

import inspect

import numpy as np
import pytest
from scipy import optimize, stats

from sparsehtp.datasets import make_news20_like, make_rcv1_like, make_text


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


@pytest.mark.parametrize(
    ("make", "n", "p", "words"), [(make_rcv1_like, 20242, 47236, 73), (make_news20_like, 19996, 1355191, 455)]
)
def test_presets_have_the_sizes_of_their_data(make, n, p, words):
    defaults = {name: each.default for name, each in inspect.signature(make).parameters.items()}
    assert defaults == {"n": n, "k": 500 if make is make_rcv1_like else 1000, "seed": 0}
    X, _, w = make(300, k=20)
    assert X.shape == (300, p) and np.count_nonzero(w) == 20
    assert 0.8 * words < X.nnz / 300 < 1.2 * words


@pytest.mark.parametrize("arguments", [{"k": 99}, {"words": 0}, {"n": 0}, {"snr": 0}, {"exponent": 0}])
def test_arguments_out_of_range(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        make_text(**{"n": 10, "p": 50, "words": 5, "k": 2, **arguments})
