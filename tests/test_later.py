"""The list of the tests that `make test` leaves to `make test-ci`."""

from pathlib import Path

TESTS = Path(__file__).parent


def test_every_name_is_that_of_a_test():
    for name in (TESTS / "later.txt").read_text(encoding="utf-8").splitlines():
        path, function = name.split("[")[0].split("::")
        assert f"def {function}(" in (TESTS.parent / path).read_text(encoding="utf-8"), name
