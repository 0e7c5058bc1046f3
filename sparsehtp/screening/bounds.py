"""The best lower bound: the convex form's dual point, screening with it, and again on what is left."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._meshes import automatic_axes
from .._programs import program
from .._tolerances import tolerance
from .._types import AnyArray, HostArray, Scalar, check_finite, is_concrete, replace
from ..duality import Dual, Fixed, dual_of, relax, require_dual
from ..objectives import AbstractObjective, LinearModel
from ..objectives.base import value_of
from ..objectives.model import in_double
from ..thresholds import L0L1L2, AbstractThreshold, Sparsity
from ..thresholds.base import next_power_of_two
from .rules import screen

WORK = 4e10  # multiplications that a bound may take
LEAST_STEPS, MOST_STEPS = 60, 4000
ROUNDS = 6
VALUE_ROUNDINGS = 64  # that a value in single precision may be wrong by
USELESS = 0.5  # a bound below this multiple of the value is not pursued ...
LARGE = 10**6  # ... where the data have more entries than this


class Bounds(NamedTuple):
    """Bounds of the minimum of an objective; plain Python values.

    Attributes:
        lower: a lower bound of F + penalty over the threshold's set.
        zero: features that are zero in every optimum, sorted.
        nonzero: features that are nonzero in every optimum, sorted.
        decided: the fixed features leave one support.
    """

    lower: float
    zero: HostArray
    nonzero: HostArray
    decided: bool


def lower_bound(
    objective: AbstractObjective, threshold: AbstractThreshold, upper: float, tol: float | None = None
) -> Bounds:
    """The best lower bound that the dual gives, made better by what the gap decides.

    The bound after the first round is the largest dual value (to `tol`), the perspective relaxation's optimum; for more
    than a million entries of data it is given up, as it is then, once it cannot come to half of `upper`. Features
    that the gap to `upper` decides leave a smaller problem with the same optima and a larger dual value. All of it is
    computed in float64, and what rounding may have added is taken off.

    Args:
        objective: a `LinearModel` with l2 > 0 and a conjugate loss.
        threshold: `Sparsity` or `L0L1L2`, with concrete numbers.
        upper: objective plus penalty at a feasible point.
        tol: relative accuracy of the dual value; None: 1e-5 in float32, 1e-8 in float64.

    Raises:
        TypeError, ValueError: see `dual_of`; ValueError for traced arguments.
    """
    if not is_concrete(objective, threshold):
        raise ValueError("objective: bounds need concrete arrays; ask for them outside jax.jit and jax.vmap.")
    require_dual(objective, threshold)
    check_finite("objective", objective)
    for name, value in (("upper", upper), ("tol", tol)):
        check_finite(name, value, remedy="pass a number")
    dtype = objective.dtype
    tol = tolerance("gap", dtype) if tol is None else tol
    with automatic_axes(), jax.enable_x64(True):
        parts: tuple[LinearModel, Sparsity | L0L1L2] = in_double((objective, threshold))
        if dtype != parts[0].dtype:  # a value that was computed in single precision may lie below the minimum
            at_zero = abs(float(value_of(parts[0], parts[0].origin())))
            upper = upper + VALUE_ROUNDINGS * float(jnp.finfo(dtype).eps) * (abs(upper) + at_zero)
        return _lower_bound(*parts, upper, tol)


def _lower_bound(objective: LinearModel, threshold: Sparsity | L0L1L2, upper: float, tol: float) -> Bounds:
    (n, p), dtype = objective.columns.design.shape, objective.dtype
    none = jnp.zeros(p, bool)
    dual = dual_of(objective, threshold, Fixed(none, none))  # the same program with and without fixed features
    best = jnp.asarray(upper, dtype)
    steps = _steps(objective)
    features = np.arange(p, dtype=np.int32)  # of the current problem; padding is fixed at zero
    zero, nonzero = np.zeros(p, bool), np.zeros(p, bool)
    lower = -math.inf
    w: AnyArray = jnp.zeros(p, dtype)
    for _ in range(ROUNDS):
        useless = USELESS * best if upper > 0 and n * p > LARGE else -jnp.inf
        done, value, fixed, w = jax.device_get(_round(dual, tol, best, useless, w, steps))
        lower = max(lower, float(value))
        here = np.asarray(dual.masks().zero)
        zero[features[fixed.zero & ~here]] = True
        nonzero[features[fixed.nonzero]] = True
        news = int((fixed.zero & ~here).sum()) + int((fixed.nonzero & ~np.asarray(dual.masks().nonzero)).sum())
        if done or news == 0:
            break
        dual, features, w = _smaller(dual, Fixed(fixed.zero, fixed.nonzero), features, w)
    keep = np.zeros(p, bool)
    if not isinstance(threshold, L0L1L2):
        keep[np.asarray(threshold.keep)] = True
        if int(nonzero.sum()) == int(threshold.k):
            zero = ~(nonzero | keep)
    decided = bool(np.all(zero | nonzero | keep))
    return Bounds(min(lower, float(best)), np.flatnonzero(zero), np.flatnonzero(nonzero), decided)


def _steps(objective: LinearModel) -> int:
    n, p = objective.columns.design.shape
    return int(np.clip(WORK / (4 * n * p), LEAST_STEPS, MOST_STEPS))


@program(static_argnames="max_steps")
def _round(
    dual: Dual, tol: float, upper: Float[Array, ""], useless: Scalar, w0: Float[Array, "p"], max_steps: int
) -> tuple[Bool[Array, ""], Float[Array, ""], Fixed, Float[Array, "p"]]:
    solved = relax(dual, tol, upper, useless, max_steps, w0)
    fixed, better = screen(dual, solved.point, dual.columns.moments()[1], upper)
    value = better.value - dual.rounding(better, dual.columns.norms())
    done = (value >= upper - tol * jnp.abs(upper)) | (solved.upper <= useless)
    return done, value, fixed, solved.w


def _smaller(
    dual: Dual, fixed: Fixed, features: Int[HostArray, "p"], w: Float[AnyArray, "p"]
) -> tuple[Dual, Int[HostArray, "_"], Float[AnyArray, "p"]]:
    """The problem with the fixed features known, on a power of two of columns where that halves the work."""
    live = np.flatnonzero(~fixed.zero)
    width = next_power_of_two(max(live.size, 8))
    if 2 * width > features.size or (dual.threshold.keep.shape[0] and not dual.penalised):
        return replace(dual, fixed=jax.tree.map(jnp.asarray, fixed)), features, w
    idx = np.zeros(width, np.int32)
    idx[: live.size] = live
    padding = np.arange(width) >= live.size
    small = Fixed(jnp.asarray(padding), jnp.asarray(fixed.nonzero[idx] & ~padding))
    threshold = dual.threshold
    if isinstance(threshold, L0L1L2):
        prices = None if threshold.prices is None else threshold.prices[idx]
        threshold = replace(threshold, k_max=width, prices=prices, keep=threshold.keep[:0])
    else:
        threshold = replace(threshold, k_max=min(int(threshold.k_max or width), width), lower=None, upper=None)
    objective = dual.objective.subset(jnp.asarray(idx))
    w = jnp.where(padding, 0, jnp.asarray(w)[idx])
    return Dual(objective, threshold, small), features[idx], w
