"""Convex functions of the predictions of a model."""

import abc
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..columns import bounded
from ..linalg import dot
from ..losses import AbstractRowLoss


class Part(eqx.Module):
    """Some columns of a model, dense, with what else predictions and penalty need.

    Attributes:
        A: (n, m) columns, zero on padding.
        offset: of the predictions; None: zero.
        live: which rows have a weight.
        ridge: of each column; zero on padding.
        mask: as in `Support`.
        free: which columns are intercepts; None: none.
    """

    A: Float[Array, "n m"]
    offset: Float[Array, "n *c"] | None
    live: Bool[Array, "n"]
    ridge: Float[Array, "m"]
    mask: Bool[Array, "m"]
    free: Bool[Array, "m"] | None

    def predict(self, z: Float[Array, "m"]) -> Float[Array, "n *c"]:
        """Predictions at the coefficients z."""
        eta = self.product(z)
        return bounded(eta if self.offset is None else eta + self.offset, self.live)

    def product(self, v: Float[Array, "m"]) -> Float[Array, "n *c"]:
        """How predictions change along v."""
        return dot(self.A, v)

    def pulled(self, rows: Float[Array, "n *c"]) -> Float[Array, "m"]:
        """The transpose of `product`."""
        return dot(rows, self.A)

    def powered(self, rows: Float[Array, "n *c"], power: int) -> Float[Array, "m"]:
        """Rows times the magnitudes of the columns to a power."""
        return dot(rows, jnp.abs(self.A) if power == 1 else self.A**2)

    def gram(self, d: Float[Array, "n *c"], q: Float[Array, "n *c"] | None) -> Float[Array, "m m"]:
        """A'H A for a block diag(d_i) - q_i q_i' of H for every row."""
        return dot((self.A * d[:, None]).T, self.A)

    def penalty(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        """The gradient of the ridge."""
        return self.ridge * z


class PartOfSeveral(Part):
    """Entry e multiplies column A_e in response `response[e]`; the ridge is a diagonal, or a whole matrix."""

    ridge: Float[Array, "m"] | Float[Array, "m m"]
    response: Int[Array, "m"]
    n_responses: int = eqx.field(static=True)

    def product(self, v: Float[Array, "m"]) -> Float[Array, "n c"]:
        return dot(self.A * v, jax.nn.one_hot(self.response, self.n_responses, dtype=self.A.dtype))

    def pulled(self, rows: Float[Array, "n c"]) -> Float[Array, "m"]:
        return jnp.sum(self.A * rows[:, self.response], axis=0)

    def powered(self, rows: Float[Array, "n c"], power: int) -> Float[Array, "m"]:
        return jnp.sum(jnp.abs(self.A) ** power * rows[:, self.response], axis=0)

    def gram(self, d: Float[Array, "n c"], q: Float[Array, "n c"] | None) -> Float[Array, "m m"]:
        same = self.response[:, None] == self.response
        H = jnp.where(same, dot((self.A * d[:, self.response]).T, self.A), 0)
        if q is None:
            return H
        cross = self.A * q[:, self.response]
        return H - dot(cross.T, cross)

    def penalty(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return self.ridge * z if self.ridge.ndim == 1 else dot(self.ridge, z)


class Hessian(NamedTuple):
    """The Hessian H of a likelihood at some predictions, as what is asked of it; never kept."""

    times: Callable[[Array], Array]  # u -> H u
    along: Callable[[Array], Float[Array, ""]]  # u -> u'H u
    gram: Callable[[PyTree], Float[Array, "m m"]]  # the part of a model -> A'H A


class AbstractLikelihood(eqx.Module):
    """A convex function L of predictions, which are an array of any shape."""

    everywhere: ClassVar[bool] = True  # L is finite at all predictions but for overflow

    @property
    def quadratic(self) -> bool:
        """True if the Hessian is constant."""
        return False

    @property
    def kinked(self) -> bool:
        """True if the second derivative can vanish or jump."""
        return False

    @abc.abstractmethod
    def value(self, eta: Array) -> Float[Array, ""]:
        """L."""

    @abc.abstractmethod
    def gradient(self, eta: Array) -> Array:
        """The gradient."""

    @abc.abstractmethod
    def terms(self, eta: Array) -> PyTree:
        """Sums of the magnitudes that the entries of the gradient are sums of."""

    @abc.abstractmethod
    def majorant(self, eta: Array) -> Array:
        """About the diagonal of the Hessian, and zero only where `terms` are."""

    @abc.abstractmethod
    def hessian(self, eta: Array, damping: Float[Array, ""] | float = 0.0) -> Hessian:
        """The Hessian; `gram` plus `damping` times what has curvature wherever the gradient has a part."""

    def value_and_gradient(self, eta: Array) -> tuple[Float[Array, ""], Array]:
        """Both; what they share may be computed once."""
        return self.value(eta), self.gradient(eta)

    def derivatives(
        self, eta: Array, part: PyTree
    ) -> tuple[Array, PyTree, Callable[[Float[Array, ""] | float], Array]]:
        """`gradient`, `terms`, and the gram matrix of a part as a function of the damping, likewise."""
        return self.gradient(eta), self.terms(eta), lambda damping: self.hessian(eta, damping).gram(part)


def weighed(weights: Float[Array, "n"], rows: Float[Array, "n *c"]) -> Float[Array, "n *c"]:
    """Rows times their weights."""
    return weights * rows if rows.ndim == 1 else weights[:, None] * rows


class MeanLoss(AbstractLikelihood):
    """sum_i omega_i l(eta_i, y_i), for one prediction a row or several."""

    loss: AbstractRowLoss
    y: Array
    weights: Float[Array, "n"]

    @property
    def quadratic(self) -> bool:
        return self.loss.quadratic

    @property
    def kinked(self) -> bool:
        return self.loss.kinked

    def value(self, eta: Float[Array, "n *c"]) -> Float[Array, ""]:
        losses = self.loss.value(eta, self.y)
        if losses.ndim == eta.ndim == 2:  # a sum of maxima may drop NaN
            losses = dot(losses, jnp.ones_like(losses, shape=losses.shape[1]))
        return dot(self.weights, losses)

    def gradient(self, eta: Float[Array, "n *c"]) -> Float[Array, "n *c"]:
        return weighed(self.weights, self.loss.derivative(eta, self.y))

    def terms(self, eta: Float[Array, "n *c"]) -> Float[Array, "n *c"]:
        return jnp.abs(self.gradient(eta))

    def majorant(self, eta: Float[Array, "n *c"]) -> Float[Array, "n *c"]:
        curvature = 0 if self.loss.kinked else self.loss.curvature(eta, self.y)[0]
        return weighed(self.weights, self.loss.majorant(eta, self.y) + curvature)

    def hessian(self, eta: Float[Array, "n *c"], damping: Float[Array, ""] | float = 0.0) -> Hessian:
        # Of every row diag(d) - q q'.
        d, q = self.loss.curvature(eta, self.y)
        d = weighed(self.weights, d + damping * self.loss.majorant(eta, self.y))
        q = None if q is None else weighed(jnp.sqrt(self.weights), q)

        def times(u: Float[Array, "n *c"]) -> Float[Array, "n *c"]:
            return d * u if q is None else d * u - q * jnp.sum(q * u, axis=1, keepdims=True)

        def along(u: Float[Array, "n *c"]) -> Float[Array, ""]:
            flat = dot((d * u).ravel(), u.ravel())  # u**2 may overflow where there is no weight
            return flat if q is None else flat - jnp.sum(jnp.sum(q * u, axis=1) ** 2)

        def gram(part: Part) -> Float[Array, "m m"]:
            H = part.gram(d, q)
            if self.loss.shift_invariant and part.free is not None:
                # L does not change along equal intercepts, nor has its gradient a part there: any curvature will do.
                free = part.free & part.mask
                H = H + jnp.where(free[:, None] & free, 1 / eta.shape[1], 0)
            return H

        return Hessian(times, along, gram)
