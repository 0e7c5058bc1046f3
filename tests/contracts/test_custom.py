"""Objectives by automatic differentiation: equal to the written ones; pytrees; per-leaf sparsity; clear errors."""

import dataclasses
import functools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.columns import gather
from sparsehtp.linalg import DAMPING, POWER_STEPS
from sparsehtp.objectives.custom_ends import _curves_upwards_in_rank
from sparsehtp.results import RESULTS, Support
from sparsehtp.testing import check_objective

pytestmark = pytest.mark.usefixtures("x64")

X, Y, _ = cases.data(sht.losses.Logistic(), n=30, seed=4)
N, P = X.shape


def logistic(w, X, y, l2):
    return jnp.mean(jax.nn.softplus(-y * (X @ w))) + 0.5 * l2 * w @ w


def parts(x, X, y, l2):
    eta = X[:, :2] @ x["a"].ravel() + X[:, 2:] @ x["b"]
    return jnp.mean(jax.nn.softplus(-y * eta)) + 0.5 * l2 * (jnp.sum(x["a"] ** 2) + jnp.sum(x["b"] ** 2))


def terms(w, sample):
    x, y = sample
    return jax.nn.softplus(-y * (x @ w))


ZEROS = {"a": np.zeros((1, 2)), "b": np.zeros(4)}
with jax.enable_x64(True):
    CUSTOM = sht.Custom(logistic, X, Y, 0.05)
    TREE = sht.Custom(parts, X, Y, 0.05, like=ZEROS)
    SUM = sht.CustomSum(terms, (X, Y), like=np.zeros(P))
    MODEL = sht.LinearModel(X, Y, sht.losses.Logistic(), l2=0.05)
    POINT = jnp.asarray(np.random.default_rng(0).standard_normal(P))
    SUPPORT = Support(jnp.array([4, 0, 2, 0]), jnp.array([True, True, True, False]))


def test_values():
    check_objective(TREE)  # the laws of CUSTOM's kind are tested in test_objectives.py
    for other in (CUSTOM, TREE):
        np.testing.assert_allclose(other.value(POINT), MODEL.value(POINT), rtol=1e-12)
    z = gather(POINT, SUPPORT)
    ours, theirs = (each.restrict(SUPPORT).minimise(z).z for each in (TREE, MODEL))
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_subsets_of_subsets():
    few, again = CUSTOM.subset(jnp.array([5, 3, 1])), CUSTOM.subset(jnp.array([5, 3, 1])).subset(jnp.array([2, 0]))
    x = jnp.array([0.3, -0.2, 0.7])
    np.testing.assert_allclose(few.value(x), CUSTOM.value(jnp.zeros(P).at[jnp.array([5, 3, 1])].set(x)), rtol=1e-12)
    np.testing.assert_allclose(again.value(x[:2]), few.value(jnp.array([-0.2, 0.0, 0.3])), rtol=1e-12)


def test_shapes_are_those_of_one_array_or_of_a_vector():
    matrix = sht.Custom(several, X, TARGETS, 0.1, like=np.zeros((P, 3)))
    assert CUSTOM.external_shape == TREE.external_shape == (P,) and matrix.external_shape == (P, 3)
    assert matrix.subset(jnp.arange(4)).external_shape == (4,)
    assert sht.Custom(lambda x, *args: x @ x, Y[:2], X, like=POINT).n_samples == N
    assert sht.Custom(lambda x: x @ x, like=POINT).n_samples == 1
    assert sht.Custom(logistic, np.float32(X), np.float32(Y), 0.1).dtype == np.float32


@pytest.mark.parametrize("name", ["htp", "iht", "default", "grasp", "forward"])
def test_solvers_give_what_the_written_model_gives(name):
    solver = cases.solvers(name)[name]
    ours, theirs = (sht.solve(each, sht.Sparsity(3), solver) for each in (CUSTOM, MODEL))
    np.testing.assert_array_equal(cases.members(ours.support), cases.members(theirs.support))
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-6)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-9)
    assert int(ours.result) == sht.results.RESULTS.converged


