"""What is known about the quality of a solution: stationarity, a necessary condition, and the best remaining swap.

For least squares without bounds all swaps are scored at once. With the chosen features S, G their weighted, centred
Gram matrix plus l2, R = G[S, :] (a row per chosen feature), H = G_SS^-1 R, d = diag(G_SS^-1), and c and g the
coefficients and minus the gradient after a refit on S, the exchange of i for j lowers 2F by

    (g_j + (c_i/d_i) H_ij)^2 / (q_j + H_ij^2/d_i) - c_i^2/d_i,    q_j = G_jj - R_j'H_j,

and a free place in S is an i with c_i = H_i = 0. These scores only say which swaps to try: a gain is reported, or
denied, after refits on the data wherever rounding could decide.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._chunks import chunk_width
from ._proof import NOTHING, penalised_point, penalised_statement, proof_of
from ._tolerances import tolerance
from ._types import Support, is_concrete, replace
from .linalg import LANE, dot, masked_factor, top_k
from .losses import Squared
from .objectives import AbstractObjective, AbstractRestrictable, LinearModel, MultiResponse, gather, scatter
from .objectives.base import DENSE_HESSIAN_LIMIT
from .thresholds import L0L1L2, AbstractUnitThreshold, GroupSparsity, Sparsity
from .thresholds.base import next_power_of_two

BLOCK_MEMORY = 2**28  # bytes of a block of Gram rows, and of the columns of a batch of refits
HOST_MEMORY = 2**32  # bytes of the Gram rows of a sparse design, kept outside of the device
GRAM_ROWS = 32  # of them at a time
CANDIDATES = 1024  # swaps that are refitted at most where all are scored
BATCH = 32  # refits at a time among them
SLACK = 16  # roundings that a score may be wrong by
REFIT_WORK = 2e9  # (refits) (samples) (coefficients)^2 up to which every swap is refitted


class Certificate(NamedTuple):
    """What is known about a solution; plain Python values, None where unknown.

    Attributes:
        upper_bound: F, plus the penalty of `L0L1L2`, at the solution.
        lower_bound: a lower bound of F (plus the penalty of `L0L1L2`) over the threshold's set, from the dual, see
            `sht.lower_bound`; None without l2 > 0, a `LinearModel` and a conjugate loss.
        gap: upper_bound - lower_bound.
        swap_gain: by how much the best exchange of one chosen unit (never a kept one) for another lowers F, all
            coefficients optimised again; with fewer than k chosen units, additions count too. Exactly 0.0 if that is
            at most the table's `swap` tolerance times |F|, or if F is zero but for rounding.
        best_swap: (out, in), the units of that exchange, None if swap_gain is 0; out is None for an addition.
        stationary: refitting the coefficients on the support cannot lower F by more than the table's `stationary`
            tolerance times |F| + |F(0)|; active bounds are respected, the intercept is included.
        lemma21: whether the necessary condition of a global minimiser holds; False refutes global optimality.
        statement: all this in words.
    """

    upper_bound: float
    lower_bound: float | None
    gap: float | None
    swap_gain: float | None
    best_swap: tuple[int | None, int] | None
    stationary: bool | None
    lemma21: bool | None
    statement: str


def certificate(
    objective: AbstractObjective, threshold: AbstractUnitThreshold | L0L1L2, solution: Any, bounds: bool = True
) -> Certificate:
    """Say how good a solution is: how far from the best possible, whether stationary, whether an exchange improves it.

        swap_gain = max(0, F(x) - min over i in S, j not in S of min {F(w) : supp w in S - i + j})

    Least squares without bounds: one product of the data with k columns, whatever p is. Other losses, bounds, groups
    and collinear supports: all k (p - k) refits where (refits) (samples) (coefficients)^2 is at most 2e9, else None.
    `lemma21` is min |x_i| >= ||grad F(x)||_inf / M_2 over the nonzero x_i (and grad F(x) = 0 where there are fewer
    than k of them), with M_2 the largest eigenvalue of F's 2 x 2 Hessian blocks, one coordinate chosen and one not (of
    their bound by the loss's smoothness where the loss is not squared); in standardised units where the model
    standardises, and for plain `Sparsity` only.

    Args:
        objective: the objective that was minimised.
        threshold: the constraint, with a concrete k, or `L0L1L2`, whose exchanges hold the other coefficients.
        solution: a `Solution`, or anything with `x` (p,), `intercept` and `support`.
        bounds: compute the lower bound, by some hundred products with the data, where there is a dual.

    Returns:
        A `Certificate`.

    Raises:
        TypeError: for a threshold that does not choose entries or groups.
        ValueError: under `jit` or `vmap`, or if the solution does not satisfy the threshold.

    Guarantee: swap_gain = 0 is full-swap inescapability (Hazimeh and Mazumder, 2020) to the stated tolerance; it
    proves a global optimum only where the swaps are all the subsets there are (k = 1, or all features but one). A
    column that is collinear with the chosen ones to working precision is refitted by minimum norm, as `solve` does.

    Source: [GraHTP] Lemma 21, with M_2 for M_2k, since an exchange moves two coordinates.
    """
    if not isinstance(threshold, AbstractUnitThreshold | L0L1L2) or threshold.unit == "pairs":
        raise TypeError(
            f"threshold: a certificate needs a choice of entries or groups such as sht.Sparsity(k), got a "
            f"{type(threshold).__name__}."
        )
    if isinstance(objective, MultiResponse):
        raise TypeError("objective: a certificate is about one response; ask for one per response with LinearModel.")
    if not is_concrete(objective, threshold, solution.x, solution.intercept, solution.support):
        raise ValueError("solution: a certificate needs concrete values; ask for it outside jax.jit and jax.vmap.")
    double = objective.dtype == np.float64
    with jax.enable_x64(True) if double else contextlib.nullcontext():
        bound = threshold.bind(objective)
        if isinstance(threshold, L0L1L2):
            return _penalised_certificate(objective, bound, solution, bounds)
        return _certificate(objective, bound, solution, bounds)


class _Point(NamedTuple):
    """F and its gradient at a solution, and its refit on the support."""

    value: Array
    value0: Array  # at x = 0
    grad: Array
    refit: Array  # x refitted
    refit_value: Array
    refit_grad: Array
    removable: Array  # at least what the refit can gain
    singular: Array
    solved: Array


class _Swaps(NamedTuple):
    """Swaps (place of the support, unit) and the most that each may lower F, in falling order."""

    hopes: np.ndarray
    places: np.ndarray
    new: np.ndarray


class _Best(NamedTuple):
    """The best swap that was found, and whether no better one can have been missed."""

    gain: float
    swap: tuple[int | None, int] | None
    decided: bool


def _penalised_certificate(objective, threshold, solution, bounds):
    intercept = jnp.asarray(solution.intercept, objective.dtype)
    w = jnp.asarray(solution.x, objective.dtype)
    if w.shape != (objective.n_coefficients,) or not np.isfinite(w).all():
        raise ValueError(f"solution: needs {objective.n_coefficients} finite coefficients, got shape {w.shape}.")
    point = penalised_point(objective, threshold, objective.to_internal(w, intercept))
    proof = proof_of(objective, threshold, point.value) if bounds else NOTHING
    gap = None if proof.lower is None else point.value - proof.lower
    statement = penalised_statement(point, proof)
    return Certificate(point.value, proof.lower, gap, point.gain, point.swap, point.stationary, None, statement)


def _certificate(objective, threshold, solution, bounds):
    w, units, chosen = _read(objective, threshold, solution)
    noun = "group" if isinstance(threshold, GroupSparsity) else "feature"
    intercept = jnp.asarray(solution.intercept, objective.dtype)
    x, covered = _internal(objective, threshold, w, intercept, units)
    if not covered:
        raise ValueError("solution: x has nonzeros outside its support, or violates the threshold's bounds.")
    if not isinstance(objective, AbstractRestrictable):
        return _only_value(_value(objective, x), noun, "the objective cannot be refitted on a support", NOTHING)
    if not getattr(objective, "loss", Squared()).twice_differentiable:
        value = _value(objective, x)
        proof = proof_of(objective, threshold, float(value)) if bounds else NOTHING
        return _only_value(value, noun, "the loss is not smooth", proof)

    point = jax.device_get(_point(objective, threshold, x, units))
    value, tol = float(point.value), tolerance("swap", objective.dtype)
    value0 = abs(float(point.value0))
    # An F that is zero but for rounding is not improved.
    enough = max(tol * abs(value), (32 * float(jnp.finfo(objective.dtype).eps)) ** 2 * value0)
    scale = tolerance("stationary", objective.dtype) * (abs(value) + value0)
    stationary = None if point.removable <= scale and not point.solved else bool(point.removable <= scale)

    k, n_keep = int(threshold.k), threshold.keep.shape[0]
    first = objective.n_free + n_keep
    # A free place counts as one that nothing leaves.
    places = np.arange(first, first + chosen.size + (chosen.size < k), dtype=np.int32)
    others = np.setdiff1d(
        np.arange(_n_units(objective, threshold), dtype=np.int32), np.concatenate([threshold.keep, chosen])
    )
    pairs, coefficients = places.size * others.size, _n_coefficients(threshold, x, units)

    lemma21 = swaps = best = None
    why = "the refits do not settle it at this precision"
    few = coefficients <= DENSE_HESSIAN_LIMIT
    if type(threshold) is Sparsity and threshold.lower is None and threshold.upper is None and few:
        bound, smoothness = _quadratic_bound(objective)
        if bound is not None:
            swaps, diagonal, largest = _scan(bound, units, places, point if objective.quadratic else None, enough)
            moves = np.asarray(x)[chosen], point.grad[: objective.n_coefficients]
            lemma21 = _lemma21(*moves, k, smoothness * largest, smoothness * diagonal, enough, scale)
    if pairs == 0:
        best = _Best(0.0, None, True)
    elif not few:
        why = f"supports of more than {DENSE_HESSIAN_LIMIT} coefficients are not refitted exactly"
    elif isinstance(threshold, GroupSparsity) and threshold.within is not None:
        why = "a new group would have to choose its own features"
    elif swaps is not None:
        best = _confirm(objective, threshold, x, units, value, enough, swaps, BATCH)
        best = best._replace(decided=best.decided and swaps.hopes.size < CANDIDATES)
    elif pairs * (objective.ifo_per_gradient + coefficients) * coefficients**2 <= REFIT_WORK:
        swaps = _Swaps(np.full(pairs, np.inf), np.repeat(places, others.size), np.tile(others, places.size))
        best = _confirm(
            objective, threshold, x, units, value, enough, swaps, min(next_power_of_two(max(pairs, BATCH)), 1024)
        )
    else:
        why = f"{pairs} refits are too many"
    if best is not None and best.gain <= enough:
        best = _Best(0.0, None, True) if best.decided else None

    gain, swap = (None, None) if best is None else (best.gain, best.swap)
    every_subset = chosen.size == k and (k <= 1 or others.size <= 1)
    proof = proof_of(objective, threshold, value) if bounds else NOTHING
    statement = _statement(noun, value, gain, swap, stationary, lemma21, tol, why, every_subset, proof)
    open_gap = None if proof.lower is None else value - proof.lower
    return Certificate(value, proof.lower, open_gap, gain, swap, stationary, lemma21, statement)


def _only_value(value, noun, why, proof):
    statement = f"Whether {_EXCHANGE.format(noun)} would lower the objective is unknown, since {why}. {proof.sentence}"
    gap = None if proof.lower is None else float(value) - proof.lower
    return Certificate(float(value), proof.lower, gap, None, None, None, None, statement.strip())


_EXCHANGE = "exchanging one chosen {0} for another"


def _statement(noun, value, gain, swap, stationary, lemma21, tol, why, every_subset, proof):
    parts = []
    if stationary is False:
        parts.append(f"The coefficients are not optimal for the chosen {noun}s: refitting them lowers the objective.")
    elif stationary is None:
        parts.append(f"Whether the coefficients are optimal for the chosen {noun}s is unknown: the refit did not end.")
    if gain is None:
        parts.append(f"Whether {_EXCHANGE.format(noun)} would lower the objective is unknown, since {why}.")
    elif gain > 0:
        out, new = swap
        change = f"Adding {noun} {new}" if out is None else f"Exchanging {noun} {out} for {noun} {new}"
        share = f" ({gain / abs(value):.2g} of its value)" if value else ""
        parts.append(
            f"{change}, with all coefficients fitted again, lowers the objective by {gain:.3g}{share}, "
            "so this is not the best subset."
        )
    elif every_subset and stationary:
        parts.append(
            f"This is the best subset of its size: none of the others, all of them tried, lowers the objective "
            f"(by more than {tol:.0e} of its value)."
        )
    else:
        parts.append(
            f"No exchange of one chosen {noun} for another lowers the objective (by more than {tol:.0e} of its value), "
            "with all coefficients fitted again."
        )
        if not proof.optimal:
            parts.append("This does not prove that it is the best subset.")
    if lemma21 is False and not gain:
        parts.append("A necessary condition of the best subset fails, so a better one exists.")
    elif gain is None and not proof.optimal:
        parts.append("Nothing here proves that it is the best subset.")
    return " ".join([*parts, proof.sentence]).strip()


def _read(objective, threshold, solution):
    """The coefficients, their support in the solver's order (free, kept, chosen, padding), and the chosen units."""
    p, x = objective.n_coefficients, solution.x
    if not hasattr(x, "shape"):  # a pytree
        x = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(x)])
    w = np.asarray(x, objective.dtype)
    if w.shape != (p,):
        raise ValueError(f"solution: needs one solution with {p} coefficients, got x of shape {w.shape}.")
    if not np.isfinite(w).all():
        raise ValueError("solution: x holds NaN or infinite values.")
    members = np.unique(np.asarray(solution.support.idx)[np.asarray(solution.support.mask)])
    keep, k = np.asarray(threshold.keep), int(threshold.k)
    chosen = np.setdiff1d(members, keep).astype(np.int32)
    if chosen.size > k:
        raise ValueError(f"solution: its support holds {chosen.size} units besides those in keep; k allows {k}.")
    units = _n_units(objective, threshold)
    free = units + np.arange(objective.n_free)
    places = min(next_power_of_two(k), units - keep.size)
    idx = np.concatenate([free, keep, chosen, np.zeros(places - chosen.size)]).astype(np.int32)
    return w, Support(idx, np.arange(idx.size) < idx.size - places + chosen.size), chosen


