"""Sparse designs: products against SciPy, a path, accuracy against L1 at equal nonzeros, memory, and k = 10,000.

Memory and the fits with large k are measured in processes of their own.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from sklearn.model_selection import train_test_split

import sparsehtp as sht
from sparsehtp.datasets import make_text

from .baselines import sklearn
from .scores import aim, finish, print_table
from .timing import best_of, memory_now

SHAPES = {"RCV1-shaped": (20242, 47236, 73.0), "News20-shaped": (10000, 1355191, 455.0)}
QUICK = {"RCV1-shaped": (1000, 4000, 40.0), "News20-shaped": (500, 50000, 60.0)}
VECTORS = 32
LARGE = {"HTP": sht.solvers.HTP(), "IHT": sht.solvers.IHT(), "GraSP": sht.solvers.GraSP()}


def products(rows, title, X):
    """A gradient of least squares: X w, then X'r; SciPy from CSR alone, and from both orientations."""
    n, p = X.shape
    rng = np.random.default_rng(0)
    w, r = (rng.standard_normal((size, VECTORS)).astype(np.float32) for size in (p, n))
    design, transposed = sht.designs.SparseDesign(X), X.T.tocsr()

    def both(design, w, r):
        return design.mv(w), design.rmv(r)

    def blocks(design, w, r):
        return jax.vmap(design.mv, 1, 1)(w), jax.vmap(design.rmv, 1, 1)(r)

    for name, ours, few, limit in (("one vector", both, np.s_[:, 0], 2), (f"{VECTORS} vectors", blocks, np.s_[:], 1)):
        a, b = np.ascontiguousarray(w[few]), np.ascontiguousarray(r[few])
        device = jnp.asarray(a), jnp.asarray(b)
        compiled = jax.jit(ours).lower(design, *device).compile()
        times = best_of(
            {
                "ours": lambda compiled=compiled, device=device: compiled(design, *device),
                "scipy": lambda a=a, b=b: (X @ a, X.T @ b),
                "both": lambda a=a, b=b: (X @ a, transposed @ b),
            }
        )
        label = f"{title}, {name}: gradient"
        ratio = times["ours"] / times["scipy"]
        rows.append(
            aim({"name": f"{label} over SciPy CSR", "value": ratio, "unit": "times"}, f"<= {limit}", ratio <= limit)
        )
        rows.append(
            {
                "name": f"{label} over SciPy with both orientations",
                "value": times["ours"] / times["both"],
                "unit": "times",
            }
        )
        rows.append({"name": label, "value": 1e3 * times["ours"], "unit": "ms"})


def path(rows, title, X, y, quick):
    """Twenty values of k, logistic, HTP: all of them as one batch."""
    ks = np.arange(1, 21) * (2 if quick else 5)
    model = sht.LinearModel(X, y, sht.losses.Logistic(), l2=1e-4)

    def run():
        return sht.solve_path(model, ks=ks, solver=sht.solvers.HTP())

    start = time.perf_counter()
    run()
    first = time.perf_counter() - start
    start = time.perf_counter()
    found = run()
    seconds = time.perf_counter() - start
    name = f"{title}: logistic path of 20 values of k up to {ks[-1]}"
    rows.append({"name": name, "value": seconds, "unit": "s"})
    rows.append({"name": f"{name}, with compiling", "value": first, "unit": "s"})
    rows.append({"name": f"{name}: fits that converged", "value": float(np.mean(found.result == 1)), "unit": "share"})


def accuracy(rows, folder, quick):
    """Test error at equal nonzeros: liblinear's L1 by bisection on C, ours by the same inner hold-out for l2."""
    table = []
    for name, (X, y) in texts(folder, quick):
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
        for k in (20, 100) if quick else (50, 200, 500):
            peer = sklearn.l1_of_size(X, y, k)
            size = int(np.count_nonzero(peer["coef"]))
            ours = best_l2(X, y, size)
            for who, fit in (("L1 (liblinear)", peer), ("HTP", ours)):
                error = float(np.mean(np.sign(X_test @ fit["coef"] + fit["intercept"]) != y_test))
                table.append([f"{name}, {size} nonzeros: {who}", error, fit["seconds"]])
                rows.append({"name": f"{name}, {size} nonzeros, {who}: test error", "value": error, "unit": "share"})
                rows.append({"name": f"{name}, {size} nonzeros, {who}: one fit", "value": fit["seconds"], "unit": "s"})
    print_table("Text data at equal nonzeros", ["", "test error", "seconds"], table)


def best_l2(X, y, k):
    """The HTP fit with the l2 of the least inner test error; seconds of one compiled fit to all training rows."""
    inner, outer = train_test_split(np.arange(len(y)), test_size=0.25, random_state=1, stratify=y)
    weights = np.zeros(len(y), np.float32)
    weights[inner] = 1
    model = sht.LinearModel(X, y, sht.losses.Logistic(), fit_intercept=True)
    threshold, solver = sht.Sparsity(k), sht.solvers.HTP()
    errors = {}
    for l2 in (1e-5, 1e-4, 1e-3):
        part = sht.solve(model.reweighted(weights, l2), threshold, solver, throw=False)
        eta = X[outer] @ np.asarray(part.x) + float(part.intercept)
        errors[l2] = np.mean(np.sign(eta) != y[outer])
    final = model.reweighted(l2=min(errors, key=errors.get))
    start = time.perf_counter()
    fit = jax.block_until_ready(sht.solve(final, threshold, solver, throw=False))
    seconds = time.perf_counter() - start
    return {"coef": np.asarray(fit.x), "intercept": float(fit.intercept), "seconds": seconds}


