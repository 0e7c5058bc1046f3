"""Columns and a likelihood: what is common to all models of linear predictors."""

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._programs import program
from .._types import AnyArray, ArrayLike, DType, HostArray, Scalar, Support, host, is_concrete, replace
from ..columns import Columns, Units, gather, scatter
from ..designs import AbstractDesign
from ..linalg import dot, largest_eigenvalue, random_start
from ..losses import AbstractRowLoss
from .base import AbstractRefittable, AbstractRestricted, Counted
from .finite_sum import AbstractFiniteSum, AbstractSamples, Smoothness
from .likelihood import AbstractLikelihood, Part, weighed


class AbstractModel(AbstractRefittable):
    """F(x) = L(Z x + o) + (1/2) sum_j ridge_j x_j^2, a convex function L of what columns predict.

    A model whose free entries are no intercept, or whose predictions are arranged otherwise than the data's rows, has
    its own `forward`, `product`, `pulled`, `penalty` and `part`.
    """

    castable = True

    if TYPE_CHECKING:  # to mypy an AbstractVar is an argument of every subclass

        @property
        def columns(self) -> Columns: ...
        @property
        def likelihood(self) -> AbstractLikelihood: ...  # L
    else:
        columns: eqx.AbstractVar[Columns]
        likelihood: eqx.AbstractVar[AbstractLikelihood]

    def spread(self, r: Float[Array, "n"], weights: Float[Array, "n"]) -> Float[Array, "n"]:
        return _spread(self.columns.design, r, weights / jnp.sum(weights))

    def over(self, columns: Columns, weighted: bool = True) -> Self:
        """This model over other columns, of other weights where `weighted`."""
        return replace(self, columns=columns)

    def reweighted(self, sample_weight: ArrayLike | None = None, l2: ArrayLike | None = None) -> Self:
        return self.over(self.columns.reweighted(sample_weight, l2), sample_weight is not None)

    def scorer(self, sample_weight: Float[Array, "n"] | None = None) -> Self:
        return self.over(self.columns.scoring(sample_weight), sample_weight is not None)

    def exactly(self) -> Self:
        """This model, all that it derives from weights computed in its present dtype."""
        return self.over(self.columns.exactly())

    def subset(self, idx: Int[Array, "m"]) -> Self:
        """The model of the columns idx alone (and the free entries), the other coefficients being zero."""
        return self.over(self.columns.subset(idx), False)

    # --- shape and units ---------------------------------------------------------------------------------------------
    def matrix(self, x: Float[Array, "d"]) -> Float[Array, "m *c"]:
        """x with a column for every response, where there are several."""
        return x

    @property
    def n_coefficients(self) -> int:
        return self.columns.p

    @property
    def n_free(self) -> int:
        return self.columns.n_free

    @property
    def dtype(self) -> DType:
        return self.columns.dtype

    @property
    def sparse(self) -> bool:
        return self.columns.design.sparse

    @property
    def sample_weight(self) -> Float[Array, "n"]:
        """(n,) weights."""
        return self.columns.sample_weight

    @property
    def l2(self) -> Array:
        """Ridge strength."""
        return self.columns.l2

    @property
    def ifo_per_gradient(self) -> int:
        return self.columns.n

    @property
    def rescaled(self) -> bool:
        return self.columns.rescaled

    @property
    def units(self) -> Units:
        """The way from the solver's intercept to that in original units, on the host."""
        return self.columns.units(self.target_mean)

    def about(self, centre: HostArray, level: HostArray) -> Self:
        """The model of data that were given less a centre of the columns and a level of the targets."""
        columns, dtype = self.columns, self.dtype
        shift = jnp.asarray(host(columns.shift) + centre, dtype)
        return replace(
            self.over(replace(columns, shift=shift), False),
            target_mean=jnp.asarray(host(self.target_mean) + level, dtype),
        )

    def internal_scale(self) -> Float[AnyArray, "p"]:
        return self.columns.internal_scale()

    def to_internal(self, x: Float[Array, "p *c"], intercept: AnyArray | float = 0.0) -> Float[Array, "d"]:
        w, b = self.columns.to_internal(x, intercept, self.target_mean)
        xp: ModuleType = np if is_concrete(w, b) else jnp
        free = xp.broadcast_to(b, (self.n_free,)) if self.n_free else ()
        return jnp.asarray(xp.append(w, xp.asarray(free, self.dtype)), self.dtype)

    def to_external(self, x: Float[Array, "d"]) -> tuple[Float[Array, "p *c"], Float[Array, "*c"]]:
        return self.columns.to_external(self.matrix(x), self.target_mean)

    def intercept_of(self, w: Float[HostArray, "p *c"], free: Float[HostArray, "_"]) -> Float[HostArray, "*c"]:
        level = np.asarray(free, float).reshape(w.shape[1:]) if self.n_free else 0.0
        return np.asarray(self.units.intercept(w, level))

    def intercept_error(self, x: Float[Array, "d"]) -> Float[Array, "*c"]:
        """At most about what is rounded off the intercept in original units."""
        return self.columns.intercept_error(self.matrix(x), self.target_mean)

    def intercept_rounding(self, x: Float[Array, "d"], support: Support | None) -> Float[Array, ""]:
        if not self.n_free:
            return jnp.zeros((), self.dtype)
        eta, error = self.forward(x, support), self.intercept_error(x)
        rows, others = eta[: self.columns.n], eta[self.columns.n :]  # that belong to no row

        def at(rows: Float[Array, "n *c"], x: Float[Array, "d"]) -> Float[Array, ""]:
            return self.value_at(jnp.concatenate([rows, others]), x)

        flat = at(jnp.broadcast_to(dot(self.columns.weights, rows), rows.shape), jnp.zeros_like(x))
        rise = jnp.maximum(at(rows + error, x), at(rows - error, x)) - at(rows, x)
        return jnp.where(rise > jnp.finfo(self.dtype).eps * jnp.abs(flat), rise, 0)

    # --- values and derivatives --------------------------------------------------------------------------------------
    def forward(self, x: Float[Array, "d"], support: Support | None = None) -> Array:
        return self.columns.predict(self.matrix(x), support)

    def product(self, v: Float[Array, "d"], support: Support | None = None) -> Array:
        """How predictions change along v; the support is that of `forward`."""
        return self.columns.product(self.matrix(v), support)

    def pulled(self, rows: Array) -> Float[Array, "d"]:
        """The transpose of `product`."""
        return self.columns.transpose_product(rows).ravel()

    def penalty(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        """The gradient of the ridge."""
        return self.columns.ridge_product(self.matrix(x)).ravel()

    def value_at(self, forward: Array, x: Float[Array, "d"]) -> Float[Array, ""]:
        return self.likelihood.value(forward) + 0.5 * dot(self.penalty(x), x)  # x squared may overflow

    def grad_at(self, forward: Array, x: Float[Array, "d"]) -> Float[Array, "d"]:
        return self.pulled(self.likelihood.gradient(forward)) + self.penalty(x)

    def value_and_grad(
        self, x: Float[Array, "d"], support: Support | None = None
    ) -> tuple[Float[Array, ""], Float[Array, "d"]]:
        value, slope = self.likelihood.value_and_gradient(self.forward(x, support))
        penalty = self.penalty(x)
        return value + 0.5 * dot(penalty, x), self.pulled(slope) + penalty

    def curvature_at(self, forward: Array, v: Float[Array, "d"], support: Support | None) -> Float[Array, ""]:
        along = self.likelihood.hessian(forward).along(self.product(v, support))
        return along + dot(self.penalty(v), v)

    def hessian_product(self, x: Float[Array, "d"]) -> Callable[[Float[Array, "d"]], Float[Array, "d"]]:
        """The function v -> F''(x) v."""
        hessian = self.likelihood.hessian(self.forward(x))
        return lambda v: self.pulled(hessian.times(self.product(v))) + self.penalty(v)

    def lipschitz(self) -> Float[Array, ""]:
        # Columns of zeros behind the others must not change where this starts.
        start = [random_start(size, self.dtype) for size in (self.n_coefficients, self.n_free)]
        return largest_eigenvalue(self.hessian_product(self.origin()), jnp.concatenate(start))

    def part(self, support: Support) -> Part:
        """The columns of a support, which holds no other free entries than theirs."""
        columns = self.columns
        ridge = jnp.where(support.mask, columns.ridge()[support.idx], 0)
        free = support.idx >= columns.p if columns.n_free else None
        return Part(columns.on(support), columns.offset, columns.sample_weight > 0, ridge, support.mask, free)

    def restrict(self, support: Support) -> AbstractRestricted:
        return Restricted(self.part(support), self.likelihood)


class Restricted(AbstractRestricted):
    """A model over the coefficients of some of its columns."""

    part: "Part | PartInPlace"
    likelihood: AbstractLikelihood

    @property
    def mask(self) -> Bool[Array, "m"]:
        return self.part.mask

    @property
    def intercept(self) -> Bool[Array, "m"] | None:
        return self.part.free

    @property
    def quadratic(self) -> bool:
        return self.likelihood.quadratic

    @property
    def kinked(self) -> bool:
        return self.likelihood.kinked

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        return self.likelihood.value(self.part.predict(z)) + 0.5 * dot(self.part.penalty(z), z)

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return self.part.pulled(self.likelihood.gradient(self.part.predict(z))) + self.part.penalty(z)

    def grad_terms(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return self._terms(self.likelihood.terms(self.part.predict(z)), z)

    def _terms(self, terms: PyTree, z: Float[Array, "m"]) -> Float[Array, "m"]:
        ridge = jnp.abs(self.part.ridge)  # of factors it is a matrix, of any signs
        return self.part.powered(terms, 1) + (ridge * jnp.abs(z) if ridge.ndim == 1 else dot(ridge, jnp.abs(z)))

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        return self.hessian_product(z)(v)

    def hessian_product(self, z: Float[Array, "m"]) -> Callable[[Array], Array]:
        part, hessian = self.part, self.likelihood.hessian(self.part.predict(z))
        return lambda v: part.pulled(hessian.times(part.product(v))) + part.penalty(v)

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        return self._with_ridge(self.likelihood.hessian(self.part.predict(z), damping).gram(self.part))

    def _with_ridge(self, gram: Float[Array, "m m"]) -> Float[Array, "m m"]:
        ridge = self.part.ridge
        return gram + (jnp.diag(ridge) if ridge.ndim == 1 else ridge)

    def derivatives(
        self, z: Float[Array, "m"]
    ) -> tuple[Float[Array, "m"], Float[Array, "m"], Callable[[Float[Array, ""] | float], Float[Array, "m m"]]]:
        gradient, terms, gram = self.likelihood.derivatives(self.part.predict(z), self.part)
        grad = self.part.pulled(gradient) + self.part.penalty(z)
        return grad, self._terms(terms, z), lambda damping: self._with_ridge(gram(damping))

    def scale(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        ridge = self.part.ridge
        own = ridge if ridge.ndim == 1 else jnp.diagonal(ridge)
        return self.part.powered(self.likelihood.majorant(self.part.predict(z)), 2) + own

    def without_each(self, z: Float[Array, "m"], n_free: int) -> Float[Array, "m"]:
        follow = super().without_each(z, n_free)
        if self.likelihood.everywhere:
            return follow
        return jnp.where(jnp.isfinite(follow), follow, super().without_each(z, 0))


class PartInPlace(eqx.Module):
    """The columns of a support so large that they stay sparse: products go through the whole design.

    Such a support is refitted by conjugate gradients; a Hessian matrix is made a row at a time.
    """

    model: AbstractModel
    support: Support
    free = None  # conjugate gradients treat all coefficients alike

    @property
    def mask(self) -> Bool[Array, "m"]:
        return self.support.mask

    @property
    def ridge(self) -> Float[Array, "m"]:
        return gather(self.model.columns.ridge(), self.support)

    def _full(self, z: Float[Array, "m"]) -> Float[Array, "d"]:
        return scatter(z, self.support, self.model.n_coefficients + self.model.n_free)

    def predict(self, z: Float[Array, "m"]) -> Float[Array, "n"]:
        return self.model.forward(self._full(z))

    def product(self, v: Float[Array, "m"]) -> Float[Array, "n"]:
        return self.model.product(self._full(v))

    def pulled(self, rows: Float[Array, "n"]) -> Float[Array, "m"]:
        return gather(self.model.pulled(rows), self.support)

    def powered(self, rows: Float[Array, "n"], power: int) -> Float[Array, "m"]:
        """For the first power, which no sparse product gives, infinity."""
        if power == 1:
            return jnp.full(self.mask.shape, jnp.inf, rows.dtype)
        return gather(self.model.columns.gram_diagonal(rows), self.support)

    def gram(self, d: Float[Array, "n"], q: None) -> Float[Array, "m m"]:
        return lax.map(lambda v: self.pulled(d * self.product(v)), jnp.eye(self.mask.size, dtype=d.dtype))

    def penalty(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return gather(self.model.penalty(self._full(z)), self.support)


class AbstractLossModel(AbstractModel, AbstractFiniteSum):
    """A model whose likelihood is a weighted mean of a loss of every row."""

    if TYPE_CHECKING:

        @property
        def loss(self) -> AbstractRowLoss: ...
        @property
        def y(self) -> Array: ...
    else:
        loss: eqx.AbstractVar[AbstractRowLoss]
        y: eqx.AbstractVar[Array]

    scorable = True

    @property
    def quadratic(self) -> bool:
        return bool(self.loss.quadratic)

    @property
    def twice_differentiable(self) -> bool:
        return bool(self.loss.twice_differentiable)

    @property
    def smooth(self) -> bool:
        return bool(self.loss.smooth)

    @property
    def loss_name(self) -> str:
        return type(self.loss).__name__

    @property
    def pieces(self) -> tuple[Scalar, Scalar, Scalar] | None:
        return self.loss.pieces

    @property
    def free_dispersion(self) -> bool:
        return self.loss.free_dispersion

    def excess(self, x: Float[Array, "d"], other: Float[Array, "d"]) -> tuple[Scalar, Scalar]:
        """With the dispersion sum_i s_i l_i'^2 / sum_i s_i l_i'', in the manner of Pearson."""
        return _excess(self, x, other)

    @property
    def counted(self) -> Counted:
        return "classes" if self.loss.classification and self.y.ndim == 1 else "rows"

    @property
    def labels(self) -> Array:
        return self.y

    @property
    def copies_columns(self) -> bool:
        return super().copies_columns and not (self.columns.standardize and self.quadratic)

    def lipschitz(self) -> Float[Array, ""]:
        if not self.smooth:
            return jnp.asarray(jnp.inf, self.dtype)
        return self.columns.lipschitz(self.loss.smoothness)  # all responses share one Gram matrix

    def smoothness(self) -> Smoothness:
        if not self.smooth or not self.columns.tall:
            return super().smoothness()
        sizes = self.columns.row_sizes()
        whole = self.columns.rough_lipschitz(self.loss.smoothness, sizes)
        return Smoothness(self.loss.smoothness * jnp.max(sizes) + jnp.max(self.columns.ridge()), whole)

    @property
    def smoothness_ifo(self) -> int:
        return self.n_samples + self.columns.rough_rows if self.columns.tall else super().smoothness_ifo

    def samples(self) -> "ModelSamples":
        return ModelSamples(self, self.n_samples * self.columns.weights)

    def sample_smoothness(self) -> Float[Array, ""]:
        return self.loss.smoothness * jnp.max(self.columns.row_sizes()) + jnp.max(self.columns.ridge())


@program
def _excess(
    model: AbstractLossModel, x: Float[Array, "d"], other: Float[Array, "d"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    loss, y, eta = model.loss, model.y, model.forward(x)
    each = loss.value(eta, y) - loss.value(model.forward(other), y)
    ratio = jnp.sum(weighed(model.sample_weight, loss.derivative(eta, y) ** 2))
    ratio = ratio / jnp.sum(weighed(model.sample_weight, loss.curvature(eta, y)[0]))
    more = jnp.sum(weighed(model.sample_weight, each)) / jnp.sum(model.sample_weight)
    return more, jnp.where(jnp.isfinite(ratio), ratio, 1)


class ModelSamples(AbstractSamples):
    """f_i = (n s_i / W) l(z_i'x + o_i, y_i) of a model, and its ridge penalty."""

    model: AbstractLossModel
    shares: Float[Array, "n"]  # n s_i / W

    def scores(self, x: Float[Array, "d"], i: Int[Array, "b"]) -> Float[Array, "b *c"]:
        model, shares = self.model, self.shares[i]
        eta = model.columns.rows(i, shares).predict(model.matrix(x))
        return weighed(shares, model.loss.derivative(eta, model.y[i]))

    def scores_at(self, forward: Float[Array, "n *c"]) -> Float[Array, "n *c"]:
        return weighed(self.shares, self.model.loss.derivative(forward, self.model.y))

    def mean_gradient(self, scores: Float[Array, "b *c"], i: Int[Array, "b"] | None = None) -> Float[Array, "d"]:
        columns = self.model.columns
        columns = columns if i is None else columns.rows(i, self.shares[i])
        return columns.transpose_product(scores / scores.shape[0]).ravel()

    def penalty_grad(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        return self.model.penalty(x)


def in_double(value: PyTree) -> PyTree:
    """A concrete pytree with its floating arrays in float64, for use inside `jax.enable_x64(True)`.

    A model derives again what it had derived in single precision.
    """
    single = any(leaf.dtype == np.float32 for leaf in jax.tree.leaves(value) if hasattr(leaf, "dtype"))
    value = _in_double(value) if single else value
    return jax.tree.map(
        lambda part: part.exactly() if isinstance(part, AbstractModel) else part,
        value,
        is_leaf=lambda part: isinstance(part, AbstractModel),
    )


@program
def _in_double(value: PyTree) -> PyTree:
    def double(a: Array) -> Array:
        return a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a

    return jax.tree.map(double, value)


@program
def _spread(design: AbstractDesign, r: Float[Array, "n"], weights: Float[Array, "n"]) -> Float[Array, "n"]:
    deviation = design.moments(weights)[1]
    deviation = jnp.where(deviation > 0, deviation, 1)
    return design.mv(design.rmv(r) / deviation / deviation)
