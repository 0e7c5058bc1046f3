"""A matrix of low rank plus a sparse one, with the scikit-learn interface."""

import numbers
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from .._programs import program
from .._types import TableLike
from ..linalg import dot, largest
from ..thresholds.base import next_power_of_two
from . import parameters
from .arrays import validated
from .failures import all_or_nothing, warn

OVERSAMPLING = 5  # directions beside the rank, that speed up the subspace iteration
STAGE_TOL = 1e-3  # a stage of lower rank ends at so small a move
STAGE_STEPS = 50
FLOOR = 1e-14  # a move below this is rounding


@dataclass(eq=False, repr=False)
class RobustPCA(BaseEstimator):
    """A matrix split into one of low rank and one of few nonzero entries.

        min_{L, S} ||X - L - S||_F^2 / 2   subject to rank L <= r, ||S||_0 <= k

    Alternating projections: S keeps the k largest entries of X - L, and L the r leading singular triplets of X - S, by
    subspace iteration from the last one. The rank grows from 1 to r in stages, so that large singular values are found
    before small ones. The last stage goes on until both are settled: then L is fitted to the entries outside of the
    support alone (S takes up the others whole), which is the exact refit on it.

    Args:
        rank: r, 0 <= r <= min(n, p).
        k: entries of S, an integer; a float below 1 is a share of the n p entries.
        tol: stop where a step moves L by at most `tol` times the norm of X.
        max_iter: step limit.

    Attributes:
        low_rank_: (n, p) L, and sparse_: (n, p) S.
        support_: (n, p) mask of the entries of S that are nonzero.
        components_: (rank, p) right singular vectors of L, and singular_values_: (rank,), largest first.
        objective_value_: the minimum found.
        n_iter_: steps, stages included.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Raises:
        ValueError: in `fit`, for data or parameters out of range; the message names the argument.

    Warns:
        ConvergenceWarning: where the step limit was reached.

    Guarantee: the objective is minimal in S given L, and, where it converged, stationary in L given S. L and S are
    recovered exactly, and from any start of this kind, where L is incoherent (its singular vectors are spread over rows
    and columns) and no row or column has more than a small share of corrupted entries, about 1 / (incoherence r)
    (Netrapalli et al. 2014, for thresholds that fall from stage to stage; here their number k is given instead). The
    problem is not convex: otherwise another local minimum may be found.

    It fails where L itself has single large entries, where whole rows or columns are corrupted, or where k is below the
    number of corruptions; with a k well above it converges slowly, and to another L. The data are not centred.
    Multiples of X give the same multiples of L and S. Computes in float64.

    Example:
        >>> model = RobustPCA(2, k=0.05).fit(X)
        >>> model.low_rank_, np.argwhere(model.support_)

    Source: Netrapalli, Niranjan, Sanghavi, Anandkumar and Jain (2014).
    """

    rank: int = 1
    k: float = 0.05
    _: KW_ONLY
    tol: float = 1e-9
    max_iter: int = 1000
    # What `fit` sets, and `sht.load` takes: nothing else, in these types and shapes.
    low_rank_: Float[np.ndarray, "n p"] = field(init=False)
    sparse_: Float[np.ndarray, "n p"] = field(init=False)
    support_: Bool[np.ndarray, "n p"] = field(init=False)
    components_: Float[np.ndarray, "rank p"] = field(init=False)
    singular_values_: Float[np.ndarray, "rank"] = field(init=False)
    objective_value_: float = field(init=False)
    n_iter_: int = field(init=False)

    @all_or_nothing
    def fit(self, X: TableLike, y: Any = None) -> Self:
        """Split X.

        Args:
            X: (n, p) array or data frame, float32 or float64.
            y: not used.
        """
        X = validated(self, X)
        rank = parameters.checked_count("rank", self.rank, 0)
        if rank > min(X.shape):
            raise ValueError(f"rank: is {rank}, but a {X.shape} matrix has rank {min(X.shape)} at most; lower rank.")
        k = self._check_k(X.size)
        max_iter, tol = parameters.checked_count("max_iter", self.max_iter, 1), parameters.checked_tolerance(self.tol)
        # By a power of two, so that multiples of X take the same steps.
        scale = np.ldexp(1.0, max(int(np.frexp(np.abs(X).max())[1]), -1000))
        M = X.astype(float) / scale
        width = min(next_power_of_two(max(rank, 1)) + OVERSAMPLING, min(X.shape))
        with jax.enable_x64(True):
            found = _split(M, np.int32(rank), np.int32(k), width, tol, np.int32(max_iter))
            L, S, right, values = (np.asarray(part) for part in found[:4])
        self.objective_value_ = float(0.5 * np.sum((M - L - S) ** 2) * scale**2)
        self.low_rank_, self.sparse_ = ((part * scale).astype(X.dtype) for part in (L, S))
        self.support_ = S != 0
        self.singular_values_ = (values[:rank] * scale).astype(X.dtype)
        self.components_ = right.T[:rank].astype(X.dtype)
        self.n_iter_ = int(found.steps)
        if not found.done:
            sentence = "RobustPCA: stopped at the step limit before it settled; raise max_iter or tol."
            warn(sentence, ConvergenceWarning)
        return self

    def _check_k(self, entries: int) -> int:
        k = self.k
        if isinstance(k, numbers.Real) and not isinstance(k, numbers.Integral) and 0 <= float(k) < 1:
            return round(float(k) * entries)
        count = parameters.checked_count("k", k, 0)
        if count > entries:
            raise ValueError(f"k: is {count}, but X has {entries} entries; lower k.")
        return count


