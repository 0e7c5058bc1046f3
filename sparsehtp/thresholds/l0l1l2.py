"""The L0 + L1 + L2 penalty."""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._types import AnyArray, ArrayLike, Scalar, Support, is_concrete, replace
from ..linalg import top_k
from .base import Bindable, check_count, check_keep, check_keep_range
from .bounded import AbstractBounded, check_bounds, floats


class L0L1L2(AbstractBounded):
    """The penalty l0 ||w||_0 + l1 ||w||_1, beside the objective's own (l2/2) ||w||^2.

        min_w F(w) + sum_j c_j (l0 1[w_j != 0] + l1 |w_j|)   subject to lower <= w <= upper

    with the relative prices c_j, 1 by default. Called on z with step size t it is the proximal map: u = sign(z)
    (|z| - t l1 c)_+ within the bounds, kept where that gains t l0 c (without bounds: where |u| >= sqrt(2 t l0 c)).
    Intercepts are not penalised. With a standardising objective the penalty acts on standardised coefficients. In sums
    over n samples, as [DIOM] writes them, lam0 = n l0, lam1 = n l1, lam2 = n l2 / 2.

    Args:
        l0: price of a nonzero coefficient, >= 0, in units of the mean loss; may be traced.
        l1: price of magnitude, >= 0; may be traced.
        k_max: static limit of nonzeros; more make the result `support_overflow`, and no more than
            k_max + 1 are kept. None: p. A smaller limit makes `IHT` faster, since a step then touches k_max columns.
        prices: c, (p,), >= 0. None: ones.
        keep: indices (or a boolean mask) of features that pay neither l0 nor l1.
        lower: lower bounds, <= 0, a scalar or (p,), in original units. All solvers but `PrimalDual` take bounds.
        upper: upper bounds, >= 0.

    Raises:
        ValueError: if l0, l1 or a price is negative or not finite, k_max is below 1, a bound excludes zero, or keep is
            out of range.

    Source: [DIOM] equation (1); Hazimeh and Mazumder (2020).
    """

    l0: Float[Array, ""] | float
    l1: Float[Array, ""] | float
    prices: Float[AnyArray, "p"] | None
    keep: Int[AnyArray, "n_keep"]
    lower: Float[AnyArray, "..."] | None
    upper: Float[AnyArray, "..."] | None
    k_max: int | None = eqx.field(static=True)
    n_free: int = eqx.field(static=True)

    kind = "entries"
    penalises = True

    def __init__(
        self,
        l0: Scalar,
        l1: Scalar = 0.0,
        k_max: int | None = None,
        prices: ArrayLike | None = None,
        keep: ArrayLike | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ):
        self.l0 = _price("l0", l0)
        self.l1 = _price("l1", l1)
        self.prices = None if prices is None else floats("prices", prices)
        self.keep = check_keep(keep)
        self.lower, self.upper = check_bounds(lower, upper)
        self.k_max = k_max if k_max is None else int(check_count("k_max", k_max))
        self.n_free = 0
        if self.k_max is not None and self.k_max < 1:
            raise ValueError(f"k_max: must be at least 1, got {self.k_max}.")
        if isinstance(self.prices, np.ndarray) and not (np.isfinite(self.prices).all() and np.all(self.prices >= 0)):
            raise ValueError(f"prices: needs finite numbers >= 0, got {self.prices}.")

    def bind(self, objective: Bindable) -> Self:
        p = objective.n_coefficients
        if objective.rescaled and is_concrete(self.l1) and np.any(np.asarray(self.l1) > 0):
            raise ValueError("l1: columns of X are of an extreme size; standardize, or divide them by a constant.")
        check_keep_range(self.keep, p, "features")
        prices = self.prices
        if prices is not None and prices.shape != (p,):
            raise ValueError(f"prices: needs one value per feature ({p}), got shape {prices.shape}.")
        if prices is not None or self.keep.shape[0]:
            prices = np.ones(p) if prices is None else prices
            isin, where = (np.isin, np.where) if is_concrete(prices, self.keep) else (jnp.isin, jnp.where)
            prices = _typed(where(isin(np.arange(p), self.keep), 0, prices), objective)
        both = {name: _typed(getattr(self, name), objective) for name in ("l0", "l1")}
        k_max = min(p, p if self.k_max is None else self.k_max)
        bounds = self._bind_bounds(objective)
        return replace(self, prices=prices, k_max=k_max, n_free=objective.n_free, **both, **bounds)

    def priced(self, p: int) -> tuple[Float[Array, "p"], Float[Array, "p"]]:
        """l0 and l1 of every feature."""
        each = jnp.ones(p) if self.prices is None else jnp.asarray(self.prices)
        l0, l1 = jnp.asarray(self.l0), jnp.asarray(self.l1)
        return l0 * each.astype(l0.dtype), l1 * each.astype(l1.dtype)

    def __call__(
        self, z: Float[Array, "d"], step_size: Float[Array, ""] | float = 1.0
    ) -> tuple[Float[Array, "d"], Support]:
        p = z.shape[0] - self.n_free
        l0, l1 = self.priced(p)
        u = jnp.sign(z[:p]) * jnp.maximum(jnp.abs(z[:p]) - step_size * l1, 0)
        # the root of each factor: u^2 and step_size l0 underflow where u and l0 are small
        worth = ~(self.gains(z.at[:p].set(u)) < jnp.sqrt(2 * step_size) * jnp.sqrt(l0))  # NaN stays
        u = jnp.where(worth, self._into_bounds(u), 0).astype(z.dtype)
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
        l0, l1 = self.priced(w.shape[0])
        return jnp.sum(l0 * (w != 0)) + jnp.sum(l1 * jnp.abs(w))

    def overflow(self, x: Float[Array, "d"]) -> Bool[Array, ""]:
        w = x[: x.shape[0] - self.n_free]
        return jnp.zeros((), bool) if self.k_max is None else jnp.sum(w != 0) > self.k_max

    def entries(self, x: Float[Array, "d"], support: Support) -> Support:
        return support

    def free_gradient(self, x: Float[Array, "d"], grad: Float[Array, "d"]) -> Float[Array, "d"]:
        # with that of the l1 term, where x is not zero
        p = x.shape[0] - self.n_free
        return super().free_gradient(x, grad.at[:p].add(self.priced(p)[1] * jnp.sign(x[:p])))


def _typed(value: ArrayLike, objective: Bindable) -> AnyArray:
    """A value in the objective's dtype, whatever JAX's own precision is."""
    return (np if is_concrete(value) else jnp).asarray(value, objective.dtype)


def _price(name: str, value: Scalar) -> Scalar:
    if is_concrete(value) and not (np.ndim(value) == 0 and np.isfinite(value) and value >= 0):
        raise ValueError(f"{name}: must be a finite number >= 0, got {value}.")
    return float(value) if is_concrete(value) else value
