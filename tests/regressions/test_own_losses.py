"""Losses of a user's own: without a bound on the curvature, with kinks, with a link, and how they are scored."""

from typing import Any

import cases
import jax.numpy as jnp
import numpy as np
import pytest
from exhaustive import best_of_all
from scipy.optimize import minimize
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import d2_absolute_error_score, d2_log_loss_score, d2_tweedie_score, mean_pinball_loss, r2_score

import sparsehtp as sht
from sparsehtp.losses import AbstractConjugateLoss, AbstractLoss
from sparsehtp.losses.deviance import d2_score, predicted
from sparsehtp.testing import check_loss


class KinkedPoisson(sht.losses.Poisson):
    """The same loss, said to be kinked."""

    kinked = True


class Lopsided(AbstractLoss):
    """r^4/4 above the target and r^2/2 below it: the curvature jumps at 0 and has no bound."""

    kinked = True

    def value(self, eta, y):
        r = eta - y
        return jnp.where(r > 0, r**4 / 4, r**2 / 2)

    def derivative(self, eta, y):
        r = eta - y
        return jnp.where(r > 0, r**3, r)

    def second_derivative(self, eta, y):
        r = eta - y
        return jnp.where(r > 0, 3 * r**2, 1.0).astype(eta.dtype)

    @property
    def smoothness(self):
        return float("inf")


class Pinball(AbstractLoss):
    """q r above zero and (q - 1) r below, with r = y - eta."""

    q: float
    twice_differentiable = False

    def value(self, eta, y):
        return jnp.maximum(self.q * (y - eta), (self.q - 1) * (y - eta))

    def derivative(self, eta, y):
        return jnp.where(eta < y, -self.q, jnp.where(eta > y, 1 - self.q, 0.0))

    def second_derivative(self, eta, y):
        return jnp.zeros_like(eta)

    @property
    def smoothness(self):
        return float("inf")


class Shifted(sht.losses.Poisson):
    """The Poisson loss plus a function of y: a shift that no score may see."""

    def value(self, eta, y):
        return super().value(eta, y) + 7 * y**2 - 3


def exhaustive(loss, X, y, k, l2):
    """The least objective over all supports of k columns and an intercept, by SciPy."""

    def minimum(support):
        A = np.column_stack([X[:, support.astype(int)], np.ones(len(y))])

        def objective(z):
            eta = A @ z
            slope = A.T @ np.asarray(loss.derivative(eta, y)) / len(y) + l2 * np.append(z[:-1], 0)
            return float(np.mean(loss.value(eta, y)) + l2 / 2 * z[:-1] @ z[:-1]), slope

        return minimize(objective, np.zeros(k + 1), jac=True, tol=1e-12).fun

    return best_of_all(minimum, X.shape[1], k)


@pytest.mark.parametrize("name", ["default", "htp", "iht", "foba"])
@pytest.mark.parametrize("loss", [KinkedPoisson(), Lopsided()], ids=["poisson", "lopsided"])
def test_a_kinked_loss_without_a_bound_on_its_curvature_is_fitted(loss, name, x64):
    (solver,) = cases.solvers(name).values()
    for seed in range(2):
        X, y, _ = cases.data(loss, n=40, p=6, seed=seed)
        model = sht.LinearModel(X, y, loss, l2=0.05, fit_intercept=True)
        solution = sht.solve(model, sht.Sparsity(3), solver, max_steps=2000 if name == "iht" else None)
        assert solution.result == sht.results.RESULTS.converged
        best, null = (exhaustive(loss, X, y, k, 0.05) for k in (3, 0))
        assert best - 1e-9 <= solution.value <= null
        if name != "iht":
            np.testing.assert_allclose(solution.value, best, rtol=1e-6)


@pytest.mark.slow
def test_a_bound_on_the_curvature_or_none_gives_the_same_fit_of_several_responses(x64):
    X, y, _ = cases.data(sht.losses.Poisson(), n=40)
    Y = np.column_stack([y, y[::-1]])
    fits = [
        sht.solve(sht.MultiResponse(X, Y, loss, l2=0.05, fit_intercept=True), sht.RowSparsity(3), sht.solvers.HTP())
        for loss in (sht.losses.Poisson(), KinkedPoisson())
    ]
    np.testing.assert_allclose(fits[1].x, fits[0].x, atol=1e-6)