class _Step(NamedTuple):
    L: Float[Array, "n p"]
    S: Float[Array, "n p"]
    right: Float[Array, "p width"]
    values: Float[Array, "width"]
    stage: Int[Array, ""]  # the rank in use
    in_stage: Int[Array, ""]
    steps: Int[Array, ""]
    done: Bool[Array, ""]


def _split_matrix(
    M: Float[Array, "n p"], rank: Array, k: Array, width: int, tol: Array | float, max_iter: Array
) -> _Step:
    size = jnp.linalg.norm(M)

    def sparse(residual: Array) -> Array:
        return jnp.where(largest(jnp.abs(residual).ravel(), k).reshape(M.shape), residual, 0)

    def step(c: _Step) -> _Step:
        # One step of subspace iteration on T = M - S, and the best rank-r matrix in the subspace.
        T = M - c.S
        left = jnp.linalg.qr(dot(T, c.right))[0]
        right, values, rotation = jnp.linalg.svd(dot(T.T, left), full_matrices=False)
        keep = jnp.arange(width) < c.stage
        L = dot(dot(left, rotation.T) * jnp.where(keep, values, 0), right.T)
        moved = jnp.linalg.norm(L - c.L)
        last = c.stage >= rank
        settled = moved <= jnp.where(last, jnp.maximum(tol, FLOOR), STAGE_TOL) * size
        next_stage = ~last & (settled | (c.in_stage + 1 >= STAGE_STEPS))
        return _Step(
            L,
            sparse(M - L),
            right,
            jnp.where(keep, values, 0),
            c.stage + next_stage,
            jnp.where(next_stage, 0, c.in_stage + 1),
            c.steps + 1,
            last & settled,
        )

    S = sparse(M)
    zero = jnp.int32(0)
    right = jax.random.normal(jax.random.key(0), (M.shape[1], width), M.dtype)
    start = _Step(
        jnp.zeros_like(M), S, right, jnp.zeros(width, M.dtype), jnp.minimum(1, rank), zero, zero, jnp.zeros((), bool)
    )
    return lax.while_loop(lambda c: ~c.done & (c.steps < max_iter), step, start)


_split = program(_split_matrix, static_argnames=("width",))
