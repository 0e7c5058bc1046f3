"""Paths over l0, and their cross-validation."""

import itertools
from types import SimpleNamespace

import cases
import jax
import numpy as np
import pytest
from exhaustive import best_of_all
from sklearn.model_selection import KFold

import sparsehtp as sht
from sparsehtp._solve import default_solver
from sparsehtp.grids import penalised_path

pytestmark = pytest.mark.usefixtures("x64")
L0 = sht.L0L1L2(0.0, 0.01)


@pytest.mark.parametrize("scoring", [None, "error", "own"])
def test_cross_validation_over_l0_is_a_loop_over_the_folds(scoring):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 8))
    y = X[:, 1] - X[:, 4] + 0.5 * rng.standard_normal(40)
    y = np.sign(y - np.median(y)) if scoring == "error" else y
    loss = sht.losses.Logistic() if scoring == "error" else sht.losses.Squared()
    objective = sht.LinearModel(X, y, loss, 0.01, fit_intercept=True, standardize=True)
    folds = list(KFold(4).split(X))

    def own(y, eta, weights):
        return np.average(np.abs(y - eta), weights=weights)

    threshold, l0s = sht.L0L1L2(0.0, 0.01, keep=[0]), [0.1, 0.01, 0.03]
    options = {"threshold": threshold, "l0s": l0s, "scoring": own if scoring == "own" else scoring}
    found = sht.cross_validate(objective, l2s=[0.01, 0.1], folds=folds, **options)
    assert found.scores.shape == (4, 6) and found.path.l0s.tolist() == sorted(l0s, reverse=True) * 2
    for i, (train, test) in enumerate(folds):
        part = sht.LinearModel(X[train], y[train], loss, 0.01, fit_intercept=True, standardize=True)
        path = sht.solve_path(part, l0s=l0s, l2s=[0.01, 0.1], threshold=threshold)
        eta = path.predict(X[test])
        for row in range(6):
            expected = {
                None: np.mean(loss.value(eta[row], y[test])),
                "error": np.mean(np.where(eta[row] > 0, 1, -1) != y[test]),
                "own": np.mean(np.abs(eta[row] - y[test])),
            }[scoring]
            np.testing.assert_allclose(found.scores[i, row], expected, rtol=1e-6)
    assert found.l0 == found.path.l0s[found.best] and found.k == found.path.ks[found.best]
    with pytest.raises(ValueError, match="checkpoint"):
        sht.cross_validate(objective, threshold=threshold, checkpoint="somewhere")


def test_a_path_of_nothing_but_kept_features_is_one_row():
    X = np.random.default_rng(0).standard_normal((60, 12)) + 0.3
    objective = sht.LinearModel(X, X @ np.arange(12), l2=0.1, fit_intercept=True)
    threshold = sht.L0L1L2(0.0, keep=range(12))
    path = sht.solve_path(objective, threshold=threshold)
    assert path.ks.tolist() == [0] and path.n_kept == 12
    assert sht.cross_validate(objective, threshold=threshold, folds=3).scores.shape == (3, 1)


def test_scores_over_l0_are_those_of_every_fold_level_and_price(monkeypatch):
    class Fits(SimpleNamespace):
        def rows(self, given, limit):
            for price in given:
                yield SimpleNamespace(x=(*self.model, price), found=SimpleNamespace(result=1000 * price))

    def score(model, held, x, kind):
        return held.sum() + 10 * x[0].sum() + 100 * np.sum(x[1]) + x[2] + 1000 * (kind == "error")

    monkeypatch.setattr(penalised_path, "Chain", lambda model, *rest: Fits(model=model))
    monkeypatch.setattr(penalised_path, "_score", score)
    objective = SimpleNamespace(dtype=np.float64, reweighted=lambda weights, l2: (weights, l2))
    (train, test), prices, seen = np.random.default_rng(0).integers(0, 9, (2, 3, 5)), np.array([0.3, 0.1, 0.2, 0.1]), []
    for l2s in (np.array([1.0, 1, 2, 2]), np.array([[1.0, 2], [1, 2], [1, 3], [1, 3]])):
        path = SimpleNamespace(l0s=prices, l2s=l2s)
        for kind in (None, "error"):
            rest = (None, kind, None, lambda *told: seen.append(told))
            found, ended = penalised_path.penalised_scores(objective, None, path, train, test, *rest)
            both = 100 * l2s.reshape(4, -1).sum(1) + prices + 1000 * (kind == "error")
            np.testing.assert_allclose(found, (test.sum(1) + 10 * train.sum(1))[:, None] + both)
            np.testing.assert_array_equal(ended, [[300, 100, 200, 100]] * 3)
    assert {*seen} - {(0, 12)} == {(done, 12) for done in range(1, 13)}