def test_a_pytree_in_and_out():
    start = {"a": np.ones((1, 2)), "b": np.full(4, 0.5)}
    given = sht.Custom(parts, X, Y, 0.05)
    solution = sht.solve(given, sht.Sparsity(3), sht.solvers.HTP(), x0=start)
    expected = sht.solve(MODEL, sht.Sparsity(3), sht.solvers.HTP(), x0=np.array([1, 1, 0.5, 0.5, 0.5, 0.5]))
    assert solution.x["a"].shape == (1, 2) and solution.x["b"].shape == (4,)
    np.testing.assert_allclose(np.append(solution.x["a"], solution.x["b"]), expected.x, atol=1e-8)
    again = sht.solve(given, sht.Sparsity(3), sht.solvers.HTP(), x0=solution)
    np.testing.assert_allclose(again.value, solution.value, rtol=1e-12)
    assert sht.certificate(TREE, sht.Sparsity(3), solution).stationary


def test_a_fit_that_leaves_nearly_nothing_converges():
    objective = sht.Custom(cases.squares, X, X[:, :2] @ [1e4, -1e4] + 1e-4 * Y)
    assert sht.solve(objective, sht.Sparsity(2), sht.solvers.HTP()).result == sht.results.RESULTS.converged


def test_lipschitz_of_a_quadratic():
    def quadratic(x, A):
        return 0.5 * x @ A @ x

    A = X.T @ X
    np.testing.assert_allclose(sht.Custom(quadratic, A).lipschitz(), np.linalg.eigvalsh(A)[-1], rtol=1e-3)
    # What curves downwards is turned round for a Newton step, in any units.
    A = np.random.default_rng(0).standard_normal((P, P)) * np.outer(units := 10.0 ** np.arange(P), units)
    A = A + A.T
    live = np.ix_([4, 0, 2], [4, 0, 2])
    root = np.sqrt(np.abs(np.diag(A[live])))
    values, vectors = np.linalg.eigh(A[live] / np.outer(root, root))
    assert values[0] < 0 < values[-1]
    part = sht.Custom(quadratic, A).restrict(SUPPORT)
    turned = cases.jit(lambda z, damping: part.hess(z, damping))(POINT[:4], DAMPING)[:3, :3]
    np.testing.assert_allclose(turned / np.outer(root, root), vectors * np.abs(values) @ vectors.T, atol=1e-9)


DONE, STALLED = RESULTS.converged, RESULTS.stalled
# (diagonal of A, b, x, what is said of a run that ended at x on the first two, one >= 0 and one always in)
ENDS = {
    "a minimum": ([1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0], DONE),
    "a slope": ([1, 1, 1, 1], [1, 1, 0, 0], [1, 1.055, 0, 0], STALLED),
    "little to gain": ([1, 1, 1, 1], [1, 1, 0, 0], [1, 1.0387, 0, 0], DONE),
    "a slope in what no room is for": ([1, 1, 1, 1], [1, 1, 5, 0], [1, 1, 0, 0], DONE),
    "a slope in what there is room for": ([1, 1, 1, 1], [0, 1, 5, 0], [0, 1, 0, 0], STALLED),
    "a saddle": ([1, -1, 1, 1], [1, -1, 0, 0], [1, 1, 0, 0], STALLED),
    "a slight saddle": ([90, -1, 1, 1], [90, -1, 0, 0], [1, 1, 0, 0], STALLED),
    "downwards without room": ([1, 1, -50, 1], [1, 1, 0, 0], [1, 1, 0, 0], DONE),
    "downwards with room": ([1, 1, -50, 1], [0, 1, 0, 0], [0, 1, 0, 0], STALLED),
    "flat": ([1, 0, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0], DONE),
    "held at a bound": ([-50, 1, 1, 1], [-1, 1, 0, 0], [0, 1, 0, 0], DONE),
    "leaving a bound": ([1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 0], STALLED),
    "no number": ([1, np.nan, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0], RESULTS.nonfinite),
}


