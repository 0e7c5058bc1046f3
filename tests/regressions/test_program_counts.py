"""How many programs a first fit compiles: a count, not a time."""

import jax
import numpy as np

import sparsehtp as sht

COMPILED = [0]


def listen(event, *_, **__):
    COMPILED[0] += event.endswith("backend_compile_duration")


jax.monitoring.register_event_duration_secs_listener(listen)


def programs(function):
    before = COMPILED[0]
    function()
    return COMPILED[0] - before


def data(n):
    X = np.random.default_rng(0).standard_normal((n, 7))
    return X, X[:, 1] - X[:, 3]


def test_a_fit_of_given_k_compiles_ingest_and_solve():
    X, y = data(37)
    assert programs(lambda: sht.SparseRegressor(k=2).fit(X, y)) <= 2
    assert programs(lambda: sht.SparseRegressor(k=2, l2=0.5, random_state=1).fit(X + 1e3, 10 * y)) <= 1  # to centre


def test_solve_compiles_ingest_and_solve():
    X, y = (a.astype(np.float32) for a in data(39))
    assert programs(lambda: sht.solve(sht.LinearModel(X, y), sht.Sparsity(2), sht.HTP())) <= 2
    assert programs(lambda: sht.solve(sht.LinearModel(2 * X, -y, l2=0.1), sht.Sparsity(2), sht.HTP())) == 0
