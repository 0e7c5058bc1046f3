"""What an import waits for, and that public names are found whichever is used first."""

import importlib
import subprocess
import sys

import pytest
import structure

import sparsehtp as sht

HELP = """
import sys
from sparsehtp.cli.main import app
try:
    app({arguments})
except SystemExit:
    pass
"""

EACH_FIRST = """
import importlib, sys
import sparsehtp
for module in {modules}:
    for name in [name for name in sys.modules if name.split(".")[0] == "sparsehtp"]:
        del sys.modules[name]
    importlib.import_module(module)
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported(code):
    """The modules that are there after some code, by the package."""
    out = run(f"{code}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})")
    return set(out.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["fit", "--help"], ["predict", "--help"], ["--version"]], ids=" ".join
)
def test_help_waits_for_no_library(arguments):
    libraries = {"jax", "sklearn", "pandas", "scipy", "numpy", "optax", "matplotlib"}
    assert not imported(HELP.format(arguments=arguments)) & libraries


def test_a_solve_waits_for_none_that_it_does_not_use():
    code = "import sparsehtp as sht; sht.solve, sht.LinearModel, sht.Sparsity, sht.solvers.BestSubset, sht.solvers.HTP"
    assert not imported(code) & {"sklearn", "pandas", "optax", "matplotlib"}


def test_every_room_can_come_first():
    run(EACH_FIRST.format(modules=[f"sparsehtp.{room}" for room in structure.rooms() if room != "__main__"]))


def test_public_names():
    assert len(sht.__all__) <= 60
    assert set(sht.__all__) <= set(dir(sht)) and "__version__" in dir(sht)
    for name in sht.__all__:
        value = getattr(sht, name)
        assert getattr(value, "__module__", value.__name__).startswith("sparsehtp."), name
    everything = {}
    exec("from sparsehtp import *", everything)
    assert set(sht.__all__) <= set(everything)
    assert sht.losses is importlib.import_module("sparsehtp.losses")
    with pytest.raises(AttributeError, match="no attribute 'solv'"):
        sht.solv  # noqa: B018
