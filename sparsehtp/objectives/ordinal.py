"""Ordinal regression by cumulative logits (proportional odds)."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._types import ArrayLike, Support, host, is_concrete, replace
from ..designs import AbstractDesign
from ..linalg import dot, largest_eigenvalue, masked_factor, random_start
from ..losses import Squared
from .base import AbstractRestricted
from .cumulative_logits import CumulativeLogits
from .linear_model import LinearModel, rise
from .normal_equations import AbstractNormalEquations
from .predictor import AbstractOfPredictor
from .restricted_linear_model import bounded

EMPTY = 1e-5  # weight, beside a total of one, of the row that a class without weight gets; least share at the origin
ROUNDINGS = 16  # ulp that a curvature may be off
APART = 0.1  # how far thresholds that did not increase are put above each other


class OrdinalModel(AbstractOfPredictor):
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

    shared_model: LinearModel  # one response with y = 0: the design, its units, weights, offset and l2
    y: Int[Array, "n"]
    base: Float[Array, "t"]  # x ends in levels less these, so that F is finite at zero: a threshold and the next gaps
    empty: Float[Array, "c"]  # weights of the rows of classes that have none
    classification = True

    def __init__(
        self,
        X: ArrayLike | AbstractDesign,
        y: ArrayLike,
        n_classes: int | None = None,
        l2: ArrayLike = 0.0,
        sample_weight: ArrayLike | None = None,
        standardize: bool = False,
        offset: ArrayLike | None = None,
    ) -> None:
        shape = X.shape if hasattr(X, "shape") else np.shape(X)
        n = shape[0] if shape else 0
        y, n_classes = check_classes(y, n_classes, n)
        self.shared_model = LinearModel(X, np.zeros(n), Squared(), l2, sample_weight, True, standardize, offset)
        self.y = jnp.asarray(y, jnp.int32)
        self.base, self.empty = self._start(self.sample_weight, n_classes)

    def _start(self, weights: Any, n_classes: int) -> tuple[Float[Array, "t"], Float[Array, "c"]]:
        """Levels at the classes' shares of the weights, and weights for classes that have none."""
        known = is_concrete(weights, self.y)  # on the host, then
        xp: Any = np if known else jnp
        if known:
            shares: Any = np.bincount(host(self.y), host(weights).astype(float), n_classes)
        else:
            shares = dot(weights, jax.nn.one_hot(self.y, n_classes, dtype=weights.dtype))
        shares = shares / shares.sum()
        empty, shares = EMPTY * (shares == 0), xp.maximum(shares, EMPTY)
        below, above = xp.cumsum(shares)[:-1], xp.cumsum(shares[::-1])[::-1][1:]
        return jnp.asarray(_levels(xp.log(below / above)), self.dtype), jnp.asarray(empty, self.dtype)

    def _of(self, shared_model: LinearModel, weighted: bool) -> Self:
        if not weighted:
            return replace(self, shared_model=shared_model)
        base, empty = self._start(shared_model.sample_weight, self.n_classes)
        return replace(self, shared_model=shared_model, base=base, empty=empty)

    def scorer(self, sample_weight: Float[Array, "n"] | None = None) -> Self:
        return replace(self, shared_model=self.shared_model.scorer(sample_weight), empty=jnp.zeros_like(self.empty))

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
        parts = self.shared_model.to_internal(x), intercept, self.base
        known = is_concrete(parts)
        xp: Any = np if known else jnp
        x, intercept, base = jax.tree.map(host, parts) if known else parts
        own = xp.zeros_like(base) if intercept is None else _levels(intercept - x[-1]) - base
        return jnp.asarray(xp.append(x[:-1], own), self.dtype)

    def to_external(self, x: Float[Array, "d"]) -> tuple[Float[Array, "p"], Float[Array, "t"]]:
        w, shift = self.shared_model.to_external(self._alone(x))
        return w, jnp.cumsum(self._split(x)[1]) - shift

    def intercept_of(self, w: Float[np.ndarray, "p"], free: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t"]:
        return np.cumsum(np.asarray(self.base, float) + free) - self.shared_model.intercept_of(w, np.zeros(0))

    def intercept_rounding(self, x: Float[Array, "d"], support: Support | None) -> Float[Array, ""]:
        eta, levels = self.forward(x, support)
        size = jnp.sum(jnp.abs(levels))
        error = self.shared_model.intercept_error(self._alone(x)) + jnp.finfo(self.dtype).eps * size

        def value(eta: Float[Array, "n"], x: Float[Array, "d"]) -> Float[Array, ""]:
            return self.value_at(Predictions(eta, levels), x)

        flat = value(jnp.broadcast_to(dot(self.sample_weight, eta) / jnp.sum(self.sample_weight), eta.shape), 0 * x)
        return rise(value(eta, x), value(eta + error, x), value(eta - error, x), flat)

    def feasible(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        _, levels = self._split(x)
        apart = (levels > 0) | (jnp.arange(self.n_free) == 0)
        return x.at[self.n_coefficients :].add(jnp.where(apart, 0, APART - levels))

    def _split(self, x: Float[Array, "d"]) -> tuple[Float[Array, "p"], Float[Array, "t"]]:
        """Coefficients, and levels."""
        return x[: self.n_coefficients], self.base + x[self.n_coefficients :]

    # --- values and derivatives --------------------------------------------------------------------------------------
    def _likelihood(self) -> CumulativeLogits:
        return CumulativeLogits(self.y, self.sample_weight / jnp.sum(self.sample_weight), self.empty)

    def forward(self, x: Float[Array, "d"], support: Support | None = None) -> "Predictions":
        return Predictions(self._predictor(x, support), self._split(x)[1])

    def value_at(self, forward: "Predictions", x: Float[Array, "d"]) -> Float[Array, ""]:
        ridge = 0.5 * dot(self._ridge_product(x), x[: self.n_coefficients])
        return self._likelihood().value(*forward) + ridge

    def grad_at(self, forward: "Predictions", x: Float[Array, "d"]) -> Float[Array, "d"]:
        rows, inner = self._likelihood().gradient(*forward)
        return jnp.append(self._pulled(rows) + self._ridge_product(x), inner)

    def curvature_at(self, forward: "Predictions", v: Float[Array, "d"], support: Support | None) -> Float[Array, ""]:
        h, p = self._likelihood().curvature(*forward), self.n_coefficients
        u, w, t = self._product(v, support), v[:p], v[p:]
        return dot(u, h.rows * u + 2 * dot(h.cross, t)) + dot(t, dot(h.inner, t)) + dot(self.ridge() * w, w)

    def lipschitz(self) -> Float[Array, ""]:
        h, p = self._likelihood().curvature(*self.forward(self.origin())), self.n_coefficients

        def product(v: Float[Array, "d"]) -> Float[Array, "d"]:
            u, t = self._product(v), v[p:]
            rows = self._pulled(h.rows * u + dot(h.cross, t)) + self.ridge() * v[:p]
            return jnp.append(rows, dot(u, h.cross) + dot(h.inner, t))

        # Columns of zeros behind the others must not change where this starts.
        start = [random_start(size, self.dtype) for size in (p, self.n_free)]
        return largest_eigenvalue(product, jnp.concatenate(start))

    def normal_equations(self, x: Float[Array, "d"] | None = None) -> "OrdinalEquations":
        x, p = self.origin() if x is None else x, self.n_coefficients
        forward, w = self.forward(x), x[:p]
        value, (grad, slope) = self.value_at(forward, x), jnp.split(self.grad_at(forward, x), [p])
        h = self._likelihood().curvature(*forward)
        cross = jax.vmap(self._pulled, 1, 1)(h.cross)
        # The thresholds minimised out.
        inverse = masked_factor(h.inner, jnp.ones(self.n_free, bool)).inverse(self.dtype)
        follow = dot(cross, inverse)
        grad = grad - dot(follow, slope)
        product = self._pulled(h.rows * self._product(x)) + self.ridge() * w - dot(follow, dot(w, cross))
        gram = self.shared_model.gram_diagonal(h.rows)[:p]
        own = gram - jnp.sum(follow * cross, axis=1)
        constant = own <= ROUNDINGS * jnp.finfo(self.dtype).eps * gram  # such a column repeats the thresholds
        return OrdinalEquations(
            model=self,
            rows=h.rows,
            cross=cross,
            follow=follow,
            rhs=product - grad,
            diagonal=jnp.where(constant, 0, own) + self.ridge(),
            constant=2 * value - dot(slope, dot(inverse, slope)) - 2 * dot(grad, w) + dot(w, product),
        )

    def restrict(self, support: Support) -> "RestrictedOrdinal":
        free = support.idx[:, None] == self.n_coefficients + jnp.arange(self.n_free)
        own = support.mask & ~jnp.any(free, axis=1)
        return RestrictedOrdinal(
            A=self.shared_model.columns(Support(support.idx, own)),
            place=(support.mask[:, None] & free).astype(self.dtype),
            likelihood=self._likelihood(),
            base=self.base,
            offset=self.shared_model.offset,
            ridge=jnp.where(own, self.shared_model.ridge()[support.idx], 0),
            mask=support.mask,
        )


class Predictions(NamedTuple):
    """Linear predictors and levels."""

    eta: Float[Array, "n"]
    levels: Float[Array, "t"]


class OrdinalEquations(AbstractNormalEquations):
    """The quadratic model of an `OrdinalModel` around a point, the thresholds minimised out."""

    model: OrdinalModel
    rows: Float[Array, "n"]  # curvature in the linear predictors
    cross: Float[Array, "p t"]  # of the Hessian
    follow: Float[Array, "p t"]  # `cross` times the inverse of the thresholds' block
    rhs: Float[Array, "p"]
    diagonal: Float[Array, "p"]
    constant: Float[Array, ""]

    def columns(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        A = self.model.shared_model.columns(Support(idx, jnp.ones(idx.shape, bool)))
        gram = jax.vmap(self.model._pulled)((self.rows[:, None] * A).T) - dot(self.follow[idx], self.cross.T)
        return gram.at[jnp.arange(idx.shape[0]), idx].add(self.model.ridge()[idx])


class RestrictedOrdinal(AbstractRestricted):
    """An `OrdinalModel` over the entries of a support: the columns A, and levels in their places."""

    A: Float[Array, "n m"]
    place: Float[Array, "m t"]
    likelihood: CumulativeLogits
    base: Float[Array, "t"]
    offset: Float[Array, "n"] | None
    ridge: Float[Array, "m"]
    mask: Array

    @property
    def intercept(self) -> Bool[Array, "m"]:
        return jnp.any(self.place > 0, axis=1)

    def _predict(self, z: Float[Array, "m"]) -> Predictions:
        eta = dot(self.A, z)
        eta = bounded(eta if self.offset is None else eta + self.offset, self.likelihood.weights[: eta.shape[0]])
        return Predictions(eta, self.base + dot(z, self.place))

    def _collect(self, rows: Float[Array, "n"], inner: Float[Array, "t"]) -> Float[Array, "m"]:
        return dot(rows, self.A) + dot(self.place, inner)

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        return self.likelihood.value(*self._predict(z)) + 0.5 * dot(self.ridge * z, z)

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return self._collect(*self.likelihood.gradient(*self._predict(z))) + self.ridge * z

    def grad_terms(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        rows, inner = self.likelihood.terms(*self._predict(z))
        return dot(rows, jnp.abs(self.A)) + dot(self.place, inner) + self.ridge * jnp.abs(z)

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        return self.hessian_product(z)(v)

    def hessian_product(self, z: Float[Array, "m"]) -> Callable[[Array], Array]:
        h = self.likelihood.curvature(*self._predict(z))

        def product(v: Float[Array, "m"]) -> Float[Array, "m"]:
            u, t = dot(self.A, v), dot(v, self.place)
            return self._collect(h.rows * u + dot(h.cross, t), dot(u, h.cross) + dot(h.inner, t)) + self.ridge * v

        return product

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        h = self.likelihood.curvature(*self._predict(z), damping)
        cross = dot(dot(self.A.T, h.cross), self.place.T)
        inner = dot(self.place, dot(h.inner, self.place.T))
        return dot((self.A * h.rows[:, None]).T, self.A) + cross + cross.T + inner + jnp.diag(self.ridge)

    def scale(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        h = self.likelihood.curvature(*self._predict(z), 1.0)
        return dot(h.rows, self.A**2) + dot(self.place, jnp.diagonal(h.inner)) + self.ridge

    def without_each(self, z: Float[Array, "m"], n_free: int) -> Float[Array, "m"]:
        follow = super().without_each(z, n_free)
        return jnp.where(jnp.isfinite(follow), follow, super().without_each(z, 0))  # the thresholds crossed


def _levels(thresholds: Any) -> Any:
    xp: Any = np if is_concrete(thresholds) else jnp
    return xp.concatenate([thresholds[:1], xp.diff(thresholds)])


def check_classes(y: ArrayLike, n_classes: int | None, n: int) -> tuple[Any, int]:
    """The classes of n rows and how many there are, or ValueError."""
    if np.shape(y) != (n,):
        raise ValueError(f"y: needs shape ({n},), one class per row of X, got {np.shape(y)}.")
    if n_classes is not None and n_classes < 2:
        raise ValueError(f"n_classes: must be at least 2, got {n_classes}.")
    if not is_concrete(y):
        if n_classes is None:
            raise ValueError("n_classes: must be given where y is traced.")
        return y, n_classes
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
