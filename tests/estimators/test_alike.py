"""What holds of every estimator that chooses features: its precision, its structures, and the features it finds."""

import re

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags

import sparsehtp as sht
from sparsehtp.estimators.base import SparseLinearModel
from sparsehtp.estimators.parameters import OF_NUMBERS
from sparsehtp.losses import Hinge, Huber, Logistic, Softmax, Squared

RNG = np.random.default_rng(0)
N, P = 150, 8
X = RNG.standard_normal((N, P)) * [1, 5, 1, 0.2, 1, 1, 3, 1] + 3
ETA = 2 * X[:, 2] - 1.5 * X[:, 5] - 1.5
Y = ETA + 0.5 * RNG.standard_normal(N)
LATENT = ETA + RNG.logistic(size=N)
TIME, LAST = RNG.exponential(np.exp(-ETA)), RNG.exponential(5, N)
LIVES = np.column_stack([np.minimum(TIME, LAST), TIME <= LAST])
CLASS = np.digitize(LATENT, np.quantile(LATENT, [0.3, 0.7]))
NOMINAL = np.argmax(np.outer(ETA, [1, 0, -1]) + RNG.gumbel(size=(N, 3)), axis=1)
KINDS = {
    "regressor": (sht.SparseRegressor(), Y),
    "several": (sht.SparseRegressor(), np.column_stack([Y, 1 - Y])),
    "classifier": (sht.SparseClassifier(), LATENT > 0),
    "softmax": (sht.SparseClassifier(loss="softmax"), NOMINAL),
    "cox": (sht.SparseCox(), LIVES),
    "ordinal": (sht.SparseOrdinal(), CLASS),
}
QUICK = ("regressor",)
EACH = pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in KINDS]
)


def make(name, k=2, **options):
    model, y = KINDS[name]
    return clone(model).set_params(k=k, **options), y


class Reached(Exception):
    """Raised in place of a first step."""


class Probe(sht.solvers.HTP):
    def init(self, objective, threshold, x0, key):
        raise Reached


@pytest.mark.parametrize(
    "model",
    [
        *(kind(k) for kind in (sht.SparseRegressor, sht.SparsePrecision) for k in (1, "cv", "bic")),
        sht.LowRankRegressor(1),
    ],
    ids=str,
)
def test_the_solver_that_is_given_solves(model):
    with pytest.raises(Reached):
        model.set_params(solver=Probe()).fit(X, Y)


def test_the_candidates_of_l2_are_those_that_are_told():
    alike = {sht.SparseRegressor: sht.SparseCox, sht.SparseClassifier: sht.SparseOrdinal}
    for kind, other in alike.items():
        text = " ".join(kind.__doc__.split())
        told = (
            re.search(r'from ([\d., e-]+) if k="cv"', text)[1].split(", "),
            re.search(r"with l0, ([\d.e-]+),", text)[1],
        )
        for each in (kind, other):
            assert (list(each._l2_grid), each._default_l2) == ([float(l2) for l2 in told[0]], float(told[1]))


def test_tags_tell_what_targets_are_taken():
    models = [sht.LowRankRegressor(), *(sht.SparseRegressor(loss=name) for name in OF_NUMBERS)]
    tags = [get_tags(model).target_tags for model in models]
    assert all(each.multi_output for each in tags)
    text = " ".join(sht.SparseRegressor.__doc__.split())
    told = [re.search(rf'"{name}" \(y >=? 0', text) is not None for name in OF_NUMBERS]
    assert [each.positive_only for each in tags] == [False, *told] and sum(told) == 4


TWO, LABELS, NAMES = np.column_stack([Y, 1 - Y]), np.array(["no", "yes"])[(CLASS > 0) * 1], np.array([*"cab"])[CLASS]
CODE = np.unique(NAMES, return_inverse=True)[1]
ASKED = [  # an estimator, y, what folds are made by, targets, loss, the number of responses, the intercept's shape
    (sht.SparseRegressor(), Y, Y, [Y], Squared, None, ()),
    (sht.SparseRegressor(loss="huber"), Y[:, None], Y, [Y], Huber, None, (1,)),
    (sht.SparseRegressor(), TWO, TWO, [TWO], Squared, 2, (2,)),
    (sht.SparseRegressor(shared=False), TWO, TWO, [Y, 1 - Y], Squared, None, (2,)),
    *(
        (sht.SparseClassifier(loss=loss), LABELS, CLASS > 0, [np.where(CLASS > 0, 1, -1)], Logistic, None, (1,))
        for loss in ("logistic", "softmax")
    ),
    (sht.SparseClassifier(loss="hinge"), NAMES, CODE, [2 * (CODE == i) - 1 for i in range(3)], Hinge, None, (3,)),
    (sht.SparseClassifier(loss="softmax"), NAMES, CODE, [CODE], Softmax, 3, (3,)),
    (sht.SparseCox(), LIVES, LIVES[:, 1], [LIVES[:, 0], LIVES[:, 1], CODE], None, None, None),
    (sht.SparseOrdinal(), NAMES, CODE, [CODE], None, None, None),
]