def test_what_a_row_pays():
    """For features that are not zero, kept or free; where none is, no price is too large."""
    for prices, cost, free in ((None, 2.0, [3]), ([0, 2, 3, 4, 5], 7.0, [0, 3])):
        threshold = sht.L0L1L2(0.0, keep=[3], prices=prices)
        chain = penalised_path.Chain(None, threshold, None, None)
        for x, l0, paid in (([0.0, 2, 0, -1, 3], 0.5, cost), ([0.0, 0, 0, 1, 0], np.inf, 0.0)):
            row = SimpleNamespace(l0=l0, found=SimpleNamespace(x=np.array(x), value=9.0))
            assert chain.parts(row) == (9 - 0.5 * paid, paid)
        assert penalised_path.free_of_charge(threshold).tolist() == free


@pytest.mark.parametrize(("keep", "first"), [(None, None), ([1], "kept")])
def test_each_row_at_given_prices_starts_at_the_last_one(monkeypatch, keep, first):
    """The first one at what pays nothing; where nothing does, no solve is spent on it."""
    monkeypatch.setattr(penalised_path, "_noise", lambda model: 0.0)
    chain = SimpleNamespace(model=SimpleNamespace(dtype=np.dtype(float)), threshold=sht.L0L1L2(0.0, keep=keep))
    solved = []
    chain.solved = lambda l0, start: solved.append((l0 > 1e9, start)) or "kept"
    chain.row = lambda l0, start: SimpleNamespace(start=start, found=l0)
    rows = list(penalised_path.Chain.rows(chain, np.array([0.3, 0.1, 0.1]), 9))
    assert [row.start for row in rows] == [first, 0.3, 0.1] and solved == [(True, None)] * (keep is not None)


def test_prices_run_from_the_largest():
    np.testing.assert_array_equal(penalised_path._checked([0.02, 0.5, 0.1]), [0.5, 0.1, 0.02])
    cases.refused(ValueError, "l0s: needs finite numbers >= 0", lambda: penalised_path._checked([0.1, -1]))


def test_a_path_begins_below_the_largest_gain_from_the_best_intercept():
    X = np.random.default_rng(0).standard_normal((30, 4)) + 1
    y = np.where(np.arange(30) < 24, 1.0, -1.0)
    path = sht.solve_path(
        sht.LinearModel(X, y, sht.losses.Logistic(), l2=0.1, fit_intercept=True), ks=[0, 1, 2], threshold=L0
    )
    slope = X.T @ (0.8 - (y > 0)) / 30  # 24 of 30 are above
    largest = np.max(np.maximum(np.abs(slope) - 0.01, 0) ** 2 / (2 * (X.var(axis=0) / 4 + 0.1)))
    assert 0.99 * largest < path.l0s[1] < largest < path.l0s[0]


def test_the_progress_of_a_path_over_l0_counts_its_rows():
    X = np.random.default_rng(0).standard_normal((12, 4))
    seen, model = [], sht.LinearModel(X, X[:, 0], l2=0.1)
    options = dict(l0s=[0.3, 0.1], l2s=[0.1, 0.2, 0.4], threshold=L0)
    sht.solve_path(model, **options, progress=lambda done, total: seen.append((done, total)))
    assert sorted({(0, 6), *seen}) == [(done, 6) for done in range(7)] and seen == sorted(seen)


def test_a_path_over_l0_begins_without_features():
    """There is a price at which nothing is worth it, and a criterion or the folds may choose that."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 6)) * 4.0 ** np.arange(6), rng.standard_normal(60)
    model, scale = sht.LinearModel(X, y, fit_intercept=True, standardize=True), X.std(0)
    slope = (X - X.mean(0)).T @ (y - y.mean()) / scale / 60
    for bound in (np.inf, 0.02):  # of every coefficient, in the units of its column
        threshold = sht.L0L1L2(0.0, lower=-bound, upper=bound)
        path, none = sht.solve_path(model, threshold=threshold), sht.solve_path(model, threshold=threshold, ks=[0])
        assert path.ks.tolist() == list(range(7)) and none.ks.tolist() == [0]
        np.testing.assert_allclose(none.loss, np.var(y) / 2, rtol=1e-6)
        alone = np.clip(slope, -bound * scale, bound * scale)
        gain = np.max(alone * (slope - alone / 2))
        assert path.l0s[1] < gain < path.l0s[0] < 1.01 * gain
        assert sht.information_criterion(path, "bic").best == 0


def found_sizes(X, y, loss=None, **options):
    """The sizes of a path over l0, of nine rows at most: what takes noise for a gain would go on nearly for ever."""
    model, threshold = sht.LinearModel(X, y, loss, fit_intercept=True, **options), sht.L0L1L2(0.0)
    chain = penalised_path.Chain(model, threshold, default_solver(model, threshold), jax.random.key(0))
    return [row.k for row in itertools.islice(chain.rows(None, X.shape[1]), 9)]


def test_rounding_is_no_gain_to_a_path_over_l0():
    """Neither what it leaves of targets that features explain without an error, or that are constant, nor where nothing
    is to be gained; but a feature that explains a part of 1e-8 enters."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        half = rng.standard_normal((30, 6))
        half[0] = 0  # a target of zero, and a mean of zero
        X = np.concatenate([half, -half])
        assert max(found_sizes(X, X @ [0.0, 3, 0, -2, 0, 1], standardize=True)) == 3, seed
        sums = 1000 * (1 + np.finfo(float).eps / 2 * rng.integers(-40, 41, 60))  # constant but for the last digits
        assert found_sizes(X, sums, standardize=True) == [0], seed
        twice = np.tile(rng.standard_normal((15, 4)), (2, 1))  # with either label
        assert found_sizes(twice, np.repeat([1.0, -1.0], 15), sht.losses.Logistic(), l2=0.1) == [0], seed
    Z = rng.standard_normal((60, 7))
    Q = np.linalg.qr(Z - Z.mean(0))[0]
    for share, sizes in ((0.0, [0]), (1e-4, [0, 1])):
        assert found_sizes(Q[:, :6], Q[:, 6] + share * Q[:, 2], standardize=True) == sizes


