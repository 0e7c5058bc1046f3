"""How fits follow when their data change: every law of `metamorphic` for every part of `cases` and every estimator."""

import contextlib
import functools
import itertools
from types import SimpleNamespace

import cases
import jax.numpy as jnp
import metamorphic
import numpy as np
import pytest
from metamorphic import Fit
from sklearn.base import BaseEstimator

import sparsehtp as sht
from sparsehtp._programs import program
from sparsehtp._types import replace

pytestmark = pytest.mark.usefixtures("x64")


# --- what is fitted: part -> (kind of targets, function of the data) -------------------------------------------------
def linear(loss, design=np.asarray):
    """A `LinearModel` with everything on, its loss in the targets' unit."""

    def make(d):
        own = loss
        if isinstance(loss, sht.losses.Huber):
            own = replace(loss, delta=loss.delta * abs(d.size))
        if isinstance(loss, sht.losses.Quantile) and d.size < 0:
            own = replace(loss, level=1 - loss.level)
        return sht.LinearModel(design(d.X), d.y, own, d.l2, d.weights, True, True, d.offset)

    return make


def several(loss):
    return lambda d: sht.MultiResponse(d.X, d.y, loss, d.l2, d.weights, True, True, d.offset)


def cox(ties):
    return lambda d: sht.CoxModel(d.X, d.y[:, 0], d.y[:, 1], d.l2, d.weights, True, d.offset, d.y[:, 2], ties)


def kind_of(loss):
    return "sign" if loss.classification else "real" if loss.location else "count"


OBJECTIVES = {
    **{f"loss {name}": (kind_of(loss), linear(loss)) for name, loss in cases.LOSSES.items()},
    **{f"loss {name}": ("class", several(loss)) for name, loss in cases.VECTOR_LOSSES.items()},
    **{f"design {name}": ("real", linear(sht.losses.Squared(), make)) for name, make in cases.DESIGNS.items()},
    # not standardised
    "quadratic_form": ("plain", lambda d: sht.QuadraticForm.from_data(d.X, d.y, d.l2 * d.unit**2, d.weights)),
    "custom_sum": ("plain", lambda d: sht.CustomSum(cases.square, (d.X, d.y), sample_weight=d.weights)),
    "multi_response": ("several", several(sht.losses.Squared())),
    "cox": ("survival", cox("efron")),
    "cox breslow": ("survival", cox("breslow")),
    "ordinal": ("order", lambda d: sht.OrdinalModel(d.X, d.y, 4, d.l2, d.weights, True, d.offset)),
    "precision": ("none", lambda d: sht.Precision.from_data(d.X, d.weights)),
}
ELSEWHERE = {"linear_model": "one of every loss and design", "custom": "its data are in the user's own function"}
# (law, part) -> why the law does not hold
EXCEPTIONS = {
    ("targets", "loss quantile"): "the loss grows as the targets do, the ridge as their squares",
    ("targets", "loss quantile_upper"): "as above",
    ("split", "cox"): "Efron's ties weigh rows by their number",
}
ROUNDED = ("cox", "cox breslow", "SparseCox")  # rows are sorted by time: those without weight change the order of sums
TOLERANCES = {"SparsePrecision": 1e-7, "iht": 1e-6}  # which stop a little before the end


@functools.cache
def changed(kind, law):
    return metamorphic.LAWS[law](metamorphic.draw(kind))


def check_laws(name, kind, fit, exceptions):
    """All laws for a function of data, and of how a fit is moved to them, that gives a `Fit`."""
    first = fit(metamorphic.draw(kind), lambda fit: fit)
    for law in metamorphic.laws_of(kind):
        d, moved = changed(kind, law)
        with pytest.raises(AssertionError) if (law, name) in exceptions else contextlib.nullcontext():
            bits = law == "weightless" and name not in ROUNDED
            metamorphic.check(law, fit(d, moved), moved(first), bits, TOLERANCES.get(name, 1e-9))