def texts(folder, quick):
    """Text data sets with labels -1 and +1, rows of unit norm."""
    for name in ("rcv1_vw1500", "news20binary_like", "news20_counts"):
        if folder is None or not (path := Path(folder) / f"{name}.npz").exists():
            print(f"{name}: not there; set SPARSEHTP_DATA or pass --data")
            continue
        with np.load(path) as file:
            X = sparse.csr_array(tuple(file[part] for part in ("data", "indices", "indptr")), shape=file["shape"])
            y = file["y"].astype(float)
        if name == "news20_counts":  # computers (groups 1 to 5) against the rest
            y = np.where((y >= 1) & (y <= 5), 1.0, -1.0)
        if name != "rcv1_vw1500":
            X = X.astype(np.float32)
            X.data = 1 + np.log(X.data)
            X = sparse.csr_array(X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1))[:, None]))
        rows = slice(600 if quick else None)
        X = X[rows].astype(np.float32)
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # what liblinear takes
        yield name, (X, y[rows])


def memory(rows, title, shape, k, limit):
    """Peak memory of one HTP fit beyond a process that has the data, over the CSR matrix plus the k-column work."""
    report = in_process(title, shape, "HTP", k, True)
    columns = 4 * shape[0] * report["k_max"] * report["copies"]
    allowed = limit * report["csr"] + columns
    ratio = (report["peak"] - columns) / report["csr"]
    row = {
        "name": f"{title}, HTP, k={k}: peak memory without the k columns, over the CSR data",
        "value": ratio,
        "unit": "times",
    }
    rows.append(aim(row, f"<= {limit}", report["peak"] <= allowed))
    rows.append({"name": f"{title}, HTP, k={k}: peak memory", "value": report["peak"] / 2**20, "unit": "MiB"})
    rows.append({"name": f"{title}: CSR data", "value": report["csr"] / 2**20, "unit": "MiB"})


def large(rows, title, shape, k):
    """Fits with so many features that Hessians are never formed."""
    for name in LARGE:
        report = in_process(title, shape, name, k)
        label = f"{title}, k={k}, {name}"
        rows.append(
            {"name": f"{label}: {report['result']} ({report['steps']} steps)", "value": report["seconds"], "unit": "s"}
        )
        rows.append({"name": f"{label}: objective", "value": report["value"], "unit": ""})
        rows.append({"name": f"{label}: peak memory beyond the data", "value": report["peak"] / 2**20, "unit": "MiB"})
        rows.append({"name": f"{label}: peak memory of the process", "value": report["process"] / 2**20, "unit": "MiB"})


def in_process(*arguments):
    command = [sys.executable, "-m", "benchmarks.sparse", json.dumps(arguments)]
    # Without this glibc comes to keep what is freed, and the peak is of what was once in use.
    malloc = {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | malloc)
    return json.loads(answer.stdout.splitlines()[-1])


def child(title, shape, name, k, compiled=False):
    """One fit; prints its memory in bytes, beyond a process that has the data and has run a tiny fit or the same."""
    n, p, words = shape
    X, y, _ = make_text(n, p, words, min(1000, p // 10))
    threshold = sht.Sparsity(k)

    def fit(X, y, threshold):
        model = sht.LinearModel(X, y, sht.losses.Logistic(), l2=1e-5)
        return jax.block_until_ready(sht.solve(model, threshold, LARGE[name], throw=False))

    fit(*((X, y, threshold) if compiled else (X[:50, :500], y[:50], sht.Sparsity(5))))
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = memory_now("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far, of making the data, is forgotten
    start = time.perf_counter()
    solution = fit(X, y, threshold)
    report = {
        "seconds": time.perf_counter() - start,
        "peak": memory_now("VmHWM") - before,
        "process": memory_now("VmHWM"),
        "csr": X.data.nbytes + X.indices.nbytes + X.indptr.nbytes,
        "k_max": threshold.bind(sht.LinearModel(X, y)).k_max,
        "copies": 4,
        "result": sht.results.RESULTS(int(solution.result)).name,
        "steps": int(solution.num_steps),
        "value": float(solution.value),
    }
    print(json.dumps(report))


def main(quick=False, data=None):
    rows = []
    shapes = QUICK if quick else SHAPES
    for title, (n, p, words) in shapes.items():
        X, y, _ = make_text(n, p, words)
        products(rows, title, X)
        if title == "RCV1-shaped":
            path(rows, title, X, y, quick)
    accuracy(rows, data, quick)
    memory(rows, "RCV1-shaped", shapes["RCV1-shaped"], 20 if quick else 100, 4)
    large(rows, "News20-shaped", shapes["News20-shaped"], 2500 if quick else 10_000)
    finish("sparse", rows, quick)


if __name__ == "__main__":
    child(*json.loads(sys.argv[1]))
