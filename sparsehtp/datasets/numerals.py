"""Numbers as tables write them: which sign is the decimal one, and what separates thousands."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

SIGNS = {"point": ".", "comma": ",", "space": " ", "apostrophe": "'"}
NAMES = {sign: name for name, sign in SIGNS.items()}
MOST_SHOWN = 4  # cells, rows and names in a sentence
_SPACES, _APOSTROPHES = " \u00a0\u2007\u2009\u202f", "'\u2019"
_SIGNS = f".,{_SPACES}{_APOSTROPHES}"
# Groups of three digits where they can be such, else an ungrouped number: 12.345 is both. Captured are the sign between
# groups, the same from a third group on, the decimal sign behind them; of an ungrouped number the fourth digit, and its
# decimal sign. So there are few combinations, and each is looked at once.
_GROUPED = rf"[1-9]\d{{0,2}}([.,{_APOSTROPHES}{_SPACES}])\d{{3}}(?:(\1)\d{{3}})*(?:(?!\1)([.,])\d*)?"
_NUMERAL = re.compile(rf"[+-]?(?=[.,]?\d)(?:{_GROUPED}|\d{{0,3}}(\d?)\d*(?:([.,])\d*)?(?:[eE][+-]?\d+)?)")


class Written(NamedTuple):
    """How the numbers of a table are written; None: not known.

    Attributes:
        decimal: the decimal sign.
        thousands: the sign between groups of three digits.
    """

    decimal: str | None = None
    thousands: str | None = None


AS_IT_SAYS = Written()


def check_written(decimal: str | None, thousands: str | None) -> Written:
    """ValueError for signs that numbers are not written with."""
    if decimal not in (None, ".", ","):
        raise ValueError(f"decimal: must be '.' or ',', got {decimal!r}.")
    if thousands not in (None, *NAMES) or (thousands == decimal and decimal is not None):
        raise ValueError(f"thousands: must be '.', ',', ' ' or \"'\", and not the decimal sign, got {thousands!r}.")
    return Written(decimal, thousands)


class Read(NamedTuple):
    """The numbers in cells of text.

    Attributes:
        columns: those that changed, by their places.
        written: how they are written, as far as it shows.
        notes: what is not written as in English without thousands.
        unclear: pairs (name, sentence) of columns whose numbers could be others.
    """

    columns: dict[int, Any]
    written: Written
    notes: list[str]
    unclear: dict[str, str]


class _Cells:
    """The cells of a column, taken apart: few kinds of them, so that what follows is quick.

    Attributes:
        kinds: (n,) numbers of the kinds.
        counts: (kinds,) how many cells there are of each.
        there, numeral: (kinds,) which are texts, and which are numbers in some way of writing.
        thousands, decimal: (kinds,) their signs, "" where there is none; 12.345 has thousands here.
        either: (kinds,) that may be thousands or decimals, as 12.345.
        long: (kinds,) four or more digits before the decimal sign, with no groups.
    """

    def __init__(self, column: Any) -> None:
        self.column, match = column, _NUMERAL.fullmatch
        found: dict[Any, int] = {}
        keys = (
            ((part := match(cell.strip())) and part.groups("")) if isinstance(cell, str) else False
            for cell in column.to_numpy(object)
        )
        self.kinds = np.array([found.setdefault(key, len(found)) for key in keys], int)
        self.counts = np.bincount(self.kinds, minlength=len(found))
        self.there = np.array([key is not False for key in found], bool)
        self.numeral = np.array([bool(key) for key in found], bool)
        parts = np.array([key or ("",) * 5 for key in found], str).reshape(-1, 5)
        thousands, more, after, digit, decimal = parts.T.copy()
        thousands[np.isin(thousands, list(_SPACES))] = " "
        thousands[np.isin(thousands, list(_APOSTROPHES))] = "'"
        self.thousands, self.decimal = thousands, np.where(after != "", after, decimal)
        self.either = np.isin(thousands, [".", ","]) & (more == "") & (after == "")
        self.long = digit != ""

    @property
    def are_numbers(self) -> bool:
        return bool(2 * self.counts[self.numeral].sum() >= self.counts[self.there].sum())

    def places(self, which: np.ndarray) -> np.ndarray:
        """The places of the cells of some kinds."""
        return np.flatnonzero(which[self.kinds])

    def shows(self, decimal: str) -> np.ndarray:
        """(kinds,) that can only have been written with this decimal sign."""
        other = "." if decimal == "," else ","
        return (self.decimal == decimal) | ((self.thousands == other) & ~self.either)

    def fit(self, decimal: str, thousands: str) -> np.ndarray:
        """(kinds,) that are no numbers, or numbers with these signs ("": no thousands)."""
        plain = np.isin(self.thousands, ["", thousands]) & np.isin(self.decimal, ["", decimal])
        return ~self.numeral | plain | (self.either & (self.thousands == decimal))

    def has_decimals(self, decimal: str) -> np.ndarray:
        """(kinds,) with digits after this sign, where it is the decimal one."""
        return (self.decimal == decimal) | (self.either & (self.thousands == decimal))

    def values(self, decimal: str) -> Any:
        """The column with numbers in place of those that Python writes otherwise; None where there are none."""
        grouped = (self.thousands != "") & ~(self.either & (self.thousands == decimal))
        changed = grouped | ((decimal == ",") & self.has_decimals(","))
        if not changed.any():
            return None
        whole = self.counts[self.numeral].sum() == self.column.notna().sum()
        cells, places = self.column.to_numpy(object, copy=True), self.places(changed)
        texts = cells[places].tolist()
        if grouped.any():
            strip: dict[int, str | None] = dict.fromkeys(map(ord, _SIGNS.replace(decimal, "")))
            texts = [text.translate(strip) for text in texts]
        cells[places] = [float(text.replace(decimal, ".")) for text in texts]
        return type(self.column)(
            cells.astype(float) if whole else cells, index=self.column.index, name=self.column.name
        )


def read_numerals(
    texts: dict[int, Any], given: Written, learned: Written, separator: str | None = None, points: bool = False
) -> Read:
    """Read the numbers in columns of text, each cell in the one way of writing that all of them allow.

    A cell such as 1,5 or 1.234,5 says which the decimal sign is. With it, groups of exactly three digits behind the
    other sign, or behind a space or an apostrophe, are thousands, if all numbers of their column are written so.

    Args:
        texts: columns by their places; cells that are no text are left as they are.
        given: what is known for certain; its thousands may be missing in some numbers.
        learned: what holds if the cells do not say otherwise.
        separator: between cells; a comma speaks for a decimal point.
        points: elsewhere in the table there is a decimal point.
    """
    cells = {place: _Cells(column) for place, column in texts.items()}
    cells = {place: each for place, each in cells.items() if each.are_numbers}
    shown = Counter({sign: sum(int(each.counts[each.shows(sign)].sum()) for each in cells.values()) for sign in ".,"})
    shown["."] += points
    decimal, agreed = given.decimal, True
    if given.thousands in (".", ","):
        decimal = "," if given.thousands == "." else "."
    if decimal is None and shown.total():
        decimal, agreed = "," if shown[","] > shown["."] else ".", 0 in shown.values()
    elif decimal is None and not (learned.decimal == "," and separator == ","):
        decimal = learned.decimal
    known = given.thousands or (learned.thousands if decimal == learned.decimal else None)
    columns, found, unclear = {}, dict[str, list[str]](), {}
    for place, each in cells.items():
        name = str(each.column.name)
        sign, problem = _thousands(each, decimal, agreed, known, separator)
        if problem:
            unclear[name] = problem
            continue
        column = each.values(decimal or ".")
        if column is not None:
            columns[place] = column
        if sign:
            found.setdefault(sign, []).append(name)
    notes = ["decimal comma"] if decimal == "," else []
    notes += [f"thousands {NAMES[sign]} in {shown_names(names)}" for sign, names in found.items()]
    return Read(columns, Written(decimal, known or (next(iter(found)) if len(found) == 1 else None)), notes, unclear)


def _thousands(
    cells: _Cells, decimal: str | None, agreed: bool, known: str | None, separator: str | None
) -> tuple[str, str | None]:
    """The sign between the thousands of a column ("": none), and why they are not clear, if so."""
    either = cells.either
    if decimal is None and either.any():
        # Tables with commas between cells have decimal points, but where 12.345 stands beside 987 it has no decimals.
        if separator == "," and np.array_equal(cells.numeral, either & (cells.thousands == ".")):
            return "", None
        return "", _two_ways(cells, cells.places(either))
    decimal = decimal or "."
    certain = agreed or bool(cells.shows(decimal).any())
    if cells.fit(decimal, "").all():
        return "", None if certain or not either.any() else _two_ways(cells, cells.places(either))
    for sign in sorted({*SIGNS.values()} - {decimal}):
        if cells.fit(decimal, sign).all():
            groups = cells.thousands == sign
            if sign in (" ", "'", known) or (groups & ~cells.either).any():
                return sign, None
            odd = cells.numeral & ~groups & (cells.long | cells.has_decimals(decimal))
            if certain and not odd.any():
                return sign, None
            return "", _two_ways(cells, np.r_[cells.places(groups)[:2], cells.places(odd)[:1]], certain)
    other = "." if decimal == "," else ","
    wrong = cells.places(cells.shows(other))
    if not wrong.size:
        ways = np.unique(cells.thousands[cells.kinds], return_index=True)[1]
        return "", f"{shown_cells(cells.column, ways)}: numbers written in several ways; write them alike"
    return "", (
        f"{shown_cells(cells.column, wrong)}, with another decimal sign than the rest (a {NAMES[decimal]}): write them "
        f"alike, or say --decimal {NAMES[other]}"
    )


def _two_ways(cells: _Cells, places: np.ndarray, decimal_known: bool = False) -> str:
    """Why some cells, of which the first is like 12.345, are not clear."""
    sign = NAMES[str(cells.thousands[cells.kinds[places[0]]])]
    instead = "correct these cells" if decimal_known else f"--decimal {sign}"
    return f"{shown_cells(cells.column, places)}: thousands, or decimals? Say --thousands {sign}, or {instead}"


def shown_cells(column: Any, places: np.ndarray) -> str:
    """Some cells and their rows, as a clause."""
    parts = [f"row {column.index[i]} holds {str(column.iloc[i])[:30]!r}" for i in places[:MOST_SHOWN]]
    return ", ".join(parts) + (f" and {places.size - MOST_SHOWN} more" if places.size > MOST_SHOWN else "")


def shown_names(names: Sequence[str]) -> str:
    """Some names, quoted."""
    rest = len(names) - MOST_SHOWN
    return ", ".join(map(repr, names[:MOST_SHOWN])) + (f" and {rest} more" if rest > 0 else "")
