"""Only public names of JAX, and none that is deprecated, so that newer versions of JAX keep working."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparsehtp as sht

PACKAGE = Path(sht.__file__).parent

SOLVE = """
import importlib, pkgutil, sparsehtp as sht
for module in pkgutil.walk_packages(sht.__path__, "sparsehtp."):
    importlib.import_module(module.name)
X = [[1.0, 0.0, 2.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0], [2.0, 1.0, 1.0]]
support = sht.solve(sht.LinearModel(X, [1.0, 0.0, 1.0, 2.0]), sht.Sparsity(1), sht.solvers.HTP()).support
print(support.idx[support.mask])
"""


def test_the_package_uses_no_deprecated_name():
    flags = [f"-Werror::{kind}" for kind in ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning")]
    run = subprocess.run([sys.executable, *flags, "-c", SOLVE], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[0]"


PRIVATE = re.compile(r"\b(?:jax|jaxlib|jnp|lax)(?:\.\w+)*\._(?!_)|^ *from jax\S* import .*\b_(?!_)", re.M)


def test_the_package_uses_no_private_name():
    assert [path.name for path in PACKAGE.rglob("*.py") if PRIVATE.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "source",
    ["from jax._src import core", "import jax._src.core as c", "import jax\njax._src.core", "import jaxlib._jax"],
)
def test_a_private_name_is_seen(source):
    assert PRIVATE.search(source)
