"""What CONTRIBUTING.md tells a newcomer to write works as it stands."""

import re
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = {title: body for title, body in re.findall(r"^## (Adding .*?)\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)}


@pytest.mark.parametrize("title", ["Adding a loss", "Adding a threshold", "Adding an objective", "Adding a solver"])
def test_a_part_is_written_checked_and_used(title, tmp_path, monkeypatch, capsys):
    part, use = re.findall(r"```python\n(.*?)```", SECTIONS[title], re.S)
    name = re.match(r"# (\w+)\.py\n", part).group(1)
    (tmp_path / f"{name}.py").write_text(part, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        exec(compile(use, f"CONTRIBUTING.md, {title}", "exec"), {})
    finally:
        sys.modules.pop(name, None)
    assert capsys.readouterr().out.split("\n")[:-1] == re.findall(r"print\(.*\)  # (.*)", use)
