"""Tests that `make test` leaves out and that run what was changed: it takes these too.

`reach.json.gz` says which functions of the package each of those of `later.txt` and `slow.txt` runs;
`python -m tests.mutants --measure --tests waiting` writes it.
"""

import ast
import collections
import gzip
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = Path(__file__).with_suffix(".json.gz")
SECONDS = 300  # of CPU, as they were measured, for all that was changed together


def function_at(tree, line):
    """The dotted name of the innermost function or class around a line; "" for none."""
    names = []
    while tree:
        inner = (part for part in ast.iter_child_nodes(tree) if hasattr(part, "lineno"))
        tree = next((part for part in inner if part.lineno <= line <= part.end_lineno), None)
        if isinstance(tree, ast.FunctionDef | ast.ClassDef):
            names.append(tree.name)
    return ".".join(names)


def changed(root=ROOT):
    """`path:function` of what differs from `origin/main` in the package, or from the last commit; empty without git."""

    def git(*words):
        if not shutil.which("git"):
            return ""
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    start = git("merge-base", "HEAD", "origin/main") or "HEAD"
    # Whatever the user's own settings are; files that are gone hold no function.
    options = ["-U0", "--no-renames", "--no-color", "--no-ext-diff", "--dst-prefix=b/", "--diff-filter=d", "--relative"]
    found = set()
    for part in git("diff", *options, start, "--", "sparsehtp/*.py").split("\n+++ b/")[1:]:
        path = part.split("\n")[0]
        tree = ast.parse((root / path).read_text(encoding="utf-8"))
        for first, number in re.findall(r"^@@ .*\+(\d+)(?:,(\d+))? @@", part, re.MULTILINE):
            lines = range(int(first), int(first) + max(1, int(number or 1)))
            found |= {f"{path}:{function_at(tree, line)}" for line in lines}
    return sorted(found)


def load():
    """{test: (seconds, functions)} of what was measured."""
    if not KEPT.exists():
        return {}
    kept = json.loads(gzip.decompress(KEPT.read_bytes()))
    names = kept["functions"]
    return {test: (s, {*itertools.compress(names, map(int, ran))}) for test, (s, ran) in kept["tests"].items()}


def keep(rows):
    """Write what rows say of tests, {test, seconds, functions}, beside what is known of others."""
    tests = load() | {row["test"]: (round(row["seconds"], 1), set(row["functions"])) for row in rows}
    tests = {test: tests[test] for test in sorted(tests)}
    names = sorted({name for _, ran in tests.values() for name in ran})
    tests = {
        test: (seconds, "".join(str(int(name in ran)) for name in names)) for test, (seconds, ran) in tests.items()
    }
    KEPT.write_bytes(gzip.compress(json.dumps({"functions": names, "tests": tests}).encode(), mtime=0))


def closest(name, tests):
    """The tests that run a function, in the order in which they are taken.

    Those of files that are named after its module, then cheap ones for how much of the module they run; a test's other
    parameters after all other tests. Of a file only the first test that needs a compiled function is seen to run it:
    the others of the file come last.
    """
    ran = {test for test, (_, functions) in tests.items() if name in functions}
    files = {test.split("::")[0] for test in ran}
    module = name.split(":")[0] + ":"
    stem = Path(module).stem

    def price(test):
        seconds, functions = tests[test]
        return seconds / max(1, sum(other.startswith(module) for other in functions))

    count, place = collections.Counter(), {}
    for test in sorted((test for test in tests if test.split("::")[0] in files), key=price):
        function = test.split("[")[0]
        place[test] = (test not in ran, stem not in test.split("::")[0], count[function])
        count[function] += 1
    return sorted(place, key=place.get)


def within(names, tests, seconds):
    """The tests closest to each function, then the next, ..., that together take no more than so many seconds."""
    lists, taken = [closest(name, tests) for name in names], []
    for test in dict.fromkeys(itertools.chain(*itertools.zip_longest(*lists))):
        if test is not None and tests[test][0] <= seconds:
            taken.append(test)
            seconds -= tests[test][0]
    return taken


def due(names):
    """The tests of those that wait which are closest to these functions, for as long as `SECONDS`."""
    tests = load() if names else {}
    known = {name for _, ran in tests.values() for name in ran}
    reached = []
    for name in names:
        module = name.split(":")[0] + ":"
        inner = {other for other in known if other.startswith(name if name == module else f"{name}.")}
        reached += sorted({name} & known or inner or {other for other in known if other.startswith(module)})
    return within(reached, tests, SECONDS)
