"""Meshes as `jax.make_mesh` makes them: the answers of one device, or a sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("more", "answers"), [(["--short"], 7), pytest.param([], 10, marks=pytest.mark.slow)])
def test_explicit_axes_give_the_answers_of_one_device(more, answers):
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    worker = Path(__file__).parent / "mesh_worker.py"
    done = subprocess.run([sys.executable, worker, *more], env={**os.environ, **flags}, capture_output=True, text=True)
    assert done.returncode == 0 and f"{answers} answers on 4 devices" in done.stdout, done.stdout + done.stderr
