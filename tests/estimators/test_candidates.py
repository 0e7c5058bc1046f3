"""Candidates of k and l2, scores by a scikit-learn scorer, and rows that stay together in folds."""

import numpy as np
import pytest
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold

import sparsehtp as sht
from sparsehtp.estimators import fit
from sparsehtp.estimators.selection import make_folds

RNG = np.random.default_rng(8)
N, P = 60, 6
X = RNG.standard_normal((N, P))
Y = X[:, [1, 4]] @ [2.0, -1.5] + RNG.standard_normal(N) + 20
LABELS = np.where(Y > 20, "yes", "no")
HALVES = np.median(Y) < Y
CLASSES = np.digitize(Y, [19.0, 21.0])
SEVERAL = np.stack([Y, X[:, 2] - Y], axis=1)
COUNTS = np.floor(np.exp(0.4 * (Y - 19)))
FOLDS = KFold(3)
KS = [0, 1, 2, 5]


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


def test_folds_choose_l2_for_a_given_k():
    alone = sht.SparseRegressor(k=2, l2=[1.0, 0.01], solver="forward", cv=FOLDS).fit(X, Y)
    assert alone.k_ == 2 and alone.cv_results_["scores"].shape == (3, 2)


def test_a_criterion_takes_candidates():
    by_rule = sht.SparseRegressor(k=range(P), solver="forward", rule="bic").fit(X, Y)
    by_name = sht.SparseRegressor(k="bic", solver="forward").fit(X, Y)
    assert by_rule.k_ == by_name.k_ and by_rule.cv_results_ is None and len(by_rule.path_) == P


def test_the_scale_of_weights_adds_no_candidates(monkeypatch):
    """It does where folds decide and a weight counts as rows, and never takes one away."""

    def stop(*_, ks, **more):
        raise StopIteration(ks.max())

    monkeypatch.setattr(fit, "choose", stop)
    wide, most = RNG.standard_normal((N, 40)), {"cv": (14, 14, 30), "bic": (14, 14, 14)}
    for k, expected in most.items():
        for unit, largest in zip((0.05, 1.0, 2.0), expected, strict=True):
            with pytest.raises(StopIteration, match=f"^{largest}$"):
                sht.SparseRegressor(k, solver="htp").fit(wide, Y, np.full(N, unit))


def test_groups_of_rows_stay_together():
    groups = RNG.integers(0, 12, N)
    options = {"k": KS, "l2": 1e-2, "solver": "forward"}
    routed = sht.SparseRegressor(cv=GroupKFold(3), **options).fit(X, Y, groups=groups)
    given = sht.SparseRegressor(cv=list(GroupKFold(3).split(X, Y, groups)), **options).fit(X, Y)
    np.testing.assert_array_equal(routed.cv_results_["scores"], given.cv_results_["scores"])
    counted = np.arange(N) % 5 > 0
    for y, kind in ((Y, "rows"), (LABELS, "classes")):
        for train, test in make_folds(4, np.ones((len(y), 1)), y, counted.astype(float), kind, groups):
            assert not np.intersect1d(groups[counted][train], groups[counted][test]).size
    with pytest.warns(UserWarning, match="2 folds are used instead of 5, since there are 2 groups"):
        sht.SparseClassifier(solver="forward", k=[1, 2]).fit(X, LABELS, groups=np.arange(N) % 2)
    with pytest.raises(ValueError, match="groups: needs shape"):
        sht.SparseRegressor(k=KS).fit(X, Y, groups=groups[1:])


def test_select_from_model_keeps_every_chosen_feature():
    scales = np.array([1.0, 1.0, 1.0, 1.0, 50.0, 1.0])
    model = sht.SparseRegressor(k=3).fit(X * scales, Y)
    assert np.ptp(np.abs(model.coef_[model.support_])) > 1  # a mean as the threshold drops the smallest
    chosen = SelectFromModel(model, prefit=True).get_support()
    np.testing.assert_array_equal(chosen, model.get_support())
