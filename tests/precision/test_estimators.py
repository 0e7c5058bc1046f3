"""`SparsePrecision` and `SparseLDA`: choices, inputs, attributes, agreement with scikit-learn."""

import math

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax
from scipy.stats import multivariate_normal
from sklearn.covariance import EmpiricalCovariance, oas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

import sparsehtp as sht
from sparsehtp.datasets import make_precision
from sparsehtp.estimators import graph
from sparsehtp.estimators.graph import default_pairs
from sparsehtp.thresholds import pair_index

X, TRUTH = make_precision(300, 8, probability=0.2, value=0.35, condition=6, seed=1)
EDGES = np.count_nonzero(np.triu(TRUTH, 1))
NAMES = [f"gene {j}" for j in range(8)]
FRAME = pd.DataFrame(X * 10.0 ** np.arange(-4, 4) + 5, columns=NAMES)


def empirical(X):
    return np.cov(X.T, bias=True)


def test_a_given_number_of_edges_and_the_methods_of_scikit_learn():
    model = sht.SparsePrecision(k=EDGES, shrinkage=0).fit(FRAME)
    S = empirical(FRAME)
    mask = model.support_ | np.eye(8, dtype=bool)
    np.testing.assert_array_equal(model.precision_ != 0, mask)
    np.testing.assert_array_equal(model.support_, (TRUTH != 0) & ~np.eye(8, dtype=bool))
    assert not model.support_.diagonal().any() and model.k_ == EDGES and model.result_ == "converged"
    scale = np.sqrt(np.diag(S))
    covariance, precision = model.covariance_ / np.outer(scale, scale), model.precision_ * np.outer(scale, scale)
    np.testing.assert_allclose(covariance[mask], (S / np.outer(scale, scale))[mask], atol=1e-7)
    np.testing.assert_allclose(covariance @ precision, np.eye(8), atol=1e-10)
    np.testing.assert_allclose(model.location_, FRAME.mean(0))
    assert model.path_ is None and model.cv_results_ is None
    assert model.feature_names_in_.tolist() == NAMES
    full = sht.SparsePrecision(k=28, shrinkage=0).fit(FRAME)
    reference = EmpiricalCovariance().fit(FRAME)
    # On correlations: the units differ by so much that scikit-learn's inverse of S is good to four digits only.
    scaled = (FRAME - FRAME.mean(0)).to_numpy() / scale
    expected = EmpiricalCovariance().fit(scaled).score(scaled) - np.log(scale).sum()
    np.testing.assert_allclose(full.score(FRAME), expected, rtol=1e-9)
    distances = np.sum(scaled * np.linalg.solve(S / np.outer(scale, scale), scaled.T).T, axis=1)
    np.testing.assert_allclose(full.mahalanobis(FRAME), distances, rtol=1e-6)
    assert full.error_norm(reference.covariance_) <= 1e-6 * np.linalg.norm(S) ** 2
    likelihood = np.sum(full.precision_ * S) - np.linalg.slogdet(full.precision_)[1]
    np.testing.assert_allclose(full.objective_value_, likelihood)
    edges = model.edges()
    assert len(edges) == EDGES and all(first in NAMES and second in NAMES for first, second, _ in edges)
    sizes = np.abs([weight for *_, weight in edges])
    assert np.all(np.diff(sizes) <= 0) and sizes.max() < 1
    i, j = NAMES.index(edges[0][0]), NAMES.index(edges[0][1])
    np.testing.assert_allclose(edges[0][2], model.partial_correlations()[i, j])


@pytest.mark.parametrize(
    ("p", "samples", "kept", "expected"),
    [
        (6, 3, 0, range(16)),
        (7, 1, 1, range(21)),
        (7, 6, 0, [0, 1, 2, 4, 5, 7]),
        (20, 60, 0, [0, 2, 5, 10, 15, 20, 30, 40, 60, 80, 120, 160]),
        (20, 39, 50, [0, 2, 5, 10, 15, 20, 30, 40, 60, 80, 120]),
        (20, 30, 0, [0, 2, 5, 10, 15, 20, 30, 40, 60, 80]),
    ],
)
def test_the_numbers_of_edges_that_are_tried_are_those_told(p, samples, kept, expected):
    np.testing.assert_array_equal(default_pairs(p, samples, kept), list(expected))


