"""Small symmetric systems with padded rows.

The float64 parts hold no matrix product: under `vmap` a branch or loop body is batched after its `enable_x64` context
has closed, and the batching rule of a product would then cast it back to float32.

On a CPU a batch is factorised lane by lane. Batched LAPACK calls wait for the thread pool that they run in, so two
independent ones can block each other for ever (jaxlib 0.10).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from .._tolerances import tolerance
from .lanes import any_lane, lane_by_lane, one_by_one


class MaskedFactor(NamedTuple):
    """A factorised symmetric system, held in float64 whatever the dtype of the data.

    Attributes:
        factor: (m, m) Cholesky factor of the system scaled to unit diagonal, identity on padded rows.
        vectors: (m, m) eigenvectors of the scaled system where it is singular; zeros elsewhere.
        inverses: (m,) inverses of its eigenvalues, zero for those that count as zero.
        scale: (m,) the scaling; zero on rows that are padded or whose diagonal is zero.
        singular: the system is singular to working precision.
    """

    factor: Array
    vectors: Array
    inverses: Array
    scale: Array
    singular: Bool[Array, ""]

    def solve(self, b: Float[Array, "m"]) -> Float[Array, "m"]:
        """x with A x = b on the rows of the system, zero elsewhere; minimum norm (scaled) if singular."""
        return lane_by_lane(_solve)(self, b[:, None]).ravel()

    def inverse(self, dtype: DTypeLike) -> Float[Array, "m m"]:
        """The (pseudo-)inverse on the rows of the system, zero elsewhere."""
        return lane_by_lane(_solve)(self, jnp.eye(self.factor.shape[-1], dtype=dtype))


def masked_factor(A: Float[Array, "m m"], mask: Bool[Array, "m"]) -> MaskedFactor:
    """Factorise the rows and columns of a symmetric positive semidefinite A where `mask` holds.

    A row whose diagonal is zero (an all-zero column of the design) is left out like a padded one. The system counts as
    singular if a squared pivot of the scaled matrix falls below 3e-5 (1e-10 in float64).
    """
    return lane_by_lane(_factor)(A, mask)


def _solve(system: MaskedFactor, B: Float[Array, "m b"]) -> Float[Array, "m b"]:
    with jax.enable_x64(True):
        rhs = system.scale[:, None] * B.astype(jnp.float64)
        z = jax.scipy.linalg.cho_solve((system.factor, True), rhs)
        turned = jnp.sum(system.vectors[:, :, None] * rhs[:, None, :], axis=0) * system.inverses[:, None]
        turned = jnp.sum(system.vectors[:, :, None] * turned[None], axis=1)
        return (system.scale[:, None] * jnp.where(system.singular, turned, z)).astype(B.dtype)


def _factor(A: Float[Array, "m m"], mask: Bool[Array, "m"]) -> MaskedFactor:
    tol = tolerance("pivot", A.dtype)
    with jax.enable_x64(True):
        A = A.astype(jnp.float64)
        diagonal = jnp.diagonal(A)
        live = mask & (diagonal > 0)
        scale = jnp.where(live, lax.rsqrt(jnp.where(live, diagonal, 1.0)), 0.0)
        eye = jnp.eye(A.shape[0], dtype=jnp.float64)
        both = live[:, None] & live[None, :] & (eye == 0)
        M = jnp.where(both, A * scale[:, None] * scale[None, :], eye)
        factor = jnp.linalg.cholesky(M)
        singular = ~jnp.all(jnp.diagonal(factor) ** 2 > tol)  # a failed factorisation is NaN, and counts as singular
        factor = jnp.where(singular, eye, factor)

        def eigen(M: Float[Array, "m m"]) -> tuple[Float[Array, "m m"], Float[Array, "m"]]:
            values, vectors = jnp.linalg.eigh(jnp.where(singular, M, eye))
            floor = tol * values[-1]
            return vectors, jnp.where(values > floor, 1.0 / jnp.maximum(values, floor), 0.0)

        def nothing(M: Float[Array, "m m"]) -> tuple[Float[Array, "m m"], Float[Array, "m"]]:
            return jnp.zeros_like(M), jnp.zeros_like(diagonal)

        # Lane by lane the branch is taken, or not, for each lane.
        rare = singular if one_by_one() else any_lane(singular)
        vectors, inverses = lax.cond(rare, eigen, nothing, M)
    return MaskedFactor(factor, vectors, inverses, scale, singular)
