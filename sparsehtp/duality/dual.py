"""The dual of a sparse linear model: value, primal link, supergradient, projection.

With omega_i = s_i / W, tau_j = sum_i omega_i a_i x_ij and G_j = (|tau_j| - l1)_+^2 / (2 l2_j), the Lagrangian's minimum
over w, coordinate by coordinate, gives

    D(a) = sum_i omega_i (a_i o_i - l*(a_i, y_i)) - sum_j in S(a) (G_j - l0)
    w_j(a) = -sign(tau_j) (|tau_j| - l1)_+ / l2_j for j in S(a), else 0

where S(a) holds the k largest G_j and the kept features (`Sparsity`, l0 = l1 = 0), or all j with G_j > l0 (`L0L1L2`).
Every a with l*(a) finite and, where there is an unpenalised intercept, sum_i omega_i a_i = 0, gives D(a) <= min P:
without that equality the infimum over the intercept, and so the bound, is -infinity.

The inner product on a is sum_i omega_i a_i c_i, so that the supergradient is x_i'w(a) + o_i - l*'(a_i), samples without
weight do not matter, and a step of [DIHT] is this one times 1/N.
"""

from typing import NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._types import Support, is_concrete
from ..columns import Columns
from ..linalg import bisect, dot, largest_eigenvalue, random_start
from ..losses import AbstractConjugateLoss, AbstractLoss
from ..objectives import AbstractObjective, LinearModel
from ..thresholds import L0L1L2, AbstractThreshold, Sparsity


class Fixed(NamedTuple):
    """Features known to be zero, or nonzero, in every optimum; their problem has the same optima."""

    zero: Bool[Array, "p"]
    nonzero: Bool[Array, "p"]


class DualPoint(NamedTuple):
    """A feasible dual point with everything that its product with the data gives.

    Attributes:
        a: (n,) feasible dual variables.
        tau: (p,) sum_i omega_i a_i x_ij.
        terms: (p,) G_j - l0: what including feature j lowers the dual by.
        value: D(a).
        x: the primal link w(a) in the solver's units; its free entries are zero.
        support: S(a), free entries first.
    """

    a: Float[Array, "n"]
    tau: Float[Array, "p"]
    terms: Float[Array, "p"]
    value: Float[Array, ""]
    x: Float[Array, "d"]
    support: Support


