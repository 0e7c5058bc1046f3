"""Tables as people have them pass through fit, path and predict: what is wrong, and what must be said or found."""

import io
import json
import re
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from commands import invoke, made, named, saved, words

import sparsehtp as sht
from sparsehtp.cli.caveats import caveat
from sparsehtp.cli.fit import DRAWN, Fit, make_split
from sparsehtp.cli.numbers import folds_of_rows, numbers
from sparsehtp.cli.options import FitOptions, PathOptions
from sparsehtp.cli.path import Subsets
from sparsehtp.cli.tables import Problems, _alike, _listed, _of_cells, load_data

N = 40  # one shape, so that few programs are compiled
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 6)).round(3)
CITY = np.array(["Bonn", "Oslo", "Rome"])[RNG.integers(3, size=N)]
Y = (3 * X[:, 0] - 2 * X[:, 1] + 0.1 * RNG.standard_normal(N)).round(3)
CLEAN = pd.DataFrame(X, columns=list("abcdef")).assign(y=Y)


class Table(NamedTuple):
    """A table, the options that it is fitted with, and the outcome."""

    frame: pd.DataFrame
    options: str = ""  # of fit and path
    says: str = ""  # pieces of what stops the fit, or, with `finds`, of what is said beside it; joined by " & "
    finds: str | None = None  # features among the chosen ones, all but for a leak; None: the fit stops
    write: dict[str, Any] = {}  # how the data frame is written


def holes(**cells):
    """The clean table with other cells in some rows."""
    table = CLEAN.astype(object)
    for name, rows in cells.items():
        table.loc[list(rows), name] = pd.Series(rows, dtype=object)
    return table


def header(names):
    return CLEAN.set_axis(list(names), axis=1)


