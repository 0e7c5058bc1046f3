"""Compiled programs on disk: what is stored and by what name, who may read it, and what failures leave behind."""

import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import sparsehtp as sht
from sparsehtp import _programs, _store
from sparsehtp.cli.common import CompileNotice, computing
from sparsehtp.cli.main import app
from sparsehtp.losses import deviance
from sparsehtp.steps import ScheduleStep, inverse_sqrt

LOWERED, COMPILED = (f"/jax/core/compile/{name}_duration" for name in ("jaxpr_to_mlir_module", "backend_compile"))

FIT = """
import collections, jax, numpy as np, sparsehtp as sht
events = collections.Counter()
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.update([event.rsplit("/")[-1]]))
X = np.random.default_rng(0).normal(size=(30, 4))
model = sht.SparseRegressor(k=2, solver="htp").fit(X, X[:, 1] + X[:, 3])  # factorises, by LAPACK
print(model.coef_.tobytes().hex())
print([events[f"{name}_duration"] for name in ("jaxpr_trace", "jaxpr_to_mlir_module", "backend_compile")])
"""


def forget():
    """Nothing is compiled any more, as in a new process."""
    for each in _programs._programs:
        each.clear_cache()
    _store._ours.cache_clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEHTP_CACHE", str(tmp_path / "programs"))
    theirs = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", None)
    forget()
    yield tmp_path / "programs"
    jax.config.update("jax_compilation_cache_dir", theirs)
    forget()


def process(code, folder, **options):
    settings = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    settings |= {"SPARSEHTP_CACHE": str(folder)} | {name: str(value) for name, value in options.items()}
    return subprocess.Popen([sys.executable, "-c", code], env=settings, stdout=-1, stderr=-1, text=True)


def said(run):
    out, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors
    return out.splitlines()


def fit(n=30, **options):
    X = np.random.default_rng(0).normal(size=(n, 4))
    return sht.SparseRegressor(**{"k": 1, "solver": "iht"} | options).fit(X, X[:, 1])


def small(n=3, loss=None, dtype=np.float32, array=np.ones):
    """One small program of the library."""
    return np.asarray(deviance._mean(sht.losses.Logistic() if loss is None else loss, array(n, dtype)))