def _n_units(objective, threshold):
    d = objective.n_coefficients + objective.n_free
    return jax.eval_shape(threshold.scores, jax.ShapeDtypeStruct((d,), objective.dtype)).shape[0]


def _n_coefficients(threshold, x, units):
    return jax.eval_shape(threshold.entries, x, units).idx.shape[0]


@jax.jit
def _value(objective, x):
    return objective.value(x)


@jax.jit
def _internal(objective, threshold, w, intercept, units):
    """x in the solver's units, moved onto its support and into the bounds, and whether it was there up to rounding."""
    x = objective.to_internal(w, intercept)
    entries = threshold.entries(x, units)
    inside = threshold.clip(scatter(gather(x, entries), entries, x.shape[0]))
    return inside, jnp.max(jnp.abs(inside - x)) <= 1e-5 * jnp.max(jnp.abs(x))


@jax.jit
def _point(objective, threshold, x, units):
    entries = threshold.entries(x, units)
    restricted = objective.restrict(entries)
    z = gather(x, entries)
    fit = restricted.minimise(z, *threshold.box(entries))
    refit = scatter(fit.z, entries, x.shape[0])
    grad = objective.value_and_grad(x, entries)[1]
    return _Point(
        value=restricted.value(z),
        value0=objective.value(jnp.zeros_like(x)),
        grad=grad,
        refit=refit,
        refit_value=restricted.value(fit.z),
        refit_grad=objective.value_and_grad(refit, entries)[1],
        removable=jnp.vdot(gather(grad, entries), z - fit.z),  # F is convex
        singular=fit.singular,
        solved=fit.solved,
    )


