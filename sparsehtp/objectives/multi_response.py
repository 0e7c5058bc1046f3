"""Linear models with several responses: multi-task regression and softmax classification."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._types import ArrayLike, Support, check_finite, is_concrete, replace
from ..designs import AbstractDesign
from ..linalg import WHOLE, Box, Refit, dot, largest_eigenvalue, masked_factor
from ..losses import AbstractLoss, AbstractVectorLoss, PerResponse, Squared
from .base import AbstractRefittable, AbstractRestricted
from .finite_sum import AbstractFiniteSum, AbstractSamples
from .linear_model import ROWS_AT_ONCE, LinearModel, LinearSamples, about_means, rise
from .restricted_linear_model import bounded


class MultiResponse(AbstractRefittable, AbstractFiniteSum):
    """Weighted mean loss of c linear predictors plus a ridge penalty.

        F(B, b) = (1/W) sum_i s_i l(B'x_i + b + o_i, y_i) + (1/2) sum_j l2_j ||B_j.||^2,    W = sum_i s_i

    over B of shape (p, c); a scalar loss is summed over the responses: `Squared` gives
    (1/2W) sum_i s_i ||B'x_i + b + o_i - y_i||^2.
    Intercepts, standardisation and weights are those of `LinearModel`. Structures: `Rank(r)`, `RowSparsity(k)` (k
    features for all responses), `Sparsity(k)` (k entries; entry (j, r) is number j c + r).

    Args:
        X: (n, p) array or design.
        Y: (n, c) targets; (n,) classes 0, ..., c - 1 for `Softmax`.
        loss: `Softmax(c)`, or an instance of a scalar loss.
        l2: ridge strength, a scalar or (p,), >= 0, in units of the mean loss. ([HSG] has lam / (2 c) ||B||^2 with its
            softmax: l2 = lam / c.)
        sample_weight, fit_intercept, standardize: as in `LinearModel`.
        offset: (n, c) known parts o_i of the predictors. None: zero.

    Raises:
        ValueError: for empty, misshapen or nonfinite data, weights or l2, or targets outside the loss's domain (checked
            on concrete arrays only).
        TypeError: if `loss` is not a loss instance.

    Inside, x is the (p, c) matrix row by row, followed by the c intercepts.
    """

    shared_model: LinearModel  # one response with y = 0: the design, its units, weights and l2
    y: Array
    loss: AbstractVectorLoss
    offset: Float[Array, "n c"] | None
    base: Float[Array, "c"] | None  # what the targets less the offset were centred by
    offset_mean: Float[Array, "c"] | None  # what the offset was centred by

    def __init__(
        self,
        X: ArrayLike | AbstractDesign,
        Y: ArrayLike,
        loss: AbstractLoss | AbstractVectorLoss | None = None,
        l2: ArrayLike = 0.0,
        sample_weight: ArrayLike | None = None,
        fit_intercept: bool = False,
        standardize: bool = False,
        offset: ArrayLike | None = None,
    ) -> None:
        loss = Squared() if loss is None else loss
        if not isinstance(loss, AbstractLoss | AbstractVectorLoss):
            raise TypeError(f"loss: needs an instance of a loss such as sht.Softmax(10), got {loss!r}.")
        shape = X.shape if hasattr(X, "shape") else np.shape(X)
        n = shape[0] if shape else 0
        self.shared_model = LinearModel(X, np.zeros(n), Squared(), l2, sample_weight, fit_intercept, standardize)
        loss = PerResponse(loss) if isinstance(loss, AbstractLoss) else loss
        self.y = loss.targets(Y, n, self.dtype)
        if is_concrete(self.y):
            check_finite("Y", self.y)
            loss.check_targets(np.asarray(self.y))
        self.loss = jax.tree.map(lambda parameter: jnp.asarray(parameter, self.dtype), loss)
        self.offset = None if offset is None else jnp.asarray(offset, self.dtype)
        if self.offset is not None:
            if self.offset.shape != (n, self.n_responses):
                raise ValueError(
                    f"offset: needs shape ({n}, {self.n_responses}), one value per row of X and response, got "
                    f"{self.offset.shape}."
                )
            check_finite("offset", self.offset)
        self.base = self.offset_mean = None
        if fit_intercept:
            given = Y if loss.location else None, offset
            self.y, self.offset, base, mean = about_means(self.y, self.offset, given, self.sample_weight)
            if loss.location or self.offset is not None:
                self.base = jnp.asarray(np.broadcast_to(base, self.n_responses), self.dtype)
            if self.offset is not None:
                self.offset_mean = jnp.asarray(np.broadcast_to(mean, self.n_responses), self.dtype)

    def reweighted(self, sample_weight: ArrayLike | None = None, l2: ArrayLike | None = None) -> Self:
        return replace(self, shared_model=self.shared_model.reweighted(sample_weight, l2))

    def scorer(self, sample_weight: Float[Array, "n"] | None = None) -> Self:
        return replace(self, shared_model=self.shared_model.scorer(sample_weight))

    # --- shape and units ---------------------------------------------------------------------------------------------
    @property
    def n_responses(self) -> int:
        """c."""
        return self.loss.n_responses(self.y)

    @property
    def external_shape(self) -> tuple[int, ...]:
        return (self.shared_model.n_coefficients, self.n_responses)

    @property
    def n_coefficients(self) -> int:
        return self.shared_model.n_coefficients * self.n_responses

    @property
    def n_free(self) -> int:
        return self.shared_model.n_free * self.n_responses

    @property
    def dtype(self) -> Any:
        return self.shared_model.dtype

    @property
    def ifo_per_gradient(self) -> int:
        return self.shared_model.ifo_per_gradient

    @property
    def l2(self) -> Array:
        """Ridge strength."""
        return self.shared_model.l2

    @property
    def sample_weight(self) -> Array:
        """(n,) weights."""
        return self.shared_model.sample_weight

    @property
    def quadratic(self) -> bool:
        return self.loss.quadratic

    def matrix(self, x: Float[Array, "d"]) -> Float[Array, "m c"]:
        """x as a matrix, with the intercepts as its last row."""
        return x.reshape(-1, self.n_responses)

    def internal_scale(self) -> Float[Array | np.ndarray, "p"] | None:
        scale = self.shared_model.internal_scale()
        xp = np if is_concrete(scale) else jnp
        return None if scale is None else xp.repeat(scale, self.n_responses)

    def to_internal(self, x: Float[Array, "p c"], intercept: ArrayLike = 0.0) -> Float[Array, "d"]:
        intercept = jnp.broadcast_to(jnp.asarray(intercept, x.dtype), (self.n_responses,))
        intercept = intercept if self.base is None else intercept - self.base
        return jax.vmap(self.shared_model.to_internal, (1, 0), 1)(x, intercept).ravel()

    def to_external(self, x: Float[Array, "d"]) -> tuple[Float[Array, "p c"], Float[Array, "c"]]:
        w, intercept = jax.vmap(self.shared_model.to_external, 1, (1, 0))(self.matrix(x))
        return w, intercept if self.base is None else intercept + self.base

    def intercept_of(self, w: Float[np.ndarray, "p c"], free: Float[np.ndarray, "_"]) -> Float[np.ndarray, "c"]:
        if not free.size:
            return np.zeros(self.n_responses)
        units = self.shared_model.units
        units = units if self.base is None else units._replace(base=units.base + np.asarray(self.base, float))
        return units.intercept(w, np.asarray(free, float))

    def intercept_rounding(self, x: Float[Array, "d"], support: Support | None) -> Float[Array, ""]:
        if not self.n_free:
            return jnp.zeros((), self.dtype)
        error = jax.vmap(self.shared_model.intercept_error, 1)(self.matrix(x))
        if self.base is not None:
            error = error + jnp.finfo(self.dtype).eps * jnp.abs(self.base)
        eta, none = self.forward(x), jnp.zeros_like(x)
        flat = self.value_at(jnp.broadcast_to(dot(self._weights(), eta), eta.shape), none)
        return rise(self.value_at(eta, x), self.value_at(eta + error, x), self.value_at(eta - error, x), flat)

    def parts(self, x: Float[Array, "d"]) -> tuple[Float[Array, "units"], Float[Array, "c"]]:
        w, intercept = self.to_external(x)
        return w.ravel(), intercept

    # --- values and derivatives --------------------------------------------------------------------------------------
    def _weights(self) -> Float[Array, "n"]:
        weights = self.shared_model.sample_weight
        return weights / jnp.sum(weights)

    def _times(self, x: Float[Array, "d"]) -> Float[Array, "n c"]:
        """(n, c) products of the (standardised) design with x, the intercepts included."""
        w, intercept = jax.vmap(self.shared_model.in_design_units, 1, (1, 0))(self.matrix(x))
        return jax.vmap(self.shared_model.design.mv, 1, 1)(w) + intercept

    def forward(self, x: Float[Array, "d"], support: Support | None = None) -> Float[Array, "n c"]:
        eta = self._times(x)
        return bounded(eta if self.offset is None else eta + self.offset, self.sample_weight[:, None])

    def _penalty(self, x: Float[Array, "d"]) -> Float[Array, "rows c"]:
        return self.shared_model.ridge()[:, None] * self.matrix(x)

    def value_at(self, forward: Float[Array, "n c"], x: Float[Array, "d"]) -> Float[Array, ""]:
        loss = dot(self._weights(), self.loss.value(forward, self.y))
        return loss + 0.5 * jnp.sum(self._penalty(x) * self.matrix(x))

    def transpose_product(self, r: Float[Array, "n c"]) -> Float[Array, "d"]:
        """Transpose of the (standardised) design, the intercepts' column included, times r."""
        return jax.vmap(self.shared_model.transpose_product, 1, 1)(r).ravel()

    def grad_at(self, forward: Float[Array, "n c"], x: Float[Array, "d"]) -> Float[Array, "d"]:
        residuals = self._weights()[:, None] * self.loss.derivative(forward, self.y)
        return self.transpose_product(residuals) + self._penalty(x).ravel()

    def curvature_at(
        self, forward: Float[Array, "n c"], v: Float[Array, "d"], support: Support | None = None
    ) -> Float[Array, ""]:
        u = self._times(v)
        each = curvature_along(self.loss.curvature(forward, self.y), u)
        return dot(self._weights(), each) + jnp.sum(self._penalty(v) * self.matrix(v))

    def lipschitz(self) -> Float[Array, ""]:
        if is_concrete(self.loss.smoothness) and np.isinf(self.loss.smoothness):
            return jnp.asarray(jnp.inf, self.dtype)
        shared, smoothness = self.shared_model, self.loss.smoothness

        def product(v: Float[Array, "m"]) -> Float[Array, "m"]:  # all responses share one Gram matrix
            ridge = shared.ridge() * v
            return smoothness * (shared.gram_product(v) - ridge) + ridge

        return largest_eigenvalue(product, shared.start())

    # --- samples -----------------------------------------------------------------------------------------------------
    def samples(self) -> "MultiSamples":
        return MultiSamples(self.shared_model.samples(), self.y, self.offset, self.loss, self.n_responses)

    def sample_smoothness(self) -> Float[Array, ""]:
        samples = self.shared_model.samples()

        def curvature(i: Int[Array, ""]) -> Float[Array, ""]:
            row = samples.rows(i[None]).transpose_product(jnp.ones(1, self.dtype))
            return samples.shares[i] * jnp.sum(row**2)

        largest = jnp.max(lax.map(curvature, jnp.arange(self.n_samples), batch_size=ROWS_AT_ONCE))
        return self.loss.smoothness * largest + jnp.max(self.l2)

    # --- restriction -------------------------------------------------------------------------------------------------
    def restrict(self, support: Support) -> "RestrictedMultiResponse":
        c = self.n_responses
        row, response = support.idx // c, support.idx % c
        ridge = jnp.where(support.mask, self.shared_model.ridge()[row], 0)
        A = self.shared_model.columns(Support(row, support.mask))
        return RestrictedMultiResponse(
            A=A,
            response=response,
            free=row == self.shared_model.n_coefficients,
            weights=self._weights(),
            y=self.y,
            offset=self.offset,
            loss=self.loss,
            ridge=ridge,
            mask=support.mask,
        )

    def restrict_left(self, left: Float[Array, "p r"], mask: Array) -> AbstractRestricted:
        """F over the matrices `left @ A`, as a function of the (r, c) matrix A, row by row, and the intercepts."""
        shared, c = self.shared_model, self.n_responses
        free = shared.n_free

        def column(u: Float[Array, "p"]) -> Float[Array, "n"]:
            w, intercept = shared.in_design_units(jnp.append(u, 0) if free else u)
            return shared.design.mv(w) + intercept

        A = jnp.where(mask, jax.vmap(column, 1, 1)(left), 0)
        A = jnp.concatenate([A, jnp.ones((A.shape[0], free), A.dtype)], axis=1)
        ridge = shared.ridge()
        inner = dot(left.T * ridge[: left.shape[0]], left)
        ridge = jnp.zeros((A.shape[1], A.shape[1]), A.dtype).at[: left.shape[1], : left.shape[1]].set(inner)
        mask = jnp.concatenate([mask, jnp.ones(free, bool)])
        if self.quadratic:
            y = self.y if self.offset is None else self.y - self.offset
            return LeastSquaresLeft(A=A, y=y, weights=self._weights(), ridge=ridge, rows=mask, mask=jnp.repeat(mask, c))
        row = jnp.repeat(jnp.arange(A.shape[1]), c)
        response = jnp.tile(jnp.arange(c), A.shape[1])
        same = response[:, None] == response
        return RestrictedMultiResponse(
            A=A[:, row],
            response=response,
            free=row >= left.shape[1],
            weights=self._weights(),
            y=self.y,
            offset=self.offset,
            loss=self.loss,
            ridge=jnp.where(same, ridge[row][:, row], 0),
            mask=mask[row],
        )


