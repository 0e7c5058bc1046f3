"""A function of a user's own over the entries of a support, or a space of matrices."""

import abc

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .._tolerances import tolerance
from .._types import Support
from ..columns import scatter
from ..linalg import DAMPING, dot, lane_by_lane
from .base import AbstractObjective, AbstractRestricted


class RestrictedCustom(AbstractRestricted):
    """A `Custom` over the entries of a support, or a space of matrices."""

    objective: AbstractObjective
    mask: Bool[Array, "m"]

    @abc.abstractmethod
    def lift(self, z: Float[Array, "m"]) -> Float[Array, "d"]:
        """x, linear in z, whose entries outside of the mask count for nothing."""

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        return self.objective.value(self.lift(z))

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return jax.grad(self.value)(z)

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        return jax.jvp(self.grad, (z,), (v,))[1]

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        eye = jnp.eye(z.shape[0], dtype=z.dtype)
        H = jax.vmap(lambda v: self.hvp(z, v))(eye)
        if isinstance(damping, float):
            return H
        # For a Newton step what curves downwards is turned round. The damping that a refit starts with is none.
        rows = jnp.where(self.mask, jnp.sum(jnp.abs(H), axis=1), 0)
        own = jnp.where(jnp.diagonal(H) == 0, rows, jnp.abs(jnp.diagonal(H)))
        own = jnp.where(own > 0, own, jnp.max(jnp.abs(self.grad(z)), initial=0))
        scale = jnp.where(self.mask & (own > 0), lax.rsqrt(jnp.where(own > 0, own, 1)), 0)
        M = (H + H.T) / 2 * scale[:, None] * scale
        most = jnp.max(jnp.sum(jnp.abs(M), axis=1), initial=0)
        values, vectors = lane_by_lane(eigen)(M)
        down = jnp.where(values < -tolerance("pivot", z.dtype) * most, -2 * values, 0)
        roots = jnp.where(scale > 0, 1 / jnp.where(scale > 0, scale, 1), 0)
        turned = dot(vectors * down, vectors.T) * roots[:, None] * roots
        return H + turned + jnp.maximum(damping - DAMPING, 0) * (1 + most) * own * eye

    def grad_terms(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        """Estimated from the curvature and F: nothing else is known of what the gradient sums."""
        H = jnp.abs(self.hess(z))
        return dot(H, jnp.abs(z)) + jnp.sqrt(jnp.diagonal(H) * jnp.abs(self.value(z)))


class CustomOnSupport(RestrictedCustom):
    """A `Custom` over the entries of a support."""

    support: Support

    def lift(self, z: Float[Array, "m"]) -> Float[Array, "d"]:
        return scatter(z, self.support, self.objective.n_coefficients)


class CustomLeft(RestrictedCustom):
    """A `Custom` over the matrices `left @ A`, as a function of A, row by row."""

    left: Float[Array, "p r"]

    def lift(self, z: Float[Array, "m"]) -> Float[Array, "d"]:
        return dot(self.left, z.reshape(self.left.shape[1], -1)).ravel()


def eigen(H: Float[Array, "m m"]) -> tuple[Float[Array, "m"], Float[Array, "m m"]]:
    values, vectors = jnp.linalg.eigh(H)
    return values, vectors