@jax.jit
def _refit_values(objective, threshold, x, units, places, new):
    """F after each swap, and whether its refit ended."""

    def one(place, j):
        entries = threshold.entries(x, Support(units.idx.at[place].set(j), units.mask.at[place].set(True)))
        restricted = objective.restrict(entries)
        fit = restricted.minimise(gather(x, entries), *threshold.box(entries))
        return restricted.value(fit.z), fit.solved

    return jax.vmap(one, axis_name=LANE)(places, new)


def _confirm(objective, threshold, x, units, value, enough, swaps, batch):
    """The best of some swaps, by refits until no other one can be better."""
    hopes, places, new = swaps
    width = chunk_width(objective, _n_coefficients(threshold, x, units), batch, BLOCK_MEMORY)
    gain, swap, solved = 0.0, None, True
    for start in range(0, hopes.size, width):
        if hopes[start] <= max(gain, enough):
            break
        each = np.minimum(np.arange(start, start + width), hopes.size - 1)
        values, ended = jax.device_get(_refit_values(objective, threshold, x, units, places[each], new[each]))
        gains = np.where(np.isfinite(values), value - values, -np.inf)
        solved = solved and bool(ended.all()) and bool(np.isfinite(values).all())
        best = each[gains.argmax()]
        if gains.max() > gain:
            place = places[best]
            gain, swap = float(gains.max()), (int(units.idx[place]) if units.mask[place] else None, int(new[best]))
    return _Best(gain, swap, solved)


