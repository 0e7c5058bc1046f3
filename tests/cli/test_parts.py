"""`sparsehtp fit` and `path` on files that together hold the rows: the answers of one table of all of them."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from commands import invoke, made, named, saved, words

from sparsehtp.cli.options import FitOptions, PathOptions
from sparsehtp.cli.parts import Gathered, GatheredSubsets, opened
from sparsehtp.datasets import Shards, shards

pytest.importorskip("pyarrow", reason="Parquet files need the extra [parquet]")

N, NAMES = 240, [f"x{j}" for j in range(6)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table in a file, and the same rows in three, of which one has several row groups; one column is constant."""
    folder, rng = tmp_path_factory.mktemp("rows"), np.random.default_rng(0)
    X = rng.standard_normal((N, 6)) * 10.0 ** np.arange(-2, 4) + 50
    X[:, 4] = 3.0
    y = 4 * X[:, 0] - X[:, 2] / 2 + 0.01 * X[:, 3] + rng.standard_normal(N)
    table = pd.DataFrame(X, columns=NAMES).assign(price=y, town="a", dear=np.where(y > np.median(y), "yes", "no"))
    table.to_parquet(folder / "all.parquet")
    (folder / "parts").mkdir()
    for i, rows in enumerate(np.split(np.arange(N), [50, 180])):
        table.iloc[rows].to_parquet(folder / "parts" / f"{i}.parquet", row_group_size=60)
    return folder


OPTIONS = ("--target", "price", "--drop", "town", "--drop", "dear")
SAME = ("n", "p", "k", "objective", "train_score", "intercept", "l2", "certificate")


@pytest.mark.parametrize("more", [(), ("--no-standardize", "--no-intercept")])
def test_a_fit_is_that_of_the_table(folder, tmp_path, more):
    options = (*OPTIONS, "--k", 2, "--l2", 1e-3, *more)
    _, table = made(tmp_path / "table", "fit", folder / "all.parquet", *options)
    result, parts = made(tmp_path / "parts", "fit", folder / "parts", *options)
    for name in SAME:
        assert parts[name] == (pytest.approx(table[name], rel=1e-8) if isinstance(table[name], float) else table[name])
    mine, other = (
        pd.DataFrame(each["coefficients"])[["name", "coefficient", "standardized"]] for each in (parts, table)
    )
    pd.testing.assert_frame_equal(mine, other, rtol=1e-8)
    assert "3 files, 240 rows, 6 features" in result.stderr


def test_another_question_reads_nothing(folder, tmp_path, monkeypatch):
    state = ("--checkpoint", tmp_path / "state")
    run, first = made(tmp_path / "a", "fit", folder / "parts", *OPTIONS, *state, "--save", tmp_path / "model.npz")
    assert "they are read once" in run.stderr and first["cv"]["folds"] == 5 and {"x2", "x3"} <= named(first).keys()
    told = invoke("predict", tmp_path / "model.npz", folder / "all.parquet")
    table = pd.read_parquet(folder / "all.parquet")
    w = named(first)
    by_hand = first["intercept"] + sum(table[name] * w[name] for name in w)
    np.testing.assert_allclose(np.array(told.stdout.split()[1:], float), by_hand, rtol=1e-6)

    def read(*_):
        raise AssertionError("the rows were read again")

    monkeypatch.setattr(shards, "read_rows", read)
    bic = (*OPTIONS, *state, "--k", "bic", "--prove", 60)
    again, second = made(tmp_path / "b", "fit", str(folder / "parts" / "*.parquet"), *bic)
    assert second["n"] == N and "is not read again" in again.stderr
    assert second["chosen_by"] == "bic" and "(by bic)" in again.stdout and second["proof"]["proved"]
    _, path = made(tmp_path / "c", "path", folder / "parts", *OPTIONS, *state, "--cv", 5, "--prove", 5)
    by_k = {row["k"]: row for row in path["rows"]}
    assert by_k.keys() == set(range(7)) and by_k[2]["proved"] and path["n"] == N
    assert by_k[2]["objective"] < by_k[1]["objective"]
    _, shorter = made(tmp_path / "d", "path", folder / "parts", *OPTIONS, *state, "--k-max", 1, "--no-intercept")
    assert len(shorter["rows"]) == 2


