"""What terminal and report say of fits, paths, ranks and graphs: of descriptions by hand, so that nothing is fitted."""

import io
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import cases
import jax
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import sparsehtp as sht
from sparsehtp.cli import caveats, common, fit, html, lowrank, precision, report, tables
from sparsehtp.cli.common import plotting
from sparsehtp.cli.options import FitOptions, GraphOptions, LowRankOptions, PathOptions
from sparsehtp.cli.parts import Stream
from sparsehtp.cli.path import Proved, Subsets, check_path
from sparsehtp.cli.report import MAX_ROWS, Console, Number, Sheet
from sparsehtp.grids.choose import BY_FOLDS


class Rows(SimpleNamespace):
    """A path as far as it is told of."""

    def __len__(self):
        return len(self.ks)


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
CONTENDERS = [(2, 0.0, 0.0), (4, 0.3, 0.2), (5, 0.5, 0.2)]
CV = {
    **{"folds": 5, "repeats": 1, "rule": "strong-ridge", "as_good": [1, 2], "best": 2, "chosen": 4},
    "table": [{"k": k, "l2": l2, "mean_loss": 1 - k / 7, "se": 0.12345} for l2 in (0.1, 1.0) for k in (0, 1, 2)],
    "contenders": [{"row": i, "difference": d, "standard_error": se} for i, d, se in CONTENDERS],
}
BY_RULE = "features found at l2 = 0.5, coefficients at l2 = 0.05 (by cross-validation)"
SMALL_STEP, COMPLETE = "the last step hardly changed a coefficient", "no further feature was to be added"
CHANGES = """
; test R2;
n_test=9, test_score=0.5; test R2; 0.5000 on 9 rows
metric="D2"; train D2; 0.2500 of the deviance explained, on 30 rows
train_score=None; train R2; undefined (constant target)
train_score=np.nan; train R2; not computed
classes={"-1": "no", "+1": "yes"}; predicts; yes (positive side) against no
levels=["low", "high"]; predicts; low < high
events=7; events; 7 of the training rows; the others are censored
; model; squared loss, k = 2, l2 = 0.5
refit_l2=0.05, chosen_by="cv"; model; squared loss, k = 2, {BY_RULE}
loss="huber", loss_parameter=1.5; model; huber(1.5) loss, k = 2, l2 = 0.5
loss="cox", chosen_by="bic"; model; Cox model, k = 2, l2 = 0.5 (by bic)
loss="ordinal"; model; cumulative logits, k = 2, l2 = 0.5
; how sure;
cv=CV; how sure; k = 1, 2 are as good as the best at l2 = 1 (5 folds)
cv=CV | {"table": CV["table"][1:]}; how sure; k = 1, 2 are as good as the best at l2 = 1 (5 folds)
cv=CV | {"table": 2 * CV["table"][:3]}; how sure; k = 1, 2 are as good as the best (5 folds)
; result; converged after 3 steps
result={"name": "ended", "fired": "SmallStep and Complete"}; result; ended after 3 steps: {SMALL_STEP} and {COMPLETE}
; objective; 2.5 (half the mean squared error with the ridge; less is better)
loss="poisson", l2=0; objective; 2.5 (the mean loss, but for a constant of the data; less is better)
; certificate; No exchange.
caveat="Few rows."; caveat; Few rows.
caveat="Few rows."; certificate;
caveat="Few rows.", proof={"proved": True, "statement": "So."}; caveat; Few rows.
proof={"proved": True, "statement": "So."}; certificate;
proof={"proved": False, "statement": "So."}; certificate; No exchange.
proof={"proved": False, "statement": "So."}; proof; So.
coefficients=near(0.0); exchange; f0 could be g0 at no loss
""".strip("\n").splitlines()


def near(*shares):
    return [feature(f"f{i}", substitute={"name": f"g{i}", "more_loss": share}) for i, share in enumerate(shares)]


def cells(*rows):
    return [[str(cell) for cell in row] for row in rows]


@pytest.mark.parametrize("line", CHANGES)
def test_facts_of_a_fit(line):
    changes, fact, said = (part.strip() for part in line.split(";", 2))
    assert report.fit_facts(FIT | eval(f"dict({changes})")).get(fact, "") == said.format(**globals())