def _quadratic_bound(objective):
    """A quadratic objective and the factor by which its Hessian bounds (for a quadratic: is) the objective's."""
    if objective.quadratic:
        return objective, 1.0
    if not isinstance(objective, LinearModel) or not np.isfinite(float(objective.loss.smoothness)):
        return None, None
    smoothness = float(objective.loss.smoothness)
    return replace(objective, loss=Squared(), l2=objective.l2 / smoothness), smoothness


def _scan(quadratic, units, places, point, enough):
    """Swaps that may lower F by more than `enough`, the Hessian's diagonal, and its largest 2 x 2 eigenvalue.

    No swaps (None) without a point, or where the support is singular.
    """
    n_free = quadratic.n_free
    support = Support(units.idx[n_free:], units.mask[n_free:])
    may_leave = np.isin(np.arange(support.idx.size) + n_free, places)
    chosen = np.zeros(quadratic.n_coefficients, bool)
    chosen[support.idx[support.mask]] = True
    scored = point is not None and not point.singular
    diagonal, largest, hopes, swaps = [], 0.0, [], []
    for features, *block in _gram_blocks(quadratic, support.idx):
        enters = (features < chosen.size) & ~chosen[np.minimum(features, chosen.size - 1)]
        curvature, scores = jax.device_get(
            _score(support, may_leave, enters, features, block, point if scored else None)
        )
        diagonal.append(np.asarray(block[-1]))
        largest = max(largest, float(curvature))
        if scored:
            best, flat = scores
            best = best + (point.value - point.refit_value)
            worth = best > enough
            place, feature = np.divmod(flat[worth], features.size)
            hopes.append(best[worth])
            swaps.append((place + n_free, features[feature]))
    diagonal = np.concatenate(diagonal)[: chosen.size]
    if not scored:
        return None, diagonal, largest
    hopes = np.concatenate(hopes)
    order = np.argsort(-hopes, kind="stable")[:CANDIDATES]
    return _Swaps(hopes[order], *np.concatenate(swaps, axis=1)[:, order].astype(np.int32)), diagonal, largest


