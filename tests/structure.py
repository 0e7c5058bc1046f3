"""The rooms of the package, the order in which they may import each other, and a count of both.

`python tests/structure.py [FOLDER]` (`make structure`) prints the count, of another checkout's package if one is named.
"""

import ast
import functools
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "sparsehtp"

HOMES = {  # the rooms of parts, by the names of parameters that are one
    "objective": "objectives/",
    "threshold": "thresholds/",
    "solver": "solvers/",
    "step": "steps/",
    "step_rule": "steps/",
    "loss": "losses/",
    "model": "objectives/",
}
PARTS = tuple(HOMES)

# Foundations first: a room imports only from rows before its own, which the documentation calls lower.
LAYERS = (
    ("_uncollected", "_store", "_progress", "_tolerances", "_meshes"),
    ("_public", "_programs"),
    ("_types", "_threads", "io"),
    ("linalg", "_executors"),
    ("designs", "losses", "thresholds", "iteration", "datasets"),
    ("columns",),
    ("objectives",),
    ("steps", "duality", "derivatives", "_chunks", "_keep_top_k", "_save", "statistics"),
    ("screening",),
    ("solvers",),
    ("_solve", "certificates"),
    ("grids", "tuning", "_stream", "testing"),
    ("results", "stopping"),
    ("estimators",),
    ("plot",),
    ("cli",),
    ("__main__",),
)


@functools.cache
def parsed(path):
    """The syntax tree of a file, read once."""
    return ast.parse(path.read_text(encoding="utf-8"))


def rooms(package=PACKAGE):
    """The modules and folders in the package's root."""
    return sorted(
        path.stem
        for path in package.iterdir()
        if path.stem != "__init__" and (path.suffix == ".py" or (path / "__init__.py").exists())
    )


def imports(package=PACKAGE):
    """(module, importing room, imported room) of every import statement between two rooms."""
    for path in sorted(package.rglob("*.py")):
        place = (package.name, *path.relative_to(package).with_suffix("").parts)
        for node in ast.walk(parsed(path)):
            for target in _targets(node, place[:-1]):
                if target[0] == package.name and len(target) > 1 and target[1] != place[1]:
                    yield ".".join(place), place[1], target[1]


def _targets(node, folder):
    if isinstance(node, ast.Import):
        return [alias.name.split(".") for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = list(folder[: len(folder) - node.level + 1]) if node.level else []
    base += node.module.split(".") if node.module else []
    return [base] if len(base) > 1 else [[*base, alias.name] for alias in node.names]


def upward(package=PACKAGE):
    """The imports that the order of layers forbids, as sentences."""
    rank = {room: i for i, layer in enumerate(LAYERS) for room in layer}
    return [
        f"{module} imports {imported}, which is no lower layer than {importing}"
        for module, importing, imported in imports(package)
        if importing != "__init__" and rank[imported] >= rank[importing]
    ]


def in_words():
    """The order of layers as CONTRIBUTING states it."""
    return "; ".join(", ".join(layer) for layer in LAYERS)


def guesses(package=PACKAGE):
    """Where a part is asked by getattr or hasattr for what its base does not declare, as "file: code"; a part's own
    laws, in `testing`, may ask."""
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        if place.startswith("testing/"):
            continue
        for node in ast.walk(parsed(path)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("getattr", "hasattr")
            ):
                asked = ast.unparse(node.args[0]).split(".")[-1]
                if asked in PARTS:
                    yield f"{place}: {ast.unparse(node)}"


def ladders(package=PACKAGE):
    """Where a part is asked for its class, or for its kind as a string, outside of its own room and of `testing`, as
    "file: code"."""
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        for node in ast.walk(parsed(path)):
            part = _asked_for_its_class(node)
            if part and not place.startswith(("testing/", HOMES[part])):
                yield f"{place}: {ast.unparse(node)}"


def _asked_for_its_class(node):
    """The part that an expression asks so; None: it does not."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        texts = any(isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) for leaf in ast.walk(node))
        asked = [side.value for side in sides if isinstance(side, ast.Attribute) and side.attr == "kind" and texts]
    elif isinstance(node, ast.Attribute) and node.attr != "__name__" and isinstance(node.value, ast.Call):
        asked = node.value.args[:1] if ast.unparse(node.value.func) == "type" else []
    else:
        asked = node.args[:1] if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" else []
    return next((name for name in (ast.unparse(each).split(".")[-1] for each in asked) if name in HOMES), None)


def private_imports(package=PACKAGE):
    """Names with an underscore that one module takes from another, modules themselves left out."""
    modules = {path.stem for path in package.rglob("*.py")} | {path.parent.name for path in package.rglob("*.py")}
    return [
        f"{path.relative_to(package).as_posix()}: {alias.name}"
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith(package.name))
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__") and alias.name not in modules
    ]


def leaning(package=PACKAGE):
    """Docstrings that begin with "The same", "What", or a question word in capitals, as "file: docstring"."""
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                if re.match(r"The same\b|What\b|(WHAT|HOW|WHERE|WHEN|WHICH)\b", text):
                    yield f"{path.relative_to(package).as_posix()}: {text.splitlines()[0]}"


def twice(package=PACKAGE):
    """Public classes and functions that two modules define."""
    places = defaultdict(set)
    for path in package.rglob("*.py"):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    return sorted(name for name, paths in places.items() if len(paths) > 1)


def untyped(package=PACKAGE):
    """How many parameters that are named as a part are `Any`."""
    trees = [parsed(path) for path in package.rglob("*.py")]
    arguments = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.arg)]
    named = [each for each in arguments if each.arg in PARTS and each.annotation is not None]
    return sum(ast.unparse(each.annotation) == "Any" for each in named), len(named)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE
    pairs = Counter((a, b) for _, a, b in imports(folder))
    print(f"{len(rooms(folder))} rooms in the root, {len(pairs)} pairs of rooms that import, {pairs.total()} imports.")
    print(
        "{} of {} parameters that are named as a part are Any; parts are asked by getattr in".format(*untyped(folder))
    )
    print(*guesses(folder), sep="\n")
    places = Counter(each.split(":")[0] for each in ladders(folder))
    print(f"{places.total()} times a part is asked for its class outside of its room:")
    print(*(f"{place} {number}" for place, number in sorted(places.items())), sep=", ")
    print("defined twice:", *twice(folder))
