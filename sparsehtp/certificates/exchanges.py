"""The worth of each chosen feature: by how much its best substitute changes the objective."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from .._meshes import automatic_axes
from .._programs import program
from .._threads import one_blas_thread
from .._types import replace
from ..objectives import AbstractRestrictable, LinearModel
from ..objectives.model import in_double
from ..thresholds import AbstractUnitThreshold, Sparsity
from ..thresholds.base import next_power_of_two
from .least_squares import LeastSquares
from .placed import BATCH, Placed, coefficients_of, onto_support, refit_values

LEAST_SHARE = 1e-9  # of a column that the others leave, below which normal equations have lost too many digits
AT_MOST = 10_000  # exchanges that are fitted from the data instead
TRIED = 4  # substitutes for each feature that are fitted again, where the objective is not quadratic
MOST = 20  # substitutes for each feature that are told of


class Swaps(NamedTuple):
    """The best exchange of each chosen feature, all coefficients fitted again. NumPy arrays.

    Attributes:
        features: (m,) the chosen features.
        substitutes: (m,) the feature that replaces each one best.
        gains: (m,) decrease of F by that exchange: positive where it is an improvement.
        value: F at the solution.
        n_features: p.
    """

    features: Int[np.ndarray, "m"]
    substitutes: Int[np.ndarray, "m"]
    gains: Float[np.ndarray, "m"]
    value: float
    n_features: int


def best_swaps(objective: AbstractRestrictable, solution: Any, groups: AbstractUnitThreshold | None = None) -> Swaps:
    """Exchange each chosen feature, or group of features, for its best substitute, and fit again.

        gain_i = F(x) - min over j not in S of min {F(w) : supp w in S - i + j}

    Args:
        objective: the smooth objective that was minimised, with concrete arrays.
        solution: a `Solution` on some but not all features; without bounds.
        groups: the `GroupSparsity` of the solution, whose groups are exchanged as wholes; None: single features are.

    Returns:
        `Swaps`, in the order of the features; of groups they hold the numbers. For losses other than the squared one
        the substitute of a feature is the best of the four that are best to second order, and its gain is exact.

    Raises:
        ValueError: if every feature is chosen, or none.

    One product of the data with the chosen columns, whatever p is, and for losses other than the squared one four
    refits per feature. Of groups every exchange is a refit.
    """
    chosen, substitutes, gains = exchanges(objective, solution, groups)
    units = objective.n_coefficients if groups is None else groups.n_units(objective)
    return Swaps(chosen, substitutes[:, 0], gains[:, 0], float(solution.value), units)


def near_exchanges(
    objective: AbstractRestrictable, solution: Any, limit: float, groups: AbstractUnitThreshold | None = None
) -> dict[int, list[tuple[int, float]]]:
    """For each chosen feature its substitutes that raise F by `limit` at most, with that rise, the best first: 20 at
    most (4 for losses other than the squared one)."""
    chosen, substitutes, gains = exchanges(objective, solution, groups)
    return {
        int(i): [(int(j), float(-gain)) for j, gain in zip(others, worth, strict=True) if -gain <= limit]
        for i, others, worth in zip(chosen, substitutes, gains, strict=True)
    }


def exchanges(
    objective: AbstractRestrictable, solution: Any, groups: AbstractUnitThreshold | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(m,) chosen features or groups, and (m, t) their best substitutes with the gains, the best first."""
    chosen = np.unique(np.asarray(solution.support.idx)[np.asarray(solution.support.mask)])
    p = objective.n_coefficients if groups is None else groups.n_units(objective)
    if not 0 < chosen.size < p:
        raise ValueError(f"solution: needs some but not all of the {p} features, got {chosen.size} of them.")
    with automatic_axes(), one_blas_thread(), jax.enable_x64(True):
        threshold: Any = Sparsity(chosen.size)
        if groups is not None:  # kept ones count as chosen
            threshold = replace(groups, k=np.int32(chosen.size), keep=np.zeros(0, np.int32), k_max=None)
        if objective.castable:
            objective, threshold = in_double((objective, threshold))
        threshold = threshold.bind(objective)
        x, units, *_ = onto_support(objective, threshold, *coefficients_of(objective, solution), solution.support)
        fit = Placed(objective, threshold, x, units, chosen, 0.0, objective.dtype)
        if groups is not None:
            substitutes = np.tile(fit.others, (chosen.size, 1))
        else:
            rows, diagonal, rhs = jax.device_get(_local(objective, x, units.idx[objective.n_free :]))
            gains, doubtful = _scores(rows, diagonal, rhs, chosen)
            if isinstance(objective, LinearModel) and objective.quadratic and doubtful.any():
                _from_the_data(gains, doubtful, objective, chosen)
            tried = min(MOST if objective.quadratic else TRIED, p - chosen.size)
            substitutes, gains = _best(np.broadcast_to(np.arange(p), gains.shape), gains, tried)
        if groups is not None or not objective.quadratic:
            substitutes, gains = _best(substitutes, _refitted(fit, substitutes, float(solution.value)), MOST)
    return chosen, substitutes, gains


