"""The examples in docs run as they stand, page by page: Python, commands, and the screens shown below a command."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparsehtp.cli.main import app

PAGES = sorted((Path(__file__).parents[1] / "docs").rglob("*.md"))


def test_there_are_pages():
    assert PAGES


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_examples_run(path, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, output = {}, ""
    for number, (kind, block) in enumerate(re.findall(r"```(python|sh|text)\n(.*?)```", path.read_text(), re.S)):
        if kind == "python":
            exec(compile(block, f"{path.name}, example {number + 1}", "exec"), names)
        elif kind == "text":
            assert unwrapped(block) in unwrapped(output)
        else:
            _, *arguments = shlex.split(block, comments=True)
            result = CliRunner().invoke(app, arguments)
            output = result.output
            assert result.exit_code == (2 if block.endswith("# stops\n") else 0), output
    assert capsys.readouterr().out.strip()


def unwrapped(screen):
    """The words of a screen, however wide it is."""
    return " ".join(screen.replace("─", "").split())


def test_every_feature_names_a_test_that_exists():
    page = (Path(__file__).parents[1] / "docs" / "features.md").read_text()
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(named) > 30
    for file, test in named:
        assert f"def {test}(" in (Path(__file__).parent / file).read_text(), (file, test)
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    for row in rows:
        ours = row.split("|")[-2].strip()
        assert not ours or re.fullmatch(r"✓ `[\w/]+\.py::\w+`", ours), row
