"""What is known about the quality of a solution: stationarity, a necessary condition, and the best remaining swap."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._chunks import chunk_width
from .._programs import program
from .._threads import one_blas_thread
from .._tolerances import tolerance
from .._types import Support, in_double, is_concrete
from ..linalg import LANE
from ..losses import Squared
from ..objectives import (
    AbstractObjective,
    AbstractRestrictable,
    LinearModel,
    MultiResponse,
    QuadraticForm,
    gather,
    scatter,
)
from ..objectives.base import DENSE_HESSIAN_LIMIT
from ..thresholds import L0L1L2, AbstractUnitThreshold, GroupSparsity, Sparsity
from ..thresholds.base import default_k_max, next_power_of_two
from .proof import NOTHING, penalised_point, penalised_statement, proof_of
from .swap_scan import BLOCK_MEMORY, CANDIDATES, Swaps, lemma21, quadratic_bound, scan

BATCH = 32  # refits at a time among them
EXACTLY, NEARLY = 1e-13, 3e-5  # singular values of collinear columns of norm one, in float64
MOST_DOUBTFUL = 256  # swaps into nearly collinear columns that are looked at one by one
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
    column that is exactly collinear with the chosen ones is refitted by minimum norm, as `solve` does; where columns
    are nearly, but not exactly, collinear, rounding could decide, and swap_gain and stationary are None.

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
    dtype = objective.dtype
    with one_blas_thread(), jax.enable_x64(True):
        # A user's own function need not compute in double.
        if isinstance(objective, LinearModel | QuadraticForm):
            objective, threshold = in_double((objective, threshold))
        bound = threshold.bind(objective)
        kind = _penalised_certificate if isinstance(threshold, L0L1L2) else _certificate
        return kind(objective, bound, solution, bounds, dtype)


class _Point(NamedTuple):
    """F and its gradient at a solution, and its refit on the support."""

    value: Array
    value0: Array  # at x = 0
    grad: Array
    refit: Array  # x refitted
    refit_value: Array
    refit_grad: Array
    removable: Array  # at least what the refit can gain
    curvature: Array  # along the first free entry, an intercept; zero where there is none
    singular: Array
    solved: Array


def _intercept_size(objective, w, intercept):
    """Sum of the magnitudes that the intercept in original units is a sum of."""
    shift = getattr(objective, "shift", None)
    return abs(float(intercept)) + (0.0 if shift is None else float(np.abs(np.asarray(shift) * w).sum()))


class _Best(NamedTuple):
    """The best swap that was found, and whether no better one can have been missed."""

    gain: float
    swap: tuple[int | None, int] | None
    decided: bool
    doubtful: tuple[tuple[int, int], ...] = ()  # swaps (place, unit) whose systems are singular to working precision


def _penalised_certificate(objective, threshold, solution, bounds, dtype):
    intercept = jnp.asarray(solution.intercept, objective.dtype)
    w = jnp.asarray(solution.x, objective.dtype)
    if w.shape != (objective.n_coefficients,) or not np.isfinite(w).all():
        raise ValueError(f"solution: needs {objective.n_coefficients} finite coefficients, got shape {w.shape}.")
    point = penalised_point(objective, threshold, objective.to_internal(w, intercept), dtype)
    proof = proof_of(objective, threshold, point.value, dtype) if bounds else NOTHING
    gap = None if proof.lower is None else point.value - proof.lower
    statement = penalised_statement(point, proof)
    return Certificate(point.value, proof.lower, gap, point.gain, point.swap, point.stationary, None, statement)


def _certificate(objective, threshold, solution, bounds, dtype):
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
        proof = proof_of(objective, threshold, float(value), dtype) if bounds else NOTHING
        return _only_value(value, noun, "the loss is not smooth", proof)

    point = jax.device_get(_point(objective, threshold, x, units))
    value, tol = float(point.value), tolerance("swap", dtype)
    if not np.isfinite(value):
        return _only_value(value, noun, "the objective is not finite here", NOTHING)
    value0, eps = abs(float(point.value0)), float(jnp.finfo(dtype).eps)
    # What the intercept's last digit, in original units, is worth.
    digit = float(point.curvature) * (eps * _intercept_size(objective, w, intercept)) ** 2
    # An F that is zero but for rounding is not improved.
    enough = max(tol * abs(value), eps * value0) + digit
    scale = tolerance("stationary", dtype) * (abs(value) + value0) + digit
    stationary = None if point.removable <= scale and not point.solved else bool(point.removable <= scale)
    if stationary and point.singular and _ambiguous(objective, threshold, x, units):
        stationary = None

    k, n_keep = int(threshold.k), threshold.keep.shape[0]
    first = objective.n_free + n_keep
    # A free place counts as one that nothing leaves.
    places = np.arange(first, first + chosen.size + (chosen.size < k), dtype=np.int32)
    others = np.setdiff1d(
        np.arange(_n_units(objective, threshold), dtype=np.int32), np.concatenate([threshold.keep, chosen])
    )
    pairs, coefficients = places.size * others.size, _n_coefficients(threshold, x, units)

    necessary = swaps = best = None
    why = "the refits do not settle it at this precision"
    few = coefficients <= DENSE_HESSIAN_LIMIT
    if type(threshold) is Sparsity and threshold.lower is None and threshold.upper is None and few:
        bound, smoothness = quadratic_bound(objective)
        if bound is not None:
            swaps, diagonal, largest = scan(bound, units, places, point if objective.quadratic else None, enough)
            moves = np.asarray(x)[chosen], point.grad[: objective.n_coefficients]
            necessary = lemma21(*moves, k, smoothness * largest, smoothness * diagonal, enough, scale)
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
        swaps = Swaps(np.full(pairs, np.inf), np.repeat(places, others.size), np.tile(others, places.size))
        best = _confirm(
            objective, threshold, x, units, value, enough, swaps, min(next_power_of_two(max(pairs, BATCH)), 1024)
        )
    else:
        why = f"{pairs} refits are too many"
    if best is not None and best.gain <= enough:
        if best.decided and any(
            _ambiguous(objective, threshold, x, _exchanged(units, place, j)) for place, j in best.doubtful
        ):
            best, why = None, "columns are nearly, but not exactly, collinear"
        else:
            best = _Best(0.0, None, True) if best.decided else None

    gain, swap = (None, None) if best is None else (best.gain, best.swap)
    every_subset = chosen.size == k and (k <= 1 or others.size <= 1)
    proof = proof_of(objective, threshold, value, dtype) if bounds else NOTHING
    if gain == 0 and (every_subset or proof.optimal):
        necessary = True if necessary is not None else None  # rounding may say otherwise of a tie
    statement = _statement(noun, value, gain, swap, stationary, necessary, tol, why, every_subset, proof)
    open_gap = None if proof.lower is None else value - proof.lower
    return Certificate(value, proof.lower, open_gap, gain, swap, stationary, necessary, statement)


def _only_value(value, noun, why, proof):
    statement = f"Whether {_EXCHANGE.format(noun)} would lower the objective is unknown, since {why}. {proof.sentence}"
    gap = None if proof.lower is None else float(value) - proof.lower
    return Certificate(float(value), proof.lower, gap, None, None, None, None, statement.strip())


_EXCHANGE = "exchanging one chosen {0} for another"


def _statement(noun, value, gain, swap, stationary, necessary, tol, why, every_subset, proof):
    parts = []
    if stationary is False and proof.optimal:
        parts.append(f"Refitting the coefficients on the chosen {noun}s lowers the objective a little more.")
    elif stationary is False:
        parts.append(f"The coefficients are not optimal for the chosen {noun}s: refitting them lowers the objective.")
    elif stationary is None:
        parts.append(f"Whether the coefficients are optimal for the chosen {noun}s is unknown: rounding decides.")
    if gain is None:
        parts.append(f"Whether {_EXCHANGE.format(noun)} would lower the objective is unknown, since {why}.")
    elif gain > 0:
        out, new = swap
        change = f"Adding {noun} {new}" if out is None else f"Exchanging {noun} {out} for {noun} {new}"
        share = f" ({gain / abs(value):.2g} of its value)" if gain < 1e3 * abs(value) else ""
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
    if necessary is False and not gain:
        parts.append("A necessary condition of the best subset fails, so a better one exists.")
    elif gain is None and not proof.optimal:
        parts.append("Nothing here proves that it is the best subset.")
    return " ".join([*parts, (gain and proof.beside_a_gain) or proof.sentence]).strip()


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
    places = default_k_max(k, units - keep.size, threshold.least_k_max)
    idx = np.concatenate([free, keep, chosen, np.zeros(places - chosen.size)]).astype(np.int32)
    return w, Support(idx, np.arange(idx.size) < idx.size - places + chosen.size), chosen


def _n_units(objective, threshold):
    d = objective.n_coefficients + objective.n_free
    return jax.eval_shape(threshold.scores, jax.ShapeDtypeStruct((d,), objective.dtype)).shape[0]


def _n_coefficients(threshold, x, units):
    return jax.eval_shape(threshold.entries, x, units).idx.shape[0]


@program
def _value(objective, x):
    return objective.value(x)


@program
def _internal(objective, threshold, w, intercept, units):
    """x in the solver's units, moved onto its support and into the bounds, and whether it was there up to rounding."""
    x = objective.to_internal(w, intercept)
    entries = threshold.entries(x, units)
    inside = threshold.clip(scatter(gather(x, entries), entries, x.shape[0]))
    return inside, jnp.max(jnp.abs(inside - x)) <= 1e-5 * jnp.max(jnp.abs(x))


