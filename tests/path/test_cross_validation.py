"""Folds: scores by hand, no leak, every kind of splitter, the one-standard-error rule."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
import screening
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, StratifiedKFold

import sparsehtp as sht
from sparsehtp.grids import cross_validation as _cross_validation
from sparsehtp.grids import grid as _grid
from sparsehtp.grids.cross_validation import decide, moments, shared_folds
from sparsehtp.grids.folds import _Blocks, folds_of, repeats_of, residuals, tied, weights_of

KS, L2S = range(4), [0.01, 0.1]
SOLVER = screening.Screening()


def test_scores_equal_fits_on_the_training_rows_alone():
    X, y = screening.data()
    weights = np.random.default_rng(0).uniform(0.5, 2, 40).astype(np.float32)
    objective = sht.LinearModel(X, y, sample_weight=weights, fit_intercept=True, standardize=True)
    folds = KFold(4, shuffle=True, random_state=0)
    cv = sht.cross_validate(objective, ks=KS, l2s=L2S, folds=folds, solver=SOLVER)
    expected, held, taken = [], [], np.zeros(cv.path.x.shape)
    for train, test in folds.split(X):
        part = sht.LinearModel(X[train], y[train], sample_weight=weights[train], fit_intercept=True, standardize=True)
        path = sht.solve_path(part, ks=KS, l2s=L2S, solver=SOLVER)
        loss = (path.predict(X[test]) - y[test]) ** 2 / 2
        expected.append(np.average(loss, axis=1, weights=weights[test]))
        held.append(weights[test].sum())
        taken += path.x != 0
    np.testing.assert_allclose(cv.scores, expected, rtol=2e-4)
    np.testing.assert_allclose([cv.shares(row) for row in range(8)], taken / 4)
    expected, held = np.array(expected), np.array(held)
    mean = held @ expected / held.sum()
    np.testing.assert_allclose(cv.mean, mean, rtol=1e-4)
    np.testing.assert_allclose(cv.se, np.sqrt(held @ (expected - mean) ** 2 / held.sum() / 3), rtol=1e-3)
    full = sht.solve_path(objective, ks=KS, l2s=L2S, solver=SOLVER)
    np.testing.assert_allclose(cv.path.x, full.x, atol=1e-5)
    np.testing.assert_allclose(cv.path.loss, full.loss, rtol=1e-4)
    assert (cv.results == sht.results.RESULTS.converged).all()
    assert cv.best == np.argmin(mean) and cv.k == KS[cv.best % 4] and np.isclose(cv.l2, L2S[cv.best // 4])


LABELS = np.asarray(screening.model(labels=True).y)


def split(folds, groups=None, y=None):
    """The (train, test) weights that cross-validation makes of folds."""
    y, counted = (np.zeros(40), "rows") if y is None else (y, "classes")
    return weights_of(folds_of(folds, y, np.ones(40), counted, groups), np.ones(40))


def test_splitters():
    groups = np.arange(40) % 7
    train, test = split(5)
    assert train.shape == (5, 40) and (train + test == 1).all() and (test.sum(0) == 1).all()
    train, test = split(LeaveOneOut())
    np.testing.assert_array_equal(test, np.eye(40))
    for folds in (GroupKFold(3), 3):
        train, test = split(folds, groups)
        for one in test:
            assert not np.isin(groups[one > 0], groups[one == 0]).any()
    for folds, alone in ((StratifiedKFold(4), None), (4, None), (4, np.arange(40))):
        _, test = split(folds, alone, LABELS)
        assert all((LABELS[one > 0] > 0).sum() == 5 for one in test), "equal shares of the classes"
    _, test = split(3, groups, LABELS)
    assert all(not np.isin(groups[one > 0], groups[one == 0]).any() for one in test)
    mask = np.arange(40) < 30
    train, test = split([(mask, ~mask), ([0, 0, 1], [2])])
    assert train[1, 0] == 2 and test[0].sum() == 10


def test_folds_of_rows_are_those_of_blocks_and_repeated_where_data_are_few():
    for (_, test), (_, expected) in zip(
        _Blocks(4, True, 3).split(np.zeros(24)),
        StratifiedKFold(4, shuffle=True, random_state=3).split(np.zeros(24), np.arange(24) // 4),
        strict=True,
    ):
        np.testing.assert_array_equal(test, expected)
    sizes = itertools.product((31, 32, 33, 256, 257, 2048, 2049), (1, 8, 64))
    assert all(repeats_of(n, p) == (4 if n >= 4 * p and n * p <= 16384 else 1) for n, p in sizes)


def test_folds_of_several_objectives_have_equal_shares_of_all_their_labels():
    """Four times over; and which rows they hold does not depend on the rows' order."""
    X, y = screening.data(labels=True)
    other = np.where(np.argsort(np.argsort(100 * y + np.arange(40))) % 20 < 10, 1, -1).astype(np.float32)
    order, kinds = np.random.default_rng(1).permutation(40), 2 * y + other

    def held(rows):
        both = [sht.LinearModel(X[rows], each[rows], sht.losses.Logistic()) for each in (y, other)]
        return [rows[test] for _, test in shared_folds(5, both)]

    first, again = held(np.arange(40)), held(order)
    assert len(first) == 20 and all(np.unique(kinds[one], return_counts=True)[1].tolist() == 4 * [2] for one in first)
    assert all(np.array_equal(np.sort(one), np.sort(same)) for one, same in zip(first, again, strict=True))