class Dual(eqx.Module):
    """The dual of min F(w) + penalty, for a `LinearModel` with l2 > 0 and a bound `Sparsity` or `L0L1L2`.

    Bounds of a `Sparsity` are ignored: its dual value is then that of the problem without them, a lower bound still.

    Args:
        objective: the linear model; its loss has a conjugate.
        threshold: bound to the objective.
        fixed: features known to be zero or nonzero; None: none.
    """

    objective: LinearModel  # whose loss has a conjugate
    threshold: Sparsity | L0L1L2
    fixed: Fixed | None = None

    # --- the data ----------------------------------------------------------------------------------------------------
    @property
    def columns(self) -> Columns:
        """Of the objective."""
        return self.objective.columns

    @property
    def loss(self) -> AbstractConjugateLoss:
        """Of the objective."""
        return cast(AbstractConjugateLoss, self.objective.loss)

    @property
    def weights(self) -> Float[Array, "n"]:
        """omega, summing to one."""
        return self.columns.weights

    @property
    def ridge(self) -> Float[Array, "p"]:
        """l2 of every feature."""
        ridge = self.columns.ridge()[: self.objective.n_coefficients]
        return jnp.maximum(ridge, jnp.finfo(ridge.dtype).tiny)

    @property
    def penalised(self) -> bool:
        """True for `L0L1L2`, False for at most k."""
        return self.threshold.penalises

    @property
    def prices(self) -> tuple[Float[Array, "p"], Float[Array, "p"]]:
        """l0 and l1 of every feature."""
        nothing = jnp.zeros(self.objective.n_coefficients, self.objective.dtype)
        return self.threshold.priced(nothing.size) if isinstance(self.threshold, L0L1L2) else (nothing, nothing)

    def masks(self) -> Fixed:
        """The fixed features; kept ones count as nonzero."""
        p = self.objective.n_coefficients
        no = jnp.zeros(p, bool)
        fixed = Fixed(no, no) if self.fixed is None else self.fixed
        return fixed if self.penalised else fixed._replace(nonzero=fixed.nonzero.at[self.threshold.keep].set(True))

    def slots(self) -> Array:
        """How many features may be chosen beside those known to be nonzero (`Sparsity` only)."""
        assert isinstance(self.threshold, Sparsity)
        return self.threshold.keep.shape[0] - jnp.sum(self.masks().nonzero) + self.threshold.k

    def moments(self, a: Float[Array, "n"]) -> Float[Array, "p"]:
        """tau: one product with the data."""
        return self.columns.transpose_product(self.weights * a)[: self.objective.n_coefficients]

    def gram_norm(self, num_steps: int = 100) -> Float[Array, ""]:
        """Largest eigenvalue of X'diag(omega)X scaled by the ridge, by power iteration: an estimate from below."""
        columns, centres = self.columns, self.columns.moments()[0]
        root = jnp.sqrt(self.ridge)

        def product(v: Float[Array, "p"]) -> Float[Array, "p"]:
            r = self.weights * columns.product(self.lift(v / root))
            if centres is not None:
                r = r - self.weights * jnp.sum(r)
            return columns.transpose_product(r)[: v.shape[0]] / root

        return largest_eigenvalue(product, random_start(root.shape[0], root.dtype), num_steps)

    def lift(self, w: Float[Array, "p"], intercept: Array | float = 0.0) -> Float[Array, "d"]:
        """The solver's x from coefficients and its own free entry."""
        return jnp.append(w, jnp.asarray(intercept, w.dtype)) if self.objective.n_free else w

    # --- the dual ----------------------------------------------------------------------------------------------------
    def zero(self) -> Float[Array, "n"]:
        """The feasible point zero."""
        return jnp.zeros_like(self.objective.y)

    def project(self, a: Float[Array, "n"]) -> Float[Array, "n"]:
        """The nearest feasible point: in the loss's range, and orthogonal to ones if there is an intercept."""
        objective, weights = self.objective, self.weights
        if not objective.n_free:
            return self.loss.project_dual(a, objective.y)
        return balanced(self.loss, a, objective.y, weights)

    def terms(self, tau: Float[Array, "p"]) -> Float[Array, "p"]:
        """G_j - l0."""
        l0, l1 = self.prices
        return jnp.maximum(jnp.abs(tau) - l1, 0) ** 2 / (2 * self.ridge) - l0

    def select(self, terms: Float[Array, "p"]) -> tuple[Array, Support | None]:
        """Mask of S(a), and for `Sparsity` also the support in its own order."""
        fixed = self.masks()
        if isinstance(self.threshold, L0L1L2):
            return ((terms > 0) | fixed.nonzero) & ~fixed.zero, None
        largest = jnp.finfo(terms.dtype).max
        scores = jnp.where(fixed.zero, -1.0, jnp.where(fixed.nonzero, largest, jnp.sqrt(terms)))
        support = self.threshold.select(scores)
        # Those no worse than the last that is chosen, ties as they are ranked: one kernel, where a scatter is eight.
        last = support.idx[jnp.sum(support.mask) - 1]
        behind = (scores < scores[last]) | ((scores == scores[last]) & (jnp.arange(scores.size) > last))
        member = (~behind & (self.threshold.k > 0)) | fixed.nonzero  # NaN is in, and makes the value NaN
        return member & ~fixed.zero, support

    def separable(self, a: Float[Array, "n"]) -> Float[Array, ""]:
        """The part of D that does not depend on the penalty."""
        objective, weights = self.objective, self.weights
        conjugate = self.loss.conjugate(a, objective.y)
        if self.columns.offset is not None:
            conjugate = conjugate - a * self.columns.offset
        return -dot(weights, jnp.where(weights > 0, conjugate, 0))

    def point(self, a: Float[Array, "n"], tau: Float[Array, "p"] | None = None) -> DualPoint:
        """Everything at a feasible a; one product with the data unless tau is given."""
        tau = self.moments(a) if tau is None else tau
        terms = self.terms(tau)
        member, support = self.select(terms)
        _, l1 = self.prices
        w = -jnp.sign(tau) * jnp.maximum(jnp.abs(tau) - l1, 0) / self.ridge
        w = jnp.where(member, w, 0)
        if support is None:
            assert isinstance(self.threshold, L0L1L2)
            support = self.threshold.support(w)
        value = self.separable(a) - jnp.sum(jnp.where(member, terms, 0))
        return DualPoint(a, tau, terms, value, self.lift(w), support)

    def rounding(self, point: DualPoint, norms: Float[Array, "p"]) -> Float[Array, ""]:
        """The most that rounding may have added to D(a), or changed in an entry of `terms`; `norms` of the columns.

        A sum of n products is wrong by at most n ulp of the sum of their magnitudes. Where there is an intercept, the
        sum of a vanishes to rounding only, and what is left of it counts as often as the predictions are large.
        """
        objective, weights = self.objective, self.weights
        eps = (objective.y.shape[0] + 64) * jnp.finfo(point.a.dtype).eps
        a = jnp.where(weights > 0, point.a, 0)
        conjugate = jnp.abs(self.loss.conjugate(a, objective.y))
        unit = 0 if objective.loss.location else 1  # of logarithms, say; a loss of eta - y alone has only theirs
        offset = self.columns.offset
        size = unit + jnp.abs(objective.y) + (0 if offset is None else jnp.abs(offset))
        predicted = jnp.where(weights > 0, jnp.abs(self.loss.conjugate_derivative(a, objective.y)), 0)
        separable = dot(weights, conjugate + jnp.abs(a) * (size + predicted))
        moved = eps * jnp.sqrt(dot(weights, a**2)) * norms
        each = (jnp.abs(point.tau) * moved + moved**2) / self.ridge + eps * jnp.abs(point.terms)
        member = jnp.where(self.select(point.terms)[0], each, 0)
        unbalanced = jnp.abs(dot(weights, a)) * dot(weights, predicted) if objective.n_free else 0.0
        return eps * separable + unbalanced + jnp.sum(member) + 2 * jnp.max(jnp.where(self.masks().zero, 0, each))

    def supergradient(self, point: DualPoint, eta: Float[Array, "n"]) -> Float[Array, "n"]:
        """x_i'w(a) + o_i - l*'(a_i), for the inner product weighted by omega; eta is the prediction of w(a)."""
        return eta - self.loss.conjugate_derivative(point.a, self.objective.y)

    # --- the primal --------------------------------------------------------------------------------------------------
    def predict(self, point: DualPoint) -> tuple[Float[Array, "d"], Float[Array, "n"]]:
        """w(a) with its best intercept, and its prediction: the support's columns only."""
        objective = self.objective
        narrow = point.support.idx.shape[0] < objective.n_coefficients
        eta = objective.forward(point.x, point.support if narrow else None)
        if not objective.n_free:
            return point.x, eta
        shift = best_shift(objective.loss, eta, objective.y, self.weights)
        return point.x.at[-1].set(shift), eta + shift

    def primal(self, eta: Float[Array, "n"], x: Float[Array, "d"]) -> Float[Array, ""]:
        """F + penalty at x with prediction eta."""
        return self.objective.value_at(eta, x) + self.threshold.value(x)


