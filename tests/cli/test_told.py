"""What terminal and report say of fits, paths, ranks and graphs: of descriptions by hand, so that nothing is fitted."""

import io
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.cli.caveats import exchanges_told, substitute
from sparsehtp.cli.common import plotting
from sparsehtp.cli.fit import Fit, make_estimator, with_names
from sparsehtp.cli.html import fit_report, path_report
from sparsehtp.cli.lowrank import _sheet as ranks_sheet
from sparsehtp.cli.options import FitOptions, GraphOptions, PathOptions
from sparsehtp.cli.parts import Stream
from sparsehtp.cli.path import Proved, Subsets
from sparsehtp.cli.precision import Graph, make_graph
from sparsehtp.cli.precision import _sheet as edges_sheet
from sparsehtp.cli.report import (
    MAX_ROWS,
    Console,
    Number,
    Sheet,
    by_option,
    choice_rows,
    choice_sheet,
    feature_sheet,
    fit_facts,
    moves_told,
    on_terminal,
)


def feature(name, coefficient=1.0, column=None, **more):
    row = {"name": name, "column": column or name, "coefficient": coefficient, "standardized": 2 * coefficient}
    return row | more


FIT = {
    **{"file": "a.csv", "target": "y", "n": 30, "n_test": 0, "p": 5, "n_units": 5, "classes": None, "cv": None},
    **{"loss": "squared", "loss_parameter": None, "k": 2, "chosen_by": None, "l2": 0.5, "refit_l2": 0.5},
    **{"metric": "R2", "train_score": 0.25, "test_score": None, "result": {"name": "converged", "fired": "none"}},
    **{"num_steps": 3, "objective": 2.5, "caveat": None, "certificate": "No exchange.", "fit_intercept": True},
    **{"intercept": -1.5, "reference_levels": {}, "coefficients": [feature("a"), feature("b", -0.123456789)]},
}
CV = {
    **{"folds": 5, "repeats": 1, "rule": "strong-ridge", "as_good": [1, 2], "best": 2, "chosen": 4},
    "table": [{"k": k, "l2": l2, "mean_loss": 1 - k / 7, "se": 0.12345} for l2 in (0.1, 1.0) for k in (0, 1, 2)],
    "contenders": [
        {"row": row, "difference": difference, "standard_error": se}
        for row, difference, se in [(2, 0.0, 0.0), (4, 0.3, 0.2), (5, 0.5, 0.2)]
    ],
}
FACTS = {  # of the description with these changes: what is said, None: nothing
    "no test": ({}, "test R2", None),
    "a test": ({"n_test": 9, "test_score": 0.5}, "test R2", "0.5000 on 9 rows"),
    "deviance": ({"metric": "D2"}, "train D2", "0.2500 of the deviance explained, on 30 rows"),
    "constant": ({"train_score": None}, "train R2", "undefined (constant target)"),
    "failed": ({"train_score": np.nan}, "train R2", "not computed"),
    "classes": ({"classes": {"-1": "no", "+1": "yes"}}, "predicts", "yes (positive side) against no"),
    "levels": ({"levels": ["low", "high"]}, "predicts", "low < high"),
    "events": ({"events": 7}, "events", "7 of the training rows; the others are censored"),
    "one l2": ({}, "model", "squared loss, k = 2, l2 = 0.5"),
    "two l2": (
        {"refit_l2": 0.05, "chosen_by": "cv"},
        "model",
        "squared loss, k = 2, features found at l2 = 0.5, coefficients at l2 = 0.05 (by cross-validation)",
    ),
    "parameter": (
        {"loss": "huber", "loss_parameter": 1.5, "chosen_by": "bic"},
        "model",
        "huber(1.5) loss, k = 2, l2 = 0.5 (by bic)",
    ),
    "survival": ({"loss": "cox"}, "model", "Cox model, k = 2, l2 = 0.5"),
    "ordered": ({"loss": "ordinal"}, "model", "cumulative logits, k = 2, l2 = 0.5"),
    "no choice": ({}, "how sure", None),
    "several l2": ({"cv": CV}, "how sure", "k = 1, 2 are as good as the best at l2 = 1 (5 folds)"),
    "of one l2": (
        {"cv": CV | {"table": CV["table"][3:], "chosen": 1}},
        "how sure",
        "k = 1, 2 are as good as the best (5 folds)",
    ),
    "unknown end": ({}, "result", "converged after 3 steps"),
    "two ends": (
        {"result": {"name": "stopped", "fired": "SmallStep and Complete"}},
        "result",
        "stopped after 3 steps: the last step hardly changed a coefficient and no further feature was to be added",
    ),
    "ridge": ({}, "objective", "2.5 (half the mean squared error with the ridge; less is better)"),
    "counts": (
        {"loss": "poisson", "l2": 0},
        "objective",
        "2.5 (the mean loss, but for a constant of the data; less is better)",
    ),
    "certificate": ({}, "certificate", "No exchange."),
    "caveat": ({"caveat": "Few rows."}, "caveat", "Few rows."),
    "not both": ({"caveat": "Few rows."}, "certificate", None),
    "proved": ({"proof": {"proved": True, "statement": "Proved."}}, "certificate", None),
    "not proved": ({"proof": {"proved": False, "statement": "Not proved."}}, "certificate", "No exchange."),
    "proof": ({"proof": {"proved": False, "statement": "Not proved."}}, "proof", "Not proved."),
    "exchange": (
        {"coefficients": [feature("a", substitute={"name": "c", "more_loss": 0.0})]},
        "exchange",
        "a could be c at no loss",
    ),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_a_fit(name):
    changes, fact, said = FACTS[name]
    assert fit_facts(FIT | changes).get(fact) == said


def near(*shares):
    return [feature(f"f{i}", substitute={"name": f"g{i}", "more_loss": share}) for i, share in enumerate(shares)]


def test_exchanges_and_what_they_cost():
    told = exchanges_told({"coefficients": [*near(0.01, 0.0101, -0.005, 1e-7), feature("h", substitute=None)]})
    assert told == ["f2 could be g2 at 0.5% less loss", "f3 could be g3 at no loss", "f0 could be g0 at 1% more loss"]
    others = [None, ["b"], ["b", "c"], ["b", "c", "d", "e"], []]
    by_folds = [feature(f"f{i}", exchangeable=each) for i, each in enumerate(others)]
    said = "within what the folds can tell, f1 could be b; f2 could be b or c; f3 could be b or c (or 2 more)"
    assert exchanges_told({"coefficients": by_folds}) == [said]
    assert exchanges_told({"coefficients": [feature("a", exchangeable=[])]}) == []
    cells = ["g0 (0%)", "g1 (+5%)", "g2 (-0.5%)", "g3 (+12%)", "g4 (+1000%)", "g5 (over +1000%)"]
    assert [substitute(each) for each in near(1e-7, 0.05, -0.005, 0.1234, 9.996, 10)] == cells
    assert substitute(feature("a")) == ""


def test_a_sheet_of_features():
    """Texts have a row of their own above their levels, if they have several."""
    city = [feature(f"city={level}", 1.0, "city", share_of_folds=0.5) for level in ("Oslo", "Rome")]
    other = {"name": "c", "more_loss": 0.2}
    model = FIT | {
        "coefficients": [*city, feature("b", -0.123456789, share_of_folds=1.0, substitute=other)],
        "reference_levels": {"city": "Bonn"},
    }
    sheet = feature_sheet(model | {"n_units": 4})
    assert sheet.title == "2 of 4 features chosen (a text counts as one)"
    assert [[str(cell) for cell in row] for row in (*sheet.rows, *sheet.foot)] == [
        ["city (against Bonn)", "", "", "50%", ""],
        ["\u00a0\u00a0Oslo", "+1", "+2", "", ""],
        ["\u00a0\u00a0Rome", "+1", "+2", "", ""],
        ["b", "-0.12346", "-0.24691", "100%", "c (+20%)"],
        ["intercept", "-1.5", "", "", ""],
    ]
    assert len(sheet.head) == 5 and sheet.numeric == [False, True, True, True, False]
    plain = feature_sheet(FIT | {"fit_intercept": False})
    assert (plain.title, len(plain.head), plain.foot) == ("2 of 5 features chosen", 3, [])
    assert with_names("one chosen group: feature 1 for group 0", ["a", "b"]) == "one chosen feature: 'b' for 'a'"


def test_a_terminal_shows_all_rows_or_says_how_many_more():
    rows = [[f"[{i}]", Number(i / 3)] for i in range(MAX_ROWS + 2)]
    sheet = Sheet("title", ["name", "value"], rows, chosen=[1], foot=[["sum", Number(0)]])
    for whole, shown in ((None, rows), ("a.csv", rows[:MAX_ROWS])):
        table = on_terminal(sheet, whole)
        names, values = (list(column.cells) for column in table.columns)
        assert (
            names == [f"[{i}]" for i in range(len(shown))] + ["sum"]
            and [c.justify for c in table.columns][1] == "right"
        )
        assert values == [f"{i / 3:.6g}" for i in range(len(shown))] + ["0"]
        assert [i for i, row in enumerate(table.rows) if row.style == "bold"] == [1]
        assert table.caption == (f"... and 2 more in {whole}" if whole else None)
    assert on_terminal(sheet._replace(rows=rows[:MAX_ROWS]), "a.csv").caption is None


def test_a_sheet_of_the_choice_says_which_are_worse_than_the_folds_can_tell():
    beside = "best k of its l2, "
    told = [(0, "no feature"), (4, f"{beside}not clearly worse (chosen)"), (2, "best"), (5, f"{beside}clearly worse")]
    assert choice_rows({"cv": CV}) == told
    smaller = choice_rows({"cv": CV | {"chosen": 3}})
    assert (3, "fewest features that are as good at this l2 (chosen)") in smaller
    one_se = CV | {"rule": "one-se", "one_standard_error": 1, "chosen": 1}
    fewest = (1, "fewest features within one std. error (chosen)")
    assert choice_rows({"cv": one_se | {"best": 5}}) == [(0, "no feature"), fewest, (5, "best")]
    sheet = choice_sheet({"cv": CV | {"repeats": 4}})
    assert sheet.title == "Cross-validation, 5 folds, each row held out 4 times" and sheet.chosen == [1]
    assert [str(cell) for cell in sheet.rows[1]] == ["1", "1", "0.85714", "0.123", told[1][1]]


def test_a_path_on_the_screen():
    ks, l2s = np.tile([0, 1, 2], 2), np.repeat([0.1, 1.0], 3)
    converged = sht.results.RESULTS.converged
    flow = Subsets(
        PathOptions(file=Path("a.csv"), l2=[0.1, 1.0], cv=3, criterion="bic", drop=["id", "note"], groups="who")
    )
    flow.path = SimpleNamespace(ks=ks, l2s=l2s, value=10.0 - ks, result=np.array([converged] * 5 + [converged + 1]))
    flow.units, flow.chosen, flow.bounds = list("ab"), 4, Proved(np.zeros(6), np.array([1.0] * 3 + [1e-5, 0.5, np.nan]))
    flow.criterion = SimpleNamespace(best=5, values=np.arange(6) + 0.26)
    flow.cv = SimpleNamespace(best=5, best_1se=4, strong_ridge=4, mean=np.arange(6) / 3, se=np.arange(6) / 7)
    likely = np.array([[0, 0], [0.8, 0.7], [1, 0.75]] * 2)
    flow.stability = SimpleNamespace(selected=lambda least: likely >= least, ks=ks, n_resamples=8)
    rows = [{"coefficients": [feature(name) for name in "ab"[:k]]} for k in (0, 1, 2, 0, 1, 2)]
    model = {"file": "a.csv", "n": 30, "target": "y", "classes": {"-1": "no", "+1": "yes"}, "rows": rows}
    sheet = flow.sheet(model)
    assert sheet.title == "Best subsets at l2 = 1" and sheet.chosen == [1]
    assert sheet.head == ["k", "objective", "bic", "CV loss", "± se", "proved", "best by", "enters\n(-leaves)"]
    assert [[str(cell) for cell in row] for row in sheet.rows] == [
        ["0", "10.000", "3.3", "1.0000", "0.429", "best", "", ""],
        ["1", "9.0000", "4.3", "1.3333", "0.571", "within 50%", "1 se, ridge", "a"],
        ["2", "8.0000", "5.3", "1.6667", "0.714", "-", "bic, CV", "b"],
    ]
    assert flow.facts(model) == {
        "data": "a.csv, 30 rows, 2 features, target y",
        "set aside": "'id', 'note' (--drop), 'who' (--groups)",
        "predicts": "yes (positive side) against no",
        "best bic": "k = 2, l2 = 1",
        "best CV loss": "k = 2, l2 = 1",
        "within 1 se": "k = 1, l2 = 1 (chosen)",
        "strong ridge": "k = 1, l2 = 1 (chosen)",
        "features": "a",
        "stable": "a (among the best 1 in 75% or more of 8 subsamples)",
    }
    flow.cv = flow.bounds = flow.stability = None
    plain = flow.sheet(model)
    assert (len(plain.head), [str(cell) for cell in plain.rows[2]]) == (5, ["2", "8.0000", "5.3", "bic", "b"])
    said = []
    flow.errors = SimpleNamespace(print=lambda text, **_: said.append(text))
    assert flow.ended(model) and "1 of 6 fits did not converge" in said[0]
    assert moves_told([row["coefficients"] for row in rows], [2, 1, 3]) == {2: "a, b", 1: "-b", 3: "-a"}


def test_proofs_of_a_path_share_the_time_and_try_twice(monkeypatch):
    """The small k first; what is proved is not tried again, and of two bounds the higher one counts."""
    asked, lower = [], {0: [9.0], 1: [4.0, 5.0], 2: [4.0, 3.0]}

    def prove(model, threshold, start, time_limit):
        asked.append((model, int(threshold.k), start.x, time_limit))
        return SimpleNamespace(lower=lower[int(threshold.k)].pop(0), floor=1.0)

    monkeypatch.setattr(sht, "prove", prove)
    flow = Subsets(PathOptions(file=Path(), prove=60.0))
    flow.errors, flow.chosen = Console(file=io.StringIO()), 1
    flow.path = SimpleNamespace(
        ks=np.array([2, 1, 0, 1]), l2s=np.array([1.0, 1, 1, 0]), x=list("cbad"), value=[5.0, 6, 9, 7]
    )
    flow.objective = SimpleNamespace(reweighted=lambda l2: l2)
    bounds = flow._proved()
    np.testing.assert_allclose(bounds.lower, [4, 5, 9, np.nan])
    np.testing.assert_allclose(bounds.gaps, [1 / 4, 1 / 5, 0, np.nan])
    assert [each[:3] for each in asked] == [(1, 0, "a"), (1, 1, "b"), (1, 2, "c"), (1, 1, "b"), (1, 2, "c")]
    np.testing.assert_allclose([each[3] for each in asked], [20, 30, 60, 30, 60], rtol=0.01)


def test_ranks_and_graphs_on_the_screen():
    table = [{"rank": rank, "mean_loss": 2 / (1 + rank), "se": 0.1} for rank in range(3)]
    cv = {"folds": 5, "table": table, "one_standard_error": 1, "best": 2}
    sheet = ranks_sheet({"cv": cv, "rank": 1})
    assert [str(cell) for cell in sheet.rows[1]] == ["1", "1.0000", "0.1", "within one std. error (chosen)"]
    assert sheet.chosen == [1] and [row[-1] for row in sheet.rows] == ["", sheet.rows[1][-1], "best"]
    assert ranks_sheet({"cv": cv | {"best": 1}, "rank": 2}).rows[1][-1] == "best, and within one std. error"
    edges = [
        {"source": "a", "target": name, "partial_correlation": 0.5, "probability": share}
        for name, share in (("b", 0.75), ("c", 0.8), ("d", 1.0))
    ]
    answer = {
        **{"file": "a.csv", "n": 30, "variables": list("abcd"), "k": 3, "chosen_by": "cv", "log_likelihood": -1.25},
        **{"edges": edges, "stability": 8, "result": {"name": "converged"}, "num_steps": 4},
    }
    assert Graph(GraphOptions(file=Path("a.csv"))).facts(answer) == {
        "data": "a.csv, 30 rows, 4 variables",
        "k": "3 (by cross-validation)",
        "likelihood": "-1.25 (mean log-likelihood of these rows)",
        "stable": "3 edges are in 75% or more of 8 subsamples",
        "result": "converged after 4 steps",
    }
    sheet = edges_sheet(answer)
    assert (sheet.title, len(sheet.head)) == ("3 edges among 4 variables", 3)
    assert [str(cell) for cell in sheet.rows[0]] == ["a - b", "+0.500", "75%"]
    alone = [{name: edge[name] for name in edge if name != "probability"} for edge in edges]
    assert [
        len(part) for part in (edges_sheet(answer | {"edges": alone}).head, edges_sheet(answer | {"edges": []}).head)
    ] == [2, 2]


@pytest.mark.parametrize(
    ("converged", "ended"), [(True, "the support repeated itself"), (False, "stopped at the limit")]
)
def test_a_stream_on_the_screen(converged, ended):
    model = {"loss": "huber", "k": 3, "l2": 0.1, "objective": 2.5, "passes": 7, "seconds": 2.0, "n": 3000}
    flow, said = Stream(FitOptions(file=Path("parts")), None), []
    flow.errors = SimpleNamespace(print=lambda text, **_: said.append(text))
    facts = flow.facts(model | {"files": ["a", "b"], "converged": converged})
    assert facts["data"] == "parts: 2 files, 3,000 rows" and facts["speed"] == "10,500 rows a second"
    assert facts["result"].startswith(ended) and facts["result"].endswith("after 7 passes over the data")
    assert flow.ended({"converged": converged}) and len(said) == (not converged)


def test_options_by_default_are_those_of_the_library():
    for made, alone in (
        (make_estimator(FitOptions(file=Path()), None), sht.SparseRegressor()),
        (make_graph(GraphOptions(file=Path()), None), sht.SparsePrecision()),
    ):
        assert made.get_params() == alone.get_params() | {"random_state": 0}
    assert by_option("k: is 7.") == "--k: is 7." and by_option("ks: is 7.") == "--k-max: is 7."
    assert by_option("nothing: is 7.") == "nothing: is 7."


def test_a_report_says_the_same_in_sections(tmp_path):
    said = {
        "versions": {"jax": "1", "numpy": "2"},
        "notes": ["read so"],
        "warnings": ["Odd."],
        "failed": ["proof: failed."],
    }
    model = (
        FIT
        | said
        | {"cv": CV, "n_units": 4, "coefficients": [feature("a", substitute={"name": "c", "more_loss": 0.5})]}
    )
    facts = {"data": "a.csv", "certificate": "No exchange.", "proof": "Not proved.", "exchange": "said below"}
    plain = FIT | {"versions": {}, "notes": [], "warnings": [], "caveat": "Few rows."}
    rows = {"rows": [{"coefficients": []}, {"coefficients": FIT["coefficients"]}], "chosen": {"k": 2, "row": 1}}
    sheet = Sheet("Best", ["k"], [[Number(0)], [Number(2)]], chosen=[1])
    sections = []
    for write in (
        fit_report(model, facts, {}, "sparsehtp fit a.csv"),
        fit_report(plain, {"data": "a.csv", "caveat": "Few rows."}, {}, "sparsehtp fit"),
        path_report(plain | rows, sheet, {"data": "a.csv"}, {}, "sparsehtp path"),
    ):
        write(tmp_path / "a.html")
        text = (tmp_path / "a.html").read_text(encoding="utf-8")
        found = re.findall(r"<section><h2>(.*?)</h2>(.*?)</section>", text, re.S)
        sections.append({title: " ".join(re.sub(r"<[^>]*>", " ", content).split()) for title, content in found})
        assert text.count('<tr class="chosen">') == len(re.findall(r"\(chosen\)|<h2>Best", text))
    whole, few, path = sections
    assert few == {
        "Data and model": "data a.csv",
        "2 of 5 features chosen": few["2 of 5 features chosen"],
        "Caveat": "Few rows.",
        "How to make this again": "sparsehtp fit Made with .",
    }
    assert path["The features at k = 2"] == "feature coefficient a +1 b -0.12346" and path["Best"] == "k 0 2"
    sizes = "k = 1, 2 are as good as the best at l2 = 1 (5 folds)"
    choice, table = whole.pop("Choice of k"), whole.pop("1 of 4 features chosen (a text counts as one)")
    assert (
        choice.startswith(f"Cross-validation by the rule strong-ridge takes k = 2; {sizes}. k l2 ")
        and "c (+50%)" in table
    )
    assert whole == {
        "Data and model": "data a.csv",
        "Notes": "Read so.",
        "Warnings": "Odd.",
        "What could be exchanged": "No other feature could take the place of a chosen one at nearly no loss.",
        "Certificate": "Not proved. No exchange.",
        "What failed": "proof: failed.",
        "How to make this again": "sparsehtp fit a.csv Made with jax 1, numpy 2.",
    }


@pytest.mark.parametrize(
    ("changes", "towards"),
    [
        ({}, ""),
        ({"levels": ["poor", "fair", "good"]}, " (positive: towards good)"),
        ({"classes": {"-1": 0, "+1": 1}}, " (positive: towards y = 1)"),
    ],
)
def test_signs_point_towards_the_highest_class(changes, towards):
    flow, drawn = Fit(FitOptions(file=Path())), {}
    flow.swaps = flow.proof = None
    flow.names = flow.units = list("ab")
    results = {"shares": np.array([[1.0, 0.5]])}
    flow.fitted = SimpleNamespace(cv_results_=results, support_=np.array([True, False]), groups=None)
    flow.draw_rows = lambda *_: None
    flow.after = SimpleNamespace(draw=lambda _, name, plot, *what, **more: drawn.update({name: (what, more)}))
    flow.draw(FIT | {"drawn": True, "cv": CV} | changes)
    assert list(drawn) == ["coefficients", "cv", "shares"] and drawn["shares"][0][1].tolist() == [True, False]
    (names, sizes), more = drawn["coefficients"]
    assert (names, sizes, more["levels"]) == (["a", "b"], [2, -0.246913578], ["", ""])
    assert more["title"] == "2 of 5 features predict y"
    assert more["caption"] == "coefficient per standard deviation" + towards


def test_what_pictures_warn_of_is_told_once():
    errors = Console(file=io.StringIO())
    with warnings.catch_warnings(action="ignore"), plotting(errors, "Plotting"):
        for message, kind in (("Odd.", UserWarning), ("Odd.", UserWarning), ("Old.", DeprecationWarning)):
            warnings.warn(message, kind, stacklevel=1)
    assert errors.file.getvalue() == "Warning: Odd.\n"
