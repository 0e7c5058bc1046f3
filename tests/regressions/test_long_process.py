"""A process that lives: compiled programs are dropped before its memory maps run out."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp import _programs

MAPS = Path("/proc/self/maps")

LONG = """
import numpy as np, sparsehtp as sht
rng = np.random.default_rng(0)
most = 0
for n in range(40, 100):
    X = rng.standard_normal((n, 5))
    model = sht.SparseRegressor(k=1, l2=1e-3).fit(X, 2 * X[:, 3])
    assert model.support_.tolist() == [False, False, False, True, False]
    most = max(most, open("/proc/self/maps").read().count("\\n"))
limit = int(open("/proc/sys/vm/max_map_count").read())
assert most < 0.7 * limit, (most, limit)
print("survived")
"""


def fit(n):
    X = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
    return sht.solve(sht.LinearModel(X, X[:, 2]), sht.Sparsity(1), sht.HTP(), record=None)


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
    for n in range(22, 32):
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
def test_sixty_fits_of_sixty_shapes_in_one_process():
    settings = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run([sys.executable, "-c", LONG], env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "survived" in done.stdout
