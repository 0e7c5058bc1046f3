"""The lists of the tests that `make test` leaves to `make test-ci`, and both to `make test-all`."""

import subprocess
from pathlib import Path

import pytest
import reach

TESTS = Path(__file__).parent


def listed(mark):
    return (TESTS / f"{mark}.txt").read_text(encoding="utf-8").splitlines()


def test_no_test_is_in_both_lists():
    assert not set(listed("later")) & set(listed("slow"))


@pytest.mark.parametrize("names", [listed("later"), listed("slow"), list(reach.load())], ids=["later", "slow", "reach"])
def test_every_name_is_that_of_a_test(names, collected):
    """With its parameters, where its file is part of this run."""
    files = {name.split("::")[0] for name in collected}
    tests = collected | {name.split("[")[0] for name in collected}
    for name in names:
        path, function = name.split("[")[0].split("::")
        assert f"def {function}(" in (TESTS.parent / path).read_text(encoding="utf-8"), name
        assert name in tests or path not in files, name


SOURCE = """LEAST = 1

def first(x):
    def inner(y):
        return y
    return inner(x)

class Second:
    def third(self):
        return LEAST
"""


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("return y", "return -y", ["first.inner"]),
        ("    return inner(x)\n", "", ["first.inner"]),  # the line that is left before it
        ("return LEAST", "return 2", ["Second.third"]),
        ("class Second", "class Other", ["Other"]),
        ("LEAST = 1", "LEAST = 2", [""]),
        ("x", "z", ["first"]),
        ("", "", []),
    ],
)
def test_what_was_changed_is_named(tmp_path, old, new, names):
    path = tmp_path / "sparsehtp" / "part.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    page, gone = path.with_name("page.html"), path.with_name("zone.py")
    page.write_text("<p>")
    gone.write_text(SOURCE)
    assert reach.changed(tmp_path) == []  # no repository, or one that does not know the file
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "before"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    path.write_text(SOURCE.replace(old, new) if old else SOURCE)
    page.write_text("<p>1 <")
    gone.unlink()
    assert reach.changed(tmp_path) == [f"sparsehtp/part.py:{name}" for name in names]


def test_tests_of_a_change_are_those_that_run_it_the_closest_ones_first(tmp_path, monkeypatch):
    monkeypatch.setattr(reach, "KEPT", tmp_path / "reach.json.gz")
    monkeypatch.setattr(reach, "SECONDS", 10)
    assert reach.due(["part.py:first"]) == []  # nothing measured

    def keep(*rows):
        named = [(test, seconds, [f"part.py:{name}" for name in names]) for test, seconds, names in rows]
        reach.keep([dict(zip(("test", "seconds", "functions"), row, strict=True)) for row in named])

    keep(("a::wide", 9, ["first", "other"]), ("a::close", 1, ["other"]), ("b::dear", 11, ["first"]))
    keep(("a::wide", 4, ["first", "other"]), ("a::close", 1, ["first"]), ("b::beside", 2, []))
    keep(("c::many[1]", 1, ["other", "Second.third"]), ("c::many[0]", 2, ["Second.third"]))
    assert reach.due([]) == reach.due(["unknown.py:first"]) == []
    assert reach.due(["part.py:first"]) == ["a::close", "a::wide", "b::beside"]
    assert reach.due(["part.py:Second"]) == ["c::many[1]", "c::many[0]"]
    assert reach.due(["part.py:first", "part.py:Second.third"])[:2] == ["a::close", "c::many[1]"]
    assert set(reach.due(["part.py:new"])) == {"a::close", "a::wide", "b::beside", "c::many[0]", "c::many[1]"}
    assert reach.due(["part.py:"]) == reach.due(["part.py:new"])  # a constant may be everybody's
    monkeypatch.setattr(reach, "SECONDS", 2.5)
    assert reach.due(["part.py:first"]) == ["a::close"]
