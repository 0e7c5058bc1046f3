"""The quality of a solution: stationarity, a necessary condition, and the best remaining swap."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._chunks import chunk_width
from .._meshes import automatic_axes
from .._threads import one_blas_thread
from .._tolerances import tolerance
from .._types import check_finite, is_concrete
from ..columns import gather
from ..iteration.results import RESULTS
from ..objectives import AbstractModel, AbstractObjective, AbstractRefittable, AbstractRestrictable, LinearModel
from ..objectives.base import DENSE_HESSIAN_LIMIT, in_columns, value_of
from ..objectives.model import in_double
from ..thresholds import L0L1L2, AbstractUnitThreshold
from ..thresholds.base import next_power_of_two
from .dual_bound import dual_bound
from .facts import Facts, of_a_value, of_refits
from .penalised import penalised_facts
from .placed import BATCH, Placed, RefittedPoint, coefficients_of, exchanged, onto_support, refit_values, refitted_point
from .swap_scan import BLOCK_MEMORY, Candidates, quadratic_bound, scan

EXACTLY, NEARLY = 4e-15, 3e-5  # singular values of collinear columns of norm one, in float64
MOST_DOUBTFUL = 256  # swaps into nearly collinear columns that are looked at one by one
REFIT_WORK = 2e9  # (refits) (samples) (coefficients)^2 up to which every swap is refitted


class Certificate(NamedTuple):
    """Facts about a solution; plain Python values, None where unknown.

    Attributes:
        upper_bound: F, plus the penalty of `L0L1L2`, at the solution.
        lower_bound: a lower bound of F (plus the penalty of `L0L1L2`) over the threshold's set, from the dual, see
            `sht.lower_bound`; None without l2 > 0, a `LinearModel` and a conjugate loss.
        gap: upper_bound - lower_bound.
        swap_gain: by how much the best exchange of one chosen unit (never a kept one) for another lowers F, all
            coefficients optimised again; with fewer than k chosen units, additions count too. Exactly 0.0 if that is
            at most 1e-5 |F| (1e-10 |F| for float64 data), or if F is zero but for rounding. Under `L0L1L2` the other
            coefficients are held, and features that are added or left out count too; for other losses than the
            squared one the gain is a lower bound of theirs.
        best_swap: (out, in), the units of that exchange, None if swap_gain is 0; out is None for an addition, in for
            a feature that is left out.
        stationary: refitting the coefficients on the support cannot lower F by more than 1e-6 (1e-12 for float64
            data) times |F| + |F(0)|; active bounds are respected, the intercept is included.
        necessary_condition: whether the necessary condition of a global minimiser holds; False refutes global
            optimality.
        statement: all this in words.
    """

    upper_bound: float
    lower_bound: float | None
    gap: float | None
    swap_gain: float | None
    best_swap: tuple[int | None, int | None] | None
    stationary: bool | None
    necessary_condition: bool | None
    statement: str


def certificate(
    objective: AbstractObjective, threshold: AbstractUnitThreshold | L0L1L2, solution: Any, bounds: bool = True
) -> Certificate:
    """Say how good a solution is: how far from the best possible, whether stationary, whether an exchange improves it.

        swap_gain = max(0, F(x) - min over i in S, j not in S of min {F(w) : supp w in S - i + j})

    Least squares without bounds: one product of the data with k columns, whatever p is. Other losses, bounds, groups
    and collinear supports: all k (p - k) refits where (refits) (samples) (coefficients)^2 is at most 2e9, else None.
    `necessary_condition` is min |x_i| >= ||grad F(x)||_inf / M_2 over the nonzero x_i (and grad F(x) = 0 where there
    are fewer than k of them), with M_2 the largest eigenvalue of F's 2 x 2 Hessian blocks, one coordinate chosen and
    one not (of their bound by the loss's smoothness where the loss is not squared); in standardised units where the
    model standardises, and for plain `Sparsity` only.

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
    _check(objective, threshold, solution)
    dtype = objective.dtype
    with automatic_axes(), one_blas_thread(), jax.enable_x64(True):
        if objective.castable:
            objective, threshold = in_double((objective, threshold))
        threshold = threshold.bind(objective)
        facts = _facts(objective, threshold, solution, dtype)
        if bounds and np.isfinite(facts.value):
            facts = facts._replace(proof=dual_bound(objective, threshold, facts.value, dtype))
    return _stated(facts)


def _check(objective: AbstractObjective, threshold: AbstractUnitThreshold | L0L1L2, solution: Any) -> None:
    if not isinstance(threshold, AbstractUnitThreshold | L0L1L2) or threshold.kind == "pairs":
        raise TypeError(
            f"threshold: a certificate needs a choice of entries or groups such as sht.Sparsity(k), got a "
            f"{type(threshold).__name__}."
        )
    if not is_concrete(objective, threshold, solution.x, solution.intercept, solution.support):
        raise ValueError("solution: a certificate needs concrete values; ask for it outside jax.jit and jax.vmap.")
    check_finite("objective", objective)


def _stated(facts: Facts) -> Certificate:
    proof, necessary = facts.proof, facts.necessary
    if facts.gain == 0 and (facts.every_subset or proof.optimal):
        necessary = True if necessary is not None else None  # rounding may say otherwise of a tie
    facts = facts._replace(necessary=necessary)
    return Certificate(
        upper_bound=facts.value,
        lower_bound=proof.lower,
        gap=None if proof.lower is None else facts.value - proof.lower,
        swap_gain=facts.gain,
        best_swap=facts.swap,
        stationary=facts.stationary,
        necessary_condition=necessary,
        statement=" ".join(filter(None, facts.sentences(facts))),
    )


def _facts(
    objective: AbstractObjective, threshold: AbstractUnitThreshold | L0L1L2, solution: Any, dtype: np.dtype
) -> Facts:
    """The facts that need no proof."""
    w, intercept = coefficients_of(objective, solution)
    if isinstance(threshold, L0L1L2):
        return penalised_facts(objective, threshold, objective.to_internal(jnp.asarray(w), intercept), dtype)
    x, units, chosen, covered = onto_support(objective, threshold, w, intercept, solution.support)
    if not covered:
        raise ValueError("solution: x has nonzeros outside its support, or violates the threshold's bounds.")
    if not isinstance(objective, AbstractRefittable):
        why = "the objective cannot be refitted on a support"
    elif not objective.twice_differentiable:
        why = "the loss is not smooth"
    else:
        moved = np.abs(objective.units.centre) @ np.abs(w) if isinstance(objective, AbstractModel) else 0.0
        # Estimators give an intercept in float64, a solution one that is rounded to the model's dtype.
        eps = np.finfo(np.result_type(np.asarray(solution.intercept).dtype, dtype)).eps
        error = float(eps * (np.abs(intercept).sum() + np.sum(moved)))
        return _refitted(Placed(objective, threshold, x, units, chosen, error, dtype))
    return Facts(float(value_of(objective, x)), of_a_value, why=why, noun=threshold.noun)


def _refitted(fit: Placed) -> Facts:
    """The facts where coefficients can be refitted."""
    point = jax.device_get(refitted_point(fit.objective, fit.threshold, fit.x, fit.units))
    value, value0, noun = float(point.value), abs(float(point.value0)), fit.threshold.noun
    if not np.isfinite([value, value0]).all():
        where = "without features" if np.isfinite(value) else "here"
        return Facts(value, of_a_value, why=f"the objective is not finite {where}", noun=noun)
    tol, eps = tolerance("swap", fit.dtype), float(jnp.finfo(fit.dtype).eps)
    slack = tolerance("stationary", fit.dtype) * (abs(value) + value0)
    stationary = None if point.removable <= slack and not point.solved else bool(point.removable <= slack)
    unfounded = point.judged != RESULTS.converged or not np.isfinite(point.grad).all()
    if stationary is not None and (np.isnan(point.removable) or (stationary and unfounded)):
        stationary = None
    if stationary and point.singular and _ambiguous(fit):
        stationary = None
    k = int(fit.threshold.k)
    facts = Facts(
        value,
        of_refits,
        stationary=stationary,
        noun=noun,
        tol=tol,
        enough=max(tol * abs(value), eps * value0),  # an F that is zero but for rounding is not improved
        slack=slack,
        digit=float(point.curvature) * fit.intercept_error**2 / 2,
        rounding=float(point.rounding),
        every_subset=fit.chosen.size == k and (k <= 1 or fit.others.size <= 1),
        convex=fit.objective.convex,
    )
    quadratic = quadratic_bound(fit.objective) if in_columns(fit.objective, fit.threshold) else None
    if quadratic is None or fit.size > DENSE_HESSIAN_LIMIT:
        return _by_refits(fit, facts)
    return _by_scored_swaps(fit, point, facts, *quadratic)


def _by_scored_swaps(
    fit: Placed, point: RefittedPoint, facts: Facts, bound: AbstractRestrictable, smoothness: float
) -> Facts:
    """The facts with the necessary condition, and with the best swap of those whose scores say that they may gain."""
    scored = point if fit.objective.quadratic else None
    swaps, diagonal, largest = scan(bound, fit.units, fit.places, scored, facts.enough)
    facts = facts._replace(necessary=_necessary(fit, point, facts, smoothness * diagonal, smoothness * largest))
    return _by_refits(fit, facts) if swaps is None else _confirmed(fit, facts, swaps, BATCH)


def _by_refits(fit: Placed, facts: Facts) -> Facts:
    """The facts with the best of all swaps, each refitted."""
    places, new = fit.swaps
    pairs, size = places.size, fit.size
    if pairs == 0:
        return facts._replace(gain=0.0)
    if size > DENSE_HESSIAN_LIMIT:
        return facts._replace(why=f"supports of more than {DENSE_HESSIAN_LIMIT} coefficients are not refitted exactly")
    if not fit.threshold.exchangeable:
        return facts._replace(why="a new group would have to choose its own features")
    if pairs * (fit.objective.ifo_per_gradient + size) * size**2 > REFIT_WORK:
        return facts._replace(why=f"{pairs} refits are too many")
    swaps = Candidates(np.full(pairs, np.inf), places, new)
    return _confirmed(fit, facts, swaps, min(next_power_of_two(max(pairs, BATCH)), 1024))


def _confirmed(fit: Placed, facts: Facts, swaps: Candidates, batch: int) -> Facts:
    """The facts with the best of some swaps, by refits until no other one can be better."""
    bounds, problem, units = swaps.gain_bounds, fit[:4], fit.units
    width = chunk_width(fit.objective, fit.size, batch, BLOCK_MEMORY)
    gain, swap, most, solved, doubtful = 0.0, None, 0.0, True, list(swaps.doubtful)
    for start in range(0, bounds.size, width):
        if bounds[start] <= max(gain, facts.enough):
            break
        each = np.minimum(np.arange(start, start + width), bounds.size - 1)
        places, new = swaps.places[each], swaps.new[each]
        values, rounding, ended, singular = jax.device_get(refit_values(*problem, places, new))
        doubtful += [(int(swaps.places[i]), int(swaps.new[i])) for i in np.unique(each[singular])]
        rounding = rounding + facts.rounding
        known = np.isfinite(values) & np.isfinite(rounding)
        rounding = np.where(known, rounding, 0)
        gains = np.where(known, facts.value - values, -np.inf) - rounding
        most = max(most, np.max(gains + 2 * rounding))
        solved = solved and bool(ended.all()) and bool(known.all())
        best = gains.argmax()
        if gains[best] > gain:
            out = int(units.idx[places[best]]) if units.mask[places[best]] else None
            gain, swap = float(gains[best]), (out, int(new[best]))
    if gain > facts.enough:
        return facts._replace(gain=gain, swap=swap)
    if not (solved and swaps.complete and len(doubtful) <= MOST_DOUBTFUL and most <= 2 * facts.enough):
        return facts._replace(why="the refits do not settle it at this precision")
    if any(_ambiguous(fit._replace(units=exchanged(units, *swap))) for swap in doubtful):
        return facts._replace(why="columns are nearly, but not exactly, collinear")
    return facts._replace(gain=0.0)


def _necessary(fit: Placed, point: RefittedPoint, facts: Facts, diagonal: np.ndarray, largest: float) -> bool | None:
    """Whether no move that the necessary condition is about lowers F by more than the tolerance."""
    x, grad = np.asarray(fit.x)[fit.chosen], np.asarray(point.grad)[: fit.objective.n_coefficients]
    if not (np.isfinite(grad).all() and np.isfinite(diagonal).all() and np.isfinite(largest)):
        return None
    nonzero = np.abs(x[x != 0])
    if nonzero.size < int(fit.threshold.k):  # any coordinate may move alone
        alone = grad**2 / np.maximum(diagonal, np.finfo(diagonal.dtype).tiny)
        return bool(np.max(alone, initial=0) <= facts.slack)
    if not (nonzero.size and largest):
        return True
    kept = np.asarray(fit.threshold.keep)  # none of the curvatures is that of a kept one
    steepest, smallest = float(np.abs(np.delete(grad, kept)).max(initial=0)), float(nonzero.min())
    return bool((steepest**2 / largest - largest * smallest**2) / 2 <= facts.enough)


def _ambiguous(fit: Placed) -> bool:
    """Whether the columns of a support are nearly collinear, and not exactly so: normal equations cannot tell.

    Exactly collinear ones add nothing to each other; nearly collinear ones may.
    """
    entries = fit.threshold.entries(fit.x, fit.units)
    restricted, mask = fit.objective.restrict(entries), np.asarray(entries.mask)
    if not isinstance(fit.objective, LinearModel):
        H = np.asarray(restricted.hess(gather(fit.x, entries)))[np.ix_(mask, mask)]
        size = np.sqrt(np.maximum(np.diag(H), np.finfo(H.dtype).tiny))
        values = np.linalg.eigvalsh(H / size / size[:, None])
        return bool(np.any((values > 100 * np.finfo(H.dtype).eps) & (values < NEARLY**2)))
    part = jax.tree.map(np.asarray, fit.objective.part(entries))
    A = part.A[:, mask] * np.sqrt(np.asarray(fit.objective.columns.weights))[:, None]
    A = np.vstack([A, np.diag(np.sqrt(part.ridge[mask]))])
    size = np.linalg.norm(A, axis=0)
    values = np.linalg.svd(A[:, size > 0] / size[size > 0], compute_uv=False)
    return bool(np.any((values > EXACTLY) & (values < NEARLY)))
