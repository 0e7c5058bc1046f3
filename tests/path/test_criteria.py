"""Information criteria against their formulas, written out."""

import dataclasses
import math

import cases
import numpy as np
import pytest
import screening
from scipy import integrate, optimize

import sparsehtp as sht
from sparsehtp._types import replace
from sparsehtp.grids import criteria

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


COUNTS = ("poisson", "negative_binomial", "negative_binomial_narrow")
CONTINUOUS = sorted({name for name, loss in cases.LOSSES.items() if not loss.classification}.difference(COUNTS))


def some(names, *quick):
    return pytest.mark.parametrize(
        "name", [pytest.param(a, marks=[pytest.mark.later] * (a not in quick)) for a in names]
    )


@some(CONTINUOUS, "gamma", "huber")
def test_units_of_targets_decide_nothing(name, x64):
    """Where y is no count, its criteria are those of y in another unit, up to a constant."""
    loss, values, rng = cases.LOSSES[name], [], np.random.default_rng(0)
    X = rng.standard_normal((60, 8))
    y = loss.draw_targets(X[:, 3] - 0.5 * X[:, 5], rng)
    for unit in (1e-3, 1.0, 1e3):
        own = {name: unit * getattr(loss, name) for name in ("delta", "gamma") if hasattr(loss, name)}
        model = sht.LinearModel(X, unit * y, replace(loss, **own), fit_intercept=True)
        criterion = sht.information_criterion(sht.solve_path(model, ks=range(5), solver=sht.solvers.HTP()), "bic")
        values.append(criterion.values - criterion.values[0])
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(values[2], values[1], rtol=1e-5, atol=1e-4)


R = np.sinh(np.linspace(-9, 9, 20_001))


def profiled(losses, mean, c=1):
    """Twice the negative log of exp(-l / phi) / Z(phi) at its best phi, Z integrated, less that of a Gaussian."""

    def density(log_phi):
        return mean / np.exp(log_phi) + c * np.log(integrate.trapezoid(np.exp(-losses / np.exp(log_phi)), R))

    least = optimize.minimize_scalar(density, bounds=np.log([mean / c / 3, 5 * mean / c])).fun
    return 2 * least - c * (1 + np.log(2 * np.pi))


@pytest.mark.parametrize("name", ["squared", "huber", "huber_narrow", "quantile", "quantile_upper"])
def test_a_scale_is_that_of_the_density_of_the_loss(name, x64):
    """The first row has no weight."""
    loss, rng = cases.LOSSES[name], np.random.default_rng(1)
    X, weights = rng.standard_normal((60, 8)), np.where(np.arange(60) < 20, 2.0, 0.5)
    weights[0] = 0
    y = loss.draw_targets(X[:, 3] - 0.5 * X[:, 5], rng) + 0.5 * rng.standard_cauchy(60)
    model = sht.LinearModel(X, y, loss, sample_weight=weights, fit_intercept=True)
    paths = [sht.solve_path(model, ks=[0, 1, 2], solver=sht.solvers.HTP())]
    if name in ("huber_narrow", "quantile_upper"):
        both = sht.MultiResponse(X, np.stack([y, y[::-1]], 1), loss, sample_weight=weights, fit_intercept=True)
        paths.append(sht.solve_path(both, ks=[0, 1, 2], threshold=sht.RowSparsity(0), solver=sht.solvers.HTP()))
    if name in ("huber_narrow", "squared"):
        paths.append(sht.solve_path(model, l0s=[0.5, 0.05, 0.005]))
    for path in paths:
        c = path.n_responses or 1
        losses = np.asarray(loss.value(R, np.zeros_like(R)))
        expected = weights.sum() * np.array([profiled(losses, mean, c) for mean in path.loss])
        expected += c * path.ks * np.log(weights.sum())
        np.testing.assert_allclose(sht.information_criterion(path, "bic").values, expected, rtol=1e-5)


