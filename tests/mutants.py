"""Small wrong changes of the package, drawn at random, and whether `make test` notices them.

`python -m tests.mutants --measure` runs the quick tests once and keeps which functions each runs, and for how long;
with `--tests waiting` those that it leaves out, for `reach.py`, all or those of the files that are named.
`python -m tests.mutants --seed S --room ROOM --number N` draws N mutants of a room ("all" for each), runs
the tests closest to each and then the files that reach it, stops at the first failure, and prints those that live.
Outcomes are kept in `tests/.mutants`: a run that was stopped goes on, and what lived is tried again once tests
changed. With `--tests ci` both take all that CI runs, which tells whether a law is missing or only waits.

Mutants are made in copies of the tree. They use JAX's own cache of compilations, which finds a program by its contents,
in place of the package's store, which would find none after a change of the source.
"""

import argparse
import ast
import collections
import concurrent.futures
import difflib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests import reach

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / ".mutants"
ROOMS = ("solvers", "steps", "certificates", "duality", "screening", "objectives", "losses", "thresholds", "grids")
ROOMS += ("columns", "statistics", "derivatives", "iteration", "linalg", "designs", "tuning", "estimators", "io")
ROOMS += ("datasets", "cli")
TESTS = {"quick": "not slow and not later", "ci": "not slow", "waiting": "slow or later", "slow": "slow"}
PLUGIN = "seen"  # a module of the copy
FIRST = 60  # seconds of the closest tests, which run before whole files
GIVEN_UP = 900  # seconds after which what runs is stopped
SWAPPED = {ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE)}
PAIRS = [(ast.Eq, ast.NotEq), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or), (ast.BitAnd, ast.BitOr)]
SWAPPED |= {a: (b,) for pair in [*PAIRS, (ast.Is, ast.IsNot)] for a, b in (pair, pair[::-1])}
NAMES = "min max, minimum maximum, argmin argmax, any all, floor ceil, sum mean, zeros_like ones_like, zeros ones"
NAMES += ", argsort flip, cumsum cumprod, logical_and logical_or"
OTHER = {a: b for pair in NAMES.split(", ") for a, b in (pair.split(), pair.split()[::-1])}
# calls whose first argument is of their result's kind, and arguments without which a call may still run
PASSED = re.findall(r"\w+", "abs clip sqrt square sign where maximum minimum log1p exp sort flip stop_gradient ravel")
DROPPED = re.findall(r"\w+", "axis where initial weights sample_weight precision side ddof stable keepdims")

SEEN = """import json, os, signal, time
import pytest
SEEN, RED = set(), set()

def pytest_runtest_logreport(report):
    if report.failed:
        RED.add(report.nodeid)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    signal.setitimer(signal.ITIMER_PROF, 200)  # of CPU: a loop that never ends ends the process
    SEEN.clear()
    start = time.process_time()
    done = yield
    row = {"test": item.nodeid, "seconds": round(time.process_time() - start, 3), "red": item.nodeid in RED}
    row["functions"] = sorted(SEEN)
    if "SEEN_FILE" in os.environ:
        with open(os.environ["SEEN_FILE"] + str(os.getpid()), "a") as out:
            out.write(json.dumps(row) + "\\n")
    return done
"""


def changed(node):
    """The nodes that a node may be exchanged for."""
    match node:
        case ast.Compare(ops=[op], left=left, comparators=right):
            return [ast.Compare(left, [new()], right) for new in SWAPPED.get(type(op), ())]
        case ast.BinOp(left=left, op=op, right=right):
            swapped = [ast.BinOp(left, new(), right) for new in SWAPPED.get(type(op), ())]
            return [*swapped, left, *([right] if isinstance(op, ast.Add | ast.Mult) else [])]
        case ast.BoolOp(op=op, values=values):
            return [ast.BoolOp(SWAPPED[type(op)][0](), values), *values]
        case ast.UnaryOp(operand=operand, op=ast.USub() | ast.Not() | ast.Invert()):
            return [operand]
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.Constant(value=bool(value)):
            return [ast.Constant(not value)]
        case ast.Constant(value=int(value)):
            return [ast.Constant(value + 1)] + ([ast.Constant(value - 1)] if value else [])
        case ast.Constant(value=float(value)):
            return [ast.Constant(0.0 if value else 1.0), ast.Constant(2 * value + (value == 0))]
        case ast.Call(func=func, args=args, keywords=keywords):
            name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            new = [
                ast.Call(func, args, [k for k in keywords if k is not one]) for one in keywords if one.arg in DROPPED
            ]
            if name in PASSED and args:
                new += [arg for arg in args if not isinstance(arg, ast.Constant | ast.Starred)]
            if name == "where" and len(args) == 3:
                new.append(ast.Call(func, [args[0], args[2], args[1]], keywords))
            if name in OTHER:
                renamed = (
                    ast.Attribute(func.value, OTHER[name]) if isinstance(func, ast.Attribute) else ast.Name(OTHER[name])
                )
                new.append(ast.Call(renamed, args, keywords))
            return new
        case ast.If(body=body, orelse=orelse):
            return [ast.If(ast.Constant(value), body, orelse) for value in (True, False)]
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            return [ast.Pass()]
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in {
            part.id for part in ast.walk(value) if isinstance(part, ast.Name)
        }:
            return [ast.Pass()]
    return []


