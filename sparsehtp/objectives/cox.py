"""Cox's proportional hazards model."""

from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._types import AnyArray, ArrayLike, HostArray, Support, TableLike, check_finite, host, is_concrete, replace
from ..columns import Columns, columns_of, design_of, some_at_a_time
from ..designs import AbstractDesign
from .base import AbstractByProducts
from .likelihood import Part
from .model import AbstractModel
from .risk_sets import PartialLikelihood, RiskSets

BLOCK = 64  # columns at a time, where all are passed over
TIES = ("efron", "breslow")


class CoxModel(AbstractModel, AbstractByProducts):
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

    columns: Columns
    likelihood: PartialLikelihood  # of sorted rows
    counted = "events"

    def __init__(
        self,
        X: TableLike | AbstractDesign,
        time: ArrayLike,
        event: ArrayLike,
        l2: ArrayLike = 0.0,
        sample_weight: ArrayLike | None = None,
        standardize: bool = False,
        offset: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        ties: str = "efron",
    ) -> None:
        design = design_of(X)
        time, event, labels = check_survival(time, event, strata, design.shape[0])
        if ties not in TIES:
            raise ValueError(f"ties: must be one of {', '.join(TIES)}, got {ties!r}.")
        self.columns = columns_of(design, l2, sample_weight, bool(standardize), offset, centre=True).columns
        weights = self.columns.sample_weight
        self.likelihood = PartialLikelihood.weighed(RiskSets(time, event, labels, ties == "efron"), weights)
        if is_concrete(weights) and not self.total_weight(host(weights)):
            raise ValueError("event: no row with a positive weight has an event; at least one must be seen.")

    def over(self, columns: Columns, weighted: bool = True) -> Self:
        if not weighted:
            return replace(self, columns=columns)
        likelihood = PartialLikelihood.weighed(self.likelihood.sets, columns.sample_weight)
        return replace(self, columns=columns, likelihood=likelihood)

    @property
    def event(self) -> Bool[Array, "n"]:
        """(n,) True where the event was seen."""
        event, place = self.likelihood.sets.event, self.likelihood.sets.place
        return host(event)[host(place)] if is_concrete(event) else event[place]

    @property
    def labels(self) -> Bool[Array, "n"]:
        return self.event

    def total_weight(self, sample_weight: AnyArray) -> AnyArray:
        return sample_weight @ self.event.astype(sample_weight.dtype)

    def to_external(self, x: Float[Array, "p"]) -> tuple[Float[Array, "p"], Float[Array, ""]]:
        return self.columns.in_design_units(x)[0], jnp.zeros((), x.dtype)

    def intercept_of(self, w: Float[HostArray, "p"], free: Float[HostArray, "_"]) -> Float[HostArray, ""]:
        return np.zeros(())

    # --- predictions are sorted --------------------------------------------------------------------------------------
    def forward(self, x: Float[Array, "p"], support: Support | None = None) -> Float[Array, "n"]:
        return super().forward(x, support)[self.likelihood.sets.order]

    def product(self, v: Float[Array, "p"], support: Support | None = None) -> Float[Array, "n"]:
        return super().product(v, support)[self.likelihood.sets.order]

    def pulled(self, rows: Float[Array, "n"]) -> Float[Array, "p"]:
        return super().pulled(rows[self.likelihood.sets.place])

    def part(self, support: Support) -> Part:
        part, order = super().part(support), self.likelihood.sets.order
        A, offset, live = jax.tree.map(lambda rows: rows[order], (part.A, part.offset, part.live))
        return replace(part, A=A, offset=offset, live=live)

    # --- second derivatives ------------------------------------------------------------------------------------------
    def curvatures(self, x: Float[Array, "p"]) -> Float[Array, "p"]:
        eta = self.forward(x)
        each = some_at_a_time(lambda j: self.likelihood.curvatures(eta, self._sorted(j)), self.n_coefficients, BLOCK)
        return each + self.columns.ridge()

    def _sorted(self, idx: Int[Array, "m"]) -> Float[Array, "n m"]:
        """Sorted rows of some columns."""
        return self.columns.on(Support(idx, jnp.ones(idx.shape, bool)))[self.likelihood.sets.order]

    def hessian_rows(self, x: Float[Array, "p"], idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        rows = self.likelihood.products(self.forward(x), self._sorted(idx))
        return jax.vmap(self.pulled)(rows.T).at[jnp.arange(idx.shape[0]), idx].add(self.columns.ridge()[idx])


def check_survival(
    time: ArrayLike, event: ArrayLike, strata: ArrayLike | None, n: int
) -> tuple[Float[HostArray, "n"], Bool[HostArray, "n"], Int[HostArray, "n"]]:
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
