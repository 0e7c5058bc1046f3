"""Generalised linear models with a ridge penalty."""

import contextlib
import warnings
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._programs import program
from .._tolerances import tolerance
from .._types import ArrayLike, Support, check_finite, host, is_concrete, replace
from ..designs import AbstractDesign, DenseDesign, as_design
from ..designs.dense import subtracts_exactly
from ..linalg import dot, largest_eigenvalue, random_start
from ..losses import AbstractLoss, Squared
from ..losses.base import damping_scale
from .base import DENSE_HESSIAN_LIMIT, AbstractRestrictable, gather
from .finite_sum import AbstractFiniteSum, AbstractSamples
from .normal_equations import LinearNormalEquations
from .restricted_linear_model import RestrictedLinearModel, RestrictedSparseModel, bounded

FAR = 8.0  # means this many standard deviations from zero are subtracted from the data
LARGEST_RIDGE = 20  # powers of two that l2 in the units of scaled columns stays below the largest number
MIN_CURVATURE = 1e-3  # of a local quadratic model, relative to its mean
FLAT_CURVATURE = 1e-2  # the same, relative to the slope of a sample: its prediction moves by 100 at most
ROWS_AT_ONCE = 128  # in a pass over single samples
KINKED_CURVATURE = 1e-3  # the same for losses whose curvature vanishes in places, relative to its upper bound


