"""A wheel is built, and works in an environment of its own."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import sparsehtp as sht

ROOT = Path(__file__).parents[1]


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_works_in_an_environment_of_its_own(tmp_path):
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    source = tmp_path / "source"
    run("git", "clone", "-q", ROOT, source)
    run(*pip, "wheel", "-q", "--no-deps", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    env = tmp_path / "env"
    run(sys.executable, "-m", "venv", "--without-pip", env)
    python, site = env / "bin" / "python", Path(run(env / "bin" / "python", "-c", PURELIB).strip())
    run(*pip, "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    # The dependencies are those of this environment, without its own copy of the package.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    found = json.loads(run(python, "-c", FACTS, cwd=tmp_path))
    assert found == [str(site), sorted(sht.__all__), sht.__version__, 0]
    assert sht.__version__ in run(env / "bin" / "sparsehtp", "--version", cwd=tmp_path)
    assert sht.__version__ in run(python, "-m", "sparsehtp", "--version", cwd=tmp_path)
    assert (site / "sparsehtp" / "cli" / "report.html").exists()
    assert "tight-fig1" in run(python, "-m", "sparsehtp", "reproduce", "--list", cwd=tmp_path)


PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"
FACTS = """
import json, pathlib, sparsehtp as sht
from sparsehtp.experiments import read_config
where = str(pathlib.Path(sht.__file__).parents[1])
print(json.dumps([where, sorted(sht.__all__), sht.__version__, read_config("tight-fig1")["settings"]["seed"]]))
"""
