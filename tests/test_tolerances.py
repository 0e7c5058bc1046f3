"""The numbers in docstrings are those of the table."""

import re
from pathlib import Path

import pytest

import sparsehtp as sht
from sparsehtp import _tolerances
from sparsehtp.linalg import masked_factor, restricted_newton, truncated_newton
from sparsehtp.screening import lower_bound

STATED = [
    (sht.stopping.SmallStep, "step"),
    (sht.stopping.SmallGradient, "gradient"),
    (sht.stopping.DualGap, "gap"),
    (sht.stopping.Cycle, "cycle"),
    (lower_bound, "gap"),
    (sht.solvers.BestSubset, "swap"),
    (sht.results.Certificate, "swap"),
    (sht.results.Certificate, "stationary"),
    (restricted_newton.newton, "newton"),
    (restricted_newton.newton, "level"),
    (truncated_newton, "newton"),
    (masked_factor, "pivot"),
]


@pytest.mark.parametrize(("part", "name"), STATED, ids=lambda each: getattr(each, "__name__", each))
def test_docstrings_give_the_numbers_of_the_table(part, name):
    single, double = (f"{number:.0e}".replace("e-0", "e-") for number in _tolerances._TABLE[name])
    said = " ".join(part.__doc__.split())
    assert re.search(rf"{single}[^.;]*?\b{double}", said), (single, double)


def test_every_tolerance_is_used():
    text = "".join(path.read_text(encoding="utf-8") for path in Path(sht.__path__[0]).rglob("*.py"))
    for name in _tolerances._TABLE:
        assert re.search(rf'(tolerance|_tol)\(\s*"{name}"', text), name
