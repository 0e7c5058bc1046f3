"""`sparsehtp lowrank`: files, numbers and errors."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sparsehtp as sht
from sparsehtp.cli.main import app

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = X @ np.outer([1.0, -1, 2, 0], [1.0, 0.5, -2]) + 0.3 * RNG.standard_normal((60, 3)) + [1, 2, 3]
RESPONSES = ["heart", "lung", "liver"]


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    table = pd.DataFrame(np.column_stack([X, Y]), columns=["a", "b", "c", "d", *RESPONSES])
    table.to_csv(folder / "data.csv", index=False)
    np.savez(folder / "data.npz", X=X, Y=Y)
    return folder


def test_csv(folder, tmp_path):
    out = tmp_path / "out"
    result = invoke(
        "lowrank", folder / "data.csv", "--targets", "heart,lung, liver", "--out", out, "--save", out.parent / "m"
    )
    assert result.exit_code == 0, result.output
    model = json.loads((out / "model.json").read_text())
    assert model["rank"] == 1 and model["features"] == list("abcd") and model["responses"] == RESPONSES
    peer = sht.LowRankRegressor(1).fit(X, Y)
    np.testing.assert_allclose(model["coefficients"], peer.coef_, rtol=1e-8)
    assert model["r2"] == pytest.approx(peer.score(X, Y)) and model["cv"]["folds"] == 5
    with (out / "coefficients.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["feature", *RESPONSES] and [row[0] for row in rows[1:]] == list("abcd")
    assert {path.name for path in out.iterdir()} == {"model.json", "coefficients.csv", "ranks.png", "ranks.svg"}
    np.testing.assert_allclose(sht.load(out.parent / "m").coef_, peer.coef_, rtol=1e-8)
    assert "cross-validation" in result.output and "singular values" in result.output


def test_npz_and_a_given_rank(folder, tmp_path):
    result = invoke("lowrank", folder / "data.npz", "--targets", "Y", "--rank", 2, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    model = json.loads((tmp_path / "out" / "model.json").read_text())
    assert model["rank"] == 2 and len(model["singular_values"]) == 2 and model["cv"] is None
    np.testing.assert_allclose(model["coefficients"], sht.LowRankRegressor(2).fit(X, Y).coef_, rtol=1e-8)


@pytest.mark.parametrize(
    ("file", "options", "match"),
    [
        ("data.csv", ("--targets", "heart,spleen"), "spleen"),
        ("data.csv", ("--targets", ","), "targets"),
        ("data.csv", ("--targets", "heart,heart"), "twice|no column"),
        ("data.csv", ("--targets", "heart,lung", "--rank", "9"), "r: is 9"),
        ("data.csv", ("--targets", "heart", "--rank", "many"), "r:"),
        ("data.npz", ("--targets", "Z"), "no array"),
        ("nothing.npz", ("--targets", "Y"), "no file"),
    ],
)
def test_errors_are_one_sentence(folder, tmp_path, file, options, match):
    import re

    result = invoke("lowrank", folder / file, *options, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert re.search(match, result.output) and "Traceback" not in result.output
    assert not (tmp_path / "out").exists()
