"""Tests of the wheel, as it is installed from an archive into an environment of its own.

`python tests/installed.py [--oldest] [TEST ...]` (`make test-wheel`, `make test-oldest`) builds the source archive, and
the wheel from that; the tests are those of the archive, beside which there is no package but the installed one.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("cli", "parquet", "plot")
TOOLS = ("beartype", "chex", "hypothesis", "pytest", "statsmodels")
NAMES = "test_imports test_save test_store test_systems cli/test_cli contracts/test_losses datasets/test_files"
TESTS = [f"tests/{name}.py" for name in f"{NAMES} estimators/test_regressor path/test_executors".split()]


def least():
    """The least versions that pyproject.toml allows, as constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *(each for extra in EXTRAS for each in project["optional-dependencies"][extra])]
    return [f"{name}=={version}" for name, version in re.findall(r"([\w-]+)>=([\d.]+)", " ".join(needed))]


def main(tests, oldest):
    """The exit code of the tests."""
    home = ROOT / "build" / ("oldest" if oldest else "wheel")
    venv.create(home, clear=True, with_pip=True)
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    python, limits = home / ("Scripts" if sys.platform == "win32" else "bin") / "python", home / "least.txt"
    limits.write_text("\n".join(least() if oldest else []))

    def run(*command, **options):
        return subprocess.run([str(part) for part in (python, *command)], check=True, cwd=home, env=alone, **options)

    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    run(*pip, "build")
    run("-m", "build", "--outdir", home / "dist", ROOT, stdout=subprocess.DEVNULL)
    (archive,), (wheel,) = (home / "dist").glob("*.tar.gz"), (home / "dist").glob("*.whl")
    with tarfile.open(archive) as content:
        content.extractall(home, filter="data")
    source = home / archive.name.removesuffix(".tar.gz")
    shutil.rmtree(source / "sparsehtp")
    run(*pip, f"{wheel}[{','.join(EXTRAS)}]", *TOOLS, "--constraint", limits)
    options = ("-m", "not slow and not later", "-p", "no:cacheprovider")
    code = subprocess.run([python, "-P", "-m", "pytest", *options, *tests], cwd=source, env=alone).returncode
    shutil.rmtree(source)
    return code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", default=TESTS, metavar="TEST")
    parser.add_argument("--oldest", action="store_true", help="with the least versions that are allowed")
    sys.exit(main(**vars(parser.parse_args())))
