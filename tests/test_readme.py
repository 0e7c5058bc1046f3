"""The README is short, its Python example runs, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs(capsys):
    pytest.importorskip("matplotlib")
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == re.findall(r"print\(.*\)  # (.*)", block)  # as its comments say


def test_it_is_read_in_three_minutes_and_its_links_exist():
    assert len(TEXT.split()) <= 500
    links = re.findall(r"\]\(([^)#]+)", TEXT)
    assert links and all((ROOT / link).exists() for link in links if not link.startswith("http"))
