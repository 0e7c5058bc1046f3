"""Bootstraps of a path as one batched program against loops over compiled programs; resamples are weights."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import sparsehtp as sht
from sparsehtp._threads import one_blas_thread
from sparsehtp.linalg import lane_axis

from .problems import generate
from .scores import aim, finish
from .timing import best_of, compile_time, work


def programs(k_max, effort):
    """(all sizes of one resample, one size of one resample) as functions of X, y and the weights."""
    solver = sht.solvers.BestSubset(effort)

    def single(X, y, weights, k):
        objective = sht.LinearModel(X, y, sample_weight=weights)
        return sht.solve(objective, sht.Sparsity(k, k_max=k_max), solver, record=None).value

    if not hasattr(solver, "path"):
        return (
            lambda X, y, weights: jax.vmap(single, (None, None, None, 0))(X, y, weights, np.arange(1, k_max + 1))
        ), single

    def path(X, y, weights):
        objective = sht.LinearModel(X, y, sample_weight=weights)
        threshold = sht.Sparsity(k_max, k_max=k_max).bind(objective)
        return solver.path(objective, threshold, jax.random.key(0)).value[1:]

    return path, single


def compare(X, y, counts, k_max, effort, dtype, repeats, loops=True):
    """Rows of one effort in one dtype, without or with loops to compare with; run it under the dtype's x64 setting."""
    data = jnp.asarray(X, dtype), jnp.asarray(y, dtype)
    weights, ks = jnp.asarray(counts, dtype), jnp.arange(1, k_max + 1)
    path, single = programs(k_max, effort)
    lanes = jax.vmap(path, (None, None, 0), axis_name=lane_axis())  # one resample is a batch of one

    def in_turn(X, y, weights):
        return lax.map(lambda row: lanes(X, y, row[None])[0], weights)

    batch, compiling = compile_time(jax.jit(lanes), *data, weights)
    turns, compiling_turns = compile_time(jax.jit(in_turn), *data, weights)
    answers = {}

    def run(name, function):
        answers[name] = np.asarray(function()).ravel()

    functions = {
        "side by side": lambda: batch(*data, weights),
        "in turn": lambda: turns(*data, weights),
    }
    if loops:
        one_path, _ = compile_time(jax.jit(lanes), *data, weights[:1])
        one_fit, _ = compile_time(jax.jit(single), *data, weights[0], ks[0])
        functions |= {
            "loop over fits": lambda: jnp.stack([one_fit(*data, row, k) for row in weights for k in ks]),
            "loop over paths": lambda: jnp.concatenate([one_path(*data, row[None]) for row in weights]),
        }
    with one_blas_thread():  # as `solve_path` and its kin run it
        seconds = best_of({name: (lambda name=name, f=f: run(name, f)) for name, f in functions.items()}, repeats)
    label = f"{effort}, {np.dtype(dtype).name}"
    rows = [
        {"name": f"{label}: one program, resamples side by side", "value": seconds["side by side"], "unit": "s"},
        {"name": f"{label}: side by side, compile time", "value": compiling, "unit": "s"},
        {"name": f"{label}: one program, resamples in turn", "value": seconds["in turn"], "unit": "s"},
        {"name": f"{label}: in turn, compile time", "value": compiling_turns, "unit": "s"},
    ]
    least = (
        X.size * np.dtype(dtype).itemsize,
        2 * len(counts) * X.size * k_max,
    )  # X once; the Gram columns of all supports
    for row, name in zip(rows[::2], ("side by side", "in turn"), strict=True):
        row |= work(seconds[name], dtype, *least)
    best = min(("side by side", "in turn"), key=seconds.__getitem__)  # in turn on a CPU, side by side on a GPU
    for name in list(functions)[2:]:
        ratio = seconds[name] / seconds[best]
        row = {"name": f"{label}: {name} over the program {best}", "value": ratio, "unit": "times"}
        row["batch_value_over_loop"] = {
            "mean": float(np.mean(answers[best] / answers[name])),
            "worst": float(np.max(answers[best] / answers[name])),
        }
        rows.append(aim(row, ">= 5", ratio >= 5) if name == "loop over fits" else row)
    return rows


def problem(quick):
    """(X, y, how often each resample draws each sample, k_max)."""
    n, p, resamples, k_max = (50, 100, 5, 3) if quick else (200, 2000, 100, 20)
    X, y, _ = generate(n, p, k_max)
    counts = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=resamples)
    return X, y, counts, k_max


def main(quick=False):
    """100 bootstraps of the path k = 1..20 at n=200, p=2000."""
    rows = []
    for effort in ("fast",) if quick else ("fast", "default"):
        for dtype in (np.float32, np.float64):
            with jax.enable_x64(dtype == np.float64):
                rows += compare(*problem(quick), effort, dtype, repeats=1 if quick else 3)
    finish("bootstrap", rows, quick)
