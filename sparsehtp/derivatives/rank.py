"""Derivatives of solutions of a given rank, on the tangent space of the manifold of matrices of that rank.

Around W = U S V' (r triplets) the manifold has the smooth chart

    W(Z) = W + P Z + (Z V - U A) (S + A)^-1 (U'Z - A V'),    A = U'Z V,

with P the projection onto the tangent space, of which alone it depends. A solution is a stationary point of F(W(Z)) at
Z = 0: its Jacobian there is the Riemannian Hessian, curvature of the manifold included.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .._tolerances import tolerance
from .._types import Factors
from ..linalg import dot, truncated_newton
from ..objectives import AbstractObjective
from ..thresholds import Rank
from .implicit import AbstractEquations, equations


class RankEquations(AbstractEquations):
    """Stationarity on the matrices whose rank is that of x; coordinates are (Z, free entries)."""

    objective: AbstractObjective
    threshold: Rank
    x: Float[Array, "d"]
    factors: Factors
    quadratic = False
    kinked = False

    @property
    def mask(self) -> Bool[Array, "d"]:
        return jnp.ones(self.x.shape, bool)

    def scale(self, z: Float[Array, "d"]) -> Float[Array, "d"]:
        """No preconditioner."""
        return jnp.ones_like(z)

    def point(self, x: Float[Array, "d"]) -> Float[Array, "m"]:
        return self.threshold.join(jnp.zeros(self.threshold.shape, x.dtype), x)

    def lift(self, z: Float[Array, "m"]) -> Float[Array, "d"]:
        U, values, V, mask = self.factors
        Z = self.threshold.matrix(z)
        right, left = dot(Z, V), dot(U.T, Z)
        A = dot(left, V)
        right, left = right - dot(U, A), left - dot(A, V.T)
        core = jnp.diag(jnp.where(mask, values, 1)) + A
        W = self.threshold.matrix(self.x) + dot(dot(U, A), V.T) + dot(right, V.T) + dot(U, left)
        return self.threshold.join(W + dot(right, jnp.linalg.solve(core, left)), z)

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        x = self.lift(z)
        return self.objective.value(x) + self.threshold.value(x)

    def residual(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        x, pull = jax.vjp(self.lift, z)
        return pull(self.objective.value_and_grad(x)[1])[0]

    grad = residual

    def product(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        across = v - self.threshold.tangent(v, self.factors)  # where the chart is constant
        return jax.jvp(self.residual, (z,), (v,))[1] + across

    def hessian_product(self, z: Float[Array, "d"]) -> Callable[[Array], Array]:
        """v -> product(z, v)."""
        return lambda v: self.product(z, v)

    def polished(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        start = jnp.linalg.norm(self.objective.value_and_grad(jnp.zeros_like(self.x))[1])
        wanted = ~(jnp.linalg.norm(self.residual(z)) <= tolerance("gradient", z.dtype) * start)

        def refit(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            return truncated_newton(self, carry[0]).z, jnp.zeros((), bool)

        # A loop of at most one round, which a batch makes only if one of its lanes needs it.
        return lax.while_loop(lambda carry: carry[1], refit, (z, wanted))[0]


@equations.register(Rank)
def _(threshold: Rank, objective: AbstractObjective, x: Float[Array, "d"], factors: Factors) -> RankEquations:
    # The triplets of x itself: those of the last step may belong to another iterate, or be zero to rounding.
    factors = threshold.factors(threshold.matrix(x))
    present = factors.mask & (factors.values > tolerance("rank", x.dtype) * jnp.max(factors.values, initial=0))
    left, right = jnp.where(present, factors.left, 0), jnp.where(present, factors.right, 0)
    return RankEquations(objective, threshold, x, Factors(left, jnp.where(present, factors.values, 0), right, present))