@pytest.mark.parametrize(
    ("k", "rows", "columns", "keep", "most"),
    [("cv", 12, 8, None, 8), ("bic", 12, 8, None, 16), ("bic", 30, 7, None, 21), ("bic", 30, 7, [[0, 1]], 20)],
)
def test_the_rows_of_a_fold_say_how_many_edges_are_tried(k, rows, columns, keep, most, monkeypatch):
    def stop(*_, ks, **more):
        raise StopIteration(ks.max())

    monkeypatch.setattr(graph, "choose", stop)
    with pytest.raises(StopIteration, match=f"^{most}$"):
        sht.SparsePrecision(k, keep=keep, cv=3).fit(X[:rows, :columns])


def test_scores_of_folds_and_criteria_by_hand():
    def check_choice(model, score):
        results, row = model.cv_results_, model.cv_results_["best_index"]
        assert row == results[score].argmin()
        assert model.k_ == results["ks"][row] == np.count_nonzero(np.triu(model.support_))
        np.testing.assert_allclose(model.path_.x[row], model.precision_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(model.path_.at(row).value, model.objective_value_, rtol=1e-9)
        return results[score if score != "mean_loss" else "scores"][..., results["ks"] == 4].ravel()

    folds = list(KFold(3).split(X))
    found = check_choice(sht.SparsePrecision(k="cv", cv=folds).fit(X), "mean_loss")
    for (train, test), score in zip(folds, found, strict=True):
        fold = sht.SparsePrecision(k=4).fit(X[train])
        moved = X[test] - X[train].mean(0)
        expected = np.sum(fold.precision_ * (moved.T @ moved)) / len(test) - np.linalg.slogdet(fold.precision_)[1]
        np.testing.assert_allclose(score, expected, rtol=1e-7)
    bic = 300 * sht.SparsePrecision(k=4, shrinkage=0).fit(X).objective_value_ + 4 * np.log(300)
    for rule, expected in (("bic", bic), ("ebic", bic + 2 * np.log(math.comb(28, 4)))):
        found = check_choice(sht.SparsePrecision(k=rule, shrinkage=0).fit(X), rule)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "n", "shrinkage"),
    [
        ({"n_samples": 300}, 300, oas(X / X.std(0))[1]),
        ({"n_samples": 300, "shrinkage": 0.25}, 300, 0.25),
        ({}, 2, 0),
        ({"shrinkage": 0.25}, 2, 0.25),
    ],
    ids=str,
)
def test_a_matrix_says_its_number_of_samples_or_nothing_of_it(monkeypatch, options, n, shrinkage):
    """And what a fit makes of its matrix, whatever the units of the variables are."""
    units, asked = 10.0 ** np.arange(-4, 4), []

    def fit(self, objective, k, folds):
        asked.append((float(objective.n), float(objective.shrinkage), k, folds, objective.dtype))
        self.precision_, self.support_ = TRUTH / np.outer(units, units), (TRUTH != 0) & ~np.eye(8, dtype=bool)

    monkeypatch.setattr(graph.SparseGraphModel, "_fit_graph", fit)
    S = empirical(X - X.mean(0))
    found = sht.SparsePrecision(k=5, covariance="precomputed", **options).fit(S)
    assert asked[0] == (n, pytest.approx(shrinkage, rel=1e-9), 5, None, np.float64) and not found.location_.any()
    np.testing.assert_allclose(found.covariance_ / np.outer(units, units), np.linalg.inv(TRUTH), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.covariance_, found.covariance_.T)
    if "n_samples" in options:  # a criterion needs it
        sht.SparsePrecision(k="bic", covariance="precomputed", **options).fit(S)
        assert asked[-1][2] == "bic"
    weights, moved = np.arange(300) % 3, X + np.arange(8)
    found = sht.SparsePrecision(k="cv", cv=4).fit(moved, sample_weight=weights)
    assert asked[-1][0] == weights.sum() and asked[-1][2] == "cv"
    np.testing.assert_allclose(found.location_, np.average(moved, 0, weights), rtol=1e-12)
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in asked[-1][3]])), np.arange(200))
    assert len(asked[-1][3]) == 4
    assert not sht.SparsePrecision(k=5, assume_centered=True).fit(moved).location_.any()


@pytest.mark.later
def test_covariances_and_correlations():
    data, S = sht.SparsePrecision(k=5).fit(X), empirical(X)
    again = sht.SparsePrecision(k=5, covariance="precomputed", n_samples=300).fit(S)
    np.testing.assert_allclose(again.precision_, data.precision_, atol=1e-8)
    scale = np.sqrt(np.diag(S))
    correlation = sht.SparsePrecision(k="ebic", covariance="precomputed", n_samples=300).fit(S / np.outer(scale, scale))
    direct = sht.SparsePrecision(k="ebic").fit(X)
    np.testing.assert_array_equal(correlation.support_, direct.support_)
    np.testing.assert_allclose(correlation.precision_, direct.precision_ * np.outer(scale, scale), atol=1e-7)


