"""Stochastic solvers: an inner step over what it cannot do without, epochs per second, batched trials; and low rank.

The floor of an inner step is a loop that gathers the batch's rows, multiplies them twice, and thresholds: what the
algorithm needs and nothing else. It is hand-written here, without scores, penalties, counts or supports.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import sparsehtp as sht
from sparsehtp.linalg import dot, leading_triplets

from .scores import aim, finish
from .timing import best_of, compile_time, work

K = 100


def floor(X, batches, k):
    """A function that runs the bare inner loop over the batches."""

    @jax.jit
    def run(X, batches):
        def inner(x, i):
            rows = X[i]
            z = x - 1e-3 * dot(dot(rows, x), rows)
            keep = lax.top_k(jnp.abs(z), k)[1]
            return jnp.zeros_like(z).at[keep].set(z[keep]), None

        return lax.scan(inner, jnp.ones(X.shape[1], X.dtype), batches)[0]

    return lambda: run(X, batches)


def inner_steps(rows, X, y, sizes, repeats):
    """Seconds of an epoch's inner step, over the floor, per solver and batch size."""
    n, p = X.shape
    objective = sht.LinearModel(X, y)
    step = sht.steps.ConstantStep(1e-3)
    for b in sizes:
        steps = max(min(n // b, 2000), 4)
        batches = jnp.asarray(np.random.default_rng(0).integers(0, n, (steps, b)), jnp.int32)
        solvers = {
            "StochasticHT": sht.solvers.StochasticHT(step, batch_size=b, epoch=steps),
            "SVRGHT": sht.solvers.SVRGHT(step, inner_steps=steps, batch_size=b),
        }
        runs = {"floor": floor(X, batches, K)}
        for name, solver in solvers.items():
            for stages in (1, 2):  # the slope leaves out the start and the compiled set-up

                def solve(objective, solver=solver, stages=stages):
                    return sht.solve(
                        objective,
                        sht.Sparsity(K, k_max=K),
                        solver,
                        max_steps=stages,
                        termination=sht.stopping.Never(),
                        record=None,
                    ).x

                compiled, seconds = compile_time(jax.jit(solve), objective)
                runs[name, stages] = lambda c=compiled: c(objective)
            rows.append({"name": f"{name}, batch {b}: compile time", "value": seconds, "unit": "s"})
        times = best_of(runs, repeats)
        rows.append(
            {"name": f"batch {b}: floor of an inner step, p = {p}", "value": 1e6 * times["floor"] / steps, "unit": "us"}
        )
        for name in solvers:
            seconds = times[name, 2] - times[name, 1]
            rows.append(
                {
                    "name": f"{name}, batch {b}: an inner step over the floor",
                    "value": seconds / times["floor"],
                    "unit": "times",
                }
            )
            rows.append(
                {
                    "name": f"{name}, batch {b}: samples per second",
                    "value": steps * b / seconds,
                    "unit": "1/s",
                    "epochs_per_second": steps * b / seconds / n,
                }
            )


def hybrid(rows, X, y, repeats):
    """Growing batches: seconds from one sample to all of them, over as many IFO calls by full gradients."""
    n, _ = X.shape
    objective = sht.LinearModel(X, y)
    solver = sht.solvers.HybridHT(sht.steps.ConstantStep(1e-3), growth=1.1)
    sizes = solver.batches(n).sizes
    stages = -(-sizes.size // solver.iterations)
    ifo = float(np.sum(sizes)) + (stages * solver.iterations - sizes.size) * n
    passes = max(round(ifo / n), 1)
    iht = sht.solvers.IHT(sht.steps.ConstantStep(1e-3))
    runs = {}
    for name, each, steps in (("hybrid", solver, stages), ("full", iht, passes)):

        def solve(objective, each=each, steps=steps):
            return sht.solve(
                objective,
                sht.Sparsity(K, k_max=K),
                each,
                max_steps=steps,
                termination=sht.stopping.Never(),
                record=None,
            ).x

        compiled, seconds = compile_time(jax.jit(solve), objective)
        rows.append({"name": f"{name} gradients: compile time", "value": seconds, "unit": "s"})
        runs[name] = lambda c=compiled: c(objective)
    times = best_of(runs, repeats)
    rows.append(
        {
            "name": "HybridHT from 1 to n samples over full gradients of equal IFO",
            "value": times["hybrid"] / times["full"],
            "unit": "times",
            "ifo_over_n": ifo / n,
        }
    )


def trials(rows, d, n, K, lanes, stages, repeats):
    """Compressed sensing by HT-SVRG: trials per second in one batch against one by one."""
    rng = np.random.default_rng(0)
    A = jnp.asarray(rng.standard_normal((n, d), np.float32) / np.sqrt(n, dtype=np.float32))
    signals = np.zeros((lanes, d), np.float32)
    for row in signals:
        row[rng.choice(d, K, replace=False)] = rng.standard_normal(K, np.float32)
    solver = sht.solvers.SVRGHT(
        sht.steps.ConstantStep(scale=2 / n), inner_steps=3 * n, batch_size=1, random_iterate=True
    )
    k = min(9 * K, d)

    def one(signal, key):
        return sht.solve(
            sht.LinearModel(A, A @ signal),
            sht.Sparsity(k, k_max=k),
            solver,
            key=key,
            max_steps=stages,
            termination=sht.stopping.Never(),
            record=None,
        ).x

    keys = jax.random.split(jax.random.key(0), lanes)
    batch, compiling = compile_time(jax.jit(jax.vmap(one)), jnp.asarray(signals), keys)
    single, _ = compile_time(jax.jit(one), jnp.asarray(signals[0]), keys[0])
    few = min(lanes, 4)
    times = best_of(
        {
            "batch": lambda: batch(jnp.asarray(signals), keys),
            "loop": lambda: [single(jnp.asarray(signals[i]), keys[i]) for i in range(few)],
        },
        repeats,
    )
    label = f"HT-SVRG, d = {d}, n = {n}, k = {k}, {stages} stages"
    rows.append({"name": f"{label}: compile time", "value": compiling, "unit": "s"})
    steps = lanes * stages * 3 * n  # each reads a row, x and the full gradient, writes x, and takes two products
    row = {"name": f"{label}: trials per second, {lanes} lanes", "value": lanes / times["batch"], "unit": "1/s"}
    rows.append(row | work(times["batch"], np.float32, 16 * d * steps, 7 * d * steps))
    ratio = (times["loop"] / few) / (times["batch"] / lanes)
    rows.append({"name": f"{label}: one by one over the batch, per trial", "value": ratio, "unit": "times"})


def rank_threshold(rows, p, c, r, repeats):
    """The projection onto rank r in float32 against NumPy's float64 SVD of the same matrix."""
    A = np.random.default_rng(0).standard_normal((p, c)).astype(np.float32)
    project = jax.jit(lambda A: (lambda t: dot(t.left * t.values, t.right.T))(leading_triplets(A, r)))
    compiled, compiling = compile_time(project, jnp.asarray(A))
    exact, wide, device = {}, A.astype(float), jnp.asarray(A)

    def reference():
        U, s, Vt = np.linalg.svd(wide, full_matrices=False)
        exact["W"] = (U[:, :r] * s[:r]) @ Vt[:r]

    times = best_of({"ours": lambda: compiled(device), "svd": reference}, repeats)
    error = np.linalg.norm(np.asarray(compiled(device), float) - exact["W"]) / np.linalg.norm(exact["W"])
    name = f"rank {r} of ({p}, {c})"
    rows.append({"name": f"{name}: compile time", "value": compiling, "unit": "s"})
    rows.append({"name": f"{name}: one threshold, float32", "value": 1e3 * times["ours"], "unit": "ms"})
    row = {
        "name": f"{name}: numpy.linalg.svd in float64 over it",
        "value": times["svd"] / times["ours"],
        "unit": "times",
    }
    rows.append(aim(row, ">= 10", times["svd"] >= 10 * times["ours"]))
    row = {"name": f"{name}: relative error against float64", "value": error, "unit": ""}
    rows.append(aim(row, "<= 1e-5", error <= 1e-5))


@functools.partial(jax.jit, static_argnames="folds")
def chosen_ranks(X, Y, test, folds):
    """The rank by cross-validation with the one-standard-error rule, in every trial, as one batch."""
    from sparsehtp.estimators.low_rank import held_out

    def trial(X, Y):
        objective = sht.MultiResponse(X, Y, l2=1e-6, fit_intercept=True, standardize=True)

        def score(held):
            return held_out(objective, sht.reduced_rank(objective.reweighted(1 - held)), 1 - held, held)

        scores = jax.vmap(score)(test)
        mean, se = scores.mean(0), scores.std(0) / jnp.sqrt(folds - 1)
        best = jnp.argmin(mean)
        return jnp.argmax(mean <= mean[best] + se[best])

    return jax.vmap(trial)(X, Y)


def rank_recovery(rows, n, p, c, r, count, repeats):
    """n=500, p=30, c=20: the rank in batched trials; iterates of HTP against the closed form on the same data."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        B = np.stack([np.linalg.qr(rng.standard_normal((p, r)))[0] @ np.linalg.qr(rng.standard_normal((c, r)))[0].T
                      for _ in range(count)])  # fmt: skip
        X = rng.standard_normal((count, n, p))
        Y = jnp.asarray(X @ B + 0.5 * rng.standard_normal((count, n, c)))
        X = jnp.asarray(X)
        test = np.zeros((5, n))
        test[np.arange(n) % 5, rng.permutation(n)] = 1
        compiled, compiling = compile_time(chosen_ranks, X, Y, jnp.asarray(test), 5)
        times = best_of({"batch": lambda: compiled(X, Y, jnp.asarray(test))}, repeats)
        found = np.asarray(compiled(X, Y, jnp.asarray(test)))
        rows.append({"name": f"rank by CV, {count} trials: compile time", "value": compiling, "unit": "s"})
        rows.append(
            {"name": f"rank by CV: trials per second, {count} lanes", "value": count / times["batch"], "unit": "1/s"}
        )
        share = float(np.mean(found == r))
        row = {"name": f"rank by CV: share of trials with r = {r}", "value": share, "unit": ""}
        rows.append(aim(row, ">= 0.95", share >= 0.95))

        def htp(X, Y):
            objective = sht.MultiResponse(X, Y, l2=1e-6, fit_intercept=True)
            exact = sht.reduced_rank(objective).at(r)
            ours = sht.solve(objective, sht.Rank(r), sht.solvers.HTP(), record=None)
            return objective.value(objective.to_internal(ours.x, ours.intercept)) / objective.value(exact) - 1

        few = slice(min(count, 10))
        excess = np.asarray(jax.jit(jax.vmap(htp))(X[few], Y[few]))
        row = {"name": "HTP under Rank: largest excess of F over the closed form", "value": excess.max(), "unit": ""}
        rows.append(aim(row, "<= 1e-6", excess.max() <= 1e-6))


def main(quick=False):
    """Random data of the shape of MNIST, 60,000 x 784; compressed sensing as in [Tight]; low rank."""
    rows = []
    n, p = (2000, 784) if quick else (60_000, 784)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p), np.float32)
    y = X[:, :5].sum(1) + rng.standard_normal(n, np.float32)
    X, y = jnp.asarray(X), jnp.asarray(y)
    repeats = 2 if quick else 5
    inner_steps(rows, X, y, (16,) if quick else (1, 16, 256), repeats)
    hybrid(rows, X, y, repeats)
    trials(rows, 256, 175, 16, 4 if quick else 64, 1 if quick else 3, repeats)
    rank_threshold(rows, 1000 if quick else 10_000, 100, 10, repeats)
    rank_recovery(rows, 500, 30, 20, 4, 5 if quick else 100, 1 if quick else 2)
    finish("inner-steps", rows, quick)
