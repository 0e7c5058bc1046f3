"""Numbers are read as they were meant, in whatever way of writing, or the table is refused: never other numbers."""

import numpy as np
import pandas as pd
import pytest

import sparsehtp as sht
from sparsehtp.datasets import load_file
from sparsehtp.datasets.numerals import Written
from sparsehtp.datasets.tables import read_table

WAYS = {  # separator, decimal sign, thousands
    **{"German": (";", ",", "."), "German, from a sheet on the web": (",", ",", ".")},
    **{"German without thousands": (";", ",", ""), "Swiss": (";", ".", "'"), "Swiss, typeset": ("\t", ".", "\u2019")},
    **{"French": (";", ",", "\u202f"), "Swedish": ("\t", ",", "\u00a0"), "English": (",", ".", ",")},
    **{"English with tabs": ("\t", ".", ","), "English with semicolons": (";", ".", ""), "plain": (",", ".", "")},
}
SEPARATED = {",": [], ";": ["separator semicolon"], "\t": ["separator tab"]}  # what is said of it


def written(value, digits, way):
    """A number as text; digits None: as many as it has."""
    _, decimal, thousands = way
    text = f"{value:,.{3 if digits is None else digits}f}"
    if digits is None and "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.translate({ord(","): thousands, ord("."): decimal})


def write(path, columns, separator):
    lines = zip(*([name, *cells] for name, cells in columns.items()), strict=True)
    quoted = [[f'"{cell}"' if separator in cell else cell for cell in line] for line in lines]
    path.write_text("".join(separator.join(line) + "\n" for line in quoted), encoding="utf-8")


def drawn(rng, n):
    """Columns of numbers and the digits each is written with: counts, prices, measurements, one with known decimals."""
    columns = {"z": (np.arange(n), 0)}
    for j in range(int(rng.integers(1, 5))):
        digits = [0, 1, 2, 3, 4, None][rng.integers(6)]
        sizes = 10.0 ** rng.uniform(*[(0, 1), (1, 3), (3, 6), (0, 6)][rng.integers(4)], n)
        columns[f"c{j}"] = np.round(sizes * rng.choice([-1, 1], n), 3 if digits is None else digits), digits
    return columns


@pytest.mark.parametrize("name", [pytest.param(a, marks=[pytest.mark.later] * (a != "German")) for a in WAYS])
def test_equal_numbers_or_a_sentence(tmp_path, name):
    """Tables drawn in each way of writing; also the rows of one alone, read as the table was."""
    way, rng = WAYS[name], np.random.default_rng(list(WAYS).index(name))
    read = refused = 0
    for _ in range(40):
        columns = drawn(rng, int(rng.integers(1, 30)))
        if name == "German, from a sheet on the web":  # unless it shows, commas between cells speak for decimal points
            columns["shown"] = np.full(len(columns["c0"][0]), 2.5), 1
        cells = {c: [written(value, digits, way) for value in values] for c, (values, digits) in columns.items()}
        write(tmp_path / "a.csv", cells, way[0])
        table = read_table(tmp_path / "a.csv")
        refused += len(table.unclear)
        assert [note for note in table.notes if "separator" in note] == SEPARATED[way[0]]
        for c, (values, _) in columns.items():
            if c not in table.unclear:
                np.testing.assert_array_equal(table.frame[c].to_numpy(float), values, err_msg=f"{cells[c]}")
                read += 1
            else:
                assert "holds" in table.unclear[c] and "Say --thousands" in table.unclear[c]
        for given, learned in (((way[1], way[2] or None), (None, None)), ((None, None), table.written)):
            write(tmp_path / "b.csv", {c: each[:1] for c, each in cells.items()}, way[0])
            first = read_table(tmp_path / "b.csv", Written(*given), Written(*learned))
            assert given[0] is None or not first.unclear
            for c, (values, _) in columns.items():
                if c not in first.unclear:
                    assert float(first.frame[c].iloc[0]) == values[0], cells[c][0]
                else:
                    assert learned[0] is None or way[0] == "," or table.unclear
    assert read > 3 * refused


