"""How many programs a first fit compiles: a count, not a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting import programs

import sparsehtp as sht


def warm():
    """Compile what belongs to the process and not to a shape."""
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(dtype == np.float64):
            X = np.eye(5, 3, dtype=dtype)
            sht.solve(sht.LinearModel(X, X[:, 0], l2=0.1), sht.Sparsity(1), sht.solvers.HTP())


def data(n):
    X = np.random.default_rng(0).standard_normal((n, 7))
    return X, X[:, 1] - X[:, 3]


def test_a_fit_of_given_k_compiles_ingest_and_solve():
    warm()
    X, y = data(37)
    assert programs(lambda: sht.SparseRegressor(k=2, solver="htp").fit(X, y)) <= 2
    again = sht.SparseRegressor(k=3, solver="htp", l2=0.5, random_state=1)
    assert programs(lambda: again.fit(2 * X, 10 * y)) == 0


@pytest.mark.parametrize("kind", ["bounds", "cox", "ordinal", "softmax", "several"])
def test_no_model_computes_array_by_array(kind):
    """Each line of eager JAX would be a program of its own."""
    warm()
    X, y = data(41)
    model, target = {
        "bounds": (sht.SparseRegressor(2, solver="htp", bounds=(-1, np.arange(1, 8))), y),
        "cox": (sht.SparseCox(2, solver="htp"), np.column_stack([np.exp(y), y > -1])),
        "ordinal": (sht.SparseOrdinal(2, solver="htp"), np.digitize(y, [-1, 1])),
        "softmax": (sht.SparseClassifier(2, loss="softmax", solver="htp"), np.digitize(y, [-1, 1])),
        "several": (sht.SparseRegressor(2, solver="htp"), np.column_stack([y, -y + X[:, 0]])),
    }[kind]
    assert programs(lambda: model.fit(X, target)) <= 4


TRACES = []


class Counted(sht.losses.Squared):
    """The squared loss; every trace of its value leaves a mark."""

    def value(self, eta, y):
        if isinstance(eta, jax.core.Tracer):
            TRACES.append(1)
        return super().value(eta, y)


def test_solve_compiles_ingest_and_solve():
    """Once for every k, l2, seed, start and data of a shape; what is traced again may be a program of the store."""
    warm()
    X, y = (a.astype(np.float32) for a in data(39))

    def fit(k=2, x0=None, key=None, size=2, k_max=7, **options):
        model = sht.LinearModel(size * X, -y, Counted(), **options)
        return sht.solve(model, sht.Sparsity(k, k_max), sht.solvers.HTP(), x0, key=key)

    assert programs(lambda: fit(size=1)) <= 2
    solution, first = fit(), len(TRACES)
    given = [{"k": k} for k in (*range(8), np.int64(3))] + [{"l2": l2} for l2 in (0, 0.7, np.float32(0.2))]
    given += [{"x0": x0} for x0 in (solution, solution.x, np.asarray(solution.x))] + [{"key": jax.random.key(5)}]
    for each in given:
        assert programs(lambda each=each: fit(**each)) == 0, each
    fit(jnp.int32(3), sample_weight=np.arange(39.0))
    assert len(TRACES) == first > 0
    fit(k_max=4)
    assert len(TRACES) > first, "the counter sees a retrace where there must be one"


def table(n, p=10):
    X = 30 + np.random.default_rng(n).standard_normal((n, p))  # far from zero, so that it is centred
    return X, X[:, 1] - X[:, 3]


def test_a_default_fit_compiles_three_programs_and_one_that_centres():
    warm()
    X, y = table(442)
    assert programs(lambda: sht.SparseRegressor().fit(X, y)) <= 4
    assert programs(lambda: sht.SparseRegressor(random_state=1).fit(2 * X, 10 * y)) == 0


@pytest.mark.parametrize(
    ("n", "options"),
    [(430, {"k": 2, "solver": "htp"}), (441, {}), (440, {}), (430, {})],
    ids=["430 of a given k", "441", "440", "430"],
)
def test_fits_of_nearly_as_many_rows_compile_nothing(n, options):
    sht.SparseRegressor(**options).fit(*table(442))
    X, y = table(n)
    assert programs(lambda: sht.SparseRegressor(**options).fit(X, y)) == 0


@pytest.mark.parametrize(("n", "p"), [(35, 20), (33, 19)])
def test_neighbouring_tables_share_programs_whatever_levels_they_have(n, p):
    settings = {"l2": 0.1, "cv": 3}
    assert max(sht.SparseRegressor(**settings).fit(*table(36, 20)).path_.ks) == 9
    (X, y), model = table(n, p), sht.SparseRegressor(**settings)
    assert programs(lambda: model.fit(X, y)) == 0
    assert max(model.path_.ks) == 8


def test_a_default_classifier_compiles_three_programs_and_one_that_centres():
    warm()
    X, y = table(200)
    assert programs(lambda: sht.SparseClassifier().fit(X, y > 0)) <= 4
    X, y = table(195)
    assert programs(lambda: sht.SparseClassifier(random_state=1).fit(2 * X, y > 0)) == 0