def test_every_program_of_the_package_has_a_name():
    for module in pkgutil.walk_packages(sht.__path__, "sparsehtp."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    own = [each for each in _programs._programs if each.__module__.startswith("sparsehtp.")]
    assert len(own) > 50
    for each in own:
        assert _store.describe(each.__wrapped__) == f"{each.__module__}.{each.__qualname__}"


def stored(function):
    """The files that a call adds."""
    before = set(_store.programs(_store.folder()))
    function()
    return set(_store.programs(_store.folder())) - before


def test_another_process_traces_lowers_and_compiles_nothing(tmp_path):
    """The first two write at once."""
    runs = [process(FIT, tmp_path, PYTHONHASHSEED=seed) for seed in (1, 2)]
    (first, counts), (second, _) = map(said, runs)
    assert "0" not in counts.strip("[]").split(", ")
    assert not list(tmp_path.glob("*.part"))
    assert first == second
    assert said(process(FIT, tmp_path, PYTHONHASHSEED=3)) == [first, "[0, 0, 0]"]


class OwnLoss(sht.losses.Squared):
    """A loss of a user's: another process may give its name to something else."""


def test_a_name_says_all_that_a_program_depends_on(folder):
    calls = {"usual": small, "length": lambda: small(4), "array of JAX": lambda: small(array=jnp.ones)}
    calls["loss"] = lambda: small(loss=sht.losses.Poisson())
    with jax.enable_x64(True):
        calls["dtype"] = lambda: small(dtype=np.float64)
        assert len(stored(calls.pop("dtype"))) == 1
        assert len(stored(small)) == 1  # another program, since its constants may be float64
    for name, call in calls.items():
        assert len(stored(call)) == 1, name
        forget()
        assert not stored(call), name
    forget()
    assert not stored(lambda: small(array=np.zeros)), "numbers are no part of it"
    np.testing.assert_array_equal(small(array=np.zeros), 0.5)
    with jax.default_matmul_precision("highest"):
        assert len(stored(small)) == 1
    assert len({_store.place(deviance._mean, {}, {"k": k}, settings) for k in (1, 2) for settings in ("a", "b")}) == 4


def local(t):
    return 1.0 / (1.0 + t)


NAMELESS = {"loss": OwnLoss(), "class": OwnLoss, "function": local, "lambda": lambda t: t, "object": object()}
NAMELESS |= {"part": sht.solvers.IHT(ScheduleStep(local)), "nested": [{"a": (local,)}], "set": {local}}


@pytest.mark.parametrize("value", NAMELESS.values(), ids=NAMELESS)
def test_what_has_no_lasting_name_is_not_stored(value):
    with pytest.raises(_store.NamelessError):
        _store.describe(value)


HTP, IHT, Search = sht.solvers.HTP, sht.solvers.IHT, sht.solvers.BestSubset
STATIC = {
    "plain": [1, 1.0, True, "1", b"1", None, (1,), [1], {1}, {"1": 1}],
    "parts": [HTP(), IHT(), HTP, IHT(ScheduleStep(inverse_sqrt)), Search(), Search("fast")],
    "arrays": [np.arange(3), np.arange(3.0), np.array([[0, 1, 2]]), np.array([0, 1, 3])],
}


@pytest.mark.parametrize("values", STATIC.values(), ids=STATIC)
def test_static_values_have_texts_of_their_own(values):
    texts = [_store.describe(value) for value in values]
    assert len(set(texts)) == len(texts) and not any(" at 0x" in text for text in texts)


def test_a_users_own_program_and_settings_are_left_alone(folder):
    before = jax.config.values
    assert stored(fit)
    assert jax.config.values == before
    assert not stored(lambda: jax.jit(lambda x: 3 * x + 1)(np.ones(3)))


@pytest.mark.parametrize("reason", ["a loss of the user's", "off", "JAX keeps programs itself"])
def test_nothing_is_stored(folder, tmp_path, monkeypatch, reason):
    """An executable that JAX read from its own cache cannot be run once it is written and read again."""
    if reason == "off":
        monkeypatch.setenv("SPARSEHTP_CACHE", "off")
    if reason.startswith("JAX"):
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    np.testing.assert_array_equal(small(loss=OwnLoss() if reason.startswith("a loss") else sht.losses.Squared()), 1)
    assert not _store.programs(folder)


def test_the_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("SPARSEHTP_CACHE", "OFF")
    assert _store.folder() is None
    monkeypatch.setenv("SPARSEHTP_CACHE", "~/programs")
    assert _store.folder() == Path.home() / "programs"
    monkeypatch.delenv("SPARSEHTP_CACHE")
    assert _store.folder().name == "sparsehtp"


def test_the_folder_is_the_users_alone(folder):
    small()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in _store.programs(folder)} == {0o600}


@pytest.mark.parametrize("harm", ["writable", "another user's"])
def test_a_folder_that_others_can_write_to_is_refused_in_a_sentence(folder, monkeypatch, harm):
    folder.mkdir()
    if harm == "writable":
        folder.chmod(0o770)
    else:
        folder.chmod(0o755)
        monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.warns(UserWarning, match="belongs to another user or can be written by others.*chmod 700"):
        small()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        small(4)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("place", ["under a file", "in /proc"])
def test_a_place_that_cannot_be_written_does_no_harm(folder, tmp_path, monkeypatch, recwarn, place):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SPARSEHTP_CACHE", str(tmp_path / "file" / "x") if place == "under a file" else "/proc/x")
    small()
    assert not recwarn


