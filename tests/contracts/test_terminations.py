"""Terminations on a scripted solver: its iterates are given."""

import functools
from typing import NamedTuple

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.objectives import AbstractObjective
from sparsehtp.results import FIRED, RESULTS
from sparsehtp.solvers import AbstractSolver

pytestmark = pytest.mark.usefixtures("x64")
STEPS = 64


class ScriptState(NamedTuple):
    x: jax.Array
    support: sht.results.Support
    step_size: jax.Array
    grad: jax.Array


def number(a):
    """Infinity above 1e6 and NaN below -1e6, which no solver's fields may hold."""
    return jnp.select([a > 1e6, a < -1e6], [jnp.inf, jnp.nan], a)


class Script(AbstractSolver):
    """Step t goes to points[t], with the given value, gap, gradient norm, change of support and status."""

    points: jax.Array
    values: jax.Array
    gaps: jax.Array
    grads: jax.Array
    changes: jax.Array
    faults: jax.Array
    requires = AbstractObjective
    default_termination = sht.stopping.SmallStep()
    default_max_steps = STEPS

    def init(self, objective, threshold, x0, key):
        _, support = threshold(x0)
        return ScriptState(x0, support, jnp.ones(()), jnp.array([3.0, 4.0]))  # norm 5

    def step(self, objective, threshold, state, t):
        x, zero, one = number(self.points[t]), jnp.int32(0), jnp.ones(())
        info = sht.results.Info(
            value=number(self.values[t]),
            grad_norm=number(self.grads[t]),
            step_norm=jnp.linalg.norm(x - state.x),
            step_size=one,
            support_size=zero,
            support_changed=self.changes[t],
            ifo=zero,
            hard_thresholds=zero,
            design_products=zero,
            gap=self.gaps[t],
            status=self.faults[t],
        )
        return state._replace(x=x), info


MOVING = np.arange(1.0, STEPS + 1)[:, None] * [1.0, 0.0]  # never returns, never slows down


def script(termination, points=MOVING, values=10.0, gaps=1e300, grads=5.0, changes=1, faults=(), kind=Script, **rest):
    each = (np.broadcast_to(a, STEPS).astype(float) for a in (values, gaps, grads))
    changes = np.broadcast_to(changes, STEPS).astype(np.int32)
    fault = np.where(np.isin(np.arange(STEPS), [*faults]), RESULTS.singular, 0).astype(np.int32)
    solver = kind(*map(jnp.asarray, (points, *each, changes, fault)))
    objective = rest.pop("objective", sht.QuadraticForm)(np.eye(2), np.zeros(2))
    return sht.solve(objective, sht.Sparsity(1), solver, termination=termination, max_steps=STEPS, throw=False, **rest)


def ending(solution):
    return RESULTS(int(solution.result)), FIRED(int(solution.fired)), int(solution.num_steps)


def at(step, small, large):
    return np.where(np.arange(STEPS) >= step, small, large)


def slowing(step):
    """Points that stop (relative step 5e-4) at a step."""
    points = MOVING.copy()
    points[step:] = points[step - 1] * (1 + 5e-4)
    return points


SOONER = dict(gaps=at(7, 0.01, 0.011), grads=at(9, 0.005, 0.0051), changes=at(5, 0, 1), points=slowing(11))


class Stalling(sht.QuadraticForm):
    """Says itself how a run ended."""

    def judged(self, threshold, x, support, result):
        return jnp.full_like(result, RESULTS.stalled)


GAP, GRAD, STEP = sht.stopping.DualGap(1e-3), sht.stopping.SmallGradient(1e-3), sht.stopping.SmallStep(1e-3)
STABLE, NEVER, BOTH = sht.stopping.StableSupport(), sht.stopping.Never(), FIRED.DualGap | FIRED.SmallGradient
# name -> (termination, what fired and when, what else is given); a limit that is reached is met
ENDS = {
    "gap of a negative value": (GAP, FIRED.DualGap, 8, {"values": -10.0}),
    "grad": (GRAD, FIRED.SmallGradient, 10, {}),
    "support": (STABLE, FIRED.StableSupport, 6, {}),
    "support in two steps": (STABLE, FIRED.StableSupport, 2, {"changes": 0}),
    "step": (STEP, FIRED.SmallStep, 12, {}),
    "step at zero": (STEP, FIRED.SmallStep, 13, {"points": np.where(np.arange(STEPS)[:, None] < 11, MOVING, 0)}),
    "grad|gap": (GRAD | GAP, FIRED.DualGap, 8, {}),
    "step&support": (STEP & STABLE, FIRED.SmallStep | FIRED.StableSupport, 12, {}),
    "(gap&grad)|step": ((GAP & GRAD) | STEP, BOTH, 10, {}),
    "the objective's word": (STABLE, FIRED.none, 6, {"objective": Stalling}),
}


@pytest.mark.parametrize(("termination", "fired", "steps", "given"), ENDS.values(), ids=ENDS)
def test_fires_at_its_step_and_names_itself(termination, fired, steps, given):
    ended = RESULTS.converged if fired else RESULTS.stalled
    assert ending(script(termination, **SOONER | given)) == (ended, fired, steps)


