"""NaN and infinite values in the data: an error that names the argument, or `nonfinite` where nothing can raise."""

import dataclasses
import functools
import inspect
import itertools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.sparse import BCOO
from scipy import sparse

import sparsehtp as sht
from sparsehtp._types import check_finite
from sparsehtp.linalg import masked_factor

SHAPES = ((4, 2), (64, 64), (400, 50), (1000, 100))  # 8 to 100,000 entries; the defect below begins at 4,096
BAD = (np.nan, np.inf, -np.inf)
DTYPES = (np.float32, np.float64)


def data(shape, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape[0]).astype(dtype)


def spoiled(array):
    """Copies of an array with one bad entry: every kind, first, in the middle and last."""
    for value, place in itertools.product(BAD, (0, array.size // 2, array.size - 1)):
        bad = array.copy(order="K")
        bad.flat[place] = value
        yield bad


def refuses(argument, call, *args):
    cases.names(ValueError, argument, lambda: call(*args))


def test_the_defect_of_jaxlib_for_which_maxima_check_nothing():
    """Where it is gone: `check_finite` and `all_finite` stay, but their comments and this test can go."""
    if jax.default_backend() != "cpu" or jax.__version_info__ < (0, 10):
        pytest.skip("seen on the CPU from jaxlib 0.10.0 on")
    X = data((400, 50))[0]
    X[3, 7] = np.nan
    drops = [not np.isnan(f(X)) for f in (jnp.max, jnp.min, jax.jit(lambda a: jnp.sum(jnp.maximum(a, 0))))]
    assert all(drops), f"jaxlib {jax.lib.__version__} no longer drops NaN in maxima and minima: take its bound, then"
    keeps = (jnp.sum, lambda a: a.ravel()[jnp.argmax(a)], lambda a: jnp.sort(a, axis=None)[-1])
    assert all(np.isnan(f(X)) for f in (*keeps, lambda a: jax.lax.cummax(a.ravel())[-1]))
    assert not jnp.isfinite(X).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted({*cases.OBJECTIVES} - {"precision"}))
def test_data_of_every_objective(name, dtype, x64):
    """X and y, of any size, layout and dtype, at any place."""
    build, own = cases.OBJECTIVES[name], {"custom": "args", "custom_sum": "samples"}.get(name)
    target = own or {"multi_response": "Y", "cox": "time"}.get(name, "y")
    for shape in SHAPES:
        X, y = data(shape, dtype)
        for layout in ("C", "F"):
            for bad in spoiled(np.asarray(X, order=layout)):
                refuses(own or "X", build, bad, y)
        for bad in spoiled(y) if name != "ordinal" else ():  # which makes classes of it
            refuses(target, build, X, bad)


@pytest.mark.parametrize("name", cases.OBJECTIVES)
def test_other_arguments_of_every_objective(name):
    """Weights, offsets, ridges, times and what else a constructor takes."""
    for shape in SHAPES[::2]:
        X, y = data(shape)
        objective = type(cases.OBJECTIVES[name](X, y))
        like = {"X": X, "y": y, "Y": np.column_stack([y, y]), "S": np.cov(X.T).astype(np.float32), "A": X.T @ X}
        like |= {"b": X[0], "time": y, "event": (y > 0).astype(np.float32), "l2": np.ones(shape[1], np.float32)}
        like |= {"sample_weight": np.ones(shape[0], np.float32), "offset": y, "strata": np.ones(shape[0])}
        like |= {"constant": np.ones(()), "n": np.full((), 9.0), "shrinkage": np.full((), 0.5)}
        like |= {"n_samples": np.full((), 9.0), "samples": (X, y)}
        if name == "multi_response":
            like["offset"] = like["Y"]
        if name == "ordinal":
            like["y"] = (y > 0).astype(np.float32)
        known = [each for each in inspect.signature(objective.__init__).parameters if each in like]
        needed = {each: like[each] for each in known if each not in ("l2", "sample_weight", "offset", "strata")}
        first = {"custom": (cases.squares, X, y), "custom_sum": (cases.square,)}.get(name, ())
        for each in known:
            if not isinstance(like[each], np.ndarray) or like[each].dtype.kind != "f":
                continue
            for bad in spoiled(like[each]):
                refuses(each, functools.partial(objective, *first, **{**needed, each: bad}))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sparse_data(dtype, x64):
    for shape in SHAPES[1::2]:
        X, y = data(shape, dtype)
        X[np.abs(X) < 1] = 0
        X.flat[[0, X.size // 2, -1]] = 1
        for make in (sparse.csr_array, sparse.csc_array, sparse.coo_array)[: 3 if X.size < 10_000 else 1]:
            for bad in spoiled(X):
                refuses("X", sht.LinearModel, make(bad), y)
        for bad in spoiled(X) if X.size < 10_000 else ():
            refuses("X", sht.LinearModel, BCOO.fromdense(bad), y)


def test_arrays_on_the_device_and_in_pieces():
    whole = np.zeros((3000, 6000), np.float32)  # more than is looked at together
    check_finite("whole", whole, jnp.zeros(3), "text", ["a"], 1, None, jax.random.key(0))
    for bad in (np.nan, np.inf):
        whole[-1, -1] = bad
        refuses("whole", check_finite, "whole", whole)
        refuses("value", check_finite, "value", [1.0, {"a": jnp.full(3, bad)}])


# --- public functions ------------------------------------------------------------------------------------------------
X, Y = data((40, 8))
Y = X[:, 0] - X[:, 1] + Y / 10


@functools.cache
def fitted():
    model = sht.LinearModel(X, Y, l2=0.1)
    return model, sht.solve(model, sht.Sparsity(2), sht.solvers.HTP())


def unchecked(bad):
    """A concrete model whose data were traced when it was made."""
    return jax.jit(lambda X: sht.LinearModel(X, Y, l2=0.1))(one(X, bad))


def one(array, bad):
    array = np.array(array, np.float32)
    array.flat[array.size // 2] = bad
    return array


def spoilt_solution(bad, name="x"):
    solution = fitted()[1]
    return solution._replace(**{name: one(getattr(solution, name), bad)})


TWO = sht.Sparsity(2)
# what a message begins with -> functions of a bad number
PUBLIC = {
    "x0": [
        lambda bad: sht.solve(fitted()[0], TWO, x0=one(np.zeros(8), bad)),
        lambda bad: sht.solve(fitted()[0], TWO, x0=spoilt_solution(bad)),
        lambda bad: sht.solve(fitted()[0], TWO, x0=spoilt_solution(bad, "intercept")),
    ],
    "solver": [lambda bad: sht.solve(fitted()[0], TWO, sht.solvers.IHT(sht.steps.BacktrackingStep(bad)))],
    "termination": [lambda bad: sht.solve(fitted()[0], TWO, termination=sht.stopping.SmallStep(bad))],
    "objective": [
        lambda bad: sht.prove(unchecked(bad), TWO),
        lambda bad: sht.certificate(unchecked(bad), TWO, fitted()[1]),
        lambda bad: sht.solve_path(unchecked(bad), ks=range(3)),
        lambda bad: sht.cross_validate(unchecked(bad), ks=range(3)),
        lambda bad: sht.choose(unchecked(bad), TWO, ks=range(3)),
        lambda bad: sht.stability_selection(unchecked(bad), ks=range(3)),
        lambda bad: sht.lower_bound(unchecked(bad), TWO, 1.0),
    ],
    "solution": [
        lambda bad: sht.prove(fitted()[0], TWO, spoilt_solution(bad)),
        lambda bad: sht.certificate(fitted()[0], TWO, spoilt_solution(bad)),
        lambda bad: sht.certificate(fitted()[0], TWO, spoilt_solution(bad, "intercept")),
    ],
    "gap": [lambda bad: sht.prove(fitted()[0], TWO, gap=bad)],
    "collect": [lambda bad: sht.prove(fitted()[0], TWO, collect=bad)],
    "max_nodes": [lambda bad: sht.prove(fitted()[0], TWO, max_nodes=bad)],
    "upper": [lambda bad: sht.lower_bound(fitted()[0], TWO, bad)],
    "tol": [lambda bad: sht.lower_bound(fitted()[0], TWO, 1.0, bad)],
    "A": [lambda bad: sht.QuadraticForm(np.diag([1.0, bad]), np.ones(2))],
    "b": [lambda bad: sht.QuadraticForm(np.eye(2), [1.0, bad])],
    "constant": [lambda bad: sht.QuadraticForm(np.eye(2), np.ones(2), bad)],
    "l2s": [
        lambda bad: sht.solve_path(fitted()[0], ks=range(3), l2s=[0.1, bad]),
        lambda bad: sht.cross_validate(fitted()[0], ks=range(3), l2s=[0.1, bad]),
        lambda bad: sht.choose(fitted()[0], TWO, ks=range(3), l2s=[0.1, bad]),
    ],
    "l0s": [lambda bad: sht.solve_path(fitted()[0], l0s=[0.1, bad])],
    "refit": [lambda bad: sht.choose(fitted()[0], TWO, ks=range(3), refit=bad)],
    "memory": [lambda bad: sht.solve_path(fitted()[0], ks=range(3), memory=bad)],
    "sample_fraction": [lambda bad: sht.stability_selection(fitted()[0], ks=range(3), sample_fraction=bad)],
    "sizes": [lambda bad: sht.tune_step(fitted()[0], TWO, sht.solvers.IHT(), sizes=[0.1, bad])],
    "l2": [
        lambda bad: sht.SparseRegressor(2, l2=one(np.ones(8), bad)).fit(X, Y),
        lambda bad: sht.tune(fitted()[0], TWO, val=(X, Y), l2=bad, steps=1),
        lambda bad: fitted()[0].reweighted(l2=bad),
        lambda bad: sht.QuadraticForm.from_data(X, Y, l2=bad),
    ],
    "weights": [lambda bad: sht.tune(fitted()[0], TWO, val=(X, Y), weights=bad, steps=1)],
    "sample_weight": [
        lambda bad: fitted()[0].reweighted(one(np.ones(40), bad)),
        lambda bad: sht.QuadraticForm.from_data(X, Y, sample_weight=one(np.ones(40), bad)),
        lambda bad: sht.Precision.from_data(X, one(np.ones(40), bad)),
    ],
    "y": [lambda bad: sht.QuadraticForm.from_data(X, one(Y, bad))],
    "X": [
        lambda bad: sht.tune(fitted()[0], TWO, val=(one(X, bad), Y), l2=0.1, steps=1),
        lambda bad: sht.QuadraticForm.from_data(one(X, bad), Y),
        lambda bad: sht.Precision.from_data(one(X, bad)),
    ],
    "labels": [lambda bad: sht.Precision.from_data(X, labels=one(np.ones(40), bad))],
    "groups": [lambda bad: sht.GroupSparsity(one(np.ones(8), bad), 1)],
    "prices": [lambda bad: sht.L0L1L2(0.1, prices=one(np.ones(8), bad))],
    "total": [lambda bad: sht.Simplex(2, total=bad)],
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions(name):
    for call, bad in itertools.product(PUBLIC[name], BAD):
        refuses(name, call, bad)


ESTIMATORS = {
    "regressor": (sht.SparseRegressor(2), Y),
    "several": (sht.SparseRegressor(2), np.column_stack([Y, -Y])),
    "classifier": (sht.SparseClassifier(2), Y > 0),
    "ordinal": (sht.SparseOrdinal(2), np.digitize(Y, [-0.5, 0.5])),
    "cox": (sht.SparseCox(2), np.column_stack([np.exp(Y), Y > 0])),
    "low_rank": (sht.LowRankRegressor(1), np.column_stack([Y, -Y])),
    "lda": (sht.SparseLDA(2), Y > 0),
    "pca": (sht.SparsePCA(1, 2), None),
    "precision": (sht.SparsePrecision(2), None),
    "robust_pca": (sht.RobustPCA(1, 2), None),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name):
    """scikit-learn's own sentences, which name the argument too."""
    estimator, y = ESTIMATORS[name]
    rest = {} if y is None else {"y": y}
    takes = inspect.signature(estimator.fit).parameters
    rest |= {each: np.ones(40) for each in ("sample_weight", "offset") if each in takes}
    for argument, array in {"X": X, **rest}.items():
        for bad in spoiled(np.asarray(array, float)):
            with pytest.raises(ValueError, match=rf"^(Input )?{argument}\b"):
                estimator.fit(**{"X": X, **rest, argument: bad})
    assert not hasattr(estimator, "n_iter_")


def test_a_saved_file_with_bad_numbers(tmp_path):
    model, solution = fitted()
    path = sht.solve_path(model, ks=range(3))
    for bad in BAD:
        spoilt = dataclasses.replace(path, coefficients=one(path.coefficients, bad))
        for value in (solution._replace(x=one(solution.x, bad)), spoilt, unchecked(bad)):
            refuses("path", sht.load, sht.save(value, tmp_path / "file.npz"))


def test_streams(tmp_path):
    """A shard that is mapped, with a bad entry among rows that no sample holds."""
    rng = np.random.default_rng(0)
    for i in range(2):
        wide = rng.standard_normal((6000, 3)).astype(np.float32)
        np.save(tmp_path / f"{i}.X.npy", wide)
        np.save(tmp_path / f"{i}.y.npy", wide[:, 0])
    for bad in BAD:
        wide[-1, -1] = bad
        np.save(tmp_path / "1.X.npy", wide)
        with pytest.raises(ValueError, match=r"^path: the column .x2. of 1\.X\.npy[^\n]*\.$"):
            sht.solve_stream(sht.datasets.Shards(str(tmp_path / "?.X.npy")), sht.Sparsity(1), l2=0.1)
    refuses("l2", lambda: sht.solve_stream(sht.datasets.Shards(str(tmp_path / "?.X.npy")), sht.Sparsity(1), l2=np.nan))


@pytest.mark.parametrize("name", cases.THRESHOLDS)
def test_no_threshold_drops_nan(name):
    """Not even a negative one, as infinity minus infinity is: a run that diverged must not go on without it."""
    objective = cases.bound_to(cases.THRESHOLDS[name]) or sht.LinearModel(X[:, :6], Y)
    bound = cases.THRESHOLDS[name].bind(objective)
    z = np.linspace(3, 4, objective.n_coefficients + objective.n_free, dtype=np.float32)
    apply = cases.jit(jax.vmap(lambda z: bound(z, 0.1)[0]))
    bounded = any(getattr(bound, side, None) is not None for side in ("lower", "upper"))
    for bad in (np.nan, -np.nan) if bounded else (np.nan, -np.nan, np.inf):
        rows = np.where(np.eye(objective.n_coefficients, z.size, dtype=bool), np.float32(bad), z)
        assert not np.isfinite(apply(rows)).all(axis=1).any(), bad


# --- traced data -----------------------------------------------------------------------------------------------------
QUICK = ("iht", "best_subset", "diht", "multi_response")


def some_slow(table):
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in table]


LANES = 3


def lanes_stay(build, threshold, solver, shape, values=BAD[:2]):
    """A lane with a bad entry is nonfinite, and the others are, to the bit, what they are beside good ones."""

    Xs = np.stack([data(shape, seed=seed)[0] for seed in range(LANES)])
    y, options = Xs[0, :, 0] + data(shape, seed=9)[1], {"key": jax.random.key(0), "record": None, "max_steps": 20}
    solved = cases.jit(jax.vmap(lambda X: sht.solve(build(X, y), threshold, solver, **options)))
    clean = solved(Xs)
    assert not (clean.result == sht.results.RESULTS.nonfinite).any()
    for value, place in zip(values, (0, -1), strict=False):
        bad = Xs.copy()
        bad[1].flat[place] = value
        spoilt = solved(bad)
        assert spoilt.result[1] == sht.results.RESULTS.nonfinite
        numbers = (spoilt.x, spoilt.intercept, spoilt.support_margin)
        assert all(not np.any(leaf[1]) for leaf in jax.tree.leaves(numbers)) and spoilt.value[1] == np.inf
        for part in ("x", "intercept", "support", "value", "result", "num_steps", "support_margin"):
            pairs = zip(jax.tree.leaves(getattr(clean, part)), jax.tree.leaves(getattr(spoilt, part)), strict=True)
            assert all(np.array_equal(np.asarray(a)[::2], np.asarray(b)[::2]) for a, b in pairs), part


@pytest.mark.parametrize("name", some_slow(cases.ALL_SOLVERS))
def test_lanes_of_every_solver(name):
    solver = cases.ALL_SOLVERS[name]
    threshold = sht.Sparsity(2) if solver.takes(sht.Sparsity(2)) else sht.L0L1L2(0.1)
    lanes_stay(lambda X, y: sht.LinearModel(X, y, l2=0.1), threshold, solver, (40, 8))


@pytest.mark.parametrize("name", some_slow(cases.OBJECTIVES))
def test_lanes_of_every_objective(name):
    if name == "precision":
        lanes_stay(lambda X, y: sht.Precision.from_data(X), sht.OffDiagonal(2), sht.solvers.IHT(), (40, 8))
    else:
        lanes_stay(cases.OBJECTIVES[name], sht.Sparsity(2), sht.solvers.IHT(), (40, 8))


def test_lanes_of_more_entries_than_a_maximum_keeps():
    def standardised(X, y):
        return sht.LinearModel(X, y, l2=0.1, standardize=True)

    lanes_stay(standardised, sht.Sparsity(2), sht.solvers.IHT(), (100, 50))
    lanes_stay(cases.OBJECTIVES["multi_response"], sht.Rank(1), sht.solvers.IHT(), (50, 100))


def test_every_traced_input():
    """Targets, weights, offsets, ridges, bounds, prices and starts."""
    X, y = data((40, 8))
    good = {"y": y, "sample_weight": np.ones(40), "offset": y, "l2": np.ones(8), "x0": np.zeros(8), "upper": np.ones(8)}

    @cases.jit
    def result(y, x0, upper, **options):
        model, threshold = sht.LinearModel(X, y, **options), sht.Sparsity(2, upper=upper)
        return sht.solve(model, threshold, sht.solvers.HTP(), x0=x0, record=None).result

    assert result(**good) == sht.results.RESULTS.converged
    for name, array in good.items():
        for bad in spoiled(np.asarray(array, np.float32)):
            if name != "upper" or np.isnan(bad).any():
                assert result(**{**good, name: bad}) == sht.results.RESULTS.nonfinite, name


def test_traced_paths():
    """A row of the grid whose ridge is bad is nonfinite, and the others are what they were."""

    @cases.jit
    def rows(X, l2s):
        path = sht.solve_path(sht.LinearModel(X, Y), ks=range(3), l2s=l2s, solver=sht.solvers.HTP())
        return path.result, path.value, path.coefficients

    good = np.float32([0.1, 0.2])
    clean = rows(X, good)
    assert (clean[0] == sht.results.RESULTS.converged).all()
    for bad in BAD:
        spoilt = rows(X, np.float32([0.1, bad]))
        for part, before, lost in zip(spoilt, clean, (sht.results.RESULTS.nonfinite, np.inf, 0), strict=True):
            assert np.array_equal(part[:3], before[:3]) and (part[3:] == lost).all()
        assert (rows(one(X, bad), good)[0] == sht.results.RESULTS.nonfinite).all()


def test_squares_and_exponentials_of_a_row_without_weight_may_overflow():
    X = np.random.default_rng(0).standard_normal((40, 8))
    eta, weights, far = X[:, 1] - 2 * X[:, 3], np.r_[0.0, np.ones(39)], X.copy()
    far[0, 1] = 1e200
    with jax.enable_x64(True):
        for loss, y, solver in (
            (sht.losses.Poisson(), np.floor(np.exp(eta / 2)), sht.solvers.HTP()),
            (sht.losses.Logistic(), np.sign(eta), sht.solvers.SVRGHT()),
        ):
            models = (sht.LinearModel(Z, y, loss, 0.1, weights, fit_intercept=True) for Z in (X, far))
            expected, found = (sht.solve(model, sht.Sparsity(2), solver, throw=False) for model in models)
            assert found.result == expected.result
            np.testing.assert_allclose(found.x, expected.x, rtol=1e-6)


def test_padding_of_a_system_may_be_nan(x64):
    A, b = np.array([[2.0, 1, 0], [1, 3, 1], [0, 1, 2]]), np.array([1.0, 2, 3])
    wide, rhs = np.full((5, 5), np.nan), np.full(5, 7.0)
    wide[1:4, 1:4], rhs[1:4] = A, b
    np.fill_diagonal(wide, [np.nan, 2, 3, 2, 4])
    found = masked_factor(jnp.asarray(wide), jnp.asarray([False, True, True, True, False])).solve(jnp.asarray(rhs))
    np.testing.assert_allclose(found, [0, 0.5, 0, 1.5, 0], atol=1e-12)
