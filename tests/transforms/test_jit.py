"""What is raised under `jit`; float32 equals float64, k_max and the record do not change answers."""

import warnings

import cases
import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht

X, Y, _ = cases.data(sht.losses.Squared(), n=24, p=18, seed=2)
LABELS = np.where(Y > np.median(Y), 1.0, -1.0)


@pytest.mark.parametrize("solver", [sht.solvers.HTP(), sht.solvers.IHT(), None], ids=["htp", "iht", "default"])
def test_a_run_tells_the_value_that_it_started_from(solver):
    model = sht.LinearModel(X, Y, fit_intercept=True)
    x0 = np.zeros(18, np.float32)
    x0[[2, 5, 7]] = [2.0, -1.0, 0.5]
    for start, kept in ((None, np.zeros(18)), (x0, x0 * (np.abs(x0) >= 1))):
        solution = sht.solve(model, sht.Sparsity(2), solver, x0=start)
        residuals = Y - X @ kept
        value = np.mean(residuals**2) / 2
        if solver is None:  # it takes x0 as it is, or fits
            assert solution.start_value <= value * (1 + 1e-5)
        else:
            np.testing.assert_allclose(solution.start_value, value, rtol=1e-5)


def test_a_model_in_double_precision_is_solved_there_alone():
    with jax.enable_x64(True):
        model = sht.LinearModel(X, Y)
    with warnings.catch_warnings(action="error"):
        for verb in (sht.solve, sht.solve_path, sht.cross_validate):
            given = (sht.Sparsity(2),) if verb is sht.solve else ()
            cases.refused(ValueError, "objective", lambda verb=verb, given=given: verb(model, *given))


def test_a_traced_size_needs_a_limit():
    one, several = sht.LinearModel(X, Y), sht.MultiResponse(X, np.stack([Y, -Y, Y**2], 1))
    for name, objective, threshold, solver in (
        *(("k", one, sht.Sparsity, solver) for solver in (None, sht.solvers.BestSubset(), sht.solvers.IHT())),
        ("r", several, sht.Rank, None),
    ):

        def value(size, objective=objective, threshold=threshold, solver=solver):
            return sht.solve(objective, threshold(size), solver).value

        said = f"{name}_max: a traced or batched {name} needs a static {name}_max"
        cases.refused(ValueError, said, lambda value=value: jax.eval_shape(value, 2))


def test_a_checked_solution_raises_inside_jit():
    def run(k, y):
        model = sht.LinearModel(X, y)
        return sht.solve(model, sht.Sparsity(k, k_max=4), sht.solvers.IHT(), throw=False, record=None).checked().x

    checked = jax.jit(jax.vmap(run, in_axes=(0, None)))
    (S,) = np.nonzero(x := np.asarray(checked(jnp.array([1, 2]), Y)[1]))
    np.testing.assert_allclose(x[S], np.linalg.lstsq(X[:, S], Y)[0], atol=1e-5)
    for fault, k, y in (("invalid: The traced k", -1, Y), ("nonfinite: ", 2, Y * np.nan)):
        with pytest.raises(Exception, match=fault):  # of a type that is JAX's
            checked(jnp.array([1, k]), y).block_until_ready()


def test_every_fault_of_a_checked_solution_is_named():
    with jax.enable_x64(True):
        double = sht.solve(sht.LinearModel(X, Y), sht.Sparsity(2), sht.solvers.IHT(), record=None)
    single = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), double._replace(key=None, state=None))
    inside = eqx.filter_jit(lambda result: single._replace(result=result).checked().x)
    for result in sht.results.RESULTS:
        calls = lambda result=result: inside(jnp.int32(result)), double._replace(result=np.int32(result)).checked
        if result.name in ("nonfinite", "singular", "support_overflow", "invalid"):
            for call in calls:
                cases.refused(RuntimeError, f"{result.name}: {result.sentence[:30]}", call)
        else:
            np.testing.assert_allclose(calls[0](), calls[1]().x, rtol=1e-6)


@pytest.mark.parametrize("loss", ["squared", pytest.param("logistic", marks=pytest.mark.slow)])
@pytest.mark.parametrize("solver", [sht.solvers.HTP(), sht.solvers.IHT()], ids=["htp", "iht"])
def test_float32_agrees_with_float64(loss, solver):
    y = LABELS if loss == "logistic" else Y

    def run(dtype):
        objective = sht.LinearModel(X.astype(dtype), y.astype(dtype), cases.LOSSES[loss], l2=0.1, fit_intercept=True)
        return sht.solve(objective, sht.Sparsity(3), solver)

    single = run(np.float32)
    with jax.enable_x64(True):
        double = run(np.float64)
        mixed = run(np.float32)  # float32 data inside an x64 context stay float32
    chex.assert_type([single.x, single.value, mixed.x, mixed.value], np.float32)
    chex.assert_type([double.x, double.value, double.history.value], np.float64)
    for other in (single, mixed):
        assert int(other.result) == int(double.result) == sht.results.RESULTS.converged
        np.testing.assert_array_equal(cases.members(other.support), cases.members(double.support))
        np.testing.assert_allclose(other.x, double.x, atol=2e-4)
        np.testing.assert_allclose(other.value, double.value, rtol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["htp", "iht"])
def test_the_answer_does_not_depend_on_k_max(name):
    objective = sht.LinearModel(X, Y, l2=0.1, fit_intercept=True)
    first, other = (sht.solve(objective, sht.Sparsity(3, k_max=k_max), cases.SOLVERS[name]) for k_max in (3, 18))
    np.testing.assert_array_equal(cases.members(first.support), cases.members(other.support))
    np.testing.assert_allclose(first.x, other.x, atol=1e-9)
    steps = int(first.num_steps)
    assert steps == int(other.num_steps)
    np.testing.assert_allclose(first.history.value[:steps], other.history.value[:steps], rtol=1e-9)


@pytest.mark.usefixtures("x64")
def test_records():
    model, records = sht.LinearModel(X, Y, l2=0.1), (sht.results.Record(), sht.results.Record(every=3), None)
    every, third, none = (
        sht.solve(model, sht.Sparsity(3), sht.solvers.IHT(), max_steps=50, record=record) for record in records
    )
    steps = int(every.num_steps)
    assert 6 < steps < 50, "stops before the limit, so that there is padding"
    assert none.history is None
    for other in (third, none):
        np.testing.assert_array_equal(other.x, every.x)
        assert int(other.num_steps) == steps and int(other.best_step) == int(every.best_step)
    chex.assert_tree_shape_prefix(every.history, (50,))
    chex.assert_tree_shape_prefix(third.history, (17,))
    # each row is the last step of its block of three
    last = np.minimum(np.arange(-(-steps // 3)) * 3 + 2, steps - 1)
    for a, b in zip(every.history, third.history, strict=True):
        np.testing.assert_array_equal(np.asarray(b)[: last.size], np.asarray(a)[last])
        assert not np.any(np.asarray(a)[steps:]) and not np.any(np.asarray(b)[last.size :]), "padding is zero"