def test_two_decimal_signs_in_a_column(tmp_path):
    """Cells with points among decimal commas, and the other way round: equal numbers, or the cells are named."""
    rng = np.random.default_rng(0)
    ways, refused = {",": (";", ",", ""), ".": (";", ".", "")}, 0
    for _ in range(30):
        digits = int(rng.integers(1, 5))
        values, signs = np.round(rng.uniform(0, 2000, 12), digits), rng.choice(list(ways), 12, p=[0.8, 0.2])
        cells = [written(value, digits, ways[sign]) for value, sign in zip(values, signs, strict=True)]
        for others in (["1,5"] * 12, ["1.5"] * 12, ["7"] * 12):
            write(tmp_path / "a.csv", {"a": cells, "b": others}, ";")
            table = read_table(tmp_path / "a.csv")
            if "a" in table.unclear:
                refused += 1
                with pytest.raises(ValueError, match=r"^path: the column '\w' of a\.csv: row \d+ holds '.*\.$"):
                    load_file(tmp_path / "a.csv", "b")
            else:
                np.testing.assert_array_equal(table.frame["a"].to_numpy(float), values)
    assert refused > 15


SENTENCES = {
    "thousands, said so": ("a;b;y\n12.345;1,5;1\n987;2;2\n", {}, [12345, 987], "a.csv is read with thousands point"),
    "both": ("a;b;y\n7.407,13;1;1\n9,5;2;2\n", {}, [7407.13, 9.5], "thousands point in 'a'"),
    "asked for": ("a;b;y\n12.345;1;1\n1234;2;2\n", {"thousands": "."}, [12345, 1234], None),
    "asked for decimals": ("a;b;y\n12.345;1;1\n987;2;2\n", {"decimal": "."}, [12.345, 987], None),
    "asked for a comma": ("a;b;y\n98.7;1;1\n9;2;2\n", {"decimal": ","}, "'98.7', with another decimal sign", None),
    "asked for points between": ("a;b;y\n98.7;1;1\n9;2;2\n", {"thousands": "."}, "'98.7', with another", None),
    "ambiguous": ("a;b;y\n12.345;1;1\n987;2;2\n", {}, "'12.345'.*thousands point, or --decimal point", None),
    "commas around": ("a,b,y\n12.345,1,1\n98.712,2,2\n", {}, [12.345, 98.712], None),
    "in quotes": ('a,b,y\n"12,345",1,1\n"98,712",2,2\n', {}, "'12,345'.*: thousands, or decimals", None),
    "not all": ("a;b;y\n1.000;1,5;1\n2.000;1;1\n1234;2;2\n", {}, "row 2.*row 3.*row 4 holds '1234'.*correct", None),
    "a point": ("a;b;c;y\n38,5;1.5;9;1\n9;2;x;2\n7;3;9;3\n", {}, r"'38,5', .* \(a point\): .* --decimal comma", None),
    "in some cells": ("a;b;c;y\n98.7;1,5;x;1\n987;2,5;x;2\n7;7;x;3\n", {}, "'98.7', with another decimal sign", None),
    "semicolons around": ("a;b;y\n12.345;1;1\n98.712;2;2\n", {}, "row 2 holds '12.345', row 3 .* decimals", None),
    "two separators": ("a;b;y\n1 234;1,5;1\n1'234;2;2\n", {}, "row 2 holds '1 234', row 3 .* in several ways", None),
    "a sign twice": ("a;y\n1;2\n", {"decimal": ",", "thousands": ","}, "^thousands: must be .*not the decimal", None),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_what_is_said(tmp_path, name, recwarn):
    text, options, expected, warning = SENTENCES[name]
    (tmp_path / "a.csv").write_text(text)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            load_file(tmp_path / "a.csv", "y", **options)
        return
    np.testing.assert_array_equal(load_file(tmp_path / "a.csv", "y", **options).X[:, 0], expected)
    assert [warning in str(each.message) for each in recwarn] == ([True] if warning else [])


def test_words_among_such_numbers_stay(tmp_path):
    (tmp_path / "a.csv").write_text(
        "a;b;c\n1.234,5;Bonn\x07 1,5;01.02.2024\nunknown;12.345;03.04.2024\nnone;;1\n-2,5;y;2\n"
    )
    table = read_table(tmp_path / "a.csv")
    assert table.frame["a"].tolist() == [1234.5, "unknown", "none", -2.5] and not table.unclear
    assert table.frame["b"].dropna().tolist() == ["Bonn\\x07 1,5", "12.345", "y"]
    assert table.frame["c"].tolist()[:2] == ["01.02.2024", "03.04.2024"]


@pytest.mark.parametrize(("kind", "package"), [("xlsx", "openpyxl"), ("parquet", "pyarrow")])
def test_texts_in_other_files(tmp_path, kind, package):
    pytest.importorskip(package, reason=f"{kind} files need {package}, an option")
    frame, path = pd.DataFrame({"a": ["1.234,5", "12.345,0"], "y": [1, 2]}), tmp_path / f"a.{kind}"
    frame.to_excel(path, index=False) if kind == "xlsx" else frame.to_parquet(path)
    with pytest.warns(UserWarning, match="thousands point"):
        np.testing.assert_array_equal(load_file(path, "y").X[:, 0], [1234.5, 12345])
    unclear = frame.assign(a=["12.345", "987"])
    unclear.to_excel(path, index=False) if kind == "xlsx" else unclear.to_parquet(path)
    assert "thousands, or decimals" in read_table(path).unclear["a"]


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_rows_have_the_numbers_that_a_spreadsheet_shows(tmp_path, kind):
    frame, path = pd.DataFrame([["a", "y"], [1, 2], [None, None], [3, 4]]), tmp_path / f"a.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False, header=False)
    else:
        pytest.importorskip("openpyxl", reason="xlsx files need openpyxl, an option")
        frame.to_excel(path, index=False, header=False)
    table = read_table(path).frame.dropna()
    assert table.index.tolist() == [2, 4] and table.to_numpy(float).tolist() == [[1, 2], [3, 4]]
    if kind == "csv":  # a row has the number of its last line
        path.write_text('\na,y\n1,2\n\n"3\n",4\n5,6\n')
        assert read_table(path).frame.index.tolist() == [3, 6, 7]


def test_what_was_learned_holds_for_the_same_decimal_sign(tmp_path):
    (tmp_path / "a.csv").write_text("a;b\n12.345;1,5\n1234;2,5\n")
    (tmp_path / "b.csv").write_text("a,b\n12.345,1\n987,2\n")  # commas between cells are no decimal ones
    for learned, unclear in (((",", "."), [[], ["a"]]), ((None, None), [["a"], ["a"]]), ((".", ","), [["a"], []])):
        tables = [read_table(tmp_path / f"{name}.csv", learned=Written(*learned)) for name in "ab"]
        assert [list(table.unclear) for table in tables] == unclear
    (tmp_path / "a.csv").write_text("a;b\n1'234;1.5\n7;2\n")
    assert read_table(tmp_path / "a.csv").written == Written(".", "'")
    (tmp_path / "a.csv").write_text("a;b\n1'234.5;1 234.5\n")
    assert read_table(tmp_path / "a.csv").written == Written(".", None)
    (tmp_path / "a.csv").write_text("a;b\n1,5;2\n")
    for learned, found in (((".", ","), (",", None)), ((",", "."), (",", "."))):
        assert read_table(tmp_path / "a.csv", learned=Written(*learned)).written == found
    (tmp_path / "a.csv").write_text("id;a\n1.5;12.345\n2.5;987\n")  # a name shows nothing
    assert [list(read_table(tmp_path / "a.csv", as_is=names).unclear) for names in ([], ["id"])] == [[], ["a"]]
    (tmp_path / "a.csv").write_text("a;b\n1.234.567;1,5\n1.234;2\n")
    assert read_table(tmp_path / "a.csv").written == Written(",", ".")


def test_a_preprocessor_reads_texts_so(tmp_path):
    texts = pd.DataFrame({"a": ["1.234,5", "7", "12.000"], "b": [1.0, 2.0, 3.0], "c": ["x", "y", "x"]})
    table = sht.TablePreprocessor(dummies=True, decimal=",", thousands=".").fit(texts)
    np.testing.assert_array_equal(table.transform(texts)["a"], [1234.5, 7, 12000])
    assert texts["a"].tolist() == ["1.234,5", "7", "12.000"]
    loaded = sht.load(sht.save(table, tmp_path / "table.npz"))
    np.testing.assert_array_equal(loaded.transform(texts[2:])["a"], [12000])
    with pytest.raises(ValueError, match=r"'a': row 0 holds '3\.5', with another decimal sign"):
        loaded.transform(pd.DataFrame({"a": ["3.5", "2,5"], "b": [1.0, 2.0], "c": "x"}))
