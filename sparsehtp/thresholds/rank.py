"""At most rank r."""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._tolerances import tolerance
from .._types import AnyArray, ArrayLike, Factors, is_concrete, replace
from ..linalg import dot, leading_triplets
from .base import AbstractThreshold, Bindable, check_count, next_power_of_two


class Rank(AbstractThreshold):
    """Matrices of rank at most r: {W of shape (p, c) : rank W <= r}.

    Called on the x of an objective it keeps the r leading singular triplets of the coefficients: the projection in the
    Frobenius norm (Eckart and Young). The intercept row is free. The `Factors` that it returns take the place of a
    support. With standardised columns the singular values are those of the standardised coefficients.

    Args:
        r: rank, 0 <= r <= min(p, c); an integer or a traced integer.
        r_max: static upper limit of r; one compiled program serves every r up to it. Default: the next power of two.

    Raises:
        ValueError: if r is negative, not an integer or too large.
        TypeError: for an objective whose coefficients are no matrix.

    Guarantee: the projection is unique where the r-th and the next singular value differ; where they nearly agree, so
    do the distances of all choices.

    Cost: one product with the small side's Gram matrix, O(p c min(p, c)), and O(min(p, c)^3); see `leading_triplets`.
    """

    r: Int[AnyArray, ""]
    r_max: int | None = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)  # (p, c), once bound
    n_free: int = eqx.field(static=True)

    kind = "rank"
    counts = ("r",)

    def __init__(self, r: ArrayLike, r_max: int | None = None):
        self.r = check_count("r", r)
        self.r_max = None if r_max is None else int(check_count("r_max", r_max))
        self.shape, self.n_free = (), 0

    def bind(self, objective: Bindable) -> Self:
        shape = objective.external_shape
        if len(shape) != 2 or np.prod(shape) != objective.n_coefficients:
            raise TypeError(
                f"threshold: Rank needs an objective over matrices such as sht.MultiResponse(X, Y), got a "
                f"{type(objective).__name__}."
            )
        most = min(shape)
        if is_concrete(self.r) and np.max(self.r) > most:
            raise ValueError(f"r: is {int(np.max(self.r))}, but a {shape} matrix has rank {most} at most; lower r.")
        if self.r_max is None and not is_concrete(self.r):
            raise ValueError("r_max: a traced or batched r needs a static r_max; pass r_max to the threshold.")
        if self.r_max is not None and is_concrete(self.r) and np.max(self.r) > self.r_max:
            raise ValueError(f"r_max: is {self.r_max}, below r = {int(np.max(self.r))}; raise r_max.")
        r_max = next_power_of_two(int(np.max(self.r))) if self.r_max is None else self.r_max
        return replace(self, r_max=min(r_max, most), shape=shape, n_free=objective.n_free)

    def matrix(self, x: Float[Array, "d"]) -> Float[Array, "p c"]:
        """The coefficients of x as a matrix."""
        return x[: x.shape[0] - self.n_free].reshape(self.shape)

    def factors(self, W: Float[Array, "p c"]) -> Factors:
        """The r leading triplets of a matrix."""
        return triplets(W, jnp.arange(min(W.shape) if self.r_max is None else self.r_max) < self.r)

    def join(self, W: Float[Array, "p c"], x: Float[Array, "d"]) -> Float[Array, "d"]:
        """The coefficients W with the free entries of x."""
        return jnp.concatenate([W.ravel(), x[x.shape[0] - self.n_free :]])

    def __call__(
        self, z: Float[Array, "d"], step_size: Float[Array, ""] | float = 1.0
    ) -> tuple[Float[Array, "d"], Factors]:
        factors = self.factors(self.matrix(z))
        return self.join(dot(factors.left * factors.values, factors.right.T), z), factors

    def overflow(self, x: Float[Array, "d"]) -> Bool[Array, ""]:
        return jnp.zeros((), bool) if self.r_max is None else jnp.asarray(self.r > self.r_max)

    def entries(self, x: Float[Array, "d"], support: Factors) -> None:
        return None

    def tangent(self, grad: Float[Array, "d"], support: Factors) -> Float[Array, "d"]:
        # U U'G + G V V' - U U'G V V': moves that keep the rank to first order.
        G = self.matrix(grad)
        left = dot(support.left, dot(support.left.T, G))
        return self.join(left + dot(dot(G - left, support.right), support.right.T), grad)

    def size(self, support: Factors) -> Int[Array, ""]:
        return jnp.sum(support.mask, dtype=jnp.int32)

    def differs(self, a: Factors, b: Factors) -> Bool[Array, ""]:
        return (subspace_distance(a.left, b.left) > tolerance("subspace", a.left.dtype)) | jnp.any(a.mask != b.mask)


def triplets(W: Float[Array, "p c"], mask: Bool[Array, "r"]) -> Factors:
    """The leading triplets of a matrix, zero where a mask says so."""
    left, values, right = leading_triplets(W, mask.shape[0])
    return Factors(jnp.where(mask, left, 0), jnp.where(mask, values, 0), jnp.where(mask, right, 0), mask)


def subspace_distance(A: Array, B: Array) -> Array:
    """Largest distance from a (unit or zero) column of one basis to the span of the other."""
    overlap = dot(A.T, B)
    return jnp.maximum(
        jnp.max(jnp.linalg.norm(A - dot(B, overlap.T), axis=0), initial=0.0),
        jnp.max(jnp.linalg.norm(B - dot(A, overlap), axis=0), initial=0.0),
    )
