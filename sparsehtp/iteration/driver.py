"""THE loop over steps: any solver, any batch, histories, one shared counter.

What grids ask of a solver with a `path` does not pass here.

The loop runs over a *vmapped* step instead of vmapping a loop: the counter `t` is then the same for all lanes, so that
histories are written in place (time-major, never copied) and branches stay branches. `vmap` of a solve is re-routed
here by a `custom_vmap` rule. A further one joins its lanes, or, where it would repeat a matrix, adds a level of lanes:
they share what an axis of theirs shares, however vmaps are nested. Every traced value comes in through `args`, none by
closure, since the rule cannot see closed-over tracers.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypeVar, TypeVarTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, PyTree

from .._programs import program
from .._types import Factors, Info, Support
from ..linalg import either, lane_axis, one_by_one
from .record import Record
from .results import FIRED, RESULTS
from .termination import AbstractTermination, Memory, State

Part: TypeAlias = PyTree  # an objective, a threshold or a solver, whose rooms stand above this one
Given = TypeVarTuple("Given")
Found = TypeVar("Found")


class Task(NamedTuple):
    """Everything a run depends on; leaves may carry a lane axis."""

    objective: Part
    threshold: Part
    solver: Part
    termination: AbstractTermination
    x0: Array | None  # None: zeros
    key: Array
    sound: Bool[Array, ""] | np.bool_ = np.True_  # False: the data hold NaN or infinite values, and nothing is run


class Outcome(NamedTuple):
    """The outcome of a run, in the solver's units."""

    x: Array
    support: PyTree  # a Support, or Factors
    value: Array
    result: Int[Array, ""]
    fired: Int[Array, ""]
    num_steps: Int[Array, ""]
    best_step: Int[Array, ""]
    history: Info | None
    state: State
    start_value: Array


class _Carry(NamedTuple):
    t: Array
    result: Array
    fired: Array
    num_steps: Array
    status: Array
    best_step: Array
    best_value: Array
    best_score: Array
    best: tuple[Array, Support | Factors] | None  # the iterate to return; None: the last one
    state: State
    memory: Memory
    history: tuple[Array, Array] | None


class _Level(NamedTuple):
    """One `vmap`: its number of lanes, and which leaves of the task have an axis for them."""

    size: int
    batched: tuple[bool, ...]


_Stepped: TypeAlias = tuple[State, Memory, Info, Array, Array]  # the last two: result, and what fired


def drive(task: Task, max_steps: int, record: Record | None) -> Outcome:
    """Run a task to its end; composes with jit and (nested) vmap."""
    arrays = jax.tree.map(jnp.asarray, task)
    return _jitted(arrays, max_steps, record)


def unrolled(task: Task, max_steps: int, record: Record | None) -> Outcome:
    """`drive` as a scan over `max_steps`, which JAX differentiates step by step, in reverse mode too."""
    arrays = jax.tree.map(jnp.asarray, task)
    return _jitted_scan(arrays, max_steps, record)


@program(static_argnums=(1, 2))
def _jitted(task: Task, max_steps: int, record: Record | None) -> Outcome:
    if (task.objective.lanes_in_turn or task.solver.lanes_in_turn) and one_by_one():
        return _in_turn(max_steps, record)(task)
    return _runner(max_steps, record, ())(task)


@program(static_argnums=(1, 2))
def _jitted_scan(task: Task, max_steps: int, record: Record | None) -> Outcome:
    return jax.tree.map(lambda a: a[0], _loop(task, (), max_steps, record, scan=True))


@functools.cache
def _in_turn(max_steps: int, record: Record | None) -> Callable[[Task], Outcome]:
    """The loop of one problem; a batch is one program that runs its lanes one after the other."""

    def call(task: Task) -> Outcome:
        return jax.tree.map(lambda a: a[0], _loop(task, (), max_steps, record, in_turn=True))

    return jax.custom_batching.sequential_vmap(call)


@functools.cache
def _runner(max_steps: int, record: Record | None, levels: tuple[_Level, ...]) -> Callable[[Task], Outcome]:
    """The loop for the lanes of some levels, the innermost first; every level is a leading axis of the outcome."""

    @jax.custom_batching.custom_vmap
    def call(task: Task) -> Outcome:
        sizes = tuple(level.size for level in reversed(levels))
        return jax.tree.map(lambda a: a.reshape((*sizes, *a.shape[1:])), _loop(task, levels, max_steps, record))

    @call.def_vmap
    def rule(size: int, batched: tuple[Task], task: Task) -> tuple[Outcome, Outcome]:
        level = _Level(size, tuple(jax.tree.leaves(batched[0])))
        if not levels or not _alike(levels, level, task):
            out = _runner(max_steps, record, (*levels, level))(task)
        else:
            last, lanes = levels[-1], size * levels[-1].size
            merged = _Level(lanes, tuple(a or b for a, b in zip(last.batched, level.batched, strict=True)))
            leaves, structure = jax.tree.flatten(task)
            flat = [
                _flattened(leaf, (size, last.size), (outer, inner))
                for leaf, outer, inner in zip(leaves, level.batched, last.batched, strict=True)
            ]
            out = _runner(max_steps, record, (*levels[:-1], merged))(jax.tree.unflatten(structure, flat))
            out = jax.tree.map(lambda a: a.reshape((size, last.size, *a.shape[1:])), out)
        return out, jax.tree.map(lambda _: True, out)

    return call


