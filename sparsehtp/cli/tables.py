"""Tables before a fit: what is wrong with them, all at once."""

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.markup import escape
from rich.table import Table as Grid

from ..datasets import Data, load_file
from ..datasets.files import TABLES, check_file, format_of
from ..datasets.numerals import MOST_SHOWN, SIGNS, Written, check_written, shown_cells, shown_names
from ..datasets.tables import Table, check_target, read_table
from ..estimators import TablePreprocessor
from ..estimators.tables import FILLS, as_numbers, bad_cells, kind_of, kinds_of, shown_rows
from .common import loss_of
from .options import ModelOptions, Numerals
from .report import Console, print_warning

ASIDE = ("id", "groups", "offset", "exposure", "event")  # options that name a column that is no feature
OF_TABLES = ("drop", "missing", "drop_missing_target", "dummies", "decimal", "thousands", *ASIDE)
MOST_LISTED = 8  # columns with one problem
COUNTS = "numbers the rows, like an identifier"
FEW = 20  # rows below which a column may predict a target, or count rows, by chance


class Problems(ValueError):
    """Problems that stop a fit, a pair (column, sentence) each."""

    def __init__(self, source: str, found: Sequence[tuple[str, str]]) -> None:
        self.source, self.found = source, found
        super().__init__("; ".join(f"{name}: {text}" for name, text in found))

    def print_to(self, errors: Console) -> None:
        """All of them, a line or two each."""
        has = "1 problem" if len(self.found) == 1 else f"{len(self.found)} problems"
        errors.print(
            f"[bold red]Error:[/] {escape(self.source)} has {has}; nothing was fitted. Rows count as in the file.",
            soft_wrap=True,
        )
        grid = Grid.grid(padding=(0, 2))
        grid.add_column(style="bold", overflow="fold", max_width=24)
        grid.add_column(overflow="fold")
        for name, text in self.found:
            grid.add_row(f"  {escape(name)}", escape(text))
        errors.print(grid)


class TableData(NamedTuple):
    """A table that can be fitted, with the fields of `Data`.

    Attributes:
        X: (n, p) data frame of the columns used, and of the id if there is one, as they are in the file.
        y: (n,) numbers or labels.
        feature_names, target_name: as in `Data`.
        preprocessor: makes numbers of X; not fitted.
        notes: how the file was read, and what was left out.
        doubts: sentences that a person should know.
        offset: (n,) known part of the linear predictor; None: zero.
        groups: (n,) labels of rows that are held out together; None: each alone.
    """

    X: pd.DataFrame
    y: np.ndarray
    feature_names: Sequence[str]
    target_name: str
    preprocessor: TablePreprocessor
    notes: Sequence[str]
    doubts: Sequence[str]
    offset: np.ndarray | None = None
    groups: np.ndarray | None = None


def load_data(path: Path, options: ModelOptions) -> Data | TableData:
    """The data of a file: checked, where they are a table.

    Raises:
        Problems: for a table that cannot be fitted.
        ValueError, OSError, ImportError: as `load_file`, and for options that no table is there for.
    """
    target = options.target if options.time is None else options.time
    check_file(path)
    if format_of(path) not in TABLES:
        for name in OF_TABLES:
            if getattr(options, name):
                raise ValueError(f"{name}: {path.name} is no table, so that it does not apply; leave it out.")
        return load_file(path, target)
    as_is = [name for name in (options.id, options.groups, *(options.drop or ())) if name is not None]
    table = read_table(path, written(options), as_is=as_is)
    table.frame.columns = [str(name) for name in table.frame.columns]
    names = list(table.frame.columns)
    uses = {target: "target" if options.time is None else "time"}
    check_target(path, names, target, uses[target])
    if options.offset is not None and options.exposure is not None:
        raise ValueError("exposure: cannot be combined with offset; leave one of them out.")
    for option, wanted in (*((option, [getattr(options, option)]) for option in ASIDE), ("drop", options.drop or ())):
        for name in wanted:
            if name is not None:
                check_target(path, names, name, option=option)
                use = uses.setdefault(name, option)
                if use != option and (use, option) != ("id", "groups"):
                    why = f"{name!r} is that of --{use} too; leave one of the two out, or name a column for each"
                    raise ValueError(f"{option}: {why}.")
    return check(table, str(target), options, path.name)


