"""What is written runs as it stands: examples of the README, of CONTRIBUTING and of docs, page by page.

Of docs: Python, commands, and the screens shown below a command.
"""

import ast
import inspect
import re
import shlex
import sys
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator
from typer.testing import CliRunner

import sparsehtp as sht
from sparsehtp._programs import CPU_OPTIONS
from sparsehtp.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "```" in page.read_text()]
README, CONTRIBUTING = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
SECTIONS = {title: body for title, body in re.findall(r"^## (Adding .*?)\n(.*?)(?=^## |\Z)", CONTRIBUTING, re.M | re.S)}


def test_the_example_of_the_readme_runs(capsys):
    pytest.importorskip("matplotlib")
    (block,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)  # (.*)", block)  # as its comments say


def test_the_readme_is_read_in_three_minutes():
    assert len(README.split()) <= 500


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


def test_every_link_leads_to_a_file_of_the_tree():
    """So that pages can be read where they lie; the site makes links within itself of them."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    links = {(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))}
    local = {(page, link) for page, link in links if not link.startswith("http")}
    assert len(local) > 30 and len(PAGES) > 10
    assert [f"{page.name}: {link}" for page, link in local if not (page.parent / link).exists()] == []


def test_every_public_name_has_a_page_in_the_reference():
    hooks = ast.parse((ROOT / "docs" / "hooks.py").read_text(encoding="utf-8"))
    assigned = {node.targets[0].id: node.value for node in hooks.body if isinstance(node, ast.Assign)}
    rooms = {room for rooms, _ in ast.literal_eval(assigned["REFERENCE"]).values() for room in rooms}
    values = [getattr(sht, name) for name in sht.__all__]
    places = [value.__module__ for value in values if hasattr(value, "__qualname__")]
    assert [place for place in places if place.split(".")[1] not in rooms] == []


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


def test_the_guide_tells_the_options_that_programs_are_compiled_with():
    page = ROOT / "docs" / "guide" / "jax.md"
    assert f"compiler_options={CPU_OPTIONS}".replace("'", '"') in page.read_text()


def test_every_feature_names_a_test_that_exists():
    page = (ROOT / "docs" / "features.md").read_text()
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(named) > 30
    for file, test in named:
        assert f"def {test}(" in (Path(__file__).parent / file).read_text(), (file, test)
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    for row in rows:
        ours = row.split("|")[-2].strip()
        assert not ours or re.fullmatch(r"✓ `[\w/]+\.py::\w+`", ours), row


def test_signatures_tell_types_by_name():
    asked = [value for name in sht.__all__ if callable(value := getattr(sht, name))]
    asked = [value for value in asked if inspect.isfunction(value) or issubclass(value, BaseEstimator)]
    assert len(asked) > 20 and [value for value in asked if "_typing" in str(inspect.signature(value))] == []


def test_an_argument_has_one_default():
    """Where functions, or estimators, share it; those that are named mean something else in each."""
    own = {"bounds", "covariance", "k", "l2", "loss", "max_iter", "max_steps", "refit", "tol", "weights"}
    shared = [value for name in sht.__all__ if callable(value := getattr(sht, name))]
    estimators = [value for value in shared if inspect.isclass(value) and issubclass(value, BaseEstimator)]
    defaults = {}
    for value in (*estimators, *filter(inspect.isfunction, shared)):
        for name, argument in inspect.signature(value).parameters.items():
            if argument.default is not argument.empty and name not in own:
                defaults.setdefault((value in estimators, name), set()).add(repr(argument.default))
    assert {name: found for name, found in defaults.items() if len(found) > 1} == {}
    assert defaults[True, "cv"] == defaults[False, "folds"]