def test_exchanges_and_what_they_cost():
    some = [*near(0.01, 0.0101, -0.005, 1e-7, 1.9e-6, -0.02), feature("h", substitute=None)]
    costs = ["0.5% less", "no", "0.00019% more", "1% more"]
    told = [f"f{i} could be g{i} at {cost} loss" for i, cost in zip((2, 3, 4, 0), costs, strict=True)]
    assert caveats.exchanges_told({"coefficients": some}) == told
    others = [None, ["b"], ["b", "c"], ["b", "c", "d", "e"], []]
    by_folds = [feature(f"f{i}", exchangeable=each) for i, each in enumerate(others)]
    said = "within what the folds can tell, f1 could be b; f2 could be b or c; f3 could be b or c (or 2 more)"
    assert caveats.exchanges_told({"coefficients": by_folds}) == [said]
    assert caveats.exchanges_told({"coefficients": [feature("a", exchangeable=[])]}) == []
    costs = ["0%", "+9.6%", "-0.5%", "+12%", "+1000%", "over +1000%", "-1234%", "+0.00015%"]
    several = [*near(1e-7, 0.096, -0.005, 0.1234, 9.996, 10, -12.34, 1.5e-6), feature("a")]
    assert [caveats.substitute(each) for each in several] == [*(f"g{i} ({cost})" for i, cost in enumerate(costs)), ""]


def test_a_sheet_of_features():
    """Texts have a row of their own above their levels, if they have several."""
    city = [feature(f"city={level}", 1.0, "city", share_of_folds=0.5) for level in ("Oslo", "Rome")]
    b = feature("b", -0.123456789, share_of_folds=1.0, substitute={"name": "c", "more_loss": 0.2})
    sheet = report.feature_sheet(FIT | {"coefficients": [*city, b], "reference_levels": {"city": "Bonn"}, "n_units": 4})
    assert sheet.title == "2 of 4 features chosen (a text counts as one)" and len(sheet.head) == 5
    assert sheet.numeric == [False, True, True, True, False] and cells(*sheet.rows, *sheet.foot) == [
        ["city (against Bonn)", "", "", "50%", ""],
        ["\u00a0\u00a0Oslo", "+1", "+2", "", ""],
        ["\u00a0\u00a0Rome", "+1", "+2", "", ""],
        ["b", "-0.12346", "-0.24691", "100%", "c (+20%)"],
        ["intercept", "-1.5", "", "", ""],
    ]
    assert report.feature_sheet(FIT | {"coefficients": []}).rows == []
    plain = report.feature_sheet(FIT | {"fit_intercept": False})
    assert (plain.title, len(plain.head), plain.foot) == ("2 of 5 features chosen", 3, [])
    assert fit.with_names("one chosen group: feature 1 for group 0", ["a", "b"]) == "one chosen feature: 'b' for 'a'"


def test_a_terminal_shows_all_rows_or_says_how_many_more():
    rows = [[f"[{i}]", Number(i / 3)] for i in range(MAX_ROWS + 2)]
    sheet = Sheet("title", ["name", "value"], rows, chosen=[1], foot=[["sum", Number(0)]])
    for whole, shown in ((None, rows), ("a.csv", rows[:MAX_ROWS])):
        table = report.on_terminal(sheet, whole)
        columns = zip(*cells(*shown, *sheet.foot), strict=True)
        assert [tuple(column.cells) for column in table.columns] == [*columns]
        assert [i for i, row in enumerate(table.rows) if row.style == "bold"] == [1]
        assert table.columns[1].justify == "right" and table.columns[1].no_wrap and table.rows[-2].end_section
        assert table.columns[0].min_width == 4 and table.caption == (f"... and 2 more in {whole}" if whole else None)
    assert report.on_terminal(sheet._replace(rows=rows[:MAX_ROWS]), "a.csv").caption is None


def test_a_sheet_of_the_choice_says_which_are_worse_than_the_folds_can_tell():
    beside, fewest = "best k of its l2, ", "fewest features within one std. error (chosen)"
    told = [(0, "no feature"), (4, f"{beside}not clearly worse (chosen)"), (2, "best"), (5, f"{beside}clearly worse")]
    assert report.choice_rows({"cv": CV}) == told
    smaller = report.choice_rows({"cv": CV | {"chosen": 3}})
    assert (3, "fewest features that are as good at this l2 (chosen)") in smaller
    one_se = CV | {"rule": "one-se", "one_standard_error": 2, "chosen": 2, "best": 5}
    assert report.choice_rows({"cv": one_se}) == [(0, "no feature"), (2, fewest), (5, "best")]
    sheet = report.choice_sheet({"cv": CV | {"repeats": 4}})
    assert sheet.title == "Cross-validation, 5 folds, each row held out 4 times" and sheet.chosen == [1]
    assert cells(sheet.rows[1]) == [["1", "1", "0.85714", "0.123", told[1][1]]]


