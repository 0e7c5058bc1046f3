"""The order of layers: every room has its place, no import goes up, and CONTRIBUTING says the same."""

import re

import pytest
import structure


def test_every_room_has_one_place():
    named = [room for layer in structure.LAYERS for room in layer]
    assert sorted(named) == structure.rooms()


RULES = (structure.upward, structure.guesses, structure.private_imports, structure.twice, structure.leaning)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_nothing_breaks_a_rule(rule):
    assert list(rule()) == []


def test_no_door_is_untyped():
    assert structure.untyped()[0] == 0


def test_an_import_upwards_is_seen(tmp_path):
    package = tmp_path / "sparsehtp"
    (package / "linalg").mkdir(parents=True)
    (package / "linalg" / "__init__.py").write_text("def f():\n    from ..solvers.htp import refit\n")
    (package / "_types.py").write_text("from . import _programs, linalg\n")
    assert [line.split(",")[0] for line in structure.upward(package)] == [
        "sparsehtp._types imports linalg",
        "sparsehtp.linalg.__init__ imports solvers",
    ]


def test_contributing_states_the_order():
    text = (structure.PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert structure.in_words() in " ".join(text.replace("`", "").split())


def test_the_walk_names_modules_that_exist():
    root = structure.PACKAGE.parent
    text = (root / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)`", text)
    assert "_solve.py" in named
    assert [name for name in named if not any((folder / name).exists() for folder in (root, structure.PACKAGE))] == []


def test_a_guess_is_seen(tmp_path):
    (tmp_path / "room.py").write_text(
        "def f(objective):\n    return getattr(objective.loss, 'a', 1), hasattr(3, 'b')\n"
    )
    assert list(structure.guesses(tmp_path)) == ["room.py: getattr(objective.loss, 'a', 1)"]


# The files in which a part is asked for its class, by the reason why: to narrow it to what is computed with, or to
# check what a user passes. Declared attributes (`plain`, `penalises`, `descends`, ...) answer all else.
ASKED = {
    "what a user passes": "certificates/certificate certificates/generalised certificates/prove derivatives/implicit "
    "duality/dual objectives/linear_model objectives/multi_response solvers/base solvers/stochastic steps/sample "
    "estimators/classifier estimators/parameters",
    "one objective or several, a share and no part, a pipeline and no objective": "grids/choose grids/stability "
    "cli/predict",
    "a loss of one response or of all, a user's own with a mean or not": "estimators/base estimators/classifier",
    "the two that have a dual, one with a k and one with prices": "certificates/certificate duality/dual "
    "grids/penalised_path screening/bounds solvers/primal_dual",
    "only these choose units, by scores and up to a k": "_solve derivatives/margin objectives/custom_ends tuning/tune",
    "only these can be restricted to a support": "_solve certificates/certificate",
    "only these have a curvature of every coefficient": "solvers/unit_search",
    "columns say more than a Hessian": "certificates/certificate certificates/exchanges certificates/swap_scan "
    "grids/tall",
    "groups are units of several features": "estimators/padding estimators/parameters estimators/selection grids/grid",
    "what a solver takes, or is the default for": "_solve estimators/parameters solvers/forward solvers/pursuit",
}


def test_a_part_is_asked_for_its_class_where_a_list_says_so():
    asked = {*structure.ladders()}
    assert {each.split(".py: ")[0] for each in asked} == {file for files in ASKED.values() for file in files.split()}
    assert len(asked) <= 54


def test_a_question_for_a_class_is_seen(tmp_path):
    (tmp_path / "solvers").mkdir()
    asked = ["isinstance(self.threshold, A)", "threshold.kind == 'rank'"]
    not_asked = ["type(solver).b", "type(loss).__name__", "x.kind == 'f'"]
    (tmp_path / "solvers" / "one.py").write_text("\n".join(asked + not_asked))
    assert list(structure.ladders(tmp_path)) == [f"solvers/one.py: {each}" for each in asked]
