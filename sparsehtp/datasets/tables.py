"""Tables as people have them: text with separators, Parquet and Excel, all read by pandas."""

import codecs
import csv
import io
import itertools
import re
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..io.memory import default_limit, too_large
from ..io.text import printable
from .data import Data, nonfinite
from .libsvm import MAX_LINE, NUMBER, OPENERS
from .numerals import AS_IT_SAYS, Written, read_numerals

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
ENCODINGS = ("utf-8-sig", "cp1252", "latin-1")  # tried in this order; the last one reads any bytes
MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
POINT = re.compile(
    r"\s*[+-]?(?:0?\.\d+|\d+\.(?:\d{1,2}|\d{4,})|\d{4,}\.\d+)\s*"
)  # a decimal one, whatever else there is
FIRST_LINES = 20  # which the separator is learned from
NEEDED = 8  # times its text that a table takes while it is read
BLOCK = 2**20  # bytes
ZSTD_BLOCK = 2**10  # packed bytes, of which each four may become 2**17


class Table(NamedTuple):
    """A table as it is in a file.

    Attributes:
        frame: a pandas data frame, whose index numbers the rows as an editor or a spreadsheet shows them, and whose
            column names are those of the file, even where one occurs twice.
        notes: how the file was read, where that is not plain UTF-8 text with commas.
        written: how its numbers are written, as far as it shows.
        unclear: pairs (name, sentence) of columns whose numbers could be others.
    """

    frame: Any
    notes: Sequence[str]
    written: Written = AS_IT_SAYS
    unclear: Mapping[str, str] = MappingProxyType({})

    def check(self, path: Path, names: Collection[str]) -> None:
        """ValueError where the numbers of one of these columns could be others."""
        for name in names:
            if name in self.unclear:
                raise ValueError(f"path: the column {name!r} of {path.name}: {self.unclear[name]}.")


class _Text(NamedTuple):
    """A file of separated values.

    Attributes:
        open: opens its bytes, unpacked.
        separator, encoding: how it is written.
        points, dotted: whether a cell that is no name shows a decimal point, and whether one has any point.
        header: the column names.
        first: lines that the header takes.
        lines: the line number on which each row ends.
    """

    open: Callable[[], BinaryIO]
    separator: str
    points: bool
    dotted: bool
    encoding: str
    header: list[str]
    first: int
    lines: np.ndarray

    @property
    def notes(self) -> list[str]:
        plain = self.encoding == "utf-8-sig"
        return [
            *([] if self.separator == "," else [f"separator {SEPARATORS[self.separator]}"]),
            *([] if plain else [f"encoding {self.encoding}"]),
        ]


def read_table(
    path: Path,
    given: Written = AS_IT_SAYS,
    learned: Written = AS_IT_SAYS,
    as_is: Sequence[str] = (),
    max_bytes: int | None = None,
) -> Table:
    """Read a table.

    Args:
        path: the file, of a kind in `LOADERS` of `files.py`.
        given, learned: how its numbers are written, for certain, and if they do not say otherwise.
        as_is: columns whose cells are names, however they look: of text they stay as they are written.
        max_bytes: limit for what the table, and the decompressed file, may take; None: by the memory there is.

    Raises:
        ValueError: if it is malformed, damaged or too large.
        ImportError: without the package that reads it.
    """
    suffix, max_bytes = path.suffix.lower(), default_limit(NEEDED) if max_bytes is None else max_bytes
    if suffix == ".parquet":
        table = Table(_read_parquet(path, max_bytes), [])
        table.frame.index = np.arange(1, len(table.frame) + 1)
    elif suffix in (".xlsx", ".xlsm"):
        table = _read_excel(path, max_bytes)
    else:
        return _read_text(path, max_bytes, given, learned, as_is)
    return _with_numbers(table, {}, as_is, given, learned)


