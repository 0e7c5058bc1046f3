"""Size, mean and deviation of every column of a design, and which columns are constant."""

from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._programs import program
from .._tolerances import tolerance
from .._types import AnyArray, host, is_concrete
from ..designs import AbstractDesign


class Spread(NamedTuple):
    """Of every column, over rows with a weight, the largest magnitude, mean and deviation."""

    largest: Float[AnyArray, "p"]  # on the host where it is known
    mean: Float[AnyArray, "p"]  # empty where nobody asked
    deviation: Float[AnyArray, "p"]


@program(static_argnames="moments")
def spread_of(design: AbstractDesign, sample_weight: Float[Array, "n"], moments: bool) -> Spread:
    """The facts of a design, means and deviations only where asked for."""
    weights = sample_weight / jnp.sum(sample_weight)
    return Spread(
        design.magnitudes(weights), *(design.moments(weights) if moments else 2 * (jnp.zeros(0, design.dtype),))
    )


@program
def centred(
    design: AbstractDesign,
    shift: Float[Array, "p"],
    grain: Float[Array, "p"],
    constant: Bool[Array, "p"],
    sample_weight: Float[Array, "n"],
) -> tuple[AbstractDesign, Float[Array, "p"], Spread]:
    """See `AbstractDesign.centred`; and the facts of that design."""
    design, shift = design.centred(shift, grain, constant, sample_weight)
    return design, shift, spread_of(design, sample_weight, True)


@program
def moments_of(design: AbstractDesign, weights: Float[Array, "n"]) -> tuple[Float[Array, "p"], Float[Array, "p"]]:
    """Mean and deviation of every column under weights that sum to one."""
    return design.moments(weights)


def is_constant(mean: AnyArray, deviation: AnyArray, xp: ModuleType = jnp) -> Bool[AnyArray, "p"]:
    """Which deviations are rounding."""
    return deviation <= tolerance("constant", deviation.dtype) * xp.maximum(deviation, xp.abs(mean))


def constant_columns(design: AbstractDesign, sample_weight: Float[Array, "n"], facts: Spread) -> Bool[AnyArray, "p"]:
    """Which columns are constant, but for rounding, over the rows with a weight."""
    if not is_concrete(facts):
        return is_constant(facts.mean, facts.deviation)
    mean, deviation = host(facts.mean), host(facts.deviation)
    constant = is_constant(mean, deviation, np)
    # Weights of many orders of magnitude make a deviation small too.
    if is_concrete(sample_weight) and np.any(mean[constant] != 0):
        alike = np.asarray(host(sample_weight) > 0, design.dtype)
        facts = jax.tree.map(host, spread_of(design, alike, True))
        constant &= is_constant(facts.mean, facts.deviation, np)
    return constant


def standardisation(
    design: AbstractDesign, sample_weight: Float[Array, "n"], centre: bool, facts: Spread | None = None
) -> tuple[Array | None, Array]:
    """Means (None unless they are taken off) and inverse deviations of the columns."""
    facts = spread_of(design, sample_weight, True) if facts is None else facts
    known = is_concrete(facts)
    mean, deviation = (host(facts.mean), host(facts.deviation)) if known else (facts.mean, facts.deviation)
    xp = np if known else jnp
    constant = constant_columns(design, sample_weight, facts)
    # A constant column has no scale; it repeats an intercept, and becomes an all-zero column beside one.
    inverse_scale = xp.where(constant, 0.0 if centre else 1.0, 1 / xp.where(constant, 1, deviation))
    dtype = deviation.dtype
    return jnp.asarray(mean, dtype) if centre else None, jnp.asarray(inverse_scale, dtype)
