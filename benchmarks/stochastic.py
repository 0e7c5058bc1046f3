"""Stochastic solvers: an inner step over what it cannot do without, epochs per second, batched trials; and low rank.

The floor of an inner step is a loop that gathers the batch's rows, multiplies them twice, and thresholds: what the
algorithm needs and nothing else. It is hand-written here, without scores, penalties, counts or supports.
"""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import sparse

import sparsehtp as sht
from sparsehtp.linalg import dot, leading_triplets
from sparsehtp.plot.style import LABEL_SIZE, PALETTE, new_figure, tidy

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


# loss, n, p, correlation of neighbours, share of nonzeros, k (20 features are true)
PROBLEMS = (
    ("squared", 10_000, 1000, 0.0, 1.0, 20),
    ("squared", 100_000, 1000, 0.0, 1.0, 20),
    ("squared", 100_000, 200, 0.9, 1.0, 30),
    ("squared", 1_000_000, 50, 0.5, 1.0, 20),
    ("squared", 20_000, 5000, 0.0, 0.01, 30),
    ("logistic", 10_000, 1000, 0.0, 1.0, 30),
    ("logistic", 100_000, 1000, 0.0, 1.0, 20),
    ("logistic", 100_000, 200, 0.9, 1.0, 20),
    ("logistic", 1_000_000, 50, 0.5, 1.0, 20),
    ("logistic", 20_000, 5000, 0.0, 0.01, 20),
    ("softmax", 10_000, 200, 0.0, 1.0, 60),
    ("softmax", 100_000, 100, 0.5, 1.0, 60),
)
DEFAULTS = {
    "HTP": (sht.solvers.HTP(), 20),
    "IHT": (sht.solvers.IHT(), 40),
    "FoBa": (sht.solvers.FoBa(), 60),
    "StochasticHT": (sht.solvers.StochasticHT(), 20),
    "SVRGHT": (sht.solvers.SVRGHT(), 6),
    "SAGAHT": (sht.solvers.SAGAHT(), 20),
    "HybridHT": (sht.solvers.HybridHT(), 28),
    "SDIHT": (sht.solvers.SDIHT(), 10),
}
PICTURE = Path(__file__).parents[1] / "docs" / "guide" / "stochastic.svg"
DRAWN = (1, 7, 8)  # of the problems
MARKERS = "os^DvPX*"
EXCESSES = (1e-2, 1e-3, 1e-4)  # of F, over the least that was found


