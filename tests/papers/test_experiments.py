"""Experiments: settings, resuming, missing data, the verdicts of small runs, the command and the page of claims."""

import itertools
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sparsehtp as sht
from benchmarks.papers import EXPERIMENTS, claims_page, decide_again, hsg, read_config, reproduce, tight
from benchmarks.papers.__main__ import app
from benchmarks.papers.grahtp import theory_steps
from benchmarks.papers.hsg import Problem, tuned_curve
from benchmarks.papers.run import VERDICTS, Run, taken
from benchmarks.papers.tight_svrg import _stages_to, _traces
from benchmarks.papers.verdicts import Undecided
from sparsehtp.results import RESULTS

SMALL = """
[settings]
seed = 0
d = 64
ns = [4, 64]
Ks = [1, 2]
signals = 6
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
    with pytest.raises(ValueError, match="there is no experiment"):
        read_config("fig99")


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


def run_of(folder, quick=False, remarks=None, quotes=None, **settings):
    config = {"settings": {"seed": 0, **settings}, "remarks": remarks or {}, "quotes": quotes or {}}
    return Run("x", config, folder, quick=quick)


def test_random_numbers_do_not_depend_on_the_order_of_the_work(tmp_path):
    config = tomllib.loads(SMALL)
    first, second = (Run("x", config, tmp_path / name) for name in "ab")
    first.rng("other", 1).standard_normal(5)
    np.testing.assert_array_equal(first.rng("a", 1).standard_normal(5), second.rng("a", 1).standard_normal(5))
    assert not np.array_equal(first.rng("a", 1).standard_normal(5), first.rng("a", 2).standard_normal(5))


@pytest.mark.parametrize(
    ("quick", "words"),
    [
        (False, ("confirmed", "refuted", "undecided")),
        (True, ("as claimed", "not as claimed at this size", "open at this size")),
    ],
)
def test_only_a_full_run_gives_a_verdict_and_what_is_not_as_claimed_carries_its_remark(tmp_path, quick, words):
    run = run_of(tmp_path, quick, {"a": "because\n of this"}, {"a": "so\n they say"})
    run.claim("a", "first", np.bool_(True), number=np.float32(0.5), nothing=float("nan"))
    run.claim("a", "second", False)
    run.claim("a", "third", None, need="real data")
    run.claim("a", "fourth", Undecided("10 times as many copies"))
    assert [claim.verdict for claim in run.claims] == [*words[:2], "not testable here", words[2]]
    assert [claim.remark for claim in run.claims] == ["", "because of this", "", ""]
    assert {claim.quote for claim in run.claims} == {"so they say"}
    evidence = [{"number": 0.5, "nothing": None}, {}, "real data", "10 times as many copies"]
    assert [claim.evidence for claim in run.claims] == [
        {"it_would_take": each} if isinstance(each, str) else each for each in evidence
    ]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("holds", [False, True])
def test_a_check_that_could_not_have_told_is_vacuous(tmp_path, quick, holds):
    run = run_of(tmp_path, quick, {"a": "because"})
    same, other = [0.5, 1 / 3], [0.5, 0.34]
    run.claim("a", "coinciding", holds, compared={"A": same, "B": np.array(same), "C": same}, number=1)
    run.claim("a", "empty", holds, compared={"A": same, "B": other}, filled={"n=5": 0.5, "n=9": 0.04})
    run.claim("a", "trivial", holds, compared={"A": same, "B": other}, solved=["n=5", "n=9"])
    run.claim("a", "fine", holds, compared={"A": same, "B": same, "C": other}, filled={"n=5": 0.5}, solved=[])
    run.claim("a", "one method", holds, compared={"A": same})
    run.claim("a", "not testable", None, compared={"A": same, "B": same})
    coinciding, empty, trivial, *rest = run.claims
    assert coinciding.verdict == empty.verdict == trivial.verdict == "vacuous"
    assert trivial.evidence == {"why": "one thresholding solves n=5, n=9"}
    assert coinciding.remark == empty.remark == ""
    assert coinciding.evidence == {"why": "A, B, C all give the same", "number": 1}
    assert "n=9: 4%" in empty.evidence["why"] and "n=5" not in empty.evidence["why"]
    assert "vacuous" not in [claim.verdict for claim in rest]


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
    run = run_of(tmp_path, d=32, n=24, K=2, signals=3)
    good, bad = (_traces(run, 4, 60, step, 40) for step in (0.3, 30.0))
    assert good["diverged"] == 0 and bad["diverged"] == 3 and bad["hits"] == 0
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


def numbers(result):
    """A result without the words that its configuration adds."""
    return {**result, "deviations": None, "claims": [{**c, "quote": "", "remark": ""} for c in result["claims"]]}


def test_a_stored_result_is_decided_again_without_computing(small, tmp_path, monkeypatch):
    first = reproduce("tight-fig1", tmp_path / "first", config=small)
    monkeypatch.setattr(tight, "recovered", None)  # whoever computes fails
    again = decide_again({**first, "claims": []}, tmp_path / "again")
    assert numbers(again) == numbers(first) and len(first["claims"]) == 2
    assert json.loads((tmp_path / "again" / "tight-fig1" / "result.json").read_text()) == again
    quick = decide_again({**first, "quick": True}, tmp_path / "again")
    assert not {claim["verdict"] for claim in quick["claims"]} & {"confirmed", "refuted"}
    with pytest.raises(ValueError, match="stored: the result of tight-fig1 has no cell"):
        decide_again({**first, "cells": first["cells"][::-1]}, tmp_path / "again")

    page = tmp_path / "page" / "CLAIMS.md"
    (page.parent / "reproduced").mkdir(parents=True)
    (page.parent / "reproduced" / "tight-fig1-quick.json").write_text(json.dumps({**first, "quick": True}))
    outcome = CliRunner().invoke(app, ["tight-fig1", "--again", "--page", str(page), "--out", str(tmp_path / "again")])
    assert outcome.exit_code == 0, outcome.output
    opening, rest = page.read_text().split("\n## ", 1)
    assert "A *quick* run is no verdict" in opening
    assert not any(f"**{word}**" in rest for word in ("confirmed", "refuted"))
    assert CliRunner().invoke(app, ["tight-fig1", "--again"]).exit_code == 2


def test_the_stored_page_gives_no_verdict_on_quick_runs():
    results = Path(__file__).parents[2] / "benchmarks" / "results"
    page = (results / "CLAIMS.md").read_text(encoding="utf-8")
    stored = {name: [] for name in EXPERIMENTS}
    for name, runs in stored.items():
        for size in ("quick", "full"):
            path = results / "reproduced" / f"{name}-{size}.json"
            if path.is_file():
                runs.append(json.loads(path.read_text(encoding="utf-8")))
    assert page == claims_page(stored)
    for run in itertools.chain(*stored.values()):
        verdicts = {claim["verdict"] for claim in run["claims"]}
        assert all(claim["remark"] for claim in run["claims"] if claim["verdict"] == "refuted")
        assert verdicts <= {"vacuous", "not testable here", *VERDICTS["quick" if run["quick"] else "full"].values()}


def test_missing_data_say_what_is_missing_and_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARSEHTP_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"gisette: not there .*--data.*mnist.npz .*the original is at http"):
        reproduce("grahtp-fig4", tmp_path, data=tmp_path)
    outcome = CliRunner().invoke(app, ["grahtp-fig4", "--out", str(tmp_path)])
    assert outcome.exit_code == 2
    assert "mnist.npz" in outcome.output


def test_the_theory_step_bounds_the_curvature_of_every_small_support():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1, 15, 6)).astype(np.float32)
    weights = rng.random(15).astype(np.float32)
    step = float(theory_steps(X, weights, 0.1, 1.0, k=1)[0])
    A = (X[0].T * weights) @ X[0] / weights.sum()
    exact = max(np.linalg.eigvalsh(A[np.ix_(s, s)])[-1] for s in itertools.combinations(range(6), 2))
    # The truncated power method is a lower bound of the eigenvalue, 0.82 of it at worst in many trials.
    assert 0.7 * exact + 0.1 <= 0.5 / step <= exact * (1 + 1e-5) + 0.1


def test_the_page_shows_every_claim_of_every_stored_run(small, tmp_path):
    result = reproduce("tight-fig1", tmp_path, config=small)
    for claim in result["claims"]:
        claim.update(quote="their words", remark="our finding")
    result["deviations"] = ["fewer copies"]
    quick = {**result, "quick": True, "claims": [{**claim, "verdict": "as claimed"} for claim in result["claims"]]}
    page = claims_page({"tight-fig1": [quick, result]})
    for name in EXPERIMENTS:
        assert f"## {name}" in page and f"| {name} |" in page
    for claim in result["claims"]:
        assert page.count(f"{claim['letter']}. {claim['statement']}") == 1
    assert page.count("The paper: their words our finding") == len(result["claims"])
    assert "- fewer copies" in page
    assert "as claimed**" not in page  # the full run takes its place
    small = claims_page({"tight-fig1": [quick]})
    assert small.count("**as claimed**") == len(result["claims"])
    assert f"| all | {len(result['claims'])} claims | 0 | 0 | 0 | 0 | 0 | {len(result['claims'])} |" in small


def test_the_command_lists_and_refuses(tmp_path):
    listed = CliRunner().invoke(app, ["--list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in EXPERIMENTS)
    refused = CliRunner().invoke(app, ["fig99", "--out", str(tmp_path)])
    assert refused.exit_code == 2
    assert "there is no experiment 'fig99'" in " ".join(refused.output.split())