# --- objectives ------------------------------------------------------------------------------------------------------
@program
def facts(objective, x, other, held):
    v, (value, grad) = other - x, objective.value_and_grad(x)
    energies = [value, grad @ v, objective.curvature_at(objective.forward(x), v, None)]
    return jnp.stack([*energies, objective.scorer(held).value(x)])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives(name):
    """Value, slope and curvature between two points, and the loss of held-out rows."""
    kind, make = OBJECTIVES[name]
    d = metamorphic.draw(kind)
    w = 0.5 * np.random.default_rng(0).standard_normal((2, *make(d).external_shape))
    if kind == "none":  # positive definite
        w = 0.1 * (w + w.transpose(0, 2, 1)) + 2 * np.eye(metamorphic.P)
    else:
        w[:, -1] = 0  # of a constant column
    b = np.linspace(0.3, -0.8, 3) if kind in ("class", "several", "order") else 0.3
    b = 0.0 if kind in ("plain", "survival", "none") else b
    points = [Fit(each, b, np.zeros(4)) for each in w]

    def energies(d, objective, points):
        held = d.weights * (d.fold == 0)
        x = [objective.to_internal(each.w, -each.b if kind == "order" else each.b) for each in points]
        found = np.array(facts(objective, *x, held))
        if kind == "survival":  # whose weights have the mean one, over the rows that have one
            found[[0, 3]] -= np.log([np.count_nonzero(each) for each in (d.weights, held)])
        if kind == "none":
            found[[0, 3]] -= 2 * np.log(np.abs(d.unit)).sum()  # log det
        return found

    def fit(d, moved):
        here, there = map(moved, points)
        return here._replace(energies=energies(d, make(d), (here, there)))

    check_laws(name, kind, fit, EXCEPTIONS)
    if make(d).sample_weight is None:
        return
    expected = energies(d, make(d), points)
    fold = make(d._replace(weights=1 + d.weights)).reweighted(d.weights)
    np.testing.assert_allclose(energies(d, fold, points), expected, 1e-9, err_msg="other weights")
    if kind != "none":  # which subtracts the means of what it was fitted to
        part = d.weights * (d.fold != 0) * (d.y > 0 if kind == "order" else 1)
        found = energies(d, make(d).reweighted(part), points)
        np.testing.assert_allclose(found[3], expected[3], 1e-9, err_msg="of its rows, whatever was fitted")


@program
def total(objective, threshold, x):
    return objective.value(x) + threshold.value(x)


# --- solvers ---------------------------------------------------------------------------------------------------------
# One for each way to read the data: an objective's own functions, its normal equations, samples, dual, coordinates.
QUICK = ("htp", "foba", "saga_batch", "sdiht", "dual_ascent", "cdss")
DRAWN = [*cases.STOCHASTIC_SOLVERS, "sdiht"]
SLOWLY = [*cases.STOCHASTIC_SOLVERS, "iht_constant", "iht_schedule", "iht_heavy_ball", "iht_nesterov"]
SOLVER_EXCEPTIONS = {
    **dict.fromkeys(
        itertools.product(("rows", "aside", "split"), cases.STOCHASTIC_SOLVERS), "samples are drawn by their number"
    ),
    **dict.fromkeys(itertools.product(("known", "level"), SLOWLY), "an intercept farther away takes more steps"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each in QUICK else pytest.mark.slow) for each in cases.ALL_SOLVERS]
)
def test_solvers(name):
    """The iterate after a few steps under a fixed key; its value, and a start at it."""
    solver = cases.ALL_SOLVERS[name]
    penalised = not solver.takes(sht.Sparsity(3))

    def solved(d, x0=None):
        threshold = sht.L0L1L2(0.02 * d.size**2, 0.02 * abs(d.size)) if penalised else sht.Sparsity(3)
        model = linear(sht.losses.Squared())(d)
        return model, threshold, sht.solve(model, threshold, solver, x0, max_steps=12, throw=False)

    def fit(d, moved):
        solution = solved(d)[-1]
        return Fit(solution.x, solution.intercept, solution.value)

    check_laws(name, "real", fit, SOLVER_EXCEPTIONS)
    d = metamorphic.draw("real")
    model, threshold, first = solved(d)
    assert first.value == first.history.value[first.best_step]
    assert first.history.hard_thresholds[: int(first.num_steps)].min() >= 1
    x = model.to_internal(first.x, first.intercept)
    np.testing.assert_allclose(first.value, total(model, threshold.bind(model), x), rtol=1e-12)
    again = solved(d, first)[-1]
    if name not in (*DRAWN, "diht", "dual_ascent"):  # which draw, or start at a dual point
        assert again.value <= first.value * (1 + 1e-12)
    if first.result == sht.results.RESULTS.converged:
        np.testing.assert_allclose(again.x, first.x, atol=1e-9)


# --- grids, certificates and bounds ----------------------------------------------------------------------------------
def folds(d, moved):
    cv = sht.cross_validate(
        linear(sht.losses.Squared())(d), ks=[1, 3], l2s=[0.05, 0.2], folds=d.fold, solver=sht.solvers.HTP()
    )
    energies = [cv.path.value, cv.path.loss, *cv.scores]
    return Fit(cv.path.x.T, cv.path.intercept, np.stack(energies))


def marked(d, *features):
    """Sets of features, which move as coefficients do."""
    return np.stack([np.isin(np.arange(metamorphic.P), some) for some in features], 1) * d.size / d.unit[:, None]


def subsamples(d, moved):
    found = sht.stability_selection(linear(sht.losses.Squared())(d), ks=[1, 2], n_resamples=8, solver=sht.solvers.HTP())
    return Fit(found.probabilities.T * d.size / d.unit[:, None], np.nan, np.nan)


def bounds(d, moved):
    found = sht.lower_bound(linear(sht.losses.Squared())(d), sht.Sparsity(3), 0.2 * d.size**2)
    return Fit(marked(d, found.zero, found.nonzero), np.nan, found.lower)


