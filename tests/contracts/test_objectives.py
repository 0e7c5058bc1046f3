"""Every objective: the laws of `sparsehtp.testing`, the documented formula, units, weights."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import Problem
from scipy import sparse

import sparsehtp as sht
from sparsehtp.objectives import AbstractFiniteSum, AbstractModel
from sparsehtp.objectives.model import in_double
from sparsehtp.testing import check_objective

pytestmark = pytest.mark.usefixtures("x64")

N, P = 12, 5
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, P)) * [1, 3, 0.5, 1, 1] + [0, 1, 2, 0, -1]
WEIGHTS = np.array([1.0, 2, 0, 0.5, 1, 1, 3, 1, 1, 0.25, 1, 1])
OFFSET = RNG.standard_normal(N)
VECTOR = np.array([0.1, 0.0, 0.5, 1.0, 0.2])
OPTIONS = {
    "plain": {},
    "weights_l2": dict(sample_weight=WEIGHTS, l2=0.3),
    "intercept_vector_l2": dict(fit_intercept=True, l2=VECTOR),
    "standardize": dict(standardize=True, l2=0.2, sample_weight=WEIGHTS),
    "all": dict(fit_intercept=True, standardize=True, l2=VECTOR, sample_weight=WEIGHTS, offset=OFFSET),
}
OTHERS = [(loss, "all") for loss in ("logistic_2", "smoothed_hinge", "huber", "poisson")]
CASES = pytest.mark.parametrize(("loss", "options"), [*(("squared", options) for options in OPTIONS), *OTHERS])


def make(loss, options):
    loss = cases.LOSSES[loss]
    y = loss.draw_targets(X @ [0.5, -0.3, 0, 0, 0.2], np.random.default_rng(1))
    return sht.LinearModel(X, y, loss, **OPTIONS[options]), y


def formula(loss, y, w, b, sample_weight=None, l2=0.0, standardize=False, offset=None, fit_intercept=False):
    """F as documented, at coefficients in original units."""
    return Problem(X, y, cases.exact(loss), l2, sample_weight, offset, fit_intercept, standardize).value(w, b)


@CASES
def test_value_is_the_documented_formula(loss, options):
    objective, y = make(loss, options)
    w = np.random.default_rng(3).standard_normal(P) * 0.5
    b = 0.4 if objective.n_free else 0.0
    x = objective.to_internal(jnp.asarray(w), b)
    expected = float(formula(cases.LOSSES[loss], y, w, b, **OPTIONS[options]))
    np.testing.assert_allclose(objective.value(x), expected, rtol=1e-12)
    back, intercept = objective.to_external(x)
    np.testing.assert_allclose(back, w, rtol=1e-12)
    np.testing.assert_allclose(intercept, b, atol=1e-12)


def test_traced_weights_and_coefficients_have_the_value_of_known_ones():
    def make(s):
        options = OPTIONS["all"] | {"sample_weight": s, "offset": OFFSET - 1e3}
        return sht.LinearModel(X + 1e3 * (np.arange(P) == 3), OFFSET + 1e3, **options)

    known, w, b = make(WEIGHTS), np.random.default_rng(3).standard_normal(P), 1990.0
    x = known.to_internal(w, b)
    np.testing.assert_allclose(jax.jit(lambda w: known.to_internal(w, b))(w), x, rtol=1e-9)
    scale, value = jax.jit(lambda s: ((m := make(s)).internal_scale(), m.value(m.to_internal(w, b))))(WEIGHTS)
    np.testing.assert_allclose(scale, known.internal_scale(), rtol=1e-9)
    np.testing.assert_allclose(value, known.value(x))


@CASES
def test_laws(loss, options):
    check_objective(make(loss, options)[0])


# above, and in files of their own
ELSEWHERE = {"linear_model", "custom", "multi_response", "cox", "ordinal", "precision"}


@pytest.mark.parametrize("name", sorted({*cases.OBJECTIVES} - ELSEWHERE))
def test_laws_of_others(name):
    check_objective(cases.OBJECTIVES[name](X, OFFSET))


NO_INTERCEPT = {"several": lambda X, y: sht.MultiResponse(X, np.column_stack([y, -y]))}


@pytest.mark.parametrize("make", (cases.OBJECTIVES | NO_INTERCEPT).values(), ids=[*cases.OBJECTIVES, *NO_INTERCEPT])
def test_the_intercept_on_the_host_is_that_of_the_device(make):
    objective = make(X, OFFSET)
    x = objective.origin() + np.linspace(0.1, 0.2, objective.n_coefficients + objective.n_free)
    w, intercept = objective.to_external(x)
    found = objective.intercept_of(np.asarray(w), np.asarray(x)[objective.n_coefficients :])
    np.testing.assert_allclose(np.broadcast_to(found, np.shape(intercept)), intercept, rtol=1e-9)
    assert objective.ifo_per_gradient == (N if isinstance(objective, AbstractModel | AbstractFiniteSum) else 1)
    assert objective.n_samples == (1 if isinstance(objective, sht.Precision | sht.QuadraticForm) else N)
    np.testing.assert_array_equal(objective.intercept_rounding(objective.origin(), None), 0)  # of columns near zero
    if not isinstance(objective, sht.Custom | sht.CustomSum):
        assert objective.coefficients(np.zeros(np.shape(w), int).tolist()).dtype == objective.dtype
    whole = sht.results.Support(jnp.arange(x.size), jnp.ones(x.size, bool))
    assert objective.restrict(whole).quadratic == objective.quadratic


Y = X @ [1.0, 0, -2, 0, 0] + OFFSET
ON_DATA = {
    "linear": lambda Z, y, **rest: sht.LinearModel(Z, y, **rest, fit_intercept=True),
    "several": lambda Z, y, **rest: sht.MultiResponse(Z, np.column_stack([y, -y]), **rest, fit_intercept=True),
    "cox": lambda Z, y, **rest: sht.CoxModel(Z, y, OFFSET > -1, **rest),
    "ordinal": lambda Z, y, **rest: sht.OrdinalModel(Z, np.digitize(y, [-5, 0]), **rest),
}


@pytest.mark.parametrize("make", ON_DATA.values(), ids=ON_DATA)
def test_a_model_in_double_is_that_of_its_data_in_double(make):
    arrays = {"Z": X, "y": Y, "l2": np.array(0.125), "sample_weight": np.linspace(0.3, 1.7, N)}
    single = {name: value.astype(np.float32) for name, value in arrays.items()}
    double = {name: value.astype(float) for name, value in single.items()}
    with jax.enable_x64(False):
        found = make(**single, standardize=True)
    expected = make(**double, standardize=True)
    for a, b in zip(*map(jax.tree.leaves, (in_double(found), expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_rows_are_told_apart_by_features_of_unit_deviation():
    s, r = WEIGHTS / WEIGHTS.sum(), np.random.default_rng(6).standard_normal(N)
    Z = np.column_stack([X / np.sqrt(s @ (X - s @ X) ** 2), np.full(N, 3.0)])  # what is constant stays
    found = sht.LinearModel(np.column_stack([X, np.full(N, 3.0)]), OFFSET).spread(r, WEIGHTS)
    np.testing.assert_allclose(found, Z @ (Z.T @ r), rtol=1e-10)


@pytest.mark.parametrize("options", ["weights_l2", "all"])
@pytest.mark.parametrize("loss", ["squared", "logistic_2", "huber"])
def test_lipschitz_is_the_largest_eigenvalue(loss, options):
    assert np.isinf(make("poisson", options)[0].lipschitz())
    objective, _ = make(loss, options)
    d = P + objective.n_free
    s = WEIGHTS / WEIGHTS.sum()
    A = X
    if objective.columns.standardize:
        A = (X - s @ X) / np.sqrt(s @ (X - s @ X) ** 2)
    if objective.n_free:
        A = np.column_stack([A, np.ones(N)])
    ridge = np.zeros(d)
    ridge[:P] = OPTIONS[options]["l2"]
    expected = np.linalg.eigvalsh(A.T @ (A * s[:, None]) + np.diag(ridge))[-1]  # all losses bend by one at most
    estimate = float(objective.lipschitz())
    assert 0.999 * expected <= estimate <= expected * (1 + 1e-9)
    z = np.random.default_rng(5).standard_normal(d)
    part = objective.restrict(sht.results.Support(jnp.arange(d), jnp.ones(d, bool)))
    terms, scale = cases.jit(lambda z: (part.grad_terms(z), part.scale(z)))(z)
    at, loss = (objective.forward(z), objective.y), objective.loss
    slope, bend = s * np.abs(loss.derivative(*at)), 0 if loss.kinked else loss.second_derivative(*at)
    np.testing.assert_allclose(terms, np.abs(A).T @ slope + ridge * np.abs(z), rtol=1e-10)
    np.testing.assert_allclose(scale, A.T**2 @ (s * (loss.majorant(*at) + bend)) + ridge, rtol=1e-10)


def test_a_column_of_nothing_costs_the_others_nothing():
    """Neither in the curvature of tall data, nor where the column beside it is far from zero."""
    y = np.where(np.arange(600) % 2, 1.0, -1)
    tall = sht.LinearModel(np.zeros((600, 3)), y, sht.losses.Logistic(), l2=0.5)
    np.testing.assert_array_equal(cases.jit(lambda model: model.smoothness())(tall), 0.5)
    even = np.arange(N) % 2 == 0
    third = np.nextafter(1 / 3, 1, where=even, out=np.full(N, 1 / 3))  # constant but for rounding
    Z = np.column_stack([np.zeros(N), X[:, 1] + 1e6, third, -1e7 * third, np.zeros(N), X, X[:, 1] / 100 + 1e8])
    nothing = np.isin(np.arange(11), [0, 2, 3, 4])
    model = sht.LinearModel(Z, Y, fit_intercept=True, l2=0.1)
    rows = np.asarray(model.columns.design.rows(np.arange(N)))
    np.testing.assert_allclose(rows + model.columns.shift, Z, rtol=1e-15)
    assert not rows[:, nothing].any() and not model.columns.shift[jnp.array([0, 4])].any()
    moments = cases.jit(lambda columns, weights: columns.moments(weights)[1])
    diagonal = jax.jit(lambda columns, weights: columns.gram_diagonal(weights))  # fused, it rounds to either side
    for kind in (np.asarray, sparse.csr_array):
        for standardize in (False, True):
            columns = sht.LinearModel(kind(Z), Y, fit_intercept=True, standardize=standardize).columns
            squares = moments(columns, WEIGHTS / 3)
            assert not squares[nothing].any() and (squares[~nothing] > 1e-5).all()
            assert not (standardize and columns.transpose_product(Y)[:11][nothing].any())
            for weights in np.eye(N):  # of a row at the mean next to nothing is left
                assert (diagonal(columns, weights) >= 0).all()


def test_a_quadratic_model_is_finite_where_a_loss_is_flat():
    """In single precision neither slope nor curvature is left of a loss far out, and no share of their mean."""
    with jax.enable_x64(False):
        single, far = X.astype(np.float32), np.full(N, -300, np.float32)
        for loss, y, offset in ((sht.losses.Logistic(), -np.ones(N), far), (sht.losses.Poisson(), np.zeros(N), far)):
            model = sht.LinearModel(single, y, loss, offset=offset, l2=0.5)
            equations = model.normal_equations()
            np.testing.assert_allclose(equations.diagonal, 0.5, rtol=1e-6)
            np.testing.assert_allclose(np.append(equations.rhs, equations.constant), 0, atol=1e-20)
            assert model.excess(model.origin(), model.origin()) == (0, 1)  # nor a dispersion


@pytest.mark.parametrize("options", ["weights_l2", "all"])
def test_the_value_without_each_coefficient(options):
    """The intercept, if there is one, takes over what it can, and the others stay: exactly so for a quadratic."""
    model, _ = make("squared", options)
    n_free, d = model.n_free, P + model.n_free
    part = model.restrict(sht.results.Support(jnp.arange(d)[::-1], jnp.ones(d, bool)))
    value, slope = cases.jit(lambda z: part.value(z)), cases.jit(jax.grad(lambda z: part.value(z)))
    z = jnp.asarray(np.random.default_rng(1).standard_normal(d))
    bend = slope(z.at[0].add(1))[0] - slope(z)[0]
    z = z.at[:n_free].add(-slope(z)[0] / bend)  # at the best intercept, of which the others' removal is counted
    found = cases.jit(lambda z: part.without_each(z, n_free))(z)
    rest = z * ~np.eye(d, dtype=bool)[n_free:]
    best = jax.vmap(value)(rest) - n_free * jax.vmap(slope)(rest)[:, 0] ** 2 / (2 * bend)
    np.testing.assert_allclose(found[n_free:], best, rtol=1e-10)


def test_what_an_objective_is_if_nothing_is_said():
    form = sht.QuadraticForm(np.eye(2), np.ones(2))
    assert form.smooth and not (form.sparse or form.rescaled or form.free_dispersion or form.copies_columns)
    assert (form.counted, form.labels, form.pieces, form.loss_name) == ("rows", None, None, "QuadraticForm")
    assert form.spread(jnp.ones(2), jnp.ones(2)) is None and form.scorer() is form.started(None) is form
    cases.refused(NotImplementedError, "objective: the dispersion", lambda: form.excess(jnp.ones(2), jnp.ones(2)))


def test_quadratic_form_is_the_documented_formula():
    form = sht.QuadraticForm.from_data(X, OFFSET, l2=0.1)
    x = np.random.default_rng(2).standard_normal(P)
    np.testing.assert_allclose(form.value(x), 0.5 * np.mean((X @ x - OFFSET) ** 2) + 0.05 * x @ x, rtol=1e-12)
    whole, same = (sht.QuadraticForm.from_data(Z, OFFSET).value(x) for Z in (np.rint(X).astype(int), np.rint(X)))
    np.testing.assert_allclose(whole, same)  # y is not of whole numbers
    assert sht.QuadraticForm(form.A, form.b).value(jnp.zeros(P)) == 0
    np.testing.assert_allclose(sht.QuadraticForm.from_data(X, OFFSET).value(x), form.value(x) - 0.05 * x @ x)
    rounded = sht.QuadraticForm(form.A.at[0, 1].add(1e-5), form.b)
    np.testing.assert_allclose(rounded.value_and_grad(x)[1], jax.grad(rounded.value)(x), rtol=1e-12)
    H = X.T @ X / N + 0.1 * np.eye(P)
    np.testing.assert_allclose(form.lipschitz(), np.linalg.eigvalsh(H)[-1], rtol=1e-3)


@pytest.mark.parametrize("standardize", [False, True])
def test_a_model_of_moved_data_is_about_where_they_were(standardize):
    y, centre, level = RNG.standard_normal(N) + 2000, np.array([1.0, -2, 30, 0, 0]), 5.0
    options = {"l2": 0.1, "fit_intercept": True, "standardize": standardize}
    moved = sht.LinearModel(X - centre, y - level, **options).about(centre, level)
    for model in (moved, sht.LinearModel(X, y, **options)):
        w, b = RNG.standard_normal(P), 1999.0
        penalty = 0.05 * np.sum((w * (X.std(0) if standardize else 1)) ** 2)
        expected = np.mean((X @ w + b - y) ** 2) / 2 + penalty
        np.testing.assert_allclose(model.value(model.to_internal(w, b)), expected, rtol=1e-10)


@pytest.mark.parametrize("case", [(1e3, 0, 0, 1, 0), (5, 1, 0, 1, 0), (0, 0, 1e5, 1, 0.1), (0, 0, 1e3, 0, -1e5)])
def test_an_intercept_is_rounded_by_no_more_than_is_said(case):
    (far, standardize, level, size, b), rng = case, np.random.default_rng(9)
    with jax.enable_x64(False):
        Z, points = rng.standard_normal((N, P)).astype(np.float32), rng.standard_normal((30, P + 1))
        A, y = Z + np.float32(far), Z[:, 0] + np.float32(level)
        model = sht.LinearModel(A, y, fit_intercept=True, standardize=standardize)
        at = cases.jit(lambda x: (*model.to_external(x), model.intercept_error(x), model.intercept_rounding(x, None)))
        for x in (points * [*[size] * P, b]).astype(np.float32):
            w, found, error, rise = (np.asarray(part, float) for part in at(x))
            off = A @ w + (exact := model.intercept_of(w, x[P:])) - y
            assert abs(found - exact) <= error
            more = max(np.mean((off + error) ** 2), np.mean((off - error) ** 2)) - np.mean(off**2)
            np.testing.assert_allclose(rise, more / 2, rtol=0.02, atol=1.2e-7 * (5 * np.mean(off**2) + np.var(y)))
        assert not standardize or at(model.to_internal(np.eye(P, dtype=np.float32)[0], 1e-3 - far))[-1] == 0