@pytest.mark.parametrize("intercept", [True, False])
def test_scores_and_deviations_are_those_of_the_rows(folder, intercept):
    """With the best intercept for the coefficients, if there is one."""
    table = pd.read_parquet(folder / "all.parquet")
    X, y, w = table[NAMES].to_numpy(), table["price"].to_numpy(), np.array([4.1, 0.1, -0.5, 0, 0, 0])
    files = Shards(folder / "parts", "price", drop=["town", "dear"])
    common = {"file": folder / "parts", "target": "price"}
    flow = Gathered(FitOptions(**common, intercept=intercept), files)
    flow.statistics, flow.fitted = flow.read_rows(), SimpleNamespace(coef_=w)
    error = y - X @ w
    expected = 1 - np.mean((error - intercept * error.mean()) ** 2) / y.var()
    assert flow.scores() == {"metric": "R2", "train_score": pytest.approx(expected, rel=1e-8), "test_score": None}
    places = np.array([3, 0, 4])
    np.testing.assert_allclose(flow.deviations(places), X.std(axis=0)[places], rtol=1e-10, atol=1e-10)
    subsets = GatheredSubsets(PathOptions(**common), files)
    subsets.statistics = flow.statistics
    np.testing.assert_allclose(subsets.deviations(), X.std(axis=0), rtol=1e-10, atol=1e-10)
    told = flow.rows()
    assert (told["n"], told["n_test"], told["p"], told["n_units"], told["target"]) == (N, 0, 6, 6, "price")
    assert Gathered(FitOptions(file=folder), files).target_name == "y", "that of NPZ files, which hold one"


def test_a_path_is_that_of_the_table(folder, tmp_path):
    _, table = made(tmp_path / "table", "path", folder / "all.parquet", *OPTIONS)
    _, parts = made(tmp_path / "parts", "path", folder / "parts", *OPTIONS)
    for mine, other in zip(parts["rows"], table["rows"], strict=True):
        assert mine["objective"] == pytest.approx(other["objective"], rel=1e-8)
        assert [each["name"] for each in mine["coefficients"]] == [each["name"] for each in other["coefficients"]]
    assert parts["chosen"] == table["chosen"]


def test_other_losses_read_the_parts_in_every_pass(folder, tmp_path):
    options = ("--target", "dear", "--drop", "town", "--drop", "price", "--loss", "logistic", "--k", 2, "--l2", 0.1)
    _, parts = made(tmp_path / "parts", "fit", folder / "parts", *options)
    assert parts["converged"] and parts["classes"] == {"-1": "no", "+1": "yes"} and len(parts["files"]) == 3
    _, table = made(tmp_path / "table", "fit", folder / "all.parquet", *options, "--no-standardize")
    assert parts["objective"] >= table["objective"] * (1 - 1e-6)


REFUSED = """
fit --target price | column 'town' of 0.parquet holds
fit {table} --test-size .5 | --test-size: it has no effect on data in parts
fit {table} --missing mean | --missing: it has no effect on data in parts
fit {table} --dtype float32 | --dtype: it has no effect on data in parts
fit --target price --drop nothing | --drop: 0.parquet has no column 'nothing'
fit --target dear --drop town | column 'dear' of 0.parquet holds
fit --target dear --drop town --loss huber --k 2 | column 'dear' of 0.parquet holds
fit {table} --loss huber | k: where the files are read in every pass it must be a number
fit {table} --loss huber --k 2 --prove 9 | --prove: it has no effect on data in parts
path {table} --loss huber | data in parts have a path for the squared loss
path {table} --k-max 7 | --k-max: 7 is more than the 6 features
path {table} --stability 10 | --stability: it has no effect on data in parts
fit {table} --loss negative-binomial --k 2 | --loss-parameter: where the files are read in
""".strip().splitlines()