AB = "a b"
LOGISTIC = "--loss logistic --l2 0.01"
LABELS = np.where(3 * X[:, 0] - 2 * X[:, 1] + 2 * X[:, 5] > 0, "yes", "no")
GERMAN, MARKED = {"sep": ";", "decimal": ","}, {"encoding": "utf-8-sig"}
TABLES = {
    # --- how it is written
    "semicolons and decimal commas": Table(CLEAN, "", "separator semicolon & decimal comma", AB, GERMAN),
    "a mark and spaces": Table(CLEAN.rename(columns={"b": " b", "y": " y"}), "", "", AB, MARKED),
    # --- names
    "a name twice": Table(header("aacdefy"), "", "a  the name of columns 1, 2"),
    "the id twice": Table(header("aacdefy"), "--id a", "a  the name of columns 1, 2"),
    "the target twice": Table(header("abcdeyy"), "", "y  the name of columns 6, 7"),
    "nothing to drop": Table(CLEAN, "--drop g", "--drop: there is no column 'g'"),
    # --- cells
    "words": Table(holes(c={3: "x", 4: "y", 5: "z", 8: "3;5"}), says="row 10 holds '3;5': & 1 problem"),
    "several problems": Table(
        holes(c={3: "x"}, d={4: None}, e={5: "inf"}, y={6: "many", 7: "-inf"}).assign(city=CITY),
        says="6 problems & row 5 holds 'x' & infinite in row 7 & row 8 holds 'many' & target is infinite in row 9",
    ),
    "gaps": Table(holes(c={3: None, 8: "NA"}), "", "2 of 40 values missing (rows 5, 10) & --missing"),
    "gaps, rows left out": Table(holes(c={3: None, 8: "NA"}), "--missing drop-rows", "2 of 40 rows left out", AB),
    "gaps, columns left out": Table(
        holes(c={3: None}).assign(g=X[:, 2] ** 2), "--missing drop-columns", "left out & 'c'", AB
    ),
    "gaps, filled": Table(
        holes(a={3: None}, c={8: None}), "--missing mean", "'a', 'c' filled with the mean & (1, 1 of 40)", AB
    ),
    "an empty column": Table(holes(c=dict.fromkeys(range(N))), "--missing mean", "no value at all"),
    "no target at all": Table(holes(y=dict.fromkeys(range(N))), "", "target is missing in rows 2, 3, 4, 5 and 36 more"),
    "gaps in the target, rows left out": Table(
        holes(y={3: None}, c={8: None}), "--missing mean --drop-missing-target", "1 of 40 rows & 'c' filled with", AB
    ),
    # --- columns
    "text as dummies": Table(
        CLEAN[["b", "c", "d", "e"]].assign(city=CITY, y=Y - 3 * X[:, 0] + 4.0 * (CITY == "Rome")),
        "--dummies",
        finds="b city=Oslo city=Rome",
    ),
    "dates": Table(CLEAN.assign(c=pd.date_range("2024", periods=N)), "", "dates, such as '2024-01-01' & --drop c"),
    "a number for two": Table(
        CLEAN.assign(name=np.arange(N) // 2), "--id name", "40 rows share & add --groups name", AB
    ),
    # --- the table as a whole
    "one row": Table(CLEAN[:1], "", "a single row"),
    "no rows": Table(CLEAN[:0], "", "no row is left"),
    "no feature": Table(CLEAN[["y"]], "", "no other column is left as a feature"),
    "a constant target": Table(CLEAN.assign(y=2), "", "the target is '2' in every row"),
    "two classes": Table(CLEAN.assign(y=LABELS), LOGISTIC, "", AB),
}


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, file, **__: file.write(b""))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "two classes" else name for name in TABLES]
)
def test_a_messy_table(tmp_path, name):
    table, path, out = TABLES[name], tmp_path / "table.csv", tmp_path / "out"
    table.frame.to_csv(path, index=False, **table.write)
    target = () if "--target" in table.options else ("--target", "y")
    options = (*target, *table.options.split(), "--solver", "htp")
    fit = invoke("fit", path, *options, "--k", 2, "--save", tmp_path / "model.npz", "--out", out)
    for piece in table.says.split(" & "):
        assert words(piece) in words(fit.stderr)
    runs = [fit, invoke("path", path, *options, "--k-max", 2, "--out", tmp_path / "path")]
    assert runs[1].stderr == fit.stderr
    assert all(run.exit_code == (2 if table.finds is None else 0) for run in runs), [run.output for run in runs]
    assert all("Traceback" not in run.output for run in runs)
    if table.finds is None:
        assert fit.stdout == "" and sorted(each.name for each in tmp_path.iterdir()) == [path.name]
        return
    model = json.loads((out / "model.json").read_text())
    rows = json.loads((tmp_path / "path" / "path.json").read_text())["rows"]
    assert all(set(table.finds.split()) <= named(each).keys() for each in (model, rows[2]))
    check_predictions(tmp_path, path, table, model)


def check_predictions(folder, path, table, model):
    """`predict` gives what the coefficients say of the rows; the target is not needed, and is not looked at."""
    frame = table.frame
    if "drop-rows" in table.options:
        result = invoke("predict", folder / "model.npz", path)
        assert result.exit_code == 2 and "missing or infinite values, in rows 5, 10" in result.stderr
        return
    new = saved(folder, frame.rename(columns=str.strip).drop(columns="y").iloc[::-1, ::-1], "new.csv")
    result = invoke("predict", folder / "model.npz", new)
    assert result.exit_code == 0, result.stderr
    assert ("filled as in the fit" in result.stderr) == ("filled with" in table.says)
    found = pd.read_csv(new).assign(**{f"city={level}": CITY[::-1] == level for level in set(CITY)})
    predictions = pd.read_csv(io.StringIO(result.stdout))
    assert ("name" in predictions.columns) == ("--id" in table.options)
    if "--id" in table.options:
        assert predictions["name"].tolist() == frame["name"].tolist()[::-1]
    w = named(model)
    eta = model["intercept"] + sum(found[name].fillna(found[name].mean()) * w[name] for name in w)
    if model["classes"]:
        assert predictions["prediction"].tolist() == np.where(eta > 0, "yes", "no").tolist()
        np.testing.assert_allclose(predictions["probability of yes"], 1 / (1 + np.exp(-eta)), rtol=1e-9)
    else:
        np.testing.assert_allclose(predictions["prediction"], eta, rtol=1e-9, atol=1e-9)


