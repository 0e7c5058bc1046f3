"""Linear models with several responses: multi-task regression and softmax classification."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import AnyArray, ArrayLike, Support, TableLike, check_finite, is_concrete
from ..columns import Columns, columns_of, design_of
from ..designs import AbstractDesign
from ..linalg import WHOLE, Box, Refit, dot, masked_factor
from ..losses import AbstractRowLoss, Squared
from .base import AbstractRestricted
from .likelihood import MeanLoss, PartOfSeveral
from .model import AbstractLossModel, Restricted


class MultiResponse(AbstractLossModel):
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

    columns: Columns
    y: Array
    loss: AbstractRowLoss
    target_mean: Float[Array, "c"] | None

    def __init__(
        self,
        X: TableLike | AbstractDesign,
        Y: ArrayLike,
        loss: AbstractRowLoss | None = None,
        l2: ArrayLike = 0.0,
        sample_weight: ArrayLike | None = None,
        fit_intercept: bool = False,
        standardize: bool = False,
        offset: ArrayLike | None = None,
    ) -> None:
        loss = Squared() if loss is None else loss
        if not isinstance(loss, AbstractRowLoss):
            raise TypeError(f"loss: needs an instance of a loss such as sht.losses.Softmax(10), got {loss!r}.")
        design = design_of(X)
        n, dtype = design.shape[0], design.dtype
        targets = loss.targets(Y, n, dtype)
        if is_concrete(targets):
            check_finite("Y", targets)
            loss.check_targets(np.asarray(targets))
        self.loss = jax.tree.map(lambda parameter: jnp.asarray(parameter, dtype), loss)
        self.columns, moved, self.target_mean, _ = columns_of(
            design,
            l2,
            sample_weight,
            bool(standardize),
            offset,
            centre=bool(fit_intercept),
            n_free=int(fit_intercept),
            n_responses=loss.n_responses(targets),
            y=targets,
            given=Y if loss.location else None,
        )
        assert moved is not None  # as targets are not
        self.y = moved

    @property
    def likelihood(self) -> MeanLoss:
        return MeanLoss(self.loss, self.y, self.columns.weights)

    # --- shape and units ---------------------------------------------------------------------------------------------
    @property
    def n_responses(self) -> int:
        """c."""
        return self.loss.n_responses(self.y)

    @property
    def shift_invariant(self) -> bool:
        return bool(self.loss.shift_invariant)

    @property
    def alike(self) -> int:
        return self.n_responses if self.quadratic else 1

    @property
    def external_shape(self) -> tuple[int, ...]:
        return (self.columns.p, self.n_responses)

    @property
    def n_coefficients(self) -> int:
        return self.columns.p * self.n_responses

    @property
    def n_free(self) -> int:
        return self.columns.n_free * self.n_responses

    def matrix(self, x: Float[Array, "d"]) -> Float[Array, "m c"]:
        """x as a matrix, with the intercepts as its last row."""
        return x.reshape(-1, self.n_responses)

    def internal_scale(self) -> Float[AnyArray, "pc"]:
        scale = self.columns.internal_scale()
        xp = np if is_concrete(scale) else jnp
        return xp.repeat(scale, self.n_responses)

    # --- all columns at once -----------------------------------------------------------------------------------------
    def forward(self, x: Float[Array, "d"], support: Support | None = None) -> Float[Array, "n c"]:
        return super().forward(x)

    def product(self, v: Float[Array, "d"], support: Support | None = None) -> Float[Array, "n c"]:
        return super().product(v)

    def part(self, support: Support) -> PartOfSeveral:
        c = self.n_responses
        part = super().part(Support(support.idx // c, support.mask))
        return PartOfSeveral(**vars(part), response=support.idx % c, n_responses=c)

    def restrict_left(self, left: Float[Array, "p r"], mask: Array) -> AbstractRestricted:
        """F over the matrices `left @ A`, as a function of the (r, c) matrix A, row by row, and the intercepts."""
        columns, c, r = self.columns, self.n_responses, left.shape[1]
        free = columns.n_free
        A = columns.product(jnp.concatenate([left, jnp.zeros((free, r), left.dtype)]))
        A = jnp.concatenate([jnp.where(mask, A, 0), jnp.ones((A.shape[0], free), A.dtype)], axis=1)
        inner = jnp.where(mask[:, None] & mask, dot(left.T * columns.ridge()[: left.shape[0]], left), 0)
        ridge = jnp.zeros((r + free, r + free), A.dtype).at[:r, :r].set(inner)
        mask = jnp.concatenate([mask, jnp.ones(free, bool)])
        if self.quadratic:
            y = self.y if columns.offset is None else self.y - columns.offset
            return LeastSquaresLeft(A, y, columns.weights, ridge, mask, jnp.repeat(mask, c))
        row, response = jnp.repeat(jnp.arange(r + free), c), jnp.tile(jnp.arange(c), r + free)
        part = PartOfSeveral(
            A=A[:, row],
            offset=columns.offset,
            live=columns.sample_weight > 0,
            ridge=jnp.where(response[:, None] == response, ridge[row][:, row], 0),
            mask=mask[row],
            free=row >= r,
            response=response,
            n_responses=c,
        )
        return Restricted(part, self.likelihood)


class LeastSquaresLeft(AbstractRestricted):
    """The squared loss over (m, c) matrices Z, row by row: all responses share one m x m system."""

    A: Float[Array, "n m"]
    y: Float[Array, "n c"]
    weights: Float[Array, "n"]
    ridge: Float[Array, "m m"]
    rows: Array  # mask of the m rows
    mask: Array
    quadratic = True

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        Z = z.reshape(-1, self.y.shape[1])
        error = dot(self.A, Z) - self.y
        return 0.5 * dot(self.weights, jnp.sum(error**2, axis=1)) + 0.5 * jnp.sum(Z * dot(self.ridge, Z))

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        Z = z.reshape(-1, self.y.shape[1])
        residuals = self.weights[:, None] * (dot(self.A, Z) - self.y)
        return (dot(self.A.T, residuals) + dot(self.ridge, Z)).ravel()

    def _gram(self) -> Float[Array, "m m"]:
        return dot((self.A * self.weights[:, None]).T, self.A) + self.ridge

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        return dot(self._gram(), v.reshape(-1, self.y.shape[1])).ravel()

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        return jnp.kron(self._gram(), jnp.eye(self.y.shape[1], dtype=self.A.dtype))

    def minimise(self, z0: Float[Array, "m"], box: Box = WHOLE, max_steps: int | None = None) -> Refit:
        system = masked_factor(self._gram(), self.rows)
        inverse = system.inverse(self.A.dtype)
        z = -dot(inverse, self.grad(jnp.zeros_like(z0)).reshape(-1, self.y.shape[1])).ravel()
        # One step of refinement, so that the rounding of the Gram matrix does not stay.
        z = z - dot(inverse, self.grad(z).reshape(-1, self.y.shape[1])).ravel()
        return Refit(z, system.singular, jnp.ones((), bool))
