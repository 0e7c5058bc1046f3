"""Size, mean and deviation of every column of a design, and which columns are constant."""

from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._programs import program
from .._tolerances import tolerance
from .._types import AnyArray, HostArray, host, is_concrete, lies_on_host
from ..designs import AbstractDesign, DenseDesign

PIECE = 2**20  # bytes


class Spread(NamedTuple):
    """Of every column, over rows with a weight, the largest magnitude, mean and deviation."""

    largest: Float[AnyArray, "p"]  # on the host where it is known
    mean: Float[AnyArray, "p"]  # empty where nobody asked
    deviation: Float[AnyArray, "p"]


def spread_of(design: AbstractDesign, sample_weight: Float[AnyArray, "n"], moments: bool) -> Spread:
    """The facts of a design, means and deviations only where asked for."""
    if isinstance(design, DenseDesign) and is_concrete(design, sample_weight) and lies_on_host(design.array):
        array = host(design.array)
        return _on_host(array.T if design.by_feature else array, host(sample_weight), moments)
    return _by_program(design, sample_weight, moments)


def _on_host(array: HostArray, sample_weight: HostArray, moments: bool) -> Spread:
    """These facts in pieces that stay in a core's cache; XLA reduces rows of a large array many times slower."""
    (n, p), dtype = array.shape, array.dtype
    live, weights = sample_weight > 0, sample_weight / sample_weight.sum()
    together = PIECE // array.itemsize
    by_column = array.flags.f_contiguous
    columns, rows = (max(1, together // n), min(n, together)) if by_column else (p, max(1, together // p))
    every = live.all()
    facts = np.zeros((5, p), dtype)  # the largest, the scale, mean, error and squares of every column

    def pieces() -> Iterator[tuple[HostArray, HostArray, HostArray]]:
        for first in range(0, p, columns):
            for row in range(0, n, rows):
                part, own = array[row : row + rows, first : first + columns], live[row : row + rows, None]
                part = part if every else np.where(own, part, 0)
                yield part, weights[row : row + rows], facts[:, first : first + columns]

    def flushed(a: HostArray) -> HostArray:  # as programs do with what is below the normal numbers
        return np.where(np.abs(a) < np.finfo(dtype).tiny, 0, a).astype(dtype)

    for part, _, (most, *_) in pieces():
        most[:] = np.maximum(most, np.maximum(part.max(0), -part.min(0)))
    largest = flushed(facts[0])
    if not moments:
        return Spread(largest, np.zeros(0, dtype), np.zeros(0, dtype))
    # Scaled by about the largest magnitude, so that squares neither overflow nor underflow.
    exponent = np.where(largest > 0, np.frexp(largest)[1], 0)
    facts[1] = np.ldexp(np.ones(p, dtype), -exponent)
    for part, own, (_, scale, mean, *_) in pieces():
        mean += own @ (part * scale)
    for part, own, (_, scale, mean, error, square) in pieces():
        around = part * scale
        around -= mean
        error += own @ around  # what rounding left in the mean
        around *= around
        square += own @ around
    _, _, mean, error, square = facts
    deviation = np.sqrt(np.maximum(square - error * error, 0))
    return Spread(largest, *(flushed(np.ldexp(part, exponent)) for part in (mean + error, deviation)))


@program(static_argnames="moments")
def _by_program(design: AbstractDesign, sample_weight: Float[Array, "n"], moments: bool) -> Spread:
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
    return design, shift, _by_program(design, sample_weight, True)


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
