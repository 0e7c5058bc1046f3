"""One device, eight devices and two processes give the same answers; a lost process is an error, not a hang."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow
WORKER = Path(__file__).with_name("worker.py")


def start(out, processes=1, devices=1, *options):
    """The processes of one job, started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return [
        subprocess.Popen(
            [sys.executable, WORKER, *map(str, (number, processes, port, devices, out)), *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(processes)
    ]


def answers(folder, name, *job):
    running = start(folder / name, *job)
    for process in running:
        text, _ = process.communicate(timeout=600)
        assert process.returncode == 0, text
    return dict(np.load(folder / name))


def test_devices_and_processes_agree(tmp_path):
    one = answers(tmp_path, "one.npz")
    assert set(np.flatnonzero(one["htp"])) == set(np.flatnonzero(one["svrg"])) == {3, 8, 20}
    jobs = {"eight.npz": (1, 8), "columns.npz": (1, 8), "two.npz": (2, 1)}
    for name, job in jobs.items():
        for field, value in answers(tmp_path, name, *job).items():
            np.testing.assert_allclose(value, one[field], rtol=1e-9, atol=1e-11, err_msg=f"{name}: {field}")


def test_a_lost_process_ends_the_others(tmp_path):
    first, second = start(tmp_path / "lost.npz", 2, 1, "LOST")
    began = time.monotonic()
    text, _ = first.communicate(timeout=300)
    second.communicate(timeout=60)
    assert first.returncode != 0 and time.monotonic() - began < 120
    assert "closed" in text or "heartbeat" in text or "disconnect" in text.lower(), text
    assert not (tmp_path / "lost.npz").exists()
