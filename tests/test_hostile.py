"""Names and files that mean harm: every reader, every writer and the terminal."""

import base64
import bz2
import codecs
import csv
import gzip
import io
import json
import re
import tracemalloc
import xml.etree.ElementTree as ElementTree
import zipfile
from html.parser import HTMLParser

import cases
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import sparsehtp as sht
from sparsehtp import _save
from sparsehtp.cli import lowrank, precision, predict
from sparsehtp.cli.files import APOSTROPHES
from sparsehtp.cli.main import app
from sparsehtp.cli.report import Console
from sparsehtp.datasets import load_file, tables
from sparsehtp.datasets.files import LOADERS
from sparsehtp.datasets.libsvm import NUMBER
from sparsehtp.io import memory, npz
from sparsehtp.io.text import printable, quoted
from sparsehtp.plot import as_graph, plot_coefficients
from sparsehtp.plot.style import new_figure

N = 40
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 6)).round(3)
Y = (3 * X[:, 0] - 2 * X[:, 1] + X[:, 2] + 0.1 * RNG.standard_normal(N)).round(3)
NAMES = ["\x1b[31mred\x1b[0m", "=cmd|' /C calc'!A0", "@SUM(A1)\x07", "-2+3\x01", "\x9b31m c1"]
NAMES += ["\u202egnp.\x7fexe\ufffe"]
TARGET = "+y\x02\x1b]0;title\x07"
TABLE = pd.DataFrame(X, columns=NAMES).assign(**{TARGET: Y})
FORMULA = re.compile(r"\s*[=+\-@]")
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")


# --- readers ---------------------------------------------------------------------------------------------------------
LABELS = ["\x1b[31myes", "=no\x07"]


def hostile(kind, path):
    """Write a file of this kind with such names and labels; where it can hold none, with numbers."""
    y = np.array(LABELS)[(Y > 0).astype(int)]
    if kind == "npz":
        np.savez(path, X=X, y=y, feature_names=np.array(NAMES))
    elif kind == "libsvm":
        path.write_text("1 1:2 2:3\n-1 1:1\n")
    else:
        table = TABLE.assign(**{TARGET: y})
        {"csv": table.to_csv, "excel": table.to_excel, "parquet": table.to_parquet}[kind](path, index=False)


SUFFIXES = {"csv": "csv", "excel": "xlsx", "libsvm": "svm", "npz": "npz", "parquet": "parquet"}
NEEDS = {"excel": "openpyxl", "parquet": "pyarrow"}


@pytest.mark.parametrize("kind", LOADERS)
def test_every_reader_cleans_names_and_labels(tmp_path, kind):
    """A new reader needs a place in this table."""
    pytest.importorskip(NEEDS.get(kind, "numpy"), reason=f"{kind} files need it, an option")
    path = tmp_path / f"a.{SUFFIXES[kind]}"
    try:
        hostile(kind, path)
    except Exception as error:  # openpyxl refuses to write some
        pytest.skip(f"no such file can be written: {error}")
    data = load_file(path, printable(TARGET) if kind in ("csv", "excel", "parquet") else None)
    texts = [*data.feature_names, data.target_name, *(data.y.tolist() if data.y.dtype.kind == "U" else [])]
    assert len(texts) > N or kind == "libsvm"
    assert not any(UNSAFE.search(text) for text in texts)
    assert len(set(data.feature_names)) == data.X.shape[1]


