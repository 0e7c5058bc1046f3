"""Every notebook runs from the first cell to the last."""

import json
from pathlib import Path

import jax
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path):
    pytest.importorskip("matplotlib").use("Agg")
    if path.stem == "dynamics":
        pytest.importorskip("pysindy")
    cells = json.loads(path.read_text())["cells"]
    names = {"__name__": path.stem}
    try:
        for number, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    finally:
        jax.config.update("jax_enable_x64", False)  # a notebook may set it for its whole process