def dual_of(objective: LinearModel, threshold: Sparsity | L0L1L2, fixed: Fixed | None = None) -> Dual:
    """The dual of an objective under a threshold that is not bound yet.

    Raises:
        TypeError: for anything but a `LinearModel` with a conjugate loss under `Sparsity` or `L0L1L2`.
        ValueError: for l2 = 0, where the dual value is -infinity almost everywhere.
    """
    require_dual(objective, threshold)
    return Dual(objective, threshold.bind(objective), fixed)


def require_dual(objective: AbstractObjective, threshold: AbstractThreshold) -> None:
    """Raise TypeError or ValueError where there is no dual."""
    reason = no_dual(objective, threshold)
    if reason is not None:
        raise (ValueError if reason.startswith("l2") else TypeError)(reason)


def no_dual(objective: AbstractObjective, threshold: AbstractThreshold) -> str | None:
    """Why there is no dual, or None if there is one."""
    if not isinstance(objective, LinearModel):
        return f"objective: the dual needs a LinearModel, got a {type(objective).__name__}."
    if not isinstance(objective.loss, AbstractConjugateLoss):
        return f"loss: {type(objective.loss).__name__} has no conjugate, which the dual needs."
    if not isinstance(threshold, Sparsity | L0L1L2):
        return f"threshold: the dual needs Sparsity or L0L1L2, got a {type(threshold).__name__}."
    if threshold.penalises and threshold.bounded:
        return "threshold: L0L1L2 has no dual here within bounds; use CDSS."
    if is_concrete(objective.l2) and not np.all(np.asarray(objective.l2) > 0):
        return "l2: the dual needs l2 > 0 on every feature; raise l2."
    return None


