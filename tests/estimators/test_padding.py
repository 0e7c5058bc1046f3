"""Shapes in buckets: fits in padded arrays are those in arrays of the data's shape."""

import dataclasses
from types import SimpleNamespace

import cases
import numpy as np
import pytest
from scipy import sparse

import sparsehtp as sht
from sparsehtp.designs import SparseDesign
from sparsehtp.estimators import fit, parameters
from sparsehtp.estimators.fit import Problem
from sparsehtp.estimators.padding import Padding, bucket
from sparsehtp.results import Choice, CrossValidation, Info, Path, Solution, Support

RNG = np.random.default_rng(3)
N, P = 65, 33  # a row and a column beyond a bucket
X = RNG.standard_normal((N, P)) + 3
X[:, 20] = 2  # constant
X[:, 21] = X[:, 0]  # twice
THIN = np.where(RNG.random((N, P)) < 0.3, X, 0)
ETA = X[:, 2] - 1.5 * X[:, 7] + X[:, 9]
Y = ETA - ETA.mean() + 0.3 * RNG.standard_normal(N)
LABELS = np.where(Y + RNG.logistic(size=N) > 0, "yes", "no")
THREE = np.digitize(Y, (-1, 1))
COUNTS = RNG.poisson(np.exp(0.4 * Y))
WEIGHTS = RNG.integers(0, 4, N)
LIVES = np.stack([np.exp(-Y), np.arange(N) % 4 > 0], 1)
L2 = np.linspace(0.01, 0.1, P)
GROUPS = np.arange(P) // 2
BOUNDS = (-np.linspace(0.5, 1, P), 2.0)
TWO = np.stack([Y, -Y], 1)
EACH = (-np.linspace(0.2, 1, 2 * P).reshape(P, 2), None)


def test_buckets_are_eight_an_octave():
    sizes = [bucket(n) for n in range(1, 2000)]
    assert sizes[:16] == list(range(1, 17))
    assert all(n <= size <= 9 / 8 * n for n, size in enumerate(sizes, 1))
    assert [len({s for s in sizes if low <= s < 2 * low}) for low in (16, 64, 512)] == [8, 8, 8]
    assert Padding(33, 19, True, True).user_l2(np.arange(20.0)).tolist() == [*range(19)]
    large, small = Padding(1025, 257, True, False), Padding(1024, 256, True, False)  # beyond 2^18 entries sixteen
    assert (large.large, large.size, small.large, Padding(1025, 33, True, False).size) == (
        True,
        (1088, 272),
        False,
        (1152, 36),
    )


def test_chunks_of_sparse_data_fill_the_least_bucket():
    X = sparse.random_array((37, 45), density=0.4, rng=0, format="csr")
    padding = Padding(*X.shape, active=True, l2_per_feature=False)
    padded, (n, p) = padding.design(X), padding.size
    whole = X.copy()
    whole.resize((n, p))
    exact = SparseDesign(whole)
    for got, had in ((padded.by_row, exact.by_row), (padded.by_column, exact.by_column)):
        chunks = had.owner.shape[0]
        assert bucket(chunks) > chunks and {part.shape[0] for part in got[:3]} == {bucket(chunks)}, chunks
        np.testing.assert_array_equal(got.data[chunks:], 0)
    v = np.arange(p, dtype=np.float32)
    np.testing.assert_allclose(padded.mv(v)[:37], X @ v[:45], rtol=1e-5)