def certified(d, moved):
    """Of a point that an exchange improves."""
    here = moved(Fit(np.array([0.5, 0.5, 0, 0, 0.5, 0]), 0.1, np.nan))
    solution = SimpleNamespace(
        x=here.w, intercept=here.b, support=sht.results.Support(np.flatnonzero(here.w), np.ones(3, bool))
    )
    found = sht.certificate(linear(sht.losses.Squared())(d), sht.Sparsity(3), solution)
    assert found.swap_gain > 0
    return Fit(marked(d, *found.best_swap), np.nan, np.array([*found[:2], found.swap_gain]))


GRIDS = {"cross_validate": folds, "stability_selection": subsamples, "lower_bound": bounds, "certificate": certified}
BY_NUMBER = {(law, "stability_selection"): "samples are drawn by their number" for law in ("rows", "split")}


@pytest.mark.parametrize("name", GRIDS)
def test_grids_and_bounds(name):
    check_laws(name, "real", GRIDS[name], BY_NUMBER)


def test_held_out_rows_leave_the_fit_of_their_fold_as_it_is():
    """What is predicted of the held-out rows reads their columns, and neither their targets nor what is in no part."""
    d, make = metamorphic.draw("real"), linear(sht.losses.Squared())
    out, idle = d.fold == 0, d.fold == 1
    wild = d._replace(X=np.where(idle[:, None], 1e3 * d.X, d.X), y=np.where(idle | out, -1e3 * d.y, d.y))
    options = {"folds": [(np.flatnonzero(d.fold == 2), np.flatnonzero(out))], "scoring": lambda y, eta, w: eta @ w}
    options |= {"ks": [3], "l2s": [0.05], "solver": sht.solvers.HTP()}
    np.testing.assert_array_equal(*(sht.cross_validate(make(each), **options).scores for each in (d, wild)))


# --- estimators ------------------------------------------------------------------------------------------------------
def estimated(model, d, *args, **options):
    model.fit(d.X, *args, sample_weight=d.weights, **options)
    b = -model.thresholds_ if d.kind == "order" else getattr(model, "intercept_", 0.0)
    return Fit(np.squeeze(model.coef_).T, np.squeeze(b), getattr(model, "objective_value_", np.nan))


def sparse(kind, **options):
    return lambda d, moved: estimated(kind(3, l2=d.l2, solver="htp", **options), d, d.y, offset=d.offset)


def survival(d, moved):
    model = sht.SparseCox(3, l2=d.l2, ties="breslow", solver="htp")
    fit = estimated(model, d, d.y[:, :2], offset=d.offset, strata=d.y[:, 2])
    return fit._replace(energies=fit.energies - np.log(np.count_nonzero(d.weights)))


def low_rank(d, moved):
    return estimated(sht.LowRankRegressor(2, l2=0.1), d, d.y - d.offset)


def graph(d, moved):
    return Fit(sht.SparsePrecision(3).fit(d.X, sample_weight=d.weights).precision_, 0.0, np.nan)


def by_folds(d, moved):
    model = sht.SparseRegressor([1, 3], l2=[0.05, 0.2], solver="htp", cv=d.fold)
    fit = estimated(model, d, d.y, offset=d.offset)
    return fit._replace(energies=np.append(model.cv_results_["scores"], fit.energies))


ESTIMATORS = {
    "SparseRegressor": ("real", sparse(sht.SparseRegressor)),
    "SparseRegressor by folds": ("real", by_folds),
    "SparseRegressor of several": ("several", sparse(sht.SparseRegressor)),
    "SparseClassifier": ("sign", sparse(sht.SparseClassifier, class_weight="balanced")),
    "SparseOrdinal": ("order", sparse(sht.SparseOrdinal)),
    "SparseCox": ("survival", survival),
    "LowRankRegressor": ("several", low_rank),
    "SparsePrecision": ("none", graph),
}
NO_LAWS = {
    "SparseLDA": "a SparsePrecision within classes, see estimators of precision",
    "SparsePCA": "takes no weights, targets or offsets; estimators/test_sparse_pca.py has its scales",
    "RobustPCA": "takes no weights, targets or offsets; estimators/test_robust_pca.py has its scales and transposes",
    "TablePreprocessor": "reads tables, not numbers",
}
ESTIMATOR_EXCEPTIONS = {("multiples", "SparsePrecision"): "weights count as rows, which decide how much is shrunk"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (" " in name)) for name in ESTIMATORS])
def test_estimators(name):
    check_laws(name, *ESTIMATORS[name], ESTIMATOR_EXCEPTIONS)


def test_every_part_has_its_laws():
    public = (getattr(sht, name) for name in sht.__all__)
    estimators = {kind.__name__ for kind in public if isinstance(kind, type) and issubclass(kind, BaseEstimator)}
    assert estimators == {name.split()[0] for name in ESTIMATORS} | {*NO_LAWS}
    assert {*cases.OBJECTIVES} <= {*OBJECTIVES, *ELSEWHERE}
    of = {**EXCEPTIONS, **SOLVER_EXCEPTIONS, **BY_NUMBER, **ESTIMATOR_EXCEPTIONS}
    assert {law for law, _ in of} <= {*metamorphic.LAWS}
    assert {name for _, name in of} <= {*OBJECTIVES, *cases.ALL_SOLVERS, *GRIDS, *ESTIMATORS}
