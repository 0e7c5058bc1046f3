"""What a system may lack, or refuse: each absence is faked, and the library goes on or says what to do."""

import ast
import os
import platform
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path

import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp import _executors, _programs, _store, io
from sparsehtp.certificates import tree
from sparsehtp.cli.files import as_text, write_files
from sparsehtp.datasets import download, published
from sparsehtp.io import memory, npy

PACKAGE = Path(sht.__file__).parent
# Of the standard library, what no other system than Unix has, and the work that its processes do.
ELSEWHERE = {"fcntl", "grp", "multiprocessing", "posix", "pty", "pwd", "resource", "subprocess", "termios"}
CALLS = {"fork", "geteuid", "getuid", "getpgid", "kill", "killpg", "mkfifo", "posix_fadvise", "sched_getaffinity"}
CALLS |= {"setsid", "statvfs", "sysconf", "uname"}
GUARDED = {
    ("_store.py", "getuid"): "test_nobody_owns_a_folder",
    ("datasets/download.py", "fcntl"): "test_folders_are_not_locked",
    ("io/memory.py", "resource"): "test_nothing_says_how_much_memory_is_free",
    ("io/memory.py", "sysconf"): "test_nothing_says_how_much_memory_is_free",
}


def unix_alone():
    """(file, name) of what the package uses that some system lacks."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            called = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os" and node.attr in CALLS
            for name in {*ELSEWHERE.intersection(names), *([node.attr] if called else [])}:
                yield path.relative_to(PACKAGE).as_posix(), name


def test_what_only_unix_has_is_guarded_and_no_process_is_started():
    assert set(unix_alone()) == GUARDED.keys()
    assert set(GUARDED.values()) <= globals().keys()


def test_nobody_owns_a_folder(monkeypatch, tmp_path):
    """As on Windows, where rights have no bits."""
    monkeypatch.delattr(os, "getuid", raising=False)
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs").chmod(0o777)
    with warnings.catch_warnings(action="error"):
        assert _store._ours(tmp_path / "programs")


def test_folders_are_not_locked(monkeypatch, tmp_path):
    monkeypatch.setattr(download, "fcntl", None)
    with download.locked(tmp_path), download.locked(tmp_path):
        pass


def test_nothing_says_how_much_memory_is_free(monkeypatch):
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_: "max")
    monkeypatch.setitem(sys.modules, "resource", None)  # import fails
    assert memory.available() == 2**33


def test_a_sandbox_says_nothing_of_its_limit_of_maps(monkeypatch, tmp_path):
    maps = tmp_path / "maps"
    monkeypatch.setattr(_programs, "MAPS", maps)
    monkeypatch.setattr(_programs, "MOST_MAPS", tmp_path / "absent")
    for count, crowded in ((100, False), (30_000, True)):
        maps.write_text("map\n" * count)
        assert _programs._crowded() is crowded


def test_a_processor_says_nothing_of_itself(monkeypatch, tmp_path):
    """Programs then stay with the computer that compiled them."""
    monkeypatch.setattr(_store, "CPU", tmp_path / "absent")
    assert platform.node() in _store._processor()


def test_a_user_without_a_home(monkeypatch):
    """No folder named "~" is made."""
    for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME", "SPARSEHTP_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where the system knows no such user
    assert _store.folder() is None
    with pytest.raises(ValueError, match=r"^cache: this user has no home folder; name one .*\.$"):
        published._cache(None)


def test_the_interrupt_belongs_to_a_program_that_holds_python(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    try:
        with tree._interrupts() as asked:
            signal.raise_signal(signal.SIGINT)
            assert asked()
    finally:
        signal.signal(signal.SIGINT, before)


def test_threads_leave_interrupts_alone():
    def asked():
        with tree._interrupts() as asked:
            return asked()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asked).result() is False


def refuse(*_):
    raise PermissionError(13, "The process cannot access the file because it is being used by another process")


def test_a_file_that_is_open_elsewhere_is_not_replaced(monkeypatch, tmp_path):
    """As on Windows: what was there stays, nothing is left beside it, and programs are kept in memory alone."""
    for name in ("result.json", "state.npz"):
        (tmp_path / name).write_text("old")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        io.write_whole(tmp_path / "state.npz", lambda file: file.write(b"new"))
    with pytest.raises(PermissionError):
        write_files(tmp_path, {"result.json": as_text("new")})
    monkeypatch.setattr(_store, "serialize", lambda _: b"")
    _store.write(tmp_path / f"a{_store.SUFFIX}", None, _store.jax.tree.structure(0))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"result.json": "old", "state.npz": "old"}


def test_what_is_renamed_is_on_the_disk(monkeypatch, tmp_path):
    """All that was written is handed to the system before it is told to keep it, and kept before the name is taken."""
    steps, replace = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda file: steps.append(os.fstat(file).st_size))
    monkeypatch.setattr(os, "replace", lambda *names: steps.append("named") or replace(*names))
    io.write_whole(tmp_path / "state.npz", lambda file: file.write(b"new"))
    assert steps == [3, "named"] and (tmp_path / "state.npz").read_bytes() == b"new"


def test_a_link_to_nothing_is_no_folder_to_be(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(OSError, match=r"since .*link is not a folder"):
        io.check_output(tmp_path / "link" / "deeper")
    io.check_output(tmp_path / "new" / "deeper")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_disk_that_cannot_be_mapped(monkeypatch, tmp_path):
    def fail(*_, **__):
        raise OSError(19, "No such device")

    np.save(tmp_path / "a.npy", np.ones(3))
    monkeypatch.setattr(np.lib.format, "open_memmap", fail)
    with pytest.raises(OSError, match=r"^path: .* cannot be mapped into memory \(No such device\); copy it .*\.$"):
        npy.map_npy(tmp_path / "a.npy")


@pytest.mark.skipif("fork" not in get_all_start_methods(), reason="no process is forked here")
def test_forked_processes_are_refused():
    """They hang, as JAX has threads."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        with pytest.raises(ValueError, match=r"^executor: its processes are forked, .*spawn.*\.$"):
            list(_executors.in_order(pool, abs, [(1,)]))


def test_processors_cannot_be_counted(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    with ThreadPoolExecutor(1) as pool:
        assert list(_executors.in_order(pool, abs, [(-1,), (2,)])) == [1, 2]


def test_a_terminal_that_lacks_characters(tmp_path):
    """As Windows' pipes: a feature's name in another script takes no answer away."""
    code = (
        "import typer; from sparsehtp.cli.main import app; app.command()(lambda: typer.echo('価格')); app(['<lambda>'])"
    )
    settings = os.environ | {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=settings)
    assert done.returncode == 0 and done.stdout.split() == [rb"\u4fa1\u683c"], done.stderr
