"""The GPU benchmark's machinery: rows are stored whole, slow parts are cut, losers show; its parts are run by hand.

Others are run by hand too: what they take from the package is looked for.
"""

import ast
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gpu

HEADER = {"device": "Some GPU 9000", "platform": "gpu", "cpu_cores": 2, "versions": {}}


def row(name, seconds, least=None):
    return {"name": name, "value": seconds, "unit": "s", "seconds": seconds} | (least or {})


def test_what_benchmarks_and_examples_import_of_the_package_is_there():
    root, looked = Path(__file__).parents[1], 0
    for path in [*(root / "benchmarks").rglob("*.py"), *(root / "examples").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sparsehtp":
                module = importlib.import_module(node.module)
                looked += len(node.names)
                missing = [each.name for each in node.names if not hasattr(module, each.name)]
                assert not missing, f"{path.relative_to(root)}: {node.module} has no {missing}"
    assert looked > 20


def test_a_part_beyond_its_limit_is_ended_and_keeps_its_rows():
    kept = []
    code = "import time; print('row 1', flush=True); print('other', flush=True); time.sleep(60)"
    status, output = gpu.run(
        [sys.executable, "-c", code], 2, {}, lambda line: line.startswith("row") and not kept.append(line)
    )
    assert (status, kept, output) == (None, ["row 1\n"], "other\n")


def test_a_part_that_fails_says_why():
    status, output = gpu.run([sys.executable, "-c", "raise ValueError('why')"], 60, {})
    assert status == 1 and output.endswith("ValueError: why\n")


def test_an_interrupted_part_does_not_live_on():
    def interrupt(line):
        raise KeyboardInterrupt

    code = "import time; print('row', flush=True); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        gpu.run([sys.executable, "-c", code], 50, {}, interrupt)


def test_every_row_is_stored_with_its_rates_and_what_the_host_takes(tmp_path):
    store = gpu.Store(tmp_path, quick=False)
    store.begin(HEADER)
    path = tmp_path / "gpu-some-gpu-9000.json"
    added = [
        ("device", "rates", {"name": "copy", "value": 1.0, "unit": "GB/s", "rate": 1e9}),
        (
            "device",
            "rates",
            {"name": "product, float32, highest precision", "value": 1, "unit": "Tflop/s", "rate": 1e12},
        ),
        ("device", "core", row("fit", 2.0, gpu.work(2.0, "float32", 1e9, 1e12))),
        ("host", "core", row("fit", 1.0)),
        ("host", "core", {"name": "compile time", "value": 1.0, "unit": "s"}),
    ]
    for number, (on, part, each) in enumerate(added, 1):
        store.add(on, part, each)
        assert sum(r["on"] != "both" for r in json.loads(path.read_text())["rows"]) == number
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    rows = {(r["on"], r["name"]): r for r in json.loads(path.read_text())["rows"]}
    assert rows["device", "fit"]["of_copy"] == 0.5 and rows["device", "fit"]["of_product"] == 0.5
    (compared,) = [r for r in rows.values() if r["on"] == "both"]
    assert compared["value"] == 0.5 and compared["met"] is False


def test_the_page_of_gpus_has_the_roofline_of_the_stored_run(capsys):
    root = gpu.ROOT
    gpu.main(roofline_of=root / "benchmarks" / "results" / "gpu-nvidia-h200.json")
    printed = capsys.readouterr().out
    assert printed in (root / "docs" / "guide" / "jax.md").read_text(encoding="utf-8")
    least, took = np.array([line.split("|")[4:6] for line in printed.splitlines()[2:-2]], float).T
    assert (least < took).all()


def test_a_full_run_without_a_gpu_is_refused():
    store = gpu.Store(None, quick=False)
    with pytest.raises(SystemExit, match="JAX sees no GPU"):
        store.begin(HEADER | {"platform": "cpu"})


def test_a_quick_part_runs_and_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PARTS", {"rates": gpu.PARTS["rates"]})
    monkeypatch.setattr(gpu, "tests", lambda limit: {"name": "tests", "value": 0, "unit": "tests"})
    gpu.main(quick=True, out=tmp_path, seconds=300)
    (path,) = tmp_path.iterdir()
    result = json.loads(path.read_text())
    assert result["finished"] and result["quick"]
    rates = [r for r in result["rows"] if r["part"] == "rates"]
    assert len(rates) == 6 and all(r["value"] > 0 for r in rates)
    assert rates[0]["programs"] >= 1 and rates[0]["compile_seconds"] > 0