def path_flow(**options):
    flow = Subsets(PathOptions(file=Path("a.csv"), **options))
    flow.errors = Console(file=io.StringIO(), width=200)
    return flow


def test_a_path_on_the_screen():
    ks, l2s, converged = np.tile([0, 1, 2], 2), np.repeat([0.1, 1.0], 3), sht.results.RESULTS.converged
    flow = path_flow(l2=[0.1, 1.0], cv=3, criterion="bic", drop=list("cdef"), groups="who")
    flow.path = Rows(ks=ks, l2s=l2s, value=10.0 - ks, result=np.array([converged] * 5 + [converged + 1]))
    flow.units, flow.chosen, gaps = list("ab"), 4, np.array([1.0] * 3 + [1e-5, 0.5, np.nan])
    flow.bounds, flow.criterion = Proved(gaps, gaps), SimpleNamespace(best=5, values=np.arange(6) + 0.26)
    flow.cv = SimpleNamespace(best=5, best_1se=4, strong_ridge=4, mean=np.arange(6) / 3, se=np.arange(6) / 7)
    likely = np.array([[0, 0], [0.3, 0.7], [1, 0.75], [0, 0], [0.8, 0.7], [1, 0.75]])
    flow.stability = SimpleNamespace(selected=lambda least: likely >= least, ks=ks, n_resamples=8)
    rows = [{"coefficients": [feature(name) for name in "ab"[:k]]} for k in ks]
    model = {"file": "a.csv", "n": 30, "target": "y", "classes": {"-1": "no", "+1": "yes"}, "rows": rows}
    sheet = flow.sheet(model)
    assert sheet.title == "Best subsets at l2 = 1" and sheet.chosen == [1]
    assert cells(sheet.head, *sheet.rows) == [
        ["k", "objective", "bic", "CV loss", "± se", "proved", "best by", "enters\n(-leaves)"],
        ["0", "10.000", "3.3", "1.0000", "0.429", "best", "", ""],
        ["1", "9.0000", "4.3", "1.3333", "0.571", "within 50%", "1 se, ridge", "a"],
        ["2", "8.0000", "5.3", "1.6667", "0.714", "-", "bic, CV", "b"],
    ]
    assert flow.facts(model) == {
        "data": "a.csv, 30 rows, 2 features, target y",
        "set aside": "'c', 'd', 'e', 'f' (--drop), 'who' (--groups)",
        "predicts": "yes (positive side) against no",
        **{"best bic": "k = 2, l2 = 1", "best CV loss": "k = 2, l2 = 1"},
        **{"within 1 se": "k = 1, l2 = 1 (chosen)", "strong ridge": "k = 1, l2 = 1 (chosen)"},
        "features": "a",
        "stable": "a (among the best 1 in 75% or more of 8 subsamples)",
    }
    flow.options, flow.chosen = PathOptions(file=Path("a.csv"), levels="low, high"), 3
    facts, flow.cv = flow.facts(model), None
    assert (facts["predicts"], facts["features"], facts["stable"][:8]) == ("low < high", "none", "none (am")
    assert "fewest as good" in facts and {"l2"} == facts.keys() & {"l2", "strong ridge"}
    assert "l2" not in flow.facts(model)
    flow.options, flow.chosen = path_flow(l2=[0.1, 1.0], criterion="bic").options, 4
    flow.bounds = flow.stability = None
    assert cells(*flow.sheet(model).rows)[2] == ["2", "8.0000", "5.3", "bic", "b"] and flow.ended(model)
    assert "1 of 6 fits did not converge" in flow.errors.file.getvalue()
    moves = report.moves_told([row["coefficients"] for row in rows], [2, 1, 3])
    assert moves == {2: "a, b", 1: "-b", 3: "-a"}


