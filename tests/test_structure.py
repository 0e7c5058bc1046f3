"""The order of layers: every room has its place, no import goes up, and CONTRIBUTING says the same."""

from collections import Counter

import structure

MOST_UNTYPED = 2  # parameters; the number may only fall


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


def test_parts_are_asked_for_what_their_base_declares():
    assert list(structure.guesses()) == []


def test_a_guess_is_seen(tmp_path):
    (tmp_path / "room.py").write_text(
        "def f(objective):\n    return getattr(objective.loss, 'a', 1), hasattr(3, 'b')\n"
    )
    assert list(structure.guesses(tmp_path)) == ["room.py: getattr(objective.loss, 'a', 1)"]


# Where a part is asked for its class, and why: to narrow it to what is computed with, or to check what a user passes.
ASKED = {
    "_solve.py: isinstance(objective, AbstractRefittable)": "only these have a search of supports",
    "_solve.py: isinstance(threshold, AbstractUnitThreshold)": "other supports may be as long as x",
    "_solve.py: threshold.kind == 'rank'": "HTP takes it too, and is not its default",
    "certificates/certificate.py: isinstance(fit.objective, LinearModel)": "columns say more than their Hessian",
    "certificates/certificate.py: isinstance(objective, AbstractModel)": "means of columns add to the intercept",
    "certificates/certificate.py: isinstance(objective, AbstractRefittable)": "only the value of another is known",
    "certificates/certificate.py: isinstance(threshold, AbstractUnitThreshold | L0L1L2)": "what a user passes",
    "certificates/certificate.py: isinstance(threshold, L0L1L2)": "its exchanges hold the other coefficients",
    "certificates/certificate.py: threshold.kind == 'pairs'": "what a user passes",
    "certificates/exchanges.py: isinstance(objective, LinearModel)": "its gains can be computed from the data",
    "certificates/generalised.py: isinstance(loss, AbstractConjugateLoss)": "what a user passes",
    "certificates/prove.py: isinstance(objective, LinearModel)": "what a user passes",
    "certificates/prove.py: isinstance(threshold, Sparsity)": "what a user passes",
    "certificates/swap_scan.py: isinstance(objective, LinearModel)": "its loss can be exchanged for the squared one",
    "cli/predict.py: isinstance(model, Pipeline)": "a table for a pipeline, whose first step knows its columns",
    "grids/choose.py: isinstance(objective, Sequence)": "one objective or several",
    "grids/grid.py: threshold.kind != 'entries'": "what a message calls units",
    "grids/penalised_path.py: isinstance(threshold, L0L1L2)": "the price that a path is over is its l0",
    "grids/stability.py: isinstance(threshold, numbers.Real)": "a share, and no part",
    "tuning/tune.py: isinstance(threshold, AbstractUnitThreshold)": "these have a limit of k, which is traced",
}

# How often each other room does; the numbers may only fall.
MOST_ASKED = {
    "derivatives": 3,
    "duality": 7,
    "estimators": 17,
    "objectives": 4,
    "screening": 2,
    "solvers": 9,
    "steps": 1,
}


def test_a_part_is_asked_for_its_class_where_a_list_says_so():
    room = {each: each.split(":")[0].split("/")[0] for each in structure.ladders()}
    assert {each for each in room if room[each] not in MOST_ASKED} == set(ASKED)


def test_no_room_asks_a_part_for_its_class_more_often():
    asked = Counter(each.split(":")[0].split("/")[0] for each in structure.ladders())
    assert {room: number for room, number in asked.items() if room in MOST_ASKED and number > MOST_ASKED[room]} == {}


def test_a_question_for_a_class_is_seen(tmp_path):
    (tmp_path / "solvers").mkdir()
    asked = ["isinstance(self.threshold, A)", "threshold.kind == 'rank'"]
    not_asked = ["type(solver).b", "type(loss).__name__", "x.kind == 'f'"]
    (tmp_path / "solvers" / "one.py").write_text("\n".join(asked + not_asked))
    assert list(structure.ladders(tmp_path)) == [f"solvers/one.py: {each}" for each in asked]


def test_no_more_doors_are_untyped():
    assert structure.untyped()[0] <= MOST_UNTYPED


def test_no_private_name_is_imported():
    assert structure.private_imports() == []


def test_a_name_is_defined_once():
    """Public classes and functions."""
    assert structure.twice() == []


def test_docstrings_stand_by_themselves():
    """None leans on the line above it, and the first word is no shout."""
    assert list(structure.leaning()) == []
