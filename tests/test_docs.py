"""The examples in docs run as they stand, page by page."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


def test_there_are_pages():
    assert PAGES


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_examples_run(path, capsys):
    names = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.S)):
        exec(compile(block, f"{path.name}, example {number + 1}", "exec"), names)
    assert capsys.readouterr().out.strip()
