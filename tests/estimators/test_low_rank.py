"""LowRankRegressor against closed forms written in NumPy, and scikit-learn."""

import itertools

import cases
import jax
import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold

import sparsehtp as sht


def problem(n=60, p=6, c=5, r=2, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    U, V = np.linalg.qr(rng.standard_normal((p, r)))[0], np.linalg.qr(rng.standard_normal((c, r)))[0]
    X = rng.standard_normal((n, p)) * np.linspace(0.5, 3, p) + np.arange(p)
    return X, X @ (2 * U @ V.T) + noise * rng.standard_normal((n, c)) + 10 * np.arange(c)


X, Y = problem()
WEIGHTS = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)


def closed_form(X, Y, r, l2=0.0, s=None, standardize=True):
    """(B, b): centre, scale, whiten by a Cholesky factor, and cut the singular value decomposition."""
    s = np.ones(len(X)) if s is None else s
    s = s / s.sum()
    mean, target = s @ X, s @ Y
    sd = np.sqrt(s @ (X - mean) ** 2) if standardize else np.ones(X.shape[1])
    A = (X - mean) / sd
    G = (A.T * s) @ A + l2 * np.eye(X.shape[1])
    L = np.linalg.cholesky(G)
    U, d, Vt = np.linalg.svd(np.linalg.solve(L, (A.T * s) @ (Y - target)), full_matrices=False)
    B = np.linalg.solve(L.T, (U[:, :r] * d[:r]) @ Vt[:r]) / sd[:, None]
    return B, target - mean @ B


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("r", [0, 2, 5])
def test_the_closed_form(r, standardize):
    model = sht.LowRankRegressor(r, l2=0.2, standardize=standardize).fit(X, Y, WEIGHTS)
    B, b = closed_form(X, Y, r, 0.2, WEIGHTS, standardize)
    np.testing.assert_allclose(model.coef_, B.T, atol=1e-9)
    np.testing.assert_allclose(model.intercept_, b, atol=1e-8)
    np.testing.assert_allclose(model.x_rotation_ @ model.y_loadings_.T, B, atol=1e-9)
    np.testing.assert_allclose(model.y_loadings_.T @ model.y_loadings_, np.eye(r), atol=1e-10)
    sd = np.sqrt(np.cov(X.T, aweights=WEIGHTS, ddof=0).diagonal()) if standardize else np.ones(6)
    np.testing.assert_allclose(model.singular_values_, np.linalg.svd(sd[:, None] * B)[1][:r], atol=1e-9)
    assert model.rank_ == r and model.result_ == "converged"
    np.testing.assert_allclose(model.predict(X), X @ B + b, atol=1e-8)


def test_full_rank_without_an_intercept_is_ridge():
    model = sht.LowRankRegressor(5, l2=0.3, fit_intercept=False, standardize=False).fit(X, Y)
    np.testing.assert_allclose(model.coef_, Ridge(alpha=0.3 * len(X), fit_intercept=False).fit(X, Y).coef_, atol=1e-9)
    assert not np.any(model.intercept_)


def test_more_features_than_samples_under_a_ridge_of_each_feature():
    wide, targets = problem(8, 20, 3, 2)
    weights, l2, offset = WEIGHTS[:8] + 0.5, np.linspace(0.05, 0.5, 20), np.cos(targets)
    with jax.enable_x64(True):

        def posed(l2):
            return sht.MultiResponse(wide, targets, l2=l2, sample_weight=weights, fit_intercept=True, offset=offset)

        @cases.jit
        def solved(objective):
            fits = sht.reduced_rank(objective)
            return fits.losses, [objective.to_external(fits.at(r)) for r in range(4)]

        losses, fits = solved(posed(l2))
        for r, (B, b) in enumerate(fits):
            expected = closed_form(wide, targets - offset, r, l2, weights, False)
            np.testing.assert_allclose(np.vstack([B, b]), np.vstack(expected), atol=1e-8)
        assert np.all(losses >= 0) and np.all(np.diff(losses) <= 0)
        for some in (0.0, l2 * (np.arange(20) > 0)):
            cases.refused(ValueError, "l2: must be > 0", lambda some=some: sht.reduced_rank(posed(some)))
        square = cases.jit(lambda: sht.reduced_rank(sht.MultiResponse(wide[:, :8], targets)).W)()  # needs no ridge
        np.testing.assert_allclose(square, np.linalg.solve(wide[:, :8], targets), rtol=1e-6)
        classes = sht.MultiResponse(wide, np.arange(8) % 3, sht.losses.Softmax(3), l2=0.1)
        cases.refused(TypeError, "needs the squared loss", lambda: sht.reduced_rank(classes))