def test_a_path_is_chosen_by_the_folds_where_there_are_some(monkeypatch):
    names, made = list("abc"), {"path": Rows(ks=np.arange(3), l2s=np.full(3, 0.1), value=3.0 - np.arange(3))}
    vars(made["path"]).update(loss=np.zeros(3), intercept=np.ones(3), result=np.zeros(3, int), coefficients=np.eye(3))
    made["path"].features = SimpleNamespace(idx=np.array([[2, 1, 0]] * 3), mask=np.tri(3, k=-1, dtype=bool))
    chances = np.array([[0, 0.5, 0.25, 0.0], [0, 0.75, 1.0, 0.75]])
    bound = SimpleNamespace(_asdict=lambda: {"by_hand": np.array([0.5, 1.5])})
    made["subsamples"] = SimpleNamespace(
        ks=np.array([1, 2]), n_resamples=8, probabilities=chances, error_bound=lambda share: bound
    )
    table = {BY_FOLDS["one-se"]: 2}
    cv = SimpleNamespace(table=table, scores=np.zeros((3, 3)), best=1, best_1se=2, mean=np.zeros(3), se=np.ones(3))
    monkeypatch.setattr(sht, "information_criterion", lambda *_: SimpleNamespace(best=1, values=np.arange(3.0)))
    for more, chosen, by in (({"cv": 3, "stability": 8, "prove": 2.0, "k_max": 2}, 2, "one-se"), ({}, 1, "bic")):
        more |= {"levels": "low, high", "solver": "htp"} if more else {}
        flow = path_flow(rule="one-se", criterion="bic", **more)
        flow.table = flow.classes = None
        flow._computed, flow._scored = lambda what, *_, **__: made[what], lambda: cv
        flow._proved = lambda: Proved(np.zeros(3), np.array([0, 0.5, np.nan]))
        flow.work()
        flow.data, flow.units, flow.n_samples = SimpleNamespace(X=np.zeros((9, 3)), feature_names=names), names, 9
        flow.data.target_name, flow.units = "y", list("abcd")
        model = flow.describe()
        assert (model["chosen"]["k"], model["chosen"]["by"], model["n"], model["p"]) == (chosen, by, 9, 3)
        assert flow.shared["ks"] == (range(3) if more else None) and flow.shared["threshold"] is None
        assert isinstance(flow.shared["solver"], sht.solvers.HTP if more else type(None))
        assert [[each["name"] for each in row["coefficients"]] for row in model["rows"]] == [[], ["c"], ["b", "c"]]
        assert [row.get("proved") for row in model["rows"]] == ([True, False, False] if more else [None] * 3)
        told = model["stability"]
        assert (told is None) == (model["cv"] is None) == (not more)
        assert model.get("levels") == (["low", "high"] if more else None)
        if more:
            assert model["cv"] == {"folds": 3, "best": 1, "one_standard_error": 2}
            assert told["expected_false_selections"] == {"by_hand": [0.5, 1.5]} and told["ks"] == [1, 2]
            assert [each["name"] for each in told["probabilities"]] == ["c", "b", "d"]
            assert told["probabilities"][0]["probabilities"] == [0.25, 1.0]


def test_parts_of_grids_have_folders_and_the_ridge_its_rule(monkeypatch):
    for l2, state in (([0.1], None), ([0.1, 1.0], Path("state"))):
        flow = path_flow(l2=l2, checkpoint=state)
        flow.objective, flow.shared, flow.folds = "model", {"ks": range(3)}, lambda: "folds"
        monkeypatch.setattr("sparsehtp.cli.path.default_refit", lambda *given: given)
        monkeypatch.setattr(sht, "cross_validate", lambda objective, **given: given | {"objective": objective})
        given = flow._scored()
        assert given["checkpoint"] == (None if state is None else state / "cv") and given["objective"] == "model"
        assert given["refit"] == ("model", flow.options.rule, None if state is None else l2)
        assert (given["l2s"], given["folds"], given["ks"]) == (l2, "folds", range(3))


def test_proofs_of_a_path_share_the_time_and_try_twice(monkeypatch):
    """The small k first; what is proved is not tried again, and of two bounds the higher one counts."""
    asked, lower = [], {0: [9.0], 1: [4.0, 5.0], 2: [4.0, 3.0]}

    def prove(model, threshold, start, time_limit):
        asked.append((model, int(threshold.k), start.x, time_limit))
        return SimpleNamespace(lower=lower[int(threshold.k)].pop(0), floor=1.0 if threshold.k else 9.0)

    monkeypatch.setattr(sht, "prove", prove)
    flow = path_flow(prove=60.0)
    ks, l2s = np.array([2, 1, 0, 1]), np.array([1.0, 1, 1, 0])
    flow.chosen, flow.path = 1, Rows(ks=ks, l2s=l2s, x=list("cbad"), value=[5.0, 6, 9, 7])
    flow.objective = SimpleNamespace(reweighted=lambda l2: l2)
    bounds = flow._proved()
    np.testing.assert_allclose(bounds, [[4, 5, 9, np.nan], [1 / 4, 1 / 5, 0, np.nan]])
    assert [each[:3] for each in asked] == [(1, 0, "a"), (1, 1, "b"), (1, 2, "c"), (1, 1, "b"), (1, 2, "c")]
    np.testing.assert_allclose([each[3] for each in asked], [20, 30, 60, 30, 60], rtol=0.01)
    flow.options, lower = PathOptions(file=Path(), prove=1e-9), {0: [9.0], 1: [4.0], 2: [4.0]}
    assert flow._proved().lower[:3].tolist() == [4, 4, 9]  # with no time left there is no second try


