"""What a first answer costs: compiling in a fresh process, the second process, the next shape, cross-validation.

Every measurement is a process of its own, importing apart. CPU seconds are those of the process; walls are of the fit.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from .scores import aim, finish

START = """
import json, os, sys, time
start = time.perf_counter()
import numpy as np, jax, sparsehtp as sht
from sklearn.datasets import load_breast_cancer, load_diabetes
compiled = [0]
def listen(event, *_, **__):
    compiled[0] += event.endswith("backend_compile_duration")
jax.monitoring.register_event_duration_secs_listener(listen)
def maps():
    return open("/proc/self/maps").read().count("\\n") if os.path.exists("/proc/self/maps") else 0
def wide():
    X = np.random.default_rng(0).standard_normal((62, 2000))
    return X, (X[:, 3] - X[:, 70] > 0).astype(int)
def rows(name):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 12))
    signal = X[:, :3] @ [1, -0.7, 0.5] + rng.logistic(size=300)
    if name == "survival":
        return X, np.column_stack([np.exp(-signal), rng.random(300) < 0.7])
    if name == "classes in order":
        return X, np.digitize(signal, [-1.5, 0, 1.5])
    if name.startswith("drawn "):
        _, what, n, _, p = name.split()
        X = rng.standard_normal((int(n), int(p)))
        for j in range(1, int(p)):
            X[:, j] = 0.3 * X[:, j - 1] + 0.91**0.5 * X[:, j]
        signal = X[:, :5] @ np.linspace(0.5, 1.5, 5)
        y = signal + rng.standard_normal(int(n)) * signal.std() / 2
        return X, (y > 0).astype(int) if what == "classes," else y
    return X, signal[:, None] * [1, -0.5, 0.3] + rng.standard_normal((300, 3)) if name == "3 responses" else signal
def measured(function):
    cpu, wall, programs, mapped = time.process_time(), time.perf_counter(), compiled[0], maps()
    function()
    row = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    return row | {"programs": compiled[0] - programs, "maps": maps() - mapped}
SETS = {"diabetes": load_diabetes, "breast cancer": load_breast_cancer}
def first(name):
    return wide() if name == "62 x 2000" else SETS[name](return_X_y=True) if name in SETS else rows(name)
