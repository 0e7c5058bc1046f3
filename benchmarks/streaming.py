"""Data on disk that are larger than the memory that a fit takes: speed, memory, accuracy, and two kills on the way.

Every streamed fit is a process of its own, so that its peak memory can be measured. What is compared with reading reads
from the disk in every pass: the pages of a shard are given back once it was used. Beside it stands the same fit to all
rows in memory, on a part of the data. Compile time is left out of what is compared.
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

import jax
import numpy as np

import sparsehtp as sht

from .scores import aim, finish
from .timing import memory_now

P, K = 1000, 20
BUFFER = 2**22


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
        np.save(folder / f"part-{number:04d}.X.npy", X)
        np.save(folder / f"part-{number:04d}.y.npy", X @ w + rng.standard_normal(rows, np.float32))
    os.sync()  # only pages that are written can be given back
    return time.perf_counter() - start


def give_back(path):
    """Let the system forget what it keeps of a file in memory."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def raw_rate(paths):
    """Bytes a second of plain reads of the files, from the disk."""
    buffer, size = bytearray(BUFFER), sum(path.stat().st_size for path in paths)
    for path in paths:
        give_back(path)
    start = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return size / (time.perf_counter() - start)


def fit(folder, checkpoint, pattern):
    """What a worker prints: the result of a streamed fit, its time, that of its passes, and its peak memory."""
    shards = sht.datasets.Shards(Path(folder) / pattern)
    if not checkpoint:  # what is timed finds its programs compiled
        sht.solve_stream(sht.datasets.Shards(shards.paths[:2]), sht.Sparsity(K))
    for path in shards.paths:
        give_back(path)
    ends = [time.monotonic()]

    def used(done, total):
        give_back(shards.paths[(done - 2) % len(shards)])  # the last one is still mapped, which keeps its pages
        if done % len(shards) == 0:
            ends.append(time.monotonic())

    cpu = time.process_time()
    found = sht.solve_stream(shards, sht.Sparsity(K), checkpoint=checkpoint or None, progress=used)
    return {
        "support": found.support.tolist(),
        "x": found.x.tolist(),
        "value": found.value,
        "converged": found.converged,
        "passes": found.passes,
        "seconds": found.seconds,
        "cpu": time.process_time() - cpu,
        "each": np.diff(ends).tolist(),
        "megabytes": memory_now("VmHWM") / 2**20,
    }


def worker(folder, checkpoint="", kill_at=None, pattern="*.X.npy"):
    """A streamed fit in another process; None if it was killed after `kill_at` finished shards."""
    code = "import json, sys; from benchmarks.streaming import fit; print(json.dumps(fit(*sys.argv[1:])))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(checkpoint), pattern], stdout=subprocess.PIPE, text=True
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
    """2 GB in 20 shards of 25,000 rows and 1,000 features; the part in memory has 200,000 rows."""
    shards, rows, part = (4, 2000, 4) if quick else (20, 25_000, 8)
    folder = Path(tempfile.mkdtemp(prefix="sparsehtp-shards-"))
    try:
        written = write_shards(folder, shards, rows)
        files = sorted(folder.glob("*.X.npy"))
        raw = [raw_rate(files)]
        straight = worker(folder)
        raw.append(raw_rate(files))
        state = folder / "state"
        kills = sorted(np.random.default_rng(2).integers(1, 2 * shards, 2).tolist())
        for kill_at in kills:
            worker(folder, state, int(kill_at))
        resumed = worker(folder, state)
        for path in files[part:]:
            path.unlink()
        files = files[:part]
        X, y = (np.concatenate([_load(path, kind) for path in files]) for kind in ("X", "y"))
        times = {name: [] for name in ("streamed", "fit", "read and fit")}
        for _ in range(3):  # in turns, since others may use the machine
            streamed = worker(folder)
            times["streamed"].append(streamed["seconds"])
            whole, seconds = in_memory(files, X, y)
            for name, value in seconds.items():
                times[name].append(value)
        best = {name: min(values) for name, values in times.items()}
        for i, path in enumerate(files):
            np.savez(folder / f"part-{i}.npz", X=_load(path, "X"), y=_load(path, "y"))
        archives = worker(folder, pattern="*.npz")
    finally:
        shutil.rmtree(folder)
    truth = set(np.flatnonzero(coefficients()).tolist())
    size = shards * rows * P * 4
    limit = 2 * rows * P * 4 / 2**20  # two shards in files, and two more on the device
    exact = size / np.median(straight["each"][1:])
    rows_out = [
        {"name": f"{size / 1e9:.2g} GB in {shards} shards: writing them", "value": written, "unit": "s"},
        {
            "name": "streamed fit",
            "value": straight["seconds"],
            "unit": "s",
            "passes": straight["passes"],
            "cpu_seconds": straight["cpu"],
            "seconds_of_each_pass": straight["each"],
        },
        {"name": "raw read of the files", "value": max(raw) / 1e9, "unit": "GB a second", "runs": raw},
        aim(
            {"name": "bytes of an exact pass, over the raw read", "value": exact / max(raw), "unit": "times"},
            ">= 0.7",
            exact >= 0.7 * max(raw),
        ),
        {
            "name": "bytes of the whole fit, over the raw read",
            "value": straight["passes"] * size / straight["seconds"] / max(raw),
            "unit": "times",
        },
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
        aim(
            {
                "name": f"{part * rows} rows: streamed over in memory, time",
                "value": best["streamed"] / best["fit"],
                "unit": "times",
                "seconds": times,
            },
            "<= 1.3",
            best["streamed"] <= 1.3 * best["fit"],
        ),
        {
            "name": f"{part * rows} rows: streamed over reading them and in memory, time",
            "value": best["streamed"] / best["read and fit"],
            "unit": "times",
        },
        {
            "name": f"{part * rows} rows: NPZ over .npy, time",
            "value": archives["seconds"] / best["streamed"],
            "unit": "times",
        },
        {
            "name": f"{part * rows} rows: streamed less in memory, F",
            "value": (streamed["value"] - float(whole.value)) / float(whole.value),
            "unit": "of F",
        },
    ]
    finish("streaming", rows_out, quick)


def in_memory(files, X, y):
    """The fit to all rows in memory, its seconds, and those with reading the files and preparing the data."""
    for path in files:
        give_back(path)
    start = time.perf_counter()
    for kind, array in (("X", X), ("y", y)):
        np.concatenate([_load(path, kind) for path in files], out=array)
    model = sht.LinearModel(X, y, fit_intercept=True)
    jax.block_until_ready(model)
    read = time.perf_counter() - start
    sht.solve(model, sht.Sparsity(K), sht.solvers.HTP())  # compiles
    start = time.perf_counter()
    whole = jax.block_until_ready(sht.solve(model, sht.Sparsity(K), sht.solvers.HTP()))
    seconds = time.perf_counter() - start
    return whole, {"fit": seconds, "read and fit": read + seconds}


def _load(path, kind):
    return np.load(path.with_name(path.name.replace(".X.", f".{kind}.")))
