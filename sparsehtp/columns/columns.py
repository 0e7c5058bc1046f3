"""The columns that a model predicts from: a design under weights, in the units in which it is solved."""

import functools
from collections.abc import Callable
from typing import Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._types import AnyArray, ArrayLike, DType, HostArray, Scalar, Support, host, is_concrete, replace
from ..designs import AbstractDesign, DenseDesign
from ..linalg import POWER_STEPS, dot, largest_eigenvalue, random_start
from .checks import check_l2, weight_vector
from .moments import is_constant, moments_of, standardisation

LARGEST_RIDGE = 20  # powers of two that l2 in the units of scaled columns stays below the largest number
ROWS_AT_ONCE = 128  # in a pass over single samples
FEW_ROWS, ROWS_SHARE = 512, 40  # at least so many rows, and this part of all, stand for the rest
LEAST_STEPS = 10
FEW_PAIRS = 2**14  # of places and entries, that are compared in no time

P = ParamSpec("P")
R = TypeVar("R")


def _by_column(method: Callable[Concatenate["Columns", Array, P], R]) -> Callable[Concatenate["Columns", Array, P], R]:
    """A map of vectors that maps each column of a matrix, one for every response."""

    @functools.wraps(method)
    def mapped(self: "Columns", x: Float[Array, "_ *c"], /, *args: P.args, **kwargs: P.kwargs) -> R:
        one = functools.partial(method, self)
        if x.ndim == 1:
            return one(x, *args, **kwargs)
        return jax.vmap(lambda v: one(v, *args, **kwargs), 1, -1)(x)

    return mapped