@pytest.mark.parametrize(("a", "b", "w"), [(1.0, 1.0, 1.0), (0.3, 0.3, 1.0), (0.5, 0.5, 0.1), (0.8, 0.2, 0.5)])
def test_a_profile_is_that_of_its_density(a, b, w):
    """Of a loss with the curvature 1/w between slopes -a and b, by steps; the squared loss is one piece."""
    slope = np.clip(R / w, -a, b)
    for mean in (0.01, 1.0, 30.0):
        expected = profiled(slope * (R - w * slope / 2), mean)
        np.testing.assert_allclose(criteria._profiled(mean, a, b, w), expected, rtol=1e-5)
        np.testing.assert_allclose(criteria._profiled(mean, np.inf, np.inf, 1.0), np.log(2 * mean), rtol=1e-7)
    assert [criteria._profiled(each, a, b, w) for each in (0.0, -1.0, np.inf)] == [-np.inf, -np.inf, np.inf]
    assert np.isnan(criteria._profiled(np.nan, a, b, w))


@some(["gamma", "tweedie", "tweedie_1", "tweedie_2"], "gamma")
def test_a_dispersion_is_that_of_the_fits(name, x64):
    """Integrals over three fits; with all targets twice the dispersion is the same."""
    loss, rng = cases.LOSSES[name], np.random.default_rng(1)
    X, weights = rng.standard_normal((60, 8)), np.where(np.arange(60) < 20, 2.0, 0.5)
    weights[0] = 0
    y = loss.draw_targets(X[:, 3] - 0.5 * X[:, 5], rng)

    model = sht.LinearModel(X, y, loss, sample_weight=weights, fit_intercept=True)
    found = sht.solve_path(model, ks=[0, 3, 1], solver=sht.solvers.HTP())
    q = {"tweedie": 1.5, "tweedie_1": 1}.get(name, 2)
    mean = np.exp(found.predict(X))
    curvatures = mean ** (2 - q) + (q - 1) * (y - mean) * mean ** (1 - q)
    phi = np.sum(weights * ((y - mean) * mean ** (1 - q)) ** 2, 1) / np.sum(weights * curvatures, 1)
    np.testing.assert_allclose(found.dispersion, phi, rtol=1e-8)
    np.testing.assert_allclose(found.more_loss, found.loss - found.loss.min(), rtol=1e-8, atol=1e-14)

    def between(i, j):
        def integrand(loss):
            return 1 / np.interp(loss, found.loss[[j, i]], phi[[j, i]])

        return integrate.quad(integrand, found.loss[j], found.loss[i], epsabs=0, epsrel=1e-10)[0]

    deviance = 2 * weights.sum() * np.array([between(0, 2) + between(2, 1), 0, between(2, 1)])
    expected = deviance + found.ks * np.log(weights.sum())
    np.testing.assert_allclose(sht.information_criterion(found, "bic").values, expected, rtol=1e-6)
    if name == "tweedie":
        both = sht.MultiResponse(X, np.stack([y, y], 1), loss, sample_weight=weights, fit_intercept=True)
        rows = sht.solve_path(both, ks=[3], threshold=sht.RowSparsity(0), solver=sht.solvers.HTP())
        np.testing.assert_allclose(rows.dispersion, phi[1], rtol=1e-5)


def test_of_noise_nothing_is_chosen():
    """Of so little noise that F0 has no digits left in single precision, however far the path goes."""
    rng, chosen = np.random.default_rng(0), []
    for _ in range(8):
        X, y = rng.standard_normal((600, 8)), 1e6 * rng.gamma(5000, 1 / 5000, 600)
        model = sht.LinearModel(X.astype(np.float32), y.astype(np.float32), sht.losses.Gamma(), fit_intercept=True)
        path = sht.solve_path(model, ks=range(9), solver=sht.solvers.ForwardSelection())
        chosen.append(path.ks[sht.information_criterion(path, "bic").best])
    assert np.mean(chosen) < 0.5, chosen


