"""How a time is taken, and what is stored beside it."""

import json
import platform
import time
from pathlib import Path

import jax
import joblib
import numpy as np

from .baselines import version

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "abess", "skscope", "skglm", "skein-glm", "el0ps")


def compile_time(function, *args):
    """Ahead-of-time compiled form of a jitted function, and the seconds that tracing and compiling took."""
    start = time.perf_counter()
    compiled = function.lower(*args).compile()
    return compiled, time.perf_counter() - start


def best_of(functions, repeats=7):
    """Best seconds of each function (name -> nullary), measured in turns so that a busy machine hits all alike."""
    for function in functions.values():
        jax.block_until_ready(function())
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function())
            times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}


def work(seconds, dtype, bytes, flops):
    """What a row says of a task beside its value: the time, and the least that the task must move and compute."""
    return {"seconds": seconds, "dtype": np.dtype(dtype).name, "bytes": bytes, "flops": flops}


def machine():
    """The device and the versions, as stored with every result."""
    device = jax.devices()[0]
    return {
        "device": device.device_kind if device.platform != "cpu" else f"{platform.machine()} CPU",
        "platform": device.platform,
        "cpu_cores": joblib.cpu_count(),
        "versions": {"python": platform.python_version(), **{name: v for name in PACKAGES if (v := version(name))}},
    }


def write(path, result):
    """Store a result whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(result, indent=1, default=np.generic.item) + "\n")
    unfinished.replace(path)


def save(name, rows, versions=None):
    """Write rows with the device and the versions, those of other processes too, to results/NAME-PLATFORM.json."""
    result = {"benchmark": name, **machine(), "rows": rows}
    result["versions"] |= versions or {}
    path = RESULTS / f"{name}-{result['platform']}.json"
    write(path, result)
    for row in rows:
        aim = f"   aim {row['aim']}" if "aim" in row else ""
        met = "" if "met" not in row else ("   met" if row["met"] else "   MISSED")
        print(f"{row['name']:<62}{row['value']:>12.4g} {row['unit']:<8}{aim}{met}")
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


def memory_now(kind):
    """VmRSS (resident) or VmHWM (its peak) of this process in bytes, on Linux; getrusage has the parent's in it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(kind))


def forget_peak():
    """Let VmHWM begin anew, at what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