def drawn(loss, n, p, rho, share, seed=0):
    """The model of a problem."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p), np.float32)
    for j in range(1, p) if rho else ():
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2, dtype=np.float32) * X[:, j]
    if share < 1:
        X *= rng.random((n, p), np.float32) < share
    classes = 3 if loss == "softmax" else 1
    w = np.zeros((p, classes), np.float32)
    rows = rng.choice(p, 20, replace=False)
    w[rows] = rng.choice([-1, 1], (20, classes)) * rng.uniform(0.5, 1.5, (20, classes)) * share**-0.5
    eta = X @ w
    X = sparse.csr_array(X) if share < 1 else jnp.asarray(X)
    if loss == "softmax":
        return sht.MultiResponse(X, np.argmax(eta + rng.gumbel(size=eta.shape), 1), sht.losses.Softmax(3), l2=1e-3)
    if loss == "logistic":
        y = np.where(eta[:, 0] + rng.logistic(size=n) > 0, 1, -1).astype(np.float32)
        return sht.LinearModel(X, y, sht.losses.Logistic(), l2=1e-3)
    return sht.LinearModel(X, eta[:, 0] + 2 * rng.standard_normal(n, np.float32), l2=1e-3)


def traces(objective, k, solvers):
    """name -> (passes over the data, seconds, F) after every step of a run: the seconds of the run by its passes."""
    found = {}
    threshold = (
        sht.RowSparsity(k // 3, k_max=k // 3) if isinstance(objective, sht.MultiResponse) else sht.Sparsity(k, k)
    )
    for name, (solver, steps) in solvers.items():
        try:
            compiled, _ = compile_time(
                jax.jit(lambda o, s=solver, m=steps: sht.solve(o, threshold, s, max_steps=m, throw=False)), objective
            )
        except TypeError:  # does not take the objective
            continue
        seconds = best_of({name: lambda c=compiled: c(objective).x}, 1)[name]
        history, taken = compiled(objective).history, int(compiled(objective).num_steps)
        passes = np.cumsum(np.asarray(history.ifo[:taken], float)) / objective.n_samples
        found[name] = passes, seconds * passes / passes[-1], np.asarray(history.value[:taken], float)
    return found


def defaults(rows, quick):
    """How soon the solvers come near the least objective, as they are when nothing is said."""
    kept = {}
    for loss, n, p, rho, share, k in PROBLEMS:
        n, p = (n // 50, min(p, 100)) if quick else (n, p)
        label = f"{loss}, n = {n}, p = {p}, " + (f"{share:.0%} nonzero" if share < 1 else f"rho = {rho}") + f", k = {k}"
        found = traces(drawn(loss, n, p, rho, share), k, DEFAULTS)
        least = min(np.nanmin(values) for *_, values in found.values())
        first = {name: [_first(trace, least, excess) for excess in EXCESSES] for name, trace in found.items()}
        for name, (passes, seconds, values) in found.items():
            excess = 100 * float(np.nanmin(values) / least - 1)
            row = {"name": f"{label}: {name}, excess of F at the end", "value": excess, "unit": "%"}
            row |= {"passes": float(passes[-1]), "seconds": float(seconds[-1])}
            row |= {f"to {100 * e:g}%": at for e, at in zip(EXCESSES, first[name], strict=True)}
            rows.append(aim(row, "<= 1", excess <= 1))
        kept[label] = {name: [list(map(float, part)) for part in trace] for name, trace in found.items()}
        print(label, {name: at[0] and round(at[0]["passes"], 1) for name, at in first.items()}, flush=True)
    rows.append({"name": "runs behind these rows", "value": len(kept), "unit": "", "passes, seconds, F": kept})
    if not quick:
        draw(kept, PICTURE)


def draw(kept, path):
    """Excess of F against passes and against seconds, for three of the problems."""
    figure = new_figure(10, 8)
    panels = figure.subplots(3, 2, sharex="col")
    names = list(DEFAULTS)
    for line, label in zip(panels, [list(kept)[i] for i in DRAWN], strict=True):
        least = min(min(values) for *_, values in kept[label].values())
        for name, (*across, values) in kept[label].items():
            style = {"color": PALETTE[names.index(name) % len(PALETTE)], "marker": MARKERS[names.index(name)]}
            for ax, x in zip(line, across, strict=True):
                excess = np.maximum(np.minimum.accumulate(values) / least - 1, 1e-6)
                ax.plot(x, excess, label=name, markersize=4, linewidth=1.2, markevery=0.2, **style)
        for ax in line:
            ax.set(xscale="log", yscale="log", ylim=(5e-7, 20))
            tidy(ax)
        line[0].set_ylabel("excess of F")
        line[0].set_title(label, loc="left", fontsize=LABEL_SIZE)
    panels[-1][0].set_xlabel("passes over the data")
    panels[-1][1].set_xlabel("seconds")
    panels[0][1].legend(fontsize=LABEL_SIZE - 1, ncols=2, frameon=False, loc="upper right")
    figure.savefig(path)


def _first(trace, least, excess):
    """Passes and seconds until F is so near the least; None: never."""
    passes, seconds, values = trace
    there = np.flatnonzero(values <= least + excess * abs(least))
    return {"passes": float(passes[there[0]]), "seconds": float(seconds[there[0]])} if there.size else None


def main(quick=False):
    """Random data of the shape of MNIST, 60,000 x 784; compressed sensing as in [Tight]; low rank."""
    rows = []
    n, p = (2000, 784) if quick else (60_000, 784)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p), np.float32)
    y = X[:, :5].sum(1) + rng.standard_normal(n, np.float32)
    X, y = jnp.asarray(X), jnp.asarray(y)
    repeats = 2 if quick else 5
    defaults(rows, quick)
    inner_steps(rows, X, y, (16,) if quick else (1, 16, 256), repeats)
    hybrid(rows, X, y, repeats)
    trials(rows, 256, 175, 16, 4 if quick else 64, 1 if quick else 3, repeats)
    rank_threshold(rows, 1000 if quick else 10_000, 100, 10, repeats)
    rank_recovery(rows, 500, 30, 20, 4, 5 if quick else 100, 1 if quick else 2)
    finish("stochastic", rows, quick)