def test_every_termination_runs_to_the_limit_otherwise():
    for termination in cases.TERMINATIONS.values():
        assert ending(script(termination)) == (RESULTS.max_steps, FIRED.none, STEPS)


class Best(Script):
    """Returns the step whose gap is nearest to seven."""

    returns_best = True

    def score(self, info):
        return jnp.abs(info.gap - 7)


@pytest.mark.parametrize("kind", [Script, Best])
def test_a_fault_of_the_returned_point_is_the_result(kind):
    """Whatever ended the run, unless that was a number that is none; faults of other points are not shown."""
    turns = np.arange(STEPS)[:, None]
    for points, result in (
        (slowing(11), RESULTS.converged),
        (np.where(turns % 2, 1.0, [1.0, 2.0]), RESULTS.cycle),
        (MOVING, RESULTS.max_steps),
        (np.where(turns < 12, MOVING, -2e6), RESULTS.nonfinite),
    ):
        end, gaps = sht.stopping.SmallStep(1e-3) | sht.stopping.Cycle(), np.arange(1.0, STEPS + 1)
        run = functools.partial(script, end, points, gaps=gaps, kind=kind)
        plain = run()
        at = int(plain.best_step)
        assert ending(run(faults=set(range(STEPS)) - {at})) == ending(plain) and plain.result == result
        assert run(faults=[at]).result == (result if result == RESULTS.nonfinite else RESULTS.singular)
        assert result == RESULTS.cycle or (at == 6) == (kind is Best)


def test_of_points_as_good_the_first_is_returned_and_a_history_keeps_the_last_step_of_every_block():
    for first in (0, 9):
        assert script(NEVER, kind=Best, gaps=at(first, 6.0, 5.0)).best_step == first
    told = script(NEVER, gaps=np.arange(1.0, STEPS + 1), record=sht.results.Record(3)).history
    np.testing.assert_array_equal(told.gap, [*range(3, STEPS, 3), STEPS])


def test_a_step_to_what_is_no_number_is_not_taken_and_nothing_fires():
    run = functools.partial(script, STABLE, changes=at(6, 0, 1))
    fine, lost = (RESULTS.converged, FIRED.StableSupport, 7), (RESULTS.nonfinite, FIRED.none, 7)
    assert ending(run()) == fine
    for bad in (2e6, -2e6):
        spoiled = run(values=at(6, bad, 1.0))
        assert ending(spoiled) == lost and spoiled.value == 1 and spoiled.x[0] == 6
    # A norm is infinite where squares of numbers are.
    assert [ending(run(grads=at(6, bad, 5.0))) for bad in (2e6, -2e6)] == [fine, lost]


def test_the_sentence_names_what_fired():
    solution = script(GAP & GRAD, **SOONER)
    assert "SmallGradient and DualGap" in solution.describe() and "converged after 10 steps" in solution.describe()
    # of a support that was not looked at, and that a step by the curvature would leave
    for margin, fired, result, said in (
        (-0.1, BOTH, RESULTS.converged, True),
        (-0.1, BOTH | FIRED.StableSupport, RESULTS.converged, False),
        (-0.1, FIRED.none, RESULTS.max_steps, False),
        (0.0, BOTH, RESULTS.converged, False),
        (None, BOTH, RESULTS.converged, False),
    ):
        told = solution._replace(support_margin=margin, fired=fired, result=result).describe()
        assert ("too short to leave this support" in told) == said and ("(" in told) == (result == RESULTS.converged)


@pytest.mark.parametrize("lead", [0, 1, 6, 13])
@pytest.mark.parametrize("period", [2, 3, 5])
def test_cycles_are_found(period, lead):
    rng = np.random.default_rng(period)
    start, loop = rng.standard_normal((lead, 2)), rng.standard_normal((period, 2))
    points = np.concatenate([start, np.tile(loop, (STEPS // period + 1, 1))])[:STEPS]
    result, fired, steps = ending(script(sht.stopping.Cycle(), points))
    assert (result, fired) == (RESULTS.cycle, FIRED.Cycle)
    # the first one that is the last one before it whose number is a power of two
    assert steps == 1 + next(i for i in range(1, STEPS) if np.all(points[i] == points[2 ** i.bit_length() // 2 - 1]))
    # a criterion beside it that does not hold changes nothing
    assert ending(script(sht.stopping.SmallStep() | sht.stopping.Cycle(), points)) == (result, fired, steps)


def test_convergence_and_drift_are_not_cycles():
    rng = np.random.default_rng(0)
    angle = np.arange(STEPS)[:, None]
    spiral = 0.8**angle * np.concatenate([np.cos(2 * angle), np.sin(2 * angle)], axis=1)
    for points in (spiral, np.ones((STEPS, 2)), MOVING, rng.standard_normal((STEPS, 2))):
        assert ending(script(sht.stopping.Cycle(), points)) == (RESULTS.max_steps, FIRED.none, STEPS)
