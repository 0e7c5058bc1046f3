"""Every public class is in `cases.py`, so that the contracts below reach it."""

import inspect

import cases
import jax
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.designs import AbstractDesign
from sparsehtp.iteration.termination import AbstractTermination
from sparsehtp.losses import AbstractLoss, AbstractVectorLoss
from sparsehtp.objectives import AbstractObjective
from sparsehtp.solvers import AbstractSolver
from sparsehtp.steps import AbstractStep
from sparsehtp.thresholds import AbstractThreshold

X, Y = np.ones((3, 2)), np.arange(3.0)
KINDS = {
    AbstractLoss: cases.LOSSES.values(),
    AbstractVectorLoss: cases.VECTOR_LOSSES.values(),
    AbstractThreshold: cases.THRESHOLDS.values(),
    AbstractStep: cases.STEPS.values(),
    AbstractTermination: [
        *cases.TERMINATIONS.values(),
        *cases.SWAP_TERMINATIONS.values(),
        *cases.GREEDY_TERMINATIONS.values(),
    ],
    AbstractSolver: cases.ALL_SOLVERS.values(),
}
BUILDERS = {
    AbstractDesign: lambda: [make(X) for make in cases.DESIGNS.values()],
    AbstractObjective: lambda: [make(X, Y) for make in cases.OBJECTIVES.values()],
}


def public(base):
    places = [sht, *(getattr(sht, name) for name in sht.__all__ if inspect.ismodule(getattr(sht, name)))]
    exported = [value for place in places for name in dir(place) if isinstance(value := getattr(place, name), type)]
    exported = [value for value in exported if not value.__name__.startswith("Abstract")]
    return {value for value in exported if issubclass(value, base) and not getattr(value, "__abstractmethods__", ())}


@pytest.mark.parametrize("base", [*KINDS, *BUILDERS], ids=lambda base: base.__name__)
def test_every_public_class_is_in_cases(base):
    instances = KINDS[base] if base in KINDS else BUILDERS[base]()
    classes = public(base)
    assert classes, f"no public {base.__name__} was found: is it exported?"
    missing = classes - {type(instance) for instance in instances}
    assert not missing, f"add to tests/cases.py: {sorted(each.__name__ for each in missing)}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda base: base.__name__)
def test_leaves_are_arrays_or_numbers(kind):
    for instance in KINDS[kind]:
        for leaf in jax.tree.leaves(instance):
            assert isinstance(leaf, jax.Array | np.ndarray | float | int), (instance, leaf)
