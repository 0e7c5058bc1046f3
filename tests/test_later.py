"""The lists of the tests that `make test` leaves to `make test-ci`, and both to `make test-all`."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def listed(mark):
    return (TESTS / f"{mark}.txt").read_text(encoding="utf-8").splitlines()


def test_no_test_is_in_both_lists():
    assert not set(listed("later")) & set(listed("slow"))


@pytest.mark.parametrize("mark", ["later", "slow"])
def test_every_name_is_that_of_a_test(mark, collected):
    """With its parameters, where its file is part of this run."""
    files = {name.split("::")[0] for name in collected}
    tests = collected | {name.split("[")[0] for name in collected}
    for name in listed(mark):
        path, function = name.split("[")[0].split("::")
        assert f"def {function}(" in (TESTS.parent / path).read_text(encoding="utf-8"), name
        assert name in tests or path not in files, name