class LinearModel(AbstractRestrictable, AbstractFiniteSum):
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

    design: AbstractDesign
    y: Float[Array, "n"]
    loss: AbstractLoss
    l2: Float[Array, ""] | Float[Array, "p"]
    sample_weight: Float[Array, "n"]
    offset: Float[Array, "n"] | None
    shift: Float[Array, "p"] | None  # what the design's columns were centred by
    base: Float[Array, ""] | None  # what the targets less the offset were centred by
    offset_mean: Float[Array, ""] | None  # what the offset was centred by
    mean: Float[Array, "p"] | None
    inverse_scale: Float[Array, "p"] | None
    fit_intercept: bool = eqx.field(static=True)
    standardize: bool = eqx.field(static=True)

    def __init__(
        self,
        X: ArrayLike | AbstractDesign,
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
            raise TypeError(f"loss: needs an instance of a loss such as sht.Squared(), got {loss!r}.")
        self.design = as_design(X)
        dtype = self.design.dtype
        if dtype == np.float32 and getattr(X, "dtype", None) == np.float64:
            warnings.warn(
                "X: float64 data are computed in float32; fit inside jax.enable_x64(True) to compute in float64, or "
                "pass float32.",
                stacklevel=4,  # past the metaclasses
            )
        n, p = self.design.shape
        self.y = _vector("y", y, n, dtype)
        sample_weight = np.ones(n, dtype) if sample_weight is None else sample_weight
        self.sample_weight = weight_vector(sample_weight, n, dtype)
        self.offset = None if offset is None else _vector("offset", offset, n, dtype)
        self.l2 = jnp.asarray(host(l2) if is_concrete(l2) else l2, dtype)
        if self.l2.shape not in ((), (p,)):
            raise ValueError(f"l2: needs a scalar or one value per feature ({p}), got shape {self.l2.shape}.")
        self.loss = jax.tree.map(lambda a: jnp.asarray(host(a) if is_concrete(a) else a, dtype), loss)
        self.fit_intercept = bool(fit_intercept)
        self.standardize = bool(standardize)
        self._check()
        self.shift = self.base = self.offset_mean = self.inverse_scale = None
        facts = self._prepare((y, offset), loss.twice_differentiable and _has_no_smoothness(loss))
        self.mean, self.inverse_scale = self._standardisation(facts)

    def _check(self) -> None:
        check_finite("X", self.design)
        _check_ridge(self.l2)
        check_weights(self.sample_weight)
        if is_concrete(self.y):
            self.loss.check_targets(host(self.y))

    def _prepare(self, given: tuple[Any, Any], steep: bool) -> "_Facts | None":
        """Centre and scale what would lose digits, or leave the dtype's range, when it is squared.

        Returns what is known about the prepared columns, None where it is not.
        """
        known, weighted = is_concrete(self.design), is_concrete(self.sample_weight)
        weights = self.sample_weight if weighted else np.ones(self.design.shape[0], self.dtype)
        with jax.ensure_compile_time_eval() if known else contextlib.nullcontext():  # jit would stage the checks
            facts = _facts(self.design, weights, self.fit_intercept or self.standardize)
        if known:
            facts = jax.tree.map(host, facts)
        largest = facts.largest
        if not self.standardize:
            l2 = host(self.l2) if is_concrete(self.l2) else 0.0
            self.inverse_scale = safe_scale(largest, l2) if known else jnp.ones(self.n_coefficients, self.dtype)
        if self.fit_intercept:
            # Where there is nothing to centre the shift is zero: the data must not decide what is traced.
            if not self.design.sparse:
                self.shift = jnp.asarray(np.zeros(self.n_coefficients), self.dtype)
                far = known and np.abs(facts.mean) > FAR * facts.deviation
                if np.any(far):
                    self.design, self.shift, facts = _centred(
                        self.design, np.where(far, facts.mean, 0), _grain(largest), self._constant(facts), weights
                    )
            # The exponential of an offset must be a number where the intercept starts.
            ceiling = float(np.log(jnp.finfo(self.dtype).max)) / 2 if steep else np.inf
            given = given if self.loss.location else (None, given[1])
            self.y, self.offset, base, mean = about_means(self.y, self.offset, given, weights, ceiling)
            self.base = jnp.asarray(base, self.dtype)
            self.offset_mean = None if self.offset is None else jnp.asarray(mean, self.dtype)
        if known and self.loss.location and is_concrete(self.y):
            self._check_range(largest)
        return facts if weighted else None

    def _check_range(self, largest: Float[np.ndarray, "_"]) -> None:
        target, least = np.max(np.abs(host(self.y))), float(jnp.finfo(self.dtype).tiny / jnp.finfo(self.dtype).eps)
        if 0 < target < least * largest.max():
            raise ValueError(
                f"X: {self.dtype} cannot hold the coefficients of columns of size {largest.max():.1e} for targets of "
                f"size {target:.1e}; divide the columns by constants of their size, or compute in float64."
            )
        if not self.quadratic:
            return
        if self.standardize:
            largest = np.ones(1)
        elif self.inverse_scale is not None:
            largest = largest * np.asarray(self.inverse_scale)
        limit = 2.0 ** (jnp.finfo(self.dtype).maxexp * 15 // 32)
        sizes = target * largest[largest > 0]
        if target > 0 and sizes.size and not (1 / limit < sizes.min() and max(target, sizes.max()) < limit):
            raise ValueError(
                f"y: {self.dtype} cannot hold the squares of targets of size {target:.1e} with these columns; divide y "
                "by a constant of its size, or compute in float64."
            )

    def _standardisation(self, facts: "_Facts | None" = None) -> tuple[Array | None, Array | None]:
        if not self.standardize:
            return None, self.inverse_scale
        facts = _facts(self.design, self.sample_weight, True) if facts is None else facts
        known = is_concrete(facts)
        mean, deviation = (host(facts.mean), host(facts.deviation)) if known else (facts.mean, facts.deviation)
        xp = np if known else jnp
        constant = self._constant(facts)
        # A constant column has no scale; it repeats an intercept, and becomes an all-zero column beside one.
        inverse_scale = xp.where(constant, 0.0 if self.fit_intercept else 1.0, 1 / xp.where(constant, 1, deviation))
        dtype = deviation.dtype
        return jnp.asarray(mean, dtype) if self.fit_intercept else None, jnp.asarray(inverse_scale, dtype)

    def _constant(self, facts: "_Facts") -> Any:
        """Which columns are constant, but for rounding, over the rows with a weight."""
        if not is_concrete(facts):
            return _is_constant(facts.mean, facts.deviation)
        mean, deviation = host(facts.mean), host(facts.deviation)
        constant = _is_constant(mean, deviation, np)
        # Weights of many orders of magnitude make a deviation small too.
        if is_concrete(self.sample_weight) and np.any(mean[constant] != 0):
            alike = np.asarray(host(self.sample_weight) > 0, self.dtype)
            facts = jax.tree.map(host, _facts(self.design, alike, True))
            constant &= _is_constant(facts.mean, facts.deviation, np)
        return constant

    def reweighted(self, sample_weight: ArrayLike | None = None, l2: ArrayLike | None = None) -> Self:
        n, p = self.design.shape
        new = self
        if l2 is not None:
            l2 = jnp.asarray(l2, self.dtype)
            if l2.shape not in ((), (p,)):
                raise ValueError(f"l2: needs a scalar or one value per feature ({p}), got shape {l2.shape}.")
            _check_ridge(l2)
            new = replace(new, l2=l2)
        if sample_weight is not None:
            new = replace(new, sample_weight=weight_vector(sample_weight, n, self.dtype))
            # The weights' own moments: rows without weight must not leak into a fold's fit.
            mean, inverse_scale = new._standardisation()
            new = replace(new, mean=mean, inverse_scale=inverse_scale)
        return new

    def exactly(self) -> Self:
        """The same model, its standardisation computed in its present dtype."""
        return self.reweighted(self.sample_weight) if self.standardize else self

    def scorer(self, sample_weight: Float[Array, "n"] | None = None) -> Self:
        weights = self.sample_weight if sample_weight is None else sample_weight
        return replace(self, sample_weight=weights, l2=jnp.zeros((), self.dtype))

    # --- shape and units ---------------------------------------------------------------------------------------------
    @property
    def n_coefficients(self) -> int:
        return self.design.shape[1]

    @property
    def n_free(self) -> int:
        return int(self.fit_intercept)

    @property
    def dtype(self) -> Any:
        return self.design.dtype

    @property
    def ifo_per_gradient(self) -> int:
        return self.design.shape[0]

    @property
    def rescaled(self) -> bool:
        """True if columns of an extreme size were scaled, so that x is not in the units of a user's l1."""
        scaled = not self.standardize and self.inverse_scale is not None and is_concrete(self.inverse_scale)
        return scaled and bool(np.any(host(self.inverse_scale) != 1))

    def internal_scale(self) -> Float[Array | np.ndarray, "p"] | None:
        if self.inverse_scale is None:
            return None
        known = is_concrete(self.inverse_scale)
        xp, scale = (np, host(self.inverse_scale)) if known else (jnp, self.inverse_scale)
        return xp.where(scale == 0, scale, 1 / xp.where(scale == 0, 1, scale)).astype(scale.dtype)

    def to_internal(self, x: Float[Array, "p"], intercept: ArrayLike = 0.0) -> Float[Array, "d"]:
        known = is_concrete(x, intercept, self.base, self.shift, self.mean, self.inverse_scale)
        xp: Any = np if known else jnp
        w: Any = host(x) if known else x
        if known:
            intercept = self.units.level(w, host(intercept))
        else:
            intercept = intercept if self.base is None else intercept - self.base
            for part in (self.shift, self.mean):
                intercept = intercept if part is None else intercept + dot(part, w)
        scale = self.internal_scale()
        if scale is not None:  # a start whose predictions are out of range stays a number
            most = float(jnp.finfo(self.dtype).max)
            with np.errstate(over="ignore"):
                w = xp.clip(w * scale, -most, most)
        return jnp.asarray(xp.append(w, intercept) if self.fit_intercept else w, self.dtype)

    def to_external(self, x: Float[Array, "d"]) -> tuple[Float[Array, "p"], Float[Array, ""]]:
        w, intercept = self.in_design_units(x)
        if self.shift is not None:
            intercept = intercept - dot(self.shift, w)
        return w, intercept if self.base is None else intercept + self.base

    @property
    def units(self) -> "Units":
        """What leads from the solver's intercept to that in original units, on the host."""
        parts = [np.zeros(self.n_coefficients), self.shift, self.mean]
        centre = np.sum([np.asarray(host(part), float) for part in parts if part is not None], axis=0)
        return Units(centre, np.zeros(()) if self.base is None else host(self.base).astype(float))

    def intercept_of(self, w: Float[np.ndarray, "p"], free: Float[np.ndarray, "_"]) -> Float[np.ndarray, ""]:
        return np.asarray(self.units.intercept(w, free.sum()))

    def intercept_error(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        """At most about what is rounded off the intercept in original units."""
        w, b = jnp.abs(x[: self.n_coefficients]), jnp.sum(jnp.abs(x[self.n_coefficients :]))
        w = w if self.inverse_scale is None else w * self.inverse_scale
        for part in (self.shift, self.mean):
            b = b if part is None else b + dot(jnp.abs(part), w)
        return jnp.finfo(self.dtype).eps * (b if self.base is None else b + jnp.abs(self.base))

    def intercept_rounding(self, x: Float[Array, "d"], support: Support | None) -> Float[Array, ""]:
        if not self.fit_intercept:
            return jnp.zeros((), self.dtype)
        eta, error = self.forward(x, support), self.intercept_error(x)
        flat = self.value_at(jnp.broadcast_to(dot(self._weights(), eta), eta.shape), jnp.zeros_like(x))
        return rise(self.value_at(eta, x), self.value_at(eta + error, x), self.value_at(eta - error, x), flat)

    def in_design_units(self, x: Float[Array, "d"]) -> tuple[Float[Array, "p"], Float[Array, ""]]:
        """w and b with X w + b the product of the (standardised) design with x, for the design's own columns X."""
        p = self.n_coefficients
        w = x[:p] if self.inverse_scale is None else x[:p] * self.inverse_scale
        intercept = x[p] if self.fit_intercept else jnp.zeros((), x.dtype)
        return w, intercept if self.mean is None else intercept - dot(self.mean, w)

    # --- values and derivatives --------------------------------------------------------------------------------------
    def _weights(self) -> Float[Array, "n"]:
        return self.sample_weight / jnp.sum(self.sample_weight)

    def forward(
        self, x: Float[Array, "d"], support: Support | None = None
    ) -> Float[Array, "n"]:  # the linear predictor, offset included
        eta = self.product(x, support)
        return bounded(eta if self.offset is None else eta + self.offset, self.sample_weight)

    def product(self, x: Float[Array, "d"], support: Support | None = None) -> Float[Array, "n"]:
        """The (standardised) design, the intercept's column included, times x; a support is that of `forward`."""
        if support is not None and not self.design.sparse:
            return dot(self.columns(support), gather(x, support))
        w, intercept = self.in_design_units(x)
        return self.design.mv(w) + intercept

    def columns(self, support: Support) -> Float[Array, "n m"]:
        """The (standardised) design's columns on a support; ones for the intercept, zeros on padding."""
        p = self.n_coefficients
        j = jnp.minimum(support.idx, p - 1)
        A = self.design.columns(j)
        if self.mean is not None:
            A = A - self.mean[j]
        if self.inverse_scale is not None:
            A = A * self.inverse_scale[j]
        if self.fit_intercept:
            A = jnp.where(support.idx == p, 1, A)
        return jnp.where(support.mask, A, 0)

    def transpose_product(self, r: Float[Array, "n"]) -> Float[Array, "d"]:
        """Transpose of the (standardised) design, the intercept's column included, times r."""
        g = self.design.rmv(r)
        if self.mean is not None:
            g = g - self.mean * jnp.sum(r)
        if self.inverse_scale is not None:
            g = g * self.inverse_scale
        return jnp.append(g, jnp.sum(r)) if self.fit_intercept else g

    def ridge(self) -> Float[Array, "d"]:
        """l2 per entry of x: zero for the intercept."""
        l2 = jnp.broadcast_to(self.l2, (self.n_coefficients,))
        if self.inverse_scale is not None and not self.standardize:
            # Where it leaves the dtype's range the coefficient is zero to working precision.
            most = jnp.finfo(l2.dtype).max * 2.0**-LARGEST_RIDGE
            l2 = jnp.minimum(l2 * self.inverse_scale * self.inverse_scale, most)
        return jnp.append(l2, jnp.zeros((), l2.dtype)) if self.fit_intercept else l2

    def ridge_product(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        """ridge() * x, also where ridge() underflows and x is large."""
        ridge = self.ridge()
        if self.inverse_scale is None or self.standardize:
            return ridge * x
        slope = self.l2 * (x[: self.n_coefficients] * self.inverse_scale) * self.inverse_scale
        slope = jnp.append(slope, jnp.zeros_like(x, shape=x.shape[0] - slope.shape[0]))  # none of the intercept
        return jnp.where(ridge < jnp.finfo(x.dtype).tiny, slope, ridge * x)

    def value_at(self, forward: Float[Array, "n"], x: Float[Array, "d"]) -> Float[Array, ""]:
        loss = dot(self._weights(), self.loss.value(forward, self.y))
        return loss + 0.5 * dot(self.ridge_product(x), x)  # x squared may overflow

    def grad_at(self, forward: Float[Array, "n"], x: Float[Array, "d"]) -> Float[Array, "d"]:
        return self.transpose_product(self._weights() * self.loss.derivative(forward, self.y)) + self.ridge_product(x)

    def curvature_at(
        self, forward: Float[Array, "n"], v: Float[Array, "d"], support: Support | None
    ) -> Float[Array, ""]:
        weights = self._weights() * self.loss.second_derivative(forward, self.y)
        return dot(weights, self.product(v, support) ** 2) + jnp.sum(self.ridge() * v**2)

    def gram_product(self, v: Float[Array, "d"]) -> Float[Array, "d"]:
        """The Hessian's majoriser (loss smoothness times the weighted Gram matrix, plus l2) times v."""
        g = self.transpose_product(self._weights() * self.product(v))
        return self.loss.smoothness * g + self.ridge() * v

    def gram_diagonal(self, weights: Float[Array, "n"]) -> Float[Array, "d"]:
        """Diagonal of X' diag(weights) X for the (standardised) design, the intercept's column included."""
        diagonal, total = self.design.column_norms(weights, self.inverse_scale) ** 2, jnp.sum(weights)
        if self.mean is not None:
            scale = 1.0 if self.inverse_scale is None else self.inverse_scale
            mean, sums = self.mean * scale, self.design.rmv(weights) * scale
            diagonal = jnp.maximum(diagonal - mean * (2 * sums - mean * total), 0)
        return jnp.append(diagonal, total) if self.fit_intercept else diagonal

    def lipschitz(self) -> Float[Array, ""]:
        if _has_no_smoothness(self.loss):
            return jnp.asarray(jnp.inf, self.dtype)
        return largest_eigenvalue(self.gram_product, self.start())

    def start(self) -> Float[Array, "d"]:
        """Where power iterations start; columns of zeros behind the others change nothing."""
        return jnp.append(random_start(self.n_coefficients, self.dtype), jnp.ones(self.n_free, self.dtype))

    # --- samples -----------------------------------------------------------------------------------------------------
    def samples(self) -> "LinearSamples":
        return LinearSamples(self, self.n_samples * self._weights())

    def sample_smoothness(self) -> Float[Array, ""]:
        samples = self.samples()

        def curvature(i: Int[Array, ""]) -> Float[Array, ""]:
            row = samples.rows(i[None]).transpose_product(jnp.ones(1, self.dtype))
            return samples.shares[i] * jnp.sum(row**2)

        largest = jnp.max(lax.map(curvature, jnp.arange(self.n_samples), batch_size=ROWS_AT_ONCE))
        return self.loss.smoothness * largest + jnp.max(self.l2)

    @property
    def quadratic(self) -> bool:
        return self.loss.quadratic

    def normal_equations(self, x: Float[Array, "d"] | None = None) -> LinearNormalEquations:
        if self.quadratic:
            weights = self._weights()
            target = self.y if self.offset is None else self.y - self.offset
        else:
            eta = self.forward(self.origin() if x is None else x)
            curvature = self.loss.second_derivative(eta, self.y)
            # Any positive curvature keeps the model's gradient right; where the loss is flat or saturated the target
            # would otherwise lie at infinity.
            curvature = jnp.maximum(curvature, MIN_CURVATURE * (1e-30 + dot(self._weights(), curvature)))
            curvature = jnp.maximum(curvature, FLAT_CURVATURE * jnp.abs(self.loss.derivative(eta, self.y)))
            if self.loss.kinked:
                curvature = jnp.maximum(curvature, KINKED_CURVATURE * damping_scale(self.loss, curvature))
            weights = self._weights() * curvature
            target = eta - self.loss.derivative(eta, self.y) / curvature
            target = target if self.offset is None else target - self.offset
        return self._least_squares(weights, target)

    def _least_squares(self, weights: Float[Array, "n"], target: Float[Array, "n"]) -> LinearNormalEquations:
        """Normal equations of sum_i weights_i (target_i - x_i'w - b)^2 + l2 ||w||^2, b minimised out."""
        p, total = self.n_coefficients, jnp.sum(weights)
        if not self.fit_intercept:
            mean = None
            diagonal = self.design.column_norms(weights, self.inverse_scale) ** 2
        elif (
            self.quadratic and self.standardize and self.inverse_scale is not None
        ):  # unit variances, and zero for constant columns
            mean, diagonal = None, (self.inverse_scale > 0).astype(self.dtype)
        else:
            mean, deviation = _moments(self.design, weights / total)
            # A constant column repeats the intercept; its deviation is rounding.
            deviation = jnp.where(_is_constant(mean, deviation), 0, deviation)
            if self.mean is not None:
                mean = mean - self.mean
            if self.inverse_scale is not None:
                mean, deviation = mean * self.inverse_scale, deviation * self.inverse_scale
            diagonal = total * deviation**2
        if self.fit_intercept:
            target = target - dot(weights, target) / total
        return LinearNormalEquations(
            model=self,
            weights=weights,
            mean=mean,
            rhs=self.transpose_product(weights * target)[:p],
            diagonal=diagonal + self.ridge()[:p],
            constant=dot(weights, target**2),
        )

    def subset(self, idx: Int[Array, "m"]) -> Self:
        def pick(a: Array | None) -> Array | None:
            return a if a is None or not a.ndim else a[idx]

        return replace(
            self,
            design=self.design.subset(idx),
            l2=pick(self.l2),
            shift=pick(self.shift),
            mean=pick(self.mean),
            inverse_scale=pick(self.inverse_scale),
        )

    @property
    def sparse(self) -> bool:
        return self.design.sparse

    def restrict(self, support: Support) -> RestrictedLinearModel | RestrictedSparseModel:
        if self.sparse and support.idx.shape[0] > DENSE_HESSIAN_LIMIT:
            return RestrictedSparseModel(self, support)
        return RestrictedLinearModel(
            self.columns(support),
            self.y,
            self.loss,
            self._weights(),
            self.offset,
            jnp.where(support.mask, self.ridge()[support.idx], 0),
            support.mask,
            support.idx >= self.n_coefficients if self.fit_intercept else None,
        )


class LinearSamples(AbstractSamples):
    """f_i = (n s_i / W) l(x_i'w + b + o_i, y_i) of a `LinearModel`, and its ridge penalty."""

    model: LinearModel
    shares: Float[Array, "n"]  # n s_i / W

    def rows(self, i: Int[Array, "b"]) -> LinearModel:
        """The model of the rows i, weighted by their shares, in the units of all rows."""
        model = self.model
        return replace(
            model,
            design=DenseDesign(model.design.rows(i)),
            y=model.y[i],
            sample_weight=self.shares[i],
            offset=None if model.offset is None else model.offset[i],
        )

    def scores(self, x: Float[Array, "d"], i: Int[Array, "b"]) -> Float[Array, "b"]:
        part = self.rows(i)
        return part.sample_weight * part.loss.derivative(part.forward(x), part.y)

    def scores_at(self, forward: Float[Array, "n"]) -> Float[Array, "n"]:
        return self.shares * self.model.loss.derivative(forward, self.model.y)

    def mean_gradient(self, scores: Float[Array, "b"], i: Int[Array, "b"] | None = None) -> Float[Array, "d"]:
        part = self.model if i is None else self.rows(i)
        return part.transpose_product(scores / scores.shape[0])

    def penalty_grad(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        return self.model.ridge() * x


class Units(NamedTuple):
    """What a predictor is about, in float64 and original units.

    The solver predicts (X - centre) w + level, less the base, by which the means of the targets are above those of the
    offsets; so that X w + b has b = level + base - centre'w, which single precision cannot hold far from zero.
    """

    centre: Float[np.ndarray, "p"]
    base: Float[np.ndarray, "*c"]

    def intercept(self, w: Float[np.ndarray, "p *c"], level: Any) -> Any:
        """b, a number or (c,), for coefficients as they were rounded."""
        return level + self.base - self.centre @ w

    def level(self, w: Float[np.ndarray, "p *c"], intercept: Any) -> Any:
        """The solver's intercept, from that in original units."""
        return intercept - self.base + self.centre @ w


class _Facts(NamedTuple):
    """Of every column, over rows with a weight, the largest magnitude, mean and deviation."""

    largest: Any  # (p,), on the host where it is known
    mean: Any  # (p,), or None where nobody asked
    deviation: Any


@program
def _centred(
    design: AbstractDesign,
    shift: Float[Array, "p"],
    grain: Float[Array, "p"],
    constant: Bool[Array, "p"],
    sample_weight: Float[Array, "n"],
) -> tuple[AbstractDesign, Float[Array, "p"], _Facts]:
    """See `AbstractDesign.centred`; and the facts of that design."""
    design, shift = design.centred(shift, grain, constant, sample_weight)
    return design, shift, _facts(design, sample_weight, True)


@program(static_argnames="moments")
def _facts(design: AbstractDesign, sample_weight: Float[Array, "n"], moments: bool) -> _Facts:
    weights = sample_weight / jnp.sum(sample_weight)
    return _Facts(design.magnitudes(weights), *(design.moments(weights) if moments else (None, None)))


@program
def _moments(design: AbstractDesign, weights: Float[Array, "n"]) -> tuple[Float[Array, "p"], Float[Array, "p"]]:
    return design.moments(weights)


def safe_scale(largest: np.ndarray, l2: ArrayLike = 0.0) -> Array:
    """Powers of two that bring columns of an extreme size to about one, or l2 with them as far as it can; else 1."""
    top = jnp.finfo(largest.dtype).maxexp
    limit = 2.0 ** (top // 6)
    extreme = (largest > limit) | ((largest < 1 / limit) & (largest > 0))
    most = np.maximum(0, (top - LARGEST_RIDGE - np.frexp(l2)[1]) // 2)
    scale = np.ldexp(np.ones_like(largest), np.where(extreme, np.minimum(-np.frexp(largest)[1], most), 0))
    return jnp.asarray(scale, largest.dtype)


def _grain(largest: np.ndarray) -> np.ndarray:
    """The last digit of numbers of these sizes, for numbers like them to be multiples of."""
    digits = jnp.finfo(largest.dtype)
    last = np.ldexp(np.ones_like(largest), np.frexp(largest)[1] - digits.nmant - 1)
    return np.maximum(np.where(largest > 0, last, 0), digits.tiny)


def about_means(
    y: Array,
    offset: Array | None,
    given: tuple[ArrayLike | None, ArrayLike | None],
    sample_weight: ArrayLike,
    ceiling: float = np.inf,
) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Targets and offsets less their weighted means where these are far from zero, the first of the means less the
    second, which is exact, as both are rounded to the last digit of the larger, and the second.

    Nothing is subtracted where that rounds a row with a weight, but from what was `given` (None: stays as it is) with
    more digits than the dtype has: it is rounded once, and better so. Offsets that would leave an entry above the
    ceiling are less the largest one instead.
    """
    dtype = y.dtype if offset is None else offset.dtype
    parts: list[tuple[str, Any, ArrayLike | None]] = [("y", y, given[0]), ("offset", offset, given[1])]
    known = {
        name: np.asarray(values, float).reshape(v.shape)
        for name, v, values in parts
        if values is not None and is_concrete(v) and len(v.devices()) == 1
    }
    if not known:
        return y, offset, np.zeros((), dtype), np.zeros((), dtype)
    weights = host(sample_weight).astype(float) if is_concrete(sample_weight) else np.ones(len(y))
    live, weights = weights > 0, weights / weights.sum()
    grain = 2 * np.max([_grain(np.abs(v[live]).max(0).astype(dtype)) for v in known.values()], axis=0)
    means: dict[str, Any] = {"y": 0, "offset": 0}
    for name, v in known.items():
        centre, top = weights @ v, v[live].max(0)
        mean = np.where(np.abs(centre) > FAR * np.sqrt(weights @ (v - centre) ** 2), centre, 0)
        high = (top - mean > ceiling) & (name == "offset")
        mean = (np.round(np.where(high, top, mean) / grain) * grain).astype(dtype).astype(float)
        less = v - mean
        exact = (less.astype(dtype) == less) & subtracts_exactly(v, mean, less)
        means[name] = np.where(exact[live].all(0) | (v.astype(dtype) != v).any(0) | high, mean, 0)

    def moved(name: str, v: Any) -> Any:
        return jnp.asarray((known[name] - means[name]).astype(dtype), dtype) if np.any(means[name]) else v

    base = np.subtract(means["y"], means["offset"])
    return moved("y", y), moved("offset", offset), np.asarray(base, dtype), np.asarray(means["offset"], dtype)


def rise(value: Array, more: Array, less: Array, flat: Array) -> Array:
    """By how much F rises as all predictions move up or down; 0 within the rounding of F without features."""
    most = jnp.maximum(more, less) - value
    return jnp.where(most > jnp.finfo(value.dtype).eps * jnp.abs(flat), most, 0)


def _has_no_smoothness(loss: AbstractLoss) -> bool:
    """True for losses whose curvature has no bound."""
    return not np.ndim(loss.smoothness) and is_concrete(loss.smoothness) and bool(np.isinf(loss.smoothness))


def _is_constant(mean: Any, deviation: Any, xp: Any = jnp) -> Any:
    return deviation <= tolerance("constant", deviation.dtype) * xp.maximum(deviation, xp.abs(mean))


def _vector(name: str, value: ArrayLike, n: int, dtype: Any) -> Array:
    value = jnp.asarray(value, dtype)
    if value.shape != (n,):
        raise ValueError(f"{name}: needs shape ({n},), one per row of the data, got {value.shape}.")
    check_finite(name, value)
    return value


def weight_vector(value: ArrayLike, n: int, dtype: Any) -> Array:
    """Weights whose sum the dtype can hold: those of an extreme size are divided by a power of two."""
    if is_concrete(value):
        value = host(value)
        largest = np.max(value, initial=0) if value.dtype.kind == "f" else 1.0
        if np.isfinite(largest) and largest > 0 and not 1e-20 < largest < 1e20:
            value = np.ldexp(value, -np.frexp(largest)[1])
    return _vector("sample_weight", value, n, dtype)


def _check_ridge(l2: Array) -> None:
    check_finite("l2", l2)
    if is_concrete(l2) and np.min(host(l2)) < 0:
        raise ValueError(f"l2: must be >= 0, got {np.min(host(l2))}.")


def check_weights(sample_weight: Array) -> None:
    """ValueError for weights that are known and not >= 0 and somewhere positive."""
    if is_concrete(sample_weight):
        weights = host(sample_weight)
        if np.min(weights) < 0:
            raise ValueError(f"sample_weight: must be >= 0, got {np.min(weights)}.")
        if np.max(weights) == 0:
            raise ValueError("sample_weight: all weights are zero; at least one sample must count.")
