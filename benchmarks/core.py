"""The core: cost of an iteration over one product with the data, batches against loops, and the price of a history.

All ratios compare runs of one process on the same data; every run makes a fixed number of steps.
"""

import jax
import jax.numpy as jnp
import numpy as np

import sparsehtp as sht

from .problems import generate
from .scores import finish
from .timing import best_of, compile_time, work


def fixed(objective, solver, steps, k_max, record=None):
    """A function of k that runs `steps` steps."""

    def run(objective, k):
        threshold = sht.Sparsity(k, k_max=k_max)
        return sht.solve(
            objective, threshold, solver, max_steps=steps, termination=sht.stopping.Never(), record=record
        ).x

    return run


def iterations(objective, order, k, product):
    """Seconds per iteration: the slope between two step counts, so that set-up does not count."""
    few, many = 5, 25
    n, p = objective.columns.design.shape
    for name, solver, aim in (("IHT", sht.solvers.IHT(), 1.5), ("HTP", sht.solvers.HTP(), None)):
        compiled = {}
        for steps in (few, many):
            run = jax.jit(fixed(objective, solver, steps, 128))
            compiled[steps], seconds = compile_time(run, objective, jnp.int32(k))
        times = best_of(
            {steps: (lambda c=c: c(objective, jnp.int32(k))) for steps, c in compiled.items()} | {"product": product}
        )
        ratio = (times[many] - times[few]) / (many - few) / times["product"]
        yield {"name": f"{name}, {order}: compile time", "value": seconds, "unit": "s"}
        row = {"name": f"{name}, {order}: one iteration over one product r @ X", "value": ratio, "unit": "times"}
        row |= work(ratio * times["product"], np.float32, 4 * n * p, 2 * n * (p + k))
        yield row if aim is None else row | {"aim": f"<= {aim}", "met": bool(ratio <= aim)}
    row = {"name": f"{order}: one product r @ X", "value": 1e3 * times["product"], "unit": "ms"}
    yield row | work(times["product"], np.float32, 4 * n * p, 2 * n * p)


def batches(objective, order):
    """Sixteen values of k as one batch against a loop over the same compiled single problem."""
    ks = jnp.arange(10, 170, 10)[:16].clip(max=128)
    for name, solver, aim in (("IHT", sht.solvers.IHT(), 0.2), ("HTP", sht.solvers.HTP(), 0.35)):
        run = fixed(objective, solver, 10, 128)
        single = jax.jit(run)
        batch = jax.jit(jax.vmap(run, (None, 0)))
        times = best_of(
            {
                "loop": lambda single=single: [single(objective, k) for k in ks],
                "batch": lambda batch=batch: batch(objective, ks),
            },
            repeats=3,
        )
        ratio = times["batch"] / times["loop"]
        yield {
            "name": f"{name}, {order}: 16 values of k as a batch over a loop",
            "value": ratio,
            "unit": "times",
            "aim": f"<= {aim}",
            "met": bool(ratio <= aim),
            "seconds": times["batch"],
        }


def histories():
    """16 lanes, 3,200 steps, with and without a history."""
    X, y, _ = generate(50, 100, 5)
    objective = sht.LinearModel(jnp.asarray(X, jnp.float32), y)
    solver = sht.solvers.IHT(sht.steps.ConstantStep(0.05))
    ks = jnp.arange(1, 17)
    runs = {}
    for name, record in (("with", sht.results.Record()), ("without", None)):

        def run(k, record=record):
            threshold = sht.Sparsity(k, k_max=16)
            solution = sht.solve(
                objective, threshold, solver, max_steps=3200, termination=sht.stopping.Never(), record=record
            )
            return solution.x, solution.history

        batch = jax.jit(jax.vmap(run))
        runs[name] = lambda batch=batch: batch(ks)
    times = best_of(runs, repeats=3)
    ratio = times["with"] / times["without"]
    yield {
        "name": "16 lanes, 3,200 steps: with a history over without",
        "value": ratio,
        "unit": "times",
        "aim": "<= 2",
        "met": bool(ratio <= 2),
    }
    row = {"name": "16 lanes, 3,200 steps with a history", "value": 1e3 * times["with"], "unit": "ms"}
    yield row | {"seconds": times["with"]}


def measured(quick=False):
    """Rows as they are measured."""
    n, p, k = (200, 2000, 20) if quick else (2000, 20000, 100)
    X, y, _ = generate(n, p, k)
    X, y = X.astype(np.float32), y.astype(np.float32)
    r = jnp.asarray(np.random.default_rng(1).standard_normal(n), jnp.float32)
    product = jax.jit(lambda r, X: r @ X)
    for order, array in (("by sample", X), ("by feature", np.asfortranarray(X))):
        objective = sht.LinearModel(array, y)
        row_major = jnp.asarray(X)
        yield from iterations(objective, order, k, lambda row_major=row_major: product(r, row_major))
        yield from batches(objective, order)
    yield from histories()


def main(quick=False):
    """n=2000, p=20000, k=100, float32; X contiguous by sample (NumPy's way) and by feature (as estimators pass it)."""
    finish("core", list(measured(quick)), quick)
