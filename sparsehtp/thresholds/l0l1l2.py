"""The L0 + L1 + L2 penalty."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._types import ArrayLike, Support, is_concrete, replace
from ..linalg import top_k
from .base import AbstractSupportThreshold, check_count


class L0L1L2(AbstractSupportThreshold):
    """The penalty l0 ||w||_0 + l1 ||w||_1, beside the objective's own (l2/2) ||w||^2.

        min_w F(w) + l0 #{j : w_j != 0} + l1 sum_j |w_j|

    Called on z with step size t it is the proximal map: u = sign(z) (|z| - t l1)_+, kept where |u| >= sqrt(2 t l0).
    Intercepts are not penalised. With a standardising objective the penalty acts on standardised coefficients. In sums
    over n samples, as [DIOM] writes them, lam0 = n l0, lam1 = n l1, lam2 = n l2 / 2.

    Args:
        l0: price of a nonzero coefficient, >= 0, in units of the mean loss; may be traced.
        l1: price of magnitude, >= 0; may be traced.
        k_max: static limit of nonzeros; more make the result `support_overflow`, and no more than
            k_max + 1 are kept. None: p. A smaller limit makes `IHT` faster, since a step then touches k_max columns.

    Raises:
        ValueError: if l0 or l1 is negative or not finite, or k_max is below 1.

    Source: [DIOM] equation (1); Hazimeh and Mazumder (2020).
    """

    l0: Float[Array, ""] | float
    l1: Float[Array, ""] | float
    k_max: int | None = eqx.field(static=True)
    n_free: int = eqx.field(static=True)

    unit = "entries"
    structure = "penalty"

    def __init__(self, l0: ArrayLike, l1: ArrayLike = 0.0, k_max: int | None = None):
        self.l0 = _price("l0", l0)
        self.l1 = _price("l1", l1)
        self.k_max = k_max if k_max is None else int(check_count("k_max", k_max))
        self.n_free = 0
        if self.k_max is not None and self.k_max < 1:
            raise ValueError(f"k_max: must be at least 1, got {self.k_max}.")

    def bind(self, objective: Any) -> Self:
        p = objective.n_coefficients
        if getattr(objective, "rescaled", False) and is_concrete(self.l1) and np.any(np.asarray(self.l1) > 0):
            raise ValueError("l1: columns of X are of an extreme size; standardize, or divide them by a constant.")
        prices = {name: jnp.asarray(getattr(self, name), objective.dtype) for name in ("l0", "l1")}
        return replace(self, k_max=min(p, p if self.k_max is None else self.k_max), n_free=objective.n_free, **prices)

    def __call__(
        self, z: Float[Array, "d"], step_size: Float[Array, ""] | float = 1.0
    ) -> tuple[Float[Array, "d"], Support]:
        p = z.shape[0] - self.n_free
        u = jnp.sign(z[:p]) * jnp.maximum(jnp.abs(z[:p]) - step_size * self.l1, 0)
        # the root of each factor: u^2 and step_size l0 underflow where u and l0 are small
        u = jnp.where(jnp.abs(u) >= jnp.sqrt(2 * step_size) * jnp.sqrt(self.l0), u, 0)
        support = self.support(u)
        if support.idx.shape[0] < p + self.n_free:
            u = jnp.zeros_like(u).at[support.idx[self.n_free :]].add(u[support.idx[self.n_free :]])
        return jnp.concatenate([u, z[p:]]), support

    def support(self, w: Float[Array, "p"]) -> Support:
        """The nonzeros of w after the free entries, at most the `k_max + 1` largest: the last one shows an overflow."""
        p = w.shape[0]
        rows = p if self.k_max is None else min(self.k_max + 1, p)
        idx = jnp.arange(p, dtype=jnp.int32) if rows == p else top_k(jnp.abs(w), rows)
        free = p + jnp.arange(self.n_free, dtype=jnp.int32)
        return Support(jnp.concatenate([free, idx]), jnp.concatenate([jnp.ones(self.n_free, bool), w[idx] != 0]))

    def value(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        w = x[: x.shape[0] - self.n_free]
        return self.l0 * jnp.sum(w != 0) + self.l1 * jnp.sum(jnp.abs(w))

    def overflow(self, x: Float[Array, "d"]) -> Bool[Array, ""]:
        w = x[: x.shape[0] - self.n_free]
        return jnp.zeros((), bool) if self.k_max is None else jnp.sum(w != 0) > self.k_max

    def entries(self, x: Float[Array, "d"], support: Support) -> Support:
        return support

    def clip(self, z: Float[Array, "d"]) -> Float[Array, "d"]:
        """z itself: there are no bounds."""
        return z

    def free_gradient(self, x: Float[Array, "d"], grad: Float[Array, "d"]) -> Float[Array, "d"]:
        # with that of the l1 term, where x is not zero
        return grad + self.l1 * jnp.sign(x) * (jnp.arange(x.shape[0]) < x.shape[0] - self.n_free)


def _price(name: str, value: Any) -> Any:
    if is_concrete(value) and not (np.ndim(value) == 0 and np.isfinite(value) and value >= 0):
        raise ValueError(f"{name}: must be a finite number >= 0, got {value}.")
    return float(value) if is_concrete(value) else value
