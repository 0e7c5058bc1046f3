"""Tests that wait for CI and run what was changed: `make test` takes these too.

`reach.json.gz` names for every function of the package the tests of `later.txt` that run it, cheap and close ones
first; `python -m tests.mutants --measure --tests later` writes it.
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
SECONDS = 300  # of CPU, for all that was changed together: less than three minutes of `make test`


def function_at(tree, line):
    """The dotted name of the innermost function or class around a line; "" for none."""
    names = []
    while tree:
        tree = next((part for part in ast.iter_child_nodes(tree) if spans(part, line)), None)
        if isinstance(tree, ast.FunctionDef | ast.ClassDef):
            names.append(tree.name)
    return ".".join(names)


def spans(node, line):
    return getattr(node, "lineno", line + 1) <= line <= node.end_lineno


def changed(root=ROOT):
    """`path:function` of what differs from `origin/main` in the package, or from the last commit; empty without git."""

    def git(*words):
        if not shutil.which("git"):
            return ""
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    start = git("merge-base", "HEAD", "origin/main") or "HEAD"
    found = set()
    for part in git("diff", "-U0", "--no-renames", "--relative", start, "--", "sparsehtp").split("\n+++ b/")[1:]:
        path = part.split("\n")[0]
        tree = ast.parse((root / path).read_text(encoding="utf-8"))
        for first, number in re.findall(r"^@@ .*\+(\d+)(?:,(\d+))? @@", part, re.MULTILINE):
            lines = range(int(first), int(first) + max(1, int(number or 1)))
            found |= {f"{path}:{function_at(tree, line)}" for line in lines}
    return sorted(found)


def in_time(order, tests):
    """The first of an order that together take no more than `SECONDS`; one that would take more is passed over."""
    taken, left = [], SECONDS
    for i in dict.fromkeys(order):
        if tests[i][1] <= left:
            taken.append(i)
            left -= tests[i][1]
    return taken


def due(names):
    """The tests that run these functions: of each its closest one, of each the next, and so on."""
    kept = json.loads(gzip.decompress(KEPT.read_bytes())) if names and KEPT.exists() else {"tests": [], "run": {}}
    lists = []
    for name in names:
        path, function = name.split(":")
        run = kept["run"].get(path, {})
        inner = [other for other in run if other.startswith(f"{function}.".lstrip("."))]
        lists += [run[other] for other in ([function] if function in run else inner or run)]
    turns = itertools.chain(*itertools.zip_longest(*lists))
    return [kept["tests"][i][0] for i in in_time((i for i in turns if i is not None), kept["tests"])]


def keep(rows):
    """Write `reach.json.gz` from rows of a test, its seconds and what it ran.

    A test's other parameters come after all other tests. Of a file only the first test that needs a compiled function
    is seen to run it: the others of the file come last.
    """
    tests = [(row["test"], round(row["seconds"], 1)) for row in rows]
    ran = {}
    for i, row in enumerate(rows):
        for name in row["functions"]:
            ran.setdefault(name, set()).add(i)
    modules = collections.Counter((i, name.split(":")[0]) for name in ran for i in ran[name])
    run = {}
    for name in sorted(ran):
        path, function = name.split(":")
        files = {tests[i][0].split("::")[0] for i in ran[name]}
        order = [i for i, (test, _) in enumerate(tests) if test.split("::")[0] in files]
        order.sort(key=lambda i: tests[i][1] / max(1, modules[i, path]))
        count, place = collections.Counter(), {}
        for i in order:
            test = tests[i][0].split("[")[0]
            place[i] = (i not in ran[name], count[test])
            count[test] += 1
        order.sort(key=place.get)
        run.setdefault(path, {})[function] = in_time(order, tests)
    KEPT.write_bytes(gzip.compress(json.dumps({"tests": tests, "run": run}, separators=(",", ":")).encode(), mtime=0))
