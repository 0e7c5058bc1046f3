"""Hyper-parameters by gradient: where they start, what falls, and sample weights on mislabelled data."""

import collections

import cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import sparsehtp as sht
from sparsehtp.iteration.results import RESULTS
from sparsehtp.tuning import step_search
from sparsehtp.tuning import tune as tuning

pytestmark = pytest.mark.usefixtures("x64")


GROUPS = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 1])


def test_parameters_start_where_they_are_told_and_are_shared_by_groups():
    model = sht.LinearModel(np.eye(10)[:7], np.ones(7))
    index, params = tuning._parameters(model, [0.1, 3.0], np.linspace(0.1, 0.9, 7), GROUPS)
    again = tuning._with(model, params, index)
    np.testing.assert_allclose(again.l2, np.where(GROUPS == 0, 0.1, 3.0), rtol=1e-9)
    np.testing.assert_allclose(again.sample_weight, np.linspace(0.1, 0.9, 7), rtol=1e-9)
    plain = tuning._with(model, tuning._parameters(model, 0.3, None, None)[1], None)
    assert plain.l2 == pytest.approx(0.3) and np.ptp(plain.sample_weight) == 0
    scored = tuning._scored(
        sht.LinearModel(np.eye(7), np.ones(7), sht.losses.Logistic(), l2=3.0), (np.eye(7), np.ones(7))
    )
    assert isinstance(scored.loss, sht.losses.Logistic) and scored.n_free == 0
    for l2, weights in ((0.0, None), ([0.1, np.inf] * 5, None), (None, [0.0] + [0.5] * 6), (None, [0.5] * 6 + [1.0])):
        cases.refused(ValueError, "starting values", lambda l2=l2, s=weights: tuning._parameters(model, l2, s, None))


def test_the_first_of_the_best_is_kept(monkeypatch):
    """Of fifty steps from the start, by the optimiser and with the key that are given."""
    seen = []

    def step(params, state, *rest):
        seen.append(rest[-2:])
        return [3.0, 1.0, 1.0][min(len(seen), 3) - 1], len(seen), jax.tree.map(lambda a: a + 1, params), state

    monkeypatch.setattr(tuning, "_step", step)
    model, own = sht.LinearModel(np.eye(10)[:7], np.ones(7)), optax.sgd(0.1)
    tuned = sht.tune(model, sht.Sparsity(1), val=model, l2=1.0, weights=0.5)
    assert (tuned.best_step, tuned.solution, tuned.value, tuned.values.size) == (1, 2, 1, 51)
    np.testing.assert_allclose([tuned.l2, *tuned.weights], [np.e, *[1 / (1 + 1 / np.e)] * 7])
    sht.tune(model, sht.Sparsity(1), val=model, l2=1.0, optimiser=own, steps=0, key=model)
    assert seen[0] == (jax.random.key(0), tuning.ADAM) and seen[-1] == (model, own) and len(seen) == 52


def test_steps_are_searched_from_an_eighth_to_128_times_that_of_the_solver(monkeypatch):
    """By five steps of each; what leaves the range of numbers is no choice."""
    Fit = collections.namedtuple("Fit", ("value", "result"))

    def fit(objective, threshold, solver, *, max_steps, throw, **more):
        assert max_steps == 5 and not throw
        size = solver.step_rule.size
        return Fit(abs(size - 3.5), jnp.where(size > 20, int(RESULTS.nonfinite), int(RESULTS.max_steps)))

    monkeypatch.setattr(step_search, "solve", fit)
    model, threshold = sht.LinearModel(np.eye(10)[:7], np.ones(7)), sht.Sparsity(1)
    search = sht.tune_step(model, threshold, sht.solvers.IHT(sht.steps.ConstantStep(0.5)))
    np.testing.assert_array_equal(search.sizes, 2.0 ** np.arange(-4, 7))
    np.testing.assert_allclose(
        search.values, np.where(search.sizes > 20, np.inf, np.abs(search.sizes - 3.5)), rtol=1e-6
    )
    assert search.solver.step_rule.size == search.sizes[search.best] == 4
    assert sht.tune_step(model, threshold, sht.solvers.IHT(), 4).sizes.tolist() == [4]
    needs = [(bad, "needs positive") for bad in ([0, 4], [4, np.inf], [[4, 2]])]
    for bad, message in (*needs, ([30, 21], "every one diverges, from 21 on")):
        call = lambda bad=bad: sht.tune_step(model, threshold, sht.solvers.IHT(), bad)  # noqa: E731
        cases.refused(ValueError, f"sizes: {message}", call)


@pytest.mark.slow
def test_weights_find_wrong_labels():
    X, y = load_breast_cancer(return_X_y=True)
    y = 2.0 * y - 1
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=200, random_state=0, stratify=y)
    X_val, X_test, y_val, y_test = train_test_split(X_rest, y_rest, train_size=100, random_state=0, stratify=y_rest)
    scaler = StandardScaler().fit(X_train)
    X_train, X_val, X_test = (scaler.transform(each) for each in (X_train, X_val, X_test))
    rng = np.random.default_rng(0)
    flipped = rng.permutation(200) < 60
    noisy = np.where(flipped, -y_train, y_train)
    model = sht.LinearModel(X_train, noisy, sht.losses.Logistic(), l2=0.01, fit_intercept=True)
    threshold = sht.Sparsity(5)
    tuned = sht.tune(model, threshold, val=(X_val, y_val), weights=0.5, steps=30, solver=sht.solvers.HTP())
    plain = sht.solve(model, threshold, sht.solvers.HTP())

    def accuracy(solution):
        return np.mean(np.sign(X_test @ solution.x + solution.intercept) == y_test)

    assert accuracy(tuned.solution) > accuracy(plain)
    assert tuned.weights[flipped].mean() < tuned.weights[~flipped].mean() - 0.1
    assert tuned.value < tuned.values[0]


def test_validation_models_and_bad_input():
    rng = np.random.default_rng(0)
    X, X_val = rng.standard_normal((2, 40, 10))
    y, y_val = (Z[:, 0] - 0.5 * Z[:, 1] + rng.standard_normal(40) for Z in (X, X_val))
    model = sht.LinearModel(X, y, fit_intercept=True, standardize=True)
    threshold, seen = sht.Sparsity(2), []
    options = dict(l2=np.full(10, 0.1), steps=2, solver=sht.solvers.HTP())
    pair = sht.tune(model, threshold, val=(X_val, y_val), **options)
    own = sht.LinearModel(X_val, y_val, fit_intercept=True, standardize=True, l2=3.0)
    other = sht.tune(model, threshold, val=own, progress=lambda done, total: seen.append((done, total)), **options)
    np.testing.assert_allclose(pair.values, other.values, rtol=1e-9)
    assert pair.value == pair.values.min() < pair.values[0]
    residual = X_val @ pair.solution.x + pair.solution.intercept - y_val
    np.testing.assert_allclose(pair.value, 0.5 * np.mean(residual**2), rtol=1e-9)
    assert pair.weights is None and pair.l2.shape == (10,) and seen == [(0, 2), (1, 2), (2, 2)]
    for bad, message in (
        ({}, "l2, weights: give starting values"),
        ({"l2": 0.1, "groups": [1, 2]}, "groups: needs one label per feature"),
        ({"weights": 0.5, "groups": GROUPS}, "groups: only l2"),
    ):
        cases.refused(ValueError, message, lambda bad=bad: sht.tune(model, threshold, val=(X_val, y_val), **bad))
    cases.refused(ValueError, "val: needs", lambda: sht.tune(model, threshold, val=3, l2=0.1))