def test_rows_without_weight_are_in_no_fold():
    """A number of folds splits the other rows as if there were none without, and other folds leave them out."""
    weights = (np.arange(50) % 5 > 0).astype(float)
    rows, y = np.flatnonzero(weights), np.arange(50) % 2
    alone = folds_of(4, y[rows], np.ones(40), "classes", rows % 9)
    for pair, expected in zip(folds_of(4, y, weights, "classes", np.arange(50) % 9), alone, strict=True):
        for part, own in zip(pair, expected, strict=True):
            np.testing.assert_array_equal(part, rows[own])
    mask = np.arange(50) < 30
    ((train, test),) = folds_of([(mask, ~mask)], y, weights)
    np.testing.assert_array_equal(np.concatenate([train, test]), rows)


def test_fold_numbers_are_the_pairs_that_they_name():
    ids = np.random.default_rng(1).integers(-1, 4, 40)  # rows of number -1 are in every training part
    for numbers in (ids, list(ids), tuple(ids), jax.numpy.asarray(ids)):
        for number, pair in enumerate(folds_of(numbers, np.zeros(40), np.ones(40))):
            for part, rows in zip(pair, (ids != number, ids == number), strict=True):
                np.testing.assert_array_equal(part, np.flatnonzero(rows))
        assert number == 3


@pytest.mark.later
def test_folds_by_number_choose_as_their_pairs():
    ids, objective = np.random.default_rng(1).integers(-1, 4, 40), screening.model()
    pairs = [(np.flatnonzero(ids != each), np.flatnonzero(ids == each)) for each in range(4)]
    for run, solver in ((sht.cross_validate, SOLVER), (lambda *a, **b: sht.choose(*a, **b).scores, sht.solvers.HTP())):
        found, expected = (run(objective, ks=KS, l2s=L2S, folds=folds, solver=solver) for folds in (ids, pairs))
        np.testing.assert_array_equal(found.scores, expected.scores)
        np.testing.assert_array_equal(found.fold_weight, [len(test) for _, test in pairs])


