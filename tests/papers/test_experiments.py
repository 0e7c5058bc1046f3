"""Experiments: settings, resuming, missing data, the verdicts of small runs, the command and the page of claims."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sparsehtp as sht
from benchmarks.papers import EXPERIMENTS, claims_page, decide_again, hsg, read_config, reproduce, tight
from benchmarks.papers.__main__ import app, stored_results
from benchmarks.papers.findings import FINDINGS
from benchmarks.papers.hsg import Problem, tuned_curve
from benchmarks.papers.page import rows
from benchmarks.papers.run import Run, taken
from benchmarks.papers.tight_svrg import _stages_to, _traces
from benchmarks.papers.verdicts import CONFIRMED, LEAST_DRAWS, OPEN, REFUTED, UNDECIDED, VERDICTS, WITHDRAWN, Undecided
from sparsehtp.results import RESULTS

SMALL = """
[settings]
seed = 0
d = 64
ns = [4, 64]
Ks = [1, 2]
signals = 6
nonzeros = "normal"
stages = 60
"""


@pytest.fixture
def small(tmp_path):
    """A configuration of tight-fig1 that takes seconds."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def timeless(result):
    """A result without its times."""
    cells = [{k: v for k, v in cell.items() if k != "seconds"} for cell in result["cells"]]
    return {**result, "cells": cells, "seconds": None}


def test_experiments_and_configurations_are_the_same():
    assert {path.stem for path in (Path(__file__).parents[2] / "configs").glob("*.toml")} == set(EXPERIMENTS)
    for config in map(read_config, EXPERIMENTS):
        assert config["settings"]["seed"] == 0 and config["quick"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = [", "not TOML"),
        ("[settings]\nd = 3", "with a seed"),
        ("[settings]\nseed = 0\n[quick]\nd = 3", "which \\[settings\\] lacks"),
    ],
)
def test_a_wrong_configuration_is_one_sentence(tmp_path, text, message):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_config("tight-fig1", path)


def test_a_killed_run_resumes_to_the_same_result(small, tmp_path):
    class Killed(BaseException):
        pass

    def progress(done, total):
        if done == 3:
            raise Killed

    whole = reproduce("tight-fig1", tmp_path / "whole", config=small)
    with pytest.raises(Killed):
        reproduce("tight-fig1", tmp_path / "cut", config=small, progress=progress)
    assert not (tmp_path / "cut" / "tight-fig1" / "result.json").exists()
    resumed = reproduce("tight-fig1", tmp_path / "cut", config=small, resume=True)
    assert timeless(resumed) == timeless(whole)
    again = reproduce("tight-fig1", tmp_path / "cut", config=small, resume=True)
    assert again == resumed  # to the times: nothing was computed again
    stored = json.loads((tmp_path / "cut" / "tight-fig1" / "result.json").read_text())
    assert stored == resumed
    # What these sizes must give: as many measurements as unknowns are enough for PGD, four are not for two nonzeros.
    hits = {(c["n"], c["K"], c["algorithm"]): c["hits"] for c in stored["cells"]}
    assert hits[64, 1, "PGD"] == hits[64, 2, "PGD"] == 6
    assert hits[4, 2, "PGD"] == hits[4, 2, "IHT"] == 0
    assert (tmp_path / "cut" / "tight-fig1" / "figure.png").read_bytes().startswith(b"\x89PNG")

    other = tmp_path / "other.toml"
    other.write_text(SMALL.replace("seed = 0", "seed = 1"))
    with pytest.raises(ValueError, match="cells of other settings"):
        reproduce("tight-fig1", tmp_path / "cut", config=other, resume=True)


def run_of(folder, quick=False, **settings):
    return Run("x", {"settings": {"seed": 0, **settings}}, folder, quick=quick)


def test_random_numbers_do_not_depend_on_the_order_of_the_work(tmp_path):
    config = tomllib.loads(SMALL)
    first, second = (Run("x", config, tmp_path / name) for name in "ab")
    first.rng("other", 1).standard_normal(5)
    np.testing.assert_array_equal(first.rng("a", 1).standard_normal(5), second.rng("a", 1).standard_normal(5))
    assert not np.array_equal(first.rng("a", 1).standard_normal(5), first.rng("a", 2).standard_normal(5))


def test_a_claim_has_a_finding_for_each_of_its_readings(tmp_path):
    run = run_of(tmp_path)
    run.claim("a", "first", np.bool_(True), draws=None, number=np.float32(0.5), nothing=float("nan"))
    run.claim("a", "second", {"one way": False, "another": Undecided("10 times as many copies")}, draws=15)
    run.claim("a", "third", None, draws=15, need="real data")
    found = [[each["outcome"] for each in claim.findings.values()] for claim in run.claims]
    assert found == [["holds"], ["fails", "open"], ["open"]]
    assert run.claims[0].evidence == {"number": 0.5, "nothing": None}
    assert [each["need"] for each in run.claims[1].findings.values()] == ["", "10 times as many copies"]
    assert run.claims[2].findings[""]["need"] == "real data"


