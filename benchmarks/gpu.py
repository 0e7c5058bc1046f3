"""One command for a machine with a GPU: its rates, the GPU-marked tests, and the main benchmarks on GPU and host cores.

Every part is a process of its own with a limit, so that a slow or broken one costs only its own rows, and JAX's memory
and compiled programs go with it. A row is stored when it is measured. Its bytes and flops are the least that the task
needs, counted by hand: avoidable work lowers the rates beside them.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import sparsehtp as sht

from . import best_subset, bootstrap, core, cv, inner_steps
from .problems import generate
from .scores import aim
from .timing import RESULTS, best_of, machine, work, write

ROOT = Path(__file__).parents[1]
ROW = "row "  # begins the lines of a part that hold a row


def rates(quick):
    """What the machine can do: a copy in place, matrix products, and what a small call and a turn of a loop cost."""
    box, copies = [jnp.ones((1 << 20) if quick else (1 << 28), jnp.float32)], 10
    copy = jax.jit(lambda x: x + 1, donate_argnums=0)

    def copied():  # enqueued together, so that the dispatch of one hides behind the copy before
        for _ in range(copies):
            box[0] = copy(box[0])
        return box[0]

    rate = 2 * copies * box[0].nbytes / best_of({"copy": copied}, 3)["copy"]
    yield {"name": "copy", "value": rate / 1e9, "unit": "GB/s", "rate": rate}
    box.clear()
    size = 256 if quick else 4096
    for dtype, precision in ((np.float32, "highest"), (np.float32, "default"), (np.float64, "highest")):
        with jax.enable_x64(dtype == np.float64):
            A = jax.random.normal(jax.random.key(0), (size, size), dtype)
            product = jax.jit(lambda A, precision=precision: jnp.matmul(A, A, precision=precision))
            rate = 2 * size**3 / best_of({"product": lambda A=A, f=product: f(A)}, 5)["product"]
        name = f"product, {np.dtype(dtype).name}, {precision} precision"
        yield {"name": name, "value": rate / 1e12, "unit": "Tflop/s", "rate": rate}
    turns = 1000
    small = jax.jit(lambda x: x + 1)
    loop = jax.jit(lambda x: lax.while_loop(lambda x: x < turns, lambda x: x + 1, x))
    zero = jnp.float32(0)
    seconds = best_of({"call": lambda: small(zero), "loop": lambda: loop(zero)}, 5)
    yield {"name": "one small call, waited for", "value": 1e6 * seconds["call"], "unit": "us"}
    yield {"name": "one turn of an empty while_loop", "value": 1e6 * seconds["loop"] / turns, "unit": "us"}


def large_best_subset(quick):
    """The large problem: a fit from host arrays, its program on data that is there, a path, and a certified fit."""
    n, p, k, *rest = (500, 2000, 25) if quick else best_subset.LARGE
    X, y, _ = generate(n, p, k, *rest)
    for dtype in (np.float32, np.float64):
        name, fit = np.dtype(dtype).name, best_subset.Ours(sht.solvers.BestSubset(), dtype)
        least = dtype, X.size * np.dtype(dtype).itemsize, 2 * X.size * k  # X once; the Gram columns of the support
        residual, seconds, _ = best_subset.measure({name: fit}, X, y, k, 2)
        row = {"name": f"{name}: fit from host arrays", "value": seconds[name], "unit": "s", "rss": residual[name]}
        yield row | work(seconds[name], *least)
        with jax.enable_x64(dtype == np.float64):
            objective, _ = fit.solve(X, y, k)
            program = fit.programs[X.shape, k]
            seconds = best_of({"program": lambda f=program, o=objective: f(o)}, 3)["program"]
            yield {"name": f"{name}: its program alone", "value": seconds, "unit": "s"} | work(seconds, *least)

            def path(objective=objective):
                return sht.solve_path(objective, ks=np.arange(1, k + 1), solver=sht.solvers.BestSubset()).x

            seconds = best_of({"path": path}, 1)["path"]
            row = {"name": f"{name}: path k = 1..{k}", "value": seconds, "unit": "s"}
            yield row | work(seconds, *least)
    for row in best_subset.certified(X, y, k, 1):
        yield row | ({"seconds": row["value"]} if row["unit"] == "s" else {})


def cross_validation(quick):
    """Five folds over all sizes: the products of the folds add up to those of all data."""
    for title, n, p, k, ks, classification, target in cv.problems(quick):
        for dtype in (np.float32, np.float64):
            solver = f"sparsehtp, {np.dtype(dtype).name}"
            rows = cv.compare(title, n, p, k, ks, classification, target, 1, only=[solver])
            least = dtype, n * p * np.dtype(dtype).itemsize, 2 * n * p * int(ks[-1])
            yield rows[0] | work(rows[0]["value"], *least)


def bootstraps(quick):
    """A hundred resamples of a path, side by side and in turn."""
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(dtype == np.float64):
            yield from bootstrap.compare(*bootstrap.problem(quick), "default", dtype, 1, loops=False)


def phase_cell(quick):
    """Compressed sensing by HT-SVRG: three stages of a cell of the phase diagram, with few lanes and with all."""
    for lanes in (2, 4) if quick else (64, 1000):
        rows = []
        inner_steps.trials(rows, 256, 175, 16, lanes, 1 if quick else 3, 1)
        for row in rows:
            yield row | {"name": f"{lanes} lanes: {row['name']}"}


# What each part measures and its share of the time, on the GPU and on the host, in the order in which they run.
PARTS = {
    "rates": (rates, 40),
    "core": (core.measured, 80),
    "best-subset": (large_best_subset, 60),
    "cv": (cross_validation, 60),
    "bootstrap": (bootstraps, 50),
    "phase": (phase_cell, 35),
}
TESTS = 60


def work_on(part, quick):
    """Measure one part in this process and print its rows, each with what was compiled for it."""
    compiled = {"programs": 0, "compile_seconds": 0.0}

    def listen(event, seconds, **_):
        if event.startswith("/jax/core/compile/") and "trace" not in event:  # traces nest: their sum counts some twice
            compiled["compile_seconds"] += seconds
            compiled["programs"] += "backend" in event

    jax.monitoring.register_event_duration_secs_listener(listen)
    if part == "rates":
        print(ROW + json.dumps(machine()), flush=True)
    for row in PARTS[part][0](quick):
        print(ROW + json.dumps(row | compiled, default=np.generic.item), flush=True)
        compiled.update(programs=0, compile_seconds=0.0)


def run(command, limit, environment, taken=lambda line: None):
    """(exit status, or None if ended at the limit; last lines of output less those that `taken` accepts)."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    cut = threading.Event()
    timer = threading.Timer(limit, lambda: (cut.set(), process.kill()))
    timer.start()
    last = []
    try:
        for line in process.stdout:
            if not taken(line):
                last = [*last[-14:], line.replace(f"{ROOT}{os.sep}", "")]
        status = process.wait()
    finally:  # an interrupted run leaves no part behind
        timer.cancel()
        process.kill()
        process.wait()
    return None if cut.is_set() else status, "".join(last)