def candidates(source):
    """(function, node, its exchange) of all that may be changed; not what only speaks: texts, errors, annotations."""
    found = []

    def visit(node, function):
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
            return
        if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: it asserts
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.If) and all(isinstance(part, ast.Raise) for part in node.body):
            visit(node.test, function)
            return
        if not function and isinstance(node, ast.Assign):  # a constant of the module: how much work, or a slack
            parts = [part for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            found.extend(
                ("", part, ast.Constant(0)) for part in parts if isinstance(part.value, int | float) and part.value
            )
            return
        found.extend((function, node, new) for new in changed(node))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
            parts = node.body + (
                node.args.defaults + node.args.kw_defaults if isinstance(node, ast.FunctionDef) else []
            )
        elif isinstance(node, ast.AnnAssign):
            parts = [] if ast.unparse(node.annotation) == "TypeAlias" else [node.value]
        else:
            parts = ast.iter_child_nodes(node)
        for part in parts:
            if part is not None:
                visit(part, function)

    visit(ast.parse(source), "")
    return found


def draw(rooms, seed, number):
    """(path, function, changed source) of so many mutants, a line each."""
    lines = {}
    for room in rooms:
        for path in sorted((ROOT / "sparsehtp" / room).rglob("*.py")):
            source = path.read_text()
            for function, node, new in candidates(source):
                lines.setdefault((path, node.lineno), []).append((source, function, node, new))
    rng = random.Random(seed)
    for path, line in rng.sample(sorted(lines), min(number, len(lines))):
        source, function, node, new = rng.choice(lines[path, line])
        yield path.relative_to(ROOT), function, replaced(source, node, new)


def replaced(source, node, new):
    """The source with a node exchanged; all else keeps its layout."""
    lines = source.splitlines(keepends=True)
    if isinstance(node, ast.If) and isinstance(new, ast.If):
        node, new = node.test, new.test
    text = ast.unparse(new)
    if not isinstance(new, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript | ast.stmt):
        text = f"({text})"
    first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
    head, tail = first[: node.col_offset].decode(), last[node.end_col_offset :].decode()
    return "".join([*lines[: node.lineno - 1], head + text + tail, *lines[node.end_lineno :]])


def copy_tree(folder):
    """The tracked files as they are now, in a folder."""
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in files.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / f"{PLUGIN}.py").write_text(SEEN)


