"""The likelihood of ordered classes under cumulative logits.

With b and a the thresholds above and below the class of a row, and eta its linear predictor,

    -log(sigmoid(b - eta) - sigmoid(a - eta)) = softplus(eta - b) + softplus(a - eta) - log(1 - exp(a - b)):

two logistic losses, of which the first and the last class have one, and a barrier between neighbouring thresholds that
does not depend on eta. No number is ever a difference of two that are nearly the same.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..linalg import dot

NONE = -1e4  # the margin to a threshold that is not there: whatever comes from it is exactly zero
NARROW = 1e-12  # narrower gaps between thresholds count as this, so that the barrier's curvature is a number


class Curvature(NamedTuple):
    """The Hessian over (eta, thresholds): diag(rows), their products, and the thresholds' own block."""

    rows: Float[Array, "n"]
    cross: Float[Array, "n classes-1"]
    inner: Float[Array, "classes-1 classes-1"]


class CumulativeLogits(eqx.Module):
    """A weighted sum over rows; behind the n rows of the data every class has one at eta = 0, of weight `empty`."""

    y: Int[Array, "n+classes"]
    weights: Float[Array, "n+classes"]
    mass: Float[Array, "classes"]

    def __init__(self, y: Int[Array, "n"], weights: Float[Array, "n"], empty: Float[Array, "classes"]) -> None:
        self.y = jnp.concatenate([y, jnp.arange(empty.shape[0], dtype=y.dtype)])
        self.weights = jnp.concatenate([weights, empty])
        self.mass = dot(self.weights, jax.nn.one_hot(self.y, empty.shape[0], dtype=empty.dtype))

    def _by_class(self, rows: Float[Array, "n+classes"]) -> Float[Array, "classes"]:
        return dot(rows, jax.nn.one_hot(self.y, self.mass.shape[0], dtype=rows.dtype))

    def _margins(
        self, eta: Float[Array, "n"], thresholds: Float[Array, "classes-1"]
    ) -> tuple[Float[Array, "n+classes"], Float[Array, "n+classes"]]:
        """How far eta is above the upper, and below the lower, threshold of the class."""
        last = self.mass.shape[0] - 1
        eta = jnp.concatenate([eta, jnp.zeros_like(self.mass)])
        above = jnp.where(self.y < last, eta - thresholds[jnp.minimum(self.y, last - 1)], NONE)
        below = jnp.where(self.y > 0, thresholds[jnp.maximum(self.y - 1, 0)] - eta, NONE)
        return above, below

    def _slopes(
        self, eta: Float[Array, "n"], thresholds: Float[Array, "classes-1"]
    ) -> tuple[Float[Array, "n+classes"], Float[Array, "n+classes"], Float[Array, "classes-2"]]:
        """Weighted slopes of both logistic losses in their margins, and minus those of the barriers in their gaps."""
        above, below = (self.weights * jax.nn.sigmoid(margin) for margin in self._margins(eta, thresholds))
        return above, below, self.mass[1:-1] / jnp.expm1(_gaps(thresholds))

    def value(self, eta: Float[Array, "n"], thresholds: Float[Array, "classes-1"]) -> Float[Array, ""]:
        """Infinity where the thresholds around a class with a weight do not increase."""
        above, below = (jax.nn.softplus(margin) for margin in self._margins(eta, thresholds))
        barrier = jnp.where(jnp.diff(thresholds) > 0, -jnp.log(-jnp.expm1(-_gaps(thresholds))), jnp.inf)
        mass = self.mass[1:-1]
        return dot(self.weights, above + below) + jnp.sum(jnp.where(mass > 0, mass * barrier, 0))

    def gradient(
        self, eta: Float[Array, "n"], thresholds: Float[Array, "classes-1"]
    ) -> tuple[Float[Array, "n"], Float[Array, "classes-1"]]:
        """Derivatives in eta and in the thresholds."""
        above, below, push = self._slopes(eta, thresholds)
        inner = self._by_class(below)[1:] - self._by_class(above)[:-1]
        return (above - below)[: eta.shape[0]], inner - jnp.pad(push, (1, 0)) + jnp.pad(push, (0, 1))

    def terms(
        self, eta: Float[Array, "n"], thresholds: Float[Array, "classes-1"]
    ) -> tuple[Float[Array, "n"], Float[Array, "classes-1"]]:
        """Sums of the magnitudes that the gradient is a sum of."""
        above, below, push = self._slopes(eta, thresholds)
        inner = self._by_class(below)[1:] + self._by_class(above)[:-1]
        return (above + below)[: eta.shape[0]], inner + jnp.pad(push, (1, 0)) + jnp.pad(push, (0, 1))

    def curvature(
        self,
        eta: Float[Array, "n"],
        thresholds: Float[Array, "classes-1"],
        damping: Float[Array, ""] | float = 0.0,
    ) -> Curvature:
        """The Hessian; with `damping`, plus that multiple of one whose curvatures are the slopes."""
        n, last = eta.shape[0], self.mass.shape[0] - 1
        slopes, margins = self._slopes(eta, thresholds), self._margins(eta, thresholds)
        above, below = (
            slope * (jax.nn.sigmoid(-margin) + damping) for slope, margin in zip(slopes[:2], margins, strict=True)
        )
        barrier = slopes[2] * (1 / -jnp.expm1(-_gaps(thresholds)) + damping)
        one_hot = jax.nn.one_hot(self.y, last + 1, dtype=eta.dtype)
        gap = np.diff(np.eye(last, dtype=eta.dtype), axis=0)
        inner = jnp.diag(self._by_class(above)[:-1] + self._by_class(below)[1:])
        return Curvature(
            rows=(above + below)[:n],
            cross=-(above[:, None] * one_hot[:, :-1] + below[:, None] * one_hot[:, 1:])[:n],
            inner=inner + jnp.sum(barrier[:, None, None] * (gap[:, :, None] * gap[:, None, :]), axis=0),
        )


def _gaps(thresholds: Float[Array, "classes-1"]) -> Float[Array, "classes-2"]:
    """Gaps between neighbouring thresholds; one where there is none, from where the barrier's slope is moderate."""
    gaps = jnp.diff(thresholds)
    return jnp.where(gaps > 0, jnp.maximum(gaps, NARROW), 1)