LATER = [pytest.mark.later]
SAMPLES = sht.solvers.StochasticHT(sht.steps.ConstantStep(0.1), 4)
CASES = {
    "squared, cv": (sht.SparseRegressor, {"cv": 3, "solver": "htp", "keep": [5]}, X, Y),
    "squared, ebic": (sht.SparseRegressor, {"k": "ebic", "solver": "forward", "l2": L2, "standardize": False}, X, Y),
    "squared, sic": (sht.SparseRegressor, {"k": "sic", "solver": "htp", "groups": GROUPS}, X, Y),
    "huber": (sht.SparseRegressor, {"k": 3, "loss": "huber", "solver": "grasp", "fit_intercept": False}, X, Y),
    "poisson": (sht.SparseRegressor, {"k": 3, "loss": "poisson", "solver": "iht", "l2": 0.1}, X, COUNTS),
    "sparse": (sht.SparseRegressor, {"cv": 3, "solver": "htp", "standardize": False}, THIN, Y),
    "sparse, single": (sht.SparseRegressor, {"k": 4, "solver": "subspace_pursuit"}, THIN.astype(np.float32), Y),
    "bounds": (sht.SparseRegressor, {"k": 3, "bounds": BOUNDS}, X, Y),
    "positive": (sht.SparseRegressor, {"k": 3, "positive": True, "l2": L2}, X, Y),
    "samples": (sht.SparseRegressor, {"k": 3, "solver": SAMPLES, "max_iter": 4}, X, Y),  # others of other rows
    "best subset": (sht.SparseRegressor, {"k": 3}, X, Y),
    "logistic": (sht.SparseClassifier, {"k": 3, "class_weight": "balanced", "solver": "foba"}, THIN, LABELS),
    "smoothed hinge": (sht.SparseClassifier, {"cv": 3, "loss": "smoothed_hinge", "solver": "htp"}, X, LABELS),
    "hinge": (sht.SparseClassifier, {"k": 3, "loss": "hinge", "max_iter": 20}, X, LABELS),
    "bounds of each response": (sht.SparseRegressor, {"k": 3, "bounds": EACH, "solver": "htp"}, X, TWO),
    "softmax": (sht.SparseClassifier, {"cv": 3, "loss": "softmax", "keep": [4]}, X, THREE),
    "cox": (sht.SparseCox, {"k": 3, "solver": "htp"}, X, LIVES),
    "ordinal": (sht.SparseOrdinal, {"k": 3, "solver": "htp"}, X, THREE),
    "one against the rest": (sht.SparseClassifier, {"k": "bic", "solver": "htp"}, X, THREE),
}

CI = ("poisson", "hinge")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in CI)) for name in CASES])
def test_results_are_those_of_the_data_in_their_own_shape(name, monkeypatch):
    kind, settings, data, y = CASES[name]
    if data is not X:
        data = sparse.csr_array(data)
    padded = kind(**settings).fit(data, y, WEIGHTS)
    monkeypatch.setattr("sparsehtp.estimators.parameters.pads", lambda solver: False)
    exact = kind(**settings).fit(data, y, WEIGHTS)
    inexact = data.dtype == np.float32 or settings.get("solver") == "iht"
    same(padded, exact, 1e-3 if inexact else 1e-7)


def same(padded, exact, tol):
    # Rounding decides which of two steps is accepted, and so the next ones, in an iteration without refits.
    left_out = ("path_", "history_", "n_iter_") if exact.solver == "iht" else ("path_",)
    for name, value in vars(exact).items():
        if name.endswith("_") and name not in left_out:
            close(getattr(padded, name), value, tol, name)
    paths = [each if isinstance(each, list) else [each] for each in (padded.path_, exact.path_)]
    for found, path in zip(*paths, strict=True):
        if path is not None:
            for field in dataclasses.fields(path):
                if field.name not in ("support", "features", "coefficients", "key"):  # in any order
                    close(getattr(found, field.name), getattr(path, field.name), tol, field.name)
            close(found.x, path.x, tol, "x")
            assert found.support.idx.shape == path.support.idx.shape
            assert found.features.idx.max(initial=0) < path.n_features
            np.testing.assert_array_equal(found.support.mask, path.support.mask)


