"""k="cv", candidates and criteria: what they choose, and the attributes that they leave."""

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.feature_selection import SelectFromModel
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold

import sparsehtp as sht
from sparsehtp.estimators import base, fit, parameters, selection
from sparsehtp.estimators.padding import Padding, bucket
from sparsehtp.estimators.regressor import without_features
from sparsehtp.estimators.scoring import make_scoring
from sparsehtp.estimators.selection import check_total, make_folds, make_levels, noise_of_choice, split_triples
from sparsehtp.stopping import Cycle, SmallGradient, SmallStep

N, P = 60, 8
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, P)) * np.logspace(-1, 1, P)
Y = (X / X.std(0))[:, [1, 4]] @ [2.0, -1.5] + 0.5 * RNG.standard_normal(N)
LABELS = np.where(Y > 0, "yes", "no")
CLASSES, HALVES = np.digitize(Y, [-1, 1]), np.median(Y) < Y
SEVERAL = np.stack([Y, X[:, 2] - Y], axis=1)
COUNTS = np.floor(np.exp(0.4 * (Y + 1)))
FOLDS, KS = KFold(3), [0, 1, 2, 5]


def test_attributes():
    """Of the row that each rule takes, however it is spelled."""
    names = {"strong-ridge": "strong_ridge_index", "one_se": "best_1se_index", "best": "best_index"}
    for rule, index in names.items():
        model = sht.SparseRegressor(rule=rule).fit(X, Y)
        results, path, row = model.cv_results_, model.path_, model.cv_results_["row"]
        assert results["scores"].shape == (4 * 5, len(path)) and len(path) == 4 * (P + 1)
        np.testing.assert_array_equal([results["ks"], results["l2s"]], [path.ks, path.l2s])
        assert results["rule"] == rule.replace("_", "-") and row == results[index]
        assert (path.ks[row], path.l2s[row]) == (model.k_, model.l2_)
        assert model.refit_l2_ == (0.1 if rule == "strong-ridge" else 1) * model.l2_
        np.testing.assert_allclose(
            model.coef_, ridge(X, Y, np.flatnonzero(path.x[row]), model.refit_l2_), rtol=1e-7, err_msg=rule
        )
    assert row == results["mean_loss"].argmin()


def ridge(X, y, support, l2):
    """Coefficients on a support with standardised columns, by the normal equations."""
    A = X[:, support] - X[:, support].mean(0)
    gram = A.T @ A / len(y) + l2 * np.diag(A.var(0))
    w = np.zeros(X.shape[1])
    w[support] = np.linalg.solve(gram, A.T @ (y - y.mean()) / len(y))
    return w


@pytest.mark.parametrize("labels", [False, True])
def test_the_same_data_choose_the_same(labels):
    """Whatever the order of rows and columns, units and seed; and each row is held out once in every repeat."""
    y = np.where(Y + np.random.default_rng(0).standard_normal(N) > 0, 1.0, 0.0) if labels else np.round(Y, 1)
    kind = sht.SparseClassifier if labels else sht.SparseRegressor
    first = kind().fit(X, y)
    rng = np.random.default_rng(1)
    for seed in range(2):
        rows, columns = rng.permutation(N), rng.permutation(P)
        units = 10.0 ** rng.integers(-3, 4, P)
        other = kind(random_state=seed).fit(units * X[rows][:, columns] + rng.integers(0, 9, P), y[rows])
        np.testing.assert_allclose(other.cv_results_["scores"], first.cv_results_["scores"], rtol=1e-6)
        np.testing.assert_array_equal(other.support_, first.support_[columns])
        np.testing.assert_array_equal(other.cv_results_["shares"], first.cv_results_["shares"][columns])
    pairs = make_folds(5, X, y, np.ones(N), "classes" if labels else "rows", repeats=4)
    held = np.array([np.isin(np.arange(N), test) for _, test in pairs]).reshape(4, 5, N)
    assert (held.sum(1) == 1).all() and len({tuple(each[0]) for each in held}) == 4


