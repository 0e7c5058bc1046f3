"""Ordered classes and survival on the command line: `--levels`, and `--time` with `--event`."""

import io
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from commands import invoke, made, named, saved

import sparsehtp as sht
from sparsehtp.cli.common import _ordered
from sparsehtp.cli.options import PathOptions
from sparsehtp.cli.path import Subsets
from sparsehtp.plot import plot_survival
from sparsehtp.plot.survival import kaplan_meier

RNG = np.random.default_rng(0)
N = 150
FRAME = pd.DataFrame(RNG.standard_normal((N, 5)), columns=list("abcde"))
SCORE = 2 * FRAME["a"] - FRAME["d"]
LEVELS = ["poor", "fair", "good"]
STARS = np.digitize(SCORE + RNG.logistic(size=N), [-1, 1])
HEALTH = FRAME.assign(health=np.array(LEVELS)[STARS])
LAST = RNG.exponential(3, N)
DAYS = np.minimum(RNG.exponential(np.exp(-SCORE)), LAST)
LIFE = FRAME.assign(days=DAYS, died=(DAYS < LAST).astype(int))
TIMES = ("--time", "days", "--event", "died")
CHEAP = ("--k", 2, "--solver", "htp")
KINDS = {
    "ordinal": (HEALTH, ("--target", "health", "--levels", "poor, fair, good"), "accuracy", "poor < fair < good"),
    "survival": (LIFE.assign(died=np.where(LIFE["died"], "yes", "no")), TIMES, "concordance", "concordance"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_with_report_and_predictions(tmp_path, kind):
    table, options, metric, sentence = KINDS[kind]
    data, out, file = saved(tmp_path, table), tmp_path / "out", tmp_path / "m.npz"
    result, model = made(out, "fit", data, *options, *CHEAP, "--test-size", 0.3, "--report", "--save", file)
    assert set(named(model)) == {"a", "d"} and named(model)["a"] * named(model)["d"] < 0
    assert model["metric"] == metric and 0.5 < model["test_score"] < 1 and sentence in result.output
    names, loaded = {path.name for path in out.iterdir()}, sht.load(file)
    predicted = invoke("predict", file, data)
    assert predicted.exit_code == 0, predicted.output
    rows = pd.read_csv(io.StringIO(predicted.stdout))
    if kind == "ordinal":
        assert model["levels"] == LEVELS and np.all(np.diff(model["thresholds"]) > 0) and named(model)["a"] > 0
        assert "cumulative logits" in result.output and {"predictions.png", "report.html"} <= names
        assert list(rows) == ["prediction", *(f"probability of {level}" for level in LEVELS)]
        np.testing.assert_allclose(rows.iloc[:, 1:].sum(axis=1), 1, rtol=1e-9)
        np.testing.assert_array_equal(rows["prediction"], loaded.predict(FRAME))
    else:
        assert 0 < model["events"] < model["n"] == 105 and "intercept" not in result.output
        assert {"survival.png", "survival.svg", "report.html"} <= names and "predictions.png" not in names
        np.testing.assert_allclose(rows.iloc[:, 0], loaded.predict(FRAME), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_is_of_the_model_that_is_asked_for(tmp_path, kind):
    table, (_, column, _, value), _, _ = KINDS[kind]
    named = {"target": column, "levels": value} if kind == "ordinal" else {"time": column, "event": value}
    flow, X = Subsets(PathOptions(file=saved(tmp_path, table), dtype="float32", **named)), FRAME.to_numpy(np.float32)
    flow.load()
    if kind == "ordinal":
        whole = sht.OrdinalModel(X, STARS, 3, 1e-4, standardize=True)
    else:
        whole = sht.CoxModel(X, DAYS, LIFE["died"].to_numpy(), 1e-4, standardize=True)
    assert type(flow.objective) is type(whole)
    for mine, other in zip(jax.tree.leaves(flow.objective), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_long_numbers_are_told_apart():
    y = np.array([1000001.0, 1000002.0, 0.5])
    for levels in (("0.5", "1000001", "1000002"), ("5e-1", "1000001.0", "1000002")):
        found = _ordered(SimpleNamespace(y=y, target_name="y"), levels)
        assert found.ordered and [*found] == [levels[1], levels[2], levels[0]] and [*found.categories] == [*levels]
    with pytest.raises(ValueError, match=r"'1000001' is no level; the classes are 0.5, 1000001, 1000002\."):
        _ordered(SimpleNamespace(y=y, target_name="y"), ("0.5", "1e+06", "x"))
    with pytest.raises(ValueError, match=r"the classes are a, b, c, d, e, f, g, h and 1 more\.$"):
        _ordered(SimpleNamespace(y=np.array(list("abcdefghi")), target_name="y"), ("a", "b"))


def test_times_are_kept_in_full_and_an_event_at_the_end_alone_is_a_fit(tmp_path):
    """Seconds since 1970 in single precision would be ties; without a pair to compare there is no concordance."""
    options, out = (*TIMES, "--dtype", "float32", *CHEAP), tmp_path / "out"
    tables = (LIFE, LIFE.assign(days=1.6e9 + 10 * LIFE["days"]))
    short, long = (named(made(out, "fit", saved(tmp_path, table), *options)[1]) for table in tables)
    assert short == pytest.approx(long, rel=1e-4)
    made(out, "fit", saved(tmp_path, LIFE.assign(died=(DAYS == DAYS.max()).astype(int))), *options)


def test_kaplan_meier_is_that_of_scikit_survival():
    nonparametric = pytest.importorskip("sksurv.nonparametric")
    time, event = LIFE["days"].round(1).to_numpy(), LIFE["died"].to_numpy(bool)
    steps, share, censored = kaplan_meier(time, event)
    np.testing.assert_array_equal(steps, [0, *np.unique(time[event]), time.max()])
    np.testing.assert_array_equal(censored, np.sort(time[~event]))
    expected = nonparametric.kaplan_meier_estimator(event, time)
    np.testing.assert_allclose(share[np.searchsorted(steps, expected[0], side="right") - 1], expected[1], atol=1e-12)


def test_the_picture_draws_thirds():
    X, y = FRAME.to_numpy(), LIFE[["days", "died"]]
    (ax,) = plot_survival(sht.SparseCox(2, solver="htp").fit(X, y), X, y, target="days").axes
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(labels) == 5 and sum("50 rows" in label for label in labels) == 3
    final = {line.get_label(): line.get_ydata()[-1] for line in ax.lines if "third" in line.get_label()}
    shares = [share for _, share in sorted(final.items(), key=lambda item: "high" in item[0])]
    assert shares[-1] == min(shares)  # the third at the highest risk
    assert ax.get_xlabel() == "days" and "concordance 0." in ax.get_title()