def written(options: Numerals) -> Written:
    """How numbers are written, by the options."""
    return check_written(*(None if name is None else SIGNS[name] for name in (options.decimal, options.thousands)))


def check(table: Table, target: str, options: ModelOptions, source: str) -> TableData:
    """The table without what the options leave out, or all of its problems at once."""
    frame, notes, errors = table.frame, list(table.notes), list(table.unclear.items())
    twice = [name for name, times in Counter(frame.columns).items() if times > 1]
    for name in twice:
        places = ", ".join(str(j + 1) for j, each in enumerate(frame.columns) if each == name)
        errors.append((name, f"the name of columns {places}; rename or remove all but one"))
    known = options.exposure if options.offset is None else options.offset
    targets = [target] if options.event is None else [target, options.event]
    aside = (options.id, options.groups, known)
    outside = list(dict.fromkeys([*targets, *(name for name in aside if name is not None)]))
    unused = [*(options.drop or ()), *(name for name in twice if name not in outside)]
    frame = frame.loc[:, ~(frame.columns.isin(unused) | frame.columns.duplicated())]
    if options.drop_missing_target and (bad := frame[targets].isna().any(axis=1)).any():
        notes.append(f"{bad.sum()} of {bad.size} rows left out, without a target")
        frame = frame[~bad]
    features = frame.drop(columns=outside)
    gaps = features.isna().to_numpy()
    if options.missing == "drop-columns" and gaps.any():
        names = list(features.columns[gaps.any(axis=0)])
        notes.append(f"left out, for missing values: {shown_names(names)}")
        features = features.loc[:, ~gaps.any(axis=0)]
    if options.missing == "drop-rows":
        if (bad := gaps.any(axis=1)).any():
            notes.append(f"{bad.sum()} of {bad.size} rows left out, for missing values")
            frame, features = frame[~bad], features[~bad]
    kinds = kinds_of(features)
    if options.missing in FILLS:
        empty = [name for name in features.columns if kinds[name] == "number" and features[name].isna().any()]
        if empty:
            notes.append(filled(features[empty], f"with the {options.missing} of the rows fitted"))
        words = [name for name in features.columns if kinds[name] == "text" and features[name].isna().any()]
        if words:
            notes.append(f"missing texts of {shown_names(words)} are a level of their own")
    found = _of_rows(frame, target, features) + _of_offset(frame, options) + _of_groups(frame, options)
    errors += [(name, text) for name, text in found if name not in table.unclear]
    events = None if options.event is None else _events(frame[options.event], errors)
    if events is not None and kind_of(frame[target]) != "number":
        errors.append((target, f"the time is a number, but {str(frame[target].iloc[0])!r} is none: convert the column"))
    values = _numbers_of(features, kinds)
    odd = ~np.isfinite(values).all(axis=0)
    odd &= ~features.columns.isin(table.unclear)
    errors += _listed([(name, _of_cells(features[name], kinds[name], options)) for name in features.columns[odd]])
    if errors:
        raise Problems(source, errors)
    if copies := _copies(features, kinds, values):
        pairs = ", ".join(f"{name!r} to {first!r}" for name, first in list(copies.items())[:MOST_SHOWN])
        rest = f" and {len(copies) - MOST_SHOWN} more" if len(copies) > MOST_SHOWN else ""
        notes.append(f"left out, identical to another column: {pairs}{rest}")
        kept = ~features.columns.isin(list(copies))
        features, values = features.loc[:, kept], values[:, kept]
        kinds = {name: kind for name, kind in kinds.items() if name not in copies}
    y = frame[target]
    y = y.to_numpy(np.float64) if kind_of(y) == "number" else y.astype(str).to_numpy(str)
    missing = options.missing.replace("-", "_") if options.missing in FILLS else "error"
    preprocessor = TablePreprocessor(missing, dummies=options.dummies, id=options.id, **table.written._asdict())
    classes = options.model == "ordinal" or loss_of(options).classification
    told = _listed([*_doubts(features, kinds, values, y, classes), (target, _alike(y)), (target, _two(y, options))])
    doubts = [f"{name!r}: {text}{'' if text.endswith('?') else '.'}" for name, text in told]
    doubts += _repeated(frame, [*features.columns, *targets], options)
    named = features if options.id is None else features.assign(**{options.id: frame[options.id]})
    offset = None if known is None else as_numbers(frame[known]).to_numpy(float)
    offset = np.log(offset) if offset is not None and options.offset is None else offset
    groups = None if options.groups is None else frame[options.groups].astype(str).to_numpy(str)
    if events is not None:
        y, target = np.column_stack([y, events]), f"{target} ({options.event})"
    return TableData(named, y, list(features.columns), target, preprocessor, notes, doubts, offset, groups)