def test_what_is_said_of_the_end_of_a_run():
    @cases.jit
    def judged(a, b, x, result):
        objective = sht.Custom(lambda x, a, b: x @ (a * x) / 2 - b @ x, a, b, like=np.zeros(4))
        threshold = sht.Sparsity(1, keep=[1], lower=np.array([0, *[-np.inf] * 3])).bind(objective)
        return objective.judged(threshold, x, Support(jnp.arange(2), jnp.ones(2, bool)), result)

    for name, (*given, expected) in ENDS.items():
        given = [np.array(each, float) for each in given]
        for claimed in (RESULTS.converged, RESULTS.singular):
            said = claimed if expected == DONE else expected
            assert judged(*given, np.int32(claimed)) == said, (name, claimed)
        assert judged(*given, np.int32(RESULTS.max_steps)) == RESULTS.max_steps, name


def test_a_flat_minimum_is_one_and_an_infinite_value_at_zero_hides_no_slope():
    """Curvature that is zero but for rounding is not downwards; what zero costs is a measure where it is a number."""

    @cases.jit
    def judged(Z, b, x, infinite):
        def fun(x, Z, b, infinite):
            origin = jnp.where(infinite & (x == 0).all(), jnp.inf, 0.0)
            return jnp.sum((Z @ x) ** 2) / 2 - b @ x + origin

        objective = sht.Custom(fun, Z, b, infinite, like=np.zeros(4))
        threshold = sht.Sparsity(4).bind(objective)
        return objective.judged(threshold, x, Support(jnp.arange(4), jnp.ones(4, bool)), np.int32(DONE))

    for seed in range(20):
        rng = np.random.default_rng(seed)
        Z = rng.standard_normal((1 + seed % 3, 4)) * 10.0 ** rng.uniform(-3, 3)  # of a rank below four
        x = rng.standard_normal(4)
        at_minimum = Z.T @ (Z @ x)
        for infinite in (False, True):
            assert judged(Z, at_minimum, x, infinite) == DONE, seed
            # Far below F's parabola at zero a step of a tenth of x is not small.
            assert judged(Z, 1.5 * at_minimum, x, infinite) == STALLED, seed


def branching(x):
    return x @ x if x[0] > 0 else jnp.sum(x)


ONE, LIKE, HERE = sht.Sparsity(1), np.zeros(P), r"line \d+ of test_custom.py, in"
PART = ZEROS | {"a": np.full((1, 2), np.nan)}
BAD = [
    (TypeError, "fun: needs a function", lambda: sht.Custom(X, Y)),
    (TypeError, "args: need arrays", lambda: sht.Custom(logistic, "text")),
    (TypeError, "like: needs", lambda: sht.Custom(logistic, X, Y, 0.05, like=np.zeros(P, int))),
    (ValueError, "shape of x is unknown.*like", lambda: sht.solve(sht.Custom(parts, Y), ONE)),
    (ValueError, f"fun: {HERE} branching asks for .* traced .*jnp.where", lambda: sht.Custom(branching, like=LIKE)),
    (ValueError, f"fun: {HERE} .* calls NumPy .*jax.numpy", lambda: sht.Custom(lambda x: np.asarray(x)[0], like=LIKE)),
    (ValueError, "fun: must return a floating number, got int", lambda: sht.Custom(lambda x: jnp.int32(0), like=LIKE)),
    (ValueError, "fun: must return a scalar", lambda: sht.Custom(lambda x: 2 * x, like=LIKE)),
    (ValueError, "k: is one number for a solve, got shape", lambda: sht.solve(MODEL, sht.Sparsity(np.array([1, 2])))),
    (ValueError, "x0: needs the tree.*got shape", lambda: sht.solve(TREE, ONE, x0=LIKE)),
    (ValueError, "x0: holds NaN", lambda: sht.solve(TREE, ONE, x0=PART)),
    (TypeError, "LeafSparsity needs a Custom objective", lambda: sht.solve(MODEL, sht.LeafSparsity({"a": 1}))),
    (ValueError, "ks: must be a prefix", lambda: sht.solve(TREE, sht.LeafSparsity({"c": 1}))),
    (ValueError, "ks: is 5 for a leaf of 4", lambda: sht.solve(TREE, sht.LeafSparsity({"a": None, "b": 5}))),
    (TypeError, "l2: CustomSum has none", lambda: SUM.reweighted(l2=0.1)),
    *[
        (TypeError, "threshold: LeafSparsity has a number for every leaf", lambda f=f: f(SUM, sht.LeafSparsity(2)))
        for f in (sht.solve_path, sht.cross_validate, sht.choose, sht.stability_selection)
    ],
    *[(ValueError, "samples: need one", lambda s=s: sht.CustomSum(one_loss, s)) for s in ((X, Y[:-1]), (), X[:0], 1.0)],
    (ValueError, "sample_weight: .*>= 0", lambda: sht.CustomSum(terms, (X, Y), sample_weight=-np.ones(N))),
    (ValueError, "sample_weight: .*NaN", lambda: sht.CustomSum(terms, (X, Y), sample_weight=np.full(N, np.nan))),
    *[
        (ValueError, "n_samples: needs a positive number", lambda n=n: sht.Custom(logistic, X, Y, 0.0, n_samples=n))
        for n in (0, -1.0, np.nan, np.inf, [3.0])
    ],
]


