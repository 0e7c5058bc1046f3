"""The likelihood of a precision matrix on a support."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._types import Support, replace
from ..columns import scatter
from ..linalg import WHOLE, Box, Refit, dot, factorise, minimise_log_det
from .base import AbstractRestricted

if TYPE_CHECKING:
    from .precision import Precision


class RestrictedPrecision(AbstractRestricted):
    """L as a function of the pairs of a support and the diagonal."""

    objective: "Precision"
    support: Support
    mask: Bool[Array, "m"]
    target: Float[Array, ""]

    def unless_above(self, target: Float[Array, ""] | float) -> "RestrictedPrecision":
        return replace(self, target=target)

    def _scatter(self, z: Float[Array, "m"]) -> Float[Array, "p p"]:
        objective = self.objective
        return objective.unpack(scatter(z, self.support, objective.n_coefficients + objective.n_free))

    def _gather(self, A: Float[Array, "p p"]) -> Float[Array, "m"]:
        return jnp.where(self.mask, self.objective.pack(A)[self.support.idx], 0)

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        objective = self.objective
        x = scatter(z, self.support, objective.n_coefficients + objective.n_free)
        return objective.value(x)

    def _inverse(self, z: Float[Array, "m"]) -> Float[Array, "p p"]:
        return factorise(self._scatter(z), self.objective.interval).inverse

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return self._gather(self.objective.S - self._inverse(z))

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        W = self._inverse(z)
        return self._gather(dot(dot(W, self._scatter(v)), W))

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        # Of unit moves e = (i, j), f = (k, l) in the Frobenius norm: W_ik W_jl + W_il W_jk, halved for two diagonals.
        W, p, pairs = self._inverse(z), self.objective.n_variables, self.objective.n_coefficients
        idx = self.support.idx
        place = self.objective.flat[jnp.minimum(idx, max(pairs - 1, 0))]
        i = jnp.where(idx < pairs, place // p, idx - pairs)
        j = jnp.where(idx < pairs, place % p, idx - pairs)
        weight = jnp.where(idx < pairs, 1, jnp.sqrt(jnp.asarray(0.5, W.dtype)))
        H = W[i[:, None], i] * W[j[:, None], j] + W[i[:, None], j] * W[j[:, None], i]
        return H * weight[:, None] * weight

    def minimise(self, z0: Float[Array, "m"], box: Box = WHOLE, max_steps: int | None = None) -> Refit:
        """Minimiser over the support, by Newton-CG or ADMM (`Precision(debias=...)`); no box."""
        objective = self.objective
        allowed = self._scatter(jnp.ones_like(z0)) != 0
        goal = self.target - objective._constant()
        fit = minimise_log_det(
            objective.S, allowed, self._scatter(z0), objective.interval, goal, objective.debias, max_steps
        )
        return Refit(self._gather(fit.matrix), jnp.zeros((), bool), fit.solved)

    def without_each(self, z: Float[Array, "m"], n_free: int) -> Float[Array, "m"]:
        """L without each pair, with the two variances that it joined minimised out; infinite for the diagonal."""
        objective, p = self.objective, self.objective.n_variables
        A = self._scatter(z)
        factor = factorise(A, objective.interval)
        W, S = factor.inverse, objective.S
        variances, wanted = jnp.diagonal(W), jnp.diagonal(S)
        # The block of the pair given all others is the inverse of W's; o is what is left off its diagonal.
        block = jnp.maximum(variances[:, None] * variances - W**2, jnp.finfo(W.dtype).tiny)
        own = wanted[:, None] * wanted
        o = -W / block - A
        w = -2 * o * own / (1 + jnp.sqrt(1 + 4 * o**2 * own))
        rest = jnp.maximum(own - w**2, jnp.finfo(W.dtype).tiny)
        new = jnp.log(rest) + 2 * own / rest
        old = jnp.log(block) + (variances * wanted[:, None] + variances[:, None] * wanted) / block + 2 * S * A
        values = jnp.where(jnp.eye(p, dtype=bool), jnp.inf, self.value(z) + new - old)
        flat = jnp.concatenate([values.ravel()[objective.flat], jnp.full(p, jnp.inf, W.dtype)])
        return flat[self.support.idx]
