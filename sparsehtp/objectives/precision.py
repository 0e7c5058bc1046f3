"""Gaussian precision matrices."""

from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PyTree

from .._programs import program
from .._tolerances import tolerance
from .._types import (
    AnyArray,
    ArrayLike,
    DType,
    Support,
    TableLike,
    check_finite,
    check_symmetric,
    floating,
    is_concrete,
    replace,
)
from ..linalg import Factor, Interval, dot, factorise, shrunk, smallest_and_largest
from ..thresholds.offdiagonal import OffDiagonal
from .base import AbstractScored
from .restricted_precision import RestrictedPrecision

XI = 1e-2  # of the bounds' rules
RULES = ("valid", "lu")
DEBIASERS = ("newton", "admm")
LEAST_VARIANCE = 1e-8  # within classes, of a variable that separates them without error, over that between them
MOST_SHRINKAGE = 0.9  # of the rule: some of the data's correlations stay


class Precision(AbstractScored):
    """Negative log-likelihood of a Gaussian with precision matrix O, per sample, twice, and without its constant.

        L(O) = -logdet O + <S, O>,    alpha I <= O <= beta I,    gradient S - O^{-1}

    With the threshold `OffDiagonal(k)` at most k pairs off the diagonal are nonzero. The solution's x is the symmetric
    (p, p) matrix O, its support numbers pairs (`OffDiagonal`), and its intercept is zero. Outside of the bounds L is
    infinite, so that every iterate is positive definite.

    Args:
        S: (p, p) symmetric positive semidefinite covariance, p >= 2.
        n: number of samples behind S, >= 2; what information criteria multiply L with.
        bounds: "valid": alpha = 1/tr(S) and beta = p/lam_min(S), which hold for the unbounded minimiser on every
            support; if S is singular that may not exist, and beta = (p - alpha tr S)/(xi tr(S)/p), xi = 0.01.
            "lu": [GraHTP]'s alpha = 1/(||S|| + p xi), beta = (p - alpha tr S)/xi, made for an l1 problem, which can cut
            off the minimiser here. Or a pair of numbers (alpha, beta).
        standardize: choose pairs on the scale of correlations, and read the bounds so: O is replaced by D O D with D
            the standard deviations. Likelihoods and solutions stay in original units.
        debias: how a support is refitted: "newton" (Newton-CG; ADMM where the bounds are active) or "admm".
        shrinkage: g in [0, 1): S is replaced by (1-g) S + g diag(S), in the choice of pairs and in the fit. "oas": the
            g of Chen et al. (2010) for S's correlations and n, at most 0.9. With few samples per variable this
            decides how good the graph is: the likelihood of many pairs overfits. Criteria and held-out scores use S.

    Raises:
        ValueError: for an S that is not square, finite, symmetric and positive semidefinite, a variable without
            variance, n < 2, a shrinkage out of range, or bounds other than 0 < alpha <= beta (checked on
            concrete arrays only).

    The model is unbounded below if S is singular on a support that is too large for n; then beta decides, and the
    answer means little: lower k. With standardize=False units matter to which pairs are chosen, as in the paper.

    Derivatives of solutions are those of the minimiser on the support without bounds: they hold where these are
    inactive.

    Source: [GraHTP] section 5.3, Algorithm 2 (its n in the bounds is the dimension p), Appendix D.2; Lu (2009); Chen,
    Wiesel, Eldar and Hero (2010).
    """

    S: Float[Array, "p p"]  # divided by the scales, and shrunk
    n: Float[Array, ""]
    interval: Interval
    flat: Int[Array, "pairs"]  # places of the pairs in the flat matrix
    scale: Float[Array, "p"] | None
    X: Float[Array, "n p"] | None
    sample_weight: Float[Array, "n"] | None
    classes: Float[Array, "n c"] | None  # indicators
    location: Float[Array, "c p"] | None
    shrinkage: Float[Array, ""]
    shrinks_by_rule: bool = eqx.field(static=True)
    rule: str | None = eqx.field(static=True)
    standardize: bool = eqx.field(static=True)
    assume_centered: bool = eqx.field(static=True)
    debias: str = eqx.field(static=True)

    thresholds = (OffDiagonal,)
    starts_at_zero = False
    lanes_in_turn = True
    ifo_per_gradient = 1

    def __init__(
        self,
        S: ArrayLike,
        n: ArrayLike,
        bounds: ArrayLike | None = "valid",
        standardize: bool = False,
        debias: str = "newton",
        shrinkage: ArrayLike = 0.0,
    ) -> None:
        S = floating(S)
        _check_matrix(S)
        check_finite("n", n)
        if is_concrete(n) and not np.all(np.asarray(n) >= 2):
            raise ValueError(f"n: needs at least 2 samples, got {np.asarray(n)}.")
        if debias not in DEBIASERS:
            raise ValueError(f"debias: must be one of {', '.join(DEBIASERS)}, got {debias!r}.")
        self.shrinks_by_rule, self.shrinkage = _check_shrinkage(shrinkage, S.dtype)
        self.rule, self.interval = _check_bounds(bounds, S.dtype)
        self.standardize, self.debias = bool(standardize), debias
        self.n = jnp.asarray(n, S.dtype)
        self.flat = jnp.asarray(np.flatnonzero(np.triu(np.ones(S.shape, bool), 1)), jnp.int32)
        self.X = self.sample_weight = self.classes = self.location = None
        self.assume_centered = False
        self._set(S)

    def _set(self, S: Float[Array, "p p"]) -> None:
        """Scale and shrink S, and find the bounds; also on an unfinished copy."""
        shrinkage = None if self.shrinks_by_rule else self.shrinkage
        S, scale, shrinkage, interval = _prepare(S, self.n, shrinkage, self.rule, self.standardize)
        interval = self.interval if interval is None else interval
        for name, value in {"S": S, "scale": scale, "shrinkage": shrinkage, "interval": interval}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_data(
        cls,
        X: TableLike,
        sample_weight: ArrayLike | None = None,
        *,
        assume_centered: bool = False,
        labels: ArrayLike | None = None,
        **options: PyTree,
    ) -> "Precision":
        """The objective of the empirical covariance S = (1/W) sum_i s_i (x_i - m)(x_i - m)', n = W = sum_i s_i.

        It keeps the data, so that folds and resamples are weights (`reweighted`, `cross_validate`,
        `stability_selection`): every one has its own mean and scale.

        Args:
            X: (n, p) samples as rows.
            sample_weight: (n,) weights >= 0. None: one.
            assume_centered: m = 0 instead of the weighted mean.
            labels: (n,) class of every sample: m is then the mean of its class, and S the covariance within classes.
                A variable that only varies between classes gets 1e-8 of that variance.
            **options: bounds, standardize, debias and shrinkage, as in the class.

        Raises:
            ValueError: for misshapen or nonfinite data or weights, and as in the class.
        """
        X = floating(X)
        if X.ndim != 2:
            raise ValueError(f"X: needs two dimensions, samples and variables, got shape {X.shape}.")
        s = jnp.ones(X.shape[0], X.dtype) if sample_weight is None else jnp.asarray(sample_weight, X.dtype)
        if s.shape != X.shape[:1]:
            raise ValueError(f"sample_weight: needs shape {X.shape[:1]}, one value per row of X, got {s.shape}.")
        for name, value in (("X", X), ("sample_weight", s), ("labels", labels)):
            check_finite(name, value)
        if is_concrete(s) and (np.min(s, initial=0) < 0 or np.count_nonzero(s) < 2):
            raise ValueError("sample_weight: needs weights >= 0, at least two of them positive.")
        if is_concrete(X, s):
            live = np.asarray(X)[np.asarray(s) > 0]
            constant = np.ptp(live, axis=0) <= tolerance("constant", X.dtype) * np.abs(live).max(axis=0)
            if constant.any():
                raise ValueError(f"X: variable {np.flatnonzero(constant)[0]} is constant; remove the variable.")
        number = np.zeros(X.shape[0], int) if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]
        classes = jnp.asarray(number[:, None] == np.arange(number.max(initial=0) + 1), X.dtype)
        if classes.shape[0] != X.shape[0]:
            raise ValueError(f"labels: needs shape {X.shape[:1]}, one label per row of X, got {number.shape}.")
        location = _means(X, s, classes, assume_centered)
        # A covariance has the rank of its samples: W is what criteria count, and may be below 2 for scaled weights.
        new = cls(_second_moment(X, s, classes, location), jnp.maximum(jnp.sum(s), 2), **options)
        fields = {"X": X, "sample_weight": s, "classes": classes, "location": location, "n": jnp.sum(s)}
        return replace(new, **fields, assume_centered=bool(assume_centered))

    def reweighted(self, sample_weight: ArrayLike | None = None, l2: ArrayLike | None = None) -> Self:
        if self.X is None or self.classes is None or l2 is not None:
            return super().reweighted(sample_weight, l2)
        if sample_weight is None:
            return self
        s = jnp.asarray(sample_weight, self.dtype)
        if s.shape != self.X.shape[:1]:
            raise ValueError(f"sample_weight: needs shape {self.X.shape[:1]}, got {s.shape}.")
        location = _means(self.X, s, self.classes, self.assume_centered)
        new = replace(self, sample_weight=s, n=jnp.sum(s), location=location)
        new._set(_second_moment(self.X, s, self.classes, location))
        return new

    def scorer(self, sample_weight: Float[Array, "n"] | None = None) -> Self:
        """L without shrinkage, or on other samples: their second moments about this objective's own means."""
        if sample_weight is None:
            S = jnp.where(jnp.eye(self.n_variables, dtype=bool), self.S, self.S / (1 - self.shrinkage))
        else:
            S = _second_moment(self.X, sample_weight, self.classes, self.location)
            S = S if self.scale is None else S / (self.scale[:, None] * self.scale)
        return replace(self, S=S, shrinkage=jnp.zeros_like(self.shrinkage), shrinks_by_rule=False)

    # --- shape and units ---------------------------------------------------------------------------------------------
    # x holds the pairs, times the root of two, and then the diagonal: its Euclidean norm is the Frobenius norm.
    @property
    def n_variables(self) -> int:
        """p."""
        return self.S.shape[0]

    @property
    def n_coefficients(self) -> int:
        return self.flat.shape[0]

    @property
    def n_free(self) -> int:
        return self.n_variables

    @property
    def external_shape(self) -> tuple[int, ...]:
        return self.S.shape

    @property
    def dtype(self) -> DType:
        return self.S.dtype

    def pack(self, A: Float[Array, "p p"]) -> Float[Array, "d"]:
        """x of a symmetric matrix."""
        pairs = A.ravel()[self.flat]
        return jnp.concatenate([jnp.sqrt(jnp.asarray(2, A.dtype)) * pairs, jnp.diagonal(A)])

    def unpack(self, x: Float[Array, "d"]) -> Float[Array, "p p"]:
        """The symmetric matrix of x."""
        p = self.n_variables
        half = jnp.where(jnp.eye(p, dtype=bool), 1, jnp.sqrt(jnp.asarray(0.5, x.dtype)))
        return x[_places(p)] * half

    def to_internal(self, x: Float[Array, "p p"], intercept: AnyArray | float = 0.0) -> Float[Array, "d"]:
        A = (x + x.T) / 2
        return self.pack(A if self.scale is None else A * self.scale[:, None] * self.scale)

    def to_external(self, x: Float[Array, "d"]) -> tuple[Float[Array, "p p"], Float[Array, ""]]:
        A = self.unpack(x)
        A = A if self.scale is None else A / (self.scale[:, None] * self.scale)
        return A, jnp.zeros((), x.dtype)

    def parts(self, x: Float[Array, "d"]) -> tuple[Float[Array, "pairs"], Float[Array, "p"]]:
        A, _ = self.to_external(x)
        return A.ravel()[self.flat], jnp.diagonal(A)

    def origin(self) -> Float[Array, "d"]:
        """The minimiser without pairs."""
        variance = jnp.diagonal(self.S)
        best = 1 / jnp.where(variance > 0, variance, 1 / self.interval.upper)
        return self.pack(jnp.diag(jnp.clip(best, *self.interval)))

    def feasible(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        return self.pack(shrunk(self.unpack(x), self.interval))

    # --- values and derivatives --------------------------------------------------------------------------------------
    def _constant(self) -> Float[Array, ""] | float:
        return 0.0 if self.scale is None else 2 * jnp.sum(jnp.log(self.scale))

    def forward(self, x: Float[Array, "d"], support: Support | None = None) -> Factor:
        return factorise(self.unpack(x), self.interval)

    def value_at(self, forward: Factor, x: Float[Array, "d"]) -> Float[Array, ""]:
        return dot(self.pack(self.S), x) - forward.logdet + self._constant()

    def grad_at(self, forward: Factor, x: Float[Array, "d"]) -> Float[Array, "d"]:
        return self.pack(self.S - forward.inverse)

    def curvature_at(self, forward: Factor, v: Float[Array, "d"], support: Support | None) -> Float[Array, ""]:
        V = self.unpack(v)
        return jnp.sum(dot(dot(forward.inverse, V), forward.inverse) * V)

    def lipschitz(self) -> Float[Array, ""]:
        """1/alpha^2, which bounds the curvature between the bounds."""
        return 1 / self.interval.lower**2

    def curvatures(self, x: Float[Array, "d"]) -> Float[Array, "p"]:
        """Second derivative in every pair, with the two variances that it joins minimised out."""
        W = self.forward(x).inverse
        variances = jnp.diagonal(W)
        product = variances[:, None] * variances
        curvature = (product - W**2) ** 2 / (product + W**2)
        return curvature.ravel()[self.flat]

    def restrict(self, support: Support) -> RestrictedPrecision:
        return RestrictedPrecision(self, support, support.mask, jnp.asarray(jnp.inf, self.dtype))


def _places(p: int) -> Int[Array, "p p"]:
    """(p, p) index into x of every entry."""
    i = jnp.arange(p, dtype=jnp.int32)
    low, high = jnp.minimum(i[:, None], i), jnp.maximum(i[:, None], i)
    pair = low * (2 * p - low - 1) // 2 + high - low - 1
    return jnp.where(low == high, p * (p - 1) // 2 + low, pair)


def _means(
    X: Float[Array, "n p"], weights: Float[Array, "n"], classes: Float[Array, "n c"], assume_centered: bool
) -> Float[Array, "c p"]:
    """(c, p) weighted mean of every class; zeros for a class without weight."""
    if assume_centered:
        return jnp.zeros((classes.shape[1], X.shape[1]), X.dtype)
    s = weights[:, None] * classes
    total = jnp.sum(s, axis=0)
    return dot(s.T, X) / jnp.where(total > 0, total, 1)[:, None]


@program
def _second_moment(
    X: Float[Array, "n p"], weights: Float[Array, "n"], classes: Float[Array, "n c"], location: Float[Array, "c p"]
) -> Float[Array, "p p"]:
    """(1/W) sum_i s_i (x_i - m_i)(x_i - m_i)', zero for a variable that is constant but for rounding.

    A variable that varies between the classes alone gets a small variance.
    """
    centred = X - dot(classes, location)
    S = dot(centred.T * (weights / jnp.sum(weights)), centred)
    rounding = tolerance("constant", X.dtype) * jnp.max(jnp.abs(location), axis=0)
    varies = jnp.diagonal(S) > rounding**2
    shares = dot(classes.T, weights) / jnp.sum(weights)
    between = dot(shares, (location - dot(shares, location)) ** 2)
    return jnp.where(varies[:, None] & varies, S, 0) + jnp.diag(jnp.where(varies, 0, LEAST_VARIANCE * between))


@program(static_argnames=("rule", "standardize"))
def _prepare(
    S: Float[Array, "p p"], n: Float[Array, ""], shrinkage: Float[Array, ""] | None, rule: str | None, standardize: bool
) -> tuple[Float[Array, "p p"], Float[Array, "p"] | None, Float[Array, ""], Interval | None]:
    """The matrix, its scale (or None), the shrinkage (None: by the rule) and the bounds (None without a rule)."""
    S, variance, scale = (S + S.T) / 2, jnp.diagonal(S), None
    # A variable that is constant in a fold cannot be scaled; it stays apart, with variance one.
    deviation = jnp.sqrt(jnp.where(variance > 0, variance, 1))
    R = S / (deviation[:, None] * deviation) + jnp.diag((variance <= 0).astype(S.dtype))
    if standardize:
        S, scale = R, deviation
    shrinkage = _oas(R, n) if shrinkage is None else shrinkage
    S = jnp.where(jnp.eye(S.shape[0], dtype=bool), S, (1 - shrinkage) * S)
    return S, scale, shrinkage, None if rule is None else Interval(*_bounds(lax.stop_gradient(S), rule))


def _oas(R: Float[Array, "p p"], n: Float[Array, ""]) -> Float[Array, ""]:
    """The oracle approximating shrinkage of a correlation matrix towards the identity."""
    p = R.shape[0]
    power = jnp.mean(R**2)
    return jnp.minimum((power + 1) / ((n + 1) * jnp.maximum(power - 1 / p, jnp.finfo(R.dtype).tiny)), MOST_SHRINKAGE)


def _bounds(S: Float[Array, "p p"], rule: str) -> tuple[Float[Array, ""], Float[Array, ""]]:
    p, trace = S.shape[0], jnp.trace(S)
    least, largest = smallest_and_largest(S)
    if rule == "lu":
        lower = 1 / (largest + p * XI)
        return lower, (p - lower * trace) / XI
    regular = least > 10 * p * jnp.finfo(S.dtype).eps * largest
    return 1 / trace, jnp.where(regular, p / jnp.where(regular, least, 1), (p - 1) * p / (XI * trace))


def _check_bounds(bounds: ArrayLike | None, dtype: DTypeLike) -> tuple[str | None, Interval]:
    """The rule that they come from, if any, and the numbers (zero until the rule has been asked)."""
    if isinstance(bounds, str) and bounds in RULES:
        return bounds, Interval(jnp.zeros((), dtype), jnp.zeros((), dtype))
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise ValueError(f"bounds: must be one of {', '.join(RULES)}, or a pair of numbers, got {bounds!r}.")
    if is_concrete(*bounds) and not 0 < bounds[0] <= bounds[1] < np.inf:
        raise ValueError(f"bounds: needs 0 < alpha <= beta, finite, got {tuple(bounds)}.")
    return None, Interval(*(jnp.asarray(bound, dtype) for bound in bounds))


def _check_shrinkage(shrinkage: ArrayLike, dtype: DTypeLike) -> tuple[bool, Float[Array, ""]]:
    """Whether it comes from the rule, and the number (zero until the rule has been asked)."""
    if isinstance(shrinkage, str) and shrinkage == "oas":
        return True, jnp.zeros((), dtype)
    if isinstance(shrinkage, str) or (is_concrete(shrinkage) and not 0 <= np.asarray(shrinkage) < 1):
        raise ValueError(f"shrinkage: needs a number from 0 up to but not 1, or 'oas', got {shrinkage!r}.")
    return False, jnp.asarray(shrinkage, dtype)


def _check_matrix(S: AnyArray) -> None:
    if S.ndim != 2 or S.shape[0] != S.shape[1] or S.shape[0] < 2:
        raise ValueError(f"S: needs a square matrix of at least two variables, got shape {S.shape}.")
    if not is_concrete(S):
        return
    S = np.asarray(S)
    check_finite("S", S, remedy="remove or impute them in the data first")
    check_symmetric("S", S)
    constant = np.flatnonzero(np.diagonal(S) <= 1e3 * np.finfo(S.dtype).tiny)
    if constant.size:
        raise ValueError(f"S: variable {constant[0]} has no variance; remove the variable.")
    # Scaled, so that a variable in small units is not lost.
    deviation = np.sqrt(np.diagonal(S))
    least = np.linalg.eigvalsh((S + S.T) / 2 / (deviation[:, None] * deviation))[0]
    if least < -max(1e-6, 100 * np.finfo(S.dtype).eps) * S.shape[0]:
        raise ValueError(f"S: is not positive semidefinite (least eigenvalue of its correlations {least:.2g}).")
