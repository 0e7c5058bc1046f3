"""Best subsets of every structure on small problems: how often the optimum is found, against exhaustive search.

Equicorrelated designs, 50 seeds and three correlations for each structure. Supports are scored by refits in float64
(NumPy and SciPy), the same for every solver; times are of whole fits from host arrays, after a warm-up.
"""

import itertools
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.optimize import lsq_linear
from scipy.special import logsumexp

import sparsehtp as sht

from .baselines import abess, version
from .scores import aim, finish, print_table

CORRELATIONS = (0.3, 0.6, 0.9)
SEEDS = 50
BOUND = 0.5
RIDGE = 1e-3
OPTIMAL = 1 + 1e-6


class Instance(NamedTuple):
    """A drawn problem: its data, the units to choose from with their columns, and how many are to be chosen."""

    structure: str
    X: np.ndarray
    y: np.ndarray
    units: list
    k: int


def draw(structure, rho, seed):
    rng = np.random.default_rng([seed, int(100 * rho)])
    n, p, k, size = {
        "groups": (100, 60, 3, 5),
        "rows": (60, 12, 3, 1),
        "signs": (60, 15, 4, 1),
        "bounds": (60, 15, 4, 1),
        "softmax": (100, 10, 3, 1),
    }[structure]
    X = np.sqrt(1 - rho) * rng.standard_normal((n, p)) + np.sqrt(rho) * rng.standard_normal((n, 1))
    units = list(np.arange(p).reshape(-1, size))
    chosen = rng.choice(len(units), k, replace=False)
    columns = np.concatenate([units[u] for u in chosen])
    if structure in ("rows", "softmax"):
        B = np.zeros((p, 3))
        B[columns] = rng.standard_normal((columns.size, 3))
        y = X @ B
        y = (
            np.argmax(y + rng.gumbel(size=y.shape), axis=1)
            if structure == "softmax"
            else y + 2 * rng.standard_normal(y.shape)
        )
        return Instance(structure, X, y, units, k)
    w = np.zeros(p)
    w[columns] = rng.standard_normal(columns.size)
    if structure in ("signs", "bounds"):
        w[columns] = rng.uniform(0.3, 1, k) * (1 if structure == "signs" else rng.choice([-1, 1], k))
    return Instance(structure, X, X @ w + (3 if structure == "groups" else 1.5) * rng.standard_normal(n), units, k)


def refit(instance, chosen):
    """The loss of the best fit on some units, in float64."""
    A = instance.X[:, np.concatenate([instance.units[u] for u in chosen])]
    y, structure = instance.y, instance.structure
    if structure == "softmax":
        return softmax(A[None], y)[0]
    if structure in ("signs", "bounds"):
        bounds = (0, np.inf) if structure == "signs" else (-BOUND, BOUND)
        return lsq_linear(A, y, bounds, tol=1e-13).cost
    A, y = A - A.mean(0), y - y.mean(0)
    return 0.5 * np.sum((y - A @ np.linalg.lstsq(A, y, rcond=None)[0]) ** 2)


def least(instance):
    """The least loss of any choice of units, by exhaustive search."""
    choices = np.array(list(itertools.combinations(range(len(instance.units)), instance.k)))
    if instance.structure == "softmax":
        return softmax(np.swapaxes(instance.X.T[choices], 1, 2), instance.y).min()
    if instance.structure not in ("signs", "bounds"):
        return min(refit(instance, chosen) for chosen in choices)
    # Without bounds the loss is no larger, and all at once.
    X, y = instance.X, instance.y
    gram, products = X.T @ X, X.T @ y
    inner = products[choices]
    fits = np.linalg.solve(gram[choices[:, :, None], choices[:, None]], inner[..., None])[..., 0]
    bounds = 0.5 * (y @ y - np.sum(inner * fits, axis=1))
    best = np.inf
    for i in np.argsort(bounds):
        if bounds[i] >= best:
            break
        best = min(best, refit(instance, choices[i]))
    return best