@pytest.mark.parametrize(("estimator", "y", "by", "targets", "loss", "responses", "shape"), ASKED)
def test_what_is_asked_of_a_fit_and_made_of_it(monkeypatch, estimator, y, by, targets, loss, responses, shape):
    """A fit that was cut short warns, once for all models."""
    asked, offset, weights, told = [], np.cos(np.arange(N)), np.arange(N) % 3 + 1.0, (np.arange(N), "folds")
    cox, ordinal = (isinstance(estimator, kind) for kind in (sht.SparseCox, sht.SparseOrdinal))

    def fit(self, X, *given, responses=None, **options):
        asked.append((*given, responses, options))
        models = responses or len(given[1])
        self.coef_, self.refit_l2_ = np.arange(models * P).reshape(models, P) / 100, 0.0
        self.intercept_ = np.array([[-1.0, 2]]) if ordinal else np.arange(models) / 10
        return [sht.results.RESULTS.max_steps] * models

    monkeypatch.setattr(SparseLinearModel, "_fit", fit)
    several = isinstance(estimator, sht.SparseClassifier) and y is NAMES
    more = {"groups": told[0], "folds": told[1]} | ({"strata": NAMES} if cox else {})
    more |= {} if several else {"offset": offset}
    with pytest.warns(ConvergenceWarning, match="step limit") as warned:
        found = clone(estimator).fit(X, y, weights, **more)
    ((own_by, own_targets, own_weights, own_loss, own_responses, options),) = asked
    np.testing.assert_array_equal(own_by, by)
    assert len(own_targets) == len(targets) and all(map(np.array_equal, own_targets, targets))
    np.testing.assert_array_equal(own_weights, weights)
    assert own_loss is None if loss is None else type(own_loss) is loss
    kept = options["groups"] is told[0], options["folds"], options.get("scoring"), own_responses
    assert kept == (True, "folds", None, responses) and len(warned) == 1
    known = None if several else np.tile(offset, (2, 1)).T if responses else offset
    np.testing.assert_array_equal(options["offset"], known)
    coef = np.arange((responses or 1 if cox else responses or len(targets)) * P).reshape(-1, P) / 100
    np.testing.assert_array_equal(found.coef_, coef if shape else coef[0])
    if shape is not None:
        np.testing.assert_array_equal(found.intercept_, (np.arange(len(coef)) / 10).reshape(shape))
    elif ordinal:
        assert found.levels_.tolist() == found.classes_.tolist() == [*"abc"] and found.thresholds_.tolist() == [-1, 2]
    else:
        assert found.strata_.tolist() == [*"abc"] and not hasattr(found, "intercept_")
        np.testing.assert_allclose(found.reference_, np.average(X @ found.coef_ + offset, weights=weights))


@EACH
def test_single_precision_stays(name):
    model, y = make(name, solver="htp")
    double, single = (clone(model).fit(X.astype(dtype), y) for dtype in (np.float64, np.float32))
    np.testing.assert_allclose(single.coef_, double.coef_, atol=1e-3)
    thin = clone(model).fit(sparse.csr_array(X.astype(np.float32)), y)
    for fit, dtype in ((single, np.float32), (thin, np.float32), (double, np.float64)):
        assert type(fit.coef_) is np.ndarray
        assert fit.coef_.dtype == fit.transform(X.astype(dtype)).dtype == dtype


@EACH
def test_structures(name):
    groups = np.arange(P) // 2

    def fit(k=2, **options):
        model, y = make(name, k, solver="htp", **options)
        return model.fit(X, y)

    grouped, kept = fit(1, groups=groups), fit(1, keep=[0])
    assert len(set(groups[grouped.support_])) == 1 and grouped.support_.sum() == 2
    assert kept.support_[0] and kept.support_.sum() == 2
    bounded = fit(bounds=(-0.05, 0.1))
    assert (fit(positive=True).coef_ >= 0).all() and -0.05 <= bounded.coef_.min() <= bounded.coef_.max() <= 0.1
    if name == "ordinal":
        assert (np.diff(bounded.thresholds_) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("k", ["ebic", "cv"])
@pytest.mark.parametrize("name", KINDS)
def test_k_is_chosen(name, k):
    model, y = make(name, k, rule="one-se" if k == "cv" else "strong-ridge")
    assert list(np.flatnonzero(model.fit(X, y).support_)) == [2, 5] and model.k_ == 2
