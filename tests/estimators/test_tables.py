"""TablePreprocessor against scikit-learn's parts, and missing values filled in the folds."""

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline

import sparsehtp as sht
from sparsehtp.estimators.tables import bad_cells, kind_of, kinds_of, shown_rows

N = 40
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.standard_normal((N, 4)), columns=list("abcd"))
FRAME["city"] = np.array(["Bonn", "Oslo", "Rome"])[RNG.integers(3, size=N)]
FRAME["on"] = RNG.random(N) > 0.5
FRAME["who"] = [f"p{i}" for i in range(N)]
GAPS = FRAME.copy()
GAPS.loc[RNG.integers(N, size=12), "b"] = np.nan
GAPS.loc[3, "city"] = None
WHERE = np.flatnonzero(GAPS.b.isna())
Y = (3 * FRAME.a - 2 * FRAME.b).to_numpy() + RNG.standard_normal(N)


def test_columns_are_those_of_scikit_learn_and_pandas():
    table = sht.TablePreprocessor("median", dummies=True, drop=["d"], id="who").fit(GAPS)
    made = table.transform(GAPS)
    assert list(made) == ["a", "b", "c", "on", "city=Oslo", "city=Rome", "city=missing"]
    assert table.groups_.tolist() == [0, 1, 2, 3, 4, 4, 4] and table.group_names_ == ["a", "b", "c", "on", "city"]
    expected = SimpleImputer(strategy="median").fit_transform(GAPS[["a", "b", "c"]])
    np.testing.assert_array_equal(made[["a", "b", "c"]], expected)
    dummies = pd.get_dummies(GAPS.city.fillna("missing"), dtype=float)[["Oslo", "Rome", "missing"]]
    np.testing.assert_array_equal(made.iloc[:, 4:], dummies)
    few = GAPS.iloc[5:8, ::-1]  # other rows are filled with what was learned
    np.testing.assert_array_equal(table.transform(few), made.iloc[5:8])
    assert list(table.transform(few).index) == [5, 6, 7]
    letters = pd.DataFrame({"letter": list("abcdefgh")})  # mostly zeros, and yet dense
    np.testing.assert_array_equal(sht.TablePreprocessor(dummies=True).fit_transform(letters), np.eye(8)[:, 1:])


def test_a_model_of_tables_is_saved_without_pickle(tmp_path):
    table = sht.TablePreprocessor("mean", dummies=True, id="who").fit(GAPS)
    model = make_pipeline(table, sht.SparseRegressor(2, groups=table.groups_, l2=0.1, solver="htp")).fit(GAPS, Y)
    loaded = sht.load(sht.save(model, tmp_path / "model.npz"))
    np.testing.assert_array_equal(loaded.predict(FRAME), model.predict(FRAME))
    assert loaded[0].id == "who" and type(loaded[0]) is sht.TablePreprocessor
    model[0].note = "mine"
    with pytest.raises(TypeError, match="has no attribute 'note'"):
        sht.save(model, tmp_path / "model.npz")