def _alike(levels: tuple[_Level, ...], level: _Level, task: Task) -> bool:
    """Whether the last level and another one are cheaper as one: no matrix has an axis for one of them alone, so that
    only numbers and vectors have to be repeated."""
    for i, leaf in enumerate(jax.tree.leaves(task)):
        own = jnp.ndim(leaf) - level.batched[i] - sum(each.batched[i] for each in levels)
        if own > 1 and level.batched[i] != levels[-1].batched[i]:
            return False
    return True


def _flattened(leaf: Array, sizes: tuple[int, int], batched: tuple[bool, bool]) -> Array:
    """A leaf with one axis for two levels, the outer one first, unless it has none for both."""
    if not any(batched):
        return leaf
    leaf = leaf if batched[0] else leaf[None]
    leaf = leaf if batched[1] else leaf[:, None]
    return jnp.broadcast_to(leaf, (*sizes, *leaf.shape[2:])).reshape((math.prod(sizes), *leaf.shape[2:]))


def _loop(
    task: Task,
    levels: tuple[_Level, ...],
    max_steps: int,
    record: Record | None,
    scan: bool = False,
    in_turn: bool = False,
) -> Outcome:
    """A run whose outcome has one axis for the lanes of all levels, of which there are one or more."""
    sizes = tuple(level.size for level in reversed(levels))
    width = math.prod(sizes)

    def over_lanes(function: Callable[[Task, *Given], Found], *axes: int | None) -> Callable[[Task, *Given], Found]:
        """A function of the task and others, which have an axis for all lanes (0) or none."""
        if in_turn:
            return _unbatched(function, axes)
        mapped = function
        for number, level in enumerate(levels or (_Level(1, (False,) * len(jax.tree.leaves(task))),)):
            own = jax.tree.unflatten(jax.tree.structure(task), [0 if lane else None for lane in level.batched])
            mapped = jax.vmap(mapped, (own, *axes), axis_size=level.size, axis_name=lane_axis(number))
        if len(levels) < 2:
            return mapped

        def flat(task: Task, *others: *Given) -> Found:
            split = _by_axis(lambda a: a.reshape((*sizes, *a.shape[1:])), axes, others)
            return jax.tree.map(lambda a: a.reshape((width, *a.shape[len(sizes) :])), mapped(task, *split))

        return flat

    def lane_init(a: Task) -> tuple[State, Memory]:
        state = a.solver.init(a.objective, a.threshold, a.x0, a.key)
        return state, a.termination.init(state)

    def lane_step(a: Task, state: State, memory: Memory, t: Int[Array, ""]) -> _Stepped:
        new, info = a.solver.step(a.objective, a.threshold, state, t)
        finite = jnp.isfinite(info.value) & jnp.isfinite(new.x).all() & ~jnp.isnan(info.grad_norm)
        memory, fired = a.termination(memory, state, new, info, t)
        only_cycle = fired == FIRED.Cycle
        result = jnp.where(fired == 0, RESULTS.running, jnp.where(only_cycle, RESULTS.cycle, RESULTS.converged))
        result = jnp.where(finite, result, RESULTS.nonfinite).astype(jnp.int32)
        return new, memory, info, result, jnp.where(finite, fired, 0)

    @jax.jit  # traced once, for its shapes and for the loop
    def step_all(task: Task, state: State, memory: Memory, t: Int[Array, ""]) -> _Stepped:
        return over_lanes(lane_step, 0, 0, None)(task, state, memory, t)

    def body(c: _Carry) -> _Carry:
        new, memory, info, result, fired = step_all(task, c.state, c.memory, c.t)
        active = c.result == RESULTS.running
        taken = active & (result != RESULTS.nonfinite)  # a nonfinite step is never taken
        score = task.solver.score(info)
        better = taken & ((score < c.best_score) | (c.best_step < 0)) if returns_best else taken
        history = c.history
        if record is not None:
            row = c.t // record.every
            blocks = _pack(lax.stop_gradient(info))
            history = jax.tree.map(lambda h, v: h.at[row].set(jnp.where(active[:, None], v, h[row])), history, blocks)
        return _Carry(
            t=c.t + 1,
            result=jnp.where(active, result, c.result),
            fired=jnp.where(active, fired, c.fired),
            num_steps=jnp.where(active, c.t + 1, c.num_steps),
            status=jnp.where(better, info.status, c.status),
            best_step=jnp.where(better, c.t, c.best_step),
            best_value=jnp.where(better, info.value, c.best_value),
            best_score=jnp.where(better, score, c.best_score),
            best=_where(better, (new.x, new.support), c.best) if returns_best else None,
            state=_where(taken, new, c.state),
            memory=_where(taken, memory, c.memory),
            history=history,
        )

    returns_best = task.solver.returns_best
    state, memory = over_lanes(lane_init)(task)
    shapes = jax.eval_shape(step_all, task, state, memory, jnp.int32(0))
    rows = 0 if record is None else -(-max_steps // record.every)
    integers = jnp.zeros(width, jnp.int32)
    result = over_lanes(lambda a: jnp.where(a.sound, RESULTS.running, RESULTS.nonfinite))(task)
    value0 = over_lanes(lambda a, s: a.objective.value(s.x) + a.threshold.value(s.x), 0)(task, state)
    carry = _Carry(
        t=jnp.int32(0),
        result=result.astype(jnp.int32),
        fired=integers,
        num_steps=integers,
        status=integers,
        best_step=integers - 1,
        best_value=value0,
        best_score=value0,
        best=(state.x, state.support) if returns_best else None,
        state=state,
        memory=memory,
        history=None
        if record is None
        else jax.tree.map(lambda a: jnp.zeros((rows, *a.shape), a.dtype), jax.eval_shape(_pack, shapes[2])),
    )
    if scan:
        c, _ = lax.scan(lambda c, _: (body(c), None), carry, length=max_steps)
    else:
        c = lax.while_loop(lambda c: (c.t < max_steps) & (c.result == RESULTS.running).any(), body, carry)
    result = jnp.where(c.result == RESULTS.running, RESULTS.max_steps, c.result)
    # A fault of the returned iterate matters more than how the run stopped.
    result = jnp.where((c.status != 0) & (result != RESULTS.nonfinite), c.status, result).astype(jnp.int32)
    x, support = (c.state.x, c.state.support) if c.best is None else c.best
    ended = (lax.stop_gradient(task), lax.stop_gradient(x), support, result)
    judged = over_lanes(lambda a, x, s, r: a.objective.judged(a.threshold, x, s, r), 0, 0, 0)(*ended)
    fired = jnp.where(judged == result, c.fired, 0)
    history = None if c.history is None else _unpack(shapes[2], c.history)
    return Outcome(x, support, c.best_value, judged, fired, c.num_steps, c.best_step, history, c.state, value0)


def _unbatched(
    function: Callable[[Task, *Given], Found], axes: tuple[int | None, ...]
) -> Callable[[Task, *Given], Found]:
    """The function over the one lane there is, without the detours that `vmap` makes of branches and of LAPACK."""

    def one(task: Task, *others: *Given) -> Found:
        own = _by_axis(lambda a: a[0], axes, others)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(task, *own))

    return one