def test_what_is_shown_in_place_of_control_characters():
    """Nothing that a terminal or XML could take amiss, and texts without such things as they are."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        text = "".join(map(chr, rng.choice([*range(256), *range(0x2000, 0x2070), 0xD800, 0xFFFE, 0x1F600], 8)))
        shown = printable(text)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", shown) and not UNSAFE.search(shown) and printable(shown) == shown
        check_xml(ElementTree.tostring(ElementTree.Element("text", text=shown)))
    for text in ("größe", "气温 (°C)", "price\u00a0€", "a=b", "می‌خواهم"):
        assert printable(text) == text
    assert printable("\x1b[31m\x9b\u202e") == "\\x1b[31m\\x9b\\u202e" and printable("a\nb\tc") == "a b c"


def test_cells_of_csv_files_run_nothing():
    for text in ("=1+1", "+cmd", "-2+3", "@A1", "\t=1", "\r=1", "  =1", "\n-x", "\uff1d1"):
        assert quoted(text).startswith("'")
    for text in ("-1.5", "+2", "-1e-3", "a=b", "1-2", "", "'=1", "größe"):
        assert quoted(text) == text


# --- writers ---------------------------------------------------------------------------------------------------------
def check_xml(content):
    ElementTree.fromstring(content)


def check_csv(content):
    """No cell that a spreadsheet would run, and no control character but ends of lines."""
    for row in csv.reader(io.StringIO(content.decode())):
        for cell in row:
            assert re.fullmatch(NUMBER, cell) or not FORMULA.match(cell), cell
            assert not UNSAFE.search(cell)


class Page(HTMLParser):
    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            assert not UNSAFE.search(value or "")
            if name == "src":
                check_xml(base64.b64decode(value.partition(",")[2]))


def check_html(content):
    assert not UNSAFE.search(content.decode())
    Page().feed(content.decode())


CHECKS = {".svg": check_xml, ".graphml": check_xml, ".csv": check_csv, ".html": check_html, ".json": json.loads}
CHECKS |= dict.fromkeys((".npz", ".png"), lambda content: None)
QUICK = ("--solver", "htp")
COMMANDS = {
    "fit": (*QUICK, "--target", printable(TARGET), "--k", 3, "--test-size", 0.25, "--report", "--diagnostics"),
    "path": (*QUICK, "--target", printable(TARGET), "--k-max", 2, "--stability", 2, "--report"),
    "lowrank": ("--targets", f"{printable(TARGET)},{printable(NAMES[1])}", "--rank", 1),
    "precision": ("--drop", printable(TARGET), "--k", 2),
    "predict": (),
    "shards": ("--k", 2),  # of fit
}
NO_NAMES = {"info", "demo"}  # commands that read no file of the user's
SLOW = ("path", "lowrank", "shards")


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    assert not UNSAFE.search(result.stdout + result.stderr)
    return result


def test_every_command_is_in_the_table():
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert names == (COMMANDS.keys() - {"shards"}) | NO_NAMES


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in COMMANDS])
def test_every_command_writes_what_is_well_formed(tmp_path, name):
    table = tmp_path / "\x1b[32mmy table.csv"
    TABLE.to_csv(table, index=False)
    out = tmp_path / "out"
    if name == "predict":
        people = TABLE.assign(who=[f"=p{i}\x1b" for i in range(N)])
        people[TARGET] = np.where(Y > 0, LABELS[0], LABELS[1])
        people.to_csv(table, index=False)
        model = tmp_path / "model.npz"
        options = ("--target", printable(TARGET), "--k", 2, "--loss", "logistic", "--l2", 0.01, "--id", "who")
        run("fit", table, *options, *QUICK, "--save", model, "--out", out)
        shown = run("predict", model, table)
        check_csv(shown.stdout.encode())
        assert APOSTROPHES in " ".join(shown.stderr.split())
        run("predict", model, table, "--out", out / "predictions.csv")
    else:
        files = (name, table)
        if name == "shards":
            hostile("npz", tmp_path / "a.npz")
            files = ("fit", tmp_path / "*.npz", "--loss", "logistic")
        said = run(*files, *COMMANDS[name], "--out", out).stderr
        csvs = [path for path in out.iterdir() if path.suffix == ".csv"]
        quoted_there = any(",'" in path.read_text() or "\n'" in path.read_text() for path in csvs)
        assert (APOSTROPHES in " ".join(said.split())) == quoted_there
        if name in ("precision", "shards"):
            assert quoted_there
    written = list(out.iterdir())
    assert written
    for path in written:
        CHECKS[path.suffix](path.read_bytes())  # a new kind of file needs a check


def test_the_terminal_gets_no_escape_sequence_but_its_own():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="standard", width=80)
    console.print("[bold]name[/] \x1b[31mred\x9b5m", highlight=False)
    console.print(dict.fromkeys(NAMES))
    text = stream.getvalue()
    assert "\\x1b[31mred\\x9b5m" in text and "\x1b[1mname" in text
    assert not UNSAFE.search(re.sub(r"\x1b\[[\d;]*m", "", text)) and "\x1b[31mred" not in text


def test_figures_and_graphs_of_such_names(tmp_path):
    figures = [plot_coefficients(NAMES, np.arange(6.0), title=TARGET), new_figure(3, 2)]
    ax = figures[1].subplots()
    ax.plot([0, 1], label=NAMES[0])
    ax.legend(title=NAMES[3])
    ax.set_title(f"{NAMES[2]}\n{NAMES[4]}")
    ax.annotate(NAMES[5], (0, 0))
    figures[1].suptitle(TARGET)
    own = Figure()  # one of the user's
    plot_coefficients(NAMES, np.arange(6.0), ax=own.subplots())
    for figure in (*figures, own):
        figure.savefig(tmp_path / "a.svg")
        check_xml((tmp_path / "a.svg").read_bytes())
    networkx = pytest.importorskip("networkx", reason="graphs need networkx, an option")
    networkx.write_graphml(as_graph(np.eye(6) + 0.1, NAMES), tmp_path / "a.graphml")
    check_xml((tmp_path / "a.graphml").read_bytes())


# --- limits ----------------------------------------------------------------------------------------------------------
def large(path):
    """A file that holds more than 2 MiB of numbers."""
    text = b"a,b,y\n" + b"1,2,3\n" * 400_000
    lines = b"1 1:2 2:3\n" * 400_000
    numbers = pd.DataFrame({"a": np.arange(400_000), "b": 1, "y": 2})
    name = path.name
    openers = {".gz": gzip.open, ".bz2": bz2.open}
    if path.suffix == ".zst":
        openers[".zst"] = pytest.importorskip("zstandard", reason="an option").open
    if name.endswith(".npz"):
        np.savez_compressed(path, X=np.zeros((400_000, 2)), y=np.zeros(400_000))
    elif name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="an option")
        numbers.to_parquet(path)
    elif name.endswith(".xlsx"):
        pytest.importorskip("openpyxl", reason="an option")
        numbers[:60_000].to_excel(path)
    else:
        with openers.get(path.suffix, open)(path, "wb") as file:
            file.write(lines if ".svm" in name else text)


LARGE = ".csv .tsv.gz .csv.gz .csv.bz2 .csv.zst .xlsx .parquet .npz .svm .svm.gz .svm.bz2".split()


@pytest.mark.parametrize("suffix", LARGE)
def test_the_memory_there_is_limits_every_reader(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"a{suffix}"
    large(path)
    table = ".svm" not in suffix and suffix != ".npz"
    readers = [lambda: load_file(path, "y" if table else None), lambda: precision.load_variables(path, None)]
    if table or suffix == ".npz":
        readers.append(lambda: lowrank.load_responses(path, ["y"]))
    if table:
        model = sht.TablePreprocessor().fit(pd.DataFrame(X[:, :2], columns=["a", "b"]))
        readers.append(lambda: predict.predict_rows([model], path))
    monkeypatch.setattr("sparsehtp.io.memory.available", lambda: 2**20)
    for read in readers:
        tracemalloc.start()
        with pytest.raises(ValueError, match=r"^path: a\.\S+ would take \d+ MiB, more than the limit of 0 MiB; .*\.$"):
            read()
        assert tracemalloc.get_traced_memory()[1] < 2**23
        tracemalloc.stop()


def test_free_memory_is_the_least_that_anything_says_it_is_and_else_all(monkeypatch):
    resource = pytest.importorskip("resource", reason="Unix limits processes by it")
    free, limit = memory.available(), "9000"
    said = {"meminfo": "MemTotal:  9 kB\nMemAvailable:  8 kB\n"}
    monkeypatch.setattr("pathlib.Path.read_text", lambda path: said.get(path.name, limit))
    assert memory.available() == 8192
    endless = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (5000, endless))
    assert memory.available() == 5000
    monkeypatch.setattr(resource, "getrlimit", lambda _: (endless, endless))
    said, limit = {"meminfo": "MemTotal:  9 kB\n"}, "max"
    assert memory.available() >= free
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 3, "SC_PAGE_SIZE": 5}.get)
    assert memory.available() == 15


@pytest.mark.parametrize(
    ("suffix", "size", "share"), [(".csv.gz", 404, 8), (".csv", 404, 8), (".npz", 32, 4), (".svm.gz", 1000, 4)]
)
def test_a_file_may_take_the_share_of_the_memory_that_is_told(tmp_path, monkeypatch, suffix, size, share):
    path, target = tmp_path / f"a{suffix}", "y" if ".csv" in suffix else None
    text = b"a,y\n" + b"1,2\n" * 100 if target else b"1 1:2 2:3\n" * 100
    path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    if suffix == ".npz":
        np.savez(path, X=np.ones((2, 1)), y=np.ones(2))
    monkeypatch.setattr("sparsehtp.io.memory.available", lambda: size * share)
    assert load_file(path, target).X.shape[0] in (2, 100)
    monkeypatch.setattr("sparsehtp.io.memory.available", lambda: size * share - 1)
    cases.refused(ValueError, "more than the limit", lambda: load_file(path, target))


@pytest.mark.parametrize(
    "write", [lambda path, text: path.write_bytes(text), lambda path, text: path.write_bytes(gzip.compress(text))]
)
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF16_LE, b"\xe9"])
def test_a_line_that_is_too_long(tmp_path, monkeypatch, write, mark):
    """Header or row, in any encoding: refused before its cells are made."""
    monkeypatch.setattr(tables, "BLOCK", 2**8)
    monkeypatch.setattr(tables, "MAX_LINE", 2**12)
    for text in ("a,y\n1,2\n" + "1," * 3000, "a," * 3000 + "y\n1,2\n"):
        path = tmp_path / ("a.csv.gz" if "gzip" in write.__code__.co_names else "a.csv")
        write(path, mark + text.encode("utf-16-le" if len(mark) == 2 else "latin-1"))
        with pytest.raises(ValueError, match=r"^path: a line of a\.csv\S* has more than .* MiB; .*\.$"):
            load_file(path, "y")
    write(path, mark + ("a,y\n" + "1,2\n" * 3000).encode("utf-16-le" if len(mark) == 2 else "latin-1"))
    assert load_file(path, "y").X.shape == (3000, 1)


@pytest.mark.parametrize("read", [sht.load, load_file])
def test_an_archive_of_many_members_is_refused_unread(tmp_path, monkeypatch, read):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(npz.MAX_MEMBERS + 1):
            archive.writestr(f"{i}.npy", b"")
    monkeypatch.setattr(npz, "_claimed", lambda *_: pytest.fail("read"))
    with pytest.raises(ValueError, match=r"^path: a\.npz holds 8193 arrays, more than the limit of 8192; .*\.$"):
        read(path)
    monkeypatch.undo()
    monkeypatch.setattr(npz, "MAX_MEMBERS", 2)
    np.savez(path, X=X, y=Y)
    assert len(load_file(path).y) == N


def test_no_model_is_saved_that_could_not_be_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(_save, "MAX_MEMBERS", 3)
    with pytest.raises(ValueError, match=r"^model: holds more than 3 arrays; save parts of it\.$"):
        sht.save([np.zeros(1)] * 3, tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())
    sht.save([np.zeros(1)] * 2, tmp_path / "a.npz")
