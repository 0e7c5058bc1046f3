"""Data on disk that are larger than the memory that a fit takes: speed, memory, accuracy, and two kills on the way.

Every fit is a process of its own, so that its peak memory can be measured. Beside it stands the same fit to all rows in
memory, on a part of the data that fits.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sparsehtp as sht

from .scores import aim, finish
from .timing import memory_now

P, K = 1000, 20


def coefficients():
    """The true coefficients."""
    rng = np.random.default_rng(0)
    w = np.zeros(P, np.float32)
    w[rng.choice(P, K, replace=False)] = rng.choice([-1, 1], K) * rng.uniform(0.5, 1.5, K)
    return w


def write_shards(folder, shards, rows):
    """Seconds that it took to write the data."""
    start, w = time.perf_counter(), coefficients()
    for number in range(shards):
        rng = np.random.default_rng([1, number])
        X = rng.standard_normal((rows, P), np.float32)
        np.savez(folder / f"part-{number:04d}.npz", X=X, y=X @ w + rng.standard_normal(rows, np.float32))
    return time.perf_counter() - start


def fit(folder, checkpoint):
    """What a worker prints: the result of a streamed fit, its time and its peak memory."""
    shards = sht.datasets.Shards(Path(folder) / "*.npz")
    found = sht.solve_stream(shards, sht.Sparsity(K), checkpoint=checkpoint or None)
    megabytes = memory_now("VmHWM") / 2**20
    return {
        "support": found.support.tolist(),
        "x": found.x.tolist(),
        "value": found.value,
        "converged": found.converged,
        "passes": found.passes,
        "seconds": found.seconds,
        "megabytes": megabytes,
    }


def worker(folder, checkpoint="", kill_at=None):
    """A streamed fit in another process; None if it was killed after `kill_at` finished shards."""
    code = "import json, sys; from benchmarks.streaming import fit; print(json.dumps(fit(*sys.argv[1:])))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(checkpoint)], stdout=subprocess.PIPE, text=True
    )
    if kill_at is not None:
        while process.poll() is None:
            steps = sum(int(np.load(path)["a0"]) for path in Path(checkpoint).glob("chunk-*.npz"))
            if steps >= kill_at:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                return None
            time.sleep(0.05)
    text, _ = process.communicate()
    return json.loads(text.splitlines()[-1])


def main(quick=False):
    """8 GB in 80 shards of 25,000 rows and 1,000 features; the part in memory has 200,000 rows."""
    shards, rows, part = (4, 2000, 4) if quick else (80, 25_000, 8)
    folder = Path(tempfile.mkdtemp(prefix="sparsehtp-shards-"))
    try:
        written = write_shards(folder, shards, rows)
        straight = worker(folder)
        state = folder / "state"
        kills = sorted(np.random.default_rng(2).integers(1, 2 * shards, 2).tolist())
        for kill_at in kills:
            worker(folder, state, int(kill_at))
        resumed = worker(folder, state)
        for path in sorted(folder.glob("part-*.npz"))[part:]:
            path.unlink()
        streamed = worker(folder)
        X, y = map(np.concatenate, zip(*(_load(path) for path in sorted(folder.glob("part-*.npz"))), strict=True))
        model = sht.LinearModel(X, y, fit_intercept=True)
        start = time.perf_counter()
        whole = sht.solve(model, sht.Sparsity(K), sht.HTP())
        in_memory = time.perf_counter() - start
    finally:
        shutil.rmtree(folder)
    truth = set(np.flatnonzero(coefficients()).tolist())
    size = shards * rows * P * 4
    read = straight["passes"] * shards * rows
    limit = 2 * rows * P * 4 / 2**20  # two shards in files, and two more on the device
    rows_out = [
        {"name": f"{size / 1e9:.2g} GB in {shards} shards: writing them", "value": written, "unit": "s"},
        {"name": "streamed fit", "value": straight["seconds"], "unit": "s", "passes": straight["passes"]},
        {"name": "rows read", "value": read / straight["seconds"], "unit": "a second"},
        {"name": "bytes read", "value": 4e-9 * P * read / straight["seconds"], "unit": "GB a second"},
        {"name": "true features found", "value": len(truth & set(straight["support"])), "unit": f"of {K}"},
        aim(
            {"name": "peak memory of the process", "value": straight["megabytes"], "unit": "MiB", "shard": limit / 2},
            f"<= {4 * limit + 1024:.0f}",
            straight["megabytes"] <= 4 * limit + 1024,
        ),
        aim(
            {
                "name": f"killed after {kills} shards: same bits",
                "value": float(resumed["x"] == straight["x"]),
                "unit": "",
            },
            "1",
            resumed["x"] == straight["x"] and resumed["value"] == straight["value"],
        ),
        {
            "name": f"{part * rows} rows: streamed over in memory, time",
            "value": streamed["seconds"] / in_memory,
            "unit": "times",
        },
        {
            "name": f"{part * rows} rows: streamed less in memory, F",
            "value": (streamed["value"] - float(whole.value)) / float(whole.value),
            "unit": "of F",
        },
    ]
    finish("streaming", rows_out, quick)


def _load(path):
    with np.load(path) as file:
        return file["X"], file["y"]
