"""The refit on a support against scikit-learn and statsmodels."""

import cases
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, PoissonRegressor, QuantileRegressor, Ridge, TweedieRegressor
from sklearn.svm import LinearSVC

import sparsehtp as sht

pytestmark = pytest.mark.usefixtures("x64")

N, P, K, L2 = 40, 6, 3, 0.05
WEIGHTS = np.random.default_rng(9).uniform(0.2, 2, N)


def fit(loss, X, y, **options):
    options = dict(l2=L2, fit_intercept=True, sample_weight=WEIGHTS) | options
    solution = sht.solve(sht.LinearModel(X, y, loss, **options), sht.Sparsity(K), sht.solvers.HTP())
    assert int(solution.result) == sht.results.RESULTS.converged
    support = cases.members(solution.support)
    return support, np.append(np.asarray(solution.x)[support], solution.intercept), float(solution.value)


def sklearn_logistic(loss, total):
    # sklearn minimises sum s l(eta) + ||w||^2 / (2 C); with eta' = scale * eta the ridge shrinks by scale^2
    C = float(loss.margin_scale) ** 2 / (L2 * total)
    return LogisticRegression(C=C, tol=1e-12, max_iter=1000, solver="newton-cholesky")


GLM = dict(alpha=L2, tol=1e-12, max_iter=1000, solver="newton-cholesky")
# loss -> scikit-learn's model of as many samples, for weights of a total
REFERENCES = {
    sht.losses.Logistic(): (N, sklearn_logistic),
    sht.losses.Logistic(2.0): (N, sklearn_logistic),
    sht.losses.Squared(): (N, lambda loss, total: Ridge(alpha=L2 * total, tol=1e-12)),
    sht.losses.Poisson(): (N, lambda loss, total: PoissonRegressor(**GLM)),
    sht.losses.Gamma(): (150, lambda loss, total: TweedieRegressor(power=2, link="log", **GLM)),
} | {
    sht.losses.Tweedie(power): (150, lambda loss, total: TweedieRegressor(power=float(loss.power), link="log", **GLM))
    for power in (1.0, 1.2, 1.9, 2.0)
}


@pytest.mark.parametrize("loss", REFERENCES, ids=repr)
def test_against_scikit_learn(loss):
    n, reference = REFERENCES[loss]
    X, y, planted = cases.data(loss, n, P)
    weights, scale = np.resize(WEIGHTS, n), getattr(loss, "margin_scale", 1.0)
    support, z, _ = fit(loss, X, y, sample_weight=weights)
    if n > N:
        np.testing.assert_array_equal(support, np.flatnonzero(planted))
    model = reference(loss, weights.sum()).fit(X[:, support], y, sample_weight=weights)
    expected = [*np.ravel(model.coef_), *np.ravel(model.intercept_)]
    np.testing.assert_allclose(scale * z, expected, atol=1e-9 if isinstance(loss, sht.losses.Squared) else 1e-7)


def test_squared_hinge_against_scikit_learn():
    X, y, planted = cases.data(sht.losses.SquaredHinge(), 150, P)
    support, z, _ = fit(sht.losses.SquaredHinge(), X, y, sample_weight=None)
    np.testing.assert_array_equal(support, np.flatnonzero(planted))
    # Theirs has no half, and penalises the intercept by a share that a large scale makes small.
    model = LinearSVC(C=1 / (2 * 150 * L2), dual=False, tol=1e-14, max_iter=10**5, intercept_scaling=1e4)
    model.fit(X[:, support], y)
    np.testing.assert_allclose(z, [*model.coef_[0], model.intercept_[0]], atol=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.8])
def test_a_quantile_goes_to_that_of_scikit_learn_with_gamma(level):
    X, y, planted = cases.data(sht.losses.Quantile(), 150, P)
    weights = np.resize(WEIGHTS, 150)

    def pinball(z):
        r = X[:, :K] @ z[:-1] + z[-1] - y
        return weights @ np.maximum((1 - level) * r, -level * r) / weights.sum()

    reference = QuantileRegressor(quantile=level, alpha=0.0, solver="highs")
    reference.fit(X[:, :K], y, sample_weight=weights)
    exact = np.append(reference.coef_, reference.intercept_)
    for gamma in (1e-1, 1e-3, 1e-6):
        support, z, _ = fit(sht.losses.Quantile(level, gamma), X, y, l2=0.0, sample_weight=weights)
        np.testing.assert_array_equal(support, np.flatnonzero(planted))
        assert 0 <= pinball(z) - pinball(exact) + 1e-12 <= gamma * max(level, 1 - level) ** 2 / 2 + 2e-12
        assert np.abs(z - exact).max() <= gamma
    model = sht.SparseRegressor(k=K, loss=sht.losses.Quantile(level, 1e-6), l2=0.0, solver="htp").fit(X, y)
    assert abs(np.mean(y <= model.predict(X)) - level) <= (K + 1) / 150