def _with_numbers(
    table: Table, raw: Mapping[int, Any], as_is: Sequence[str], given: Written, learned: Written, **hints: Any
) -> Table:
    """A table with the numbers that stand in cells of text; raw: columns of numbers as texts, by their places."""
    frame, names = table.frame, list(table.frame.columns)
    texts = {j: frame.iloc[:, j] for j, dtype in enumerate(frame.dtypes) if dtype.kind == "O"} | dict(raw)
    read = read_numerals({j: c for j, c in texts.items() if names[j] not in as_is}, given, learned, **hints)
    if read.columns:
        series = [read.columns.get(j, frame.iloc[:, j]) for j in range(len(names))]
        frame = type(frame)(dict(enumerate(series)), index=frame.index)
        frame.columns = names
    for j, dtype in enumerate(frame.dtypes):
        if dtype.kind == "O":
            column = frame.iloc[:, j]
            unsafe = [isinstance(cell, str) and printable(cell) != cell for cell in column]
            if any(unsafe):
                frame.isetitem(j, column.astype(object).map(_cleaned))
    return Table(frame, [*table.notes, *read.notes], read.written, read.unclear)


def _cleaned(cell: Any) -> Any:
    return printable(cell) if isinstance(cell, str) else cell


# --- separated values ------------------------------------------------------------------------------------------------
def _read_text(path: Path, max_bytes: int, given: Written, learned: Written, as_is: Sequence[str]) -> Table:
    """A file of separated values."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("path: reading CSV files needs pandas; run `pip install pandas`.") from error

    try:
        text = _look(path, max_bytes, as_is)
    except csv.Error as error:
        raise ValueError(f"path: {path.name} is not well-formed CSV ({error}); export it again.") from error
    # What later versions do: numbers to the last bit.
    exact = {"float_precision": "round_trip"} if np.lib.NumpyVersion(pd.__version__) < "3.1.0" else {}

    def read(columns: list[int] | None = None, **kind: Any) -> Any:
        with text.open() as file:
            try:
                frame = pd.read_csv(
                    file,
                    sep=text.separator,
                    encoding=text.encoding,
                    skipinitialspace=text.separator != "\t",
                    usecols=columns,
                    index_col=False,
                    low_memory=False,
                    **exact,
                    **kind,
                ).copy()  # of many columns all at once, not each alone
            except (ValueError, pd.errors.ParserError) as error:
                raise ValueError(f"path: {path.name} is not well-formed CSV ({error}); export it again.") from error
        names = text.header if columns is None else [text.header[j] for j in columns]
        frame.columns = [name or renamed for name, renamed in zip(names, frame.columns, strict=True)]  # as in the file
        frame.index = text.lines if len(text.lines) == len(frame) else np.arange(len(frame)) + text.first + 1
        return frame

    frame = read(dtype=dict.fromkeys(as_is, str))
    words = [j for j, dtype in enumerate(frame.dtypes) if dtype.kind == "O"]
    for j in words:  # whole numbers of more than 64 bits are objects of Python
        if pd.api.types.infer_dtype(frame.iloc[:, j]) == "integer":
            frame.isetitem(j, frame.iloc[:, j].astype(float))
    decimals = [j for j, dtype in enumerate(frame.dtypes) if dtype.kind == "f"]
    commas = any(frame.iloc[:, j].astype(str).str.contains(r"\d,\d").any() for j in words)
    # What pandas takes for decimals may be thousands, unless points are surely decimal and no text has a comma.
    plain = given.decimal in (None, ".") and given.thousands != "." and text.points and not commas
    raw = {}
    if decimals and text.dotted and not plain:
        cells = read(decimals, dtype=str)
        raw = {j: cells.iloc[:, i] for i, j in enumerate(decimals)}
    hints = {"separator": text.separator, "points": text.points and not raw and bool(decimals)}
    return _with_numbers(Table(frame, text.notes), raw, as_is, given, learned, **hints)


def _look(path: Path, max_bytes: int, as_is: Sequence[str]) -> _Text:
    """How a file of separated values is written.

    ValueError where its header is missing, or for a ragged line, which pandas would pad with NaN or cut.
    """
    source = _source(path, max_bytes)
    encoding = _encoding(path, source)
    with io.TextIOWrapper(source(), encoding, newline="") as file:
        head = list(itertools.islice((line for line in file if line.strip()), FIRST_LINES))
    if not head:
        raise ValueError(f"path: {path.name} is empty; give a file with at least one row of data.")
    separator = _separator(head, "\t" if ".tsv" in (part.lower() for part in path.suffixes) else ",")
    with io.TextIOWrapper(source(), encoding, newline="") as file:
        reader = csv.reader(file, delimiter=separator, skipinitialspace=separator != "\t")
        header = next((row for row in reader if row), [])
        if all(re.fullmatch(NUMBER, name.strip()) for name in header):
            raise ValueError(f"path: {path.name} starts with numbers; add a header line with the column names.")
        first, lines = reader.line_num, []
        points = dotted = False
        judges = [printable(name) not in as_is for name in header]
        for row in reader:
            if row and len(row) != len(header):
                raise ValueError(
                    f"path: line {reader.line_num} of {path.name} has {len(row)} fields where the header has "
                    f"{len(header)}; correct that line."
                )
            if row:
                lines.append(reader.line_num)
                if not points:
                    with_points = [cell for cell, judge in zip(row, judges, strict=True) if "." in cell and judge]
                    dotted = dotted or bool(with_points)
                    points = any(map(POINT.fullmatch, with_points))
    header = [printable(name) for name in header]
    return _Text(source, separator, points, dotted, encoding, header, first, np.array(lines, int))


def _source(path: Path, max_bytes: int) -> Callable[[], BinaryIO]:
    """A function that opens the bytes of a file, unpacked."""
    size, suffix = path.stat().st_size, path.suffix.lower()
    if size > max_bytes:
        raise too_large(path, size, max_bytes)
    if suffix not in (".gz", ".bz2", ".zst"):
        return lambda: path.open("rb")
    parts, size = [], 0
    try:
        for part in _unpacked_zstd(path) if suffix == ".zst" else _unpacked(path):
            size += len(part)
            if size > max_bytes:
                raise too_large(path, size, max_bytes)
            parts.append(part)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"path: {path.name} is damaged or cut off ({error}); compress it again.") from error
    content = b"".join(parts)
    return lambda: io.BytesIO(content)


def _unpacked(path: Path) -> Iterator[bytes]:
    with OPENERS[path.suffix.lower()](path) as file:
        yield from iter(lambda: file.read(BLOCK), b"")


def _unpacked_zstd(path: Path) -> Iterator[bytes]:
    """Frame by frame: a stream reader takes a file that is cut off for a whole one."""
    try:
        import zstandard
    except ImportError as error:
        raise ImportError("path: reading .zst files needs zstandard; run `pip install zstandard`.") from error
    frame = None
    with path.open("rb") as file:
        while packed := file.read(ZSTD_BLOCK):
            while packed:
                frame = zstandard.ZstdDecompressor().decompressobj() if frame is None else frame
                try:
                    yield frame.decompress(packed)
                except zstandard.ZstdError as error:
                    raise OSError(str(error)) from error
                packed = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the last frame has no end")


def _encoding(path: Path, source: Callable[[], BinaryIO]) -> str:
    """The first encoding that reads all of a file; ValueError for a line that is too long."""
    with source() as file:
        start = file.read(4)
    names: tuple[str, ...] = ENCODINGS
    if start[:2] in MARKS:
        names = MARKS[start[:2]], *ENCODINGS[-1:]
    elif len(start) == 4 and b"\0" in start:  # text in UTF-16 without a mark
        names = "utf-16-le" if start[1] == 0 else "utf-16-be", *ENCODINGS[-1:]
    for name in names:
        with source() as file:
            try:
                for _ in codecs.iterdecode(_blocks(path, file), name):
                    pass
                break
            except UnicodeDecodeError:
                continue
    return name


def _blocks(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The bytes of a file; each end of a line starts the count anew."""
    length = 0
    for block in iter(lambda: file.read(BLOCK), b""):
        last = max(block.rfind(b"\n"), block.rfind(b"\r"))
        length = len(block) - last - 1 + (length if last < 0 else 0)
        if length > MAX_LINE:
            raise ValueError(f"path: a line of {path.name} has more than {MAX_LINE >> 20} MiB; correct it.")
        yield block


