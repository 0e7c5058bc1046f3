"""The restrictions of a linear model to a support."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .._types import Support
from ..linalg import dot
from ..losses import AbstractLoss
from .base import AbstractRestricted, gather, scatter


class RestrictedLinearModel(AbstractRestricted):
    """A linear model over the columns A of a support; `weights` sum to one."""

    A: Float[Array, "n m"]
    y: Float[Array, "n"]
    loss: AbstractLoss
    weights: Float[Array, "n"]
    offset: Float[Array, "n"] | None
    ridge: Float[Array, "m"]
    mask: Array
    free: Array | None = None

    @property
    def intercept(self) -> Array | None:
        return self.free

    @property
    def quadratic(self) -> bool:
        return self.loss.quadratic

    @property
    def kinked(self) -> bool:
        return self.loss.kinked

    def _predict(self, z: Float[Array, "m"]) -> Float[Array, "n"]:
        eta = dot(self.A, z)
        return bounded(eta if self.offset is None else eta + self.offset, self.weights)

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        return dot(self.weights, self.loss.value(self._predict(z), self.y)) + 0.5 * dot(self.ridge * z, z)

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return dot(self.weights * self.loss.derivative(self._predict(z), self.y), self.A) + self.ridge * z

    def grad_terms(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        slopes = jnp.abs(self.loss.derivative(self._predict(z), self.y))
        return dot(self.weights * slopes, jnp.abs(self.A)) + self.ridge * jnp.abs(z)

    def _curvature_weights(self, z: Float[Array, "m"], damping: Float[Array, ""] | float) -> Float[Array, "n"]:
        return self.weights * damped_curvature(self.loss, self._predict(z), self.y, damping)

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        return self.hessian_product(z)(v)

    def hessian_product(self, z: Float[Array, "m"]) -> Callable[[Array], Array]:
        curvature = self._curvature_weights(z, 0.0)
        return lambda v: dot(curvature * dot(self.A, v), self.A) + self.ridge * v

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        scaled = self.A * self._curvature_weights(z, damping)[:, None]
        return dot(scaled.T, self.A) + jnp.diag(self.ridge)

    def scale(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return dot(self.weights * majorant(self.loss, self._predict(z), self.y), self.A**2) + self.ridge


class RestrictedSparseModel(AbstractRestricted):
    """A linear model over a support so large that its columns stay sparse: products go through the whole design.

    Such a support is refitted by conjugate gradients; `hess` is here for completeness, one row at a time.
    """

    model: Any  # a LinearModel
    support: Support

    @property
    def mask(self) -> Bool[Array, "m"]:
        return self.support.mask

    @property
    def quadratic(self) -> bool:
        return self.model.quadratic

    @property
    def kinked(self) -> bool:
        return self.model.loss.kinked

    def _full(self, z: Float[Array, "m"]) -> Float[Array, "d"]:
        return scatter(z, self.support, self.model.n_coefficients + self.model.n_free)

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        return self.model.value(self._full(z))

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return gather(self.model.value_and_grad(self._full(z))[1], self.support)

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        return self.hessian_product(z)(v)

    def hessian_product(
        self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0
    ) -> Callable[[Array], Array]:
        model = self.model
        curvature = damped_curvature(model.loss, model.forward(self._full(z)), model.y, damping)
        curvature = model._weights() * curvature

        def times(v: Float[Array, "m"]) -> Float[Array, "m"]:
            v = self._full(v)
            return gather(model.transpose_product(curvature * model.product(v)) + model.ridge() * v, self.support)

        return times

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        return lax.map(self.hessian_product(z, damping), jnp.eye(z.shape[0], dtype=z.dtype))

    def scale(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        model = self.model
        curvature = model._weights() * majorant(model.loss, model.forward(self._full(z)), model.y)
        return gather(model.gram_diagonal(curvature) + model.ridge(), self.support)


def damped_curvature(
    loss: AbstractLoss, eta: Float[Array, "n"], y: Float[Array, "n"], damping: Float[Array, ""] | float
) -> Float[Array, "n"]:
    """The curvature of a loss plus a multiple of what does not vanish where it is saturated."""
    return loss.second_derivative(eta, y) + damping * loss.majorant(eta, y)


def majorant(loss: AbstractLoss, eta: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    """About the curvature of a loss, and not zero where its slope is not."""
    return loss.majorant(eta, y) + (0 if loss.kinked else loss.second_derivative(eta, y))


def bounded(eta: Float[Array, "n *c"], weights: Float[Array, "n *#c"]) -> Float[Array, "n *c"]:
    """Predictions, moderate where the weight is zero: such a row must not turn 0 * exp(eta) into NaN."""
    return jnp.where(weights > 0, eta, jnp.clip(eta, -50, 50))
