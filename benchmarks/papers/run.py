"""What an experiment runs in: settings, seeds, data, work that survives being killed, claims, and files at the end."""

import functools
import hashlib
import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np

from sparsehtp._progress import Callback
from sparsehtp.io import describe_device, versions, write_whole
from sparsehtp.iteration.results import RESULTS

from .data import DataSet, load
from .verdicts import LEAST_DRAWS, OPEN, Decision, Finding, Parts, finding

NEARLY_EMPTY = 0.1  # supports with less than this share of the nonzeros that are sought
BASE = "base"  # the reading of a configuration's own settings

Holds = Decision | Parts | None


class Claim(NamedTuple):
    """A sentence of a paper, and what a run found of it.

    Attributes:
        letter: its place in the experiment's list.
        statement: the sentence as it is decided.
        findings: reading -> the fields of its `Finding`; one, named "", where the run has no readings of its own.
        draws: of the random thing that there are fewest of; None where nothing is random.
        evidence: name -> number or sentence: all that the findings do not show.
    """

    letter: str
    statement: str
    findings: dict[str, dict[str, Any]]
    draws: int | None
    evidence: dict[str, Any]


class Run:
    """One run of one experiment, in a folder of its own.

    Args:
        name: the experiment.
        config: its settings, and what `quick` and each reading replace (see `read_config`).
        folder: created if missing; holds the finished cells, and at the end the results, the claims and the figure.
        quick: take the small sizes.
        reading: of what the paper leaves open, a name of the configuration's list.
        data: folder of the real data sets, or None.
        resume: keep the cells of an earlier run with the same settings and versions.
        stored: a finished result whose cells are taken in place of computing any; `config` holds its settings.
        progress: a function of (cells done, cells in all).

    Raises:
        ValueError: if `folder` holds cells of other settings and `resume` is asked for; if `stored` lacks a cell.
    """

    def __init__(
        self,
        name: str,
        config: dict[str, Any],
        folder: Path,
        *,
        quick: bool = False,
        reading: str = BASE,
        data: Path | None = None,
        resume: bool = False,
        stored: dict[str, Any] | None = None,
        progress: Callback = lambda done, total: None,
    ) -> None:
        self.name, self.quick, self.folder, self.progress = name, quick, folder, progress
        own = {} if reading == BASE else config["readings"][reading]
        changes = {**(config.get("quick", {}) if quick else {}), **own}
        self.settings = {**config["settings"], **{k: v for k, v in changes.items() if k != "reads"}}
        self.reading, self.other_data = reading, False
        self.claims: list[Claim] = []
        self.cells: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self._data = data
        self.stored = stored
        facts = {"settings": self.settings, "versions": versions()}
        self._store = _Store(folder / "cells", facts, resume) if stored is None else _Given(name, stored["cells"])

    def __getitem__(self, setting: str) -> Any:
        """A setting by name."""
        return self.settings[setting]

    def rng(self, *key: Any) -> np.random.Generator:
        """Random numbers that depend on the seed and the key alone, not on the order of the work."""
        return np.random.default_rng([self["seed"], zlib.crc32(repr(key).encode())])

    def map(self, function: Callable[..., dict[str, Any]], cells: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """`cell | function(**cell)` for every cell, in order; finished ones are read back from the folder.

        A cell is a dict of JSON scalars, and so is the function's result (lists are allowed there). Its "result", if
        any, is the name of the `RESULTS` of the cell's fit; a note counts those that did not converge.
        """
        cells, rows = list(cells), []
        for done, cell in enumerate(cells):
            self.progress(done, len(cells))
            row = self._store.load(function.__name__, cell)
            if row is None:
                start = time.perf_counter()
                row = {**cell, **function(**cell), "seconds": 0.0}
                row["seconds"] = time.perf_counter() - start
                self._store.save(function.__name__, cell, row)
            rows.append(row)
        self.progress(len(cells), len(cells))
        self.cells += rows
        if self.stored is None:
            self.notes += _unconverged(rows)
        return rows

    def load(self, name: str) -> DataSet | None:
        """A data set, or its stand-in, with a note on which; None, with a note, if neither is there."""
        found = load(name, self._data)
        self.other_data |= found.stand_in
        if found.note not in self.notes:
            self.notes.append(found.note)
        return found.data

    def claim(
        self,
        letter: str,
        statement: str,
        holds: Holds | Mapping[str, Holds],
        *,
        draws: int | None,
        numbers: Mapping[str, Any] | None = None,
        need: str = "",
        compared: Any = None,
        filled: Any = None,
        solved: Iterable[str] = (),
        **evidence: Any,
    ) -> None:
        """Record a claim: whether it holds in these numbers.

        Args:
            letter: its place in the list.
            statement: the sentence as it is decided.
            holds: what the numbers say; `Undecided` if they leave it open, None if they cannot test it; or reading ->
                such a decision, for readings that one run holds.
            draws: of the random thing that there are fewest of (copies, matrices); None where nothing is random.
            numbers: name -> the estimate that decides it, or the same by reading; the least and largest are shown.
            need: what a test would take.
            compared: method -> its outcomes, for a claim that compares methods: where all coincide it says nothing.
            filled: where -> the supports' sizes as shares of the sought one: where one is nearly empty it says nothing.
            solved: the problems that one thresholding solves: where there are any it says nothing.
            **evidence: the rest.
        """
        readings, by = (holds, numbers or {}) if isinstance(holds, Mapping) else ({"": holds}, {"": numbers or {}})
        found = {name: finding(one, by.get(name, {}), need) for name, one in readings.items()}
        why = _coincide(compared or {}) or _empty(filled or {}) or _trivial(solved)
        if why or (draws is not None and draws < LEAST_DRAWS):
            why = (
                f"a check that can tell: {why}"
                if why
                else f"at least {LEAST_DRAWS} draws of what is random, of which there were {draws}"
            )
            why = "; ".join(filter(None, (need, why)))
            found = {name: Finding(OPEN, one.parts, why, one.by) for name, one in found.items()}
        findings = {name: one._asdict() for name, one in found.items()}
        self.claims.append(Claim(letter, statement, findings, draws, _plain(evidence)))

    def finish(self, figure: Any) -> dict[str, Any]:
        """Write result.json and the figure as PNG and SVG; the result."""
        facts = {
            "experiment": self.name,
            "quick": self.quick,
            "reading": self.reading,
            "other_data": self.other_data,
            "settings": self.settings,
            "device": describe_device(),
            "cpu_cores": joblib.cpu_count(),
            "versions": versions(),
            "seconds": sum(cell["seconds"] for cell in self.cells),
            "notes": self.notes,
        }
        if self.stored is not None:
            facts |= {name: self.stored[name] for name in ("device", "cpu_cores", "versions", "seconds", "notes")}
        result = {
            **facts,
            "claims": [claim._asdict() for claim in self.claims],
            "cells": self.cells,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        for suffix in ("png", "svg"):
            write = functools.partial(figure.savefig, format=suffix, dpi=130)
            write_whole(self.folder / f"figure.{suffix}", write)
        text = json.dumps(result, indent=1) + "\n"
        write_whole(self.folder / "result.json", lambda file: file.write(text.encode()))
        return result


def taken(values: Any, num_steps: Any, result: Any) -> np.ndarray:
    """The histories (..., rows) of runs: NaN from where a run diverged, its last number from where it stopped."""
    values, num_steps, diverged = (
        np.array(values, float),
        np.asarray(num_steps),
        np.asarray(result) == RESULTS.nonfinite,
    )
    row = np.arange(values.shape[-1])
    last = np.clip(num_steps - 1, 0, None)[..., None]
    values = np.take_along_axis(values, np.minimum(row, last), axis=-1)
    return np.where(diverged[..., None] & (row >= last), np.nan, values)


def _unconverged(rows: list[dict[str, Any]]) -> list[str]:
    """How many fits of each method did not converge, and how they ended; nothing where all did."""
    ended = Counter((row.get("algorithm", "fit"), row["result"]) for row in rows if "result" in row)
    number = Counter(row.get("algorithm", "fit") for row in rows)
    bad = [f"{name}: {n} of {number[name]} {how}" for (name, how), n in ended.items() if how != RESULTS.converged.name]
    return [f"fits that did not converge: {', '.join(bad)}."] if bad else []


def _coincide(compared: Mapping[str, Any]) -> str:
    outcomes = [np.asarray(outcome, float) for outcome in compared.values()]
    same = [np.allclose(other, outcomes[0], rtol=1e-9, atol=0, equal_nan=True) for other in outcomes[1:]]
    return f"{', '.join(compared)} all give the same" if same and all(same) else ""


def _empty(filled: Mapping[str, float]) -> str:
    found = [f"{where}: {share:.0%}" for where, share in filled.items() if share < NEARLY_EMPTY]
    return f"nearly empty supports (nonzeros of those sought at {', '.join(found)})" if found else ""


def _trivial(solved: Iterable[str]) -> str:
    names = ", ".join(solved)
    return f"one thresholding solves {names}" if names else ""


class _Store:
    """Finished cells as small JSON files, written whole or not at all."""

    def __init__(self, folder: Path, facts: dict[str, Any], resume: bool) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        manifest, text = folder / "manifest.json", json.dumps(facts, indent=1, sort_keys=True)
        if not resume:
            for old in folder.glob("cell-*.json"):
                old.unlink()
        elif manifest.exists() and manifest.read_bytes() != text.encode():
            raise ValueError(
                f"resume: {folder} holds cells of other settings or versions; run without resuming, or name another "
                "folder."
            )
        write_whole(manifest, lambda file: file.write(text.encode()))

    def load(self, function: str, cell: dict[str, Any]) -> Any:
        path = self._path(function, cell)
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # not there, or damaged: the cell is computed
            return None

    def save(self, function: str, cell: dict[str, Any], row: dict[str, Any]) -> None:
        text = json.dumps(_plain(row))
        write_whole(self._path(function, cell), lambda file: file.write(text.encode()))
        row.update(json.loads(text))  # a resumed run sees the very same numbers

    def _path(self, function: str, cell: dict[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps([function, cell], sort_keys=True).encode()).hexdigest()
        return self.folder / f"cell-{digest[:20]}.json"


class _Given(_Store):
    """The cells of a stored result, in their order."""

    def __init__(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.name, self.rows = name, iter(rows)

    def load(self, function: str, cell: dict[str, Any]) -> Any:
        row = next(self.rows, None)
        if row is None or any(row.get(key) != value for key, value in cell.items()):
            raise ValueError(f"stored: the result of {self.name} has no cell {cell} in its place; run it anew.")
        return row


def _plain(value: Any) -> Any:
    """Python scalars, lists and dicts from NumPy's; a nonfinite number becomes None, which JSON can say."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