def doubts_of(folder, table, **options):
    return load_data(saved(folder, table), FitOptions(file=folder / "data.csv", target="y", **options)).doubts


def test_what_is_doubted_and_nothing_else(tmp_path):
    """Nothing by few rows, in which chance does such things."""
    places, twice = np.random.default_rng(1).permutation(N) * 7, np.arange(N) // 2
    made = dict(c=2 * Y + 1, d=7.0, e=np.arange(N) ** 2, f=CLEAN.b, unsorted=places, twice=twice)
    table = CLEAN.assign(**made, down=range(N, 0, -1), slow=np.arange(N) / 4, **{"row id": places + 1})
    constant = "'d': the same in every row (7), so it can explain nothing."
    counting = "{0!r}: numbers the rows, like an identifier: consider --id or --drop {0}."
    leak = "'c': predicts the target perfectly alone: is it made from the target (leakage)?"
    all_of_them = [constant, *map(counting.format, ("e", "down", "row id")), leak]
    assert doubts_of(tmp_path, table[:20]) == doubts_of(tmp_path, table) == all_of_them
    notes = load_data(tmp_path / "data.csv", FitOptions(file=tmp_path / "data.csv", target="y")).notes
    assert notes == ["left out, identical to another column: 'f' to 'b'"]
    assert doubts_of(tmp_path, table[:19]) == [constant]
    level = np.array(["low", "mid", "high", "top"])[np.argsort(np.argsort(Y)) // 10]
    for y, leaks in (
        (np.isin(level, ["low", "high"]), ["'level'"]),
        (Y < Y.mean(), ["'minus'"]),
        (Y > Y.mean(), ["'minus'"]),
        (twice % 2 > 0, []),  # of which each text holds few
    ):
        for no, yes in (("no", "yes"), (0, 1)):
            classes = CLEAN.assign(y=np.where(y, no, yes), level=level, minus=-Y, twice=[f"p{i}" for i in twice])
            doubts = doubts_of(tmp_path, classes, dummies=True, loss="logistic")
            assert [doubt.partition(":")[0] for doubt in doubts] == leaks
    assert doubts_of(tmp_path, CLEAN.assign(y=np.resize(["lo", "mid", "hi"], N)), levels="lo,mid,hi") == []


def test_rows_are_copies_unless_by_chance_or_in_one_group(tmp_path):
    chance = pd.DataFrame({"a": np.arange(N) % 2, "b": np.arange(N) // 2 % 2, "y": np.arange(N) // 4 % 5})
    once = CLEAN.assign(f=np.arange(N) % 2)
    twice = pd.concat([once, once[:3]]).assign(who=[*range(N), 0, 1, 7])
    assert doubts_of(tmp_path, chance) == doubts_of(tmp_path, twice[:-1], groups="who") == []
    assert len(doubts_of(tmp_path, CLEAN[:2])) == 1
    (doubt,) = doubts_of(tmp_path, twice, groups="who", id="who")  # a name may be that of a group
    assert doubt.startswith("1 of 43 rows are exact copies of others (row 44)")
    shared, copied = doubts_of(tmp_path, twice, id="who")
    assert shared.startswith("'who': 6 rows share their name") and "3 of 43 rows are exact copies" in copied
    with pytest.raises(Problems, match=r"^who: the group is missing in row 42: "):
        doubts_of(tmp_path, twice.assign(who=[*range(N), None, 1, 7]), groups="who")


def test_of_many_columns_with_one_problem_some_are_listed(tmp_path):
    words = {f"t{j:02d}": np.where(np.arange(N) % 2, "y", f"x{j}") for j in range(10)}
    with pytest.raises(Problems) as caught:
        doubts_of(tmp_path, CLEAN.assign(**words))
    *listed, (name, text) = caught.value.found
    assert [each for each, _ in listed] == [f"t{j:02d}" for j in range(8)]
    assert name == "2 more" and text.startswith("like t09, text, such as")
    unclear = ["1 234", "1'234"] * (N // 2)  # of which nothing else is said
    with pytest.raises(Problems) as caught:
        doubts_of(tmp_path, CLEAN.assign(b=unclear, y=unclear))
    assert [name for name, _ in caught.value.found] == ["b", "y"]


def test_levels_that_differ_by_case_or_spaces_are_named(tmp_path):
    pools, seen = np.array(["ja", "Ja ", "nein"])[np.arange(N) % 3], np.array(["yes", "Yes"])[np.arange(N) % 2]
    assert doubts_of(tmp_path, CLEAN.assign(pool=pools, y=seen), dummies=True, loss="logistic") == [
        f"{pair} differ by case or spaces alone: write them alike if they are one level."
        for pair in ("'pool': 'Ja ' and 'ja'", "'y': 'Yes' and 'yes'")
    ]
    assert _alike(np.array(list("aAbBcCdD"))).startswith("'A' and 'a'; 'B' and 'b'; 'C' and 'c' differ")


def test_two_numbers_are_classes_if_one_says_so(tmp_path):
    """0 and 1 are fitted by least squares, with a warning, or as classes, which are whole numbers as in the file."""
    path = saved(tmp_path, CLEAN.assign(y=(CLEAN.y > CLEAN.y.median()) * 1.0))
    doubt = "'y': nothing but 0 and 1: if these are two classes, add --loss logistic."
    for loss, said in (("squared", [doubt]), ("logistic", []), ("poisson", [])):
        options = FitOptions(file=path, target="y", loss=loss)
        split, classes = make_split(load_data(path, options), options), loss == "logistic"
        assert load_data(path, options).doubts == said and split.train[1].dtype.kind == ("i" if classes else "f")
        assert split.classes == ({"-1": 0, "+1": 1} if classes else None)


def test_rows_of_a_group_are_held_out_together(tmp_path):
    who = np.array([f"{i % 9:02d}" for i in range(N)])  # a name, and no number
    common = {"file": saved(tmp_path, CLEAN.assign(who=who)), "target": "y", "groups": "who"}
    options = FitOptions(**common, test_size=0.3)
    split = make_split(load_data(options.file, options), options)
    (X, y, _), held_out = split.train, set(who[split.test[0].index - 2])
    assert held_out and held_out.isdisjoint(split.groups) and held_out.union(split.groups) == set(who)
    assert list(X) == list("abcdef")
    flow = Subsets(PathOptions(**common, cv=3))
    flow.load()
    of_fit = folds_of_rows(options, X, y, "rows", split.table, split.groups)
    for groups, folds in ((split.groups, of_fit), (who, flow.folds())):
        assert folds and all(not set(groups[train]) & set(groups[test]) for train, test in folds)
    Subsets(PathOptions(**common, stability=2)).load()  # of which groups are no less held out


def test_columns_beside_the_features(tmp_path):
    years, who = np.arange(1, N + 1) / 4, [f"{i % 7:02d}" for i in range(N)]
    path = saved(tmp_path, CLEAN.assign(years=years, who=who, name=[f"n{i}" for i in range(N)]))
    common = {"file": path, "target": "y", "groups": "who", "id": "name", "drop": ["a"]}
    found = load_data(path, FitOptions(**common, exposure="years"))
    np.testing.assert_allclose(found.offset, np.log(years))
    assert list(found.groups) == who and found.feature_names == list("bcdef") and list(found.X) == [*"bcdef", "name"]
    np.testing.assert_array_equal(load_data(path, FitOptions(**common, offset="years")).offset, years)
    options = FitOptions(**common, exposure="years", test_size=0.25)
    for part, _, offset in make_split(load_data(path, options), options)[:2]:
        np.testing.assert_array_equal(offset, np.log(years[part.index - 2]))
    plain = load_data(path, FitOptions(**common))
    assert plain.offset is None and plain.feature_names == [*"bcdef", "years"]


def test_a_text_is_one_of_the_features(tmp_path):
    path = saved(tmp_path, holes(a={3: None}).assign(city=CITY, pool=np.array(["no", "yes"])[np.arange(N) % 2]))
    common = {"file": path, "target": "y", "dummies": True, "missing": "mean"}
    table = numbers(load_data(path, FitOptions(**common)), None, "float32")
    assert table.groups.tolist() == [0, 1, 2, 3, 4, 5, 6, 6, 7] and table.unit_names == [*"abcdef", "city", "pool"]
    assert table.reference_levels == {"city": "Bonn", "pool": "no"} and table.wide_texts == ["city"] and table.gaps
    assert set(table.X.dtypes) == {np.dtype("float32")} and table.X.shape == (N, 9)
    plain = numbers(load_data(path, FitOptions(**common, drop=["city", "a"])), np.arange(9), "float64")
    assert plain.groups is None and not plain.wide_texts and not plain.gaps and len(plain.X) == 9


@pytest.mark.parametrize("features", ["abcdef", "a"])
def test_gaps_are_filled_anew_in_every_fold(tmp_path, features):
    """With the mean of the rows that a fold trains on, for `fit` and `path`."""
    path = saved(tmp_path, holes(a={3: None, 8: None})[[*features, "y"]])
    common = {"file": path, "target": "y", "missing": "mean"}
    options, flow = FitOptions(**common), Subsets(PathOptions(**common, cv=3))
    split = make_split(load_data(path, options), options)
    flow.load()
    for train, test, whole in folds_of_rows(options, *split.train[:2], "rows", split.table):
        expected = X[np.setdiff1d(train, [3, 8]), 0].mean()
        np.testing.assert_allclose(whole["a"].iloc[[3, 8]], expected)
        np.testing.assert_array_equal(whole.drop(columns="a"), X[:, 1 : len(features)])
        assert set(train).isdisjoint(test)
    assert all(callable(of_fold) for *_, of_fold in flow.folds())


def test_classes_are_held_out_in_their_shares(tmp_path):
    path = saved(tmp_path, CLEAN.assign(y=np.where(np.arange(N) % 5, "often", "rare")))
    options = FitOptions(file=path, target="y", loss="logistic", test_size=0.25)
    (_, y, _), (_, held_out, _) = make_split(load_data(path, options), options)[:2]
    assert np.sum(y == "rare") == 6 and np.sum(held_out == "rare") == 2
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    options = FitOptions(file=tmp_path / "a.npz", test_size=0.25)
    assert [part[0].shape for part in make_split(load_data(options.file, options), options)[:2]] == [(30, 6), (10, 6)]


def test_one_group_to_train_on_makes_no_folds(tmp_path):
    path = saved(tmp_path, CLEAN.assign(who=np.arange(N) % 2))
    flow = Fit(FitOptions(file=path, target="y", groups="who", test_size=0.5, solver="htp"))
    flow.load()
    with pytest.warns(UserWarning, match="in two of the groups, so that ebic is used"):
        flow.work()
    assert flow.describe()["chosen_by"] == "ebic" and flow.fitted.cv_results_ is None


@pytest.mark.parametrize("groups, apart", [(None, ""), ("who", ", in two of the groups")])
def test_groups_are_spoken_of_where_they_were_passed(tmp_path, groups, apart):
    path = saved(tmp_path, CLEAN.assign(who=np.arange(N) // 2, y=np.where(np.arange(N) == 3, "yes", "no")))
    drop = None if groups else ["who"]
    flow = Subsets(PathOptions(file=path, target="y", loss="logistic", cv=5, k_max=1, groups=groups, drop=drop))
    flow.load()
    with pytest.raises(ValueError, match=rf"^cv: folds .*of every class, or with an event\){apart}; leave"):
        flow.folds()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model of a table with a name for every row and a text."""
    folder = tmp_path_factory.mktemp("fitted")
    table = CLEAN[["b", "c", "d", "e"]].assign(city=CITY, who=[f"=p{i}" for i in range(N)], y=Y - 3 * X[:, 0])
    saved(folder, table, "table.csv")
    options = ("--target", "y", "--dummies", "--id", "who", "--k", 2, "--solver", "htp")
    _, model = made(folder / "out", "fit", folder / "table.csv", *options, "--save", folder / "model.npz")
    assert model["reference_levels"] == {"city": "Bonn"}
    return folder, table


WRONG_ROWS = {
    "two columns gone": (lambda table: table.drop(columns=["b", "d"]), "lacks 'b', 'd' of the columns of the fit"),
    "words among numbers": (lambda table: table.assign(b="x"), "'b' held numbers in the fit, but now row 2 holds 'x'"),
    "unclear numbers": (lambda table: table.assign(b=["1,234", "1234"] * (N // 2)), "of new.csv: row 2 holds '1,234'"),
    "a gap": (lambda table: table.assign(b=table.b.where(table.b < 1)), "'b' has missing or infinite values, in row"),
    "an unknown level": (lambda table: table.assign(city="Ulm"), "'city' holds 'Ulm', in rows 2, 3, 4, 5 and 36 more"),
    "no rows": (lambda table: table[:0], "0 rows"),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_rows_that_cannot_be_predicted(tmp_path, fitted, name):
    change, message = WRONG_ROWS[name]
    new = saved(tmp_path, change(fitted[1]), "new.csv")
    result = invoke("predict", fitted[0] / "model.npz", new, "--out", tmp_path / "out.csv")
    assert result.exit_code == 2 and message in result.stderr and re.match("Error: FILE: .*new.csv", result.stderr)
    assert result.stderr.count("\n") == 1 and not (tmp_path / "out.csv").exists()


def test_predictions_in_a_file(tmp_path, fitted):
    """Of a table in which other columns may be named as they like; no name is a formula."""
    folder, table = fitted
    new = saved(tmp_path, table.assign(z=1, Z=2).rename(columns={"Z": "z"}))
    result = invoke("predict", folder / "model.npz", new, "--out", tmp_path / "deep" / "out.csv")
    assert result.exit_code == 0 and result.stdout == "" and "40 predictions written" in result.stderr
    assert pd.read_csv(tmp_path / "deep" / "out.csv").who.tolist() == [f"'{name}" for name in table.who]


def test_a_row_is_predicted_alone_as_it_is_among_others(tmp_path):
    """What looks like a number in its own file may be a text in that of the fit; an id is as it is written."""
    code = np.array(["01", "1", "TRUE", "A", "B"])[np.arange(N) % 5]
    who = [f"{i:03d}" for i in range(N)]
    table = CLEAN.assign(code=code, who=who, y=Y + 9 * (code == "1") - 9 * (code == "TRUE"))
    saved(tmp_path, table, "all.csv")
    options = ("--target", "y", "--dummies", "--id", "who", "--k", 4, "--solver", "htp", "--save", tmp_path / "m.npz")
    made(tmp_path / "out", "fit", tmp_path / "all.csv", *options)
    header, *lines = (tmp_path / "all.csv").read_text(encoding="utf-8").splitlines()
    _, *together = invoke("predict", tmp_path / "m.npz", tmp_path / "all.csv").stdout.splitlines()
    assert [each.split(",")[0] for each in together] == who
    for i in range(5):
        (tmp_path / "one.csv").write_text(f"{header}\n{lines[i]}\n", encoding="utf-8")
        result = invoke("predict", tmp_path / "m.npz", tmp_path / "one.csv")
        assert result.exit_code == 0, result.stderr
        (name, alone), among = result.stdout.splitlines()[1].split(","), together[i].split(",")[1]
        assert name == who[i] and float(alone) == pytest.approx(float(among), rel=1e-12)


def test_no_model_and_no_table(tmp_path, fitted):
    np.savez(tmp_path / "data.npz", X=X, y=Y)
    sht.save(sht.TablePreprocessor().fit(CLEAN), tmp_path / "table.npz")
    for arguments, message in (
        ((tmp_path / "table.npz", fitted[0] / "table.csv"), "was not fitted to a table"),
        ((fitted[0] / "model.npz", fitted[0] / "table.csv", "--out", tmp_path / "data.npz" / "a"), "is not a folder"),
        ((tmp_path / "absent.npz", fitted[0] / "table.csv"), "MODEL: there is no file"),
        ((tmp_path / "data.npz", fitted[0] / "table.csv"), "damaged, or was not written by sht.save"),
        ((fitted[0] / "model.npz", tmp_path), "is a folder"),
        ((fitted[0] / "model.npz", tmp_path / "data.npz"), "data.npz is no table"),
        ((fitted[0] / "model.npz", fitted[0] / "table.csv", "--out", tmp_path), "--out: .* is a folder"),
    ):
        result = invoke("predict", *arguments)
        assert result.exit_code == 2 and re.search(message, result.stderr) and result.stderr.count("\n") == 1


# --- fits that mean little -------------------------------------------------------------------------------------------
CAVEATS = {
    "no feature": (CLEAN, ("--k", "0"), "No feature was chosen"),
    "an exact fit": (CLEAN.assign(y=X[:, 0] - X[:, 1]), ("--k", "2"), "give the target exactly"),
}


@pytest.mark.parametrize("name", CAVEATS)
def test_a_fit_that_means_little_says_so(tmp_path, name):
    table, options, sentence = CAVEATS[name]
    saved(tmp_path, table, "table.csv")
    for file in ("report.html", "history.csv", *(f"{name}.{kind}" for name in DRAWN for kind in ("png", "svg"))):
        (tmp_path / file).write_text("an earlier run")
    result, model = made(tmp_path, "fit", tmp_path / "table.csv", "--target", "y", *options, "--solver", "htp")
    said = words(result.stdout)
    assert "caveat" in said and sentence in said and "Proved" not in said and "certificate" not in said
    left = {path.stem for path in tmp_path.iterdir()} - {"table", "model"}
    assert not left and sentence in model["caveat"]


def test_what_a_fit_without_an_error_means_depends_on_its_target():
    for kind, sentence in (
        (sht.SparseClassifier, "separate the classes"),
        (sht.SparseOrdinal, "separate the classes"),
        (sht.SparseCox, "order the events"),
        (sht.SparseRegressor, "made from the target"),
    ):
        model = kind(2)
        model.support_, model.cv_results_ = np.array([True, False, True]), None
        told = caveat(model, 40, lambda: True)
        assert sentence in told["caveat"] and told["drawn"] == (kind is not sht.SparseRegressor)
        assert caveat(model, 40, lambda: False) == {"caveat": None, "drawn": True}
    for intercept, enough in ((True, 4), (False, 3)):
        model.fit_intercept = intercept
        assert "cannot determine 2 coefficients" in caveat(model, enough - 1, lambda: False)["caveat"]
        assert caveat(model, enough, lambda: False)["caveat"] is None
    model.support_ = np.zeros(3, bool)
    for results, why in ((None, "nothing can be proved."), ({}, "No feature predicts held-out rows better.")):
        model.cv_results_ = results
        assert caveat(model, 40, lambda: True)["caveat"].endswith(why)


def test_what_a_feature_could_be_exchanged_for(tmp_path):
    near = CLEAN.assign(e=CLEAN.a + 0.01 * X[:, 4], f=2 * CLEAN.b)
    options = ["--target", "y", "--k", 2, "--solver", "forward", "--report"]
    result, model = made(tmp_path, "fit", saved(tmp_path, near), *options)
    said = words(result.stdout)
    assert "b could be f at no loss" in said and "best substitute" in said
    assert "b could be f" in (tmp_path / "report.html").read_text()  # names as they are
    (a,) = (feature for feature in model["coefficients"] if feature["name"] == "a")
    assert a["substitute"]["name"] == "e"

    def objective(name):
        columns = np.c_[near[[name, "b"]], np.ones(N)]
        residual = Y - columns @ np.linalg.lstsq(columns, Y)[0]
        return residual @ residual

    np.testing.assert_allclose(a["substitute"]["more_loss"], objective("e") / objective("a") - 1, rtol=1e-2)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_interrupt_says_whether_the_command_resumes(tmp_path, monkeypatch, checkpoint):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("sparsehtp.solve_path", interrupted)
    options = ("--checkpoint", tmp_path / "parts") if checkpoint else ()
    result = invoke("path", saved(tmp_path, CLEAN), "--target", "y", *options, "--out", tmp_path / "out")
    assert result.exit_code == 130 and result.stderr.startswith("Interrupted")
    assert ("run the same command again to resume" in result.stderr) == checkpoint
    assert not (tmp_path / "out").exists()


# --- thousands -------------------------------------------------------------------------------------------------------
LOCALES = {"German": (";", ",", "."), "English": (",", ".", ",")}


@pytest.mark.parametrize("name", LOCALES)
def test_predictions_are_those_of_the_plain_table(tmp_path, name):
    """fit and predict of a table in a way of writing, the new rows one at a time: those of the same numbers, plain."""
    separator, decimal, thousands = LOCALES[name]
    area = np.round(10.0 ** (4 + X[:, 0]))
    frame = CLEAN.assign(a=area, y=(area / 10 - 2 * X[:, 1]).round(3))
    signs = {ord(","): thousands, ord("."): decimal}
    local = frame.map(lambda value: f"{value:,.15g}".translate(signs))
    models = []
    for name, table, sep in (("plain", frame, ","), ("local", local, separator)):
        folder = tmp_path / name
        folder.mkdir()
        table.to_csv(folder / "table.csv", sep=sep, index=False)
        table[:1].to_csv(folder / "row.csv", sep=sep, index=False)
        options = ("--target", "y", "--k", 2, "--solver", "htp", "--save", folder / "model.npz")
        fit, model = made(folder, "fit", folder / "table.csv", *options)
        assert ("thousands" in fit.stderr and "'a'" in fit.stderr) == (name == "local")
        models.append([model["coefficients"], model["objective"]])
    assert models[0] == models[1]
    for rows in ("table.csv", "row.csv"):
        texts = [invoke("predict", tmp_path / f / "model.npz", tmp_path / f / rows).stdout for f in ("plain", "local")]
        assert texts[0] == texts[1] and texts[0].startswith("prediction\n")
    # A file of its own way of writing is read in that.
    assert invoke("predict", tmp_path / "local" / "model.npz", tmp_path / "plain" / "table.csv").stdout.count("\n") > N


def test_thousands_that_are_not_clear_stop_the_fit(tmp_path):
    path = saved(tmp_path, pd.DataFrame({"a": ["12.345", "987"] * (N // 2), "y": Y.astype(int)}))
    with pytest.raises(Problems, match=r"row 2 holds '12\.345'.*--thousands point, or --decimal point"):
        load_data(path, FitOptions(file=path, target="y"))
    for way, value in (("thousands", 12345), ("decimal", 12.345)):
        assert load_data(path, FitOptions(file=path, target="y", **{way: "point"})).X["a"].iloc[0] == value


def test_texts_of_many_levels_may_name_whom_rows_are_of():
    plain, as_columns = [(11, 20), (20, 20), (21, 200)], [(11, 20), (20, 20), (21, 40)]  # too many, and just enough:
    enough = [(False, 10, 20), (False, 20, 200), (True, 10, 19), (True, 20, 40)]
    for dummies, levels, rows in [*((False, *n) for n in plain), *((True, *n) for n in as_columns), *enough]:
        whose = (dummies, levels, rows) not in enough
        column = pd.Series([f"level {i % levels}" for i in range(rows)], name="of")
        said = _of_cells(column, "text", SimpleNamespace(dummies=dummies, missing=None))
        assert ("--id of" in (said or "")) == whose and (dummies or "--drop of" in said)
        assert ("--groups of" in (said or "")) == (whose and levels < rows and not dummies)
    options = SimpleNamespace(dummies=False, missing=None)
    assert "--drop 'a b'" in _of_cells(pd.Series(["x", "y"], name="a b"), "text", options)
    infinite = _of_cells(pd.Series([1.0, np.inf], name="of"), "number", options)
    assert infinite == "infinite in row 1: correct these cells, or empty them"
    for number, last in ((8, "t7"), (9, "1 more")):
        found = _listed([(f"t{j}", f"text, such as 'x:{j}': drop t{j}") for j in range(number)])
        assert len(found) == number and found[-1][0] == last