def fit_of(kind, name, k):
    X, y = first(name)
    settings = ({"k": int(k)} if k else {}) | ({"groups": np.arange(12) // 3} if name == "4 groups" else {})
    estimator = getattr(sht, kind)
    return lambda: estimator(**settings).fit(X, y)
"""
FIT = """
fit = fit_of(*sys.argv[1:4])
rows = [measured(fit) for _ in range(3)]
print(json.dumps({"first": rows[0], "later": rows[-1]}))
"""
PROVE = """
from benchmarks.proofs import model_of, problem
facts, nodes = json.loads(sys.argv[1]), int(sys.argv[2])
X, y, k, l2 = problem(*facts)
model = model_of(facts, X, y, l2)
rows = [measured(lambda: sht.prove(model, sht.Sparsity(k), max_nodes=nodes, time_limit=600)) for _ in range(2)]
print(json.dumps({"first": rows[0], "later": rows[-1]}))
"""
SHAPES = """
X, y = first("diabetes")
sht.SparseRegressor().fit(X, y)
near = measured(lambda: [sht.SparseRegressor().fit(X[:n], y[:n]) for n in (441, 440, 430)])
far = measured(lambda: sht.SparseRegressor().fit(X[:200], y[:200]))
print(json.dumps({"near": near, "far": far}))
"""
SCORES = """
from sklearn.model_selection import cross_val_score
X, y = first("diabetes")
one = measured(lambda: sht.SparseRegressor().fit(X, y))
print(json.dumps({"fit": one, "scores": measured(lambda: cross_val_score(sht.SparseRegressor(), X, y, cv=10))}))
"""
FITS = [  # estimator, data, k, aims in CPU seconds: of a first fit, and of the one in a second process
    ("SparseRegressor", "diabetes", "", 2, 0.5),
    ("SparseRegressor", "diabetes", "5", 1.2, 0.5),
    ("SparseClassifier", "breast cancer", "", 4, 1.5),
    ("SparseClassifier", "62 x 2000", "", 4, 1.5),
    ("SparseCox", "survival", "", 4, 1.5),
    ("SparseOrdinal", "classes in order", "", 4, 1.5),
    ("LowRankRegressor", "3 responses", "", 4, 1.5),
    ("SparseRegressor", "4 groups", "", 4, 1.5),
]
PROOFS = [  # an instance of benchmarks.proofs, a limit of nodes, the aim in CPU seconds; each has several phases
    ("p=60", ("drawn", 200, 60, 10, 0.9, 1, 1e-4), 1000, 2),
    ("p=500", ("drawn", 2000, 500, 15, 0.7, 1, 1e-3), 6000, 4),
    ("logistic, p=30", ("breast cancer", 5, 1e-3), 600, 4),
]
COMMANDS = {  # what a user types after the name of the table
    "Cox, 686 x 8": ("--time", "time", "--event", "seen"),
    "ordered classes, 686 x 8": ("--target", "class", "--levels", "0,1,2,3"),
    "Poisson, 686 x 8": ("--target", "number", "--loss", "poisson"),
}


def process(code, *arguments, cache="off"):
    """What a fresh process prints last, as JSON."""
    settings = os.environ | {"SPARSEHTP_CACHE": str(cache)}
    run = [sys.executable, "-c", START + code, *arguments]
    return json.loads(
        subprocess.run(run, env=settings, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    )


def seconds_of(*command, cache="off", runs=3):
    """The least wall and CPU seconds of some runs of a command."""
    walls, cpus = [], []
    for _ in range(runs):
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        settings = os.environ | {"SPARSEHTP_CACHE": str(cache)}
        subprocess.run([sys.executable, *command], check=True, capture_output=True, env=settings)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls.append(time.perf_counter() - start)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(walls), min(cpus)


def write_table(path):
    """A survival time, a class, a number, and eight features of 686 patients."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((686, 8))
    signal = X[:, :3] @ [0.8, -0.5, 0.3]
    seen, times = rng.random(686) < 0.5, np.exp(rng.gumbel(size=686) - signal)
    classes, numbers = np.digitize(signal + rng.logistic(size=686), [-1.5, 0, 1.5]), rng.poisson(np.exp(signal))
    names = ",".join([*(f"x{j}" for j in range(8)), "time", "seen", "class", "number"])
    table = np.column_stack([X, times, seen, classes, numbers])
    np.savetxt(path, table, delimiter=",", header=names, comments="", fmt=["%.5f"] * 9 + ["%d"] * 3)


def command_rows():
    """First runs and exact repeats of `sparsehtp fit` on a table."""
    rows, every = [], ("time", "seen", "class", "number")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        write_table(table)
        for what, options in COMMANDS.items():
            drop = [part for name in every if name not in options for part in ("--drop", name)]
            command = ["-m", "sparsehtp", "fit", str(table), *options, *drop, "--out", f"{folder}/out"]
            cache = tempfile.mkdtemp(dir=folder)
            for run, most in (("first run", None), ("exact repeat", 5)):
                wall, cpu = seconds_of(*command, cache=cache, runs=1)
                row = {"name": f"sparsehtp fit, {what}: {run}", "value": cpu, "unit": "CPU s", "wall": wall}
                rows.append(aim(row, f"<= {most}", cpu <= most) if most else row)
    return rows


def fit_rows(kind, name, k, most, again):
    """A first fit with nothing stored, and one in a second process."""
    what = f"{kind}({f'k={k}' if k else ''}), {name}"
    with tempfile.TemporaryDirectory() as cache:
        outs = [process(FIT, kind, name, k, cache=cache) for _ in range(2)]
    rows = []
    for run, out, limit in zip(("first fit", "second process"), outs, (most, again), strict=True):
        cpu = out["first"]["cpu"]
        rows.append(aim({"name": f"{what}: {run}", "value": cpu, "unit": "CPU s", **out}, f"<= {limit}", cpu <= limit))
    return rows


def main(quick=False):
    """All rows; quick: one fit."""
    rows = [row for each in (FITS[1:2] if quick else FITS) for row in fit_rows(*each)]
    if not quick:
        for what, facts, nodes, most in PROOFS:
            out = process(PROVE, json.dumps(facts), str(nodes))
            cpu = out["first"]["cpu"] - out["later"]["cpu"]  # the same tree twice: what it compiles
            row = {"name": f"prove, {what}: first call less a second one", "value": cpu, "unit": "CPU s", **out}
            rows.append(aim(row, f"<= {most}", cpu <= most))
        rows += command_rows()
        shapes, scores = process(SHAPES), process(SCORES)
        programs, mapped = shapes["near"]["programs"], shapes["far"]["maps"]
        ratio = scores["scores"]["cpu"] / scores["fit"]["cpu"]
        helping = seconds_of("-m", "sparsehtp", "--help")[0]
        importing = seconds_of("-c", "import sparsehtp; sparsehtp.SparseRegressor")[1]
        rows += [
            aim(
                {"name": "fits on 441, 440 and 430 rows after 442", "value": programs, "unit": "programs"},
                "0",
                not programs,
            ),
            aim({"name": "a default fit outside the bucket", "value": mapped, "unit": "maps"}, "<= 150", mapped <= 150),
            aim(
                {"name": "cross_val_score(cv=10) over one first fit", "value": ratio, "unit": "times", **scores},
                "<= 1.3",
                ratio <= 1.3,
            ),
            aim({"name": "python -m sparsehtp --help", "value": helping, "unit": "s"}, "<= 0.7", helping <= 0.7),
            aim({"name": "importing SparseRegressor", "value": importing, "unit": "CPU s"}, "<= 1.5", importing <= 1.5),
        ]
    finish("first-answer", rows, quick)