def _separator(head: list[str], first: str) -> str:
    """That which cuts the header into most fields, and the next lines into as many where one does."""

    def fields(separator: str) -> tuple[bool, int, bool]:
        try:
            widths = [len(row) for row in csv.reader(head, delimiter=separator) if row]
        except csv.Error:  # one cell of all lines
            return False, 1, False
        return widths[0] > 1 and len(set(widths)) == 1, widths[0], separator == first

    return max(SEPARATORS, key=fields)


# --- other files -----------------------------------------------------------------------------------------------------
def _read_parquet(path: Path, max_bytes: int) -> Any:
    try:
        import pandas as pd
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            "path: reading Parquet files needs pandas and pyarrow; run `pip install pandas pyarrow`."
        ) from error

    try:
        with pq.ParquetFile(path) as file:
            size = 8 * file.metadata.num_rows * file.metadata.num_columns
            if size > max_bytes:
                raise too_large(path, size, max_bytes)
        frame = pd.read_parquet(path, engine="pyarrow")
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"path: {path.name} is damaged or no Parquet file ({error}); write it again.") from error
    frame.columns = [printable(str(name)) for name in frame.columns]
    return frame


def _read_excel(path: Path, max_bytes: int) -> Table:
    """The first sheet: a header, then rows; empty rows and columns are no part of it."""
    try:
        import openpyxl  # noqa: F401  # pandas asks for it in other words
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "path: reading Excel files needs pandas and openpyxl; run `pip install pandas openpyxl`."
        ) from error

    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size <= max_bytes:
            with pd.ExcelFile(path, engine="openpyxl") as book:
                sheets = book.sheet_names
                cells = pd.read_excel(book, header=None)
    except MemoryError:
        raise
    except Exception as error:  # a damaged archive makes the parsers raise nearly anything
        raise ValueError(f"path: {path.name} is damaged or no Excel file ({error}); write it again.") from error
    if size > max_bytes:
        raise too_large(path, size, max_bytes)
    cells.index = cells.index + 1
    cells = cells.dropna(how="all").dropna(how="all", axis=1)
    if cells.empty:
        raise ValueError(f"path: {path.name} is empty; give a file with at least one row of data.")
    frame = cells.iloc[1:].infer_objects()
    frame.columns = [
        f"column {j + 1}" if pd.isna(name) else printable(str(name)).strip()
        for j, name in enumerate(cells.iloc[0].tolist())
    ]
    return Table(frame, [f"sheet {sheets[0]!r}, the first of {len(sheets)}"] if len(sheets) > 1 else [])


