"""Where every claim stands, from all stored runs, and the page that says it."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from .catalogue import EXPERIMENTS, Experiment
from .findings import FINDINGS
from .reproduce import other_readings, read_config
from .run import BASE
from .verdicts import (
    BY_READING,
    FAILS,
    HOLDS,
    IN_PART,
    LEAST_DRAWS,
    LEFT_OPEN,
    UNDECIDED,
    VERDICTS,
    WITHDRAWN,
    stand,
)

Results = dict[str, list[dict[str, Any]]]


class Row(NamedTuple):
    """A claim, and where it stands.

    Attributes:
        letter: its place in the experiment's list.
        statement: the sentence as it is decided.
        verdict: one of `VERDICTS`.
        readings: the reading in words -> what was found under it (the fields of a `Finding`).
        missing: readings that were not run, in words.
        draws: the least number of draws of what is random, over the runs that tell; None where nothing is.
        quick: whether there is no full run.
        other_data: whether data stand in for those of the paper.
        need: what it would take to decide.
    """

    letter: str
    statement: str
    verdict: str
    readings: dict[str, dict[str, Any]]
    missing: list[str]
    draws: int | None
    quick: bool
    other_data: bool
    need: str


def rows(name: str, runs: list[dict[str, Any]]) -> list[Row]:
    """Where the claims of an experiment stand, from the contents of its result.json files."""
    config = read_config(name)
    base = {run["quick"]: run for run in runs if run["reading"] == BASE}
    others = {run["reading"]: run for run in runs if run["reading"] != BASE and not run["quick"]}
    found = [_withdrawn(config, letter, why) for letter, why in config.get("withdrawn", {}).items()]
    if base:
        quick = False not in base
        chosen = [base[quick], *([] if quick else others.values())]
        letters = [claim["letter"] for claim in base[quick]["claims"]]
        found += [_row(name, config, letter, chosen, quick) for letter in letters]
    return sorted(found, key=lambda row: row.letter)


def _withdrawn(config: dict[str, Any], letter: str, why: str) -> Row:
    statement = one_line(config["quotes"][letter])
    return Row(letter, statement, WITHDRAWN, {}, [], None, False, False, one_line(why))


def _row(name: str, config: dict[str, Any], letter: str, runs: list[dict[str, Any]], quick: bool) -> Row:
    words, free = config.get("readings", {}), other_readings(config)
    readings, draws, statement = {}, [], ""
    for run in runs:
        claim = next((one for one in run["claims"] if one["letter"] == letter), None)
        if claim is None:
            continue
        statement = statement or claim["statement"]
        whole = words.get(BASE, "") if run["reading"] == BASE else words[run["reading"]]["reads"]
        for own, finding in claim["findings"].items():
            readings["; ".join(filter(None, (whole, own)))] = finding
        told = any(each["outcome"] not in LEFT_OPEN for each in claim["findings"].values())
        draws += [claim["draws"]] if told and claim["draws"] is not None else []
    missing = [each["reads"] for reading, each in free.items() if reading not in {run["reading"] for run in runs}]
    verdict = stand(
        [each["outcome"] for each in readings.values()],
        other_data=runs[0]["other_data"],
        all_read=not missing,
    )
    if quick:
        verdict = UNDECIDED
    need = ""
    if verdict == UNDECIDED:
        open_ = [each["need"] for each in readings.values() if each["outcome"] in LEFT_OPEN]
        need = (
            f"the full run, {config['cost']} (`make reproduce NAME={name}`)"
            if quick
            else open_[0]
            if open_
            else f"the readings {', '.join(missing)}"
        )
    return Row(
        letter, statement, verdict, readings, missing, min(draws, default=None), quick, runs[0]["other_data"], need
    )


def one_line(text: str) -> str:
    """Words of a configuration without its line breaks."""
    return " ".join(text.split())


def claims_page(results: Results) -> str:
    """A Markdown page of all figures beside their claims, with where they stand.

    It shows the figures `reproduced/NAME-full.png`, or `-quick.png` where there is no full run.

    Args:
        results: experiment -> contents of its result.json files.
    """
    table = {name: rows(name, results.get(name, [])) for name in EXPERIMENTS}
    lines = [
        "# Where each claim of the papers stands",
        "",
        "## What to take from it",
        "",
        *_findings(table),
        "",
        "## The count",
        "",
        *_summary(table),
        "",
        "A row is a sentence of a paper. *Confirmed*: it holds, by intervals of 95%, under the readings named. "
        "*Refuted*: it fails under every reading of what the paper leaves open. *Depends on the reading*: not the "
        "same under all. *In part*: it holds at some of the places that it speaks of; of a reading where it fails "
        "at some and is open at the others, *fails or in part*. On data that stand in for "
        "the paper's it is another statement: *as claimed*, *in part* or *not as claimed on other data*. *Not "
        "decided*: with what it would take. *Withdrawn*: no rule of ours does the sentence justice. Quick runs, "
        f"fewer than {LEAST_DRAWS} draws of what is random and margins that the paper does not give decide nothing; "
        "times are compared between methods of this library. *Read against the paper*: the place of the sentence, "
        "and the main reservation, by a reader who did not write the row.",
        "",
        "Written from the stored results by `make claims`.",
    ]
    for name, experiment in EXPERIMENTS.items():
        lines += ["", f"## {name}: {experiment.title} [{experiment.paper}]", ""]
        lines += _section(name, experiment, table[name], results.get(name, []))
    return "\n".join(lines) + "\n"


def _findings(table: dict[str, list[Row]]) -> list[str]:
    verdicts = {(name, row.letter): row.verdict for name, found in table.items() for row in found}
    lines = []
    for finding in FINDINGS:
        places = [f"{name} {letter}: {verdicts.get((name, letter), 'not run')}" for name, letter in finding.rows]
        lines.append(f"1. {finding.text} ({'; '.join(places)})")
    return lines


def _summary(table: dict[str, list[Row]]) -> list[str]:
    """The table of verdicts: one row a figure, the letters of its claims under their verdict, and the counts."""
    lines = ["| paper | figure | " + " | ".join(VERDICTS) + " |", "|---" * (len(VERDICTS) + 2) + "|"]
    for name, found in table.items():
        cells = (", ".join(row.letter for row in found if row.verdict == verdict) for verdict in VERDICTS)
        lines.append(f"| {EXPERIMENTS[name].paper} | {name} | " + " | ".join(cells) + " |")
    counts = Counter(row.verdict for found in table.values() for row in found)
    total = f"{sum(counts.values())} claims"
    return [*lines, f"| all | {total} | " + " | ".join(str(counts[verdict]) for verdict in VERDICTS) + " |"]


def _section(name: str, experiment: Experiment, found: list[Row], runs: list[dict[str, Any]]) -> list[str]:
    config = read_config(name)
    largest = min(runs, key=lambda run: (run["quick"], run["reading"] != BASE), default=None)
    size = "quick" if largest is None or largest["quick"] else "full"
    lines = [f"![{experiment.title}](reproduced/{name}-{size}.png)", ""] if largest else ["Not run.", ""]
    lines += ["| claim | outcome | decided by |", "|---|---|---|"]
    lines += [f"| {row.letter}. {row.statement} | **{row.verdict}** | {_decided_by(row)} |" for row in found]
    for row in found:
        lines += _below(row, config)
    if config.get("deviations"):
        lines += ["", "Not as in the paper:", "", *(f"- {one_line(text)}" for text in config["deviations"])]
    if largest is None:
        return lines
    lines += [line for note in largest["notes"] for line in ("", f"Note: {note}")]
    links = ", ".join(
        f"[{run['reading']}](reproduced/{name}-{size if run['reading'] == BASE else run['reading']}.json)"
        for run in runs
        if run["quick"] == largest["quick"]
    )
    seconds = sum(run["seconds"] for run in runs if run["quick"] == largest["quick"])
    ran = f"{size}: {seconds:.0f} s on {largest['device']['platform']}, JAX {largest['versions']['jax']}"
    return [*lines, "", f"({ran}; all numbers: {links})"]


def _decided_by(row: Row) -> str:
    """At most two numbers with their interval; what it would take."""
    texts = []
    if row.verdict == BY_READING:
        counts = Counter(each["outcome"] for each in row.readings.values())
        texts = [f"{word} under {counts[word]}" for word in (HOLDS, IN_PART, FAILS, *LEFT_OPEN) if counts[word]]
        texts += [f"{len(row.missing)} not run"] if row.missing else []
        texts = [f"of {len(row.readings) + len(row.missing)} readings: {', '.join(texts)}"]
    elif row.readings:
        told = [each for each in row.readings.values() if each["outcome"] not in LEFT_OPEN]
        first = next(iter(told or row.readings.values()))
        some = f"under {len(told)} of {len(row.readings) + len(row.missing)} readings"
        texts = [some] if row.verdict != UNDECIDED and len(told) < len(row.readings) + len(row.missing) else []
        texts += [f"parts that hold: {first['parts']}"] if first["parts"] else []
        texts += first["by"]
    if row.need:
        texts.append(f"{'why' if row.verdict == WITHDRAWN else 'it would take'}: {row.need}")
    return "; ".join(texts)


def _below(row: Row, config: dict[str, Any]) -> Iterable[str]:
    """The paper's words, the margin's source, the readings, the remark and what a second reader says, on one row."""
    quote, margin, remark, read = (
        one_line(config.get(words, {}).get(row.letter, "")) for words in ("quotes", "margins", "remarks", "read")
    )
    texts = [f"The paper: {quote}"] if quote and row.verdict != WITHDRAWN else []
    texts += [f"The numbers in the rule: {margin}"] if margin else []
    texts += [remark] if remark else []
    texts += [f"Read against the paper: {read}"] if read else []
    lines = ["", f"*{row.letter}.* {' '.join(texts)}"] if texts else []
    if len(row.readings) > 1:
        lines += ["", "| reading | found | numbers |", "|---|---|---|"]
        for reading, each in row.readings.items():
            found = f"{each['outcome']}{', ' + each['parts'] if each['parts'] else ''}"
            lines.append(f"| {reading or 'as run'} | {found} | {'; '.join(each['by'])} |")
        lines += [f"| {reading} | not run | |" for reading in row.missing]
    return lines
