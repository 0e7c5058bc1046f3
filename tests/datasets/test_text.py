"""The text generators have the shape, density and power law that they promise."""

import inspect

import numpy as np
import pytest

from sparsehtp.datasets import make_news20_like, make_rcv1_like, make_text


def test_documents():
    X, y, w = make_text(2000, 5000, 40, 30, seed=3)
    assert X.shape == (2000, 5000) and X.dtype == np.float32 and X.indices.dtype == np.int32
    assert 0.85 * 40 < X.nnz / 2000 < 1.15 * 40
    np.testing.assert_allclose(np.sqrt((X.multiply(X)).sum(axis=1)), 1, rtol=1e-5)
    assert X.has_canonical_format and np.count_nonzero(w) == 30
    assert 0.4 < np.mean(y > 0) < 0.6
    assert np.mean(np.where(X @ w >= np.median(X @ w), 1, -1) == y) > 0.75
    frequency = np.sort(np.bincount(X.indices, minlength=5000))[::-1]
    middle = np.arange(200, 2000)
    slope = np.polyfit(np.log(middle + 30), np.log(frequency[middle]), 1)[0]
    assert -1.3 < slope < -0.9
    again, _, _ = make_text(2000, 5000, 40, 30, seed=3)
    assert (again != X).nnz == 0


@pytest.mark.parametrize(
    ("make", "n", "p", "words"), [(make_rcv1_like, 20242, 47236, 73), (make_news20_like, 19996, 1355191, 455)]
)
def test_presets_have_the_sizes_of_their_data(make, n, p, words):
    assert inspect.signature(make).parameters["n"].default == n
    X, _, w = make(300, k=20)
    assert X.shape == (300, p) and np.count_nonzero(w) == 20
    assert 0.8 * words < X.nnz / 300 < 1.2 * words


@pytest.mark.parametrize("arguments", [{"k": 99}, {"words": 0}, {"n": 0}, {"snr": 0}, {"exponent": 0}])
def test_arguments_out_of_range(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        make_text(**{"n": 10, "p": 50, "words": 5, "k": 2, **arguments})