def softmax(A, y, classes=3):
    """The least regularised log-loss on each of several sets of columns (sets, n, m), by damped Newton steps."""
    A = np.concatenate([np.ones((*A.shape[:2], 1)), A], axis=2)
    (sets, n, m), onehot = A.shape, np.eye(classes)[y]
    ridge = np.repeat(np.append(0, np.full(m - 1, RIDGE)), classes)
    W = np.zeros((sets, m * classes))

    def value(W):
        eta = A @ W.reshape(sets, m, classes)
        return np.mean(logsumexp(eta, axis=2) - np.sum(eta * onehot, axis=2), axis=1) + 0.5 * W**2 @ ridge, eta

    F, eta = value(W)
    for _ in range(50):
        P = np.exp(eta - logsumexp(eta, axis=2, keepdims=True))
        grad = np.einsum("snm,snc->smc", A, P - onehot).reshape(sets, -1) / n + ridge * W
        curvature = P[..., None] * (np.eye(classes) - P[..., None, :]) / n
        hessian = np.einsum("snm,snl,sncd->smcld", A, A, curvature, optimize=True).reshape(sets, m * classes, -1)
        step = np.linalg.solve(hessian + np.diag(ridge + 1e-10), -grad[..., None])[..., 0]
        size = np.ones((sets, 1))
        for _ in range(30):
            new, eta = value(W + size * step)
            worse = new > F + 1e-14
            if not worse.any():
                break
            size[worse] /= 2
        W, done = W + size * step, np.max(F - new) < 1e-13
        F = new
        if done:
            break
    return F


def problem(instance):
    """(objective, threshold) of ours."""
    X, y, k = instance.X, instance.y, instance.k
    if instance.structure == "groups":
        groups = np.repeat(np.arange(len(instance.units)), len(instance.units[0]))
        return sht.LinearModel(X, y, fit_intercept=True), sht.GroupSparsity(groups, k)
    if instance.structure == "rows":
        return sht.MultiResponse(X, y, fit_intercept=True), sht.RowSparsity(k)
    if instance.structure == "softmax":
        labels = y.astype(np.int32)
        return sht.MultiResponse(X, labels, sht.losses.Softmax(3), RIDGE, fit_intercept=True), sht.RowSparsity(k)
    if instance.structure == "signs":
        return sht.LinearModel(X, y), sht.Sparsity(k, lower=0)
    return sht.LinearModel(X, y), sht.Sparsity(k, lower=-BOUND, upper=BOUND)


def ours(solver):
    def fit(instance):
        support = sht.solve(*problem(instance), solver, record=None, throw=False).support
        return np.asarray(support.idx)[np.asarray(support.mask)]

    return fit


def fits(structure):
    """name -> fit(instance) giving the chosen units."""
    table: dict[str, Any] = {"HTP": ours(sht.solvers.HTP())}
    table |= {f"BestSubset {effort}": ours(sht.solvers.BestSubset(effort)) for effort in ("fast", "default")}
    if version("abess") and structure in abess.STRUCTURES:
        table |= {
            name: lambda instance, settings=settings: abess.units(instance, **settings)
            for name, settings in abess.UNIT_SETTINGS.items()
        }
    return table


def main(quick=False):
    """Groups, rows, signs, bounds and softmax: share of optima and time at three correlations."""
    rows, seeds = [], 2 if quick else SEEDS
    with jax.enable_x64(True):
        for structure in ("groups", "rows", "signs", "bounds", "softmax"):
            found = {name: [] for name in fits(structure)}
            seconds = {name: [] for name in found}
            for rho, seed in itertools.product(CORRELATIONS, range(seeds)):
                instance = draw(structure, rho, seed)
                best = least(instance)
                for name, fit in fits(structure).items():
                    if not seconds[name]:
                        fit(instance)  # compiles
                    start = time.perf_counter()
                    chosen = fit(instance)
                    seconds[name].append(time.perf_counter() - start)
                    found[name].append(refit(instance, chosen) / best)
            lines = []
            for name, ratios in found.items():
                share = [
                    float(np.mean(np.array(part) <= OPTIMAL)) for part in np.split(np.array(ratios), len(CORRELATIONS))
                ]
                mean = float(np.mean(seconds[name]))
                lines.append([name, *share, float(np.max(ratios)), mean])
                row = {"name": f"{structure}: {name}", "value": float(np.mean(share)), "unit": "share of optima"}
                row |= {"by_correlation": dict(zip(map(str, CORRELATIONS), share, strict=True))}
                row |= {"worst": float(np.max(ratios)), "seconds": mean}
                rows.append(aim(row, ">= 0.99", row["value"] >= 0.99) if name == "BestSubset default" else row)
            print_table(structure, ["solver", *(f"rho = {rho}" for rho in CORRELATIONS), "worst", "seconds"], lines)
            peers = [np.mean(seconds[name]) for name in seconds if name.startswith("abess")]
            if peers:
                ratio = float(np.mean(seconds["BestSubset default"]) / min(peers))
                row = {"name": f"{structure}: time over abess's", "value": ratio, "unit": "times"}
                rows.append(aim(row, "<= 1", ratio <= 1))
    if not version("abess"):
        rows.append({"name": "abess: not installed", "value": 0, "unit": "fits"})
    finish("structures", rows, quick)
