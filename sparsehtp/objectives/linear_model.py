"""Generalised linear models with a ridge penalty."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._types import AnyArray, ArrayLike, Support, TableLike, host, is_concrete
from ..columns import Columns, columns_of, design_of, vector
from ..designs import AbstractDesign
from ..linalg import dot
from ..losses import AbstractLoss, Squared
from ..losses.base import damping_scale
from .base import DENSE_HESSIAN_LIMIT, AbstractRestrictable, AbstractRestricted
from .likelihood import MeanLoss
from .model import AbstractLossModel, PartInPlace, Restricted
from .normal_equations import AbstractNormalEquations

MIN_CURVATURE = 1e-3  # of a local quadratic model, relative to its mean
FLAT_CURVATURE = 1e-2  # the same, relative to the slope of a sample: its prediction moves by 100 at most
KINKED_CURVATURE = 1e-3  # the same for losses whose curvature vanishes in places, relative to its upper bound


class LinearModel(AbstractLossModel, AbstractRestrictable):
    """Weighted mean loss of a linear predictor plus a ridge penalty.

        F(w, b) = (1/W) sum_i s_i l(x_i'w + b + o_i, y_i) + (1/2) sum_j l2_j w_j^2,    W = sum_i s_i

    The intercept b is never penalised, thresholded or counted in k. With `standardize` the columns are scaled to unit
    standard deviation under the model's own weights (ddof 0; centred too if there is an intercept), implicitly, as
    rank-one corrections: then l2, the ranking of coefficients and k-sparsity act on w_j sd_j. All public quantities
    stay in original units. A constant column has no scale: with an intercept its coefficient is 0.

    Nothing large is squared or subtracted: with an intercept, dense columns, targets of a loss of eta - y, and offsets
    whose mean is large beside their deviation are centred (undone in the intercept), and columns of an extreme size are
    scaled by powers of two, which then count in the ranking of coefficients. Under tracing, where the data cannot be
    looked at, they are used as they are.

    Args:
        X: (n, p) NumPy or JAX array, scipy.sparse matrix, BCOO, or design; float32 or float64 (float64 needs
            `jax.enable_x64`; half precision is computed in float32). A sparse matrix becomes a `SparseDesign`: it is
            never made dense, standardised or not.
        y: (n,) targets; -1 and +1 for classification losses, counts for `Poisson`.
        loss: an instance of a loss.
        l2: ridge strength, a scalar or (p,), >= 0, in units of the mean loss.
        sample_weight: (n,) weights s_i >= 0, not all zero; folds and bootstraps are weights. None: all one. They are
            divided by a power of two where the largest is extreme, and one that is then below the dtype's range is
            zero.
        fit_intercept: add the unpenalised intercept b.
        standardize: see above.
        offset: (n,) known part o_i of the predictor. None: zero.

    Raises:
        ValueError: for empty, misshapen or nonfinite data, negative or all-zero weights, negative l2, targets outside
            the loss's domain, or targets that the dtype cannot hold the squares (squared loss) or the coefficients
            (losses of eta - y) of; values are checked on concrete arrays only (see `solve` for others).
        TypeError: if `loss` is not a loss instance.
    """

    columns: Columns
    y: Float[Array, "n"]
    loss: AbstractLoss
    target_mean: Float[Array, ""] | None

    def __init__(
        self,
        X: TableLike | AbstractDesign,
        y: ArrayLike,
        loss: AbstractLoss | None = None,
        l2: ArrayLike = 0.0,
        sample_weight: ArrayLike | None = None,
        fit_intercept: bool = False,
        standardize: bool = False,
        offset: ArrayLike | None = None,
    ) -> None:
        loss = Squared() if loss is None else loss
        if not isinstance(loss, AbstractLoss):
            raise TypeError(f"loss: needs an instance of a loss such as sht.losses.Squared(), got {loss!r}.")
        design = design_of(X)
        dtype = design.dtype
        targets = vector("y", y, design.shape[0], dtype)
        self.loss = jax.tree.map(lambda a: jnp.asarray(host(a) if is_concrete(a) else a, dtype), loss)
        if is_concrete(targets):
            self.loss.check_targets(host(targets))
        # The exponential of an offset must be a number where the intercept starts.
        steep = loss.twice_differentiable and not loss.smooth
        self.columns, moved, self.target_mean, largest = columns_of(
            design,
            l2,
            sample_weight,
            bool(standardize),
            offset,
            centre=bool(fit_intercept),
            n_free=int(fit_intercept),
            y=targets,
            given=y if loss.location else None,
            ceiling=float(np.log(jnp.finfo(dtype).max)) / 2 if steep else np.inf,
        )
        assert moved is not None  # as targets are not
        self.y = moved
        if loss.location and is_concrete(largest, self.y):
            self._check_range(largest)

    def _check_range(self, largest: Float[AnyArray, "_"]) -> None:
        target, least = np.max(np.abs(host(self.y))), float(jnp.finfo(self.dtype).tiny / jnp.finfo(self.dtype).eps)
        if 0 < target < least * largest.max():
            raise ValueError(
                f"X: {self.dtype} cannot hold the coefficients of columns of size {largest.max():.1e} for targets of "
                f"size {target:.1e}; divide the columns by constants of their size, or compute in float64."
            )
        if not self.quadratic:
            return
        largest = np.ones(1) if self.columns.standardize else largest * np.asarray(self.columns.inverse_scale)
        limit = 2.0 ** (jnp.finfo(self.dtype).maxexp * 15 // 32)
        sizes = target * largest[largest > 0]
        if target > 0 and sizes.size and not (1 / limit < sizes.min() and max(target, sizes.max()) < limit):
            raise ValueError(
                f"y: {self.dtype} cannot hold the squares of targets of size {target:.1e} with these columns; divide y "
                "by a constant of its size, or compute in float64."
            )

    @property
    def likelihood(self) -> MeanLoss:
        return MeanLoss(self.loss, self.y, self.columns.weights)

    def normal_equations(self, x: Float[Array, "d"] | None = None) -> "LinearNormalEquations":
        """The quadratic model of F around x; F itself, for any x, if it is quadratic."""
        offset, weights = self.columns.offset, self.columns.weights
        if self.quadratic:
            target = self.y if offset is None else self.y - offset
        else:
            eta = self.forward(self.origin() if x is None else x)
            curvature = self.loss.second_derivative(eta, self.y)
            # Any positive curvature keeps the model's gradient right; where the loss is flat or saturated the target
            # would otherwise lie at infinity.
            curvature = jnp.maximum(curvature, MIN_CURVATURE * (1e-30 + dot(weights, curvature)))
            curvature = jnp.maximum(curvature, FLAT_CURVATURE * jnp.abs(self.loss.derivative(eta, self.y)))
            if self.loss.kinked:
                curvature = jnp.maximum(curvature, KINKED_CURVATURE * damping_scale(self.loss, curvature))
            weights = weights * curvature
            target = eta - self.loss.derivative(eta, self.y) / curvature
            target = target if offset is None else target - offset
        columns, p = self.columns, self.columns.p
        mean, diagonal = columns.moments(None if self.quadratic else weights)
        if columns.centred:
            target = target - dot(weights, target) / jnp.sum(weights)
        return LinearNormalEquations(
            columns=columns,
            weights=weights,
            mean=mean,
            rhs=columns.transpose_product(weights * target)[:p],
            diagonal=diagonal + columns.ridge()[:p],
            constant=dot(weights, target**2),
        )

    def restrict(self, support: Support) -> AbstractRestricted:
        if self.sparse and support.idx.shape[0] > DENSE_HESSIAN_LIMIT:
            return Restricted(PartInPlace(self, support), self.likelihood)
        return super().restrict(support)


class LinearNormalEquations(AbstractNormalEquations):
    """Normal equations of sum_i weights_i (target_i - z_i'x - b)^2 + ridge, b minimised out."""

    columns: Columns
    weights: Float[Array, "n"]
    mean: Float[Array, "p"] | None  # of the columns, where they are not centred themselves
    rhs: Float[Array, "p"]
    diagonal: Float[Array, "p"]
    constant: Float[Array, ""]

    def rows(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        columns = self.columns
        A = columns.on(Support(idx, jnp.ones(idx.shape, bool)))
        if self.mean is not None:
            A = A - self.mean[idx]
        # The weighted columns sum to zero, so the transposed product need not be centred.
        gram = jax.vmap(columns.transpose_product)((self.weights[:, None] * A).T)[:, : self.rhs.shape[0]]
        return gram.at[jnp.arange(idx.shape[0]), idx].add(columns.ridge()[idx])