@pytest.mark.later
def test_means_and_kept_edges():
    centred = sht.SparsePrecision(k=28, assume_centered=True, shrinkage=0).fit(X + 1)
    np.testing.assert_allclose(centred.covariance_, (X + 1).T @ (X + 1) / 300, atol=1e-7)
    i, j = np.argwhere(np.triu(TRUTH == 0, 1))[0]
    kept = sht.SparsePrecision(k=3, keep=[(i, j)]).fit(X)
    assert kept.support_[i, j] and np.count_nonzero(np.triu(kept.support_)) == 4 and kept.k_ == 3
    named = sht.SparsePrecision(k=3, keep=[[NAMES[j], NAMES[i]]]).fit(FRAME)
    np.testing.assert_array_equal(named.support_, kept.support_)


def test_edges_to_keep_have_numbers_or_names():
    named, numbered = (graph.pair_threshold(keep, NAMES).keep for keep in ([[NAMES[3], NAMES[1]]], [(1, 3)]))
    assert named.tolist() == numbered.tolist() and named.size and not graph.pair_threshold(None, NAMES).keep.size


def test_shrinkage():
    """Of an objective it is told with its moments; that of scikit-learn is of a few rows too."""
    with jax.enable_x64(True):
        whole = sht.Precision.from_data(X, standardize=True, shrinkage="oas")
        part = whole.reweighted(np.arange(300) < 20)
    for found, rows in ((whole, X), (part, X[:20])):
        np.testing.assert_allclose(found.shrinkage, oas((rows - rows.mean(0)) / rows.std(0))[1], rtol=1e-12)
    S = empirical(X)
    unknown = sht.SparsePrecision(k=28, covariance="precomputed").fit(S)
    assert unknown.shrinkage_ == 0
    np.testing.assert_allclose(unknown.covariance_, S, atol=1e-7)
    model = sht.SparsePrecision(k=28, shrinkage=0.25).fit(X)
    np.testing.assert_allclose(model.covariance_, 0.75 * S + 0.25 * np.diag(np.diag(S)), atol=1e-7)


def test_a_small_sample_gains_by_shrinkage():
    wide, truth = make_precision(1040, 40, seed=0)
    edges = np.count_nonzero(np.triu(truth, 1))
    scores = {g: sht.SparsePrecision(edges, shrinkage=g).fit(wide[:40]).score(wide[40:]) for g in (0, "oas")}
    assert scores["oas"] > scores[0] + 1


def test_edges_persist_in_subsamples():
    with jax.enable_x64(True):
        objective = sht.Precision.from_data(X, standardize=True)
        stability = sht.stability_selection(objective, ks=[EDGES], n_resamples=20)
    rows, columns = np.triu_indices(8, 1)
    chances = stability.probabilities[0][pair_index(rows, columns, 8)]
    true = TRUTH[rows, columns] != 0
    assert chances[true].min() > 0.6 and chances[~true].max() < 0.6
    np.testing.assert_allclose(chances.sum(), EDGES)


# --- discriminant analysis --------------------------------------------------------------------------------------------
def classes(seed=0, n=200):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    Z, _ = make_precision(n, 6, probability=0.3, value=0.4, condition=8, seed=seed)
    return Z + np.array([[0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0], [0, 1, 0, -1, 0, 0]])[y], y


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("given", [False, True])
def test_scores_are_those_of_gaussian_densities(monkeypatch, number, given):
    """With the means of the classes and one precision matrix; a row without weight says nothing."""
    Z, y = classes()
    Z, y = Z[y < number] + 3, y[y < number]
    weights, S, asked = np.arange(len(y)) % 4 / 2.0, np.cov(Z.T), []

    def fit(self, objective, k, folds):
        asked.append((float(objective.n), k, folds, objective.dtype))
        self.precision_ = np.linalg.inv(S)

    monkeypatch.setattr(graph.SparseGraphModel, "_fit_graph", fit)
    spoilt = np.where(weights[:, None] > 0, Z, 1e6)
    shares = np.bincount(y, weights) / weights.sum()
    priors = np.arange(1.0, number + 1) / sum(range(number + 1)) if given else shares
    model = sht.SparseLDA(k=2, priors=priors if given else None).fit(spoilt, np.array([*"xyz"])[y], weights)
    means = np.array([np.average(Z[y == c], 0, weights[y == c]) for c in range(number)])
    np.testing.assert_allclose([*model.priors_, *model.means_.ravel()], [*priors, *means.ravel()], rtol=1e-9)
    logs = np.log(priors) + np.transpose([multivariate_normal(mean, S).logpdf(Z) for mean in means])
    np.testing.assert_allclose(model.predict_log_proba(Z), log_softmax(logs, axis=1), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(Z).sum(1), 1)
    np.testing.assert_array_equal(model.predict(Z), np.array([*"xyz"])[logs.argmax(1)])
    assert asked == [(weights.sum(), 2, None, np.float64)] and model.coef_.shape == (number - (number == 2), 6)
    model.set_params(k="cv", cv=4).fit(spoilt, y, weights)
    kept = y[weights > 0]
    held = [np.bincount(kept[test], minlength=number) for _, test in asked[1][2]]
    assert len(held) == 4 and np.ptp(held, axis=0).max() <= 1 and sum(held).tolist() == np.bincount(kept).tolist()


