"""What is told in several places: versions, and what is needed."""

import re
import tomllib
from pathlib import Path

import installed

import sparsehtp as sht

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def found(pattern, file):
    return re.findall(pattern, (ROOT / file).read_text(encoding="utf-8"), re.M)


def test_one_version():
    assert found(r"^version: (.+)$", "CITATION.cff") == [sht.__version__]
    assert found(r"^  version: (.+)$", "conda/recipe.yaml")[0] == sht.__version__
    assert found(r"^## \[([\d.]+)\]", "CHANGELOG.md")[0] == sht.__version__


def test_the_recipe_needs_what_the_package_needs():
    extras = PROJECT["optional-dependencies"]
    needed = [*PROJECT["dependencies"], *(each for extra in installed.EXTRAS for each in extras[extra])]
    wanted = {each.replace("matplotlib", "matplotlib-base") for each in needed}
    (run,) = found(r"^  run:\n((?:    .+\n)+)", "conda/recipe.yaml")
    given = {each.replace(" ", "") for each in re.findall(r"- ([a-z].*)", run)}
    assert given - wanted == {"python>=${{python_min}}"} and wanted <= given


def test_every_version_of_python_is_tested():
    told = [each.rsplit(" ", 1)[1] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    (tested,) = found(r"python: \[(.*)\]", ".github/workflows/tests.yml")
    assert re.findall(r"[\d.]+", tested) == told and PROJECT["requires-python"] == f">={told[0]}"
    assert found(r'python_min: "(.*)"', "conda/recipe.yaml") == [told[0]]


def test_the_least_versions_are_those_of_the_project():
    limits = installed.least()
    assert "jax==0.9" in limits and "typer==0.19" in limits
