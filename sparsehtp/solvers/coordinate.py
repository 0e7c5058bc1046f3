"""Coordinate descent on a gathered set of columns: for the L0 + L1 + L2 penalty, and for its convex envelope.

The columns are centred where there is an intercept, so that it decouples; a loss that is not squared is majorised by
its smoothness. With H_j = smoothness A_j, u = H_j w_j - gradient and t = sign(u) (|u| - l1)_+, the minimisers are

    penalty:   t / (H_j + l2) if t^2 / (2 (H_j + l2)) >= l0, else 0
    envelope:  (|t| - sqrt(2 l0 l2))_+ / H_j up to sqrt(2 l0 / l2), beyond it |t| / (H_j + l2)

(in sums over n samples: lam0 = n l0, lam1 = n l1, lam2 = n l2 / 2, as [DIOM] writes them).
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypeVar

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._types import Support, replace
from ..duality.dual import Dual
from ..linalg import WHOLE, Box, dot, max_lane

SMALLEST = 256  # columns of the smallest block
GROWTH = 16  # of one block size to the next: every size is a program of its own

Found = TypeVar("Found")
Update: TypeAlias = Callable[[Array, Array, Array], Array]  # (u, H, position in the block) -> the new coefficient


class Block(NamedTuple):
    """Columns of some features, feature-major and centred; rows past `live` are padding.

    Attributes:
        idx: (m,) features.
        live: how many of them are no padding; they come first.
        columns: (m, n).
        energy: (m,) sum_i omega_i x_ij^2, zero on padding.
        ridge: (m,) l2.
        l0, l1: (m,) prices.
        box: bounds, (m,) each; None where there are none.
        inn: (m,) features that may not leave, none of them padding.
    """

    idx: Int[Array, "m"]
    live: Int[Array, ""]
    columns: Float[Array, "m n"]
    energy: Float[Array, "m"]
    ridge: Float[Array, "m"]
    l0: Float[Array, "m"]
    l1: Float[Array, "m"]
    box: Box
    inn: Bool[Array, "m"]


class BlockFit(NamedTuple):
    """Coefficients on a block, the centred intercept, and the prediction."""

    w: Float[Array, "m"]
    b: Float[Array, ""]
    eta: Float[Array, "n"]


Falling: TypeAlias = tuple[BlockFit, Array, Array, Array]  # a fit, its value, whether it still falls, sweeps


def block_sizes(p: int) -> list[int]:
    """256, 4096, ... below p, and p: powers of two, few enough to compile quickly."""
    sizes, size = [], SMALLEST
    while 2 * size <= p:
        sizes.append(size)
        size *= GROWTH
    return [*sizes, p]


def on_block(member: Bool[Array, "p"], function: Callable[[Array, Array], Found]) -> Found:
    """function(features, count) on the smallest block size that holds the members, the same for all lanes."""
    p = member.shape[0]
    count = jnp.sum(member, dtype=jnp.int32)
    order = jnp.nonzero(member, size=p, fill_value=0)[0].astype(jnp.int32)
    sizes = block_sizes(p)
    if len(sizes) == 1:
        return function(order, count)
    which = jnp.searchsorted(jnp.asarray(sizes, jnp.int32), max_lane(count))
    branches = [lambda order, count, size=size: function(order[:size], count) for size in sizes]
    return lax.switch(which, branches, order, count)


def gather_block(
    dual: Dual, idx: Int[Array, "m"], count: Int[Array, ""], inn: Bool[Array, "p"], centres: Float[Array, "p"] | None
) -> Block:
    """The columns of some features."""
    live = jnp.arange(idx.shape[0]) < count
    columns = dual.columns.on(Support(idx, live)).T
    if centres is not None:
        columns = jnp.where(live[:, None], columns - centres[idx][:, None], 0)
    energy = dot(columns**2, dual.weights)
    l0, l1 = dual.prices
    box = replace(dual.threshold, n_free=0).box(Support(idx, live)) if dual.penalised else WHOLE
    return Block(idx, count, columns, energy, dual.ridge[idx], l0[idx], l1[idx], box, inn[idx] & live)


class Descent:
    """Sweeps over a block; lives inside one trace."""

    def __init__(self, dual: Dual, block: Block) -> None:
        self.dual, self.block = dual, block
        self.objective = dual.objective
        self.loss, self.y, self.weights = dual.objective.loss, dual.objective.y, dual.weights
        self.smoothness = jnp.asarray(self.loss.smoothness, self.objective.dtype)

    def start(self, w: Float[Array, "m"], b: Float[Array, ""]) -> BlockFit:
        eta = dot(w, self.block.columns) + b
        offset = self.dual.columns.offset
        eta = eta if offset is None else eta + offset
        return self.intercept(BlockFit(w, b, eta))

    def slope(self, eta: Array) -> Array:
        return jnp.where(self.weights > 0, self.loss.derivative(eta, self.y), 0)

    def intercept(self, fit: BlockFit) -> BlockFit:
        """A majorised (for the squared loss: the exact) step of the intercept."""
        if not self.objective.n_free:
            return fit
        move = -dot(self.weights, self.slope(fit.eta)) / self.smoothness
        return BlockFit(fit.w, fit.b + move, fit.eta + move)

    def penalty_update(self, u: Array, H: Array, i: Array) -> Array:
        block = self.block
        t = jnp.sign(u) * jnp.maximum(jnp.abs(u) - block.l1[i], 0)
        total = H + block.ridge[i]
        new = t / jnp.where(total > 0, total, 1)
        gain = 0.5 * new * t
        if not block.box.whole:
            new = jnp.clip(new, *(None if bound is None else bound[i] for bound in block.box[:2]))
            gain = new * (t - 0.5 * total * new)
        keep = (block.inn[i] | (gain >= block.l0[i])) & (H > 0)
        return jnp.where(keep, new, 0)

    def envelope_update(self, u: Array, H: Array, i: Array) -> Array:
        l0, ridge = self.block.l0[i], self.block.ridge[i]
        t = jnp.maximum(jnp.abs(u) - self.block.l1[i], 0)
        near = jnp.maximum(t - jnp.sqrt(2 * l0 * ridge), 0) / jnp.where(H > 0, H, 1)
        far = t / (H + ridge)
        size = jnp.where(~self.block.inn[i] & (near <= jnp.sqrt(2 * l0 / ridge)), near, far)
        return jnp.where(H > 0, jnp.sign(u) * size, 0)

    def sweep(
        self, fit: BlockFit, update: Update, order: Int[Array, "m"] | None = None, count: Array | None = None
    ) -> BlockFit:
        """One pass over the block's features, or over the first `count` of `order`."""
        block = self.block

        def one(place: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
            w, eta = carry
            i = place if order is None else order[place]
            column = block.columns[i]
            H = self.smoothness * block.energy[i]
            g = dot(self.weights * self.slope(eta), column)
            new = update(H * w[i] - g, H, i)
            return w.at[i].set(new), eta + (new - w[i]) * column

        w, eta = lax.fori_loop(0, block.live if count is None else count, one, (fit.w, fit.eta))
        return self.intercept(BlockFit(w, fit.b, eta))

    def loss_value(self, fit: BlockFit) -> Array:
        each = self.loss.value(fit.eta, self.y)
        return dot(self.weights, jnp.where(self.weights > 0, each, 0))

    def penalty_value(self, fit: BlockFit) -> Array:
        """F + l0 + l1 terms."""
        w, block = fit.w, self.block
        each = 0.5 * block.ridge * w**2 + block.l0 * (w != 0) + block.l1 * jnp.abs(w)
        return self.loss_value(fit) + jnp.sum(each)

    def envelope_value(self, fit: BlockFit) -> Array:
        """The convex form's value, with the price of features that may not leave."""
        size, ridge, inn, l0 = jnp.abs(fit.w), self.block.ridge, self.block.inn, self.block.l0
        root = jnp.sqrt(2 * l0 * ridge)
        near = ~inn & (size <= jnp.sqrt(2 * l0 / jnp.maximum(ridge, jnp.finfo(ridge.dtype).tiny)))
        rho = jnp.where(near, root * size, l0 + 0.5 * ridge * size**2) + self.block.l1 * size
        return self.loss_value(fit) + jnp.sum(rho)

    def moments(self, a: Float[Array, "n"]) -> Float[Array, "m"]:
        """tau of the block's features."""
        return dot(self.block.columns, self.weights * a)

    def link(self, a: Float[Array, "n"]) -> Float[Array, "m"]:
        """w(a) on the block."""
        tau = self.moments(a)
        size = jnp.maximum(jnp.abs(tau) - self.block.l1, 0) / self.block.ridge
        return jnp.where(0.5 * self.block.ridge * size**2 > self.block.l0, -jnp.sign(tau) * size, 0)

    def bound(self, a: Float[Array, "n"]) -> Float[Array, ""]:
        """D(a) on the block's features alone."""
        tau = self.moments(a)
        terms = jnp.maximum(jnp.abs(tau) - self.block.l1, 0) ** 2 / (2 * self.block.ridge) - self.block.l0
        return self.dual.separable(a) - jnp.sum(jnp.where((terms > 0) | self.block.inn, terms, 0))

    def descend(self, fit: BlockFit, tol: Array | float, max_sweeps: Array | int = 200, inner: int = 10) -> BlockFit:
        """Sweeps of the penalty until it falls by less than tol: each is followed by spacer sweeps on the support."""
        every = jnp.arange(self.block.idx.shape[0])

        def one(i: Int[Array, ""], fit: BlockFit) -> BlockFit:
            # One loop for both kinds of sweep, so that it is compiled once.
            nonzero = jnp.nonzero(fit.w, size=every.shape[0], fill_value=0)[0]
            order = jnp.where(i == 0, every, nonzero)
            size = jnp.where(i == 0, self.block.live, jnp.sum(fit.w != 0, dtype=jnp.int32))
            return self.sweep(fit, self.penalty_update, order, size)

        def body(carry: Falling) -> Falling:
            fit, value, _, count = carry
            fit = lax.fori_loop(0, 1 + inner, one, fit)
            new = self.penalty_value(fit)
            return fit, new, value - new > tol, count + 1

        def go(carry: Falling) -> Array:
            return carry[2] & (carry[3] < max_sweeps)

        start = (fit, self.penalty_value(fit), jnp.ones((), bool), jnp.int32(0))
        return lax.while_loop(go, body, start)[0]