@pytest.mark.parametrize("loss", [KinkedPoisson(), Lopsided(), Pinball(0.2)], ids=repr)
def test_laws(loss):
    check_loss(loss)


def draws(seed, n=53):
    rng = np.random.default_rng(seed)
    eta = rng.normal(0.5, 0.7, n)
    return rng, eta, rng.integers(0, 3, n) + 0.5 * (np.arange(n) == 0)


@pytest.mark.parametrize("seed", range(10))
def test_d2_is_scikit_learns(seed):
    rng, eta, weights = draws(seed)
    counts, positive = rng.poisson(np.exp(eta)).astype(float), rng.gamma(2, np.exp(eta) / 2) + 1e-3
    tried = [(sht.losses.Poisson(), counts, 1), (Shifted(), counts, 1), (sht.losses.Gamma(), positive, 2)]
    tried += [(sht.losses.Tweedie(power), counts, power) for power in (1.0, 1.2, 1.9)]
    for w in (np.ones_like(weights), weights):
        for loss, y, power in tried:
            expected = d2_tweedie_score(y, np.exp(eta), power=power, sample_weight=w)
            np.testing.assert_allclose(d2_score(loss, eta, y, w), expected, rtol=1e-9, atol=1e-12)
        expected = r2_score(positive, eta, sample_weight=w)
        for scale in (1e-30, 1.0, 1e12):
            found = d2_score(sht.losses.Squared(), scale * eta, scale * positive, w)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        labels = np.where(rng.random(eta.size) < 0.5, 1.0, -1.0)
        expected = d2_log_loss_score(labels, 1 / (1 + np.exp(-2 * eta)), sample_weight=w)
        np.testing.assert_allclose(d2_score(sht.losses.Logistic(2.0), eta, labels, w), expected, rtol=1e-9, atol=1e-12)
    found, expected = d2_score(Pinball(0.5), eta, positive, np.ones_like(eta)), d2_absolute_error_score(positive, eta)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", [Pinball(0.2), sht.losses.Huber(0.3), Lopsided()], ids=repr)
def test_the_null_model_of_d2_is_the_best_constant(loss, x64):
    for seed in range(3):
        rng, eta, weights = draws(seed)
        y = eta + rng.standard_t(2, eta.size)
        grid, targets = np.broadcast_arrays(np.linspace(y.min(), y.max(), 20_001)[:, None], y)
        null = np.min(np.asarray(loss.value(grid, targets)) @ weights)  # these losses are zero at their best
        expected = 1 - weights @ np.asarray(loss.value(eta, y)) / null
        np.testing.assert_allclose(d2_score(loss, eta, y, weights), expected, rtol=1e-4, atol=1e-4)
        if isinstance(loss, Pinball):
            constants = [mean_pinball_loss(y, np.full(y.size, c), alpha=0.2, sample_weight=weights) for c in y]
            ours = (1 - d2_score(loss, eta, y, weights)) * min(constants) * weights.sum()
            np.testing.assert_allclose(ours, weights @ np.asarray(loss.value(eta, y)), rtol=1e-9)


def test_scores_of_constant_and_extreme_targets_are_numbers():
    eta, one = np.linspace(-1, 1, 7), np.ones(7)
    assert d2_score(sht.losses.Poisson(), eta, np.zeros(7), one) == 0
    assert d2_score(sht.losses.Huber(), eta, np.full(7, 3.7), one) == 0
    assert d2_score(sht.losses.Huber(), np.full(7, 3.5), np.full(7, 3.5), one) == 1
    assert d2_score(sht.losses.Poisson(), np.array([0.3]), np.array([2.0]), np.ones(1)) == 0
    far = d2_score(sht.losses.Poisson(), np.full(7, 800.0), np.arange(7.0), one)
    assert not np.isnan(far) and far < 0
    # Rows without weight do not count, whatever they hold.
    weights = np.array([1.0, 1, 1, 1, 1, 1, 0])
    spoiled = np.where(weights > 0, eta, np.inf)
    y = np.arange(7.0)
    assert d2_score(sht.losses.Poisson(), spoiled, y, weights) == d2_score(sht.losses.Poisson(), eta, y, weights)


