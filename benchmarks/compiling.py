"""What the programs of a first fit are made of, and where compiling them plainly stops to pay.

A program is compiled plainly where it has little work (`LITTLE_WORK` of `sparsehtp/_programs.py`): the first table has
both ways for a range of fits, each in a process of its own. The second one has the ten largest programs.
"""

from .first_answer import FITS, process
from .scores import finish

LEVELS = """
from sparsehtp import _programs
_programs.LITTLE_WORK = float(sys.argv[4])
work, seen = _programs.expected_work, []
def recorded(jaxpr):
    seen.append(work(jaxpr))  # of what it calls, too
    return seen[-1]
_programs.expected_work = recorded
fit = fit_of(*sys.argv[1:4])
rows = [measured(fit) for _ in range(3)]
print(json.dumps({"first": rows[0]["cpu"], "later": min(row["cpu"] for row in rows[1:]), "work": max(seen)}))
"""
PROGRAMS = """
from sparsehtp import _programs
events, made = [], []
jax.monitoring.register_event_duration_secs_listener(lambda event, seconds, **_: events.append((event, seconds)))
make = _programs.Program._make
def counted(self, *arguments):
    events.clear()
    cpu = time.process_time()
    compiled, returned = make(self, *arguments)
    cpu = time.process_time() - cpu
    traced = jax.jit(self.__wrapped__, static_argnames=self._static).trace(**arguments[0], **arguments[1])
    text = compiled.as_text()
    made.append({
        "program": f"{self.__module__.removeprefix('sparsehtp.')}.{self.__name__}",
        "cpu": cpu,
        "xla": sum(seconds for event, seconds in events if event.endswith("backend_compile_duration")),
        "equations": str(traced.jaxpr).count(" = "),
        "kernels": sum(f" {op}(" in line for line in text.splitlines() for op in ("fusion", "dot", "custom-call")),
        "work": _programs.expected_work(traced.jaxpr.jaxpr),
    })
    return compiled, returned
_programs.Program._make = counted
fit_of(*sys.argv[1:4])()
print(json.dumps(made))
"""
MORE = [
    ("SparseRegressor", "drawn numbers, 200 x 1000", "20"),
    ("SparseClassifier", "drawn classes, 2000 x 50", "5"),
    ("SparseRegressor", "drawn numbers, 1000 x 100", ""),
    ("SparseRegressor", "drawn numbers, 2000 x 5000", "50"),
]


def level_row(kind, name, k):
    """A fit whose programs are all compiled plainly, and all in full: calls until the latter has paid."""
    plain, full = (process(LEVELS, kind, name, k, limit) for limit in ("inf", "-1"))
    lost = plain["later"] - full["later"]
    pays = (full["first"] - plain["first"]) / lost if lost > 0 else float("inf")
    return {
        "name": f"{kind}({f'k={k}' if k else ''}), {name}",
        "value": min(pays, 1e6),
        "unit": "fits until full compiling has paid",
        "plain": plain,
        "full": full,
    }


def main(quick=False):
    """Both tables; quick: one fit."""
    fits = [each[:3] for each in FITS]
    rows = [level_row(*each) for each in (fits[1:2] if quick else [*fits, *MORE])]
    programs = [
        {"name": f"{kind}({f'k={k}' if k else ''}), {name}: {row.pop('program')}", "value": row["cpu"], "unit": "CPU s"}
        | row
        for kind, name, k in (fits[1:2] if quick else fits)
        for row in process(PROGRAMS, kind, name, k)
    ]
    finish("compiling", rows + sorted(programs, key=lambda row: -row["value"])[:10], quick)
