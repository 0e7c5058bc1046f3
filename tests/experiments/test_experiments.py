"""Experiments: settings, resuming, missing data, the verdicts of small runs, the command and the page of claims."""

import itertools
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sparsehtp.cli.main import app
from sparsehtp.experiments import EXPERIMENTS, claims_page, read_config, reproduce
from sparsehtp.experiments.grahtp import theory_steps
from sparsehtp.experiments.run import Run

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


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_configuration(name):
    config = read_config(name)
    assert config["settings"]["seed"] == 0
    assert config["quick"]


def test_no_configuration_without_an_experiment():
    configs = {path.stem for path in (Path(__file__).parents[2] / "configs").glob("*.toml")}
    assert configs == set(EXPERIMENTS)


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

    def kill_after(cells):
        def progress(done, total):
            if done == cells:
                raise Killed

        return progress

    whole = reproduce("tight-fig1", tmp_path / "whole", config=small)
    with pytest.raises(Killed):
        reproduce("tight-fig1", tmp_path / "cut", config=small, progress=kill_after(3))
    assert not (tmp_path / "cut" / "tight-fig1" / "result.json").exists()
    resumed = reproduce("tight-fig1", tmp_path / "cut", config=small, resume=True)
    assert timeless(resumed) == timeless(whole)
    again = reproduce("tight-fig1", tmp_path / "cut", config=small, resume=True)
    assert again == resumed  # to the times: nothing was computed again
    stored = json.loads((tmp_path / "cut" / "tight-fig1" / "result.json").read_text())
    assert stored == resumed
    # What these sizes must give: as many measurements as unknowns are enough for PGD, four are not for two nonzeros.
    success = {(c["n"], c["algorithm"]): c["success"] for c in stored["cells"]}  # of K = 1 and K = 2
    assert success[64, "PGD"] == [1, 1]
    assert success[4, "PGD"][1] == success[4, "IHT"][1] == 0
    assert (tmp_path / "cut" / "tight-fig1" / "figure.png").read_bytes().startswith(b"\x89PNG")

    other = tmp_path / "other.toml"
    other.write_text(SMALL.replace("seed = 0", "seed = 1"))
    with pytest.raises(ValueError, match="cells of other settings"):
        reproduce("tight-fig1", tmp_path / "cut", config=other, resume=True)


def test_random_numbers_do_not_depend_on_the_order_of_the_work(tmp_path):
    config = tomllib.loads(SMALL)
    first, second = (Run("x", config, tmp_path / name) for name in "ab")
    first.rng("other", 1).standard_normal(5)
    np.testing.assert_array_equal(first.rng("a", 1).standard_normal(5), second.rng("a", 1).standard_normal(5))
    assert not np.array_equal(first.rng("a", 1).standard_normal(5), first.rng("a", 2).standard_normal(5))


def test_a_claim_is_confirmed_refuted_or_not_testable_and_a_refuted_one_carries_its_remark(tmp_path):
    run = Run("x", {"settings": {"seed": 0}, "remarks": {"a": "because\n of this"}}, tmp_path)
    run.claim("a", "first", np.bool_(True), number=np.float32(0.5), nothing=float("nan"))
    run.claim("a", "second", False)
    run.claim("a", "third", None)
    assert [claim.verdict for claim in run.claims] == ["confirmed", "refuted", "not testable here"]
    assert [claim.remark for claim in run.claims] == ["", "because of this", ""]
    assert run.claims[0].evidence == {"number": 0.5, "nothing": None}


def test_missing_data_say_what_is_missing_and_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARSEHTP_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"gisette: not there .*--data.*mnist.npz .*the original is at http"):
        reproduce("grahtp-fig4", tmp_path, data=tmp_path)
    outcome = CliRunner().invoke(app, ["reproduce", "grahtp-fig4", "--out", str(tmp_path)])
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
    page = claims_page({"tight-fig1": [{**result, "quick": True}, result]})
    for name in EXPERIMENTS:
        assert f"## {name}" in page
    for claim in result["claims"]:
        assert page.count(f"{claim['letter']}. {claim['statement']}") == 1
    assert page.count("| quick |") == page.count("| full |") == len(result["claims"])


def test_the_command_lists_and_refuses(tmp_path):
    listed = CliRunner().invoke(app, ["reproduce", "--list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in EXPERIMENTS)
    refused = CliRunner().invoke(app, ["reproduce", "fig99", "--out", str(tmp_path)])
    assert refused.exit_code == 2
    assert "there is no experiment 'fig99'" in " ".join(refused.output.split())
