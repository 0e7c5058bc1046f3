"""Columns from data as they are given: checked, and all that would lose digits centred or scaled."""

import contextlib
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._types import (
    AnyArray,
    ArrayLike,
    DType,
    HostArray,
    TableLike,
    check_collected,
    check_finite,
    host,
    imported,
    is_concrete,
)
from ..designs import AbstractDesign, as_design
from ..designs.dense import subtracts_exactly
from .checks import check_l2, check_weights, vector, weight_vector
from .columns import LARGEST_RIDGE, Columns
from .moments import centred, constant_columns, spread_of, standardisation

FAR = 8.0  # means this many standard deviations from zero are subtracted from the data


class Prepared(NamedTuple):
    """Columns, targets less their mean, that mean, and the largest magnitude of every column as it was given."""

    columns: Columns
    y: Array | None
    target_mean: Array | None
    largest: AnyArray


def design_of(X: TableLike | AbstractDesign) -> AbstractDesign:
    """The design of a model's data."""
    check_collected("X", X)
    X = imported(X)
    design = as_design(X)
    if design.dtype == np.float32 and getattr(X, "dtype", None) == np.float64:
        warnings.warn(
            "X: float64 data are computed in float32; fit inside jax.enable_x64(True) to compute in float64, or "
            "pass float32.",
            stacklevel=5,  # past the model and the metaclasses
        )
    return design


def columns_of(
    design: AbstractDesign,
    l2: ArrayLike = 0.0,
    sample_weight: ArrayLike | None = None,
    standardize: bool = False,
    offset: ArrayLike | None = None,
    *,
    centre: bool,
    n_free: int = 0,
    n_responses: int | None = None,
    y: Array | None = None,
    given: ArrayLike | None = None,
    ceiling: float = np.inf,
) -> Prepared:
    """Columns of a design.

    Args:
        l2, sample_weight, standardize, offset: as in `LinearModel`.
        centre, n_free: see `Columns`.
        n_responses: None: one, and offsets are (n,).
        y: targets.
        given: those of a loss of eta - y as the user gave them; they are centred too. None: another loss, or none.
        ceiling: no offset stays above it.
    """
    (n, p), dtype = design.shape, design.dtype
    weights = weight_vector(np.ones(n, dtype) if sample_weight is None else sample_weight, n, dtype)
    offsets = None if offset is None else vector("offset", offset, n, dtype, n_responses)
    l2 = jnp.asarray(host(l2) if is_concrete(l2) else l2, dtype)
    check_l2(l2, p)
    check_finite("X", design)
    check_weights(weights)
    known, weighted = is_concrete(design), is_concrete(weights)
    counted = weights if weighted else np.ones(n, dtype)
    with jax.ensure_compile_time_eval() if known else contextlib.nullcontext():  # jit would stage the checks
        facts = spread_of(design, counted, centre or standardize)
    facts = jax.tree.map(host, facts) if known else facts
    largest = facts.largest
    # Where there is nothing to centre the shift is zero: the data must not decide what is traced.
    shift, mean, offset_mean, target_mean = jnp.asarray(np.zeros(p), dtype), None, None, None
    if centre:
        far = known and not design.sparse and np.abs(facts.mean) > FAR * facts.deviation
        if np.any(far):
            constant = constant_columns(design, weights, facts)
            design, shift, facts = centred(design, np.where(far, facts.mean, 0), _grain(largest), constant, counted)
        y, offsets, means = about_means(y, offsets, (given, offset), counted, dtype, ceiling)
        shape = () if n_responses is None else (n_responses,)
        own, others = (jnp.asarray(np.broadcast_to(each, shape), dtype) for each in means)
        target_mean, offset_mean = None if given is None else own, None if offsets is None else others
    if standardize:
        mean, scale = standardisation(design, weights, centre, facts if weighted else None)
    else:
        scale = safe_scale(largest, host(l2) if is_concrete(l2) else 0.0) if known else jnp.ones(p, dtype)
    columns = Columns(design, weights, l2, scale, shift, mean, offsets, offset_mean, centre, n_free, standardize)
    return Prepared(columns, y, target_mean, largest)


def safe_scale(largest: AnyArray, l2: ArrayLike = 0.0) -> Array:
    """Powers of two that bring columns of an extreme size to about one, or l2 with them as far as it can; else 1."""
    top = jnp.finfo(largest.dtype).maxexp
    limit = 2.0 ** (top // 6)
    extreme = (largest > limit) | ((largest < 1 / limit) & (largest > 0))
    most = np.maximum(0, (top - LARGEST_RIDGE - np.frexp(l2)[1]) // 2)
    scale = np.ldexp(np.ones_like(largest), np.where(extreme, np.minimum(-np.frexp(largest)[1], most), 0))
    return jnp.asarray(scale, largest.dtype)


def _grain(largest: AnyArray) -> HostArray:
    """The last digit of numbers of these sizes, for numbers like them to be multiples of."""
    digits = jnp.finfo(largest.dtype)
    last = np.ldexp(np.ones_like(largest), np.frexp(largest)[1] - digits.nmant - 1)
    return np.maximum(np.where(largest > 0, last, 0), digits.tiny)


def about_means(
    y: Array | None,
    offset: Array | None,
    given: tuple[ArrayLike | None, ArrayLike | None],
    sample_weight: ArrayLike,
    dtype: DType,
    ceiling: float = np.inf,
) -> tuple[Array | None, Array | None, tuple[HostArray, HostArray]]:
    """Targets and offsets less their weighted means where these are far from zero, and the means, whose difference is
    exact, as both are rounded to the last digit of the larger.

    Nothing is subtracted where that rounds a row with a weight, but from what was `given` with more digits than the
    dtype has: it is rounded once, and better so. Offsets that would leave an entry above the ceiling are less the
    largest one instead.
    """
    parts: list[tuple[str, Array | None, ArrayLike | None]] = [("y", y, given[0]), ("offset", offset, given[1])]
    known = {
        name: np.asarray(values, float).reshape(v.shape)
        for name, v, values in parts
        if v is not None and values is not None and is_concrete(v) and len(v.devices()) == 1
    }
    if not known:
        return y, offset, (np.zeros((), dtype), np.zeros((), dtype))
    weights = host(sample_weight).astype(float)
    live, weights = weights > 0, weights / weights.sum()
    grain = 2 * np.max([_grain(np.abs(v[live]).max(0).astype(dtype)) for v in known.values()], axis=0)
    means: dict[str, HostArray] = {"y": np.zeros(()), "offset": np.zeros(())}
    for name, v in known.items():
        own, shares = v[live], weights[live]
        centre, top = shares @ own, own.max(0)
        mean = np.where(np.abs(centre) > FAR * np.sqrt(shares @ (own - centre) ** 2), centre, 0)
        high = (top - mean > ceiling) & (name == "offset")
        mean = (np.round(np.where(high, top, mean) / grain) * grain).astype(dtype).astype(float)
        less = own - mean
        exact = (less.astype(dtype) == less) & subtracts_exactly(own, mean, less)
        means[name] = np.where(exact.all(0) | (own.astype(dtype) != own).any(0) | high, mean, 0)

    def moved(name: str, v: Array | None) -> Array | None:
        return jnp.asarray((known[name] - means[name]).astype(dtype), dtype) if np.any(means[name]) else v

    return moved("y", y), moved("offset", offset), (means["y"].astype(dtype), means["offset"].astype(dtype))
