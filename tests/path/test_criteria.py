"""Information criteria against their formulas, written out."""

import math

import numpy as np
import pytest
import screening

import sparsehtp as sht

KS = [3, 0, 1]


def formula(name, deviance, k, W, p=8):
    return {
        "aic": deviance + 2 * k,
        "bic": deviance + k * math.log(W),
        "ebic": deviance + k * math.log(W) + 2 * math.log(math.comb(p, k)),
        **dict.fromkeys(("sic", "gic"), deviance + k * math.log(p) * math.log(math.log(W))),
    }[name]


@pytest.mark.parametrize("name", ["aic", "bic", "ebic", "sic", "gic"])
@pytest.mark.parametrize("labels", [False, True])
def test_formulas(name, labels):
    X, y = screening.data(labels=labels)
    weights = np.where(np.arange(40) < 10, 2.0, 0.5)
    W = weights.sum()
    path = sht.solve_path(
        screening.model(labels, sample_weight=weights), ks=KS, l2s=[0.01], solver=screening.Screening()
    )
    criterion = sht.information_criterion(path, name)
    eta = path.predict(X).astype(float)
    if labels:
        deviance = 2 * np.sum(weights * np.logaddexp(0, -y * eta), axis=1)
    else:
        deviance = W * np.log(np.sum(weights * (y - eta) ** 2, axis=1) / W)
    expected = [formula(name, each, k, W) for each, k in zip(deviance, KS, strict=True)]
    np.testing.assert_allclose(criterion.values, expected, rtol=1e-4, atol=1e-3)
    assert criterion.best == np.argmin(expected)


def test_kept_features_count_as_parameters_only():
    path = sht.solve_path(
        screening.model(), ks=[0, 2], threshold=sht.Sparsity(0, keep=[7]), solver=screening.Screening()
    )
    values = sht.information_criterion(path, "ebic").values
    deviance = 40 * np.log(2 * path.loss.astype(float))
    expected = [math.log(40), 3 * math.log(40) + 2 * math.log(math.comb(7, 2))]
    np.testing.assert_allclose(values - deviance, expected, rtol=1e-6)


def test_softmax_counts_what_it_determines():
    """One constant for all classes of a feature changes no probability: two classes are a logistic model."""
    X, y = screening.data(labels=True)
    two = sht.MultiResponse(X, ((y + 1) / 2).astype(int), sht.losses.Softmax(2), l2=1e-4)
    one = sht.LinearModel(X, y, sht.losses.Logistic(), l2=0.5e-4)
    paths = [
        sht.solve_path(two, ks=KS, threshold=sht.RowSparsity(0), solver=sht.solvers.HTP()),
        sht.solve_path(one, ks=KS, solver=sht.solvers.HTP()),
    ]
    values = [sht.information_criterion(path, "bic").values for path in paths]
    np.testing.assert_allclose(*values, rtol=1e-3)
    entries = sht.solve_path(two, ks=[1, 2], threshold=sht.Sparsity(0), solver=sht.solvers.HTP())
    single = [np.count_nonzero(x.any(axis=1)) for x in entries.x]  # a feature with one class, or with both
    found = sht.information_criterion(entries, "bic").values - 2 * 40 * entries.loss.astype(float)
    np.testing.assert_allclose(found, np.array(single) * math.log(40), rtol=1e-6)


def test_bad_input():
    path = sht.solve_path(screening.model(), ks=KS, l2s=[0.01], solver=screening.Screening())
    with pytest.raises(ValueError, match="name: must be one of aic, bic, ebic, sic"):
        sht.information_criterion(path, "cp")
    quadratic = sht.solve_path(sht.QuadraticForm(np.eye(3), np.ones(3)), ks=[0, 2], solver=screening.Screening())
    with pytest.raises(ValueError, match="path: its objective has no samples"):
        sht.information_criterion(quadratic)
