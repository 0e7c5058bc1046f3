"""Sparse precision matrices against scikit-learn's graphical lasso with the same number of edges."""

import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import sparsehtp as sht
from sparsehtp.columns import gather
from sparsehtp.datasets import make_precision

from .scores import aim, finish, print_table
from .timing import best_of


def empirical(X):
    centred = X - X.mean(0)
    return centred.T @ centred / len(X)


def held_out(precision, S_test):
    """Mean log-likelihood per sample, without its constant, times two."""
    return float(np.linalg.slogdet(precision)[1] - np.sum(S_test * precision))


def f_score(support, truth):
    upper = np.triu_indices(truth.shape[0], 1)
    found, truth = support[upper], truth[upper]
    return float(2 * np.sum(found & truth) / max(found.sum() + truth.sum(), 1))


def lasso_fit(S, alpha):
    from sklearn.covariance import graphical_lasso

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged: as good as it gets in its default number of steps
        return graphical_lasso(S, alpha)[1]


def lasso_with_edges(S, edges, steps=12):
    """alpha and precision matrix of the graphical lasso whose number of edges is nearest, by bisection."""
    low, high = 1e-3, float(np.abs(S - np.diag(np.diag(S))).max())
    best = None
    for _ in range(steps):
        alpha = np.sqrt(low * high)
        try:
            precision = lasso_fit(S, alpha)
        except FloatingPointError:  # too ill-conditioned for it
            low = alpha
            continue
        found = np.count_nonzero(np.triu(precision, 1))
        if best is None or abs(found - edges) < abs(best[2] - edges):
            best = alpha, precision, found
        if found == edges:
            break
        low, high = (low, alpha) if found < edges else (alpha, high)
    return best


def refitted(S, support):
    """Unpenalised maximum likelihood on a support."""
    objective = sht.Precision(S, 2)
    members = jnp.concatenate([jnp.asarray(support[np.triu_indices(len(S), 1)]), jnp.ones(len(S), bool)])
    support = sht.results.Support(jnp.arange(members.size), members)
    fit = objective.restrict(support).minimise(gather(objective.origin(), support))
    return np.asarray(objective.unpack(fit.z))