def test_a_dispersion_is_about_the_least_loss_that_is_a_number():
    fits = SimpleNamespace(excess=lambda x, best: (x - best, best))
    for loss, best in (([2.0, np.nan, 1.0], 2), ([np.nan, 3.0, 4.0], 1)):
        more, dispersion = penalised_path.spreads(fits, lambda i: 10.0 * i, np.array(loss))
        np.testing.assert_array_equal([more, dispersion], [10.0 * (np.arange(3) - best), np.full(3, 10.0 * best)])


@pytest.mark.parametrize("seed", [8, 24])
def test_a_path_over_l0_has_the_best_supports_of_all_prices(seed):
    """By least squares on all supports, in any unit of y, whether prices are given or found."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 6)) @ (np.eye(6) + rng.standard_normal((6, 6)))
    y = X @ rng.standard_normal(6) + 0.5 * rng.standard_normal(60)
    Z, sizes = np.column_stack([np.ones(60), X]), np.arange(7)

    def value(chosen):
        A = Z[:, [0, *(1 + chosen.astype(int))]]
        return np.mean((y - A @ np.linalg.lstsq(A, y)[0]) ** 2) / 2

    best = np.array([best_of_all(value, 6, k) for k in sizes])
    falls = [(best[i] - best[j]) / (j - i) for i, j in itertools.combinations(sizes, 2) if best[j] < best[i]]
    prices = np.sort(falls)[::-1]  # at all changes of the best size, and at others
    for unit, given in ((1.0, None), (1e-15, None), (1.0, prices)):
        model = sht.LinearModel(X, unit * y, fit_intercept=True, standardize=True)
        path = sht.solve_path(model, threshold=sht.L0L1L2(0.0), l0s=given)
        assert (path.n_units, path.n_kept, path.total_weight, path.pieces) == (6, 0, 60, (np.inf, np.inf, 1))
        without = (path.value - path.l0s * path.ks) / unit**2
        found = np.min(without + prices[:, None] * path.ks, axis=1)
        np.testing.assert_allclose(found, np.min(best + prices[:, None] * sizes, axis=1), rtol=1e-6)


class Points:
    """Fits of which all are known: at any price the best one is found; or, once `local`, where one starts."""

    local = False

    model = SimpleNamespace(dtype=np.float64)

    def __init__(self, values):
        self.values = values  # of sizes 0, 1, ...

    def at(self, l0, k):
        found = SimpleNamespace(value=self.values[k] + l0 * k, k=k)
        return penalised_path.Row(l0, 0.0, k, np.arange(k), self.values[k], np.zeros(0), found)

    def parts(self, row):
        return self.values[row.k], float(row.k)

    def row(self, l0, start):
        return self.at(l0, start.k if self.local else int(np.argmin(self.values + l0 * np.arange(12))))


@pytest.mark.parametrize("seed", range(20))
def test_what_a_path_has_missed_is_found_between_its_rows(seed):
    rng = np.random.default_rng(seed)
    points, chain = Points(np.sort(rng.random(12))[::-1]), penalised_path.Chain
    gaps = [(points.values[i] - points.values[j]) / (j - i) for i, j in itertools.combinations(range(12), 2)]
    best = {points.row(float(price * (1 + side)), None).k for price in gaps for side in (1e-9, -1e-9)}
    for limit in (3, 11):
        found = chain.between(points, [points.at(9.0, 0), points.at(0.0, 11)], limit)
        ks = [row.k for row in found]
        assert ks == sorted(set(ks)) and set(ks) <= best | {0, 11}
        assert {k for k in best if k <= min(k for k in best if k >= limit)} <= set(ks)
    rows = [
        points.at(float(l0), int(k)) for l0, k in zip(np.sort(rng.random(5))[::-1], rng.permutation(12), strict=False)
    ]
    first = points.at(0.01, 0)
    above = chain.above(points, first, rows)
    least = max(((points.values[0] - points.values[row.k]) / row.k for row in rows if row.k), default=0)
    assert above.k == 0 and above.l0 == max(0.01, least / penalised_path.BELOW)
    assert chain.exchanged(points, []) == []
    points.local = True
    for old, new in zip(rows, chain.exchanged(points, rows), strict=True):
        assert new.l0 == old.l0 and new.found.value <= min(points.at(old.l0, row.k).found.value for row in rows)
