"""The README's Python examples run as they stand."""

import re
from pathlib import Path

import pytest

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.S)


SLOW = (1, 5, 6)


@pytest.mark.parametrize(
    "number", [pytest.param(i, marks=pytest.mark.slow) if i in SLOW else i for i in range(len(BLOCKS))]
)
def test_readme_example(number, capsys):
    exec(compile(BLOCKS[number], f"README.md, example {number + 1}", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_readme_has_examples():
    assert len(BLOCKS) >= 2
