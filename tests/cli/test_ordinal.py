"""`sparsehtp fit --levels`: ordered classes."""

import io
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sparsehtp as sht
from sparsehtp.cli.common import _ordered
from sparsehtp.cli.main import app

RNG = np.random.default_rng(0)
N = 150
FRAME = pd.DataFrame(RNG.standard_normal((N, 5)), columns=list("abcde"))
SCORE = 2 * FRAME["a"] - FRAME["d"] + RNG.logistic(size=N)
LEVELS = ["poor", "fair", "good"]
FRAME["health"] = np.array(LEVELS)[np.digitize(SCORE, [-1, 1])]
CHEAP = ("--k", "2", "--solver", "htp")


def invoke(folder, *arguments, **columns):
    FRAME.assign(**columns).to_csv(folder / "data.csv", index=False)
    file, out = str(folder / "data.csv"), str(folder / "out")
    return CliRunner().invoke(app, ["fit", file, "--target", "health", "--out", out, *arguments])


def test_a_fit_with_report_and_predictions(tmp_path):
    arguments = (*CHEAP, "--test-size", "0.3", "--report", "--save", str(tmp_path / "m.npz"))
    result = invoke(tmp_path, "--levels", "poor, fair, good", *arguments)
    assert result.exit_code == 0, result.output
    model = json.loads((tmp_path / "out" / "model.json").read_text())
    named = {each["name"]: each["coefficient"] for each in model["coefficients"]}
    assert set(named) == {"a", "d"} and named["a"] > 0 > named["d"]
    assert model["levels"] == LEVELS and np.all(np.diff(model["thresholds"]) > 0)
    assert model["metric"] == "accuracy" and model["test_score"] > 1 / 3
    assert "poor < fair < good" in result.output and "cumulative logits" in result.output
    assert {"predictions.png", "report.html"} <= {path.name for path in (tmp_path / "out").iterdir()}
    predicted = CliRunner().invoke(app, ["predict", str(tmp_path / "m.npz"), str(tmp_path / "data.csv")])
    assert predicted.exit_code == 0, predicted.output
    rows = pd.read_csv(io.StringIO(predicted.stdout))
    assert list(rows) == ["prediction", *(f"probability of {level}" for level in LEVELS)]
    np.testing.assert_allclose(rows.iloc[:, 1:].sum(axis=1), 1, rtol=1e-9)
    np.testing.assert_array_equal(rows["prediction"], sht.load(tmp_path / "m.npz").predict(FRAME))


@pytest.mark.slow
def test_numbers_are_classes_and_k_is_chosen(tmp_path):
    stars = np.digitize(SCORE, [-1, 1]) + 1
    result = invoke(tmp_path, "--levels", "1,2,3", health=stars)
    assert result.exit_code == 0, result.output
    model = json.loads((tmp_path / "out" / "model.json").read_text())
    assert {"a", "d"} <= {each["name"] for each in model["coefficients"]} and model["levels"] == ["1", "2", "3"]


def test_long_numbers_are_told_apart():
    y = np.array([1000001.0, 1000002.0, 0.5])
    for levels in (("0.5", "1000001", "1000002"), ("5e-1", "1000001.0", "1000002")):
        found = _ordered(SimpleNamespace(y=y, target_name="y"), levels)
        assert list(found) == [levels[1], levels[2], levels[0]] and list(found.categories) == list(levels)
    with pytest.raises(ValueError, match=r"'1000001' is no level; the classes are 0.5, 1000001, 1000002"):
        _ordered(SimpleNamespace(y=y, target_name="y"), ("0.5", "1e+06"))


@pytest.mark.slow
def test_a_path_with_folds_and_a_criterion(tmp_path):
    FRAME.to_csv(tmp_path / "data.csv", index=False)
    arguments = ["--target", "health", "--levels", ",".join(LEVELS), "--cv", "3", "--k-max", "3"]
    result = CliRunner().invoke(app, ["path", str(tmp_path / "data.csv"), *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    model = json.loads((tmp_path / "out" / "path.json").read_text())
    best = {row["k"]: {each["name"] for each in row["coefficients"]} for row in model["rows"]}
    assert best[2] == {"a", "d"} and model["levels"] == LEVELS and model["chosen"]["k"] >= 1
    assert "poor < fair < good" in result.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--levels", "poor,fair"], "'good' is no level"),
        (["--levels", "poor,fair,good,best"], "'best' is in no row"),
        (["--levels", "poor,fair,good,good"], "levels: must name each class of 'health' once"),
        (["--levels", "poor,fair,good", "--loss", "logistic"], "--loss"),
        (["--levels", "poor,fair,good", "--prove", "3"], "no proofs for ordered classes"),
    ],
)
def test_errors_are_one_sentence(tmp_path, arguments, sentence):
    result = invoke(tmp_path, *CHEAP, *arguments)
    assert result.exit_code == 2 and sentence in " ".join(result.output.replace("│", "").split()), result.output
