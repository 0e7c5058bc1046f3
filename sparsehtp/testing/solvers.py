"""The laws of a solver."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._programs import program
from .._solve import solve
from .._types import Info, replace
from ..objectives import AbstractObjective, LinearModel
from ..objectives.model import in_double
from ..solvers import AbstractSolver
from ..thresholds import AbstractUnitThreshold, Sparsity
from .laws import equal, law, traced

STEPS = 8


def check_solver(
    solver: AbstractSolver,
    objective: AbstractObjective | None = None,
    threshold: AbstractUnitThreshold | None = None,
    seed: int = 0,
) -> None:
    """Assert the laws that every solver keeps, along some steps and in `solve`.

    - A step keeps the structure, shapes and dtypes of the state, so that the driver can loop over it.
    - After every step x is finite, vanishes outside the support, and the support holds at most k units beside those
      that are always kept, which it holds all.
    - What a step reports is so: the value is F plus the penalty at x, the size is that of the support.
    - Lanes of a batch are the runs one by one, and a traced k is the same number.
    - `solve` returns an iterate of the history, its value F there, and F is not above that without features.

    Args:
        solver: an instance.
        objective: one that the solver takes. None: a small least-squares `LinearModel` with an intercept.
        threshold: a choice of units, not bound. None: `Sparsity(2)` that always keeps feature 4.
        seed: of the keys.

    Raises:
        AssertionError: for the first law that does not hold, naming it with the numbers.
    """
    with jax.enable_x64(True):
        objective = _squares() if objective is None else in_double(objective)
        threshold = Sparsity(2, k_max=3, keep=[4]) if threshold is None else threshold
        solver.check(objective, threshold)
        bound, key = threshold.bind(objective), jax.random.key(seed)
        keys = jax.random.split(key, 3)
        with traced(solver):
            state = jax.eval_shape(_init, objective, bound, solver, key)
            pair: Any = jax.eval_shape(lambda state: solver.step(objective, bound, state, jnp.int32(0)), state)
            two = type(pair) is tuple and len(pair) == 2 and isinstance(pair[1], Info)
            law(solver, "a step returns the next state and an Info", two, found=type(pair).__name__)
            after = pair[0]
            shapes = [[(a.shape, a.dtype) for a in jax.tree.leaves(each)] for each in (state, after)]
            structures: list[Any] = [jax.tree.structure(each) for each in (state, after)]
            same = structures[0] == structures[1] and shapes[0] == shapes[1]
            law(solver, "a step keeps the structure, shapes and dtypes of the state", same, was=state, found=after)
            out = jax.tree.map(np.asarray, jax.vmap(lambda key: _run(objective, bound, solver, key))(keys))
            alone = [np.asarray(_run(objective, bound, solver, each)["x"]) for each in keys]
        t = np.arange(STEPS)[None, :]
        law(solver, "x is finite", np.isfinite(out["x"]).all(-1), t=t)
        equal(solver, "lanes of a batch are the runs one by one", out["x"], alone, 1e-9, 1e-9)
        law(solver, "x vanishes outside the support", out["inside"], t=t, x=out["x"])
        law(solver, "the support holds what is always kept", out["kept"], t=t)
        most = int(threshold.k) + threshold.keep.shape[0]
        law(solver, "a support has at most k units", out["size"] <= most, found=out["size"], k=most, t=t)
        equal(solver, "the size that is told is that of the support", out["told"], out["size"], 0.0, t=t)
        room = 1e-11 * (1 + np.abs(out["value"]))
        equal(solver, "the value that is told is F and the penalty at x", out["told_value"], out["value"], 0, room, t=t)
        _check_solve(solver, objective, threshold, key)


def _check_solve(
    solver: AbstractSolver, objective: AbstractObjective, threshold: AbstractUnitThreshold, key: Array
) -> None:
    found = solve(objective, threshold, solver, key=key, throw=False)
    x = objective.to_internal(found.x, found.intercept)
    value = float(objective.value(x) + threshold.bind(objective).value(x))
    equal(solver, "solve returns F at its x", found.value, value, 1e-10)
    assert found.history is not None
    history = np.asarray(found.history.value)[: int(found.num_steps)]
    law(solver, "solve returns an iterate of the history", np.any(history == found.value), value=found.value)
    none = float(solve(objective, replace(threshold, k=0), solver, key=key, throw=False).value)
    law(solver, "F is not above that of a run without features", value <= none + 1e-9 * abs(none), F=value, none=none)
    # k is an argument of the program, whatever its value.
    limited = threshold if threshold.k_max is not None else replace(threshold, k_max=int(threshold.k))
    with traced(solver):
        run = jax.jit(lambda k: solve(objective, replace(limited, k=k), solver, key=key, throw=False).value)
        equal(solver, "a traced k is the same number", run(jnp.int32(threshold.k)), found.value, 1e-10)


def _squares() -> LinearModel:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 7)) * [1, 2, 0.5, 1, 1, 1, 1] + rng.standard_normal((40, 1))
    return LinearModel(X, X[:, 1] - 2 * X[:, 2] + 0.3 * rng.standard_normal(40), l2=0.05, fit_intercept=True)


def _init(objective: AbstractObjective, threshold: AbstractUnitThreshold, solver: AbstractSolver, key: Array) -> Any:
    return solver.init(objective, threshold, objective.origin(), key)


@program
def _run(
    objective: AbstractObjective, threshold: AbstractUnitThreshold, solver: AbstractSolver, key: Array
) -> dict[str, Array]:
    units = threshold.scores(objective.origin()).shape[0]

    def body(state: Any, t: Array) -> tuple[Any, dict[str, Array]]:
        state, info = solver.step(objective, threshold, state, t)
        entries = threshold.entries(state.x, state.support)
        inside = jnp.zeros(state.x.shape, bool).at[entries.idx].max(entries.mask)
        chosen = jnp.zeros(units + threshold.n_free, bool).at[state.support.idx].max(state.support.mask)[:units]
        return state, {
            "x": state.x,
            "inside": jnp.all(inside | (state.x == 0)),
            "kept": jnp.all(chosen[threshold.keep]),
            "size": jnp.sum(chosen),
            "told": info.support_size,
            "value": objective.value(state.x) + threshold.value(state.x),
            "told_value": info.value,
        }

    return jax.lax.scan(body, _init(objective, threshold, solver, key), jnp.arange(STEPS))[1]