@pytest.mark.parametrize(("p", "rank"), [(4, 1), (6, 2)])
def test_cross_validation(p, rank):
    folds = list(KFold(4, shuffle=True, random_state=2).split(X))
    model = sht.LowRankRegressor(cv=folds, l2=0.01).fit(X[:, :p], Y)
    table = model.cv_results_
    assert table["scores"].shape == (4, 1 + min(p, 5)) and np.array_equal(table["ranks"], range(1 + min(p, 5)))
    for number, (fit, held) in enumerate(folds):
        for r in table["ranks"]:
            B, b = closed_form(X[fit, :p], Y[fit], r, 0.01)
            expected = 0.5 * np.mean(np.sum((Y[held] - X[held, :p] @ B - b) ** 2, 1))
            np.testing.assert_allclose(table["scores"][number, r], expected, rtol=1e-8)
    assert model.rank_ == rank == table["best_1se_index"]
    A, T = problem(r=4, noise=8, seed=2)
    for options, expected in (({}, 2), ({"one_se": False}, 3)):
        assert sht.LowRankRegressor(cv=folds, l2=0.01, **options).fit(A, T).rank_ == expected


@pytest.mark.parametrize("name", ["aic", "bic"])
def test_criteria_are_those_of_residuals(name):
    """With the n c numbers of the responses as the samples, or their weight; a rank with as many parameters is none."""
    chosen = set()
    for n, noise, seed in [(6, 3, 0), *itertools.product((30,), (3, 8), range(5))]:
        A, T = problem(n, r=4, noise=noise, seed=seed)
        weights = np.random.default_rng(seed).integers(1, 4, n) if seed else np.ones(n)
        values, size = [np.inf] * 6, 5 * weights.sum()
        for r in range(6):
            B, b = closed_form(A, T, r, 1e-6, weights)
            df = r * (6 + 5 - r)
            if df < size:
                price = 2 if name == "aic" else np.log(size)
                values[r] = size * np.log(np.average(np.mean((T - A @ B - b) ** 2, 1), weights=weights)) + price * df
        model = sht.LowRankRegressor(name).fit(A, T, weights)
        assert model.rank_ == np.argmin(values)
        chosen.add(model.rank_)
    assert len(chosen) > 2


def test_a_row_that_a_fold_lists_twice_counts_twice():
    train, test, again = np.arange(40), np.arange(40, 60), np.arange(5)
    twice = sht.LowRankRegressor(cv=[(np.r_[train, again], test)]).fit(X, Y)
    copies = [(np.r_[train, 60 + again], test)]
    copied = sht.LowRankRegressor(cv=copies).fit(np.r_[X, X[again]], np.r_[Y, Y[again]])
    np.testing.assert_allclose(twice.cv_results_["scores"], copied.cv_results_["scores"], rtol=1e-9)


def test_one_response():
    model = sht.LowRankRegressor(1).fit(X, Y[:, 0])
    assert model.coef_.shape == (6,) and isinstance(model.intercept_, float) and model.predict(X).shape == (60,)
    with pytest.warns(UserWarning, match="a single sample leaves no folds, so that r is 0"):
        assert sht.LowRankRegressor().fit(X[:1], Y[:1]).rank_ == 0


def test_collinear_features_without_l2_warn():
    twice = np.column_stack([X, X[:, 0]])
    with pytest.warns(match="singular"):
        model = sht.LowRankRegressor(2, l2=0.0).fit(twice, Y)
    assert sht.LowRankRegressor(0, l2=0.0).fit(twice, Y).result_ == "converged"  # nothing depends on them
    plain, *same = (
        sht.LowRankRegressor(2, l2=l2).fit(twice, Y, unit * WEIGHTS).coef_ for l2, unit in ((1e-6, 1), ("auto", 1e306))
    )
    np.testing.assert_allclose(same[0], plain, atol=1e-9)
    np.testing.assert_allclose(model.predict(twice), sht.LowRankRegressor(2, l2=0.0).fit(X, Y).predict(X), atol=1e-4)
