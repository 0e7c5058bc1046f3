"""The order of layers: every room has its place, no import goes up, and CONTRIBUTING says the same."""

import structure


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