def test_ranks_and_graphs_on_the_screen():
    table = [{"rank": rank, "mean_loss": 2 / (1 + rank), "se": 0.1} for rank in range(3)]
    cv, within = {"folds": 5, "table": table, "one_standard_error": 1, "best": 2}, "within one std. error"
    sheet = lowrank._sheet({"cv": cv, "rank": 1})
    assert cells(sheet.rows[1]) == [["1", "1.0000", "0.1", f"{within} (chosen)"]] and sheet.chosen == [1]
    assert [row[-1] for row in sheet.rows[::2]] == ["", "best"]
    assert lowrank._sheet({"cv": cv | {"best": 1}, "rank": 2}).rows[1][-1] == f"best, and {within}"
    edge = {"source": "a", "partial_correlation": 0.5}
    edges = [edge | {"target": name, "probability": share} for name, share in (("b", 0.75), ("c", 0.8), ("d", 1.0))]
    answer = {
        **{"file": "a.csv", "n": 30, "variables": list("abcd"), "k": 3, "chosen_by": "cv", "log_likelihood": -1.25},
        **{"edges": edges, "stability": 8, "result": {"name": "converged"}, "num_steps": 4},
    }
    assert precision.Graph(GraphOptions(file=Path("a.csv"))).facts(answer) == {
        "data": "a.csv, 30 rows, 4 variables",
        "k": "3 (by cross-validation)",
        "likelihood": "-1.25 (mean log-likelihood of these rows)",
        "stable": "3 edges are in 75% or more of 8 subsamples",
        "result": "converged after 4 steps",
    }
    sheet, alone = precision._sheet(answer), precision._sheet(answer | {"edges": [edge | {"target": "b"}]})
    assert (sheet.title, cells(sheet.rows[0])) == ("3 edges among 4 variables", [["a - b", "+0.500", "75%"]])
    assert (len(sheet.head), cells(*alone.rows), len(alone.head)) == (3, [["a - b", "+0.500"]], 2)
    assert precision._sheet(answer | {"edges": []}).title == "0 edges among 4 variables"
    assert precision.split_pairs([" a , b"]) == [["a", "b"]] and precision.split_pairs(None) is None


@pytest.mark.parametrize("converged, ended", [(True, "the support repeated itself"), (False, "stopped at the limit")])
def test_a_stream_on_the_screen(converged, ended):
    model = {"loss": "huber", "k": 3, "l2": 0.1, "objective": 2.5, "passes": 7, "seconds": 2.0, "n": 3000}
    flow = Stream(FitOptions(file=Path("parts")), None)
    flow.errors = Console(file=io.StringIO())
    facts = flow.facts(model | {"files": ["a", "b"], "converged": converged})
    assert facts["data"] == "parts: 2 files, 3,000 rows" and facts["speed"] == "10,500 rows a second"
    assert facts["result"].startswith(ended) and facts["result"].endswith("after 7 passes over the data")
    assert flow.ended({"converged": converged}) and bool(flow.errors.file.getvalue()) != converged