def test_share_of_wrong_labels():
    X, y = screening.data(labels=True)
    objective = screening.model(labels=True, l2=0.1)
    folds = KFold(4)
    cv = sht.cross_validate(objective, ks=[0, 2], l2s=None, folds=folds, solver=SOLVER, scoring="error")
    for fold, (train, test) in enumerate(folds.split(X)):
        base = np.where(y[train].mean() > 0, 1, -1)
        np.testing.assert_allclose(cv.scores[fold, 0], np.mean(base != y[test]), atol=1e-6)
    np.testing.assert_allclose(cv.scores * 10, np.round(cv.scores * 10), atol=1e-5)
    assert cv.mean[1] < cv.mean[0]
    full = cv.path
    np.testing.assert_allclose(full.loss, np.mean(np.logaddexp(0, -y * full.predict(X)), axis=1), rtol=1e-4)


def test_the_numbers_of_a_function_are_the_scores():
    """What it is given is tested in test_scorers.py."""
    options = {"folds": KFold(4), "solver": SOLVER}

    def half_square(y, eta, weights):
        return np.average((y - eta) ** 2 / 2, weights=weights)

    own, mean = (
        sht.cross_validate(screening.model(), ks=[1, 2], l2s=L2S, scoring=f, **options) for f in (half_square, None)
    )
    np.testing.assert_allclose(own.scores, mean.scores, rtol=1e-4)
    for row, k in enumerate(own.path.ks):
        taken = np.bincount(own.support.idx[:, row][own.support.mask[:, row]], minlength=own.path.n_units)
        np.testing.assert_allclose(own.shares(row), taken / 4)
        assert taken.sum() == 4 * k
    with pytest.raises(ValueError, match="scoring: the function gave NaN"):
        sht.cross_validate(screening.model(), ks=[1], scoring=lambda *_: np.nan, **options)


@pytest.mark.parametrize("events", [False, True])
def test_what_is_asked_of_a_grid_and_what_becomes_of_its_fits(monkeypatch, events):
    """Every fold is a row of weights, all data the last one; rows that are held out count, or their events."""
    (X, y), rng, grids = screening.data(), np.random.default_rng(0), []
    weights, event = rng.integers(0, 3, 40).astype(np.float32), rng.random(40) < 0.6
    objective = sht.LinearModel(X, y, sample_weight=weights)
    if events:
        objective = sht.CoxModel(X, y, event, sample_weight=weights)
    ids = np.arange(40) % 4 - 1
    folds = [(np.flatnonzero(ids != each), np.flatnonzero(ids == each)) for each in (0, 1, 2, 1)]
    fits = {name: rng.standard_normal((5, 2)) for name in ("intercept", "value", "result", "loss")}
    support = sht.results.Support(rng.integers(0, 8, (5, 2, 4)), rng.random((5, 2, 4)) < 0.5)
    fits |= {"support": support, "features": None, "coefficients": rng.standard_normal((5, 2, 4)), "score": None}
    monkeypatch.setattr(_grid, "run", lambda grid, *rest: (grids.append((grid, rest)), _grid.Fits(**fits))[1])
    options = {"memory": 5, "progress": False, "checkpoint": "here", "executor": "it", "key": jax.random.key(7)}
    cv = sht.cross_validate(objective, ks=[1, 3], folds=folds, solver=SOLVER, **options)
    ((grid, rest),) = grids
    assert rest == (5, False, "here", "it") and grid.key is options["key"]
    for part, own in zip(grid.weights, zip(*folds, strict=True), strict=True):
        expected = [weights * np.isin(np.arange(40), rows) for rows in own]
        np.testing.assert_array_equal(part, [*expected, weights])
    held = [test[(weights[test] > 0) & (event[test] | (not events))] for _, test in folds]
    np.testing.assert_allclose(cv.fold_weight, [weights[test].sum() for test in held])
    number = sum(map(len, held))
    assert cv.n_rows == number - len(held[1]) and np.isclose(cv.times, number / cv.n_rows)
    np.testing.assert_array_equal([cv.scores, cv.results], [fits["loss"][:-1], fits["result"][:-1]])
    np.testing.assert_array_equal([cv.path.loss, cv.path.value], [fits["loss"][-1], fits["value"][-1]])
    np.testing.assert_array_equal(cv.support.idx, support.idx[:-1])
    np.testing.assert_array_equal(cv.path.support.mask, support.mask[-1][:, :3])
    np.testing.assert_allclose(cv.path.total_weight, weights @ (event | (not events)))
    fits["score"] = rng.standard_normal((5, 2))
    again = sht.cross_validate(objective, ks=[1, 3], folds=folds, solver=SOLVER)
    np.testing.assert_array_equal(again.scores, fits["score"][:-1])


