"""One device, eight devices and two processes give the same answers; a lost process is an error, not a hang."""

import time

import numpy as np
import pytest
from processes import start

pytestmark = pytest.mark.slow


def answers(folder, name, processes=1, devices=1):
    for process in start("worker.py", processes, devices, folder / name):
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
    first, second = start("worker.py", 2, 1, tmp_path / "lost.npz", "LOST")
    began = time.monotonic()
    text, _ = first.communicate(timeout=300)
    second.communicate(timeout=60)
    assert first.returncode != 0 and time.monotonic() - began < 120
    assert "closed" in text or "heartbeat" in text or "disconnect" in text.lower(), text
    assert not (tmp_path / "lost.npz").exists()
