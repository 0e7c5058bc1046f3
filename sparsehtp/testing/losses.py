"""The laws of a loss."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._programs import program
from ..losses import AbstractConjugateLoss, AbstractLoss, AbstractVectorLoss
from ..losses.deviance import d2_score
from .laws import equal, law, traced

H = 1e-6  # of finite differences
POINTS = 1000  # random ones: few, so that none lies within H of a kink
TARGETS = 20  # beside every point of the grid
GRID = np.linspace(-8, 8, 4000)
SIZE = GRID.size * TARGETS  # of all arrays, so that one program serves them


def check_loss(loss: AbstractLoss | AbstractVectorLoss, seed: int = 0) -> None:
    """Assert the laws that every loss keeps, at random predictions and at targets from its `draw_targets`.

    - The methods act elementwise on arrays, under `jax.jit` and `jax.vmap`, in float32 and in float64.
    - `derivative` and `second_derivative` are those of finite differences; the loss is convex.
    - `smoothness` is the least Lipschitz constant of the derivative, infinity if there is none.
    - `majorant` is positive where the derivative is not zero. Unless the loss is `kinked`, so is the second derivative;
      unless `twice_differentiable` is False, the derivative does not jump.
    - `mean` rises, and a prediction is best where the target is its mean; for labels, in expectation.
    - Of the deviance no prediction explains more than all, and no constant one anything.
    - With a conjugate: l(eta, y) + l*(a, y) >= a eta, with equality at a = l'(eta, y) and at eta = l*'(a, y);
      `project_dual` is the nearest point where the conjugate is finite, which is all of the range of the derivative.
    - `location`, `quadratic`, `classification` and `shift_invariant` are what they say.

    Args:
        loss: an instance, with scalar predictions or with several per sample.
        seed: of the random points.

    Raises:
        AssertionError: for the first law that does not hold, naming it with the numbers.
    """
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        if isinstance(loss, AbstractVectorLoss):
            _check_vector(loss, rng)
            return
        law(loss, "is an AbstractLoss", isinstance(loss, AbstractLoss), type=type(loss).__name__)
        y = _targets(loss, rng.uniform(-2, 2, POINTS), rng)
        eta = rng.uniform(-3, 3, POINTS)
        _check_derivatives(loss, eta, y, rng)
        _check_smoothness(loss, y[:TARGETS], rng)
        _check_mean(loss, y)
        if isinstance(loss, AbstractConjugateLoss):
            _check_conjugate(loss, eta, y, rng)
    _check_single_precision(loss, eta, y)
    _check_deviance(loss, eta, y)


class _Facts(NamedTuple):
    value: Any
    derivative: Any
    second_derivative: Any
    majorant: Any
    mean: Any


class _Dual(NamedTuple):
    conjugate: Any
    conjugate_derivative: Any
    project_dual: Any


@program
def _facts(loss: AbstractLoss, eta: Array, y: Array) -> _Facts:
    methods = (loss.value, loss.derivative, loss.second_derivative, loss.majorant)
    return _Facts._make([*(method(eta, y) for method in methods), loss.mean(eta)])


@program
def _one_by_one(loss: AbstractLoss, eta: Array, y: Array) -> tuple[Array, Array]:
    return jax.vmap(lambda eta, y: (loss.value(eta, y), loss.derivative(eta, y)))(eta, y)


@program
def _dual(loss: AbstractConjugateLoss, a: Array, y: Array) -> _Dual:
    return _Dual(loss.conjugate(a, y), loss.conjugate_derivative(a, y), loss.project_dual(a, y))


def _padded(a: np.ndarray) -> np.ndarray:
    return np.resize(np.asarray(a, float), SIZE)


def _at(loss: AbstractLoss, points: np.ndarray, y: np.ndarray, methods: Callable[..., Any] = _facts) -> Any:
    """The methods at points of one shape, as arrays of that shape."""
    with traced(loss):
        facts = methods(loss, _padded(points), _padded(y))
    for name, value in facts._asdict().items():
        law(loss, f"{name} gives one number per sample", np.shape(value) == (SIZE,), shape=np.shape(value))
    return type(facts)(*(np.asarray(each)[: points.size].reshape(points.shape) for each in facts))


def _targets(loss: AbstractLoss | AbstractVectorLoss, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    y = np.asarray(loss.draw_targets(eta, rng))
    law(loss, "draw_targets gives finite targets", np.isfinite(y), y=y)
    try:
        loss.check_targets(y)
    except ValueError as error:
        raise AssertionError(f"{loss}: check_targets takes what draw_targets gives, but it says: {error}") from error
    return y


def _check_derivatives(loss: AbstractLoss, eta: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> None:
    here, above, below = (_at(loss, eta + side, y) for side in (0, H, -H))
    other = rng.uniform(-3, 3, eta.size)
    there = _at(loss, other, y)
    law(loss, "value is finite at drawn targets", np.isfinite(here.value), value=here.value, eta=eta, y=y)
    room = 1e-8 * (1 + np.abs(here.value))
    slope = (above.value - below.value) / (2 * H)
    equal(loss, "derivative is that of value by finite differences", here.derivative, slope, 1e-6, room, eta=eta, y=y)
    room = 1e-8 * (1 + np.abs(here.derivative))
    curvature = (above.derivative - below.derivative) / (2 * H)
    text = "second_derivative is that of derivative by finite differences"
    equal(loss, text, here.second_derivative, curvature, 1e-6, room, eta=eta, y=y)
    tangent = here.value + here.derivative * (other - eta)
    room = 1e-12 * (1 + np.abs(tangent) + np.abs(there.value))
    text = "the loss lies above its tangents"
    law(loss, text, there.value >= tangent - room, value=there.value, tangent=tangent, eta=eta, other=other, y=y)
    law(loss, "second_derivative is not negative", here.second_derivative >= 0, found=here.second_derivative, eta=eta)
    text = "majorant is finite and positive where the derivative is not zero"
    enough = (here.majorant > 0) | ((np.abs(here.derivative) <= 1e-12) & (here.majorant == 0))
    law(loss, text, enough & np.isfinite(here.majorant), majorant=here.majorant, derivative=here.derivative, eta=eta)
    if loss.twice_differentiable and not loss.kinked:
        text = "second_derivative is positive (set kinked if it can vanish)"
        law(loss, text, here.second_derivative > 0, found=here.second_derivative, eta=eta, y=y)
    if loss.location:
        moved = _at(loss, eta + other, y + other)
        equal(loss, "value depends on eta - y only (location)", moved.value, here.value, 1e-9, 1e-9, eta=eta, y=y)
    if loss.classification:
        law(loss, "labels are -1 and +1 (classification)", np.abs(y) == 1, y=y)
    for name, single in zip(("value", "derivative"), _one_by_one(loss, eta, y), strict=True):
        text = f"{name} under jax.vmap is that of the whole array"
        equal(loss, text, single, getattr(here, name), 1e-12, 1e-14, eta=eta, y=y)
    if loss.quadratic:
        text = "value is half the squared distance of eta and y (quadratic)"
        equal(loss, text, here.value, (eta - y) ** 2 / 2, 1e-9, 1e-9, eta=eta, y=y)


def _check_smoothness(loss: AbstractLoss, y: np.ndarray, rng: np.random.Generator) -> None:
    grid, y = np.broadcast_arrays(GRID[:, None], y)
    facts = _at(loss, grid, y)
    rise, step = np.diff(facts.derivative, axis=0), np.diff(grid, axis=0)
    room = 1e-12 * (1 + np.abs(facts.derivative[1:]))
    law(loss, "derivative does not fall", rise >= -room, change=rise, eta=grid[1:], y=y[1:])
    steepest, smoothness = (rise / step).max(), float(loss.smoothness)
    # The grid may miss the steepest place by a little.
    largest = max(steepest, facts.second_derivative.max())
    if np.isinf(smoothness):
        far = _at(loss, grid, np.broadcast_to(_targets(loss, np.full(TARGETS, GRID[-1]), rng), grid.shape))
        largest = max(largest, far.second_derivative.max())
        text = "smoothness is infinite only if the derivative is as steep as one likes, for some target"
        law(loss, text, largest > 100, steepest=largest)
    else:
        text = "smoothness bounds the slope of the derivative"
        law(loss, text, steepest <= smoothness * (1 + 1e-6), smoothness=smoothness, steepest=steepest)
        text = "smoothness is the least bound of the slope of the derivative"
        law(loss, text, largest >= smoothness * (1 - 1e-3), smoothness=smoothness, steepest=largest)
    if loss.twice_differentiable:
        first = np.argmax(rise, axis=0)
        columns = np.arange(TARGETS)
        fine = np.linspace(grid[first, columns], grid[first + 1, columns], GRID.size)
        jump = np.diff(_at(loss, fine, y).derivative, axis=0).max(axis=0)
        text = "derivative does not jump (set twice_differentiable = False if it does)"
        law(loss, text, jump <= 0.5 * rise.max(axis=0) + 1e-9, jump=jump, near_eta=fine[0], y=y[0])


def _check_mean(loss: AbstractLoss, y: np.ndarray) -> None:
    mean = _at(loss, GRID, np.resize(y, GRID.size)).mean
    law(loss, "mean is finite", np.isfinite(mean), mean=mean, eta=GRID)
    law(loss, "mean rises", np.diff(mean) > 0, mean=mean[1:], before=mean[:-1], eta=GRID[1:])
    eta, mean = GRID[np.abs(GRID) < 3], mean[np.abs(GRID) < 3]
    if not loss.classification:
        text = "a prediction is best where the target is its mean"
        here, *others = (_at(loss, eta + move, mean).value for move in (0, 0.01, -0.01))
        for other in others:
            law(loss, text, here <= other + 1e-12 * (1 + np.abs(here)), loss=here, moved=other, eta=eta, mean=mean)
    elif type(loss).mean is not AbstractLoss.mean:
        law(loss, "mean is the probability of the label +1", (mean >= 0) & (mean <= 1), mean=mean, eta=eta)
        positive, negative = (_at(loss, eta, np.full(eta.size, label)).derivative for label in (1.0, -1.0))
        expected = mean * positive + (1 - mean) * negative
        law(loss, "the expected derivative is zero under mean", np.abs(expected) <= 1e-12, found=expected, eta=eta)


def _check_conjugate(loss: AbstractConjugateLoss, eta: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> None:
    here = _at(loss, eta, y)
    a = here.derivative
    conjugate, *_ = _at(loss, a, y, _dual)
    room = 1e-10 * (1 + np.abs(a * eta))
    text = "value + conjugate = a eta at a = derivative(eta, y)"
    equal(loss, text, here.value + conjugate, a * eta, 0, room, a=a, eta=eta, y=y)

    def is_bound(a: np.ndarray, conjugate: np.ndarray) -> None:
        text = "value + conjugate >= a eta"
        for other in (*rng.uniform(-3, 3, (5, y.size)), np.resize(GRID, y.size)):
            value = _at(loss, other, y).value
            room = 1e-10 * (1 + np.abs(a * other))
            law(loss, text, value + conjugate >= a * other - room, value=value, conjugate=conjugate, a=a, eta=other)

    is_bound(a, conjugate)
    low, high = (_at(loss, np.full(y.size, end), y).derivative for end in (-2.5, 2.5))
    mix = rng.uniform(0.3, 0.7, y.size)
    inside = (1 - mix) * low + mix * high  # the range is an interval
    conjugate, best, _ = _at(loss, inside, y, _dual)
    value = _at(loss, best, y).value
    text = "value + conjugate = a eta at eta = conjugate_derivative(a, y)"
    room = 1e-10 * (1 + np.abs(inside * best))
    moves = high > low + 1e-6  # where the range is a point, any eta will do
    found, expected = np.where(moves, value + conjugate, 0), np.where(moves, inside * best, 0)
    equal(loss, text, found, expected, 0, room, a=inside, eta=best, y=y)
    is_bound(inside, conjugate)

    a = np.where(np.arange(y.size) % 10, rng.uniform(-4, 4, y.size), rng.choice([-1e3, 1e3], y.size))
    conjugate, _, projected = _at(loss, a, y, _dual)
    is_bound(a, conjugate)
    ends, slope, again = _at(loss, projected, y, _dual)
    law(loss, "conjugate is finite after project_dual", np.isfinite(ends), conjugate=ends, a=projected, y=y)
    text = "conjugate_derivative is finite after project_dual"
    law(loss, text, np.isfinite(slope), found=slope, a=projected, y=y)
    law(loss, "project_dual is idempotent", again == projected, once=projected, twice=again, y=y)
    outside = np.abs(projected - a) > 1e-9 * (1 + np.abs(a))
    text = "conjugate is infinite at just the points that project_dual moves"
    law(loss, text, np.isfinite(conjugate) != outside, conjugate=conjugate, a=a, projected=projected, y=y)
    grid, targets = np.broadcast_arrays(np.linspace(-6, 6, GRID.size)[:, None], y[:TARGETS])
    feasible = np.isfinite(_at(loss, grid, targets, _dual).conjugate)
    distance = np.where(feasible, np.abs(grid - a[:TARGETS]), np.inf).min(axis=0)
    text = "project_dual gives the nearest point where the conjugate is finite"
    near = np.abs(projected - a)[:TARGETS]
    law(loss, text, near <= distance + 1e-9, distance=near, of_another=distance, a=a[:TARGETS], y=y[:TARGETS])
    inverse = 0.0 if np.isinf(loss.smoothness) else 1 / float(loss.smoothness)
    equal(loss, "strong_convexity is one over smoothness", loss.strong_convexity, inverse, 1e-12)


def _check_single_precision(loss: AbstractLoss, eta: np.ndarray, y: np.ndarray) -> None:
    with jax.enable_x64(True):
        fine = _one_by_one(loss, eta, y)
    with jax.enable_x64(False):
        single = jax.tree.map(np.float32, loss)
        coarse = _one_by_one(single, eta.astype(np.float32), y.astype(np.float32))
    for name, a, b in zip(("value", "derivative"), coarse, fine, strict=True):
        law(loss, f"{name} of float32 is float32", a.dtype == np.float32, dtype=str(a.dtype))
        equal(loss, f"{name} in float32 is that in float64", a, b, 1e-5, 2e-6, eta=eta, y=y)


def _check_deviance(loss: AbstractLoss, eta: np.ndarray, y: np.ndarray) -> None:
    weights = np.ones(eta.size)
    for each in (eta, np.zeros(eta.size), np.full(eta.size, 0.5)):
        most = 1 if each is eta else 1e-9
        score = d2_score(loss, each, y, weights)
        text = "explains no more of the deviance than all, and nothing of it with a constant"
        law(loss, text, score <= most, score=score, prediction=each[:3])


# --- several predictions per sample ----------------------------------------------------------------------------------
@program
def _vector_facts(loss: AbstractVectorLoss, eta: Array, y: Array) -> tuple[Array, ...]:
    d, q = loss.curvature(eta, y)
    q = jnp.zeros_like(d) if q is None else q
    return loss.value(eta, y), loss.derivative(eta, y), d, q, loss.majorant(eta, y), loss.mean(eta)


def _check_vector(loss: AbstractVectorLoss, rng: np.random.Generator) -> None:
    c = loss.n_responses(_targets(loss, np.zeros((POINTS, 3)), rng))
    eta, along = rng.uniform(-2, 2, (POINTS, c)), rng.standard_normal((POINTS, c))
    y = _targets(loss, rng.uniform(-2, 2, (POINTS, c)), rng)
    targets = loss.targets(y, POINTS, np.dtype(np.float64))
    sides = (_vector_facts(loss, eta + side * along, targets) for side in (0, H, -H))
    here, above, below = ([np.asarray(each) for each in facts] for facts in sides)
    value, derivative, d, q, majorant, mean = here
    for name, found, shape in (("value", value, (POINTS,)), ("derivative", derivative, (POINTS, c))):
        law(loss, f"{name} has the shape {shape}", found.shape == shape, shape=found.shape)
    slope = (above[0] - below[0]) / (2 * H)
    text = "derivative is that of value by finite differences"
    equal(loss, text, np.sum(derivative * along, axis=1), slope, 1e-6, 1e-7 * (1 + np.abs(value)), eta=eta, y=y)
    curved = (above[1] - below[1]) / (2 * H)
    found = d * along - q * np.sum(q * along, axis=1, keepdims=True)
    equal(loss, "curvature is that of derivative by finite differences", found, curved, 1e-6, 1e-7, eta=eta)
    steep = np.sum(along * curved, axis=1) / np.sum(along**2, axis=1)
    text = "smoothness bounds the slope of the derivative"
    law(loss, text, steep <= float(loss.smoothness) * (1 + 1e-6), smoothness=loss.smoothness, slope=steep)
    law(loss, "the loss is convex", steep >= -1e-7, curvature=steep, eta=eta)
    text = "majorant is finite and positive where the derivative is not zero"
    enough = (majorant > 0) | (np.abs(derivative) <= 1e-12)
    law(loss, text, enough & np.isfinite(majorant), majorant=majorant, derivative=derivative)
    text = "mean is finite, one number per response"
    law(loss, text, mean.shape == eta.shape and np.isfinite(mean).all(), shape=mean.shape)
    if y.dtype.kind in "iu":  # classes
        probable = (mean >= 0).all(1) & (np.abs(mean.sum(1) - 1) <= 1e-12)
        law(loss, "mean gives the probabilities of the classes", probable, mean=mean, eta=eta)
        each = [np.asarray(_vector_facts(loss, eta, jnp.full_like(targets, k))[1]) for k in range(c)]
        expected = sum(mean[:, [k]] * each[k] for k in range(c))
        law(loss, "the expected derivative is zero under mean", np.abs(expected) <= 1e-12, found=expected, eta=eta)
    if loss.shift_invariant:
        moved = np.asarray(_vector_facts(loss, eta + 1.5, targets)[0])
        equal(loss, "a constant added to all predictions changes nothing (shift_invariant)", moved, value, 1e-10)
