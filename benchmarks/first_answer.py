"""What a first answer costs: compiling in a fresh process, the second process, the next shape, cross-validation.

Every measurement is a process of its own, importing apart. CPU seconds are those of the process; walls are of the fit.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

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
def measured(function):
    cpu, wall, programs, mapped = time.process_time(), time.perf_counter(), compiled[0], maps()
    function()
    row = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    return row | {"programs": compiled[0] - programs, "maps": maps() - mapped}
SETS = {"diabetes": load_diabetes, "breast cancer": load_breast_cancer}
def first(name):
    return wide() if name == "62 x 2000" else SETS[name](return_X_y=True)
"""
FIT = """
kind, name, k = sys.argv[1:4]
X, y = first(name)
rows = [measured(lambda: getattr(sht, kind)(**({"k": int(k)} if k else {})).fit(X, y)) for _ in range(3)]
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
FITS = [  # kind, data, k, aim in CPU seconds
    ("SparseRegressor", "diabetes", "", 4),
    ("SparseRegressor", "diabetes", "5", 2.5),
    ("SparseClassifier", "breast cancer", "", 6),
    ("SparseClassifier", "62 x 2000", "", 6),
]


def process(code, *arguments, cache="off"):
    """What a fresh process prints last, as JSON."""
    settings = os.environ | {"SPARSEHTP_CACHE": str(cache)}
    run = [sys.executable, "-c", START + code, *arguments]
    return json.loads(
        subprocess.run(run, env=settings, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    )


def seconds_of(*command):
    """The least wall of three runs of a command."""
    walls = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        walls.append(time.perf_counter() - start)
    return min(walls)


def main(quick=False):
    """All rows; quick: one fit."""
    rows = []
    for kind, name, k, most in FITS[1:2] if quick else FITS:
        what = f"{kind}({f'k={k}' if k else ''}), {name}"
        out = process(FIT, kind, name, k)
        cpu = out["first"]["cpu"]
        row = {"name": f"{what}: first fit", "value": cpu, "unit": "CPU s", **out}
        rows.append(aim(row, f"<= {most}", cpu <= most))
        with tempfile.TemporaryDirectory() as cache:
            process(FIT, kind, name, k, cache=cache)
            wall = process(FIT, kind, name, k, cache=cache)["first"]["wall"]
        rows.append(aim({"name": f"{what}: second process", "value": wall, "unit": "s"}, "<= 1", wall <= 1))
    if not quick:
        shapes, scores = process(SHAPES), process(SCORES)
        programs, mapped = shapes["near"]["programs"], shapes["far"]["maps"]
        ratio = scores["scores"]["cpu"] / scores["fit"]["cpu"]
        helping, importing = (
            seconds_of("-m", "sparsehtp", "--help"),
            seconds_of("-c", "import sparsehtp; sparsehtp.SparseRegressor"),
        )
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
            aim({"name": "importing SparseRegressor", "value": importing, "unit": "s"}, "<= 1.2", importing <= 1.2),
        ]
    finish("first-answer", rows, quick)