def test_options_by_default_are_those_of_the_library():
    for made, alone in (
        (fit.make_estimator(FitOptions(file=Path()), None), sht.SparseRegressor()),
        (precision.make_graph(GraphOptions(file=Path()), None), sht.SparsePrecision()),
    ):
        assert made.get_params() == alone.get_params() | {"random_state": 0}
    asked = {"file": Path(), "k": "3", "seed": 7, "cv": 4}
    for made, alone, own in (
        (fit.make_estimator(FitOptions(**asked, l2=0.5), None), sht.SparseRegressor(), {"l2": 0.5}),
        (precision.make_graph(GraphOptions(**asked, shrinkage=0.25), None), sht.SparsePrecision(), {"shrinkage": 0.25}),
    ):
        assert made.get_params() == alone.get_params() | {"k": 3, "random_state": 7, "cv": 4} | own
    for more, added in (({}, True), ({"intercept": False}, False), ({"event": "e"}, False), ({"levels": "a,b"}, False)):
        assert FitOptions(file=Path(), **more).fit_intercept == added
    assert tables.left_out(FitOptions(file=Path())) == {}
    ranks, alone = LowRankOptions(file=Path(), targets="y"), sht.LowRankRegressor().get_params()
    assert all(getattr(ranks, name) == alone[name] for name in ("l2", "cv", "one_se"))
    assert (ranks.rank, ranks.intercept) == ("cv", alone["fit_intercept"])
    path, graph, whole = PathOptions(file=Path()), GraphOptions(file=Path()), FitOptions(file=Path())
    nothing = (path.cv, path.stability, path.prove, graph.stability, whole.test_size, whole.prove, whole.diagnostics)
    assert not any(nothing) and tuple(path.l2) == (1e-4,)
    of_loss = FitOptions(file=Path(), loss="quantile", loss_parameter=0.9)
    assert fit.make_estimator(of_loss, None).loss == sht.losses.Quantile(0.9)
    said = [report.by_option(f"{name}: is 7.") for name in ("k", "ks", "nothing")]
    assert said == ["--k: is 7.", "--k-max: is 7.", "nothing: is 7."]


def test_a_report_says_the_same_in_sections(tmp_path):
    def sections(write):
        write(tmp_path / "a.html")
        text = (tmp_path / "a.html").read_text(encoding="utf-8")
        assert text.count('<tr class="chosen">') == len(re.findall(r"\(chosen\)|<h2>Best", text))
        found = re.findall(r"<section><h2>(.*?)</h2>(.*?)</section>", text, re.S)
        return {title: " ".join(re.sub(r"<[^>]*>", " ", content).split()) for title, content in found}

    plain = FIT | {"versions": {"jax": "1"}, "notes": [], "warnings": [], "caveat": "Few rows."}
    more = {"notes": ["read so"], "warnings": ["Odd."], "failed": ["proof: failed."], "cv": CV, "caveat": None}
    facts = {"data": "a.csv", "certificate": "No exchange.", "proof": "Not proved.", "exchange": "said below"}
    more["coefficients"] = [*near(0.5), feature("a")]
    whole = sections(html.fit_report(plain | more, facts, {}, "sparsehtp fit a.csv"))
    sizes = "k = 1, 2 are as good as the best at l2 = 1 (5 folds)"
    choice, table = whole.pop("Choice of k"), whole.pop("2 of 5 features chosen")
    assert choice.startswith(f"Cross-validation by the rule strong-ridge takes k = 2; {sizes}. k l2 ")
    assert "g0 (+50%)" in table and whole == {
        **{"Data and model": "data a.csv", "Notes": "Read so.", "Warnings": "Odd."},
        "What could be exchanged": "No other feature could take the place of a chosen one at nearly no loss.",
        **{"Certificate": "Not proved. No exchange.", "What failed": "proof: failed."},
        "How to make this again": "sparsehtp fit a.csv Made with jax 1.",
    }
    few = sections(html.fit_report(plain, {"data": "a.csv", "caveat": "Few rows."}, {}, ""))
    assert list(few) == ["Data and model", "2 of 5 features chosen", "Caveat", "How to make this again"]
    rows = {"rows": [{"coefficients": []}, {"coefficients": FIT["coefficients"]}], "chosen": {"k": 2, "row": 1}}
    sheet = Sheet("Best", ["k"], [[Number(0)], [Number(2)]], chosen=[1])
    path = sections(html.path_report(plain | rows, sheet, {"data": "a.csv"}, {}, "sparsehtp path"))
    assert path["The features at k = 2"] == "feature coefficient a +1 b -0.12346" and path["Best"] == "k 0 2"


OF_CLASSES = [({}, ""), ({"levels": ["poor", "fair", "good"]}, "good"), ({"classes": {"-1": 0, "+1": 1}}, "y = 1")]


