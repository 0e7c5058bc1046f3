"""`sparsehtp fit --time --event`, and the picture of survival by predicted risk."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sparsehtp as sht
from sparsehtp.cli.main import app
from sparsehtp.plot import plot_survival
from sparsehtp.plot.survival import kaplan_meier

RNG = np.random.default_rng(0)
N = 90
FRAME = pd.DataFrame(RNG.standard_normal((N, 5)), columns=list("abcde"))
HAZARD = np.exp(1.5 * FRAME["a"] - FRAME["d"])
LAST = RNG.exponential(3, N)
FRAME["days"] = np.minimum(RNG.exponential(1 / HAZARD), LAST)
FRAME["died"] = (FRAME["days"] < LAST).astype(int)
CHEAP = ("--k", "2", "--solver", "htp")


def invoke(folder, *arguments, **columns):
    FRAME.assign(**columns).to_csv(folder / "data.csv", index=False)
    return CliRunner().invoke(app, ["fit", str(folder / "data.csv"), "--out", str(folder / "out"), *arguments])


def test_a_fit_with_report_and_predictions(tmp_path):
    words = np.where(FRAME["died"], "yes", "no")  # as good as 1 and 0
    arguments = (*CHEAP, "--test-size", "0.3", "--report", "--save", str(tmp_path / "m.npz"))
    result = invoke(tmp_path, "--time", "days", "--event", "died", *arguments, died=words)
    assert result.exit_code == 0, result.output
    model = json.loads((tmp_path / "out" / "model.json").read_text())
    assert {each["name"] for each in model["coefficients"]} == {"a", "d"} and model["metric"] == "concordance"
    assert 0.5 < model["test_score"] < 1 and 0 < model["events"] < model["n"] == 63
    assert "concordance" in result.output and "intercept" not in result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"survival.png", "survival.svg", "report.html"} <= names and "predictions.png" not in names
    predicted = CliRunner().invoke(app, ["predict", str(tmp_path / "m.npz"), str(tmp_path / "data.csv")])
    rows = [float(line) for line in predicted.stdout.splitlines()[1:]]
    pipeline = sht.load(tmp_path / "m.npz")
    np.testing.assert_allclose(rows, pipeline.predict(FRAME), rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "columns", "sentence"),
    [
        (["--time", "days"], {}, "name both columns"),
        (["--time", "days", "--event", "dead"], {}, "event"),
        (["--time", "days", "--event", "a"], {}, "the event is 1"),
        (["--time", "days", "--event", "died"], {"died": 0}, "no row has an event"),
        (["--time", "days", "--event", "died", "--loss", "huber"], {}, "--loss"),
        (["--time", "days", "--event", "died", "--prove", "3"], {}, "no proofs"),
        (["--time", "days", "--event", "died"], {"days": -FRAME["days"]}, "times must be >= 0"),
        (
            ["--time", "days", "--event", "died"],
            {"days": FRAME["days"].astype(str) + " d"},
            "the time is a number, but",
        ),
        (["--time", "died", "--event", "died"], {}, "name a column for each"),
    ],
)
def test_errors_are_one_sentence(tmp_path, arguments, columns, sentence):
    result = invoke(tmp_path, *CHEAP, *arguments, **columns)
    assert result.exit_code == 2 and sentence in " ".join(result.output.replace("│", "").split()), result.output


def test_times_are_kept_in_full_and_an_event_at_the_end_alone_is_a_fit(tmp_path):
    """Seconds since 1970 in single precision would be ties; without a pair to compare there is no concordance."""
    columns = ("--time", "days", "--event", "died", "--dtype", "float32", *CHEAP)
    coefficients = {}
    for name, days in {"short": FRAME["days"], "long": 1.6e9 + 10 * FRAME["days"]}.items():
        result = invoke(tmp_path, *columns, days=days)
        assert result.exit_code == 0, result.output
        model = json.loads((tmp_path / "out" / "model.json").read_text())
        coefficients[name] = {each["name"]: each["coefficient"] for each in model["coefficients"]}
    assert coefficients["short"] == pytest.approx(coefficients["long"], rel=1e-4)
    result = invoke(tmp_path, *columns, died=(FRAME["days"] == FRAME["days"].max()).astype(int))
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_a_path_with_folds_and_a_criterion(tmp_path):
    FRAME.to_csv(tmp_path / "data.csv", index=False)
    arguments = ["--time", "days", "--event", "died", "--cv", "3", "--k-max", "4", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["path", str(tmp_path / "data.csv"), *arguments])
    assert result.exit_code == 0, result.output
    model = json.loads((tmp_path / "out" / "path.json").read_text())
    best = {row["k"]: {each["name"] for each in row["coefficients"]} for row in model["rows"]}
    assert best[2] == {"a", "d"} and model["loss"] == "cox" and model["chosen"]["k"] >= 1
    X, time, event = FRAME[list("abcde")].to_numpy(), FRAME["days"].to_numpy(), FRAME["died"].to_numpy()
    expected = sht.solve(sht.CoxModel(X.astype(np.float32), time, event, 1e-3), sht.Sparsity(2)).value
    values = [row["objective"] for row in model["rows"] if row["k"] == 2]
    assert min(abs(value - expected) for value in values) < 0.01


def test_kaplan_meier():
    """By hand: of five rows events at 1 and 3, rows censored at 2, 3 and 4."""
    steps, share, censored = kaplan_meier(np.array([1.0, 2, 3, 3, 4]), np.array([True, False, True, False, False]))
    np.testing.assert_allclose(steps, [0, 1, 3, 4])
    np.testing.assert_allclose(share, [1, 4 / 5, 4 / 5 * 2 / 3, 4 / 5 * 2 / 3])
    np.testing.assert_allclose(censored, [2, 3, 4])


def test_kaplan_meier_is_that_of_scikit_survival():
    nonparametric = pytest.importorskip("sksurv.nonparametric")
    time, event = FRAME["days"].round(1).to_numpy(), FRAME["died"].to_numpy(bool)
    steps, share, _ = kaplan_meier(time, event)
    expected = nonparametric.kaplan_meier_estimator(event, time)
    np.testing.assert_allclose(share[np.searchsorted(steps, expected[0], side="right") - 1], expected[1], atol=1e-12)


def test_the_picture_draws_thirds():
    X, y = FRAME[list("abcde")].to_numpy(), FRAME[["days", "died"]]
    figure = plot_survival(sht.SparseCox(2, solver="htp").fit(X, y), X, y, target="days")
    (ax,) = figure.axes
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(labels) == 5 and sum("30 rows" in label for label in labels) == 3
    final = {line.get_label(): line.get_ydata()[-1] for line in ax.lines if "third" in line.get_label()}
    shares = [share for _, share in sorted(final.items(), key=lambda item: "high" in item[0])]
    assert shares[-1] == min(shares)  # the third at the highest risk
    assert ax.get_xlabel() == "days" and "concordance 0." in ax.get_title()
