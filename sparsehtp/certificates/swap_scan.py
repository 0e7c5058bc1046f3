"""All exchanges of a chosen unit for another, scored at once for least squares without bounds.

With the chosen features S, G their weighted, centred Gram matrix plus l2, R = G[S, :] (a row per chosen feature),
H = G_SS^-1 R, d = diag(G_SS^-1), and c and g the coefficients and minus the gradient after a refit on S, the exchange
of i for j lowers 2F by

    (g_j + (c_i/d_i) H_ij)^2 / (q_j + H_ij^2/d_i) - c_i^2/d_i,    q_j = G_jj - R_j'H_j,

and a free place in S is an i with c_i = H_i = 0. These scores only say which swaps to try: a gain is reported, or
denied, after refits on the data wherever rounding could decide.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._programs import program
from .._types import Support, replace
from ..columns import gather
from ..linalg import dot, masked_factor
from ..losses import Squared
from ..objectives import AbstractRestrictable, LinearModel
from .placed import RefittedPoint

BLOCK_MEMORY = 2**28  # bytes of a block of Gram rows, and of the columns of a batch of refits
HOST_MEMORY = 2**32  # bytes of the Gram rows of a sparse design, kept outside of the device
GRAM_ROWS = 32  # of them at a time
CANDIDATES = 1024  # swaps that are refitted at most where all are scored
SLACK = 16  # roundings that a score may be wrong by


class Candidates(NamedTuple):
    """Swaps (place of the support, unit) that may lower F.

    Attributes:
        gain_bounds: the most that each may lower F by, in falling order.
        places, new: what is swapped.
        complete: no other swap may lower F.
        doubtful: swaps into columns that are collinear to working precision; at most `CANDIDATES` + 1 of them.
    """

    gain_bounds: np.ndarray
    places: np.ndarray
    new: np.ndarray
    complete: bool = True
    doubtful: tuple[tuple[int, int], ...] = ()


def quadratic_bound(objective: AbstractRestrictable) -> tuple[AbstractRestrictable, float] | None:
    """A quadratic objective and the factor by which its Hessian bounds (for a quadratic: is) the objective's."""
    if objective.quadratic:
        return objective, 1.0
    if not isinstance(objective, LinearModel) or not np.isfinite(float(objective.loss.smoothness)):
        return None
    smoothness = float(objective.loss.smoothness)
    return replace(objective.reweighted(l2=objective.l2 / smoothness), loss=Squared()), smoothness


def scan(
    quadratic: AbstractRestrictable, units: Support, places: np.ndarray, point: RefittedPoint | None, enough: float
) -> tuple[Candidates | None, np.ndarray, float]:
    """Swaps that may lower F by more than `enough`, the Hessian's diagonal, and its largest 2 x 2 eigenvalue.

    No swaps (None) without a point, or where the support is singular.
    """
    n_free = quadratic.n_free
    support = Support(units.idx[n_free:], units.mask[n_free:])
    may_leave = np.isin(np.arange(support.idx.shape[0]) + n_free, places)
    chosen = np.zeros(quadratic.n_coefficients, bool)
    chosen[support.idx[support.mask]] = True
    scored = None if point is None or point.singular else point
    parts: list[np.ndarray] = []
    bounds: list[np.ndarray] = []
    swaps: list[tuple[np.ndarray, np.ndarray]] = []
    doubtful: list[tuple[int, int]] = []
    largest = 0.0
    for features, *block in _gram_blocks(quadratic, np.asarray(support.idx)):
        enters = (features < chosen.size) & ~chosen[np.minimum(features, chosen.size - 1)]
        curvature, scores = jax.device_get(_score(support, may_leave, enters, features, block, scored))
        parts.append(np.asarray(block[-1]))
        largest = max(largest, float(curvature))
        if scored is not None:
            best, doubts = scores
            place, feature = np.nonzero(doubts)
            doubtful += zip((place + n_free).tolist(), features[feature].tolist(), strict=True)
            best = best + (scored.value - scored.refit_value)
            place, feature = np.nonzero(best > enough)
            bounds.append(best[place, feature])
            swaps.append((place + n_free, features[feature]))
    diagonal = np.concatenate(parts)[: chosen.size]
    if scored is None:
        return None, diagonal, largest
    gain_bounds = np.concatenate(bounds)
    order = np.argsort(-gain_bounds, kind="stable")[:CANDIDATES]
    places, new = np.concatenate(swaps, axis=1)[:, order].astype(np.int32)
    found = Candidates(gain_bounds[order], places, new, order.size < CANDIDATES, tuple(doubtful[: CANDIDATES + 1]))
    return found, diagonal, largest


def _gram_blocks(quadratic: AbstractRestrictable, idx: np.ndarray) -> Iterator[tuple[np.ndarray, Any, Any, Any]]:
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


def _sparse_gram_blocks(quadratic: LinearModel, idx: np.ndarray) -> Iterator[tuple[np.ndarray, Any, Any, Any]]:
    """These blocks from Gram rows on the host, a few at a time: dense blocks of sparse columns cost more."""
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


@program
def _subset(quadratic: LinearModel, idx: Int[Array, "m"]) -> LinearModel:
    return quadratic.subset(idx)


@program
def _gram(quadratic: AbstractRestrictable, idx: Int[Array, "m"]) -> tuple[Float[Array, "m p"], Float[Array, "p"]]:
    equations = quadratic.normal_equations()
    return equations.rows(idx), equations.diagonal


@program
def _score(
    support: Support,
    may_leave: Bool[Array, "m"],
    enters: Bool[Array, "w"],
    features: Int[Array, "w"],
    block: tuple[Float[Array, "m m"], Float[Array, "m w"], Float[Array, "w"]],
    point: RefittedPoint | None,
) -> tuple[Array, tuple[Array, Array] | None]:
    """The largest eigenvalue of the 2 x 2 blocks; and, with a point, the most that each swap may lower F, rounding
    allowed for, and which swaps bring a column that is collinear with the others, but for what rounding could be.
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
    condition = jnp.max(own[:, 0] * d, initial=1)  # digits that the chosen columns lose to each other
    d = jnp.where(d > 0, d, 1)[:, None]
    g = -point.refit_grad[jnp.minimum(features, point.refit_grad.shape[0] - 1)]
    q = jnp.maximum(G - jnp.sum(rows * H, axis=0), 0) + H**2 / d
    usable = may_leave[:, None] & enters & (q > jnp.maximum(100 * eps * G, tiny))
    doubtful = may_leave[:, None] & enters & ~(q > 1e-9 * G) & ~(G <= tiny)  # NaN too
    q = jnp.where(usable, q, 1)
    gain, loss = (g + c / d * H) ** 2 / q, c**2 / d
    slack = SLACK * eps * (gain * (condition + G / q) + condition * loss)
    gain_bounds = (gain - loss + slack) / 2
    gain_bounds = jnp.where(jnp.isnan(gain_bounds), jnp.inf, gain_bounds)  # where terms overflow it may be anything
    return curvature, (jnp.where(usable, gain_bounds, -jnp.inf), doubtful)