@pytest.mark.parametrize(("changes", "highest"), OF_CLASSES)
def test_signs_point_towards_the_highest_class(changes, highest):
    flow, drawn = fit.Fit(FitOptions(file=Path(), diagnostics=bool(highest))), {}
    flow.swaps, flow.proof = SimpleNamespace(features=np.zeros(0)) if highest else None, None
    flow.names = flow.units = list("ab")
    results = {"shares": np.array([[1.0, 0.0]])}
    flow.fitted = SimpleNamespace(cv_results_=results, support_=np.array([True, False]), groups=None, history_={})
    flow.draw_rows = lambda *_: None
    flow.after = SimpleNamespace(draw=lambda _, name, plot, *what, **more: drawn.update({name: (what, more)}))
    flow.draw(FIT | {"drawn": True, "cv": CV} | changes)
    assert list(drawn) == ["coefficients", "cv", "shares", *["history"] * bool(highest)]
    assert drawn["shares"][0][1].tolist() == [True, False]
    (names, sizes), more = drawn["coefficients"]
    towards = f" (positive: towards {highest})" if highest else ""
    assert (names, sizes, more.pop("levels")) == (["a", "b"], [2, -0.246913578], ["", ""])
    assert more == {"title": "2 of 5 features predict y", "caption": f"coefficient per standard deviation{towards}"}


def test_features_are_told_by_their_size_and_those_of_a_text_together():
    flow, w = fit.Fit(FitOptions(file=Path())), np.array([0.1, 0.9, 0.2, -1.3, 0.0, -0.9, 0.3])
    groups = np.array([0, 0, 1, 2, 2, 1, 0])
    flow.deviations, flow.names, flow.units = lambda places: np.full(places.size, 0.5), list("abcdefg"), list("xyz")
    flow.fitted = SimpleNamespace(coef_=w, support_=w != 0, groups=groups + 7, cv_results_={"shares": np.arange(3) / 2})
    order = sorted(np.flatnonzero(w), key=lambda i: (-np.abs(w[groups == groups[i]]).max(), groups[i], -abs(w[i])))
    told = [(each["index"], each["column"], each["share_of_folds"]) for each in flow._coefficients()]
    assert told == [(i, "xyz"[groups[i]], groups[i] / 2) for i in order]


def test_what_pictures_warn_of_is_told_once():
    errors = Console(file=io.StringIO())
    with warnings.catch_warnings(action="ignore"), plotting(errors, "Plotting"):
        for message, kind in (("Odd.", UserWarning), ("Odd.", UserWarning), ("Old.", DeprecationWarning)):
            warnings.warn(message, kind, stacklevel=1)
    tables.print_notes(errors, [])
    tables.print_notes(errors, ["read so", "left out"])
    assert errors.file.getvalue() == "Warning: Odd.\nNote: read so; left out.\n"