@pytest.mark.parametrize(("error", "sentence", "call"), BAD)
def test_bad_input(error, sentence, call):
    cases.refused(error, sentence, call)


def broken(x, X, y):
    raise RuntimeError("mine")


@pytest.mark.parametrize("start", [{}, {"x0": np.ones(P)}, {"x0": np.ones(P + 1)}, {"like": np.ones(P)}], ids=str)
@pytest.mark.parametrize(
    ("fun", "kind"),
    [
        (lambda x, X, y: jnp.mean((X @ x - Y_UNDEFINED) ** 2), NameError),  # noqa: F821
        (lambda x, X, y: jnp.meen((X @ x - y) ** 2), AttributeError),
        (broken, RuntimeError),
    ],
)
def test_an_error_of_the_function_is_the_users(fun, kind, start):
    with pytest.raises(Exception) as caught:
        sht.solve(sht.Custom(fun, X, Y, like=start.get("like")), sht.Sparsity(1), x0=start.get("x0"))
    chain = [caught.value, caught.value.__cause__]
    assert any(type(each) is kind for each in chain)
    assert "unknown" not in str(caught.value)


@pytest.mark.parametrize("x0", [np.ones(P - 1), np.ones((P, 2, 2)), 1.0, {"a": np.ones(P)}, [np.ones(P), np.ones(1)]])
@pytest.mark.parametrize("name", ["x0", "like"])
@pytest.mark.parametrize("total", [False, True])
def test_a_misshapen_start_is_named_in_one_sentence(x0, name, total):
    with pytest.raises(ValueError, match=f"^{name}: ") as caught:
        like = x0 if name == "like" else None
        kind, *given = (sht.CustomSum, one_loss, (X, Y)) if total else (sht.Custom, logistic, X, Y)
        sht.solve(kind(*given, 0.05, like=like), sht.Sparsity(1), x0=x0)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    assert caught.value.__cause__ is not None


# --- sums over samples ---------------------------------------------------------------------------------------------
def one_loss(w, sample, l2):
    x, y = sample
    return jax.nn.softplus(-y * (x @ w)) + 0.5 * l2 * w @ w


TARGETS = np.stack([X @ w for w in np.random.default_rng(6).standard_normal((3, P))], 1)
TARGETS += np.random.default_rng(7).standard_normal((N, 3))
MATRIX = {
    "rank": (sht.Rank(2), (sht.solvers.HTP(),)),
    "rank without refits": (sht.Rank(2), (sht.solvers.IHT(),)),
    "rows": (sht.RowSparsity(2), (None, sht.solvers.HTP())),
    "rows with bounds": (sht.RowSparsity(3, lower=-0.3, upper=np.linspace(0, 1, P)), (sht.solvers.HTP(),)),
    "groups of rows": (sht.GroupSparsity([0, 0, 1, 1, 2, 2], 2), (sht.solvers.HTP(),)),
}