@pytest.mark.parametrize("dispersion", [0.2, 1.5])
def test_negative_binomial_against_statsmodels(dispersion):
    sm = pytest.importorskip("statsmodels.api", reason="statsmodels is no part of this environment (extra: test)")
    loss = sht.losses.NegativeBinomial(dispersion)
    X, y, planted = cases.data(loss, 300, P)
    weights, offset = np.resize(WEIGHTS, 300), 0.3 * np.random.default_rng(2).standard_normal(300)
    support, z, value = fit(loss, X, y, l2=0.0, sample_weight=weights, offset=offset)
    np.testing.assert_array_equal(support, np.flatnonzero(planted))
    family = sm.families.NegativeBinomial(alpha=dispersion)
    design = np.column_stack([X[:, support], np.ones(300)])
    model = sm.GLM(y, design, family=family, freq_weights=weights, offset=offset).fit(tol=1e-12, maxiter=200)
    np.testing.assert_allclose(z, model.params, atol=1e-6)
    # The loss is the negative log-likelihood up to a function of y.
    other = sm.GLM(y, design[:, -1:], family=family, freq_weights=weights, offset=offset).fit(tol=1e-12, maxiter=200)
    null = sht.LinearModel(X, y, loss, sample_weight=weights, fit_intercept=True, offset=offset)
    null = sht.solve(null, sht.Sparsity(0), sht.solvers.HTP())
    np.testing.assert_allclose((null.value - value) * weights.sum(), model.llf - other.llf, rtol=1e-8)


@pytest.mark.parametrize("dispersion", [pytest.param(0.2, marks=pytest.mark.slow), 1.5])
def test_an_estimated_dispersion_against_statsmodels(dispersion):
    """The joint maximum of the likelihood in coefficients and dispersion; none of rows without weight."""
    discrete = pytest.importorskip("statsmodels.discrete.discrete_model", reason="needs statsmodels (extra: test)")
    X, y, planted = cases.data(sht.losses.NegativeBinomial(dispersion), 400, P)
    offset = 0.3 * np.random.default_rng(2).standard_normal(400)
    weights = (np.arange(400) < 300).astype(float)
    model = sht.SparseRegressor(K, loss="negative_binomial", l2=0.0, solver="htp")
    model.fit(X, y, sample_weight=weights, offset=offset)
    support = np.flatnonzero(planted)
    np.testing.assert_array_equal(np.flatnonzero(model.support_), support)
    design = np.column_stack([X[:300, support], np.ones(300)])
    joint = discrete.NegativeBinomial(y[:300], design, offset=offset[:300]).fit(disp=0, maxiter=1000, gtol=1e-10)
    np.testing.assert_allclose(model.dispersion_, joint.params[-1], rtol=2e-3)
    np.testing.assert_allclose([*model.coef_[support], model.intercept_], joint.params[:-1], atol=1e-4)
    again = sht.SparseRegressor(K, loss=sht.losses.NegativeBinomial(model.dispersion_), l2=0.0, solver="htp")
    again.fit(X, y, sample_weight=weights, offset=offset)
    np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-5)
    assert again.dispersion_ is None
    several = sht.SparseRegressor(K, loss="negative_binomial", solver="htp").fit(X, np.column_stack([y, y]))
    alone = sht.SparseRegressor(K, loss="negative_binomial", solver="htp").fit(X, y)
    np.testing.assert_allclose(several.dispersion_, alone.dispersion_, rtol=1e-3)
    poisson = np.random.default_rng(0).poisson(3.0, 400)
    assert sht.SparseRegressor(0, loss="negative_binomial").fit(X, poisson).dispersion_ < 0.05