def print_remarks(errors: Console, data: Any) -> dict[str, Sequence[str]]:
    """The notes and doubts about a table, before it is fitted, and as a flow keeps them."""
    if not isinstance(data, TableData):
        return {}
    print_notes(errors, data.notes)
    for doubt in data.doubts:
        print_warning(errors, doubt)
    return {"notes": data.notes, "warnings": data.doubts}


def left_out(options: ModelOptions) -> dict[str, str]:
    """The columns that options leave out of the features, as a fact; none: no fact."""
    told = [f"{shown_names(list(options.drop))} (--drop)"] if options.drop else []
    aside = {name: option for option in ASIDE if (name := getattr(options, option)) is not None}
    told += [f"{name!r} (--{option})" for name, option in aside.items()]
    return {"set aside": ", ".join(told)} if told else {}


def filled(frame: pd.DataFrame, how: str) -> str:
    """A note about columns of numbers with gaps."""
    counts = ", ".join(map(str, frame.isna().sum()[:MOST_SHOWN]))
    return f"missing values of {shown_names(list(frame.columns))} filled {how} ({counts} of {len(frame)})"


def print_notes(errors: Console, notes: Sequence[str]) -> None:
    """How a table was read, in a line; nothing where it is as usual."""
    if notes:
        errors.print(f"[dim]Note:[/] {escape('; '.join(notes))}.", soft_wrap=True)