def pytest(folder, tests, arguments, timeout=None, **more):
    """The exit status of the tests of a kind in a folder, and the lines that they printed."""
    env = os.environ | {"PYTHONPATH": str(folder), "SPARSEHTP_CACHE": "off", "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"JAX_COMPILATION_CACHE_DIR": str(KEPT / "programs"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    env |= {"JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"} | more
    command = [sys.executable, "-m", "pytest", "-m", TESTS[tests], "-p", "no:cacheprovider", "-p", PLUGIN]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run([*command, *arguments], cwd=folder, env=env, timeout=timeout, **pipes)
    if done.returncode in (-signal.SIGTERM, -signal.SIGINT):  # stopped by somebody, which says nothing of a mutant
        raise KeyboardInterrupt
    if "ERROR: not found" in done.stdout:
        raise SystemExit("The tests are others than those that were measured: run --measure first.")
    return done.returncode, done.stdout.splitlines()


def measure(folder, tests, paths):
    """Run the tests of a kind, all or some, with every function noting that it ran, and keep what each ran."""
    for path in sorted((folder / "sparsehtp").rglob("*.py")):
        tree, module = ast.parse(path.read_text()), str(path.relative_to(folder))

        def note(node, function, module=module):
            for part in ast.iter_child_nodes(node):
                inner = f"{function}.{part.name}".lstrip(".") if hasattr(part, "name") else function
                note(part, inner)
                if isinstance(part, ast.FunctionDef):
                    told = ast.parse(f"__import__({PLUGIN!r}).SEEN.add({module + ':' + inner!r})").body
                    part.body[ast.get_docstring(part) is not None : 0] = told

        note(tree, "")
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
    for old in KEPT.glob("seen.*"):
        old.unlink()
    options = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", *paths]
    print(*pytest(folder, tests, options, SEEN_FILE=str(KEPT / "seen."))[1][-30:], sep="\n")
    rows = [json.loads(line) for part in sorted(KEPT.glob("seen.*")) for line in part.read_text().splitlines()]
    if tests in ("waiting", "slow"):
        return reach.keep([row for row in rows if not row["red"]])
    kept, new = KEPT / f"{tests}.json", {row["test"] for row in rows}
    if paths:
        rows += [row for row in json.loads(kept.read_text()) if row["test"] not in new]
    kept.write_text(json.dumps(rows))
    ran = {name for row in rows for name in row["functions"]}
    for path in sorted(path for room in ROOMS for path in (folder / "sparsehtp" / room).rglob("*.py")):
        module = str(path.relative_to(folder))
        told = {part.value for part in ast.walk(ast.parse(path.read_text())) if isinstance(part, ast.Constant)}
        for name in sorted(name for name in told - ran if isinstance(name, str) and name.startswith(f"{module}:")):
            print(f"no {tests} test runs", name)


def judge(folder, tests, mutant, rows):
    """Run the tests that are closest to a mutant, then the files that reach it; of `make test` also what is due.

    Files that are cheap for how much of the module they reach come first. What took `GIVEN_UP` seconds has lived.
    """
    path, function, source = mutant
    ran = {name for row in rows for name in row["functions"]}
    whole = f"{path}:{function.removesuffix('.__init__')}"  # a file may make it as it is imported, outside of its tests
    names = {whole} & ran or {name for name in ran if name.startswith(whole)}  # of a class, or of a module
    functions, seconds = {}, collections.Counter()
    for row in rows:
        file = row["test"].split("::")[0]
        functions.setdefault(file, set()).update(row["functions"])
        seconds[file] += row["seconds"]

    def price(name):  # seconds for all of the module: what reaches much of it is about it
        return seconds[name] / (1 + sum(other.startswith(f"{path}:") for other in functions.get(name, ())))

    old = (folder / path).read_text()
    diff = [
        line
        for line in difflib.unified_diff(old.splitlines(), source.splitlines(), str(path), function, lineterm="", n=1)
    ]
    start = time.time()
    try:
        (folder / path).write_text(source)
        due = reach.due(reach.changed(folder)) if tests == "quick" else []
        files = {name for name, own in functions.items() if names & own} | {name.split("::")[0] for name in due}
        files = sorted((name for name in files if (folder / name).exists()), key=price)
        if not files:
            return "unreached", diff, 0.0, ""
        known = {test: row for test, row in reach.load().items() if test in due}
        known |= {row["test"]: (row["seconds"], set(row["functions"])) for row in rows if not row["red"]}
        first = reach.within(sorted(names), known, FIRST)
        place = {test.split("::")[0]: i for i, test in reversed([*enumerate(first)])}
        first.sort(key=lambda test: place[test.split("::")[0]])  # each file once, where its first test stood
        red = [f"--deselect={row['test']}" for row in rows if row["red"]]  # by the notes, of the source
        for part in (first, [*files, *red]):
            status, output = pytest(folder, tests, ["-x", *part], GIVEN_UP) if part else (0, [])
            if status:
                break
    except subprocess.TimeoutExpired:
        status, output = 0, ["FAILED none: given up"]
    finally:
        (folder / path).write_text(old)
    by = next((line for line in output if line.startswith(("FAILED", "ERROR"))), "")
    return ("lived" if status == 0 else "killed"), diff, time.time() - start, by


def main():
    """Read the arguments, run, and print what lived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("paths", nargs="*", help="files of tests, or tests, that alone are measured")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", default="all", choices=("all", *ROOMS))
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tests", choices=TESTS, default="quick")
    args = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    folders = [KEPT / f"tree{i}" for i in range(args.jobs)]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        copy_tree(folder)
    if args.measure:
        return measure(folders[0], args.tests, args.paths)
    author = ["-c", "user.name=mutants", "-c", "user.email=mutants@localhost"]
    for folder in folders:
        for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "before"]):  # git tells what changes
            subprocess.run(["git", *words], cwd=folder, check=True)
    rows = json.loads((KEPT / f"{args.tests}.json").read_text())
    texts = b"".join(path.read_bytes() for path in sorted((ROOT / "tests").rglob("*.py")))
    tests = args.tests + hashlib.sha256(texts).hexdigest()
    log = KEPT / "outcomes.jsonl"
    known = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    known = {row["mutant"]: row for row in known if row["outcome"] == "killed" or row["tests"] == tests}

    def one(mutant):
        key = hashlib.sha256(repr(mutant).encode()).hexdigest()
        if key not in known:
            folder = folders.pop()
            outcome, diff, seconds, by = judge(folder, args.tests, mutant, rows)
            folders.append(folder)
            known[key] = {"mutant": key, "outcome": outcome, "diff": diff, "by": by, "tests": tests}
            known[key] |= {"seed": args.seed, "room": args.room, "seconds": round(seconds, 1)}
            with log.open("a") as out:
                out.write(json.dumps(known[key]) + "\n")
        row = known[key]
        print(f"{row['outcome']} in {row['seconds']} s: {mutant[0]}:{mutant[1]} {row['by']}", flush=True)
        return row

    mutants = draw(ROOMS if args.room == "all" else [args.room], args.seed, args.number)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        outcomes = list(pool.map(one, mutants))
    for row in outcomes:
        if row["outcome"] != "killed":
            print(f"\n{row['outcome']}", *row["diff"], sep="\n")
    print(f"\n{sum(row['outcome'] == 'killed' for row in outcomes)} of {len(outcomes)} killed")


if __name__ == "__main__":
    main()
