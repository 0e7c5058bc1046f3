"""Only public names of JAX, and none that is deprecated, so that newer versions of JAX keep working."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sparsehtp as sht

PACKAGE = Path(sht.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))

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


def dotted(node):
    """The names of a chain of attributes, or nothing if it does not begin with a name."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def private_names(source):
    """Names of JAX in a source that begin with an underscore."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    imports = [node for node in nodes if isinstance(node, ast.Import)]
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    names = {alias.asname or alias.name.split(".")[0]: alias.name for node in imports for alias in node.names}
    names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in froms for alias in node.names}
    chains = [dotted(node) for node in nodes if isinstance(node, ast.Attribute)]
    used = [*names.values(), *(".".join([names.get(chain[0], ""), *chain[1:]]) for chain in chains if chain)]
    return [
        name
        for name in used
        if name.split(".")[0] in ("jax", "jaxlib") and any(p[0] == "_" and p[-2:] != "__" for p in name.split("."))
    ]


def test_the_package_uses_no_private_name():
    assert {
        str(path.relative_to(PACKAGE)): found for path in SOURCES if (found := private_names(path.read_text()))
    } == {}


@pytest.mark.parametrize(
    "source",
    ["from jax._src import core", "import jax._src.core as c", "import jax\njax._src.core", "import jaxlib._jax"],
)
def test_a_private_name_is_seen(source):
    assert private_names(source)
