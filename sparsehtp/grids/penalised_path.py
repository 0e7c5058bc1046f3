"""Fits over a grid of l0, each from the one before."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._programs import program
from .._progress import Callback, reporting
from .._solve import _check_kind, solve
from .._types import Support, is_concrete, replace
from ..duality import Dual
from ..objectives import LinearModel
from ..solvers import CDSS, AbstractSolver
from ..solvers.cdss import entry_gains
from ..thresholds import L0L1L2

BELOW = 0.999  # the next l0 over the largest gain of a feature that would enter
DEFAULT_K = 20


class PenalisedFits(NamedTuple):
    """Fits over l2 (outer) and l0 (inner, falling), as NumPy arrays with a leading grid axis."""

    l0s: np.ndarray
    l2s: np.ndarray
    ks: np.ndarray
    support: Support
    coefficients: np.ndarray
    intercept: np.ndarray
    value: np.ndarray
    result: np.ndarray
    loss: np.ndarray


def penalised_path(
    objective: Any,
    l0s: Any,
    l2s: Any,
    k_limit: int | None,
    threshold: L0L1L2 | None,
    solver: AbstractSolver | None,
    key: jax.Array,
    progress: Callback | bool | None,
) -> PenalisedFits:
    """Fits for every l2 and for l0s in falling order, or, where l0s is None, for l0s that add one feature at a time.

    The next l0 is just below the most that any feature outside the support would gain, so that the support must change;
    a size is skipped only where features enter together.
    """
    _check_kind("objective", objective, LinearModel, "sht.LinearModel(X, y)")
    threshold = L0L1L2(0.0) if threshold is None else threshold
    _check_kind("threshold", threshold, L0L1L2, "sht.L0L1L2(0.0, l1)")
    if not is_concrete(objective, l0s, l2s, threshold):
        raise TypeError("objective: a whole path needs concrete arrays; under jit or vmap use sht.solve.")
    solver = CDSS() if solver is None else solver
    given = None if l0s is None else _checked(l0s)
    n, p = objective.design.shape
    k_limit = min(DEFAULT_K, p, max(n // 2, 1)) if k_limit is None else min(k_limit, p)
    models = [objective] if l2s is None else [objective.reweighted(l2=l2) for l2 in np.asarray(l2s)]
    rows: list[dict[str, Any]] = []
    with reporting(progress) as report:
        for number, model in enumerate(models):
            total = len(models) * (k_limit if given is None else given.size)
            for row in _chain(model, threshold, solver, given, k_limit, key):
                rows.append(row)
                done = min(row["k"], k_limit) if given is None else len(rows) - number * given.size
                report(min(number * total // len(models) + done, total), total)
    return _collected(rows)


def _checked(l0s: Any) -> Float[np.ndarray, "grid"]:
    l0s = np.atleast_1d(np.asarray(l0s, float))
    if l0s.ndim != 1 or l0s.size == 0 or not np.isfinite(l0s).all() or l0s.min() < 0:
        raise ValueError(f"l0s: needs finite numbers >= 0, for example np.geomspace(1, 1e-3, 20), got {l0s}.")
    return np.sort(l0s)[::-1]


def _chain(
    model: LinearModel,
    threshold: L0L1L2,
    solver: AbstractSolver,
    given: Float[np.ndarray, "grid"] | None,
    k_limit: int,
    key: jax.Array,
) -> Iterator[dict[str, Any]]:
    x = jnp.zeros(model.n_coefficients + model.n_free, model.dtype)
    found, last, place = None, np.inf, 0
    while True:
        if given is None:
            gain, value = map(float, jax.device_get(_largest_gain(model, threshold, x)))
            last = min(BELOW * last, BELOW * gain)
            if not last > 1e-9 * abs(value):  # nothing enters but noise
                return
        elif place == given.size:
            return
        else:
            last = given[place]
        place += 1
        level = replace(threshold, l0=float(last))
        found = solve(model, level, solver, x0=found, key=key, record=None, throw=False)
        x = model.to_internal(found.x, found.intercept)
        w = np.asarray(found.x)
        k = int(np.count_nonzero(w))
        if given is None and k > k_limit:
            return
        yield {
            "l0": last,
            "l2": np.asarray(model.l2),
            "k": k,
            "idx": np.flatnonzero(w).astype(np.int32),
            "z": w[np.flatnonzero(w)],
            "intercept": np.asarray(found.intercept),
            "value": np.asarray(found.value),
            "result": np.asarray(found.result),
            "loss": np.asarray(_loss(model, x)),
        }
        if given is None and k == min(k_limit, model.n_coefficients):
            return


@program
def _largest_gain(
    model: LinearModel, threshold: L0L1L2, x: Float[Array, "d"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    dual = Dual(model, threshold.bind(model))
    p = model.n_coefficients
    if model.n_free:  # the intercept is optimal before features are compared
        x = jnp.where(jnp.any(x[:p] != 0), x, dual.predict(dual.point(dual.zero()))[0])
    value, grad = model.value_and_grad(x)
    gains, _ = entry_gains(dual, dual.energies(), grad[:p], model.ridge()[:p], x[:p])
    return jnp.max(gains), value


@program
def _loss(model: LinearModel, x: Float[Array, "d"]) -> Float[Array, ""]:
    return model.scorer().value(x)


def _collected(rows: list[dict[str, Any]]) -> PenalisedFits:
    width = max([row["k"] for row in rows], default=0)
    idx: Any = np.zeros((len(rows), width), np.int32)
    z = np.zeros((len(rows), width), rows[0]["z"].dtype if rows else float)
    mask: Any = np.zeros((len(rows), width), bool)
    for i, row in enumerate(rows):
        idx[i, : row["k"]], z[i, : row["k"]], mask[i, : row["k"]] = row["idx"], row["z"], True

    def column(name: str, dtype: Any = None) -> np.ndarray:
        return np.array([row[name] for row in rows], dtype)

    return PenalisedFits(
        l0s=column("l0", float),
        l2s=column("l2"),
        ks=column("k", np.int32),
        support=Support(idx, mask),
        coefficients=z,
        intercept=column("intercept"),
        value=column("value"),
        result=column("result", np.int32),
        loss=column("loss"),
    )
