"""`sparsehtp lowrank`: files and numbers."""

import dataclasses
import io

import numpy as np
import pandas as pd
import pytest
from commands import made, saved, words

import sparsehtp as sht
from sparsehtp.cli.lowrank import LowRank, load_responses
from sparsehtp.cli.options import GraphOptions, LowRankOptions
from sparsehtp.cli.precision import Graph
from sparsehtp.cli.report import Console

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = X @ np.outer([1.0, -1, 2, 0], [1.0, 0.5, -2]) + 0.3 * RNG.standard_normal((60, 3)) + [1, 2, 3]
RESPONSES = ["heart", "lung", "liver"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    table = pd.DataFrame(np.column_stack([X, Y]), columns=["a", "b", "c", "d", *RESPONSES])
    saved(folder, table)
    np.savez(folder / "data.npz", X=X, Y=Y, y=Y[:, 0])
    return folder


def test_csv(folder, tmp_path):
    out = tmp_path / "out"
    options = ("--targets", "heart,lung, liver", "--save", out.parent / "m")
    result, model = made(out, "lowrank", folder / "data.csv", *options)
    assert model["rank"] == 1 and model["features"] == list("abcd") and model["responses"] == RESPONSES
    peer = sht.LowRankRegressor().fit(X, Y)
    table, cv = peer.cv_results_, model["cv"]
    assert (cv["best"], cv["one_standard_error"]) == (table["best_index"], table["best_1se_index"])
    np.testing.assert_allclose([each["mean_loss"] for each in cv["table"]], table["mean_loss"], rtol=1e-8)
    assert model["chosen_by"] == "cv" and f"rank 1 (by cross-validation), l2 = {peer.l2:g}" in words(result.stdout)
    np.testing.assert_allclose(model["coefficients"], peer.coef_, rtol=1e-8)
    assert model["r2"] == pytest.approx(peer.score(X, Y)) and model["cv"]["folds"] == 5
    table = pd.read_csv(out / "coefficients.csv", index_col="feature")
    assert table.columns.tolist() == RESPONSES and table.index.tolist() == list("abcd")
    np.testing.assert_allclose(table.T, peer.coef_, rtol=1e-8)
    assert {path.name for path in out.iterdir()} == {"model.json", "coefficients.csv", "ranks.png", "ranks.svg"}
    np.testing.assert_allclose(sht.load(out.parent / "m").coef_, peer.coef_, rtol=1e-8)
    assert "cross-validation" in result.output and "singular values" in result.output


def test_npz_and_a_given_rank(folder, tmp_path):
    _, model = made(tmp_path / "out", "lowrank", folder / "data.npz", "--targets", "Y", "--rank", 2)
    assert model["rank"] == 2 and len(model["singular_values"]) == 2 and model["cv"] is model["chosen_by"] is None
    assert model["responses"] == ["Y0", "Y1", "Y2"] and list(load_responses(folder / "data.npz", ["y"])[1]) == ["y"]
    np.testing.assert_allclose(model["coefficients"], sht.LowRankRegressor(2).fit(X, Y).coef_, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::UserWarning")  # as a user may who runs Python so
@pytest.mark.parametrize("flow", [LowRank(LowRankOptions(file=None, targets="y")), Graph(GraphOptions(file=None))])
def test_how_a_table_was_read_is_said(tmp_path, flow):
    (tmp_path / "a.csv").write_text("a;b;y\n12.345;1,5;1\n987;2;2\n")
    flow.options, flow.errors = dataclasses.replace(flow.options, file=tmp_path / "a.csv"), Console(file=io.StringIO())
    flow.load()
    said = words(flow.errors.file.getvalue())
    assert said.startswith("Note: ") and said.count("thousands point in 'a'") == 1