def close(found, value, tol, name):
    assert type(found) is type(value), name
    if isinstance(value, dict):
        assert found.keys() == value.keys(), name
        for key in value:
            close(found[key], value[key], tol, key)
    elif isinstance(value, list):
        for one, other in zip(found, value, strict=True):
            close(one, other, tol, name)
    elif isinstance(value, np.ndarray | np.generic | float) and np.asarray(value).dtype.kind == "f":
        assert np.shape(found) == np.shape(value) and np.asarray(found).dtype == np.asarray(value).dtype, name
        scale = np.max(np.abs(value), initial=1e-3, where=np.isfinite(value))
        if name not in ("grad_norm", "step_norm"):  # zero but for rounding
            np.testing.assert_allclose(found, value, rtol=tol, atol=tol * scale, err_msg=name)
    else:
        np.testing.assert_array_equal(found, value, err_msg=name)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", [pytest.param(each, marks=LATER * (each != "iht")) for each in parameters.SOLVERS])
@pytest.mark.parametrize("l2", [pytest.param(0.0, marks=LATER), 0.1])
def test_added_columns_are_never_chosen(solver, l2):
    few = np.zeros((N, P), np.float32)
    few[:, :4] = X[:, :4]
    model = sht.SparseRegressor(k=P, solver=solver, l2=l2).fit(few, Y)  # more than there are useful columns
    assert model.coef_.shape == model.support_.shape == (P,)
    assert model.support_[:4].all() and not model.coef_[4:].any()


def test_errors_speak_of_the_columns_of_the_data():
    for settings, sentence in (
        ({"k": P + 1}, f"only {P} features"),
        ({"k": 3, "l2": np.ones(P + 1)}, rf"l2.*\({P}\)"),
        ({"k": 3, "bounds": (-np.ones(P + 1), None)}, rf"lower.*\({P}\)"),
    ):
        cases.refused(ValueError, sentence, lambda settings=settings: sht.SparseRegressor(**settings).fit(X, Y))


