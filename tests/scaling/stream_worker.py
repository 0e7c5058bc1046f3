"""One of several processes that fit shards: python stream_worker.py PROCESS PROCESSES PORT FOLDER OUT [KILL_AT].

Process i of two reads the shards i, i + 2, ... of FOLDER; with KILL_AT the last one kills itself after so many shards.
"""

import os
import signal
import sys
from pathlib import Path

import jax
import numpy as np

process, processes, port = map(int, sys.argv[1:4])
folder, out = map(Path, sys.argv[4:6])
kill_at = int(sys.argv[6]) if len(sys.argv) > 6 else None
jax.config.update("jax_enable_x64", True)
if processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, process, heartbeat_timeout_seconds=10)

import sparsehtp as sht  # noqa: E402


def watch(done, total):
    if done == kill_at and process == processes - 1:
        os.kill(os.getpid(), signal.SIGKILL)


shards = sht.datasets.Shards(sorted(folder.glob("*.X.npy"))[process::processes])
found = sht.solve_stream(
    shards,
    sht.Sparsity(3),
    sht.losses.Logistic(),
    l2=0.02,
    dtype=np.float64,
    checkpoint=folder / "state" if "state" in out.name else None,
    progress=watch,
)
fields = {name: getattr(found, name) for name in ("x", "intercept", "value", "converged", "passes")}
np.savez(out.with_name(f"{out.name}-{process}.npz"), **fields)
