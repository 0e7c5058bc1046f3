"""The choice of k and l2: the row that the rule names, the model there, and what the estimators make of it."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import screening
from sklearn.model_selection import KFold

import sparsehtp as sht
from sparsehtp.grids import choose as _choose
from sparsehtp.grids.choose import default_refit
from sparsehtp.grids.cross_validation import decide, sizes_told

RNG = np.random.default_rng(3)
X = RNG.standard_normal((60, 9))
Y = X[:, 1] - 0.7 * X[:, 4] + 0.4 * X[:, 6] + 0.8 * RNG.standard_normal(60)
LABELS = np.where(Y + 0.3 * RNG.standard_normal(60) > 0, 1.0, -1.0)
L2S = [1e-6, 1e-2, 0.3]
KS = [0, 1, 2, 3, 5, 8]


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


def model(loss=None, y=Y, **options):
    options = {"l2": 1e-3, "fit_intercept": True, "standardize": True} | options
    return sht.LinearModel(X, y, loss or sht.losses.Squared(), **options)


def rows_of(scores, weight, times=1):
    """The rows of "best", "one-se" and "strong-ridge" by the definition, one row at a time; n >= 4 p."""
    free = len(scores) / times - 1  # repeats of folds are no other folds
    mean = [sum(w * s for w, s in zip(weight, column, strict=True)) / sum(weight) for column in scores.T]
    best = min(range(len(mean)), key=mean.__getitem__)
    spread = sum(w * (s - mean[best]) ** 2 for w, s in zip(weight, scores[:, best], strict=True)) / sum(weight)
    limit = mean[best] + (spread / free) ** 0.5
    near = [i for i in range(len(mean)) if mean[i] <= limit]
    k, l2 = np.tile(KS, len(L2S)), np.repeat(L2S, len(KS))

    def near_enough(row, other, errors):
        d = scores[:, row] - scores[:, other]
        average = sum(w * each for w, each in zip(weight, d, strict=True)) / sum(weight)
        spread = sum(w * (each - average) ** 2 for w, each in zip(weight, d, strict=True)) / sum(weight)
        return average <= errors * (spread / free) ** 0.5

    for level in sorted(L2S):  # the last that is near enough has the largest l2
        row = min(np.flatnonzero(l2 == level), key=mean.__getitem__)
        if near_enough(row, best, 2):
            strong = row
    same = [row for row in np.flatnonzero(l2 == l2[strong]) if k[row] <= k[strong]]
    strong = min((row for row in same if near_enough(row, strong, 0.5)), key=k.__getitem__)
    return {"best": best, "one-se": min(near, key=lambda i: (k[i], -l2[i], mean[i])), "strong-ridge": strong}


def test_l2_of_features_with_one_sum_are_several():
    l2s = np.stack([np.linspace(0, 1, 9), np.linspace(1, 0, 9), np.full(9, 0.5), np.linspace(1, 0, 9)])
    scores = np.random.default_rng(0).standard_normal((3, 8))
    found = l2s[decide(scores, np.ones(3), np.tile([1, 3], 4), np.repeat(l2s, 2, axis=0))["contenders"] // 2]
    assert len(found) == 3
    np.testing.assert_array_equal(np.unique(found, axis=0), np.unique(l2s, axis=0))


@pytest.mark.parametrize(
    ("loss", "rule"),
    [
        (sht.losses.Squared(), "best"),
        (sht.losses.Squared(), "strong-ridge"),
        slow(sht.losses.Huber(0.5), "best"),
        slow(sht.losses.Logistic(), "one-se"),
    ],
)
def test_by_folds(x64, loss, rule):
    objective = model(loss, LABELS if loss.classification else Y)
    choice = sht.choose(objective, None, ks=KS, l2s=L2S, rule=rule)
    assert choice.scores.scores.shape == (4 * 5, len(choice.path)) and choice.scores.times == 4
    row = rows_of(choice.scores.scores, choice.scores.fold_weight, 4)[rule]
    assert (choice.row, choice.k, choice.l2) == (row, choice.path.ks[row], choice.path.l2s[row])
    alone = sht.solve(objective.reweighted(l2=choice.l2), sht.Sparsity(choice.k))
    assert choice.selected.value <= min(alone.value, choice.path.value[row]) * (1 + 1e-9)
    assert choice.refit == (0.1 if rule == "strong-ridge" else 1)
    weaker = objective.reweighted(l2=choice.refit * choice.l2)
    kept = sht.Sparsity(0, keep=np.flatnonzero(choice.selected.x))
    again = sht.solve(weaker, kept)
    np.testing.assert_allclose(choice.solution.x, again.x, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(choice.solution.value, again.value, rtol=1e-9)


@pytest.mark.parametrize(
    ("loss", "threshold"),
    [
        (sht.losses.Squared(), sht.GroupSparsity(np.arange(9) // 2, 0, keep=[2])),
        slow(sht.losses.Logistic(), None),
        slow(sht.losses.Logistic(), sht.Sparsity(0, lower=0)),
    ],
)
def test_folds_score_refits(x64, loss, threshold):
    objective = model(loss, LABELS if loss.classification else Y)
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    cv = sht.cross_validate(objective, ks=[1, 2], l2s=[0.5], folds=folds, threshold=threshold, refit=0.2)
    plain = sht.cross_validate(objective, ks=[1, 2], l2s=[0.5], folds=folds, threshold=threshold)
    for name in ("coefficients", "value", "loss"):
        np.testing.assert_array_equal(getattr(cv.path, name), getattr(plain.path, name))
    for fold, (train, held) in enumerate(folds):
        weights = np.isin(np.arange(60), train).astype(float)
        part = objective.reweighted(weights, 0.5)
        fit = sht.solve_path(part, ks=[2], threshold=threshold).at(0)
        keep = np.flatnonzero(fit.x)
        signs = threshold is not None and threshold.kind != "groups"
        kind = sht.Sparsity(0, keep=keep, lower=0 if signs else None)
        x = sht.solve(part.reweighted(l2=0.1), kind)
        eta = X[held] @ np.asarray(x.x) + float(x.intercept)
        np.testing.assert_allclose(cv.scores[fold, 1], np.mean(loss.value(eta, objective.y[held])), rtol=1e-6)


def test_what_is_refitted_and_where():
    assert default_refit(model(), "strong-ridge", L2S) == 0.1
    assert default_refit(model(), "strong-ridge", None) == default_refit(model(), "best", L2S) == 1
    hinge = model(sht.losses.Hinge(), LABELS)  # has no second derivative
    assert default_refit(hinge, "strong-ridge", L2S) == 1
    with pytest.raises(TypeError, match="refit: needs an objective with l2 and a loss with a second derivative"):
        sht.choose(hinge, ks=[1], l2s=L2S, refit=0.5)


def test_a_choice_says_what_its_row_has():
    for l0s, l0 in ((None, None), (np.array([0.3, 0.1]), 0.1)):
        path = SimpleNamespace(ks=np.array([4, 7]), l2s=np.array([0.1, 0.2]), l0s=l0s)
        for paths in (path, (path, None)):
            found = _choose.Choice(None, None, paths, 1.0, 1, None, "best")
            assert (found.k, found.l2, found.l0) == (7, 0.2, l0)


def test_sizes_are_told_as_a_range_where_none_is_left_out():
    grid = np.tile([0, 1, 2, 3, 5, 8], 2)
    for sizes, told in (
        ([3], "no other k is as good as k = 3"),
        ([2, 3], "k = 2, 3 are as good as the best"),
        ([2, 3, 5], "k = 2 to 5 are as good as the best"),
        ([2, 5, 8], "k = 2, 5, 8 are as good as the best"),
    ):
        assert sizes_told(np.array(sizes), grid) == told
        assert sizes_told(np.array(sizes), grid, 0.1) == f"{told} at l2 = 0.1"


@pytest.mark.parametrize("seed", range(20))
def test_the_rules_are_their_definitions(seed):
    rng, times = np.random.default_rng(seed), 1 + seed % 2
    scores = rng.standard_normal((4 * times, 1)) + 0.5 * rng.standard_normal((4 * times, len(KS) * len(L2S)))
    scores += np.linspace(0, 1, len(KS) * len(L2S)) * rng.standard_normal()
    weight, grid = rng.uniform(0.5, 2, 4 * times), (np.tile(KS, len(L2S)), np.repeat(L2S, len(KS)))
    table = decide(scores, weight, *grid, times, 0.5)
    names = {"best": "best_index", "one-se": "best_1se_index", "strong-ridge": "strong_ridge_index"}
    assert {name: table[row] for name, row in names.items()} == rows_of(scores, weight, times)
    impatient, never = (decide(scores, weight, *grid, times, **more) for more in ({}, {"patience": 0.0}))
    assert impatient["strong_ridge_index"] == never["strong_ridge_index"]


@pytest.mark.later
def test_the_estimator_chooses_the_same():
    folds = list(KFold(5, shuffle=True, random_state=1).split(X))
    estimator = sht.SparseRegressor(cv=folds).fit(X, Y)
    with jax.enable_x64(True):
        ks, l2s = np.unique(estimator.cv_results_["ks"]), np.unique(estimator.cv_results_["l2s"])
        choice = sht.choose(model(), None, ks=ks, l2s=l2s, folds=folds)
    assert (estimator.k_, estimator.l2_) == (choice.k, choice.l2)
    np.testing.assert_allclose(estimator.coef_, choice.solution.x, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(estimator.cv_results_["mean_loss"], choice.scores.mean, rtol=1e-8)


@pytest.mark.parametrize(
    ("objective", "options", "sentence"),
    [
        (
            model(),
            {"rule": "cp"},
            "rule: must be one of strong-ridge, one-se, best, aic, bic, ebic, sic, gic, or a function, got 'cp'",
        ),
        ([], {}, "objective: needs at least one"),
        (model(), {"folds": 1}, "folds: needs from 2 to 60"),
        (
            model(),
            {"threshold": sht.GroupSparsity(np.arange(9) // 2, 0, keep=[2]), "ks": [5]},
            "ks: the largest is 5 beside 1 always kept, but there are only 5 groups",
        ),
        (model(), {"refit": 0.0}, "refit: needs a positive part of l2"),
    ],
)
def test_bad_values(objective, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        sht.choose(objective, **options)


def scores(number):
    return np.random.default_rng(number).standard_normal((5, 6))


@pytest.mark.parametrize("rule", ["best", "one_se", "strong-ridge", "bic"])
@pytest.mark.parametrize("number", [1, 2])
def test_what_a_choice_asks_for(monkeypatch, rule, number):
    """Of its cross-validations, paths and last fits, none of which is computed."""
    path = sht.solve_path(screening.model(), ks=[1, 2, 3], l2s=[0.01, 0.1], solver=screening.Screening())
    asked = {"folds": [], "paths": [], "fits": []}

    def path_of(each):
        return dataclasses.replace(path, coefficients=path.coefficients * (1 + objectives.index(each)))

    def validate(objective, **options):
        asked["folds"].append((objective, options))
        support = sht.results.Support(np.zeros((5, 6, 3), int), np.ones((5, 6, 3), bool))
        rest = {"path": path_of(objective), "n_rows": 40, "times": 4.0, "support": support}
        return sht.results.CrossValidation(scores(len(asked["folds"])), np.ones((5, 6)), np.ones(5), **rest)

    monkeypatch.setattr(_choose, "cross_validate", validate)
    monkeypatch.setattr(
        _choose, "solve_path", lambda each, **options: (asked["paths"].append((each, options)), path_of(each))[1]
    )

    def fit(model, threshold, solver, start, part, **ending):
        asked["fits"].append((model, threshold, solver, start, part, ending))
        return "found", None if part is None else "again"

    monkeypatch.setattr(_choose, "solve_and_refit", fit)

    objectives, criterion = [screening.model(), screening.model(l2=0.3)][:number], rule == "bic"
    options = {"solver": screening.Screening(), "key": jax.random.key(3), "progress": False, "memory": 9}
    ending = {"max_steps": 7, "termination": None, "throw": False}
    given, folds = objectives if number == 2 else objectives[0], np.int64(4)
    folds = [(np.arange(20), np.arange(20, 40))] if rule == "best" else folds
    samples = {"n_units": 20, "total_weight": 50.0}
    more = ending | {"samples": samples, "held": None if number == 1 else (17, 1.0)}
    more["checkpoint"] = place = None if rule == "best" else "here"
    found = sht.choose(given, ks=[1, 2, 3], l2s=[0.01, 0.1], rule=rule, folds=folds, scoring="own", **options, **more)
    refit = 0.1 if rule == "strong-ridge" else 1
    for i, (each, own) in enumerate(asked["paths" if criterion else "folds"]):
        assert each is objectives[i] and (own.pop("ks"), own.pop("l2s")) == ([1, 2, 3], [0.01, 0.1])
        assert str(own.pop("checkpoint")) == str(place if number == 1 or place is None else f"here/{i}")
        split = folds if criterion else own.pop("folds")
        assert split is folds or (len(split) == 16 if number == 2 else split == folds)
        assert rule != "best" or split is folds
        assert criterion or (own.pop("scoring"), own.pop("refit")) == ("own", refit)
        assert isinstance(own.pop("threshold"), sht.Sparsity) and own == options | {"l0s": None}
    own_path = dataclasses.replace(path, **samples)
    if criterion:
        expected = number * sht.information_criterion(own_path, rule).values
        np.testing.assert_allclose(found.scores.values, expected)
        row = np.argmin(expected)
    else:
        np.testing.assert_allclose(found.scores.scores, np.mean([scores(1 + i) for i in range(number)], 0))
        assert found.scores.support.idx.shape == (5, 6, 3 * number) and found.scores.path.n_units == 20
        assert (found.scores.n_rows, found.scores.times) == ((40, 4.0), (17, 1.0))[number - 1]
        name = {"best": "best", "one_se": "best_1se", "strong-ridge": "strong_ridge"}[rule]
        row = getattr(found.scores, name)
    assert (found.row, found.k, found.l2, found.l0) == (row, path.ks[row], path.l2s[row], None)
    assert (found.refit, found.rule) == (refit, rule.replace("_", "-")) and len(asked["fits"]) == number
    paths = found.path if number == 2 else (found.path,)
    for each, own, (model, threshold, solver, start, part, last) in zip(objectives, paths, asked["fits"], strict=True):
        np.testing.assert_allclose(model.l2, path.l2s[row], rtol=1e-6)
        assert threshold.k == path.ks[row] and model.y is each.y and solver is options["solver"]
        np.testing.assert_array_equal([start.x, own.at(row).x], [path_of(each).at(row).x] * 2)
        assert last == ending | {"key": options["key"]} and (part is None if refit == 1 else np.isclose(part, 0.1))
    solved = "found" if refit == 1 else "again"
    assert (found.solution, found.selected) == ((solved, "found") if number == 1 else ((solved,) * 2, ("found",) * 2))


def test_what_is_out_of_the_question_for_one_objective_is():
    """Even where another one is fitted without an error: infinity less infinity is no score."""

    def rule(loss, k, p, W):
        return np.where(loss < 1e-3, -np.inf, np.where(k == 1, np.inf, loss))

    found = sht.choose([model(y=X[:, 1]), model()], sht.Sparsity(3), ks=[0, 1, 2, 3], rule=rule)
    np.testing.assert_allclose(found.scores.values[0], sum(path.loss[0] for path in found.path), rtol=1e-6)
    np.testing.assert_array_equal(found.scores.values[1:], [np.inf, -np.inf, -np.inf])
    assert found.row == 2
