"""The order of layers: every room has its place, no import goes up, and CONTRIBUTING says the same."""

import structure

TWICE = set(
    "Bounds Fit Gains Goal Model Phase Point Pool Problem Rows Swaps Tableau begin check clear default_ks fit load "
    "load_table make_estimator make_folds make_solver make_threshold memory path pivot predict prepare refit run "
    "settle show start support_of tableau_at".split()
)

MOST_UNTYPED = 116  # parameters; the number may only fall


def test_every_room_has_one_place():
    named = [room for layer in structure.LAYERS for room in layer]
    assert sorted(named) == structure.rooms()


def test_no_import_goes_up():
    assert structure.upward() == []


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


# Where a part is asked for what its base does not declare, and why.
GUESSED = {
    "estimators/padding.py: getattr(threshold, name)": "bounds by their names",
    "estimators/parameters.py: getattr(loss, 'twice_differentiable', True)": "a loss may be a name here",
}


def test_parts_are_asked_for_what_their_base_declares():
    assert set(structure.guesses()) == set(GUESSED)


def test_a_guess_is_seen(tmp_path):
    (tmp_path / "room.py").write_text(
        "def f(objective):\n    return getattr(objective.loss, 'a', 1), hasattr(3, 'b')\n"
    )
    assert list(structure.guesses(tmp_path)) == ["room.py: getattr(objective.loss, 'a', 1)"]


def test_no_more_doors_are_untyped():
    assert structure.untyped()[0] <= MOST_UNTYPED


def test_no_private_name_is_imported():
    assert structure.private_imports() == []


def test_a_name_is_defined_once():
    """Public classes and functions; those that are not yet, by name: the list may only get shorter."""
    assert set(structure.twice()) <= TWICE


def test_docstrings_stand_by_themselves():
    """None leans on the line above it, and the first word is no shout."""
    assert list(structure.leaning()) == []