def test_a_file_that_was_cut_or_changed_counts_as_absent(folder):
    (path,) = stored(small)
    whole, answer = path.read_bytes(), small()
    cuts = [whole[: len(whole) * part // 10] for part in range(10)]
    rng = np.random.default_rng(0)
    for _ in range(10):
        place = rng.integers(len(whole))
        cuts.append(whole[:place] + bytes([whole[place] ^ 1 << rng.integers(8)]) + whole[place + 1 :])
    for content in cuts:
        path.write_bytes(content)
        assert _store.read(path) is None
    forget()
    np.testing.assert_array_equal(small(), answer)
    assert _store.read(path) is not None  # it was written again


KILLED = """
import os, signal
import numpy as np
from sparsehtp.losses import deviance, Logistic
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
deviance._mean(Logistic(), np.ones(3, np.float32))
"""


def test_a_killed_writer_leaves_nothing_that_is_read_and_its_rest_is_removed(folder):
    run = process(KILLED, folder)
    run.communicate(timeout=300)
    assert run.returncode == -signal.SIGKILL
    (part,) = folder.iterdir()
    assert part.suffix == ".part"
    small(5)
    assert part.exists()  # somebody may be writing it
    os.utime(part, (0, 0))
    small(6)
    assert not part.exists() and len(_store.programs(folder)) == 2


FULL = """
import resource
import numpy as np
from sparsehtp.losses import deviance, Logistic
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
print(deviance._mean(Logistic(), np.zeros(3, np.float32)))
"""


def test_a_full_disk_does_no_harm(folder):
    """A limit on the size of files stands for it: the write fails in the middle."""
    assert said(process(FULL, folder)) == ["[0.5 0.5 0.5]"]
    assert not list(folder.iterdir())


def test_the_least_recently_used_programs_make_room(folder, monkeypatch):
    (first,), (second,) = stored(small), stored(lambda: small(4))
    for age, path in ((200, first), (100, second)):
        os.utime(path, (time.time() - age,) * 2)
    monkeypatch.setattr(_store, "MAX_BYTES", int(2.9 * max(first.stat().st_size, second.stat().st_size)))
    forget()
    small()  # read: now the second is the oldest
    small(5)
    assert first.exists() and not second.exists() and len(_store.programs(folder)) == 2


def test_loaded_programs_count_as_compiled_ones(folder):
    small()
    forget()
    before = _programs._Compiled.since_drop
    small()
    assert _programs._Compiled.since_drop == before + 1


def test_threads_share_the_programs(folder):
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(fit, (30, 30))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert not list(folder.glob("*.part"))


def test_info_shows_the_cache_and_empties_it(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    small()
    (folder / "notes.txt").write_text("the user's")
    count = len(_store.programs(folder))
    assert count and f"{folder}: {count} programs" in CliRunner().invoke(app, ["info"]).stdout
    assert f"{folder}: 0 programs" in CliRunner().invoke(app, ["info", "--clear-cache"]).stdout
    assert not _store.programs(folder) and (folder / "notes.txt").exists()
    monkeypatch.setenv("SPARSEHTP_CACHE", "off")
    assert "off (by SPARSEHTP_CACHE)" in CliRunner().invoke(app, ["info"]).stdout


def test_a_slow_compilation_is_announced_once(capsys, monkeypatch):
    assert 1 < CompileNotice.AFTER < 4  # seconds
    monkeypatch.setattr(CompileNotice, "AFTER", 0.02)
    record = jax.monitoring.record_event_duration_secs
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with computing():  # nobody looks
        record(LOWERED, 0.0)
        time.sleep(0.1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with computing():
        record(LOWERED, 0.0)
        record(LOWERED, 0.0)  # the one before it is done
        record(COMPILED, 0.0)
        time.sleep(0.1)
        assert capsys.readouterr().err == ""
        for _ in range(2):
            record(LOWERED, 0.0)
            time.sleep(0.1)
            record(COMPILED, 0.0)
    with CompileNotice() as notice:
        record(LOWERED, 0.0)  # what is under way at the end is not announced, nor what comes later
        assert notice._timer.daemon  # the end of a program does not wait for it
    time.sleep(0.1)
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
