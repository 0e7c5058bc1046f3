"""Shared set-up: a store of programs beside the tests, which the other workers and the next run read.

Programs that tests compile by `jax.jit` have the options that the library has for its own, which the guide tells.
"""

import gc
import itertools
import linecache
import os
import re
from pathlib import Path

import jax
import jaxtyping
import pytest
import reach
import shapes

jaxtyping.jaxtyped = shapes.jaxtyped
jaxtyping.install_import_hook(shapes.MODULES, "shapes.checked")  # before anything imports them

from sparsehtp import _programs  # noqa: E402

os.environ.setdefault(
    "SPARSEHTP_CACHE", str(Path(__file__).parent / ".programs")
)  # for processes that tests start, too
if jax.__version_info__ >= (0, 10):  # an older XLA may not know them, and ends the process
    flags = (f"--{name}={value}".lower() for name, value in _programs.CPU_OPTIONS.items())
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))
gc.set_threshold(100_000, 20, 20)  # tracing makes many objects that live: a twentieth of the time went into collections

JAX, PACKAGE = (str(Path(module.__file__).parent) for module in (jax, _programs))
FULL = (jax.lax.Precision.HIGHEST,) * 2


def work_of_full_precision(jaxpr, counted=_programs.expected_work):
    """As the library counts it, of each program it compiles: its products have the full precision of their numbers.
    A GPU's usual one is that of ten bits, which no number on a CPU would tell."""
    for each in jaxpr.eqns:
        if each.primitive.name == "dot_general" and each.params["precision"] != FULL:
            by = next(frame for frame in each.source_info.traceback.frames if not frame.file_name.startswith(JAX))
            # The line where a closed function of a user's is run has no product.
            line = linecache.getline(by.file_name, by.line_num)
            ours = by.file_name.startswith(PACKAGE) and re.search("@|dot|matmul|einsum", line)
            assert not ours, f"a product with the usual precision: {by.file_name}, line {by.line_num}: {line}"
    return counted(jaxpr)


_programs.expected_work = work_of_full_precision

DONE = itertools.count(1)
MOST_MAPS = 30_000  # of the 65,530 that Linux allows a process


LISTS = {
    mark: frozenset((Path(__file__).parent / f"{mark}.txt").read_text(encoding="utf-8").splitlines())
    for mark in ("later", "slow")
}


COLLECTED = set()
CHANGED = pytest.StashKey()


def pytest_configure(config):
    """Where `make test` leaves tests out, those that run what was changed do not wait."""
    some = "not later" in config.getoption("markexpr")
    config.stash[CHANGED] = frozenset(reach.due(reach.changed()) if some else ())


def pytest_report_header(config):
    number = len(config.stash[CHANGED])
    return f"with {number} tests that it else leaves out, which run what was changed" if number else []


def pytest_collection_modifyitems(config, items):
    for item in items:
        COLLECTED.add(item.nodeid)
        for mark, names in LISTS.items():
            if item.nodeid in names or item.nodeid.split("[")[0] in names:
                item.add_marker(mark)
        if item.nodeid in config.stash[CHANGED]:
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name not in LISTS]
    if all(device.platform == "cpu" for device in jax.devices()):
        skip = pytest.mark.skip(reason="JAX sees no GPU")
        for item in items:
            if item.get_closest_marker("gpu"):  # keywords hold the names of folders too
                item.add_marker(skip)


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """Drop compiled programs after every file: thousands of them exhaust a process's memory maps, and it crashes."""
    yield
    _programs.clear()


@pytest.fixture(autouse=True)
def not_too_many_programs():
    """The same within a file, where maps are counted."""
    yield
    maps = Path("/proc/self/maps")
    if next(DONE) % 10 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        _programs.clear()


@pytest.fixture(autouse=True)
def stored_as_written(request):
    """A test that patches what is traced keeps its programs to itself."""
    if "monkeypatch" in request.fixturenames:
        request.getfixturevalue("monkeypatch").setenv("SPARSEHTP_CACHE", "off")


@pytest.fixture
def x64():
    """Run the test in double precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def collected():
    """The names of all tests of this run, those included that a mark leaves out."""
    return COLLECTED


@pytest.fixture(scope="session")
def data_folder():
    """The folder of real data sets: the environment variable SPARSEHTP_DATA, or shared/data beside the project."""
    folder = Path(os.environ.get("SPARSEHTP_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "reference_solutions.json").exists():
        pytest.skip("the folder of real data sets is absent; set SPARSEHTP_DATA")
    return folder
