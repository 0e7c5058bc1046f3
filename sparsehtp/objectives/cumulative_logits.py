"""The likelihood of ordered classes under cumulative logits.

With b and a the thresholds above and below the class of a row, and eta its linear predictor,

    -log(sigmoid(b - eta) - sigmoid(a - eta)) = softplus(eta - b) + softplus(a - eta) - log(1 - exp(a - b)):

two logistic losses, of which the first and the last class have one, and a barrier between neighbouring thresholds that
does not depend on eta. No number is ever a difference of two that are nearly the same.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..linalg import dot
from .likelihood import AbstractLikelihood, Hessian, Part

NONE = -1e4  # the margin to a threshold that is not there: whatever comes from it is exactly zero
NARROW = 1e-12  # narrower gaps between thresholds count as this, so that the barrier's curvature is a number


class Curvature(NamedTuple):
    """The Hessian over (eta, levels): diag(rows), their products, and the levels' own block."""

    rows: Float[Array, "n"]
    cross: Float[Array, "n t"]
    inner: Float[Array, "t t"]


class CumulativeLogits(AbstractLikelihood):
    """A weighted sum over rows; behind the n rows of the data every class has one at eta = 0, of weight `empty`.

    Predictions are those of the n rows, and behind them the thresholds, given as levels: the first of them and the
    gaps to each next one. A narrow gap, of a rare class, then has all its digits.
    """

    y: Int[Array, "rows"]
    weights: Float[Array, "rows"]
    mass: Float[Array, "c-2"]  # of the classes between two thresholds
    everywhere = False  # thresholds increase

    def __init__(self, y: Int[Array, "n"], weights: Float[Array, "n"], empty: Float[Array, "c"]) -> None:
        self.y = jnp.concatenate([y, jnp.arange(empty.shape[0], dtype=y.dtype)])
        self.weights = jnp.concatenate([weights, empty])
        self.mass = self._by_class(self.weights, empty.shape[0])[1:-1]

    def _by_class(self, rows: Float[Array, "rows"], classes: int) -> Float[Array, "_"]:
        return dot(rows, jax.nn.one_hot(self.y, classes, dtype=rows.dtype))

    def _split(self, eta: Float[Array, "nt *m"]) -> tuple[Float[Array, "n *m"], Float[Array, "t *m"]]:
        """The part that belongs to rows, and that of levels."""
        n = eta.shape[0] - self.mass.shape[0] - 1
        return eta[:n], eta[n:]

    def _margins(
        self, eta: Float[Array, "n"], levels: Float[Array, "t"]
    ) -> tuple[Float[Array, "rows"], Float[Array, "rows"]]:
        """How far eta is above the upper, and below the lower, threshold of the class."""
        thresholds, none = jnp.cumsum(levels), jnp.full(1, NONE, eta.dtype)
        eta = jnp.concatenate([eta, jnp.zeros(levels.shape[0] + 1, eta.dtype)])
        upper, lower = jnp.concatenate([thresholds, -none]), jnp.concatenate([none, thresholds])
        return eta - upper[self.y], lower[self.y] - eta

    def _slopes(
        self, eta: Float[Array, "n"], levels: Float[Array, "t"]
    ) -> tuple[Float[Array, "rows"], Float[Array, "rows"], Float[Array, "t-1"]]:
        """Weighted slopes of both logistic losses in their margins, and minus those of the barriers in the gaps."""
        above, below = (self.weights * jax.nn.sigmoid(margin) for margin in self._margins(eta, levels))
        return above, below, self.mass / jnp.expm1(_gaps(levels))

    def value(self, eta: Float[Array, "nt"]) -> Float[Array, ""]:
        """Infinity where the thresholds around a class with a weight do not increase."""
        eta, levels = self._split(eta)
        above, below = (jax.nn.softplus(margin) for margin in self._margins(eta, levels))
        barrier = jnp.where(levels[1:] > 0, -jnp.log(-jnp.expm1(-_gaps(levels))), jnp.inf)
        return dot(self.weights, above + below) + jnp.sum(jnp.where(self.mass > 0, self.mass * barrier, 0))

    def gradient(self, eta: Float[Array, "nt"]) -> Float[Array, "nt"]:
        eta, levels = self._split(eta)
        above, below, push = self._slopes(eta, levels)
        inner = self._from(-above, below, levels) - jnp.pad(push, (1, 0))
        return jnp.append((above - below)[: eta.shape[0]], inner)

    def terms(self, eta: Float[Array, "nt"]) -> Float[Array, "nt"]:
        eta, levels = self._split(eta)
        above, below, push = self._slopes(eta, levels)
        inner = self._from(above, below, levels) + jnp.pad(push, (1, 0))
        return jnp.append((above + below)[: eta.shape[0]], inner)

    def majorant(self, eta: Float[Array, "nt"]) -> Float[Array, "nt"]:
        h = self.curvature(eta, 1.0)
        return jnp.append(h.rows, jnp.diagonal(h.inner))

    def hessian(self, eta: Float[Array, "nt"], damping: Float[Array, ""] | float = 0.0) -> Hessian:
        h = self.curvature(eta, damping)

        def times(u: Float[Array, "nt"]) -> Float[Array, "nt"]:
            u, t = self._split(u)
            return jnp.append(h.rows * u + dot(h.cross, t), dot(u, h.cross) + dot(h.inner, t))

        def along(u: Float[Array, "nt"]) -> Float[Array, ""]:
            u, t = self._split(u)
            return dot(u, h.rows * u + 2 * dot(h.cross, t)) + dot(t, dot(h.inner, t))

        def gram(part: Part) -> Float[Array, "m m"]:
            A, T = self._split(part.A)
            cross = dot(dot(A.T, h.cross), T)
            return dot((A * h.rows[:, None]).T, A) + cross + cross.T + dot(T.T, dot(h.inner, T))

        return Hessian(times, along, gram)

    def _from(
        self, above: Float[Array, "rows"], below: Float[Array, "rows"], levels: Float[Array, "t"]
    ) -> Float[Array, "t"]:
        """Sums, from every threshold upwards, of what rows give to the thresholds above and below their class."""
        classes = levels.shape[0] + 1
        inner = self._by_class(above, classes)[:-1] + self._by_class(below, classes)[1:]
        return jnp.cumsum(inner[::-1])[::-1]

    def curvature(self, eta: Float[Array, "nt"], damping: Float[Array, ""] | float = 0.0) -> Curvature:
        """The Hessian; with `damping`, plus that multiple of one whose curvatures are the slopes."""
        eta, levels = self._split(eta)
        n, t = eta.shape[0], levels.shape[0]
        (*slopes, push), margins = self._slopes(eta, levels), self._margins(eta, levels)
        above, below = (
            slope * (jax.nn.sigmoid(-margin) + damping) for slope, margin in zip(slopes, margins, strict=True)
        )
        barrier = push * (1 / -jnp.expm1(-_gaps(levels)) + damping)
        moved = np.tri(t, dtype=eta.dtype)  # of the thresholds by the levels
        upper, lower = (jnp.asarray(np.pad(moved, (ends, (0, 0))))[self.y] for ends in ((0, 1), (1, 0)))
        inner = self._from(above, below, levels)  # a level moves all thresholds from its own on
        return Curvature(
            rows=(above + below)[:n],
            cross=-(above[:, None] * upper + below[:, None] * lower)[:n],
            inner=inner[np.maximum.outer(np.arange(t), np.arange(t))] + jnp.diag(jnp.pad(barrier, (1, 0))),
        )


def _gaps(levels: Float[Array, "t"]) -> Float[Array, "t-1"]:
    """Gaps between neighbouring thresholds; one where there is none, from where the barrier's slope is moderate."""
    return jnp.where(levels[1:] > 0, jnp.maximum(levels[1:], NARROW), 1)
