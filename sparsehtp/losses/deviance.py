"""How much better than a constant a prediction is, under any convex loss: the share D2 of the deviance explained."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._programs import program
from .._types import HostArray
from .base import AbstractLoss


def predicted(loss: AbstractLoss, eta: HostArray) -> HostArray:
    """`loss.mean` of (n,) linear predictors, in their precision."""
    if type(loss).mean is AbstractLoss.mean:
        return eta
    with jax.enable_x64(eta.dtype == np.float64):
        return np.asarray(_mean(loss, _padded(eta)))[: eta.size]


def d2_score(loss: AbstractLoss, eta: HostArray, y: HostArray, weights: HostArray) -> float:
    """The share of the deviance that predictions explain.

        D2 = 1 - D(eta) / D(c),    D(eta) = sum_i s_i (l(eta_i, y_i) - min_t l(t, y_i)),    c = argmin_t D(t)

    R2 is the case of the squared loss. 1 is best; the best constant c scores 0, and worse predictions score below.
    Constant targets score 1 if they are predicted exactly, else 0.

    Args:
        loss: convex in eta.
        eta: (n,) linear predictors.
        y: (n,) targets.
        weights: (n,) weights s_i >= 0 with a positive sum.

    Source: the D2 of scikit-learn (`PoissonRegressor.score`, `d2_tweedie_score`, `d2_absolute_error_score`).
    """
    counted = weights > 0
    eta, y, weights = (np.asarray(a, np.float64)[counted] for a in (eta, y, weights))
    with jax.enable_x64(True):
        values = _values(loss, _padded(eta), _padded(y), np.pad(weights / weights.max(), (0, _padding(y.size))))
        model, null, saturated = (np.asarray(each)[: y.size] for each in values)
    # Constant targets: any difference of the two would be rounding.
    explainable = 0.0 if np.ptp(y) == 0 else float(weights @ np.maximum(null - saturated, 0))
    left = float(weights @ np.maximum(model - saturated, 0))
    if explainable == 0:
        return float(left == 0)
    return 1 - left / explainable


def _padding(n: int) -> int:
    return (1 << max(n - 1, 0).bit_length()) - n


def _padded(a: Float[HostArray, "n"]) -> Float[HostArray, "_"]:
    """`a` with its first entry repeated: one program serves all lengths up to the next power of two."""
    return np.concatenate([a, np.full(_padding(a.size), a[0])])


@program
def _mean(loss: AbstractLoss, eta: Float[Array, "n"]) -> Float[Array, "n"]:
    return loss.mean(eta)


@program
def _values(
    loss: AbstractLoss, eta: Float[Array, "n"], y: Float[Array, "n"], weights: Float[Array, "n"]
) -> tuple[Float[Array, "n"], Float[Array, "n"], Float[Array, "n"]]:
    """(n,) losses of the predictions, of the best constant, and of the best prediction for every sample."""

    def total(each: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.where(weights > 0, weights * each, 0))

    def values(ends: tuple[Array, Array]) -> list[Array]:
        return [loss.value(jnp.broadcast_to(end, y.shape), y) for end in ends]

    saturated = jnp.fmin(*values(_bracket(lambda t: loss.derivative(t, y), -jnp.ones_like(y))))
    low, high = values(
        _bracket(lambda t: total(loss.derivative(jnp.broadcast_to(t, y.shape), y)), -jnp.ones((), y.dtype))
    )
    return loss.value(eta, y), jnp.where(total(low) <= total(high), low, high), saturated


def _bracket(derivative: Callable[[Array], Array], start: Array) -> tuple[Array, Array]:
    """Neighbouring numbers with the zero of a nondecreasing function between them, from `start` < 0."""
    largest = jnp.finfo(start.dtype).max / 2

    def slope(t: Array) -> Array:  # where it overflows to NaN, uphill is outwards
        d = derivative(t)
        return jnp.where(jnp.isnan(d), t, d)

    def outwards(ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        return (slope(low) > 0) & (low > -largest), (slope(high) < 0) & (high < largest)

    def double(ends: tuple[Array, Array]) -> tuple[Array, Array]:
        (low, high), (down, up) = ends, outwards(ends)
        return jnp.where(down, 2 * low, low), jnp.where(up, 2 * high, high)

    def split(ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = low / 2 + high / 2
        s = slope(middle)
        return jnp.where(s <= 0, middle, low), jnp.where(s >= 0, middle, high)

    def apart(ends: tuple[Array, Array]) -> Bool[Array, ""]:
        low, high = ends
        middle = low / 2 + high / 2
        return jnp.any((low < middle) & (middle < high))

    ends = jax.lax.while_loop(lambda ends: jnp.any(jnp.stack(outwards(ends))), double, (start, -start))
    return jax.lax.while_loop(apart, split, ends)
