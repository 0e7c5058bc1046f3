"""Meshes as `jax.make_mesh` makes them: the answers of one device, or a sentence."""

import os
import subprocess
import sys
from pathlib import Path


def test_explicit_axes_give_the_answers_of_one_device():
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    worker = Path(__file__).parent / "mesh_worker.py"
    done = subprocess.run([sys.executable, worker], env={**os.environ, **flags}, capture_output=True, text=True)
    assert done.returncode == 0 and "10 answers on 4 devices" in done.stdout, done.stdout + done.stderr