@pytest.mark.parametrize("line", REFUSED)
def test_what_parts_cannot_do_is_refused(folder, tmp_path, line):
    command, said = line.format(table=" ".join(OPTIONS)).split(" | ")
    command, *options = command.split()
    result = invoke(command, folder / "parts", *options, "--out", tmp_path / "out")
    assert result.exit_code == 2 and said in words(result.output)
    assert not (tmp_path / "out" / "model.json").exists()


def test_a_table_that_memory_is_too_small_for_is_read_in_parts(folder, monkeypatch):
    """A table takes 8 times its numbers, of 8 bytes each, while it is read."""
    options = FitOptions(file=folder / "all.parquet", target="price", drop=["town", "dear"])
    for free, groups in ((64 * 9 * N, None), (64 * 9 * N - 1, 1)):
        monkeypatch.setattr("sparsehtp.io.memory.available", lambda free=free: free)
        assert (shards := opened(options)) is None or len(shards) == groups


def test_few_rows_need_no_folds(folder, tmp_path):
    pd.read_parquet(folder / "all.parquet").iloc[:4].to_parquet(tmp_path / "0.parquet")
    _, model = made(tmp_path / "out", "fit", tmp_path, *OPTIONS, "--k", 1)
    assert model["n"] == 4 and len(model["coefficients"]) == 1


def test_parts_have_the_same_columns_in_the_same_order(folder, tmp_path):
    table = pd.read_parquet(folder / "all.parquet").drop(columns=["town", "dear"])
    saved(tmp_path, table, "0.csv")
    for changed in (table[table.columns[::-1]], table.rename(columns={"x1": "q"})):
        saved(tmp_path, changed, "1.csv")
        said = words(invoke("fit", tmp_path / "*.csv", "--target", "price", "--k", 1).output)
        assert "1.csv has other columns than 0.csv, or in another order" in said
    saved(tmp_path, table, "1.csv")
    assert "holds no .npy shards, NPZ or Parquet files" in words(invoke("fit", tmp_path, "--target", "price").output)
    table.to_parquet(tmp_path / "2.parquet")
    assert "hold Parquet files and others" in words(invoke("fit", tmp_path / "[012].*", "--target", "price").output)
    for number, names in (("3", list("abcdef")), ("4", list("bacdef"))):
        np.savez(tmp_path / number, X=np.ones((4, 6)), y=np.arange(4.0), feature_names=names)
    assert "4.npz has other columns than 3.npz" in words(invoke("fit", tmp_path / "*.npz", "--k", 1).output)


def test_parts_in_text_are_read(folder, tmp_path):
    for name in "01":
        saved(tmp_path, pd.read_parquet(folder / "all.parquet").drop(columns=["town", "dear"]), f"{name}.csv")
    result, model = made(tmp_path / "out", "fit", tmp_path / "*.csv", "--target", "price", "--k", 1, "--solver", "htp")
    assert (model["n"], model["n_test"], model["p"]) == (2 * N, 0, model["n_units"])
    assert re.search(r"^2 files, 480 rows, 6 features, \d+\.\d kB: they are read once\. ", result.stderr, re.M)


def test_a_damaged_part_is_named(folder, tmp_path):
    (tmp_path / "0.parquet").write_bytes((folder / "parts" / "0.parquet").read_bytes())
    (tmp_path / "1.parquet").write_bytes(b"PAR1 and no more")
    result = invoke("fit", tmp_path, *OPTIONS, "--out", tmp_path / "out")
    assert result.exit_code == 2 and "1.parquet is damaged or no Parquet file" in words(result.output)