class Columns(eqx.Module):
    """A design under sample weights, in the solver's units, with offset and ridge.

        eta = Z x + o,   Z_j = (X_j - shift_j - mean_j) inverse_scale_j,   and a column of ones where x has a free entry

    In original units a model has coefficients w and an intercept b; `to_internal` and `to_external` lead there and
    back, through all that was shifted and scaled. A map of vectors takes a matrix too, with a column per response.

    Attributes:
        design: dense columns less `shift`, which is zero or exact.
        sample_weight: (n,) weights as given.
        l2: ridge strength, a scalar or (p,), in the units of standardised columns, or else in original ones.
        inverse_scale, mean: of the design's columns under these weights where they are standardised, which is left to
            products as rank-one corrections; else scales are powers of two, one but for columns of an extreme size, and
            there is no mean to take off.
        offset: (n,), or (n, c) for c responses, less `offset_mean`; None: zero.
        centred: an intercept, or what takes its place, is fitted.
        n_free: 1: that intercept is the last entry of x; 0: x has none.
    """

    design: AbstractDesign
    sample_weight: Float[Array, "n"]
    l2: Float[Array, ""] | Float[Array, "p"]
    inverse_scale: Float[Array, "p"]
    shift: Float[Array, "p"]
    mean: Float[Array, "p"] | None = None
    offset: Float[Array, "n *c"] | None = None
    offset_mean: Float[Array, "*c"] | None = None
    centred: bool = eqx.field(static=True, default=False)
    n_free: int = eqx.field(static=True, default=0)
    standardize: bool = eqx.field(static=True, default=False)

    # --- other forms -------------------------------------------------------------------------------------------------
    def reweighted(self, sample_weight: ArrayLike | None = None, l2: ArrayLike | None = None) -> Self:
        """These columns under other weights, whose own moments standardise them, or with another l2."""
        new = self
        if l2 is not None:
            l2 = jnp.asarray(l2, self.dtype)
            check_l2(l2, self.p)
            new = replace(new, l2=l2)
        if sample_weight is not None:
            # The weights' own moments: rows without weight must not leak into a fold's fit.
            new = replace(new, sample_weight=weight_vector(sample_weight, self.n, self.dtype)).exactly()
        return new

    def exactly(self) -> Self:
        """These columns, standardised in their present dtype."""
        if not self.standardize:
            return self
        mean, inverse_scale = standardisation(self.design, self.sample_weight, self.centred)
        return replace(self, mean=mean, inverse_scale=inverse_scale)

    def scoring(self, sample_weight: Float[Array, "n"] | None = None) -> Self:
        """These units without l2, under weights to score with."""
        weights = self.sample_weight if sample_weight is None else sample_weight
        return replace(self, sample_weight=weights, l2=jnp.zeros((), self.dtype))

    def subset(self, idx: Int[Array, "m"]) -> Self:
        """The columns idx alone."""
        return self.cut(self.design.subset(idx), lambda a: a[idx])

    def narrowed(self, p: int) -> Self:
        """The first p columns, on the host: the others were padding, and no program is compiled to leave them out."""
        return self.cut(self.design.narrowed(p), lambda a: jnp.asarray(np.asarray(a)[:p]))

    def cut(self, design: AbstractDesign, part: Callable[[Array], Array]) -> Self:
        """Some of the columns, by their design and by the part of what holds a number for each."""
        each = {name: getattr(self, name) for name in ("l2", "inverse_scale", "shift", "mean")}
        return replace(self, design=design, **{name: part(a) for name, a in each.items() if a is not None and a.ndim})

    def rows(self, i: Int[Array, "b"], sample_weight: Float[Array, "b"]) -> Self:
        """The rows i under weights of their own, in the units of all rows."""
        offset = None if self.offset is None else self.offset[i]
        return replace(self, design=DenseDesign(self.design.rows(i)), sample_weight=sample_weight, offset=offset)

    def dense_rows(self, i: Int[Array, "b"]) -> Float[Array, "b p"]:
        """Rows of Z without the column of ones, dense."""
        rows = self.design.rows(i)
        return (rows if self.mean is None else rows - self.mean) * self.inverse_scale

    # --- shape and units ---------------------------------------------------------------------------------------------
    @property
    def n(self) -> int:
        """Rows."""
        return self.design.shape[0]

    @property
    def p(self) -> int:
        """Columns, without that of ones."""
        return self.design.shape[1]

    @property
    def dtype(self) -> DType:
        """Floating dtype of all products."""
        return self.design.dtype

    @property
    def weights(self) -> Float[Array, "n"]:
        """Sample weights that sum to one."""
        return self.sample_weight / jnp.sum(self.sample_weight)

    @property
    def rescaled(self) -> bool:
        """True if columns of an extreme size were scaled, so that x is not in the units of a user's l1."""
        known = not self.standardize and is_concrete(self.inverse_scale)
        return known and bool(np.any(host(self.inverse_scale) != 1))

    def internal_scale(self) -> Float[AnyArray, "p"]:
        """Factor from coefficients in original units to the entries of x."""
        known = is_concrete(self.inverse_scale)
        xp, scale = (np, host(self.inverse_scale)) if known else (jnp, self.inverse_scale)
        return xp.where(scale == 0, scale, 1 / xp.where(scale == 0, 1, scale)).astype(scale.dtype)

    def base(self, target_mean: Float[Array, "*c"] | None = None) -> Float[Array, "*c"] | float:
        """By how much the intercept in original units is above that about the means of targets and offsets."""
        return (0.0 if target_mean is None else target_mean) - (0.0 if self.offset_mean is None else self.offset_mean)

    def units(self, target_mean: Float[Array, "*c"] | None = None) -> "Units":
        """The way from the solver's intercept to that in original units, on the host."""
        centre = host(self.shift).astype(float) + (0.0 if self.mean is None else host(self.mean).astype(float))
        means = [np.zeros(()) if m is None else host(m).astype(float) for m in (target_mean, self.offset_mean)]
        return Units(centre, np.asarray(means[0] - means[1]))

    def to_internal(
        self, w: AnyArray, b: AnyArray | float = 0.0, target_mean: Float[Array, "*c"] | None = None
    ) -> tuple[AnyArray, AnyArray | float]:
        """Coefficients and intercept of the solver, from those in original units; on the host where all is known."""
        known = is_concrete(w, b, target_mean, self.offset_mean, self.shift, self.mean, self.inverse_scale)
        xp, w = (np, host(w)) if known else (jnp, w)
        if known:
            b = self.units(target_mean).level(host(w), host(b))
        else:
            b = b - self.base(target_mean) + dot(self.shift, jnp.asarray(w))
            b = b if self.mean is None else b + dot(self.mean, jnp.asarray(w))
        scale, most = self.internal_scale(), float(jnp.finfo(self.dtype).max)
        with np.errstate(over="ignore"):  # a start whose predictions are out of range stays a number
            return xp.clip(w * (scale if w.ndim == 1 else scale[:, None]), -most, most), b

    def to_external(
        self, x: Float[Array, "d *c"], target_mean: Float[Array, "*c"] | None = None
    ) -> tuple[Float[Array, "p *c"], Float[Array, "*c"]]:
        """Coefficients and intercept in original units."""
        w, b = self.in_design_units(x)
        return w, b - dot(self.shift, w) + self.base(target_mean)

    def intercept_error(
        self, x: Float[Array, "d *c"], target_mean: Float[Array, "*c"] | None = None
    ) -> Float[Array, "*c"]:
        """At most about what is rounded off the intercept in original units."""
        return jnp.finfo(self.dtype).eps * (self._moved(x) + jnp.abs(self.base(target_mean)))

    @_by_column
    def _moved(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        w, b = jnp.abs(x[: self.p]) * self.inverse_scale, jnp.sum(jnp.abs(x[self.p :]))
        b = b + dot(jnp.abs(self.shift), w)
        return b if self.mean is None else b + dot(jnp.abs(self.mean), w)

    @_by_column
    def in_design_units(self, x: Float[Array, "d"]) -> tuple[Float[Array, "p"], Float[Array, ""]]:
        """w and b with X w + b the product Z x, for the design's own columns X."""
        w = x[: self.p] * self.inverse_scale
        b = x[self.p] if self.n_free else jnp.zeros((), x.dtype)
        return w, b if self.mean is None else b - dot(self.mean, w)

    # --- products ----------------------------------------------------------------------------------------------------
    @_by_column
    def product(self, x: Float[Array, "d"], support: Support | None = None) -> Float[Array, "n"]:
        """Z x; a support that holds the nonzeros of x makes it cost the support's columns only."""
        if support is not None and not self.design.sparse:
            return dot(self.on(support), gather(x, support))
        w, b = self.in_design_units(x)
        return self.design.mv(w) + b

    def predict(self, x: Float[Array, "d *c"], support: Support | None = None) -> Float[Array, "n *c"]:
        """Z x + o, moderate in rows without weight; the support is that of `product`."""
        eta = self.product(x, support)
        return bounded(eta if self.offset is None else eta + self.offset, self.sample_weight > 0)

    def on(self, support: Support) -> Float[Array, "n m"]:
        """The columns of Z on a support, dense; zeros on padding."""
        j = jnp.minimum(support.idx, self.p - 1)
        A = self.design.columns(j)
        A = (A if self.mean is None else A - self.mean[j]) * self.inverse_scale[j]
        if self.n_free:
            A = jnp.where(support.idx == self.p, 1, A)
        return jnp.where(support.mask, A, 0)

    @_by_column
    def transpose_product(self, r: Float[Array, "n"]) -> Float[Array, "d"]:
        """Z'r."""
        g = self.design.rmv(r)
        g = (g if self.mean is None else g - self.mean * jnp.sum(r)) * self.inverse_scale
        return jnp.append(g, jnp.sum(r)) if self.n_free else g

    def ridge(self) -> Float[Array, "d"]:
        """l2 per entry of x: zero for the intercept."""
        l2 = jnp.broadcast_to(self.l2, (self.p,))
        if not self.standardize:
            # Where it leaves the dtype's range the coefficient is zero to working precision.
            most = jnp.finfo(l2.dtype).max * 2.0**-LARGEST_RIDGE
            l2 = jnp.minimum(l2 * self.inverse_scale * self.inverse_scale, most)
        return jnp.append(l2, jnp.zeros((), l2.dtype)) if self.n_free else l2

    @_by_column
    def ridge_product(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        """ridge() * x, also where ridge() underflows and x is large."""
        ridge = self.ridge()
        if self.standardize:
            return ridge * x
        slope = self.l2 * (x[: self.p] * self.inverse_scale) * self.inverse_scale
        slope = jnp.append(slope, jnp.zeros_like(x, shape=x.shape[0] - slope.shape[0]))  # none of the intercept
        return jnp.where(ridge < jnp.finfo(x.dtype).tiny, slope, ridge * x)

    # --- curvature ---------------------------------------------------------------------------------------------------
    def gram_diagonal(self, weights: Float[Array, "n"]) -> Float[Array, "d"]:
        """Diagonal of Z' diag(weights) Z."""
        diagonal, total = self.design.column_norms(weights, self.inverse_scale) ** 2, jnp.sum(weights)
        if self.mean is not None:
            mean, sums = self.mean * self.inverse_scale, self.design.rmv(weights) * self.inverse_scale
            diagonal = jnp.maximum(diagonal - mean * (2 * sums - mean * total), 0)
        return jnp.append(diagonal, total) if self.n_free else diagonal

    def moments(self, weights: Float[Array, "n"] | None = None) -> tuple[Float[Array, "p"] | None, Float[Array, "p"]]:
        """Mean of every column of Z (None: zero, or no intercept takes it) and weighted sum of squares about it.

        `weights` have any sum; None: the columns' own, of sum one.
        """
        if self.centred and self.standardize and weights is None:
            return None, (self.inverse_scale > 0).astype(self.dtype)  # unit variances; constant columns are zero
        weights = self.weights if weights is None else weights
        if not self.centred:
            return None, self.design.column_norms(weights, self.inverse_scale) ** 2
        total = jnp.sum(weights)
        mean, deviation = moments_of(self.design, weights / total)
        deviation = jnp.where(is_constant(mean, deviation), 0, deviation)  # it repeats the intercept
        mean = mean if self.mean is None else mean - self.mean
        return mean * self.inverse_scale, total * (deviation * self.inverse_scale) ** 2

    def norms(self) -> Float[Array, "p"]:
        """At least the weighted norms of the columns of Z before they are centred."""
        size = self.design.column_norms(self.weights, self.inverse_scale)
        return size if self.mean is None else size + jnp.abs(self.mean) * self.inverse_scale

    def lipschitz(self, smoothness: Scalar, num_steps: int = POWER_STEPS) -> Float[Array, ""]:
        """Largest eigenvalue of smoothness Z' diag(weights) Z + diag(ridge)."""
        weights, ridge = self.weights, self.ridge()

        def product(v: Float[Array, "d"]) -> Float[Array, "d"]:
            return smoothness * self.transpose_product(weights * self.product(v)) + ridge * v

        # Columns of zeros behind the others must not change where this starts.
        start = jnp.append(random_start(self.p, self.dtype), jnp.ones(self.n_free, self.dtype))
        return largest_eigenvalue(product, start, num_steps)

    def row_sizes(self) -> Float[Array, "n"]:
        """n omega_i ||z_i||^2: times a loss's smoothness, the curvature of every single sample."""

        def sizes(i: Int[Array, "b"]) -> Float[Array, "b"]:
            share = self.n * self.weights[i]
            rows = jnp.sqrt(share)[:, None] * self.dense_rows(i)  # rows without weight are gone before squares overflow
            return jnp.sum(rows * rows, axis=1) + share * self.n_free

        return some_at_a_time(sizes, self.n, ROWS_AT_ONCE)

    @property
    def tall(self) -> bool:
        """Whether rows are so many that a curvature is estimated."""
        return self.n > FEW_ROWS

    @property
    def _some(self) -> tuple[int, int]:
        """How many rows stand for all, and the power steps on them: half a pass where rows are many."""
        if self.design.sparse:  # drawn rows would be dense
            return self.n, LEAST_STEPS
        m = max(FEW_ROWS, self.n // ROWS_SHARE)
        return m, max(self.n // (2 * m), LEAST_STEPS)

    @property
    def rough_rows(self) -> int:
        """Rows that `rough_lipschitz` multiplies with."""
        return self._some[0] * self._some[1]

    def rough_lipschitz(self, smoothness: Scalar, sizes: Float[Array, "n"]) -> Float[Array, ""]:
        """`lipschitz`, of some rows drawn by their `row_sizes`, which makes their sum of products that of all in
        expectation, and near it however much a few of them weigh; of sparse rows by all, in few steps.

        q steps lose a part of about 1 - 1 / r with r^q the square root of p: ten less than a half, for p up to 2^20.
        """
        m, steps = self._some
        if m == self.n:
            return self.lipschitz(smoothness, steps)
        ends = jnp.cumsum(sizes) / jnp.sum(sizes)
        places = (jnp.arange(m) + jax.random.uniform(jax.random.key(0), (m,), ends.dtype)) / m
        i = jnp.minimum(jnp.searchsorted(ends, places), self.n - 1).astype(jnp.int32)
        size = jnp.where(sizes[i] > 0, sizes[i], 1)
        share = jnp.where(sizes[i] > 0, self.weights[i] * (jnp.sum(sizes) / (m * size)), 0)
        total = jnp.sum(share)
        share = jnp.where(total > 0, share, 1)
        return self.rows(i, share).lipschitz(smoothness * total, steps)


class Units(NamedTuple):
    """The point that a predictor is about, in float64 and original units.

    The solver predicts (X - centre) w + level, less the base, by which the means of the targets are above those of the
    offsets; so that X w + b has b = level + base - centre'w, which single precision cannot hold far from zero.
    """

    centre: Float[HostArray, "p"]
    base: Float[HostArray, "*c"]

    def intercept(self, w: Float[HostArray, "p *c"], level: HostArray | float) -> HostArray:
        """b, a number or (c,), for coefficients as they were rounded."""
        return level + self.base - self.centre @ w

    def level(self, w: Float[HostArray, "p *c"], intercept: HostArray | float) -> HostArray:
        """The solver's intercept, from that in original units."""
        return intercept - self.base + self.centre @ w


def bounded(eta: Float[Array, "n *c"], live: Bool[Array, "n"]) -> Float[Array, "n *c"]:
    """Predictions, moderate where there is no weight: such a row must not turn 0 * exp(eta) into NaN."""
    live = live if eta.ndim == 1 else live[:, None]
    return jnp.where(live, eta, jnp.clip(eta, -50, 50))


def some_at_a_time(
    numbers: Callable[[Int[Array, "b"]], Float[Array, "b"]], size: int, most: int
) -> Float[Array, "size"]:
    """A function of indices at all below `size`, at most so many at a time."""
    width = min(most, size)

    def some(first: Int[Array, ""]) -> Float[Array, "b"]:
        return numbers(jnp.minimum(first + jnp.arange(width, dtype=jnp.int32), size - 1))

    return lax.map(some, jnp.arange(0, size, width, dtype=jnp.int32)).ravel()[:size]


def gather(x: Float[Array, "d"], support: Support) -> Float[Array, "m"]:
    """Entries of x on a support, zero on padding."""
    return jnp.where(support.mask, x[support.idx], 0)


def scatter(z: Float[Array, "m"], support: Support, size: int) -> Float[Array, "size"]:
    """The vector of length `size` that is z on the support and zero elsewhere."""
    z = jnp.where(support.mask, z, 0)
    if z.size * size <= FEW_PAIRS:  # one kernel, where a scatter is eight
        return jnp.sum(jnp.where(support.idx[:, None] == jnp.arange(size), z[:, None], 0), axis=0)
    # `add`, not `set`: padded indices may repeat a chosen one.
    return jnp.zeros(size, z.dtype).at[support.idx].add(z)