def test_a_stopwatch_counts_what_is_compiled_between_its_ends(monkeypatch):
    times, compiled = iter([10.0, 12.5]), "/jax/core/compile/backend_compile_duration"
    monkeypatch.setattr(common, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    with common.Stopwatch() as timing:
        for event, seconds in ((compiled, 0.25), ("/jax/core/other", 9.0), (compiled, 0.5)):
            jax.monitoring.record_event_duration_secs(event, seconds)
    jax.monitoring.record_event_duration_secs(compiled, 9.0)
    assert str(timing) == "2.50 s, of which 0.75 s compiling"


def test_a_bar_is_for_a_terminal():
    for terminal in (True, False):
        errors = Console(file=io.StringIO(), force_terminal=terminal, width=100, _environ={"TERM": "xterm"})
        with common.progress_bar(errors, "rows") as progress:
            progress(3, 7)
        shown = errors.file.getvalue().rpartition("3/7")
        assert bool(shown[1]) == ("\x1b[2K" in shown[2]) == terminal  # and it is gone afterwards


def test_numbers_that_features_and_labels_become():
    """Features are dense where more than a tenth is not zero; labels are whole numbers where all of them are."""
    for filled in (10, 11):
        X = sparse.csr_array((np.ones(filled), np.divmod(np.arange(filled), 10)), shape=(10, 10))
        found = common.features(SimpleNamespace(X=X), "float32")
        assert sparse.issparse(found) == (filled == 10) and found.dtype == np.float32
    for values, kind in (([1, -2], "i"), ([1, 1.5], "f"), ([0, 2.0**53], "f"), ([-(2.0**53), 0], "f")):
        assert common.plain_labels(np.array(values, float)).dtype.kind == kind
    of_two, advised = FitOptions(file=Path(), loss="logistic"), {}
    signs, classes = common.encode(SimpleNamespace(y=np.array([5.0, 2, 5])), of_two)
    assert signs.tolist() == [1, -1, 1] and classes == {"-1": 2, "+1": 5}
    for labels in ("a", "abc", "abcd", "abcde"):
        with pytest.raises(ValueError, match="needs exactly two classes") as caught:
            common.encode(SimpleNamespace(y=np.array(list(labels)), target_name="y"), of_two)
        shown, advised[labels] = re.search(r"values \((.*?)\); (.*)", str(caught.value)).groups()
        assert shown == ", ".join(labels[:4]) + (", ..." if labels > "abcd" else "")
    assert advised["a"].startswith("with a single class") and advised["abc"].startswith("name all 3 by --levels")
    for y, kind in ((np.array(["a", "b"]), "--loss logistic for two"), (np.array([1.0, 2]), "--loss squared for num")):
        assert kind in common._advice(y)
    for loss, l2 in (("squared", 0.0), ("logistic", 0.1), ("logistic", None)):  # of which nothing is refused
        common.check_provable(loss, l2)
    negative, counts = SimpleNamespace(y=np.array([-1.0, 2])), FitOptions(file=Path(), loss="poisson")
    cases.refused(ValueError, "counts >= 0", lambda: common.encode(negative, counts))
    check_path(PathOptions(file=Path(), k_max=6, cv=40), 40, 6)


def test_a_graph_is_described_with_the_shares_of_its_edges(tmp_path, monkeypatch):
    flow = precision.Graph(GraphOptions(file=Path("a.csv"), k="ebic", stability=8, seed=3))
    flow.X, flow.keep, asked = pd.DataFrame(np.eye(5)[:, :3], columns=list("abc")), [["c", "b"]], {}
    matrix, edges = np.array([[2, -1, 0], [-1, 3, 0.5], [0, 0.5, 4]]), [("a", "b", 0.5), ("b", "c", -0.25)]
    found = {"k_": 2, "shrinkage": 0.25, "shrinkage_": 0.125, "precision_": matrix, "edges": lambda: edges}
    found |= {"score": lambda _: -1.25, "objective_value_": 2.5, "n_iter_": 3, "result_": "converged"}
    of_data = SimpleNamespace(from_data=lambda X, **settings: SimpleNamespace(**settings))
    monkeypatch.setattr(sht, "Precision", of_data)
    monkeypatch.setattr(sht, "SparsePrecision", lambda **_: SimpleNamespace(fit=lambda X: SimpleNamespace(**found)))
    found["cv_results_"] = None

    def select(model, progress, **given):
        asked.update(given, **vars(model))
        progress(1, 1)
        places = sht.thresholds.pair_index(np.array([0, 0, 1]), np.array([1, 2, 2]), 3)
        return SimpleNamespace(probabilities=np.array([[0.5, 0.125, 1.0]])[:, np.argsort(places)])

    monkeypatch.setattr(sht, "stability_selection", select)
    flow.work()
    assert not flow.after.failed and asked["ks"] == [2] and asked["n_resamples"] == 8
    assert asked["shrinkage"] == 0.25 and asked["standardize"]
    assert asked["threshold"].keep.tolist() == [[1, 2]] and asked["key"] == jax.random.key(3)
    np.testing.assert_allclose(flow.chances, [[0, 0.5, 0.125], [0.5, 0, 1], [0.125, 1, 0]])
    model = flow.describe()
    assert [(e["precision"], e["probability"]) for e in model["edges"]] == [(-1, 0.5), (0.5, 1)]
    assert (model["n"], model["k"], model["chosen_by"], model["shrinkage"]) == (5, 2, "ebic", 0.125)
    files = flow.files(model)
    for name, write in files.items():
        write(tmp_path / name)
    header = "source,target,partial_correlation,precision,probability"
    assert (tmp_path / "edges.csv").read_text().splitlines() == [header, "a,b,0.5,-1.0,0.5", "b,c,-0.25,0.5,1.0"]
    assert (tmp_path / "precision.csv").read_text().splitlines()[1] == "a,2.0,-1.0,0.0"
    assert (tmp_path / "graph.graphml").read_text().count("<edge ") == 2
    found["k_"] = 0
    flow.work()
    assert flow.chances is None and "probability" not in flow.describe()["edges"][0]
    flow.options, flow.fitted.cv_results_ = GraphOptions(file=Path("a.csv"), k="3", stability=8), {"ks": np.arange(2)}
    assert flow.describe()["chosen_by"] is None and flow.describe()["choice"] == {"ks": [0, 1]}
    for shown, head in (([], header.removesuffix(",probability")), (model["edges"][:1], header)):
        flow.files(model | {"edges": shown})["edges.csv"](tmp_path / "edges.csv")
        assert (tmp_path / "edges.csv").read_text().split() == [head, *(["a,b,0.5,-1.0,0.5"] if shown else [])]
        assert ("stable" in flow.facts(model | {"edges": shown})) == bool(shown)
