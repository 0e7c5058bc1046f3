"""What could be exchanged for each chosen feature, against refits in NumPy."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import sparsehtp as sht
from sparsehtp.certificates import exchanges
from sparsehtp.estimators import base
from sparsehtp.estimators.fit import Evidence

RNG = np.random.default_rng(4)
X = RNG.standard_normal((80, 7))
X[:, 5] = X[:, 1] + 0.05 * RNG.standard_normal(80)  # nearly the same
X[:, 6] = X[:, 3] + 0.6 * RNG.standard_normal(80)
Y = 2 * X[:, 1] - X[:, 3] + 0.7 * RNG.standard_normal(80)


def objective(chosen, l2):
    """F of the best fit on some standardised features."""
    A = (X[:, chosen] - X[:, chosen].mean(0)) / X[:, chosen].std(0)
    y = Y - Y.mean()
    w = np.linalg.solve(A.T @ A / 80 + l2 * np.eye(len(chosen)), A.T @ y / 80)
    return 0.5 * np.mean((y - A @ w) ** 2) + 0.5 * l2 * w @ w


def test_what_costs_less_than_the_noise_and_nothing_else():
    model = sht.SparseRegressor(l2=0.01, cv=4).fit(X, Y)
    chosen, results = list(np.flatnonzero(model.support_)), model.cv_results_
    row = results["row"]
    (before,) = np.flatnonzero(results["ks"] == results["ks"][row] - 1)
    d = results["scores"][:, row] - results["scores"][:, before]
    noise = np.sqrt(np.mean((d - d.mean()) ** 2) / 3)
    value, found = objective(chosen, 0.01), model.exchangeable_
    assert set(found) == set(chosen)
    for i in chosen:
        rises = [(objective([*(set(chosen) - {i}), j], 0.01) - value, j) for j in set(range(7)) - set(chosen)]
        expected = [(j, rise) for rise, j in sorted(rises) if rise <= noise]
        np.testing.assert_allclose(found[i], expected, rtol=1e-6, atol=1e-12, err_msg=str(i))
    assert any(found.values())


@pytest.mark.slow
def test_names_and_other_losses():
    frame = pd.DataFrame(X, columns=list("abcdefg"))
    model = sht.SparseClassifier(cv=3, rule="best", l2=0.1, solver="foba").fit(frame, Y > 0)
    found = model.exchangeable_
    assert set(found) == set(model.get_feature_names_out())
    assert sht.SparseRegressor(3, positive=True, solver="htp").fit(X, Y).swaps_ is None
    assert sht.SparseRegressor(0, solver="htp").fit(X, Y).swaps_ is None
    assert all(rise >= -1e-6 and other not in found for others in found.values() for other, rise in others)


def check_swaps(swaps, features, value, p):
    """The best substitutes are those of refits, and gain as much."""
    chosen = [int(each) for each in features]
    for i, j, gain in zip(swaps.features, swaps.substitutes, swaps.gains, strict=True):
        rises = {new: value(sorted({*chosen, new} - {i})) - value(chosen) for new in set(range(p)) - set(chosen)}
        assert j == min(rises, key=rises.__getitem__)
        np.testing.assert_allclose(-gain, rises[j], rtol=1e-6)


def test_groups_are_exchanged_as_wholes():
    names, label = np.array(list("abcd")), np.array(list("abaccdd"))

    def value(members):
        return objective(np.flatnonzero(np.isin(label, list(members))), 0.01)

    model = sht.SparseRegressor(2, groups=label, l2=0.01, solver="htp").fit(X, Y)
    np.testing.assert_array_equal(names[model.swaps_.features], np.unique(label[model.support_]))
    assert model.swaps_.n_features == 4
    check_swaps(model.swaps_, model.swaps_.features, lambda places: value(names[places]), 4)
    model = sht.SparseRegressor([1, 2], groups=label, l2=0.01, cv=4, rule="best").fit(X, Y)
    chosen, near = set(label[model.support_]), model.exchangeable_
    assert set(near) == chosen and near["b"]
    for name, others in near.items():
        for other, rise in others:
            np.testing.assert_allclose(rise, value({*chosen, other} - {name}) - value(chosen), rtol=1e-6)


def test_groups_are_exchanged_where_refits_are_no_more_work_than_told(monkeypatch):
    """(exchanges) (samples + coefficients) (coefficients)^2, for one response without bounds and a smooth loss."""
    model = sht.SparseRegressor(groups=np.arange(7))
    model.coef_, work = np.zeros(7), 2 * 5 * (80 + 4) * 4**2

    def told(limit=work, chosen=2, shape=(7,), smooth=True, **more):
        monkeypatch.setattr(base, "REFIT_WORK", limit)
        objective = SimpleNamespace(ifo_per_gradient=80, twice_differentiable=smooth)
        support = SimpleNamespace(mask=np.arange(7) < chosen)
        threshold = SimpleNamespace(**{"plain": False, "entries_per_unit": 2, "bounded": False} | more)
        fit = objective, threshold, SimpleNamespace(support=support, x=np.zeros(shape))
        model._evidence = Evidence(SimpleNamespace(p=7, model=lambda each: each), [fit])
        return model._exchanged(lambda *_: True)

    assert told() and not told(work - 1)
    for other in ({"chosen": 0}, {"chosen": 7}, {"shape": (7, 2)}, {"smooth": False}, {"bounded": True}):
        assert told(np.inf, **other) is None, other
    model.groups = None
    assert told(0, plain=True) and not told(0)


@pytest.mark.parametrize("seed", [2, *(pytest.param(each, marks=pytest.mark.later) for each in (0, 1))])
@pytest.mark.parametrize("apart", [pytest.param(1e-5, marks=pytest.mark.later), 1e-8])
def test_gains_between_columns_that_are_nearly_the_same(seed, apart):
    """The span of two near copies is that of one and their difference, which float64 holds exactly."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((50, 5))
    A[:, 1] = A[:, 0] + apart * A[:, 1]
    A[:, 3] = A[:, 2] + apart * A[:, 3]
    between = [(A[:, i + 1] - A[:, i]) / np.std(A[:, i + 1] - A[:, i]) for i in (0, 2)]
    y = A[:, 0] + between[0] + 0.3 * A[:, 2] + 0.2 * between[1] + 0.1 * rng.standard_normal(50)

    def value(features):
        B = np.column_stack([A[:, features], np.ones(50)])
        for i in (0, 2):
            if {i, i + 1} <= set(features):
                B[:, features.index(i + 1)] = between[i // 2]
        return 0.5 * np.mean((y - B @ np.linalg.lstsq(B, y)[0]) ** 2)

    model = sht.SparseRegressor(3, l2=0.0).fit(A, y)
    model.prove()
    chosen = np.flatnonzero(model.support_).tolist()
    assert {0, 1} <= set(chosen)
    check_swaps(model.swaps_, chosen, value, 5)


@pytest.mark.parametrize("empty", [[], [2], [5], [2, 5]])
def test_scores_are_gains_of_quadratic_forms(empty):
    """Columns of zeros gain nothing, chosen or not; what nearly depends on the others is in doubt."""
    rng, chosen = np.random.default_rng(7), np.array([1, 2, 4])
    Z = rng.standard_normal((20, 7)) * np.geomspace(1e-8, 1e8, 7)
    Z[:, 6] = Z[:, 4] + 1e-5 * np.std(Z[:, 4]) * Z[:, 6] / np.std(Z[:, 6])
    Z[:, empty] = 0
    Q, b = Z.T @ Z, Z.T @ rng.standard_normal(20)
    Q[3, 3] *= 1.5  # no column of zeros needs data, nor a ridge

    def value(S):
        S = np.setdiff1d(S, empty)
        return -b[S] @ np.linalg.solve(Q[np.ix_(S, S)], b[S]) / 2

    gains, doubtful = exchanges._scores(Q[chosen], np.diag(Q), b, chosen)
    assert (gains[:, chosen] == -np.inf).all() and not doubtful[:, chosen].any()
    for row, i in enumerate(chosen):
        for j in (0, 3, 5, 6) if i == 4 else (0, 3, 5):
            gain = value(chosen) - value([*(set(chosen) - {i}), j])
            np.testing.assert_allclose(gains[row, j], gain, rtol=1e-6, atol=1e-9 * abs(value(chosen)))
            assert doubtful[row, j] == (2 in empty), (i, j)
    assert doubtful[:2, 6].all()


def test_exchanges_of_other_losses_are_fitted_again(x64, monkeypatch):
    """The four that are best to second order, the best first; near ones are those that raise F by no more."""
    labels, Z, l2 = np.where(Y > 0, 1.0, -1.0), np.column_stack([(X - X.mean(0)) / X.std(0), np.ones(80)]), 0.05

    def fit(members):
        A = Z[:, [*members, 7]]
        return minimize(lambda w: np.mean(np.logaddexp(0, -labels * (A @ w))) + l2 / 2 * w[:2] @ w[:2], np.zeros(3))

    model = sht.LinearModel(X, labels, sht.losses.Logistic(), l2, fit_intercept=True, standardize=True)
    best, x = fit([1, 3]), np.zeros(7)
    x[[1, 3]] = best.x[:2] / X.std(0)[[1, 3]]
    at = dict(x=x, intercept=best.x[2] - X.mean(0) @ x, value=best.fun)
    known = {m: SimpleNamespace(idx=np.array([1, 3, *range(7)]), mask=np.arange(9) < m) for m in (0, 2, 9)}
    features, substitutes, gains = exchanges.exchanges(model, SimpleNamespace(support=known[2], **at))
    assert features.tolist() == [1, 3] and gains.shape == (2, 4)
    for own, found, told in zip([3, 1], substitutes, gains, strict=True):
        each = {j: best.fun - fit([own, j]).fun for j in (0, 2, 4, 5, 6)}
        assert found[0] == max(each, key=each.get)
        np.testing.assert_allclose(told, sorted((each[j] for j in found), reverse=True), rtol=1e-6)
    for m, number in ((0, 0), (9, 7)):
        with pytest.raises(ValueError, match=f"some but not all of the 7 features, got {number}"):
            exchanges.exchanges(model, SimpleNamespace(support=known[m], **at))
    found = [1, 4], [[2, 3], [0, 5]], [[-0.1, -0.5], [0.2, -0.3]]
    monkeypatch.setattr(exchanges, "exchanges", lambda *_: map(np.array, found))
    assert exchanges.near_exchanges(None, None, 0.3) == {1: [(2, 0.1)], 4: [(0, -0.2), (5, 0.3)]}
