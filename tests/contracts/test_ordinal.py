"""Cumulative logits: the laws, another implementation, exhaustive search, units, weights, classes without rows."""

from typing import Any, NamedTuple

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import sparsehtp as sht
from sparsehtp.objectives.ordinal import EMPTY
from sparsehtp.testing import check_objective

pytestmark = pytest.mark.usefixtures("x64")

N, P, K = 60, 5, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, P)) * [1, 3, 0.5, 1, 1] + [0, 1, 2, 0, -1]
Y = np.digitize(X @ [1, 0, 0, -1, 0] + RNG.logistic(size=N), [-1, 0, 1.5])
L2 = np.array([0.1, 0.0, 0.5, 1.0, 0.2])
ALL = dict(sample_weight=RNG.choice([0, 0.5, 1, 2], N), offset=RNG.standard_normal(N), l2=L2, standardize=True)
OPTIONS = {"plain": {}, "all": ALL}
THRESHOLDS = np.array([-1.2, 0.3, 0.9])
VALUE = cases.jit(lambda model, w, thresholds: model.value(model.to_internal(w, thresholds)))


def formula(w, thresholds, sample_weight=None, offset=0.0, l2=0.0, standardize=False):
    """F as documented, at coefficients and thresholds in original units."""
    s = np.ones(N) if sample_weight is None else sample_weight
    s = s / s.sum()
    sd = np.sqrt(s @ (X - s @ X) ** 2) if standardize else 1.0
    below = np.column_stack([np.zeros(N), expit(thresholds - (X @ w + offset)[:, None]), np.ones(N)])
    probability = np.diff(below, axis=1)[np.arange(N), Y]
    return -s @ np.log(probability) + 0.5 * np.sum(l2 * (w * sd) ** 2)


@pytest.mark.parametrize("options", OPTIONS)
def test_value_is_the_documented_formula(options):
    model = sht.OrdinalModel(X, Y, **OPTIONS[options])
    for w in np.random.default_rng(1).standard_normal((3, P)) * 0.5:
        expected = formula(w, THRESHOLDS, **OPTIONS[options])
        np.testing.assert_allclose(VALUE(model, w, THRESHOLDS), expected, rtol=1e-12)
        assert VALUE(model, w, THRESHOLDS[[0, 2, 1]]) == np.inf
        back, thresholds = model.to_external(model.to_internal(w, THRESHOLDS))
        np.testing.assert_allclose(back, w, rtol=1e-12)
        np.testing.assert_allclose(thresholds, THRESHOLDS, atol=1e-12)
        below = model.to_internal(w, [-1e3, -500, 0])  # a threshold is a sum, which rounding may change by its terms
        assert model.intercept_error(below) > np.spacing(1e3)


def test_laws():
    check_objective(model(**OPTIONS["all"]))


def model(X=X, y=Y, n_classes=None, l2=0.1, offset=0.0, **options):
    """All options of one structure, so that all share the program below."""
    offset = np.broadcast_to(offset, len(y)).astype(X.dtype)
    return sht.OrdinalModel(X, y, n_classes, l2=np.asarray(l2, X.dtype), offset=offset, **options)


class Fit(NamedTuple):
    """Coefficients, thresholds, value, and whether that is the minimum."""

    w: Any
    thresholds: Any
    value: Any
    solved: Any


@cases.jit
def fit(model, idx=np.arange(P)):  # noqa: B008
    """The fit on the features idx."""
    free = P + jnp.arange(model.n_free)
    support = sht.results.Support(jnp.append(free, idx), jnp.ones(free.size + idx.size, bool))
    part = model.restrict(support)
    found = part.minimise(jnp.zeros(free.size + idx.size, model.dtype))
    x = jnp.zeros(P + free.size, model.dtype).at[support.idx].set(found.z)
    return Fit(*model.to_external(x), part.value(found.z), found.solved & ~found.singular)


# --- other implementations -------------------------------------------------------------------------------------------
def test_coefficients_are_those_of_statsmodels():
    ordinal_model = pytest.importorskip("statsmodels.miscmodels.ordinal_model")
    columns, offset = np.array([0, 2, 4]), OPTIONS["all"]["offset"]
    other = ordinal_model.OrderedModel(Y, X[:, columns], offset=offset, distr="logit")
    found = fit(model(l2=0.0, offset=offset), columns)
    levels = np.append(found.thresholds[:1], np.log(np.diff(found.thresholds)))
    start = np.append(found.w[columns], levels)  # a maximum of theirs, or they move on
    params = np.asarray(other.fit(start_params=start, method="newton", disp=False, tol=1e-12).params)
    np.testing.assert_allclose(found.w[columns], params[:3], atol=1e-5)
    np.testing.assert_allclose(found.thresholds, other.transform_threshold_params(params)[1:-1], atol=1e-5)