def tests(limit):
    """The outcome of the GPU-marked tests as a row."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        pytest = f"-m pytest tests -m gpu -n 4 -p no:cacheprovider --junitxml={report}"
        # Four processes share the device's memory.
        status, output = run([sys.executable, *pytest.split()], limit, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
        row = {"name": "GPU-marked tests passed", "value": 0, "unit": "tests", "exit_status": status}
        row |= {"output": output} if status else {}
        if report.exists():
            counts = ElementTree.parse(report).getroot().find("testsuite").attrib
            row |= {key: int(counts[key]) for key in ("tests", "failures", "errors", "skipped")}
            row["value"] = row["tests"] - row["failures"] - row["errors"] - row["skipped"]
    return aim(row, "all", status == 0 and row["value"] == row["tests"] > 0)


class Store:
    """The rows so far: each is enriched, printed, and stored with all before it."""

    def __init__(self, folder, quick):
        self.folder, self.seen = folder, {}
        self.result = {"benchmark": "gpu", "quick": quick, "finished": False}

    def begin(self, header):
        """Take the device and the versions that a part reports; the first part's are those of the run."""
        if "device" in self.result:
            return
        if header["platform"] == "cpu" and not self.result["quick"]:
            raise SystemExit("gpu: JAX sees no GPU here; pass --quick to try the command on a CPU.")
        self.result |= header | {"rows": []}

    def add(self, on, part, row):
        """Add a row, its rates beside those of the device, and, the second time a task is seen, how the two compare."""
        row = {"on": on, "part": part} | row
        if "flops" in row:
            copy = self.seen.get((on, "rates", "copy"))
            product = self.seen.get((on, "rates", f"product, {row['dtype']}, highest precision"))
            for work, unit, rate in (("bytes", "copy", copy), ("flops", "product", product)):
                row[f"{work}_per_second"] = row[work] / row["seconds"]
                if rate:
                    row[f"of_{unit}"] = row[f"{work}_per_second"] / rate["rate"]
        self.seen[on, part, row["name"]] = row
        new, device = [row], self.seen.get(("device", part, row["name"]))
        if on == "host" and device and "seconds" in row:
            ratio = row["seconds"] / device["seconds"]
            both = {"on": "both", "part": part, "name": f"{row['name']}: host's time over the device's"}
            new.append(aim(both | {"value": ratio, "unit": "times"}, ">= 1", ratio >= 1))
        for row in new:
            self.result["rows"].append(row)
            rate = f"   {row['of_copy']:.1%} of copy, {row['of_product']:.1%} of product" if "of_product" in row else ""
            missed = "   MISSED" if row.get("met") is False else ""
            text = f"{row['on']}, {row['part']}: {row['name']}"
            print(f"{text:<90}{row['value']:>12.4g} {row['unit']:<8}{rate}{missed}", flush=True)
        self.write()

    def write(self):
        if self.folder:
            name = re.sub(r"[^a-z0-9]+", "-", self.result["device"].lower()).strip("-")
            write(Path(self.folder) / f"gpu-{name}.json", self.result)


