"""The refit on a support against scikit-learn and SciPy."""

import cases
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import HuberRegressor, LogisticRegression, PoissonRegressor, Ridge

import sparsehtp as sht

pytestmark = pytest.mark.usefixtures("x64")

N, P, K, L2 = 40, 6, 3, 0.05
WEIGHTS = np.random.default_rng(9).uniform(0.2, 2, N)


def fit(loss, X, y, **options):
    options = dict(l2=L2, fit_intercept=True, sample_weight=WEIGHTS) | options
    solution = sht.solve(sht.LinearModel(X, y, loss, **options), sht.Sparsity(K), sht.HTP())
    assert int(solution.result) == sht.RESULTS.converged
    support = cases.members(solution.support)
    return support, np.append(np.asarray(solution.x)[support], solution.intercept), float(solution.value)


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_logistic_against_scikit_learn(scale):
    X, y, _ = cases.data(sht.Logistic(), N, P)
    support, z, _ = fit(sht.Logistic(scale), X, y)
    # sklearn minimises sum s l(eta) + ||w||^2 / (2 C); with eta' = scale * eta the ridge shrinks by scale^2
    model = LogisticRegression(C=scale**2 / (L2 * WEIGHTS.sum()), tol=1e-12, max_iter=1000, solver="newton-cholesky")
    model.fit(X[:, support], y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(scale * z, [*model.coef_[0], model.intercept_[0]], atol=1e-7)


def test_squared_against_ridge():
    X, y, _ = cases.data(sht.Squared(), N, P)
    support, z, _ = fit(sht.Squared(), X, y)
    model = Ridge(alpha=L2 * WEIGHTS.sum(), tol=1e-12).fit(X[:, support], y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(z, [*model.coef_, model.intercept_], atol=1e-9)


def test_poisson_against_scikit_learn():
    X, y, _ = cases.data(sht.Poisson(), N, P)
    support, z, _ = fit(sht.Poisson(), X, y)
    model = PoissonRegressor(alpha=L2, tol=1e-12, max_iter=1000, solver="newton-cholesky")
    model.fit(X[:, support], y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(z, [*model.coef_, model.intercept_], atol=1e-7)


def penalised(each, X, y, offset=0.0):
    def fun(z):
        return WEIGHTS @ each(X @ z[:-1] + z[-1] + offset, y) / WEIGHTS.sum() + 0.5 * L2 * z[:-1] @ z[:-1]

    return minimize(fun, np.zeros(X.shape[1] + 1), method="BFGS", options=dict(gtol=1e-9))


def huber(eta, y, delta=0.5):
    r = np.abs(eta - y)
    return np.where(r <= delta, r**2 / 2, delta * r - delta**2 / 2)


def smoothed_hinge(eta, y, gamma=0.25):
    m = y * eta
    return np.where(m >= 1, 0, np.where(m < 1 - gamma, 1 - m - gamma / 2, (1 - m) ** 2 / (2 * gamma)))


@pytest.mark.parametrize(
    ("loss", "each"),
    [
        (sht.Huber(0.5), huber),
        (sht.SmoothedHinge(0.25), smoothed_hinge),
        (sht.Poisson(), lambda eta, y: np.exp(eta) - y * eta),
    ],
    ids=["huber", "smoothed_hinge", "poisson"],
)
def test_against_scipy_with_an_offset(loss, each):
    X, y, _ = cases.data(loss, N, P, seed=4)
    if isinstance(loss, sht.Huber):
        y[::7] += 10  # outliers, so that both pieces are used
    offset = 0.3 * np.random.default_rng(2).standard_normal(N)
    support, z, value = fit(loss, X, y, offset=offset)
    best = penalised(each, X[:, support], y, offset)
    assert value <= best.fun + 1e-9 * abs(best.fun), "at least as good as BFGS"
    np.testing.assert_allclose(value, best.fun, rtol=1e-7)
    np.testing.assert_allclose(z, best.x, atol=2e-4)


@pytest.mark.slow
def test_huber_against_scikit_learn():
    # HuberRegressor also fits a scale sigma; at its sigma its coefficients are ours with delta = epsilon sigma.
    X, y, _ = cases.data(sht.Squared(), N, P)
    y[::7] += 10
    support = fit(sht.Huber(0.5), X, y, l2=0.0, sample_weight=None)[0]
    model = HuberRegressor(alpha=0.0, tol=1e-10, max_iter=1000).fit(X[:, support], y)
    ours = sht.solve(
        sht.LinearModel(X[:, support], y, sht.Huber(model.epsilon * model.scale_), fit_intercept=True),
        sht.Sparsity(K),
        sht.HTP(),
    )
    np.testing.assert_allclose([*ours.x, ours.intercept], [*model.coef_, model.intercept_], atol=1e-4)
