"""A process that lives: compiled programs are dropped before its memory maps run out."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp import _programs

MAPS = Path("/proc/self/maps")

LIMITS = """
import resource
maps = open("/proc/self/maps").read().count("\\n")
bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert maps < 20_000 and bytes < 2e9, (maps, bytes)
"""
FITS = """
import numpy as np, sparsehtp as sht
rng = np.random.default_rng(0)
for n in range(40, 240):
    X = rng.standard_normal((n, 4 + n % 7))
    y = 2 * X[:, 3] + 0.1 * rng.standard_normal(n)
    assert sht.SparseRegressor().fit(X, y).support_[3]
    if n % 5 == 0:
        model = sht.LinearModel(X.astype(np.float32), y.astype(np.float32))
        assert sht.solve(model, sht.Sparsity(1)).support.idx[0] == 3
"""


def fit(n):
    X = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
    return sht.solve(sht.LinearModel(X, X[:, 2]), sht.Sparsity(1), sht.solvers.HTP(), record=None)


def count():
    return MAPS.read_bytes().count(b"\n")


@pytest.mark.skipif(not MAPS.exists(), reason="memory maps can be counted on Linux only")
def test_programs_are_dropped_before_the_maps_run_out(monkeypatch):
    fit(20)
    base = count()
    fit(21)
    each = count() - base
    assert each > 0
    limit = base + 3 * each
    monkeypatch.setattr(_programs, "EVERY", 1)
    monkeypatch.setattr(_programs, "_crowded", lambda: count() > limit)
    for n in range(22, 28):
        np.testing.assert_allclose(fit(n).x, [0, 0, 1, 0], atol=1e-5)
        assert count() <= limit + 2 * each
    monkeypatch.undo()
    np.testing.assert_allclose(fit(20).x, [0, 0, 1, 0], atol=1e-5)  # compiled again


def test_programs_are_counted_where_maps_cannot_be(monkeypatch, tmp_path):
    monkeypatch.setattr(_programs, "MAPS", tmp_path / "absent")
    monkeypatch.setattr(_programs, "EVERY", 1)
    monkeypatch.setattr(_programs, "MOST_COMPILED", 0)
    fit(33)  # compiles
    with_programs = _programs._Compiled.since_drop
    fit(34)  # drops before it compiles
    assert with_programs > 0
    assert _programs._Compiled.since_drop <= with_programs


@pytest.mark.slow
@pytest.mark.skipif(not MAPS.exists(), reason="memory maps can be counted on Linux only")
def test_a_process_that_lives():
    """200 fits of 200 shapes."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FITS + LIMITS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
