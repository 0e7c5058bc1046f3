"""Paths: rows equal single solves, whatever the chunks; compact; compiled once."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import screening

import sparsehtp as sht
from sparsehtp.grids import grid as _grid
from sparsehtp.grids import path as _path

KS, L2S = range(5), [0.01, 0.1]


def members(support, i):
    return np.sort(support.idx[i][support.mask[i]])


def check_rows(path, objective, threshold, solver):
    for i in range(len(path)):
        one = sht.solve(
            objective.reweighted(l2=path.l2s[i]), threshold(int(path.ks[i])), solver, record=None, throw=False
        )
        np.testing.assert_allclose(path.x[i], one.x, atol=2e-5)
        np.testing.assert_allclose(path.intercept[i], one.intercept, atol=2e-4)
        np.testing.assert_allclose(path.value[i], one.value, rtol=1e-4)
        assert path.result[i] == one.result
        row = path.at(i)
        np.testing.assert_array_equal(row.x, path.x[i])
        np.testing.assert_array_equal(members(path.support, i), np.sort(one.support.idx[one.support.mask]))


def test_rows_equal_a_loop_of_solves():
    weights = np.random.default_rng(1).uniform(0.5, 2, 40)
    objective = screening.model(sample_weight=weights)
    path = sht.solve_path(objective, ks=KS, l2s=L2S, threshold=sht.Sparsity(0, keep=[6]), solver=sht.solvers.HTP())
    np.testing.assert_array_equal(path.ks, [*KS, *KS])
    np.testing.assert_allclose(path.l2s, np.repeat(L2S, 5), rtol=1e-6)
    check_rows(path, objective, lambda k: sht.Sparsity(k, k_max=4, keep=[6]), sht.solvers.HTP())
    # F0 and the predictions, in NumPy
    X, y = screening.data()
    eta = path.predict(X)
    np.testing.assert_allclose(eta, path.x @ X.T + path.intercept[:, None], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(path.predict(scipy.sparse.csr_matrix(X)), eta, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(path.loss, np.average((eta - y) ** 2 / 2, axis=1, weights=weights), rtol=1e-4)
    # a row is a starting point
    again = sht.solve(
        objective.reweighted(l2=0.1), sht.Sparsity(3, k_max=4, keep=[6]), sht.solvers.HTP(), path.at(8), record=None
    )
    assert again.num_steps <= 2


def test_rows_of_groups():
    groups = np.array([0, 0, 1, 1, 1, 2, 3, 3])
    objective = screening.model(l2=0.1)
    path = sht.solve_path(objective, ks=[2, 1], threshold=sht.GroupSparsity(groups, 0), solver=sht.solvers.IHT())
    check_rows(path, objective, lambda k: sht.GroupSparsity(groups, k, k_max=2), sht.solvers.IHT())
    for i in range(2):
        expected = np.flatnonzero(np.isin(groups, members(path.support, i)))
        np.testing.assert_array_equal(members(path.features, i), expected)
    assert path.n_units == 4


def test_one_run_gives_all_k():
    objective = screening.model()
    path = sht.solve_path(objective, ks=[3, 0, 1], l2s=L2S, solver=screening.Screening())
    X, y = screening.data()
    Z = (X - X.mean(0)) / X.std(0)
    order = np.argsort(-np.abs(Z.T @ (y - y.mean())), kind="stable")
    for i, (k, l2) in enumerate(zip(path.ks, path.l2s, strict=True)):
        A = Z[:, order[:k]]
        z = np.linalg.solve(A.T @ A / 40 + l2 * np.eye(k), A.T @ (y - y.mean()) / 40)
        expected = np.zeros(8)
        expected[order[:k]] = z / X.std(0)[order[:k]]
        np.testing.assert_allclose(path.x[i], expected, atol=1e-5)
        np.testing.assert_array_equal(members(path.support, i), np.sort(order[:k]))
        np.testing.assert_allclose(path.intercept[i], y.mean() - expected @ X.mean(0), atol=1e-4)
    assert path.support.idx.shape == (6, 3)


@pytest.mark.parametrize("memory", [1, 30_000])
def test_chunks_of_any_width_give_the_same_supports(memory):
    objective = screening.model()
    l2s = np.geomspace(1e-3, 1, 7)
    whole = sht.solve_path(objective, ks=KS, l2s=l2s, solver=screening.Screening())
    seen = []
    path = sht.solve_path(
        objective, ks=KS, l2s=l2s, solver=screening.Screening(), memory=memory, progress=lambda *a: seen.append(a)
    )
    assert len(seen) > 1 and seen[-1] == (35, 35)
    np.testing.assert_array_equal(path.support.idx, whole.support.idx)
    np.testing.assert_array_equal(path.support.mask, whole.support.mask)
    np.testing.assert_allclose(path.x, whole.x, atol=1e-5)


def test_a_chunk_has_the_weights_of_its_lanes():
    """Wherever it begins in the two lanes of a row of weights."""
    rows = jnp.asarray(np.random.default_rng(0).uniform(0.5, 2, (5, 40)), jnp.float32)
    grid = _grid.prepare(screening.model(), [1], L2S, None, screening.Screening(), None)
    grid = dataclasses.replace(grid, weights=_grid.Weights(rows, rows))
    parts = jax.jit(lambda lanes: _grid._own_parts(grid, lanes))
    for start in (0, 3, 6, 9):
        lanes = _grid._chunk(grid.lanes, start, 3, 10)
        found = parts(lanes).columns.sample_weight[lanes.row - lanes.row[0]]
        np.testing.assert_allclose(found, rows[np.minimum(np.arange(start, start + 3), 9) // 2], rtol=1e-6)


def test_a_path_inside_of_a_transformation_is_that_outside():
    """The value of a minimum rises with l2 by half of what it penalises."""
    objective, scale = screening.model(), screening.data()[0].std(0)
    options = {"ks": [3, 0, 1], "solver": screening.Screening()}
    names = ("x", "intercept", "value", "loss", "result", "l2s", "ks")

    def total(l2s):
        path = sht.solve_path(objective, l2s=l2s, **options)
        return jnp.sum(path.value), {name: getattr(path, name) for name in names}

    rise, found = jax.jit(jax.grad(total, has_aux=True))(jnp.array(L2S))
    path = sht.solve_path(objective, l2s=L2S, **options)
    for name in names:
        np.testing.assert_allclose(found[name], getattr(path, name), rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(rise, np.sum((path.x * scale) ** 2, axis=1).reshape(2, 3).sum(1) / 2, rtol=1e-4)


def test_nothing_is_traced_again(monkeypatch):
    traces = []
    monkeypatch.setattr(_grid, "_path_lane", lambda *a, f=_grid._path_lane: (traces.append(1), f(*a))[1])
    for seed in range(3):
        X, y = screening.data(n=30, seed=seed)
        objective = sht.LinearModel(X, y, fit_intercept=True, standardize=True)
        sht.solve_path(
            objective, ks=[1 + seed, 3], l2s=[0.1 * seed], solver=screening.Screening(), key=jax.random.key(seed)
        )
        sht.cross_validate(objective, ks=[1 + seed, 3], solver=screening.Screening(), key=jax.random.key(seed))
    assert len(traces) == 2  # one program for paths, one for folds


def test_ten_thousand_problems_stay_within_their_memory():
    X, y = screening.data(p=400)
    objective = sht.LinearModel(X, y, fit_intercept=True, standardize=True)
    l2s, memory = np.geomspace(1e-4, 1, 1000), 2**24
    grid = _grid.prepare(objective, range(10), l2s, None, screening.Screening(), None)
    width = _grid._width(grid, 1000, memory)
    assert 1 < width < 1000
    lanes = _grid.Lane(*np.zeros((2, width), np.int32), None)
    program = _grid.batch.jitted.lower(grid, lanes).compile().memory_analysis()
    assert program.temp_size_in_bytes + program.output_size_in_bytes <= memory
    path = sht.solve_path(objective, ks=range(10), l2s=l2s, solver=screening.Screening(), memory=memory)
    assert len(path) == 10_000
    stored = sum(leaf.nbytes for leaf in jax.tree.leaves(vars(path)) if isinstance(leaf, np.ndarray))
    assert stored <= 10_000 * (17 * 9 + 40)


def test_default_grid():
    path = sht.solve_path(screening.model(), solver=screening.Screening())
    assert path.ks.tolist() == list(range(9)) and path.key == jax.random.key(0)
    A = np.diag(np.arange(1.0, 4.0)).astype(np.float32)
    path = sht.solve_path(sht.QuadraticForm(A, np.ones(3)), ks=[0, 2], solver=screening.Screening())
    np.testing.assert_allclose(path.value, [0, -0.5 * (1 + 1 / 2)], rtol=1e-5)
    np.testing.assert_array_equal(path.l2s, 0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ks": [9]}, "ks: the largest is 9, but there are only 8 features; lower ks."),
        ({"l2s": []}, "l2s: needs finite numbers >= 0"),
        ({"l2s": [-0.1]}, "l2s: needs finite numbers >= 0"),
        ({"l2s": np.ones((2, 3))}, "l2s: needs finite numbers >= 0"),
        ({"l0s": [0.1]}, "ks: a path over l0s finds its own sizes"),
        ({"memory": 0}, "memory: needs a positive number"),
    ],
)
def test_bad_values(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        sht.solve_path(screening.model(), **{"ks": [1], "solver": screening.Screening(), **options})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"objective": 3}, "objective: needs an instance"),
        ({"threshold": sht.Sparsity}, "threshold: needs an instance"),
        ({"threshold": sht.Sparsity(0, lower=0)}, "solver: Screening does not take the threshold"),
        ({"solver": "htp"}, "solver: needs an instance"),
        ({"ks": None, "l0s": [0.1]}, "solver: Screening does not take the threshold"),
        ({"progress": 3}, "progress: needs a function"),
        ({"objective": sht.QuadraticForm(np.eye(3), np.ones(3)), "l2s": [0.1]}, "l2: QuadraticForm has none"),
    ],
)
def test_bad_types(options, sentence):
    arguments = {"objective": screening.model(), "ks": [1], "solver": screening.Screening(), **options}
    with pytest.raises(TypeError, match=sentence):
        sht.solve_path(**arguments)


def test_sizes_by_default_are_those_that_data_allow():
    rng, plain = np.random.default_rng(0), sht.Sparsity(0)
    for n, p, keep, most in ((12, 30, [], 6), (100, 30, [], 20), (100, 9, [0, 4], 7), (1, 5, [], 0)):
        model, threshold = sht.LinearModel(rng.standard_normal((n, p)), np.ones(n)), sht.Sparsity(0, keep=keep)
        assert _grid.checked_ks(model, threshold, None).tolist() == list(range(most + 1))
        available = p - len(keep)
        assert _grid.checked_ks(model, threshold, available).tolist() == [available]
        with pytest.raises(ValueError, match=f"ks: the largest is {available + 1}.*only {p} features; lower"):
            _grid.checked_ks(model, threshold, [0, available + 1])
    assert _grid.checked_ks(sht.QuadraticForm(np.eye(25), np.ones(25)), plain, None).tolist() == list(range(21))
    assert _grid.checked_ks(model, sht.Simplex(1), None).tolist() == [1]
    for ks in ([[1, 2]], [], [1.0], [1, -1]):
        with pytest.raises(ValueError, match="ks: needs nonnegative integers"):
            _grid.checked_ks(model, plain, ks)
    with pytest.raises(ValueError, match="ks: Simplex needs at least 1, got 0"):
        _grid.checked_ks(model, sht.Simplex(1), [2, 0])


def test_a_total_of_weights_keeps_its_digits():
    weights = jnp.array([2.0**24, 1, 1, 1], jnp.float32)
    assert _path._total(SimpleNamespace(sample_weight=weights, total_weight=lambda each: each.sum(-1)), np) == 2**24 + 3
    for n, told in ((None, None), (jnp.float32(7), 7.0)):
        found = _path._total(SimpleNamespace(sample_weight=None, n=n), np)
        assert found == told and type(found) is type(told)


def test_paths_of_the_penalised_problem_and_cross_validation_refuse_traced_data():
    objective = screening.model()
    for refused in (
        lambda l2: sht.solve_path(objective.reweighted(l2=l2), l0s=[0.1]).x,
        lambda l2: sht.cross_validate(objective.reweighted(l2=l2), ks=[1]).loss,
    ):
        with pytest.raises(TypeError, match=r"objective: .* under jit or vmap use sht.solve"):
            jax.jit(refused)(0.1)


def test_predictions_need_all_features():
    path = sht.solve_path(screening.model(), ks=[3, 0, 1], l2s=L2S, solver=screening.Screening())
    with pytest.raises(ValueError, match="X: needs shape"):
        path.predict(np.ones((3, 2)))
    X = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    spoilt = np.where(np.arange(8) == 7, np.nan, X)
    for kind in (np.asarray, scipy.sparse.csr_array, np.ndarray.tolist):
        for few in (path, dataclasses.replace(path, features=path.features._replace(mask=path.features.mask & False))):
            expected = few.x @ X.T + few.intercept[:, None]
            np.testing.assert_allclose(few.predict(kind(X)), expected, rtol=1e-5, atol=1e-5)
        with pytest.raises(ValueError, match="X: "):
            path.predict(kind(spoilt))


def test_a_table_has_a_column_for_what_every_row_has_one_number_of():
    path = sht.solve_path(screening.model(), ks=[3, 0, 1], l2s=L2S, solver=screening.Screening())
    row = path.at(1)
    assert (row.fired, row.num_steps, row.best_step) == (sht.results.FIRED.none, 0, -1) and row.history is None
    shown = {"k": path.ks, "l2": path.l2s, "l0": np.arange(6.0), "objective": path.value, "loss": path.loss}
    several, priced = {"l2s": np.ones((6, 8))}, {"l0s": shown["l0"]}
    for more, names in (({}, "k l2 objective loss"), (several, "k objective loss"), (priced, "k l2 l0 objective loss")):
        head, *lines = (line.split() for line in str(dataclasses.replace(path, **more)).splitlines())
        assert head == names.split()
        for name, column in zip(head, np.array(lines, float).T, strict=True):
            np.testing.assert_allclose(column, shown[name], rtol=1e-5)


def test_progress_in_the_terminal(capsys, monkeypatch):
    sht.solve_path(screening.model(), ks=[3, 0, 1], l2s=L2S, solver=screening.Screening(), progress=True)
    assert "6/6" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    sht.solve_path(screening.model(), ks=[3, 0, 1], l2s=L2S, solver=screening.Screening(), progress=True)
    assert capsys.readouterr().err == "6 of 6 fits\n"
