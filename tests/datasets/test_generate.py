"""The generators plant what they say."""

import itertools

import numpy as np
import pytest

from sparsehtp.datasets import make_classification, make_precision, make_regression, make_text


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


@pytest.mark.parametrize(
    ("loss", "variance"),
    [
        ("poisson", lambda mean: mean),
        ("negative_binomial", lambda mean: mean + mean**2),
        ("gamma", lambda mean: mean**2 / 2),
        ("tweedie", lambda mean: mean**1.5),
    ],
)
def test_draws_have_the_mean_and_variance_of_their_loss(loss, variance):
    coef = np.array([0.5, 0.0, -0.4])
    X, y, w = make_regression(200_000, 3, 1, loss=loss, coef=coef)
    np.testing.assert_array_equal(w, coef)
    mean = np.exp(X @ coef)
    error = (y - mean) / np.sqrt(variance(mean))
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
    for wrong in ({"value": 0.0}, {"value": np.inf}, {"value": np.nan}, {"condition": 1.0}, {"condition": np.nan}):
        with pytest.raises(ValueError, match=r"^value, condition: need"):
            make_precision(2, 3, **wrong)


def test_a_single_draw_of_two_variables_is_the_least():
    assert make_precision(1, 2)[0].shape == (1, 2)


@pytest.mark.parametrize("arguments", [{"k": 7}, {"snr": 0}, {"rho": 1}, {"n": 0}, {"loss": "cubic"}, {"coef": [1]}])
def test_arguments_out_of_range(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        make_regression(**{"n": 10, "p": 6, "k": 2, **arguments})


def test_arguments_by_default_are_those_that_are_told():
    linear = {"snr": 5.0, "rho": 0.0, "seed": 0}
    for make, sizes, defaults in (
        (make_regression, (9, 4, 2), {"loss": "squared", **linear}),
        (make_classification, (300, 4, 2), linear),
        (make_precision, (9, 12), {"probability": 0.1, "value": 1.0, "condition": 12, "seed": 0}),
        (make_text, (50, 300, 9), {"k": 100, "exponent": 1.1, "shift": 30.0, "snr": 5.0, "seed": 0}),
    ):
        for mine, other in zip(make(*sizes), make(*sizes, **defaults), strict=True):
            pair = [each.toarray() if hasattr(each, "toarray") else each for each in (mine, other)]
            np.testing.assert_array_equal(*pair)
