"""Every public class is in `cases.py`, so that the contracts below reach it."""

import contextlib
import fractions
import functools
import inspect
import re

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
    AbstractTermination: (cases.TERMINATIONS | cases.SWAP_TERMINATIONS | cases.GREEDY_TERMINATIONS).values(),
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
    """Counts and flags of solvers and losses are static: they decide what is compiled."""
    numbers = float | int if kind is AbstractThreshold else float
    for instance in KINDS[kind]:
        for leaf in jax.tree.leaves(instance):
            assert isinstance(leaf, jax.Array | np.ndarray | numbers) and not isinstance(leaf, bool), (instance, leaf)


# What a call says by default, whose change would change everybody's answers; the documentation explains the numbers.
DEFAULTS = """BestSubset(effort='default') CDSS(swaps=True) DIHT(step='capped',scale=8.0,polish=False) FoBa(epsilon=0.0,
backward_ratio=0.5) ForwardSelection(rule='ols') GraSP(debias=True) HybridHT(momentum=0.0,growth=1.05,first=1.0,
iterations=10) IHT(momentum=0.0,nesterov=False) PricedSubset(effort='default') PrimalDual(dual_ascent=False,rule='phi',
incremental=True,include=4.0,inner='convex') SDIHT(step='capped',scale=1.0,sampling='shuffled') SVRGHT(
random_iterate=False,replacement=True) StochasticHT(replacement=True) BacktrackingStep(initial=1.0,shrink=0.5,grow=2.0)
ConstantStep(scale=1.0) NormalisedStep(shrink=0.5) SampleStep(scale=1.0) HTP() SAGAHT() ScheduleStep() SubspacePursuit()
Gamma() Hinge() Huber(delta=1.0) Logistic(margin_scale=1.0) NegativeBinomial(dispersion=1.0) Poisson() SquaredHinge()
Quantile(level=0.5,gamma=0.1) SmoothedHinge(gamma=0.25) Squared() Tweedie(power=1.5) Custom() CustomSum() QuadraticForm(
constant=0.0) LinearModel(l2=0.0,fit_intercept=False,standardize=False) MultiResponse(l2=0.0,fit_intercept=False,
standardize=False) CoxModel(l2=0.0,standardize=False,ties='efron') OrdinalModel(l2=0.0,standardize=False) Precision(
bounds='valid',standardize=False,debias='newton',shrinkage=0.0) Precision.from_data(assume_centered=False)
QuadraticForm.from_data(l2=0.0) Stability.selected(threshold=0.75) Stability.error_bound(threshold=0.75) solve_path()
cross_validate(folds=5,refit=1.0) choose(rule='strong-ridge',folds=5,throw=True) information_criterion(name='ebic')
stability_selection(n_resamples=100,sample_fraction=0.5)
"""
SAYING = set().union(*map(public, (AbstractSolver, AbstractStep, AbstractLoss, AbstractObjective)))
SAYING |= {sht.Precision.from_data, sht.QuadraticForm.from_data, sht.solve_path, sht.cross_validate, sht.choose}
SAYING |= {sht.results.Stability.selected, sht.results.Stability.error_bound}
SAYING |= {sht.stability_selection, sht.information_criterion}

# how many steps they take at most, and what ends them before
ENDS = {
    "IHT": "2000 SmallStep & SmallGradient | Cycle",
    "HTP GraSP SubspacePursuit": "100 StableSupport | Cycle",
    "StochasticHT SVRGHT SAGAHT HybridHT": "200 SmallStep & SmallGradient",
    "FoBa ForwardSelection": "1000 Complete",
    "DIHT": "2000 DualGap | SmallStep",
    "SDIHT": "500 DualGap | SmallStep",
    "PrimalDual": "200 DualGap | Complete",
    "CDSS PricedSubset": "500 SwapOptimal",
    "BestSubset": "100 SwapOptimal",
}


def end_of(termination):
    if not hasattr(termination, "together"):
        return type(termination).__name__
    return f"{end_of(termination.first)} {'|&'[termination.together]} {end_of(termination.second)}"


@pytest.mark.parametrize("name", sorted(kind.__qualname__ for kind in SAYING))
def test_defaults_are_what_they_were(name):
    kind = next(kind for kind in SAYING if kind.__qualname__ == name)
    given = {name: part.default for name, part in inspect.signature(kind).parameters.items()}
    given = [f"{name}={value!r}" for name, value in given.items() if value not in (None, inspect.Parameter.empty)]
    assert f" {name}({','.join(given)}) " in " " + DEFAULTS.replace(",\n", ",").replace("(\n", "(").replace("\n", " ")
    if isinstance(kind, type) and issubclass(kind, AbstractSolver):
        (told,) = [told for kinds, told in ENDS.items() if name in kinds.split()]
        assert f"{kind().default_max_steps} {end_of(kind().default_termination)}" == told
    if told := re.search(r"None: `SampleStep\(([\d./]+)\)`", kind.__doc__):
        assert kind().step_rule.scale == float(fractions.Fraction(told[1]))


# kinds of solvers -> what they take: quadratic forms, hinges, unbounded curvature, groups, prices, plain k, ranks
TAKES = {
    "IHT": "form hinge steep groups prices plain rank",
    "HTP": "form steep groups plain rank",
    "GraSP SubspacePursuit BestSubset": "form steep groups plain",
    "ForwardSelection FoBa": "form steep plain",
    "StochasticHT SVRGHT SAGAHT HybridHT": "groups plain rank",
    "DIHT SDIHT": "hinge steep plain",
    "PrimalDual CDSS PricedSubset": "prices",
}


@pytest.mark.parametrize("name", cases.ALL_SOLVERS)
def test_what_solvers_take(name):
    """What they do not is refused in one sentence, before anything is computed."""
    solver = cases.ALL_SOLVERS[name]
    (takes,) = [takes for kinds, takes in TAKES.items() if type(solver).__name__ in kinds.split()]
    rows, y = np.eye(8, 2) + 1, np.resize([1.0, -1], 8)
    linear, price, plain = functools.partial(sht.LinearModel, rows, l2=0.1), sht.L0L1L2(0.1), sht.Sparsity(1)
    own = price if takes == "prices" else plain
    for what, objective, threshold in (
        ("form", sht.QuadraticForm(np.eye(2), np.ones(2)), own),
        ("hinge", linear(y, sht.losses.Hinge()), own),
        ("steep", linear(y**2, sht.losses.Poisson()), own),
        ("groups", linear(y), sht.GroupSparsity([0, 1], 1)),
        ("prices", linear(y), price),
        ("plain", linear(y), plain),
        ("rank", sht.MultiResponse(rows, rows), sht.Rank(1)),
    ):
        refused = pytest.raises(TypeError, match=r"^\w+: .*\.$")
        with contextlib.nullcontext() if what in takes.split() else refused:
            solver.check(objective, threshold)
