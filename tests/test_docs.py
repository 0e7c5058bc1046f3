"""The examples in docs run as they stand, page by page: Python, and commands (those that end in `# stops` exit with 2)."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparsehtp.cli.main import app

PAGES = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


def test_there_are_pages():
    assert PAGES


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_examples_run(path, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for number, (kind, block) in enumerate(re.findall(r"```(python|sh)\n(.*?)```", path.read_text(), re.S)):
        if kind == "python":
            exec(compile(block, f"{path.name}, example {number + 1}", "exec"), names)
        else:
            for line in block.splitlines():
                _, *arguments = shlex.split(line, comments=True)
                result = CliRunner().invoke(app, arguments)
                assert result.exit_code == (2 if line.endswith("# stops") else 0), result.output
    assert capsys.readouterr().out.strip()