@pytest.mark.parametrize("prices", [False, True])
def test_what_is_left_of_a_choice_is_of_the_data_and_of_candidates(monkeypatch, prices):
    """What pads a grid is in no table, the chosen l2 is the model's, and the l1 that of the least score."""
    rng, asked, made, weights = np.random.default_rng(0), [], [], np.arange(N) % 2 + 1.0

    def choose(models, template, *, ks, l2s, l0s, **options):
        sizes = np.arange(2) if prices else ks
        rows, number = len(sizes) * len(l2s), P if prices else 36
        idx, mask = rng.permuted(np.tile(np.arange(P), (5, rows, 1)), axis=-1)[..., :6], rng.random((5, rows, 6)) < 0.6
        scores = rng.standard_normal((5, rows))
        if not prices:  # the last size twice
            scores[:, len(ks) - 1 :: len(ks)] = scores[:, len(ks) - 2 :: len(ks)]
        own = {name: rng.standard_normal(rows) for name in ("intercept", "value", "result", "loss")}
        own |= dict.fromkeys({field.name for field in dataclasses.fields(Path)} - {*own})
        own |= {"ks": np.tile(sizes, len(l2s)), "l2s": np.repeat(l2s, len(sizes), axis=0), "n_units": P}
        own |= {"l0s": np.tile(l0s, len(l2s)) if prices else None, "coefficients": rng.standard_normal((rows, 6))}
        path = Path(**own | {name: Support(idx[0], mask[0]) for name in ("support", "features")})
        cv = CrossValidation(scores, np.ones((5, rows)), np.ones(5), path, N, 1.0, Support(idx, mask))
        fits = []
        for _ in range(2):
            info = Info(*rng.random((len(Info._fields), 3)))
            ended = (np.float64(0), Support(idx[0, cv.best], mask[0, cv.best]), np.float64(7), 1, 1, 2, 1, info, None)
            fits.append((Solution(rng.standard_normal(number), *ended, None, free=np.array([0.7])),))
        asked.append((models, template, {"ks": ks, "l2s": l2s, "l0s": l0s, **options}))
        made.append(Choice(*fits, (path,), 0.5, cv.best, cv, "best"))
        return made[-1]

    monkeypatch.setattr(fit, "choose", choose)
    settings = {"l0": [0.3, 0.1], "l1": [0.0, 0.05, 0.1]} if prices else {"solver": "htp"}
    model = sht.SparseRegressor(rule="best", **settings).fit(X, Y, weights)
    at = int(np.argmin([choice.scores.mean.min() for choice in made]))
    choice, (models, template, options) = made[at], asked[at]
    (solution,), (selected,), (path,), _, row, cv, _ = choice
    kept = np.arange(len(path)) if prices else np.flatnonzero(np.arange(len(path)) % 17 < 16)  # of 97 samples, and 104
    table, w = model.cv_results_, solution.x[:P]
    np.testing.assert_array_equal(model.coef_, w)
    np.testing.assert_allclose(model.intercept_, 0.7 - np.average(X, 0, weights) @ w, rtol=1e-9)
    np.testing.assert_array_equal(model._evidence.fits[0][2].x, selected.x[:P])
    np.testing.assert_array_equal(table["scores"], cv.scores[:, kept])
    np.testing.assert_array_equal(model.path_.coefficients, path.coefficients[kept])
    candidates = [1e-6] if prices else sht.SparseRegressor._l2_grid
    np.testing.assert_array_equal(table["l2s"], np.repeat(candidates, 2 if prices else 16))
    assert (table["row"], table["rule"]) == (list(kept).index(row), "best") and table["row"] == table["best_index"]
    np.testing.assert_array_equal(table["shares"], cv.shares(row))
    np.testing.assert_array_equal(table["as_good"], cv.as_good(row))
    assert (model.path_.n_units, model.path_.total_weight, options["held"]) == (P, weights.sum(), None)
    assert model.k_ == (np.unique(path.support.idx[row][path.support.mask[row]]).size if prices else path.ks[row])
    assert (model.l0_, model.l1_) == ((path.l0s[row], (0.0, 0.05, 0.1)[at]) if prices else (None, None))
    assert model.l2_ == table["l2s"][table["row"]] and model.refit_l2_ == 0.5 * model.l2_
    np.testing.assert_allclose(models[0].sample_weight, np.pad(weights / 2, (0, 0 if prices else 7)))
    assert options["samples"] == {"n_units": P, "total_weight": weights.sum()} and options["rule"] == "best"
    assert (options["refit"], len(options["folds"])) == ((1.0 if prices else None), 5)
    if prices:
        assert options["ks"] is None and options["l0s"].tolist() == [0.3, 0.1] and len(made) == 3
        assert [float(each.l1) for _, each, _ in asked] == [0.0, 0.05, 0.1]
    else:
        assert options["ks"].size == 17 and template.k_max >= 20 and options["l2s"].shape == (4, 36)


@pytest.mark.slow
def test_certificates_are_of_the_columns_of_the_data(monkeypatch):
    found = []
    for each in (lambda solver: True, lambda solver: False):
        monkeypatch.setattr("sparsehtp.estimators.parameters.pads", each)
        # All features but one: every exchange is every other subset.
        most = sht.SparseRegressor(k=P - 1, l2=0.1, solver="htp").fit(X, Y)
        thin = sht.SparseRegressor(k=3, solver="htp").fit(sparse.csr_array(THIN), Y)
        found.append([most.certificate_, thin.certificate_])
    for padded, exact in zip(*found, strict=True):
        assert padded.statement == exact.statement
        np.testing.assert_allclose(padded.upper_bound, exact.upper_bound)
        np.testing.assert_allclose(padded.swap_gain, exact.swap_gain, rtol=1e-6, atol=1e-12)


def test_where_shapes_decide_the_answer_they_are_those_of_the_data():
    """A solver that is not of the names may draw rows; paths over prices are not padded either."""
    for prices, solver, active in ((None, None, True), (None, sht.solvers.SVRGHT(), False), ("any", None, False)):
        plan = SimpleNamespace(prices=prices, solver=solver, l2=np.array(0.1))
        padding = Problem(SimpleNamespace(X=np.zeros((41, 19))), plan, None, None).padding
        assert padding.active == active and padding.size == ((44, 20) if active else (41, 19))