def curvature_along(curvature: tuple[Array, Array | None], u: Float[Array, "n c"]) -> Float[Array, "n"]:
    """u_i' (diag(d_i) - q_i q_i') u_i for every sample."""
    d, q = curvature
    along = jnp.sum(d * u**2, axis=1)
    return along if q is None else along - jnp.sum(q * u, axis=1) ** 2


class MultiSamples(AbstractSamples):
    """f_i = (n s_i / W) l(B'x_i + b + o_i, y_i) of a `MultiResponse`, and its ridge penalty; scores are (b, c)."""

    features: LinearSamples
    y: Array
    offset: Float[Array, "n c"] | None
    loss: AbstractVectorLoss
    c: int = eqx.field(static=True)

    def scores(self, x: Float[Array, "d"], i: Int[Array, "b"]) -> Float[Array, "b c"]:
        part = self.features.rows(i)
        eta = jax.vmap(part.forward, 1, 1)(x.reshape(-1, self.c))
        eta = eta if self.offset is None else eta + self.offset[i]
        return part.sample_weight[:, None] * self.loss.derivative(eta, self.y[i])

    def scores_at(self, forward: Float[Array, "n c"]) -> Float[Array, "n c"]:
        return self.features.shares[:, None] * self.loss.derivative(forward, self.y)

    def mean_gradient(self, scores: Float[Array, "b c"], i: Int[Array, "b"] | None = None) -> Float[Array, "d"]:
        part = self.features.model if i is None else self.features.rows(i)
        return jax.vmap(part.transpose_product, 1, 1)(scores / scores.shape[0]).ravel()

    def penalty_grad(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        return (self.features.model.ridge()[:, None] * x.reshape(-1, self.c)).ravel()


class RestrictedMultiResponse(AbstractRestricted):
    """Entry e multiplies column A_e in response `response[e]`; `weights` sum to one; `ridge` is a diagonal or whole."""

    A: Float[Array, "n m"]
    response: Array
    free: Array  # intercepts
    weights: Float[Array, "n"]
    y: Array
    offset: Float[Array, "n c"] | None
    loss: AbstractVectorLoss
    ridge: Array
    mask: Array

    @property
    def intercept(self) -> Bool[Array, "m"]:
        return self.free

    @property
    def quadratic(self) -> bool:
        return self.loss.quadratic

    @property
    def kinked(self) -> bool:
        return self.loss.kinked

    def _one_hot(self) -> Float[Array, "m c"]:
        return jax.nn.one_hot(self.response, self.loss.n_responses(self.y), dtype=self.A.dtype)

    def _predict(self, z: Float[Array, "m"]) -> Float[Array, "n c"]:
        eta = dot(self.A * z, self._one_hot())
        return bounded(eta if self.offset is None else eta + self.offset, self.weights[:, None])

    def _penalty(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return self.ridge * z if self.ridge.ndim == 1 else dot(self.ridge, z)

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        return dot(self.weights, self.loss.value(self._predict(z), self.y)) + 0.5 * jnp.sum(self._penalty(z) * z)

    def _collect(self, residuals: Float[Array, "n c"]) -> Float[Array, "m"]:
        return jnp.sum(self.A * residuals[:, self.response], axis=0)

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        residuals = self.weights[:, None] * self.loss.derivative(self._predict(z), self.y)
        return jnp.where(self.mask, self._collect(residuals) + self._penalty(z), 0)

    def grad_terms(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        slopes = self.weights[:, None] * jnp.abs(self.loss.derivative(self._predict(z), self.y))
        terms = jnp.sum(jnp.abs(self.A) * slopes[:, self.response], axis=0)
        ridge = jnp.abs(self.ridge)
        return terms + (ridge * jnp.abs(z) if ridge.ndim == 1 else dot(ridge, jnp.abs(z)))

    def _curvature(
        self, z: Float[Array, "m"], damping: Float[Array, ""] | float
    ) -> tuple[Float[Array, "n c"], Float[Array, "n c"] | None]:
        eta = self._predict(z)
        d, q = self.loss.curvature(eta, self.y)
        return d + damping * self.loss.majorant(eta, self.y), q

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        d, q = self._curvature(z, 0.0)
        u = dot(self.A * v, self._one_hot())
        Hu = d * u if q is None else d * u - q * jnp.sum(q * u, axis=1, keepdims=True)
        return jnp.where(self.mask, self._collect(self.weights[:, None] * Hu) + self._penalty(v), 0)

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        d, q = self._curvature(z, damping)
        same = self.response[:, None] == self.response
        H = jnp.where(same, dot((self.A * (self.weights[:, None] * d)[:, self.response]).T, self.A), 0)
        if q is not None:
            cross = self.A * (jnp.sqrt(self.weights)[:, None] * q)[:, self.response]
            H = H - dot(cross.T, cross)
        if self.loss.shift_invariant:
            # F does not change along equal intercepts, nor has its gradient a part there: any curvature will do.
            free = self.free & self.mask
            H = H + jnp.where(free[:, None] & free, 1 / self.loss.n_responses(self.y), 0)
        return H + (jnp.diag(self.ridge) if self.ridge.ndim == 1 else self.ridge)


class LeastSquaresLeft(AbstractRestricted):
    """The squared loss over (m, c) matrices Z, row by row: all responses share one m x m system."""

    A: Float[Array, "n m"]
    y: Float[Array, "n c"]
    weights: Float[Array, "n"]
    ridge: Float[Array, "m m"]
    rows: Array  # mask of the m rows
    mask: Array

    @property
    def quadratic(self) -> bool:
        return True

    def _residuals(self, Z: Float[Array, "m c"]) -> Float[Array, "n c"]:
        return self.weights[:, None] * (dot(self.A, Z) - self.y)

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        Z = z.reshape(-1, self.y.shape[1])
        error = dot(self.A, Z) - self.y
        return 0.5 * dot(self.weights, jnp.sum(error**2, axis=1)) + 0.5 * jnp.sum(Z * dot(self.ridge, Z))

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        Z = z.reshape(-1, self.y.shape[1])
        return (dot(self.A.T, self._residuals(Z)) + dot(self.ridge, Z)).ravel()

    def _gram(self) -> Float[Array, "m m"]:
        return dot((self.A * self.weights[:, None]).T, self.A) + self.ridge

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        return dot(self._gram(), v.reshape(-1, self.y.shape[1])).ravel()

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        return jnp.kron(self._gram(), jnp.eye(self.y.shape[1], dtype=self.A.dtype))

    def minimise(
        self,
        z0: Float[Array, "m"],
        box: Box = WHOLE,
        max_steps: int | None = None,
    ) -> Refit:
        system = masked_factor(self._gram(), self.rows)
        inverse = system.inverse(self.A.dtype)
        z = -dot(inverse, self.grad(jnp.zeros_like(z0)).reshape(-1, self.y.shape[1])).ravel()
        # One step of refinement, so that the rounding of the Gram matrix does not stay.
        z = z - dot(inverse, self.grad(z).reshape(-1, self.y.shape[1])).ravel()
        return Refit(z, system.singular, jnp.ones((), bool))