def several(W, X, Y, l2):
    return jnp.mean(jnp.sum((X @ W - Y) ** 2, 1)) / 2 + l2 * jnp.sum(W**2) / 2


@pytest.mark.parametrize("name", MATRIX)
def test_matrices_give_what_the_written_model_gives(name):
    threshold, solvers = MATRIX[name]
    ours = sht.Custom(several, X, TARGETS, 0.1, like=np.zeros((P, 3)))
    theirs = sht.MultiResponse(X, TARGETS, l2=0.1)
    for solver in solvers:
        found, expected = (sht.solve(each, threshold, solver, record=None) for each in (ours, theirs))
        assert found.result == expected.result == RESULTS.converged and found.x.shape == (P, 3)
        np.testing.assert_allclose(found.x, expected.x, atol=1e-5)


@pytest.mark.parametrize("name", MATRIX)
def test_derivatives_of_matrices_are_those_of_the_written_model(name):
    threshold, solvers = MATRIX[name]

    def value(Y, make):
        return sht.solve(make(Y), threshold, solvers[-1], record=None).value

    slope = jax.grad(value)(TARGETS, lambda Y: sht.Custom(several, X, Y, 0.1, like=np.zeros((P, 3))))
    np.testing.assert_allclose(slope, jax.grad(value)(TARGETS, lambda Y: sht.MultiResponse(X, Y, l2=0.1)), atol=1e-5)


def test_a_path_of_a_matrix_counts_its_entries():
    objective, solver = sht.Custom(several, X, TARGETS, 0.1, like=np.zeros((P, 3))), sht.solvers.HTP()
    path = sht.solve_path(objective, sht.Sparsity(3), ks=[1, 3], solver=solver)
    for row, k in enumerate((1, 3)):
        found = sht.solve(objective, sht.Sparsity(k, k_max=3), solver, record=None)
        np.testing.assert_allclose(path.value[row], found.value, rtol=1e-6)


def test_under_a_rank_a_maximum_and_a_saddle_have_not_converged():
    for fun in (lambda W: -jnp.sum(W**2), lambda W: jnp.sum((W**2 - 1) ** 2)):
        found = sht.solve(sht.Custom(fun, like=np.zeros((4, 3))), sht.Rank(1), throw=False)
        assert found.result == RESULTS.stalled
    full = sht.solve(sht.Custom(lambda W: jnp.sum((W - np.eye(4, 3)) ** 2), like=np.zeros((4, 3))), sht.Rank(3))
    assert full.result == RESULTS.converged


def test_a_rank_that_is_not_used_up_has_room():
    """For a direction of its own, along which F may curve downwards."""
    for bend, values, mask, upwards in (
        (-1.0, [1.0, 0], [True, True], False),
        (-1.0, [1.0, 2], [True, True], True),
        (-1.0, [1.0, 0], [True, False], True),
        (1.0, [1.0, 0], [True, True], True),
        (0.0, [1.0, 0], [True, True], True),
    ):
        objective = sht.Custom(lambda W, bend: bend * jnp.sum(W**2), bend, like=np.zeros((4, 3)))
        factors = sht.results.Factors(jnp.ones((4, 2)), jnp.array(values), jnp.ones((3, 2)), jnp.array(mask))
        assert _curves_upwards_in_rank(objective, jnp.ones(12), factors) == upwards, (bend, values, mask)


def test_a_function_of_matrices_with_given_columns():
    objective, rng = sht.Custom(several, X, TARGETS, 0.1, like=np.zeros((P, 3))), np.random.default_rng(3)
    left, z = rng.standard_normal((P, 2)), rng.standard_normal(6)
    part = objective.restrict_left(jnp.asarray(left), jnp.array([True, False]))
    np.testing.assert_allclose(part.value(z), several(np.outer(left[:, 0], z[:3]), X, TARGETS, 0.1), rtol=1e-12)
    assert part.mask.tolist() == 3 * [True] + 3 * [False]