def _best(substitutes: np.ndarray, gains: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The best of each row, in their order."""
    order = np.argsort(-gains, axis=1, kind="stable")[:, :most]
    return np.take_along_axis(substitutes, order, axis=1), np.take_along_axis(gains, order, axis=1)


@program
def _local(objective: AbstractRestrictable, x: Float[Array, "d"], idx: Int[Array, "m"]) -> tuple[Array, Array, Array]:
    equations = objective.normal_equations(x)
    return equations.rows(idx), equations.diagonal, equations.rhs


def _scores(
    rows: np.ndarray, diagonal: np.ndarray, rhs: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(m, p) gains of the exchanges of each chosen feature, as `swap_scan` derives them; -inf for chosen ones. And for
    which of them columns are so near to dependent that rounding could decide."""
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1))  # so that small columns count beside large ones
    rows, diagonal, rhs = rows / size, diagonal / size**2, rhs / size
    R = rows[: chosen.size] / size[chosen, None]
    inverse = np.linalg.pinv(R[:, chosen], hermitian=True)
    c, d, H = inverse @ rhs[chosen], np.diag(inverse), inverse @ R
    g = rhs - c @ R
    c, d = c[:, None], np.where(d > 0, d, 1)[:, None]
    q = np.maximum(diagonal - np.sum(R * H, axis=0), 0) + H**2 / d
    doubtful = ~(q > LEAST_SHARE * diagonal) & (diagonal > 0)
    doubtful |= not np.linalg.eigvalsh(R[:, chosen])[0] > LEAST_SHARE
    usable = q > 100 * np.finfo(q.dtype).eps * diagonal
    entering = np.where(usable, (g + c / d * H) ** 2 / np.where(usable, q, 1), 0)
    gains = (entering - c**2 / d) / 2
    gains[:, chosen], doubtful[:, chosen] = -np.inf, False
    return gains, doubtful


def _from_the_data(scores: np.ndarray, doubtful: np.ndarray, model: LinearModel, chosen: np.ndarray) -> None:
    """Put gains of least squares that no normal equations decide in their places; -inf past the largest `AT_MOST`."""
    problem = LeastSquares(model, np.zeros(0, np.int32), chosen.size)
    place = np.full(scores.shape[1], -1)
    place[problem.features] = np.arange(problem.features.size)
    pairs = np.argwhere(doubtful)
    pairs = pairs[np.argsort(-scores[doubtful], kind="stable")]
    scores[doubtful] = -np.inf
    base = problem.fit(place[chosen[place[chosen] >= 0]])[0]
    for i, j in pairs[:AT_MOST]:
        others = place[np.append(np.delete(chosen, i), j)]
        scores[i, j] = base - problem.fit(others[others >= 0])[0]


def _refitted(fit: Placed, substitutes: np.ndarray, value: float) -> np.ndarray:
    """For each place the gains of a few substitutes, by refits."""
    places, new = np.repeat(fit.places, substitutes.shape[1]), substitutes.ravel().astype(np.int32)
    # The width of the certificate's refits, whose program this is.
    pairs = fit.places.size * fit.others.size
    width = min(next_power_of_two(max(pairs, BATCH)), 1024)
    values = np.empty(new.size)
    for start in range(0, new.size, width):
        each = np.minimum(np.arange(start, start + width), new.size - 1)
        part = refit_values(fit.objective, fit.threshold, fit.x, fit.units, places[each], new[each])[0]
        values[each] = np.asarray(part)
    return np.where(np.isfinite(values), value - values, -np.inf).reshape(substitutes.shape)
