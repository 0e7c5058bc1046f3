"""Quadratic objectives given by a matrix, for example a Gram matrix."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._types import ArrayLike, DType, Support, TableLike, check_finite, check_symmetric, floating, replace
from ..columns import gather
from ..columns.checks import check_l2, check_weights
from ..linalg import dot, largest_eigenvalue, random_start
from .base import AbstractRestrictable, AbstractRestricted
from .normal_equations import GramEquations


class QuadraticForm(AbstractRestrictable):
    """A quadratic given by its matrix.

        F(x) = x'A x / 2 - b'x + constant

    The least-squares objective in Gram form is A = X'X/n + l2 I, b = X'y/n, constant = y'y/(2n); see `from_data`.

    Args:
        A: (p, p) symmetric positive semidefinite.
        b: (p,).
        constant: scalar.

    Raises:
        ValueError: for misshapen, nonfinite or asymmetric input (checked on concrete arrays only).
    """

    A: Float[Array, "p p"]
    b: Float[Array, "p"]
    constant: Float[Array, ""]

    castable = True
    ifo_per_gradient = 1
    quadratic = True

    def __init__(self, A: ArrayLike, b: ArrayLike, constant: ArrayLike = 0.0) -> None:
        self.A = floating(A)
        check_finite("A", self.A)
        if self.A.ndim == 2 and self.A.shape[0] == self.A.shape[1]:
            check_symmetric("A", self.A)
            self.A = self.A / 2 + self.A.T / 2  # its gradient is then that of its value
        self.b = jnp.asarray(b, self.A.dtype)
        self.constant = jnp.asarray(constant, self.A.dtype)

    def __check_init__(self) -> None:
        if self.A.ndim != 2 or self.A.shape[0] != self.A.shape[1] or self.A.shape[0] == 0:
            raise ValueError(f"A: needs a square matrix, got shape {self.A.shape}.")
        if self.b.shape != self.A.shape[:1]:
            raise ValueError(f"b: needs shape ({self.A.shape[0]},) to match A, got {self.b.shape}.")
        for name in ("b", "constant"):
            check_finite(name, getattr(self, name))

    @classmethod
    def from_data(
        cls, X: TableLike, y: ArrayLike, l2: ArrayLike = 0.0, sample_weight: ArrayLike | None = None
    ) -> "QuadraticForm":
        """The weighted least-squares objective of `LinearModel(X, y, Squared(), l2, sample_weight)` in Gram form."""
        X = floating(X)
        y = jnp.asarray(y, X.dtype)
        s = jnp.ones_like(y) if sample_weight is None else jnp.asarray(sample_weight, X.dtype)
        for name, value in (("X", X), ("y", y), ("l2", l2), ("sample_weight", s)):
            check_finite(name, value)
        l2 = jnp.asarray(l2, X.dtype)
        check_l2(l2, X.shape[1])
        check_weights(s)
        s = s / jnp.sum(s)
        ridge = jnp.broadcast_to(l2, (X.shape[1],))
        return cls(dot(X.T * s, X) + jnp.diag(ridge), dot(s * y, X), 0.5 * dot(s, y**2))

    @property
    def n_coefficients(self) -> int:
        return self.A.shape[0]

    @property
    def dtype(self) -> DType:
        return self.A.dtype

    def forward(self, x: Float[Array, "d"], support: Support | None = None) -> Array:  # A x
        return dot(self.A, x) if support is None else dot(gather(x, support), self.A[support.idx])

    def value_at(self, forward: Array, x: Float[Array, "d"]) -> Float[Array, ""]:
        return 0.5 * dot(x, forward) - dot(self.b, x) + self.constant

    def grad_at(self, forward: Array, x: Float[Array, "d"]) -> Float[Array, "d"]:
        return forward - self.b

    def curvature_at(self, forward: Array, v: Float[Array, "d"], support: Support | None) -> Float[Array, ""]:
        return dot(v, self.forward(v, support))

    def lipschitz(self) -> Float[Array, ""]:
        return largest_eigenvalue(self.forward, random_start(self.n_coefficients, self.dtype))

    def normal_equations(self, x: Float[Array, "d"] | None = None) -> GramEquations:
        return GramEquations(self.A, self.b, jnp.diagonal(self.A), 2 * self.constant)

    def subset(self, idx: Int[Array, "m"]) -> "QuadraticForm":
        return replace(self, A=self.A[idx][:, idx], b=self.b[idx])

    def restrict(self, support: Support) -> "RestrictedQuadratic":
        both = support.mask[:, None] & support.mask
        A = jnp.where(both, self.A[support.idx][:, support.idx], 0)
        return RestrictedQuadratic(A, gather(self.b, support), self.constant, support.mask)


class RestrictedQuadratic(AbstractRestricted):
    """A quadratic over the entries of a support."""

    A: Float[Array, "m m"]
    b: Float[Array, "m"]
    constant: Float[Array, ""]
    mask: Array
    quadratic = True

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        return 0.5 * dot(z, dot(self.A, z)) - dot(self.b, z) + self.constant

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return dot(self.A, z) - self.b

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        return dot(self.A, v)

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        return self.A

    def scale(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return jnp.diagonal(self.A)
