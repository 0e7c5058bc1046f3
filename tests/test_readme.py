"""The README is short, and its Python example runs."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_example_runs(capsys):
    pytest.importorskip("matplotlib")
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == re.findall(r"print\(.*\)  # (.*)", block)  # as its comments say


def test_it_is_read_in_three_minutes():
    assert len(TEXT.split()) <= 500