def balanced(
    loss: AbstractConjugateLoss, a: Float[Array, "n"], y: Float[Array, "n"], weights: Float[Array, "n"]
) -> Float[Array, "n"]:
    """The nearest point of the loss's range with sum_i weights_i a_i = 0, in the norm weighted the same way, by weights
    whose sum is one.

    It is the range's projection of a + b for one number b: since 0 is in every range, the sum is <= 0 at b = -max a and
    >= 0 at b = -min a.
    """
    live = weights > 0
    if loss.quadratic:  # the range is the whole line
        return a - dot(weights, jnp.where(live, a, 0))
    low = -jnp.max(jnp.where(live, a, -jnp.inf))
    high = -jnp.min(jnp.where(live, a, jnp.inf))
    return with_sum(loss, a, y, weights, jnp.zeros_like(low), (low, high))


def with_sum(
    loss: AbstractConjugateLoss,
    a: Float[Array, "n"],
    y: Float[Array, "n"],
    weights: Float[Array, "n"],
    goal: Float[Array, ""],
    bracket: tuple[Float[Array, ""], Float[Array, ""]],
) -> Float[Array, "n"]:
    """The projection of a + b on the loss's range whose weighted sum is a goal, for a number b in the bracket.

    The sum grows with b. The two sides of the last bracket are mixed so that the sum is the goal to rounding, which
    stays in the (convex) range.
    """

    def at(b: Float[Array, ""]) -> tuple[Float[Array, "n"], Float[Array, ""]]:
        point = loss.project_dual(a + b, y)
        return point, dot(weights, point)

    low, high = bisect(lambda b: at(b)[1] < goal, *bracket)
    (below, under), (above, over) = at(low), at(high)
    span = over - under
    share = jnp.where(span > 0, jnp.clip((over - goal) / jnp.where(span > 0, span, 1), 0, 1), 0.5)
    return loss.project_dual(share * below + (1 - share) * above, y)


def best_shift(
    loss: AbstractLoss, eta: Float[Array, "n"], y: Float[Array, "n"], weights: Float[Array, "n"]
) -> Float[Array, ""]:
    """The number b that minimises sum_i weights_i l(eta_i + b, y_i), by bisection on the derivative."""
    live = weights > 0
    if loss.quadratic:
        return dot(weights, jnp.where(live, y - eta, 0)) / jnp.sum(weights)
    size = jnp.abs(eta) + jnp.abs(y)
    if not loss.smooth:  # y may be the exponential of its best prediction
        size = size + jnp.abs(jnp.log(jnp.where(y == 0, 1, jnp.abs(y))))
    size = jnp.max(jnp.where(live, size, 0)) + 10

    def falling(b: Float[Array, ""]) -> Bool[Array, ""]:
        return dot(weights, loss.derivative(jnp.where(live, eta + b, 0), y)) < 0

    low, high = bisect(falling, -size, size)
    return 0.5 * (low + high)