@pytest.mark.parametrize("holds", [False, True])
def test_a_check_that_could_not_have_told_and_a_single_draw_leave_it_open(tmp_path, holds):
    run = run_of(tmp_path)
    same, other = [0.5, 1 / 3], [0.5, 0.34]
    run.claim("a", "coinciding", holds, draws=12, compared={"A": same, "B": np.array(same), "C": same}, number=1)
    run.claim("a", "empty", holds, draws=12, compared={"A": same, "B": other}, filled={"n=5": 0.5, "n=9": 0.04})
    run.claim("a", "trivial", holds, draws=12, compared={"A": same, "B": other}, solved=["n=5", "n=9"])
    run.claim("a", "nine draws", holds, draws=9, need="real data")
    run.claim("a", "fine", holds, draws=12, compared={"A": same, "B": same, "C": other}, filled={"n=5": 0.5}, solved=[])
    run.claim("a", "one method", holds, draws=None, compared={"A": same})
    *open_, fine, alone = [claim.findings[""] for claim in run.claims]
    assert {each["outcome"] for each in open_} == {OPEN}
    words = ("A, B, C all give the same", "n=9: 4%", "one thresholding solves n=5, n=9", "real data; at least 10 draws")
    assert all(each in finding["need"] for each, finding in zip(words, open_, strict=True))
    assert fine["outcome"] == alone["outcome"] == ("holds" if holds else "fails")


def test_cells_that_did_not_converge_are_named(tmp_path):
    def fit(copy, algorithm):
        return {"result": RESULTS(2 if algorithm == "B" and copy else 1).name}

    run = run_of(tmp_path)
    run.map(fit, [{"copy": copy, "algorithm": name} for copy in range(3) for name in "AB"])
    run.map(lambda copy: {"number": copy}, [{"copy": 0}])
    assert run.notes == ["fits that did not converge: B: 2 of 3 max_steps."]


def test_histories_end_where_their_runs_end(tmp_path):
    values = np.array([[3.0, 2, 1, 0.5], [3, 2, 0, 0], [3, 9, np.inf, 0], [np.inf, 0, 0, 0]])
    results = [RESULTS.max_steps, RESULTS.converged, RESULTS.nonfinite, RESULTS.nonfinite]
    nan = np.nan
    expected = [[3, 2, 1, 0.5], [3, 2, 2, 2], [3, 9, nan, nan], [nan] * 4]
    np.testing.assert_array_equal(taken(values, [4, 2, 3, 1], results), expected)
    for i in range(4):
        np.testing.assert_array_equal(taken(values[i], [4, 2, 3, 1][i], results[i]), expected[i])


def test_a_run_that_diverges_is_not_drawn_as_one_that_converged(tmp_path):
    run = run_of(tmp_path, d=32, n=24, K=2, signals=3, nonzeros="normal")
    good, bad = (_traces(run, 4, 60, step, 40, 0) for step in (0.3, 30.0))
    assert good["diverged"] == good["far"] == bad["hits"] == 0 and bad["diverged"] == 3
    assert np.isfinite(good["curve"]).all() and good["curve"][-1] < good["curve"][0]
    shown = np.array(bad["curve"])
    assert np.isnan(shown[-20:]).all()
    assert not np.any(shown < good["curve"][0])
    assert _stages_to(bad, -6.0) == np.inf and _stages_to({"curve": [0, -7], "every": 5}, -6.0) == 6


@pytest.mark.slow
def test_a_setting_that_diverges_is_never_the_best(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 6), np.float32), rng.standard_normal((40, 3), np.float32)
    problem = Problem("small", sht.MultiResponse(X, Y), sht.Rank(2))
    settings = {"passes": 6, "points": 6, "svrg_inner": [1.0], "first_gradient_free": False, "copies": 2}
    run = run_of(tmp_path, **settings, limit_steps=50)
    start = float(problem.objective.value(np.zeros(18, np.float32)))
    monkeypatch.setattr(hsg, "FIRST_POWER", 12)  # far beyond what converges
    for algorithm in ("FG-HT", "SG-HT", "SVRG-HT"):
        best = tuned_curve(run, problem, algorithm)
        assert np.max(best["value"]) < 1e3 * start and np.max(best["value"], axis=1)[0] >= best["limit"]
        assert all(each[-1] < start for each in best["value"])
    monkeypatch.setattr(hsg, "FIRST_POWER", 60)
    monkeypatch.setattr(hsg, "POWERS", 2)
    with pytest.raises(ValueError, match="FG-HT diverged on small"):
        tuned_curve(run, problem, "FG-HT")


