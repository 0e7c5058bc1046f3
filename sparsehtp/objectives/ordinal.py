"""Ordinal regression by cumulative logits (proportional odds)."""

from types import ModuleType
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._types import AnyArray, ArrayLike, HostArray, Support, TableLike, host, is_concrete, replace
from ..columns import Columns, columns_of, design_of
from ..designs import AbstractDesign
from ..linalg import dot, masked_factor
from .base import AbstractRestrictable
from .cumulative_logits import CumulativeLogits
from .likelihood import Part
from .model import AbstractModel
from .normal_equations import AbstractNormalEquations

EMPTY = 1e-5  # weight, beside a total of one, of the row that a class without weight gets; least share at the origin
ROUNDINGS = 16  # ulp that a curvature may be off
APART = 0.1  # how far thresholds that did not increase are put above each other


class OrdinalModel(AbstractModel, AbstractRestrictable):
    """Mean negative log-likelihood of ordered classes under cumulative logits, plus a ridge penalty.

        F(w, theta) = -(1/W) sum_i s_i log P(y_i | x_i) + (1/2) sum_j l2_j w_j^2,    W = sum_i s_i,
        P(y <= c | x_i) = sigmoid(theta_c - x_i'w - o_i),    c = 0, ..., K - 2

    with increasing thresholds theta_0 < ... < theta_{K-2}, which take the place of an intercept: they are free, never
    penalised, thresholded or counted in k, and `Solution.intercept` holds them, (K - 1,). A larger x'w makes higher
    classes more likely, at the same odds ratio at every threshold (proportional odds). K = 2 is logistic regression
    with the intercept -theta_0.

    Standardisation, weights, offset and extreme sizes are those of a `LinearModel` with an intercept: columns are
    centred, and a constant one has the coefficient 0. Where a class has no row with a weight, as may happen in a fold
    or a bootstrap, its probability would go to zero and its thresholds to each other, or to infinity; there, F counts
    one row of the class at x = 0 (of centred columns) with the weight 1e-5 W, so that its minimiser is finite.

    Args:
        X: (n, p) array or design.
        y: (n,) classes, integers 0, ..., K - 1 in their order.
        n_classes: K >= 2; None: that of y, where every class then needs a row.
        l2, sample_weight, standardize, offset: as in `LinearModel`.

    Raises:
        ValueError: for empty, misshapen or nonfinite data, weights or l2, or classes that are not 0, ..., K - 1.

    F is jointly convex in (w, theta), and infinite where the thresholds do not increase. Without l2 it has no minimiser
    on a support that orders the classes perfectly. Thresholds start at the log-odds of the classes' shares (of 1e-5 at
    least), the minimiser for w = 0. `lipschitz` is the largest eigenvalue of the Hessian there, which is no bound for
    other points: prefer the searching steps.

    Source: McCullagh (1980); Pratt (1981) for convexity.
    """

    columns: Columns
    y: Int[Array, "n"]
    base: Float[Array, "t"]  # x ends in levels less these, so that F is finite at zero: a threshold and the next gaps
    empty: Float[Array, "c"]  # weights of the rows of classes that have none
    counted = "classes"

    def __init__(
        self,
        X: TableLike | AbstractDesign,
        y: ArrayLike,
        n_classes: int | None = None,
        l2: ArrayLike = 0.0,
        sample_weight: ArrayLike | None = None,
        standardize: bool = False,
        offset: ArrayLike | None = None,
    ) -> None:
        design = design_of(X)
        y, n_classes = check_classes(y, n_classes, design.shape[0])
        self.columns = columns_of(design, l2, sample_weight, bool(standardize), offset, centre=True).columns
        self.y = jnp.asarray(y, jnp.int32)
        self.base, self.empty = self._start(self.sample_weight, n_classes)

    def _start(self, weights: AnyArray, n_classes: int) -> tuple[Float[Array, "t"], Float[Array, "c"]]:
        """Levels at the classes' shares of the weights, and weights for classes that have none."""
        known = is_concrete(weights, self.y)  # on the host, then
        xp: ModuleType = np if known else jnp
        if known:
            shares: AnyArray = np.bincount(host(self.y), host(weights).astype(float), n_classes)
        else:
            shares = dot(jnp.asarray(weights), jax.nn.one_hot(self.y, n_classes, dtype=weights.dtype))
        shares = shares / shares.sum()
        empty, shares = EMPTY * (shares == 0), xp.maximum(shares, EMPTY)
        below, above = xp.cumsum(shares)[:-1], xp.cumsum(shares[::-1])[::-1][1:]
        return jnp.asarray(_levels(xp.log(below / above)), self.dtype), jnp.asarray(empty, self.dtype)

    @property
    def labels(self) -> Array:
        return self.y

    @property
    def likelihood(self) -> CumulativeLogits:
        return CumulativeLogits(self.y, self.columns.weights, self.empty)

    def over(self, columns: Columns, weighted: bool = True) -> Self:
        if not weighted:
            return replace(self, columns=columns)
        base, empty = self._start(columns.sample_weight, self.n_classes)
        return replace(self, columns=columns, base=base, empty=empty)

    def scorer(self, sample_weight: Float[Array, "n"] | None = None) -> Self:
        return replace(self, columns=self.columns.scoring(sample_weight), empty=jnp.zeros_like(self.empty))

    # --- shape and units ---------------------------------------------------------------------------------------------
    @property
    def n_classes(self) -> int:
        """K."""
        return self.empty.shape[0]

    @property
    def n_free(self) -> int:
        return self.n_classes - 1

    def to_internal(self, x: Float[Array, "p"], intercept: ArrayLike | None = None) -> Float[Array, "d"]:
        """x of the solver from coefficients and thresholds in original units; None: those of w = 0."""
        w, shift = self.columns.to_internal(x)
        known = is_concrete(w, shift, intercept, self.base)
        xp: ModuleType = np if known else jnp
        base = host(self.base) if known else self.base
        own = xp.zeros_like(base) if intercept is None else _levels(xp.asarray(intercept) - shift) - base
        return jnp.asarray(xp.append(w, own), self.dtype)

    def to_external(self, x: Float[Array, "d"]) -> tuple[Float[Array, "p"], Float[Array, "t"]]:
        p = self.n_coefficients
        w, shift = self.columns.to_external(x[:p])
        return w, jnp.cumsum(self.base + x[p:]) - shift

    def intercept_of(self, w: Float[HostArray, "p"], free: Float[HostArray, "t"]) -> Float[HostArray, "t"]:
        return np.cumsum(np.asarray(self.base, float) + free) - self.units.intercept(w, 0.0)

    def intercept_error(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        p = self.n_coefficients
        size = jnp.sum(jnp.abs(self.base + x[p:]))
        return super().intercept_error(x[:p]) + jnp.finfo(self.dtype).eps * size

    def feasible(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        p = self.n_coefficients
        levels = self.base + x[p:]
        apart = (levels > 0) | (jnp.arange(self.n_free) == 0)
        return x.at[p:].add(jnp.where(apart, 0, APART - levels))

    # --- predictions are followed by levels --------------------------------------------------------------------------
    def _own(self, support: Support) -> Support:
        """The coefficients of a support, which may hold levels."""
        return Support(support.idx, support.mask & (support.idx < self.n_coefficients))

    def forward(self, x: Float[Array, "d"], support: Support | None = None) -> Float[Array, "nt"]:
        p = self.n_coefficients
        return jnp.append(super().forward(x[:p], support and self._own(support)), self.base + x[p:])

    def product(self, v: Float[Array, "d"], support: Support | None = None) -> Float[Array, "nt"]:
        p = self.n_coefficients
        return jnp.append(super().product(v[:p], support and self._own(support)), v[p:])

    def pulled(self, rows: Float[Array, "nt"]) -> Float[Array, "d"]:
        n = self.columns.n
        return jnp.append(super().pulled(rows[:n]), rows[n:])

    def penalty(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        return jnp.pad(super().penalty(x[: self.n_coefficients]), (0, self.n_free))

    def part(self, support: Support) -> Part:  # with a row of its own for every level, as for a sample
        part, t = super().part(self._own(support)), self.n_free
        place = (support.idx == self.n_coefficients + jnp.arange(t)[:, None]) & support.mask
        offset = jnp.zeros(self.columns.n, self.dtype) if part.offset is None else part.offset
        return replace(
            part,
            A=jnp.concatenate([part.A, place.astype(self.dtype)]),
            offset=jnp.append(offset, self.base),
            live=jnp.append(part.live, jnp.ones(t, bool)),
            mask=support.mask,
            free=jnp.any(place, axis=0),
        )

    # --- second derivatives ------------------------------------------------------------------------------------------
    def normal_equations(self, x: Float[Array, "d"] | None = None) -> "OrdinalEquations":
        x, p, columns = self.origin() if x is None else x, self.n_coefficients, self.columns
        forward, w = self.forward(x), x[:p]
        value, (grad, slope) = self.value_at(forward, x), jnp.split(self.grad_at(forward, x), [p])
        h = self.likelihood.curvature(forward)
        cross = jax.vmap(columns.transpose_product, 1, 1)(h.cross)
        # The thresholds minimised out.
        inverse = masked_factor(h.inner, jnp.ones(self.n_free, bool)).inverse(self.dtype)
        follow = dot(cross, inverse)
        grad = grad - dot(follow, slope)
        product = columns.transpose_product(h.rows * columns.product(w)) + columns.ridge() * w
        product = product - dot(follow, dot(w, cross))
        gram = columns.gram_diagonal(h.rows)
        own = gram - jnp.sum(follow * cross, axis=1)
        constant = own <= ROUNDINGS * jnp.finfo(self.dtype).eps * gram  # such a column repeats the thresholds
        return OrdinalEquations(
            columns=columns,
            weights=h.rows,
            cross=cross,
            follow=follow,
            rhs=product - grad,
            diagonal=jnp.where(constant, 0, own) + columns.ridge(),
            constant=2 * value - dot(slope, dot(inverse, slope)) - 2 * dot(grad, w) + dot(w, product),
        )


class OrdinalEquations(AbstractNormalEquations):
    """The quadratic model of an `OrdinalModel` around a point, the thresholds minimised out."""

    columns: Columns
    weights: Float[Array, "n"]  # curvature in the linear predictors
    cross: Float[Array, "p t"]  # of the Hessian
    follow: Float[Array, "p t"]  # `cross` times the inverse of the thresholds' block
    rhs: Float[Array, "p"]
    diagonal: Float[Array, "p"]
    constant: Float[Array, ""]

    def rows(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        columns = self.columns
        A = columns.on(Support(idx, jnp.ones(idx.shape, bool)))
        gram = jax.vmap(columns.transpose_product)((self.weights[:, None] * A).T)
        gram = gram - dot(self.follow[idx], self.cross.T)
        return gram.at[jnp.arange(idx.shape[0]), idx].add(columns.ridge()[idx])


def _levels(thresholds: AnyArray) -> AnyArray:
    xp: ModuleType = np if is_concrete(thresholds) else jnp
    return xp.concatenate([thresholds[:1], xp.diff(thresholds)])


def check_classes(y: ArrayLike, n_classes: int | None, n: int) -> tuple[AnyArray, int]:
    """The classes of n rows and how many there are, or ValueError."""
    if np.shape(y) != (n,):
        raise ValueError(f"y: needs shape ({n},), one class per row of X, got {np.shape(y)}.")
    if n_classes is not None and n_classes < 2:
        raise ValueError(f"n_classes: must be at least 2, got {n_classes}.")
    if not is_concrete(y):
        if n_classes is None:
            raise ValueError("n_classes: must be given where y is traced.")
        return jnp.asarray(y), n_classes
    y = np.asarray(y)
    if y.dtype.kind not in "fiub" or not np.isin(y, np.arange(n if n_classes is None else n_classes)).all():
        most = "" if n_classes is None else f" up to {n_classes - 1}"
        raise ValueError(
            f"y: needs classes numbered 0, 1 and so on{most}, in their order; number labels with np.unique."
        )
    present = np.unique(y)
    if n_classes is None and (present.size < 2 or present[-1] >= present.size):
        raise ValueError("y: needs two classes or more, each with a row; renumber them, or pass n_classes.")
    return y, present.size if n_classes is None else int(n_classes)
