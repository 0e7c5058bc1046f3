"""Rows that stand for many: every sum of squares is that of all rows, in all and in every part of every fold."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.model_selection import KFold, ShuffleSplit

import sparsehtp as sht
from sparsehtp.estimators import base, condense, fit
from sparsehtp.estimators.condense import condensed
from sparsehtp.linalg import triangle
from sparsehtp.linalg.triangle import triangles_of

N, P = 900, 5


def data(seed, responses=0, mean=0.0, scale=1.0):
    """(X, targets, weights) of columns that are correlated, some far from zero and of other sizes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 0.5 * rng.standard_normal((N, 1))
    Y = X @ rng.standard_normal((P, max(responses, 1))) + rng.standard_normal((N, max(responses, 1)))
    X = (X + mean) * np.geomspace(1 / scale, scale, P)
    return X, [Y] if responses else [Y[:, 0] + mean], rng.uniform(0.5, 2, N)


def squares(X, y, weights, w, b):
    """sum_i s_i (y_i - x_i'w - b)^2, in extended precision."""
    X, y, weights, w, b = (np.asarray(each, np.longdouble) for each in (X, y, weights, w, b))
    return weights @ (y - X @ w - b) ** 2


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_any_number_of_threads_gives_the_same_bits(workers, monkeypatch):
    monkeypatch.setattr(triangle, "BLOCK_ROWS", 8)
    A, roles = np.random.default_rng(0).standard_normal((5000, 4)), np.arange(5000) % 2

    def found(number):
        monkeypatch.setattr(triangle.os, "cpu_count", lambda: number)
        return triangles_of(lambda a, b: (A[a:b], np.ones(len(A[a:b]))), roles, 2, 4)

    np.testing.assert_array_equal(found(workers), found(3))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("options", "far"),
    [({}, 1), ({"mean": 1e6}, 1e6), ({"scale": 1e8}, 1), ({"responses": 2}, 1), ({"mean": 1e6, "scale": 1e4}, 1e6)],
    ids=str,
)
def test_sums_of_squares_are_those_of_all_rows(options, far, intercept, monkeypatch):
    """Of all rows, and of both parts of folds that hold rows more than once, and of which some are nowhere."""
    monkeypatch.setattr(condense, "BLOCK", 350)  # the last of three is no whole one
    monkeypatch.setattr(condense, "FEW_CODES", 2 if intercept else 2**31)
    monkeypatch.setattr(triangle, "BLOCK_ROWS", 8 if far == 1 else 60)
    X, targets, weights = data(0, **options)
    rng = np.random.default_rng(1)
    twice = rng.permutation(np.tile(np.arange(200), 2))
    pairs = [
        (np.append(twice, rng.choice(np.arange(200, 600), 200, False)), np.arange(600 + 100 * i, 700 + 100 * i))
        for i in range(2)
    ]
    few = condensed(X, targets, weights, pairs, intercept)
    assert few is not None and len(few.X) < N / condense.WORTH and few.stand_in.samples == (N, weights.sum())
    Y, Z = (np.column_stack(each) for each in (targets, few.targets))
    centre, level = np.zeros(P), np.zeros(Y.shape[1])
    if intercept:
        centre, level = few.stand_in.centre, np.ravel(few.stand_in.levels)
    elif far > 1:
        far = far**2  # of sums about zero digits are lost by any method
    w, b = rng.standard_normal(P) / np.abs(X - X.mean(0)).max(0), intercept * 0.7
    everything = [(np.arange(N), np.arange(len(few.X)))]
    parts = [(a, s) for old, new in zip(pairs, few.pairs, strict=True) for a, s in zip(old, new, strict=True)]
    for rows, stands in everything + parts:
        for r in range(Y.shape[1]):
            # y about its level and X about its centre: b is about both
            at = np.longdouble(b) + level[r] - np.asarray(centre, np.longdouble) @ w
            full = squares(X[rows], Y[rows, r], weights[rows], w, at)
            found = squares(few.X[stands], Z[stands, r], few.weights[stands], w, b)
            assert abs(found - full) <= 1e-13 * far * full


@pytest.mark.parametrize("intercept", [False, True])
def test_constant_columns_and_targets_stay_constant(intercept):
    X, _, weights = data(0)
    X[:, 1], X[:, 3] = 1 / 3, 1e9 / 3
    X[:, 2] = 1e3 * (1 + 1e-13 * X[:, 2])  # a model in columns sees none of these vary
    few = condensed(X, [np.full(N, 0.1)], weights, None, intercept)
    deviation = np.ptp(few.X, axis=0)
    assert not deviation[[1, 3]].any() and deviation[[0, 4]].all() and np.ptp(few.targets[0]) == 0
    assert (deviation[2] == 0) == intercept
    assert few.stand_in.levels[0] == 0.1 * intercept and np.any(few.targets[0]) != intercept


