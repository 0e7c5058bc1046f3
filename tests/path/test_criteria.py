"""Information criteria against their formulas, written out."""

import functools
import math

import cases
import jax
import numpy as np
import pytest
import screening
from sklearn import metrics

import sparsehtp as sht
from sparsehtp._types import replace

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


@pytest.mark.parametrize("name", [name for name, loss in cases.LOSSES.items() if not loss.classification])
def test_units_of_targets_decide_nothing(name, x64):
    """Where y is no count, its criteria are those of y in another unit, up to a constant."""
    loss, values, rng = cases.LOSSES[name], [], np.random.default_rng(0)
    X = rng.standard_normal((60, 8))
    y = loss.draw_targets(X[:, 3] - 0.5 * X[:, 5], rng)
    if name == "poisson" or name.startswith("negative_binomial"):
        assert loss.scale_power == 0
        return
    for unit in (1e-3, 1.0, 1e3):
        own = {name: unit * getattr(loss, name) for name in ("delta", "gamma") if hasattr(loss, name)}
        model = sht.LinearModel(X, unit * y, replace(loss, **own), fit_intercept=True)
        criterion = sht.information_criterion(sht.solve_path(model, ks=range(5), solver=sht.solvers.HTP()), "bic")
        values.append(criterion.values - criterion.values[0])
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(values[2], values[1], rtol=1e-5, atol=1e-4)


DEVIANCES = {  # of a row; powers r
    "gamma": (metrics.mean_gamma_deviance, 0.5),
    "tweedie": (functools.partial(metrics.mean_tweedie_deviance, power=1.5), 0.5),
    "tweedie_1": (metrics.mean_poisson_deviance, 0.5),
    "quantile": (lambda y, mean, sample_weight: 2 * metrics.mean_pinball_loss(y, mean, sample_weight=sample_weight), 1),
}


@pytest.mark.parametrize("name", DEVIANCES)
def test_formulas_of_an_unknown_scale(name, x64):
    deviance, r = DEVIANCES[name]
    loss, rng = cases.LOSSES[name], np.random.default_rng(1)
    X, weights = rng.standard_normal((60, 8)), np.where(np.arange(60) < 20, 2.0, 0.5)
    y = loss.draw_targets(X[:, 3] - 0.5 * X[:, 5], rng)
    assert name[0] != "t" or np.any(y == 0)
    weights[5] = 0
    if name == "quantile":
        loss = replace(loss, gamma=1e-7)
        y[:4] = y[:4].mean()

    def path(weights):
        model = sht.LinearModel(X, y, loss, sample_weight=weights, fit_intercept=True)
        return sht.solve_path(model, ks=[0, 1, 2, 3], solver=sht.solvers.ForwardSelection())

    found = path(weights)
    means = np.asarray(loss.mean(found.predict(X)))
    each = np.array([deviance(y, mean, sample_weight=weights) for mean in means])
    expected = 2 * r * weights.sum() * np.log(each) + found.ks * np.log(weights.sum())
    np.testing.assert_allclose(sht.information_criterion(found, "bic").values, expected, rtol=1e-6)
    traced = jax.jit(lambda weights: path(weights).least)(weights)
    np.testing.assert_allclose(traced, found.least, rtol=1e-9)


def test_a_small_dispersion_is_seen():
    """Gamma targets within some 15% of their means: were the dispersion one, the third feature would be too dear."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 8)).astype(np.float32)
    eta = X[:, [0, 1, 2]] @ [0.3, -0.2, 0.1]
    y = (1e6 * np.exp(eta) * rng.gamma(50, 1 / 50, 200)).astype(np.float32)
    path = sht.solve_path(sht.LinearModel(X, y, sht.losses.Gamma(), fit_intercept=True), ks=range(7))
    best = sht.information_criterion(path, "bic").best
    assert best == 3 and set(np.flatnonzero(path.x[3])) == {0, 1, 2}
    plain = 2 * 200 * path.loss.astype(float) + path.ks * math.log(200)
    assert np.argmin(plain) < 3


def test_rounding_of_the_losses_is_told():
    """Of targets near 1e13 the loss is near 30, whose last digit is worth more than a feature, and may be below F*."""
    for seed in range(7):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((60, 8)).astype(np.float32)
        y = np.exp(30 + X[:, 0] - 0.5 * X[:, 1] + 3e-4 * rng.standard_normal(60)).astype(np.float32)
        model = sht.LinearModel(X, y, sht.losses.Gamma(), fit_intercept=True)
        path = sht.solve_path(model, ks=range(6), solver=sht.solvers.HTP())
        with pytest.warns(UserWarning, match="^path: float32 rounds its losses"):
            found = sht.information_criterion(path, "aic")
        assert found.best == 2 and not np.isnan(found.values).any()


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
