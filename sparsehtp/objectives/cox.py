"""Cox's proportional hazards model."""

from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._types import ArrayLike, Support, check_finite, host, is_concrete, replace
from ..designs import AbstractDesign
from ..linalg import dot, largest_eigenvalue, random_start
from ..losses import Squared
from .base import AbstractRestricted
from .custom import HessianEquations
from .linear_model import LinearModel
from .predictor import AbstractOfPredictor
from .restricted_linear_model import bounded
from .risk_sets import PartialLikelihood, RiskSets

BLOCK = 64  # columns at a time, where all are passed over
TIES = ("efron", "breslow")


class CoxModel(AbstractOfPredictor):
    """Cox's partial likelihood of times until an event, some of them censored, plus a ridge penalty.

        F(w) = -(1/W) sum_{i: event} s_i [eta_i - log sum_{j at risk at t_i} s_j exp(eta_j)] + (1/2) sum_j l2_j w_j^2,
        eta_i = x_i'w + o_i,   W = sum_{i: event} s_i

    with weights s_i divided by the mean of those that are not 0, so that multiples of them change nothing. At risk at
    t_i are the rows of i's stratum with a time >= t_i. Of d events at one time of a stratum Breslow's likelihood keeps
    all in each other's risk sets; Efron's weighs them by 1 - l/d in the risk set of the l-th, l = 0, ..., d - 1, and
    takes the mean of their weights for each, as R's `coxph` does. There is no intercept, since F does not change with a
    constant of eta.

    Standardisation, weights, offset and extreme sizes are those of a `LinearModel` with an intercept: columns are
    centred, and a constant one has the coefficient 0. A row without weight has no event and is at risk at none, so that
    folds and bootstraps are weights. A weight of a whole number counts as that many equal rows under Breslow's ties.

    Args:
        X: (n, p) array or design.
        time: (n,) times until the event, or until the row was last seen without one; any finite numbers.
        event: (n,) True (or 1) where the event was seen, False (or 0) where the row is censored.
        l2: ridge strength, a scalar or (p,), >= 0, in units of the mean loss of an event.
        sample_weight, standardize, offset: as in `LinearModel`.
        strata: (n,) labels; rows of different labels are never at risk together. None: one stratum.
        ties: "efron" or "breslow".

    Raises:
        ValueError: for empty, misshapen or nonfinite data, weights or l2, events that are not 0 and 1, no event with a
            positive weight, or another name of ties.

    F is convex. It has no minimiser on a support that orders the events perfectly (a monotone likelihood), unless
    l2 > 0. `lipschitz` is the largest eigenvalue of the Hessian at zero, which is no bound for other points: prefer the
    searching steps. The score of a cross-validation is the partial likelihood of the held-out rows alone: events and
    risk sets are those of the fold, so that folds need several events.

    A value, a gradient or a product with the Hessian is one pass over the rows, which are sorted once.

    Source: Cox (1972); Breslow (1974); Efron (1977).
    """

    shared_model: LinearModel  # one response with y = 0: the design, its units, weights, offset and l2
    likelihood: PartialLikelihood

    def __init__(
        self,
        X: ArrayLike | AbstractDesign,
        time: ArrayLike,
        event: ArrayLike,
        l2: ArrayLike = 0.0,
        sample_weight: ArrayLike | None = None,
        standardize: bool = False,
        offset: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        ties: str = "efron",
    ) -> None:
        shape = X.shape if hasattr(X, "shape") else np.shape(X)
        n = shape[0] if shape else 0
        time, event, labels = check_survival(time, event, strata, n)
        if ties not in TIES:
            raise ValueError(f"ties: must be one of {', '.join(TIES)}, got {ties!r}.")
        self.shared_model = LinearModel(X, np.zeros(n), Squared(), l2, sample_weight, True, standardize, offset)
        self.likelihood = PartialLikelihood.weighed(
            RiskSets(time, event, labels, ties == "efron"), self.shared_model.sample_weight
        )
        weights = self.sample_weight
        if is_concrete(weights) and not self.total_weight(host(weights)):
            raise ValueError("event: no row with a positive weight has an event; at least one must be seen.")

    def _of(self, shared_model: LinearModel, weighted: bool) -> Self:
        if not weighted:
            return replace(self, shared_model=shared_model)
        likelihood = PartialLikelihood.weighed(self.likelihood.sets, shared_model.sample_weight)
        return replace(self, shared_model=shared_model, likelihood=likelihood)

    # --- shape and units ---------------------------------------------------------------------------------------------
    @property
    def event(self) -> Bool[Array, "n"]:
        """(n,) True where the event was seen."""
        event, place = self.likelihood.sets.event, self.likelihood.sets.place
        return host(event)[host(place)] if is_concrete(event) else event[place]

    def total_weight(self, sample_weight: Any) -> Any:
        return sample_weight @ self.event.astype(sample_weight.dtype)

    def to_internal(self, x: Float[Array, "p"], intercept: ArrayLike = 0.0) -> Float[Array, "p"]:
        return self.shared_model.to_internal(x)[: self.n_coefficients]

    def to_external(self, x: Float[Array, "p"]) -> tuple[Float[Array, "p"], Float[Array, ""]]:
        return self.shared_model.in_design_units(self._alone(x))[0], jnp.zeros((), x.dtype)

    # --- values and derivatives --------------------------------------------------------------------------------------
    def forward(self, x: Float[Array, "p"], support: Support | None = None) -> Float[Array, "n"]:
        return self._predictor(x, support)

    def _sorted(self, rows: Float[Array, "n *m"]) -> Float[Array, "n *m"]:
        return rows[self.likelihood.sets.order]

    def _unsorted(self, places: Float[Array, "n"]) -> Float[Array, "p"]:
        """The transpose of the (standardised) design times what belongs to sorted rows."""
        return self._pulled(places[self.likelihood.sets.place])

    def value_at(self, forward: Float[Array, "n"], x: Float[Array, "p"]) -> Float[Array, ""]:
        return self.likelihood.value(self._sorted(forward)) + 0.5 * dot(self._ridge_product(x), x)

    def grad_at(self, forward: Float[Array, "n"], x: Float[Array, "p"]) -> Float[Array, "p"]:
        return self._unsorted(self.likelihood.gradient(self._sorted(forward))[0]) + self._ridge_product(x)

    def value_and_grad(
        self, x: Float[Array, "p"], support: Support | None = None
    ) -> tuple[Float[Array, ""], Float[Array, "p"]]:
        value, slope = self.likelihood.value_and_gradient(self._sorted(self.forward(x, support)))
        ridge = self._ridge_product(x)
        return value + 0.5 * dot(ridge, x), self._unsorted(slope) + ridge

    def curvature_at(
        self, forward: Float[Array, "n"], v: Float[Array, "p"], support: Support | None
    ) -> Float[Array, ""]:
        u = self._sorted(self._product(v, support))
        return self.likelihood.curvatures(self._sorted(forward), u[:, None])[0] + jnp.sum(self.ridge() * v**2)

    def lipschitz(self) -> Float[Array, ""]:
        return largest_eigenvalue(self._hessian(self.origin()), random_start(self.n_coefficients, self.dtype))

    def _hessian(self, x: Float[Array, "p"]) -> Callable[[Float[Array, "p"]], Float[Array, "p"]]:
        eta = self._sorted(self.forward(x))

        def product(v: Float[Array, "p"]) -> Float[Array, "p"]:
            u = self._sorted(self._product(v))
            return self._unsorted(self.likelihood.hessian_product(eta, u[:, None])[:, 0]) + self.ridge() * v

        return product

    def normal_equations(self, x: Float[Array, "p"] | None = None) -> HessianEquations:
        x = self.origin() if x is None else x
        value, grad = self.value_and_grad(x)
        product = self._hessian(x)(x)
        return HessianEquations(
            model=self,
            x=x,
            rhs=product - grad,
            diagonal=self.curvatures(x),
            constant=2 * value - 2 * dot(grad, x) + dot(x, product),
        )

    def curvatures(self, x: Float[Array, "p"]) -> Float[Array, "p"]:
        p, eta = self.n_coefficients, self._sorted(self.forward(x))
        block = min(BLOCK, p)

        def piece(first: Int[Array, ""]) -> Float[Array, "_"]:
            return self.likelihood.curvatures(eta, self._columns(jnp.minimum(first + jnp.arange(block), p - 1)))

        return lax.map(piece, jnp.arange(0, p, block)).ravel()[:p] + self.ridge()

    def _columns(self, idx: Int[Array, "m"]) -> Float[Array, "n m"]:
        """Sorted rows of some columns of the (standardised) design."""
        return self._sorted(self.shared_model.columns(Support(idx, jnp.ones(idx.shape, bool))))

    def hessian_rows(self, x: Float[Array, "p"], idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        """Rows of F''(x)."""
        rows = self.likelihood.hessian_product(self._sorted(self.forward(x)), self._columns(idx))
        return jax.vmap(self._unsorted)(rows.T).at[jnp.arange(idx.shape[0]), idx].add(self.ridge()[idx])

    def restrict(self, support: Support) -> "RestrictedCox":
        offset = self.shared_model.offset
        return RestrictedCox(
            A=self._sorted(self.shared_model.columns(support)),
            likelihood=self.likelihood,
            offset=None if offset is None else self._sorted(offset),
            ridge=jnp.where(support.mask, self.ridge()[support.idx], 0),
            mask=support.mask,
        )


class RestrictedCox(AbstractRestricted):
    """A `CoxModel` over the columns A of a support, rows sorted."""

    A: Float[Array, "n m"]
    likelihood: PartialLikelihood
    offset: Float[Array, "n"] | None
    ridge: Float[Array, "m"]
    mask: Array

    def _predict(self, z: Float[Array, "m"]) -> Float[Array, "n"]:
        eta = dot(self.A, z)
        return bounded(eta if self.offset is None else eta + self.offset, self.likelihood.live.astype(eta.dtype))

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        return self.likelihood.value(self._predict(z)) + 0.5 * dot(self.ridge * z, z)

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return dot(self.likelihood.gradient(self._predict(z))[0], self.A) + self.ridge * z

    def grad_terms(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return dot(self.likelihood.gradient(self._predict(z))[1], jnp.abs(self.A)) + self.ridge * jnp.abs(z)

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        product = self.likelihood.hessian_product(self._predict(z), dot(self.A, v)[:, None])
        return dot(product[:, 0], self.A) + self.ridge * v

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        return self.derivatives(z)[2](damping)

    def derivatives(self, z: Float[Array, "m"]) -> tuple[Array, Array, Callable[[Array | float], Array]]:
        own, shared = self.likelihood.own, self.likelihood.shared
        exposure, mean = self.likelihood.parts(self._predict(z), self.A)
        terms = exposure + own

        def hess(damping: Float[Array, ""] | float) -> Float[Array, "m m"]:
            curved = exposure + damping * terms  # where the curvature is lost the slope need not be
            inner = dot((self.A * curved[:, None]).T, self.A) - dot((mean * shared[:, None]).T, mean)
            return inner + jnp.diag(self.ridge)

        grad = dot(exposure - own, self.A) + self.ridge * z
        return grad, dot(terms, jnp.abs(self.A)) + self.ridge * jnp.abs(z), hess

    def scale(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return dot(self.likelihood.gradient(self._predict(z))[1], self.A**2) + self.ridge


def check_survival(
    time: ArrayLike, event: ArrayLike, strata: ArrayLike | None, n: int
) -> tuple[Float[np.ndarray, "n"], Bool[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Times, events and numbered strata of n rows as NumPy arrays, or ValueError."""
    if not is_concrete(time, event, strata):
        raise ValueError(
            "time, event, strata: rows are sorted when the model is made, so that these cannot be traced; make it "
            "outside of jax.jit, or trace X, l2, sample_weight and offset alone."
        )
    time, event = np.asarray(time), np.asarray(event)
    labels = np.zeros(n, int) if strata is None else np.asarray(strata)
    for name, value in (("time", time), ("event", event), ("strata", labels)):
        if value.shape != (n,):
            raise ValueError(f"{name}: needs shape ({n},), one value per row of X, got {value.shape}.")
    if time.dtype.kind not in "fiu":
        raise ValueError(f"time: needs numbers, got dtype {time.dtype}.")
    check_finite("time", time)
    check_finite("strata", labels)
    if event.dtype.kind not in "fiub" or not np.isin(event, (0, 1)).all():
        raise ValueError("event: needs True (1) where the event was seen and False (0) where not, and nothing else.")
    return time.astype(float), event.astype(bool), np.unique(labels, return_inverse=True)[1]