BAD_FITS = {
    "missing": (lambda: sht.TablePreprocessor("zero").fit(FRAME), "missing: must be one of"),
    "no fit": (lambda: sht.TablePreprocessor().get_feature_names_out(), "is not fitted yet"),
    "array": (lambda: sht.TablePreprocessor().fit(FRAME.to_numpy()), "needs a data frame of pandas or polars"),
    "series": (lambda: sht.TablePreprocessor().fit(FRAME.a), "needs a data frame of pandas or polars"),
    "text": (lambda: sht.TablePreprocessor().fit(FRAME), "'city' holds text; set dummies=True, or drop it"),
    "drop": (lambda: sht.TablePreprocessor(drop=["z"]).fit(FRAME), "no column 'z' to leave out"),
    "gap": (
        lambda: sht.TablePreprocessor().fit(GAPS[["a", "b"]]),
        rf"'b' has .*, in rows {WHERE[0]}, .*, {WHERE[3]} and {len(WHERE) - 4} more; remove",
    ),
    "text gap": (lambda: sht.TablePreprocessor(dummies=True).fit(GAPS[["city"]]), "'city' has .*, in row 3; remove"),
    "new text": (
        lambda: (
            sht.TablePreprocessor().fit(FRAME[["a", "b"]]).transform(FRAME.assign(b=[*"12"] * (N // 2 - 1) + [*"1x"]))
        ),
        "'b' held numbers in the fit, but now",
    ),
    "new level": (
        lambda: sht.TablePreprocessor(dummies=True).fit(FRAME[["city"]]).transform(FRAME.replace(FRAME.city[7], "Ulm")),
        f"'city' holds 'Ulm', in rows? {np.flatnonzero(FRAME.city == FRAME.city[7])[0]}",
    ),
    "infinite": (lambda: sht.TablePreprocessor("mean").fit(FRAME[["a"]].replace(FRAME.a[3], np.inf)), "in row 3"),
    "nothing": (lambda: sht.TablePreprocessor(drop=["a"]).fit(FRAME[["a"]]), "no column is left"),
    "twice": (lambda: sht.TablePreprocessor().fit(FRAME[["a", "a"]]), "'a' occurs twice"),
    "numbers as names": (lambda: sht.TablePreprocessor().fit(pd.DataFrame(np.eye(3))), "text names"),
    "dates": (lambda: sht.TablePreprocessor(dummies=True).fit(FRAME.assign(a="2024-01-31")), "'a' holds dates"),
}


@pytest.mark.parametrize("name", BAD_FITS)
def test_bad_tables(name):
    fit, message = BAD_FITS[name]
    with pytest.raises(ValueError, match=message) as caught:
        fit()
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


KINDS = [  # half of the cells that are there decide
    (["1", "2", "x", "y"], "number"),
    (["1", "x", "y"], "text"),
    ([None, None], "number"),
    (["2024-01-31", "31.1.24 12:00", "x", "y", None], "date"),
    (["2024-01-31", "x", "y"], "text"),
    (pd.Categorical([1, 2]), "text"),
    (pd.period_range("2024-01", periods=2, freq="M"), "date"),
    (pd.to_timedelta([1, 2], unit="s"), "date"),
    (pd.array([1, None], dtype="Int64"), "number"),
]


@pytest.mark.parametrize(("cells", "kind"), KINDS)
def test_what_a_column_is(cells, kind):
    column = pd.Series(cells)
    assert kind_of(column) == kinds_of(column.to_frame("a"))["a"] == kind
    if kind == "number":
        there = [str(cell) not in ("None", "<NA>") for cell in cells]
        bad = [there[i] and not str(cell).isdigit() for i, cell in enumerate(cells)]
        np.testing.assert_array_equal(bad_cells(column), np.flatnonzero(bad))


def test_of_rows_the_first_four_are_shown():
    assert [shown_rows("abcde", np.arange(5) < n) for n in (4, 5)] == ["rows a, b, c, d", "rows a, b, c, d and 1 more"]


def test_what_is_empty_or_left_out_is_filled_or_not_looked_at():
    letters = pd.DataFrame({"letter": list("abc"), "gone": np.nan, "z": ["1.5", "1,5", "x"]})
    for out in ({"drop": ["z"]}, {"id": "z"}):
        made = sht.TablePreprocessor("mean", dummies=True, decimal=",", **out).fit_transform(letters)
        np.testing.assert_array_equal(made, [[0, 0, 0], [0, 1, 0], [0, 0, 1]])
    only = sht.TablePreprocessor("mean", dummies=True).fit_transform(letters[["letter"]])
    np.testing.assert_array_equal(only, np.eye(3)[:, 1:])


def test_columns_with_gaps_are_left_out():
    table = sht.TablePreprocessor("drop_columns", dummies=True, id="who").fit(GAPS)
    assert list(table.transform(FRAME)) == ["a", "c", "d", "on"]


@pytest.mark.parametrize(
    ("rule", "y"), [("best", Y), ("strong-ridge", Y), ("best", np.column_stack([Y, -Y + FRAME.c]))]
)
def test_missing_values_are_filled_in_the_folds(rule, y):
    """Held-out losses are those of a pipeline that is fitted to the training rows alone, imputer included."""
    frame, l2 = GAPS[["a", "b", "c", "d"]], 0.05
    table = sht.TablePreprocessor("mean").fit(frame)
    pairs = list(KFold(4, shuffle=True, random_state=0).split(frame))
    triples = [(train, test, table.refilled(frame.iloc[train]).transform(frame)) for train, test in pairs]
    options = {"l2": l2, "solver": "htp"}
    model = sht.SparseRegressor("cv", rule=rule, **options).fit(table.transform(frame), y, folds=triples)
    for i, (train, test) in enumerate(pairs):
        for column in np.flatnonzero(model.cv_results_["ks"] > 0):
            k = int(model.cv_results_["ks"][column])
            fold = make_pipeline(SimpleImputer(), sht.SparseRegressor(k, **options)).fit(frame.iloc[train], y[train])
            error = y[test] - fold.predict(frame.iloc[test])
            expected = np.sum(error**2) / (2 * len(test))
            np.testing.assert_allclose(model.cv_results_["scores"][i, column], expected, rtol=1e-9)
    with pytest.raises(ValueError, match="cv: the features of a fold"):
        model.set_params(cv=[(*pair, np.ones((N, 3))) for pair in pairs]).fit(table.transform(frame), y)