STEPS = sht.steps.ConstantStep(0.1)
DRAWING = sht.solvers.SVRGHT(STEPS, inner_steps=20), sht.solvers.SAGAHT(STEPS), sht.solvers.HybridHT(STEPS)


@pytest.mark.parametrize("solver", DRAWING, ids=lambda each: type(each).__name__)
def test_stochastic_solvers_take_sums(solver):
    models = sht.CustomSum(one_loss, (X, Y), 0.05), MODEL
    own, written = (sht.solve(each, sht.Sparsity(3), solver, max_steps=20, key=jax.random.key(3)) for each in models)
    # The ridge is inside the terms of the sum, and SAGA remembers terms.
    rtol = 1e-3 if isinstance(solver, sht.solvers.SAGAHT) else 1e-6
    np.testing.assert_allclose(own.x, written.x, rtol=rtol, atol=1e-9)
    assert np.count_nonzero(own.x) == 3 and own.history.ifo.shape == written.history.ifo.shape


WEIGHTS = np.random.default_rng(5).choice([0.0, 1.0, 2.5], N)


def test_a_weighted_sum_is_the_written_model():
    total = sht.CustomSum(terms, (X, Y), sample_weight=WEIGHTS)
    model = sht.LinearModel(X, Y, sht.losses.Logistic(), sample_weight=WEIGHTS)
    check_objective(total)
    np.testing.assert_allclose(total.value(POINT), model.value(POINT), rtol=1e-12)
    i = jnp.arange(N)
    np.testing.assert_allclose(total.sample_grad(POINT, i[:5]), model.sample_grad(POINT, i[:5]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(total.sample_smoothness(), model.sample_smoothness(), rtol=1e-3)
    repeated = np.repeat(np.arange(N), (2 * WEIGHTS).astype(int))
    np.testing.assert_allclose(total.value(POINT), sht.CustomSum(terms, (X[repeated], Y[repeated])).value(POINT))
    spoilt = np.where(WEIGHTS[:, None] > 0, X, np.finfo(X.dtype).max)  # whose predictions overflow
    total_of_spoilt = sht.CustomSum(terms, (spoilt, Y), sample_weight=WEIGHTS)
    np.testing.assert_array_equal(total_of_spoilt.value(POINT), total.value(POINT))
    other = total.reweighted(np.ones(N))
    np.testing.assert_allclose(other.value(POINT), sht.CustomSum(terms, (X, Y)).value(POINT), rtol=1e-12)


def test_terms_of_a_sum_by_hand():
    """Slopes of single samples and their mean, the largest curvature at zero, and rows of the Hessian; a row without
    weight may have derivatives without end."""
    rng = np.random.default_rng(8)
    A, b, s, x = rng.standard_normal((5, 3)), rng.uniform(1, 2, 5), np.array([0, 1, 2, 0.5, 1]), rng.standard_normal(3)
    rows = (np.where(s[:, None] > 0, A, 1e200), b)
    total = sht.CustomSum(lambda x, row: (row[0] @ x - row[1]) ** 4 + jnp.sum(x**2), rows, sample_weight=s)
    shares, r, i = 5 * s / s.sum(), A @ x - b, np.array([4, 0, 2])
    slopes = shares[:, None] * (4 * r[:, None] ** 3 * A + 2 * x)
    H, largest = (A.T * shares * 12 * r**2) @ A / 5 + 2 * np.eye(3), shares * (12 * b**2 * np.sum(A**2, 1) + 2)

    @cases.jit
    def facts(total, x, i):
        slopes = total.sample_grad(x, i), total.samples().scores_at(x), total.value_and_grad(x)[1]
        return *slopes, total.sample_smoothness(), total.hessian_rows(x, i[1:]), total.curvatures(x)

    found, means = facts(total, x, i), (slopes[i].mean(0), slopes, slopes.mean(0))
    for part, expected in zip(found, (*means, largest.max(), H[[0, 2]], np.diag(H)), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-3 if np.ndim(part) == 0 else 1e-10)
    np.testing.assert_allclose(total.samples().mean_gradient(slopes), slopes.mean(0), rtol=1e-12)
    assert total.smoothness_ifo == 5 * (1 + POWER_STEPS)  # a power iteration takes so many products
    assert np.array_equal(total.parts(x)[0], x) and total.parts(x)[1] == 0


def poisson(w, sample):
    x, count = sample
    return jnp.exp(x @ w) - count * (x @ w)


def test_choosing_with_a_sum_is_choosing_with_the_written_model():
    counts = np.random.default_rng(2).poisson(np.exp(0.5 * np.asarray(X)[:, 1])).astype(float)
    total = sht.CustomSum(poisson, (X, counts), sample_weight=WEIGHTS + 0.5)
    model = sht.LinearModel(X, counts, sht.losses.Poisson(), sample_weight=WEIGHTS + 0.5)
    folds = [(np.flatnonzero(np.arange(N) % 3 != i), np.flatnonzero(np.arange(N) % 3 == i)) for i in range(3)]
    ours, theirs = (sht.choose(each, ks=range(4), folds=folds, solver=sht.solvers.HTP()) for each in (total, model))
    assert ours.row == theirs.row
    np.testing.assert_allclose(ours.solution.x, theirs.solution.x, atol=1e-6)
    np.testing.assert_allclose(ours.scores.scores, theirs.scores.scores, rtol=1e-6)
    np.testing.assert_allclose(ours.scores.fold_weight, theirs.scores.fold_weight)
    for name in ("aic", "bic", "ebic", "sic"):
        values = [sht.information_criterion(run.path, name).values for run in (ours, theirs)]
        np.testing.assert_allclose(*values, rtol=1e-7)
    options = dict(ks=[2], n_resamples=6, solver=sht.solvers.HTP())
    ours, theirs = (sht.stability_selection(each, **options) for each in (total, model))
    np.testing.assert_array_equal(ours.probabilities, theirs.probabilities)


def test_a_stated_number_of_samples():
    known = sht.Custom(logistic, X, Y, 0.0, n_samples=N)
    path = sht.solve_path(known, ks=[0, 2], solver=sht.solvers.HTP())
    expected = 2 * N * path.loss + np.array([0, 2]) * np.log(N)
    np.testing.assert_allclose(sht.information_criterion(path, "bic").values, expected, rtol=1e-12)
    model, options = functools.partial(sht.Custom, logistic, X, Y, 0.0), dict(ks=[2], solver=sht.solvers.HTP())
    loss = jax.jit(lambda n: sht.solve_path(model(n_samples=n), **options).loss)
    np.testing.assert_allclose(loss(30.0), path.loss[1:], rtol=1e-9)
    with pytest.raises(ValueError, match=r"path: its objective has no samples.*n_samples"):
        sht.information_criterion(dataclasses.replace(path, total_weight=None))
    with pytest.raises(TypeError, match="folds are sample weights; Custom has none, and a CustomSum has them"):
        sht.cross_validate(known, ks=[1, 2])


@pytest.mark.parametrize(
    "threshold", [sht.Sparsity(2), sht.GroupSparsity([0, 1, 2, 3, 4, 5, 5, 5], 2)], ids=["entries", "groups"]
)
@pytest.mark.parametrize("size", [1e-3, 1e6])
def test_a_fit_that_leaves_nothing_has_converged(size, threshold):
    rng = np.random.default_rng(2)
    X, w = rng.standard_normal((40, 8)), size * np.array([0.0, 1, 0, -2, 0, 0, 0, 0])
    solution = sht.solve(sht.Custom(cases.squares, X, X @ w, like=w), threshold, sht.solvers.BestSubset())
    assert solution.result == sht.results.RESULTS.converged
    np.testing.assert_allclose(solution.x, w, atol=1e-5 * size)