# What NVIDIA says of an H100 SXM: bytes and operations (single precision, without tensor cores) per second.
BANDWIDTH, OPERATIONS = 3.35e12, 67e12
ROOFLINE = {  # part, row: its name in the table
    ("core", "by sample: one product r @ X"): "a product r @ X, 2,000 x 20,000",
    ("core", "IHT, by sample: one iteration over one product r @ X"): "an iteration of `IHT` there",
    ("core", "HTP, by sample: one iteration over one product r @ X"): "an iteration of `HTP` there",
    ("best-subset", "float32: its program alone"): "`BestSubset` there, k = 100",
    ("best-subset", "float32: path k = 1..100"): "its path k = 1..100",
    ("cv", "squared n=2000 p=20000: sparsehtp, float32"): "five folds there, k = 1..150",
    ("cv", "logistic n=1000 p=5000: sparsehtp, float32"): "logistic folds, 1,000 x 5,000",
    ("bootstrap", "default, float32: one program, resamples side by side"): "100 bootstraps, side by side",
    (
        "phase",
        "1000 lanes: HT-SVRG, d = 256, n = 175, k = 144, 3 stages: trials per second, 1000 lanes",
    ): "1,000 trials of HT-SVRG at once",
}


def roofline(result):
    """A Markdown table: the least that the main rows of a stored result take on an H100, and what they took."""
    rows = {(row["part"], row["name"]): row for row in result["rows"] if row["on"] == "device"}
    lines = [
        f"| single precision | MB | million operations | H100, least ms | {result['device']}, ms |",
        "|---|---|---|---|---|",
    ]
    for key, name in ROOFLINE.items():
        row = rows[key]
        least = max(row["bytes"] / BANDWIDTH, row["flops"] / OPERATIONS)
        numbers = row["bytes"] / 1e6, row["flops"] / 1e6, 1e3 * least, 1e3 * row["seconds"]
        lines.append(f"| {name} | {' | '.join(format(float(format(number, '.2g')), 'g') for number in numbers)} |")
    turn = rows["rates", "one turn of an empty while_loop"]["value"]
    call = rows["rates", "one small call, waited for"]["value"]
    told = f"There a turn of an empty loop took {turn:.0f} microseconds, and a small call, waited for, {call:.0f}."
    return "\n".join([*lines, "", told])


def main(quick=False, out=None, seconds=540, roofline_of=None):
    """Everything on the device, then the same on the host's cores, within so many seconds.

    A quick run also runs where JAX sees no GPU, and is stored only in a folder that is named. `roofline_of` a stored
    result a table is printed, and nothing runs.
    """
    if roofline_of:
        print(roofline(json.loads(Path(roofline_of).read_text())))
        return
    store, begun = Store(out or (None if quick else RESULTS), quick), time.monotonic()
    jobs = [(on, part, share) for on in ("device", "host") for part, (_, share) in PARTS.items()]
    jobs.insert(1, ("device", "tests", TESTS))
    while jobs:
        total = sum(share for *_, share in jobs)
        on, part, share = jobs.pop(0)
        limit = (seconds - (time.monotonic() - begun)) * share / total
        if part == "tests":
            store.add(on, part, tests(limit))
            continue

        def taken(line, on=on, part=part):
            if not line.startswith(ROW):
                return False
            row = json.loads(line.removeprefix(ROW))
            store.add(on, part, row) if "name" in row else store.begin(row)
            return True

        command = [sys.executable, "-c", f"from benchmarks.gpu import work_on; work_on({part!r}, {bool(quick)})"]
        status, output = run(command, limit, {"JAX_PLATFORMS": "cpu"} if on == "host" else {}, taken)
        if "device" not in store.result:
            why = f"within {limit:.0f} s" if status is None else f"(status {status})"
            raise SystemExit(f"gpu: JAX did not start {why}.\n{output}")
        if status is None:
            store.add(on, part, {"name": "cut at its limit", "value": limit, "unit": "s", "met": False})
        elif status:
            failed = {"name": "failed", "value": status, "unit": "status", "met": False, "output": output}
            store.add(on, part, failed)
        if store.result["platform"] == "cpu":
            jobs = [job for job in jobs if job[0] == "device"]  # the host would be measured twice
    store.result["finished"] = True
    store.write()