def test_a_stored_result_is_decided_again_without_computing(small, tmp_path, monkeypatch):
    first = reproduce("tight-fig1", tmp_path / "first", config=small)
    monkeypatch.setattr(tight, "recovered", None)  # whoever computes fails
    again = decide_again({**first, "claims": []}, tmp_path / "again")
    assert again == first and len(first["claims"]) == 2
    assert json.loads((tmp_path / "again" / "tight-fig1" / "result.json").read_text()) == again
    with pytest.raises(ValueError, match="stored: the result of tight-fig1 has no cell"):
        decide_again({**first, "cells": first["cells"][::-1]}, tmp_path / "again")

    page = tmp_path / "page" / "CLAIMS.md"
    (page.parent / "reproduced").mkdir(parents=True)
    (page.parent / "reproduced" / "tight-fig1-quick.json").write_text(json.dumps({**first, "quick": True}))
    outcome = CliRunner().invoke(app, ["tight-fig1", "--again", "--page", str(page), "--out", str(tmp_path / "again")])
    assert outcome.exit_code == 0, outcome.output
    assert page.read_text().count("it would take: the full run") == 2
    assert not any(f"**{word}**" in page.read_text() for word in (CONFIRMED, REFUTED))
    assert CliRunner().invoke(app, ["tight-fig1", "--again"]).exit_code == 2

    of_data = (PAGE.parent / "reproduced" / "grahtp-table4-full.json").read_bytes()
    (page.parent / "reproduced" / "grahtp-table4-full.json").write_bytes(of_data)
    monkeypatch.delenv("SPARSEHTP_DATA", raising=False)
    outcome = CliRunner().invoke(app, ["grahtp-table4", "--again", "--page", str(page), "--out", str(tmp_path)])
    assert outcome.exit_code == 0 and "grahtp-table4 stays as it is: " in outcome.output.replace("\n", " ")
    assert "the highest Matthews correlation" in page.read_text()


PAGE = Path(__file__).parents[2] / "benchmarks" / "results" / "CLAIMS.md"
RULE = re.compile(r"\d(%|\.\d| points| times| stages)|10\^|at most \d")  # a number in a rule


def test_the_stored_page_is_that_of_the_stored_results():
    results = stored_results(PAGE)
    assert PAGE.read_text(encoding="utf-8") == claims_page(results)
    table = {(name, row.letter): row for name, runs in results.items() for row in rows(name, runs)}
    assert {row.verdict for row in table.values()} <= set(VERDICTS)
    assert len(FINDINGS) == 5
    for finding in FINDINGS:
        assert not {table[place].verdict for place in finding.rows} & {UNDECIDED, WITHDRAWN}


def test_no_stored_claim_is_decided_by_what_cannot_decide():
    for name, runs in stored_results(PAGE).items():
        config = read_config(name)
        margins = config.get("margins", {})
        for row in rows(name, runs):
            if row.verdict in (CONFIRMED, REFUTED):
                assert not row.quick and not row.other_data, (name, row.letter)
                assert row.draws is None or row.draws >= LEAST_DRAWS, (name, row.letter)
                rule = re.sub(r"Theorem [\d.]+", "", row.statement)
                assert row.letter in margins or not RULE.search(rule), (name, row.letter, rule)
            if row.verdict == REFUTED:
                assert not row.missing, (name, row.letter)
            assert row.need or row.verdict != UNDECIDED, (name, row.letter)
            assert row.verdict == UNDECIDED or config["read"][row.letter], (name, row.letter)
            assert all(len(each["by"]) <= 2 for each in row.readings.values())


def test_a_claim_that_fails_waits_for_the_readings_that_were_not_run():
    def run(reading, outcome):
        finding = {"outcome": outcome, "parts": "", "need": "", "by": []}
        claim = {"letter": "a", "statement": "x", "findings": {"": finding}, "draws": 9, "evidence": {}}
        return {"reading": reading, "quick": False, "other_data": False, "claims": [claim]}

    readings = [run(name, "fails") for name in ("base", "noise-1", "signs", "signs-noise-1", "wide")]
    assert rows("diht-fig1", readings)[0].verdict == REFUTED
    (row,) = rows("diht-fig1", readings[:-1])
    assert row.verdict == UNDECIDED and "100,000" in row.need
    assert rows("diht-fig1", [*readings[:-1], run("wide", "holds")])[0].verdict == "depends on the reading"


def test_missing_data_say_what_is_missing_and_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARSEHTP_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"gisette: not there .*--data.*mnist.npz .*the original is at http"):
        reproduce("grahtp-fig4", tmp_path, data=tmp_path)
    outcome = CliRunner().invoke(app, ["grahtp-fig4", "--out", str(tmp_path)])
    assert outcome.exit_code == 2
    assert "mnist.npz" in outcome.output


def test_an_unknown_reading_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="reading: diht-fig1 has no reading 'x'; choose one of base, noise-1"):
        reproduce("diht-fig1", tmp_path, reading="x")


def test_the_command_lists_and_refuses(tmp_path):
    listed = CliRunner().invoke(app, ["--list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in EXPERIMENTS)
    refused = CliRunner().invoke(app, ["fig99", "--out", str(tmp_path)])
    assert refused.exit_code == 2
    assert "there is no experiment 'fig99'" in " ".join(refused.output.split())