def _by_axis(change: Callable[[Array], Array], axes: tuple[int | None, ...], values: PyTree) -> PyTree:
    """Values of which those that have an axis are changed, leaf by leaf."""

    def changed(axis: int | None, value: PyTree) -> PyTree:
        return value if axis is None else jax.tree.map(change, value)

    return jax.tree.map(changed, axes, values, is_leaf=lambda axis: axis is None)


def _pack(info: Info) -> tuple[Array, Array]:
    """The fields of an Info over lanes as one floating and one integer block: a row is two writes, not eleven."""
    leaves = jax.tree.leaves(info)
    floating = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    integer = [leaf for leaf in leaves if not jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack(floating, -1), jnp.stack(integer, -1)


def _unpack(shapes: Info, blocks: tuple[Array, Array]) -> Info:
    """The history, lanes first, from time-major blocks."""
    columns = [iter(jnp.transpose(block, (2, 1, 0))) for block in blocks]
    leaves, structure = jax.tree.flatten(shapes)
    pick = [0 if jnp.issubdtype(leaf.dtype, jnp.floating) else 1 for leaf in leaves]
    return jax.tree.unflatten(structure, [next(columns[i]) for i in pick])


def _where(flag: Bool[Array, "lanes"], new: Found, old: Found) -> Found:
    if flag.shape[0] == 1:
        return either(flag[0], new, old)

    def pick(n: Array, o: Array) -> Array:
        return jnp.where(flag.reshape(flag.shape + (1,) * (n.ndim - 1)), n, o)

    return jax.tree.map(pick, new, old)
