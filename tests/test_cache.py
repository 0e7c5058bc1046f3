"""Compiled programs on disk: what is kept, what is left alone, and that JAX's settings stay as they were."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from typer.testing import CliRunner

import sparsehtp as sht
from sparsehtp import _cache
from sparsehtp.cli.common import CompileNotice
from sparsehtp.cli.main import app

LOWERED, COMPILED = (f"/jax/core/compile/{name}_duration" for name in ("jaxpr_to_mlir_module", "backend_compile"))

SECOND = """
import collections, jax, numpy as np, sparsehtp as sht
events = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: events.update([event.rsplit("/")[-1]]))
X = np.random.default_rng(0).normal(size=(30, 4))
sht.SparseRegressor(k=1, solver="iht").fit(X, X[:, 1])
print(events["compile_requests_use_cache"], events["cache_hits"])
"""


@pytest.fixture
def unconfigured():
    """JAX without the cache of these tests, whatever a test does to its settings."""
    before = jax.config.values
    jax.config.update("jax_compilation_cache_dir", None)
    reset_cache()
    jax.clear_caches()  # or a program compiled by an earlier test would not be kept
    yield
    for name in before:
        if "cache" in name:
            jax.config.update(name, before[name])
    reset_cache()


@pytest.fixture
def folder(unconfigured, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEHTP_CACHE", str(tmp_path / "programs"))
    return tmp_path / "programs"


def fit(n=30, **options):
    X = np.random.default_rng(0).normal(size=(n, 4))
    return sht.SparseRegressor(**{"k": 1, "solver": "iht"} | options).fit(X, X[:, 1])


def compile_one(n):
    jax.jit(lambda x: n * x + 1)(np.ones(3))


def test_a_fit_keeps_its_programs_and_changes_no_setting(folder):
    before = jax.config.values
    fit()
    assert jax.config.values == before
    kept = _cache.programs(folder)
    assert kept
    compile_one(3)  # the user's own program is not ours to keep
    assert _cache.programs(folder) == kept


def test_settings_are_put_back_after_an_error(folder):
    class Failing(sht.IHT):
        def __getattribute__(self, name):
            if name == "step":
                assert jax.config.jax_compilation_cache_dir == str(folder)
                raise RuntimeError("as planned")
            return super().__getattribute__(name)

    before = jax.config.values
    with pytest.raises(RuntimeError, match="as planned"):
        fit(solver=Failing())
    assert jax.config.values == before


def test_threads_share_the_cache_and_the_last_one_puts_settings_back(folder):
    before = jax.config.values
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(fit, (30, 30)))
    assert jax.config.values == before and _cache.programs(folder)
    first, second = _cache.disk_cache(), _cache.disk_cache()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert jax.config.jax_compilation_cache_dir == str(folder)
    second.__exit__(None, None, None)
    assert jax.config.values == before


def test_what_the_user_sets_meanwhile_stays(folder, tmp_path):
    with _cache.disk_cache():
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")


@pytest.mark.parametrize("setting", ["folder", "disabled", "off"])
def test_a_cache_that_the_user_configured_is_left_alone(folder, tmp_path, monkeypatch, setting):
    if setting == "off":
        monkeypatch.setenv("SPARSEHTP_CACHE", "off")
    elif setting == "disabled":
        jax.config.update("jax_enable_compilation_cache", False)
    else:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    before = jax.config.values
    with _cache.disk_cache():
        assert jax.config.values == before
        compile_one(5)
    assert jax.config.values == before and not folder.exists()


def test_a_second_process_compiles_nothing(tmp_path):
    settings = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    settings["SPARSEHTP_CACHE"] = str(tmp_path)
    runs = [
        subprocess.run([sys.executable, "-c", SECOND], env=settings, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    (wanted, hits), (wanted_again, hits_again) = (map(int, out.split()) for out in runs)
    assert hits < wanted and hits_again == wanted_again == wanted


def test_the_least_recently_used_programs_make_room(folder, monkeypatch):
    def sizes():
        return {path: path.stat().st_size for path in _cache.programs(folder)}

    with _cache.disk_cache():
        compile_one(1)
        (first,) = sizes()
        compile_one(2)
    monkeypatch.setattr(_cache, "MAX_BYTES", 4 * max(sizes().values()))
    (second,) = sizes().keys() - {first}
    jax.clear_caches()
    with _cache.disk_cache():
        compile_one(1)  # read from the disk: now the second is the oldest
        for n in range(3, 6):
            compile_one(n)
    assert first in sizes() and second not in sizes()
    assert sum(sizes().values()) <= _cache.MAX_BYTES


def test_a_program_that_was_not_finished_is_removed(folder):
    with _cache.disk_cache():
        compile_one(1)
    whole = _cache.programs(folder)
    (folder / "jit_broken-cache").write_bytes(b"half")
    _cache._usable.cache_clear()  # as in a new process
    with _cache.disk_cache():
        compile_one(1)
    assert whole and _cache.programs(folder) == whole


def test_a_place_that_cannot_be_written_does_no_harm(folder, recwarn):
    folder.write_text("not a folder")
    with _cache.disk_cache():
        compile_one(1)
    assert not recwarn


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARSEHTP_CACHE", "OFF")
    assert _cache.folder() is None
    monkeypatch.setenv("SPARSEHTP_CACHE", "~/programs")
    assert _cache.folder() == Path.home() / "programs"
    monkeypatch.delenv("SPARSEHTP_CACHE")
    assert _cache.folder().name == "sparsehtp"


def test_info_shows_the_cache_and_empties_it(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    table = tmp_path / "table.csv"
    rows = np.random.default_rng(0).normal(size=(30, 3))
    np.savetxt(table, rows, delimiter=",", header="a,b,c", comments="")
    command = ["fit", str(table), "--target", "a", "--k", "1", "--solver", "iht", "--out", str(tmp_path / "out")]
    before = jax.config.values
    assert CliRunner().invoke(app, command).exit_code == 0
    assert jax.config.values == before
    (folder / "notes.txt").write_text("the user's")
    count = len(_cache.programs(folder))
    assert count and f"{folder}: {count} programs" in CliRunner().invoke(app, ["info"]).stdout
    assert f"{folder}: 0 programs" in CliRunner().invoke(app, ["info", "--clear-cache"]).stdout
    assert not _cache.programs(folder) and (folder / "notes.txt").exists()
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    assert "own (configured in JAX)" in CliRunner().invoke(app, ["info"]).stdout


def test_a_slow_compilation_is_announced_once(capsys, monkeypatch):
    monkeypatch.setattr(CompileNotice, "AFTER", 0.02)
    record = jax.monitoring.record_event_duration_secs
    with CompileNotice():
        record(LOWERED, 0.0)
        record(COMPILED, 0.0)
        time.sleep(0.1)
        assert capsys.readouterr().err == ""
        for _ in range(2):
            record(LOWERED, 0.0)
            time.sleep(0.1)
            record(COMPILED, 0.0)
    record(LOWERED, 0.0)
    time.sleep(0.1)
    assert capsys.readouterr().err.count("Compiling once for this shape") == 1


def test_events_of_a_real_compilation_are_known():
    """The notice listens for JAX's own names: lowered, then compiled."""
    seen = []

    def listen(event, *_, **__):
        seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        jax.jit(lambda x: 5 * x - 2)(np.ones(19))
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert [event for event in seen if event in (LOWERED, COMPILED)] == [LOWERED, COMPILED]