def _events(column: pd.Series, errors: list[tuple[str, str]]) -> np.ndarray | None:
    """1 where the event was seen and 0 where not; None where the column does not say so, which is then an error."""
    name, numbers = str(column.name), as_numbers(column)
    words = column.astype(str).str.strip().str.lower().map({"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0})
    seen = numbers.where(numbers.notna(), words).to_numpy(float)
    odd = ~np.isin(seen, (0, 1))
    if odd.any():
        cell, rows = str(column.iloc[np.flatnonzero(odd)[0]]), shown_rows(column.index, odd)
        errors.append((name, f"the event is 1 where it was seen and 0 where not, but {cell!r} in {rows}: correct it"))
        return None
    if not seen.any():
        errors.append((name, "no row has an event, so there is nothing to explain"))
        return None
    return seen


# --- problems --------------------------------------------------------------------------------------------------------
def _of_rows(frame: pd.DataFrame, target: str, features: pd.DataFrame) -> list[tuple[str, str]]:
    """Problems of the table as a whole."""
    y, found = frame[target], []
    if not features.shape[1]:
        found.append((target, "no other column is left as a feature"))
    if len(frame) < 2:
        left = {0: "no row is left", 1: "a single row"}[len(frame)]
        return [*found, (target, f"{left}, from which nothing can be learned")]
    empty = y.isna().to_numpy()
    if empty.any():
        rows = shown_rows(frame.index, empty)
        found.append(
            (target, f"the target is missing in {rows}: correct it, or leave such rows out by --drop-missing-target")
        )
    if kind_of(y) == "number":
        bad = bad_cells(y)
        if bad.size:
            found.append((target, f"the target is a number, but {shown_cells(y, bad)}: correct it"))
        infinite = np.isinf(as_numbers(y).to_numpy(float))
        if infinite.any():
            found.append((target, f"the target is infinite in {shown_rows(frame.index, infinite)}: correct it"))
    if y.nunique() == 1:
        found.append(
            (target, f"the target is {str(y.dropna().iloc[0])!r} in every row, so there is nothing to explain")
        )
    return found


def _of_offset(frame: pd.DataFrame, options: ModelOptions) -> list[tuple[str, str]]:
    """Problems of the column of offsets or exposures."""
    name = options.exposure if options.offset is None else options.offset
    if name is None:
        return []
    values = (
        as_numbers(frame[name]).to_numpy(float) if kind_of(frame[name]) == "number" else np.full(len(frame), np.nan)
    )
    wrong = ~np.isfinite(values) | ((values <= 0) & (options.offset is None))
    if not wrong.any():
        return []
    what = "an offset must be a number" if options.offset is not None else "an exposure must be a number above 0"
    return [(name, f"{what}, which it is not in {shown_rows(frame.index, wrong)}: correct it, or leave these rows out")]


def _of_groups(frame: pd.DataFrame, options: ModelOptions) -> list[tuple[str, str]]:
    """Problems of the column of groups."""
    name = options.groups
    if name is None:
        return []
    if (empty := frame[name].isna().to_numpy()).any():
        return [(name, f"the group is missing in {shown_rows(frame.index, empty)}: correct it")]
    if frame[name].nunique() == 1:
        return [(name, "all rows are in one group, so that none can be held out: leave --groups out, or name another")]
    return []


def _of_cells(column: pd.Series, kind: str, options: ModelOptions) -> str | None:
    """The problem of a feature."""
    name, count = column.name, len(column)
    quoted = repr(name) if " " in str(name) else name
    if kind == "date":
        return (
            f"dates, such as {str(column.dropna().iloc[0])[:20]!r}: make numbers of them (days since a start, the "
            f"month), or --drop {quoted}"
        )
    empty = column.isna().to_numpy()
    parts = []
    if kind == "text":
        levels = column.nunique()
        if not options.dummies:
            advice = "or --dummies to make columns of its levels"
            if levels == count:
                advice = f"or --id {quoted}"
            elif levels > max(10, count // 10):
                advice = f"--id {quoted} --groups {quoted} if it names whom several rows are of, {advice}"
            parts.append(f"text, such as {str(column.dropna().iloc[0])[:20]!r}: --drop {quoted}, {advice}")
        elif levels > max(10, count // 2):
            parts.append(f"{levels} different texts in {count} rows: --drop {quoted}, or --id {quoted}")
    else:
        bad = bad_cells(column)
        if bad.size:
            parts.append(f"numbers, but {shown_cells(column, bad)}: correct these cells, or empty them")
        infinite = np.isinf(as_numbers(column).to_numpy(float))
        if infinite.any():
            parts.append(f"infinite in {shown_rows(column.index, infinite)}: correct these cells, or empty them")
    if empty.all():
        parts.append(f"no value at all: --drop {quoted}")
    elif empty.any() and options.missing is None:
        rows = shown_rows(column.index, empty)
        parts.append(
            f"{empty.sum()} of {count} values missing ({rows}): --missing drop-rows, drop-columns, mean or median"
        )
    return "; ".join(parts) or None


def _listed(found: Sequence[tuple[str, str | None]]) -> list[tuple[str, str]]:
    """Those that there are; of many with the same advice, some and their number."""
    seen: Counter[str] = Counter()
    listed, more = [], {}
    for name, text in found:
        if text is not None:
            kind = text.split(":")[-1].replace(name, "")
            seen[kind] += 1
            if seen[kind] <= MOST_LISTED:
                listed.append((name, text))
            more[kind] = name, text
    for kind, times in seen.items():
        if times > MOST_LISTED:
            name, text = more[kind]
            listed.append((f"{times - MOST_LISTED} more", f"like {name}, {text}"))
    return listed


def _numbers_of(features: pd.DataFrame, kinds: dict[str, str]) -> np.ndarray:
    """(n, p) values, NaN where a cell is no number."""
    if all(dtype.kind in "fiub" for dtype in features.dtypes):
        return features.to_numpy(float)
    values = [
        as_numbers(features[name]).to_numpy(float) if kind == "number" else np.nan for name, kind in kinds.items()
    ]
    return np.column_stack([np.broadcast_to(each, len(features)) for each in values])


# --- doubts ----------------------------------------------------------------------------------------------------------
def _doubts(
    features: pd.DataFrame, kinds: dict[str, str], values: np.ndarray, y: np.ndarray, classes: bool
) -> list[tuple[str, str | None]]:
    """Doubts about columns that can be fitted."""
    found: list[tuple[str, str | None]] = []
    of_numbers = [kind == "number" for kind in kinds.values()]
    names, values = features.columns[of_numbers], values[:, of_numbers]
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    for j in np.flatnonzero(low == high):
        found.append((names[j], f"the same in every row ({low[j]:g}), so it can explain nothing"))
    found += [(names[j], f"{COUNTS}: consider --id or --drop {names[j]}") for j in _counting(values, list(names))]
    texts = [name for name, kind in kinds.items() if kind == "text"]
    found += [(name, _alike(features[name].dropna().astype(str))) for name in texts]
    if len(y) >= FEW:
        leak = "predicts the target perfectly alone: is it made from the target (leakage)?"
        found += [(names[j], leak) for j in np.flatnonzero(_predicts(values, y, classes))]
        for name in texts:
            by_level = pd.Series(y).groupby(features[name].astype(str).to_numpy())
            if by_level.ngroups < len(y) // 2 and (by_level.nunique() == 1).all():
                found.append((name, leak))
    return found


def _copies(features: pd.DataFrame, kinds: dict[str, str], values: np.ndarray) -> dict[str, str]:
    """Columns of numbers that are another one before them; two copies would share a coefficient, and its ridge."""
    first: dict[bytes, str] = {}
    numbers = [(j, name) for j, name in enumerate(features.columns) if kinds[name] == "number"]
    twins = {name: first.setdefault(values[:, j].tobytes(), name) for j, name in numbers}
    return {name: twin for name, twin in twins.items() if twin != name}


def _alike(labels: Any) -> str | None:
    """A doubt about texts that differ by case or spaces alone; None without such."""
    if labels.dtype.kind == "f":
        return None
    kinds: dict[str, list[str]] = {}
    for level in sorted(set(map(str, labels))):
        kinds.setdefault(" ".join(level.split()).casefold(), []).append(repr(level))
    found = [" and ".join(levels) for levels in kinds.values() if len(levels) > 1]
    return (
        f"{'; '.join(found[:3])} differ by case or spaces alone: write them alike if they are one level"
        if found
        else None
    )


def _two(y: np.ndarray, options: ModelOptions) -> str | None:
    """A doubt about two numbers under the loss that nobody asked for; None without."""
    if y.dtype.kind != "f" or options.model != "squared" or np.unique(y).size != 2:
        return None
    return f"nothing but {y.min():g} and {y.max():g}: if these are two classes, add --loss logistic"


def _repeated(frame: pd.DataFrame, used: Sequence[str], options: ModelOptions) -> list[str]:
    """Doubts about rows that are there twice, which flatter held-out scores where folds part them."""
    found, id = [], options.id
    if id is not None and options.groups is None and (twice := frame[id].duplicated(keep=False)).any():
        found.append(
            f"{id!r}: {twice.sum()} rows share their name with others, and held-out scores flatter where such rows are "
            f"apart: add --groups {shlex.quote(id)}."
        )
    copies = frame[used].duplicated()
    if options.groups is not None:
        copies &= ~frame[[*used, options.groups]].duplicated()
    if copies.any() and 2 * frame[used].nunique().max() > len(frame):  # no chance of few levels
        found.append(
            f"{copies.sum()} of {copies.size} rows are exact copies of others ({shown_rows(frame.index, copies)}), and "
            "held-out scores flatter where copies are apart: remove them, or name by --groups a column that they share."
        )
    return found


def _counting(values: np.ndarray, names: Sequence[str]) -> list[int]:
    """Columns of different whole numbers that rise, leave none out, or are called an id."""
    if len(values) < FEW:
        return []
    whole = np.flatnonzero((values == np.floor(values)).all(axis=0))
    found = []
    for j in whole.tolist():
        ordered = np.sort(values[:, j])
        steps = np.diff(ordered)
        rises = np.array_equal(ordered, values[:, j]) or steps.max() == 1
        if steps.min() > 0 and (rises or re.search(r"(^|[ _-])id$", names[j].lower())):
            found.append(j)
    return found


def _predicts(values: np.ndarray, y: np.ndarray, classes: bool) -> np.ndarray:
    """Which columns alone give the target exactly: as a line, or for two classes by a threshold."""
    if y.dtype.kind == "f" and not classes:
        spread, target = values - values.mean(axis=0), y - y.mean()
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (target @ spread) ** 2 / ((spread**2).sum(axis=0) * (target @ target))
        return share > 1 - 1e-12
    labels = np.unique(y)
    if labels.size != 2:
        return np.zeros(values.shape[1], bool)
    one, other = values[y == labels[0]], values[y == labels[1]]
    return (one.max(axis=0) < other.min(axis=0)) | (other.max(axis=0) < one.min(axis=0))