def test_a_loss_that_is_no_number_is_never_chosen():
    for model in (screening.model(), screening.model(labels=True)):
        path = sht.solve_path(model, ks=KS, l2s=[0.01], solver=screening.Screening())
        for loss, best in (([np.nan, 2.0, 1.9], 2), ([np.nan, np.inf, 1e9], 2), ([2.0, 1.0, np.nan], 1)):
            found = sht.information_criterion(dataclasses.replace(path, loss=np.array(loss)), "aic")
            assert found.best == best and np.array_equal(np.isposinf(found.values), ~np.isfinite(loss))
    one = dataclasses.replace(path, total_weight=2.0, ks=np.zeros(3, int))  # of one size, few samples are enough
    assert np.isfinite(sht.information_criterion(one, "sic").values).all()
    for values in ([1.0, np.nan, 2.0], [np.inf] * 3, [1.0, 2.0]):
        with pytest.raises(ValueError, match="3 numbers, one for each row"):
            sht.information_criterion(path, lambda *_, values=values: values)


def test_an_integral_over_fits_that_are_equal_is_zero():
    """Equal dispersions have no logarithmic mean of their own, and no loss is between equal fits."""
    found = criteria._integrated(np.array([3.0, 0, 1, 1]), np.array([4.0, 2, 2, 2]))
    np.testing.assert_allclose(found, [0.5 + 2 * np.log(2) / 2, 0, 0.5, 0.5], rtol=1e-14)
    saturated = criteria._integrated(np.array([1.0, np.nan, 0, 0]), np.array([1.0, np.nan, 0, 0]))
    np.testing.assert_array_equal(saturated, [np.inf, np.nan, 0, 0])


def test_kept_features_count_as_parameters_only():
    path = sht.solve_path(
        screening.model(), ks=[0, 2], threshold=sht.Sparsity(0, keep=[7]), solver=screening.Screening()
    )
    values = sht.information_criterion(path, "ebic").values
    deviance = 40 * np.log(2 * path.loss.astype(float))
    expected = [math.log(40), 3 * math.log(40) + 2 * math.log(math.comb(7, 2))]
    np.testing.assert_allclose(values - deviance, expected, rtol=1e-6)


def test_what_several_responses_and_pairs_count():
    """Of each feature of softmax one coefficient less than there are classes, at most; of pairs half a deviance."""
    path = sht.solve_path(screening.model(labels=True), ks=KS, solver=screening.Screening())
    rng = np.random.default_rng(0)
    idx, mask = rng.permuted(np.tile(np.arange(12), (3, 1)), axis=1)[:, :9], rng.random((3, 9)) < 0.8
    features, fields = sht.results.Support(idx, mask), {"n_features": 12, "n_responses": 3}
    counts = [[min(np.sum(i[on] // 3 == j), 2) for j in range(4)] for i, on in zip(idx, mask, strict=True)]
    for invariant, d in ((True, np.sum(counts, 1)), (False, mask.sum(1))):
        rows = dataclasses.replace(path, features=features, shift_invariant=invariant, **fields)
        found = sht.information_criterion(rows, "aic").values
        np.testing.assert_allclose(found, 80 * path.loss.astype(float) + 2 * d)
    pairs = sht.information_criterion(dataclasses.replace(path, n_variables=4), "aic").values
    np.testing.assert_allclose(pairs, 40 * path.loss.astype(float) + 2 * np.array(KS))
    columns = dataclasses.replace(path, pieces=(0.5, 0.5, 0.1), **fields)
    each = [criteria._profiled(loss / 3, 0.5, 0.5, 0.1) for loss in path.loss.astype(float)]
    np.testing.assert_allclose(
        sht.information_criterion(columns, "aic").values, 120 * np.array(each) + 2 * np.array(KS)
    )


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


def test_bad_input():
    path = sht.solve_path(screening.model(), ks=KS, l2s=[0.01], solver=screening.Screening())
    with pytest.raises(ValueError, match="name: must be one of aic, bic, ebic, sic"):
        sht.information_criterion(path, "cp")
    quadratic = sht.solve_path(sht.QuadraticForm(np.eye(3), np.ones(3)), ks=[0, 2], solver=screening.Screening())
    with pytest.raises(ValueError, match="path: its objective has no samples"):
        sht.information_criterion(quadratic)