@pytest.mark.parametrize("n", [1, 7, 19, 60, 79, 250, 3000])
@pytest.mark.parametrize("p", [1, 6, 19, 45, 500])
@pytest.mark.parametrize("groups", [False, True])
def test_candidates_of_k_and_their_padding(n, p, groups):
    """By the words of the parameter k; padded they are as many as of the padded shape, and cut the same again."""
    most = min(max(n // 4, 5), n // 2, p)
    every = [k for k in (*range(11), 12, 14, 16, 18, 20, 25, 30, 40, 50) if k <= most]
    threshold = sht.GroupSparsity(np.arange(p), 0) if groups else sht.Sparsity(0)
    padding = Padding(n, p, True, False)
    rows, columns = padding.size[0], p if groups else padding.size[1]  # groups are not padded
    for given in (None, np.array([0, min(n, p)])):
        ks = np.array(every) if given is None else given
        plain = make_levels(n, p, Padding(n, p, False, False), threshold, given)
        np.testing.assert_array_equal(plain.padded, ks)
        for samples, padded in ((n, rows), (2 * n + 0.5, bucket(2 * n))):  # rows, or the sum of their weights
            found = make_levels(samples, p, padding, threshold, given)
            wide = make_levels(padded, columns, Padding(rows, columns, False, False), threshold, given)
            size = wide.ks.size if given is None else bucket(2)
            assert (found.padded.size, found.k_max) == (size, wide.k_max) and found.k_max >= found.ks.max()
            own = found.ks
            np.testing.assert_array_equal(found.padded, np.pad(own, (0, size - own.size), mode="edge"))
            grid = np.stack([np.tile(found.padded, 3), np.repeat([1, 2, 3], size)], axis=1)
            np.testing.assert_array_equal(
                found.cut(grid), np.stack([np.tile(own, 3), np.repeat([1, 2, 3], own.size)], 1)
            )
        np.testing.assert_array_equal(make_levels(n, p, padding, threshold, given).ks, ks)


def test_the_noise_of_a_choice_is_that_of_the_next_smaller_size():
    scores = np.array([[5.0, 3, 1, 0, 5, 2, 2, 1], [5.0, 1, 0, 3, 3, 2, 1, 0]])
    table = {"scores": scores, "fold_weight": np.ones(2), "times": 1, "ks": np.tile(np.arange(4), 2)}
    for l2s in (np.repeat([1.0, 2], 4), np.repeat([[1.0, 2], [1, 3]], 4, axis=0)):
        for row, error in ((0, None), (2, 0.5), (3, 2.0), (4, None), (7, 0.0)):
            assert noise_of_choice(table | {"l2s": l2s, "row": row}) == error
    assert noise_of_choice(table | {"l2s": np.ones(8), "row": 1, "scores": np.full((2, 8), np.inf)}) is None


@pytest.mark.parametrize("kind", [sht.SparseRegressor, sht.SparseClassifier, sht.SparseCox])
def test_folds_of_few_different_rows_do_not_depend_on_their_order(kind, monkeypatch):
    """Rows with equal features and y are told apart by their weights, other targets and offsets, in float32 too."""
    rng = np.random.default_rng(2)
    n = 4000
    features, weights = rng.integers(0, 2, (n, 5)).astype(np.float32), rng.integers(1, 3, n).astype(float)
    y, offset = np.column_stack([rng.random(n).round(1), rng.integers(0, 2, n)]), rng.random((n, 2)).round(1)
    if kind is not sht.SparseRegressor:  # of several responses
        y, offset = y[:, 1] if kind is sht.SparseClassifier else y, offset[:, 0]

    def stop(problem, folds, *_):
        raise StopIteration(folds)

    monkeypatch.setattr(base, "fit_targets", stop)

    def held(order):
        with pytest.raises(StopIteration) as stopped:
            kind(cv=3, solver="htp").fit(features[order], y[order], weights[order], offset=offset[order])
        (pairs,) = stopped.value.args
        rows = np.column_stack([features, y, weights, offset])[order]
        return [np.sort(rows[test].view([("", rows.dtype)] * rows.shape[1]), axis=0) for _, test in pairs]

    for one, other in zip(held(np.arange(n)), held(rng.permutation(n)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "name", ["sic", *(pytest.param(each, marks=pytest.mark.later) for each in ("aic", "bic", "ebic"))]
)
def test_criteria(name):
    strong = X[:, 1] / X[:, 1].std() - X[:, 4] / X[:, 4].std() + 0.05 * np.random.default_rng(1).standard_normal(N)
    model = sht.SparseRegressor(name, solver="foba").fit(X, strong)
    assert model.cv_results_ is None
    # By the formulas, of residuals of the path's own coefficients without l2.
    k, coef = np.arange(P + 1), model.path_.x[: P + 1]
    residuals = strong - strong.mean() - coef @ (X - X.mean(0)).T
    penalty = {"aic": 2 * k, "bic": k * np.log(N), "sic": k * np.log(P) * np.log(np.log(N))}
    penalty["ebic"] = penalty["bic"] + 2 * np.log([math.comb(P, each) for each in k])
    assert model.k_ == np.argmin(N * np.log(np.mean(residuals**2, axis=1)) + penalty[name]) >= 2


@pytest.mark.slow
def test_l2_for_each_feature():
    each = np.linspace(0.1, 0.2, P)
    for k in ("cv", "bic"):
        np.testing.assert_array_equal(sht.SparseRegressor(k, l2=each).fit(X, Y).l2_, each)


@pytest.mark.slow
def test_a_weight_counts_as_rows_in_a_criterion():
    weights = np.random.default_rng(0).integers(1, 3, N)
    weighted = sht.SparseRegressor("bic", solver="foba").fit(X, Y, weights)
    repeated = clone(weighted).fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights))
    assert weighted.path_.total_weight == weights.sum()
    np.testing.assert_array_equal(repeated.support_, weighted.support_)


@pytest.mark.slow
def test_fewer_folds_where_data_are_few():
    with pytest.warns(UserWarning, match="^cv: 3 folds"):
        model = sht.SparseClassifier(solver="foba").fit(X[:20], np.arange(20) >= 17)
    assert model.cv_results_["scores"].shape[0] == 3


@pytest.mark.later
def test_a_criterion_takes_candidates():
    by_rule = sht.SparseRegressor(k=range(P), solver="forward", rule="bic").fit(X, Y)
    by_name = sht.SparseRegressor(k="bic", solver="forward").fit(X, Y)
    assert by_rule.k_ == by_name.k_ and by_rule.cv_results_ is None and len(by_rule.path_) == P


@pytest.mark.later
def test_folds_choose_l2_for_a_given_k():
    alone = sht.SparseRegressor(k=2, l2=[1.0, 0.01], solver="forward", cv=KFold(3)).fit(X, Y)
    assert alone.k_ == 2 and alone.cv_results_["scores"].shape == (3, 2)


CHOOSERS = [
    sht.LowRankRegressor(),
    sht.SparseLDA(),
    pytest.param(sht.SparseRegressor(solver="foba"), marks=pytest.mark.slow),
    pytest.param(sht.SparseClassifier(loss="softmax"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("estimator", CHOOSERS, ids=lambda estimator: type(estimator).__name__)
def test_folds_count_rows_without_weight(estimator):
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(90) % 3)
    data = rng.standard_normal((90, 6)) + y[:, None] * [1, 1, 0, 0, 0, 0]
    weights = (rng.random(90) > 0.3).astype(float)
    folds = list(KFold(3).split(data))
    with_all = clone(estimator).set_params(cv=folds).fit(data, y, weights)
    masks = [tuple(np.isin(np.arange(90), part) for part in fold) for fold in folds]
    for cv in (np.repeat(np.arange(3), 30), masks):
        again = clone(estimator).set_params(cv=cv).fit(data, y, weights)
        np.testing.assert_array_equal(again.coef_, with_all.coef_)
    rows = np.flatnonzero(weights)
    among = [tuple(np.flatnonzero(np.isin(rows, part)) for part in fold) for fold in folds]
    without = clone(estimator).set_params(cv=among).fit(data[rows], y[rows])
    np.testing.assert_allclose(with_all.coef_, without.coef_, rtol=1e-9)
    with pytest.raises(ValueError, match="cv: a part of fold 0 has no row"):
        clone(estimator).set_params(cv=[(rows, np.flatnonzero(weights == 0))]).fit(data, y, weights)


@pytest.mark.parametrize("y", [[1.0], [[1.0, 2.0]]])
def test_one_row(y):
    with pytest.warns(UserWarning, match="ebic is used instead"):
        model = sht.SparseRegressor(solver="htp").fit(np.ones((1, 10)), y)
    np.testing.assert_array_equal(model.predict(np.zeros((1, 10))), y)
    assert model.k_ == 0
    one = sht.SparseRegressor(k=1, solver="htp").fit(np.ones((1, 10)), y)
    np.testing.assert_allclose(one.predict(np.ones((1, 10))), y)


@pytest.mark.slow
def test_wide_standard_errors_do_not_empty_the_model():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((2200, 40))
    mean = np.exp(0.3 + features[:, :6] @ [0.8, -0.6, 0.5, 0.5, -0.4, 0.3])
    counts = rng.negative_binomial(2, 2 / (2 + mean)).astype(float)
    models = (sht.SparseRegressor(loss="poisson", rule=rule) for rule in ("strong-ridge", "best"))
    strong, best = (model.fit(features[:200], counts[:200]).score(features[200:], counts[200:]) for model in models)
    assert strong > 0.97 * best > 0.4


def test_weights_that_are_alike_but_for_rounding_are_none_to_a_scorer():
    def scorer(estimator, X, y):
        return -np.mean(np.abs(y - estimator._predictor(X)))

    score = make_scoring(scorer, SimpleNamespace(), lambda y: y)
    y, eta = np.array([1.0, 2, 4]), np.array([1.0, 3, 2])
    for unit in (1e-8, 1.0, 1e8):
        for rounded in ([1, 1, 1], [1, 1 + 1e-6, 1]):
            assert score(y, eta, unit * np.array(rounded, np.float32)) == 1
        with pytest.raises(ValueError, match="takes no sample_weight"):
            score(y, eta, unit * np.array([1, 1.01, 1]))
    taken = make_scoring(lambda estimator, X, y, **more: more["sample_weight"].sum(), SimpleNamespace(), lambda y: y)
    weights = np.array([1.0, 2, 3])
    assert taken(y, eta, weights) == -6
    named = {name: make_scoring(name, sht.SparseRegressor(), lambda y: y) for name in ("neg_max_error", "r2")}
    assert named["r2"](y, eta, weights) == pytest.approx(-r2_score(y, eta, sample_weight=weights))
    with pytest.raises(ValueError, match=r"scoring: .*max_error.* takes no sample_weight"):
        named["neg_max_error"](y, eta, weights)


def test_shares_that_sum_to_one_but_for_rounding_are_priors():
    for priors in ([0.7, 0.2, 0.1], [1 / 3] * 3, np.full(3, 1 / 3, np.float32), [0.1] * 10):
        given = sht.SparseLDA(priors=priors)._check_priors(np.ones(len(priors)))
        np.testing.assert_array_equal(given, priors)
    for priors in ([0.7, 0.2, 0.101], [0.7, 0.2, 0.099], [0.5, 0.5, 0]):
        with pytest.raises(ValueError, match="priors: needs 3 positive numbers with sum one"):
            sht.SparseLDA(priors=priors)._check_priors(np.ones(3))


def test_a_rate_without_features_is_the_mean_and_never_infinite():
    rng = np.random.default_rng(0)
    y, weights, offset = (
        rng.poisson(3.0, (6, 2)).astype(float),
        rng.uniform(0.5, 2, (6, 2)),
        rng.standard_normal((6, 2)),
    )
    found = without_features(y, weights, offset)
    np.testing.assert_allclose(np.sum(weights * np.exp(found), axis=0), np.sum(weights * y, axis=0), rtol=1e-11)
    for nothing in (without_features(0 * y, weights, offset), without_features(y, 0 * weights, offset)):
        assert np.isfinite(nothing).all() and (nothing < -20).all()
    np.testing.assert_allclose(without_features(y, weights, None), np.tile(np.log(np.average(y, 0, weights)), (6, 1)))


def test_a_criterion_needs_no_samples_where_it_chooses_nothing():
    check_total("sample_weight", 1.0, 1, np.array([3, 3]))
    for total, text in (
        (1.0, r"^k: 1 samples \(events\) are too few"),
        (2.5, "^sample_weight: the sum of the weights, 2.5"),
    ):
        with pytest.raises(ValueError, match=text):
            check_total("sample_weight", total, 1, np.array([2, 3]))


def test_the_features_of_a_fold_are_finite():
    pairs, seen = split_triples([(0, 1, X), (1, 0, 2 * X)], X)
    assert pairs == [(0, 1), (1, 0)] and (seen[1] == 2 * X).all() and split_triples(pairs, X) == (pairs, [])
    for part in (X[:, 1:], np.where(np.arange(P) == 3, np.nan, X)):
        with pytest.raises(ValueError, match=r"^cv: the features of a fold need the shape of X"):
            split_triples([(0, 1, part)], X)


def test_a_fit_that_is_no_number_starts_no_other():
    model = sht.SparseRegressor(2, warm_start=True)
    for coef, intercept, starts in (([1.0, 2], 3.0, True), ([1, np.inf], 3, False), ([1, 2], np.nan, False)):
        model.coef_, model.intercept_ = np.array(coef), intercept
        assert (model._last(1, 2) is not None) == starts and model._last(2, 2) is model._last(1, 3) is None
    other = sht.SparseCox()  # which never starts from the last fit
    other.coef_ = np.ones(2)
    assert other._last(1, 2) is None


# --- candidates, scorers, and rows that stay together ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "target", "scoring", "more"),
    [
        (sht.SparseRegressor, Y, "neg_mean_absolute_error", {}),
        (sht.SparseRegressor, COUNTS, "neg_mean_absolute_error", {"loss": "poisson", "l2": 0.1, "solver": "htp"}),
        (sht.SparseClassifier, LABELS, "roc_auc", {}),
        (sht.SparseClassifier, HALVES, "accuracy", {"class_weight": {False: 1, True: 7.3}, "cv": StratifiedKFold(3)}),
        pytest.param(
            *(sht.SparseClassifier, CLASSES, "neg_log_loss", {"loss": "softmax", "l2": 0.05}), marks=pytest.mark.slow
        ),
        pytest.param(sht.SparseRegressor, SEVERAL, "r2", {"l2": 1e-3, "solver": "htp"}, marks=pytest.mark.slow),
    ],
)
def test_candidates_score_as_in_a_grid_search(kind, target, scoring, more):
    solver = "auto" if more.get("loss") == "softmax" else "forward"
    options = {"l2": 1e-2, "cv": FOLDS, "rule": "best", "solver": solver} | more
    own = kind(k=KS, scoring=scoring, **options).fit(X, target)
    reference = GridSearchCV(kind(**options), {"k": KS}, cv=options["cv"], scoring=scoring, error_score="raise").fit(
        X, target
    )
    scores = np.array([reference.cv_results_[f"split{i}_test_score"] for i in range(3)])
    np.testing.assert_allclose(-own.cv_results_["scores"], scores, rtol=1e-6)
    assert own.k_ == reference.best_params_["k"]
    np.testing.assert_allclose(own.coef_, reference.best_estimator_.coef_, rtol=1e-6)


GRID, EACH = sht.SparseRegressor._l2_grid, np.linspace(0.1, 0.2, P)
PLANS = [  # parameters, k, rule, candidates of k, l2, its candidates, the part of it that is refitted at, sizes
    ({"rule": "one_se"}, None, "one-se", None, 1e-6, GRID, None, {"k": 0}),
    ({"k": 3}, 3, None, None, 1e-6, GRID, None, {"k": 3}),
    ({"k": 3, "l2": [1.0, 0.1], "rule": "one_se"}, None, "one-se", [3], 1e-6, [1.0, 0.1], None, {"k": 0}),
    ({"k": "bic", "l2": (0.5, 0.0)}, None, "bic", None, 1e-6, [0.5, 0.0], None, {"k": 0}),
    ({"k": np.array([2, 0, 2]), "l2": 0.5, "rule": "bic"}, None, "bic", [0, 2], 0.5, [0.5], 1.0, {"k": 0}),
    ({"l2": EACH}, None, "strong-ridge", None, EACH, EACH[None], 1.0, {"k": 0}),
    ({"l0": 0.3, "l1": 0.1}, None, None, None, 1e-6, [1e-6], None, {"l0": 0.3, "l1": 0.1}),
    ({"l0": "cv", "l1": [0.1, 0.0]}, None, "strong-ridge", None, 1e-6, [1e-6], None, {"l0": 0.0, "l1": 0.1}),
    ({"l0": 0.3, "l1": [0.0, 0.1]}, None, "strong-ridge", None, 1e-6, [1e-6], None, {"l0": 0.3, "l1": 0.0}),
    ({"l0": [0.3], "l2": [0.1, 1]}, None, "strong-ridge", None, 1e-6, [0.1, 1], None, {"l0": 0.3, "l1": 0.0}),
]


@pytest.mark.parametrize(("settings", "k", "rule", "ks", "l2", "l2s", "refit", "sizes"), PLANS)
def test_parameters_say_what_is_chosen_and_from_what(settings, k, rule, ks, l2, l2s, refit, sizes):
    plan = parameters.make_plan(sht.SparseRegressor(**settings), sht.losses.Squared())
    assert (plan.k, plan.rule, plan.refit, plan.sizes) == (k, rule, refit, sizes)
    for found, expected in ((plan.l2, l2), (plan.l2s, l2s), (ks if ks is None else plan.ks, ks)):
        np.testing.assert_array_equal(found, expected)
    listed, by_folds = isinstance(settings.get("l2"), list | tuple), rule in ("one-se", "strong-ridge")
    assert (plan.listed, plan.by_folds, plan.searches_l2) == (listed, by_folds, by_folds or listed)
    assert (ks is None) == (plan.ks is None)


def test_parameters_of_a_solve():
    ends, squared = SmallStep(0.1) & SmallGradient(0.1) | Cycle(), sht.losses.Squared()
    for solver, loss, end in (("iht", squared, ends), ("auto", sht.losses.Hinge(), ends), ("htp", squared, None)):
        found = [parameters.make_termination(tol, loss, parameters.make_solver(solver)) for tol in (0.1, None)]
        assert list(map(repr, found)) == [repr(end), "None"]
    seeds = [parameters.make_seed(each) for each in (None, 0, np.random.RandomState(0), 1)]
    assert len({*seeds[:3]}) == 1 and len({*seeds}) == 2
    plans = [parameters.make_plan(sht.SparseClassifier(class_weight=each), None) for each in (None, "balanced")]
    assert [plan.weighted_by for plan in plans] == ["sample_weight", "class_weight"]


def test_a_structure_is_that_of_the_parameters():
    def made(rows=False, priced=False, **settings):
        return parameters.make_threshold(sht.SparseRegressor(**settings), P, [*"abcdefgh"], rows=rows, priced=priced)

    kinds = [type(made(**more)) for more in ({}, {"rows": True}, {"priced": True})]
    assert kinds == [sht.Sparsity, sht.RowSparsity, sht.L0L1L2]
    for keep in ([0, 7], ["h", "a"], np.arange(P) % 7 == 0):
        assert sorted(made(keep=keep).keep.tolist()) == [0, 7]
    assert made(keep=7).keep.tolist() == [7] and not made(keep=[]).keep.size + made(groups=EACH).keep.size
    for box, ends in (({"positive": True}, [0, None]), ({"bounds": [-1, 2]}, [-1, 2]), ({}, [None, None])):
        found = made(**box).lower, made(**box).upper
        assert [each if each is None else float(each) for each in found] == ends
    grouped = made(groups=[*"vuuvwwwv"], keep=[3, 0])  # both of the second group
    support = sht.results.Support(np.array([1, 0]), np.array([True, False]))
    assert (grouped.keep.tolist(), parameters.unit_total(grouped, P), parameters.unit_total(made(), P)) == ([1], 3, P)
    assert [parameters.features_of(each, support).tolist() for each in (grouped, made())] == [[0, 3, 7], [1]]


def test_folds_are_no_more_than_the_rows_allow():
    y, groups = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 2])
    for wanted, counted, labels, found, reason in (
        (5, "rows", None, 5, None),
        (7, "rows", None, 5, "there are 5 samples"),
        (3, "classes", None, 2, "the rarest class has 2 samples"),
        (3, "events", None, 2, "there are 2 events"),
        (4, "rows", groups, 3, "there are 3 groups"),
        (3, "events", groups, 2, "there are 2 groups with an event"),
        (3, "rows", groups * 0, 1, None),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert selection._possible(wanted, y > 0 if counted == "events" else y, counted, labels) == found
        told = [f"cv: {found} folds are used instead of {wanted}, since {reason}."] if reason else []
        assert [str(each.message) for each in caught] == told


def test_rows_are_ordered_by_features_of_unit_deviation(monkeypatch):
    """Whatever the type of the data, and how many columns are taken at once."""
    monkeypatch.setattr(selection, "BLOCK", 3)
    weights = np.arange(N) % 3.0
    Z, r = X / np.sqrt(np.cov(X.T, aweights=weights, ddof=0).diagonal()), weights * Y
    first = Z @ (Z.T @ r)
    square = (first / np.abs(first).max()) ** 2
    second = Z @ (Z.T @ (weights * (square - np.average(square, weights=weights))))
    for data, tol in ((X, 1e-9), (csr_array(X), 1e-9), (X.astype(np.float32), 1e-4)):
        for found, expected in zip(selection._content(data, r, weights), (first, second), strict=True):
            np.testing.assert_allclose(found, expected, atol=tol * np.abs(expected).max())


def test_the_scale_of_weights_adds_no_candidates(monkeypatch):
    """It does where folds decide and a weight counts as rows, and never takes one away; none repeats no folds."""

    def stop(*_, ks, folds, l2s, **more):
        raise StopIteration(int(ks.max()), len(folds or ()), l2s is None)

    monkeypatch.setattr(fit, "choose", stop)
    wide, most = RNG.standard_normal((N, 40)), {"cv": ("14, 5", "14, 5", "30, 5"), "bic": ("14, 0",) * 3}
    given = [(k, wide, np.full(N, u), most[k][i]) for k in most for i, u in enumerate((0.05, 1.0, 2.0))]
    given += [("cv", X, np.ones(N), "8, 20"), ("cv", X, np.arange(N) < 31.0, "7, 5")]
    for k, data, weights, found in given:
        with pytest.raises(StopIteration, match=rf"^\({found}, {k == 'bic'}\)$"):
            sht.SparseRegressor(k, solver="htp").fit(data, Y, weights)
    with pytest.warns(UserWarning, match="ebic is used instead"), pytest.raises(StopIteration, match="0"):
        sht.SparseClassifier(solver="htp").fit(X, np.arange(N) == 3)  # a class of one row


def test_groups_of_rows_stay_together():
    groups = RNG.integers(0, 12, N)
    own = make_folds(GroupKFold(3), X, Y, np.ones(N), "rows", groups)
    assert all(all(map(np.array_equal, *pairs)) for pairs in zip(own, GroupKFold(3).split(X, Y, groups), strict=True))
    counted = np.arange(N) % 5 > 0
    for y, kind in ((Y, "rows"), (LABELS, "classes")):
        for train, test in make_folds(4, np.ones((len(y), 1)), y, counted.astype(float), kind, groups):
            assert not np.intersect1d(groups[counted][train], groups[counted][test]).size
    with pytest.raises(ValueError, match="groups: needs shape"):
        sht.SparseRegressor(k=KS).fit(X, Y, groups=groups[1:])


def test_select_from_model_keeps_every_chosen_feature():
    model = sht.SparseRegressor(k=3).fit(X, Y)
    assert np.ptp(np.abs(model.coef_[model.support_])) > 1  # a mean as the threshold drops the smallest
    chosen = SelectFromModel(model, prefit=True).get_support()
    np.testing.assert_array_equal(chosen, model.get_support())