# --- features and a target -------------------------------------------------------------------------------------------
def load_table(
    path: Path, target: str | None, n_features: int | None, dtype: np.dtype, max_bytes: int, given: Written = AS_IT_SAYS
) -> Data:
    """A table of numbers and a target; arguments as in `load_file`."""
    table = read_table(path, given, max_bytes=max_bytes)
    import pandas as pd

    frame, names = table.frame, [str(name) for name in table.frame.columns]
    check_target(path, names, target)
    if frame.empty:
        raise ValueError(f"path: {path.name} has 0 rows of data below its header; at least one is needed.")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"path: the column name {twice[0]!r} occurs twice in {path.name}; rename or remove one.")
    table.check(path, names)
    frame.columns = names
    y = _target(path, frame[target])
    features = frame.drop(columns=target)
    for j, dtype_ in enumerate(features.dtypes):
        if not pd.api.types.is_numeric_dtype(dtype_):
            name, example = features.columns[j], features.iloc[:, j].dropna().astype(str)
            example = f" (for example {example.iloc[0]!r})" if len(example) else ""
            raise ValueError(
                f"path: the column {name!r} of {path.name} is not numeric{example}; encode it as numbers, "
                "for example with sparsehtp.TablePreprocessor, or remove it."
            )
    thousands = [note for note in table.notes if note.startswith("thousands ")]
    if thousands and given.thousands is None:
        warnings.warn(f"{path.name} is read with {' and '.join(thousands)}.", stacklevel=3)
    names.remove(target)  # type: ignore[arg-type]  # it is there
    return Data(np.ascontiguousarray(features.to_numpy(dtype)), y, names, target)  # type: ignore[arg-type]


def check_target(path: Path, names: Sequence[str], target: str | None, option: str = "target") -> None:
    """ValueError, which suggests the nearest name, where there is no such column."""
    if target in names:
        return
    import difflib

    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    if target is None:
        raise ValueError(f"{option}: is needed for {path.name}; choose one of {shown}.")
    folded = {name.casefold(): name for name in reversed(names)}
    near = difflib.get_close_matches(target.casefold(), folded, 1)
    advice = f"did you mean {folded[near[0]]!r}? It has {shown}." if near else f"choose one of {shown}."
    raise ValueError(f"{option}: there is no column {target!r} in {path.name}; {advice}")


def _target(path: Path, column: Any) -> np.ndarray:
    import pandas as pd

    if column.isna().any():
        raise nonfinite(path, "target", column.name)
    return column.to_numpy(np.float64) if pd.api.types.is_numeric_dtype(column) else column.to_numpy(str)