def _gram_blocks(quadratic, idx) -> Iterator[tuple[np.ndarray, Array, Array, Array]]:
    """Blocks of features, the support's own Gram matrix, its Gram rows on the block, and the block's diagonal.

    Features past the last one pad a block.
    """
    m, p, itemsize = idx.size, quadratic.n_coefficients, jnp.dtype(quadratic.dtype).itemsize
    if m * p * itemsize <= BLOCK_MEMORY or not isinstance(quadratic, LinearModel):
        rows, diagonal = _gram(quadratic, idx)
        yield np.arange(p, dtype=np.int32), rows[:, idx], rows, diagonal
        return
    if quadratic.sparse and m * p * itemsize <= HOST_MEMORY:
        yield from _sparse_gram_blocks(quadratic, idx)
        return
    width = max(1, BLOCK_MEMORY // ((quadratic.ifo_per_gradient + 3 * m) * itemsize))
    for start in range(0, p, width):
        features = np.arange(start, start + width, dtype=np.int32)
        subset = np.concatenate([idx, np.minimum(features, p - 1)])
        rows, diagonal = _gram(_subset(quadratic, subset), np.arange(m, dtype=np.int32))
        yield features, rows[:, :m], rows[:, m:], diagonal[m:]


def _sparse_gram_blocks(quadratic, idx):
    """The same from Gram rows on the host, a few at a time: dense blocks of a sparse design's columns cost more."""
    m, p = idx.size, quadratic.n_coefficients
    rows = np.empty((m, p), quadratic.dtype)
    for start in range(0, m, GRAM_ROWS):
        part = np.resize(idx[start : start + GRAM_ROWS], GRAM_ROWS)  # one shape for all parts
        few, diagonal = jax.device_get(_gram(quadratic, part))
        rows[start : start + GRAM_ROWS] = few[: m - start]
    width = max(1, BLOCK_MEMORY // (4 * m * rows.itemsize))
    for start in range(0, p, width):
        features = np.arange(start, start + width, dtype=np.int32)
        columns = np.minimum(features, p - 1)
        yield features, rows[:, idx], rows[:, columns], diagonal[columns]


@jax.jit
def _subset(quadratic, idx):
    return quadratic.subset(idx)


@jax.jit
def _gram(quadratic, idx):
    equations = quadratic.normal_equations()
    return equations.columns(idx), equations.diagonal


@jax.jit
def _score(support, may_leave, enters, features, block, point):
    """The largest eigenvalue of the 2 x 2 blocks; and, with a point, the best swaps.

    Of a swap: the most that it may lower F, rounding allowed for, and its flat index (place, feature).
    """
    gram, rows, G = block
    usable = (may_leave & support.mask)[:, None] & enters
    own = jnp.diagonal(gram)[:, None]
    curvature = jnp.max(jnp.where(usable, (own + G) / 2 + jnp.hypot((own - G) / 2, rows), 0), initial=0)
    if point is None:
        return curvature, None
    eps, tiny = jnp.finfo(rows.dtype).eps, jnp.finfo(rows.dtype).tiny
    # The inverse is zero on empty places and all-zero columns, and so is H.
    inverse = masked_factor(gram, support.mask).inverse(gram.dtype)
    H, d = dot(inverse, rows), jnp.diagonal(inverse)
    c = jnp.where(d > 0, gather(point.refit, support), 0)[:, None]
    d = jnp.where(d > 0, d, 1)[:, None]
    g = -point.refit_grad[jnp.minimum(features, point.refit_grad.shape[0] - 1)]
    q = jnp.maximum(G - jnp.sum(rows * H, axis=0), 0) + H**2 / d
    usable = may_leave[:, None] & enters & (q > jnp.maximum(100 * eps * G, tiny))
    q = jnp.where(usable, q, 1)
    gain, loss = (g + c / d * H) ** 2 / q, c**2 / d
    slack = SLACK * eps * (gain * (1 + G / q) + loss)
    hopes = jnp.where(usable, (gain - loss + slack) / 2, -jnp.inf).ravel()
    best = top_k(hopes, min(CANDIDATES, hopes.shape[0]))
    return curvature, (hopes[best], best)


def _lemma21(x, grad, k, largest, diagonal, enough, scale):
    """Whether no move that the lemma is about lowers F by more than the tolerance."""
    nonzero = np.abs(x[x != 0])
    if nonzero.size < k:  # any coordinate may move alone
        return bool(np.max(grad**2 / np.maximum(diagonal, np.finfo(diagonal.dtype).tiny), initial=0) <= scale)
    if not (nonzero.size and largest):
        return True
    steepest, smallest = float(np.abs(grad).max()), float(nonzero.min())
    return bool((steepest**2 / largest - largest * smallest**2) / 2 <= enough)
