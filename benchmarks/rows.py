"""Many rows: one pass over files beside reading them, and default fits in memory beside abess and scikit-learn.

A pass and a fit are processes of their own, so that their peak memory can be measured.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sparsehtp as sht

from .baselines import version
from .scores import aim, finish
from .streaming import give_back, raw_rate
from .timing import forget_peak, memory_now

K, FILES, MOST = 10, 10, 30


def rows_of(n, p, seed):
    """float32 rows whose columns share a part and are far from zero, with 10 true features."""
    rng, w = np.random.default_rng([2, seed]), np.where(np.arange(p) < K, 1.0, 0.0) * np.linspace(1, 2, p)
    X = (0.7 * rng.standard_normal((n, 1), np.float32) + rng.standard_normal((n, p), np.float32)) + np.float32(30)
    return X, (X @ w + 8 * rng.standard_normal(n)).astype(np.float32)


def write(folder, n, p, kind):
    """The paths of the features, or of the tables."""
    for number in range(FILES):
        X, y = rows_of(n // FILES, p, number)
        if kind == "npy":
            np.save(folder / f"{number}.X.npy", X)
            np.save(folder / f"{number}.y.npy", y)
        else:
            import pyarrow as pa
            from pyarrow import parquet

            table = pa.table({**{f"x{j}": X[:, j] for j in range(p)}, "y": y})
            parquet.write_table(table, folder / f"{number}.parquet")
    os.sync()
    return sorted(folder.glob("*.X.npy" if kind == "npy" else "*.parquet"))


def raw_read(paths, kind):
    """Seconds of reading all numbers, from the disk, by the reader that the kind of file has."""
    if kind == "npy":
        return sum(path.stat().st_size for path in paths) / raw_rate(paths)
    from pyarrow import dataset

    for path in paths:
        give_back(path)
    start = time.perf_counter()
    for batch in dataset.dataset([str(path) for path in paths], format="parquet").to_batches():
        for column in batch.columns:
            column.to_numpy(zero_copy_only=False)
    return time.perf_counter() - start


def one_pass(folder, kind):
    """What a worker prints: seconds of the pass, of fits to what it found, and its peak memory."""
    folder = Path(folder)
    source = folder if kind == "parquet" else sht.datasets.Shards(folder)
    target = "y" if kind == "parquet" else None
    small = np.random.default_rng(0).standard_normal((100, 3))
    sht.SufficientStatistics.from_arrays(small, small[:, 0])  # imports
    paths = sorted(folder.iterdir())
    for path in paths:
        give_back(path)
    forget_peak()
    before, start = memory_now("VmRSS"), time.perf_counter()
    statistics = sht.SufficientStatistics.from_files(source, target)
    found = {"pass": time.perf_counter() - start, "megabytes": (memory_now("VmHWM") - before) / 2**20}
    for name in ("first fit", "fit"):
        start = time.perf_counter()
        model = sht.SparseRegressor().fit(statistics)
        found[name] = time.perf_counter() - start
    return found | {"support": np.flatnonzero(model.support_).tolist()}


def worker(function, *args):
    """What a function of this module returns in a process of its own."""
    code = f"import json, sys; from benchmarks.rows import {function}; print(json.dumps({function}(*sys.argv[1:])))"
    command = [sys.executable, "-c", code, *map(str, args)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])


def from_files(n, p, kind):
    """Rows of one pass over files of a kind."""
    folder = Path(tempfile.mkdtemp(prefix="sparsehtp-rows-"))
    try:
        paths = write(folder, n, p, kind)
        raw = [raw_read(paths, kind)]
        found = worker("one_pass", folder, kind)
        raw.append(raw_read(paths, kind))
    finally:
        shutil.rmtree(folder)
    title, ratio = f"{kind}, {n:.0e} x {p}", found["pass"] / min(raw)
    peak, true = found["megabytes"], len(set(found["support"]) & set(range(K)))
    rows = [
        {"name": "one pass over the raw read", "value": ratio, "unit": "times", "raw": raw},
        {"name": "one pass", "value": found["pass"], "unit": "s"},
        {"name": "default fit after it, compiling", "value": found["first fit"], "unit": "s"},
        {"name": "default fit after it", "value": found["fit"], "unit": "s"},
        {"name": "peak memory of the pass", "value": peak, "unit": "MiB"},
        {"name": "true features found", "value": true, "unit": f"of {K}"},
    ]
    rows[0] = aim(rows[0], "<= 1.5", ratio <= 1.5)
    rows[4] = aim(rows[4], "<= 200", peak <= 200)
    return [row | {"name": f"{title}: {row['name']}"} for row in rows]


def in_memory(who, n, p):
    """What a worker prints: seconds of a fit to rows in memory, and its peak memory beside them."""
    X, y = (part.astype(float) for part in rows_of(int(n), int(p), 0))
    X = np.asfortranarray(X)
    forget_peak()
    seconds, before = [], memory_now("VmRSS")
    if who == "abess":
        from abess import LinearRegression

        start = time.perf_counter()
        LinearRegression(support_size=range(min(MOST, X.shape[1]) + 1)).fit(X, y)
        seconds.append(time.perf_counter() - start)
    else:
        for _ in range(2):
            start = time.perf_counter()
            model = sht.SparseRegressor().fit(X, y)
            seconds.append(time.perf_counter() - start)
        assert set(range(K)) <= set(np.flatnonzero(model.support_))
    return {"seconds": seconds, "megabytes": (memory_now("VmHWM") - before) / 2**20, "data": X.nbytes / 2**20}


def classified(who, n, p):
    """What a worker prints: seconds of two fits to labels of rows in memory, one by scikit-learn with all columns."""
    X, y = rows_of(int(n), int(p), 0)
    X, y = np.asfortranarray(X, float), y > np.median(y)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        if who == "scikit-learn":
            from sklearn.linear_model import LogisticRegression

            LogisticRegression(max_iter=1000).fit(X, y)
        else:
            model = sht.SparseClassifier().fit(X, y)
        seconds.append(time.perf_counter() - start)
    if who != "scikit-learn":
        assert set(range(K)) <= set(np.flatnonzero(model.support_))
    return {"seconds": seconds}


def main(quick=False):
    """10^6 x 100 in memory; Parquet and .npy of 10^6 and 10^7 x 100 and 10^6 x 1,000."""
    n, sizes = (20_000, [(20_000, 20)]) if quick else (10**6, [(10**6, 100), (10**7, 100), (10**6, 1000)])
    ours, title = worker("in_memory", "sparsehtp", n, sizes[0][1]), f"{n:.0e} x {sizes[0][1]} in memory"
    first, second = ours["seconds"]
    rows = [
        {"name": f"{title}: default fit, compiling", "value": first, "unit": "s"},
        {"name": f"{title}: default fit", "value": second, "unit": "s"},
        {"name": f"{title}: peak memory beside the data", "value": ours["megabytes"] / ours["data"], "unit": "of them"},
    ]
    if version("abess"):
        theirs = worker("in_memory", "abess", n, sizes[0][1])
        ratio = ours["seconds"][1] / theirs["seconds"][0]
        rows += [
            {"name": f"abess, one path of k = 0..{MOST}", "value": theirs["seconds"][0], "unit": "s"},
            aim({"name": "default fit over abess's one path", "value": ratio, "unit": "times"}, "<= 0.1", ratio <= 0.1),
        ]
    logistic = {who: worker("classified", who, n, sizes[0][1])["seconds"] for who in ("sparsehtp", "scikit-learn")}
    first, second = logistic["sparsehtp"]
    ratio = second / min(logistic["scikit-learn"])
    name = "default fit over one of scikit-learn's L-BFGS with all columns"
    rows += [
        {"name": f"{title}, logistic: default fit, compiling", "value": first, "unit": "s"},
        {"name": f"{title}, logistic: default fit", "value": second, "unit": "s"},
        aim({"name": f"{title}, logistic: {name}", "value": ratio, "unit": "times"}, "<= 5", ratio <= 5),
    ]
    for size in sizes:
        for kind in ("npy", "parquet"):
            rows += from_files(*size, kind)
    finish("rows", rows, quick)