def test_two_classes_are_logistic_regression():
    y = (Y > 1).astype(int)
    options = {**OPTIONS["all"], "l2": 0.1}
    logistic = sht.LinearModel(X, 2.0 * y - 1, sht.losses.Logistic(), fit_intercept=True, **options)
    found, other = fit(model(y=y, **options)), fit(logistic)
    np.testing.assert_allclose(found.w, other.w, atol=1e-9)
    np.testing.assert_allclose(found.thresholds, [-other.thresholds], atol=1e-9)
    np.testing.assert_allclose(found.value, other.value, rtol=1e-12)


# --- laws of the model -----------------------------------------------------------------------------------------------
def test_models_around_a_point_are_those_of_its_hessian():
    """With the thresholds minimised out; and what bounds the curvature of the likelihood adds the slopes to it."""
    whole = model(**OPTIONS["all"])
    x, idx = whole.to_internal(np.linspace(-0.5, 0.7, P), THRESHOLDS), jnp.array([3, 0])

    @cases.jit
    def facts(whole, x):
        found, likelihood, eta = whole.normal_equations(x), whole.likelihood, whole.forward(x)
        model = (found.rows(idx), found.diagonal, found.rhs, found.constant)
        derivatives = whole.value(x), jax.grad(whole.value)(x), jax.hessian(whole.value)(x)
        return model, derivatives, likelihood.majorant(eta), likelihood.terms(eta), jax.hessian(likelihood.value)(eta)

    (rows, diagonal, rhs, constant), (value, slope, H), majorant, terms, own = jax.device_get(facts(whole, x))
    w, follow = np.asarray(x)[:P], np.linalg.solve(H[P:, P:], np.column_stack([H[P:, :P], slope[P:]]))
    A, left = H[:P, :P] - H[:P, P:] @ follow[:, :P], slope[:P] - H[:P, P:] @ follow[:, P]
    np.testing.assert_allclose(rows, A[np.asarray(idx)], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(diagonal, np.diag(A), rtol=1e-9)
    np.testing.assert_allclose(rhs, A @ w - left, rtol=1e-9, atol=1e-12)
    least = value - slope[P:] @ follow[:, P] / 2 - left @ w + w @ A @ w / 2  # of the model at zero
    np.testing.assert_allclose(constant, 2 * least, rtol=1e-9)
    np.testing.assert_allclose(majorant, np.diag(own) + terms, rtol=1e-9, atol=1e-12)


def test_a_column_that_differs_where_there_is_no_curvature_has_none():
    diagonal = cases.jit(lambda model, w: model.normal_equations(model.to_internal(w, THRESHOLDS)).diagonal)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        w, Z = rng.standard_normal(P), X.copy()
        Z[:, 2] = np.arange(N) != seed
        Z[seed, 0] = 50 / w[0]  # exp(-50) is the curvature of this row, and of the column when thresholds follow it
        found = diagonal(model(Z, l2=0.0, sample_weight=rng.random(N)), w)
        assert found[2] == 0 and (np.delete(found, 2) > 1e-3).all(), seed


def test_thresholds_follow_a_coefficient_that_goes_unless_they_would_cross():
    whole, d = model(l2=0.0), P + K - 1
    idx = np.roll(np.arange(d), K - 1)
    part = whole.restrict(sht.results.Support(jnp.asarray(idx), jnp.ones(d, bool)))
    z = whole.to_internal(np.array([-7.2, 33.5, 45, 41.4, 30.2]), np.array([-3.6, 5.2, 5.202]))[idx]
    found, H = cases.jit(lambda z: (part.without_each(z, K - 1), part.hess(z)))(z)
    stay, levels = np.where(np.eye(d), 0, z), np.s_[: K - 1]
    follow = stay + np.pad((np.linalg.solve(H[levels, levels], H[levels]) * z).T, ((0, 0), (0, P)))
    first, second = np.asarray(cases.jit(jax.vmap(part.value))(np.concatenate([follow, stay]))).reshape(2, d)
    assert np.isinf(first[K - 1 :]).sum() == 1
    np.testing.assert_allclose(found, np.where(np.isinf(first), second, first), rtol=1e-10)


def test_thresholds_start_at_the_minimiser_of_the_null_model():
    weights = OPTIONS["all"]["sample_weight"]
    start = model(sample_weight=weights)
    origin, (_, grad) = cases.jit(lambda m: (m.to_external(m.origin())[1], m.value_and_grad(m.origin())))(start)
    np.testing.assert_allclose(grad[P:], 0, atol=1e-12)
    share = np.array([weights[c >= Y].sum() for c in range(K - 1)]) / weights.sum()
    np.testing.assert_allclose(origin, np.log(share / (1 - share)), rtol=1e-12)
    np.testing.assert_array_equal(start.to_internal(np.zeros(P)), start.origin())
    np.testing.assert_array_equal(start.feasible(start.origin()), start.origin())
    crossed = start.to_internal(np.ones(P), THRESHOLDS[[1, 0, 2]])
    moved = start.to_external(start.feasible(crossed))
    assert moved[1][0] < moved[1][1] < moved[1][2] and np.allclose(moved[0], 1) and np.allclose(moved[1][0], 0.3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("gone", [[0], [1], [2], [3], [1, 2], [0, 1], [0, 3]])
def test_a_class_without_weight_stays_finite(gone, dtype):
    """Its fit is that of the other classes alone, but for its small share; its own probability is about that."""
    weights = (~np.isin(Y, gone)).astype(float)
    left = np.setdiff1d(np.arange(K), gone)
    found = fit(model(X.astype(dtype)).reweighted(weights.astype(dtype)))
    y = np.minimum(np.searchsorted(left, Y), left.size - 1)
    expected = fit(model(y=y, sample_weight=weights))
    assert found.solved and expected.solved
    np.testing.assert_allclose(found.w, expected.w, atol=2e-3)
    gaps = np.diff(found.thresholds)
    assert np.isfinite(found.thresholds).all() and (gaps > 0).all()
    shares = np.diff(expit(found.thresholds), prepend=0, append=1)[gone]
    assert (shares > EMPTY / 10).all() and (shares < EMPTY * 100).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_rare_class_between_two_has_its_digits(dtype):
    """One row of 10^6 among two classes: the narrow gap of the thresholds is found as in exact arithmetic."""
    weights = np.array([5e5, 1, 5e5])
    thin = sht.OrdinalModel(np.zeros((3, P), dtype), np.arange(3), sample_weight=weights, offset=np.zeros(3))
    found = fit(thin)
    assert found.solved
    np.testing.assert_allclose(np.diff(found.thresholds), 4e-6, rtol=0.05)
    entropy = -(weights / weights.sum()) @ np.log(weights / weights.sum())
    np.testing.assert_allclose(found.value, entropy, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_predictors_give_numbers(dtype):
    evaluate = cases.jit(lambda model, x: (*model.value_and_grad(x), model.normal_equations(x).diagonal))
    whole = model(X.astype(dtype))
    for size in (1e2, 1e5, 1e30):
        for gap in (1e-30, 1.0, 1e30, -1.0):
            w, thresholds = np.full(P, size, dtype), np.array([-gap, 0, gap], dtype)
            value, grad, curvature = evaluate(whole, whole.to_internal(w, thresholds))
            assert np.isinf(value) if gap < 0 else not np.isnan(value), (size, gap)
            assert not np.isnan(grad).any() and not np.isnan(curvature).any(), (size, gap)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gap_of_nearly_nothing_has_a_curvature(dtype):
    """Squared it would leave the range: what is narrower than 1e-12 counts as that, and crossed thresholds as apart."""
    likelihood, at = model(X.astype(dtype)).likelihood, jnp.zeros(N + K - 1, dtype).at[-1].set(1)
    curvature = cases.jit(lambda gap: likelihood.curvature(at.at[-2].set(gap)))
    found, expected = (np.asarray(curvature(dtype(gap)).inner) for gap in (8 * np.finfo(dtype).tiny, 1e-12))
    assert np.isfinite(found).all() and found[1, 1] > 1e20
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for gap in (0.0, -1.0):
        assert np.isfinite(curvature(dtype(gap)).inner).all()


# --- errors ----------------------------------------------------------------------------------------------------------
BAD = {
    "y: needs shape": dict(y=Y[:-1]),
    "y: needs classes numbered": dict(y=Y + 0.5),
    "y: needs classes numbered 0, 1 and so on up to 2": dict(n_classes=3),
    "y: needs two classes": dict(y=np.where(Y == 1, 0, Y)),
    "n_classes: must be at least 2": dict(y=np.zeros(N), n_classes=1),
}


@pytest.mark.parametrize("sentence", BAD)
def test_errors_name_the_argument(sentence):
    with pytest.raises(ValueError, match=f"^{sentence}") as error:
        sht.OrdinalModel(**{"X": X, "y": Y, **BAD[sentence]})
    assert str(error.value).count(". ") == 0


def test_traced_classes_need_their_number_and_folds_all_of_them():
    value = jax.jit(lambda y: sht.OrdinalModel(X, y, K).value(jnp.zeros(P + K - 1)))
    model = sht.OrdinalModel(X, Y)
    np.testing.assert_allclose(value(Y), model.value(model.origin()), rtol=1e-12)
    unnamed = jax.jit(lambda y: sht.OrdinalModel(X, y).value(jnp.zeros(P + K - 1)))
    cases.refused(ValueError, "^n_classes: must be given", lambda: unnamed(Y))
    cases.refused(ValueError, "scoring: must be", lambda: sht.cross_validate(model, ks=[0, 1], scoring="error"))
    folds = [(np.flatnonzero(Y == 0), np.flatnonzero(Y > 0))]
    cases.refused(ValueError, "trains without one of", lambda: sht.cross_validate(model, ks=[0], folds=folds))