def test_the_regressor_predicts_and_scores_by_its_loss():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4))
    y = rng.poisson(np.exp(0.5 * X[:, 2] + 1)).astype(float)
    weights = rng.integers(0, 3, 80)
    model = sht.SparseRegressor(k=1, l2=0.01, loss="poisson", solver="htp").fit(X, y)
    chosen = model.transform(X)
    reference = PoissonRegressor(alpha=0.01, tol=1e-10).fit(chosen, y)
    reference.coef_, reference.intercept_ = model.coef_[model.support_], model.intercept_
    np.testing.assert_allclose(model.predict(X), np.exp(X @ model.coef_ + model.intercept_), rtol=1e-12)
    np.testing.assert_allclose(model.score(X, y), reference.score(chosen, y), rtol=1e-9)
    np.testing.assert_allclose(model.score(X, y, weights), reference.score(chosen, y, weights), rtol=1e-9)
    assert predicted(sht.losses.Poisson(), X[:, 0].astype(np.float32)).dtype == np.float32
    cases.refused(ValueError, "y: Poisson needs counts", lambda: model.score(X, y - 5))
    cases.refused(ValueError, "sample_weight: must", lambda: model.score(X, y, -weights))


def stranger(loss):
    """The same loss in a class that nothing in the library knows."""
    base = AbstractConjugateLoss if isinstance(loss, AbstractConjugateLoss) else AbstractLoss
    methods = ("value", "derivative", "second_derivative", "majorant", "draw_targets", "check_targets")
    if type(loss).mean is not AbstractLoss.mean:
        methods += ("mean",)
    if base is AbstractConjugateLoss:
        methods += ("conjugate", "conjugate_derivative", "project_dual")

    def delegate(name):
        return lambda self, *args: getattr(self.inner, name)(*args)

    facts = ("classification", "twice_differentiable", "kinked", "location", "quadratic")
    own = {name: delegate(name) for name in methods} | {name: getattr(loss, name) for name in facts}
    own |= {"smoothness": property(lambda self: self.inner.smoothness), "__annotations__": {"inner": Any}}
    return type("Stranger", (base,), own)(loss)


EVERY = ("gamma", "logistic", "negative_binomial", "quantile", "squared_hinge", "tweedie", "huber", "squared")


@pytest.mark.parametrize("name", EVERY)
def test_a_loss_of_a_users_own_does_all_that_a_name_does(name):
    loss = cases.LOSSES[name]
    kind = sht.SparseClassifier if loss.classification else sht.SparseRegressor
    X, y, _ = cases.data(loss, n=60, p=5)
    named, own = (kind(k=2, l2=0.05, loss=each, solver="htp").fit(X, y) for each in (loss, stranger(loss)))
    np.testing.assert_array_equal(own.support_, named.support_)
    np.testing.assert_allclose(own.coef_, named.coef_, rtol=1e-9)
    np.testing.assert_allclose(own.predict(X), named.predict(X), rtol=1e-9)
    np.testing.assert_allclose(own.score(X, y), named.score(X, y), rtol=1e-9)
    assert hasattr(own, "predict_proba") == hasattr(named, "predict_proba")
    if hasattr(own, "predict_proba"):
        np.testing.assert_allclose(own.predict_proba(X), named.predict_proba(X), rtol=1e-7)
    np.testing.assert_allclose(own.swaps_.gains, named.swaps_.gains, rtol=1e-6)
    if isinstance(loss, AbstractConjugateLoss):
        ours, theirs = own.prove(30), named.prove(30)
        assert ours.proved and theirs.proved
        np.testing.assert_allclose([ours.upper, ours.lower], [theirs.upper, theirs.lower], rtol=1e-4)
    else:
        cases.refused(TypeError, "with a conjugate", lambda: own.prove(1))
    assert own.certificate_.statement == named.certificate_.statement
    folds = {"k": "cv", "l2": 0.05, "cv": 2, "solver": "htp"}
    results = [kind(**folds, loss=each).fit(X, y).cv_results_["mean_loss"] for each in (loss, stranger(loss))]
    np.testing.assert_allclose(*results, rtol=1e-9)
