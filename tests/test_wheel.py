"""A wheel is built, holds the library alone, and works in an environment of its own."""

import itertools
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import structure

import sparsehtp as sht

ROOT = Path(__file__).parents[1]


def run(*command, **options):
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # the wheel's own package
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=alone, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_works_in_an_environment_of_its_own(tmp_path):
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    source = tmp_path / "source"
    run("git", "clone", "-q", ROOT, source)
    run(*pip, "wheel", "-q", "--no-deps", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    files = [Path(name) for name in zipfile.ZipFile(wheel).namelist()]
    assert {file.parts[0] for file in files} == {"sparsehtp", f"sparsehtp-{sht.__version__}.dist-info"}
    rooms = {Path(file.parts[1]).stem for file in files if file.parts[0] == "sparsehtp"}
    assert rooms == {"__init__", "py", *itertools.chain(*structure.LAYERS)}  # py.typed
    env = tmp_path / "env"
    run(sys.executable, "-m", "venv", "--without-pip", env)
    python, site = env / "bin" / "python", Path(run(env / "bin" / "python", "-c", PURELIB).strip())
    run(*pip, "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    # The dependencies are those of this environment, without its own copy of the package.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    found = json.loads(run(python, "-c", FACTS, cwd=tmp_path))
    assert found == [str(site), sorted(sht.__all__), sht.__version__]
    assert sht.__version__ in run(env / "bin" / "sparsehtp", "--version", cwd=tmp_path)
    assert sht.__version__ in run(python, "-m", "sparsehtp", "--version", cwd=tmp_path)
    assert (site / "sparsehtp" / "cli" / "report.html").exists()


PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"
FACTS = """
import json, pathlib, sparsehtp as sht
print(json.dumps([str(pathlib.Path(sht.__file__).parents[1]), sorted(sht.__all__), sht.__version__]))
"""