@program
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
        curvature=restricted.hvp(z, jnp.zeros_like(z).at[0].set(1))[0] if objective.n_free else jnp.zeros(()),
        singular=fit.singular,
        solved=fit.solved,
    )


@program
def _refit_values(objective, threshold, x, units, places, new):
    """F after each swap, whether its refit ended, and whether its system was singular."""

    def one(place, j):
        entries = threshold.entries(x, _exchanged(units, place, j))
        restricted = objective.restrict(entries)
        fit = restricted.minimise(gather(x, entries), *threshold.box(entries))
        return restricted.value(fit.z), fit.solved, fit.singular

    return jax.vmap(one, axis_name=LANE)(places, new)


def _exchanged(units, place, j):
    idx, mask = jnp.asarray(units.idx), jnp.asarray(units.mask)
    return Support(idx.at[place].set(j), mask.at[place].set(True))


def _ambiguous(objective, threshold, x, units):
    """Whether the columns of a support are nearly collinear, and not exactly so: normal equations cannot tell.

    Exactly collinear ones add nothing to each other; nearly collinear ones may.
    """
    entries = threshold.entries(x, units)
    restricted, mask = objective.restrict(entries), np.asarray(entries.mask)
    if not isinstance(objective, LinearModel):
        H = np.asarray(restricted.hess(gather(x, entries)))[np.ix_(mask, mask)]
        size = np.sqrt(np.maximum(np.diag(H), np.finfo(H.dtype).tiny))
        values = np.linalg.eigvalsh(H / size / size[:, None])
        return bool(np.any((values > 100 * np.finfo(H.dtype).eps) & (values < NEARLY**2)))
    A = np.asarray(restricted.A)[:, mask] * np.sqrt(np.asarray(restricted.weights))[:, None]
    A = np.vstack([A, np.diag(np.sqrt(np.asarray(restricted.ridge)[mask]))])
    size = np.linalg.norm(A, axis=0)
    values = np.linalg.svd(A[:, size > 0] / size[size > 0], compute_uv=False)
    return bool(np.any((values > EXACTLY) & (values < NEARLY)))


def _confirm(objective, threshold, x, units, value, enough, swaps, batch):
    """The best of some swaps, by refits until no other one can be better."""
    hopes, places, new = swaps[:3]
    width = chunk_width(objective, _n_coefficients(threshold, x, units), batch, BLOCK_MEMORY)
    gain, swap, solved, doubtful = 0.0, None, True, list(swaps.doubtful)
    for start in range(0, hopes.size, width):
        if hopes[start] <= max(gain, enough):
            break
        each = np.minimum(np.arange(start, start + width), hopes.size - 1)
        values, ended, singular = jax.device_get(_refit_values(objective, threshold, x, units, places[each], new[each]))
        doubtful += [(int(places[i]), int(new[i])) for i in np.unique(each[singular])]
        gains = np.where(np.isfinite(values), value - values, -np.inf)
        solved = solved and bool(ended.all()) and bool(np.isfinite(values).all())
        best = each[gains.argmax()]
        if gains.max() > gain:
            place = places[best]
            gain, swap = float(gains.max()), (int(units.idx[place]) if units.mask[place] else None, int(new[best]))
    return _Best(gain, swap, solved and len(doubtful) <= MOST_DOUBTFUL, tuple(doubtful))