def test_what_a_cross_validation_says_is_of_its_rows():
    path = sht.solve_path(screening.model(), ks=[1, 2, 3], l2s=L2S, solver=SOLVER)
    scores = np.array([[3.0, 1.2, 1.0, 3.0, 1.3, 1.1], [3.0, 1.4, 1.4, 3.0, 1.5, 1.5]])  # of l2 = 0.01, then of 0.1
    rest = {"results": np.ones((2, 6), int), "path": path, "n_rows": 40, "times": 1.0, "support": None}
    cv = sht.results.CrossValidation(scores, fold_weight=np.ones(2), **rest)
    assert (cv.best, cv.k, cv.l2, cv.l0, cv.best_1se) == (2, 3, path.l2s[2], None, 4)
    np.testing.assert_allclose([cv.mean[2], cv.se[2]], [1.2, 0.2])
    for seed in range(30):
        rng, patience = np.random.default_rng(seed), (0.25, 0.5, 0.5)[seed % 3]  # of 16, 32 and 64 rows with 8 features
        support = sht.results.Support(
            rng.permuted(np.tile(np.arange(8), (5, 6, 1)), axis=-1), rng.random((5, 6, 8)) < 0.5
        )
        l2s = np.where(np.arange(8) < 4, 1, path.l2s[:, None]) if seed % 2 else path.l2s  # of each feature, too
        rest |= {"n_rows": 16 << seed % 3, "support": support, "path": dataclasses.replace(path, l2s=l2s)}
        cv = sht.results.CrossValidation(rng.standard_normal((5, 6)), fold_weight=np.ones(5), **rest)
        found = decide(cv.scores, np.ones(5), path.ks, l2s, 1.0, patience)
        assert cv.strong_ridge == found["strong_ridge_index"]
        row, level = seed % 6, np.flatnonzero(path.l2s == path.l2s[seed % 6])
        more = cv.scores[:, level] - cv.scores[:, [level[np.argmin(cv.scores.mean(0)[level])]]]
        good = more.mean(0) <= more.std(0) / 2
        assert cv.as_good(row).tolist() == path.ks[level][good].tolist()
        taken = [[u in idx[on] for u in range(8)] for idx, on in zip(*(part[:, row] for part in support), strict=True)]
        np.testing.assert_allclose(cv.shares(row), np.mean(taken, 0))
    assert sht.results.CrossValidation(np.full((5, 6), np.inf), fold_weight=np.ones(5), **rest).as_good(0).size == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"folds": 1}, "folds: needs from 2 to 40"),
        ({"folds": "five"}, "folds: needs an integer, a scikit-learn splitter or pairs"),
        ({"folds": []}, "folds: there are no folds"),
        ({"folds": np.arange(39)}, "folds: fold numbers are 40 integers"),
        ({"folds": np.arange(40) % 2 - 2}, "folds: fold numbers are 40 integers >= 0"),
        ({"folds": np.arange(40) / 2}, "folds: fold numbers are 40 integers"),
        ({"folds": ["a", "b"] * 20}, "folds: fold numbers are 40 integers"),
        ({"folds": np.zeros((40, 1), int)}, "folds: fold numbers are 40 integers"),
        ({"folds": np.zeros(40, int)}, "folds: a part of fold 0 has no row"),
        ({"folds": np.full(40, -1)}, "folds: there are no folds"),
        ({"folds": [([0, 1], [50])]}, "folds: needs row indices in 0..39"),
        ({"folds": [([], [1])]}, "folds: a part of fold 0 has no row"),
        ({"folds": [([0, 1], [])]}, "folds: a part of fold 0 has no row"),
        ({"folds": [([0, 1], [1])]}, "folds: fold 0 tests on rows it is trained on"),
        ({"groups": [1, 2]}, "groups: needs shape"),
        ({"groups": [None, *"ab" * 19, "a"]}, "groups: a label is missing"),
        ({"scoring": "error"}, "scoring: must be None"),
    ],
)
def test_bad_values(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        sht.cross_validate(screening.model(), ks=[1], solver=SOLVER, **options)


def test_folds_that_see_data_of_their_own(monkeypatch):
    """Each is its part of a run over all folds, whose path is that of all data."""
    path, calls, made = sht.solve_path(screening.model(), ks=[1, 2, 3], l2s=L2S, solver=SOLVER), [], []
    cross_validate = sht.cross_validate  # before its name in the module is another's

    def run(objective, **options):
        calls.append((objective, options))
        rng = np.random.default_rng(len(calls))
        support = sht.results.Support(rng.integers(0, 8, (2, 6, 3)), rng.random((2, 6, 3)) < 0.5)
        kept = [rng.random((2, 6)), rng.random((2, 6)), np.ones(2), path, len(calls), 1.0]
        made.append(sht.results.CrossValidation(*kept, support if options["threshold"] is None else None))
        return made[-1]

    monkeypatch.setattr(_cross_validation, "cross_validate", run)
    folds = [(range(20), range(20, 40), lambda each: (each, 0)), (range(20, 40), range(20), lambda each: (each, 1))]
    options = {"scoring": "error", "refit": 0.5, "progress": False, "l0s": None, "key": 3, "groups": "them"}
    options |= {"memory": 5, "executor": "it", "ks": [1], "l2s": [0.1], "solver": SOLVER}
    for threshold, place, l0s in ((None, "here", None), (sht.L0L1L2(0.0), None, [0.1])):
        calls.clear()
        made.clear()
        options["l0s"] = l0s
        found = cross_validate("all", folds=folds, threshold=threshold, checkpoint=place, **options)
        assert [each for each, _ in calls] == [("all", 0), ("all", 1), "all"] and found.n_rows == 3
        told = [str(own.pop("checkpoint")) for _, own in calls]
        assert told == (["here/0", "here/1", "here/all"] if place else ["None"] * 3)
        pairs = [fold[:2] for fold in folds]
        assert all(own == options | {"folds": pairs, "threshold": threshold} for _, own in calls)
        for name in ("scores", "results"):
            np.testing.assert_array_equal(getattr(found, name), [getattr(made[i], name)[i] for i in range(2)])
        if threshold is None:
            for part, first, second in zip(found.support, made[0].support, made[1].support, strict=True):
                np.testing.assert_array_equal(part, [first[0], second[1]])
        assert (found.support is None) == (threshold is not None)


def test_what_folds_do_not_take():
    prices, model = {"threshold": sht.L0L1L2(0.0)}, screening.model()
    for options in ({"refit": 0.5}, {"checkpoint": "here"}, {"memory": 5}):
        with pytest.raises(ValueError, match="refit, checkpoint, memory: a cross-validation over l0 has none"):
            sht.cross_validate(model, **prices, **options)
    with pytest.raises(ValueError, match="l0s: where every fold has data of its own"):
        sht.cross_validate(model, **prices, folds=[(range(20), range(20, 40), lambda each: each)])
    with pytest.raises(TypeError, match="objective: folds are sample weights"):
        sht.cross_validate(sht.QuadraticForm(np.eye(3), np.ones(3)), ks=[1])
    events = sht.CoxModel(*screening.data(), np.ones(40))
    with pytest.raises(TypeError, match="scoring: CoxModel has no linear predictors"):
        sht.cross_validate(events, ks=[1], scoring=lambda *_: 0.0, solver=SOLVER)
    with pytest.raises(ValueError, match="scoring: must be None"):
        sht.cross_validate(events, ks=[1], scoring="error", solver=SOLVER)


def test_one_class_is_refused():
    objective = screening.model(labels=True)
    positive = np.flatnonzero(np.asarray(objective.y) > 0)
    with pytest.raises(ValueError, match="folds: fold 0 trains without one of the classes"):
        sht.cross_validate(objective, ks=[1], folds=[(positive[1:], positive[:1])], solver=SOLVER)
    with pytest.raises(ValueError, match="classes; every class needs rows in two groups or more"):
        sht.cross_validate(objective, ks=[1], folds=2, groups=np.asarray(objective.y), solver=SOLVER)


def test_scores_that_are_infinite_decide_nothing():
    """A column that holds one is behind all others; and where every column does, all rules take the same row."""
    scores = np.array([[3.0, 1, 5, 2.5], [4.0, 2, 5, 2.4], [3.5, np.inf, 5, 2.6]])
    sizes, l2s = np.array([1, 1, 2, 1]), np.array([0.1, 0.1, 0.1, 1.0])
    found = decide(scores, np.ones(3), sizes, l2s)
    assert (found["best_index"], found["best_1se_index"], found["strong_ridge_index"]) == (3, 3, 3)
    np.testing.assert_allclose(found["difference"], [0, 1.0])
    for best, finite in ((3, []), (0, [0])):  # of nothing finite the fewest units, then the largest l2
        table = np.full((3, 4), np.inf)
        table[:, finite] = scores[:, finite]
        found = decide(table, np.ones(3), sizes, l2s)
        assert found["best_index"] == found["strong_ridge_index"] == best
        assert not np.isnan(found["difference"]).any() and not found["difference_se"].any()
    for times in (1, 4):
        mean, se = moments(np.full((times, 2), [1.0, 3.0]), np.ones(times), times)
        assert mean.tolist() == [1, 3] and se.tolist() == [0, 0]


def test_what_tells_rows_apart():
    """Numbers, labels of any kind, or several responses, of rows with a weight; else there is nothing."""
    labels, weights = np.array(["b", "a", "b", "c"]), np.array([1.0, 2, 0, 1])
    np.testing.assert_allclose(residuals(labels, weights), weights * (np.array([1, 0, 1, 2]) - 0.75))
    both = np.array([[1.0, 2], [3, 4], [0, 0], [2, 1]])
    np.testing.assert_allclose(residuals(both, weights), weights * (np.array([5, 11, 0, 4]) - 31 / 4))
    np.testing.assert_array_equal(residuals(labels, 0 * weights), np.zeros(4))
    assert not tied(labels, weights) and tied(labels, weights + 1) and tied(both, weights)


def test_repeats_are_other_folds_unless_every_row_is_one():
    y, weights = np.arange(7.0) // 2, np.ones(7)
    found = folds_of(3, y, weights, repeats=4, content=[np.zeros(7), np.arange(7.0)])
    assert len({tuple(np.sort(test)) for _, test in found}) > 6 and len(found) == 12
    assert sorted(len(test) for _, test in folds_of(7, y, weights, repeats=4)) == 7 * [1]
    first, second = (folds_of(3, each, weights, content=[y]) for each in (y, np.stack([y, y], 1)))
    assert all(np.array_equal(one[1], other[1]) for one, other in zip(first, second, strict=True))
    with pytest.raises(ValueError, match="own: needs an integer"):
        folds_of(True, y, weights, name="own")


def test_rounding_orders_no_rows():
    """Rows that the first content tells apart by rounding alone are ordered by the next one."""
    rng = np.random.default_rng(0)
    y, first, second = np.tile([0.0, 1.0], 12), np.repeat([0.0, *rng.standard_normal(5)], 4), rng.permutation(24) / 7
    for scale in (1.0, 1e-12, 1e12):
        near = scale * first * (1 + 1e-14 * rng.standard_normal(24))
        pairs = zip(*(folds_of(4, y, np.ones(24), content=[each, second]) for each in (first, near)), strict=True)
        assert all(np.array_equal(test, other) for (_, test), (_, other) in pairs), scale