def against_lasso(n, p, seeds, dtype, repeats):
    """Rows for one sample size: both methods with as many edges as the truth; ours with and without shrinkage of S."""
    scores = {name: [] for name in ("ours", "ours, no shrinkage", "lasso", "refitted lasso")}
    times, counts = [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X, truth = make_precision(n + 2000, p, seed=rng)
        S, S_test = empirical(X[:n]), empirical(X[n:])
        edges = np.count_nonzero(np.triu(truth, 1))
        alpha, lasso, edges = lasso_with_edges(S, edges)
        S_device = jnp.asarray(S, dtype)
        threshold = sht.OffDiagonal(edges)
        answers = {}

        def fit(name, shrinkage, S=S_device, threshold=threshold, answers=answers):
            answers[name] = sht.solve(sht.Precision(S, n, shrinkage=shrinkage), threshold, record=None).x
            return answers[name]

        seconds = best_of(
            {
                "ours": lambda fit=fit: fit("ours", "oas"),
                "ours, no shrinkage": lambda fit=fit: fit("ours, no shrinkage", 0.0),
                "lasso": lambda S=S, alpha=alpha: lasso_fit(S, alpha),
            },
            repeats,
        )
        times.append(seconds)
        counts.append(edges)
        matrices = {
            **{name: np.asarray(x, float) for name, x in answers.items()},
            "lasso": lasso,
            "refitted lasso": refitted(jnp.asarray(S), lasso != 0),
        }
        for name, matrix in matrices.items():
            scores[name].append((f_score(matrix != 0, truth != 0), held_out(matrix, S_test)))
    means = {name: np.mean(values, axis=0) for name, values in scores.items()}
    ratio = np.mean([each["ours"] / each["lasso"] for each in times])
    label = f"p={p}, n={n}, {np.dtype(dtype).name}"
    print_table(
        f"{label}: means over {len(list(seeds))} data sets, {np.mean(counts):.0f} edges",
        ["", "F-score", "held-out 2 log-likelihood", "seconds"],
        [
            [name, *means[name], np.mean([each[name] for each in times]) if name in times[0] else float("nan")]
            for name in means
        ],
    )
    f, likelihood = means["ours"] - means["refitted lasso"]
    return [
        aim({"name": f"{label}: F-score over the lasso's", "value": float(f), "unit": ""}, ">= 0", f >= 0)
        | {name: values.tolist() for name, values in means.items()}
        | {"edges": counts},
        aim(
            {"name": f"{label}: held-out likelihood over the refitted lasso's", "value": float(likelihood), "unit": ""},
            ">= 0",
            likelihood >= 0,
        ),
        aim({"name": f"{label}: time over the lasso's", "value": float(ratio), "unit": "times"}, "<= 2", ratio <= 2)
        | {"seconds": times},
    ]


def large(p, n, edges, dtype):
    """One fit, compile time apart."""
    X, truth = make_precision(n, p, probability=2 * edges / p**2, value=0.3, condition=10, seed=0)
    k = np.count_nonzero(np.triu(truth, 1))
    objective = sht.Precision(jnp.asarray(empirical(X), dtype), n)
    spans = []
    for _ in range(2):
        start = time.perf_counter()
        solution = sht.solve(objective, sht.OffDiagonal(k), record=None)
        jax.block_until_ready(solution.x)
        spans.append(time.perf_counter() - start)
    score = f_score(np.asarray(solution.x) != 0, truth != 0)
    limit = 2 if jax.default_backend() == "gpu" else 30
    row = {"name": f"p={p}, n={n}, k={k}, {np.dtype(dtype).name}: one fit", "value": spans[1], "unit": "s"}
    row |= {"f_score": score, "first_call": spans[0], "steps": int(solution.num_steps), "result": int(solution.result)}
    return [aim(row, f"<= {limit}", spans[1] <= limit)]


def replications(p, n, number, dtype, repeats):
    """Many problems of one size in one batch, over a loop of solves and of calls of a compiled one."""
    data = [make_precision(n, p, seed=seed) for seed in range(number)]
    Ss = jnp.asarray(np.stack([empirical(X) for X, _ in data]), dtype)
    ks = jnp.asarray([np.count_nonzero(np.triu(truth, 1)) for _, truth in data])
    k_max = int(2 ** np.ceil(np.log2(ks.max())))

    def one(S, k):
        return sht.solve(sht.Precision(S, n), sht.OffDiagonal(k, k_max=k_max), record=None).x

    batch, single = jax.jit(jax.vmap(one)), jax.jit(one)
    seconds = best_of(
        {
            "batch": lambda: batch(Ss, ks),
            "loop of compiled fits": lambda: [single(S, k) for S, k in zip(Ss, ks, strict=True)],
            "loop of solves": lambda: [one(S, k) for S, k in zip(Ss, ks, strict=True)],
        },
        repeats,
    )
    label = f"{number} replications at p={p}, {np.dtype(dtype).name}"
    rows = [{"name": f"{label}: one batch", "value": seconds["batch"], "unit": "s"}]
    for name in ("loop of solves", "loop of compiled fits"):
        ratio = seconds[name] / seconds["batch"]
        row = {"name": f"{label}: {name} over the batch", "value": ratio, "unit": "times"}
        rows.append(aim(row, ">= 5", ratio >= 5))
    return rows


def main(quick=False):
    """Against the lasso at p=200, n=100 and 500; p=1000; 100 replications at p=60, both without shrinkage."""
    rows = []
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(dtype == np.float64):
            if dtype == np.float64:
                for n in (100, 500):
                    rows += against_lasso(n, 30 if quick else 200, range(1 if quick else 5), dtype, 1 if quick else 3)
            rows += large(100 if quick else 1000, 1000, 200 if quick else 3000, dtype)
            rows += replications(20 if quick else 60, 100, 5 if quick else 100, dtype, 1 if quick else 3)
    finish("precision", rows, quick)