@pytest.mark.slow
def test_all_pairs_are_linear_discriminant_analysis():
    Z, y = classes()
    names = np.array(["low", "middle", "high"])[y]
    for rows, signs, priors in ((y < 3, 3, np.array([0.2, 0.3, 0.5])), (y < 2, 1, np.array([0.3, 0.7]))):
        model, given = (sht.SparseLDA(k=15, shrinkage=0, priors=p).fit(Z[rows], names[rows]) for p in (None, priors))
        expected = log_softmax(model.predict_log_proba(Z) + np.log(priors / model.priors_), axis=1)
        np.testing.assert_allclose(given.predict_log_proba(Z), expected, atol=1e-9)
        reference = LinearDiscriminantAnalysis(solver="lsqr").fit(Z[rows], names[rows])
        np.testing.assert_array_equal(model.predict(Z), reference.predict(Z))
        assert model.coef_.shape == (signs, 6)
        np.testing.assert_allclose(model.means_, reference.means_, atol=1e-12)
        np.testing.assert_allclose(model.priors_, reference.priors_)
        np.testing.assert_allclose(model.predict_log_proba(Z), reference.predict_log_proba(Z), atol=1e-6)
        np.testing.assert_allclose(model.predict_proba(Z), reference.predict_proba(Z), atol=1e-6)


def test_a_variable_that_separates_the_classes_decides():
    Z, y = classes()
    for scale in (1e-5, 1, 1e5):
        shifted = np.column_stack([Z, scale * np.array([3.0, 1.0, 2.0])[y]])
        model = sht.SparseLDA(k=2).fit(shifted, y)
        shuffled = np.random.default_rng(0).permutation(len(y))
        moved = np.column_stack([Z[shuffled], shifted[:, -1]])
        np.testing.assert_array_equal(model.predict(moved), y)


def test_classes_of_single_precision_far_from_zero():
    """A shift of the data changes no probability, but for the digits that float32 data have there."""
    rng = np.random.default_rng(8)
    y = rng.integers(0, 3, 200)
    X = (np.round(64 * (rng.standard_normal((200, 4)) + y[:, None] * [1, 0.5, 0, 0])) / 64).astype(np.float32)
    for far in (1024.0, 65536.0):  # exact in float32
        near, moved = (sht.SparseLDA(k=3, shrinkage=0).fit(Z, y).predict_proba(Z) for Z in (X, X + np.float32(far)))
        np.testing.assert_allclose(moved, near, atol=2e-4)


def test_rows_without_weight_are_in_no_fold():
    X, weights = np.random.default_rng(0).standard_normal((30, 4)), np.ones(30)
    X[:, 1] += X[:, 0]
    weights[[3, 7]], some = 0, np.delete(np.arange(30), [3, 7])
    X[[3, 7]] = 1e3
    found, alone = sht.SparsePrecision().fit(X, sample_weight=weights), sht.SparsePrecision().fit(X[some])
    np.testing.assert_allclose(found.precision_, alone.precision_, rtol=1e-9)


def test_two_variables_are_enough():
    S = np.array([[2.0, 1.0], [1.0, 2.0]])
    found = sht.SparsePrecision(k=1, covariance="precomputed").fit(S)
    np.testing.assert_allclose(found.precision_, np.linalg.inv(S), rtol=1e-9)
    for wrong in (S[0], S[:1], S - 2 * np.eye(2)):
        with pytest.raises(ValueError, match="precision: needs a square matrix with a positive diagonal"):
            graph.partial_correlations(wrong)


def test_a_fit_that_was_cut_short_warns():
    X = np.random.default_rng(0).standard_normal((40, 6))
    with pytest.warns(ConvergenceWarning):
        assert sht.SparsePrecision(k=3, max_iter=1).fit(X).result_ == "max_steps"