def test_what_varies_a_little_is_not_constant():
    """Without an intercept beside a column of ones; and columns whose squares are no numbers."""
    X, _, weights = data(0)
    X[:, 1], X[:, 2], X[:, 3], y = 1 + 1e-12 * X[:, 1], 1e-165 * X[:, 2], 1e160 * X[:, 3], 1e6 + 1e-7 * X[:, 0]
    few = condensed(X, [y], weights, None, False)
    for old, new in [*zip(X.T, few.X.T, strict=True), (y, few.targets[0])]:
        size = np.abs(old).max()
        spread = [np.cov(each / size, aweights=w, ddof=0) for each, w in ((old, weights), (new, few.weights))]
        np.testing.assert_allclose(*spread, rtol=0.05)


def test_too_few_rows_or_too_many_roles_or_weights_of_all_sizes_stay_as_they_are():
    X, targets, weights = data(0)
    rng = np.random.default_rng(0)
    subsamples = [(half[:450], half[450:]) for half in (rng.permutation(N) for _ in range(6))]
    assert condensed(X[:20], [targets[0][:20]], weights[:20], None, True) is None
    assert condensed(X, targets, weights, subsamples, True) is None
    assert condensed(X, targets, np.geomspace(1e-12, 1, N), None, True) is None


@pytest.mark.parametrize(
    ("dtype", "cv"), [(np.float32, KFold(2)), (np.float64, ShuffleSplit(3, test_size=0.4, random_state=0))]
)
def test_a_fit_and_its_proof_are_those_of_all_rows(dtype, cv, monkeypatch):
    """And what is said of the folds, some of whose rows are held out more often than others."""
    X, (y,), weights = data(2)
    X, weights = (X + 1e3).astype(dtype), weights * (np.arange(N) % 7 > 0)
    models = []
    for large in (0, np.inf):
        monkeypatch.setattr(fit, "LARGE", large)
        models.append(sht.SparseRegressor(cv=cv).fit(X, y.astype(dtype), weights))
    few, whole = models
    assert np.less(*(model._evidence.fits[0][0].n_samples for model in models))
    tol = 1e-12 if dtype == np.float64 else 1e-4
    assert few.k_ == whole.k_ and few.coef_.dtype == whole.coef_.dtype == dtype
    np.testing.assert_array_equal(few.support_, whole.support_)
    np.testing.assert_allclose(few.coef_, whole.coef_, rtol=tol, atol=tol)
    np.testing.assert_allclose(few.predict(X), whole.predict(X), atol=10 * tol)
    assert few.cv_results_.keys() == whole.cv_results_.keys()
    for name, values in whole.cv_results_.items():
        if np.asarray(values).dtype.kind in "biuf":
            np.testing.assert_allclose(few.cv_results_[name], values, rtol=100 * tol, atol=tol, err_msg=name)
    assert few.certificate_.swap_gain == whole.certificate_.swap_gain == 0
    proofs = [model.prove() for model in models]
    np.testing.assert_allclose(proofs[0].upper, proofs[1].upper, rtol=tol)
    np.testing.assert_allclose(proofs[0].intercept, proofs[1].intercept, rtol=max(tol, 1e-10))


def test_means_of_a_billion_lose_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.integers(-1000, 1000, (N, P)).astype(float)  # exact about any integer
    y = X[:, 0] - 3 * X[:, 2] + rng.integers(-50, 50, N)
    monkeypatch.setattr(fit, "LARGE", 0)
    near, far = (sht.SparseRegressor(k=2).fit(X + mean, y + mean) for mean in (0.0, 1e9))
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-13)
    np.testing.assert_allclose(far.intercept_, near.intercept_ + 1e9 - 1e9 * near.coef_.sum(), rtol=1e-15, atol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "given", "stands"),
    [
        ({}, {}, True),
        ({"k": 2, "positive": True, "keep": [0]}, {}, True),
        ({"k": [1, 2], "scoring": "neg_mean_absolute_error"}, {}, False),
        ({"loss": "huber"}, {}, False),
        ({"solver": "htp"}, {}, False),
        ({}, {"offset": np.ones(N)}, False),
        ({"cv": [(np.arange(600), np.arange(600, N), np.ones((N, P)))]}, {}, False),
        ({}, {"X": csr_array(data(0)[0])}, False),
    ],
    ids=str,
)
def test_rows_stand_for_others_where_squares_tell_all(parameters, given, stands, monkeypatch):
    def stop(problem, *_):
        raise StopIteration(problem.rows.stand_in is not None)

    monkeypatch.setattr(fit, "LARGE", 0)
    monkeypatch.setattr(base, "fit_targets", stop)
    X, (y,), _ = data(0)
    with pytest.raises(StopIteration, match=f"^{stands}$"):
        sht.SparseRegressor(**({"cv": KFold(3)} | parameters)).fit(**({"X": X, "y": y} | given))
